//! INRPP, Figure 19: INRPP and TCP on the same links.

use sidestep_scenario::{
    Scenario,
    builder::{Part, bulk},
};

use super::{
    build,
    inrpp::{PACKET, PAPER, PAYLOAD, base, caches, link, no_loss, rates, round_trips},
    result_of,
};
use crate::{Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, lines};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-tcp",
    paper: PAPER,
    figure: "Figure 19",
    title: "50 flows of INRPP beside 50 of TCP, against 100 of TCP: TCP keeps its share, INRPP has the detour in addition.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

/// Flows of each half.
const HALF: u32 = 50;
/// Each flow sends at its host's rate until it receives a request to slow down, and what it has sent by then stays stored: half a
/// megabyte for each of 50.
const CACHE: &str = "50 MB";

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let length = if context.mode == Mode::Full { 300.0 } else { 60.0 };
    let from = length / 3.0;
    let (mut measured, mut rows) = (Vec::new(), Vec::new());
    for (name, system, other) in [("mixed", "inrpp", Some("inrpp")), ("tcp-alone", "tcp", None)] {
        let run = context.simulate(name, &network(length, other)?, &[system], 1)?;
        rows.extend(no_loss(name, &[caches(result_of(&run, system)?).and_then(|all| all.custody)]));
        let series = context.out.join(name).join("series.csv");
        let of = |halves: &[(String, f64)], host: &str| {
            let values: Vec<f64> =
                halves.iter().filter(|(name, _)| name.starts_with(host)).map(|(_, value)| *value).collect();
            sidestep_results::measures::mean(&values).unwrap_or(f64::NAN)
        };
        let (rates, times) = (rates(&series, from)?, round_trips(&series, from)?);
        let (rates, times) =
            (rates.get(system).cloned().unwrap_or_default(), times.get(system).cloned().unwrap_or_default());
        measured.push([of(&rates, "a"), of(&rates, "b"), of(&times, "b")]);
    }
    let [[inrpp, beside, rtt_beside], [first, second, rtt_alone]] = measured[..] else {
        return Err(ReproError::Missing("runs".into()));
    };
    let alone = (first + second) / 2.0;
    let kbits = |rate: f64| rate * 1_000.0 * PACKET / PAYLOAD;
    let number = Paper::Number;
    let marginally = Paper::Text("only marginally higher".into());
    rows.extend([
        Row::single(
            "a flow of INRPP beside TCP, headers included",
            "kbit/s",
            number(300.0),
            kbits(inrpp),
            Rule::Within(0.15),
        ),
        Row::single(
            "a flow of TCP beside INRPP, headers included",
            "kbit/s",
            number(100.0),
            kbits(beside),
            Rule::Within(0.15),
        ),
        Row::single(
            "a flow of TCP among 100, headers included",
            "kbit/s",
            number(100.0),
            kbits(alone),
            Rule::Within(0.15),
        ),
        Row::single("round trip of TCP beside INRPP", "ms", Paper::None, rtt_beside, Rule::NoPaperValue),
        Row::single("round trip of TCP alone", "ms", Paper::None, rtt_alone, Rule::NoPaperValue),
        Row::single(
            "round trip of TCP beside INRPP over alone",
            "",
            marginally,
            rtt_beside / rtt_alone,
            Rule::AtMost(1.25),
        ),
    ]);
    let panel = |y: &str, most: f64, a: f64, b: f64, alone: f64| Panel {
        y: y.into(),
        range: [0.0, most],
        lines: vec![
            Line { label: "INRPP".into(), points: vec![(1.0, a)] },
            Line { label: "TCP".into(), points: vec![(1.0, b), (2.0, alone)] },
        ],
        mark: None,
    };
    let panels = [
        panel("kbit/s of a flow", 350.0, kbits(inrpp), kbits(beside), kbits(alone)),
        panel("round trip, ms", rtt_alone.max(rtt_beside) * 1.2, f64::NAN, rtt_beside, rtt_alone),
    ];
    let title = "50 INRPP and 50 TCP (1), 100 TCP (2)";
    let picture = lines(title, "run", &panels, true)?;
    Ok(Findings { rows, pictures: vec![("tcp.svg".into(), picture)], ..Findings::default() })
}

/// The dumbbell of Figure 8 with a hundred flows, of which the second half are TCP's; the first half are `first`'s.
fn network(length: f64, first: Option<&str>) -> Result<Scenario, ReproError> {
    let mut network = base("inrpp-tcp", length).set("sample", "1 s").set("tcp.sack", true);
    network = network.set("inrpp.cache", CACHE);
    for router in ["0", "1", "2", "3", "4"] {
        network = network.router(router);
    }
    for (a, b) in [("0", "2"), ("0", "1"), ("1", "2")] {
        network = network.link_with(a, b, link(10, 5));
    }
    for (a, b) in [("4", "0"), ("2", "3")] {
        network = network.link_with(a, b, link(1_000, 5));
    }
    for half in ["a", "b"] {
        for number in 1..=HALF {
            let (from, to) = (format!("{half}{number}"), format!("r{half}{number}"));
            network = network.host(&from).host(&to);
            network = network.link_with(&from, "4", link(40, 5)).link_with("3", &to, link(40, 5));
            // Flows begin one after the other.
            let flow = bulk(&from, &to).with("start", format!("{} ms", 20 * number));
            let system = if half == "a" { first } else { Some("tcp") };
            network = network.flow(system.into_iter().fold(flow, |flow: Part, system| flow.with("system", system)));
        }
    }
    build(&network)
}
