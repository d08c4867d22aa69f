//! `sidestep paths`.

use std::path::Path;

use serde::Serialize;
use sidestep_formats::Reading;
use sidestep_net::Graph;
use sidestep_paths::analysis::{Counts, Net, RiskGroups, SegmentOptions, Survey, detours};
use sidestep_repro::Watch;
use sidestep_results::{Stack, stacks};

use super::{
    between, print_json, save,
    topo::{Loaded, load},
    until_signalled,
};
use crate::planning::{
    args::{PairArgs, Paths, TopologyArgs},
    failure::{Failure, Outcome},
    progress::StepProgress,
};

/// What `paths disjoint` and `paths segments` find.
#[derive(Debug, Serialize)]
struct Diversity {
    schema: u32,
    topology: String,
    routers: usize,
    links: usize,
    /// How many routers the pairs are of.
    between: usize,
    /// How many pairs there are; each direction counts where weights are not symmetric.
    pairs: u64,
    interrupted: bool,
    curves: Vec<Curve>,
    reading: Reading,
}

/// The numbers of paths that one algorithm finds.
#[derive(Debug, Serialize)]
struct Curve {
    name: String,
    mean: Option<f64>,
    /// The number of pairs, by their number of paths, from 0 paths on.
    pairs: Vec<u64>,
}

/// What `paths detours` finds, in links.
#[derive(Debug, Serialize)]
struct Around {
    schema: u32,
    topology: String,
    links: usize,
    one_hop: usize,
    one_hop_percent: f64,
    /// By number of 1-hop detours: 1, 2, 3, 4, 5 or more.
    by_detours: [usize; 5],
    two_hops_only: usize,
    neither: usize,
    reading: Reading,
}

/// Runs `sidestep paths …`.
pub fn run(paths: Paths) -> Outcome {
    match paths {
        Paths::Disjoint { topology, pairs, remove, svg } => {
            diversity(&topology, &pairs, svg.as_deref(), 4, |survey, nodes, risks| {
                let mut counts = vec![
                    ("Edmonds-Karp".into(), survey.most(nodes)),
                    ("iterated Dijkstra".into(), survey.greedy(nodes, remove)),
                    ("node-disjoint".into(), survey.most_node_disjoint(nodes)),
                ];
                if !risks.is_empty() {
                    counts.push(("risk-disjoint".into(), survey.greedy_risk_disjoint(nodes, risks)));
                }
                counts
            })
        }
        Paths::Segments { topology, pairs, max_segments, remove, unique, adjacency, svg } => {
            let options = SegmentOptions { remove, unique, adjacency };
            diversity(&topology, &pairs, svg.as_deref(), 1, |survey, nodes, _| {
                let counts = survey.segmented(nodes, usize::from(max_segments), options);
                let name = |limit| format!("at most {limit} segment{}", if limit == 1 { "" } else { "s" });
                (1..).map(name).zip(counts).collect()
            })
        }
        Paths::Between(args) => between::run(&args),
        Paths::Detours { topology, svg } => around(topology, svg.as_deref()),
    }
}

