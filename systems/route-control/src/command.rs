//! The commands `edge route-control` and `reflector`.

mod args;
mod examination;
mod init;
mod reflector;

use std::{
    fmt::Write,
    io::{IsTerminal, stdout},
    net::SocketAddr,
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use comfy_table::Table;
use sidestep_command::{
    Command, EDGE, Failure, Outcome, Status, announce, out, plain_table, print, print_json, print_obstacles,
    print_stopped, println, read, reread, run_daemon, runtime, stopped_or_relieved, until_signalled,
};
use sidestep_net::Ratio;

use self::{
    args::{RouteControlArgs, RouteControlCommand, RouteControlNumbers, RouteControlRun},
    reflector::ReflectorArgs,
};
use crate::daemon::{
    DecisionRecord, EgressConfig, EgressInput, EgressStatus, FamilyStatus, RouteControlConfig, RouteControlOptions,
    RouteControlStatus, TargetStatus, WayStatus, route_control_status, run_route_control, stop_route_control,
};

pub use self::examination::RouteControlExamination;

/// How long a signal may go unnoticed.
const NOTICE: Duration = Duration::from_millis(100);
/// The error where no route controller is at work.
const ABSENT: &str = "no route controller works in this network namespace";

/// `sidestep edge route-control`: runs a route controller, and shows what it does.
pub fn route_control() -> Command {
    // A person who runs one wants to see each move, and how its egresses are.
    Command::of::<RouteControlArgs>("route-control", run).within(&EDGE).logging("sidestep_route_control=info")
}

/// `sidestep edge status`, of a route controller.
pub fn status() -> Status {
    Status::of("of a route controller, its egresses", ABSENT, route_control_status, show)
}

/// `sidestep reflector`: answers the probes of edges.
pub fn reflector() -> Command {
    Command::of::<ReflectorArgs>("reflector", reflector::run)
}

fn run(args: RouteControlArgs) -> Outcome {
    match args.command {
        Some(RouteControlCommand::Status { json }) => show(&ask()?, json),
        Some(RouteControlCommand::Top { interval, json }) => top(interval.to_std(), json),
        Some(RouteControlCommand::Stop { json, place }) => stop(place, json),
        Some(RouteControlCommand::Init(args)) => init::run(&args),
        None => control(args.run),
    }
}

fn control(args: RouteControlRun) -> Outcome {
    let missing = || Failure::usage("`sidestep edge route-control` needs --config FILE; `init` proposes one");
    let (path, given) = (args.config.ok_or_else(missing)?, args.metrics);
    let config = read_with(&path, given)?;
    if args.check {
        return checked(&config, args.json);
    }
    let options = RouteControlOptions {
        config,
        table_base: args.place.table_base,
        priority: args.place.rule_priority,
        keep: args.keep,
        dry_run: args.dry_run,
    };
    let again = move || read_with(&path, given).map(Some);
    run_daemon(async || {
        run_route_control(options, reread("the configuration", again), announce, stopped_or_relieved()).await
    })
}

/// Reads a route controller's file.
fn read_config(path: &Path) -> Result<RouteControlConfig, Failure> {
    read_with(path, None)
}

/// Reads the file; a listener of metrics that the command line names counts.
fn read_with(path: &Path, metrics: Option<SocketAddr>) -> Result<RouteControlConfig, Failure> {
    let (text, name) = (read(path)?, path.display().to_string());
    let mut config = RouteControlConfig::parse(&text).map_err(|error| Failure::usage(error.in_file(&name)))?;
    config.metrics.listen = metrics.or(config.metrics.listen);
    Ok(config)
}

/// Prints that a configuration is in order, and how fast it probes.
fn checked(config: &RouteControlConfig, json: bool) -> Outcome {
    let targets = config.targets();
    let settings = &config.control;
    if json {
        let egress = |(egress, of): (&EgressConfig, &Vec<u32>)| serde_json::json!({ "name": egress.name, "dev": egress.dev, "targets": of.len() });
        let egresses: Vec<_> = config.egresses.iter().zip(&targets.of).map(egress).collect();
        return print_json(&serde_json::json!({
            "schema": 1,
            "destinations": config.route_control.destinations,
            "egresses": egresses,
            "quorum": targets.quorum,
            "routing_period": settings.routing_period,
            "measurement_period": settings.measurement_period,
            "probe_interval": settings.probe_interval,
            "load": settings.load,
            "doubts": config.doubts(),
        }));
    }
    let names: Vec<_> = config.egresses.iter().map(|egress| egress.name.as_str()).collect();
    println!("in order: {} by {}", listed(&config.route_control.destinations), names.join(", then "));
    let (count, quorum) = (config.targets.len(), targets.quorum);
    println!("targets: {count}, of which {quorum} must be reachable");
    println!(
        "decisions: every {}, by the probes of the last {}, one each {}",
        settings.routing_period, settings.measurement_period, settings.probe_interval
    );
    if settings.load > Ratio::ZERO {
        let shares = config.egresses.iter().filter(|egress| !egress.metered);
        let shares: Vec<_> = shares.map(|egress| format!("{} {}", egress.name, egress.capacity)).collect();
        println!("load: from a utilisation of {} on, flows are spread over {}", settings.load, shares.join(", "));
    }
    config.doubts().iter().for_each(|doubt| println!("warning: {doubt}"));
    Ok(())
}

/// Shows what a route controller reports about itself, again and again, until a signal ends it or no process reads.
fn top(interval: Duration, json: bool) -> Outcome {
    let stop = until_signalled()?;
    // If no route controller runs, that is an error at once; for one that is started again this waits.
    ask()?;
    let draws = !json && stdout().is_terminal();
    while !stop.load(Ordering::Relaxed) && !out::is_closed() {
        if let Some(status) = route_control_status()? {
            if json {
                println!("{}", serde_json::to_string(&status).map_err(Failure::run)?);
            } else {
                // The screen is cleared, and written from its first line.
                print!("{}", if draws { "\x1b[H\x1b[2J" } else { "" });
                show(&status, false)?;
            }
        }
        let next = Instant::now() + interval;
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(NOTICE.min(next.saturating_duration_since(Instant::now())));
        }
    }
    Ok(())
}

