//! INRPP, the example of Figure 1: two flows share a link, and one of them has a thin link behind it.

use sidestep_scenario::{Scenario, builder::bulk};

use super::{
    build,
    inrpp::{PACKET, PAPER, PAYLOAD, base, caches, link, no_loss},
    result_of,
};
use crate::{Context, Experiment, Findings, Line, Panel, Paper, ReproError, Row, Rule, lines};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-fig1",
    paper: PAPER,
    figure: "Figure 1",
    title: "Two flows over a link of 10 Mbit/s, one with a link of 2 Mbit/s behind it: 5 and 5 instead of 2 and 8.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

/// The systems; what the thin flow and the other get in the example, in Mbit/s.
const SYSTEMS: [(&str, &str, [f64; 2]); 3] = [
    ("end-to-end control (RCP)", "rcp:alpha=0.1,beta=1.0,gamma=1.0", [2.0, 8.0]),
    ("TCP", "tcp", [2.0, 8.0]),
    ("INRPP", "inrpp", [5.0, 5.0]),
];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let scenario = network()?;
    let run = context.simulate("example", &scenario, &SYSTEMS.map(|(_, spec, _)| spec), 1)?;
    let rates = super::inrpp::rates(&context.out.join("example").join("series.csv"), 10.0)?;
    let mut findings = Findings::default();
    let mut shown = Vec::new();
    for (name, spec, paper) in SYSTEMS {
        let custody = caches(result_of(&run, spec)?).and_then(|all| all.custody);
        findings.rows.extend(no_loss(name, &[custody]));
        let of = rates.get(spec).ok_or_else(|| ReproError::Missing(format!("series of {spec}")))?;
        for ((flow, host), paper) in [("the thin flow", "s1:"), ("the other flow", "s2:")].into_iter().zip(paper) {
            let goodput = of.iter().find(|(name, _)| name.starts_with(host)).map_or(f64::NAN, |(_, rate)| *rate);
            let ours = goodput * PACKET / PAYLOAD;
            let rule = if name == "TCP" { Rule::NoPaperValue } else { Rule::Within(0.1) };
            let paper = if name == "TCP" { Paper::None } else { Paper::Number(paper) };
            let quantity = format!("{flow} from 10 s on, headers included, {name}");
            findings.rows.push(Row::single(quantity, "Mbit/s", paper, ours, rule));
            shown.push((name, flow, ours));
        }
    }
    let line = |flow: &str| Line {
        label: flow.into(),
        points: shown.iter().filter(|of| of.1 == flow).zip(1..).map(|(of, at)| (f64::from(at), of.2)).collect(),
    };
    let panel = Panel {
        y: "Mbit/s".into(),
        range: [0.0, 10.0],
        lines: vec![line("the thin flow"), line("the other flow")],
        mark: None,
    };
    let title = "The two flows of the example under RCP (1), TCP (2) and INRPP (3)";
    findings.pictures.push(("example.svg".into(), lines(title, "system", &[panel], true)?));
    Ok(findings)
}

/// `A` to `B` at 10 Mbit/s; from `B` one flow goes on over 2 Mbit/s to `C`, around which a detour leads over `E`; the other to `D`.
fn network() -> Result<Scenario, ReproError> {
    let mut network = base("inrpp-fig1", 30.0).set("sample", "500 ms");
    for router in ["A", "B", "C", "D", "E"] {
        network = network.router(router);
    }
    for (a, b, rate) in [("A", "B", 10), ("B", "C", 2), ("B", "D", 10), ("B", "E", 10), ("E", "C", 10)] {
        // The shortest path to `C` is the thin link.
        network = network.link_with(a, b, link(rate, 5));
    }
    for (host, at) in [("s1", "A"), ("s2", "A"), ("r1", "C"), ("r2", "D")] {
        network = network.host(host).link_with(host, at, link(100, 5));
    }
    build(&network.flow(bulk("s1", "r1")).flow(bulk("s2", "r2")))
}
