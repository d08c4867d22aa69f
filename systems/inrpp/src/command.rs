//! The command `inrpp`.

mod args;
mod examination;

use std::{
    fs,
    io::{IsTerminal, stdout},
    net::SocketAddr,
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use sidestep_command::{
    Command, Failure, Outcome, announce, out, plain_table, print, print_json, print_stopped, println, read, reread,
    run_daemon, runtime, stopped_or_relieved, succeeded_with, until_signalled,
};

use self::args::{InrppArgs, InrppCommand, InrppRun};
use crate::{
    Key,
    daemon::{
        InrppConfig, InrppOptions, InrppStatus, KeyError, PortStatus, check_memory, free_memory, fresh_key,
        inrpp_status, read_key, run_inrpp, stop_inrpp,
    },
};

pub use self::examination::InrppExamination;

/// How long a signal may go unnoticed.
const NOTICE: Duration = Duration::from_millis(100);
/// The error where no router is at work.
const ABSENT: &str = "no INRPP router works in this network namespace: `sidestep inrpp --config FILE` runs one";

/// `sidestep inrpp`: runs an INRPP router, and shows what it does.
pub fn inrpp() -> Command {
    Command::of::<InrppArgs>("inrpp", run)
}

fn run(args: InrppArgs) -> Outcome {
    match args.command {
        None => route(args.run),
        Some(InrppCommand::Status { json }) => show(&ask()?, json),
        Some(InrppCommand::Top { interval, json }) => top(interval.to_std(), json),
        Some(InrppCommand::Stop { json }) => stop(json),
        Some(InrppCommand::Key) => {
            println!("{}", fresh_key().map_err(|error| Failure::run(format!("drawing random bits: {error}")))?);
            Ok(())
        }
    }
}

fn route(args: InrppRun) -> Outcome {
    let missing = || Failure::usage("`sidestep inrpp` needs --config FILE; an example is in /usr/share/doc/sidestep");
    let (path, metrics) = (args.config.ok_or_else(missing)?, args.metrics);
    let config = read_config(&path, metrics)?;
    if args.check {
        return checked(&config, args.json);
    }
    let keys = read_keys(&config)?;
    check_memory(&config, free_memory()).map_err(Failure::environment)?;
    let InrppRun { keep, dry_run, takeover, .. } = args;
    let options = InrppOptions { config, keys, keep, dry_run, takeover };
    let again = move || {
        let config = read_config(&path, metrics)?;
        let keys = read_keys(&config)?;
        check_memory(&config, free_memory()).map_err(Failure::environment)?;
        Ok(Some((config, keys)))
    };
    run_daemon(async || {
        succeeded_with("--takeover");
        run_inrpp(options, reread("the configuration", again), announce, stopped_or_relieved()).await
    })
}

fn read_config(path: &Path, metrics: Option<SocketAddr>) -> Result<InrppConfig, Failure> {
    let (text, name) = (read(path)?, path.display().to_string());
    let mut config = InrppConfig::parse(&text).map_err(|error| Failure::usage(error.in_file(&name)))?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    config.settle_name(&host).map_err(|error| Failure::usage(error).within(&name))?;
    config.metrics.listen = metrics.or(config.metrics.listen);
    Ok(config)
}

/// The key of each neighbour; `None` for those that are believed without one.
fn read_keys(config: &InrppConfig) -> Result<Vec<Option<Key>>, Failure> {
    let files = config.neighbours.iter().map(|neighbour| neighbour.key_file.as_deref());
    files.map(|file| file.map(read_key).transpose().map_err(Failure::usage)).collect()
}

/// Prints that a configuration is in order. Keys that are not here, or not for this user to read, are reported only.
fn checked(config: &InrppConfig, json: bool) -> Outcome {
    let files = || config.neighbours.iter().filter_map(|neighbour| neighbour.key_file.as_deref());
    let failures: Vec<KeyError> = files().filter_map(|file| read_key(file).err()).collect();
    if let Some(wrong) = failures.iter().find(|failure| !failure.is_unread()) {
        return Err(Failure::usage(wrong));
    }
    let (settings, memory) = (&config.settings, config.memory());
    let short = check_memory(config, free_memory()).err();
    let warnings: Vec<String> = failures.iter().map(ToString::to_string).chain(short).collect();
    let (neighbours, edges) = (config.neighbours.len(), config.edges.len());
    if json {
        return print_json(&serde_json::json!({
            "schema": 1, "name": settings.name, "neighbours": neighbours, "edges": edges,
            "memory_bytes": memory.get(), "warnings": warnings,
        }));
    }
    println!("in order: {}, {neighbours} neighbours, {edges} edges, {memory} of memory at most", settings.name);
    for neighbour in config.neighbours.iter().filter(|neighbour| neighbour.key_file.is_none()) {
        println!("{}: without a key, anyone on the link is believed", neighbour.name);
    }
    warnings.iter().for_each(|warning| println!("warning: {warning}"));
    Ok(())
}

fn ask() -> Result<InrppStatus, Failure> {
    inrpp_status()?.ok_or_else(|| Failure::run(ABSENT))
}

fn top(interval: Duration, json: bool) -> Outcome {
    let stop = until_signalled()?;
    // If no router runs, that is an error at once; for one that is started again this waits.
    ask()?;
    let draws = !json && stdout().is_terminal();
    while !stop.load(Ordering::Relaxed) && !out::is_closed() {
        if let Some(status) = inrpp_status()? {
            if json {
                println!("{}", serde_json::to_string(&status).map_err(Failure::run)?);
            } else {
                // The screen is cleared, and written from its first line.
                print!("{}", if draws { "\x1b[H\x1b[2J" } else { "" });
                print!("{}", page(&status));
            }
        }
        let next = Instant::now() + interval;
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(NOTICE.min(next.saturating_duration_since(Instant::now())));
        }
    }
    Ok(())
}

