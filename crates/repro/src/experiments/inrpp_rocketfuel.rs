//! INRPP, Figure 17 and Table 7: flows between the edge routers of an ISP's map.

mod map;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_net::Graph;
use sidestep_results::{RunResult, measures};
use sidestep_scenario::Scenario;

use super::{
    build,
    inrpp::{INRPP, OURS, PAPER, SYSTEMS, Size, arrivals, base, by_size, flows, link, measure, rows},
    result_of,
};
use crate::{
    Context, Curve, Experiment, Findings, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, curves, lines, topology,
};
use map::{Map, Role};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-rocketfuel",
    paper: PAPER,
    figure: "Figure 17 and Table 7",
    title: "Flows between the edge routers of AS 3257: completion times and how busy links are.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

const LOAD: f64 = 0.8;
const PACKETS: f64 = 125.0;
/// Pairs of hosts of each edge router that sends to another.
const PAIRS: u32 = 25;
/// Rates in Mbit/s, and the delay of each link in ms, which the paper does not give.
const EDGE: u32 = 100;
const CORE: u32 = 1_000;
const DELAY: u32 = 5;
/// Mean utilisation of links in the paper, in percent.
const TABLE: [f64; 4] = [25.02, 24.41, 33.18, 40.15];
/// Seconds until the flows that arrive are over. Arrivals take half a second; the largest flow takes some seconds alone.
const LENGTH: f64 = 60.0;

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let graph = topology(context.data.as_deref(), "rocketfuel/3257.pop")?;
    let seeds = match context.mode {
        Mode::Full => Size::of(Mode::Full).seeds,
        Mode::Quick => 2,
    };
    let mut findings = Findings::default();
    let text = |text: &str| Paper::Text(text.into());
    let faster = || {
        [
            (text("at least 1.5"), Rule::AtLeast(1.5)),
            (text("at least 1.5"), Rule::AtLeast(1.5)),
            (text("at least 1.2"), Rule::AtLeast(1.2)),
        ]
    };
    let measured = measure(context, "edge-pairs", &network(&graph, Reading::EdgePair, LENGTH)?, seeds, false)?;
    rows("AS 3257", &measured, faster(), &mut findings.rows);
    let (shown, table) = by_size(&measured);
    findings.tables.push(("sizes.csv".into(), table));
    let panel = Panel { y: "log₁₀ of AFCT, s".into(), range: [-2.0, 2.0], lines: shown, mark: None };
    let title = "Mean completion time by size, AS 3257";
    findings.pictures.push(("sizes.svg".into(), lines(title, "log₁₀ of the size in packets", &[panel], true)?));
    busy(context, &graph, seeds, &mut findings)?;
    if context.mode == Mode::Full {
        let other = network(&graph, Reading::Network, 300.0)?;
        let measured = measure(context, "network", &other, seeds, false)?;
        rows("AS 3257, load of one link over all pairs", &measured, faster().map(|(_, _)| none()), &mut findings.rows);
    }
    Ok(findings)
}

fn none() -> (Paper, Rule) {
    (Paper::None, Rule::NoPaperValue)
}

/// What "load 0.8" loads, which the paper does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The flows of each pair of edge routers load a link of an edge router, as in the authors' code.
    EdgePair,
    /// All flows together load one.
    Network,
}

/// How busy links are in the second that begins with the first flow.
fn busy(context: &mut Context<'_>, graph: &Graph, seeds: u32, findings: &mut Findings) -> Result<(), ReproError> {
    let mut scenario = network(graph, Reading::EdgePair, 1.0)?;
    let specs = SYSTEMS.map(|(_, spec)| spec);
    let mut columns: [Vec<Vec<f64>>; SYSTEMS.len()] = Default::default();
    for seed in 1..=seeds {
        scenario.seed = u64::from(seed);
        let run = context.simulate(&format!("busy/seed-{seed}"), &scenario, &specs, 1)?;
        for (column, spec) in columns.iter_mut().zip(specs) {
            column.push(utilisations(&run, spec)?);
        }
    }
    let by_seed = |column: &[Vec<f64>], measure: &dyn Fn(&[f64]) -> Option<f64>| {
        Seeds::new(column.iter().map(|shares| measure(shares)))
    };
    let papers = TABLE.map(|share| (share, Rule::Within(0.25))).into_iter().chain([(TABLE[INRPP], OURS)]);
    for (((name, _), column), (paper, rule)) in SYSTEMS.iter().zip(&columns).zip(papers) {
        let mean = by_seed(column, &|shares| Some(100.0 * measures::mean(shares)?));
        let quantity = format!("Table 7: mean utilisation of links, {name}");
        findings.rows.push(Row::median(quantity, "%", Paper::Number(paper), &mean, rule));
    }
    let share = |column: &[Vec<f64>], from: f64, until: f64| {
        by_seed(column, &|shares| {
            let count = shares.iter().filter(|share| **share >= from && **share < until).count();
            Some(100.0 * count as f64 / shares.len() as f64)
        })
    };
    let full = columns.each_ref().map(|column| share(column, 0.8, 2.0));
    for (at, name) in [(0, "TCP"), (1, "RCP")] {
        let quantity = format!("Figure 17b: links at 80 to 100 %, INRPP over {name}");
        let paper = Paper::Text("nearly 2".into());
        findings.rows.push(Row::median(quantity, "", paper, &full[INRPP].over(&full[at]), Rule::AtLeast(1.5)));
    }
    for ((name, _), column) in SYSTEMS.iter().zip(&columns) {
        let quantity = format!("Figure 17b: links below 20 %, {name}");
        let paper = if *name == "INRPP" { Paper::Number(40.0) } else { Paper::None };
        let rule = if *name == "INRPP" { Rule::Within(0.25) } else { Rule::NoPaperValue };
        findings.rows.push(Row::median(quantity, "%", paper, &share(column, 0.0, 0.2), rule));
    }
    let drawn: Vec<Curve> = SYSTEMS
        .iter()
        .zip(&columns)
        .map(|((name, _), column)| Curve { label: (*name).into(), values: column.concat() })
        .collect();
    let title = "How busy links are in the first second, AS 3257";
    findings.pictures.push(("links.svg".into(), curves(title, "utilisation", "links", &drawn)?));
    Ok(())
}

