//! What pairs lose with each link.

use super::{Net, disjoint::Finder};

/// What the failure of a link takes from the pairs of some routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reliance {
    /// Pairs that had two link-disjoint paths or more, and have one left: all their diversity is gone.
    pub exposed: u64,
    /// The pairs counted in `exposed` of which neither router is an end of the link.
    pub in_transit: u64,
    /// Pairs that had a path, and have none left.
    pub cut: u64,
}

/// By link, what the unordered pairs of `nodes` lose when it fails, or the ordered ones if some links have one direction
/// only. `go_on` is called before each link; the result ends where it returns false.
///
/// A pair has two link-disjoint paths if no single link separates it (Menger 1927), that is, if both routers are in one
/// component without bridges. So each link takes one search of the net without it (Tarjan 1974). With links of one
/// direction, each pair whose paths use the link is searched again.
pub fn reliance(net: &Net, nodes: &[u32], mut go_on: impl FnMut() -> bool) -> Vec<Reliance> {
    if !net.missing().is_empty() {
        return directed(net, nodes, go_on);
    }
    let mut search = Search::new(net);
    search.run(None);
    let whole = search.clone();
    let mut found = Vec::with_capacity(net.link_count());
    for (link, ends) in (0..).zip(net.links()) {
        if !go_on() {
            break;
        }
        search.run(Some(link));
        let others: Vec<u32> = nodes.iter().copied().filter(|node| !ends.contains(node)).collect();
        found.push(Reliance {
            exposed: together(&whole.block, nodes) - together(&search.block, nodes),
            in_transit: together(&whole.block, &others) - together(&search.block, &others),
            cut: together(&whole.part, nodes) - together(&search.part, nodes),
        });
    }
    found
}

/// As [`reliance`], for the ordered pairs of a net with links of one direction.
fn directed(net: &Net, nodes: &[u32], mut go_on: impl FnMut() -> bool) -> Vec<Reliance> {
    let mut finder = Finder::new(net);
    // By link: the pairs whose two paths, or whose only one, use it, and how many paths they have.
    let mut users: Vec<Vec<(u32, u32, usize)>> = vec![Vec::new(); net.link_count()];
    for (from, to) in nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to))) {
        let paths = if from == to { 0 } else { finder.up_to(2, from, to, None) };
        if paths > 0 {
            finder.links().iter().for_each(|link| users[*link as usize].push((from, to, paths)));
        }
    }
    let mut found = Vec::with_capacity(net.link_count());
    for ((link, ends), users) in (0..).zip(net.links()).zip(users) {
        if !go_on() {
            break;
        }
        let mut loses = Reliance::default();
        for (from, to, before) in users {
            let after = finder.up_to(2, from, to, Some(link));
            let exposed = u64::from(before == 2 && after < 2);
            loses.exposed += exposed;
            loses.in_transit += exposed * u64::from(!ends.contains(&from) && !ends.contains(&to));
            loses.cut += u64::from(after == 0);
        }
        found.push(loses);
    }
    found
}

/// How many connected components a net has, whatever the directions of its links.
pub fn parts(net: &Net) -> usize {
    let mut search = Search::new(net);
    search.run(None);
    search.part.iter().map(|part| *part as usize + 1).max().unwrap_or(0)
}

/// How many pairs have the same label.
fn together(labels: &[u32], nodes: &[u32]) -> u64 {
    let mut counts = vec![0u64; labels.len()];
    nodes.iter().for_each(|node| counts[labels[*node as usize] as usize] += 1);
    counts.iter().map(|count| count * count.saturating_sub(1) / 2).sum()
}

/// Depth-first search for bridges, whose memory is reused.
#[derive(Clone, Debug)]
struct Search<'n> {
    net: &'n Net,
    /// By node: when it was first seen, from 1 on.
    seen: Vec<u32>,
    /// By node: the earliest node reached from its subtree without the arc that leads to it.
    low: Vec<u32>,
    /// The search's stack: nodes, each with the arc that leads there and the number of its hops already visited.
    stack: Vec<(u32, u32, usize)>,
    /// Nodes whose block is not known yet.
    open: Vec<u32>,
    /// By node: the number of its component.
    part: Vec<u32>,
    /// By node: the number of its component without bridges.
    block: Vec<u32>,
}

const NO_ARC: u32 = u32::MAX;

impl<'n> Search<'n> {
    fn new(net: &'n Net) -> Self {
        let nodes = net.node_count();
        Search {
            net,
            seen: vec![0; nodes],
            low: vec![0; nodes],
            stack: Vec::new(),
            open: Vec::new(),
            part: vec![0; nodes],
            block: vec![0; nodes],
        }
    }

    /// Labels the nodes of the net with one link left out, or with all links.
    fn run(&mut self, without: Option<u32>) {
        self.seen.fill(0);
        let (mut time, mut parts, mut blocks) = (0, 0, 0);
        for root in 0..self.net.node_count() as u32 {
            if self.seen[root as usize] != 0 {
                continue;
            }
            self.enter(root, NO_ARC, parts, &mut time);
            while let Some((node, came, looked)) = self.stack.last_mut() {
                let (node, came) = (*node, *came);
                let Some(hop) = self.net.hops(node).get(*looked).copied() else {
                    self.stack.pop();
                    self.leave(node, &mut blocks);
                    continue;
                };
                *looked += 1;
                // The same link backwards is no other path; a parallel link backwards is.
                if Some(hop.arc / 2) == without || (came != NO_ARC && hop.arc == came ^ 1) {
                    continue;
                }
                match self.seen[hop.head as usize] {
                    0 => self.enter(hop.head, hop.arc, parts, &mut time),
                    when => self.low[node as usize] = self.low[node as usize].min(when),
                }
            }
            parts += 1;
        }
    }

