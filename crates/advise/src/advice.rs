//! The advice on a network: what could be gained in it, and what that takes.

use serde::Serialize;
use sidestep_maxflow::{FlowModel, Sampling, Watch};
use sidestep_net::{Graph, NodeId, Rate, Ratio};
use sidestep_paths::analysis::{Counts, Net, Reliance, Remove, SegmentOptions, Survey, parts, reliance};

use crate::{AdviseError, Capacities, Flow, Question, gain};

/// Segment limits from 1 to this are examined; the largest stands for any number.
const MAX_SEGMENTS: usize = 10;
/// A limit is enough if it gives this share of what [`MAX_SEGMENTS`] give beyond one segment.
const ENOUGH: f64 = 0.95;

/// The options of an advice.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to advise a limit for node segments alone.
    pub no_adjacency: bool,
    /// Share of the pairs that are heavy.
    pub share: Ratio,
    /// How heavy pairs are drawn.
    pub sampling: Sampling,
    /// How often they are drawn at least.
    pub draws: u32,
    /// How often they are drawn at most, to make the interval of the gain narrow.
    pub max_draws: u32,
    /// The seed of the draws.
    pub seed: u32,
    /// Rate of links without one; by default the median of the others.
    pub default_rate: Option<Rate>,
    /// Puts the source of the rates into words.
    pub say_capacities: fn(&Capacities) -> String,
}

/// The advice to an operator.
#[derive(Debug, Serialize)]
pub struct Advice {
    /// Version of the JSON.
    pub schema: u32,
    /// Name of the network.
    pub topology: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many links it has.
    pub links: usize,
    /// How many routers are left without tails. The advice covers these.
    pub routers: usize,
    /// How many links are left without tails.
    pub router_links: usize,
    /// How many connected components there are.
    pub parts: usize,
    /// Which routers the pairs connect.
    pub between: Between,
    /// How many routers these are.
    pub asked: usize,
    /// How many pairs there are.
    pub pairs: u64,
    /// Pairs by the number of link-disjoint paths that exist.
    pub most: Paths,
    /// By limit from 1 segment on, the paths that lists of node segments force.
    pub node_segments: Vec<Paths>,
    /// By limit from 1 segment on, the paths that lists with adjacency segments force.
    pub with_adjacency: Vec<Paths>,
    /// The smallest limits that are enough.
    pub limit: Limits,
    /// When a limit is enough.
    pub rule: String,
    /// Whether the limit advised is that of node segments alone.
    pub no_adjacency: bool,
    /// What segment routing adds to the maximum flow.
    pub flow: Option<Flow>,
    /// Why there is no flow.
    pub no_flow: Option<String>,
    /// How many links take all diversity from a pair, or its last path.
    pub links_relied_on: usize,
    /// All links, ordered by how many pairs rely on them, most first.
    pub reliance: Vec<Relied>,
    /// Whether the computation was stopped early.
    pub interrupted: bool,
}

/// The routers between which pairs are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Between {
    /// The access routers: those of degree 2 after pruning.
    Access,
    /// All routers that pruning leaves, because there are no two access routers.
    Pruned,
    /// All routers, because pruning leaves fewer than two.
    All,
}

/// Pairs by number of paths.
#[derive(Clone, Debug, Serialize)]
pub struct Paths {
    /// Mean over the pairs.
    pub mean: f64,
    /// How many pairs have 0, 1, 2, … paths.
    pub pairs: Vec<u64>,
}

/// The smallest limits that are enough.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// The limit that is enough with node segments alone.
    pub node_segments: usize,
    /// The limit that is enough with adjacency segments too.
    pub with_adjacency: usize,
    /// The limit that the hardware should support.
    pub advised: usize,
}

/// A link, and the pairs that rely on it.
#[derive(Clone, Debug, Serialize)]
pub struct Relied {
    /// Names of its ends.
    pub ends: [String; 2],
    /// Pairs that have one path left when it fails, and had more.
    pub exposed: u64,
    /// The exposed pairs of which neither router is an end of the link.
    pub in_transit: u64,
    /// Pairs that have no path left when it fails.
    pub cut: u64,
    /// Its index among the net's links.
    #[serde(skip)]
    pub link: usize,
}

