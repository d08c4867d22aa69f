//! What happened to the TCP of a run, by the kernel's names.

use super::simulation::Simulation;
use crate::engine::FlowId;

impl Simulation<'_> {
    /// Counts what happened to a connection's flows, which are over.
    pub(super) fn count_events(&mut self, flows: impl Iterator<Item = u32>) {
        for flow in flows {
            if let Some(counters) = self.world.sender(FlowId(flow)).and_then(|sender| sender.counters()) {
                self.counters.get_or_insert_default().add(&counters);
            }
        }
    }
}
