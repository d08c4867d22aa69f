//! What events and impairments do to links.

use std::collections::BTreeSet;

use sidestep_engine::Network;
use sidestep_net::{ArcId, Channel, LinkId, Span, Time, Topology};
use sidestep_scenario::{
    Scenario,
    conditions::{ArcCondition, Conditions},
};

/// The conditions of links, and the channels that the network has by them.
pub(super) struct Links<'a> {
    conditions: Conditions<'a>,
    channels: Vec<Channel>,
}

impl<'a> Links<'a> {
    /// As they are before anything happens.
    pub(super) fn new(scenario: &'a Scenario, topology: &Topology, seed: u64) -> Self {
        let channels = (0..topology.arc_count() as u32).map(|arc| *topology.channel(ArcId(arc))).collect();
        Links { conditions: Conditions::new(scenario, seed), channels }
    }

    /// How long after the start something happens next.
    pub(super) fn next_at(&self) -> Option<Span> {
        self.conditions.next_at()
    }

    /// The links that are down.
    pub(super) fn failed(&self) -> &BTreeSet<LinkId> {
        self.conditions.failed()
    }

    /// Does to links what happens until now; returns how often routers have to find other routes.
    pub(super) fn change(&mut self, now: Time, network: &mut Network) -> usize {
        let mut converge = 0;
        while let Some(step) = self.conditions.advance(now.since(Time::ZERO)) {
            for ArcCondition { arc, channel, state } in step.arcs {
                if network.state(arc) != Some(state) {
                    network.set_state(now, arc, state);
                }
                if self.channels[arc.index()] != channel {
                    self.channels[arc.index()] = channel;
                    network.set_channel(now, arc, &channel);
                }
            }
            converge += usize::from(step.routing);
        }
        converge
    }
}
