//! The route controller: probes the egresses of a multihomed site, and makes packets to some destinations take the one that
//! `proto::irc` chooses.
//!
//! A packet never waits for the daemon. If it dies, rules and routes stay, and packets go on by the egress in use.

mod config;
mod doubts;
mod effect;
mod egresses;
mod families;
mod flows;
mod follow;
mod following;
mod init;
mod kernel;
mod log;
mod metrics;
pub mod needs;
mod passing;
pub mod passive;
mod probers;
mod probes;
mod report;
mod settings;
mod sources;
mod status;
mod suspicion;
mod trial;
mod ways;

use std::{collections::BTreeSet, ops::ControlFlow, time::Duration};

use sidestep_hostd::{
    AgentError, ControlSocket, End, Handled, Listeners, Others, Page, Scrapes, Shutdown, Tenure,
    control::{self, Protocol, Request},
    effect::note,
    inputs::{Input, Inputs, reached},
    paths::{check_reserved, check_tables},
    status::to_json,
};
use sidestep_linux::{
    monotonic_now,
    netlink::{Netlink, RoutingChange},
};
use sidestep_net::Time;
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinError, time::Instant};

pub use self::{
    config::{
        DampingSettings, EgressConfig, MAX_EGRESSES, Moves, ProbeKind, Return, RouteControlConfig, SiteSettings,
        TargetConfig,
    },
    follow::EgressSource,
    init::{PUBLIC_TARGETS, propose_route_control},
    metrics::ROUTE_CONTROL_METRICS,
    status::{
        DecisionRecord, EgressInput, EgressStatus, FamilyEgress, FamilyStatus, PassedInput, PredictionErrors,
        RouteControlStatus, TargetStatus, route_control_status,
    },
    ways::WayStatus,
};
use self::{
    egresses::Egresses,
    families::Side,
    kernel::{Numbers, Tables},
    passing::Passing,
    probers::Probers,
    report::unix_now,
};
use crate::RouteControlMode;

/// What the route controller needs to know.
#[derive(Clone, Debug)]
pub struct RouteControlOptions {
    /// The egresses, the targets, and how it decides.
    pub config: RouteControlConfig,
    /// The tables are those from `table_base` + 1 on.
    pub table_base: u32,
    /// Priority of the first rules; the others have the next two.
    pub priority: u32,
    /// Whether everything stays in place on a shutdown, for the next daemon to take over.
    pub keep: bool,
    /// Whether to probe and decide only: no rule and no route is installed.
    pub dry_run: bool,
}

/// The name by which the route controller of a network namespace is known.
const NAME: &str = "sidestep-route-control";
/// Each connection there asks for the end.
const PROTOCOL: Protocol = Protocol::Always(Request::Stop);
/// Probes are sent up to this part of their interval later, at random, so that sites do not probe in step.
const JITTER: u64 = 4;
/// How long to wait before an egress whose routes the kernel has refused is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Runs the route controller until `shutdown` completes; calls `ready` when packets take the egress in use.
///
/// On return nothing of it is left in the kernel, unless `shutdown` or `options` keep it, or the daemon failed
/// while at work. What an earlier daemon left is taken over in place, with the egress that was in use. A configuration that comes
/// through `configs` takes the place of the one in `options`.
pub async fn run_route_control(
    options: RouteControlOptions,
    configs: UnboundedReceiver<RouteControlConfig>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let scrapes = Scrapes::listen_if(options.config.metrics.listen).await?;
    let control = ControlSocket::claim(NAME, "edge route-control", PROTOCOL).await?.with_status_at(status::SOCKET)?;
    let daemon = RouteControl::start(options, configs).await?;
    sidestep_hostd::run(daemon, Listeners { scrapes, control: Some(control) }, ready, shutdown).await
}

/// Ends the route controller of the calling thread's network namespace, and removes what it or one before it left: the rules
/// and routes of these tables. Returns whether there was anything.
pub async fn stop_route_control(table_base: u32, priority: u32) -> Result<bool, AgentError> {
    let stopped = control::stop(NAME, PROTOCOL).await?;
    let netlink = Netlink::open()?;
    let measured = passing::remove_all(&netlink).await?;
    let removed = kernel::remove_all(&netlink, table_base, priority).await?;
    Ok(stopped || measured || removed)
}

/// The daemon's hold on the kernel, and the controllers.
struct RouteControl {
    options: RouteControlOptions,
    netlink: Netlink,
    inputs: Inputs<(), RouteControlConfig>,
    /// The decisions of each family.
    sides: Vec<Side>,
    /// Where egresses lead.
    egresses: Egresses,
    /// What probes them.
    probers: Probers,
    /// What passes them.
    passing: Passing,
    /// What was logged once.
    said: BTreeSet<String>,
    /// The rules and routes by which packets take the egress in use.
    tables: Tables,
    /// What others do to marks, rules and routes.
    others: Others,
    /// The table that keeps flows on their egress, where there is one.
    flows: Option<flows::Flows>,
    tenure: Tenure,
}

