//! What the commands of [`planning`](super) take.

mod topologies;

use std::{net::SocketAddrV6, path::PathBuf};

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};
use sidestep_net::{Ratio, TrafficMatrix, document::quoted};
use sidestep_proto::tcp::Profile;
use sidestep_repro::Mode;
use sidestep_results::World;
use sidestep_scenario::{
    SystemSpec,
    overrides::{Override, OverrideError, Sweep},
};
use sidestep_sim::bench::Tcp;
use sidestep_tournament::Set;

pub use self::topologies::{
    AdviseArgs, BetweenArgs, DataArgs, MaxFlowArgs, PairArgs, Paths, RateArgs, ReadArgs, SamplingArgs, Topo,
    TopologyArgs,
};

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rehearse in a network of namespaces: real kernels, real TCP, real agents
    #[command(subcommand)]
    Lab(Lab),
    /// Rehearse in virtual time: the same scenarios in a packet-level simulator
    #[command(subcommand)]
    Sim(Sim),
    /// Run a scenario in the simulator and in the lab, and show how far they are apart
    Compare(CompareArgs),
    /// Show in a few minutes what moving connections is worth, and when: the lab's main experiments, or the simulator's
    Demo(DemoArgs),
    /// Reproduce the papers' tables and figures
    #[command(subcommand)]
    Repro(Repro),
    /// Look at published topologies, or at your own
    #[command(subcommand)]
    Topo(Topo),
    /// See what paths a topology offers before anything is deployed in it
    #[command(subcommand)]
    Paths(Paths),
    /// Report what a topology could gain: path diversity, segments it takes, throughput, links it relies on
    Advise(AdviseArgs),
    /// Compute how much more segment routing can carry than routing without it
    Maxflow(MaxFlowArgs),
    /// Measure how fast a part of sidestep is
    #[command(subcommand)]
    Bench(Bench),
    /// The lab's traffic generator
    #[command(subcommand, hide = true)]
    Traffic(Traffic),
}

/// `sidestep lab`.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Run a scenario under one or more systems and leave the results in a directory
    Run(LabRun),
    /// Remove what labs have left that were killed
    Clean {
        /// Print what was removed as JSON
        #[arg(long)]
        json: bool,
    },
}

