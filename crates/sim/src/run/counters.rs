//! What happened to the TCP of a run, by the kernel's names, as a remark on its results.

use sidestep_proto::tcp::Counters;

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

/// The counters that are not zero, as `/proc/net/netstat` has them.
pub(super) fn remark(counters: &Counters) -> String {
    let counted: Vec<String> =
        counters.named().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
    format!("TCP as Linux counts it: {}", if counted.is_empty() { "nothing".into() } else { counted.join(", ") })
}
