//! The program compared with another solver that is given every path, on networks small enough for that.

use microlp::{ComparisonOp, OptimizationDirection, Problem};
use proptest::prelude::*;
use sidestep_net::{
    ArcId, Channel, Graph, GraphEdge, GraphNode, Link, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span,
    Topology,
};
use sidestep_paths::analysis::{Net, NetOptions};

use crate::{FlowArc, FlowError, FlowModel, FlowNetwork, FlowProgram, MAX_GAP, MaxFlow};

const NO_LIMIT: [FlowModel; 6] = [
    FlowModel::SinglePath,
    FlowModel::Ecmp,
    FlowModel::Multipath,
    segments(None),
    segment_paths(None),
    FlowModel::AnyPath,
];

const fn segments(limit: Option<usize>) -> FlowModel {
    FlowModel::Segments { limit, adjacency: false }
}

const fn segment_paths(limit: Option<usize>) -> FlowModel {
    FlowModel::SegmentPaths { limit, adjacency: false }
}

/// The segment-routing model with adjacency segments.
fn forced(model: FlowModel) -> FlowModel {
    match model {
        FlowModel::Segments { limit, .. } => FlowModel::Segments { limit, adjacency: true },
        FlowModel::SegmentPaths { limit, .. } => FlowModel::SegmentPaths { limit, adjacency: true },
        other => other,
    }
}

/// Arcs as their ends, their capacity and their weight.
fn network(nodes: usize, arcs: &[(u32, u32, f64, u64)]) -> FlowNetwork {
    try_network(nodes, arcs).expect("the network is sound")
}

fn try_network(nodes: usize, arcs: &[(u32, u32, f64, u64)]) -> Result<FlowNetwork, FlowError> {
    let arc = |(from, to, capacity, weight): &(u32, u32, f64, u64)| FlowArc {
        from: NodeId(*from),
        to: NodeId(*to),
        capacity: *capacity,
        weight: *weight,
    };
    FlowNetwork::new(nodes, arcs.iter().map(arc).collect())
}

fn solve(network: &FlowNetwork, model: FlowModel, pairs: &[(u32, u32)]) -> Result<MaxFlow, FlowError> {
    let pairs: Vec<_> = pairs.iter().map(|(from, to)| (NodeId(*from), NodeId(*to))).collect();
    FlowProgram::new(network, model).solve(&pairs)
}

fn flow(network: &FlowNetwork, model: FlowModel, pairs: &[(u32, u32)]) -> f64 {
    solve(network, model, pairs).expect("the program is solved").flow
}

/// Whether two flows are the same but for rounding.
fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 2.0 * MAX_GAP * other.abs().max(1e-9)
}

#[track_caller]
fn assert_flow(network: &FlowNetwork, model: FlowModel, pairs: &[(u32, u32)], expected: f64) {
    let flow = flow(network, model, pairs);
    assert!(near(flow, expected), "{model:?}: {flow} instead of {expected}");
}

/// From 0 to 3: over 1 with 10 and over 2 with 4, equally long; over 4 with 5, longer.
fn three_paths() -> FlowNetwork {
    let arcs = [(0, 1, 10.0, 1), (1, 3, 10.0, 1), (0, 2, 4.0, 1), (2, 3, 4.0, 1), (0, 4, 5.0, 2), (4, 3, 5.0, 2)];
    network(5, &arcs)
}

#[test]
fn each_model_reaches_what_its_paths_can_carry() {
    let network = three_paths();
    let pairs = [(0, 3)];
    assert_flow(&network, FlowModel::SinglePath, &pairs, 10.0);
    // Each path gets half, and the narrow one has room for 4.
    assert_flow(&network, FlowModel::Ecmp, &pairs, 8.0);
    assert_flow(&network, FlowModel::Multipath, &pairs, 14.0);
    assert_flow(&network, segments(Some(0)), &pairs, 0.0);
    assert_flow(&network, segments(Some(1)), &pairs, 8.0);
    assert_flow(&network, segments(Some(2)), &pairs, 19.0);
    assert_flow(&network, segment_paths(Some(1)), &pairs, 14.0);
    assert_flow(&network, segments(None), &pairs, 19.0);
    assert_flow(&network, FlowModel::AnyPath, &pairs, 19.0);
}

