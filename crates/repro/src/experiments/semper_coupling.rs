//! SEMPER, what only coupled subflows do: figures 3 and 4 are met by uncoupled ones, too.
//!
//! RFC 6356, section 2, goal 2: a connection takes no more of a link than if it were a single TCP there. So a TCP beside `n`
//! connections keeps its part of `n + 1`, however many subflows each has.

use sidestep_scenario::builder::{bulk, part};

use super::{
    build,
    semper::{CHOSEN, LINK, PAPER, Size, branch, measure, network, table},
};
use crate::{Context, Experiment, Findings, Paper, ReproError, Row, Rule, Seeds, series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "semper-coupling",
    paper: PAPER,
    figure: "Sections II and III",
    title: "Four hosts of 32 subflows beside plain TCP: coupled ones leave it its part, uncoupled ones do not.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

const HOSTS: u32 = 4;
const LINKS: u32 = 4;
/// Rate of the slow link in Mbit/s.
const SLOW: u32 = 10;
/// The share of its part that a TCP keeps, as our margin for "no more than a single TCP".
const KEPT: f64 = 0.8;
/// The share of the links' rate that is near capacity, as in Figure 4.
const NEAR: f64 = 0.85;
const CONTROLS: [&str; 4] = ["olia", "lia", "balia", "reno"];
/// What couples nothing, and must not pass.
const UNCOUPLED: &str = "reno";
const SCHEDULERS: [&str; 4] = ["min-rtt", "round-robin", "redundant", "linux"];

/// A branch with plain TCPs on its first link.
struct Case {
    name: &'static str,
    /// How many there are.
    tcps: u32,
    /// The rate of their link in Mbit/s.
    rate: u32,
}

const CASES: [Case; 3] = [
    Case { name: "one TCP on a link", tcps: 1, rate: LINK },
    Case { name: "a link that carries four TCPs", tcps: 4, rate: LINK },
    Case { name: "one TCP on a link of 10 Mbit/s", tcps: 1, rate: SLOW },
];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let size = Size::of(context.mode);
    let mut findings = Findings::default();
    let mut cells = Vec::new();
    for case in &CASES {
        for control in CONTROLS {
            let [kept, total] = beside(context, case, control, size)?;
            judge(case, control, &kept, &total, &mut findings.rows);
            cells.push((format!("{},{control}", case.name), vec![kept.middle(), total.middle()]));
        }
    }
    findings.tables.push(("beside-tcp.csv".into(), table("case,control,kept,share_of_capacity", &cells)));
    schedulers(context, size, &mut findings)?;
    Ok(findings)
}

/// By the seed: what the TCPs keep of their part, and the share of all links' rate that is used.
fn beside(context: &mut Context<'_>, case: &Case, control: &str, size: Size) -> Result<[Seeds; 2], ReproError> {
    let hosts = HOSTS + case.tcps;
    let names = |numbers: std::ops::RangeInclusive<u32>| numbers.map(|number| format!("c{number}")).collect::<Vec<_>>();
    let mut scenario = network("semper-coupling", hosts, LINKS, size, CHOSEN)
        .set("tcp.congestion_control", "reno")
        .flow(bulk("", "s1").with("from", names(1..=HOSTS)))
        // Plain TCP takes the first link.
        .flow(bulk("", "s1").with("from", names(HOSTS + 1..=hosts)).with("system", "tcp"));
    if case.rate != LINK {
        let rate = part([("at", "0 s"), ("action", "rate"), ("rate", &format!("{} Mbit/s", case.rate))]);
        scenario = scenario.event(rate.path("path-1"));
    }
    let mut scenario = build(&scenario)?;
    let system = format!("semper:congestion_control={control}");
    let (mut kept, mut used) = (Vec::new(), Vec::new());
    for seed in 1..=size.seeds {
        scenario.seed = u64::from(seed);
        let folder = format!("{}-{control}/seed-{seed}", case.name.replace([' ', '/'], "-"));
        context.simulate(&folder, &scenario, &[&system], 1)?;
        let [tcp, mptcp] = rates(&context.out.join(folder), size)?;
        // They share the link with each host.
        let part = f64::from(case.rate * case.tcps) / f64::from(HOSTS + case.tcps);
        kept.push(Some(tcp / part));
        used.push(Some((tcp + mptcp) / f64::from((LINKS - 1) * LINK + case.rate)));
    }
    Ok([Seeds::new(kept), Seeds::new(used)])
}

/// Mbit/s of the plain TCPs and of MPTCP after the warm-up.
fn rates(run: &std::path::Path, size: Size) -> Result<[f64; 2], ReproError> {
    let mut sums = [0.0; 2];
    for sample in series::read(run)? {
        let (Some(mbps), "connection") = (sample.mbps, sample.kind.as_str()) else { continue };
        let number: Option<u32> =
            sample.name.strip_prefix('c').and_then(|rest| rest.split(['-', ':']).next()?.parse().ok());
        if let Some(number) = number.filter(|_| sample.time_s > f64::from(size.warmup)) {
            sums[usize::from(number <= HOSTS)] += mbps;
        }
    }
    Ok(sums.map(|sum| sum / f64::from(size.duration - size.warmup)))
}

fn judge(case: &Case, control: &str, kept: &Seeds, total: &Seeds, rows: &mut Vec<Row>) {
    let name = case.name;
    let quantity = format!("what TCP keeps of its part, {name}, {control}");
    if control == UNCOUPLED {
        // A check of the rule: what couples nothing must miss it.
        let why = format!("{quantity}: uncoupled, to miss the rule");
        rows.push(Row::median(why, "", Paper::None, kept, Rule::AtMost(KEPT)).of_our_own());
        return;
    }
    let paper = || Paper::Text("distributes resources fairly among hosts' flows (section III)".into());
    rows.push(Row::median(quantity, "", paper(), kept, Rule::AtLeast(KEPT)));
    let quantity = format!("share of the links' rate in use, {name}, {control}");
    let paper = Paper::Text("uses all available paths (section II)".into());
    rows.push(Row::median(quantity, "", paper, total, Rule::AtLeast(NEAR)));
}

/// The schedulers that the paper names, and mainline's.
fn schedulers(context: &mut Context<'_>, size: Size, findings: &mut Findings) -> Result<(), ReproError> {
    let scenario = build(&branch("semper-coupling", HOSTS, LINKS, size, CHOSEN))?;
    let systems = SCHEDULERS.map(|scheduler| format!("semper:scheduler={scheduler}"));
    let found = measure(context, "schedulers", &scenario, &systems, size.seeds)?;
    let mut cells = Vec::new();
    for (scheduler, of) in SCHEDULERS.iter().zip(&found) {
        // The redundant one sends the same over all subflows: all carry as little as the slowest.
        for (what, unit, seeds) in [("total", "Mbit/s", &of.total), ("Jain's index", "", &of.jain)] {
            let quantity = format!("{what}, scheduler {scheduler}");
            findings.rows.push(Row::median(quantity, unit, Paper::None, seeds, Rule::NoPaperValue));
        }
        cells.push(((*scheduler).to_owned(), vec![of.total.middle(), of.jain.middle()]));
    }
    findings.tables.push(("schedulers.csv".into(), table("scheduler,total_mbps,jain", &cells)));
    Ok(())
}