fn ask() -> Result<RouteControlStatus, Failure> {
    route_control_status()?.ok_or_else(|| Failure::run(ABSENT))
}

/// Prints what a route controller reports about itself.
fn show(status: &RouteControlStatus, json: bool) -> Outcome {
    if json {
        return print_json(status);
    }
    let dry = if status.dry_run { " (dry run: nothing is installed)" } else { "" };
    for family in status.families.iter().filter(|one| !one.destinations.is_empty()) {
        let follows = if family.probed { "" } else { ", as the other family does: it has no targets" };
        let (all, since) = (listed(&family.destinations), ago(family.active_since));
        println!("{all} take {} since {since}{follows}{dry}", family.active);
    }
    print_obstacles(&status.overridden, &status.restored);
    println!("{}", egress_table(status));
    ways(status).iter().for_each(|line| println!("{line}"));
    if status.passive {
        println!("{}", passing_table(status));
    }
    let mut table = plain_table(["target", "kind", "by", "lost", "out, back", "round trip", "counts"]);
    for (egress, target) in status.egresses.iter().flat_map(|one| one.targets.iter().map(move |target| (one, target))) {
        table.add_row([
            target.address.to_string(),
            target.kind.as_str().into(),
            egress.name.clone(),
            format!("{} of {}", target.lost, target.sent),
            directions(target),
            millis(target.rtt_ms),
            if target.counts { "yes".into() } else { "no".into() },
        ]);
    }
    println!("{table}");
    if let Some(errors) = &status.prediction_errors {
        let off = |share: f64, moves: u32| {
            if moves > 0 { format!("{} in {moves} moves", percent(share)) } else { "-".into() }
        };
        let (formula, history) = (off(errors.formula, errors.formula_moves), off(errors.history, errors.history_moves));
        println!("predictions were off by: formula {formula}, history {history}");
    }
    println!("decisions: {}, the last ones:", status.decided);
    for decision in status.decisions.iter().rev().take(8) {
        println!("{}", described(decision));
    }
    Ok(())
}

/// Where packets leave, of egresses that can be used, and why probes of a family cannot be sent.
fn ways(status: &RouteControlStatus) -> Vec<String> {
    let all = status.egresses.iter().flat_map(|egress| egress.ways.iter().map(move |way| (egress, way)));
    let line = |(egress, way): (&EgressStatus, &WayStatus)| {
        let text = |address: Option<std::net::IpAddr>, none: &str| {
            address.map_or_else(|| none.to_string(), |address| address.to_string())
        };
        let (name, family) = (&egress.name, &way.family);
        match (&way.missing, &way.unprobed) {
            (Some(why), _) => format!("{name}: no {family}: {why}"),
            (None, Some(why)) => format!("{name}: {family} cannot be probed, so that nothing is known of it: {why}"),
            (None, None) => {
                let (via, from) = (text(way.via, "the link itself"), text(way.from, "any address"));
                format!("{name}: {family} by {via}, probes from {from}")
            }
        }
    };
    all.map(line).collect()
}

