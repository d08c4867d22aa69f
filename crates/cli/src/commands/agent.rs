//! `sidestep agent status` and `sidestep agent stop`.

use std::path::PathBuf;

use comfy_table::{Table, presets};
use serde::Serialize;
use sidestep_agent::stop_host;
use sidestep_linux::bpf::host::Pins;

use super::{
    print_json, runtime,
    watch::{Connection, LearntPath, Watch},
};
use crate::{args::AgentStatus, failure::Outcome};

/// Lists the connections that are moved.
pub fn status(args: &AgentStatus) -> Outcome {
    let seen = Watch::open(&args.state, &args.filter)?.look()?;
    if args.json {
        return print_json(&seen);
    }
    println!("{}", seen.headline());
    let errors: Vec<_> = seen.errors.iter().filter(|(_, n)| **n > 0).map(|(kind, n)| format!("{kind} {n}")).collect();
    if !errors.is_empty() {
        println!("errors: {}", errors.join(", "));
    }
    for learnt in &seen.learnt {
        let paths = learnt.paths.iter().map(LearntPath::to_string);
        println!("learnt of {}: {}", learnt.destination, paths.collect::<Vec<_>>().join(", "));
    }
    if seen.connections.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(Connection::COLUMNS);
    table.add_rows(seen.connections.iter().map(Connection::cells));
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
