//! Scenarios: one TOML file that describes a network, its traffic, what goes wrong, and the systems to compare.
//!
//! The files under `scenarios/` show the format; every key:
//!
//! ```toml
//! name = "six-paths"                  # default: the file's stem
//! seed = 1                            # default
//! repetition = 0                      # default; another number varies what is random but for traffic and conditions of links
//! duration = "30 s"                   # required
//! warmup = "0 s"
//! sample = "100 ms"
//! systems = ["tcp", "NAME:key=value"]  # default ["tcp"]; see SystemSpec
//! [topology]                          # required; see topology_file
//! [tcp]                               # see TcpSettings
//! [mptcp]                             # see MptcpSettings
//! [routing]                           # see RoutingSettings
//! [paths]                             # see PathSettings
//! [NAME]                              # a system's settings; see Catalogue
//! [[flow]]
//! kind = "bulk"
//! name = "bulk-1"                     # default: kind and number of the flow in the file
//! from = "c*"                         # a host, a pattern (`*`, `?`) or a list of them
//! to = ["s1", "s2"]
//! pairing = "zip"                     # i-th with i-th, the shorter list starts again; or "all": each with each;
//!                                     # "permutation": each with one other, drawn by the seed; "incast": all with the first;
//!                                     # "demands": those of the demands below, without from and to
//! # pairs = [["c1", "s1"]]            # instead of from, to and pairing
//! connections = 4                     # of each pair; default 1
//! start = "0 s"
//! stop = "20 s"                       # default: the end of the run
//! size = "10 MB"                      # of each connection; default: until stop
//! port = 5001                         # default: the world chooses
//! system = "NAME:key=value"           # default: the system of the run
//! tcp = { congestion_control = "reno" }   # keys of [tcp] that differ for this flow; default: as [tcp] has them
//! [[flow]]
//! kind = "poisson"                    # from, to, pairing, pairs, start, stop, port, system, tcp and name as above
//! rate = 200.0                        # arrivals a second; or load = "50 %" with load_of = "1 Gbit/s"
//! size = { distribution = "pareto", shape = 1.2, mean = "100 kB" }   # or exponential (mean), lognormal (mean, sigma),
//!                                     # empirical (cdf = [["10 kB", 0.5], …]), web-search, data-mining; or just "10 kB"
//! shares = [2.0, 1.0]                 # how often each pair is drawn, in relation; default: all alike
//! [[flow]]
//! kind = "list"                       # transfers of a list: name, port, system and tcp as above
//! file = "flows.csv"                  # from, to, size and start of each; or htsim's .cm, or HPCC's flow.txt
//! # transfers = [["c1", "s1", "10 kB", "1 s"]]   # instead of file
//! start = "0 s"                       # added to all starts
//! [[flow]]
//! kind = "closed-loop"                # like poisson without rate, load and load_of; with users = 10 (of each pair), think = "1 s" (mean) and size
//! [[flow]]
//! kind = "cbr"                        # from, to, pairing, pairs, start, stop and name as above, with rate = "10 Mbit/s", packet = 1000 (bytes)
//! on = "1 s"                          # sends and pauses in turn; with random = true these are means
//! off = "1 s"
//! [[flow]]
//! kind = "exec"
//! node = "s1"
//! command = ["iperf3", "-c", "{s1}"]  # see ExecFlow::resolved for {s1}
//! env = { KEY = "value" }
//! wait = true                         # false: a server, ended with the run
//! # name, start and stop as above
//! [demands]                           # between whom the flows with `pairing = "demands"` are, and of poisson and cbr how much
//! file = "net.demands"                # or "gravity:TOTAL", "uniform:TOTAL"; or [[demand]] instead
//! unit = "kbit/s"                     # of numbers in the file; default: the format's, or Mbit/s
//! scale = 1.0
//! [[demand]]
//! from = "A"                          # a host, or a router: its hosts have equal parts
//! to = "B"
//! rate = "10 Mbit/s"
//! [[event]]
//! at = "10 s"
//! link = "A-m1"                       # a link, a pattern or a list of them; or path = "path-1"
//! direction = "both"                  # or "forward": from a link's first end to its second; or "reverse"
//! action = "rate"                     # with rate; "delay", "loss" likewise; or "down", "up", "blackhole"
//! rate = "1 Mbit/s"
//! [[impairment]]                      # a random process on each of these links, different for each seed
//! link = "A-*"                        # link or path, and direction, as an event has them
//! good = "10 s"                       # mean time between bad periods
//! bad = "200 ms"                      # mean length of a bad period
//! distribution = "exponential"        # or "fixed": each period is as long as its mean
//! effect = "outage"                   # packets are lost, and routing does not notice; or "loss" with loss
//! loss = "5 %"
//! start = "0 s"                       # when the first good period begins
//! stop = "20 s"                       # default: the end of the run
//! ```
//!
//! Patterns may pair a host with itself; such pairs are left out.

