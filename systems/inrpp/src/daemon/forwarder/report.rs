//! What the thread reports about itself.

use sidestep_linux::tun;
use sidestep_net::Time;

use super::super::{
    config::{Idle, tun_name},
    divert::{self, DivertCounts},
    status::{
        ConnectionsStatus, DetourStatus, InrppStatus, Mode, PassedCounts, PortKind, PortState, PortStatus,
        RefusedCounts, ResequenceStatus,
    },
};
use super::{
    Forwarder,
    port::{NeighbourState, Peer},
};
use crate::{Counters, Port};

impl Forwarder {
    pub(super) fn report(&self, now: Time) -> InrppStatus {
        let counts = self.connections.counts();
        let order = self.order.as_ref().map(|order| order.counts()).unwrap_or_default();
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        InrppStatus {
            schema: 1,
            name: self.settings.name.clone(),
            id: self.id.0,
            dry_run: self.dry_run,
            mode: if self.divert.mode() == divert::Mode::Divert { Mode::Divert } else { Mode::Pass },
            uptime_s: now.since(self.started).as_secs_f64(),
            ports: (0..self.ports.len()).map(|at| self.port_status(at, &devices)).collect(),
            connections: ConnectionsStatus {
                tracked: self.connections.len() as u64,
                refused: counts.refused,
                unscaled: counts.unscaled,
                multipath: counts.multipath,
                clamped_acks: self.counts.clamped_acks,
                spaced_acks: self.acks.spaced(),
                window_updates: self.counts.window_updates,
                mss_clamped: self.counts.mss_clamped,
            },
            resequence: ResequenceStatus {
                restored: order.restored,
                timed_out: order.timed_out,
                overflowed: order.overflowed,
            },
            memory_bytes: self.slots.used_bytes().get() + self.router.memory().get() + self.connections.memory() as u64,
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let open = self.ports.iter().filter_map(|port| match &port.peer {
            Peer::Neighbour(neighbour) if !neighbour.has_key => Some(neighbour.name.as_str()),
            _ => None,
        });
        let open: Vec<&str> = open.collect();
        let mut notes = Vec::new();
        if !open.is_empty() {
            notes.push(format!("no key is shared with {}: anyone on the link is believed", open.join(", ")));
        }
        if self.counts.no_memory > 0 {
            notes.push(format!("{} packets found no memory", self.counts.no_memory));
        }
        if self.settings.idle == Idle::Pass {
            notes.push("connections that began while packets passed are known by their SYNs only".into());
        }
        notes
    }

    fn port_status(&self, at: usize, devices: &str) -> PortStatus {
        let (port, place) = (&self.ports[at], Port(at as u16));
        let done = sum(port.before, self.router.counters(place));
        let detours = self.router.detours(place).map(|over| DetourStatus {
            over: self.ports.get(usize::from(over.0)).map(|port| port.interface.clone()).unwrap_or_default(),
            rate_mbps: self.router.detour_rate(place, over).as_mbits(),
        });
        let mut status = PortStatus {
            interface: port.interface.clone(),
            tun: tun_name(&port.interface),
            kind: PortKind::Edge,
            state: PortState::Edge,
            rate_mbps: if port.has_queue { port.rate.as_mbits() } else { 0.0 },
            cache_bytes: self.router.occupancy(place).get(),
            cache_room: self.router.room(place).get(),
            peak_bytes: self.router.peak(place).get(),
            pressing: self.router.state(place).as_str().into(),
            flows: self.router.stored(place).count() as u64,
            stored: done.stored,
            detoured: done.detoured,
            dropped: done.dropped,
            dropped_others: done.dropped_others,
            lost: port.lost + tun::dropped_of(devices, port.tun.name()),
            sent_packets: port.sent_packets,
            sent_bytes: port.sent_bytes,
            detours: detours.collect(),
            passed: passed(self.divert.counts(port.index).unwrap_or_default()),
            ..PortStatus::default()
        };
        if let Peer::Neighbour(neighbour) = &port.peer {
            let refused = neighbour.session.counts();
            status.kind = PortKind::Neighbour;
            status.lost += neighbour.lost;
            status.neighbour = Some(neighbour.name.clone());
            status.link = Some(neighbour.link_name.clone());
            status.state = match neighbour.state {
                NeighbourState::Alive => PortState::Alive,
                NeighbourState::Silent => PortState::Silent,
                NeighbourState::Leaving => PortState::Leaving,
            };
            (status.received_packets, status.received_bytes) = (neighbour.received_packets, neighbour.received_bytes);
            status.refused = RefusedCounts {
                malformed: refused.malformed + neighbour.malformed,
                forged: refused.forged,
                replayed: refused.replayed,
                no_session: refused.no_session,
                unexpected: refused.unexpected + refused.reflected,
            };
        }
        if !port.is_present || port.is_cut {
            status.state = PortState::Passing;
        }
        status
    }
}

/// What two cores of a port have counted.
pub(super) fn sum(one: Counters, other: Counters) -> Counters {
    Counters {
        stored: one.stored + other.stored,
        detoured: one.detoured + other.detoured,
        dropped: one.dropped + other.dropped,
        dropped_others: one.dropped_others + other.dropped_others,
        unroutable: one.unroutable + other.unroutable,
        slow_downs: one.slow_downs + other.slow_downs,
        cancels: one.cancels + other.cancels,
        forged: one.forged + other.forged,
        refused: one.refused + other.refused,
    }
}

fn passed(counts: DivertCounts) -> PassedCounts {
    let DivertCounts { diverted, down, stale, own, other, oversize, not_tcp, idle, .. } = counts;
    PassedCounts { diverted, not_up: down, stale, oversize, other: own + other + not_tcp, idle }
}
