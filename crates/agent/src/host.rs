//! The host daemon: keeps the path changer's program, its maps, and the rules and routes that make paths of marks.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    path::PathBuf,
    rc::Rc,
};

use ipnet::Ipv6Net;
use sidestep_api::{Connection, HostIdentity, Latest, PathUpdate, Watcher, watch_paths};
use sidestep_linux::{
    bpf::host::{Event, Events, HostConfig as ProgramConfig, HostProgram},
    netlink::{MarkRule, Netlink, NextHop, Route},
};
use sidestep_model::scenario::AgentKnobs;
use sidestep_policy as policy;

use crate::{
    AgentError, ConfigError, EventLog, HostConfig,
    paths::{self, DestinationPaths, slot_of},
};

/// What the host daemon needs to know.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Where the controller is; `None` for a host with paths of its own only.
    pub controller: Option<String>,
    /// Who the host is to the controller.
    pub identity: HostIdentity,
    /// Settings and paths of its own.
    pub config: HostConfig,
    /// The control group whose processes' connections are moved.
    pub cgroup: PathBuf,
    /// The path of slot k is in table `table_base + k`.
    pub table_base: u32,
    /// Priority of the rules.
    pub priority: u32,
    /// Where to record what the path changer does.
    pub events: Option<PathBuf>,
}

/// Runs the host daemon until `shutdown` completes; calls `ready` when paths are in place.
///
/// On return nothing of it is left in the kernel; connections go on along the default route.
pub async fn run_host(
    options: HostOptions,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let mut host = Host::start(&options).await?;
    let recorder = Recorder::new(&options)?;
    let sink = recorder.clone();
    let events = host.program.events(move |event| sink.write(&event))?;
    let result = tokio::select! {
        () = shutdown => Ok(()),
        result = host.work(&options, &events, &recorder, ready) => result,
    };
    let recorded = recorder.take(&events);
    let stopped = host.stop().await;
    result.and(recorded).and(stopped)
}

/// The daemon's hold on the kernel.
struct Host {
    netlink: Netlink,
    program: HostProgram,
    own: Vec<DestinationPaths>,
    mask: Mask,
    table_base: u32,
    priority: u32,
    rules: u32,
    routes: BTreeMap<(u32, Ipv6Net), Route>,
    destinations: BTreeSet<Ipv6Net>,
}

/// The record of events, shared with the callback that hears of them.
#[derive(Clone)]
struct Recorder(Rc<RefCell<Recording>>);

struct Recording {
    log: Option<EventLog>,
    /// What went wrong in the callback, which cannot say so itself.
    outcome: Result<(), AgentError>,
}

impl Recorder {
    fn new(options: &HostOptions) -> Result<Self, AgentError> {
        let log = options.events.as_deref().map(EventLog::create).transpose()?;
        Ok(Recorder(Rc::new(RefCell::new(Recording { log, outcome: Ok(()) }))))
    }

    fn write(&self, event: &Event) {
        let Recording { log, outcome } = &mut *self.0.borrow_mut();
        if let (Some(log), Ok(())) = (log, &outcome) {
            *outcome = log.write(event);
        }
    }

    /// Records the events that wait, and makes them visible to readers.
    fn take(&self, events: &Events<'_>) -> Result<(), AgentError> {
        events.consume()?;
        let Recording { log, outcome } = &mut *self.0.borrow_mut();
        std::mem::replace(outcome, Ok(()))?;
        log.as_mut().map_or(Ok(()), EventLog::flush)
    }
}

/// The bits of a mark that are ours.
#[derive(Clone, Copy)]
struct Mask {
    mask: u32,
    shift: u32,
}

impl Mask {
    /// How many paths they can tell apart; zero stands for none.
    fn slots(self) -> usize {
        (self.mask >> self.shift) as usize
    }
}

impl Host {
    async fn start(options: &HostOptions) -> Result<Self, AgentError> {
        if options.controller.is_none() && options.config.destinations.is_empty() {
            return Err(AgentError::NothingToDo);
        }
        let netlink = Netlink::open()?;
        let interfaces = netlink.interfaces().await?;
        let by_name = interfaces.into_iter().map(|interface| (interface.name, interface.index)).collect();
        let own = options.config.resolve(&by_name)?;

        let knobs = &options.config.agent;
        let mask = Mask { mask: knobs.mark_mask, shift: knobs.mark_mask.trailing_zeros() };
        let mut program = HostProgram::load()?;
        program.configure(&ProgramConfig {
            policy: policy_of(knobs)?,
            mark_mask: mask.mask,
            mark_shift: mask.shift,
        })?;

        let mut host = Host {
            netlink,
            program,
            own,
            mask,
            table_base: options.table_base,
            priority: options.priority,
            rules: 0,
            routes: BTreeMap::new(),
            destinations: BTreeSet::new(),
        };
        // What an earlier daemon left when it was killed.
        host.clear().await?;
        Ok(host)
    }

