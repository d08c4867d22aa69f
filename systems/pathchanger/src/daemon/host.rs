//! The host daemon: keeps the path changer's program, its maps, and the rules and routes that make paths of marks.

mod attachment;
mod changes;
mod cleanup;
mod config;
mod drift;
mod effect;
mod events;
pub mod explain;
mod init;
mod liveness;
mod mending;
mod metrics;
mod neighbours;
mod ownership;
mod quality;
mod reach;
mod reconcile;
mod record_file;
mod replies;
mod sources;
mod stuck;
mod summary;
mod trial;
mod withdrawn;

use std::{collections::BTreeSet, ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;
use sidestep_api::{Connection, HostIdentity, PathUpdate, watch_paths};
use sidestep_hostd::{
    AgentError, Daemon, End, Handled, Listeners, Page, Scrapes, Shutdown,
    effect::{Effects, note},
    inputs::{Input, Inputs},
    paths::{
        ConfigError, DestinationPaths, Interfaces, MarkBits, Slots, Underlay, check_reserved, check_tables,
        follow_the_network,
    },
    routing::KernelRouting,
};
use sidestep_linux::{
    bpf::host::{ControllerState, Events, HostConfig as ProgramConfig, HostProgram, Pins, RunStats, SourcesByPath},
    claim::Claim,
    monotonic_now,
    netlink::{Family, Netlink, RoutingChange},
    netns::NetNsId,
};
use sidestep_net::Time;
use sidestep_policy::{AgentSettings, REWEIGHING, raw};
use tokio::sync::mpsc::UnboundedReceiver;

use self::{
    attachment::Attachment,
    cleanup::{domain, remove_routing},
    drift::Drift,
    events::Recorder,
    liveness::Liveness,
    mending::Mended,
    metrics::Reading,
    neighbours::Neighbours,
    quality::Measured,
    replies::Replies,
    stuck::Stuck,
    summary::Summary,
    trial::Trials,
    withdrawn::Withdrawn,
};
pub use self::{
    cleanup::stop_host,
    config::HostConfig,
    effect::{host_overrides, overrides_at_work},
    events::{EventLine, EventRecord, PathRecord, PathsRecord, SetRecord},
    init::propose,
    metrics::HOST_METRICS,
    ownership::masks_at_work,
    quality::{ByPath, PathQuality, Prefixes, Sockets},
    reach::{Reach, reaches, reaches_now},
    record_file::RecordFile,
    sources::{DoubtfulSources, doubtful_sources},
    stuck::cannot_reset,
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
    pub events: Option<RecordFile>,
}

/// How long to wait after a change of an interface, so that the changes that come with it are handled together.
const SETTLE: Duration = Duration::from_millis(100);

/// Runs the host daemon until `shutdown` completes; calls `ready` when paths are in place.
///
/// On return nothing of it is left in the kernel, and connections go on along the default route; unless `shutdown` or
/// `options` say that it is kept, or the daemon failed while at work and another can take over. What an earlier daemon
/// left is taken over: programs, maps, rules and routes are changed in place, and no connection notices. A daemon that
/// ends before it is at work leaves all of that as it was.
///
/// Paths of the configuration are in place at once. Until the controller has answered, paths to other destinations that
/// an earlier daemon left stay as they are.
///
/// A configuration that comes through `configs` takes the place of the one in `options`; its `mark_mask` does not.
pub async fn run_host(
    options: HostOptions,
    configs: UnboundedReceiver<HostConfig>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let scrapes = Scrapes::listen_if(options.config.metrics.listen).await?;
    let host = Host::start(options, Inputs::new(configs, SETTLE)).await?;
    sidestep_hostd::run(host, Listeners { scrapes, control: None }, ready, shutdown).await
}

/// The daemon's hold on the kernel.
struct Host {
    /// What the daemon was started with; its configuration is the one that is in force.
    options: HostOptions,
    inputs: Inputs<PathUpdate, HostConfig>,
    /// Where its rules and routes are.
    netns: NetNsId,
    /// As long as this lives, no other agent of the namespace uses our tables and bits of the mark.
    claim: Option<Claim>,
    netlink: Netlink,
    events: Events<'static>,
    recorder: Recorder,
    program: HostProgram,
    /// Paths of the configuration.
    own: Vec<DestinationPaths>,
    /// Paths of the controller.
    update: Option<Arc<PathUpdate>>,
    mark: MarkBits,
    controller: ControllerState,
    /// When the paths came.
    paths_at: Time,
    /// Paths as they were applied last, and how many of those received are not among them.
    sets: Vec<DestinationPaths>,
    left_out: usize,
    /// Destinations of the controller that the file has, too.
    shadowed: BTreeSet<IpNet>,
    /// What takes the place of rates and round-trip times that are not given.
    measured: Measured,
    /// While we have the kernel count runs of programs.
    run_stats: Option<RunStats>,
    /// The rules and routes of paths.
    routing: KernelRouting,
    /// The table that draws paths of SYN-ACKs.
    replies: Replies,
    /// What paths depend on in the kernel's other tables.
    underlay: Underlay,
    mended: Mended,
    /// Connections that wait on dead paths.
    stuck: Stuck,
    /// Whether connections may have looked their route up while rules or routes were missing, and keep it.
    reroutes: bool,
    /// What others do with marks.
    neighbours: Neighbours,
    /// Whether our rules and routes stay in place.
    drift: Drift,
    /// Whether packets leave by the paths of their marks.
    effects: Effects,
    /// The sources of each path, as the program was told.
    sources: SourcesByPath,
    /// Which paths have failed.
    liveness: Liveness,
    /// Trials of paths that connections leave alone.
    trials: Trials,
    /// The paths that have just gone.
    withdrawn: Withdrawn,
    /// How many paths connections from each address may use.
    reach: Vec<Reach>,
    /// Destinations in the program's map that an earlier daemon left, until it is known whether they are wanted.
    inherited_destinations: BTreeSet<IpNet>,
    /// The slot of each path as the program's map has it.
    slots: Slots,
    /// Whether all connections have taken note of what the map says; those from before an earlier daemon's end may not.
    adopted: bool,
    /// Whether an earlier daemon left something, on which connections depend.
    inherited: bool,
    /// Whether paths are in place and the program is attached, so that connections depend on what the daemon installed.
    at_work: bool,
    /// Whether the program did not act on the control group when last looked at.
    detached: bool,
    /// How the program is kept attached.
    attachment: Attachment,
    summary: Summary,
}

impl Host {
    /// Loads the program, or takes over the one that an earlier daemon left.
    async fn start(options: HostOptions, inputs: Inputs<PathUpdate, HostConfig>) -> Result<Self, AgentError> {
        if options.controller.is_none() && options.config.destinations.is_empty() {
            return Err(AgentError::NothingToDo);
        }
        check_reserved(options.table_base, options.priority)?;
        options.pins.as_ref().map_or(Ok(()), ownership::check_state)?;
        let claim = ownership::claim(&options).await?;
        let netlink = Netlink::open()?;
        let recorder = Recorder::new(options.events.clone(), options.dry_run);
        let program = HostProgram::load(options.pins.clone())?;
        let before = program.config()?;
        let own = own_paths(&options, &interfaces(&netlink, &options.config).await?, before.is_some())?;
        let slots = program.slots()?;
        let sink = recorder.clone();
        let follows = options.controller.is_some();
        // What is inherited is as old as it was.
        let inherited_age = before.filter(|_| follows).map(|before| Time::from_nanos(before.paths_ns));
        let mut host = Host {
            inputs,
            netns: NetNsId::current()?,
            claim,
            netlink,
            events: program.events(move |event| sink.write(&event))?,
            recorder,
            own,
            update: None,
            mark: MarkBits::new(options.config.agent.mark_mask),
            controller: if follows { ControllerState::Away } else { ControllerState::None },
            paths_at: inherited_age.unwrap_or_else(monotonic_now),
            sets: Vec::new(),
            left_out: 0,
            shadowed: BTreeSet::new(),
            measured: Measured::default(),
            run_stats: run_stats(&options.config),
            routing: KernelRouting::new(domain(options.table_base, options.priority)),
            replies: Replies::default(),
            underlay: Underlay::default(),
            mended: Mended::default(),
            stuck: Stuck::default(),
            reroutes: false,
            neighbours: Neighbours::default(),
            drift: Drift::default(),
            effects: Effects::default(),
            sources: SourcesByPath::new(),
            liveness: Liveness::default(),
            trials: Trials::default(),
            withdrawn: Withdrawn::default(),
            reach: Vec::new(),
            inherited_destinations: slots.keys().copied().collect(),
            slots,
            adopted: false,
            inherited: before.is_some(),
            at_work: false,
            detached: false,
            attachment: Attachment::default(),
            summary: Summary::new(program.counters()?),
            program,
            options,
        };
        host.take_over(before).await?;
        Ok(host)
    }

    /// Takes over what an earlier daemon left, or clears it away if its marks mean something else.
    async fn take_over(&mut self, before: Option<ProgramConfig>) -> Result<(), AgentError> {
        let config = self.program_config()?;
        if let Some(superseded) = self.program.superseded() {
            tracing::warn!(
                "an agent of another version was here: its connections have their former marks, and are left alone"
            );
            if let Some(before) = superseded.config {
                remove_routing(&self.netlink, &before).await?;
            }
        }
        if let Some(before) = before
            && before.place() != config.place()
        {
            tracing::warn!("other marks, tables or rules than before: connections begin on the default route");
            self.program.leave_connections()?;
            remove_routing(&self.netlink, &before).await?;
            if before.dry_run != config.dry_run {
                self.program.reset_counters()?;
            }
        }
        self.check_marks().await?;
        self.program.configure(&config)?;
        if !self.options.dry_run {
            let rules: Vec<_> = Family::ALL.iter().flat_map(|family| self.rules_of(*family)).collect();
            self.routing.inherit(&self.netlink, rules).await?;
            self.inherited |= self.routing.has_inherited();
            check_tables(&self.netlink, self.options.table_base, self.inherited).await?;
        }
        Ok(())
    }

    /// Whether the controller has yet to say what becomes of paths that an earlier daemon left.
    fn awaits_controller(&self) -> bool {
        self.options.controller.is_some() && self.update.is_none()
    }

    /// Whether what connections see of paths is learnt: not while packets may go elsewhere than along their path.
    fn learns(&self) -> bool {
        !self.drift.persists() && !self.effects.is_any_whole()
    }

    fn program_config(&self) -> Result<ProgramConfig, AgentError> {
        let mut policy = policy_config(&self.options.config.agent)?;
        if !self.learns() {
            policy.shared = 0;
        }
        Ok(ProgramConfig {
            policy,
            mark_mask: self.mark.mask,
            mark_shift: self.mark.shift,
            table_base: self.options.table_base,
            priority: self.options.priority,
            dry_run: self.options.dry_run.into(),
            events: (self.options.events.is_some() || summary::logs_events()).into(),
            netns_inode: self.netns.inode,
            controller: self.controller as u32,
            paths_ns: self.paths_at.as_nanos(),
            netns_cookie: self.netns.cookie,
            mended: self.mended.rules + self.mended.routes,
            resets: self.stuck.resets(),
        })
    }

    /// Notes the state of the controller where `status` and `top` find it: in the program's configuration.
    fn note_controller(&mut self, controller: ControllerState) -> Result<(), AgentError> {
        self.controller = controller;
        if controller == ControllerState::Connected {
            self.paths_at = monotonic_now();
        }
        Ok(self.program.configure(&self.program_config()?)?)
    }

    /// Records the events that wait. A record that cannot be written is counted, and harms nothing else.
    fn record(&self) -> Result<(), AgentError> {
        let lost = self.recorder.take(&self.events)?;
        Ok(self.program.count_lost_records(lost)?)
    }
}

/// What reaches the host daemon.
enum Event {
    Input(Input<PathUpdate, HostConfig>),
    /// The program has recorded events, or cannot be asked.
    Recorded(Result<(), AgentError>),
}

impl Daemon for Host {
    type Error = AgentError;
    type Event = Event;

    /// How often to look for events, whether the state is still there, and whether the control group is.
    // At each look weights of SYN-ACKs follow what was learnt.
    const INTERVAL: Duration = Duration::from_nanos(REWEIGHING.as_nanos());

    async fn start(&mut self) -> Result<(), AgentError> {
        let watcher = match &self.options.controller {
            Some(endpoint) => Some(watch_paths(endpoint, self.options.identity.clone(), false).await?),
            None => None,
        };
        self.inputs.listen(watcher)
    }

    async fn next_event(&mut self) -> Option<Event> {
        let Host { inputs, routing, underlay, effects, events, .. } = self;
        let is_deaf = inputs.is_deaf();
        let concerns = |change: &RoutingChange| {
            routing.concerns(change) || effects.concerns(change) || underlay.concerns(routing, change)
        };
        tokio::select! {
            input = inputs.next(concerns) => input.map(Event::Input),
            recorded = events.ready(), if !is_deaf => Some(Event::Recorded(recorded.map_err(AgentError::from))),
        }
    }

    async fn handle_event(&mut self, event: Event) -> Handled<AgentError> {
        match event {
            Event::Input(Input::Controller(latest)) => {
                let reconciles = latest.connection == Connection::Connected;
                Handled { result: self.handle_controller(latest), reconciles }
            }
            Event::Input(Input::Config(config)) => {
                Handled { result: self.handle_config(*config).await, reconciles: true }
            }
            Event::Input(Input::Links) => {
                let result = self.handle_links().await;
                self.inputs.links_handled(result)
            }
            Event::Input(Input::Routing) => {
                let differs = self.compare().await;
                self.inputs.compared(differs)
            }
            Event::Recorded(recorded) => {
                let result = recorded.and_then(|()| self.record());
                self.inputs.own_handled(result)
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.inputs.is_answered()
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.apply_paths().await?;
        if self.reroutes {
            self.program.reroute_connections()?;
            self.reroutes = false;
        }
        if !self.at_work {
            self.begin_work()?;
        }
        note(self.check_effect().await);
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.inputs.hear();
        if self.program.is_asked_to_end() {
            tracing::info!("the state is gone: asked to stop");
            return Ok(ControlFlow::Break(()));
        }
        let touched = self.options.pins.as_ref().map_or(Ok(()), Pins::touch);
        self.claim.iter().for_each(Claim::forget_askers);
        self.stay_attached();
        let learnt = self.program.learnt()?;
        self.update_reply_weights(&learnt);
        self.note_liveness(&learnt);
        self.try_stranded(&learnt)?;
        self.forget_withdrawn()?;
        // The program wakes us only when many events wait.
        self.record()?;
        self.measure()?;
        self.end_stuck()?;
        self.note_drift(false)?;
        if self.neighbours.may_differ() {
            self.watch_marks().await?;
        }
        if self.summary.is_due() {
            self.summary.log(self.program.counters()?, self.options.dry_run);
        }
        touched?;
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        let controller = match self.controller {
            ControllerState::None => "",
            ControllerState::Away => "controller away; ",
            ControllerState::Connected => "controller connected; ",
        };
        let paths: usize = self.sets.iter().map(|set| set.paths.len()).sum();
        let left_out = if self.left_out > 0 { format!(", {} left out", self.left_out) } else { String::new() };
        let detached = if self.detached { self.attachment.status() } else { "" };
        let drift =
            if self.drift.persists() { "; somebody removes rules again and again, nothing is learnt" } else { "" };
        let overridden = match self.effects.found().count() {
            0 => String::new(),
            count => format!("; packets of {count} paths do not leave by them"),
        };
        let collisions = match self.neighbours.met() {
            0 => String::new(),
            met => format!("; {met} rules of others meet mark_mask"),
        };
        let restored = match self.neighbours.restored().len() {
            0 => String::new(),
            count => format!("; {count} rules of others restore mark_mask: moves have no effect"),
        };
        format!(
            "{controller}{paths} paths to {} destinations{left_out}{detached}{drift}{overridden}{restored}{collisions}{}",
            self.sets.len(),
            self.confined()
        )
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        let connections = self.program.connections()?;
        let destinations = self.sets.iter().map(|set| set.destination).collect();
        let stored = connections.iter().filter(|one| one.opened.is_some()).count();
        let reading = Reading {
            quality: Sockets::read()?.by_path(&connections, &destinations),
            dead: liveness::dead(&self.program.learnt()?),
            dry_run: self.options.dry_run,
            attached: !self.detached,
            controller: self.controller,
            paths_age: monotonic_now().since(self.paths_at),
            left_out: self.left_out,
            replies_drawn: self.replies.are_drawn(),
            replies_mended: self.replies.mended(),
            mended: self.mended,
            resets: self.stuck.outcomes(),
            reattached: self.attachment.counts(),
            collisions: self.neighbours.met(),
            effects: &self.effects,
            restored: self.neighbours.restored().len(),
            learns: self.learns(),
            sets: &self.sets,
            counters: self.program.counters()?,
            maps: self.program.maps(stored as u64, self.events.waiting()),
            runs: self.program.runs()?,
            runs_counted: self.run_stats.is_some() || RunStats::by_sysctl(),
            faults,
        };
        Ok(reading.page())
    }

    async fn stop(self, end: End) -> Result<(), AgentError> {
        let recorded = self.record();
        let keeps = match end {
            End::Shutdown(Shutdown::Keep) | End::Failed => self.at_work || self.inherited,
            // Whoever ends a daemon that is not at work yet does not mean what an earlier one left.
            End::Shutdown(Shutdown::CleanUp) if !self.at_work => self.inherited,
            End::Shutdown(Shutdown::CleanUp) | End::Finished => self.options.keep,
        };
        // Without a state the next daemon would not know of its connections; but what an earlier one left is not ours.
        let has_state = self.options.pins.is_some() && !self.program.is_asked_to_end();
        if keeps && (has_state || !self.at_work) {
            return recorded;
        }
        recorded.and(self.remove().await)
    }
}

/// The paths of the configuration. A path whose interface is missing is left out, unless there would be nothing to do; where
/// paths follow the network, that may be yet to come.
fn own_paths(
    options: &HostOptions,
    interfaces: &Interfaces,
    inherited: bool,
) -> Result<Vec<DestinationPaths>, ConfigError> {
    let present = options.config.resolve_present(interfaces);
    let waits = inherited || options.controller.is_some() || follow_the_network(&options.config.destinations);
    if waits || present.iter().any(|set| !set.paths.is_empty()) {
        return Ok(present);
    }
    options.config.resolve(interfaces)
}

/// The interfaces, and the next hops of their default routes if paths follow them.
async fn interfaces(netlink: &Netlink, config: &HostConfig) -> Result<Interfaces, AgentError> {
    let links = netlink.interfaces().await?;
    let down = links.iter().filter(|link| !link.running).map(|link| link.index).collect();
    Ok(Interfaces { down, ..Interfaces::read(netlink, &links, &config.destinations).await? })
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
fn policy_config(knobs: &AgentSettings) -> Result<raw::Config, AgentError> {
    raw::Config::try_from(knobs).map_err(|error| ConfigError::from(error).into())
}
