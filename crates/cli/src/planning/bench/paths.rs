//! `sidestep bench paths`.

use std::{collections::BTreeSet, hint::black_box, path::Path};

use sidestep_net::{
    Backbone, Channel, Link, LinkId, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology,
};
use sidestep_paths::{
    Back, Ends, Igp, PathFinder, PathSet, PathSets, SegmentRules,
    analysis::{Counts, Net, NetOptions, Remove, SegmentOptions, Survey},
};
use sidestep_repro::{FlowWork, Set, topologies};

use super::{Case, Report};
use crate::planning::failure::Failure;

/// A case's name, and what measures it.
type Measure = (&'static str, fn(Option<&Path>) -> Result<Vec<Case>, Failure>);

const CASES: [Measure; 5] =
    [("hosts", hosts), ("large", large), ("curves", curves), ("incremental", incremental), ("lp", lp)];

/// The controller's defaults.
const RULES: SegmentRules = SegmentRules { max_segments: 4, adjacency: true };
const MAX_PATHS: usize = 8;

/// What `repro run --mode full` draws.
const LP_DRAWS: u64 = 20;
const LP_GOAL_S: u32 = 60;

/// All cases, or the one of this name.
pub(super) fn run(name: Option<&str>, data: Option<&Path>) -> Result<Report, Failure> {
    if let Some(name) = name.filter(|name| CASES.iter().all(|(case, _)| case != name)) {
        let known = CASES.map(|(case, _)| case).join(", ");
        return Err(Failure::usage(format!("there is no case `{name}`; there are {known}")));
    }
    let mut report = Report { schema: 1, bench: "paths", cases: Vec::new() };
    for (_, measure) in CASES.iter().filter(|(case, _)| name.is_none_or(|name| name == *case)) {
        report.cases.extend(measure(data)?);
    }
    Ok(report)
}

/// Routes in a network of many hosts, where each sends to one other: all equal-cost next hops on the paths there and
/// back.
fn hosts(_: Option<&Path>) -> Result<Vec<Case>, Failure> {
    const ROUTERS: u32 = 440;
    const HOSTS: u32 = 13_350;
    let mut cases = Vec::new();
    // Every `second`-th host has a second access link.
    for (what, second) in [("", None), (", every third host with two links", Some(3))] {
        let backbone = Backbone { core: 300, access: ROUTERS - 300, links: 1_200, near: true, hops: true, seed: 1 };
        let mut topology = backbone.build().map_err(Failure::run)?;
        for host in 0..HOSTS {
            let node = Node { name: format!("h{host}"), kind: NodeKind::Host, prefix: None, locator: None };
            let node = topology.add_node(node).map_err(Failure::run)?;
            let routers = [host % ROUTERS, (host + 1 + host / ROUTERS) % ROUTERS];
            let count = if second.is_some_and(|second| host % second == 0) { 2 } else { 1 };
            for router in &routers[..count] {
                let name = format!("h{host}-r{router}");
                topology.add_link(link(name, node, NodeId(*router), [1, 1])).map_err(Failure::run)?;
            }
        }
        let end = |host: u32| NodeId(ROUTERS + host % HOSTS);
        let (mut hops, mut choices, mut cpu_s) = (0, 0, 0.0);
        measure(&mut cpu_s, || {
            let igp = Igp::new(&topology);
            for host in 0..HOSTS {
                for [from, to] in [[end(host), end(host + HOSTS / 2)], [end(host + HOSTS / 2), end(host)]] {
                    let path = igp.first_path(from, to).unwrap_or_default();
                    hops += path.len();
                    choices += path.iter().map(|arc| igp.next_arcs(topology.tail(*arc), to).count()).sum::<usize>();
                }
            }
        });
        let name = format!(
            "routes of {HOSTS} flows, {:.1} hops, {:.2} next hops, {HOSTS} hosts, {ROUTERS} routers{what}",
            hops as f64 / f64::from(2 * HOSTS),
            choices as f64 / hops as f64
        );
        cases.push(case(&name, f64::from(HOSTS) / cpu_s, "flows/CPU-s", cpu_s));
    }
    Ok(cases)
}

/// Path sets in a network of 10 000 routers.
fn large(_: Option<&Path>) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for (what, count, near, hops, adjacency) in [
        ("", 1_000, false, false, true),
        (", node segments only", 1_000, false, false, false),
        (", all weights 1", 1_000, false, true, true),
        (", links to neighbours only", 1_000, true, false, true),
    ] {
        let backbone = Backbone { core: 6_000, access: 4_000, links: 40_000, near, hops, seed: 1 };
        let topology = backbone.build().map_err(Failure::run)?;
        // A pair starts at one access router after the other, and ends far from it in their order.
        let pairs = (0..count).map(|index| [6_000 + 4 * index, 6_000 + (4 * index + 1_733 * (index + 1)) % 4_000]);
        let pairs = pairs.filter(|[from, to]| from != to).map(|ends| ends.map(NodeId));
        let pairs: Vec<[NodeId; 2]> = pairs.collect();
        let (mut paths, mut cpu_s) = (0, 0.0);
        measure(&mut cpu_s, || {
            let igp = Igp::new(&topology);
            let mut finder = PathFinder::new(&igp, SegmentRules { adjacency, ..RULES });
            for [from, to] in &pairs {
                paths += finder.disjoint_paths(*from, *to, MAX_PATHS).len();
            }
        });
        let name = format!("{} path sets, {paths} paths, 10000 nodes, 40000 links{what}", pairs.len());
        cases.push(case(&name, pairs.len() as f64 / cpu_s, "pairs/CPU-s", cpu_s));
    }
    Ok(cases)
}