pub mod builder;
pub mod conditions;
mod impairment;
pub mod overrides;
mod placeholder;
pub(crate) mod print;
mod read;
mod settings;
mod standing;
mod system;
pub mod systems;
mod transport;
pub mod workload;

use std::collections::BTreeMap;

use rand_core::Rng;
use rand_pcg::Pcg32;
use serde::{Deserialize, Serialize};
use sidestep_net::{
    Bytes, Files, LinkId, NodeId, ParseError, Rate, Ratio, Span, Time, Topology, TopologyError, document,
};
use sidestep_paths::PathSettings;
use toml::Table;

pub use crate::systems::{Catalogue, SettingsInfo, SystemInfo, World};
use crate::workload::{Arrival, SizeDistribution};
pub use impairment::{Effect, Impairment, Periods, Transition};
pub use standing::{Advice, Baseline, Standing};
pub use system::{SystemError, SystemSpec};
pub use transport::{RoutingSettings, TcpSettings, Transport};

/// Port of the server of the first flow, in every world; those of the next flows follow it.
pub const FIRST_SERVER_PORT: u16 = 7000;

/// A complete experiment, with every default filled in and every pattern expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name in results; by default the file's.
    pub name: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// Which repetition under the seed: arrivals, sizes and the conditions of links are the same in all of them, other
    /// random choices differ.
    pub repetition: u32,
    /// Length of the run.
    pub duration: Span,
    /// Time at the start that goodput and utilisation leave out.
    pub warmup: Span,
    /// Time between two samples of the series.
    pub sample: Span,
    /// The systems to run one after the other, each under the same network and traffic.
    pub systems: Vec<SystemSpec>,
    /// The network, addresses assigned.
    pub topology: Topology,
    /// TCP's settings on every host.
    pub tcp: TcpSettings,
    /// What routers do by themselves.
    pub routing: RoutingSettings,
    /// How paths are computed.
    pub paths: PathSettings,
    /// The settings of systems by the keys of their tables, before a system's own parameters; see [`Catalogue`].
    pub tables: BTreeMap<String, Table>,
    /// The traffic.
    pub flows: Vec<Flow>,
    /// The events that happen to links, by time.
    pub events: Vec<Event>,
    /// The random processes on links.
    pub impairments: Vec<Impairment>,
}

/// A source of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Flow {
    /// The built-in generator: TCP connections that send as fast as TCP lets them.
    Bulk(BulkFlow),
    /// A program of the user's; only in the lab.
    Exec(ExecFlow),
    /// Transfers that arrive whatever the network does, each over a connection of its own.
    OpenLoop(OpenLoopFlow),
    /// Users who transfer, think, and transfer again.
    ClosedLoop(ClosedLoopFlow),
    /// Packets at a constant rate.
    Cbr(CbrFlow),
}

/// Transfers whose times and sizes the network does not change, each over a connection of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenLoopFlow {
    /// Unique name in results.
    pub name: String,
    /// Sender and receiver; each transfer is between one of these pairs.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// When transfers arrive, and how large they are.
    pub arrivals: Arrivals,
    /// The length of the request with which the first host of a pair asks; the second answers with `size`. `None`: the
    /// first sends `size`.
    pub request: Option<Bytes>,
    /// When the first may begin.
    pub start: Span,
    /// When no more begin; `None`: at the end of the run.
    pub stop: Option<Span>,
    /// Port that the receivers listen on; `None`: the world chooses.
    pub port: Option<u16>,
    /// How its connections are carried, where that differs from the run.
    pub transport: Transport,
}

