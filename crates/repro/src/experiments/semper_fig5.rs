//! SEMPER, Figure 5: a link is removed and comes back; throughput and fairness in windows of one second.

mod series;

use sidestep_results::measures::jain;
use sidestep_scenario::builder::{down, up};

use super::{
    build,
    semper::{CHOSEN, LINK, PAPER, Size, branch},
};
use crate::{Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, lines};
use series::Series;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "semper-fig5",
    paper: PAPER,
    figure: "Figure 5",
    title: "Two hosts over four links, one of which is removed: the other three are full at once.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

/// What happens when, in seconds: a link is removed, is back, and the run ends.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// From when the run has settled.
    settled: u32,
    removed: u32,
    back: u32,
    end: u32,
}

/// The seconds after a change that are not counted as settled.
const SETTLES: u32 = 5;
/// The least share of the three links' throughput that is no visible loss, in the mean and at worst in one second.
const KEPT: f64 = 0.95;
const DIP: f64 = 0.8;
/// "Practically at once", in seconds until the total is again this share of what it was.
const AT_ONCE: f64 = 2.0;
const RECOVERED: f64 = 0.95;

/// Edges that see the carrier, and edges that do not: the paper does not say which it has.
const SIGHTS: [(&str, &str); 2] = [("aware", "true"), ("blind", "false")];
const NAMES: [&str; 2] = ["stateless", "stateful"];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let (figure, soon, seeds) = match context.mode {
        Mode::Full => (
            Times { settled: 150, removed: 200, back: 390, end: 400 },
            Times { settled: 150, removed: 200, back: 210, end: 260 },
            10,
        ),
        Mode::Quick => {
            let figure = Times { settled: 5, removed: 10, back: 20, end: 25 };
            (figure, Times { settled: 5, removed: 10, back: 12, end: 17 }, 6)
        }
    };
    let mut findings = Findings::default();
    let late = observe(context, "back-late", (2, 4), figure, seeds)?;
    judge(&late, figure, &mut findings.rows);
    recovery(&late, figure, "2 hosts, 4 links", &mut findings.rows);
    draw(&late, figure, &mut findings)?;
    let early = observe(context, "back-soon", (2, 4), soon, seeds)?;
    recovery(&early, soon, "2 hosts, 4 links", &mut findings.rows);
    if context.mode == Mode::Full {
        let times = Times { settled: 30, removed: 50, back: 60, end: 80 };
        for (hosts, links) in [(8, 2), (4, 8)] {
            let name = format!("hosts-{hosts}-links-{links}");
            let others = observe(context, &name, (hosts, links), times, 6)?;
            recovery(&others, times, &format!("{hosts} hosts, {links} links"), &mut findings.rows);
        }
    }
    Ok(findings)
}

/// By sight and kind of edge: the series of each seed.
type Observed = Vec<(&'static str, &'static str, Vec<Series>)>;

/// Runs each system once for each seed, as only a run's first seed leaves its series.
fn observe(
    context: &mut Context<'_>,
    name: &str,
    (hosts, links): (u32, u32),
    times: Times,
    seeds: u32,
) -> Result<Observed, ReproError> {
    let size = Size { duration: times.end, warmup: times.settled, seeds };
    let scenario = branch("semper-fig5", hosts, links, size, CHOSEN)
        .event(down(&format!("{} s", times.removed)).path("path-1"))
        .event(up(&format!("{} s", times.back)).path("path-1"));
    let mut scenario = build(&scenario)?;
    let kinds = SIGHTS.iter().flat_map(|(sight, aware)| {
        let systems =
            [format!("semper:subflows=32,aware={aware}"), format!("semper-stateful:subflows={links},aware={aware}")];
        NAMES.iter().zip(systems).map(move |(kind, system)| (*sight, *kind, system))
    });
    let kinds: Vec<(&'static str, &'static str, String)> = kinds.collect();
    let systems: Vec<&str> = kinds.iter().map(|(_, _, system)| system.as_str()).collect();
    let mut observed: Observed = kinds.iter().map(|(sight, kind, _)| (*sight, *kind, Vec::new())).collect();
    for seed in 1..=seeds {
        scenario.seed = u64::from(seed);
        let folder = format!("{name}/seed-{seed}");
        context.simulate(&folder, &scenario, &systems, 1)?;
        let all = series::read(&context.out.join(folder))?;
        for ((_, _, series), system) in observed.iter_mut().zip(&systems) {
            let of = all.get(*system).ok_or_else(|| ReproError::Missing(format!("series of {system}")))?;
            series.push(of.clone());
        }
    }
    Ok(observed)
}