/// The path-diversity figures' work, part by part, and their sum.
fn curves(data: Option<&Path>) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    let mut nets = Vec::new();
    for graph in topologies(data, Set::Repetita)? {
        let net = Net::new(&graph, NetOptions::default())?.pruned();
        if net.node_count() > 0 {
            nets.push(net);
        }
    }
    let mut surveys = Vec::new();
    let mut cpu_s = 0.0;
    measure(&mut cpu_s, || {
        nets.iter().try_for_each(|net| Survey::new(net).map(|one| surveys.push((one, net.access()))))
    })?;
    let trees: usize = nets.iter().map(Net::node_count).sum();
    cases.push(case("all shortest paths of 1 node", trees as f64 / cpu_s, "trees/CPU-s", cpu_s));
    type Work = fn(&Survey<'_>, &[u32]) -> u64;
    let works: [(&str, Work); 3] = [
        ("disjoint paths of access pairs, Edmonds-Karp", |survey, nodes| survey.most(nodes).total()),
        ("disjoint paths of access pairs, iterated Dijkstra", |survey, nodes| {
            survey.greedy(nodes, Remove::Both).total()
        }),
        ("disjoint paths of access pairs, segment limits 1 to 10", |survey, nodes| {
            survey.segmented(nodes, 10, SegmentOptions::default()).first().map_or(0, Counts::total)
        }),
    ];
    for (name, work) in works {
        let (mut pairs, mut cpu_s) = (0, 0.0);
        measure(&mut cpu_s, || pairs = surveys.iter().map(|(survey, nodes)| work(survey, nodes)).sum());
        cases.push(case(name, pairs as f64 / cpu_s, "pairs/CPU-s", cpu_s));
    }
    let total = cases.iter().map(|case| case.cpu_s).sum();
    cases.push(case("all of these", nets.len() as f64 / total, "topologies/CPU-s", total));
    Ok(cases)
}

/// The linear programs of the maximum-flow figures, with the draws of a full run.
fn lp(data: Option<&Path>) -> Result<Vec<Case>, Failure> {
    let work = FlowWork::measure(data, LP_DRAWS, sidestep_linux::cpu_seconds)?;
    let FlowWork { networks, programs, seconds, longest_draw, .. } = work;
    let (of, pairs) = work.longest_of;
    let what = format!("linear programs of {networks} networks, {LP_DRAWS} draws");
    Ok(vec![
        case(&what, programs as f64, "programs", seconds),
        case(&format!("time for all (goal: under {LP_GOAL_S})"), seconds, "CPU-s", seconds),
        case("time for one", 1e3 * seconds / programs as f64, "CPU-ms", seconds),
        case(
            &format!("longest draw, a program for each of 4 models: {of}, {pairs} pairs"),
            1e3 * longest_draw,
            "CPU-ms",
            longest_draw,
        ),
        case("largest gap to the dual bound", 1e6 * work.gap, "1e-6 of the flow", seconds),
    ])
}

