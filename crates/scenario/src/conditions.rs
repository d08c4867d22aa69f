//! The conditions of links during a run: events and impairments, merged in the order of time.
//!
//! A world asks [`Conditions::next_at`] when something changes next, and takes it with [`Conditions::advance`]. Each
//! [`Step`] has the new properties and state of the directions of links that change. Several causes may act on one
//! direction: it carries packets only if no cause forbids it, and their losses combine as independent losses.
//!
//! Routers notice only links that events take `down`. They notice neither a black hole nor an impairment's outage.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    fmt,
};

use super::{Change, Effect, Event, EventDirection, Scenario, Transition};
use sidestep_net::{ArcId, Channel, Direction, LinkId, LinkState, Ratio, Span};

/// The conditions of every link of a scenario, at one time of a run.
pub struct Conditions<'a> {
    scenario: &'a Scenario,
    /// The event that happens next.
    event: usize,
    processes: Vec<Process>,
    /// The next change of each process that has one, by time and then by number of the process.
    due: BinaryHeap<Reverse<(Span, usize)>>,
    arcs: Vec<ArcCauses>,
    failed: BTreeSet<LinkId>,
}

/// A change of the conditions: what one event, or one change of one impaired link, does.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, since the start of the run.
    pub at: Span,
    /// The cause.
    pub cause: Cause,
    /// The directions of links that it touches, with what they are from now on.
    pub arcs: Vec<ArcCondition>,
    /// Whether the set of links that have [failed](Conditions::failed) changed.
    pub routing: bool,
}

/// Why conditions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The event of this number in the scenario.
    Event(usize),
    /// The impairment of this number in the scenario.
    Impairment {
        /// The impairment.
        number: usize,
        /// Its link.
        link: LinkId,
        /// Whether a bad period begins; else a good one.
        bad: bool,
    },
}

/// The properties and the state of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArcCondition {
    /// The direction of a link.
    pub arc: ArcId,
    /// Its properties, the loss of impairments included.
    pub channel: Channel,
    /// Whether it carries packets.
    pub state: LinkState,
}

/// The causes that act on one direction of a link.
struct ArcCauses {
    /// Its properties, as the topology and the events have them.
    channel: Channel,
    /// Its state, as the events have it.
    state: LinkState,
    /// The impairments that are in a bad period.
    bad: BTreeSet<usize>,
}

/// One impairment of one link.
struct Process {
    number: usize,
    link: LinkId,
    /// The change that comes next.
    next: Option<Transition>,
    later: Box<dyn Iterator<Item = Transition> + Send>,
}

