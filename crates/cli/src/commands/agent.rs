//! `sidestep agent status`, `sidestep agent init` and `sidestep agent stop`.

use std::path::{Path, PathBuf};

use sidestep_hostd::Proposal;
use sidestep_pathchanger::daemon::{program::Pins, propose, stop_host};

use comfy_table::{Table, presets};
use serde::Serialize;

use super::{
    obstacles::print_obstacles,
    print_json, runtime,
    watch::{Connection, LearntPath, PathSeen, Watch},
    write_new,
};
use crate::{
    args::AgentStatus,
    failure::{Failure, Outcome},
};

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
    print_obstacles(&seen.overridden, &seen.restored);
    for (destination, note) in &seen.notes {
        println!("{destination}: {note}");
    }
    if !seen.left_alone.is_empty() {
        let prefixes: Vec<_> = seen.left_alone.iter().map(ToString::to_string).collect();
        println!("left alone: {}", prefixes.join(", "));
    }
    for reach in &seen.source_addresses {
        println!("{reach}");
    }
    for learnt in &seen.learnt {
        let paths = learnt.paths.iter().map(LearntPath::to_string);
        println!("learnt of {}: {}", learnt.destination, paths.collect::<Vec<_>>().join(", "));
    }
    if seen.paths.is_empty() {
        return Ok(());
    }
    let mut paths = Table::new();
    paths.load_style(presets::NOTHING);
    paths.set_header(PathSeen::COLUMNS);
    paths.add_rows(seen.paths.iter().map(PathSeen::cells));
    println!("{paths}");
    if seen.connections.is_empty() {
        return Ok(());
    }
    println!();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(Connection::COLUMNS);
    table.add_rows(seen.connections.iter().map(Connection::cells));
    println!("{table}");
    Ok(())
}

/// Writes a configuration from the routes of this machine.
pub fn init(output: Option<&Path>, force: bool) -> Outcome {
    let Some(Proposal { text, found, missing }) = runtime()?.block_on(propose())? else {
        return Err(Failure::run(
            "there is no default route, so no path to begin with; `ip route` shows what there is",
        ));
    };
    let Some(output) = output else {
        print!("{text}");
        return Ok(());
    };
    write_new(output, &text, force)?;
    println!("{} is written. Found:", output.display());
    found.iter().for_each(|line| println!("  {line}"));
    if !missing.is_empty() {
        println!("Left to you:");
        missing.iter().for_each(|line| println!("  {line}"));
    }
    Ok(())
}

/// Ends the agent and removes all that it made.
pub fn stop(state: PathBuf, json: bool) -> Outcome {
    #[derive(Serialize)]
    struct Stopped {
        schema: u32,
        stopped: bool,
    }
    let pins = Pins { directory: Pins::locate(state), program: false };
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
