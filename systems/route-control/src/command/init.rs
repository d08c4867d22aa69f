//! `sidestep edge route-control init`.

use std::{
    io::{IsTerminal, Write, stderr, stdin},
    net::IpAddr,
};

use sidestep_command::{Failure, Outcome, eprintln, runtime, write_proposal};

use super::args::RouteControlInit;
use crate::daemon::{PUBLIC_TARGETS, propose_route_control};

/// Writes a configuration from what this machine has.
pub(super) fn run(args: &RouteControlInit) -> Outcome {
    let targets = if args.target.is_empty() { asked()? } else { args.target.clone() };
    let none = || Failure::run("there is no default route, so no egress to begin with; `ip route` shows what there is");
    let proposal = runtime()?.block_on(propose_route_control(&targets))?.ok_or_else(none)?;
    write_proposal(&proposal, args.output.as_deref(), args.force)
}

/// Asks the operator what to probe, if there is one at a terminal.
fn asked() -> Result<Vec<IpAddr>, Failure> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Ok(Vec::new());
    }
    eprintln!("Which hosts should each egress probe, at most five times a second each? Three of different operators");
    eprint!("are better than one. Addresses, `public` for {}, or nothing: ", PUBLIC_TARGETS.join(" "));
    let mut answer = String::new();
    stderr().flush().and_then(|()| stdin().read_line(&mut answer)).map_err(Failure::run)?;
    read_targets(&answer).map_err(Failure::usage)
}

/// The addresses that an answer names.
fn read_targets(answer: &str) -> Result<Vec<IpAddr>, String> {
    let words: Vec<&str> = answer.split([' ', ',', '\t', '\r', '\n']).filter(|word| !word.is_empty()).collect();
    let words = if words == ["public"] { PUBLIC_TARGETS.to_vec() } else { words };
    words.iter().map(|word| word.parse().map_err(|_| format!("`{word}` is no IP address"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_addresses_or_the_public_ones_or_nothing() {
        assert_eq!(read_targets("9.9.9.9, 2620:fe::fe\n").unwrap().len(), 2);
        assert_eq!(read_targets("public\n").unwrap().len(), PUBLIC_TARGETS.len());
        assert_eq!(read_targets("\n").unwrap(), Vec::<IpAddr>::new());
        assert_eq!(read_targets("9.9.9.9 example").unwrap_err(), "`example` is no IP address");
    }
}