/// What reaches the route controller.
enum Event {
    /// Probes or a decision are due.
    Due,
    /// A socket may have answers.
    Answer(usize),
    Input(Input<(), RouteControlConfig>),
    /// Paths that were missing a moment ago are looked at again.
    Recheck,
    /// A trial of an egress is over.
    Trial(Result<trial::Outcome, JoinError>),
}

impl RouteControl {
    async fn start(
        options: RouteControlOptions,
        configs: UnboundedReceiver<RouteControlConfig>,
    ) -> Result<Self, AgentError> {
        check_reserved(options.table_base, options.priority)?;
        check_reserved(options.table_base, options.priority.saturating_add(2))?;
        let netlink = Netlink::open()?;
        let numbers = Numbers::of(&options);
        let inherited = !numbers.domain().keys(&netlink).await?.is_empty();
        settings::check_marks(&netlink, &options, inherited).await?;
        if !options.dry_run {
            check_tables(&netlink, options.table_base, inherited).await?;
        }
        let before = kernel::inherited_egresses(&netlink, &options.config, numbers).await?;
        Ok(RouteControl {
            sides: Side::all(&options.config, |family| before.get(&family).copied())?,
            netlink,
            inputs: Inputs::new(configs, Duration::ZERO),
            egresses: Egresses::new(options.config.egresses.len()),
            probers: Probers::new(),
            passing: Passing::default(),
            said: BTreeSet::new(),
            tables: Tables::new(numbers),
            others: Others::default(),
            flows: None,
            tenure: Tenure::new(inherited),
            options,
        })
    }

    /// The name of an egress.
    fn name(&self, egress: usize) -> &str {
        self.options.config.egresses.get(egress).map(|of| of.name.as_str()).unwrap_or_default()
    }

    fn mode(&self) -> &'static str {
        if self.options.config.control.mode == RouteControlMode::Predictive { "predictive" } else { "practical" }
    }

    /// When a controller wants to be woken.
    fn due(&self) -> Option<Time> {
        self.sides.iter().filter_map(Side::due).min()
    }

    /// Reads what has come at a socket.
    fn take_answers(&mut self, socket: usize) -> Result<(), AgentError> {
        while let Some((at, probe, target)) = self.probers.receive(socket)? {
            let family = self.options.config.targets.get(target as usize).map(|target| target.family());
            let side = self.sides.iter_mut().find(|side| Some(side.family) == family);
            if let Some(side) = side {
                side.controller.handle_answer(at, probe, None);
            }
        }
        Ok(())
    }

    /// Handles what is due: probes leave, or a decision is made.
    fn handle_due(&mut self) -> Result<(), AgentError> {
        // An answer that is here already has come in time.
        for socket in 0..self.probers.len() {
            self.take_answers(socket)?;
        }
        let now = monotonic_now();
        self.options.config.sides().into_iter().try_for_each(|family| self.handle_due_in(family, now))?;
        self.look_at_probing();
        Ok(())
    }

    fn handle_config(&mut self, config: RouteControlConfig) -> Result<(), AgentError> {
        let starts_at = |family| {
            let active = self.name(self.active(family));
            config.egresses.iter().position(|egress| egress.name == active)
        };
        let sides = Side::all(&config, starts_at)?;
        let mut before = std::mem::take(&mut self.sides);
        let keep = |side: Side| match before.iter().position(|one| one.family == side.family) {
            Some(place) => side.renewed(before.swap_remove(place)),
            None => side,
        };
        self.sides = sides.into_iter().map(keep).collect();
        if config.metrics != self.options.config.metrics {
            tracing::warn!("[metrics] stays what it is until the route controller is started again");
        }
        let count = config.egresses.len();
        self.options.config = config;
        self.egresses.reset(count);
        self.said.clear();
        self.probers.clear();
        // Its numbers are those of the egresses before.
        self.passing = Passing::default();
        tracing::info!("the configuration was read again");
        Ok(())
    }
}

impl sidestep_hostd::Daemon for RouteControl {
    type Error = AgentError;
    type Event = Event;
    const INTERVAL: Duration = flows::LOOK;

    async fn start(&mut self) -> Result<(), AgentError> {
        self.inputs.listen(None)?;
        settings::warn_of_sysctls(&self.options.config);
        self.options.config.doubts().iter().for_each(|doubt| tracing::warn!("{doubt}"));
        Ok(())
    }

