//! Intelligent route control, Figure 4: windows and throughput around a switch up, and around two switches down.

use sidestep_net::{Rate, Span};
use sidestep_results::{World, measures};
use sidestep_route_control::analysis::fill_time;
use sidestep_scenario::builder::{blackhole, up};

use super::{
    build,
    irc::{IDEAL, PAPER, Total, Ways, ms, on_primary, site, spread, with_flows},
    result_of,
};
use crate::{Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, lines, series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "irc-fig4",
    paper: PAPER,
    figure: "Figures 4a, 4b and 4c",
    title: "After a switch up TCP needs time to fill the path; after a switch down it loses only if queues overflow.",
    worlds: &[World::Sim],
    run,
};

const FLOWS: u32 = 4;
/// With the time that packets take to be sent about 60 ms.
const RTT: f64 = 57.0;
const MSS: f64 = 1_448.0;
const PACKET: f64 = 1_500.0;
const SAMPLES_PER_S: f64 = 20.0;
/// The primary goes, and comes back, in seconds; both are shifted by less than a second from run to run.
const GOES: f64 = 10.0;
const RETURNS: f64 = 20.0;
const END: u32 = 30;
/// A path is filled from this share of its rate on, in a window of this many seconds.
const FILLED: f64 = 0.95;
const WINDOW: f64 = 0.2;
/// After a switch down this much is looked at, in seconds, from a round trip on.
const AFTER: f64 = 3.0;

fn runs(mode: Mode) -> u32 {
    match mode {
        Mode::Quick => 10,
        Mode::Full => 40,
    }
}

/// One part of the figure: the egresses, and the windows that hosts advertise.
struct Part {
    name: &'static str,
    ways: Ways,
    receive_window: &'static str,
}

/// Two egresses of 10 and 5 Mbit/s. A short queue, so that a window holds little more than the path.
const UP: Part =
    Part { name: "up", ways: Ways { rates: [10.0, 5.0], queue: 10, rtt: [RTT; 2] }, receive_window: "1 MB" };
/// Windows for 8 Mbit/s of the primary; a queue for all of them.
const DOWN: Part =
    Part { name: "down", ways: Ways { rates: [10.0, 5.0], queue: 1_000, rtt: [RTT; 2] }, receive_window: "14480 B" };
/// Windows as the path gives them, and a queue of half a bandwidth-delay product of the backup.
const CONGESTED: Part =
    Part { name: "congested", ways: Ways { rates: [10.0, 5.0], queue: 12, rtt: [RTT; 2] }, receive_window: "1 MB" };

/// One repetition.
struct Observed {
    total: Total,
    /// The congestion window of the first connection, in packets.
    window: Vec<(f64, f64)>,
    /// Times of the switches.
    goes: f64,
    returns: f64,
    /// Packets that the backup dropped from the switch on until the next one.
    drops: u64,
}

fn observe(context: &mut Context<'_>, part: &Part) -> Result<Vec<Observed>, ReproError> {
    let mut all = Vec::new();
    for run in 0..runs(context.mode) {
        let shift = (spread(run) * SAMPLES_PER_S).floor() / SAMPLES_PER_S;
        let (goes, returns) = (GOES + shift, RETURNS + shift);
        let base = site("irc-fig4", END, part.ways)
            .set("warmup", "1 s")
            .set("sample", format!("{} ms", (1e3 / SAMPLES_PER_S) as u32))
            .set("tcp.receive_window", part.receive_window);
        let flows = with_flows(base, FLOWS, run, 500.0);
        let events = [blackhole(&ms(goes)), up(&ms(returns))];
        let scenario = events.into_iter().fold(flows, |all, event| all.event(on_primary(event)));
        let folder = format!("{}/run-{run}", part.name);
        let result = context.simulate(&folder, &build(&scenario)?, &[IDEAL], 1)?;
        result_of(&result, IDEAL)?;
        let series = series::read(&context.out.join(folder))?;
        let first = series.iter().find(|sample| sample.kind == "connection").map(|sample| sample.name.clone());
        let of_first =
            series.iter().filter(|sample| sample.kind == "connection" && Some(&sample.name) == first.as_ref());
        let window = of_first.map(|sample| (sample.time_s, sample.cwnd_bytes.unwrap_or(0.0) / MSS)).collect();
        let on_backup = series.iter().filter(|sample| sample.kind == "path" && sample.name == "backup");
        // The column counts from the run's begin on.
        let between = on_backup.filter(|sample| sample.time_s > goes && sample.time_s <= returns);
        let counts: Vec<u64> = between.filter_map(|sample| sample.drops).collect();
        let drops = counts.last().zip(counts.first()).map_or(0, |(last, first)| last.saturating_sub(*first));
        all.push(Observed { total: Total::of(&series, SAMPLES_PER_S), window, goes, returns, drops });
    }
    Ok(all)
}

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let mut findings = Findings::default();
    let parts = [UP, DOWN, CONGESTED];
    let mut observed = Vec::new();
    for part in &parts {
        observed.push(observe(context, part)?);
    }
    let [up, down, congested] = observed.as_slice() else { return Err(ReproError::Missing("a part".into())) };
    filling(up, &mut findings.rows);
    let drops = |all: &[Observed]| Seeds::new(all.iter().map(|one| Some(one.drops as f64)));
    let (quantity, paper) = ("down without congestion: packets dropped", Paper::Text("none".into()));
    findings.rows.push(Row::median(quantity, "packets", paper, &drops(down), Rule::AtMost(0.0)));
    let before = Seeds::new(down.iter().map(|one| Some(one.total.mean(one.goes - 2.0, 2.0) * PACKET / MSS)));
    let paper = || Paper::Number(8.0);
    let quantity = "down without congestion: before, headers included";
    findings.rows.push(Row::median(quantity, "Mbit/s", paper(), &before, Rule::Within(0.05)));
    let paper = Paper::Text("no dip below C_b, 5".into());
    let quantity = "down without congestion: least in 0.2 s, headers included";
    findings.rows.push(Row::median(quantity, "Mbit/s", paper, &least(down), Rule::AtLeast(4.75)));
    let paper = Paper::Text("dips below C_b, 5".into());
    let quantity = "down with congestion: least in 0.2 s, headers included";
    findings.rows.push(Row::median(quantity, "Mbit/s", paper, &least(congested), Rule::AtMost(4.5)));
    let quantity = "down with congestion: packets dropped";
    findings.rows.push(Row::median(quantity, "packets", Paper::None, &drops(congested), Rule::NoPaperValue));
    for (part, observed, at) in [("4a", &observed[0], RETURNS), ("4b", &observed[1], GOES), ("4c", &observed[2], GOES)]
    {
        if let Some(first) = observed.first() {
            let picture = draw(first, at, &format!("Figure {part}: around the switch"))?;
            findings.pictures.push((format!("{part}.svg"), picture));
        }
    }
    Ok(findings)
}

