//! The connections that are open or close yet.

use std::{collections::BTreeMap, sync::Arc};

use sidestep_engine::{FlowId, World};
use sidestep_flow_hash::FlowKey;
use sidestep_proto::tcp::{Counters, Receiver, Sender};

use crate::{sr_paths::SrPath, steering::Steer, system::Setup};

/// A connection in progress.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) planned: usize,
    pub(super) system: Arc<Setup>,
    /// What routers hash of each of its flows: several of MPTCP.
    pub(super) keys: Vec<FlowKey>,
    /// The ports that it took from its host; none where that had no more.
    pub(super) taken: Vec<u16>,
    pub(super) mss: u16,
    /// The paths that it is moved among, and those back.
    pub(super) paths: Arc<[SrPath]>,
    pub(super) back: Arc<[SrPath]>,
    pub(super) acked_at_warmup: u64,
    /// Segments of each of its flows that were acknowledged by then.
    pub(super) subflows_at_warmup: Vec<u32>,
    pub(super) acked_at_sample: u64,
}

impl Open {
    /// Its flows; `first` is its first.
    pub(super) fn flows(&self, first: FlowId) -> impl Iterator<Item = FlowId> + Clone + use<> {
        (first.0..first.0 + self.keys.len() as u32).map(FlowId)
    }
}

/// The connections, by their first flow.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) open: BTreeMap<FlowId, Open>,
    /// Those that are recorded and close yet.
    pub(super) closing: BTreeMap<FlowId, Open>,
    /// What happened to TCP, where it counts that.
    counters: Option<Counters>,
}

impl Connections {
    /// The first flows of those that are open.
    pub(super) fn first_flows(&self) -> Vec<FlowId> {
        self.open.keys().copied().collect()
    }

    /// Takes note of what each has sent until the end of the warm-up.
    pub(super) fn note_warmup(&mut self, world: &World<Steer>) {
        for (flow, open) in &mut self.open {
            open.acked_at_warmup = world.acked_bytes(*flow);
            for (flow, before) in (flow.0..).map(FlowId).zip(&mut open.subflows_at_warmup) {
                *before = world.sender(flow).map_or(0, |sender| sender.una());
            }
        }
    }

    /// Adds what happened to the TCP of a connection that ends.
    pub(super) fn count(&mut self, world: &World<Steer>, first: FlowId, open: &Open) {
        let flows = || open.flows(first);
        let senders = flows().filter_map(|flow| world.sender(flow)).chain(world.server(first));
        let receiving = flows().chain(world.answers_of(first));
        let receivers = receiving.filter_map(|flow| world.receiver(flow));
        for counters in senders.filter_map(Sender::counters).chain(receivers.filter_map(Receiver::counters)) {
            self.counters.get_or_insert_default().add(&counters);
        }
    }

    /// What happened to the TCP of all that have ended, by name.
    pub(super) fn counted(&self) -> impl Iterator<Item = (String, u64)> {
        let counted = self.counters.iter().flat_map(Counters::named);
        counted.map(|(name, count)| (name.to_owned(), u64::from(count)))
    }
}