/// What the figure shows between the removal and the return.
fn judge(observed: &Observed, times: Times, rows: &mut Vec<Row>) {
    let text = |text: &str| Paper::Text(text.into());
    let without = times.removed + SETTLES..times.back;
    let by_seed = |series: &[Series], measure: &dyn Fn(&Series) -> Option<f64>| Seeds::new(series.iter().map(measure));
    for (sight, kind, series) in observed {
        let kept = by_seed(series, &|one| Some(one.mean(without.clone())? / three_quarters(one, times)?));
        let quantity = format!("total without the link, of three quarters of before, {kind}, {sight}");
        rows.push(Row::median(quantity, "", text("no visible loss"), &kept, Rule::AtLeast(KEPT)));
        let dip = by_seed(series, &|one| Some(one.least(times.removed..times.back)? / three_quarters(one, times)?));
        let quantity = format!("the same in the worst second, {kind}, {sight}");
        rows.push(Row::median(quantity, "", text("no visible loss"), &dip, Rule::AtLeast(DIP)));
        let correlation = by_seed(series, &|one| one.correlation(without.clone()));
        let quantity = format!("correlation of the two hosts' throughput, {kind}, {sight}");
        rows.push(match *kind {
            "stateful" => Row::median(quantity, "", text("negative"), &correlation, Rule::AtMost(0.0)),
            _ => Row::median(quantity, "", Paper::None, &correlation, Rule::NoPaperValue),
        });
    }
    for pair in observed.chunks_exact(2) {
        let [(sight, _, stateless), (_, _, stateful)] = pair else { continue };
        let mut steadier = |what: &str, unit: &str, measure: &dyn Fn(&Series) -> Option<f64>| {
            let [stateless, stateful] = [stateless, stateful].map(|series| by_seed(series, measure));
            for (kind, seeds) in NAMES.iter().zip([&stateless, &stateful]) {
                let quantity = format!("{what}, {kind}, {sight}");
                rows.push(Row::median(quantity, unit, Paper::None, seeds, Rule::NoPaperValue));
            }
            let order = [("stateless", &stateless), ("stateful", &stateful)];
            let quantity = format!("{what}, stateful less stateless, {sight}");
            rows.push(Row::ordered(quantity, unit, text("stateless steadier"), &order, 0.0));
        };
        steadier("σ of a host's throughput in windows of 1 s", "Mbit/s", &|one| one.sigma(without.clone()));
        steadier("σ of Jain's index in windows of 1 s", "", &|one| one.jain_sigma(without.clone()));
    }
}

/// How soon all is as it was when the link is back.
fn recovery(observed: &Observed, times: Times, of: &str, rows: &mut Vec<Row>) {
    for (sight, kind, series) in observed {
        let seconds = |one: &Series| {
            let before = one.mean(times.settled..times.removed)?;
            let again = (times.back..times.end).find(|second| one.total(*second) >= Some(RECOVERED * before));
            // What does not recover counts as the end of the run.
            Some(f64::from(again.unwrap_or(times.end) + 1 - times.back))
        };
        let seconds = Seeds::new(series.iter().map(seconds));
        let quantity = format!(
            "seconds until 95 % of before, the link back after {} s, {of}, {kind}, {sight}",
            times.back - times.removed
        );
        let paper = Paper::Text("practically at once".into());
        rows.push(Row::median(quantity, "s", paper, &seconds, Rule::AtMost(AT_ONCE)));
    }
}

/// Three quarters of the total before the removal, of four links.
fn three_quarters(series: &Series, times: Times) -> Option<f64> {
    Some(0.75 * series.mean(times.settled..times.removed)?)
}

fn draw(observed: &Observed, times: Times, findings: &mut Findings) -> Result<(), ReproError> {
    for (sight, _) in SIGHTS {
        let seen: Vec<_> = observed.iter().filter(|(of, _, _)| *of == sight).collect();
        let first = |series: &[Series], value: &dyn Fn(&[f64]) -> Option<f64>| -> Vec<(f64, f64)> {
            let points = series.first().into_iter().flat_map(Series::seconds);
            points.filter_map(|(second, hosts)| Some((f64::from(*second), value(hosts)?))).collect()
        };
        let each = |value: &dyn Fn(&[f64]) -> Option<f64>| -> Vec<Line> {
            let line = |(_, kind, series): &&(_, &str, Vec<Series>)| Line {
                label: (*kind).into(),
                points: first(series, value),
            };
            seen.iter().map(line).collect()
        };
        let four = f64::from(4 * LINK);
        let panel = |y: &str, range, lines| Panel { y: y.into(), range, lines, mark: None };
        let panels = [
            panel("total, Mbit/s", [0.0, four], each(&|hosts| Some(hosts.iter().sum()))),
            panel("host 1, Mbit/s", [0.0, four], each(&|hosts| hosts.first().copied())),
            panel("host 2, Mbit/s", [0.0, four], each(&|hosts| hosts.get(1).copied())),
            panel("Jain's index", [0.5, 1.0], each(&jain)),
        ];
        let Times { removed, back, .. } = times;
        let title =
            format!("Four links, one removed at {removed} s and back at {back} s; {sight} edges, one repetition");
        findings.pictures.push((format!("series-{sight}.svg"), lines(&title, "s", &panels, false)?));
    }
    let mut text = String::from("sight,edge,seed,second,host_1_mbps,host_2_mbps\n");
    for (sight, kind, series) in observed {
        for (seed, of) in (1..).zip(series) {
            for (second, hosts) in of.seconds() {
                let hosts: Vec<String> = hosts.iter().map(|mbps| format!("{mbps:.3}")).collect();
                text += &format!("{sight},{kind},{seed},{second},{}\n", hosts.join(","));
            }
        }
    }
    findings.tables.push(("series.csv".into(), text));
    Ok(())
}
