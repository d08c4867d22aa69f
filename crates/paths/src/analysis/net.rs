//! The compact graph that the analysis works on.

use sidestep_net::{Graph, GraphLink, WeightError};
use thiserror::Error;

/// Links between nodes, in arrays with indices of 32 bits.
///
/// Link `l` is the arcs `2 l` and `2 l + 1`, one in each direction. Of a link of one direction the other arc is missing: it
/// has its number, but no path takes it. Links are sorted by their ends.
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
    weights: Vec<u64>,
    /// By arc: the index of its edge in the graph that was read.
    edges: Vec<u32>,
    /// The missing arcs, ascending.
    missing: Vec<u32>,
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
    /// Weights that cannot be made whole.
    #[error("{name}: {error}")]
    Weights {
        /// The graph.
        name: String,
        /// Why.
        error: WeightError,
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
    arcs: [Option<Arc>; 2],
}

/// An arc while a net is made.
#[derive(Clone, Copy, Debug, Default)]
struct Arc {
    weight: u64,
    /// The index of its edge in the graph.
    edge: u32,
}

impl Net {
    /// The net of a graph.
    ///
    /// Its links are those of [`Graph::links`]. Its weights are the [whole ones](Graph::whole_weights), and it fails
    /// where there are none.
    pub fn new(graph: &Graph, options: NetOptions) -> Result<Net, NetError> {
        let weights = match options.hops {
            true => vec![1; graph.edges.len()],
            false => whole(graph)?,
        };
        let arc = |edge: usize| Arc { weight: weights[edge], edge: edge as u32 };
        let link = |link: GraphLink| Link {
            ends: link.ends.map(|end| end as u32),
            arcs: link.edges.map(|edge| edge.map(arc)),
        };
        let kept = graph.links().into_iter().filter(|link| options.keep_loops || link.ends[0] != link.ends[1]);
        let mut links: Vec<Link> = kept.map(link).collect();
        if options.merge_parallel {
            links.dedup_by(|next, first| {
                let same = next.ends == first.ends;
                if same {
                    for (one, other) in first.arcs.iter_mut().zip(next.arcs) {
                        *one = match (*one, other) {
                            (Some(one), Some(other)) => Some(Arc { weight: one.weight.min(other.weight), ..one }),
                            (one, other) => one.or(other),
                        };
                    }
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
        // A missing arc has the values of the other; every link has one arc at least.
        let both = |link: &Link| [link.arcs[0].or(link.arcs[1]), link.arcs[1].or(link.arcs[0])];
        let arcs = || links.iter().flat_map(both).map(Option::unwrap_or_default);
        let missing = |(number, arc): (u32, Option<Arc>)| arc.is_none().then_some(number);
        Net {
            origin,
            start,
            hops,
            ends: links.iter().map(|link| link.ends).collect(),
            weights: arcs().map(|arc| arc.weight).collect(),
            edges: arcs().map(|arc| arc.edge).collect(),
            missing: (0..).zip(links.iter().flat_map(|link| link.arcs)).filter_map(missing).collect(),
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
            let arc = |arc: usize| Arc { weight: self.weights[arc], edge: self.edges[arc] };
            let arcs = [2 * link, 2 * link + 1].map(|number| self.has(number as u32).then(|| arc(number)));
            let link = Link { ends, arcs };
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

    /// The weights of each link, by link: from its first end and from its second; `None` of a missing arc.
    pub fn link_weights(&self) -> impl Iterator<Item = [Option<u64>; 2]> + '_ {
        let weight = |arc: u32| self.has(arc).then(|| self.weight(arc));
        (0..self.link_count() as u32).map(move |link| [weight(2 * link), weight(2 * link + 1)])
    }

    /// Whether this arc can be taken.
    pub fn has(&self, arc: u32) -> bool {
        self.missing.is_empty() || self.missing.binary_search(&arc).is_err()
    }

    /// The arcs that links of one direction do not have, ascending.
    pub fn missing(&self) -> &[u32] {
        &self.missing
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
    /// Both arcs of a link have the same edge if it is undirected, or if one of them is missing.
    pub fn edge(&self, arc: u32) -> usize {
        self.edges[arc as usize] as usize
    }

    /// Whether every link has both directions and weighs the same in them.
    pub fn is_symmetric(&self) -> bool {
        self.missing.is_empty() && self.weights.chunks_exact(2).all(|weights| weights[0] == weights[1])
    }

    /// Number of arcs, two for each link, the missing ones included.
    pub fn arc_count(&self) -> usize {
        self.weights.len()
    }

    /// The arcs that leave a node, the missing ones included; turned round, they are those that enter it.
    pub(super) fn hops(&self, node: u32) -> &[Hop] {
        &self.hops[self.start[node as usize] as usize..self.start[node as usize + 1] as usize]
    }

    /// Where an arc begins.
    pub fn tail(&self, arc: u32) -> u32 {
        self.ends[arc as usize / 2][arc as usize % 2]
    }

    /// IGP weight of an arc that is not missing.
    pub fn weight(&self, arc: u32) -> u64 {
        self.weights[arc as usize]
    }
}

/// The weights by edge.
fn whole(graph: &Graph) -> Result<Vec<u64>, NetError> {
    match graph.whole_weights() {
        Ok(weights) => Ok(weights.by_edge),
        Err(error) => Err(NetError::Weights { name: graph.name.clone(), error }),
    }
}
