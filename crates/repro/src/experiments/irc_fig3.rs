//! Intelligent route control, Figure 3: how often a switch to a path with less delay costs TCP throughput, and what one to more delay does.

use sidestep_results::{World, measures};
use sidestep_scenario::builder::{blackhole, up};

use super::{
    build,
    irc::{IDEAL, PAPER, Total, Ways, ms, on_primary, site, spread, with_flows},
};
use crate::{Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, lines, series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "irc-fig3",
    paper: PAPER,
    figure: "Figure 3",
    title: "A switch to a path with less delay reorders packets: TCP takes three that are overtaken for a loss.",
    worlds: &[World::Sim],
    run,
};

const FLOWS: u32 = 4;
const RTT: f64 = 40.0;
/// Bytes of a segment's payload, and of its packet.
const MSS: f64 = 1_448.0;
const PACKET: f64 = 1_500.0;
/// Windows in packets; the first is judged.
const WINDOWS: [f64; 2] = [8.0, 16.0];
/// `N_o`, how many packets of a connection are overtaken on the mean.
const OVERTAKEN: [f64; 7] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// Round trips in milliseconds of a backup without a queue, for the switch to more delay that the paper only mentions.
const SLOWER: [f64; 6] = [100.0, 150.0, 200.0, 250.0, 300.0, 350.0];
/// A switch to more delay is followed for this number of round trips, after the first.
const ROUND_TRIPS: f64 = 3.0;
/// A switch is followed for this many seconds: five round trips, ten, and a routing period. The first decides whether it lowers
/// throughput.
const FOLLOWED: [f64; 3] = [0.2, 0.4, 1.0];
const SAMPLES_PER_S: f64 = 20.0;
/// Runs, over which intervals are made.
const RUNS: u32 = 10;
/// A reduction that is not one.
const NOISE: f64 = 0.03;

/// Switches in a run.
fn switches(mode: Mode) -> u32 {
    match mode {
        Mode::Quick => 10,
        Mode::Full => 100,
    }
}

/// What switches cost in each run.
struct Cost {
    /// What was left of the throughput on the mean, as a share, by how long a switch was followed.
    kept: Vec<(f64, Seeds)>,
    /// The share of switches after which it was lower, in percent: the y-axis of the figure.
    lowered: Seeds,
}

/// A run with its switches.
struct Switched<'t> {
    total: &'t Total,
    /// When the primary goes, and when it comes back.
    times: &'t [(f64, f64)],
}