/// Path sets of Cogentco after one link's failure, of every eighth link: those affected only, and all from scratch.
fn incremental(data: Option<&Path>) -> Result<Vec<Case>, Failure> {
    let graph = sidestep_repro::topology(data, "repetita/Cogentco")?;
    let net = Net::new(&graph, NetOptions::default())?.pruned();
    let topology = topology(&net).map_err(Failure::run)?;
    let access = net.access();
    let pairs = access.iter().flat_map(|from| access.iter().map(|to| (NodeId(*from), NodeId(*to))));
    let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
    let mut sets = PathSets::new(&topology, RULES, MAX_PATHS);
    for (from, to) in &pairs {
        sets.add(&topology, Ends::pair(*from, *to));
    }
    sets.release();
    let (mut from_scratch, mut affected, mut recovery) = (0.0, 0.0, 0.0);
    let (mut computed, mut changed) = (0, 0);
    let mut each_ms = Vec::new();
    for link in topology.link_ids().step_by(8) {
        let down = BTreeSet::from([link]);
        let mut all: Vec<PathSet> = Vec::new();
        measure(&mut from_scratch, || {
            let igp = Igp::without(&topology, &down);
            let mut finder = PathFinder::new(&igp, RULES);
            let set = |(from, to): &(NodeId, NodeId)| {
                let routes = finder.disjoint_paths(*from, *to, MAX_PATHS);
                // With only one egress router, a list of one segment means this.
                let follows_igp = routes.iter().map(|route| route.segments.len() == 1).collect();
                let back = finder.first_path(*to, *from).map(|arcs| Back { from: *to, to: *from, arcs });
                PathSet { routes, follows_igp, back }
            };
            all = pairs.iter().map(set).collect();
        });
        let before = affected;
        let recomputed = measure(&mut affected, || sets.set_down(&topology, &down));
        each_ms.push(1e3 * (affected - before));
        if (0..all.len()).any(|index| sets.get(index) != all.get(index)) {
            return Err(Failure::run(format!("{link:?}: the paths are not those from scratch")));
        }
        measure(&mut recovery, || black_box(sets.set_down(&topology, &BTreeSet::<LinkId>::new())));
        computed += recomputed.computed;
        changed += recomputed.changed.len();
    }
    each_ms.sort_unstable_by(f64::total_cmp);
    let share = |share: usize| each_ms.get(each_ms.len() * share / 10).copied().unwrap_or(0.0);
    let failures = each_ms.len() as f64;
    let each = |cpu_s: f64| 1e3 * cpu_s / failures;
    let pairs = pairs.len();
    Ok(vec![
        case(&format!("Cogentco, one link down, {pairs} pairs, from scratch"), each(from_scratch), "ms", from_scratch),
        case("the same, only pairs that it affects", each(affected), "ms", affected),
        case("the same, median of the links", share(5), "ms", affected),
        case("the same, 9 of 10 links at most", share(9), "ms", affected),
        case("pairs computed anew", computed as f64 / failures, "pairs", affected),
        case("pairs of other paths than before", changed as f64 / failures, "pairs", affected),
        case("faster than from scratch", from_scratch / affected, "times", affected),
        case("the link up again", each(recovery), "ms", recovery),
    ])
}

/// A net as a network of routers.
fn topology(net: &Net) -> Result<Topology, sidestep_net::TopologyError> {
    let mut topology = Topology::new();
    for index in 0..net.node_count() {
        topology.add_node(Node { name: format!("r{index}"), kind: NodeKind::Router, prefix: None, locator: None })?;
    }
    for (index, ([a, b], weights)) in net.links().iter().zip(net.link_weights()).enumerate() {
        topology.add_link(link(
            format!("l{index}"),
            NodeId(*a),
            NodeId(*b),
            weights.map(|weight| weight.unwrap_or(1)),
        ))?;
    }
    Ok(topology)
}

/// A link that nothing limits, with its weight there and back.
fn link(name: String, a: NodeId, b: NodeId, weights: [u64; 2]) -> Link {
    let [ab, ba] = weights.map(|weight| Channel {
        rate: Rate::default(),
        delay: Span::from_millis(1),
        queue: Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None },
        loss: Ratio::ZERO,
        burst_loss: None,
        weight,
    });
    Link { name, a, b, ab, ba, mtu: 1700 }
}

/// Does the work, and adds its CPU seconds.
fn measure<T>(cpu_s: &mut f64, work: impl FnOnce() -> T) -> T {
    let before = sidestep_linux::cpu_seconds();
    let done = work();
    *cpu_s += (sidestep_linux::cpu_seconds() - before).max(1e-9);
    done
}

fn case(name: &str, value: f64, unit: &'static str, cpu_s: f64) -> Case {
    Case { name: name.into(), value, unit, cpu_s, peak_rss_bytes: sidestep_linux::peak_rss_bytes(), simulated: None }
}
