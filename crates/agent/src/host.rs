//! The host daemon: keeps the path changer's program, its maps, and the rules and routes that make paths of marks.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use sidestep_api::{Connection, HostIdentity, Latest, PathUpdate, Watcher, watch_paths};
use sidestep_linux::{
    bpf::host::{ControllerState, Events, HostConfig as ProgramConfig, HostProgram, Pins, RunStats},
    monotonic_now,
    netlink::{Family, LinkWatch, MarkRule, Netlink, NextHop, Route},
};
use sidestep_metrics::{Page, Scrapes};
use sidestep_model::{Time, scenario::AgentKnobs};
use sidestep_policy as policy;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    AgentError, ConfigError, HostConfig,
    events::Recorder,
    metrics::Reading,
    paths::{self, DestinationPaths, slot_of},
    summary::{self, Summary},
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
    /// Where the program's state is kept should the agent be killed; `None`: nowhere.
    pub pins: Option<Pins>,
    /// Whether everything stays in place on a shutdown, for the next agent to take over; only with `pins`.
    pub keep: bool,
    /// Whether to decide, count and record only: no mark is set, no rule and no route installed.
    pub dry_run: bool,
    /// Where to record what the path changer does.
    pub events: Option<PathBuf>,
}

/// Runs the host daemon until `shutdown` completes, with whether to keep everything as `options.keep` would; calls `ready` when paths are in place.
///
/// On return nothing of it is left in the kernel, and connections go on along the default route; unless `options` say
/// that it is kept, or the daemon failed while at work and another can take over. What an earlier daemon left is taken
/// over: programs, maps, rules and routes are changed in place, and no connection notices.
///
/// A configuration that comes through `configs` takes the place of the one in `options`; its `mark_mask` does not.
pub async fn run_host(
    options: HostOptions,
    configs: UnboundedReceiver<HostConfig>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = bool>,
) -> Result<(), AgentError> {
    let mut scrapes = Scrapes::listen_if(options.config.metrics.listen).await?;
    let mut host = Host::start(&options).await?;
    let recorder = Recorder::new(options.events.as_deref(), options.dry_run)?;
    let sink = recorder.clone();
    let events = host.program.events(move |event| sink.write(&event))?;
    let (result, keep) = tokio::select! {
        keep = shutdown => (Ok(()), keep || options.keep),
        result = host.work(&options, configs, &events, &recorder, &mut scrapes, ready) => (result, options.keep),
    };
    let recorded = recorder.take(&events);
    drop(events);
    let kept = options.pins.as_ref().is_some_and(Pins::exist);
    let keeps = kept && host.at_work && (keep || result.is_err());
    let stopped = if keeps { Ok(()) } else { host.stop().await };
    result.and(recorded).and(stopped)
}

/// How often the daemon looks for events, whether it was told to stop, and whether its control group is there.
const LOOK: Duration = Duration::from_millis(500);
/// How long a daemon may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// The daemon's hold on the kernel.
struct Host {
    netlink: Netlink,
    program: HostProgram,
    config: HostConfig,
    own: Vec<DestinationPaths>,
    update: Option<Arc<PathUpdate>>,
    mask: Mask,
    table_base: u32,
    priority: u32,
    dry_run: bool,
    /// Whether anybody reads events.
    records: bool,
    controller: ControllerState,
    /// When the paths came.
    paths_at: Time,
    /// Paths as they were applied last, and how many of those that came are not among them.
    sets: Vec<DestinationPaths>,
    left_out: usize,
    /// While we have the kernel count runs of programs.
    run_stats: Option<RunStats>,
    /// How many slots have rules.
    rules: BTreeMap<Family, u32>,
    routes: BTreeMap<(u32, IpNet), Route>,
    /// Routes in our tables that an earlier daemon left.
    left: BTreeSet<(u32, IpNet)>,
    /// Destinations with paths, and their generations; zero: of an earlier daemon.
    destinations: BTreeMap<IpNet, u32>,
    at_work: bool,
    /// Whether the control group was gone when last looked at.
    detached: bool,
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
        let own = options.config.resolve(&by_name(&netlink).await?)?;

