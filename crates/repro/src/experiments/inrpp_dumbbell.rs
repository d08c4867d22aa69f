//! INRPP, Table 5 and Figures 9, 10 and 12: three flows over the dumbbell of Figure 8.

use std::collections::BTreeMap;

use sidestep_results::{RunResult, measures};
use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk, part},
};

use super::{
    build,
    inrpp::{OURS, caches, losses, no_loss as against_the_condition},
    inrpp_story, result_of,
};
use crate::{
    Context, Experiment, Findings, Line, Panel, Paper, ReproError, Row, Rule, lines,
    series::{self, Sample},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-dumbbell",
    paper: "INRPP",
    figure: "Table 5, Figures 9, 10 and 12",
    title: "Three flows over one bottleneck with a detour: caches, detours and back-pressure against RCP and TCP.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

/// INRPP with caches as the figures need them, and as the text has them; RCP with the paper's gains; NewReno.
const INRPP: &str = "inrpp";
const TEXT: &str = "inrpp:cache=1250 kB,high=1 MB,low=500 kB";
/// Thresholds of half and a quarter of the cache, and near its size.
const SENSITIVE: [&str; 2] = ["inrpp:high=6250 kB,low=3125 kB", "inrpp:high=11875 kB,low=11250 kB"];
/// With a margin that covers what three hosts send in round trips of up to 400 ms.
const COVERED: &str = "inrpp:high=8 MB";
/// What holds under one of several settings that were tried proves nothing; the row of the first setting has the verdict.
const TRIED: Rule = Rule::Unjudged("a setting of ours, tried in addition to the one that is judged");
/// Limits in place of notices, with their default settings, and with the caches of the text.
const LIMITS: [&str; 2] = [
    "inrpp:backpressure=limits,buffer=5 ms,high=auto,low=auto",
    "inrpp:backpressure=limits,buffer=5 ms,high=auto,low=auto,cache=1250 kB",
];
const RCP: &str = "rcp:alpha=0.1,beta=1.0";
const TCP: &str = "tcp";

/// Application bytes of a segment, and what INRPP's packets add: that of 1500 bytes is full.
const MSS: f64 = 1_412.0;
const PACKET: f64 = 1_500.0;
/// Bytes of a flow, and when flows begin, in seconds.
pub(super) const SIZE: f64 = 10e6;
pub(super) const STARTS: [f64; 3] = [1.0, 2.0, 3.0];

/// By system: AFCT in seconds, Jain's index, and Jain's index where the hosts' links have delays of 50, 100 and 200 ms.
const TABLE: [(&str, &str, f64, f64, f64); 3] =
    [("INRPP", INRPP, 10.50, 0.9945, 0.9972), ("RCP", RCP, 25.96, 0.9934, 0.9994), ("TCP", TCP, 23.31, 0.8902, 0.8321)];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let systems = [INRPP, TEXT, RCP, TCP, SENSITIVE[0], SENSITIVE[1], LIMITS[0], LIMITS[1]];
    let equal = dumbbell(&["5 ms"; 3], "120 s")?;
    let result = context.simulate("equal", &equal, &systems, 1)?;
    let series = series::read(&context.out.join("equal"))?;
    let mut unequal = dumbbell(&["50 ms", "100 ms", "200 ms"], "120 s")?;
    let apart = context.simulate("unequal", &unequal, &[INRPP, RCP, TCP, LIMITS[0]], 1)?;
    let series_apart = series::read(&context.out.join("unequal"))?;
    unequal.tcp.sack = true;
    let wide = widened(&unequal)?;
    let covered = context.simulate("unequal-covered", &wide, &[COVERED, RCP, TCP], 1)?;
    let series_covered = series::read(&context.out.join("unequal-covered"))?;
    let mut findings = Findings::default();
    table5(&result, &series, &series_apart, &mut findings.rows)?;
    fairness_apart(&series_covered, &mut findings.rows);
    no_loss(&result, [&apart, &covered], &mut findings.rows)?;
    let of = Series::of(&series, INRPP);
    figures(&of, &mut findings.rows);
    draw(&of, &mut findings)?;
    Ok(findings)
}

