//! Intelligent route control, Figure 7, which no paper has: the host's path changer, the edge's route control, SEMPER, INRPP, and
//! host and edge together, on the same impairments.

use sidestep_inrpp::CacheMeasures;
use sidestep_results::{Estimate, RunResult, SystemResult, World};
use sidestep_scenario::builder::{Part, ScenarioBuilder, blackhole, cbr, closed_loop, impairment, part, up};

use super::{
    build,
    irc::{NONE, PRACTICAL, PREDICTIVE, Total, Ways, goodput, ms, on_primary, site, spread, with_flows},
    result_of,
};
use crate::{Bar, Context, Experiment, Findings, Mode, Paper, ReproError, Row, Rule, Seeds, bars, series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "irc-fig7",
    paper: "none: asked here",
    figure: "Figure 7",
    title: "Host, edge, both, SEMPER and INRPP on the same impairments: who reacts when, and what TCP gets.",
    worlds: &[World::Sim],
    run,
};

/// The two egresses of Figure 6, with queues that mark.
const WAYS: Ways = Ways { rates: [10.0, 6.0], queue: 100, rtt: [60.0; 2] };
const USERS: u32 = 60;
const THINK: &str = "8 s";
const MEAN_SIZE: &str = "135 kB";
const WARMUP: u32 = 20;
/// What controls: a name, the system of the run, and that of the flows where it differs: of all, or of half of the users.
const WHO: [(&str, &str, Option<Hosts>); 11] = [
    ("nobody", NONE, None),
    ("edge, the paper's", PRACTICAL, None),
    ("edge", "route-control", None),
    ("edge, predictive", PREDICTIVE, None),
    ("hosts", NONE, Some(Hosts::All)),
    ("hosts and edge", "route-control", Some(Hosts::All)),
    ("half of the hosts", NONE, Some(Hosts::Half)),
    ("half of the hosts, and edge", "route-control", Some(Hosts::Half)),
    ("SEMPER", "semper", None),
    ("INRPP", "inrpp", None),
    (APART, "inrpp", None),
];

/// INRPP where no link joins the two providers: then no neighbour of a router is one of its next hop, and nothing can be diverted.
const APART: &str = "INRPP, providers apart";

/// The hosts' users that the path changer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    Half,
}

/// What happens to the primary.
const WHAT: [&str; 4] = ["outage", "loss", "congestion", "flap"];

fn size(mode: Mode) -> (u32, u32) {
    match mode {
        Mode::Quick => (220, 6),
        Mode::Full => (1_220, 20),
    }
}

/// Flows as they are, or moved by the path changer.
fn steered(flow: Part, by_host: bool) -> Part {
    if by_host { flow.with("system", "pathchanger") } else { flow }
}

fn base(name: &str, seconds: u32, who: &str) -> ScenarioBuilder {
    let network = site(name, seconds, WAYS).set("tcp.ecn", true).set("tcp.initial_window", 10).set("sample", "100 ms");
    let network = network.set("inrpp.cache", "12.5 MB").set("inrpp.high", "1 MB").set("inrpp.low", "500 kB");
    let network = network.set("inrpp.backpressure", "notices").set("inrpp.buffer", "50 ms");
    let network = network.set("warmup", format!("{WARMUP} s"));
    if who == APART {
        return network;
    }
    // On no shortest path: a detour for routers alone.
    let joint = part([("rate", "1 Gbit/s"), ("delay", "10 us")]).with("weight", 1_000);
    network.link_with("P", "B", joint)
}

fn users(name: &str, seconds: u32, who: &str, hosts: Option<Hosts>) -> ScenarioBuilder {
    let sizes = part([("distribution", "pareto"), ("mean", MEAN_SIZE)]).with("shape", 1.8);
    let group = |count: u32, by_host: bool, name: &str| {
        let flow = closed_loop("h", "s", count, THINK, MEAN_SIZE).with_table("size", sizes.clone());
        steered(flow.with("name", name), by_host)
    };
    let network = base(name, seconds, who).set("sample", "1 s");
    match hosts {
        None => network.flow(group(USERS, false, "users")),
        Some(Hosts::All) => network.flow(group(USERS, true, "users")),
        Some(Hosts::Half) => network.flow(group(USERS / 2, true, "moved")).flow(group(USERS / 2, false, "others")),
    }
}

