//! The simulator's benchmarks: networks on which other simulators are measured as well.

use std::fmt::Write;

use sidestep_net::{ArcId, Bytes, Dumbbell, FatTree, NodeId, QueueLimit, Rate, Span, Time, Topology, TopologyError};
use sidestep_paths::Igp;
use sidestep_proto::{
    mptcp::{self, Coupling, Scheduler},
    tcp::{Algorithm, Config, Profile},
};

use sidestep_engine::{FlowId, FlowSpec, Network, RouteId, Sizes, TcpId, World};

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// 32 NewReno flows through one link of 1 Gbit/s.
    Dumbbell32,
    /// 500 flows through it.
    Dumbbell500,
    /// 32 MPTCP connections of 4 subflows through it, coupled by LIA.
    Mptcp4,
    /// 32 MPTCP connections of 32 subflows through it, coupled by OLIA.
    Mptcp32,
    /// A fat tree of 128 hosts at 10 Gbit/s, each sending to one other.
    FatTree128,
    /// A fat tree of 1024 hosts, each sending to one other over 8 subflows coupled by LIA.
    FatTree1024,
}

/// What a benchmark did; the driver measures the time that it took.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Links crossed, by each data and ACK packet.
    pub traversals: u64,
    /// Goodput after the warm-up in Mbit/s.
    pub goodput_mbps: f64,
    /// Mean queue of the bottleneck after the warm-up in bytes; zero for fat trees.
    pub mean_queue_bytes: f64,
    /// Packets lost.
    pub drops: u64,
    /// Jain's index over the flows' bytes.
    pub fairness: f64,
    /// Changes with any change of what happened.
    pub fingerprint: u64,
}

/// Payload of a segment: what fits 1500 bytes beside IPv6, TCP and its timestamps.
const MSS: u16 = 1500 - 72;

impl Case {
    /// All of them.
    pub const ALL: [Case; 6] =
        [Case::Dumbbell32, Case::Dumbbell500, Case::Mptcp4, Case::Mptcp32, Case::FatTree128, Case::FatTree1024];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Case::Dumbbell32 => "dumbbell-32",
            Case::Dumbbell500 => "dumbbell-500",
            Case::Mptcp4 => "mptcp-lia-4",
            Case::Mptcp32 => "mptcp-olia-32",
            Case::FatTree128 => "fat-tree-128",
            Case::FatTree1024 => "fat-tree-1024-mptcp-8",
        }
    }

    /// How long it is simulated by default.
    pub fn duration(self) -> Span {
        match self {
            Case::Dumbbell32 | Case::Dumbbell500 | Case::Mptcp4 | Case::Mptcp32 => Span::from_secs(20),
            Case::FatTree128 => Span::from_millis(200),
            Case::FatTree1024 => Span::from_millis(50),
        }
    }

    /// Builds the network and the flows, which takes its time on large networks.
    pub fn prepare(self, seed: u64, tcp: Tcp) -> Result<Bench, TopologyError> {
        Ok(self.plan(seed)?.build(seed, tcp))
    }

    /// The network and the flows as text, for other simulators: a line for each thing, with these numbers.
    ///
    /// - `jitter`: the longest random delay of what a host sends, in nanoseconds.
    /// - `min_rto`: the least retransmission timeout, in nanoseconds.
    /// - `arc`: bits per second, nanoseconds of delay, bytes of queue. Arcs are numbered in the order of their lines.
    /// - `flow`: nanoseconds of its start, number of subflows.
    /// - `route`: its arcs. Each subflow of the flow before has one for data, and one for ACKs.
    pub fn describe(self, seed: u64) -> Result<String, TopologyError> {
        Ok(self.plan(seed)?.describe())
    }

    fn plan(self, seed: u64) -> Result<Plan, TopologyError> {
        match self {
            Case::Dumbbell32 => Plan::dumbbell(32, 1, seed),
            Case::Dumbbell500 => Plan::dumbbell(500, 1, seed),
            Case::Mptcp4 => Plan::dumbbell(32, 4, seed),
            Case::Mptcp32 => Ok(Plan { coupling: Coupling::Olia, ..Plan::dumbbell(32, 32, seed)? }),
            Case::FatTree128 => Plan::fat_tree(8, 1, seed),
            Case::FatTree1024 => Plan::fat_tree(16, 8, seed),
        }
    }
}

/// What TCP does in a benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tcp {
    /// As the simulator has it by default: that of Linux.
    #[default]
    Linux,
    /// That of the RFCs, with SACK and delayed ACKs.
    Rfc,
    /// An ACK for each segment and no SACK, as in simulators that have no more.
    Simple,
}

