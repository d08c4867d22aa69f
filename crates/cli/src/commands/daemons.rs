//! `sidestep controller`, `sidestep agent` and `sidestep router`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use sidestep_api::HostIdentity;
use sidestep_controller::{Controller, PairPaths, PlanError, RouterBindings, serve};
use sidestep_hostd::{Captured, MetricsConfig, Scrapes, captured};
use sidestep_linux::{LinuxError, netlink::InnerRoute};
use sidestep_net::{ParseError, Topology, topology_file};
use sidestep_pathchanger::daemon::{
    HostConfig, HostOptions, RecordFile, RouterOptions, cannot_reset, doubtful_sources, program::Pins, reaches,
    run_host, run_router, stop_router,
};
use sidestep_paths::PathSettings;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    print_json, read, runtime,
    signals::{announce, at_hangups, stopped, stopped_or_relieved},
};
use crate::{
    args::{AGENT_STATE, AgentArgs, AgentCommand, AgentRun, ControllerArgs, RouterArgs, RouterCommand, RouterRun},
    failure::{Failure, Outcome, chain},
};

/// Endpoints in a directory of our own, which is made where it is missing.
const OWN_SOCKETS: &str = "unix:/run/sidestep/";

/// Runs `sidestep controller`.
pub fn controller(args: ControllerArgs) -> Outcome {
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
        let topologies = at_hangups(move || {
            let failed = |error| tracing::error!("the topology stays what it was: {error}");
            read_network(&path, settings).map_err(failed).ok()
        });
        Ok(serve(controller, listener, topologies, scrapes, announce, stopped()).await?)
    });
    // The paths that may still be being computed are not needed any more.
    runtime.shutdown_background();
    outcome
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

/// Reports what was read otherwise than it stands in a file.
pub(super) fn warn_of(notes: Vec<ParseError>, path: &Path) {
    for note in notes {
        tracing::warn!("{}", note.in_file(path.display().to_string()));
    }
}

/// Runs `sidestep agent`.
pub fn agent(args: AgentArgs) -> Outcome {
    match args.command {
        None => run_agent(args.run),
        Some(AgentCommand::Status(args)) => super::agent::status(&args),
        Some(AgentCommand::Explain(args)) => super::explain::run(&args),
        Some(AgentCommand::Init { output, force }) => super::agent::init(output.as_deref(), force),
        Some(AgentCommand::Stop { state, json }) => super::agent::stop(state, json),
    }
}

fn run_agent(args: AgentRun) -> Outcome {
    let given = MetricsConfig { listen: args.metrics, bpf_stats: args.bpf_stats };
    let follows = args.controller.is_some();
    let config = args.config.as_deref().map(|path| read_config(path, &given, follows)).transpose()?;
    let config = config.unwrap_or_else(|| HostConfig { metrics: given.clone(), ..HostConfig::default() });
    if args.check {
        return checked(&config, args.json);
    }
    let (pins, warning) = pins(&args)?;
    let cgroup = sidestep_linux::cgroup::find(args.cgroup.as_deref()).map_err(|error| match error {
        // Not the machine lacks something, but the place is wrong.
        LinuxError::Refused { .. } => Failure::usage(error),
        error => Failure::environment(error),
    })?;
    let identity = identity(args.node, &args.prefixes)?;
    let options = HostOptions {
        controller: args.controller,
        identity,
        config,
        cgroup,
        table_base: args.table_base,
        priority: args.rule_priority,
        pins,
        keep: args.keep,
        dry_run: args.dry_run,
        events: args.events.map(|path| RecordFile { path, size: args.events_size, keep: args.events_keep }),
    };
    let ready = || {
        if let Some(error) = warning {
            tracing::warn!(%error, "an agent after this one cannot take its connections over");
        }
        announce();
    };
    let config = args.config;
    runtime()?
        .block_on(async { run_host(options, reread(config, given, follows), ready, stopped_or_relieved()).await })
        .map_err(Failure::from)
}

/// Reads the file; what the command line sets for metrics wins. An agent that follows no controller needs a destination.
pub(super) fn read_config(path: &Path, given: &MetricsConfig, follows: bool) -> Result<HostConfig, Failure> {
    let (text, name) = (read(path)?, path.display().to_string());
    let parsed = HostConfig::parse(&text).and_then(|config| {
        if follows || !config.destinations.is_empty() {
            return Ok(config.in_file(&name));
        }
        let problem = "there is nothing to do: give a [[destination]] with paths, or name a controller (--controller)";
        Err(ParseError::new(&text, 0, problem))
    });
    let mut config = parsed.map_err(|error| Failure::usage(error.in_file(&name)))?;
    warn_of(HostConfig::notes(&text), path);
    config.metrics.listen = given.listen.or(config.metrics.listen);
    config.metrics.bpf_stats |= given.bpf_stats;
    Ok(config)
}

/// The configuration file, read again at each SIGHUP; one with a mistake is reported and left alone.
fn reread(path: Option<PathBuf>, given: MetricsConfig, follows: bool) -> UnboundedReceiver<HostConfig> {
    at_hangups(move || {
        let Some(path) = &path else {
            tracing::info!("there is no configuration file to read again");
            return None;
        };
        let failed = |error| tracing::error!("the configuration stays what it was: {error}");
        read_config(path, &given, follows).map_err(failed).ok()
    })
}

