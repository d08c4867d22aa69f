//! The host agent, on a thread inside a node.

use std::{collections::BTreeMap, fs, net::Ipv6Addr};

use sidestep_api::HostIdentity;
use sidestep_hostd::{AgentError, StaticDestination, StaticPath};
use sidestep_lab::plan::tail_address;
use sidestep_net::{Ratio, Span};
use sidestep_pathchanger::daemon::{
    EventLine, EventRecord, HostConfig, HostOptions, RecordFile, SetRecord, program::Pins, run_host,
};
use sidestep_policy::{Backoff, PolicySettings};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{
    Lab,
    daemon::{Daemon, End},
    eventually,
};

/// First table of paths, less one.
pub const TABLE_BASE: u32 = 8300;

/// An agent that does its work; stopped when dropped.
pub struct Agent {
    daemon: Daemon,
    reconfigure: UnboundedSender<HostConfig>,
    directory: TempDir,
}

impl Agent {
    /// Starts the agent of `host` with these paths to `destination`.
    pub fn start(lab: &Lab, host: &str, settings: PolicySettings, destination: &str, paths: Vec<StaticPath>) -> Agent {
        Self::start_with(lab, host, settings, destination, paths, None)
    }

    /// Starts the agent of `host` with these paths to `destination`; it keeps its state in `pins`.
    pub fn start_with(
        lab: &Lab,
        host: &str,
        settings: PolicySettings,
        destination: &str,
        paths: Vec<StaticPath>,
        pins: Option<Pins>,
    ) -> Agent {
        Self::start_as(lab, host, settings, destination, paths, |options| options.pins = pins)
    }

    /// Starts the agent of `host` with these paths to `destination`, and with options as `adjust` makes them.
    pub fn start_as(
        lab: &Lab,
        host: &str,
        settings: PolicySettings,
        destination: &str,
        paths: Vec<StaticPath>,
        adjust: impl FnOnce(&mut HostOptions),
    ) -> Agent {
        match Self::try_start_as(lab, host, settings, destination, paths, adjust) {
            Ok(agent) => agent,
            Err(ended) => panic!("the agent is not ready: {ended:?}"),
        }
    }

    /// Like [`start_as`](Self::start_as); an agent that ends before it is ready is an error.
    pub fn try_start_as(
        lab: &Lab,
        host: &str,
        settings: PolicySettings,
        destination: &str,
        paths: Vec<StaticPath>,
        adjust: impl FnOnce(&mut HostOptions),
    ) -> Result<Agent, Result<(), AgentError>> {
        let destinations = vec![StaticDestination { prefix: destination.parse().unwrap(), paths }];
        let directory = tempfile::tempdir().unwrap();
        let mut options = HostOptions {
            controller: None,
            identity: HostIdentity::Node(host.into()),
            config: HostConfig { agent: settings, destinations, ..HostConfig::default() },
            cgroup: lab.cgroup.0.path().into(),
            table_base: TABLE_BASE,
            priority: 830,
            pins: None,
            keep: false,
            dry_run: false,
            events: Some(RecordFile::at(directory.path().join("events.jsonl"))),
        };
        adjust(&mut options);
        let (reconfigure, configs) = unbounded_channel();
        let run = move |ready, shutdown| run_host(options, configs, ready, shutdown);
        Ok(Agent { daemon: Daemon::start(lab, host, run)?, reconfigure, directory })
    }

    /// Stops the agent, and waits until it has cleaned up.
    pub fn stop(mut self) {
        self.daemon.end(End::CleanUp).unwrap();
    }

    /// Ends the agent as `kill -9` would.
    pub fn kill(mut self) {
        self.daemon.end(End::Killed).unwrap();
    }

    /// Makes the agent work with these paths from now on.
    pub fn reconfigure(&self, settings: PolicySettings, destination: &str, paths: Vec<StaticPath>) {
        let destinations = vec![StaticDestination { prefix: destination.parse().unwrap(), paths }];
        self.reconfigure.send(HostConfig { agent: settings, destinations, ..HostConfig::default() }).unwrap();
    }