/// Each egress as each family sees it.
fn egress_table(status: &RouteControlStatus) -> Table {
    let mut header = vec!["egress", "interface", "family", "state", "lost", "loss", "round trip", "penalty"];
    let by_load = status.egresses.iter().any(|egress| egress.seen.share.is_some());
    header.extend(by_load.then_some(["utilisation", "flows"]).into_iter().flatten());
    let mut table = plain_table(header);
    for egress in &status.egresses {
        let sees = |family: &'_ FamilyStatus| family.egresses.iter().find(|one| one.name == egress.name).cloned();
        for (family, one) in status.families.iter().filter_map(|family| Some((family, sees(family)?))) {
            let mark = if one.name == family.active && !family.destinations.is_empty() { "* " } else { "  " };
            let mut row = vec![
                format!("{mark}{}", one.name),
                egress.dev.clone(),
                family.family.clone(),
                one.unusable.clone().unwrap_or_else(|| one.seen.health.clone()),
                format!("{}{}", percent(one.seen.lost), late(one.seen.late)),
                percent(one.seen.loss),
                millis(one.seen.rtt_ms),
                format!("{:.0}{}", one.penalty, if one.suppressed { ", suppressed" } else { "" }),
            ];
            if by_load {
                row.extend([one.seen.utilisation, one.seen.share].map(|of| of.map_or_else(|| "-".into(), percent)));
            }
            table.add_row(row);
        }
    }
    table
}

/// How many answers came too late, if any did.
fn late(answers: u32) -> String {
    if answers > 0 { format!(", {answers} late") } else { String::new() }
}

/// What has passed each egress since the decision before.
fn passing_table(status: &RouteControlStatus) -> Table {
    let mut table = plain_table(["passed", "goodput", "connections", "sent again", "round trip", "predicted"]);
    let rate = |mbps: Option<f64>| mbps.map_or_else(|| "-".into(), |mbps| format!("{mbps:.2} Mbit/s"));
    for egress in &status.egresses {
        let Some(passed) = &egress.seen.passed else { continue };
        table.add_row([
            egress.name.clone(),
            rate(Some(passed.goodput_mbps)),
            passed.connections.to_string(),
            format!("{} of {}", passed.retransmitted, passed.segments),
            millis(passed.rtt_ms),
            rate(egress.seen.predicted_mbps),
        ]);
    }
    table
}

/// How many probes a reflector of STAMP did not get, and how many of its answers did not come, since it is asked.
fn directions(target: &TargetStatus) -> String {
    let both = target.lost_forward.zip(target.lost_backward);
    both.map_or_else(|| "-".into(), |(forward, backward)| format!("{forward}, {backward}"))
}

fn described(decision: &DecisionRecord) -> String {
    let mut line = format!("{}: {} ", ago(decision.at), decision.family);
    let moved = decision.from != decision.to;
    let _ = match moved {
        true => write!(line, "{} -> {}, {}", decision.from, decision.to, decision.reason),
        false => write!(line, "stays on {}, {}", decision.to, decision.reason),
    };
    if let Some(share) = decision.share {
        let _ = write!(line, ", {} of the flows", percent(share));
    }
    if decision.times > 1 {
        let _ = write!(line, " ({} times)", decision.times);
    }
    let seen = |(name, input): (&String, &EgressInput)| {
        format!("{name} {} loss {} rtt {}", input.health, percent(input.loss), millis(input.rtt_ms))
    };
    let seen: Vec<_> = decision.inputs.iter().map(seen).collect();
    let _ = write!(line, " [{}]", seen.join("; "));
    line
}

fn listed(prefixes: &[ipnet::IpNet]) -> String {
    prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn millis(millis: Option<f64>) -> String {
    millis.map_or_else(|| "-".into(), |millis| format!("{millis:.2} ms"))
}

fn ago(at: f64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    format!("{:.0} s ago", (now - at).max(0.0))
}

fn stop(place: RouteControlNumbers, json: bool) -> Outcome {
    let stopped = runtime()?.block_on(stop_route_control(place.table_base, place.rule_priority))?;
    let removed = "everything of the route controller of this network namespace is removed";
    print_stopped(stopped, json, removed, "there is nothing of a route controller in this network namespace")
}
