//! `sidestep agent`, and its `status`, `init` and `stop`.

use std::path::{Path, PathBuf};

use ipnet::Ipv6Net;
use sidestep_api::HostIdentity;
use sidestep_command::{
    Failure, Outcome, announce, plain_table, print_json, print_obstacles, print_stopped, println, read, reread,
    run_daemon, runtime, stopped_or_relieved, warn_of, write_proposal,
};
use sidestep_hostd::{Captured, MetricsConfig, captured};
use sidestep_linux::{LinuxError, netlink::InnerRoute};
use sidestep_net::ParseError;

use super::{
    args::{AGENT_STATE, AgentArgs, AgentCommand, AgentRun, AgentStatus},
    explain,
    watch::{Connection, LearntPath, PathSeen, Watch},
};
use crate::daemon::{
    HostConfig, HostOptions, RecordFile, cannot_reset, doubtful_sources, program::Pins, propose, reaches, run_host,
    stop_host,
};

/// Runs `sidestep agent`.
pub(super) fn run(args: AgentArgs) -> Outcome {
    match args.command {
        None => run_agent(args.run),
        Some(AgentCommand::Status(args)) => status(&args),
        Some(AgentCommand::Explain(args)) => explain::run(&args),
        Some(AgentCommand::Init { output, force }) => init(output.as_deref(), force),
        Some(AgentCommand::Stop { state, json }) => stop(state, json),
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
    let again = move || {
        let Some(path) = &config else {
            tracing::info!("there is no configuration file to read again");
            return Ok(None);
        };
        read_config(path, &given, follows).map(Some)
    };
    run_daemon(async || run_host(options, reread("the configuration", again), ready, stopped_or_relieved()).await)
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
fn prefix(text: &str) -> Result<Ipv6Net, Failure> {
    let address = || text.parse::<std::net::Ipv6Addr>().map(Ipv6Net::from);
    let read: Result<Ipv6Net, _> = text.parse().or_else(|_| address());
    let prefix = read.map_err(|_| Failure::usage(format!("`{text}` is not an IPv6 prefix, such as 2001:db8::/64")))?;
    if prefix.addr() != prefix.network() {
        tracing::warn!("`--prefix {text}` has host bits; it is read as {}", prefix.trunc());
    }
    Ok(prefix.trunc())
}

/// Lists the connections that are moved.
fn status(args: &AgentStatus) -> Outcome {
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
    let mut paths = plain_table(PathSeen::COLUMNS);
    paths.add_rows(seen.paths.iter().map(PathSeen::cells));
    println!("{paths}");
    if seen.connections.is_empty() {
        return Ok(());
    }
    println!();
    let mut table = plain_table(Connection::COLUMNS);
    table.add_rows(seen.connections.iter().map(Connection::cells));
    println!("{table}");
    Ok(())
}

/// Writes a configuration from the routes of this machine.
fn init(output: Option<&Path>, force: bool) -> Outcome {
    let none = || Failure::run("there is no default route, so no path to begin with; `ip route` shows what there is");
    let proposal = runtime()?.block_on(propose())?.ok_or_else(none)?;
    write_proposal(&proposal, output, force)
}

/// Ends the agent and removes all that it made.
fn stop(state: PathBuf, json: bool) -> Outcome {
    let pins = Pins { directory: Pins::locate(state), program: false };
    let stopped = runtime()?.block_on(stop_host(&pins))?;
    let place = pins.directory.display();
    let removed = format!("everything of the agent of {place} is removed");
    print_stopped(stopped, json, &removed, &format!("there is nothing of an agent in {place}"))
}