#[test]
fn node_segments_cannot_fill_parallel_links_of_different_capacity_but_multipath_can() {
    let network = network(2, &[(0, 1, 1.0, 1), (0, 1, 3.0, 1)]);
    assert_flow(&network, segments(None), &[(0, 1)], 2.0);
    assert_flow(&network, FlowModel::Multipath, &[(0, 1)], 4.0);
}

#[test]
fn an_adjacency_forces_a_link_that_no_shortest_path_takes() {
    // The link from 0 to 1 is longer than the path over 2, and the narrow one of two parallel links counts as much as
    // the wide one.
    let triangle = network(3, &[(0, 2, 2.0, 1), (2, 1, 2.0, 1), (0, 1, 5.0, 9)]);
    let parallel = network(3, &[(0, 1, 1.0, 1), (0, 1, 3.0, 1), (1, 2, 9.0, 1)]);
    for model in [segments(Some(1)), segments(Some(2)), segments(None)] {
        assert_flow(&triangle, model, &[(0, 1)], 2.0);
        assert_flow(&triangle, forced(model), &[(0, 1)], 7.0);
        assert_flow(&parallel, model, &[(0, 2)], 2.0);
    }
    // An adjacency segment, and then the egress router.
    assert_flow(&parallel, forced(segments(Some(1))), &[(0, 2)], 2.0);
    assert_flow(&parallel, forced(segments(Some(2))), &[(0, 2)], 4.0);
    assert_flow(&parallel, forced(segment_paths(Some(1))), &[(0, 2)], 4.0);
    assert_flow(&triangle, forced(segments(Some(0))), &[(0, 1)], 0.0);
}

#[test]
fn a_segment_may_lead_to_the_router_of_an_adjacency() {
    // From 0 to 1 to 2, where a longer link goes to 3 beside the path over 4.
    let network = network(5, &[(0, 1, 9.0, 1), (1, 2, 9.0, 1), (2, 3, 3.0, 5), (2, 4, 1.0, 1), (4, 3, 1.0, 1)]);
    assert_flow(&network, segments(None), &[(0, 3)], 1.0);
    assert_flow(&network, forced(segments(Some(1))), &[(0, 3)], 4.0);
}

#[test]
fn pairs_share_what_they_have_in_common_and_one_without_a_path_has_none() {
    let network = network(5, &[(0, 2, 9.0, 1), (1, 2, 9.0, 1), (2, 3, 6.0, 1)]);
    let pairs = [(0, 3), (1, 3), (0, 3), (3, 0), (0, 4)];
    for model in NO_LIMIT {
        let solved = solve(&network, model, &pairs).unwrap();
        assert!(near(solved.flow, 6.0) && solved.gap() <= MAX_GAP, "{solved:?}");
        // One unit more from 2 to 3 would be one unit more of flow.
        assert!(near(solved.prices[2], 1.0), "{solved:?}");
        assert_eq!(solve(&network, model, &[(3, 0)]).unwrap().flow, 0.0);
        assert_eq!(solve(&network, model, &[]).unwrap().flow, 0.0);
    }
}

