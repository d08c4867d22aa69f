//! What is to happen at which time of a run: changes of links, starts and ends of programs.

use sidestep_linux::wire::{WireError, WireHandle};
use sidestep_model::{
    ArcId, Channel, Direction, Scenario, Span,
    scenario::{Change, Event, EventDirection, Flow},
};
use sidestep_proto::link::LinkState;

use crate::traffic::Monotonic;

/// Something to do; the numbers are positions in the scenario's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The event with this number.
    Link(usize),
    /// Start the program of the flow with this number.
    Start(usize),
    /// End it.
    Stop(usize),
}

/// An event that was made to happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Made {
    /// When.
    pub at: Monotonic,
    /// The same, since the start of the run.
    pub since_start: Span,
    /// What.
    pub change: Change,
}

/// The actions that are still to come.
#[derive(Debug)]
pub struct Timeline {
    /// By descending time, so that the next is the last.
    actions: Vec<(Span, Action)>,
    /// The present properties of each arc.
    channels: Vec<Channel>,
}

impl Timeline {
    /// The timeline of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let mut actions: Vec<_> =
            scenario.events.iter().enumerate().map(|(index, event)| (event.at, Action::Link(index))).collect();
        for (index, flow) in scenario.flows.iter().enumerate() {
            if let Flow::Exec(flow) = flow {
                actions.push((flow.start, Action::Start(index)));
                actions.extend(flow.stop.map(|stop| (stop, Action::Stop(index))));
            }
        }
        // Stable, so that what happens at the same time keeps the order of the file.
        actions.sort_by_key(|(at, _)| *at);
        actions.reverse();
        let topology = &scenario.topology;
        let channels = (0..topology.arc_count() as u32).map(|arc| *topology.channel(ArcId(arc))).collect();
        Timeline { actions, channels }
    }

    /// Takes the next action if its time has come.
    pub fn next_due(&mut self, now: Span) -> Option<Action> {
        self.actions.pop_if(|(at, _)| *at <= now).map(|(_, action)| action)
    }

    /// When the next action is due; far away if there is none.
    pub fn next_at(&self) -> Span {
        self.actions.last().map_or(Span::from_nanos(u64::MAX), |(at, _)| *at)
    }

    /// Makes an event happen.
    pub fn change(&mut self, event: &Event, wires: &WireHandle) -> Result<(), WireError> {
        let directions: &[Direction] = match event.direction {
            EventDirection::Both => &[Direction::AToB, Direction::BToA],
            EventDirection::Forward => &[Direction::AToB],
            EventDirection::Reverse => &[Direction::BToA],
        };
        for link in &event.links {
            for direction in directions {
                self.change_arc(link.arc(*direction), event.change, wires)?;
            }
            // A link that is dead one way still has its carrier, and so has one that is silent.
            match (event.change, event.direction) {
                (Change::Down, EventDirection::Both) => wires.set_carrier(*link, false)?,
                (Change::Up, _) => wires.set_carrier(*link, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn change_arc(&mut self, arc: ArcId, change: Change, wires: &WireHandle) -> Result<(), WireError> {
        match change {
            Change::Down => return wires.set_state(arc, LinkState::Down),
            Change::Up => return wires.set_state(arc, LinkState::Up),
            Change::Blackhole => return wires.set_state(arc, LinkState::Blackhole),
            Change::Rate(rate) => self.channels[arc.index()].rate = rate,
            Change::Delay(delay) => self.channels[arc.index()].delay = delay,
            Change::Loss(loss) => self.channels[arc.index()].loss = loss,
        }
        wires.set_channel(arc, self.channels[arc.index()])
    }
}