    /// Makes the agent work with these paths from now on.
    pub fn reconfigure_all(&self, settings: PolicySettings, destinations: Vec<StaticDestination>) {
        self.reconfigure.send(HostConfig { agent: settings, destinations, ..HostConfig::default() }).unwrap();
    }

    /// Waits until the agent ends by itself.
    pub fn wait(mut self) -> Result<(), AgentError> {
        self.daemon.wait()
    }

    /// What was recorded so far of connections; `from` and `to` are slots, where records have Path IDs.
    pub fn events(&self) -> Vec<EventRecord> {
        let text = fs::read_to_string(self.directory.path().join("events.jsonl")).unwrap();
        let mut slots = BTreeMap::from([(0, 0)]);
        let mut events = Vec::new();
        // The last line may be half written.
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                EventLine::Paths(paths) => {
                    let paths = paths.sets.iter().flat_map(|set| &set.paths);
                    slots.extend(paths.map(|path| (path.id, path.slot)));
                }
                EventLine::Connection(event) => {
                    let slot = |id| slots.get(&id).copied().unwrap_or(u32::MAX);
                    events.push(EventRecord { from: slot(event.from), to: slot(event.to), ..event });
                }
            }
        }
        events
    }

    /// The Path ID of each path, by its slot.
    pub fn ids(&self) -> BTreeMap<u32, u32> {
        self.sets().last().unwrap().iter().flat_map(|set| &set.paths).map(|path| (path.slot, path.id)).collect()
    }

    /// How many destinations have paths.
    pub fn destinations(&self) -> usize {
        self.sets().last().map_or(0, Vec::len)
    }

    /// Whether a destination has paths.
    pub fn has_destination(&self, prefix: &str) -> bool {
        self.sets().last().is_some_and(|sets| sets.iter().any(|set| set.destination.to_string() == prefix))
    }

    /// How often paths have changed.
    pub fn changes(&self) -> usize {
        self.sets().len()
    }

    /// The paths that were in place, one set after the other.
    fn sets(&self) -> Vec<Vec<SetRecord>> {
        let text = fs::read_to_string(self.directory.path().join("events.jsonl")).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter_map(|line| if let EventLine::Paths(paths) = line { Some(paths.sets) } else { None }).collect()
    }

    /// Waits for a move for this reason.
    pub fn moved(&self, reason: &str) -> EventRecord {
        let is_it = |event: &EventRecord| event.kind == "moved" && event.reason.as_deref() == Some(reason);
        eventually("a record of the move", || self.events().into_iter().find(is_it))
    }
}

/// Settings under which only timeouts move a connection, and the heaviest path is almost always drawn.
pub fn settings() -> PolicySettings {
    PolicySettings {
        gamma: 1e-5,
        ce_share: Ratio::from_ppb(1_000_000_000),
        retransmit_burst: 0,
        queue_rounds: 0,
        silence_backoff: Backoff { min: Span::from_millis(10), max: Span::from_secs(1) },
        ..PolicySettings::default()
    }
}

/// The path by a neighbour of `host`.
pub fn via(lab: &Lab, host: &str, neighbour: &str, rate: &str) -> StaticPath {
    StaticPath { via: Some(tail(lab, neighbour, host).into()), dev: Some(neighbour.into()), ..path(rate) }
}

/// The address of `neighbour` on its link to `host`.
pub fn tail(lab: &Lab, neighbour: &str, host: &str) -> Ipv6Addr {
    tail_address(&lab.topology, lab.arc(neighbour, host))
}

/// The path by a segment list.
pub fn segments(list: &[Ipv6Addr], rate: &str) -> StaticPath {
    StaticPath { segments: Some(list.to_vec()), ..path(rate) }
}

/// The path by the host's own routes.
pub fn plain(rate: &str) -> StaticPath {
    StaticPath { plain: true, ..path(rate) }
}

/// A path of no kind yet, of this bandwidth.
fn path(rate: &str) -> StaticPath {
    StaticPath {
        name: None,
        segments: None,
        encap: false,
        path_id: None,
        via: None,
        dev: None,
        plain: false,
        rate: rate.parse().unwrap(),
        rtt: Span::from_millis(10),
        mtu: None,
        sources: Vec::new(),
    }
}
