//! What an INRPP router exports to Prometheus.

use sidestep_hostd::{Labels, Metric, Page};

use super::status::{InrppStatus, Mode, PortKind, PortState, PortStatus};

const ALIVE: Metric = Metric::gauge("sidestep_inrpp_neighbour_alive", "Whether the neighbour at the port sends hellos");
const RATE: Metric =
    Metric::gauge("sidestep_inrpp_rate_bits_per_second", "The capacity of the port's link that the router goes by");
const CACHE: Metric = Metric::gauge("sidestep_inrpp_cache_bytes", "Bytes that wait at the port");
const ROOM: Metric = Metric::gauge("sidestep_inrpp_cache_room_bytes", "Bytes that may wait at the port");
const PRESSES: Metric =
    Metric::gauge("sidestep_inrpp_presses_back", "Whether the port makes those before it send less");
const FLOWS: Metric = Metric::gauge("sidestep_inrpp_flows", "Flows of which something waits at the port");
const PACKETS: Metric = Metric::counter("sidestep_inrpp_packets", "Packets by port and direction (sent, received)");
const BYTES: Metric = Metric::counter("sidestep_inrpp_bytes", "Bytes of these packets");
const STORED: Metric = Metric::counter("sidestep_inrpp_stored", "Packets that have waited at the port");
const DETOURED: Metric = Metric::counter("sidestep_inrpp_detoured", "Packets that were sent around the port's link");
const DROPPED: Metric =
    Metric::counter("sidestep_inrpp_dropped", "Packets that the port had no room for, by protocol (tcp, other)");
const DETOUR_RATE: Metric =
    Metric::gauge("sidestep_inrpp_detour_rate_bits_per_second", "What the detour around the port's link takes now");
const REFUSED: Metric =
    Metric::counter("sidestep_inrpp_refused", "Datagrams at the port that were not believed, by the reason");
const PASSED: Metric = Metric::counter(
    "sidestep_inrpp_passed",
    "Packets that left by the interface, by what its program did: diverted, or passed for a reason",
);
const CONNECTIONS: Metric = Metric::gauge("sidestep_inrpp_connections", "TCP connections that are known");
const LEFT_ALONE: Metric = Metric::counter(
    "sidestep_inrpp_connections_left_alone",
    "TCP connections that no window is lowered of: refused (table full), unscaled (older than the router), multipath (MPTCP)",
);
const WINDOWS: Metric = Metric::counter(
    "sidestep_inrpp_changes",
    "ACKs whose window was lowered (window), SYNs whose MSS was (mss), ACKs of the router's own (update)",
);
const RESEQUENCED: Metric = Metric::counter(
    "sidestep_inrpp_resequenced",
    "Packets that waited for those before them: restored, timed_out, overflowed",
);
const MEMORY: Metric = Metric::gauge("sidestep_inrpp_memory_bytes", "Memory of packets that wait, and of connections");
const DIVERTS: Metric = Metric::gauge("sidestep_inrpp_diverts", "Whether packets are diverted, and do not pass");
const DRY_RUN: Metric = Metric::gauge("sidestep_inrpp_dry_run", "Whether nothing is ever diverted");
const FAULTS: Metric = Metric::counter("sidestep_inrpp_faults", "Errors after which the router went on");

/// Every metric of an INRPP router.
pub const INRPP_METRICS: &[Metric] = &[
    ALIVE,
    RATE,
    CACHE,
    ROOM,
    PRESSES,
    FLOWS,
    PACKETS,
    BYTES,
    STORED,
    DETOURED,
    DROPPED,
    DETOUR_RATE,
    REFUSED,
    PASSED,
    CONNECTIONS,
    LEFT_ALONE,
    WINDOWS,
    RESEQUENCED,
    MEMORY,
    DIVERTS,
    DRY_RUN,
    FAULTS,
];

/// The page that Prometheus gets.
pub(super) fn page(status: &InrppStatus, faults: u64) -> Page {
    let mut page = Page::default();
    add_ports(&mut page, &status.ports);
    let connections = &status.connections;
    page.one(CONNECTIONS, connections.tracked as f64);
    let mut counts = |metric, key, counts: &[(&str, u64)]| {
        page.each(metric, counts.iter().map(|(name, count)| (vec![(key, name.to_string())], *count as f64)));
    };
    let left =
        [("refused", connections.refused), ("unscaled", connections.unscaled), ("multipath", connections.multipath)];
    counts(LEFT_ALONE, "why", &left);
    let changes = [
        ("window", connections.clamped_acks),
        ("mss", connections.mss_clamped),
        ("update", connections.window_updates),
    ];
    counts(WINDOWS, "what", &changes);
    let order = &status.resequence;
    let waited = [("restored", order.restored), ("timed_out", order.timed_out), ("overflowed", order.overflowed)];
    counts(RESEQUENCED, "what", &waited);
    page.one(MEMORY, status.memory_bytes as f64);
    page.one(DIVERTS, (status.mode == Mode::Divert && !status.dry_run).into());
    page.one(DRY_RUN, status.dry_run.into());
    page.one(FAULTS, faults as f64);
    page
}

