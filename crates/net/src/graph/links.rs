//! Which edges of a graph are one link.

use std::collections::BTreeMap;

use super::{Graph, GraphEdge};

/// A link of a [`Graph`]: an undirected edge, two directed edges in opposite directions, or one directed edge alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphLink {
    /// Its nodes, the lower first; a loop has the same node twice.
    pub ends: [usize; 2],
    /// Indices of the edges from the first end and to it: the same twice if the edge is undirected or a loop, `None` for a
    /// direction that no edge has.
    pub edges: [Option<usize>; 2],
}

impl Graph {
    /// The links, sorted by their ends, then by the first edge of each.
    ///
    /// Directed edges are paired with those of the other direction, in the order of the file. An edge without a partner
    /// becomes a link of one direction. Two directed loops of a node are the two directions of one.
    pub fn links(&self) -> Vec<GraphLink> {
        let mut edges: Vec<(usize, &GraphEdge)> = self.edges.iter().enumerate().collect();
        edges.sort_by_key(|(_, edge)| ends(edge));
        let mut links = Vec::new();
        for between in edges.chunk_by(|one, other| ends(one.1) == ends(other.1)) {
            link_up(between, &mut links);
        }
        links
    }
}

impl Graph {
    /// By node, the number of its part: nodes are of one part if edges join them, in whichever direction.
    pub fn parts(&self) -> Vec<usize> {
        let mut above: Vec<usize> = (0..self.nodes.len()).collect();
        for edge in &self.edges {
            let (one, other) = (root(&mut above, edge.from), root(&mut above, edge.to));
            if let Some(last) = above.get_mut(one.max(other)) {
                *last = one.min(other);
            }
        }
        let mut numbers = BTreeMap::new();
        (0..above.len())
            .map(|node| {
                let next = numbers.len();
                *numbers.entry(root(&mut above, node)).or_insert(next)
            })
            .collect()
    }

    /// The part with most nodes, of equally large ones the first, as a network of its own.
    pub fn largest_part(&self) -> Graph {
        let parts = self.parts();
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        parts.iter().for_each(|part| *sizes.entry(*part).or_default() += 1);
        let largest = sizes.iter().max_by_key(|(part, size)| (**size, usize::MAX - **part)).map(|(part, _)| *part);
        let mut graph = Graph { name: self.name.clone(), ..Graph::default() };
        let mut places = BTreeMap::new();
        for ((index, node), part) in self.nodes.iter().enumerate().zip(&parts) {
            if Some(*part) == largest {
                places.insert(index, graph.nodes.len());
                graph.nodes.push(node.clone());
            }
        }
        for (index, edge) in self.edges.iter().enumerate() {
            let (Some(&from), Some(&to)) = (places.get(&edge.from), places.get(&edge.to)) else { continue };
            if let Some(groups) = self.risk_groups.get(&index) {
                graph.risk_groups.insert(graph.edges.len(), groups.clone());
            }
            graph.edges.push(GraphEdge { from, to, ..edge.clone() });
        }
        graph.is_part = self.is_part || graph.nodes.len() < self.nodes.len();
        graph
    }
}

/// The first node of a node's part; on the way there, every second step is cut short.
fn root(above: &mut [usize], mut node: usize) -> usize {
    while let Some(next) = above.get(node).copied().filter(|next| *next != node) {
        let beyond = above.get(next).copied().unwrap_or(next);
        if let Some(step) = above.get_mut(node) {
            *step = beyond;
        }
        node = beyond;
    }
    node
}

impl GraphLink {
    /// Whether packets pass in both directions.
    pub fn is_two_way(&self) -> bool {
        self.edges.iter().all(Option::is_some)
    }
}

fn ends(edge: &GraphEdge) -> [usize; 2] {
    [edge.from.min(edge.to), edge.from.max(edge.to)]
}

/// Adds the links of the edges between the same two nodes, by the first edge of each.
fn link_up(between: &[(usize, &GraphEdge)], links: &mut Vec<GraphLink>) {
    let before = links.len();
    let mut open: Option<usize> = None;
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for (index, edge) in between {
        let alone = GraphLink { ends: ends(edge), edges: [Some(*index); 2] };
        if !edge.directed {
            links.push(alone);
        } else if edge.from == edge.to {
            match open.take().and_then(|link| links.get_mut(link)) {
                Some(link) => link.edges[1] = Some(*index),
                None => {
                    open = Some(links.len());
                    links.push(alone);
                }
            }
        } else {
            (if edge.from > edge.to { &mut back } else { &mut there }).push(alone);
        }
    }
    for index in 0..there.len().max(back.len()) {
        let (there, back) = (there.get(index), back.get(index));
        let Some(either) = there.or(back) else { continue };
        links.push(GraphLink { ends: either.ends, edges: [there, back].map(|one| one.and_then(|one| one.edges[0])) });
    }
    let added = links.get_mut(before..).unwrap_or_default();
    added.sort_by_key(|link| link.edges.into_iter().flatten().min());
}