/// What the user lays over a scenario file.
#[derive(Debug, Args)]
pub struct Laid {
    /// Set a key of the scenario to another value, such as `topology.rate=10Mbit/s` or `flow[0].connections=4`; repeat for several
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Demands of the flows with `pairing = "demands"`: a traffic matrix (.demands, SNDlib's .xml or .txt, .csv, .json), or
    /// gravity:TOTAL or uniform:TOTAL; the same as --set demands.file=FILE
    #[arg(long, value_name = "FILE", value_parser = demands_of)]
    demands: Option<Box<Override>>,
}

impl Laid {
    /// All that is set.
    pub fn all(&self) -> Vec<Override> {
        self.set.iter().chain(self.demands.as_deref()).cloned().collect()
    }
}

/// Demands by the name of their file, which is the user's and not the scenario's, or as they are drawn.
fn demands_of(name: &str) -> Result<Box<Override>, String> {
    let file = std::path::absolute(name).ok().filter(|_| !TrafficMatrix::is_drawn(name));
    let name = file.map_or(name.into(), |file| file.to_string_lossy().into_owned());
    let set = format!("demands.file={}", quoted(&name)).parse();
    set.map(Box::new).map_err(|error: OverrideError| error.to_string())
}

/// `sidestep lab run`.
#[derive(Debug, Args)]
pub struct LabRun {
    /// The scenario file
    pub scenario: PathBuf,
    /// A system to run, such as `tcp` or `pathchanger:gamma=0.2`; repeat for several [default: those of the scenario]
    #[arg(long = "system", value_name = "NAME")]
    pub systems: Vec<SystemSpec>,
    /// What is laid over the file
    #[command(flatten)]
    pub laid: Laid,
    /// Directory for the results [default: out/SCENARIO]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the result as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `sidestep sim`.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Run a scenario under one or more systems and leave the results in a directory
    Run(SimRun),
    /// Run a scenario with several values of a key, or of several keys, and put the results into one table and one picture
    Sweep(SimSweep),
}

/// `sidestep sim sweep`.
#[derive(Debug, Args)]
pub struct SimSweep {
    /// The scenario file
    pub scenario: PathBuf,
    /// A key and its values, such as topology.rate=10Mbit/s,20Mbit/s; repeat for several keys, each value with each
    #[arg(long, value_name = "KEY=VALUE,VALUE…", required = true)]
    pub over: Vec<Sweep>,
    /// A system to run, such as `tcp` or `mptcp:subflows=4`; repeat for several [default: those of the scenario]
    #[arg(long = "system", value_name = "NAME")]
    pub systems: Vec<SystemSpec>,
    /// What is laid over the file in all runs
    #[command(flatten)]
    pub laid: Laid,
    /// Runs of each system, one for each seed: the scenario's and those after it (the first: --set seed=N)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// Directory for the results [default: out/SCENARIO-sweep]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run even if the estimate shows that there is not enough memory
    #[arg(long)]
    pub force: bool,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `sidestep sim run`.
#[derive(Debug, Args)]
pub struct SimRun {
    /// The scenario file
    pub scenario: PathBuf,
    /// A system to run, such as `tcp` or `mptcp:subflows=4`; repeat for several [default: those of the scenario]
    #[arg(long = "system", value_name = "NAME")]
    pub systems: Vec<SystemSpec>,
    /// What is laid over the file
    #[command(flatten)]
    pub laid: Laid,
    /// Runs of each system, one for each seed: the scenario's and those after it (the first: --set seed=N)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// Go on with a run of several seeds that was interrupted
    #[arg(long)]
    pub resume: bool,
    /// Directory for the results [default: out/SCENARIO-sim]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the packets of a link to DIR/trace/SYSTEM/LINK.pcapng, for Wireshark; a pattern, or repeat for several
    #[arg(long, value_name = "LINK")]
    pub trace: Vec<String>,
    /// Be as late as a run of the lab was: its result.json, which has the one system that is run
    #[arg(long, value_name = "FILE")]
    pub lateness: Option<PathBuf>,
    /// Run even if the estimate shows that there is not enough memory
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `sidestep compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The scenario file
    pub scenario: PathBuf,
    /// The two worlds
    #[arg(long, value_name = "WORLDS", value_delimiter = ',', default_value = "sim,lab", value_parser = one_of(WORLDS))]
    pub worlds: Vec<World>,
    /// A system to run; repeat for several [default: those of the scenario]
    #[arg(long = "system", value_name = "NAME")]
    pub systems: Vec<SystemSpec>,
    /// What is laid over the file
    #[command(flatten)]
    pub laid: Laid,
    /// Test over several seeds whether the two worlds give the same, within a margin
    #[arg(long)]
    pub equivalence: bool,
    /// Runs of each system, one for each seed: the scenario's and those after it (the first: --set seed=N); fewer than 6 decide nothing
    #[arg(long, value_name = "N", default_value_t = 6, requires = "equivalence", value_parser = value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Runs under each seed with the same arrivals: a number, or one for each world
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2", requires = "equivalence", value_parser = value_parser!(u32).range(1..=1000))]
    pub repetitions: Vec<u32>,
    /// By how much the worlds may differ to count as the same
    #[arg(long, value_name = "SHARE", default_value = "5%", requires = "equivalence")]
    pub margin: Ratio,
    /// A lab run counts if no larger share of its packets was more than 1 ms late
    #[arg(long, value_name = "SHARE", default_value = "1%", requires = "equivalence")]
    pub late: Ratio,
    /// Make the simulator deliver packets, begin flows, wake programs and count ticks as the lab's run of the same seed did
    #[arg(long, requires = "equivalence")]
    pub lateness: bool,
    /// Take the runs that a call before this has left in the directory of the results
    #[arg(long, requires = "equivalence")]
    pub resume: bool,
    /// Directory for the results [default: out/SCENARIO-compare]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the comparison as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `sidestep demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub out: PathBuf,
    /// Run it in the simulator, which takes no root and a few seconds, without the part with programs
    #[arg(long)]
    pub sim: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// `sidestep repro`.
#[derive(Debug, Subcommand)]
pub enum Repro {
    /// List the tables and figures
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run experiments, and leave ours beside the paper's in OUT/ID
    Run {
        /// Which, such as tpc-fig5; see `sidestep repro list`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// How thorough: quick, or full as a paper would have it
        #[arg(long, value_name = "MODE", default_value = "quick", value_parser = one_of(MODES))]
        mode: Mode,
        /// Where: sim or lab [default: the experiment's own]
        #[arg(long, value_name = "WORLD", value_parser = one_of(WORLDS))]
        world: Option<World>,
        /// Directory for the results
        #[arg(long, value_name = "DIR", default_value = "out/repro")]
        out: PathBuf,
        /// Where the published topologies are
        #[command(flatten)]
        data: DataArgs,
        /// Print the results as JSON
        #[arg(long)]
        json: bool,
    },
    /// Put all results of a directory on one page, DIR/index.html
    Report {
        /// The directory
        #[arg(value_name = "DIR", default_value = "out/repro")]
        dir: PathBuf,
    },
}

/// `sidestep bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Frames per second through the lab's userspace wires
    Wire {
        /// How many wires
        #[arg(long, default_value_t = 12)]
        wires: usize,
        /// How long to measure, in seconds
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Print the measures as JSON
        #[arg(long)]
        json: bool,
    },
    /// What the agent costs: goodput and connections per second with it and without, time per call; or many connections
    Agent {
        /// Pairs of measurements, with the agent and without; at least 9 for a median worth having
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// How long each measurement takes, in seconds
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Instead: memory and moves of a host with this number of connections, at most 20000
        #[arg(long, value_name = "N", conflicts_with_all = ["rounds", "seconds"])]
        connections: Option<u32>,
        /// Print the measures as JSON
        #[arg(long)]
        json: bool,
    },
    /// CPU time of path computations: large networks, all of REPETITA's topologies, failures
    Paths {
        /// Only this: hosts, large, curves, incremental or lp
        #[arg(long, value_name = "NAME")]
        case: Option<String>,
        /// Where the published topologies are
        #[command(flatten)]
        data: DataArgs,
        /// Print the measures as JSON
        #[arg(long)]
        json: bool,
    },
    /// Which policy of the path changer is best where: a tournament in the simulator, over fixed scenarios
    Policies(PolicyArgs),
    /// Packets times links per second of the simulator, on five networks
    Sim {
        /// One of them: dumbbell-32, dumbbell-500, mptcp-lia-4, mptcp-olia-32, fat-tree-128, fat-tree-1024-mptcp-8 [default: all]
        #[arg(long, value_name = "NAME")]
        case: Option<String>,
        /// How long to simulate, in seconds [default: as long as shows its speed]
        #[arg(long, value_name = "S")]
        seconds: Option<f64>,
        /// From which random numbers follow
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// linux, rfc, or simple: an ACK for each segment and no SACK, as simulators have it that are compared with this one
        #[arg(long, value_name = "NAME", default_value = "linux", value_parser = one_of(TCPS))]
        tcp: Tcp,
        /// Instead: print the network, the routes and the start times for another simulator (bench/htsim)
        #[arg(long, requires = "case", conflicts_with_all = ["seconds", "tcp", "json"])]
        describe: bool,
        /// Print the measures as JSON
        #[arg(long)]
        json: bool,
    },
}

/// `sidestep bench policies`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Where to play: in the simulator, or as root a short list of scenarios on real kernels with the real agent
    #[arg(long, value_name = "WORLD", default_value = "sim", value_parser = one_of(WORLDS))]
    pub world: World,
    /// How thorough: quick has 5 seeds; full has 20, and regrets (in the lab: 1 and 5 runs)
    #[arg(long, value_name = "MODE", default_value = "quick", value_parser = one_of(MODES))]
    pub mode: Mode,
    /// Runs of each system, one for each seed from 1 on, instead of the mode's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// A policy, such as `pathchanger:policy=plb`; repeat for several; `random`, `tcp` and `ecmp` always play [default: a list]
    #[arg(long, value_name = "SYSTEM")]
    pub policies: Vec<SystemSpec>,
    /// Only scenarios of this name; a pattern, such as `equal-*`
    #[arg(long, value_name = "NAME")]
    pub scenarios: Option<String>,
    /// Only those to tune policies on, or those kept for judging
    #[arg(long, value_name = "SET", default_value = "all", value_parser = one_of(SETS))]
    pub set: Sets,
    /// Play scenarios that this seed draws, not the fixed ones: no policy was tuned on those of a new seed
    #[arg(long, value_name = "SEED", conflicts_with = "set")]
    pub drawn: Option<u64>,
    /// How many scenarios to draw
    #[arg(long, value_name = "N", default_value_t = 40, requires = "drawn", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub count: u32,
    /// Whose TCP the simulator has; the documented results are of linux
    #[arg(long, value_name = "NAME", default_value = "linux", value_parser = one_of(PROFILES))]
    pub profile: Profile,
    /// Compute by how much the best fixed assignment of connections to paths beats each policy
    #[arg(long)]
    pub regret: bool,
    /// Directory for the page and policies.json
    #[arg(long, value_name = "DIR", default_value = "out/policies")]
    pub out: PathBuf,
    /// Print the results as JSON; with --list, the list
    #[arg(long)]
    pub json: bool,
    /// Only list the scenarios
    #[arg(long)]
    pub list: bool,
    /// Only write each scenario to DIR, as a file for `sidestep sim run`
    #[arg(long, value_name = "DIR", conflicts_with = "list")]
    pub write: Option<PathBuf>,
}

/// Which scenarios of the tournament.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// Those of one set.
    One(Set),
    /// All.
    All,
}

