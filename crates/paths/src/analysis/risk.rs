//! Links that fail together.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_net::Graph;

use super::{Net, disjoint::Marks};

/// The shared-risk groups of a net's links (SRLG, RFC 4202): whatever fails one link of a group fails all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RiskGroups {
    /// By link, its groups, by their places in `links`.
    groups: Vec<Vec<u32>>,
    /// By group.
    links: Vec<Vec<u32>>,
}

impl RiskGroups {
    /// Those that the graph has of which the net was made; a link has the groups of both its directions.
    pub fn of(graph: &Graph, net: &Net) -> Self {
        let mut places: BTreeMap<u32, u32> = BTreeMap::new();
        let mut found = RiskGroups { groups: vec![Vec::new(); net.link_count()], links: Vec::new() };
        for (link, groups) in found.groups.iter_mut().enumerate() {
            let edges = [2 * link, 2 * link + 1].map(|arc| net.edge(arc as u32));
            let named: BTreeSet<u32> =
                edges.iter().filter_map(|edge| graph.risk_groups.get(edge)).flatten().copied().collect();
            for group in named {
                let place = *places.entry(group).or_insert(found.links.len() as u32);
                if place as usize == found.links.len() {
                    found.links.push(Vec::new());
                }
                found.links[place as usize].push(link as u32);
                groups.push(place);
            }
        }
        found
    }

    /// Whether no link has a group.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Marks both arcs of all links that share a group with this one.
    pub(super) fn take(&self, taken: &mut Marks, link: u32) {
        let groups = self.groups.get(link as usize).into_iter().flatten();
        for fellow in groups.flat_map(|group| &self.links[*group as usize]) {
            taken.add(2 * fellow);
            taken.add(2 * fellow + 1);
        }
    }
}
