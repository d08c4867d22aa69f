//! The compact graph that the analysis works on.

use sidestep_net::{Graph, GraphEdge, GraphLink};
use thiserror::Error;

/// Undirected links between nodes, in arrays with indices of 32 bits.
///
/// Link `l` is the arcs `2 l` and `2 l + 1`, one in each direction. Links are sorted by their ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Net {
    /// By node: its index in the graph that was read.
    origin: Vec<u32>,
    /// By node: where its hops begin; one more than there are nodes.
    start: Vec<u32>,
    hops: Vec<Hop>,
    /// By link.
    ends: Vec<[u32; 2]>,
    /// By arc.
    weights: Vec<u32>,
    /// By arc: the index of its edge in the graph that was read.
    edges: Vec<u32>,
}

/// An arc as its tail sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hop {
    pub(super) head: u32,
    pub(super) arc: u32,
}

/// How a graph becomes a [`Net`]. The defaults are those of the path-diversity figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetOptions {
    /// Parallel links become one, of the least weight in each direction, instead of counting each.
    pub merge_parallel: bool,
    /// Links from a node to itself stay, each counting twice towards the degree, instead of being dropped.
    pub keep_loops: bool,
    /// Every link weighs 1, instead of the weight in the file.
    pub hops: bool,
}

/// Why a graph cannot be analysed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum NetError {
    /// Sums of weights would overflow.
    #[error("{name}: weights up to {weight} over {nodes} nodes are too large to add up; count hops instead")]
    Weights {
        /// The graph.
        name: String,
        /// Its largest weight.
        weight: f64,
        /// How many nodes it has.
        nodes: usize,
    },
    /// All shortest paths would not fit into memory.
    #[error("{nodes} nodes are more than the {limit} for which all shortest paths are kept; prune it, or take a part")]
    TooLarge {
        /// How many nodes it has.
        nodes: usize,
        /// How many it may have.
        limit: usize,
    },
}

/// A link while a net is made.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Lower first.
    ends: [u32; 2],
    /// There and back.
    weights: [u32; 2],
    /// Of the graph, there and back.
    edges: [u32; 2],
}

impl Net {
    /// The net of a graph.
    ///
    /// Its links are those of [`Graph::links`]. An edge without a weight weighs 1. Fractions of weights are kept to a
    /// thousandth. Fails where the weights of a path could add up to 2³² or more.
    pub fn new(graph: &Graph, options: NetOptions) -> Result<Net, NetError> {
        let scale = scale(graph, options)?;
        let weight = |edge: &GraphEdge| match edge.weight {
            Some(weight) if !options.hops => (weight * scale).round() as u32,
            _ if options.hops => 1,
            _ => scale as u32,
        };
        let link = |link: GraphLink| Link {
            ends: link.ends.map(|end| end as u32),
            weights: link.edges.map(|edge| weight(&graph.edges[edge])),
            edges: link.edges.map(|edge| edge as u32),
        };
        let kept = graph.links().into_iter().filter(|link| options.keep_loops || link.ends[0] != link.ends[1]);
        let mut links: Vec<Link> = kept.map(link).collect();
        if options.merge_parallel {
            links.dedup_by(|next, first| {
                let same = next.ends == first.ends;
                if same {
                    let [there, back] = next.weights;
                    first.weights = [first.weights[0].min(there), first.weights[1].min(back)];
                }
                same
            });
        }
        Ok(Net::of((0..graph.nodes.len() as u32).collect(), &links))
    }

    /// Nodes by their indices in the graph, and links sorted by their ends.
    fn of(origin: Vec<u32>, links: &[Link]) -> Net {
        let mut start = vec![0; origin.len() + 1];
        for node in links.iter().flat_map(|link| link.ends) {
            start[node as usize + 1] += 1;
        }
        for index in 1..start.len() {
            start[index] += start[index - 1];
        }
        let mut free = start.clone();
        let mut hops = vec![Hop { head: 0, arc: 0 }; 2 * links.len()];
        for (link, Link { ends: [a, b], .. }) in links.iter().copied().enumerate() {
            for (tail, head, arc) in [(a, b, 2 * link), (b, a, 2 * link + 1)] {
                hops[free[tail as usize] as usize] = Hop { head, arc: arc as u32 };
                free[tail as usize] += 1;
            }
        }
        Net {
            origin,
            start,
            hops,
            ends: links.iter().map(|link| link.ends).collect(),
            weights: links.iter().flat_map(|link| link.weights).collect(),
            edges: links.iter().flat_map(|link| link.edges).collect(),
        }
    }