/// When transfers arrive, between which of a flow's pairs, and how large they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// As a Poisson process.
    Poisson {
        /// Arrivals a second, of all pairs together.
        rate: f64,
        /// How often each pair is drawn, relative to the others; empty: all alike.
        shares: Vec<f64>,
        /// How large the transfers are.
        size: SizeDistribution,
    },
    /// As a list has them, by time.
    Listed(Vec<Arrival>),
}

/// Users who transfer over a connection, think for an exponential time, and transfer again.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedLoopFlow {
    /// Unique name in results.
    pub name: String,
    /// Sender and receiver.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// Users of each pair.
    pub users: u32,
    /// Mean time between the end of a transfer and the next one's start.
    pub think: Span,
    /// How large the transfers are.
    pub size: SizeDistribution,
    /// When users begin, thinking.
    pub start: Span,
    /// When no more transfers begin; `None`: at the end of the run.
    pub stop: Option<Span>,
    /// Port that the receivers listen on; `None`: the world chooses.
    pub port: Option<u16>,
    /// How its connections are carried, where that differs from the run.
    pub transport: Transport,
}

/// Packets at a constant rate, which answer to nothing: cross-traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct CbrFlow {
    /// Unique name in results.
    pub name: String,
    /// Sender and receiver; each pair has a stream of its own.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// IP bytes a second of each pair, while it sends.
    pub rates: Vec<Rate>,
    /// Length of an IP packet in bytes.
    pub packet: u16,
    /// How long it sends, and how long it pauses; `None`: it always sends.
    pub bursts: Option<(Span, Span)>,
    /// Whether these are means of exponential times.
    pub random: bool,
    /// When it begins.
    pub start: Span,
    /// When it ends; `None`: with the run.
    pub stop: Option<Span>,
}

/// TCP connections between pairs of hosts that send as fast as TCP lets them.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkFlow {
    /// Unique name in results.
    pub name: String,
    /// Sender and receiver of each pair; two different hosts.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// Connections of each pair.
    pub connections: u32,
    /// When they open.
    pub start: Span,
    /// How much later each opens at most, at random.
    pub start_jitter: Span,
    /// When they end if they still run; `None`: at the end of the run.
    pub stop: Option<Span>,
    /// Bytes that each connection sends; `None`: until `stop`.
    pub size: Option<Bytes>,
    /// Port that the receiver listens on; `None`: the world chooses.
    pub port: Option<u16>,
    /// How its connections are carried, where that differs from the run.
    pub transport: Transport,
}

/// A program that runs on a host of the lab.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecFlow {
    /// Unique name in results.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// Program and arguments, placeholders not yet replaced (see [`ExecFlow::resolved`]).
    pub command: Vec<String>,
    /// Environment variables to add, placeholders not yet replaced.
    pub env: BTreeMap<String, String>,
    /// When it starts.
    pub start: Span,
    /// When it is ended if it still runs; `None`: at the end of the run.
    pub stop: Option<Span>,
    /// Whether the run waits for it to exit; a server, which is ended with the run, has `false`.
    pub wait: bool,
}

/// A change of links at a time of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time since the start of the run.
    pub at: Span,
    /// The links that change.
    pub links: Vec<LinkId>,
    /// The directions that change.
    pub direction: EventDirection,
    /// The change.
    pub change: Change,
}

/// The directions of a link that an event or an impairment touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventDirection {
    /// Both directions.
    #[default]
    Both,
    /// The direction from the link's first end to its second.
    Forward,
    /// The direction from the link's second end to its first.
    Reverse,
}

/// What an event does to a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Takes the link down: packets that are queued or in flight are lost, and none gets through any more.
    Down,
    /// Ends an outage or a black hole.
    Up,
    /// Swallows every packet from now on; packets in flight still arrive.
    Blackhole,
    /// Sets the rate; zero means "not limited".
    Rate(Rate),
    /// Sets the propagation delay.
    Delay(Span),
    /// Sets the probability of random loss.
    Loss(Ratio),
}

/// A place in a scenario file, for errors that show only when the scenario is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The `[[flow]]` of this number, from 0.
    Flow(usize),
    /// A key of a table, such as `tcp` and `mss`.
    Key(&'static str, &'static str),
}