/// The dumbbell with these delays of the senders' links; a flow of each begins a second after the one before.
pub(super) fn dumbbell(access: &[&str], duration: &str) -> Result<Scenario, ReproError> {
    let link = |rate: &str, delay: &str, queue: &str| part([("rate", rate), ("delay", delay), ("queue", queue)]);
    let mut network = ScenarioBuilder::new(duration).set("name", "inrpp-dumbbell").set("sample", "100 ms");
    for router in ["0", "1", "2", "3", "4"] {
        network = network.router(router);
    }
    for (a, b) in [("0", "2"), ("0", "1"), ("1", "2")] {
        network = network.link_with(a, b, link("10 Mbit/s", "5 ms", "75 kB"));
    }
    for (a, b) in [("4", "0"), ("2", "3")] {
        network = network.link_with(a, b, link("1 Gbit/s", "5 ms", "7.5 MB"));
    }
    for (at, delay) in access.iter().enumerate() {
        let (from, to) = (format!("s{}", at + 1), format!("r{}", at + 1));
        network = network.host(&from).host(&to);
        network = network.link_with(&from, "4", link("40 Mbit/s", delay, "300 kB"));
        network = network.link_with("3", &to, link("40 Mbit/s", "5 ms", "300 kB"));
        let flow = bulk(&from, &to).with("size", "10 MB").with("start", format!("{} s", at + 1));
        network = network.flow(flow.with("name", format!("flow-{}", at + 1)));
    }
    let network = network.set("inrpp.cache", "12.5 MB").set("inrpp.high", "10 MB").set("inrpp.low", "5 MB");
    let network = network
        .set("inrpp.backpressure", "notices")
        .set("inrpp.buffer", "50 ms")
        .set("rcp.gamma", 1.0)
        .set("tcp.profile", "rfc")
        .set("tcp.congestion_control", "reno")
        .set("tcp.ecn", false);
    let network = network.set("tcp.sack", false).set("tcp.ack_every", 1).set("tcp.initial_window", 2);
    let network = network.set("tcp.mss", MSS as i64).set("tcp.receive_window", "100 MB");
    build(&network)
}

/// With twice the queues before the slow links, as long round trips need.
fn widened(scenario: &Scenario) -> Result<Scenario, ReproError> {
    let text = scenario.to_toml().replace("queue = \"75 kB\"", "queue = \"150 kB\"");
    Scenario::parse(&text, "inrpp-dumbbell").map_err(|error| ReproError::Scenario(error.to_string()))
}

/// Mean completion time of the flows if they shared 20 Mbit/s evenly as a fluid, in seconds, in packets like ours.
fn fluid_bound() -> f64 {
    let mut left = [SIZE * 8.0 * PACKET / MSS; 3];
    let (mut now, mut sum) = (STARTS[0], 0.0);
    while left.iter().any(|left| *left > 0.0) {
        let active: Vec<usize> = (0..3).filter(|at| STARTS[*at] <= now && left[*at] > 0.0).collect();
        let rate = 20e6 / active.len().max(1) as f64;
        let next_start = STARTS.iter().copied().filter(|start| *start > now).fold(f64::INFINITY, f64::min);
        let next_end = active.iter().map(|at| now + left[*at] / rate).fold(f64::INFINITY, f64::min);
        let next = next_start.min(next_end);
        for at in active {
            left[at] -= rate * (next - now);
            if left[at] < 1.0 {
                left[at] = 0.0;
                sum += next - STARTS[at];
            }
        }
        now = next;
    }
    sum / 3.0
}