    /// What remains when nodes of degree below 2 are removed until there are none; may be empty.
    pub fn pruned(&self) -> Net {
        let mut degree: Vec<usize> = (0..self.node_count() as u32).map(|node| self.degree(node)).collect();
        let mut doomed: Vec<u32> = (0..self.node_count() as u32).filter(|node| degree[*node as usize] < 2).collect();
        while let Some(node) = doomed.pop() {
            for hop in self.hops(node) {
                let left = &mut degree[hop.head as usize];
                if *left >= 2 {
                    *left -= 1;
                    if *left < 2 {
                        doomed.push(hop.head);
                    }
                }
            }
        }
        let kept = (0..self.node_count()).filter(|node| degree[*node] >= 2);
        let mut index = vec![u32::MAX; self.node_count()];
        let mut origin = Vec::new();
        for node in kept {
            index[node] = origin.len() as u32;
            origin.push(self.origin[node]);
        }
        let kept = (0..self.link_count()).filter_map(|link| {
            let ends = self.ends[link].map(|end| index[end as usize]);
            let of_both = |values: &[u32]| [values[2 * link], values[2 * link + 1]];
            let link = Link { ends, weights: of_both(&self.weights), edges: of_both(&self.edges) };
            (!ends.contains(&u32::MAX)).then_some(link)
        });
        Net::of(origin, &kept.collect::<Vec<_>>())
    }

    /// The access routers: nodes of degree 2.
    pub fn access(&self) -> Vec<u32> {
        (0..self.node_count() as u32).filter(|node| self.degree(*node) == 2).collect()
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.origin.len()
    }

    /// Number of links.
    pub fn link_count(&self) -> usize {
        self.ends.len()
    }

    /// The two ends of each link, by link; a loop has the same end twice.
    pub fn links(&self) -> &[[u32; 2]] {
        &self.ends
    }

    /// The weights of each link, by link: from its first end and from its second.
    pub fn link_weights(&self) -> impl Iterator<Item = [u32; 2]> + '_ {
        self.weights.chunks_exact(2).map(|weights| [weights[0], weights[1]])
    }

    /// How many ends of links a node has.
    pub fn degree(&self, node: u32) -> usize {
        self.hops(node).len()
    }

    /// The index that a node has in the graph that was read.
    pub fn origin(&self, node: u32) -> usize {
        self.origin[node as usize] as usize
    }

    /// The index that an arc's edge has in the graph that was read: of merged links the first one's.
    ///
    /// Both arcs of a link have the same edge if it is undirected, or if no edge goes in the other direction.
    pub fn edge(&self, arc: u32) -> usize {
        self.edges[arc as usize] as usize
    }

    /// Whether every link weighs the same in both directions.
    pub fn is_symmetric(&self) -> bool {
        self.weights.chunks_exact(2).all(|weights| weights[0] == weights[1])
    }

    /// Number of arcs, two for each link.
    pub fn arc_count(&self) -> usize {
        self.weights.len()
    }

    /// The arcs that leave a node; turned round, they are those that enter it.
    pub(super) fn hops(&self, node: u32) -> &[Hop] {
        &self.hops[self.start[node as usize] as usize..self.start[node as usize + 1] as usize]
    }

    /// Where an arc begins.
    pub fn tail(&self, arc: u32) -> u32 {
        self.ends[arc as usize / 2][arc as usize % 2]
    }

    /// IGP weight of an arc.
    pub fn weight(&self, arc: u32) -> u32 {
        self.weights[arc as usize]
    }
}

/// By what weights are multiplied to be whole.
fn scale(graph: &Graph, options: NetOptions) -> Result<f64, NetError> {
    let weights = || graph.edges.iter().filter_map(|edge| edge.weight).filter(|_| !options.hops);
    let scale = if weights().all(|weight| weight.fract() == 0.0) { 1.0 } else { 1000.0 };
    let most = weights().fold(1.0, f64::max);
    let nodes = graph.nodes.len();
    if most * scale * nodes as f64 >= 4_294_967_296.0 {
        return Err(NetError::Weights { name: graph.name.clone(), weight: most, nodes });
    }
    Ok(scale)
}