    async fn next_event(&mut self) -> Option<Event> {
        let due = self.due().map(|due| Instant::now() + due.since(monotonic_now()).to_std());
        let destinations = &self.options.config.route_control.destinations;
        let (inputs, tables, others, trials) = (&mut self.inputs, &self.tables, &self.others, &mut self.passing.trials);
        let concerns = |change: &RoutingChange| {
            tables.kernel.concerns(change) || others.concerns(change) || kernel::is_inner(destinations, change)
        };
        Some(tokio::select! {
            () = reached(due) => Event::Due,
            () = reached(self.egresses.recheck()) => Event::Recheck,
            socket = self.probers.answered() => Event::Answer(socket),
            input = inputs.next(concerns) => Event::Input(input?),
            outcome = trial::ended(trials) => Event::Trial(outcome),
        })
    }

    async fn handle_event(&mut self, event: Event) -> Handled<AgentError> {
        let active = self.all_active();
        let paused = self.look_for_pause();
        let (result, mut reconciles) = match event {
            Event::Due => (self.handle_due(), false),
            Event::Answer(socket) => (self.take_answers(socket), false),
            Event::Recheck => (self.handle_links().await, true),
            Event::Input(Input::Links) => (self.handle_links().await, true),
            // No controller is followed.
            Event::Input(Input::Controller(_)) => (Ok(()), false),
            Event::Input(Input::Routing) => {
                let compared = self.differs().await;
                let unmeasured = self.passing.is_lost(&self.netlink, &self.egresses.links).await;
                let differs = matches!(compared, Ok(true)) || matches!(unmeasured, Ok(true));
                if !differs {
                    note(self.check_effect().await);
                }
                let handled = self.inputs.compared(compared);
                (handled.result, differs)
            }
            Event::Trial(outcome) => {
                self.handle_outcome(outcome);
                (Ok(()), false)
            }
            Event::Input(Input::Config(config)) => {
                let result = self.handle_config(*config);
                self.tables.kernel.forget_routes();
                (result, true)
            }
        };
        // The move itself comes first; what else has to follow, follows.
        let steered = if self.all_active() == active { Ok(()) } else { self.steer().await };
        let steered = steered.and_then(|()| self.follow_spread());
        self.note_dead();
        let steered = steered.and_then(|()| self.forget_flows());
        reconciles |= steered.is_err();
        Handled { result: result.and(steered).and(paused), reconciles }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.read_links().await?;
        self.probers.open()?;
        // A dry run changes nothing in the kernel, this neither.
        let measures = self.options.config.is_passive() && !self.options.dry_run;
        self.passing.attach(&self.netlink, &self.egresses.links, measures).await?;
        self.apply().await?;
        self.tables.again = self.egresses.is_any_refused().then(|| Instant::now() + AGAIN);
        if self.tenure.begin() {
            settings::warn_of_egresses(&self.options.config, &self.egresses.links, &self.netlink.vrfs().await?);
        }
        note(self.check_effect().await);
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.netlink.renew()?;
        self.look_for_pause()?;
        self.note_dead();
        self.forget_flows()?;
        // No event reports changes of tables of nf_tables.
        if self.forget_lost_flows()? {
            self.others.count(1);
            tracing::warn!("another program changed the table of flows and their egresses, which is written again");
            self.apply_flows()?;
        }
        if self.others.firewall.is_due() {
            self.read_firewall();
        }
        self.probers.open()?;
        self.look_for_stale_hops().await?;
        if self.tables.is_due() {
            self.reconcile().await?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        let (config, count) = (&self.options.config, self.egresses.len());
        let unusable = (0..count).filter(|egress| self.egresses.unusable(config, *egress).is_some()).count();
        let last = |side: &Side| side.decisions.back().map_or("not measured yet".into(), |last| last.reason.clone());
        let decided = self.sides.iter().filter(|side| side.follows.is_none());
        let reason = families::agreed(decided.map(|side| (side.family.to_string(), last(side))));
        let unusable = if unusable > 0 { format!(", {unusable} of {count} egresses unusable") } else { String::new() };
        let overridden = self.others.status();
        format!("packets take {}: {reason}{unusable}{overridden}", self.active_name())
    }

    fn read_status(&mut self) -> Result<String, AgentError> {
        to_json(&self.current_status())
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        Ok(metrics::page(&self.current_status(), faults))
    }

    async fn stop(self, end: End) -> Result<(), AgentError> {
        if self.options.dry_run || self.tenure.should_keep_state(end, self.options.keep) {
            return Ok(());
        }
        kernel::remove_all(&self.netlink, self.options.table_base, self.options.priority).await.map(drop)
    }
}

impl RouteControl {
    /// The kernel removes routes together with their interface, and gives a new interface another number.
    async fn handle_links(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.tables.kernel.compare(&self.netlink).await?;
        self.read_links().await
    }
}