    /// Does the daemon's work, which ends by itself only with an error.
    async fn work(
        &mut self,
        options: &HostOptions,
        events: &Events<'_>,
        recorder: &Recorder,
        ready: impl FnOnce(),
    ) -> Result<(), AgentError> {
        let mut watcher = match &options.controller {
            Some(endpoint) => Some(watch_paths(endpoint, options.identity.clone(), true).await?),
            None => None,
        };
        let first = match &mut watcher {
            Some(watcher) => watcher.changed().await.and_then(|latest| latest.update),
            None => None,
        };
        self.apply(first.as_deref()).await?;
        self.program.attach(&options.cgroup)?;
        ready();

        loop {
            tokio::select! {
                latest = next(&mut watcher) => self.hear(latest).await?,
                waiting = events.ready() => {
                    waiting?;
                    recorder.take(events)?;
                }
            }
        }
    }

    async fn hear(&mut self, latest: Option<Latest<PathUpdate>>) -> Result<(), AgentError> {
        let Some(latest) = latest else { return Ok(()) };
        match &latest.connection {
            Connection::Lost { reason } => {
                tracing::warn!(reason, "the controller is away; the last paths stay");
                Ok(())
            }
            Connection::Connecting => Ok(()),
            Connection::Connected => self.apply(latest.update.as_deref()).await,
        }
    }

    /// Makes rules, routes and map say what `update` and our own configuration say.
    ///
    /// Routes come before the map that sends connections to them, and go after it.
    async fn apply(&mut self, update: Option<&PathUpdate>) -> Result<(), AgentError> {
        let mut sets = self.own.clone();
        sets.extend(update.map(DestinationPaths::from_update).unwrap_or_default());
        let hops = self.first_hops(&sets).await?;
        for set in &mut sets {
            // No connection may draw a path that leads nowhere, or one that its mark has no room for.
            set.paths.retain(|path| path.is_reachable(&hops));
            set.paths.truncate(self.mask.slots());
        }
        let wanted = paths::routes(&sets, self.table_base, &hops);

        let slots = sets.iter().map(|set| set.paths.len()).max().unwrap_or(0);
        self.install_rules(slots).await?;
        for (key, route) in &wanted {
            if self.routes.get(key) != Some(route) {
                self.netlink.add_route(route).await?;
            }
        }
        for set in &sets {
            self.program.set_paths(set.destination, set.generation(), &set.entries())?;
        }
        let named: BTreeSet<_> = sets.iter().map(|set| set.destination).collect();
        for gone in self.destinations.difference(&named) {
            self.program.remove_paths(*gone)?;
        }
        for (table, destination) in self.routes.keys().filter(|key| !wanted.contains_key(key)) {
            self.netlink.delete_route(*table, *destination).await?;
        }
        self.destinations = named;
        self.routes = wanted;
        Ok(())
    }

    /// The way to the first segment of each path.
    async fn first_hops(&self, sets: &[DestinationPaths]) -> Result<BTreeMap<Ipv6Addr, NextHop>, AgentError> {
        let firsts: BTreeSet<_> =
            sets.iter().flat_map(|set| &set.paths).filter_map(paths::HostPath::first_hop).collect();
        let mut hops = BTreeMap::new();
        for first in firsts {
            match self.netlink.route_to(first).await {
                Ok(hop) => {
                    hops.insert(first, hop);
                }
                Err(error) => tracing::warn!(%error, "a path has no way out and is left out"),
            }
        }
        Ok(hops)
    }

    async fn install_rules(&mut self, slots: usize) -> Result<(), AgentError> {
        while (self.rules as usize) < slots {
            let slot = slot_of(self.rules as usize);
            let rule = MarkRule {
                mark: slot << self.mask.shift,
                mask: self.mask.mask,
                table: self.table_base + slot,
                priority: self.priority,
            };
            self.netlink.add_rule(rule).await?;
            self.rules += 1;
        }
        Ok(())
    }

    async fn stop(mut self) -> Result<(), AgentError> {
        let cleared = self.clear().await;
        tracing::info!(counters = ?self.program.counters()?, "stopped");
        cleared
    }

    /// Removes all rules and routes of ours from our tables, whoever installed them.
    async fn clear(&mut self) -> Result<(), AgentError> {
        let last = self.table_base + policy::raw::MAX_PATHS as u32;
        let tables = self.table_base + 1..=last;
        self.netlink.delete_rules(tables.clone(), self.priority).await?;
        for (table, destination) in self.netlink.own_routes().await? {
            if tables.contains(&table) {
                self.netlink.delete_route(table, destination).await?;
            }
        }
        self.rules = 0;
        self.routes.clear();
        Ok(())
    }
}

/// The policy's settings as the program reads them.
fn policy_of(knobs: &AgentKnobs) -> Result<policy::raw::Config, AgentError> {
    policy::Config::from(knobs).to_raw().map_err(|error| ConfigError::Range(error.to_string()).into())
}

/// The next word from the controller; never, without one.
async fn next(watcher: &mut Option<Watcher<PathUpdate>>) -> Option<Latest<PathUpdate>> {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}
