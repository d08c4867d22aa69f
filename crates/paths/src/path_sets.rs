//! The disjoint paths of many pairs, kept up to date while links fail and recover.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sidestep_net::{ArcId, LinkId, NodeId, Topology};

use crate::{Ends, Igp, PathFinder, Route, SegmentRules, disjoint::Round, search::Dependencies};

/// The disjoint paths between pairs of ends, on an IGP that has converged on the failures present.
///
/// Each path is kept with the links on which its search depended while everything was up. When links fail, only the
/// pairs whose searches depended on them are computed again, and only from the first affected path on. A recovery costs
/// nothing beyond what the links that are still down cost. The result is the same as from scratch.
#[derive(Clone, Debug)]
pub struct PathSets {
    ends: Vec<Ends>,
    rules: SegmentRules,
    max_paths: usize,
    /// By pair, while everything is up.
    whole: Vec<Found>,
    /// By link: the pairs that depend on it while everything is up.
    dependents: Vec<Vec<u32>>,
    down: BTreeSet<LinkId>,
    /// By pair: the paths of the pairs that the links now down affect.
    detoured: BTreeMap<u32, PathSet>,
    finders: Finders,
}

/// The paths of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSet {
    /// Disjoint paths, best first.
    pub routes: Vec<Route>,
    /// By route: whether packets to the destination follow it without a segment list, because it is part of the IGP's
    /// only shortest path from its first router to the destination.
    pub follows_igp: Vec<bool>,
    /// The IGP's return path; `None` where there is none.
    pub back: Option<Back>,
}

/// The IGP's return path from the destination of a pair to its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back {
    /// The access router of the destination where it begins.
    pub from: NodeId,
    /// The access router of the source where it ends.
    pub to: NodeId,
    /// Its arcs between the two routers; of equally short paths, the one with the lowest arcs.
    pub arcs: Vec<ArcId>,
}

/// The path finders: one for the whole network, one without the links that are down. Each is made when first needed.
#[derive(Clone, Debug, Default)]
struct Finders {
    whole: Option<PathFinder<Arc<Igp>>>,
    without: Option<PathFinder<Arc<Igp>>>,
}

/// The effect of a change of the links that are down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recomputed {
    /// How many pairs were computed again, partly or as a whole.
    pub computed: usize,
    /// Indices of the pairs whose paths are not what they were, ascending.
    pub changed: Vec<usize>,
}

/// A path set and what it depends on.
#[derive(Clone, Debug)]
struct Found {
    set: PathSet,
    /// By path, and for the final round that found none: the dependencies of the searches that this round added.
    depends_on: Vec<Vec<Dependencies>>,
    /// Ascending: the links of paths to other egress routers, because of which routes do not follow the IGP.
    overtaken_by: Vec<LinkId>,
}

/// Which routes follow the IGP, and why others do not.
#[derive(Debug, Default)]
struct Following {
    follows_igp: Vec<bool>,
    overtaken_by: Vec<LinkId>,
}

impl PathSets {
    /// No pairs yet, in a network in which everything is up.
    pub fn new(topo: &Topology, rules: SegmentRules, max_paths: usize) -> Self {
        PathSets {
            ends: Vec::new(),
            rules,
            max_paths,
            whole: Vec::new(),
            dependents: vec![Vec::new(); topo.links().len()],
            down: BTreeSet::new(),
            detoured: BTreeMap::new(),
            finders: Finders::default(),
        }
    }

    /// Computes the paths of one more pair, for the links that are down now; returns its index.
    pub fn add(&mut self, topo: &Topology, ends: Ends) -> usize {
        let pair = self.ends.len();
        let finder = self.finders.whole(topo, self.rules);
        let (routes, depends_on): (Vec<_>, Vec<_>) = finder
            .rounds(&ends, self.max_paths)
            .into_iter()
            .map(|Round { route, depends_on }| (route, depends_on))
            .unzip();
        let routes: Vec<Route> = routes.into_iter().flatten().collect();
        let Following { follows_igp, overtaken_by } = following(finder, topo, &ends, &routes);
        let set = PathSet { routes, follows_igp, back: back(finder, &ends) };
        let found = Found { set, depends_on, overtaken_by };
        for link in found.links() {
            let dependents = &mut self.dependents[link.index()];
            if dependents.last() != Some(&(pair as u32)) {
                dependents.push(pair as u32);
            }
        }
        if !self.down.is_empty() {
            let finder = self.finders.without(topo, self.rules, &self.down);
            if let Some(set) = found.detour(finder, topo, &ends, &self.down, self.max_paths) {
                self.detoured.insert(pair as u32, set);
            }
        }
        self.whole.push(found);
        self.ends.push(ends);
        pair
    }

    /// The pairs, in the order in which they were added.
    pub fn ends(&self) -> &[Ends] {
        &self.ends
    }

    /// The paths of the pair with this index.
    pub fn get(&self, index: usize) -> Option<&PathSet> {
        let detoured = u32::try_from(index).ok().and_then(|index| self.detoured.get(&index));
        detoured.or(self.whole.get(index).map(|found| &found.set))
    }

    /// Frees the memory that is needed only to compute paths.
    pub fn release(&mut self) {
        self.finders = Finders::default();
    }

