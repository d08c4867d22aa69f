//! Search for the cheapest path that a limited number of segments forces.

mod ahead;
mod within;

use std::{cmp::Reverse, collections::BinaryHeap};

use sidestep_net::{ArcId, LinkId, NodeId};

use self::{ahead::Ahead, within::Within};
use crate::{
    Igp, Route, Segment, SegmentRules,
    cost::Cost,
    igp::Neighbour,
    segments,
    spf::{Direction, Spfs},
};

/// Links that a path may no longer use, in either direction.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    taken: Vec<bool>,
    links: Vec<LinkId>,
}

/// Finds the cheapest path within the rules; its memory is reused.
///
/// It takes three steps. An A* from the source finds the cheapest path over free links, which most often is the answer.
/// If that path needs too many segments, [`Within`] decides whether any path needs few enough. Only if one does, a
/// second A*, from the destination and arc by arc, looks for the cheapest of these.
///
/// A state of the second A* is a node, the router that owns the SID in force there, and the number of segments used
/// from there on. Any part of a unique shortest path is itself a unique shortest path. Two facts follow from that:
///
/// - At one node, a state that is no cheaper and uses more segments than another is never better: the other state can
///   do whatever its SID can still do, with one more segment.
/// - A loop never pays. Cut a loop out of a walk. What is left is the rest of one segment, as a node segment, and the
///   rest of a later one: no more segments than before, at a lower cost, because weights are at least 1. (A loop within
///   one adjacency segment, to the tail and back over the arc, leaves one node segment.) So the cheapest walk is a
///   simple path.
///
/// The bound of the second A* is exact: it is the cost from the source over free links, which [`Ahead`] computes up to
/// a horizon. States beyond the horizon wait until no nearer state is left.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    ahead: Ahead,
    within: Within,
    /// The horizon: all costs up to this total are known; [`Cost::MAX`] if all costs are.
    horizon: Cost,
    /// By node: the states expanded there.
    expanded: Vec<Expanded>,
    states: Vec<State>,
    /// Indices of states by total cost, segments and age.
    queue: BinaryHeap<Reverse<(Cost, usize, usize)>>,
    /// Indices of states beyond the horizon, by age.
    waiting: Vec<usize>,
    /// The state that the search ended with, or none if it found nothing.
    goal: Option<usize>,
    /// The states because of which others were not expanded.
    decisive: Vec<usize>,
    /// The refusals, each with the total cost from which on it matters.
    refused: Vec<(Cost, Refusal)>,
    /// By link, while dependencies are collected.
    marked: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    node: NodeId,
    /// The router that owns the SID in force.
    owner: NodeId,
    /// Segments used from here to the destination.
    segments: usize,
    /// Cost from here to the destination.
    cost: Cost,
    /// Total cost from the source to the destination through this state; [`Cost::MAX`] while it is unknown or if no
    /// segment list forces the path.
    total: Cost,
    /// The arc from here and the state that it leads to; `None` at the destination.
    next: Option<(ArcId, usize)>,
    /// Whether it is already among the dependencies.
    counted: bool,
}

#[derive(Clone, Debug, Default)]
struct Expanded {
    segments: usize,
    /// Owners of SIDs, each with its state.
    owners: Vec<(NodeId, usize)>,
}

/// A path that was refused because it is not the only shortest one between two nodes. It leads towards `root` and
/// begins with an arc, or it leads from `root` and ends with an arc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub(crate) root: NodeId,
    pub(crate) arc: ArcId,
    pub(crate) direction: Direction,
}

/// What the result of a search depends on.
///
/// A failure removes paths. It adds a path only where it makes a refusal untrue. So the result stays the cheapest path
/// within the rules as long as no link in `links` fails and every refusal still holds; a refusal holds as long as no
/// link in `shown` fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    /// Ascending: the arcs of the result, and those of states because of which others were not expanded.
    pub(crate) links: Vec<LinkId>,
    /// The refusals, each once.
    pub(crate) refused: Vec<Refusal>,
    /// Ascending: the links of the paths that prove the refusals.
    pub(crate) shown: Vec<LinkId>,
}

