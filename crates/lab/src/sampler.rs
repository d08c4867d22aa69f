//! Samples the links and sockets of a running lab.

use std::{collections::BTreeMap, net::SocketAddrV6};

use sidestep_linux::{
    sock_diag::{SockDiag, TcpSocket},
    wire::{ArcStats, WireHandle, WireStats},
};
use sidestep_net::{Bytes, NodeId, NodeKind, Rate, Span, Time};
use sidestep_results::{ArcState, FlowRecord, LinkSampler, Recorder, Records, SampleKind, SamplePoint, rate_of};
use sidestep_scenario::Scenario;

use crate::{daemons::Daemons, error::LabError, names::Names, network::Network};

/// Connections with less than this are not worth a record: requests, control channels.
const MIN_BYTES: u64 = 10_000;

/// Samples one system's run.
#[derive(Debug)]
pub struct Sampler {
    wires: WireHandle,
    hosts: Vec<Host>,
    links: LinkSampler,
    arcs: Vec<ArcState>,
    warmup: Time,
    last: Time,
    sockets: Vec<TcpSocket>,
    connections: BTreeMap<(usize, u64), Seen>,
}

/// A host's sockets.
#[derive(Debug)]
struct Host {
    node: NodeId,
    diag: SockDiag,
}

/// What was seen of one end of a connection.
#[derive(Clone, Debug)]
struct Seen {
    local: SocketAddrV6,
    remote: SocketAddrV6,
    first: Time,
    last: Time,
    acked: u64,
    acked_at_warmup: u64,
    retransmits: u64,
}

impl Sampler {
    /// A sampler of `network`.
    pub fn new(scenario: &Scenario, network: &Network) -> Result<Self, LabError> {
        let topology = &scenario.topology;
        let mut hosts = Vec::new();
        for node in topology.node_ids().filter(|node| topology.node(*node).kind == NodeKind::Host) {
            let opened = network.node(node).run(|| Ok(SockDiag::open()))?;
            hosts.push(Host { node, diag: opened? });
        }
        Ok(Sampler {
            wires: network.wires(),
            hosts,
            links: LinkSampler::new(scenario),
            arcs: Vec::new(),
            warmup: Time::ZERO + scenario.warmup,
            last: Time::ZERO,
            sockets: Vec::new(),
            connections: BTreeMap::new(),
        })
    }

    /// Samples everything at `now`; returns the goodput of all connections since the last time. `daemons` name the paths of
    /// connections.
    pub fn sample(
        &mut self,
        now: Time,
        daemons: &Daemons,
        names: &Names,
        writer: &mut Records,
        recorder: &mut Recorder,
    ) -> Result<Rate, LabError> {
        let interval = now.since(self.last);
        if interval == Span::ZERO {
            return Ok(Rate::default());
        }
        self.arcs.clear();
        self.arcs.extend(self.wires.arcs()?.iter().map(arc_state));
        self.links.sample(now, &self.arcs, |point| writer.sample(recorder, point))?;
        let goodput = self.sample_sockets((now, interval), daemons, names, writer, recorder)?;
        self.last = now;
        Ok(goodput)
    }

    /// Takes what the wires have dropped so far, by cause.
    pub fn drops(&self, recorder: &mut Recorder) -> Result<(), LabError> {
        for arc in self.wires.arcs()? {
            arc.counters.drops.by_cause().into_iter().for_each(|(cause, packets)| recorder.dropped(cause, packets));
            recorder.dropped("longer than the MTU", arc.oversized);
            recorder.dropped("wire overrun", arc.overruns);
        }
        Ok(())
    }

    /// What the wires have done so far.
    pub fn wires(&self) -> Result<WireStats, LabError> {
        Ok(self.wires.stats()?)
    }

    /// Records of all connections except those of the built-in generator, whose ports are `generator_ports`.
    pub fn other_flows(&self, names: &Names, generator_ports: &[u16]) -> Vec<FlowRecord> {
        let generated =
            |seen: &Seen| generator_ports.contains(&seen.local.port()) || generator_ports.contains(&seen.remote.port());
        let seen = self.connections.values().filter(|seen| seen.acked >= MIN_BYTES && !generated(seen));
        seen.map(|seen| {
            let connection = names.connection(seen.local, seen.remote);
            let host = |end: SocketAddrV6| names.host(*end.ip()).unwrap_or("?").to_string();
            FlowRecord {
                flow: connection.clone(),
                from: host(seen.local),
                to: host(seen.remote),
                series: Some(connection.clone()),
                connection,
                start: seen.first,
                end: seen.last,
                sized: false,
                completed: false,
                bytes: Bytes::new(seen.acked),
                bytes_in_window: Bytes::new(seen.acked.saturating_sub(seen.acked_at_warmup)),
                retransmits: seen.retransmits,
                moves: 0,
                timeouts: 0,
                outages: Vec::new(),
            }
        })
        .collect()
    }

    fn sample_sockets(
        &mut self,
        (now, interval): (Time, Span),
        daemons: &Daemons,
        names: &Names,
        writer: &mut Records,
        recorder: &mut Recorder,
    ) -> Result<Rate, LabError> {
        let mut total = 0;
        for (host, Host { node, diag }) in self.hosts.iter_mut().enumerate() {
            for socket in diag.ipv6_sockets(&mut self.sockets)? {
                let seen = self.connections.entry((host, socket.cookie)).or_insert(Seen {
                    local: socket.local,
                    remote: socket.remote,
                    first: now,
                    last: now,
                    acked: 0,
                    acked_at_warmup: 0,
                    retransmits: 0,
                });
                let acked = socket.info.bytes_acked;
                let progress = acked.saturating_sub(seen.acked);
                seen.last = now;
                seen.acked = acked;
                seen.retransmits = u64::from(socket.info.retrans_total);
                if now <= self.warmup {
                    seen.acked_at_warmup = acked;
                }
                if acked < MIN_BYTES {
                    continue;
                }
                total += progress;
                let path = daemons.path(*node, *socket.remote.ip(), socket.mark);
                let point = SamplePoint {
                    time: now,
                    interval,
                    kind: SampleKind::Connection,
                    name: names.connection(socket.local, socket.remote),
                    rate: Some(rate_of(Bytes::new(progress), interval)),
                    cwnd: Some(Bytes::new(u64::from(socket.info.cwnd) * u64::from(socket.info.mss))),
                    srtt: Some(Span::from_micros(u64::from(socket.info.srtt_us))),
                    path: path.map(str::to_string),
                    ..SamplePoint::default()
                };
                writer.sample(recorder, &point)?;
            }
        }
        Ok(rate_of(Bytes::new(total), interval))
    }
}

/// Converts a wire's counters. Packets count as sent when they have left the queue; the wires count them on acceptance.
fn arc_state(arc: &ArcStats) -> ArcState {
    let drops = arc.counters.drops.total() + arc.oversized + arc.overruns;
    let sent = arc.counters.bytes - arc.queue_bytes;
    ArcState { sent, queue: arc.queue_bytes, drops, marks: arc.counters.ce_marked }
}
