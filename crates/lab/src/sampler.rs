//! Looks at the links and sockets of a running lab, every so often.

use std::{collections::BTreeMap, net::SocketAddrV6};

use sidestep_linux::{
    sock_diag::{SockDiag, TcpSocket},
    wire::{ArcStats, WireHandle, WireStats},
};
use sidestep_model::{Bytes, Direction, NodeKind, Rate, Scenario, Span, Time, Topology};
use sidestep_results::{FlowRecord, Recorder, SampleKind, SamplePoint, Writer};

use crate::{error::LabError, names::Names, network::Network};

/// Connections with less than this are not worth a record: requests, control channels.
const LEAST_BYTES: u64 = 10_000;

/// Samples one system's run.
#[derive(Debug)]
pub struct Sampler {
    wires: WireHandle,
    hosts: Vec<SockDiag>,
    paths: Vec<ReportedPath>,
    links: Vec<LinkName>,
    mark_mask: u32,
    warmup: Time,
    last: Time,
    bytes: Vec<Bytes>,
    sockets: Vec<TcpSocket>,
    connections: BTreeMap<(usize, u64), Seen>,
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

#[derive(Debug)]
struct ReportedPath {
    name: String,
    arcs: Vec<usize>,
}

#[derive(Debug)]
struct LinkName {
    arc: usize,
    name: String,
    rate: Rate,
}

/// The paths that results are reported for, with their capacities: the topology's, or else each link between routers.
pub fn reported_paths(topology: &Topology) -> Vec<(String, Rate)> {
    reported(topology).into_iter().map(|path| (path.name.clone(), capacity(topology, &path))).collect()
}

impl Sampler {
    /// A sampler of `network`; sockets' paths are read from the bits `mark_mask` of their marks.
    pub fn new(scenario: &Scenario, network: &Network, mark_mask: u32) -> Result<Self, LabError> {
        let topology = &scenario.topology;
        let mut hosts = Vec::new();
        for node in topology.node_ids().filter(|node| topology.node(*node).kind == NodeKind::Host) {
            let opened = network.node(node).run(|| Ok(SockDiag::open()))?;
            hosts.push(opened?);
        }
        let links = topology.link_ids().flat_map(|link| [Direction::AToB, Direction::BToA].map(|d| link.arc(d)));
        let links = links
            .map(|arc| {
                let name = |node| topology.node(node).name.as_str();
                let link = &topology.link(arc.link()).name;
                LinkName {
                    arc: arc.index(),
                    name: format!("{link}:{}>{}", name(topology.tail(arc)), name(topology.head(arc))),
                    rate: topology.channel(arc).rate,
                }
            })
            .collect();
        Ok(Sampler {
            wires: network.wires(),
            hosts,
            paths: reported(topology),
            links,
            mark_mask,
            warmup: Time::ZERO + scenario.warmup,
            last: Time::ZERO,
            bytes: vec![Bytes::default(); topology.arc_count()],
            sockets: Vec::new(),
            connections: BTreeMap::new(),
        })
    }

    /// Samples everything at `now`; returns the goodput of all connections since the last time.
    pub fn sample(
        &mut self,
        now: Time,
        names: &Names,
        writer: &mut Writer,
        recorder: &mut Recorder,
    ) -> Result<Rate, LabError> {
        let interval = now.since(self.last);
        if interval == Span::ZERO {
            return Ok(Rate::default());
        }
        let stats = self.wires.stats()?;
        self.sample_links(now, interval, &stats, writer, recorder)?;
        let goodput = self.sample_sockets(now, interval, names, writer, recorder)?;
        self.last = now;
        Ok(goodput)
    }

    /// What the wires have done so far.
    pub fn wires(&self) -> Result<WireStats, LabError> {
        Ok(self.wires.stats()?)
    }

    /// Records of the connections that are not of the built-in generator, whose ports are `generator_ports`.
    pub fn other_flows(&self, names: &Names, generator_ports: &[u16]) -> Vec<FlowRecord> {
        let generated =
            |seen: &Seen| generator_ports.contains(&seen.local.port()) || generator_ports.contains(&seen.remote.port());
        let seen = self.connections.values().filter(|seen| seen.acked >= LEAST_BYTES && !generated(seen));
        seen.map(|seen| {
            let connection = names.connection(seen.local, seen.remote);
            let host = |end: SocketAddrV6| names.host(*end.ip()).unwrap_or("?").to_string();
            FlowRecord {
                flow: connection.clone(),
                from: host(seen.local),
                to: host(seen.remote),
                connection,
                start: seen.first,
                end: seen.last,
                completed: false,
                bytes: Bytes::new(seen.acked),
                bytes_in_window: Bytes::new(seen.acked.saturating_sub(seen.acked_at_warmup)),
                retransmits: seen.retransmits,
                moves: 0,
            }
        })
        .collect()
    }

