//! Which edges of a graph are one link.

use super::{Graph, GraphEdge};

/// A link of a [`Graph`]: an undirected edge, or two directed edges in opposite directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphLink {
    /// Its nodes, the lower first; a loop has the same node twice.
    pub ends: [usize; 2],
    /// Indices of the edges from the first end and to it; the same twice if the edge is undirected, or has no reverse.
    pub edges: [usize; 2],
}

impl Graph {
    /// The links, sorted by their ends, then by the first edge of each.
    ///
    /// Directed edges are paired with those of the other direction, in the order of the file. An edge without a partner
    /// becomes a link that it describes in both directions. Two directed loops of a node are the two directions of one.
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

fn ends(edge: &GraphEdge) -> [usize; 2] {
    [edge.from.min(edge.to), edge.from.max(edge.to)]
}

/// Adds the links of the edges between the same two nodes, by the first edge of each.
fn link_up(between: &[(usize, &GraphEdge)], links: &mut Vec<GraphLink>) {
    let before = links.len();
    let mut open: Option<usize> = None;
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for (index, edge) in between {
        let alone = GraphLink { ends: ends(edge), edges: [*index; 2] };
        if !edge.directed {
            links.push(alone);
        } else if edge.from == edge.to {
            match open.take().and_then(|link| links.get_mut(link)) {
                Some(link) => link.edges[1] = *index,
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
        let Some((there, back)) = there.or(back).zip(back.or(there)) else { continue };
        links.push(GraphLink { ends: there.ends, edges: [there.edges[0], back.edges[0]] });
    }
    let added = links.get_mut(before..).unwrap_or_default();
    added.sort_by_key(|link| link.edges[0].min(link.edges[1]));
}
