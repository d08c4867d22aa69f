//! What the INRPP paper's experiments with many flows share: settings, runs seed by seed, and their measures.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;
use sidestep_inrpp::{CacheMeasures, CustodyMeasures};
use sidestep_results::{SystemResult, measures};
use sidestep_scenario::{
    Scenario,
    builder::{Part, ScenarioBuilder, part},
};

use super::result_of;
use crate::{Context, Line, Mode, Paper, ReproError, Row, Rule, Seeds, series::each_record};

pub(super) const PAPER: &str = "INRPP";

/// Bytes of a full packet, and what of them is INRPP's payload. Means in packets are meant in these.
pub(super) const PACKET: f64 = 1_500.0;
pub(super) const PAYLOAD: f64 = 1_412.0;

/// The systems by the paper's names; all routers spread flows over equal-cost paths. MPTCP has a subflow for each pair of
/// interfaces. INRPP is the paper's, with notices; with limits it is ours, with its default settings, and no row judges it.
pub(super) const SYSTEMS: [(&str, &str); 5] = [
    ("TCP", "ecmp"),
    ("RCP", "rcp:alpha=0.1,beta=1.0,gamma=1.0,ecmp=true"),
    ("MPTCP", "mptcp:path_manager=fullmesh"),
    ("INRPP", "inrpp:ecmp=true"),
    ("INRPP with limits", "inrpp:ecmp=true,backpressure=limits,buffer=5 ms,cache=12500 kB,high=auto"),
];

/// The mean completion times of others over INRPP's.
pub(super) const OTHERS: [usize; 3] = [0, 1, 2];
pub(super) const INRPP: usize = 3;
const LIMITED: usize = 4;
/// What is not the paper's is not judged by its claims.
pub(super) const OURS: Rule = Rule::Unjudged("limits are ours, in place of the paper's notices");

/// How many repetitions, and which part of the paper's flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) seeds: u32,
    pub(super) flows: f64,
}

impl Size {
    pub(super) fn of(mode: Mode) -> Size {
        match mode {
            Mode::Full => Size { seeds: 10, flows: 1.0 },
            Mode::Quick => Size { seeds: 6, flows: 0.1 },
        }
    }
}

/// A scenario without network and flows: TCP as ns-3 has it, and INRPP's caches of 12.5 MB. Half of a cache is left for what
/// arrives until senders have slowed down, as hosts are faster than the links behind.
pub(super) fn base(name: &str, duration: f64) -> ScenarioBuilder {
    let base = ScenarioBuilder::new(&format!("{duration} s")).set("name", name);
    // As ns-3, which the paper used, has it.
    let base = base
        .set("tcp.profile", "rfc")
        .set("tcp.congestion_control", "reno")
        .set("tcp.ecn", false)
        .set("tcp.sack", false);
    let base = base.set("tcp.ack_every", 1).set("tcp.initial_window", 2).set("tcp.receive_window", "1 GB");
    let base =
        base.set("mptcp.receive_buffer", "1 GB").set("inrpp.backpressure", "notices").set("inrpp.buffer", "50 ms");
    base.set("inrpp.cache", "12.5 MB").set("inrpp.high", "6250 kB")
}

/// A link of this rate and delay; its queue takes 60 ms to drain, of which INRPP's buffers use 50.
pub(super) fn link(mbps: u32, delay_ms: u32) -> Part {
    let queue = f64::from(mbps) * 125.0 * 60.0;
    part([])
        .with("rate", format!("{mbps} Mbit/s"))
        .with("delay", format!("{delay_ms} ms"))
        .with("queue", format!("{queue} B"))
}