/// The network on which to advise.
#[derive(Debug)]
pub struct Subject {
    /// The network as its file has it.
    pub graph: Graph,
    /// The whole network as a net.
    pub whole: Net,
    /// The part of the network that the advice covers.
    pub net: Net,
    /// Which routers its pairs connect.
    pub between: Between,
    /// These routers, as nodes of `net`.
    pub nodes: Vec<u32>,
}

impl Subject {
    /// Selects the access routers of the network without its tails. If there are not two, selects all routers that are
    /// left, or else all routers of the whole network.
    pub fn new(graph: Graph, whole: Net) -> Result<Self, AdviseError> {
        let pruned = whole.pruned();
        let access = pruned.access();
        let all = |net: &Net| (0..net.node_count() as u32).collect::<Vec<u32>>();
        let (net, between, nodes) = if access.len() >= 2 {
            (pruned, Between::Access, access)
        } else if pruned.node_count() >= 2 {
            let nodes = all(&pruned);
            (pruned, Between::Pruned, nodes)
        } else {
            (whole.clone(), Between::All, all(&whole))
        };
        if nodes.len() < 2 {
            return Err(AdviseError::TooSmall(graph.name));
        }
        Ok(Subject { graph, whole, net, between, nodes })
    }

    /// Name of a node of the net.
    pub fn name(&self, node: u32) -> &str {
        self.graph.nodes.get(self.net.origin(node)).map_or("", |node| node.name.as_str())
    }
}

/// Computes the advice on a network.
pub fn advise(subject: &Subject, options: &Options, watch: &dyn Watch) -> Result<Advice, AdviseError> {
    let Subject { graph, whole, net, nodes, .. } = subject;
    watch.on_start("disjoint paths", 3 * nodes.len());
    let go_on = || {
        watch.step();
        !watch.stopped()
    };
    let survey = Survey::new(net)?.watched(&go_on);
    let most = Paths::of(&survey.most(nodes));
    // Routers forward with ECMP, so a segment forces a path only where no other path is as short.
    let by_limit = |adjacency| {
        let options = SegmentOptions { remove: Remove::Forward, unique: true, adjacency };
        survey.segmented(nodes, MAX_SEGMENTS, options).iter().map(Paths::of).collect::<Vec<_>>()
    };
    let (node_segments, with_adjacency) = (by_limit(false), by_limit(true));
    watch.on_finish();
    let (with_nodes, with_both) = (enough(&node_segments), enough(&with_adjacency));
    let advised = if options.no_adjacency { with_nodes } else { with_both };
    let limit = Limits { node_segments: with_nodes, with_adjacency: with_both, advised };
    watch.on_start("links", net.link_count());
    let reliance = relied(subject, reliance(net, nodes, go_on));
    watch.on_finish();
    let flow = flow(subject, options, advised, watch);
    let (flow, no_flow) = match flow {
        Ok(flow) => (Some(flow), None),
        Err(failure) => (None, Some(failure.to_string())),
    };
    Ok(Advice {
        schema: 1,
        topology: graph.name.clone(),
        nodes: whole.node_count(),
        links: whole.link_count(),
        routers: net.node_count(),
        router_links: net.link_count(),
        parts: parts(net),
        between: subject.between,
        asked: nodes.len(),
        pairs: most.pairs.iter().sum(),
        most,
        node_segments,
        with_adjacency,
        limit,
        rule: format!(
            "the fewest segments that give {:.0} % of the disjoint paths that {MAX_SEGMENTS} segments add to those of one",
            ENOUGH * 100.0
        ),
        no_adjacency: options.no_adjacency,
        flow,
        no_flow,
        links_relied_on: reliance.iter().filter(|link| link.exposed + link.cut > 0).count(),
        reliance,
        interrupted: watch.stopped(),
    })
}

impl Paths {
    fn of(counts: &Counts) -> Paths {
        Paths { mean: counts.mean().unwrap_or(0.0), pairs: counts.pairs.clone() }
    }
}

/// The smallest segment limit that is enough.
fn enough(by_limit: &[Paths]) -> usize {
    let (Some(first), Some(last)) = (by_limit.first(), by_limit.last()) else { return 1 };
    let wanted = first.mean + ENOUGH * (last.mean - first.mean);
    by_limit.iter().position(|paths| paths.mean >= wanted).unwrap_or_default() + 1
}

