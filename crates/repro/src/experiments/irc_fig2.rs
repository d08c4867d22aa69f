//! Intelligent route control, Figure 2: what a routing period that is too short or too long costs.

use sidestep_results::{Estimate, World};
use sidestep_scenario::builder::{ScenarioBuilder, cbr, part};

use super::{
    build,
    irc::{NONE, PAPER, Ways, on_primary, site, text, with_flows},
    result_of,
};
use crate::{Bar, Context, Experiment, Findings, Mode, Paper, ReproError, Row, Rule, Seeds, bars};

pub(crate) const SHORT: Experiment = Experiment {
    id: "irc-fig2a",
    paper: PAPER,
    figure: "Figure 2a",
    title: "Other traffic joins on the primary: decisions as fast as TCP leave a path that TCP would have shared.",
    worlds: &[World::Sim],
    run: short,
};

pub(crate) const LONG: Experiment = Experiment {
    id: "irc-fig2b",
    paper: PAPER,
    figure: "Figure 2b",
    title: "A tenth of the packets is lost on the primary: a routing period of 10 s reacts too late.",
    worlds: &[World::Sim],
    run: long,
};

/// The paper has a round trip of about 60 ms and four flows; rates, queues and windows are ours.
const WAYS: Ways = Ways { rates: [10.0, 4.0], queue: 40, rtt: [60.0; 2] };
const FLOWS: u32 = 4;
/// Windows that just fill the primary's 10 Mbit/s.
const WINDOW: &str = "18 kB";
/// What else may have been: queues in packets, and windows.
const SWEPT: [(u32, &str); 5] = [(20, "18 kB"), (80, "18 kB"), (20, "1 MB"), (40, "1 MB"), (80, "1 MB")];
/// Leaves 6 Mbit/s: more than the backup has.
const JOINS: &str = "4 Mbit/s";
/// When the primary changes, at the earliest, and how long it is watched after that, in seconds.
const CHANGE: u32 = 10;
const WATCHED: u32 = 20;

/// How many repetitions there are. They differ in when connections begin and when the primary changes.
fn repetitions(mode: Mode) -> u32 {
    match mode {
        Mode::Quick => 10,
        Mode::Full => 100,
    }
}

/// Flows on the site until the primary changes and for [`WATCHED`] seconds more. It changes at any phase of `period`, in
/// seconds: the paper's runs have one phase, which decides how soon a controller sees the change.
fn scenario(name: &str, ways: Ways, window: &str, repetition: u32, of: u32, period: u32) -> (ScenarioBuilder, String) {
    let phase = f64::from(period) * (f64::from(repetition) + 0.5) / f64::from(of);
    let change = f64::from(CHANGE) + phase;
    let [change_ms, end_ms] = [change, change + f64::from(WATCHED)].map(|at| format!("{} ms", (at * 1e3) as u32));
    let site = site(name, CHANGE + WATCHED, ways).set("duration", end_ms).set("warmup", change_ms.as_str());
    let site = site.set("tcp.receive_window", window);
    (with_flows(site, FLOWS, repetition, 1e3), change_ms)
}

/// What a system did in a repetition.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// In Mbit/s, from the change on.
    goodput: f64,
    moves: u64,
}

/// Runs each repetition under the systems; by system.
fn measure(
    context: &mut Context<'_>,
    name: &str,
    systems: &[&str],
    make: impl Fn(u32, u32) -> ScenarioBuilder,
) -> Result<Vec<Vec<Run>>, ReproError> {
    let mut measured = vec![Vec::new(); systems.len()];
    let all = repetitions(context.mode);
    for repetition in 0..all {
        let scenario = build(&make(repetition, all))?;
        let run = context.simulate(&format!("{name}/run-{repetition}"), &scenario, systems, 1)?;
        for (system, values) in systems.iter().zip(&mut measured) {
            let result = result_of(&run, system)?;
            values.push(Run { goodput: result.goodput_mbps, moves: result.total_moves() });
        }
    }
    Ok(measured)
}

fn goodput(of: &[Run]) -> Seeds {
    Seeds::new(of.iter().map(|run| Some(run.goodput)))
}