impl Scenario {
    /// Reads a scenario file; `default_name` (the file's stem) names it if it does not name itself.
    pub fn parse(text: &str, default_name: &str) -> Result<Scenario, ParseError> {
        Self::parse_with_files(text, default_name, &document::Unread)
    }

    /// Reads a scenario file that may name other files, which `files` returns.
    ///
    /// `default_name` names the scenario, as in [`parse`](Self::parse).
    pub fn parse_with_files(text: &str, default_name: &str, files: &dyn Files) -> Result<Scenario, ParseError> {
        read::scenario(text, default_name, files)
    }

    /// The seed of what is random other than traffic and the conditions of links, in a run under `seed`.
    pub fn chance(&self, seed: u64) -> u64 {
        // An odd constant spreads neighbouring repetitions over the seeds (Knuth's multiplicative hash).
        seed ^ u64::from(self.repetition).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Why no traffic begins in a run under any of these seeds, with what to add, and the place in the file; `None` if some does.
    ///
    /// Users of a closed loop and programs count as traffic, as what they do shows in the run alone.
    pub fn idle(&self, seeds: impl IntoIterator<Item = u64>) -> Option<(Place, String)> {
        if self.flows.is_empty() {
            return Some((Place::Flow(0), self.lacks_flows()));
        }
        let mut random = Vec::new();
        for (number, flow) in self.flows.iter().enumerate() {
            match flow {
                Flow::OpenLoop(flow) => random.push((number, flow)),
                Flow::Bulk(_) | Flow::Exec(_) | Flow::ClosedLoop(_) | Flow::Cbr(_) => return None,
            }
        }
        let begins = |seed| {
            let first = |(number, flow): &(usize, &OpenLoopFlow)| flow.arrivals(*number, seed, self.duration).next();
            random.iter().any(|flow| first(flow).is_some())
        };
        if seeds.into_iter().any(begins) {
            return None;
        }
        let (number, flow) = random.first()?;
        let lasts = flow.stop.unwrap_or(self.duration) - flow.start;
        let message = match &flow.arrivals {
            Arrivals::Poisson { rate, .. } => format!(
                "no transfer begins: {rate} arrivals a second give {:.3} in {lasts}, and under this seed none; raise the rate or \
                 the duration, or add a flow",
                flow.expected(self.duration)
            ),
            Arrivals::Listed(arrivals) => {
                let first = arrivals.first().map_or(Span::ZERO, |arrival| arrival.at.since(Time::ZERO));
                format!(
                    "no transfer begins: the first of the list does so at {first}; raise the duration, or add a flow"
                )
            }
        };
        Some((Place::Flow(*number), message))
    }

    /// What a scenario without flows needs, between two of its hosts.
    fn lacks_flows(&self) -> String {
        let hosts: Vec<&str> = self
            .topology
            .node_ids()
            .filter(|id| !self.topology.is_router(*id))
            .map(|id| self.topology.node(id).name.as_str())
            .collect();
        let what = "the scenario has no traffic, so there is nothing to run";
        match (hosts.first(), hosts.last()) {
            (Some(from), Some(to)) if from != to => format!(
                "{what}; add a flow, such as [[flow]] with kind = \"bulk\", from = \"{from}\" and to = \"{to}\" in lines below it"
            ),
            _ => format!("{what}; add two hosts to the topology, and a [[flow]] between them"),
        }
    }

    /// An error about a place in the scenario file of this text.
    pub fn error_at(text: &str, place: Place, message: &str) -> ParseError {
        read::error_at(text, place, message)
    }

    /// The resolved copy: the scenario as TOML with every default filled in, generators and patterns expanded.
    ///
    /// Parsing it gives an equal scenario, as long as it is not longer than [`MAX_TEXT`](document::MAX_TEXT).
    pub fn to_toml(&self) -> String {
        print::scenario(self)
    }
}

impl Flow {
    /// The flow's unique name.
    pub fn name(&self) -> &str {
        match self {
            Flow::Bulk(flow) => &flow.name,
            Flow::Exec(flow) => &flow.name,
            Flow::OpenLoop(flow) => &flow.name,
            Flow::ClosedLoop(flow) => &flow.name,
            Flow::Cbr(flow) => &flow.name,
        }
    }

