//! How much memory a run may take, before it does.

use sidestep_net::{ArcId, QueueLimit};
use sidestep_scenario::{Flow, Scenario};

/// Memory of a flow with its records, of an arc, and of a packet wherever it is, in bytes; rounded up from measurements.
const FLOW: f64 = 1_500.0;
const ARC: f64 = 600.0;
const PACKET: f64 = 64.0 + 24.0 + 16.0;
/// A full packet, in bytes.
const FULL: f64 = 1_500.0;

/// About how many bytes one seed of one system takes at most.
///
/// Packets are bounded twice: by what links and their queues hold, and by what windows let be in flight.
pub fn estimate(scenario: &Scenario) -> u64 {
    let flows: f64 = scenario
        .flows
        .iter()
        .map(|flow| match flow {
            Flow::Bulk(flow) => flow.pairs.len() as f64 * f64::from(flow.connections),
            Flow::OpenLoop(flow) => flow.expected(scenario.duration),
            Flow::ClosedLoop(flow) => flow.pairs.len() as f64 * f64::from(flow.users),
            Flow::Cbr(flow) => flow.pairs.len() as f64,
            Flow::Exec(_) => 0.0,
        })
        .sum();
    let topology = &scenario.topology;
    let held = |arc: u32| {
        let channel = topology.channel(ArcId(arc));
        let queue = match channel.queue.limit {
            QueueLimit::Packets(packets) => f64::from(packets),
            QueueLimit::Bytes(bytes) => bytes.get() as f64 / FULL,
        };
        queue + channel.rate.bits_per_sec() as f64 / 8.0 * channel.delay.as_secs_f64() / FULL
    };
    let on_links: f64 = (0..topology.arc_count() as u32).map(held).sum();
    let in_windows = flows * scenario.tcp.receive_window.get() as f64 / FULL;
    (flows * FLOW + topology.arc_count() as f64 * ARC + on_links.min(in_windows) * PACKET) as u64
}