fn short(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let system = |period: &str| {
        format!("route-control:guards=false,routing_period={period},measurement_period=200ms,loss_timeout=200ms")
    };
    let (fast, slow) = (system("200ms"), system("1s"));
    let systems = [fast.as_str(), slow.as_str(), NONE];
    let make = |ways: Ways, window: &'static str, joins: bool| {
        move |repetition: u32, of: u32| {
            let (scenario, change) = scenario("irc-fig2a", ways, window, repetition, of, 1);
            let joins = joins.then(|| cbr("x", "s", JOINS).with("start", change.as_str()));
            joins.into_iter().fold(scenario, ScenarioBuilder::flow)
        }
    };
    let measured = measure(context, "paper", &systems, make(WAYS, WINDOW, true))?;
    let (quick, late, never) = (&measured[0], &measured[1], &measured[2]);
    let answers = |of: &[Run], is_true: &dyn Fn(u64) -> bool| -> Vec<(String, Option<bool>)> {
        of.iter().enumerate().map(|(number, run)| (format!("run {number}"), Some(is_true(run.moves)))).collect()
    };
    let (switches, stays) = (answers(quick, &|moves| moves > 0), answers(late, &|moves| moves == 0));
    let order = [("200 ms", &goodput(quick)), ("without control", &goodput(never))];
    let mut rows = vec![
        Row::in_seeds("a routing period of 200 ms moves", text("switches"), &switches, switches.len()),
        Row::in_seeds("a routing period of 1 s does not", text("never switches"), &stays, stays.len()),
        Row::ordered("lost by the moves of 200 ms", "Mbit/s", text("the fast controller loses"), &order, 0.0),
        Row::ordered(
            "goodput with 1 s less with 200 ms",
            "Mbit/s",
            text("the slow controller gets more"),
            &[("200 ms", &goodput(quick)), ("1 s", &goodput(late))],
            0.0,
        ),
    ];
    // Whether probes meet losses after the first moment depends on queues and windows, which the paper does not give.
    for (queue, window) in SWEPT {
        let folder = format!("queue-{queue}-window-{}", window.replace(' ', ""));
        let swept = measure(context, &folder, &systems[..2], make(Ways { queue, ..WAYS }, window, true))?;
        for (period, runs) in ["200 ms", "1 s"].into_iter().zip(&swept) {
            let moved = Seeds::new(runs.iter().map(|run| Some(run.moves as f64)));
            let quantity = format!("moves, routing period {period}, queue of {queue} packets, windows of {window}");
            rows.push(Row::median(quantity, "moves", Paper::None, &moved, Rule::NoPaperValue));
        }
    }
    let named = [("200 ms", quick), ("1 s", late), ("without control", never)];
    finish(rows, "Four flows when other traffic joins", &named)
}

fn long(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let system = |period: &str| format!("route-control:guards=false,routing_period={period}");
    let (late, soon) = (system("10s"), system("1s"));
    let loss = |at: &str| on_primary(part([("at", at), ("action", "loss"), ("loss", "10 %")]));
    let measured = measure(context, "paper", &[&late, &soon, NONE], |repetition, of| {
        let (scenario, change) = scenario("irc-fig2b", WAYS, WINDOW, repetition, of, CHANGE);
        scenario.event(loss(&change))
    })?;
    let (late, soon) = (&measured[0], &measured[1]);
    let order = [("10 s", &goodput(late)), ("1 s", &goodput(soon))];
    let rows = vec![Row::ordered("goodput with 1 s less with 10 s", "Mbit/s", text("1 s gets more"), &order, 0.0)];
    let named = [("10 s", late), ("1 s", soon), ("without control", &measured[2])];
    finish(rows, "Four flows when a tenth is lost", &named)
}

fn finish(mut rows: Vec<Row>, title: &str, of: &[(&str, &Vec<Run>)]) -> Result<Findings, ReproError> {
    let mut drawn = Vec::new();
    let mut table = String::from("routing_period,run,goodput_mbps,moves\n");
    for (group, (period, runs)) in of.iter().enumerate() {
        rows.push(Row::median(format!("goodput, {period}"), "Mbit/s", Paper::None, &goodput(runs), Rule::NoPaperValue));
        let goodputs: Vec<f64> = runs.iter().map(|run| run.goodput).collect();
        let label = (*period).to_owned();
        drawn.extend(Estimate::of(&goodputs).map(|estimate| Bar { label, estimate, group }));
        for (number, run) in runs.iter().enumerate() {
            table += &format!("{period},{number},{:.4},{}\n", run.goodput, run.moves);
        }
    }
    let picture = bars(title, "Mbit/s, with 95 % confidence intervals", &drawn, &[])?;
    let (pictures, tables) = (vec![("goodput.svg".into(), picture)], vec![("goodput.csv".into(), table)]);
    Ok(Findings { rows, pictures, tables })
}