/// Prints what a router reports about itself.
fn show(status: &InrppStatus, json: bool) -> Outcome {
    if json {
        return print_json(status);
    }
    print!("{}", page(status));
    Ok(())
}

/// The status for people.
fn page(status: &InrppStatus) -> String {
    let dry = if status.dry_run { ", dry run: nothing is diverted" } else { "" };
    let mut page = format!("{} (id {:08x}), mode {}{dry}\n", status.name, status.id, status.mode.as_str());
    let mut table = plain_table([
        "port",
        "neighbour",
        "state",
        "Mbit/s",
        "waits",
        "room",
        "flows",
        "core",
        "sent",
        "received",
        "detoured",
        "dropped",
    ]);
    table.add_rows(status.ports.iter().map(row));
    page += &format!("{table}\n");
    let connections = &status.connections;
    page += &format!(
        "connections: {}; left alone: {} (table full), {} (older), {} (MPTCP)\n",
        connections.tracked, connections.refused, connections.unscaled, connections.multipath,
    );
    page += &format!(
        "ACKs: {} lowered, {} of its own; SYNs: {} with a lower MSS\n",
        connections.clamped_acks, connections.window_updates, connections.mss_clamped,
    );
    let order = &status.resequence;
    page +=
        &format!("order: {} restored, {} late, {} without room\n", order.restored, order.timed_out, order.overflowed);
    status.ports.iter().flat_map(remarks).for_each(|line| page += &format!("{line}\n"));
    status.notes.iter().for_each(|note| page += &format!("note: {note}\n"));
    page
}

fn row(port: &PortStatus) -> [String; 12] {
    let rate = if port.rate_mbps > 0.0 { format!("{:.1}", port.rate_mbps) } else { "-".into() };
    [
        port.interface.clone(),
        port.neighbour.clone().unwrap_or_else(|| "-".into()),
        port.state.as_str().into(),
        rate,
        port.cache_bytes.to_string(),
        port.cache_room.to_string(),
        port.flows.to_string(),
        port.pressing.clone(),
        port.sent_packets.to_string(),
        port.received_packets.to_string(),
        port.detoured.to_string(),
        (port.dropped + port.dropped_others + port.lost).to_string(),
    ]
}

/// What else there is to say of a port: its detours, and what was refused or passed by.
fn remarks(port: &PortStatus) -> Vec<String> {
    let named = |what: &str, counts: &[(&str, u64)]| {
        let counts: Vec<_> =
            counts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{} {n}", name.replace('_', " "))).collect();
        (!counts.is_empty()).then(|| format!("{}: {what}: {}", port.interface, counts.join(", ")))
    };
    let detours =
        port.detours.iter().map(|one| format!("{} over {}: {:.1} Mbit/s", port.interface, one.over, one.rate_mbps));
    let counts = [named("refused", &port.refused.named()), named("packets", &port.passed.named())];
    detours.chain(counts.into_iter().flatten()).collect()
}

fn stop(json: bool) -> Outcome {
    let stopped = runtime()?.block_on(stop_inrpp())?;
    let removed = "everything of the INRPP router of this network namespace is removed";
    print_stopped(stopped, json, removed, "there is nothing of an INRPP router in this network namespace")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::example_status;

    #[test]
    fn the_status_shows_each_port_and_what_is_odd_about_it() {
        let page = page(&example_status());
        for expected in [
            "r0 (id 00000000), mode divert\n",
            "eth1 over eth2: 4.5 Mbit/s\n",
            "eth1: refused: forged 2\n",
            "eth1: packets: diverted 9, oversize 1\n",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
        let row = page.lines().find(|line| line.contains("eth1") && line.contains("alive")).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["eth1", "r1", "alive", "10.0", "1000", "12500000", "0", "backpressure", "0", "0", "7", "0"]);
        assert!(!page.contains("eth0:"), "{page}");
    }
}