fn table5(result: &RunResult, series: &[Sample], apart: &[Sample], rows: &mut Vec<Row>) -> Result<(), ReproError> {
    let mut times = Vec::new();
    for (name, system, afct, jain, jain_apart) in TABLE {
        let ours = result_of(result, system)?.afct_s.unwrap_or(f64::NAN);
        times.push(ours);
        let paper = Paper::Number(afct);
        rows.push(Row::single(format!("AFCT, {name}"), "s", paper, ours, Rule::Within(0.1)));
        let (fair, fair_apart) = (Series::of(series, system).jain(), Series::of(apart, system).jain());
        let rule = if name == "TCP" { Rule::Within(0.1) } else { Rule::Within(0.02) };
        rows.push(Row::single(
            format!("Jain's index in windows of 100 ms, {name}"),
            "",
            Paper::Number(jain),
            fair,
            rule,
        ));
        let quantity = format!("Jain's index with delays of 50, 100 and 200 ms, {name}");
        rows.push(Row::single(quantity, "", Paper::Number(jain_apart), fair_apart, rule));
    }
    let bound = fluid_bound();
    let paper = Paper::Number(10.50 / 10.45);
    rows.push(Row::single("AFCT over that of a fluid, INRPP", "", paper.clone(), times[0] / bound, Rule::AtMost(1.02)));
    let text = result_of(result, TEXT)?.afct_s.unwrap_or(f64::NAN);
    rows.push(Row::single(
        "AFCT over that of a fluid, INRPP, small caches",
        "",
        paper.clone(),
        text / bound,
        Rule::AtMost(1.02),
    ));
    for (name, system) in [("a half and a quarter", SENSITIVE[0]), ("0.95 and 0.9", SENSITIVE[1])] {
        let ours = result_of(result, system)?.afct_s.unwrap_or(f64::NAN) / bound;
        let quantity = format!("AFCT over that of a fluid, S_high and S_low of {name} of the cache");
        rows.push(Row::single(quantity, "", Paper::None, ours, Rule::NoPaperValue));
    }
    for (name, system) in [("limits", LIMITS[0]), ("limits, small caches", LIMITS[1])] {
        let ours = result_of(result, system)?.afct_s.unwrap_or(f64::NAN) / bound;
        rows.push(Row::single(format!("AFCT over that of a fluid, {name}"), "", paper.clone(), ours, OURS));
    }
    let fair = [("", series, TABLE[0].3), (" with delays of 50, 100 and 200 ms", apart, TABLE[0].4)];
    for (delays, series, index) in fair {
        let quantity = format!("Jain's index{delays}, limits");
        let ours = Series::of(series, LIMITS[0]).jain();
        rows.push(Row::single(quantity, "", Paper::Number(index), ours, OURS));
    }
    for (name, time) in [("RCP", times[1]), ("TCP", times[2])] {
        let quantity = format!("AFCT of INRPP, share of {name}'s");
        let paper = Paper::Text("about half".into());
        rows.push(Row::single(quantity, "", paper, times[0] / time, Rule::AtMost(0.6)));
    }
    Ok(())
}

/// Jain's index with unequal delays where nothing is lost for want of room, and TCP has SACK.
fn fairness_apart(series: &[Sample], rows: &mut Vec<Row>) {
    for ((name, _, _, _, paper), system) in TABLE.into_iter().zip([COVERED, RCP, TCP]) {
        let quantity = format!("the same with SACK, queues of 150 kB and S_high of 8 MB, {name}");
        rows.push(Row::single(quantity, "", Paper::Number(paper), Series::of(series, system).jain(), TRIED));
    }
}