    fn enter(&mut self, node: u32, arc: u32, part: u32, time: &mut u32) {
        *time += 1;
        self.seen[node as usize] = *time;
        self.low[node as usize] = *time;
        self.part[node as usize] = part;
        self.open.push(node);
        self.stack.push((node, arc, 0));
    }

    /// Leaves a node whose subtree is all seen: if nothing in it leads back beyond the node, a block ends here.
    fn leave(&mut self, node: u32, blocks: &mut u32) {
        let low = self.low[node as usize];
        if let Some((before, ..)) = self.stack.last() {
            self.low[*before as usize] = self.low[*before as usize].min(low);
        }
        if low == self.seen[node as usize] {
            while let Some(member) = self.open.pop() {
                self.block[member as usize] = *blocks;
                if member == node {
                    break;
                }
            }
            *blocks += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use sidestep_net::{Graph, GraphEdge, GraphNode};

    use super::{super::NetOptions, *};

    fn graph(nodes: usize, ends: &[(usize, usize)]) -> Graph {
        let edge = |(from, to): &(usize, usize)| GraphEdge {
            from: *from,
            to: *to,
            directed: false,
            weight: None,
            rate: None,
            delay: None,
        };
        let node = GraphNode { name: "n".into(), position: None };
        Graph { nodes: vec![node; nodes], edges: ends.iter().map(edge).collect(), ..Graph::default() }
    }

    #[test]
    fn a_bridge_cuts_and_a_link_of_a_ring_exposes() {
        // Two triangles 0-1-2 and 3-4-5, joined by 2-3.
        let ends = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)];
        let net = Net::new(&graph(6, &ends), NetOptions::default()).unwrap();
        let all = [0, 1, 2, 3, 4, 5];
        let found = reliance(&net, &all, || true);
        let bridge = net.links().iter().position(|ends| *ends == [2, 3]).unwrap();
        assert_eq!(found[bridge], Reliance { exposed: 0, in_transit: 0, cut: 9 });
        let side = net.links().iter().position(|ends| *ends == [0, 1]).unwrap();
        assert_eq!(found[side], Reliance { exposed: 3, in_transit: 0, cut: 0 });
        assert_eq!(parts(&net), 1);
        let mut left = 2;
        let some = reliance(&net, &all, || {
            left -= 1;
            left >= 0
        });
        assert_eq!(some[..], found[..2]);
    }

    #[test]
    fn every_link_of_a_ring_of_one_direction_cuts_the_pairs_that_pass_it() {
        let mut ring = graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
        ring.edges.iter_mut().for_each(|edge| edge.directed = true);
        let net = Net::new(&ring, NetOptions::default()).unwrap();
        // Of the 12 ordered pairs, those 1, 2 and 3 links apart pass a link 1, 2 and 3 times.
        assert_eq!(reliance(&net, &[0, 1, 2, 3], || true), [Reliance { exposed: 0, in_transit: 0, cut: 6 }; 4]);
        // A second link from 0 to 1: that pair has two paths, and with either link it loses one.
        ring.edges.push(ring.edges[0].clone());
        let net = Net::new(&ring, NetOptions::default()).unwrap();
        let found = reliance(&net, &[0, 1], || true);
        let twice = Reliance { exposed: 1, in_transit: 0, cut: 0 };
        let back = Reliance { exposed: 0, in_transit: 0, cut: 1 };
        assert_eq!(found, [twice, twice, back, back, back]);
    }

    proptest! {
        #[test]
        fn a_pair_is_exposed_or_cut_as_its_most_disjoint_paths_say(
            nodes in 2usize..9, ends in vec((0usize..9, 0usize..9), 1..16),
        ) {
            let ends: Vec<_> = ends.iter().map(|(a, b)| (a % nodes, b % nodes)).collect();
            let net = Net::new(&graph(nodes, &ends), NetOptions::default()).unwrap();
            let access: Vec<u32> = (0..nodes as u32).step_by(2).collect();
            let most = |net: &Net, from, to| super::super::disjoint::Finder::new(net).most(from, to);
            for (link, found) in reliance(&net, &access, || true).into_iter().enumerate() {
                let [a, b] = net.links()[link];
                let left: Vec<(usize, usize)> = net.links().iter().enumerate().filter(|(other, _)| *other != link)
                    .map(|(_, [a, b])| (*a as usize, *b as usize)).collect();
                let without = Net::new(&graph(nodes, &left), NetOptions::default()).unwrap();
                let mut expected = Reliance::default();
                for from in &access {
                    for to in access.iter().filter(|to| *to > from) {
                        let (before, after) = (most(&net, *from, *to), most(&without, *from, *to));
                        let exposed = u64::from(before >= 2 && after < 2);
                        expected.exposed += exposed;
                        expected.in_transit += exposed * u64::from(![a, b].contains(from) && ![a, b].contains(to));
                        expected.cut += u64::from(before >= 1 && after == 0);
                    }
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}