/// The question that a search answers.
struct Task<'t> {
    igp: &'t Igp,
    spfs: &'t mut Spfs,
    rules: &'t SegmentRules,
    taken: &'t Taken,
    from: NodeId,
    to: NodeId,
}

impl Taken {
    pub(crate) fn new(igp: &Igp) -> Self {
        Taken { taken: vec![false; igp.link_count()], links: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.links.drain(..).for_each(|link| self.taken[link.index()] = false);
    }

    pub(crate) fn take(&mut self, arc: ArcId) {
        self.taken[arc.link().index()] = true;
        self.links.push(arc.link());
    }

    /// Whether the arc's link is taken.
    pub(crate) fn has(&self, arc: ArcId) -> bool {
        self.taken[arc.link().index()]
    }

    /// The free links of a node.
    fn free<'i>(&self, igp: &'i Igp, node: NodeId) -> impl Iterator<Item = &'i Neighbour> {
        igp.neighbours(node).iter().filter(|near| !self.taken[near.arc.link().index()])
    }
}

/// Collects links, each once.
struct Marks<'m> {
    marked: &'m mut [bool],
    links: &'m mut Vec<LinkId>,
}

impl Marks<'_> {
    fn add(&mut self, arc: ArcId) {
        if !std::mem::replace(&mut self.marked[arc.link().index()], true) {
            self.links.push(arc.link());
        }
    }

    fn finish(self) {
        self.links.sort_unstable();
        self.links.iter().for_each(|link| self.marked[link.index()] = false);
    }
}

impl Search {
    pub(crate) fn new(igp: &Igp) -> Self {
        Search {
            ahead: Ahead::new(igp),
            within: Within::new(igp),
            horizon: Cost::ZERO,
            expanded: vec![Expanded::default(); igp.node_count()],
            states: Vec::new(),
            queue: BinaryHeap::new(),
            waiting: Vec::new(),
            goal: None,
            decisive: Vec::new(),
            refused: Vec::new(),
            marked: vec![false; igp.link_count()],
        }
    }

    /// The cheapest path over links that are not taken, among those that a list within the rules forces.
    ///
    /// Its dependencies are recorded only if `watched`.
    pub(crate) fn run(
        &mut self,
        igp: &Igp,
        spfs: &mut Spfs,
        rules: &SegmentRules,
        taken: &Taken,
        (from, to): (NodeId, NodeId),
        watched: bool,
    ) -> Option<Route> {
        self.begin();
        let mut task = Task { igp, spfs, rules, taken, from, to };
        // Without a free link at either end there is no need to search.
        taken.free(igp, from).find(|near| near.leads).and(taken.free(igp, to).find(|near| near.comes))?;
        if taken.links.is_empty()
            && let Some(arcs) = only_path(&mut task)
        {
            return Some(Route { arcs, segments: vec![Segment::Node(to)] });
        }
        self.horizon = self.ahead.begin(&mut task)?;
        let arcs = self.ahead.path(igp, to);
        if let Some(route) = self.route(&mut task, arcs) {
            return Some(route);
        }
        if !self.within.any(&mut task, watched) {
            self.refused.extend(self.within.refused.drain(..).map(|refusal| (Cost::ZERO, refusal)));
            return None;
        }
        let arcs = self.cheapest(&mut task)?;
        self.route(&mut task, arcs)
    }

    /// Whether there is such a path.
    pub(crate) fn finds_any(
        &mut self,
        igp: &Igp,
        spfs: &mut Spfs,
        rules: &SegmentRules,
        taken: &Taken,
        (from, to): (NodeId, NodeId),
    ) -> bool {
        self.within.any(&mut Task { igp, spfs, rules, taken, from, to }, false)
    }