/// Flows that arrive at random, `rate` a second and `count` in the mean, of Pareto sizes with a mean of `packets` packets.
pub(super) fn flows(name: &str, pairs: Vec<Vec<String>>, rate: f64, count: f64, packets: f64) -> Part {
    let size =
        part([("distribution", "pareto")]).with("mean", format!("{:.0} B", packets * PAYLOAD)).with("shape", 1.2);
    let flow = part([("kind", "poisson"), ("name", name)]).with("rate", rate).with_table("size", size);
    flow.with("pairs", pairs).with("stop", format!("{:.6} s", count / rate))
}

/// The arrivals a second by which flows of `packets` packets load a link of `mbps` Mbit/s.
pub(super) fn arrivals(load: f64, mbps: f64, packets: f64) -> f64 {
    load * mbps * 1e6 / (packets * PACKET * 8.0)
}

/// What one system did under each seed.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// Mean completion time in seconds; a flow that has not completed counts until the end of the run.
    pub(super) afct: Seeds,
    /// Jain's index in windows of the sampling interval, the mean over windows with at least two flows.
    pub(super) jain: Seeds,
    pub(super) unfinished: Seeds,
    pub(super) lost: Seeds,
    /// Whether the margins of caches covered what could arrive; `None` in seeds where the condition for no loss decides nothing.
    pub(super) custody: Vec<Option<CustodyMeasures>>,
    /// Of all seeds: size in packets and completion time in seconds.
    pub(super) flows: Vec<(f64, f64)>,
}

/// Runs all systems once for each seed, as only a run's first seed leaves its records. `jain`: whether series are read.
pub(super) fn measure(
    context: &mut Context<'_>,
    name: &str,
    scenario: &Scenario,
    seeds: u32,
    jain: bool,
) -> Result<Vec<Measured>, ReproError> {
    let mut scenario = scenario.clone();
    let specs = SYSTEMS.map(|(_, spec)| spec);
    let mut columns: Vec<[Vec<Option<f64>>; 4]> = vec![Default::default(); specs.len()];
    let mut all = vec![Vec::new(); specs.len()];
    let mut custody = vec![Vec::new(); specs.len()];
    for seed in 1..=seeds {
        scenario.seed = u64::from(seed);
        let folder = format!("{name}/seed-{seed}");
        let run = context.simulate(&folder, &scenario, &specs, 1)?;
        let dir = context.out.join(&folder);
        let index = if jain { fairness(&dir.join("series.csv"))? } else { BTreeMap::new() };
        let mut sizes = completed(&dir.join("flows.csv"))?;
        for (at, spec) in specs.iter().enumerate() {
            let result = result_of(&run, spec)?;
            let [afct, fair, unfinished, lost] = &mut columns[at];
            afct.push(mean_time(result));
            fair.push(index.get(*spec).copied());
            unfinished.push(Some(result.unfinished.map_or(0.0, |of| of.flows as f64)));
            lost.push(Some(losses(result)));
            custody[at].push(caches(result).and_then(|caches| caches.custody));
            all[at].append(&mut sizes.remove(*spec).unwrap_or_default());
        }
    }
    let measured =
        columns.into_iter().zip(custody).zip(all).map(|(([afct, jain, unfinished, lost], custody), flows)| Measured {
            afct: Seeds::new(afct),
            jain: Seeds::new(jain),
            unfinished: Seeds::new(unfinished),
            lost: Seeds::new(lost),
            custody,
            flows,
        });
    Ok(measured.collect())
}

/// Mean completion time in seconds, with the flows that have not completed.
fn mean_time(result: &SystemResult) -> Option<f64> {
    result.unfinished.map(|of| of.mean_s).or(result.afct_s)
}

/// What the caches of a run did; `None` where there are none.
pub(super) fn caches(result: &SystemResult) -> Option<CacheMeasures> {
    result.own("caches")
}

/// Packets dropped on links and in caches.
pub(super) fn losses(result: &SystemResult) -> f64 {
    result.total_drops() as f64
}