#[test]
fn capacities_may_differ_by_a_factor_of_a_million() {
    let arcs = [(0, 1, 1e11, 1), (1, 3, 1e5, 1), (0, 2, 1e5, 1), (2, 3, 1e11, 1), (0, 3, 2e11, 9)];
    assert_flow(&network(4, &arcs), FlowModel::Multipath, &[(0, 3)], 2e5);
    assert_flow(&network(4, &arcs), FlowModel::AnyPath, &[(0, 3)], 2e11 + 2e5);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_arc() {
    for capacity in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-10] {
        let error = try_network(2, &[(0, 1, 1.0, 1), (1, 0, capacity, 1)]).unwrap_err();
        assert!(matches!(error, FlowError::Capacity { arc: 1, .. }), "{capacity}: {error}");
    }
    let error = try_network(2, &[(0, 1, -5.0, 1)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "arc 0 has a capacity of -5; it must be above zero, finite, and no less than 1e-9 of the largest"
    );
    assert_eq!(try_network(2, &[(0, 1, 1.0, 0)]).unwrap_err(), FlowError::Weight { arc: 0 });
    assert_eq!(try_network(2, &[(1, 1, 1.0, 1)]).unwrap_err(), FlowError::Loop { arc: 0, node: NodeId(1) });
    let unknown = FlowError::UnknownNode { node: NodeId(2), nodes: 2 };
    assert_eq!(try_network(2, &[(0, 2, 1.0, 1)]).unwrap_err(), unknown);
    assert!(matches!(try_network(1 << 20, &[]).unwrap_err(), FlowError::TooLarge { what: "nodes", .. }));
    let network = network(2, &[(0, 1, 1.0, 1)]);
    assert_eq!(solve(&network, FlowModel::AnyPath, &[(0, 2)]).unwrap_err(), unknown);
    assert_eq!(solve(&network, FlowModel::AnyPath, &[(1, 1)]).unwrap_err(), FlowError::Pair { node: NodeId(1) });
}

/// Two routers and a link that carries these bit/s there and back.
fn one_link(rates: [u64; 2]) -> Topology {
    let mut topology = Topology::new();
    for name in ["a", "b"] {
        let node = Node { name: name.into(), kind: NodeKind::Router, prefix: None, locator: None };
        topology.add_node(node).expect("names are unique");
    }
    let [ab, ba] = rates.map(|rate| Channel {
        rate: Rate::from_bits_per_sec(rate),
        delay: Span::from_millis(1),
        queue: Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None },
        loss: Ratio::ZERO,
        burst_loss: None,
        weight: 1,
    });
    let link = Link { name: "a-b".into(), a: NodeId(0), b: NodeId(1), ab, ba, mtu: 1500 };
    topology.add_link(link).expect("the link is sound");
    topology
}

#[test]
fn a_topology_has_an_arc_for_each_direction_and_no_unlimited_link() {
    let network = FlowNetwork::of(&one_link([3, 5])).unwrap();
    assert_flow(&network, FlowModel::Ecmp, &[(0, 1), (1, 0)], 8.0);
    assert_eq!(network.arcs()[ArcId(1).index()].capacity, 5.0);
    let unlimited = FlowNetwork::of(&one_link([3, 0])).unwrap_err();
    assert!(matches!(unlimited, FlowError::Capacity { arc: 1, .. }));
}

/// Two ways from a to c: over b, and direct.
fn ways(over_b: u64, direct: u64) -> Graph {
    let node = |name: &str| GraphNode { name: name.into(), position: None };
    let edge = |from, to, rate| GraphEdge {
        from,
        to,
        directed: true,
        weight: None,
        rate: Some(Rate::from_bits_per_sec(rate)),
        delay: None,
    };
    let edges = vec![edge(0, 1, over_b), edge(1, 2, 5), edge(0, 2, direct)];
    Graph { name: "ways".into(), nodes: ["a", "b", "c"].map(node).into(), edges, ..Graph::default() }
}

#[test]
fn a_link_without_a_limit_limits_no_flow_and_one_direction_is_one_arc() {
    let network = |graph: &Graph| {
        let net = Net::new(graph, NetOptions::default()).unwrap();
        FlowNetwork::of_net(graph, &net, Rate::from_mbits(1)).unwrap()
    };
    let limited = network(&ways(0, 3));
    assert_eq!(limited.arcs().len(), 3);
    // The other link of the path has a limit. With the median of the others, 4, it would be 7.
    assert_flow(&limited, FlowModel::AnyPath, &[(0, 2)], 8.0);
    assert!(!limited.is_unlimited(8.0));
    assert_flow(&limited, FlowModel::AnyPath, &[(2, 0)], 0.0);
    let unlimited = network(&ways(4, 0));
    assert!(unlimited.is_unlimited(flow(&unlimited, FlowModel::AnyPath, &[(0, 2)])));
}

/// What a path puts on each arc.
type Shares = Vec<f64>;

/// Every path that a model allows, found without any of the code under test.
struct Obvious<'a> {
    network: &'a FlowNetwork,
    distance: Vec<Vec<u64>>,
}

const FAR: u64 = u64::MAX / 4;

impl<'a> Obvious<'a> {
    fn new(network: &'a FlowNetwork) -> Self {
        let nodes = network.node_count();
        let mut distance = vec![vec![FAR; nodes]; nodes];
        (0..nodes).for_each(|node| distance[node][node] = 0);
        for _ in 0..nodes {
            for arc in network.arcs() {
                for row in &mut distance {
                    row[arc.to.index()] = row[arc.to.index()].min(row[arc.from.index()] + arc.weight);
                }
            }
        }
        Obvious { network, distance }
    }