/// The network and the flows of a benchmark.
struct Plan {
    topology: Topology,
    subflows: usize,
    coupling: Coupling,
    jitter: Span,
    config: Config,
    /// When each begins, and its subflows' routes; where there is one, all subflows share it.
    flows: Vec<(Time, Vec<Arcs>)>,
    bottleneck: Option<ArcId>,
}

/// The arcs of a subflow's data and of its ACKs.
type Arcs = [Vec<ArcId>; 2];

/// A benchmark that is ready to run.
#[derive(Debug)]
pub struct Bench {
    world: World<()>,
    flows: Vec<(Time, FlowId)>,
    /// The arc whose queue is looked at.
    bottleneck: Option<ArcId>,
}

impl Plan {
    /// As `bench/ns3/dumbbell.cc`: access links of 1 Gbit/s and 1 ms, a bottleneck of 1 Gbit/s and 10 ms with a queue of
    /// one bandwidth-delay product.
    fn dumbbell(hosts: u32, subflows: usize, seed: u64) -> Result<Plan, TopologyError> {
        let rate = Rate::from_mbits(1000);
        let topology = Dumbbell {
            hosts,
            rate,
            delay: Span::from_millis(10),
            queue: QueueLimit::Bytes(rate.bytes_in(Span::from_millis(24))),
            access_rate: Some(rate),
            access_delay: Some(Span::from_millis(1)),
            access_queue: QueueLimit::Bytes(Bytes::new(100_000_000)),
            ..Dumbbell::default()
        }
        .build()?;
        let igp = Igp::new(&topology);
        let mut flows = Vec::new();
        for host in 1..=hosts {
            let (left, right) = (topology.find(&format!("l{host}"))?, topology.find(&format!("r{host}"))?);
            let paths = [(left, right), (right, left)].map(|(from, to)| igp.first_path(from, to).unwrap_or_default());
            flows.push((start(seed, host, Span::from_millis(100)), vec![paths]));
        }
        let link = topology.find_link("L-R");
        let bottleneck = link.map(|link| link.arc(sidestep_net::Direction::AToB));
        // A packet's time on the host's link: what keeps flows of equal round trips from falling into step.
        let jitter = Span::from_micros(12);
        Ok(Plan { topology, subflows, coupling: Coupling::Lia, jitter, config: Config::rfc(), flows, bottleneck })
    }

    fn fat_tree(k: u32, subflows: usize, seed: u64) -> Result<Plan, TopologyError> {
        let topology = FatTree { k, ..FatTree::default() }.build()?;
        let hosts: Vec<NodeId> = topology.node_ids().filter(|id| !topology.is_router(*id)).collect();
        let igp = Igp::new(&topology);
        // As data centres set them: round trips are of microseconds.
        let (min_rto, delayed_ack) = (Span::from_millis(10), Span::from_millis(1));
        let config = Config { min_rto, delayed_ack, ..Config::rfc() };
        let mut flows = Vec::new();
        for (number, pair) in permutation(hosts.len(), seed).into_iter().enumerate() {
            let (from, to) = (hosts[number], hosts[pair]);
            let mut routes = Vec::new();
            for subflow in 0..subflows {
                let label = mix(seed ^ (number * subflows + subflow) as u64);
                let paths = [walk(&topology, &igp, from, to, label), walk(&topology, &igp, to, from, !label)];
                routes.push(paths);
            }
            flows.push((start(seed, number as u32, Span::from_millis(1)), routes));
        }
        Ok(Plan {
            topology,
            subflows,
            coupling: Coupling::Lia,
            jitter: Span::from_micros(1),
            config,
            flows,
            bottleneck: None,
        })
    }

    fn build(self, seed: u64, tcp: Tcp) -> Bench {
        let config = match tcp {
            Tcp::Linux => Config { profile: Profile::Linux, ..self.config },
            Tcp::Rfc => self.config,
            Tcp::Simple => Config { ack_every: 1, sack: false, ..self.config },
        };
        let mut world = world(&self.topology, self.subflows, seed, self.jitter, config);
        let mut flows = Vec::new();
        for (at, paths) in self.flows {
            let routes = paths.iter().map(|[data, acks]| (add_route(&mut world, data), add_route(&mut world, acks)));
            let routes: Vec<(RouteId, RouteId)> = routes.collect();
            let subflows: Vec<_> = routes.into_iter().cycle().take(self.subflows).collect();
            flows.push((at, add(&mut world, self.coupling, &subflows)));
        }
        Bench { world, flows, bottleneck: self.bottleneck }
    }