/// The rows that all these experiments have: completion times, how much faster INRPP is than each of the others by `faster`,
/// and what did not arrive.
pub(super) fn rows(label: &str, measured: &[Measured], faster: [(Paper, Rule); 3], rows: &mut Vec<Row>) {
    for ((name, _), of) in SYSTEMS.iter().zip(measured) {
        let quantity = format!("{label}: AFCT, {name}");
        rows.push(Row::median(quantity, "s", Paper::None, &of.afct, Rule::NoPaperValue));
    }
    for (at, (paper, rule)) in OTHERS.into_iter().zip(faster) {
        let ratio = measured[at].afct.over(&measured[INRPP].afct);
        let quantity = format!("{label}: AFCT of {} over INRPP's, seed by seed", SYSTEMS[at].0);
        rows.push(Row::median(quantity, "", paper, &ratio, rule));
    }
    for ((name, _), of) in SYSTEMS.iter().zip(measured) {
        let quantity = format!("{label}: flows not completed, {name}");
        rows.push(Row::median(quantity, "flows", Paper::None, &of.unfinished, Rule::NoPaperValue));
    }
    let paper = Paper::Text("none".into());
    let quantity = format!("{label}: packets lost, INRPP");
    rows.push(Row::median(quantity, "packets", paper.clone(), &measured[INRPP].lost, Rule::AtMost(0.0)));
    let quantity = format!("{label}: packets lost, INRPP with limits");
    rows.push(Row::median(quantity, "packets", paper, &measured[LIMITED].lost, OURS));
    rows.extend(no_loss(label, &measured[INRPP].custody));
}

/// Whether the margins of caches covered what could arrive, under each seed of a run.
pub(super) fn custody_by_seed(result: &SystemResult) -> Vec<Option<CustodyMeasures>> {
    let each = result.repeated.as_ref().map_or(std::slice::from_ref(result), |repeated| &repeated.each);
    each.iter().map(|one| caches(one).and_then(|caches| caches.custody)).collect()
}

/// The row that proves runs against the condition for no loss: what was lost in caches whose margin covers all that can arrive.
/// Without a run in which a cache presses back, and for which the condition decides something, there is none.
pub(super) fn no_loss(label: &str, custody: &[Option<CustodyMeasures>]) -> Option<Row> {
    let all = custody.iter().flatten().copied().fold(CustodyMeasures::default(), CustodyMeasures::and);
    (all.pressed > 0).then(|| {
        let quantity = format!(
            "{label}: packets lost in the {} of {} caches that press back whose margin covers what can arrive",
            all.covered, all.pressed
        );
        let dropped = all.dropped as f64;
        // Where no margin does, the condition, which is ours, decides nothing.
        if all.covered > 0 || all.dropped > 0 {
            Row::self_check(quantity, "packets", dropped, 0.0)
        } else {
            Row::single(quantity, "packets", Paper::None, dropped, Rule::NoPaperValue)
        }
    })
}

/// The upper ends of classes of sizes, in packets.
const CLASSES: [f64; 7] = [10.0, 20.0, 50.0, 100.0, 300.0, 1_000.0, f64::INFINITY];

/// Completion times by size as lines over the logarithm of the size, and as a table.
pub(super) fn by_size(measured: &[Measured]) -> (Vec<Line>, String) {
    let mut table = String::from("system,packets_up_to,flows,afct_s\n");
    let mut lines = Vec::new();
    for ((name, _), of) in SYSTEMS.iter().zip(measured) {
        let mut points = Vec::new();
        let mut least = 0.0;
        for most in CLASSES {
            let times: Vec<f64> =
                of.flows.iter().filter(|(size, _)| *size > least && *size <= most).map(|flow| flow.1).collect();
            least = most;
            let Some(mean) = measures::mean(&times) else { continue };
            table += &format!("{name},{most},{},{mean:.6}\n", times.len());
            points.push((if most.is_finite() { most } else { 3_000.0 }.log10(), mean.log10()));
        }
        lines.push(Line { label: (*name).into(), points });
    }
    (lines, table)
}