fn impaired(what: &str, seconds: u32, who: &str, hosts: Option<Hosts>) -> ScenarioBuilder {
    let network = users(&format!("irc-fig7-{what}"), seconds, who, hosts);
    let process = |good: &str, bad: &str, effect: &str| {
        on_primary(impairment(good, bad, effect)).with("start", format!("{WARMUP} s"))
    };
    match what {
        "outage" => network.impairment(process("60 s", "30 s", "outage")),
        "loss" => network.impairment(process("60 s", "30 s", "loss").with("loss", "5 %")),
        "flap" => network.impairment(process("6 s", "2 s", "outage")),
        // 7 Mbit/s of the primary's 10 for half of the time.
        _ => (0..seconds / 60).map(|number| WARMUP + 60 * number).fold(network, |network, begin| {
            let joins = cbr("x", "s", "7 Mbit/s").with("name", format!("joins-{begin}"));
            network.flow(joins.with("start", format!("{begin} s")).with("stop", format!("{} s", begin + 30)))
        }),
    }
}

/// What the users got under one control and one impairment.
struct Cell {
    what: &'static str,
    who: &'static str,
    goodput: Seeds,
    /// The mean time of a transfer in seconds.
    times: Seeds,
    /// How often what controls acted, under the first seed; `None` of nobody and of SEMPER, whose edges hash every packet.
    acted: Option<u64>,
}

/// What of a system's mechanisms [`Cell::acted`] counts: detours, slow-downs where there are none, and moves of all others.
fn acted(who: &str, result: &SystemResult) -> Option<u64> {
    let caches = result.own::<CacheMeasures>("caches").unwrap_or_default();
    match who {
        "nobody" | "SEMPER" => None,
        "INRPP" => Some(caches.detoured),
        APART => Some(caches.slow_downs),
        _ => Some(result.total_moves()),
    }
}

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let (seconds, seeds) = size(context.mode);
    let mut cells = Vec::new();
    for what in WHAT {
        for (who, system, hosts) in WHO {
            let scenario = build(&impaired(what, seconds, who, hosts))?;
            let folder = format!("{what}/{}", who.replace([' ', ',', '\''], "-"));
            let run: RunResult = context.simulate(&folder, &scenario, &[system], seeds)?;
            let result = result_of(&run, system)?;
            cells.push(Cell {
                what,
                who,
                goodput: goodput(&run, system, seeds)?,
                times: Seeds::of(result, seeds, |result| result.afct_s),
                acted: acted(who, result),
            });
        }
    }
    let mut rows = verdicts(&cells);
    let reactions = react(context)?;
    for cell in &cells {
        let of = format!("{}, {}", cell.what, cell.who);
        rows.push(Row::median(format!("goodput, {of}"), "Mbit/s", Paper::None, &cell.goodput, Rule::NoPaperValue));
        rows.push(Row::median(format!("mean transfer, {of}"), "s", Paper::None, &cell.times, Rule::NoPaperValue));
        rows.extend(cell.acted.map(|times| Row::acted(format!("times that it acted, {of}"), times as f64)));
    }
    for (who, [off, back]) in &reactions {
        rows.push(Row::median(
            format!("after an outage began, until TCP gets the backup's rate, {who}"),
            "s",
            Paper::None,
            off,
            Rule::NoPaperValue,
        ));
        rows.push(Row::median(
            format!("after its end, until the primary carries half of before, {who}"),
            "s",
            Paper::None,
            back,
            Rule::NoPaperValue,
        ));
    }
    finish(rows, &cells, &reactions)
}

