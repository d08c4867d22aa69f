//! An ISP's map as ndnSIM reads it: edge routers, gateways and a backbone.
//!
//! Routers of degree 1, then 2, are edge routers and make their neighbours gateways; the rest is the backbone. Links
//! between edge routers, and between edge and backbone, are left out, and of the rest the largest component stays. Which
//! neighbour is made a gateway first decides some: descending degree gives the paper's numbers.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use sidestep_net::Graph;

/// What a router is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Edge,
    Gateway,
    Backbone,
}

/// A map: the role of each router that is left, and the links between them, by the routers' places in the graph.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Map {
    pub(super) roles: BTreeMap<usize, Role>,
    pub(super) links: Vec<(usize, usize)>,
}

type Neighbours = BTreeMap<usize, BTreeSet<usize>>;

/// The degree up to which a router is an edge router.
const EDGE_DEGREE: usize = 2;

impl Map {
    pub(super) fn of(graph: &Graph) -> Map {
        let mut all: Neighbours = (0..graph.nodes.len()).map(|node| (node, BTreeSet::new())).collect();
        for edge in graph.edges.iter().filter(|edge| edge.from != edge.to) {
            for (a, b) in [(edge.from, edge.to), (edge.to, edge.from)] {
                all.entry(a).or_default().insert(b);
            }
        }
        let all = largest(&all);
        let roles = roles(&all);
        let fits = |a: usize, b: usize| {
            let pair = [roles[&a], roles[&b]];
            !pair.contains(&Role::Edge) || pair.contains(&Role::Gateway)
        };
        let kept = all.iter().map(|(a, others)| (*a, others.iter().copied().filter(|b| fits(*a, *b)).collect()));
        let kept = largest(&kept.collect());
        let links = kept.iter().flat_map(|(a, others)| others.range(a + 1..).map(|b| (*a, *b))).collect();
        Map { roles: roles.into_iter().filter(|(node, _)| kept.contains_key(node)).collect(), links }
    }

    pub(super) fn edges(&self) -> Vec<usize> {
        self.roles.iter().filter(|(_, role)| **role == Role::Edge).map(|(node, _)| *node).collect()
    }
}

fn roles(all: &Neighbours) -> BTreeMap<usize, Role> {
    let mut roles = BTreeMap::new();
    for degree in 1..=EDGE_DEGREE {
        for node in all.keys().filter(|node| all[node].len() == degree) {
            roles.insert(*node, Role::Edge);
            // Gateways of so low a degree make their other neighbours backbone routers, and so on.
            let mut next = vec![(*node, Role::Gateway)];
            while let Some((of, role)) = next.pop() {
                let mut others: Vec<usize> = all[&of].iter().copied().collect();
                others.sort_by_key(|other| Reverse(all[other].len()));
                for other in others {
                    if roles.contains_key(&other) {
                        continue;
                    }
                    roles.insert(other, role);
                    if all[&other].len() <= degree {
                        next.push((other, Role::Backbone));
                    }
                }
            }
        }
    }
    all.keys().for_each(|node| {
        roles.entry(*node).or_insert(Role::Backbone);
    });
    roles
}

/// The largest component; of several the first.
fn largest(all: &Neighbours) -> Neighbours {
    let mut seen = BTreeSet::new();
    let mut best = BTreeSet::new();
    for start in all.keys() {
        let mut component = BTreeSet::new();
        let mut open = vec![*start];
        while let Some(node) = open.pop() {
            if seen.insert(node) {
                component.insert(node);
                open.extend(&all[&node]);
            }
        }
        if component.len() > best.len() {
            best = component;
        }
    }
    let inner = |others: &BTreeSet<usize>| others.intersection(&best).copied().collect();
    all.iter().filter(|(node, _)| best.contains(node)).map(|(node, others)| (*node, inner(others))).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_net::{GraphEdge, GraphNode};

    use super::*;

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph {
        let edge = |(from, to): &(usize, usize)| GraphEdge {
            from: *from,
            to: *to,
            directed: false,
            weight: None,
            rate: None,
            delay: None,
        };
        let node = |number: usize| GraphNode { name: number.to_string(), position: None };
        Graph { nodes: (0..nodes).map(node).collect(), edges: edges.iter().map(edge).collect(), ..Graph::default() }
    }

    #[test]
    fn leaves_make_their_neighbours_gateways_and_the_rest_is_the_backbone() {
        // A full mesh of 0 to 3, leaves 4 and 5 at 0, an island of 6 and 7.
        let map = Map::of(&graph(8, &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 4), (5, 0), (6, 7), (1, 1)]));
        let of = |role| map.roles.iter().filter(|(_, of)| **of == role).map(|(node, _)| *node).collect::<Vec<_>>();
        assert_eq!((of(Role::Edge), of(Role::Gateway), of(Role::Backbone)), (vec![4, 5], vec![0], vec![1, 2, 3]));
        assert_eq!((map.links.len(), map.edges()), (8, vec![4, 5]));
    }

    #[test]
    fn the_published_map_of_as_3257_has_the_papers_numbers() {
        let beside = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
        let data = std::env::var_os("SIDESTEP_DATA").map_or(beside, Into::into);
        let file = data.join("rocketfuel/3257.pop.cch");
        if !file.is_file() {
            println!("skipped: {} is not there; set SIDESTEP_DATA to where it is", file.display());
            return;
        }
        let map = Map::of(&crate::topology(None, &file.to_string_lossy()).unwrap());
        let count = |role| map.roles.values().filter(|of| **of == role).count();
        let counts = [Role::Edge, Role::Gateway, Role::Backbone].map(count);
        assert_eq!((map.roles.len(), map.links.len(), counts), (440, 681, [267, 126, 47]));
    }
}