    /// The dependencies of the last result, which must be this one.
    pub(crate) fn dependencies(&mut self, igp: &Igp, spfs: &mut Spfs, route: Option<&Route>) -> Dependencies {
        let mut found = Dependencies::default();
        self.links(route, &mut found.links);
        let reached = self.goal.map_or(Cost::MAX, |goal| self.states[goal].total);
        let relevant = self.refused.iter().filter(|(total, _)| *total <= reached);
        found.refused.extend(relevant.map(|(_, refusal)| *refusal));
        found.refused.sort_unstable();
        found.refused.dedup();
        let mut marks = Marks { marked: &mut self.marked, links: &mut found.shown };
        for refusal in &found.refused {
            spfs.of(igp, refusal.root, refusal.direction).witness(igp, refusal.arc, |arc| marks.add(arc));
        }
        marks.finish();
        found
    }

    /// Forgets the last search.
    pub(crate) fn begin(&mut self) {
        for state in self.states.drain(..) {
            self.expanded[state.node.index()].owners.clear();
        }
        self.ahead.clear();
        self.queue.clear();
        self.waiting.clear();
        self.decisive.clear();
        self.refused.clear();
        self.goal = None;
    }

    /// A path with the list that forces it, if that is within the rules.
    fn route(&mut self, task: &mut Task<'_>, arcs: Vec<ArcId>) -> Option<Route> {
        let heads = arcs.iter().map(|arc| task.igp.arc(*arc).head);
        let stops: Vec<NodeId> = [task.from].into_iter().chain(heads).collect();
        let mut refused = Vec::new();
        let segments = segments::list(task.igp, task.spfs, &stops, &arcs, task.rules, &mut refused).ok()?;
        let refusal = |(root, arc)| (Cost::ZERO, Refusal { root, arc, direction: Direction::From });
        self.refused.extend(refused.into_iter().map(refusal));
        Some(Route { arcs, segments })
    }

    /// The arcs of the cheapest walk that a list forces; called where no list forces the cheapest of all.
    fn cheapest(&mut self, task: &mut Task<'_>) -> Option<Vec<ArcId>> {
        let (node, total) = (task.to, self.horizon);
        let end = State { node, owner: node, segments: 1, cost: Cost::ZERO, total, next: None, counted: false };
        self.states.push(end);
        self.queue.push(Reverse((total, 1, 0)));
        loop {
            match self.queue.peek() {
                Some(Reverse((total, ..))) if *total <= self.horizon => {}
                _ if self.horizon < Cost::MAX => {
                    self.widen(task);
                    continue;
                }
                None => return None,
                Some(_) => {}
            }
            let Reverse((_, _, index)) = self.queue.pop()?;
            let state = self.states[index];
            if state.node == task.from {
                self.goal = Some(index);
                let next = |(_, state): &(ArcId, usize)| self.states[*state].next;
                return Some(std::iter::successors(state.next, next).map(|(arc, _)| arc).collect());
            }
            if self.is_new(&state, index) {
                self.expand(task, index, state);
            }
        }
    }

    /// The links of a route and of the states that decided.
    fn links(&mut self, route: Option<&Route>, links: &mut Vec<LinkId>) {
        let mut marks = Marks { marked: &mut self.marked, links };
        route.iter().flat_map(|route| &route.arcs).for_each(|arc| marks.add(*arc));
        for index in &self.decisive {
            let mut at = Some(*index);
            while let Some(index) = at.filter(|index| !std::mem::replace(&mut self.states[*index].counted, true)) {
                let next = self.states[index].next;
                next.into_iter().for_each(|(arc, _)| marks.add(arc));
                at = next.map(|(_, behind)| behind);
            }
        }
        marks.finish();
    }