/// Claims that a page for operators makes.
fn verdicts(cells: &[Cell]) -> Vec<Row> {
    let of = |what: &str, who: &str| {
        cells
            .iter()
            .find(|cell| (cell.what, cell.who) == (what, who))
            .map(|cell| cell.goodput.clone())
            .unwrap_or_default()
    };
    let better = |what: &'static str, one: &'static str, other: &'static str, margin: f64| {
        let order = [(other, &of(what, other)), (one, &of(what, one))];
        let quantity = format!("{what}: {one} less {other}");
        Row::ordered(quantity, "Mbit/s", Paper::None, &order, margin).of_our_own()
    };
    let mut rows = Vec::new();
    for what in ["outage", "flap"] {
        rows.push(better(what, "edge", "nobody", 0.0));
        rows.push(better(what, "hosts", "nobody", 0.0));
        rows.push(better(what, "half of the hosts, and edge", "half of the hosts", 0.0));
    }
    rows.push(better("congestion", "hosts", "edge", 0.0));
    for what in ["congestion", "loss"] {
        rows.push(better(what, "edge, predictive", "nobody", -LITTLE));
    }
    // Where hosts choose a path by segments, an edge does not decide. It decides for the shortest path, which needs none: do the
    // two fight?
    for what in WHAT {
        let (both, hosts) = (of(what, "hosts and edge"), of(what, "hosts"));
        let (one, others) = (("hosts and edge", &both), [("hosts", &hosts)]);
        let quantity = format!("{what}: hosts and edge less hosts");
        rows.push(Row::equivalent(quantity, "Mbit/s", Paper::None, one, &others, LITTLE).of_our_own());
    }
    rows
}

/// How much less than another a case may get, or how far apart two may be, in Mbit/s: what counts as little in Figures 5 and 6,
/// too, and one or two hundredths of what users get.
const LITTLE: f64 = 0.1;
/// The beginning of an outage in the middle of a run of eight endless flows.
const BEGINS: f64 = 40.0;
const LASTS: f64 = 30.0;
const FLOWS: u32 = 8;

/// By what controls: after the outage has begun, until all flows together get four fifths of the backup's rate; after its end,
/// until the primary carries half of what it did before.
fn react(context: &mut Context<'_>) -> Result<Vec<(&'static str, [Seeds; 2])>, ReproError> {
    let seeds = size(context.mode).1;
    let mut all = Vec::new();
    for (who, system, hosts) in WHO {
        let mut times = [Vec::new(), Vec::new()];
        for repetition in 0..seeds {
            let begins = BEGINS + spread(repetition);
            let network = base("irc-fig7-reaction", 110, who).event(on_primary(blackhole(&ms(begins))));
            let network = network.event(on_primary(up(&ms(begins + LASTS))));
            let network = match hosts {
                None => with_flows(network, FLOWS, repetition, 1e3),
                Some(hosts) => (0..FLOWS).fold(network, |network, flow| {
                    let start = format!("{} ms", (spread(repetition * FLOWS + flow) * 1e3) as u32);
                    let bulk = sidestep_scenario::builder::bulk("h", "s").with("name", format!("flow-{flow}"));
                    network.flow(steered(bulk.with("start", start), hosts == Hosts::All || flow % 2 == 0))
                }),
            };
            let folder = format!("reaction/{}/{repetition}", who.replace([' ', ',', '\''], "-"));
            context.simulate(&folder, &build(&network)?, &[system], 1)?;
            let samples = series::read(&context.out.join(folder))?;
            let of = |kind: &str, name: Option<&str>| -> Vec<(f64, f64)> {
                let here = samples.iter().filter(|one| one.kind == kind && name.is_none_or(|name| one.name == name));
                match kind {
                    "connection" => Total::of(here, 10.0).points(),
                    _ => here.map(|one| (one.time_s, one.mbps.unwrap_or(0.0))).collect(),
                }
            };
            let (total, primary) = (of("connection", None), of("path", Some("primary")));
            times[0].push(reaches(&total, 0.8 * WAYS.rates[1], begins + 0.2));
            let before = primary.iter().filter(|(at, _)| *at > begins - 10.0 && *at <= begins);
            let before: Vec<f64> = before.map(|(_, rate)| *rate).collect();
            let half = before.iter().sum::<f64>() / before.len().max(1) as f64 / 2.0;
            times[1].push(reaches(&primary, half, begins + LASTS));
        }
        all.push((who, times.map(Seeds::new)));
    }
    Ok(all)
}

