//! The host daemon: keeps the path changer's program, its maps, and the rules and routes that make paths of marks.

mod attachment;
mod changes;
mod cleanup;
mod config;
mod dead_paths;
mod drift;
mod effect;
mod entries;
mod events;
pub mod explain;
mod given;
mod init;
mod liveness;
mod mark_routing;
mod mending;
mod metrics;
mod neighbours;
mod number;
mod others;
mod ownership;
mod paths_in_place;
mod program_paths;
mod quality;
mod reach;
mod reconcile;
mod record_file;
mod records;
mod replies;
mod sources;
mod stuck;
mod summary;
mod trial;
mod withdrawn;

use std::{ops::ControlFlow, path::PathBuf, time::Duration};

use sidestep_api::{Connection, HostIdentity, PathUpdate, watch_paths};
use sidestep_hostd::{
    AgentError, Daemon, End, Handled, Listeners, Page, Scrapes, Shutdown,
    effect::note,
    inputs::{Input, Inputs},
    paths::{ConfigError, DestinationPaths, Interfaces, check_reserved, check_tables, follow_the_network},
};
use sidestep_linux::{
    monotonic_now,
    netlink::{Netlink, RoutingChange},
};
use sidestep_net::Time;
use sidestep_policy::{PolicySettings, REWEIGHING, raw};
use tokio::sync::mpsc::UnboundedReceiver;