/// The utilisation of each direction of the links between routers.
fn utilisations(run: &RunResult, spec: &str) -> Result<Vec<f64>, ReproError> {
    let result = result_of(run, spec)?;
    let inner = result.links.iter().filter(|(name, _)| is_inner(name));
    Ok(inner.filter_map(|(_, link)| link.utilisation).collect())
}

/// Whether a direction of a link, such as `n1-n2:n1>n2`, is between routers: names of hosts begin with `s` or `r`.
fn is_inner(name: &str) -> bool {
    name.split_once(':')
        .and_then(|(_, ends)| ends.split_once('>'))
        .is_some_and(|(from, to)| from.starts_with('n') && to.starts_with('n'))
}

/// The ISP's routers; each edge router has hosts that send to those of another, and hosts that receive. Senders have a
/// second link, to an edge router at random, which only MPTCP uses.
fn network(graph: &Graph, reading: Reading, length: f64) -> Result<Scenario, ReproError> {
    let map = Map::of(graph);
    let mut network = base("inrpp-rocketfuel", length).set("sample", if length > 1.0 { "30 s" } else { "250 ms" });
    for node in map.roles.keys() {
        network = network.router(&format!("n{node}"));
    }
    for (a, b) in &map.links {
        let at_edge = [a, b].iter().any(|node| map.roles.get(*node) == Some(&Role::Edge));
        let rate = if at_edge { EDGE } else { CORE };
        network = network.link_with(&format!("n{a}"), &format!("n{b}"), link(rate, DELAY));
    }
    let edges = map.edges();
    let mut random = Pcg32::new(3_257, 0);
    let mut draw = |count: usize| (random.next_u64() % count.max(1) as u64) as usize;
    let mut targets = edges.clone();
    // A permutation without fixed points (Sattolo).
    for at in (1..targets.len()).rev() {
        targets.swap(at, draw(at));
    }
    let rate = arrivals(LOAD, f64::from(EDGE), PACKETS);
    let rate = if reading == Reading::Network { rate / edges.len() as f64 } else { rate };
    for (from, to) in edges.iter().zip(&targets) {
        let mut pairs = Vec::new();
        for number in 0..PAIRS {
            let (sender, receiver) = (format!("s{from}-{number}"), format!("r{to}-{number}"));
            let second = edges[draw(edges.len())];
            network = network.host(&sender).host(&receiver);
            network = network.link_with(&sender, &format!("n{from}"), link(EDGE, DELAY));
            if second != *from {
                network = network.link_with(&sender, &format!("n{second}"), link(EDGE, DELAY).with("weight", 100_000));
            }
            network = network.link_with(&format!("n{to}"), &receiver, link(EDGE, DELAY));
            pairs.push(vec![sender, receiver]);
        }
        let name = format!("from-{from}");
        network = network.flow(flows(&name, pairs, rate, f64::from(PAIRS), PACKETS));
    }
    build(&network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_hosts_do_not_count_as_links_between_routers() {
        assert!(is_inner("n1-n2:n1>n2") && is_inner("n1-n2:n2>n1"));
        for name in ["n5-r5-0:n5>r5-0", "n5-r5-0:r5-0>n5", "s2-0-n2:s2-0>n2", "s2-0-n2:n2>s2-0"] {
            assert!(!is_inner(name), "{name}");
        }
    }
}