        let knobs = &options.config.agent;
        let mask = Mask { mask: knobs.mark_mask, shift: knobs.mark_mask.trailing_zeros() };
        let program = HostProgram::load(options.pins.clone())?;
        let destinations = program.destinations()?.into_iter().map(|destination| (destination, 0)).collect();
        let mut host = Host {
            netlink,
            program,
            config: options.config.clone(),
            own,
            update: None,
            mask,
            table_base: options.table_base,
            priority: options.priority,
            dry_run: options.dry_run,
            records: options.events.is_some() || summary::logs_events(),
            controller: ControllerState::None,
            paths_at: monotonic_now(),
            sets: Vec::new(),
            left_out: 0,
            run_stats: run_stats(&options.config),
            rules: BTreeMap::new(),
            routes: BTreeMap::new(),
            left: BTreeSet::new(),
            destinations,
            at_work: false,
            detached: false,
        };
        host.take_over().await?;
        Ok(host)
    }

    /// Takes over what an earlier daemon left, or clears it away if its marks mean something else.
    async fn take_over(&mut self) -> Result<(), AgentError> {
        let config = self.program_config()?;
        if let Some(before) = self.program.config()?
            && before.place() != config.place()
        {
            tracing::warn!("other marks, tables or rules than before: connections begin on the default route");
            self.program.leave_connections()?;
            clear(&self.netlink, &before).await?;
            if before.dry_run != config.dry_run {
                self.program.reset_counters()?;
            }
        }
        self.program.configure(&config)?;
        if !self.dry_run {
            self.left = routes_in(&self.netlink, &tables(self.table_base)).await?;
        }
        Ok(())
    }

    fn program_config(&self) -> Result<ProgramConfig, AgentError> {
        Ok(ProgramConfig {
            policy: policy_of(&self.config.agent)?,
            mark_mask: self.mask.mask,
            mark_shift: self.mask.shift,
            table_base: self.table_base,
            priority: self.priority,
            dry_run: self.dry_run.into(),
            events: self.records.into(),
            unused: 0,
            controller: self.controller as u32,
            paths_ns: self.paths_at.as_nanos(),
        })
    }

    /// Notes how it stands with the controller, where whoever looks at the program finds it.
    fn note(&mut self, controller: ControllerState) -> Result<(), AgentError> {
        self.controller = controller;
        if controller == ControllerState::Connected {
            self.paths_at = monotonic_now();
        }
        Ok(self.program.configure(&self.program_config()?)?)
    }

    /// Does the daemon's work, which ends by itself only with an error.
    async fn work(
        &mut self,
        options: &HostOptions,
        mut configs: UnboundedReceiver<HostConfig>,
        events: &Events<'_>,
        recorder: &Recorder,
        scrapes: &mut Option<Scrapes>,
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
        if watcher.is_some() {
            self.note(if first.is_some() { ControllerState::Connected } else { ControllerState::Away })?;
        }
        self.update = first;
        let mut links = LinkWatch::open()?;
        self.apply().await?;
        self.program.attach(&options.cgroup)?;
        self.at_work = true;
        ready();

        let mut look = tokio::time::interval(LOOK);
        let mut summary = Summary::new(self.program.counters()?);
        let mut sum_up = tokio::time::interval(Summary::INTERVAL);
        loop {
            tokio::select! {
                _ = look.tick() => {
                    if options.pins.as_ref().is_some_and(|pins| !pins.exist()) {
                        tracing::info!("told to stop");
                        return Ok(());
                    }
                    self.stay_attached(&options.cgroup);
                    // The program wakes us only when many events wait.
                    recorder.take(events)?;
                }
                latest = next(&mut watcher) => {
                    if self.hear(latest).await? {
                        recorder.paths(self.paths_at, self.destinations.len())?;
                    }
                }
                () = links.changed() => self.install_again().await?,
                Some(config) = configs.recv() => self.reconfigure(config).await?,
                waiting = events.ready() => {
                    waiting?;
                    recorder.take(events)?;
                }
                _ = sum_up.tick() => summary.log(self.program.counters()?, self.dry_run),
                scrape = Scrapes::next_of(scrapes) => match self.page(events) {
                    Ok(page) => scrape.answer(page),
                    Err(error) => tracing::warn!(%error, "the metrics cannot be read"),
                },
            }
        }
    }

    /// Attaches the program again where its control group was removed and made anew.
    fn stay_attached(&mut self, cgroup: &Path) {
        if self.program.is_attached(cgroup) {
            self.detached = false;
            return;
        }
        match self.program.attach(cgroup) {
            Ok(()) => tracing::info!(cgroup = %cgroup.display(), "the control group is back"),
            Err(error) if !self.detached => tracing::warn!(%error, "new connections are left alone until it is back"),
            Err(_) => {}
        }
        self.detached = true;
    }

    /// Whether it was of other paths than before, which are now in place.
    async fn hear(&mut self, latest: Option<Latest<PathUpdate>>) -> Result<bool, AgentError> {
        let Some(latest) = latest else { return Ok(false) };
        match &latest.connection {
            Connection::Lost { reason } => {
                tracing::warn!(reason, "the controller is away; the last paths stay");
                self.note(ControllerState::Away)?;
                Ok(false)
            }
            Connection::Connecting => Ok(false),
            Connection::Connected => {
                self.update = latest.update;
                self.note(ControllerState::Connected)?;
                let before = self.destinations.clone();
                self.apply().await?;
                Ok(self.destinations != before)
            }
        }
    }

    /// Interfaces came, went or changed: the kernel removes routes with them, and gives them other numbers.
    async fn install_again(&mut self) -> Result<(), AgentError> {
        self.own = self.config.resolve_present(&by_name(&self.netlink).await?);
        self.left.extend(std::mem::take(&mut self.routes).into_keys());
        self.apply().await
    }

    /// Other settings and paths of our own from now on.
    async fn reconfigure(&mut self, config: HostConfig) -> Result<(), AgentError> {
        if config.metrics != self.config.metrics {
            tracing::warn!("[metrics] stays what it is until the agent is started again");
        }
        if config.agent.mark_mask != self.mask.mask {
            tracing::warn!("mark_mask stays what it is until the agent is started again");
        }
        self.config = config;
        if self.update.is_none() {
            self.paths_at = monotonic_now();
        }
        self.program.configure(&self.program_config()?)?;
        self.install_again().await?;
        tracing::info!("the configuration was read again");
        Ok(())
    }

    /// Makes rules, routes and map say what the controller and our own configuration say.
    ///
    /// Routes come before the map that sends connections to them, and go after it.
    async fn apply(&mut self) -> Result<(), AgentError> {
        let mut sets = self.own.clone();
        sets.extend(self.update.as_deref().map(DestinationPaths::from_update).unwrap_or_default());
        let came: usize = sets.iter().map(|set| set.paths.len()).sum();
        let hops = self.first_hops(&sets).await?;
        for set in &mut sets {
            // No connection may draw a path that leads nowhere, or one that its mark has no room for.
            set.paths.retain(|path| path.is_reachable(&hops));
            set.paths.truncate(self.mask.slots());
        }
        self.install_rules(&sets).await?;
        let wanted = self.install_routes(&mut sets, &hops).await?;
        let mut named = BTreeMap::new();
        for set in &sets {
            if let Err(error) = self.program.set_paths(set.destination, set.generation(), &set.entries()) {
                // The map has 4,096 places; what has none is left alone.
                tracing::warn!(%error, "connections to this destination are left alone");
                continue;
            }
            named.insert(set.destination, set.generation());
        }
        for gone in self.destinations.keys().filter(|destination| !named.contains_key(destination)) {
            self.program.remove_paths(*gone)?;
        }
        if self.destinations != named {
            // Before their routes go, and not only with their next signal: an idle connection has none.
            self.program.adopt_paths()?;
        }
        let known = self.routes.keys().chain(&self.left);
        for (table, destination) in known.filter(|key| !wanted.contains_key(key)) {
            self.netlink.delete_route(*table, *destination).await?;
        }
        self.left.clear();
        self.left_out = came - sets.iter().map(|set| set.paths.len()).sum::<usize>();
        self.sets = sets;
        self.destinations = named;
        self.routes = wanted;
        Ok(())
    }

    /// Installs the routes of all paths; those that the kernel refuses, as where an interface is down, leave their sets.
    async fn install_routes(
        &self,
        sets: &mut [DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<BTreeMap<(u32, IpNet), Route>, AgentError> {
        if self.dry_run {
            return Ok(BTreeMap::new());
        }
        loop {
            let wanted = paths::routes(sets, self.table_base, hops);
            let mut refused = None;
            for (key, route) in wanted.iter().filter(|(key, route)| self.routes.get(key) != Some(*route)) {
                if let Err(error) = self.netlink.add_route(route).await {
                    refused = Some((*key, error));
                    break;
                }
            }
            let Some(((table, destination), error)) = refused else { return Ok(wanted) };
            let set = sets.iter_mut().find(|set| set.destination == destination);
            let index = (table - slot_of(0) - self.table_base) as usize;
            match set {
                // A privilege that lacks for one lacks for all.
                Some(set) if index < set.paths.len() && !error.is_environment() => {
                    let path = set.paths.remove(index);
                    tracing::warn!(%error, path = path.name, "a path is left out");
                }
                _ => return Err(error.into()),
            }
        }
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

    async fn install_rules(&mut self, sets: &[DestinationPaths]) -> Result<(), AgentError> {
        if self.dry_run {
            return Ok(());
        }
        for set in sets {
            let family = Family::of(set.destination);
            let present = self.rules.entry(family).or_default();
            while (*present as usize) < set.paths.len() {
                let slot = slot_of(*present as usize);
                let rule = MarkRule {
                    family,
                    mark: slot << self.mask.shift,
                    mask: self.mask.mask,
                    table: self.table_base + slot,
                    priority: self.priority,
                };
                self.netlink.add_rule(rule).await?;
                *present += 1;
            }
        }
        Ok(())
    }

    /// What Prometheus is told.
    fn page(&self, events: &Events<'_>) -> Result<Page, AgentError> {
        let connections = self.program.connections()?;
        let reading = Reading {
            dry_run: self.dry_run,
            attached: !self.detached,
            controller: self.controller,
            paths_age: monotonic_now().since(self.paths_at),
            left_out: self.left_out,
            sets: &self.sets,
            counters: self.program.counters()?,
            maps: self.program.maps(connections.len() as u64, events.waiting()),
            connections,
            runs: self.program.runs()?,
            runs_counted: self.run_stats.is_some() || RunStats::by_sysctl(),
        };
        Ok(reading.page())
    }

    async fn stop(self) -> Result<(), AgentError> {
        let counters = self.program.counters()?;
        let config = self.program_config()?;
        self.program.remove()?;
        clear(&self.netlink, &config).await?;
        tracing::info!(?counters, "stopped");
        Ok(())
    }
}

/// Ends the agent that works with `pins`, and removes what it left if it was killed or told to keep: program, maps, rules
/// and routes; connections get the marks back that they had. Returns whether there was anything.
///
/// Without `pins` an agent that works notices within a second.
pub async fn stop_host(pins: &Pins) -> Result<bool, AgentError> {
    let program = match HostProgram::look(pins) {
        Ok(None) => return Ok(false),
        Ok(Some(program)) => Some(program),
        Err(error) => {
            tracing::warn!(%error, "the connections' marks cannot be restored");
            None
        }
    };
    let holder = pins.holder()?;
    let config = program.as_ref().map(HostProgram::config).transpose()?.flatten();
    match program {
        Some(program) => program.remove()?,
        None => pins.remove()?,
    }
    // An agent at work sees that its state is gone, and removes the rest.
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holder.is_gone() {
            tokio::time::sleep(LOOK / 5).await;
        }
    });
    if waited.await.is_err() {
        tracing::warn!("the agent does not end; what it installs again stays");
    }
    if let Some(config) = config {
        clear(&Netlink::open()?, &config).await?;
    }
    Ok(true)
}

