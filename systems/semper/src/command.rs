//! The commands `balance`, `where`, `status` and `stop` of edges.

mod args;
mod examination;

use std::path::Path;

use sidestep_command::{
    Command, EDGE, Failure, Outcome, Status, announce, plain_table, print_json, print_obstacles, print_stopped,
    println, read, reread, run_daemon, runtime, stopped_or_relieved,
};
use sidestep_hostd::MetricsConfig;

use self::args::{EdgeRun, EdgeStop, EdgeWhere};
use crate::daemon::{
    EdgeConfig, EdgeDestination, EdgeOptions, EdgeProbes, EdgeStatus, HashDoubt, PlacedBy, Tuple, edge_place,
    edge_status, run_edge, stop_edge,
};

pub use self::examination::SemperExamination;

/// The error where no edge daemon is at work.
const ABSENT: &str = "no edge daemon works in this network namespace; `--config FILE` goes by a file, and what a killed one left works on";

/// `sidestep edge balance`: runs the edge daemon.
pub fn balance() -> Command {
    Command::of::<EdgeRun>("balance", run_balancer).within(&EDGE)
}

/// `sidestep edge where`: finds the path of a flow.
pub fn place() -> Command {
    Command::of::<EdgeWhere>("where", |args| find(&args)).within(&EDGE)
}

/// `sidestep edge status`, of the edge daemon.
pub fn status() -> Status {
    let shows = "the paths of this network namespace's edge daemon, and what they carry";
    Status::of(shows, ABSENT, edge_status, show)
}

/// `sidestep edge stop`: ends the edge daemon, and removes what it made.
pub fn stop() -> Command {
    Command::of::<EdgeStop>("stop", end).within(&EDGE)
}

fn run_balancer(args: EdgeRun) -> Outcome {
    let given = MetricsConfig { listen: args.metrics, bpf_stats: false };
    let config = read_config(&args.config, &given)?;
    if args.offload.is_some() {
        config.check_offload().map_err(Failure::usage)?;
    }
    if args.check {
        return checked(&config, args.json);
    }
    let options = EdgeOptions {
        config,
        table_base: args.place.table_base,
        priority: args.place.rule_priority,
        keep: args.keep,
        offload: args.offload.is_some(),
        dry_run: args.dry_run,
    };
    let again = move || read_config(&args.config, &given).map(Some);
    run_daemon(async || run_edge(options, reread("the configuration", again), announce, stopped_or_relieved()).await)
}

fn read_config(path: &Path, given: &MetricsConfig) -> Result<EdgeConfig, Failure> {
    let (text, name) = (read(path)?, path.display().to_string());
    let parsed = EdgeConfig::parse(&text).map_err(|error| Failure::usage(error.in_file(&name)))?;
    let mut config = parsed.in_file(&name);
    config.metrics.listen = given.listen.or(config.metrics.listen);
    Ok(config)
}

/// Prints that a configuration is in order, and what the other edge must have alike.
fn checked(config: &EdgeConfig, json: bool) -> Outcome {
    let mut config = config.clone();
    let origin = config.settle_seed(None);
    let status = EdgeStatus::of_config(&config).map_err(Failure::usage)?;
    if json {
        let of = |set: &EdgeDestination| serde_json::json!({ "prefix": set.prefix, "paths": set.paths.len(), "digest": set.digest });
        let destinations: Vec<_> = status.destinations.iter().map(of).collect();
        return print_json(&serde_json::json!({
            "schema": 1, "generation": status.generation, "seed": status.seed, "seed_origin": origin,
            "destinations": destinations,
        }));
    }
    println!("in order: generation {}", status.generation);
    for set in status.destinations {
        println!("{}: {} paths, digest {}", set.prefix, set.paths.len(), set.digest);
    }
    println!("seed {} ({origin})", status.seed);
    if let Some(doubt) = HashDoubt::of_seed(status.seed) {
        println!("{doubt}");
    }
    Ok(())
}

fn find(args: &EdgeWhere) -> Outcome {
    let tuple: Tuple = args.tuple.join(" ").parse().map_err(Failure::usage)?;
    let status = match &args.config {
        Some(path) => {
            let mut config = read_config(path, &MetricsConfig::default())?;
            config.settle_seed(None);
            EdgeStatus::of_config(&config).map_err(Failure::usage)?
        }
        None => edge_status()?.ok_or_else(|| Failure::run(ABSENT))?,
    };
    let found = runtime()?.block_on(edge_place(&status, &tuple))?;
    let Some(place) = found.map_err(Failure::run)? else {
        return Err(Failure::run(
            "neither end of this flow is in a destination with paths: it takes the router's own route",
        ));
    };
    if args.json {
        return print_json(&place);
    }
    println!("{place}");
    if status.flows.is_some() && place.by == PlacedBy::Hash {
        println!("this is the path of its hash: the edge's table does not have this flow, or its path there is dead");
    }
    Ok(())
}

/// Prints what the edge daemon reports about itself.
fn show(status: &EdgeStatus, json: bool) -> Outcome {
    if json {
        return print_json(status);
    }
    let dry = if status.dry_run { ", dry run" } else { "" };
    let EdgeStatus { mode, seed, seed_origin, generation, .. } = status;
    println!("mode {}, seed {seed} ({seed_origin}), generation {generation}{dry}", mode.as_str());
    status.doubts.iter().for_each(|doubt| println!("{doubt}"));
    let packets: Vec<_> =
        status.packets.iter().map(|(what, count)| format!("{} {count}", what.replace('_', " "))).collect();
    println!("packets: {}", packets.join(", "));
    for name in status.inside.iter().filter(|(_, is_on)| !**is_on).map(|(name, _)| name) {
        println!("not on {name}: its packets take the router's own route");
    }
    print_obstacles(&status.overridden, &status.restored);
    for set in &status.destinations {
        println!("{}: digest {}", set.prefix, set.digest);
        if set.answers == Some(false) {
            println!("no target answers probes by any path: they show nothing about the paths");
        }
        let mut table = plain_table(["path", "slot", "state", "packets", "bytes", "flows", "probes"]);
        for path in &set.paths {
            let used = status.slots.get(&u32::from(path.slot)).filter(|_| path.slot > 0);
            let state = path.why.clone().unwrap_or_else(|| "live".into());
            let count = |value: Option<u64>| value.unwrap_or(0).to_string();
            table.add_row([
                path.name.clone(),
                path.slot.to_string(),
                state,
                count(used.map(|used| used.packets)),
                count(used.map(|used| used.bytes)),
                count(used.map(|used| used.flows.into())),
                path.probes.map(probes).unwrap_or_default(),
            ]);
        }
        println!("{table}");
    }
    Ok(())
}

/// What became of a path's probes, in some words.
fn probes(probes: EdgeProbes) -> String {
    let EdgeProbes { answered, lost, late, rtt_ms } = probes;
    let late = if late > 0 { format!(", {late} late") } else { String::new() };
    let rtt = rtt_ms.map(|rtt| format!(", {rtt:.1} ms")).unwrap_or_default();
    format!("{answered} answered, {lost} lost{late}{rtt}")
}

fn end(args: EdgeStop) -> Outcome {
    let EdgeStop { json, place } = args;
    let stopped = runtime()?.block_on(stop_edge(place.table_base, place.rule_priority))?;
    let removed = "everything of the edge daemon of this network namespace is removed";
    print_stopped(stopped, json, removed, "there is nothing of an edge daemon in this network namespace")
}
