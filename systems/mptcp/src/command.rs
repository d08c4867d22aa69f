//! The command `mptcp-pm`.

mod args;
mod examination;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use sidestep_command::{
    Command, Failure, Outcome, announce, plain_table, print_json, print_stopped, println, read, reread, run_daemon,
    runtime, stopped_or_relieved, warn_of,
};

use self::args::{MptcpPmArgs, MptcpPmCommand, MptcpPmRun};
pub use self::examination::PathManagerExamination;
use crate::daemon::{
    AddressStatus, ConnectionStatus, CoupledStatus, DEFAULT_COUNT, MptcpPmConfig, MptcpPmOptions, MptcpPmStatus,
    PortChoice, mptcp_pm_status, run_mptcp_pm, stop_mptcp_pm,
};

/// `sidestep mptcp-pm`: runs a path manager, and shows what it does.
pub fn mptcp_pm() -> Command {
    Command::of::<MptcpPmArgs>("mptcp-pm", run)
}

fn run(args: MptcpPmArgs) -> Outcome {
    match args.command {
        None => run_path_manager(args.run),
        Some(MptcpPmCommand::Status { json }) => status(json),
        Some(MptcpPmCommand::Stop { state, json }) => stop(state, json),
    }
}

fn run_path_manager(args: MptcpPmRun) -> Outcome {
    let config = read_config(&args)?;
    if args.check {
        return checked(&config, args.json);
    }
    let options = MptcpPmOptions {
        config,
        state: Some(args.state.clone()).filter(|_| !args.no_state),
        set_sysctl: !args.no_sysctl,
        keep: args.keep,
        dry_run: args.dry_run,
    };
    let again = move || {
        if args.config.is_none() {
            tracing::info!("there is no configuration file to read again");
            return Ok(None);
        }
        read_config(&args).map(Some)
    };
    run_daemon(async || {
        run_mptcp_pm(options, reread("the configuration", again), announce, stopped_or_relieved()).await
    })
}

/// Reads the file, if there is one; what the command line sets wins for connections that no rule names.
fn read_config(args: &MptcpPmRun) -> Result<MptcpPmConfig, Failure> {
    let mut config = args.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
    config.subflows.count = args.subflows.or(config.subflows.count);
    config.subflows.mode = args.mode.or(config.subflows.mode);
    config.subflows.after = args.after.or(config.subflows.after);
    config.congestion.algorithm = args.congestion.unwrap_or(config.congestion.algorithm);
    config.congestion.cgroup = args.cgroup.clone().or(config.congestion.cgroup);
    config.metrics.listen = args.metrics.or(config.metrics.listen);
    if args.stratified {
        config.ports.choice = PortChoice::Stratified;
    }
    Ok(config)
}

fn read_file(path: &Path) -> Result<MptcpPmConfig, Failure> {
    let (text, name) = (read(path)?, path.display().to_string());
    let config = MptcpPmConfig::parse(&text).map_err(|error| Failure::usage(error.in_file(name)))?;
    warn_of(MptcpPmConfig::notes(&text), path);
    Ok(config)
}

/// Prints that a configuration is in order, and what it holds.
fn checked(config: &MptcpPmConfig, json: bool) -> Outcome {
    let (wish, rules) = (config.subflows, config.rules.len());
    let (count, mode) = (wish.count.unwrap_or(DEFAULT_COUNT), wish.mode.unwrap_or_default());
    if json {
        return print_json(&serde_json::json!({ "schema": 1, "subflows": count, "mode": mode, "rules": rules,
            "congestion": config.congestion.algorithm }));
    }
    println!("in order: {count} subflows ({mode}), {rules} rules, congestion {}", config.congestion.algorithm);
    Ok(())
}

fn status(json: bool) -> Outcome {
    let Some(status) = runtime()?.block_on(mptcp_pm_status())? else {
        return Err(Failure::run("no path manager works in this network namespace: `sidestep mptcp-pm` runs one"));
    };
    if json {
        return print_json(&status);
    }
    let MptcpPmStatus { setting, subflows, connections, .. } = &status;
    let dry = if status.dry_run { " (dry run)" } else { "" };
    println!("{} connections with {subflows} subflows; net.mptcp.{setting}{dry}", connections.len());
    for (what, counts) in [("limits reached", &status.limits_reached), ("refusals", &status.refusals)] {
        if !counts.is_empty() {
            let counts: Vec<_> = counts.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
            println!("{what}: {}", counts.join(", "));
        }
    }
    if status.withdrawn > 0 {
        println!("addresses that other ends were told are gone: {}", status.withdrawn);
    }
    if status.unmanaged + status.overflows > 0 {
        println!("left alone: {}; lists for lost events: {}", status.unmanaged, status.overflows);
    }
    let of = &status.congestion;
    if let Some(algorithm) = of.algorithm {
        println!(
            "congestion {algorithm}: {} subflows; left alone {}, refused {}; fallbacks to TCP {}",
            of.given, of.chosen, of.refused, of.fallbacks
        );
    }
    let unused = |one: &AddressStatus| {
        // Of these there is one on each interface, and JSON has them.
        let why = one.why_not.as_ref().filter(|_| !is_of_one_link(one.address))?;
        Some(format!("not used: {} ({}): {why}", one.address, one.interface))
    };
    status.addresses.iter().filter_map(unused).for_each(|line| println!("{line}"));
    if connections.is_empty() {
        return Ok(());
    }
    let mut table = plain_table(["token", "local", "remote", "opened", "subflows", "joining", "coupled", "waits for"]);
    table.add_rows(connections.iter().map(row));
    println!("{table}");
    Ok(())
}

fn is_of_one_link(address: IpAddr) -> bool {
    address.is_loopback()
        || match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
}

fn row(connection: &ConnectionStatus) -> [String; 8] {
    [
        format!("{:08x}", connection.token),
        connection.local.to_string(),
        connection.remote.to_string(),
        if connection.accepted { "there".into() } else { "here".into() },
        format!("{}/{}", connection.subflows, connection.wanted),
        connection.joining.to_string(),
        connection.coupled.as_ref().map(coupled).unwrap_or_default(),
        connection.waits_for.clone().unwrap_or_default(),
    ]
}

fn coupled(of: &CoupledStatus) -> String {
    of.alpha.map_or_else(|| of.algorithm.to_string(), |alpha| format!("{}, α {alpha:.2}", of.algorithm))
}

fn stop(state: PathBuf, json: bool) -> Outcome {
    let stopped = runtime()?.block_on(stop_mptcp_pm(Some(state)))?;
    let removed = "the path manager of this network namespace is gone, and the sysctl is what it was";
    print_stopped(stopped, json, removed, "there is nothing of a path manager in this network namespace")
}