#[derive(Deserialize)]
struct FlowRow<'r> {
    system: &'r str,
    bytes: f64,
    fct_s: Option<f64>,
}

/// By system: size in packets and completion time of the flows that completed.
fn completed(path: &Path) -> Result<BTreeMap<String, Vec<(f64, f64)>>, ReproError> {
    let mut all: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    each_record(path, |record, head| {
        let row: FlowRow<'_> = record.deserialize(Some(head))?;
        if let Some(time) = row.fct_s {
            all.entry(row.system.into()).or_default().push(((row.bytes / PAYLOAD).ceil(), time));
        }
        Ok(())
    })?;
    Ok(all)
}

#[derive(Deserialize)]
struct SampleRow<'r> {
    system: &'r str,
    time_s: f64,
    kind: &'r str,
    name: &'r str,
    mbps: Option<f64>,
    srtt_ms: Option<f64>,
}

/// By system: names of connections, each with a mean.
pub(super) type Means = BTreeMap<String, Vec<(String, f64)>>;

/// By system: the mean goodput of each connection after `from` seconds, in Mbit/s.
pub(super) fn rates(path: &Path, from: f64) -> Result<Means, ReproError> {
    means(path, from, |row| row.mbps)
}

/// By system: the mean smoothed round trip of each connection after `from` seconds, in ms.
pub(super) fn round_trips(path: &Path, from: f64) -> Result<Means, ReproError> {
    means(path, from, |row| row.srtt_ms)
}

