//! `sidestep controller`.

use std::{path::Path, sync::Arc};

use sidestep_api::chain;
use sidestep_command::{Failure, Outcome, announce, print_json, read, reread, runtime, stopped, warn_of};
use sidestep_controller::{Controller, PairPaths, PlanError, RouterBindings, ServeError, serve};
use sidestep_hostd::Scrapes;
use sidestep_net::{Topology, topology_file};
use sidestep_paths::PathSettings;

use crate::args::ControllerArgs;

/// Endpoints in a directory of our own, which is made where it is missing.
const OWN_SOCKETS: &str = "unix:/run/sidestep/";

/// Runs `sidestep controller`.
pub fn run(args: ControllerArgs) -> Outcome {
    let topology = read_topology(&args.topology)?;
    let settings =
        PathSettings { max_segments: args.max_segments, max_paths: args.max_paths, adjacency: !args.no_adjacency };
    settings.check().map_err(|error| Failure::usage(format!("--{}", error.to_string().replace('_', "-"))))?;
    let wrong = |error: PlanError| Failure::usage(chain(&error));
    let controller = Arc::new(Controller::without_paths(topology, settings).map_err(wrong)?);
    if args.show {
        controller.compute().map_err(wrong)?;
        return show(&controller, args.json);
    }
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        if args.listen.starts_with(OWN_SOCKETS) {
            let _ = std::fs::create_dir_all("/run/sidestep");
        }
        let listener = sidestep_api::listen(&args.listen).await?;
        let scrapes = Scrapes::listen_if(args.metrics).await.map_err(Failure::run)?;
        let path = args.topology;
        let topologies = reread("the topology", move || read_network(&path, settings).map(Some));
        serve(controller, listener, topologies, scrapes, announce, stopped()).await.map_err(not_served)
    });
    // The paths that may still be being computed are not needed any more.
    runtime.shutdown_background();
    outcome
}

fn not_served(error: ServeError) -> Failure {
    let message = chain(&error);
    match error {
        ServeError::Plan(_) => Failure::usage(message),
        ServeError::Transport(_) | ServeError::Panic(_) => Failure::run(message),
    }
}

/// Reads a topology for which a controller can compute paths.
fn read_network(path: &Path, settings: PathSettings) -> Result<Topology, Failure> {
    let topology = read_topology(path)?;
    let failed = |error| Failure::usage(format!("{}: {}", path.display(), chain(&error)));
    Controller::check(&topology, settings).map_err(failed)?;
    Ok(topology)
}

fn read_topology(path: &Path) -> Result<Topology, Failure> {
    let text = read(path)?;
    let topology =
        topology_file::parse(&text).map_err(|error| Failure::usage(error.in_file(path.display().to_string())))?;
    warn_of(topology_file::notes(&text), path);
    Ok(topology)
}

fn show(controller: &Controller, json: bool) -> Outcome {
    let (sets, bindings) = (controller.sets(), controller.bindings());
    if json {
        #[derive(serde::Serialize)]
        struct Shown {
            schema: u32,
            paths: Vec<PairPaths>,
            bindings: Vec<RouterBindings>,
        }
        return print_json(&Shown { schema: 1, paths: sets, bindings });
    }
    for pair in &sets {
        println!("{} -> {}: {} paths", pair.from, pair.to, pair.paths.len());
        for path in &pair.paths {
            let segments: Vec<_> = path.segments.iter().map(ToString::to_string).collect();
            println!(
                "  {}  {}  {}  via {}",
                path.path.id,
                path.path.capacity,
                path.links.join(" "),
                segments.join(" ")
            );
        }
    }
    Ok(())
}
