//! Search for the cheapest path that a limited number of segments forces.

mod ahead;

use std::{cmp::Reverse, collections::BinaryHeap};

use sidestep_model::{ArcId, LinkId, NodeId};

use self::ahead::Ahead;
use crate::{
    Igp, SegmentRules,
    igp::Neighbour,
    spf::{Direction, Spfs},
};

/// Links that a path may no longer use, in either direction.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    taken: Vec<bool>,
    links: Vec<LinkId>,
}

/// A* from the destination, arc by arc, whose memory is reused.
///
/// A state is a node, the router that owns the SID in force there, and how many segments are used from there on. Two
/// facts keep it small and its result simple; both follow from any part of a unique shortest path being one itself:
///
/// - At one node, a state that is no cheaper and uses more segments than another is never better: whatever its SID can
///   still do, the other can do with one segment more.
/// - A loop never pays. Cut out of a walk, it leaves the rest of one segment, as a node segment, and the rest of a later
///   one: no more segments than before, and a lower cost, since weights are at least 1. (A loop within one adjacency
///   segment, to the tail and back over the arc, leaves one node segment.) So the cheapest walk is a simple path.
///
/// The bound is exact: the cost from the source over links that are free, which [`Ahead`] computes as far as a horizon.
/// What lies beyond it waits, and is looked at only if all that is nearer leads nowhere.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    ahead: Ahead,
    /// Up to this total cost all is known; `u64::MAX`: all there is.
    horizon: u64,
    /// By node: the states expanded there.
    expanded: Vec<Expanded>,
    states: Vec<State>,
    /// Indices of states by total cost, segments and age.
    queue: BinaryHeap<Reverse<(u64, usize, usize)>>,
    /// Indices of states beyond the horizon, by age.
    waiting: Vec<usize>,
    /// The state that the search ended with, or none if it found nothing.
    goal: Option<usize>,
    /// The states because of which others were not expanded.
    decisive: Vec<usize>,
    /// What was refused, with the total cost from which on that matters.
    refused: Vec<(u64, Refusal)>,
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
    cost: u64,
    /// Cost from the source to the destination this way; `u64::MAX` while that is not known, and of what nothing forces.
    total: u64,
    /// The arc from here and the state that it leads to; `None` at the destination.
    next: Option<(ArcId, usize)>,
    /// Whether dependencies have it.
    counted: bool,
}

#[derive(Clone, Debug, Default)]
struct Expanded {
    segments: usize,
    /// Owners of SIDs, each with its state.
    owners: Vec<(NodeId, usize)>,
}

/// A path that is not the only shortest one between two nodes: that towards (or from) `root` beginning (ending) with an
/// arc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub(crate) root: NodeId,
    pub(crate) arc: ArcId,
    pub(crate) direction: Direction,
}

/// What the result of a search depends on.
///
/// A failure only makes ways longer, and adds none but where a refusal falls. So the search goes the same way, in the same
/// order, as long as no link in `links` fails and all that was refused still is; that holds as long as no link in `shown`
/// fails either.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    /// Ascending: the arcs of the result, those of states because of which others were not expanded, and a cheapest way
    /// from the source to each.
    pub(crate) links: Vec<LinkId>,
    /// What was refused, each once.
    pub(crate) refused: Vec<Refusal>,
    /// Ascending: links of paths that show why.
    pub(crate) shown: Vec<LinkId>,
}