/// `sidestep traffic`.
#[derive(Debug, Subcommand)]
pub enum Traffic {
    /// Accept connections and discard what comes
    Sink {
        /// Address and port
        #[arg(long)]
        listen: SocketAddrV6,
        /// Answer requests
        #[arg(long)]
        answer: bool,
        /// What its sockets are
        #[command(flatten)]
        socket: TrafficSocket,
    },
    /// Open connections and send as fast as TCP takes it
    Send(TrafficSend),
    /// Send packets at a constant rate
    Cbr(TrafficCbr),
}

/// What the sockets of a flow are.
#[derive(Debug, Args)]
pub struct TrafficSocket {
    /// Speak MPTCP
    #[arg(long)]
    pub mptcp: bool,
    /// The kernel's congestion control; by default the namespace's
    #[arg(long)]
    pub congestion_control: Option<String>,
    /// The largest window to advertise, in bytes
    #[arg(long)]
    pub window: Option<u32>,
    /// Whether timeouts bring a new flow label; by default as the namespace has it
    #[arg(long)]
    pub rehash: Option<bool>,
}

/// Where a flow goes, and when; times are in nanoseconds, and count from the epoch but for the epoch itself.
#[derive(Debug, Args)]
pub struct TrafficCourse {
    /// Address and port of the other end
    #[arg(long)]
    pub to: SocketAddrV6,
    /// Start of the run, by CLOCK_MONOTONIC
    #[arg(long)]
    pub epoch_ns: u64,
    /// When the flow begins
    #[arg(long)]
    pub start_ns: u64,
    /// When it ends, or what is not complete is given up
    #[arg(long)]
    pub stop_ns: u64,
}