fn means(path: &Path, from: f64, value: impl Fn(&SampleRow<'_>) -> Option<f64>) -> Result<Means, ReproError> {
    let mut all: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    each_record(path, |record, head| {
        let row: SampleRow<'_> = record.deserialize(Some(head))?;
        if row.kind == "connection" && row.time_s > from {
            all.entry((row.system.into(), row.name.into())).or_default().extend(value(&row));
        }
        Ok(())
    })?;
    let mut means = Means::new();
    for ((system, name), values) in all {
        if let Some(mean) = measures::mean(&values) {
            means.entry(system).or_default().push((name, mean));
        }
    }
    Ok(means)
}

/// By system: Jain's index over the goodput of the flows that are open in a window, the mean over windows with at least two.
/// A flow's first window is left out, as it begins in the middle of it.
fn fairness(path: &Path) -> Result<BTreeMap<String, f64>, ReproError> {
    let mut seen = BTreeSet::new();
    let mut windows: BTreeMap<String, (u64, Vec<f64>, Vec<f64>)> = BTreeMap::new();
    each_record(path, |record, head| {
        let row: SampleRow<'_> = record.deserialize(Some(head))?;
        if row.kind != "connection" {
            return Ok(());
        }
        let key = format!("{} {}", row.system, row.name);
        let (window, rates, indices) = windows.entry(row.system.into()).or_default();
        let at = (row.time_s * 1e6).round() as u64;
        if *window != at {
            indices.extend(index(rates));
            (*window, *rates) = (at, Vec::new());
        }
        if !seen.insert(key) {
            rates.push(row.mbps.unwrap_or(0.0));
        }
        Ok(())
    })?;
    let means = windows.into_iter().filter_map(|(system, (_, rates, mut indices))| {
        indices.extend(index(&rates));
        Some((system, measures::mean(&indices)?))
    });
    Ok(means.collect())
}

fn index(rates: &[f64]) -> Option<f64> {
    if rates.len() < 2 { None } else { measures::jain(rates) }
}

#[cfg(test)]
mod tests {
    use sidestep_results::Repeated;

    use super::*;
    use crate::Verdict;

    #[test]
    fn completion_times_and_fairness_are_read_from_a_runs_files() {
        let dir = tempfile::tempdir().unwrap();
        let flows = dir.path().join("flows.csv");
        std::fs::write(&flows, "system,bytes,fct_s\ntcp,1412,0.5\ntcp,1413,0.25\ntcp,99,\nrcp,10,1\n").unwrap();
        let read = completed(&flows).unwrap();
        assert_eq!((&read["tcp"], &read["rcp"]), (&vec![(1.0, 0.5), (2.0, 0.25)], &vec![(1.0, 1.0)]));
        let series = dir.path().join("series.csv");
        let mut text = String::from("system,time_s,kind,name,mbps,srtt_ms\n");
        for (time, a, b) in [("0.1", "9", "1"), ("0.2", "1", "1"), ("0.3", "3", "1")] {
            text += &format!("tcp,{time},connection,a,{a},5\ntcp,{time},link,l,7,\ntcp,{time},connection,b,{b},\n");
        }
        std::fs::write(&series, text).unwrap();
        // The first window is left out; then 1 and 0.8.
        assert!((fairness(&series).unwrap()["tcp"] - 0.9).abs() < 1e-9);
        assert_eq!(rates(&series, 0.15).unwrap()["tcp"], [("a".into(), 2.0), ("b".into(), 1.0)]);
        assert_eq!(round_trips(&series, 0.0).unwrap()["tcp"], [("a".to_owned(), 5.0)]);
        assert!(completed(&dir.path().join("none.csv")).is_err());
    }

    #[test]
    fn a_loss_against_the_condition_differs() {
        let custody = |dropped| Some(CustodyMeasures { pressed: 2, covered: 1, dropped, needed_bytes: 1 });
        let uncovered = Some(CustodyMeasures { pressed: 2, ..CustodyMeasures::default() });
        let verdict = |custody: &[_]| no_loss("x", custody).map(|row| row.verdict);
        assert_eq!(verdict(&[custody(0), None]), Some(Verdict::NoPaperValue));
        assert_eq!(verdict(&[custody(0), custody(1)]), Some(Verdict::Differs));
        assert_eq!(verdict(&[uncovered]), Some(Verdict::NoPaperValue));
        assert_eq!(verdict(&[None, Some(CustodyMeasures::default())]), None);
    }

    #[test]
    fn every_seed_is_held_against_the_condition() {
        let of = |dropped| {
            let custody = Some(CustodyMeasures { pressed: 1, covered: 1, dropped, needed_bytes: 1 });
            let caches = serde_json::to_value(CacheMeasures { custody, ..CacheMeasures::default() }).unwrap();
            SystemResult { own: [("caches".to_owned(), caches)].into_iter().collect(), ..SystemResult::default() }
        };
        let verdict = |result: &SystemResult| no_loss("x", &custody_by_seed(result)).map(|row| row.verdict);
        assert_eq!(verdict(&of(0)), Some(Verdict::NoPaperValue));
        let repeated = Repeated::of(&[of(0), of(0), of(1)]);
        assert_eq!(verdict(&SystemResult { repeated, ..of(0) }), Some(Verdict::Differs));
    }

    #[test]
    fn a_load_is_that_of_packets_of_1500_bytes() {
        assert!((arrivals(0.9, 10.0, 30.0) - 25.0).abs() < 1e-9);
    }

    #[test]
    fn times_are_sorted_into_classes_of_sizes() {
        let of = |flows: &[(f64, f64)]| Measured { flows: flows.to_vec(), ..Measured::default() };
        let measured = [of(&[(10.0, 0.1), (5.0, 0.3), (11.0, 1.0)]), of(&[]), of(&[]), of(&[(5_000.0, 2.0)])];
        let (lines, table) = by_size(&measured);
        assert_eq!(lines.iter().map(|line| line.points.len()).collect::<Vec<_>>(), [2, 0, 0, 1]);
        assert!(table.contains("TCP,10,2,0.200000\nTCP,20,1,1.000000\nINRPP,inf,1,2.000000\n"), "{table}");
    }
}
