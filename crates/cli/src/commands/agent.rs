//! `sidestep agent status` and `sidestep agent stop`.

use std::path::PathBuf;

use comfy_table::{Table, presets};
use serde::Serialize;
use sidestep_agent::stop_host;
use sidestep_linux::bpf::host::Pins;

use super::{
    print_json, runtime,
    watch::{Seen, Watch},
};
use crate::{args::AgentStatus, failure::Outcome};

/// Lists the connections that are moved.
pub fn status(args: &AgentStatus) -> Outcome {
    let seen = Watch::open(&args.state, &args.filter)?.look()?;
    if args.json {
        return print_json(&seen);
    }
    println!("{}", headline(&seen));
    for learnt in &seen.learnt {
        let paths = learnt.paths.iter().map(|one| format!("{} {:.3}", one.path, one.factor));
        println!("learnt of {}: {}", learnt.destination, paths.collect::<Vec<_>>().join(", "));
    }
    if seen.connections.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["local", "remote", "destination", "path", "age", "signals", "moves", "last decision"]);
    for one in &seen.connections {
        let last = one.last.as_ref().map(|last| format!("{}, {} ago", last.reason, age(last.age_s)));
        table.add_row([
            one.local.to_string(),
            one.remote.to_string(),
            one.destination.map(|prefix| prefix.to_string()).unwrap_or_default(),
            one.path.clone(),
            age(one.age_s),
            one.signals.to_string(),
            one.moves.to_string(),
            last.unwrap_or_default(),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// How many connections and destinations there are, and how old the paths are, in one line.
pub fn headline(seen: &Seen) -> String {
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut parts = vec![
        plural(seen.connections.len(), "connection"),
        format!("paths to {}", plural(seen.destinations.len(), "destination")),
    ];
    if let Some(seconds) = seen.paths_age_s {
        parts.push(format!("{} old", age(seconds)));
    }
    match seen.controller {
        "none" => {}
        state => parts.push(format!("controller {state}")),
    }
    if seen.dry_run {
        parts.push("dry run: nobody is moved, paths and moves are what they would be".into());
    }
    parts.join(", ")
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

/// A number of seconds for people: one digit too many hides what matters.
pub fn age(seconds: f64) -> String {
    match seconds as u64 {
        0 => format!("{:.0} ms", seconds * 1e3),
        1..10 => format!("{seconds:.1} s"),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!(age(0.0421), "42 ms");
        assert_eq!(age(2.34), "2.3 s");
        assert_eq!(age(11.9), "11 s");
        assert_eq!(age(3_599.0), "59 min");
        assert_eq!(age(100_000.0), "27 h");
        assert_eq!(age(1e7), "115 d");
    }
}