    fn paths(&self, model: FlowModel, from: usize, to: usize) -> Vec<Shares> {
        let nodes = self.network.node_count();
        match model {
            FlowModel::SinglePath => self.shortest(from, to).into_iter().take(1).collect(),
            FlowModel::Ecmp => self.split(from, to).into_iter().collect(),
            FlowModel::Multipath => self.shortest(from, to),
            FlowModel::Segments { limit, adjacency } => {
                let split = |a, b| self.split(a, b).into_iter().collect();
                self.lists(from, to, limit.unwrap_or(nodes - 1), &|a, b| self.segment(a, b, adjacency, &split))
            }
            FlowModel::SegmentPaths { limit, adjacency } => {
                let shortest = |a, b| self.shortest(a, b);
                self.lists(from, to, limit.unwrap_or(nodes - 1), &|a, b| self.segment(a, b, adjacency, &shortest))
            }
            FlowModel::AnyPath => self.simple(from, to, &mut vec![from]),
        }
    }

    /// Arcs with which a shortest path may begin.
    fn next(&self, from: usize, to: usize) -> Vec<usize> {
        let arcs = self.network.arcs().iter().enumerate();
        let shortest = |(_, arc): &(usize, &FlowArc)| {
            arc.from.index() == from
                && self.distance[from][to] < FAR
                && arc.weight + self.distance[arc.to.index()][to] == self.distance[from][to]
        };
        arcs.filter(shortest).map(|(index, _)| index).collect()
    }

    fn begun(&self, arc: usize, share: f64, mut rest: Shares) -> Shares {
        rest.iter_mut().for_each(|rest| *rest *= share);
        rest[arc] += share;
        rest
    }

    fn none(&self) -> Shares {
        vec![0.0; self.network.arcs().len()]
    }

    fn shortest(&self, from: usize, to: usize) -> Vec<Shares> {
        if from == to {
            return vec![self.none()];
        }
        let over = |arc: usize| {
            let rest = self.shortest(self.network.arcs()[arc].to.index(), to);
            rest.into_iter().map(move |rest| self.begun(arc, 1.0, rest))
        };
        self.next(from, to).into_iter().flat_map(over).collect()
    }

    fn split(&self, from: usize, to: usize) -> Option<Shares> {
        if from == to {
            return Some(self.none());
        }
        let next = self.next(from, to);
        let mut sum = self.none();
        for arc in &next {
            let rest = self.split(self.network.arcs()[*arc].to.index(), to)?;
            let part = self.begun(*arc, 1.0, rest);
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part / next.len() as f64);
        }
        (!next.is_empty()).then_some(sum)
    }

    /// A node segment, or one to a router that has an arc to `to`, and this arc.
    fn segment(
        &self,
        from: usize,
        to: usize,
        adjacency: bool,
        node_segment: &impl Fn(usize, usize) -> Vec<Shares>,
    ) -> Vec<Shares> {
        let mut all = node_segment(from, to);
        let arcs = self.network.arcs().iter().enumerate();
        for (index, arc) in arcs.filter(|(_, arc)| adjacency && arc.to.index() == to) {
            let before = node_segment(from, arc.from.index());
            all.extend(before.into_iter().map(|before| self.begun(index, 1.0, before)));
        }
        all
    }

    /// Lists of exactly or fewer than `segments` segments.
    fn lists(
        &self,
        from: usize,
        to: usize,
        limit: usize,
        segment: &impl Fn(usize, usize) -> Vec<Shares>,
    ) -> Vec<Shares> {
        if limit == 0 {
            return if from == to { vec![self.none()] } else { Vec::new() };
        }
        let mut all = Vec::new();
        for via in 0..self.network.node_count() {
            for first in segment(from, via) {
                for rest in self.lists(via, to, limit - 1, segment) {
                    all.push(first.iter().zip(rest).map(|(first, rest)| first + rest).collect());
                }
            }
        }
        all
    }

    fn simple(&self, from: usize, to: usize, visited: &mut Vec<usize>) -> Vec<Shares> {
        if from == to {
            return vec![self.none()];
        }
        let mut all = Vec::new();
        for (index, arc) in self.network.arcs().iter().enumerate() {
            let head = arc.to.index();
            if arc.from.index() == from && !visited.contains(&head) {
                visited.push(head);
                let rest = self.simple(head, to, visited);
                all.extend(rest.into_iter().map(|rest| self.begun(index, 1.0, rest)));
                visited.pop();
            }
        }
        all
    }

    /// The flow that the other solver finds.
    fn flow(&self, model: FlowModel, pairs: &[(u32, u32)]) -> f64 {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let mut pairs = pairs.to_vec();
        pairs.sort_unstable();
        pairs.dedup();
        let mut columns: Vec<Shares> = Vec::new();
        for (from, to) in pairs {
            columns.extend(self.paths(model, from as usize, to as usize));
        }
        columns.sort_by(|a, b| a.partial_cmp(b).expect("shares are numbers"));
        columns.dedup();
        let rates: Vec<_> = columns.iter().map(|_| problem.add_var(1.0, (0.0, f64::INFINITY))).collect();
        for (index, arc) in self.network.arcs().iter().enumerate() {
            let load: Vec<_> = columns.iter().zip(&rates).map(|(column, rate)| (*rate, column[index])).collect();
            problem.add_constraint(&load, ComparisonOp::Le, arc.capacity);
        }
        let solved = problem.solve().expect("the other solver ends");
        solved.into_solution().expect("the other solver has a solution").objective()
    }
}

