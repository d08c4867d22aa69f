//! Runs one benchmark of the simulator and prints what it did: `bench CASE rfc|linux SECONDS`. It needs neither the command line
//! nor HiGHS, so `scripts/instructions` builds it in a minute.

use std::{env, process::ExitCode};

use sidestep_net::Span;
use sidestep_sim::bench::{Case, Tcp};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("error: give a case ({}), rfc or linux, and seconds", Case::ALL.map(Case::name).join(", "));
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Option<()> {
    let [case, tcp, seconds] = arguments else { return None };
    let case = Case::ALL.into_iter().find(|known| known.name() == case)?;
    let tcp = match tcp.as_str() {
        "rfc" => Tcp::Rfc,
        "linux" => Tcp::Linux,
        _ => return None,
    };
    let duration = Span::from_nanos((seconds.parse::<f64>().ok()? * 1e9) as u64);
    println!("{:?}", case.prepare(1, tcp).ok()?.run(duration));
    Some(())
}