use self::{
    attachment::Attachment,
    cleanup::remove_routing,
    dead_paths::DeadPaths,
    events::Recorder,
    given::GivenPaths,
    mark_routing::MarkRouting,
    metrics::Reading,
    others::Others,
    ownership::RoutingSpace,
    paths_in_place::PathsInPlace,
    program_paths::ProgramPaths,
    records::Records,
    replies::{Odds, Replies},
    stuck::{Scene, warn_what_resets_lack},
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
use crate::daemon::program::{ControllerState, HostConfig as ProgramConfig, HostProgram, Pins};

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
/// `options` keep it, or the daemon failed while at work and another can take over. What an earlier daemon
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
    netlink: Netlink,
    program: HostProgram,
    /// The paths that it was given.
    given: GivenPaths,
    /// The paths as the program's map has them.
    map: ProgramPaths,
    /// The paths as they were applied last.
    paths: PathsInPlace,
    /// The rules and routes of paths.
    routing: MarkRouting,
    /// The table that draws paths of SYN-ACKs.
    replies: Replies,
    /// What others do to marks, rules and routes.
    others: Others,
    /// The paths that have failed, and connections on them.
    dead: DeadPaths,
    /// How the program is kept attached, and whether connections depend on that.
    attachment: Attachment,
    records: Records,
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
        let mut program = HostProgram::load(options.pins.clone())?;
        program.set_host_number(number::host_number(&netlink.addresses().await?));
        let before = program.config()?;
        let own = own_paths(&options, &interfaces(&netlink, &options.config).await?, before.is_some())?;
        let map = ProgramPaths::inherit(&program)?;
        let inherited_age = before.as_ref().map(|before| Time::from_nanos(before.paths_ns));
        let ground = RoutingSpace::new(&options, claim)?;
        let records = Records::new(recorder, &program, &options.config)?;
        let mut host = Host {
            inputs,
            netlink,
            given: GivenPaths::new(own, options.controller.is_some(), inherited_age),
            map,
            paths: PathsInPlace::default(),
            routing: MarkRouting::new(ground, options.dry_run),
            replies: Replies::default(),
            others: Others::default(),
            dead: DeadPaths::default(),
            attachment: Attachment::default(),
            records,
            program,
            options,
        };
        host.attachment.inherit(before.is_some());
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
        let tolerated = self.attachment.is_inherited() || self.options.dry_run;
        self.others.neighbours.check(&self.netlink, self.routing.ground.mark, tolerated).await?;
        self.program.configure(&config)?;
        if !self.options.dry_run {
            self.attachment.inherit(self.routing.inherit(&self.netlink).await?);
            check_tables(&self.netlink, self.options.table_base, self.attachment.is_inherited()).await?;
        }
        Ok(())
    }

    fn program_config(&self) -> Result<ProgramConfig, AgentError> {
        let mut policy = policy_config(&self.options.config.agent)?;
        if !self.others.learns() {
            policy.shared = 0;
        }
        let (ground, mended) = (&self.routing.ground, self.others.mended());
        Ok(ProgramConfig {
            policy,
            mark_mask: ground.mark.mask,
            mark_shift: ground.mark.shift,
            table_base: ground.table_base,
            priority: ground.priority,
            dry_run: self.options.dry_run.into(),
            events: (self.options.events.is_some() || summary::logs_events()).into(),
            netns_inode: ground.netns.inode,
            controller: self.given.controller() as u32,
            paths_ns: self.given.at().as_nanos(),
            netns_cookie: ground.netns.cookie,
            mended: mended.rules + mended.routes,
            resets: self.dead.reset_count(),
        })
    }

    /// Notes settings and state where the program, `status` and `top` find them: in the program's configuration.
    fn configure(&mut self) -> Result<(), AgentError> {
        Ok(self.program.configure(&self.program_config()?)?)
    }

    /// Attaches the program for the first time, when paths are in place.
    fn begin_work(&mut self) -> Result<(), AgentError> {
        // From the attachment on nothing may fail: what is at work is not removed.
        let counters = self.program.counters()?;
        self.attachment.begin(&mut self.program, &self.options.cgroup)?;
        self.program.keep_state();
        warn_what_resets_lack(&self.options.config.agent);
        self.records.begin_summary(counters);
        Ok(())
    }

    /// Makes paths follow what connections have learnt of them.
    fn look_at_paths(&mut self) -> Result<(), AgentError> {
        let learnt = self.program.learnt()?;
        let (ground, settings) = (&self.routing.ground, &self.options.config.agent);
        let odds = Odds { ground, settings, sources: &self.paths.sources };
        self.replies.update_weights(&self.paths.sets, &odds, &learnt);
        self.dead.look(&learnt, &self.paths, &self.program, ground.mark)?;
        if self.paths.forget_withdrawn() { self.note_names() } else { Ok(()) }
    }

    /// Ends the connections that are stuck on dead paths, if that is wanted.
    fn end_stuck(&mut self) -> Result<(), AgentError> {
        if !self.attachment.is_at_work() {
            return Ok(());
        }
        let scene = Scene {
            now: monotonic_now(),
            program: &self.program,
            paths: &self.paths,
            recorder: &self.records.recorder,
            mark: self.routing.ground.mark,
            settings: &self.options.config.agent,
            dry_run: self.options.dry_run,
        };
        if self.dead.end_stuck(&scene)? { self.configure() } else { Ok(()) }
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
        let Host { inputs, routing, others, records, .. } = self;
        let is_paused = inputs.is_paused();
        let concerns = |change: &RoutingChange| routing.concerns(change) || others.concerns(change);
        tokio::select! {
            input = inputs.next(concerns) => input.map(Event::Input),
            recorded = records.ready(), if !is_paused => Some(Event::Recorded(recorded)),
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
                let result = recorded.and_then(|()| self.records.take(&self.program));
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
        self.routing.reroute(&self.program)?;
        if !self.attachment.is_at_work() {
            self.begin_work()?;
        }
        note(self.check_effect().await);
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.inputs.resume();
        if self.program.is_asked_to_end() {
            tracing::info!("the state is gone: asked to stop");
            return Ok(ControlFlow::Break(()));
        }
        let touched = self.options.pins.as_ref().map_or(Ok(()), Pins::touch);
        self.routing.ground.forget_askers();
        self.attachment.renew(&mut self.program, &self.options.cgroup);
        self.look_at_paths()?;
        // The program wakes us only when many events wait.
        self.records.take(&self.program)?;
        self.map.measure(&mut self.program, &self.paths.sets, &self.options.config.agent)?;
        self.end_stuck()?;
        self.note_drift(false)?;
        if self.others.neighbours.may_differ() {
            self.watch_marks().await?;
        }
        self.records.sum_up(&self.program, self.options.dry_run)?;
        touched?;
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        let controller = match self.given.controller() {
            ControllerState::None => "",
            ControllerState::Away => "controller away; ",
            ControllerState::Connected => "controller connected; ",
        };
        let (paths, confined) = (self.paths.status(), self.paths.confined());
        format!("{controller}{paths}{}{}{confined}", self.attachment.status(), self.others.status())
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        let connections = self.program.connections()?;
        let stored = connections.iter().filter(|one| one.opened.is_some()).count();
        let reading = Reading {
            quality: Sockets::read()?.by_path(&connections, &self.paths.destinations()),
            dead: liveness::dead(&self.program.learnt()?),
            dry_run: self.options.dry_run,
            attached: self.attachment.is_attached(),
            controller: self.given.controller(),
            paths_age: monotonic_now().since(self.given.at()),
            left_out: self.paths.left_out(),
            replies_drawn: self.replies.are_drawn(),
            replies_mended: self.replies.mended(),
            mended: self.others.mended(),
            resets: self.dead.resets(),
            reattached: self.attachment.counts(),
            collisions: self.others.neighbours.met(),
            effects: &self.others.effects,
            restored: self.others.neighbours.restored().len(),
            learns: self.others.learns(),
            sets: &self.paths.sets,
            counters: self.program.counters()?,
            maps: self.records.maps(&self.program, stored as u64),
            runs: self.program.runs()?,
            runs_counted: self.records.are_runs_counted(),
            faults,
        };
        Ok(reading.page())
    }

    async fn stop(self, end: End) -> Result<(), AgentError> {
        let recorded = self.records.take(&self.program);
        let keeps = self.attachment.should_keep_state(end, self.options.keep);
        // Without a state the next daemon would not know of its connections; but what an earlier one left is not ours.
        let has_state = self.options.pins.is_some() && !self.program.is_asked_to_end();
        if keeps && (has_state || !self.attachment.is_at_work()) {
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

/// The policy's settings as the program reads them.
fn policy_config(settings: &PolicySettings) -> Result<raw::Config, AgentError> {
    raw::Config::try_from(settings).map_err(|error| ConfigError::Setting(error.to_string()).into())
}