/// What a search is about.
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
            horizon: 0,
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

    /// The arcs of the cheapest walk; to be called after [`begin`](Self::begin).
    pub(crate) fn run(
        &mut self,
        igp: &Igp,
        spfs: &mut Spfs,
        rules: &SegmentRules,
        taken: &Taken,
        from: NodeId,
        to: NodeId,
    ) -> Option<Vec<ArcId>> {
        let mut task = Task { igp, spfs, rules, taken, from, to };
        // Without a free way at either end there is no need to look further.
        taken.free(igp, from).next().and(taken.free(igp, to).next())?;
        self.horizon = self.ahead.begin(&mut task)?;
        self.states.push(State {
            node: to,
            owner: to,
            segments: 1,
            cost: 0,
            total: self.horizon,
            next: None,
            counted: false,
        });
        self.queue.push(Reverse((self.horizon, 1, 0)));
        loop {
            match self.queue.peek() {
                Some(Reverse((total, ..))) if *total <= self.horizon => {}
                _ if self.horizon < u64::MAX => {
                    self.widen(&mut task);
                    continue;
                }
                None => return None,
                Some(_) => {}
            }
            let Reverse((_, _, index)) = self.queue.pop()?;
            let state = self.states[index];
            if state.node == from {
                self.goal = Some(index);
                let next = |(_, state): &(ArcId, usize)| self.states[*state].next;
                return Some(std::iter::successors(state.next, next).map(|(arc, _)| arc).collect());
            }
            if self.is_new(&state, index) {
                self.expand(&mut task, index, state);
            }
        }
    }

    /// Adds what was refused when the result's segment list was made.
    pub(crate) fn refuse(&mut self, refused: impl Iterator<Item = Refusal>) {
        self.refused.extend(refused.map(|refusal| (0, refusal)));
    }

    /// What the last result depends on.
    pub(crate) fn dependencies(&mut self, igp: &Igp, spfs: &mut Spfs) -> Dependencies {
        let reached = self.goal.map_or(u64::MAX, |goal| self.states[goal].total);
        let mut found = Dependencies::default();
        self.links(igp, reached, &mut found.links);
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

    /// The links of the states that decided, and of ways there.
    fn links(&mut self, igp: &Igp, reached: u64, links: &mut Vec<LinkId>) {
        let mut marks = Marks { marked: &mut self.marked, links };
        // The way to a state on the cheapest path leads along it, if nothing kept that from being the cheapest of all.
        let before = |state: &State| state.next.map(|(_, behind)| behind);
        let mut at = self.goal;
        while let Some(index) = at {
            if self.states[index].total == reached {
                self.ahead.pass(self.states[index].node);
            }
            at = before(&self.states[index]);
        }
        for index in self.goal.iter().chain(&self.decisive) {
            let mut at = Some(*index);
            while let Some(index) = at.filter(|index| !std::mem::replace(&mut self.states[*index].counted, true)) {
                let state = &self.states[index];
                state.next.into_iter().for_each(|(arc, _)| marks.add(arc));
                self.ahead.retrace(igp, state.node, |arc| marks.add(arc));
                at = before(state);
            }
        }
        marks.finish();
    }

    /// Whether no state expanded before at the same node is as good; remembers this one if so.
    fn is_new(&mut self, state: &State, index: usize) -> bool {
        let seen = &mut self.expanded[state.node.index()];
        if seen.owners.is_empty() || state.segments < seen.segments {
            seen.segments = state.segments;
            seen.owners.clear();
            seen.owners.push((state.owner, index));
            return true;
        }
        // A SID of the node itself can do all that another can.
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
        for near in taken.free(igp, state.node) {
            let tail = near.node;
            if !igp.is_router(tail) && tail != task.from {
                continue;
            }
            let cost = state.cost + u64::from(near.back);
            let next = Some((near.arc.reversed(), index));
            self.states.push(State { node: tail, cost, total: u64::MAX, next, ..state });
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

    /// The SID that takes a packet over the first arc of a state, and how many there then are: the one in force behind it
    /// where that does, else one more.
    fn force(&mut self, task: &mut Task<'_>, total: u64, state: &State) -> Option<(NodeId, usize)> {
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
    fn forces(&mut self, task: &mut Task<'_>, total: u64, arc: ArcId, owner: NodeId) -> bool {
        let forces = task.spfs.of(task.igp, owner, Direction::Toward).forces(task.igp, arc);
        if !forces {
            self.refused.push((total, Refusal { root: owner, arc, direction: Direction::Toward }));
        }
        forces
    }

    /// Looks further.
    fn widen(&mut self, task: &mut Task<'_>) {
        let further = self.horizon.saturating_add(self.horizon / 8 + 1);
        self.horizon = self.ahead.next().map_or(u64::MAX, |next| next.max(further));
        self.ahead.settle(task, self.horizon);
        for index in std::mem::take(&mut self.waiting) {
            self.look(task, index);
        }
    }
}
