//! INRPP, Figure 14 and Table 6: short and long flows over the multihomed network of Figure 13.

use sidestep_scenario::Scenario;

use super::{
    build,
    inrpp::{INRPP, Measured, OURS, PAPER, SYSTEMS, Size, arrivals, base, by_size, flows, link, measure, rows},
};
use crate::{Context, Experiment, Findings, Panel, Paper, ReproError, Row, Rule, lines};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-multihomed",
    paper: PAPER,
    figure: "Figure 14 and Table 6",
    title: "Flows of Pareto sizes over one link with two detours, MPTCP over two links: completion times and fairness.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

const LOAD: f64 = 0.9;
const FLOWS: f64 = 1_000.0;
/// Hosts that send, and as many that receive.
const HOSTS: u32 = 20;
/// Mean size in packets, and Jain's index of each system.
const TABLE: [(f64, [f64; 4]); 2] =
    [(30.0, [0.8205, 0.9301, 0.6103, 0.9298]), (500.0, [0.8575, 0.9589, 0.8947, 0.9895])];
const FAIR: f64 = 0.1;

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let size = Size::of(context.mode);
    let mut findings = Findings::default();
    let mut panels = Vec::new();
    for (figure, (packets, jain)) in ["a", "b"].iter().zip(TABLE) {
        let scenario = network(packets, FLOWS * size.flows)?;
        let measured = measure(context, &format!("packets-{packets}"), &scenario, size.seeds, true)?;
        let label = format!("E[L] = {packets}");
        let faster = || (Paper::Text("INRPP is faster".into()), Rule::AtLeast(1.0));
        rows(&label, &measured, [faster(), faster(), faster()], &mut findings.rows);
        fairness(&label, &measured, jain, &mut findings.rows);
        let (lines, table) = by_size(&measured);
        findings.tables.push((format!("sizes-{packets}.csv"), table));
        let y = format!("{figure}: log₁₀ of AFCT, s, {label}");
        panels.push(Panel { y, range: [-2.0, 3.0], lines, mark: None });
    }
    let title = "Mean completion time by size, multihomed network";
    findings.pictures.push(("sizes.svg".into(), lines(title, "log₁₀ of the size in packets", &panels, true)?));
    Ok(findings)
}

fn fairness(label: &str, measured: &[Measured], paper: [f64; 4], rows: &mut Vec<Row>) {
    let papers = paper.map(|index| (index, Rule::Within(FAIR))).into_iter().chain([(paper[INRPP], OURS)]);
    for (((name, _), of), (paper, rule)) in SYSTEMS.iter().zip(measured).zip(papers) {
        let quantity = format!("{label}: Jain's index in windows of 100 ms, {name}");
        rows.push(Row::median(quantity, "", Paper::Number(paper), &of.jain, rule));
    }
    let [tcp, mptcp, inrpp] = [0, 2, INRPP].map(|at| &measured[at].jain);
    for (name, other) in [("TCP", tcp), ("MPTCP", mptcp)] {
        let quantity = format!("{label}: Jain's index, INRPP less {name}");
        let paper = Paper::Text("INRPP is fairer".into());
        rows.push(Row::ordered(quantity, "", paper, &[(name, other), ("INRPP", inrpp)], 0.0));
    }
}

/// Routers 0 to 3 with links of 10 Mbit/s; hosts at 0, with a second link to 2 that only MPTCP uses, send to hosts at 1.
fn network(packets: f64, count: f64) -> Result<Scenario, ReproError> {
    let rate = arrivals(LOAD, 10.0, packets);
    // Sums of Pareto sizes scatter: half the runs bring more than the load, and TCP has one link alone.
    let duration = count / rate * 3.0 + 60.0;
    let mut network = base("inrpp-multihomed", duration).set("sample", "100 ms");
    for router in ["0", "1", "2", "3"] {
        network = network.router(router);
    }
    for (a, b) in [("0", "1"), ("2", "1"), ("0", "2"), ("0", "3"), ("3", "1")] {
        network = network.link_with(a, b, link(10, 5));
    }
    let mut pairs = Vec::new();
    for number in 1..=HOSTS {
        let (from, to) = (format!("s{number}"), format!("r{number}"));
        network = network.host(&from).host(&to).link_with(&from, "0", link(100, 5));
        network = network.link_with(&from, "2", link(100, 5).with("weight", 1_000));
        network = network.link_with("1", &to, link(100, 5));
        pairs.push(vec![from, to]);
    }
    build(&network.flow(flows("flows", pairs, rate, count, packets)))
}