impl<'a> Conditions<'a> {
    /// The conditions at the start of a run of `scenario` under `seed`, before anything has changed.
    pub fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let topology = &scenario.topology;
        let arcs = (0..topology.arc_count() as u32).map(|arc| ArcCauses {
            channel: *topology.channel(ArcId(arc)),
            state: LinkState::Up,
            bad: BTreeSet::new(),
        });
        let mut processes = Vec::new();
        for (number, impairment) in scenario.impairments.iter().enumerate() {
            let links: BTreeSet<LinkId> = impairment.links.iter().copied().collect();
            processes.extend(links.into_iter().map(|link| {
                let mut later = Box::new(impairment.transitions(number, link, seed, scenario.duration));
                Process { number, link, next: later.next(), later }
            }));
        }
        let due = processes.iter().enumerate().filter_map(|(index, process)| Some(Reverse((process.next?.at, index))));
        let due = due.collect();
        Conditions { scenario, event: 0, arcs: arcs.collect(), failed: BTreeSet::new(), due, processes }
    }

    /// When the next change is, since the start of the run; `None`: there is none.
    pub fn next_at(&self) -> Option<Span> {
        let event = self.scenario.events.get(self.event).map(|event| event.at);
        let process = self.due.peek().map(|Reverse((at, _))| *at);
        event.into_iter().chain(process).min()
    }

    /// Makes the next change that is due at `now`; `None` if none is due any more.
    ///
    /// Changes at the same time are ordered: events first, in the order of the scenario, then impairments.
    pub fn advance(&mut self, now: Span) -> Option<Step> {
        let at = self.next_at().filter(|at| *at <= now)?;
        let scenario = self.scenario;
        match scenario.events.get(self.event).filter(|event| event.at == at) {
            Some(event) => Some(self.happen(event)),
            None => self.change(),
        }
    }

    /// The links that routers know to be unusable: those that an event has taken down in a direction or both.
    pub fn failed(&self) -> &BTreeSet<LinkId> {
        &self.failed
    }

    /// Whether events have taken a link down in both directions, so that its ends lose their carrier.
    pub fn is_cut(&self, link: LinkId) -> bool {
        let down = |direction| self.arcs[link.arc(direction).index()].state == LinkState::Down;
        down(Direction::AToB) && (down(Direction::BToA) || self.scenario.topology.is_one_way(link))
    }

    /// The present properties and state of one direction of a link.
    pub fn arc(&self, arc: ArcId) -> ArcCondition {
        let ArcCauses { mut channel, mut state, ref bad } = self.arcs[arc.index()];
        for number in bad {
            match self.scenario.impairments[*number].effect {
                Effect::Loss(loss) => channel.loss = either(channel.loss, loss),
                Effect::Outage if state == LinkState::Up => state = LinkState::Blackhole,
                Effect::Outage => {}
            }
        }
        ArcCondition { arc, channel, state }
    }

    fn happen(&mut self, event: &Event) -> Step {
        let cause = Cause::Event(self.event);
        self.event += 1;
        let (mut arcs, mut routing) = (Vec::new(), false);
        for link in &event.links {
            for direction in event.direction.directions() {
                let arc = link.arc(*direction);
                if !self.scenario.topology.has_arc(arc) {
                    continue;
                }
                let ArcCauses { channel, state, .. } = &mut self.arcs[arc.index()];
                match event.change {
                    Change::Down => *state = LinkState::Down,
                    Change::Up => *state = LinkState::Up,
                    Change::Blackhole => *state = LinkState::Blackhole,
                    Change::Rate(rate) => channel.rate = rate,
                    Change::Delay(delay) => channel.delay = delay,
                    Change::Loss(loss) => channel.loss = loss,
                }
                arcs.push(self.arc(arc));
            }
            let down = |direction| self.arcs[link.arc(direction).index()].state == LinkState::Down;
            routing |= match down(Direction::AToB) || down(Direction::BToA) {
                true => self.failed.insert(*link),
                false => self.failed.remove(link),
            };
        }
        Step { at: event.at, cause, arcs, routing }
    }

    fn change(&mut self) -> Option<Step> {
        let Reverse((at, index)) = self.due.pop()?;
        let process = self.processes.get_mut(index)?;
        let bad = process.next?.bad;
        process.next = process.later.next();
        let (number, link) = (process.number, process.link);
        self.due.extend(process.next.map(|next| Reverse((next.at, index))));
        let directions = self.scenario.impairments[number].direction.directions();
        let arcs = directions.iter().map(|direction| link.arc(*direction));
        let arcs = arcs.filter(|arc| self.scenario.topology.has_arc(*arc)).map(|arc| {
            let causes = &mut self.arcs[arc.index()].bad;
            if bad {
                causes.insert(number)
            } else {
                causes.remove(&number)
            };
            self.arc(arc)
        });
        let arcs = arcs.collect();
        Some(Step { at, cause: Cause::Impairment { number, link, bad }, arcs, routing: false })
    }
}

/// The probability that at least one of two independent losses happens.
fn either(one: Ratio, other: Ratio) -> Ratio {
    const WHOLE: u64 = 1_000_000_000;
    let passes = |loss: Ratio| WHOLE - u64::from(loss.ppb());
    let both_pass = (passes(one) * passes(other) + WHOLE / 2) / WHOLE;
    Ratio::from_ppb((WHOLE - both_pass) as u32)
}

impl EventDirection {
    /// The directions of a link that it names.
    pub fn directions(self) -> &'static [Direction] {
        match self {
            EventDirection::Both => &[Direction::AToB, Direction::BToA],
            EventDirection::Forward => &[Direction::AToB],
            EventDirection::Reverse => &[Direction::BToA],
        }
    }
}

impl fmt::Debug for Conditions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = self.next_at();
        f.debug_struct("Conditions").field("next_at", &next).field("failed", &self.failed).finish_non_exhaustive()
    }
}
