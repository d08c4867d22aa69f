//! The disjoint paths of many pairs, kept up to date while links fail and recover.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use sidestep_model::{ArcId, LinkId, NodeId, Topology};

use crate::{Igp, PathFinder, Route, SegmentRules, disjoint::Round, search::Dependencies};

/// The [`disjoint_paths`](crate::disjoint_paths) between pairs of nodes, on an IGP that has converged on the failures
/// present.
///
/// Each path is kept with what its search depended on while everything was up. Where links are down, only pairs whose
/// searches would go another way are computed anew, and of these only the paths from the first one on that does. So a
/// recovery costs nothing, or what the links that are still down cost. The result is the same as from scratch.
#[derive(Clone, Debug)]
pub struct PathSets {
    pairs: Vec<(NodeId, NodeId)>,
    rules: SegmentRules,
    max_paths: usize,
    /// By pair, while everything is up.
    whole: Vec<Found>,
    /// By link: the pairs that then depend on it.
    dependents: Vec<Vec<u32>>,
    down: BTreeSet<LinkId>,
    /// The pairs whose paths now may be others.
    detoured: BTreeMap<u32, PathSet>,
}

/// The paths of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSet {
    /// Disjoint paths, best first.
    pub routes: Vec<Route>,
    /// The IGP's way back, of equal ones that of the lowest arcs; `None` where there is none.
    pub back: Option<Vec<ArcId>>,
}

/// What a change of the links that are down came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recomputed {
    /// How many pairs were computed anew, partly or as a whole.
    pub computed: usize,
    /// Indices of the pairs whose paths are not what they were, ascending.
    pub changed: Vec<usize>,
}

/// A path set and what it depends on.
#[derive(Clone, Debug)]
struct Found {
    set: PathSet,
    /// Of each path, and of the search that found no further one.
    depends_on: Vec<Dependencies>,
}

impl PathSets {
    /// Computes the paths of these pairs while everything is up.
    pub fn new(topo: &Topology, pairs: Vec<(NodeId, NodeId)>, rules: SegmentRules, max_paths: usize) -> Self {
        let igp = Igp::new(topo);
        let mut sets = PathSets {
            pairs,
            rules,
            max_paths,
            whole: Vec::new(),
            dependents: vec![Vec::new(); topo.links().len()],
            down: BTreeSet::new(),
            detoured: BTreeMap::new(),
        };
        let mut finder = PathFinder::new(&igp, rules);
        for (index, (from, to)) in (0..).zip(&sets.pairs) {
            let (routes, depends_on): (Vec<_>, Vec<_>) = finder
                .rounds(*from, *to, max_paths)
                .into_iter()
                .map(|Round { route, depends_on }| (route, depends_on))
                .unzip();
            let set = PathSet { routes: routes.into_iter().flatten().collect(), back: finder.first_path(*to, *from) };
            let found = Found { set, depends_on };
            for link in found.links() {
                let dependents = &mut sets.dependents[link.index()];
                if dependents.last() != Some(&index) {
                    dependents.push(index);
                }
            }
            sets.whole.push(found);
        }
        sets
    }

    /// The pairs, in the order given.
    pub fn pairs(&self) -> &[(NodeId, NodeId)] {
        &self.pairs
    }

    /// The paths of the pair with this index.
    pub fn get(&self, index: usize) -> Option<&PathSet> {
        let detoured = u32::try_from(index).ok().and_then(|index| self.detoured.get(&index));
        detoured.or(self.whole.get(index).map(|found| &found.set))
    }

    /// Exactly these links of the network are down from now on; ids that it does not have are no matter.
    pub fn set_down(&mut self, topo: &Topology, down: &BTreeSet<LinkId>) -> Recomputed {
        if self.down == *down {
            return Recomputed::default();
        }
        let igp = Igp::without(topo, down);
        let mut finder = PathFinder::new(&igp, self.rules);
        let mut before = std::mem::take(&mut self.detoured);
        let mut recomputed = Recomputed::default();
        let dependents = |link: &LinkId| self.dependents.get(link.index()).into_iter().flatten().copied();
        let mut candidates: Vec<u32> = down.iter().flat_map(dependents).collect();
        candidates.sort_unstable();
        candidates.dedup();
        for pair in candidates {
            let index = pair as usize;
            let Some(set) = self.whole[index].detour(&mut finder, self.pairs[index], down, self.max_paths) else {
                continue;
            };
            recomputed.computed += 1;
            if set != *before.remove(&pair).as_ref().unwrap_or(&self.whole[index].set) {
                recomputed.changed.push(index);
            }
            self.detoured.insert(pair, set);
        }
        // The others are what they are while everything is up.
        let restored = before.iter().filter(|(pair, old)| **old != self.whole[**pair as usize].set);
        recomputed.changed.extend(restored.map(|(pair, _)| *pair as usize));
        recomputed.changed.sort_unstable();
        self.down.clone_from(down);
        recomputed
    }
}

impl Found {
    /// All links that it may depend on, some of them more than once.
    fn links(&self) -> impl Iterator<Item = LinkId> {
        let back = self.set.back.iter().flatten().map(|arc| arc.link());
        let searches = self.depends_on.iter().flat_map(|search| search.links.iter().chain(&search.shown));
        searches.copied().chain(back)
    }

    /// The paths without these links, which the finder's network lacks; `None` if they are the same for sure.
    fn detour(
        &self,
        finder: &mut PathFinder<'_>,
        (from, to): (NodeId, NodeId),
        down: &BTreeSet<LinkId>,
        max_paths: usize,
    ) -> Option<PathSet> {
        let any = |links: &[LinkId]| down.iter().any(|link| links.binary_search(link).is_ok());
        let mut stays = |search: &Dependencies| {
            !any(&search.links) && (!any(&search.shown) || search.refused.iter().all(|refusal| finder.refuses(refusal)))
        };
        let first = self.depends_on.iter().position(|search| !stays(search));
        let back_stays = !self.set.back.iter().flatten().any(|arc| down.contains(&arc.link()));
        if first.is_none() && back_stays {
            return None;
        }
        let mut routes: Vec<Route> = self.set.routes.iter().take(first.unwrap_or(usize::MAX)).cloned().collect();
        if first.is_some() {
            let found_none = first.is_some_and(|first| first == self.set.routes.len());
            finder.extend(&mut routes, (from, to), max_paths, found_none);
        }
        let back = if back_stays { self.set.back.clone() } else { finder.first_path(to, from) };
        Some(PathSet { routes, back })
    }
}