fn add_ports(page: &mut Page, ports: &[PortStatus]) {
    let of = |port: &PortStatus| -> Labels { vec![("interface", port.interface.clone())] };
    let with = |port: &PortStatus, key: &'static str, value: &str| -> Labels {
        vec![("interface", port.interface.clone()), (key, value.to_string())]
    };
    let neighbours = || ports.iter().filter(|port| port.kind == PortKind::Neighbour);
    let named = |port: &PortStatus| with(port, "neighbour", port.neighbour.as_deref().unwrap_or_default());
    page.each(ALIVE, neighbours().map(|port| (named(port), (port.state == PortState::Alive).into())));
    page.each(RATE, ports.iter().map(|port| (of(port), port.rate_mbps * 1e6)));
    page.each(CACHE, ports.iter().map(|port| (of(port), port.cache_bytes as f64)));
    page.each(ROOM, ports.iter().map(|port| (of(port), port.cache_room as f64)));
    page.each(PRESSES, ports.iter().map(|port| (of(port), (port.pressing == "backpressure").into())));
    page.each(FLOWS, ports.iter().map(|port| (of(port), port.flows as f64)));
    let directions = |sent: u64, received: u64| [("sent", sent), ("received", received)];
    let each = |port: &PortStatus, key: &'static str, counts: &[(&'static str, u64)]| -> Vec<(Labels, f64)> {
        counts.iter().map(|(name, count)| (with(port, key, name), *count as f64)).collect()
    };
    let packets = |port: &PortStatus| each(port, "direction", &directions(port.sent_packets, port.received_packets));
    page.each(PACKETS, ports.iter().flat_map(packets));
    let bytes = |port: &PortStatus| each(port, "direction", &directions(port.sent_bytes, port.received_bytes));
    page.each(BYTES, ports.iter().flat_map(bytes));
    page.each(STORED, ports.iter().map(|port| (of(port), port.stored as f64)));
    page.each(DETOURED, ports.iter().map(|port| (of(port), port.detoured as f64)));
    let dropped = |port: &PortStatus| {
        each(port, "protocol", &[("tcp", port.dropped), ("other", port.dropped_others), ("late", port.lost)])
    };
    page.each(DROPPED, ports.iter().flat_map(dropped));
    let detours = |port: &PortStatus| -> Vec<(Labels, f64)> {
        port.detours.iter().map(|detour| (with(port, "over", &detour.over), detour.rate_mbps * 1e6)).collect()
    };
    page.each(DETOUR_RATE, ports.iter().flat_map(detours));
    page.each(REFUSED, neighbours().flat_map(|port| each(port, "why", &port.refused.named())));
    page.each(PASSED, ports.iter().flat_map(|port| each(port, "what", &port.passed.named())));
}

#[cfg(test)]
mod tests {
    use super::{super::status::example, *};

    #[test]
    fn every_metric_of_a_router_is_on_its_page() {
        let page = page(&example(), 3).into_text().unwrap();
        for metric in INRPP_METRICS {
            assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
        }
        assert_eq!(page.matches("# TYPE ").count(), INRPP_METRICS.len());
        for line in [
            "sidestep_inrpp_neighbour_alive{interface=\"eth1\",neighbour=\"r1\"} 1.0",
            "sidestep_inrpp_detour_rate_bits_per_second{interface=\"eth1\",over=\"eth2\"} 4500000.0",
            "sidestep_inrpp_refused_total{interface=\"eth1\",why=\"forged\"} 2.0",
            "sidestep_inrpp_passed_total{interface=\"eth0\",what=\"stale\"} 0.0",
            "sidestep_inrpp_presses_back{interface=\"eth1\"} 1.0",
            "sidestep_inrpp_presses_back{interface=\"eth0\"} 0.0",
            "sidestep_inrpp_faults_total 3.0",
        ] {
            assert!(page.contains(&format!("{line}\n")), "{line}\n{page}");
        }
    }
}