/// Runs many switches both ways; `share` returns what each run gives.
fn measure(
    context: &mut Context<'_>,
    name: &str,
    window: f64,
    ways: Ways,
    share: impl Fn(&Switched<'_>) -> Vec<f64>,
) -> Result<Vec<Seeds>, ReproError> {
    let mut by_run: Vec<Vec<f64>> = Vec::new();
    for run in 0..RUNS {
        let count = switches(context.mode);
        let mut times = Vec::new();
        let mut now = 3.0;
        for number in 0..count {
            // At multiples of the samples' distance, and at any phase of the round trip.
            let phase = |more: u32| (spread(2 * (run * count + number) + more) * SAMPLES_PER_S).floor() / SAMPLES_PER_S;
            let returns = now + 2.0 + phase(0);
            times.push((now, returns));
            now = returns + 2.0 + phase(1);
        }
        let base = site("irc-fig3", now.ceil() as u32 + 1, ways)
            .set("warmup", "1 s")
            .set("sample", format!("{} ms", (1e3 / SAMPLES_PER_S) as u32))
            .set("tcp.receive_window", format!("{} B", (window * MSS) as u32));
        let flows = with_flows(base, FLOWS, run, 500.0);
        let scenario = times.iter().fold(flows, |all, (leaves, returns)| {
            let events = [blackhole(&ms(*leaves)), up(&ms(*returns))];
            events.into_iter().fold(all, |all, event| all.event(on_primary(event)))
        });
        let folder = format!("{name}/run-{run}");
        context.simulate(&folder, &build(&scenario)?, &[IDEAL], 1)?;
        let total = Total::of(&series::read(&context.out.join(folder))?, SAMPLES_PER_S);
        by_run.push(share(&Switched { total: &total, times: &times }));
    }
    let values = by_run.first().map_or(0, Vec::len);
    Ok((0..values).map(|value| Seeds::new(by_run.iter().map(|run| run.get(value).copied()))).collect())
}

/// Back to a primary with less delay, when the backup carries just what the windows allow: acknowledgements then come one
/// by one, and a connection's packets are evenly spaced.
fn back(context: &mut Context<'_>, window: f64, overtaken: f64) -> Result<Cost, ReproError> {
    let rtt = RTT * window / (window - overtaken);
    let demand = f64::from(FLOWS) * window * PACKET * 8.0 / (rtt * 1e3);
    let ways = Ways { rates: [100.0, demand], queue: 1_000, rtt: [RTT, rtt] };
    let name = format!("window-{window}/overtaken-{overtaken}");
    let mut seeds = measure(context, &name, window, ways, |switched| {
        // Before the first switch.
        let before = switched.total.mean(2.0, 1.0);
        let kept = |length: f64| -> Vec<f64> {
            switched.times.iter().map(|(_, at)| switched.total.mean(*at, length) / before).collect()
        };
        let lowered = kept(FOLLOWED[0]).iter().filter(|kept| **kept < 1.0 - NOISE).count();
        let means = FOLLOWED.iter().map(|length| measures::mean(&kept(*length)).unwrap_or(f64::NAN));
        means.chain([100.0 * lowered as f64 / switched.times.len() as f64]).collect()
    })?;
    let lowered = seeds.pop().unwrap_or_default();
    Ok(Cost { kept: FOLLOWED.into_iter().zip(seeds).collect(), lowered })
}

/// Away to a backup of this round trip in milliseconds, with room for all.
fn away(context: &mut Context<'_>, rtt: f64) -> Result<Seeds, ReproError> {
    let ways = Ways { rates: [100.0; 2], queue: 1_000, rtt: [RTT, rtt] };
    let rate = f64::from(FLOWS) * WINDOWS[0] * MSS * 8.0 / (rtt * 1e3);
    let seeds = measure(context, &format!("away-{rtt}"), WINDOWS[0], ways, |switched| {
        let first = rtt / 1e3;
        let after = |(at, _): &(f64, f64)| switched.total.mean(at + first, ROUND_TRIPS * first) / rate;
        let shares: Vec<f64> = switched.times.iter().map(after).collect();
        vec![measures::mean(&shares).unwrap_or(f64::NAN)]
    })?;
    Ok(seeds.into_iter().next().unwrap_or_default())
}

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let mut rows = Vec::new();
    let mut panels = Vec::new();
    let mut table = String::from("window_packets,overtaken,followed_s,kept\n");
    let mut often = Vec::new();
    for (number, window) in WINDOWS.into_iter().enumerate() {
        let mut points: Vec<Vec<(f64, f64)>> = vec![Vec::new(); FOLLOWED.len()];
        let mut lowered = Vec::new();
        for overtaken in OVERTAKEN {
            let cost = back(context, window, overtaken)?;
            lowered.push((overtaken, cost.lowered.middle()));
            rows.push(how_often(window, overtaken, &cost.lowered, number == 0));
            for (index, (length, kept)) in cost.kept.iter().enumerate() {
                points[index].push((overtaken, 100.0 * (1.0 - kept.middle())));
                table += &format!("{window},{overtaken},{length},{:.4}\n", kept.middle());
                if number == 0 || overtaken == 3.0 {
                    let quantity = format!("kept in {length} s, {overtaken} overtaken, windows of {window}");
                    rows.push(Row::median(quantity, "", Paper::None, kept, Rule::NoPaperValue));
                }
            }
        }
        often.push(Line { label: format!("windows of {window}"), points: lowered });
        let label = |length: f64| format!("in {length} s");
        let each = FOLLOWED.iter().zip(points);
        panels.push(Panel {
            y: format!("% lost, windows of {window}"),
            range: [0.0, 80.0],
            lines: each.map(|(length, points)| Line { label: label(*length), points }).collect(),
            mark: None,
        });
    }
    let y = "% of switches that lower it".into();
    let mark = Some((30.0, "paper: more than 30 at 3".into()));
    panels.insert(0, Panel { y, range: [0.0, 100.0], lines: often, mark });
    for rtt in SLOWER {
        let kept = away(context, rtt)?;
        let quantity = format!("to a round trip of {rtt} ms: kept in {ROUND_TRIPS} round trips after the first");
        let (paper, rule) = match rtt as u32 {
            200 => (Paper::Text("no timeouts below 240 or 280 ms".into()), Rule::AtLeast(1.0 - NOISE)),
            300.. => (Paper::Text("timeouts beyond 240 or 280 ms".into()), Rule::AtMost(1.0 - NOISE)),
            _ => (Paper::None, Rule::NoPaperValue),
        };
        rows.push(Row::median(quantity, "", paper, &kept, rule));
    }
    let picture = lines("What a switch to less delay costs", "packets overtaken, N_o", &panels, true)?;
    let (pictures, tables) = (vec![("reduction.svg".into(), picture)], vec![("reduction.csv".into(), table)]);
    Ok(Findings { rows, pictures, tables })
}

/// The row of one point of the figure; the paper says nothing of most.
fn how_often(window: f64, overtaken: f64, lowered: &Seeds, judged: bool) -> Row {
    let quantity = format!("switches that lower throughput, {overtaken} overtaken, windows of {window}");
    let row = |paper, rule| Row::median(quantity.clone(), "%", paper, lowered, rule);
    match overtaken as u32 {
        _ if !judged => row(Paper::None, Rule::NoPaperValue),
        // Paths of equal delays, where nothing is overtaken.
        0 => row(Paper::None, Rule::AtMost(100.0 * NOISE)).of_our_own(),
        2 => row(Paper::Text("section 3: it starts before three".into()), Rule::AtLeast(100.0 * NOISE)),
        3 => row(Paper::Text("section 3: in more than 30 % of the simulations".into()), Rule::AtLeast(30.0)),
        _ => row(Paper::None, Rule::NoPaperValue),
    }
}