    /// Takes exactly these links as down from now on; ids that the network does not have are ignored.
    pub fn set_down(&mut self, topo: &Topology, down: &BTreeSet<LinkId>) -> Recomputed {
        if self.down == *down {
            return Recomputed::default();
        }
        self.finders.without = None;
        let mut before = std::mem::take(&mut self.detoured);
        let mut recomputed = Recomputed::default();
        let dependents = |link: &LinkId| self.dependents.get(link.index()).into_iter().flatten().copied();
        let mut candidates: Vec<u32> = down.iter().flat_map(dependents).collect();
        candidates.sort_unstable();
        candidates.dedup();
        for pair in candidates {
            let index = pair as usize;
            let finder = self.finders.without(topo, self.rules, down);
            let Some(set) = self.whole[index].detour(finder, topo, &self.ends[index], down, self.max_paths) else {
                continue;
            };
            recomputed.computed += 1;
            if set != *before.remove(&pair).as_ref().unwrap_or(&self.whole[index].set) {
                recomputed.changed.push(index);
            }
            self.detoured.insert(pair, set);
        }
        // Other pairs have the same paths as while everything is up.
        let restored = before.iter().filter(|(pair, old)| **old != self.whole[**pair as usize].set);
        recomputed.changed.extend(restored.map(|(pair, _)| *pair as usize));
        recomputed.changed.sort_unstable();
        self.down.clone_from(down);
        recomputed
    }
}

impl Finders {
    fn whole(&mut self, topo: &Topology, rules: SegmentRules) -> &mut PathFinder<Arc<Igp>> {
        self.whole.get_or_insert_with(|| PathFinder::new(Arc::new(Igp::new(topo)), rules))
    }

    fn without(&mut self, topo: &Topology, rules: SegmentRules, down: &BTreeSet<LinkId>) -> &mut PathFinder<Arc<Igp>> {
        self.without.get_or_insert_with(|| PathFinder::new(Arc::new(Igp::without(topo, down)), rules))
    }
}

/// The shortest return path over all pairs of an egress router and an ingress router, the links to the hosts included.
/// Of equally short ones, it takes that of the first egress router, then that of the first ingress router.
fn back(finder: &mut PathFinder<Arc<Igp>>, ends: &Ends) -> Option<Back> {
    let mut best: Option<(u64, NodeId, NodeId)> = None;
    for egress in &ends.egresses {
        for ingress in &ends.ingresses {
            let Some(distance) = finder.distance(egress.router, ingress.router) else { continue };
            let distance = distance + egress.up + ingress.down;
            if best.is_none_or(|(least, ..)| distance < least) {
                best = Some((distance, egress.router, ingress.router));
            }
        }
    }
    let (_, from, to) = best?;
    Some(Back { from, to, arcs: finder.first_path(from, to)? })
}

/// Which of these routes follow the IGP. A list of one segment means that the route is the only shortest path to its
/// egress router; the destination must then be further by every other egress router.
fn following(finder: &mut PathFinder<Arc<Igp>>, topo: &Topology, ends: &Ends, routes: &[Route]) -> Following {
    let mut found = Following::default();
    for route in routes {
        let mut follows = route.segments.len() == 1;
        let ends_of = route.arcs.first().zip(route.arcs.last()).filter(|_| follows);
        if let Some((first, last)) = ends_of {
            let (from, to) = (topo.tail(*first), topo.head(*last));
            let beyond = |router| ends.egresses.iter().find(|egress| egress.router == router).map_or(0, |one| one.down);
            let cost = route.cost(topo) + beyond(to);
            for other in ends.egresses.iter().filter(|other| other.router != to) {
                let distance = finder.distance(from, other.router);
                if distance.is_some_and(|distance| distance + other.down <= cost) {
                    follows = false;
                    let path = finder.first_path(from, other.router).unwrap_or_default();
                    found.overtaken_by.extend(path.iter().map(|arc| arc.link()));
                }
            }
        }
        found.follows_igp.push(follows);
    }
    found.overtaken_by.sort_unstable();
    found.overtaken_by.dedup();
    found
}

impl Found {
    /// All links that the paths depend on, some of them more than once.
    fn links(&self) -> impl Iterator<Item = LinkId> {
        let back = self.set.back.iter().flat_map(|back| &back.arcs).map(|arc| arc.link());
        let searches = self.depends_on.iter().flatten().flat_map(|search| search.links.iter().chain(&search.shown));
        searches.chain(&self.overtaken_by).copied().chain(back)
    }

    /// The paths without these links, which the finder's network lacks; `None` if no path depends on them.
    fn detour(
        &self,
        finder: &mut PathFinder<Arc<Igp>>,
        topo: &Topology,
        ends: &Ends,
        down: &BTreeSet<LinkId>,
        max_paths: usize,
    ) -> Option<PathSet> {
        let any = |links: &[LinkId]| down.iter().any(|link| links.binary_search(link).is_ok());
        let mut stays = |search: &Dependencies| {
            !any(&search.links) && (!any(&search.shown) || search.refused.iter().all(|refusal| finder.refuses(refusal)))
        };
        let first = self.depends_on.iter().position(|round| !round.iter().all(&mut stays));
        let back_stays = !self.set.back.iter().flat_map(|back| &back.arcs).any(|arc| down.contains(&arc.link()));
        let following_stays = first.is_none() && !any(&self.overtaken_by);
        if following_stays && back_stays {
            return None;
        }
        let mut routes: Vec<Route> = self.set.routes.iter().take(first.unwrap_or(usize::MAX)).cloned().collect();
        if let Some(first) = first {
            finder.extend(&mut routes, ends, max_paths, first == self.set.routes.len());
        }
        let follows_igp = match following_stays {
            true => self.set.follows_igp.clone(),
            false => following(finder, topo, ends, &routes).follows_igp,
        };
        let back = if back_stays { self.set.back.clone() } else { back(finder, ends) };
        Some(PathSet { routes, follows_igp, back })
    }
}