/// The tables of paths.
fn tables(base: u32) -> RangeInclusive<u32> {
    base + 1..=base + policy::raw::MAX_PATHS as u32
}

/// Our routes in these tables, whoever installed them.
async fn routes_in(netlink: &Netlink, tables: &RangeInclusive<u32>) -> Result<BTreeSet<(u32, IpNet)>, AgentError> {
    Ok(netlink.own_routes().await?.into_iter().filter(|(table, _)| tables.contains(table)).collect())
}

/// Removes all rules and routes of an agent of this configuration; in a dry run it has made none.
async fn clear(netlink: &Netlink, config: &ProgramConfig) -> Result<(), AgentError> {
    if config.dry_run != 0 {
        return Ok(());
    }
    let tables = tables(config.table_base);
    netlink.delete_rules(tables.clone(), config.priority).await?;
    for (table, destination) in routes_in(netlink, &tables).await? {
        netlink.delete_route(table, destination).await?;
    }
    Ok(())
}

/// The numbers of the interfaces.
async fn by_name(netlink: &Netlink) -> Result<BTreeMap<String, u32>, AgentError> {
    Ok(netlink.interfaces().await?.into_iter().map(|interface| (interface.name, interface.index)).collect())
}

/// Has the kernel count runs of programs if that is wanted and allowed; moving connections does not depend on it.
fn run_stats(config: &HostConfig) -> Option<RunStats> {
    if !config.metrics.bpf_stats {
        return None;
    }
    let failed = |error| tracing::warn!(%error, "no runs are counted; it takes CAP_SYS_ADMIN, or `sysctl kernel.bpf_stats_enabled=1`");
    RunStats::enable().map_err(failed).ok()
}

/// The policy's settings as the program reads them.
fn policy_of(knobs: &AgentKnobs) -> Result<policy::raw::Config, AgentError> {
    policy::raw::Config::try_from(knobs).map_err(|error| ConfigError::Range(error.to_string()).into())
}

/// The next word from the controller; never, without one.
async fn next(watcher: &mut Option<Watcher<PathUpdate>>) -> Option<Latest<PathUpdate>> {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}