fn no_loss(equal: &RunResult, [apart, covered]: [&RunResult; 2], rows: &mut Vec<Row>) -> Result<(), ReproError> {
    let none = Rule::AtMost(0.0);
    let runs = [
        ("large caches", equal, INRPP, none),
        ("small caches", equal, TEXT, none),
        ("unequal delays", apart, INRPP, none),
        ("unequal delays, S_high of 8 MB", covered, COVERED, TRIED),
        ("S_high and S_low of a half and a quarter", equal, SENSITIVE[0], TRIED),
        ("S_high and S_low of 0.95 and 0.9", equal, SENSITIVE[1], TRIED),
        ("limits", equal, LIMITS[0], OURS),
        ("limits, small caches", equal, LIMITS[1], OURS),
        ("limits, unequal delays", apart, LIMITS[0], OURS),
    ];
    for (name, result, system, rule) in runs {
        let found = result_of(result, system)?;
        let dropped = losses(found);
        let paper = Paper::Text("none".into());
        rows.push(Row::single(format!("packets lost, {name}"), "packets", paper, dropped, rule));
        rows.extend(against_the_condition(name, &[caches(found).and_then(|caches| caches.custody)]));
    }
    Ok(())
}

fn figures(of: &Series<'_>, rows: &mut Vec<Row>) {
    let number = Paper::Number;
    for (flow, from, until, plateau) in
        [(1, 1.3, 2.0, 20.0), (1, 2.3, 3.0, 10.0), (2, 2.3, 3.0, 10.0), (2, 4.0, 10.0, 6.67), (3, 4.0, 10.0, 6.67)]
    {
        let values: Vec<f64> =
            of.goodput(flow).filter(|(at, _)| *at > from && *at <= until).map(|point| point.1).collect();
        let mean = measures::mean(&values).unwrap_or(f64::NAN) * PACKET / MSS;
        let quantity = format!("Figure 9: flow {flow} from {from} s to {until} s, headers included");
        rows.push(Row::single(quantity, "Mbit/s", number(plateau), mean, Rule::Within(0.03)));
    }
    let least =
        of.out_of_0().filter(|(at, _)| (1.4..=13.0).contains(at)).map(|point| point.1).fold(f64::INFINITY, f64::min);
    let quantity = "Figure 10: what node 0 sends, at least, in 100 ms";
    rows.push(Row::single(quantity, "Mbit/s", Paper::Text("20 throughout".into()), least, Rule::AtLeast(19.0)));
    for (node, cache, paper, share) in [("0", "0>2", 3.04, 0.04), ("4", "4>0", 5.0, 0.1)] {
        let begins =
            of.cache(cache).find(|sample| sample.path == "backpressure").map_or(f64::NAN, |sample| sample.time_s);
        let quantity = format!("Figure 10: node {node} begins to press back");
        rows.push(Row::single(quantity, "s", number(paper), begins, Rule::Within(share)));
    }
    closed_loops(of, rows);
    let held = of
        .cache("0>2")
        .filter(|sample| (3.5..=9.0).contains(&sample.time_s))
        .map(|sample| sample.queue_bytes.unwrap_or(0.0) / 1e6);
    let (least, most) = held.fold((f64::INFINITY, 0.0f64), |(least, most), held| (least.min(held), most.max(held)));
    let paper = || Paper::Text("maintained at the upper bound, 10".into());
    rows.push(Row::single(
        "Figure 12: least in node 0's cache, 3.5 s to 9 s",
        "MB",
        paper(),
        least,
        Rule::AtLeast(9.5),
    ));
    rows.push(Row::single("Figure 12: most in node 0's cache, 3.5 s to 9 s", "MB", paper(), most, Rule::AtMost(11.0)));
}

/// Figure 10's senders in closed loop: none before node 4 presses back on the hosts, and all three after.
fn closed_loops(of: &Series<'_>, rows: &mut Vec<Row>) {
    let pressed = of.cache("4>0").find(|sample| sample.path == "backpressure").map_or(f64::NAN, |one| one.time_s);
    let most = |from: f64, until: f64| {
        let within = of.closed().filter(|(at, _)| *at > from && *at <= until);
        within.map(|(_, senders)| senders).fold(0.0, f64::max)
    };
    let text = |text: &str| Paper::Text(text.into());
    let (before, after) = (most(0.0, pressed - 0.1), most(pressed, pressed + 1.0));
    rows.push(Row::single(
        "Figure 10: senders in closed loop before node 4 presses back",
        "",
        text("none"),
        before,
        Rule::AtMost(0.0),
    ));
    rows.push(Row::single("Figure 10: within a second after", "", text("all three"), after, Rule::AtLeast(3.0)));
}