/// Where the agent keeps its state. `None`, with the reason, if the default place is not usable and the user named no
/// other.
fn pins(args: &AgentRun) -> Result<(Option<Pins>, Option<LinuxError>), Failure> {
    if args.no_state {
        return Ok((None, None));
    }
    let directory = args.state.clone().or_else(|| std::env::var_os("SIDESTEP_STATE").map(PathBuf::from));
    let directory = directory.unwrap_or_else(|| AGENT_STATE.into());
    let directory = Pins::locate(directory);
    let pins = Pins { directory, program: args.when_killed == "last-paths" };
    match pins.is_possible() {
        Ok(()) => Ok((Some(pins), None)),
        Err(error) if args.state.is_none() => Ok((None, Some(error))),
        Err(error) => Err(error.into()),
    }
}

/// Runs `sidestep router`.
pub fn router(args: RouterArgs) -> Outcome {
    match (args.command, args.run) {
        (Some(RouterCommand::Stop { json }), _) => stop_the_router(json),
        (None, Some(run)) => run_the_router(run),
        (None, None) => Err(Failure::usage("`sidestep router` needs --controller and --node")),
    }
}

fn run_the_router(args: RouterRun) -> Outcome {
    let options = RouterOptions {
        controller: args.controller,
        node: args.node,
        links: args.links.into_iter().collect::<BTreeMap<_, _>>(),
        ecn: !args.no_ecn,
        keep: args.keep,
        metrics: args.metrics,
    };
    runtime()?
        .block_on(async { run_router(options, at_hangups(|| Some(())), announce, stopped_or_relieved()).await })
        .map_err(Failure::from)
}

fn stop_the_router(json: bool) -> Outcome {
    #[derive(serde::Serialize)]
    struct Stopped {
        schema: u32,
        stopped: bool,
    }
    let stopped = runtime()?.block_on(stop_router())?;
    if json {
        return print_json(&Stopped { schema: 1, stopped });
    }
    match stopped {
        true => println!("everything of the router daemon of this network namespace is removed"),
        false => println!("there is nothing of a router daemon in this network namespace"),
    }
    Ok(())
}

/// Prints that a configuration is in order, and what it holds.
fn checked(config: &HostConfig, json: bool) -> Outcome {
    let destinations = config.destinations.len();
    let paths: usize = config.destinations.iter().map(|destination| destination.paths.len()).sum();
    let doubts = runtime()?.block_on(doubtful_sources(config))?;
    let captured = runtime()?.block_on(captured(&config.destinations))?;
    let reaches = runtime()?.block_on(reaches(config))?;
    let lacking = cannot_reset(&config.agent);
    if json {
        let shown: Vec<_> = captured.iter().map(shown_capture).collect();
        let whole = serde_json::json!({
            "schema": 1, "destinations": destinations, "paths": paths, "doubtful_sources": doubts, "captured": shown,
            "source_addresses": reaches, "cannot_reset": lacking,
        });
        return print_json(&whole);
    }
    println!("in order: {destinations} destinations with {paths} paths");
    for warning in doubts.iter().map(ToString::to_string).chain(lacking) {
        println!("warning: {warning}");
    }
    for reach in reaches {
        println!("{}{reach}", if reach.is_confined() { "warning: " } else { "" });
    }
    for Captured { destination, paths, left_alone } in captured {
        let names: Vec<_> = left_alone.iter().map(|route| route.destination.to_string()).collect();
        match (paths, names.is_empty()) {
            (0, _) => println!("{destination}: connections are left alone"),
            (_, true) => println!("{destination}: all connections get a path"),
            (_, false) => println!("{destination}: connections get a path, but for {}", names.join(", ")),
        }
    }
    Ok(())
}

fn shown_capture(captured: &Captured) -> serde_json::Value {
    let shown = |route: &InnerRoute| serde_json::json!({ "prefix": route.destination, "connected": route.connected });
    let left_alone: Vec<_> = captured.left_alone.iter().map(shown).collect();
    serde_json::json!({ "destination": captured.destination, "paths": captured.paths, "left_alone": left_alone })
}

fn identity(node: Option<String>, prefixes: &[String]) -> Result<HostIdentity, Failure> {
    if prefixes.is_empty() {
        let name = match node {
            Some(name) => name,
            None => read("/proc/sys/kernel/hostname".as_ref())?.trim().to_string(),
        };
        return Ok(HostIdentity::Node(name));
    }
    Ok(HostIdentity::Prefixes(prefixes.iter().map(|text| prefix(text)).collect::<Result<_, _>>()?))
}

/// Reads an IPv6 address or prefix.
fn prefix(text: &str) -> Result<ipnet::Ipv6Net, Failure> {
    let address = || text.parse::<std::net::Ipv6Addr>().map(ipnet::Ipv6Net::from);
    let read: Result<ipnet::Ipv6Net, _> = text.parse().or_else(|_| address());
    let prefix = read.map_err(|_| Failure::usage(format!("`{text}` is not an IPv6 prefix, such as 2001:db8::/64")))?;
    if prefix.addr() != prefix.network() {
        tracing::warn!("`--prefix {text}` has host bits; it is read as {}", prefix.trunc());
    }
    Ok(prefix.trunc())
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