/// How long after `from` it took until three samples in a row were at least `rate`; `None` if they never were.
fn reaches(points: &[(f64, f64)], rate: f64, from: f64) -> Option<f64> {
    let later: Vec<&(f64, f64)> = points.iter().filter(|(at, _)| *at > from).collect();
    let found = later.windows(3).find(|three| three.iter().all(|(_, one)| *one >= rate));
    found.and_then(|three| three.first()).map(|(at, _)| at - from)
}

fn finish(rows: Vec<Row>, cells: &[Cell], reactions: &[(&str, [Seeds; 2])]) -> Result<Findings, ReproError> {
    let mut drawn = Vec::new();
    let mut times = Vec::new();
    let mut table = String::from("impairment,control,goodput_mbps,mean_transfer_s,acted_in_a_seed\n");
    for cell in cells {
        let (goodput, time) = (cell.goodput.middle(), cell.times.middle());
        let group = WHAT.iter().position(|what| *what == cell.what).unwrap_or(0);
        for (bars, seeds) in [(&mut drawn, &cell.goodput), (&mut times, &cell.times)] {
            let mean = seeds.middle();
            let ci95 = seeds.interval().unwrap_or([mean; 2]);
            bars.push(Bar { label: format!("{}: {}", cell.what, cell.who), estimate: Estimate { mean, ci95 }, group });
        }
        let acted = cell.acted.map_or(String::new(), |times| times.to_string());
        table += &format!("{},\"{}\",{goodput:.3},{time:.3},{acted}\n", cell.what, cell.who);
    }
    let mut reaction = String::from("control,backup_rate_s,on_primary_again_s\n");
    for (who, [off, back]) in reactions {
        reaction += &format!("\"{who}\",{:.2},{:.2}\n", off.middle(), back.middle());
    }
    let goodput = bars("What 60 users get", "Mbit/s, medians with 95 % intervals", &drawn, &[])?;
    let times = bars("How long their transfers take", "s, medians with 95 % intervals", &times, &[])?;
    let pictures = vec![("goodput.svg".into(), goodput), ("transfers.svg".into(), times)];
    let tables = vec![("goodput.csv".into(), table), ("reaction.csv".into(), reaction)];
    Ok(Findings { rows, pictures, tables })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reaction_ends_with_three_samples_of_the_rate_that_is_asked_for() {
        let rate = |at: f64| if at < 6.0 || (6.3..7.0).contains(&at) { 1.0 } else { 5.0 };
        let points: Vec<(f64, f64)> = (0..100).map(|step| f64::from(step) / 10.0).map(|at| (at, rate(at))).collect();
        let found = reaches(&points, 4.0, 5.0).unwrap();
        assert!((found - 1.0).abs() < 0.15, "{found}");
        assert_eq!((reaches(&points, 4.0, 9.85), reaches(&points, 6.0, 5.0)), (None, None));
    }

    #[test]
    fn everybody_has_a_scenario_under_each_impairment() {
        for what in WHAT {
            for (who, _, hosts) in WHO {
                let scenario =
                    build(&impaired(what, 220, who, hosts)).unwrap_or_else(|error| panic!("{what} {who}: {error}"));
                let moved =
                    scenario.flows.iter().filter(|flow| flow.transport().is_some_and(|one| one.system.is_some()));
                assert_eq!(moved.count(), usize::from(hosts.is_some()), "{what} {who}");
            }
        }
    }
}