/// `sidestep traffic cbr`.
#[derive(Debug, Args)]
pub struct TrafficCbr {
    /// Where the packets go, and when
    #[command(flatten)]
    pub course: TrafficCourse,
    /// Bits of IP packets a second
    #[arg(long)]
    pub rate_bps: u64,
    /// Length of an IP packet in bytes
    #[arg(long)]
    pub packet: u16,
    /// How long it sends in turn
    #[arg(long, requires = "off_ns")]
    pub on_ns: Option<u64>,
    /// How long it pauses in turn
    #[arg(long, requires = "on_ns")]
    pub off_ns: Option<u64>,
    /// Take the two for means of exponential times
    #[arg(long)]
    pub random: bool,
    /// Seed of the random numbers
    #[arg(long)]
    pub seed: u64,
    /// Stream of the random numbers
    #[arg(long)]
    pub stream: u64,
}

/// Users who transfer, think and transfer again.
#[derive(Debug, Args)]
pub struct TrafficUsers {
    /// How many users begin the connections
    #[arg(long, requires_all = ["think_ns", "sizes", "until_ns", "seed", "stream"])]
    pub users: Option<u32>,
    /// Number of the first user
    #[arg(long, default_value_t = 0)]
    pub first_user: u32,
    /// Mean time between a transfer's end and the next one's start
    #[arg(long)]
    pub think_ns: Option<u64>,
    /// A file with the distribution of sizes, as scenarios have it
    #[arg(long)]
    pub sizes: Option<PathBuf>,
    /// When no more transfers begin
    #[arg(long)]
    pub until_ns: Option<u64>,
    /// Seed of the random numbers
    #[arg(long)]
    pub seed: Option<u64>,
    /// Stream of the random numbers
    #[arg(long)]
    pub stream: Option<u64>,
}

