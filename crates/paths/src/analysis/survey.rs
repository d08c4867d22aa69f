//! How many disjoint paths all pairs of some nodes have.

use std::fmt;

use super::{
    Net, NetError, RiskGroups, disjoint::Finder, node_disjoint::NodeFinder, segmented::Segmented, trees::Trees,
};

/// Which arcs a path makes unavailable to later paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remove {
    /// Its links in the direction that it uses.
    #[default]
    Forward,
    /// Its links.
    Both,
}

/// What a segment can force. The defaults are those of the path-diversity figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Which arcs a path takes from those after it.
    pub remove: Remove,
    /// Only unique shortest paths can be forced, as under ECMP; else one of the equal-cost paths can be.
    pub unique: bool,
    /// A segment can end with an adjacency: any arc, after the shortest path to its tail.
    pub adjacency: bool,
}

/// Pairs by how many disjoint paths they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of pairs, by their number of paths, from 0 paths on.
    pub pairs: Vec<u64>,
}

/// A net with all its shortest paths, which counts the paths of pairs of nodes.
///
/// Where the net's weights are symmetric, both directions of a pair have equally many paths, so the pair counts once.
/// Else each direction counts.
#[derive(Clone, Debug)]
pub struct Survey<'n> {
    net: &'n Net,
    trees: Trees,
    symmetric: bool,
    watch: Option<Watch<'n>>,
}

/// A callback that decides, before the pairs of each node, whether to go on.
#[derive(Clone, Copy)]
struct Watch<'n>(&'n dyn Fn() -> bool);

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl<'n> Survey<'n> {
    /// Computes all shortest paths. Fails where there are more than 4096 nodes.
    pub fn new(net: &'n Net) -> Result<Survey<'n>, NetError> {
        Ok(Survey { net, trees: Trees::new(net)?, symmetric: net.is_symmetric(), watch: None })
    }

    /// Makes the survey call `go_on` before the pairs of each node. Once that returns false, counts cover only the
    /// pairs before.
    pub fn watched(self, go_on: &'n dyn Fn() -> bool) -> Self {
        Survey { watch: Some(Watch(go_on)), ..self }
    }

    /// The most link-disjoint paths, by Edmonds and Karp's algorithm.
    pub fn most(&self, nodes: &[u32]) -> Counts {
        let mut finder = Finder::new(self.net);
        let mut counts = Counts::default();
        self.each_pair(nodes, |from, to| counts.add(finder.most(from, to)));
        counts
    }

    /// The most node-disjoint paths (no common node between their ends), by Edmonds and Karp's algorithm.
    pub fn most_node_disjoint(&self, nodes: &[u32]) -> Counts {
        let mut finder = NodeFinder::new(self.net);
        let mut counts = Counts::default();
        self.each_pair(nodes, |from, to| counts.add(finder.most(from, to)));
        counts
    }

    /// The link-disjoint paths that iterated Dijkstra finds: repeatedly the shortest path without the links of those
    /// before.
    pub fn greedy(&self, nodes: &[u32], remove: Remove) -> Counts {
        let mut finder = Finder::new(self.net);
        let mut counts = Counts::default();
        self.each_pair(nodes, |from, to| counts.add(finder.greedy(&self.trees, from, to, remove)));
        counts
    }

    /// The risk-disjoint paths that iterated Dijkstra finds: no two have a link or a shared-risk group in common. No
    /// fast algorithm is known that finds the most of these (Hu 2003).
    pub fn greedy_risk_disjoint(&self, nodes: &[u32], risks: &RiskGroups) -> Counts {
        let mut finder = Finder::new(self.net);
        let mut counts = Counts::default();
        self.each_pair(nodes, |from, to| counts.add(finder.greedy_risks(&self.trees, from, to, risks)));
        counts
    }

    /// The paths found by repeatedly taking the shortest one that a limited number of segments forces; by limit, from
    /// one segment on.
    pub fn segmented(&self, nodes: &[u32], most: usize, options: SegmentOptions) -> Vec<Counts> {
        let mut finder = Segmented::new(self.net, options);
        let mut counts = vec![Counts::default(); most];
        let mut found = vec![0; most];
        self.each_pair(nodes, |from, to| {
            finder.counts(&self.trees, from, to, &mut found);
            counts.iter_mut().zip(&found).for_each(|(counts, found)| counts.add(*found));
        });
        counts
    }

    fn each_pair(&self, nodes: &[u32], mut act: impl FnMut(u32, u32)) {
        for (index, from) in nodes.iter().enumerate() {
            if self.watch.is_some_and(|Watch(go_on)| !go_on()) {
                break;
            }
            for (other, to) in nodes.iter().enumerate() {
                if from != to && (index < other || !self.symmetric) {
                    act(*from, *to);
                }
            }
        }
    }
}

impl Counts {
    /// How many pairs there are.
    pub fn total(&self) -> u64 {
        self.pairs.iter().sum()
    }

    /// Mean number of paths of a pair; `None` without pairs.
    pub fn mean(&self) -> Option<f64> {
        let paths: u64 = self.pairs.iter().zip(0..).map(|(pairs, paths)| pairs * paths).sum();
        (self.total() > 0).then(|| paths as f64 / self.total() as f64)
    }

    fn add(&mut self, paths: usize) {
        if self.pairs.len() <= paths {
            self.pairs.resize(paths + 1, 0);
        }
        self.pairs[paths] += 1;
    }
}