/// Seconds at which something else happens: all fits, node 0 stores and detours, it presses back, node 4 does, and the hosts are done.
const INSTANTS: [f64; 5] = [1.1, 2.0, 3.5, 5.5, 9.5];

fn draw(of: &Series<'_>, findings: &mut Findings) -> Result<(), ReproError> {
    let until = |points: &mut dyn Iterator<Item = (f64, f64)>| points.filter(|(at, _)| *at <= 16.0).collect::<Vec<_>>();
    let flow = |number| Line { label: format!("flow {number}"), points: until(&mut of.goodput(number)) };
    let cache = |label: &str, name| Line {
        label: label.into(),
        points: until(&mut of.cache(name).map(|sample| (sample.time_s, sample.queue_bytes.unwrap_or(0.0) / 1e6))),
    };
    let part = |number: u32| Line { label: format!("flow {number}"), points: until(&mut of.stored("0>2", number)) };
    let closed = Line { label: "senders in closed loop".into(), points: until(&mut of.closed()) };
    let out = |label: &str, link| Line { label: label.into(), points: until(&mut of.link(link)) };
    let panels = [
        Panel { y: "goodput, Mbit/s".into(), range: [0.0, 22.0], lines: (1..=3).map(flow).collect(), mark: None },
        Panel {
            y: "stored, MB".into(),
            range: [0.0, 13.0],
            lines: vec![cache("node 0", "0>2"), cache("node 4", "4>0")],
            mark: Some((10.0, "presses back above".into())),
        },
        Panel {
            y: "of it in node 0 by flow, MB".into(),
            range: [0.0, 13.0],
            lines: (1..=3).map(part).collect(),
            mark: None,
        },
        Panel { y: "senders in closed loop".into(), range: [0.0, 3.2], lines: vec![closed], mark: None },
        Panel {
            y: "sent by node 0, Mbit/s".into(),
            range: [0.0, 11.0],
            lines: vec![out("straight to 2", "0-2:0>2"), out("around over 1", "0-1:0>1")],
            mark: None,
        },
    ];
    let title = "Three flows of 10 MB: a cache fills, detours and presses back";
    findings.pictures.push(("dumbbell.svg".into(), lines(title, "time, s", &panels, false)?));
    let frames = inrpp_story::frames(&of.0, 14.0);
    findings.pictures.push(("story.svg".into(), inrpp_story::animation(&frames)));
    findings.pictures.push(("frames.svg".into(), inrpp_story::strip(&frames, &INSTANTS)));
    Ok(())
}

/// One system's part of a run's series.
struct Series<'s>(Vec<&'s Sample>);

impl<'s> Series<'s> {
    fn of(all: &'s [Sample], system: &str) -> Self {
        Series(all.iter().filter(|sample| sample.system == system).collect())
    }

    /// Goodput of a flow over time, in Mbit/s.
    fn goodput(&self, flow: u32) -> impl Iterator<Item = (f64, f64)> {
        let host = format!("s{flow}:");
        let of_flow = move |sample: &&&Sample| sample.kind == "connection" && sample.name.starts_with(&host);
        self.0.iter().filter(of_flow).map(|sample| (sample.time_s, sample.mbps.unwrap_or(0.0)))
    }

    /// How many senders are in closed loop, over time.
    fn closed(&self) -> impl Iterator<Item = (f64, f64)> {
        let mut at: BTreeMap<u64, f64> = BTreeMap::new();
        for sample in self.0.iter().filter(|sample| sample.kind == "connection") {
            *at.entry((sample.time_s * 1e3).round() as u64).or_default() +=
                f64::from(u8::from(sample.path == "closed"));
        }
        at.into_iter().map(|(ms, senders)| (ms as f64 / 1e3, senders))
    }

