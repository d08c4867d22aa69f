//! `sidestep agent status` and `sidestep agent stop`.

use std::{net::SocketAddrV6, path::PathBuf};

use comfy_table::{Table, presets};
use ipnet::Ipv6Net;
use serde::Serialize;
use sidestep_agent::stop_host;
use sidestep_linux::bpf::host::{HostConnection, HostProgram, Pins};
use sidestep_model::{Span, Time};

use super::{print_json, runtime};
use crate::{
    args::AgentStatus,
    failure::{Failure, Outcome},
};

/// A connection as `sidestep agent status --json` has it.
#[derive(Debug, Serialize)]
struct Connection {
    local: SocketAddrV6,
    remote: SocketAddrV6,
    passive: bool,
    /// Eight hexadecimal digits, as the controller has them.
    path: String,
    age_s: f64,
    decisions: u32,
    moves: u32,
    suppressed: u32,
    last: Option<Last>,
}

#[derive(Debug, Serialize)]
struct Last {
    reason: &'static str,
    age_s: f64,
}

#[derive(Debug, Serialize)]
struct Status {
    schema: u32,
    destinations: Vec<Ipv6Net>,
    connections: Vec<Connection>,
}

/// Lists the connections that are moved.
pub fn status(args: &AgentStatus) -> Outcome {
    let pins = Pins { directory: args.state.clone(), program: false };
    let to = args.to.as_deref().map(super::daemons::prefix).transpose()?;
    let Some(program) = HostProgram::look(&pins).map_err(Failure::from)? else {
        let place = pins.directory.display();
        return Err(Failure::run(format!(
            "no agent keeps its state in {place}; is one running, and with which --state?"
        )));
    };
    let now = sidestep_linux::monotonic_now();
    let wanted = |connection: &HostConnection| {
        to.is_none_or(|to| to.contains(connection.remote.ip()))
            && args.path.is_none_or(|path| connection.path == path)
            && (!args.moved || connection.moves > 0)
    };
    let connections = program.connections().map_err(Failure::from)?;
    let mut connections: Vec<_> = connections.into_iter().filter(wanted).map(|one| shown(&one, now)).collect();
    connections.sort_by_key(|one| (one.remote, one.local));
    let destinations = program.destinations().map_err(Failure::from)?;
    if args.json {
        return print_json(&Status { schema: 1, destinations, connections });
    }
    if connections.is_empty() {
        println!("no connections; {} destinations have paths", destinations.len());
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["local", "remote", "path", "age", "decisions", "moves", "held back", "last decision"]);
    for one in &connections {
        let last = one.last.as_ref().map(|last| format!("{}, {} ago", last.reason, age(last.age_s)));
        table.add_row([
            one.local.to_string(),
            one.remote.to_string(),
            one.path.clone(),
            age(one.age_s),
            one.decisions.to_string(),
            one.moves.to_string(),
            one.suppressed.to_string(),
            last.unwrap_or_default(),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// Ends the agent and removes all that it made.
pub fn stop(state: PathBuf, json: bool) -> Outcome {
    #[derive(Serialize)]
    struct Stopped {
        schema: u32,
        stopped: bool,
    }
    let pins = Pins { directory: state, program: false };
    let stopped = runtime()?.block_on(stop_host(&pins))?;
    if json {
        return print_json(&Stopped { schema: 1, stopped });
    }
    let place = pins.directory.display();
    match stopped {
        true => println!("everything of the agent of {place} is removed"),
        false => println!("there is nothing of an agent in {place}"),
    }
    Ok(())
}

fn shown(connection: &HostConnection, now: Time) -> Connection {
    let age = |since: Time| now.since(since).as_secs_f64();
    Connection {
        local: connection.local,
        remote: connection.remote,
        passive: connection.passive,
        path: format!("{:08x}", connection.path),
        age_s: age(connection.opened),
        decisions: connection.decisions,
        moves: connection.moves,
        suppressed: connection.suppressed,
        last: connection.decided.map(|(at, reason)| Last { reason: reason.name(), age_s: age(at) }),
    }
}

fn age(seconds: f64) -> String {
    Span::from_millis((seconds * 1e3) as u64).to_string()
}