/// Networks of up to 5 nodes and 9 arcs, with pairs of which some may have no path.
fn arb_case() -> impl Strategy<Value = (FlowNetwork, Vec<(u32, u32)>)> {
    (2u32..=5).prop_flat_map(|nodes| {
        let ends = || (0..nodes, 1..nodes).prop_map(move |(a, step)| (a, (a + step) % nodes));
        let arc = (ends(), 1u32..=24, prop_oneof![3 => Just(1u64), 1 => Just(2), 1 => Just(3)]);
        let arc = arc.prop_map(|((from, to), eighths, weight)| (from, to, f64::from(eighths) / 8.0, weight));
        let arcs = prop::collection::vec(arc, 1..=9);
        (arcs, prop::collection::vec(ends(), 1..=4))
            .prop_map(move |(arcs, pairs)| (network(nodes as usize, &arcs), pairs))
    })
}

/// Whether the paths in use are paths of their pairs, fit the capacities, and add up to the flow.
fn is_a_flow(network: &FlowNetwork, solved: &MaxFlow) -> bool {
    let mut loads = vec![0.0; network.arcs().len()];
    let mut sum = 0.0;
    for path in &solved.paths {
        let mut surplus = vec![0.0; network.node_count()];
        surplus[path.pair.0.index()] = -1.0;
        surplus[path.pair.1.index()] = 1.0;
        for (arc, share) in &path.shares {
            loads[*arc] += path.rate * share;
            surplus[network.arcs()[*arc].from.index()] += share;
            surplus[network.arcs()[*arc].to.index()] -= share;
        }
        if surplus.iter().any(|surplus: &f64| surplus.abs() > 1e-9) {
            return false;
        }
        sum += path.rate;
    }
    let fits = network.arcs().iter().zip(loads).all(|(arc, load)| load <= arc.capacity * (1.0 + 1e-12));
    fits && (sum - solved.flow).abs() <= 1e-9 * sum.max(1.0)
}

