//! Intelligent route control, Figures 5 and 6: what control gains with closed-loop users.

use sidestep_results::{RunResult, World, measures};
use sidestep_route_control::analysis::{self, Rates, Times, time_to_backup, time_to_primary};
use sidestep_scenario::builder::{ScenarioBuilder, blackhole, closed_loop, impairment, part, up};

use super::{
    build,
    irc::{IDEAL, NONE, PAPER, PRACTICAL, PREDICTIVE, Total, Ways, goodput, on_primary, site, text},
};
use crate::{Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, lines, series};

pub(crate) const IDEAL_OUTAGES: Experiment = Experiment {
    id: "irc-fig5a",
    paper: PAPER,
    figure: "Figure 5a",
    title: "Outages of the primary: control that is notified at once gets little more than control that measures.",
    worlds: &[World::Sim],
    run: ideal_outages,
};

pub(crate) const IDEAL_LOSS: Experiment = Experiment {
    id: "irc-fig5b",
    paper: PAPER,
    figure: "Figures 5b and 5c",
    title: "Random loss on the primary: control that misses small losses gets more than control that is notified of them.",
    worlds: &[World::Sim],
    run: ideal_loss,
};

pub(crate) const STATIC_OUTAGES: Experiment = Experiment {
    id: "irc-fig6a",
    paper: PAPER,
    figure: "Figure 6a",
    title: "Outages of the primary: control gets more than static routing.",
    worlds: &[World::Sim],
    run: static_outages,
};

pub(crate) const STATIC_LOSS: Experiment = Experiment {
    id: "irc-fig6b",
    paper: PAPER,
    figure: "Figure 6b",
    title: "Random loss on the primary: static routing is slightly better for small losses.",
    worlds: &[World::Sim],
    run: static_loss,
};

/// Calibrated once to what the paper gives: `R_pg` about 7 and `R_b` about 5 Mbit/s, and `R_pb` crosses `R_b` near 12 %.
/// Rates, round trips, queues, sizes and thinking times are ours.
const FIVE: Ways = Ways { rates: [10.0, 5.3], queue: 100, rtt: [150.0; 2] };
/// What follows from that proves nothing.
const CALIBRATED: Rule = Rule::Unjudged("rates, round trips and sizes were chosen so that it is near the paper's");
/// Other round trips in milliseconds, for which the crossing is shown.
const SWEPT: [f64; 2] = [60.0, 100.0];
/// As the paper has it.
const SIX: Ways = Ways { rates: [10.0, 6.0], ..FIVE };
const USERS: u32 = 100;
const THINK: &str = "15 s";
const MEAN_SIZE: &str = "135 kB";
/// Mean length of good periods, and of bad ones where these are not varied, in seconds.
const GOOD: u32 = 100;
const BAD: u32 = 50;
/// Mean lengths of outages in seconds, and losses in percent.
const OUTAGES: [u32; 3] = [25, 50, 100];
const LOSSES: [u32; 5] = [2, 5, 10, 15, 20];
const WARMUP: u32 = 20;
/// After a change, until rates last, in seconds.
const SETTLES: f64 = 5.0;
/// How much less than another our controller may get, in Mbit/s.
const ALIKE: f64 = 0.1;
/// How far two goodputs may be apart that differ by little.
const LITTLE: f64 = 0.5;

/// How long a run lasts in seconds, and how many repetitions there are.
fn size(mode: Mode) -> (u32, u32) {
    match mode {
        Mode::Quick => (320, 8),
        Mode::Full => (2_020, 20),
    }
}

fn users(name: &str, ways: Ways, mode: Mode) -> ScenarioBuilder {
    let sizes = part([("distribution", "pareto"), ("mean", MEAN_SIZE)]).with("shape", 1.8);
    let users = closed_loop("h", "s", USERS, THINK, MEAN_SIZE).with_table("size", sizes);
    site(name, size(mode).0, ways).set("warmup", format!("{WARMUP} s")).set("tcp.initial_window", 2).flow(users)
}

fn impaired(name: &str, ways: Ways, mode: Mode, bad: u32, loss: Option<u32>) -> ScenarioBuilder {
    let effect = if loss.is_some() { "loss" } else { "outage" };
    let process = on_primary(impairment(&format!("{GOOD} s"), &format!("{bad} s"), effect));
    let process = process.with("start", format!("{WARMUP} s"));
    let process = match loss {
        Some(loss) => process.with("loss", format!("{loss} %")),
        None => process,
    };
    users(name, ways, mode).impairment(process)
}