/// `sidestep traffic send`.
#[derive(Debug, Args)]
pub struct TrafficSend {
    /// Where the sink is, and when the connections live
    #[command(flatten)]
    pub course: TrafficCourse,
    /// What its sockets are
    #[command(flatten)]
    pub socket: TrafficSocket,
    /// What begins the connections, if not a clock
    #[command(flatten)]
    pub users: TrafficUsers,
    /// How many connections
    #[arg(long, default_value_t = 0)]
    pub connections: u32,
    /// Bytes of each connection
    #[arg(long)]
    pub size: Option<u64>,
    /// Bytes of a request to send, for an answer of the size
    #[arg(long)]
    pub request: Option<u64>,
    /// A file with a start and a size in each line, for as many connections
    #[arg(long)]
    pub schedule: Option<PathBuf>,
    /// Start of the measured window
    #[arg(long)]
    pub window_from_ns: u64,
    /// End of the measured window
    #[arg(long)]
    pub window_to_ns: u64,
}

const WORLDS: [(&str, World); 2] = [("sim", World::Sim), ("lab", World::Lab)];
const TCPS: [(&str, Tcp); 3] = [("linux", Tcp::Linux), ("rfc", Tcp::Rfc), ("simple", Tcp::Simple)];
const PROFILES: [(&str, Profile); 2] = [("linux", Profile::Linux), ("rfc", Profile::Rfc)];
const SETS: [(&str, Sets); 3] =
    [("tuning", Sets::One(Set::Tuning)), ("judging", Sets::One(Set::Judging)), ("all", Sets::All)];
const MODES: [(&str, Mode); 2] = [("quick", Mode::Quick), ("full", Mode::Full)];

/// Takes one of these names for the value beside it.
fn one_of<T, const N: usize>(choices: [(&'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(choices.map(|(name, _)| name)).try_map(move |given| {
        let chosen = choices.iter().find(|(name, _)| *name == given);
        chosen.map(|(_, value)| *value).ok_or("is not among the possible values")
    })
}
