//! The daemons of a lab: the very programs that an operator runs, started in the right places.
//!
//! A system lists which [daemons](Daemon) there are, on which nodes each runs, by which command, and how to read what it
//! reports. Readiness, logs and failures are handled alike for all.

use std::{
    fmt,
    net::Ipv6Addr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sidestep_linux::cgroup::Cgroup;
use sidestep_net::{NodeId, Span, Time, Topology};
use sidestep_results::{Recorder, SamplePoint};
use sidestep_scenario::Scenario;

use crate::{
    error::LabError,
    moves::Moves,
    network::Network,
    nodes::{name_of, write_topology},
    processes::{Place, Process, stop_all},
    site::LabDir,
    timeline::Made,
    traffic::Monotonic,
};

/// A daemon that a system needs.
#[derive(Clone)]
pub struct Daemon {
    /// Its name in processes and logs; two daemons of a name are the same if their settings are.
    pub name: &'static str,
    /// Its settings, as text.
    pub settings: String,
    /// Whether it moves the connections of the control groups of its nodes.
    pub steers: bool,
    place: PlaceOf,
    watch: Option<Arc<WatchOf>>,
}

/// Where a daemon runs, and the command that starts it there.
#[derive(Clone)]
enum PlaceOf {
    /// In the lab's own namespace, outside the network.
    Outside(Arc<OutsideCommandOf>),
    /// On each of these nodes.
    Nodes(Vec<NodeId>, Arc<CommandOf>),
}

/// The command that starts a daemon outside the network.
type OutsideCommandOf = dyn Fn(&Surroundings<'_>) -> Result<Command, LabError> + Send + Sync;
/// The command that starts a daemon on a node.
type CommandOf = dyn Fn(NodeId, &Surroundings<'_>) -> Result<Command, LabError> + Send + Sync;
/// Makes what reads a daemon's reports.
type WatchOf = dyn Fn(&Surroundings<'_>) -> Box<dyn Watch> + Send + Sync;

/// Reads what the daemons of one name report, on all nodes.
pub trait Watch: fmt::Debug {
    /// Reads what is new; called at each sample and before the daemons end. Moves since `epoch` go to `recorder`.
    fn catch_up(&mut self, network: &Network, epoch: Monotonic, recorder: &mut Recorder) -> Result<(), LabError>;

    /// Rows of `series.csv` about what was read last: the instant, and the time since those before.
    fn samples(&self, _at: (Time, Span)) -> Vec<SamplePoint> {
        Vec::new()
    }

    /// The name of the path that a connection of a host takes whose socket has this mark; `None` if that is the default route.
    fn path(&self, _host: NodeId, _remote: Ipv6Addr, _mark: u32) -> Option<&str> {
        None
    }

    /// Reads what is left when the daemons have ended: the moves by connection. `made` are the events of links that happened.
    fn finish(&mut self, _epoch: Monotonic, _made: &[Made], _recorder: &mut Recorder) -> Result<Moves, LabError> {
        Ok(Moves::default())
    }
}

/// What daemons are started with: options, places and the network.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The experiment.
    pub scenario: &'a Scenario,
    /// The `sidestep` program, of which the lab's daemons are subcommands.
    pub program: &'a Path,
    /// Set to end the run early.
    pub stop: &'a AtomicBool,
    /// The lab's control group and directory.
    pub site: &'a LabDir,
    /// The network.
    pub network: &'a Network,
    /// Directory of logs.
    pub logs: &'a Path,
    /// The control group of each node's flows that daemons may move.
    pub(crate) groups: &'a [Cgroup],
}

/// The daemons of a run.
#[derive(Debug, Default)]
pub struct Daemons {
    /// The processes of each daemon, in the order of their start.
    running: Vec<Vec<Process>>,
    watches: Vec<Box<dyn Watch>>,
}

impl Daemon {
    /// A daemon that `command` starts on each of `nodes`.
    pub fn on(
        name: &'static str,
        settings: impl fmt::Debug,
        nodes: impl IntoIterator<Item = NodeId>,
        command: impl Fn(NodeId, &Surroundings<'_>) -> Result<Command, LabError> + Send + Sync + 'static,
    ) -> Self {
        Self::at(name, settings, PlaceOf::Nodes(nodes.into_iter().collect(), Arc::new(command)))
    }

    /// A daemon that `command` starts in the lab's own namespace, outside the network.
    pub fn outside(
        name: &'static str,
        settings: impl fmt::Debug,
        command: impl Fn(&Surroundings<'_>) -> Result<Command, LabError> + Send + Sync + 'static,
    ) -> Self {
        Self::at(name, settings, PlaceOf::Outside(Arc::new(command)))
    }

    fn at(name: &'static str, settings: impl fmt::Debug, place: PlaceOf) -> Self {
        Daemon { name, settings: format!("{settings:?}"), steers: false, place, watch: None }
    }

    /// The same daemon, which moves connections.
    #[must_use]
    pub fn steering(mut self) -> Self {
        self.steers = true;
        self
    }

    /// The same daemon, whose reports are read by what `watch` makes.
    #[must_use]
    pub fn watched(mut self, watch: impl Fn(&Surroundings<'_>) -> Box<dyn Watch> + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }

    /// The nodes that it runs on; none for one outside the network.
    fn nodes(&self) -> &[NodeId] {
        match &self.place {
            PlaceOf::Outside(_) => &[],
            PlaceOf::Nodes(nodes, _) => nodes,
        }
    }
}

impl PartialEq for Daemon {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.settings, self.nodes()) == (other.name, &other.settings, other.nodes())
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").field("name", &self.name).field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}

impl<'a> Surroundings<'a> {
    /// The network's topology.
    pub fn topology(&self) -> &'a Topology {
        &self.scenario.topology
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> String {
        name_of(self.topology(), node)
    }

    /// The `sidestep` program with these arguments.
    pub fn command<'b>(&self, arguments: impl IntoIterator<Item = &'b str>) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments);
        command
    }

    /// The control group of a node's connections that daemons may move.
    pub fn group(&self, node: NodeId) -> &'a Path {
        self.groups.get(node.index()).map(Cgroup::path).unwrap_or(Path::new(""))
    }

    /// Writes the topology in the controller's format.
    pub fn write_topology(&self, path: &Path) -> Result<(), LabError> {
        write_topology(self.topology(), path)
    }
}

impl Daemons {
    /// Starts the daemons one after the other; one starts on its nodes when the one before is ready on all of its own.
    pub fn start(daemons: &[Daemon], around: &Surroundings<'_>) -> Result<Daemons, LabError> {
        let mut started = Daemons::default();
        if daemons.is_empty() {
            return Ok(started);
        }
        let cgroup = around.site.cgroup().child("daemons")?;
        let place = |node| Place { node, cgroup: &cgroup, logs: around.logs };
        for daemon in daemons {
            let mut running = Vec::new();
            match &daemon.place {
                PlaceOf::Outside(command) => {
                    running.push(Process::start(daemon.name, command(around)?, &place(None))?);
                }
                PlaceOf::Nodes(nodes, command) => {
                    for node in nodes {
                        let name = format!("{}-{}", daemon.name, around.name(*node));
                        let place = place(Some(around.network.node(*node)));
                        running.push(Process::start(&name, command(*node, around)?, &place)?);
                    }
                }
            }
            running.iter_mut().try_for_each(|process| process.wait_ready(&|| around.stop.load(Ordering::Relaxed)))?;
            started.running.push(running);
            started.watches.extend(daemon.watch.as_ref().map(|watch| watch(around)));
        }
        Ok(started)
    }

    /// Fails if a daemon has ended.
    pub fn check(&mut self) -> Result<(), LabError> {
        match self.running.iter_mut().flatten().find_map(|process| process.has_ended().then_some(process)) {
            Some(process) => Err(process.failure("ended during the run")),
            None => Ok(()),
        }
    }

    /// Reads what they report since the last time.
    pub fn catch_up(&mut self, network: &Network, epoch: Monotonic, recorder: &mut Recorder) -> Result<(), LabError> {
        self.watches.iter_mut().try_for_each(|watch| watch.catch_up(network, epoch, recorder))
    }

    /// Rows of `series.csv` about what was read last.
    pub fn samples(&self, at: (Time, Span)) -> impl Iterator<Item = SamplePoint> {
        self.watches.iter().flat_map(move |watch| watch.samples(at))
    }

    /// The name of the path that a connection takes, if a daemon has moved it.
    pub fn path(&self, host: NodeId, remote: Ipv6Addr, mark: u32) -> Option<&str> {
        self.watches.iter().find_map(|watch| watch.path(host, remote, mark))
    }

    /// Ends all daemons, the last first, so that later ones do not react to the end of earlier ones; returns their moves.
    pub fn stop(&mut self, epoch: Monotonic, made: &[Made], recorder: &mut Recorder) -> Result<Moves, LabError> {
        self.running.iter_mut().rev().for_each(|processes| stop_all(processes));
        let mut moves = Moves::default();
        for watch in &mut self.watches {
            moves.add(&watch.finish(epoch, made, recorder)?);
        }
        Ok(moves)
    }
}