/// Counts paths, with `passes` over all pairs.
fn diversity(
    options: &TopologyArgs,
    pairs: &PairArgs,
    svg: Option<&Path>,
    passes: usize,
    count: impl FnOnce(&Survey<'_>, &[u32], &RiskGroups) -> Vec<(String, Counts)>,
) -> Outcome {
    let Loaded { graph, net, reading } = load(options)?;
    let net = if pairs.no_prune { net } else { net.pruned() };
    let nodes = routers(&graph, &net, pairs)?;
    let watch = StepProgress::new(until_signalled()?);
    watch.on_start("disjoint paths", passes * nodes.len());
    let go_on = || {
        watch.step();
        !watch.stopped()
    };
    let found = count(&Survey::new(&net)?.watched(&go_on), &nodes, &RiskGroups::of(&graph, &net));
    watch.on_finish();
    let report = Diversity {
        schema: 1,
        topology: graph.name,
        routers: net.node_count(),
        links: net.link_count(),
        between: nodes.len(),
        pairs: found.first().map_or(0, |(_, counts)| counts.total()),
        interrupted: watch.stopped(),
        curves: found
            .into_iter()
            .map(|(name, counts)| Curve { name, mean: counts.mean(), pairs: counts.pairs })
            .collect(),
        reading,
    };
    if let Some(path) = svg {
        save(path, &picture(&report))?;
    }
    if options.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    match report.interrupted {
        true => Err(Failure::run("interrupted; what is printed is of the pairs that were looked at until then")),
        false => Ok(()),
    }
}

fn print(report: &Diversity) {
    let Diversity { topology, routers, links, between, pairs, .. } = report;
    println!("{topology}: {routers} routers, {links} links; {pairs} pairs of {between} routers");
    println!("{:<24} {:>10}   pairs with so many paths", "disjoint paths", "mean");
    for curve in &report.curves {
        let pairs = curve.pairs.iter().enumerate().filter(|(_, pairs)| **pairs > 0);
        let pairs: Vec<String> = pairs.map(|(paths, pairs)| format!("{paths}: {pairs}")).collect();
        println!("{:<24} {:>10.4}   {}", curve.name, curve.mean.unwrap_or(0.0), pairs.join(", "));
    }
}

fn picture(report: &Diversity) -> String {
    let most = report.curves.iter().map(|curve| curve.pairs.len()).max().unwrap_or(0);
    let kind = |paths: usize| format!("{paths} path{}", if paths == 1 { "" } else { "s" });
    let kinds: Vec<String> = (0..most).map(kind).collect();
    let stack = |curve: &Curve| Stack {
        label: curve.name.clone(),
        note: curve.mean.map_or(String::new(), |mean| format!("mean {mean:.3}")),
        parts: curve.pairs.clone(),
    };
    let bars: Vec<Stack> = report.curves.iter().map(stack).collect();
    let title = format!("{}: pairs by how many disjoint paths they have", report.topology);
    stacks(&title, &format!("share of {} pairs", report.pairs), &kinds, &bars)
}

/// The routers whose pairs are asked for, at least two.
pub fn routers(graph: &Graph, net: &Net, pairs: &PairArgs) -> Result<Vec<u32>, Failure> {
    let nodes = if pairs.between == "all" { (0..net.node_count() as u32).collect() } else { net.access() };
    if nodes.len() < 2 {
        let hint = if pairs.between == "all" { "--no-prune" } else { "--between all, or --no-prune" };
        return Err(Failure::usage(format!("{} has no two such routers; try {hint}", graph.name)));
    }
    Ok(nodes)
}

fn around(options: TopologyArgs, svg: Option<&Path>) -> Outcome {
    // A parallel link is no detour over another node.
    let options = TopologyArgs { merge_parallel: true, hops: true, ..options };
    let Loaded { graph, net, reading } = load(&options)?;
    let found = detours(&net);
    let one_hop = found.with_one_hop();
    let percent = |links: usize| 100.0 * links as f64 / found.links.max(1) as f64;
    let report = Around {
        schema: 1,
        topology: graph.name,
        links: found.links,
        one_hop,
        one_hop_percent: percent(one_hop),
        by_detours: found.one_hop,
        two_hops_only: found.two_hops,
        neither: found.links - one_hop - found.two_hops,
        reading,
    };
    if let Some(path) = svg {
        save(path, &detour_picture(&report))?;
    }
    if options.json {
        return print_json(&report);
    }
    println!("{}: {} links", report.topology, report.links);
    let line = |what: &str, links: usize| println!("{what:<28} {links:>8} {:>8.2} %", percent(links));
    line("with 1-hop detours", one_hop);
    for (count, links) in ["1", "2", "3", "4", "5 or more"].iter().zip(report.by_detours) {
        line(&format!("  {count}"), links);
    }
    line("with 2-hop detours only", report.two_hops_only);
    line("with neither", report.neither);
    Ok(())
}

fn detour_picture(report: &Around) -> String {
    let kinds = ["neither", "2-hop only", "one 1-hop detour", "2", "3", "4", "5 or more"].map(String::from);
    let mut parts = vec![report.neither as u64, report.two_hops_only as u64];
    parts.extend(report.by_detours.map(|links| links as u64));
    let note = format!("{:.1} % 1-hop", report.one_hop_percent);
    let bar = Stack { label: report.topology.clone(), note, parts };
    stacks(
        &format!("{}: links by their detours", report.topology),
        &format!("share of {} links", report.links),
        &kinds,
        &[bar],
    )
}