    /// What a flow has in a cache over time, in MB.
    fn stored(&self, cache: &str, flow: u32) -> impl Iterator<Item = (f64, f64)> {
        let name = format!("{cache} s{flow}:");
        let of_flow = move |sample: &&&Sample| sample.kind == "stored" && sample.name.starts_with(&name);
        self.0.iter().filter(of_flow).map(|sample| (sample.time_s, sample.queue_bytes.unwrap_or(0.0) / 1e6))
    }

    fn cache(&self, name: &str) -> impl Iterator<Item = &'s Sample> {
        self.0.iter().copied().filter(move |sample| sample.kind == "cache" && sample.name == name)
    }

    /// What a link carries over time, in Mbit/s.
    fn link(&self, name: &str) -> impl Iterator<Item = (f64, f64)> {
        let of_link = move |sample: &&&Sample| sample.kind == "link" && sample.name == name;
        self.0.iter().filter(of_link).map(|sample| (sample.time_s, sample.mbps.unwrap_or(0.0)))
    }

    /// What node 0 sends straight and around, together.
    fn out_of_0(&self) -> impl Iterator<Item = (f64, f64)> {
        self.link("0-2:0>2").zip(self.link("0-1:0>1")).map(|((at, straight), (_, around))| (at, straight + around))
    }

    /// Jain's index over the flows that are active in a window of 100 ms, as the mean over the windows with at least two.
    fn jain(&self) -> f64 {
        let mut windows: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for flow in 1..=3 {
            for (at, rate) in self.goodput(flow) {
                // A flow's first windows have its handshake only.
                if at > STARTS[flow as usize - 1] + 1.0 {
                    windows.entry((at * 10.0).round() as u64).or_default().push(rate);
                }
            }
        }
        let together = windows.values().filter(|rates| rates.len() >= 2);
        let each: Vec<f64> = together.filter_map(|rates| measures::jain(rates)).collect();
        measures::mean(&each).unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fluid_takes_what_the_issue_computes() {
        // 10.45 s in packets of 1500 bytes that carry 1446.
        let scale = (1_500.0 / 1_446.0) / (PACKET / MSS);
        let bound = fluid_bound();
        assert!((10.6..11.0).contains(&bound) && (bound * scale - 10.45).abs() < 0.1, "{bound}");
    }

    #[test]
    fn windows_of_unequal_flows_lower_the_index() {
        let sample = |host: &str, time_s: f64, rate: f64| Sample {
            system: "tcp".into(),
            time_s,
            kind: "connection".into(),
            name: format!("{host}:1-r1:2"),
            mbps: Some(rate),
            ..Sample::default()
        };
        let equal = [sample("s1", 5.0, 3.0), sample("s2", 5.0, 3.0)];
        let unequal = [sample("s1", 5.0, 3.0), sample("s2", 5.0, 1.0), sample("s1", 6.0, 9.0)];
        assert_eq!(Series::of(&equal, "tcp").jain(), 1.0);
        assert!((Series::of(&unequal, "tcp").jain() - 0.8).abs() < 1e-12);
        assert!(Series::of(&equal, "rcp").jain().is_nan());
    }

    #[test]
    fn senders_in_closed_loop_are_counted_at_each_instant() {
        let sample = |host: &str, time_s: f64, path: &str| Sample {
            system: "inrpp".into(),
            time_s,
            kind: "connection".into(),
            name: format!("{host}:1-r1:2"),
            path: path.into(),
            ..Sample::default()
        };
        let all = [
            sample("s1", 0.1, "open"),
            sample("s1", 0.2, "closed"),
            sample("s2", 0.2, "closed"),
            sample("s3", 0.2, "open"),
        ];
        assert_eq!(Series::of(&all, "inrpp").closed().collect::<Vec<_>>(), [(0.1, 0.0), (0.2, 2.0)]);
    }
}
