//! What is to happen at which time of a run: changes of links, starts and ends of programs.

use std::collections::BTreeSet;

use sidestep_linux::wire::{WireError, WireHandle};
use sidestep_net::{Direction, LinkId, Span};
use sidestep_scenario::{
    Change, Flow, Scenario,
    conditions::{ArcCondition, Conditions, Step},
};

use crate::traffic::Monotonic;

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The conditions of links change.
    Links(Step),
    /// Start the program of the flow with this number.
    Start(usize),
    /// End the program of the flow with this number.
    Stop(usize),
}

/// A link event that the lab has applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Made {
    /// When it was applied.
    pub at: Monotonic,
    /// When it was applied, counted from the start of the run.
    pub since_start: Span,
    /// The change of the link.
    pub change: Change,
}

/// The actions that are still to come.
#[derive(Debug)]
pub struct Timeline<'a> {
    /// Starts and ends of programs by descending time, so that the next is the last.
    programs: Vec<(Span, Action)>,
    conditions: Conditions<'a>,
    /// The condition last set on the wires for each arc; `cut` has the links without a carrier.
    arcs: Vec<ArcCondition>,
    cut: BTreeSet<LinkId>,
}

impl<'a> Timeline<'a> {
    /// The timeline of a scenario.
    pub fn new(scenario: &'a Scenario) -> Self {
        let mut programs = Vec::new();
        for (index, flow) in scenario.flows.iter().enumerate() {
            if let Flow::Exec(flow) = flow {
                programs.push((flow.start, Action::Start(index)));
                programs.extend(flow.stop.map(|stop| (stop, Action::Stop(index))));
            }
        }
        // Stable, so that what happens at the same time keeps the order of the file.
        programs.sort_by_key(|(at, _)| *at);
        programs.reverse();
        let conditions = Conditions::new(scenario, scenario.seed);
        let topology = &scenario.topology;
        let arcs = topology.link_ids().flat_map(|link| [link.arc(Direction::AToB), link.arc(Direction::BToA)]);
        let mut arcs: Vec<_> = arcs.map(|arc| conditions.arc(arc)).collect();
        arcs.sort_by_key(|condition| condition.arc);
        Timeline { programs, conditions, arcs, cut: BTreeSet::new() }
    }

    /// Takes the next action if its time has come; of actions at the same time, changes of links come first.
    pub fn next_due(&mut self, now: Span) -> Option<Action> {
        let program = self.programs.last().map(|(at, _)| *at);
        let links = self.conditions.next_at();
        if links.is_some_and(|links| program.is_none_or(|program| links <= program)) {
            return self.conditions.advance(now).map(Action::Links);
        }
        self.programs.pop_if(|(at, _)| *at <= now).map(|(_, action)| action)
    }

    /// When the next action is due; far away if there is none.
    pub fn next_at(&self) -> Span {
        let program = self.programs.last().map(|(at, _)| *at);
        program.into_iter().chain(self.conditions.next_at()).min().unwrap_or(Span::from_nanos(u64::MAX))
    }

    /// Applies a step's conditions to the wires.
    pub fn apply(&mut self, step: &Step, wires: &WireHandle) -> Result<(), WireError> {
        for condition in &step.arcs {
            let Some(known) = self.arcs.get_mut(condition.arc.index()) else { continue };
            if known.channel != condition.channel {
                wires.set_channel(condition.arc, condition.channel)?;
            }
            if known.state != condition.state {
                wires.set_state(condition.arc, condition.state)?;
            }
            *known = *condition;
            // A link that fails in one direction only keeps its carrier. So does a link that swallows packets.
            let link = condition.arc.link();
            let cut = self.conditions.is_cut(link);
            if cut != self.cut.contains(&link) {
                wires.set_carrier(link, !cut)?;
                if cut {
                    self.cut.insert(link)
                } else {
                    self.cut.remove(&link)
                };
            }
        }
        Ok(())
    }
}