/// The goodputs of the systems at one value of the horizontal axis.
struct Point {
    x: u32,
    of: Vec<(&'static str, Seeds)>,
}

impl Point {
    fn get(&self, system: &str) -> Seeds {
        self.of.iter().find(|(name, _)| *name == system).map(|(_, seeds)| seeds.clone()).unwrap_or_default()
    }
}

fn measure(
    context: &mut Context<'_>,
    name: &str,
    ways: Ways,
    losses: bool,
    systems: &[&'static str],
) -> Result<Vec<Point>, ReproError> {
    let seeds = size(context.mode).1;
    let mut points = Vec::new();
    for x in if losses { &LOSSES[..] } else { &OUTAGES[..] } {
        let (bad, loss) = if losses { (BAD, Some(*x)) } else { (*x, None) };
        let scenario = build(&impaired(name, ways, context.mode, bad, loss))?;
        let run: RunResult = context.simulate(&format!("at-{x}"), &scenario, systems, seeds)?;
        let of = systems.iter().map(|system| Ok((*system, goodput(&run, system, seeds)?)));
        points.push(Point { x: *x, of: of.collect::<Result<_, ReproError>>()? });
    }
    Ok(points)
}

fn ideal_outages(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let points = measure(context, "irc-fig5a", FIVE, false, &[NONE, IDEAL, PRACTICAL, PREDICTIVE])?;
    let mut rows = Vec::new();
    for point in &points {
        let (ideal, practical) = (point.get(IDEAL), point.get(PRACTICAL));
        let at = format!("outages of {} s", point.x);
        let order = [("practical", &practical), ("ideal", &ideal)];
        rows.push(Row::ordered(format!("ideal less practical, {at}"), "Mbit/s", text("ideal is better"), &order, 0.0));
        let (one, others) = (("ideal", &ideal), [("practical", &practical)]);
        rows.push(Row::equivalent(format!("the same, {at}"), "Mbit/s", text("by little"), one, &others, LITTLE));
        ours(point, &at, &mut rows);
    }
    equations(context, &mut rows)?;
    finish(rows, &points, "Outages of the primary", "mean length of outages in s")
}

fn ideal_loss(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let points = measure(context, "irc-fig5b", FIVE, true, &[NONE, IDEAL, PRACTICAL, PREDICTIVE])?;
    let mut rows = Vec::new();
    for point in &points {
        let (ideal, practical) = (point.get(IDEAL), point.get(PRACTICAL));
        let at = format!("{} % loss", point.x);
        let ascending = [("ideal", &ideal), ("practical", &practical)];
        let quantity = format!("practical less ideal, {at}");
        rows.push(match point.x {
            ..10 => Row::ordered(quantity, "Mbit/s", text("practical is better"), &ascending, 0.0),
            10 => compared(quantity, &ascending),
            _ => {
                let (quantity, order) = (format!("ideal less practical, {at}"), [ascending[1], ascending[0]]);
                Row::ordered(quantity, "Mbit/s", text("ideal is better"), &order, 0.0)
            }
        });
        ours(point, &at, &mut rows);
    }
    rates(context, &mut rows)?;
    finish(rows, &points, "Random loss on the primary", "loss in %")
}

/// Figure 5c: what TCP gets on the primary under loss all the time, and on the backup.
fn rates(context: &mut Context<'_>, rows: &mut Vec<Row>) -> Result<(), ReproError> {
    let measured = crossing(context, FIVE)?;
    for (loss, rate) in &measured.primary {
        let (quantity, paper, rule) = match loss {
            0 => ("R_pg".to_owned(), Paper::Number(7.0), CALIBRATED),
            loss => (format!("R_pb, {loss} % loss"), Paper::None, Rule::NoPaperValue),
        };
        rows.push(Row::median(quantity, "Mbit/s", paper, rate, rule));
    }
    rows.push(Row::median("R_b", "Mbit/s", Paper::Number(5.0), &measured.backup, CALIBRATED));
    let row = |quantity: String, paper: Paper, measured: &Crossing, rule: Rule| {
        Row::single(quantity, "%", paper, measured.at().unwrap_or(f64::NAN), rule)
    };
    let quantity = "loss at which R_pb falls below R_b, of medians".to_owned();
    rows.push(row(quantity, Paper::Number(12.0), &measured, CALIBRATED));
    if context.mode == Mode::Full {
        for rtt in SWEPT {
            let other = crossing(context, Ways { rtt: [rtt; 2], ..FIVE })?;
            rows.push(row(format!("the same with round trips of {rtt} ms"), Paper::None, &other, Rule::NoPaperValue));
        }
    }
    Ok(())
}

/// What TCP gets under loss all the time.
struct Crossing {
    /// On the primary, by loss in percent.
    primary: Vec<(u32, Seeds)>,
    backup: Seeds,
}

fn crossing(context: &mut Context<'_>, ways: Ways) -> Result<Crossing, ReproError> {
    let seeds = size(context.mode).1;
    let mut measured = Crossing { primary: Vec::new(), backup: Seeds::default() };
    for loss in [0, 5, 10, 12, 15, 20] {
        let event = part([("at", "0 s"), ("action", "loss"), ("loss", &*format!("{loss} %"))]);
        let scenario = users("irc-fig5c", ways, context.mode).event(on_primary(event));
        let systems: &[&str] = if loss == 20 { &[NONE, IDEAL] } else { &[NONE] };
        let folder = format!("rtt-{}/always-{loss}", ways.rtt[0]);
        let run = context.simulate(&folder, &build(&scenario)?, systems, seeds)?;
        measured.primary.push((loss, goodput(&run, NONE, seeds)?));
        if loss == 20 {
            measured.backup = goodput(&run, IDEAL, seeds)?;
        }
    }
    Ok(measured)
}

impl Crossing {
    /// The loss in percent at which the primary gives what the backup gives, between the losses that were tried.
    fn at(&self) -> Option<f64> {
        let backup = self.backup.middle();
        let points: Vec<(f64, f64)> =
            self.primary.iter().map(|(loss, rate)| (f64::from(*loss), rate.middle())).collect();
        points.windows(2).find_map(|two| {
            let &[(left, high), (right, low)] = two else { return None };
            (high >= backup && low < backup).then(|| left + (right - left) * (high - backup) / (high - low))
        })
    }
}

/// What a controller gets by the paper's arithmetic.
type Equation = fn(&Rates, &Times) -> f64;

/// Outages that come and go by the clock: the simulator beside equations (1), (2) and (4), fed with the rates of that run.
fn equations(context: &mut Context<'_>, rows: &mut Vec<Row>) -> Result<(), ReproError> {
    let cycle = GOOD + BAD;
    let cycles = (size(context.mode).0 - WARMUP) / cycle;
    let users = |name: &str| users(name, FIVE, context.mode);
    let base = users("irc-equations").set("duration", format!("{} s", WARMUP + cycles * cycle));
    // A cycle ends with its outage.
    let clocked = (0..cycles).map(|number| WARMUP + number * cycle).fold(base, |all, begin| {
        let all = all.event(on_primary(blackhole(&format!("{} s", begin + GOOD))));
        if begin == WARMUP { all } else { all.event(on_primary(up(&format!("{begin} s")))) }
    });
    let mut clocked = build(&clocked)?;
    let times = Times {
        good: f64::from(GOOD),
        bad: f64::from(BAD),
        to_primary: time_to_primary(1.0, 0.4, 0.5),
        to_backup: time_to_backup(1.0, 0.5, 1.0, 40.0),
    };
    let equation: [(&str, &str, Equation); 3] =
        [("(1)", IDEAL, analysis::ideal), ("(2)", PRACTICAL, analysis::practical), ("(4)", NONE, analysis::fixed)];
    let mut shares = [const { Vec::new() }; 3];
    // Only a run's first seed leaves its series.
    for seed in 1..=size(context.mode).1 {
        clocked.seed = u64::from(seed);
        let folder = format!("clocked/seed-{seed}");
        context.simulate(&folder, &clocked, &[NONE, IDEAL, PRACTICAL], 1)?;
        let series = series::read(&context.out.join(folder))?;
        for ((_, system, equation), shares) in equation.iter().zip(&mut shares) {
            let total = Total::of(series.iter().filter(|sample| sample.system == *system), 1.0);
            // The rates that last, without the first seconds after a change.
            let rate = |from: u32, length: u32| {
                let begins = (0..cycles).map(|number| f64::from(WARMUP + number * cycle + from));
                let each: Vec<f64> = begins.map(|at| total.mean(at + SETTLES, f64::from(length) - SETTLES)).collect();
                measures::mean(&each).unwrap_or(f64::NAN)
            };
            let (good, bad) = (rate(0, GOOD), rate(GOOD, BAD));
            let rates = if *system == NONE {
                Rates { primary_good: good, primary_bad: bad, backup: f64::NAN }
            } else {
                Rates { primary_good: good, primary_bad: 0.0, backup: bad }
            };
            let simulated = total.mean(f64::from(WARMUP), f64::from(cycles * cycle));
            shares.push(Some(simulated / equation(&rates, &times)));
        }
    }
    for ((number, system, _), shares) in equation.iter().zip(shares) {
        let quantity = format!("simulated, of equation {number} for {system}");
        rows.push(Row::median(quantity, "", Paper::Number(1.0), &Seeds::new(shares), Rule::Within(0.02)));
    }
    Ok(())
}

fn static_outages(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let points = measure(context, "irc-fig6a", SIX, false, &[NONE, PRACTICAL, PREDICTIVE])?;
    let mut rows = Vec::new();
    for point in &points {
        let (none, practical) = (point.get(NONE), point.get(PRACTICAL));
        let at = format!("outages of {} s", point.x);
        let order = [("static", &none), ("practical", &practical)];
        let quantity = format!("practical less static, {at}");
        rows.push(Row::ordered(quantity, "Mbit/s", text("practical is better"), &order, 0.0));
        ours(point, &at, &mut rows);
    }
    finish(rows, &points, "Outages of the primary, a backup of 6 Mbit/s", "mean length of outages in s")
}

fn static_loss(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let points = measure(context, "irc-fig6b", SIX, true, &[NONE, PRACTICAL, PREDICTIVE])?;
    let mut rows = Vec::new();
    for point in &points {
        let (none, practical) = (point.get(NONE), point.get(PRACTICAL));
        let at = format!("{} % loss", point.x);
        let ascending = [("static", &none), ("practical", &practical)];
        rows.push(match point.x {
            ..5 => {
                let (quantity, order) = (format!("static less practical, {at}"), [ascending[1], ascending[0]]);
                Row::ordered(quantity, "Mbit/s", text("static is slightly better"), &order, 0.0)
            }
            5 => compared(format!("practical less static, {at}"), &ascending),
            _ => {
                let quantity = format!("practical less static, {at}");
                Row::ordered(quantity, "Mbit/s", text("practical is better"), &ascending, 0.0)
            }
        });
        ours(point, &at, &mut rows);
    }
    finish(rows, &points, "Random loss on the primary, a backup of 6 Mbit/s", "loss in %")
}

/// A difference of which the paper says nothing.
fn compared(quantity: String, ascending: &[(&str, &Seeds); 2]) -> Row {
    let row = Row::ordered(quantity, "Mbit/s", Paper::None, ascending, 0.0);
    Row { verdict: crate::Verdict::NoPaperValue, why: "the paper's curves cross near here".into(), ..row }
}

/// Our controller must get at least what the better of the others gets, but for a little.
fn ours(point: &Point, at: &str, rows: &mut Vec<Row>) {
    let predictive = point.get(PREDICTIVE);
    for (name, system) in [("practical", PRACTICAL), ("static", NONE)] {
        let order = [(name, &point.get(system)), ("predictive", &predictive)];
        let quantity = format!("predictive less {name}, {at} (ours)");
        rows.push(Row::ordered(quantity, "Mbit/s", Paper::None, &order, -ALIKE).of_our_own());
    }
}

fn finish(rows: Vec<Row>, points: &[Point], title: &str, x: &str) -> Result<Findings, ReproError> {
    let systems: Vec<&str> =
        points.first().map(|point| point.of.iter().map(|(name, _)| *name).collect()).unwrap_or_default();
    let line = |system: &&str| {
        let at = |point: &Point| (f64::from(point.x), point.get(system).middle());
        Line { label: (*system).to_owned(), points: points.iter().map(at).collect() }
    };
    let drawn: Vec<Line> = systems.iter().map(line).collect();
    let values = || drawn.iter().flat_map(|line| &line.points).map(|point| point.1);
    // The differences are what the figure is about.
    let range = [values().fold(f64::INFINITY, f64::min).floor(), values().fold(0.0, f64::max).ceil()];
    let panel = Panel { y: "Mbit/s".into(), range, lines: drawn, mark: None };
    let picture = lines(title, x, &[panel], true)?;
    let mut table = format!("x,{}\n", systems.join(",").replace("mode=", "").replace("route-control:", ""));
    for point in points {
        let values: Vec<String> = point.of.iter().map(|(_, seeds)| format!("{:.4}", seeds.middle())).collect();
        table += &format!("{},{}\n", point.x, values.join(","));
    }
    Ok(Findings { rows, pictures: vec![("goodput.svg".into(), picture)], tables: vec![("goodput.csv".into(), table)] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossing_lies_between_the_losses_whose_rates_enclose_the_backups() {
        let same = |rate: f64| Seeds::new([Some(rate); 6]);
        let measured = |primary: &[(u32, f64)], backup: f64| {
            let primary = primary.iter().map(|(loss, rate)| (*loss, same(*rate))).collect();
            Crossing { primary, backup: same(backup) }.at()
        };
        assert_eq!(measured(&[(0, 7.0), (10, 6.0), (20, 4.0)], 5.0), Some(15.0));
        assert_eq!(measured(&[(0, 7.0), (10, 6.0)], 5.0), None);
        assert_eq!(measured(&[(0, 4.0), (10, 3.0)], 5.0), None);
    }
}