    fn sample_links(
        &mut self,
        now: Time,
        interval: Span,
        stats: &WireStats,
        writer: &mut Writer,
        recorder: &mut Recorder,
    ) -> Result<(), LabError> {
        let used = |arc: usize| {
            let before = self.bytes.get(arc).copied().unwrap_or_default();
            stats.arcs.get(arc).map_or(Bytes::default(), |stats| sent(stats) - before)
        };
        let mut utilisation = vec![0.0; self.bytes.len()];
        for link in &self.links {
            let Some(arc) = stats.arcs.get(link.arc) else { continue };
            let share = share_of(used(link.arc), link.rate, interval);
            utilisation[link.arc] = share.unwrap_or(0.0);
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Link,
                name: link.name.clone(),
                rate: Some(rate_of(used(link.arc).get(), interval)),
                utilisation: share,
                queue: Some(arc.queue_bytes),
                drops: Some(drops(arc)),
                marks: Some(arc.counters.ce_marked),
                ..SamplePoint::default()
            };
            writer.sample(recorder, &point)?;
        }
        for path in &self.paths {
            let arcs = || path.arcs.iter().filter_map(|arc| stats.arcs.get(*arc));
            let busiest = path.arcs.iter().copied().max_by(|a, b| utilisation[*a].total_cmp(&utilisation[*b]));
            let Some(busiest) = busiest else { continue };
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Path,
                name: path.name.clone(),
                rate: Some(rate_of(used(busiest).get(), interval)),
                utilisation: Some(utilisation[busiest]),
                queue: arcs().map(|arc| arc.queue_bytes).max(),
                drops: Some(arcs().map(drops).sum()),
                marks: Some(arcs().map(|arc| arc.counters.ce_marked).sum()),
                ..SamplePoint::default()
            };
            writer.sample(recorder, &point)?;
        }
        for (bytes, arc) in self.bytes.iter_mut().zip(&stats.arcs) {
            *bytes = sent(arc);
        }
        Ok(())
    }

    fn sample_sockets(
        &mut self,
        now: Time,
        interval: Span,
        names: &Names,
        writer: &mut Writer,
        recorder: &mut Recorder,
    ) -> Result<Rate, LabError> {
        let mut total = 0;
        for (host, diag) in self.hosts.iter_mut().enumerate() {
            for socket in diag.tcp_sockets(&mut self.sockets)? {
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
                if acked < LEAST_BYTES {
                    continue;
                }
                total += progress;
                let slot = slot(socket.mark, self.mark_mask);
                let path = names.path(*socket.local.ip(), *socket.remote.ip(), slot);
                let point = SamplePoint {
                    time: now,
                    interval,
                    kind: SampleKind::Connection,
                    name: names.connection(socket.local, socket.remote),
                    rate: Some(rate_of(progress, interval)),
                    cwnd: Some(Bytes::new(u64::from(socket.info.cwnd) * u64::from(socket.info.mss))),
                    srtt: Some(Span::from_micros(u64::from(socket.info.srtt_us))),
                    path: path.map(str::to_string),
                    ..SamplePoint::default()
                };
                writer.sample(recorder, &point)?;
            }
        }
        Ok(rate_of(total, interval))
    }
}

fn reported(topology: &Topology) -> Vec<ReportedPath> {
    let arcs = |link: &sidestep_model::LinkId| [Direction::AToB, Direction::BToA].map(|d| link.arc(d).index());
    if !topology.paths().is_empty() {
        let path = |named: &sidestep_model::NamedPath| ReportedPath {
            name: named.name.clone(),
            arcs: named.links.iter().flat_map(arcs).collect(),
        };
        return topology.paths().iter().map(path).collect();
    }
    let between_routers = |id: &sidestep_model::LinkId| {
        let link = topology.link(*id);
        topology.is_router(link.a) && topology.is_router(link.b)
    };
    let path = |id| ReportedPath { name: topology.link(id).name.clone(), arcs: arcs(&id).to_vec() };
    topology.link_ids().filter(between_routers).map(path).collect()
}

/// The lowest rate on the path; zero if none is limited.
fn capacity(topology: &Topology, path: &ReportedPath) -> Rate {
    let rates = path.arcs.iter().map(|arc| topology.channel(sidestep_model::ArcId(*arc as u32)).rate);
    rates.filter(|rate| rate.bits_per_sec() > 0).min().unwrap_or_default()
}

/// What has left the queue: packets count when they are accepted.
fn sent(arc: &ArcStats) -> Bytes {
    arc.counters.bytes - arc.queue_bytes
}

fn drops(arc: &ArcStats) -> u64 {
    let drops = arc.counters.drops;
    drops.queue_full + drops.random_loss + drops.down + drops.blackhole + arc.oversized + arc.overruns
}

/// The share of `rate` that `bytes` in `interval` are; `None` where the rate is not limited.
fn share_of(bytes: Bytes, rate: Rate, interval: Span) -> Option<f64> {
    let room = rate.bits_per_sec() as f64 * interval.as_secs_f64();
    (room > 0.0).then(|| bytes.get() as f64 * 8.0 / room)
}

fn rate_of(bytes: u64, interval: Span) -> Rate {
    Rate::from_bits_per_sec((bytes as f64 * 8.0 / interval.as_secs_f64()) as u64)
}

fn slot(mark: u32, mask: u32) -> u32 {
    (mark & mask).checked_shr(mask.trailing_zeros()).unwrap_or(0)
}