    /// The pairs of hosts between which the flow goes; none of a program's.
    pub fn pairs(&self) -> &[(NodeId, NodeId)] {
        match self {
            Flow::Bulk(flow) => &flow.pairs,
            Flow::OpenLoop(flow) => &flow.pairs,
            Flow::ClosedLoop(flow) => &flow.pairs,
            Flow::Cbr(flow) => &flow.pairs,
            Flow::Exec(_) => &[],
        }
    }

    /// How the flow's connections are carried, where that differs from the run; `None`: it has no connections of ours.
    pub fn transport(&self) -> Option<&Transport> {
        match self {
            Flow::Bulk(flow) => Some(&flow.transport),
            Flow::OpenLoop(flow) => Some(&flow.transport),
            Flow::ClosedLoop(flow) => Some(&flow.transport),
            Flow::Exec(_) | Flow::Cbr(_) => None,
        }
    }
}

impl BulkFlow {
    /// When its connections open: by pair, and in order of time there. The same `seed` gives the same times in every world.
    ///
    /// `number` is the flow's position in the scenario.
    pub fn starts(&self, number: usize, seed: u64) -> Vec<Span> {
        let mut random = Pcg32::new(seed, FLOW_STREAMS + number as u64);
        let jitter = u128::from(self.start_jitter.as_nanos());
        let mut start = || self.start + Span::from_nanos(((u128::from(random.next_u64()) * jitter) >> 64) as u64);
        let of_pair = |_| {
            let mut starts: Vec<Span> = (0..self.connections).map(|_| start()).collect();
            starts.sort_unstable();
            starts
        };
        self.pairs.iter().flat_map(of_pair).collect()
    }
}

/// The least that a [request](OpenLoopFlow::request) has room for: it contains how long it is, and how long the answer.
pub const MIN_REQUEST: Bytes = Bytes::new(16);

impl OpenLoopFlow {
    /// Its transfers in the order of their arrival; the same `seed` gives the same transfers in every world.
    ///
    /// `number` is the flow's position in the scenario, `duration` the run's.
    pub fn arrivals(&self, number: usize, seed: u64, duration: Span) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let random = Pcg32::new(seed, FLOW_STREAMS + number as u64);
        let at = |since_start| Time::ZERO + since_start;
        let (start, stop) = (at(self.start), at(self.stop.unwrap_or(duration)));
        match &self.arrivals {
            Arrivals::Poisson { rate, shares, size } => {
                Box::new(workload::poisson(*rate, (self.pairs.len(), shares), size, start, stop, random))
            }
            Arrivals::Listed(arrivals) => {
                Box::new(arrivals.iter().copied().take_while(move |arrival| arrival.at < stop))
            }
        }
    }

    /// How many transfers can be expected in a run of `duration`.
    pub fn expected(&self, duration: Span) -> f64 {
        let stop = self.stop.unwrap_or(duration);
        match &self.arrivals {
            Arrivals::Poisson { rate, .. } => rate * (stop - self.start).as_secs_f64(),
            Arrivals::Listed(arrivals) => arrivals.partition_point(|arrival| arrival.at < Time::ZERO + stop) as f64,
        }
    }
}

/// Streams of random numbers of flows count from here; those below are of nodes and links.
pub const FLOW_STREAMS: u64 = 1 << 40;

impl ExecFlow {
    /// The flow with `{NAME}` in command and environment replaced by that node's address.
    ///
    /// `${NAME}`, `%{NAME}` and other braces stay; `{{NAME}}` becomes `{NAME}`. Fails where there is no node NAME,
    /// which cannot happen to a flow that was parsed together with `topology`.
    pub fn resolved(&self, topology: &Topology) -> Result<ExecFlow, TopologyError> {
        let substitute = |text: &String| placeholder::substitute(text, topology);
        let command = self.command.iter().map(substitute).collect::<Result<_, _>>()?;
        let env =
            self.env.iter().map(|(key, value)| Ok((key.clone(), substitute(value)?))).collect::<Result<_, _>>()?;
        Ok(ExecFlow { command, env, ..self.clone() })
    }
}
