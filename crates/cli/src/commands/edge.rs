//! `sidestep edge balance`, `route-control`, `where`, `status` and `stop`.

mod route_control;

use std::path::{Path, PathBuf};

use comfy_table::{Table, presets};
use sidestep_hostd::MetricsConfig;
use sidestep_route_control::daemon::{RouteControlConfig, route_control_status};
use sidestep_semper::daemon::{
    EdgeConfig, EdgeOptions, EdgeProbes, EdgeStatus, HashDoubt, PlacedBy, Tuple, edge_place, edge_status, run_edge,
    stop_edge,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    obstacles::print_obstacles,
    print_json, read, runtime,
    signals::{announce, at_hangups, stopped_or_relieved},
};
use crate::{
    args::{EdgeCommand, EdgeNumbers, EdgeRun, EdgeWhere},
    failure::{Failure, Outcome},
};

/// Runs `sidestep edge`.
pub fn run(command: EdgeCommand) -> Outcome {
    match command {
        EdgeCommand::Balance(args) => balance(args),
        EdgeCommand::RouteControl(args) => route_control::run(args),
        EdgeCommand::Where(args) => place(&args),
        EdgeCommand::Status { json } => status(json),
        EdgeCommand::Stop { json, place } => stop(place, json),
    }
}

/// Reads a route controller's file.
pub(super) fn read_route_control(path: &Path) -> Result<RouteControlConfig, Failure> {
    route_control::read_config(path, None)
}

fn balance(args: EdgeRun) -> Outcome {
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
    runtime()?
        .block_on(async { run_edge(options, reread(args.config, given), announce, stopped_or_relieved()).await })
        .map_err(Failure::from)
}

fn read_config(path: &Path, given: &MetricsConfig) -> Result<EdgeConfig, Failure> {
    let (text, name) = (read(path)?, path.display().to_string());
    let parsed = EdgeConfig::parse(&text).map_err(|error| Failure::usage(error.in_file(&name)))?;
    let mut config = parsed.in_file(&name);
    config.metrics.listen = given.listen.or(config.metrics.listen);
    Ok(config)
}

/// The configuration file, read again at each SIGHUP; one with a mistake is reported and left alone.
fn reread(path: PathBuf, given: MetricsConfig) -> UnboundedReceiver<EdgeConfig> {
    at_hangups(move || {
        let failed = |error| tracing::error!("the configuration stays what it was: {error}");
        read_config(&path, &given).map_err(failed).ok()
    })
}

/// Prints that a configuration is in order, and what the other edge must have alike.
fn checked(config: &EdgeConfig, json: bool) -> Outcome {
    let mut config = config.clone();
    let origin = config.settle_seed(None);
    let status = EdgeStatus::of_config(&config).map_err(Failure::usage)?;
    if json {
        let of = |set: &sidestep_semper::daemon::EdgeDestination| serde_json::json!({ "prefix": set.prefix, "paths": set.paths.len(), "digest": set.digest });
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

fn place(args: &EdgeWhere) -> Outcome {
    let tuple: Tuple = args.tuple.join(" ").parse().map_err(Failure::usage)?;
    let status = match &args.config {
        Some(path) => {
            let mut config = read_config(path, &MetricsConfig::default())?;
            config.settle_seed(None);
            EdgeStatus::of_config(&config).map_err(Failure::usage)?
        }
        None => ask()?,
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

fn ask() -> Result<EdgeStatus, Failure> {
    let missing = || {
        Failure::run(
            "no edge daemon works in this network namespace; `--config FILE` goes by a file, and what a killed one left works on",
        )
    };
    edge_status()?.ok_or_else(missing)
}

fn status(json: bool) -> Outcome {
    let found = edge_status()?;
    if found.is_none()
        && let Some(controlled) = route_control_status()?
    {
        return route_control::show(&controlled, json);
    }
    let status = found.map_or_else(ask, Ok)?;
    if json {
        return print_json(&status);
    }
    let dry = if status.dry_run { ", dry run" } else { "" };
    let EdgeStatus { mode, seed, seed_origin, generation, .. } = &status;
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
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["path", "slot", "state", "packets", "bytes", "flows", "probes"]);
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

fn stop(place: EdgeNumbers, json: bool) -> Outcome {
    let stopped = runtime()?.block_on(stop_edge(place.table_base, place.rule_priority))?;
    if json {
        return print_json(&serde_json::json!({ "schema": 1, "stopped": stopped }));
    }
    match stopped {
        true => println!("everything of the edge daemon of this network namespace is removed"),
        false => println!("there is nothing of an edge daemon in this network namespace"),
    }
    Ok(())
}