/// The links by how many pairs rely on them.
fn relied(subject: &Subject, found: Vec<Reliance>) -> Vec<Relied> {
    let relied = |(link, found): (usize, Reliance)| {
        let ends = subject.net.links()[link].map(|end| subject.name(end).to_owned());
        Relied { ends, exposed: found.exposed, in_transit: found.in_transit, cut: found.cut, link }
    };
    let mut all: Vec<Relied> = found.into_iter().enumerate().map(relied).collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.cut, one.exposed, one.in_transit)));
    all
}

fn flow(subject: &Subject, options: &Options, limit: usize, watch: &dyn Watch) -> Result<Flow, AdviseError> {
    let Subject { graph, net, nodes, .. } = subject;
    let capacities = Capacities::new(graph, net, options.default_rate)?;
    let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
    let adjacency = !options.no_adjacency;
    let segments = [Some(limit), None].map(|limit| FlowModel::Segments { limit, adjacency });
    let question = Question {
        network: &capacities.network,
        nodes: &nodes,
        sampling: options.sampling,
        shares: &[options.share],
        draws: options.draws,
        seed: options.seed,
        models: &[FlowModel::Ecmp, segments[0], segments[1]],
    };
    gain::flow(&question, options, &capacities, watch).map_err(|error| AdviseError::flow(graph, error))
}

#[cfg(test)]
mod tests {
    use sidestep_maxflow::{Pairs, Rounding, Unwatched};
    use sidestep_net::{GraphEdge, GraphNode};
    use sidestep_paths::analysis::NetOptions;

    use super::*;

    #[test]
    fn the_limit_advised_is_the_smallest_that_gives_nearly_all_there_is_to_give() {
        let limits =
            |means: &[f64]| means.iter().map(|mean| Paths { mean: *mean, pairs: Vec::new() }).collect::<Vec<_>>();
        assert_eq!(enough(&limits(&[1.0, 1.5, 1.94, 1.96, 2.0])), 4);
        assert_eq!(enough(&limits(&[1.0, 1.0, 1.0])), 1);
        assert_eq!(enough(&limits(&[])), 1);
    }

    fn network(nodes: usize, ends: &[(usize, usize)]) -> Result<Subject, AdviseError> {
        let node = |index| GraphNode { name: format!("n{index}"), position: None };
        let edge = |(from, to): &(usize, usize)| GraphEdge {
            from: *from,
            to: *to,
            directed: false,
            weight: Some(1.0),
            rate: Some(Rate::from_mbits(10)),
            delay: None,
        };
        let graph = Graph {
            name: "a".into(),
            nodes: (0..nodes).map(node).collect(),
            edges: ends.iter().map(edge).collect(),
            ..Graph::default()
        };
        let net = Net::new(&graph, NetOptions::default())?;
        Subject::new(graph, net)
    }

    fn options() -> Options {
        Options {
            no_adjacency: false,
            share: Ratio::from_ppb(100_000_000),
            sampling: Sampling { pairs: Pairs::Ordered, rounding: Rounding::Ceil },
            draws: 3,
            max_draws: 1_000,
            seed: 1,
            default_rate: None,
            say_capacities: |capacities| format!("{} unknown", capacities.unknown),
        }
    }

    #[test]
    fn a_ring_doubles_what_a_pair_carries_and_all_of_its_links_are_relied_on() {
        let ring = network(5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]).unwrap();
        let advice = advise(&ring, &options(), &Unwatched).unwrap();
        assert_eq!((advice.nodes, advice.routers, advice.pairs, advice.between), (5, 5, 10, Between::Access));
        assert_eq!(advice.most.pairs, [0, 0, 10]);
        assert_eq!(advice.links_relied_on, 5);
        let flow = advice.flow.as_ref().unwrap();
        assert_eq!((flow.heavy_pairs, flow.capacities.as_str()), (2, "0 unknown"));
        assert!(flow.gain.unwrap().mean.mean > 0.0, "{flow:?}");
        assert!(advice.headline().contains("100 % of the pairs have a second path"), "{}", advice.headline());
    }

    #[test]
    fn a_tree_has_nowhere_to_move_traffic_to_and_a_single_router_no_pairs() {
        let tree = network(4, &[(0, 1), (0, 2), (0, 3)]).unwrap();
        let advice = advise(&tree, &options(), &Unwatched).unwrap();
        assert_eq!(advice.between, Between::All);
        assert!(advice.headline().contains("nowhere to move traffic to"));
        assert_eq!(network(1, &[]).unwrap_err(), AdviseError::TooSmall("a".into()));
    }
}