proptest! {
    #[test]
    fn the_flow_is_that_of_another_solver_with_all_paths((network, pairs) in arb_case(), limit in 1usize..4) {
        let obvious = Obvious::new(&network);
        let limited = [segments(Some(limit)), segment_paths(Some(limit))];
        let adjacency = limited.into_iter().map(forced);
        for model in NO_LIMIT.into_iter().chain(limited).chain(adjacency) {
            let solved = solve(&network, model, &pairs).unwrap();
            let expected = obvious.flow(model, &pairs);
            prop_assert!(near(solved.flow, expected), "{:?}: {} instead of {}", model, solved.flow, expected);
            prop_assert!(is_a_flow(&network, &solved), "{:?}: {:?}", model, solved);
            prop_assert!(solved.flow <= solved.bound * (1.0 + 1e-12) && solved.gap() <= MAX_GAP);
        }
    }

    #[test]
    fn more_paths_never_carry_less((network, pairs) in arb_case(), limit in 1usize..4) {
        let flow = |model| flow(&network, model, &pairs);
        let forced_segments = |limit| flow(forced(segments(limit)));
        let forced_paths = |limit| flow(forced(segment_paths(limit)));
        let segments = |limit| flow(segments(limit));
        let paths = |limit| flow(segment_paths(limit));
        let (multipath, any) = (flow(FlowModel::Multipath), flow(FlowModel::AnyPath));
        let limit = Some(limit);
        let more = limit.map(|limit| limit + 1);
        let ordered = [
            (flow(FlowModel::SinglePath), multipath),
            (flow(FlowModel::Ecmp), multipath),
            (flow(FlowModel::Ecmp), segments(Some(1))),
            (segments(Some(1)), flow(FlowModel::Ecmp)),
            (segments(limit), segments(more)),
            (segments(more), segments(None)),
            (multipath, paths(Some(1))),
            (paths(Some(1)), multipath),
            (paths(limit), paths(more)),
            (segments(limit), paths(limit)),
            (segments(None), paths(None)),
            (paths(more), paths(None)),
            (paths(None), any),
            (segments(limit), forced_segments(limit)),
            (forced_segments(limit), forced_segments(more)),
            (forced_segments(limit), forced_paths(limit)),
            (paths(limit), forced_paths(limit)),
            (forced_paths(more), any),
            // Each link can be forced.
            (any, forced_segments(None)),
            (any, forced_paths(Some(network.node_count()))),
        ];
        for (index, (less, more)) in ordered.into_iter().enumerate() {
            prop_assert!(less <= more * (1.0 + 2.0 * MAX_GAP), "{}: {} > {}", index, less, more);
        }
    }

    #[test]
    fn going_on_from_another_model_finds_what_a_fresh_start_finds((network, pairs) in arb_case(), limit in 0usize..4) {
        let limits = [Some(limit), Some(limit + 1), None];
        let node_segments = limits.into_iter().flat_map(|limit| [segments(limit), segment_paths(limit)]);
        let node_segments: Vec<FlowModel> = node_segments.collect();
        let mut models = [FlowModel::SinglePath, FlowModel::Ecmp, FlowModel::Multipath].to_vec();
        models.extend(node_segments.iter().copied().chain(node_segments.iter().map(|model| forced(*model))));
        models.push(FlowModel::AnyPath);
        // In the other order none can go on.
        let backwards: Vec<FlowModel> = models.iter().rev().copied().collect();
        let nodes: Vec<_> = pairs.iter().map(|(from, to)| (NodeId(*from), NodeId(*to))).collect();
        for models in [models, backwards] {
            let mut programs: Vec<_> = models.iter().map(|model| FlowProgram::new(&network, *model)).collect();
            let solved = FlowProgram::solve_each(&mut programs, &nodes).unwrap();
            prop_assert_eq!(solved.len(), models.len());
            for (model, solved) in models.iter().zip(solved) {
                let alone = flow(&network, *model, &pairs);
                prop_assert!(near(solved.flow, alone), "{:?}: {} instead of {}", model, solved.flow, alone);
                prop_assert!(is_a_flow(&network, &solved), "{:?}: {:?}", model, solved);
                prop_assert!(solved.flow <= solved.bound * (1.0 + 1e-12) && solved.gap() <= MAX_GAP);
            }
        }
    }

    #[test]
    fn a_program_that_was_used_before_finds_the_same((network, pairs) in arb_case(), (_, other) in arb_case()) {
        let known = |pairs: &[(u32, u32)]| {
            let fits = |node: u32| (node as usize) < network.node_count();
            let pairs = pairs.iter().filter(|(from, to)| fits(*from) && fits(*to));
            pairs.map(|(from, to)| (NodeId(*from), NodeId(*to))).collect::<Vec<_>>()
        };
        for model in NO_LIMIT {
            let mut program = FlowProgram::new(&network, model);
            program.solve(&known(&other)).unwrap();
            prop_assert_eq!(program.solve(&known(&pairs)), solve(&network, model, &pairs));
        }
    }
}