/// How long after the switch up the primary is full, beside equation (6).
fn filling(observed: &[Observed], rows: &mut Vec<Row>) {
    let capacity = UP.ways.rates[0];
    let took = |one: &Observed| {
        let steps = (0..)
            .map(|step| f64::from(step) / SAMPLES_PER_S)
            .take_while(|after| one.returns + after < f64::from(END) - WINDOW);
        let full = |after: &f64| one.total.mean(one.returns + after, WINDOW) * PACKET / MSS >= FILLED * capacity;
        steps.into_iter().find(full)
    };
    let times = Seeds::new(observed.iter().map(took));
    let rates: Vec<f64> = observed.iter().map(|one| one.total.mean(one.returns - 2.0, 2.0) * PACKET / MSS).collect();
    let rate = measures::mean(&rates).unwrap_or(0.0);
    let mbps = |rate: f64| Rate::from_bits_per_sec((rate * 1e6) as u64);
    let rtt = Span::from_nanos((RTT * 1e6) as u64);
    let equation = fill_time(rtt, mbps(capacity), mbps(rate), PACKET * 8.0, f64::from(FLOWS)).as_secs_f64();
    let quantity =
        format!("up: until the primary is full; equation (6) gives {equation:.2}, twice that with delayed ACKs");
    rows.push(Row::median(quantity, "s", Paper::None, &times, Rule::NoPaperValue));
    let share = times.scaled(1.0 / (2.0 * equation));
    rows.push(Row::median("up: the same, of twice equation (6)", "", Paper::Number(1.0), &share, Rule::Within(0.5)));
}

/// The least in [`WINDOW`] after the switch down, with headers.
fn least(observed: &[Observed]) -> Seeds {
    let of = |one: &Observed| {
        let steps = (0..(AFTER * SAMPLES_PER_S) as u32).map(|step| one.goes + 0.1 + f64::from(step) / SAMPLES_PER_S);
        steps.map(|at| one.total.mean(at, WINDOW) * PACKET / MSS).min_by(f64::total_cmp)
    };
    Seeds::new(observed.iter().map(of))
}

fn draw(one: &Observed, at: f64, title: &str) -> Result<String, ReproError> {
    let around = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().copied().filter(|(time, _)| (at - 1.0..=at + 5.0).contains(time)).collect()
    };
    let panel = |y: &str, most: f64, label: &str, points: Vec<(f64, f64)>, mark: Option<(f64, String)>| Panel {
        y: y.into(),
        range: [0.0, most],
        lines: vec![Line { label: label.into(), points }],
        mark,
    };
    let panels = [
        panel(
            "goodput, Mbit/s",
            11.0,
            "all flows",
            around(&one.total.points()),
            Some((5.0, "the backup's rate".into())),
        ),
        panel("cwnd, packets", 40.0, "one flow", around(&one.window), None),
    ];
    Ok(lines(title, "time, s", &panels, false)?)
}