    /// Remembers a state and returns true, unless a state expanded before at the same node is as good.
    fn is_new(&mut self, state: &State, index: usize) -> bool {
        let seen = &mut self.expanded[state.node.index()];
        if seen.owners.is_empty() || state.segments < seen.segments {
            seen.segments = state.segments;
            seen.owners.clear();
            seen.owners.push((state.owner, index));
            return true;
        }
        // The node's own SID can do all that another SID can.
        let as_good = |(owner, _): &&(NodeId, usize)| {
            state.segments > seen.segments || *owner == state.node || *owner == state.owner
        };
        match seen.owners.iter().find(as_good) {
            Some((_, other)) => self.decisive.push(*other),
            None => seen.owners.push((state.owner, index)),
        }
        seen.owners.last().is_some_and(|(_, last)| *last == index)
    }

    /// Steps back over every free arc.
    fn expand(&mut self, task: &mut Task<'_>, index: usize, state: State) {
        let (igp, taken) = (task.igp, task.taken);
        for near in taken.free(igp, state.node).filter(|near| near.comes) {
            let tail = near.node;
            if !igp.is_router(tail) && tail != task.from {
                continue;
            }
            let cost = state.cost + near.cost_back();
            let next = Some((near.arc.reversed(), index));
            self.states.push(State { node: tail, cost, total: Cost::MAX, next, ..state });
            self.look(task, self.states.len() - 1);
        }
    }

    /// Queues a state, or lets it wait where it lies beyond the horizon.
    fn look(&mut self, task: &mut Task<'_>, index: usize) {
        let state = self.states[index];
        match self.ahead.cost(state.node).map(|before| before + state.cost) {
            Some(total) if total <= self.horizon => {
                if let Some((owner, segments)) = self.force(task, total, &state) {
                    self.states[index] = State { owner, segments, total, ..state };
                    self.queue.push(Reverse((total, segments, index)));
                }
            }
            _ => self.waiting.push(index),
        }
    }

    /// The owner of the SID that takes a packet over the first arc of a state, and the number of segments from there
    /// on. The SID in force behind the arc is used if it suffices; else there is one segment more.
    fn force(&mut self, task: &mut Task<'_>, total: Cost, state: &State) -> Option<(NodeId, usize)> {
        let (arc, behind) = state.next?;
        let State { node: head, owner, segments, .. } = self.states[behind];
        let more = segments + 1;
        if self.forces(task, total, arc, owner) {
            return Some((owner, segments));
        }
        if more > task.rules.max_segments {
            return None;
        }
        if task.rules.adjacency && task.igp.is_router(state.node) {
            return Some((state.node, more));
        }
        (owner != head && self.forces(task, total, arc, head)).then_some((head, more))
    }

    /// Whether the only shortest path to the owner of a SID begins with an arc.
    fn forces(&mut self, task: &mut Task<'_>, total: Cost, arc: ArcId, owner: NodeId) -> bool {
        let forces = task.spfs.of(task.igp, owner, Direction::Toward).forces(task.igp, arc);
        if !forces {
            self.refused.push((total, Refusal { root: owner, arc, direction: Direction::Toward }));
        }
        forces
    }

    /// Looks further.
    fn widen(&mut self, task: &mut Task<'_>) {
        let further = self.horizon.further();
        self.horizon = self.ahead.next().map_or(Cost::MAX, |next| next.max(further));
        self.ahead.settle(task, self.horizon);
        for index in std::mem::take(&mut self.waiting) {
            self.look(task, index);
        }
    }
}

/// The path of the IGP, if there is but one.
fn only_path(task: &mut Task<'_>) -> Option<Vec<ArcId>> {
    let spf = task.spfs.of(task.igp, task.to, Direction::Toward);
    let mut hop = spf.hop(task.igp, task.from).filter(|hop| hop.unique)?;
    let mut arcs = vec![hop.next];
    loop {
        let at = task.igp.arc(hop.next).head;
        if at == task.to {
            return Some(arcs);
        }
        hop = spf.hop(task.igp, at)?;
        arcs.push(hop.next);
    }
}
