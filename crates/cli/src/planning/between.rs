//! `sidestep paths between`: the paths themselves, and the segment lists that force them.

use serde::Serialize;
use sidestep_formats::Reading;
use sidestep_net::{Missing, NodeId, Topology, TopologyError};
use sidestep_paths::{Apart, Igp, Route, Segment, SegmentRules, paths_apart};

use super::{print_json, topo::read};
use crate::planning::{
    args::BetweenArgs,
    failure::{Failure, Outcome},
};

/// What is found between two routers.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    topology: String,
    from: String,
    to: String,
    apart: String,
    paths: Vec<Found>,
    reading: Reading,
}

/// A path.
#[derive(Debug, Serialize)]
struct Found {
    /// Sum of the IGP weights.
    cost: u64,
    /// The routers on the path.
    nodes: Vec<String>,
    /// `ROUTER`, or `LINK>ROUTER` of an adjacency segment.
    segments: Vec<String>,
}

/// Runs `sidestep paths between`.
pub fn run(args: &BetweenArgs) -> Outcome {
    let (mut graph, reading) = read(&args.data, &args.topology, &args.read)?;
    // Neither changes a path.
    graph.complete(&Missing { rate: Default::default(), delay: Default::default() });
    let unfit = |error: TopologyError| Failure::usage(format!("{}: {error}", graph.name));
    let topo = graph.to_topology().map_err(unfit)?;
    let [from, to] = [find(&topo, &args.from)?, find(&topo, &args.to)?];
    let apart = match args.apart.as_str() {
        "nodes" => Apart::Nodes,
        "risks" => Apart::Risks,
        _ => Apart::Links,
    };
    let rules = SegmentRules { max_segments: usize::from(args.max_segments), adjacency: !args.no_adjacency };
    let routes = paths_apart(&topo, &Igp::new(&topo), (from, to), &rules, usize::from(args.max_paths), apart);
    let report = Report {
        schema: 1,
        topology: graph.name.clone(),
        from: topo.node(from).name.clone(),
        to: topo.node(to).name.clone(),
        apart: args.apart.clone(),
        paths: routes.iter().map(|route| found(&topo, from, route)).collect(),
        reading,
    };
    if args.json {
        return print_json(&report);
    }
    let Report { topology, from, to, apart, paths, .. } = &report;
    let count = paths.len();
    let plural = if count == 1 { "path" } else { "paths" };
    println!("{topology}: {count} {plural} from {from} to {to} that have no {} in common", apart.trim_end_matches('s'));
    for Found { cost, nodes, segments } in paths {
        println!("cost {cost}: {}\n    segments {}", nodes.join(" – "), segments.join(" "));
    }
    Ok(())
}

/// The router of this name; also as the file has it, before it was made fit for our own files.
fn find(topo: &Topology, name: &str) -> Result<NodeId, Failure> {
    let fit: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    topo.find(name).or_else(|_| topo.find(&fit)).map_err(|error| {
        let some: Vec<&str> = topo.nodes().iter().take(8).map(|node| node.name.as_str()).collect();
        Failure::usage(format!("{error}; there are {}, …", some.join(", ")))
    })
}

fn found(topo: &Topology, from: NodeId, route: &Route) -> Found {
    let name = |node: NodeId| topo.node(node).name.clone();
    let segment = |segment: &Segment| match segment {
        Segment::Node(node) => name(*node),
        Segment::Adjacency(arc) => format!("{}>{}", topo.link(arc.link()).name, name(topo.head(*arc))),
    };
    Found {
        cost: route.cost(topo),
        nodes: std::iter::once(from).chain(route.arcs.iter().map(|arc| topo.head(*arc))).map(name).collect(),
        segments: route.segments.iter().map(segment).collect(),
    }
}