    fn describe(&self) -> String {
        let mut text = format!("jitter {}\nmin_rto {}\n", self.jitter.as_nanos(), self.config.min_rto.as_nanos());
        for arc in 0..self.topology.arc_count() as u32 {
            let channel = self.topology.channel(ArcId(arc));
            let (rate, delay) = (channel.rate.bits_per_sec(), channel.delay.as_nanos());
            // A queue of packets is one of so many of full size.
            let queue = match channel.queue.limit {
                QueueLimit::Bytes(bytes) => bytes.get(),
                QueueLimit::Packets(packets) => u64::from(packets) * 1500,
            };
            let _ = writeln!(text, "arc {rate} {delay} {queue}");
        }
        for (at, paths) in &self.flows {
            let _ = writeln!(text, "flow {} {}", at.since(Time::ZERO).as_nanos(), self.subflows);
            for path in paths.iter().cycle().take(self.subflows).flatten() {
                let arcs: Vec<String> = path.iter().map(|arc| arc.0.to_string()).collect();
                let _ = writeln!(text, "route {}", arcs.join(" "));
            }
        }
        text
    }
}

impl Bench {
    /// Runs it for `duration`, of which the first quarter is warm-up.
    pub fn run(mut self, duration: Span) -> Outcome {
        let end = Time::ZERO + duration;
        let warmup = Time::ZERO + Span::from_nanos(duration.as_nanos() / 4);
        self.flows.sort();
        for (at, flow) in &self.flows {
            self.world.run_until(*at);
            self.world.open(*flow);
        }
        self.world.run_until(warmup);
        let before: Vec<u64> = self.flows.iter().map(|(_, flow)| self.world.acked_bytes(*flow)).collect();
        let mut queue = Mean::default();
        let mut now = warmup;
        while now < end {
            // An odd step, so that samples do not fall into step with anything.
            now = (now + Span::from_nanos(997_000)).min(end);
            self.world.run_until(now);
            if let Some(arc) = self.bottleneck {
                queue.add(self.world.network.arc(now, arc).1.get() as f64);
            }
        }
        let bytes = self.flows.iter().zip(before).map(|((_, flow), before)| self.world.acked_bytes(*flow) - before);
        let bytes: Vec<f64> = bytes.map(|bytes| bytes as f64).collect();
        let balance = self.world.network.balance();
        let packets = [balance.injected, balance.delivered, balance.lost];
        let parts = bytes.iter().map(|bytes| *bytes as u64).chain(packets);
        Outcome {
            traversals: self.world.network.traversals(),
            goodput_mbps: bytes.iter().sum::<f64>() * 8e-6 / (end.since(warmup)).as_secs_f64(),
            mean_queue_bytes: queue.mean(),
            drops: balance.lost,
            fairness: sidestep_results::measures::jain(&bytes).unwrap_or(0.0),
            fingerprint: parts.fold(0, |hash, part| mix(hash ^ part)),
        }
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / f64::from(self.count) }
    }
}

fn world(topology: &Topology, subflows: usize, seed: u64, jitter: Span, tcp: Config) -> World<()> {
    let algorithm = if subflows > 1 { Algorithm::Coupled } else { Algorithm::Reno };
    let tcp = Config { algorithm, receive_window: 60_000, ..tcp };
    let network = Network::new(topology, seed, jitter);
    World::new(network, tcp, Sizes::default(), ())
}

fn add(world: &mut World<()>, coupling: Coupling, routes: &[(RouteId, RouteId)]) -> FlowId {
    let (forward, reverse) = routes[0];
    let spec = FlowSpec { forward, reverse, bytes: None, mss: MSS, tcp: TcpId::default() };
    if routes.len() == 1 {
        return world.add_flow(spec);
    }
    // All subflows at once, as htsim has it.
    let mptcp = mptcp::Config::new(coupling, Scheduler::MinRtt, 60_000);
    world.add_connection(FlowSpec { mss: MSS - Sizes::default().mptcp_data, ..spec }, mptcp, routes)
}

fn add_route(world: &mut World<()>, path: &[ArcId]) -> RouteId {
    world.network.add_route(path.iter().map(|arc| (*arc, 0)))
}

/// A shortest path by the choices that `label` makes.
fn walk(topology: &Topology, igp: &Igp, from: NodeId, to: NodeId, label: u64) -> Vec<ArcId> {
    let (mut here, mut path) = (from, Vec::new());
    while here != to {
        let arcs: Vec<ArcId> = igp.next_arcs(here, to).collect();
        let Some(arc) = arcs.get(mix(label ^ u64::from(here.0)) as usize % arcs.len().max(1)) else { break };
        path.push(*arc);
        here = topology.head(*arc);
    }
    path
}

/// Each of `0..n` to another, none to itself: a random cycle (Sattolo).
fn permutation(n: usize, seed: u64) -> Vec<usize> {
    let mut to: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        to.swap(i, mix(seed ^ i as u64) as usize % i);
    }
    to
}

fn start(seed: u64, flow: u32, within: Span) -> Time {
    Time::from_nanos(mix(seed.wrapping_mul(31) ^ u64::from(flow)) % within.as_nanos())
}

/// The finaliser of SplitMix64.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
