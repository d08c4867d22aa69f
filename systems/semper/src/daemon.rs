//! The edge daemon: keeps the balancer's program, its paths, and the rules and routes that make paths of marks.
//!
//! A packet never waits for the daemon. If it dies, program, rules and routes stay, and flows go on along their paths.

pub mod balancer;
mod config;
mod destinations;
mod effect;
mod hash_doubts;
mod kernel;
mod metrics;
pub mod needs;
mod offload;
pub mod parity;
mod path_routing;
mod peer;
mod probe_config;
mod probes;
mod program;
mod seed;
mod settings;
mod status;

use std::{ops::ControlFlow, time::Duration};

use sidestep_hostd::{
    AgentError, ControlSocket, Daemon, End, Handled, Listeners, Others, Page, Scrapes, Shutdown, Tenure,
    control::{self, Protocol, Request},
    effect::note,
    inputs::{Input, Inputs},
    paths::{check_reserved, check_tables},
};
use sidestep_linux::netlink::{Netlink, RoutingChange};
use tokio::sync::mpsc::UnboundedReceiver;

use self::{balancer::BalancerConfig, destinations::Destinations, path_routing::PathRouting, program::Program};
pub use self::{
    config::{EdgeConfig, EdgeSettings, Health, MAX_FLOWS},
    hash_doubts::HashDoubt,
    metrics::EDGE_METRICS,
    peer::EdgeAgreement,
    probe_config::EdgeProbeSettings,
    seed::SeedOrigin,
    status::{
        EdgeDestination, EdgePath, EdgePlace, EdgeProbes, EdgeStatus, PlacedBy, SlotUsed, Tuple, edge_place,
        edge_status,
    },
};

/// What the edge daemon needs to know.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// How it balances, and the paths.
    pub config: EdgeConfig,
    /// The path of slot k is in table `table_base + k`.
    pub table_base: u32,
    /// Priority of the rules.
    pub priority: u32,
    /// Whether everything stays in place on a shutdown, for the next daemon to take over.
    pub keep: bool,
    /// Whether the kernel's own multipath routes take the place of the program.
    pub offload: bool,
    /// Whether to choose and count only: no packet is marked, no rule and no route installed.
    pub dry_run: bool,
}

/// The name by which the edge daemon of a network namespace is known.
const NAME: &str = "sidestep-edge";
/// Each connection there asks for the end.
const PROTOCOL: Protocol = Protocol::Always(Request::Stop);
/// Runs the edge daemon until `shutdown` completes; calls `ready` when packets are balanced.
///
/// On return nothing of it is left in the kernel, unless `shutdown` or `options` keep it, or the daemon failed
/// while at work. What an earlier daemon left is taken over in place: no packet goes without a path meanwhile. A
/// configuration that comes through `configs` takes the place of the one in `options`; what the program was loaded with
/// (`mark_mask`, `stateful`, `flows`) stays.
pub async fn run_edge(
    options: EdgeOptions,
    configs: UnboundedReceiver<EdgeConfig>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let scrapes = Scrapes::listen_if(options.config.metrics.listen).await?;
    let control = ControlSocket::claim(NAME, "edge", PROTOCOL).await?.with_status_at(status::NAME)?;
    let listeners = Listeners { scrapes, control: Some(control) };
    if options.offload {
        let offload = offload::Offload::start(options, configs).await?;
        return sidestep_hostd::run(offload, listeners, ready, shutdown).await;
    }
    // A path whose carrier is lost is left at once.
    let edge = Edge::start(options, Inputs::new(configs, Duration::ZERO)).await?;
    sidestep_hostd::run(edge, listeners, ready, shutdown).await
}

/// Ends the edge daemon of the calling thread's network namespace, and removes what it or one before it left: filters on
/// ingress, and the rules and routes of these tables. Returns whether there was anything.
pub async fn stop_edge(table_base: u32, priority: u32) -> Result<bool, AgentError> {
    let stopped = control::stop(NAME, PROTOCOL).await?;
    let removed = kernel::remove_all(&Netlink::open()?, table_base, priority).await?;
    Ok(stopped || removed)
}

/// The daemon's hold on the kernel.
struct Edge {
    /// What the daemon was started with; its configuration is the one that is in force.
    options: EdgeOptions,
    inputs: Inputs<(), EdgeConfig>,
    netlink: Netlink,
    program: Program,
    /// The rules and routes of paths.
    routing: PathRouting,
    /// The destinations, and which of their paths are alive.
    destinations: Destinations,
    /// The other edge, if it is compared with.
    peer: Option<peer::Peer>,
    /// The probes of paths, if health goes by them.
    probes: Option<probes::Probes>,
    /// What others do to marks, rules, routes and filters.
    others: Others,
    /// Where the seed in force comes from.
    seed_origin: SeedOrigin,
    /// How flows are spread, and what is doubtful about that.
    spread: hash_doubts::Spread,
    tenure: Tenure,
}

impl Edge {
    async fn start(mut options: EdgeOptions, inputs: Inputs<(), EdgeConfig>) -> Result<Self, AgentError> {
        check_reserved(options.table_base, options.priority)?;
        let netlink = Netlink::open()?;
        let kept = seed::in_place(&netlink, &options.config.edge.inside).await?;
        let seed_origin = options.config.settle_seed(kept);
        let settings = &options.config.edge;
        let loaded = BalancerConfig {
            mark_mask: settings.mark_mask,
            dry_run: options.dry_run,
            flows: settings.stateful.then_some(settings.flows),
        };
        let domain = kernel::domain(options.table_base, options.priority);
        let inherited = !domain.keys(&netlink).await?.is_empty();
        settings::check_marks(&netlink, &options, inherited).await?;
        if !options.dry_run {
            check_tables(&netlink, options.table_base, inherited).await?;
        }
        Ok(Edge {
            inputs,
            program: Program::load(&loaded)?,
            netlink,
            routing: PathRouting::new(&options, loaded.mark_mask),
            destinations: Destinations::default(),
            peer: peer::Peer::open(&options.config.edge)?,
            probes: None,
            others: Others::default(),
            seed_origin,
            spread: hash_doubts::Spread::new(),
            tenure: Tenure::new(inherited),
            options,
        })
    }

    fn settings(&self) -> &EdgeSettings {
        &self.options.config.edge
    }
}

/// What reaches the edge daemon.
enum Event {
    Input(Input<(), EdgeConfig>),
    /// The other edge has sent something, probes are due or answered, or these cannot be asked.
    Own(Result<(), AgentError>),
}

impl Daemon for Edge {
    type Error = AgentError;
    type Event = Event;

    /// How often to look whether the program is still where it should be.
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn start(&mut self) -> Result<(), AgentError> {
        self.inputs.listen(None)?;
        settings::warn_of_sysctls(&self.options.config);
        self.log_seed();
        Ok(())
    }

    async fn next_event(&mut self) -> Option<Event> {
        let Edge { inputs, routing, others, peer, probes, .. } = self;
        let is_paused = inputs.is_paused();
        let concerns = |change: &RoutingChange| routing.concerns(change) || others.concerns(change);
        tokio::select! {
            input = inputs.next(concerns) => input.map(Event::Input),
            message = peer_message(peer.as_ref()), if !is_paused => Some(Event::Own(message)),
            probed = probed(probes.as_ref()), if !is_paused => Some(Event::Own(probed)),
        }
    }

    async fn handle_event(&mut self, event: Event) -> Handled<AgentError> {
        match event {
            // No controller is followed.
            Event::Input(Input::Controller(_)) => Handled { result: Ok(()), reconciles: false },
            Event::Input(Input::Config(config)) => Handled { result: self.handle_config(*config), reconciles: true },
            Event::Input(Input::Links) => {
                let result = self.handle_links();
                self.inputs.links_handled(result)
            }
            Event::Input(Input::Routing) => {
                let differs = self.compare().await;
                self.inputs.compared(differs)
            }
            Event::Own(came) => {
                let result = came.and_then(|()| self.handle_own());
                self.inputs.own_handled(result)
            }
        }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.apply().await?;
        if self.tenure.begin() {
            settings::warn_of_mtu(self).await?;
        }
        note(self.check_effect().await);
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.inputs.resume();
        self.netlink.renew()?;
        let at_work = self.tenure.is_at_work();
        let back = self.program.stay_attached(&self.netlink, &self.options.config, at_work).await?;
        self.others.count(back);
        self.refresh_probes()?;
        self.write_sites()?;
        self.send_to_peer();
        if self.others.firewall.is_due() {
            self.read_firewall();
        }
        self.spread.doubt(&mut self.program.balancer, &self.options.config, self.destinations.written())?;
        self.program.forget_flows()?;
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        let paths: usize = self.options.config.destinations.iter().map(|set| set.paths.len()).sum();
        let dead = match self.destinations.dead_count() {
            0 => String::new(),
            count => format!(", {count} dead"),
        };
        let overridden = self.others.status();
        let absent = self.program.missing(&self.settings().inside);
        let absent = if absent.is_empty() { String::new() } else { format!("; not on {}", absent.join(" ")) };
        format!("{paths} paths to {} destinations{dead}{absent}{overridden}", self.options.config.destinations.len())
    }

    fn read_status(&mut self) -> Result<String, AgentError> {
        sidestep_hostd::status::to_json(&self.current_status()?)
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        Ok(metrics::page(&self.current_status()?, faults))
    }

    async fn stop(self, end: End) -> Result<(), AgentError> {
        if self.tenure.should_keep_state(end, self.options.keep) {
            return Ok(());
        }
        kernel::remove_all(&self.netlink, self.options.table_base, self.options.priority).await.map(drop)
    }
}

/// Waits for the other edge; never completes without one.
async fn peer_message(peer: Option<&peer::Peer>) -> Result<(), AgentError> {
    match peer {
        Some(peer) => peer.is_readable().await,
        None => std::future::pending().await,
    }
}

/// Waits until probes are due or answered; never completes without any.
async fn probed(probes: Option<&probes::Probes>) -> Result<(), AgentError> {
    match probes {
        Some(probes) => Ok(probes.due().await?),
        None => std::future::pending().await,
    }
}

impl Edge {
    fn handle_config(&mut self, mut config: EdgeConfig) -> Result<(), AgentError> {
        let (new, now) = (&config.edge, &self.options.config.edge);
        if (new.mark_mask, new.stateful, new.flows) != (now.mark_mask, now.stateful, now.flows) {
            tracing::warn!("mark_mask, stateful and flows stay what they are until the edge is started again");
        }
        if (new.listen, new.peer) != (now.listen, now.peer) {
            tracing::warn!("listen and peer stay what they are until the edge is started again");
        }
        if config.metrics != self.options.config.metrics {
            tracing::warn!("[metrics] stays what it is until the edge is started again");
        }
        let before = self.options.config.edge.seed;
        // One that was not given stays while the daemon works.
        let kept = (self.seed_origin != SeedOrigin::Given).then_some(before);
        self.seed_origin = config.settle_seed(kept);
        self.options.config = config;
        tracing::info!("the configuration was read again");
        if self.options.config.edge.seed != before {
            self.log_seed();
        }
        self.handle_links()
    }

    /// The kernel removes routes together with their interface, and gives a new interface another number.
    fn handle_links(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.routing.forget_routes();
        Ok(())
    }

    async fn compare(&mut self) -> Result<bool, AgentError> {
        let differs = self.differs().await?;
        if !differs {
            note(self.check_effect().await);
        }
        Ok(differs)
    }

    fn handle_own(&mut self) -> Result<(), AgentError> {
        if let Some(peer) = &mut self.peer {
            peer.take();
            self.write_sites()?;
        }
        self.handle_probes()
    }
}

impl Edge {
    /// Opens and closes what probes, as the paths are now. In a dry run no rule knows the marks of probes.
    fn refresh_probes(&mut self) -> Result<(), AgentError> {
        let config = &self.options.config;
        let Some(settings) = config.probing().filter(|_| !self.options.dry_run) else {
            self.probes = None;
            return Ok(());
        };
        let probes = self.probes.get_or_insert_with(|| probes::Probes::new(settings.clone()));
        probes.set_settings(settings);
        Ok(probes.refresh(config, self.destinations.known(), self.routing.numbers.mask)?)
    }

    /// Sends and takes probes, and acts on what they show.
    fn handle_probes(&mut self) -> Result<(), AgentError> {
        let Some(probes) = &mut self.probes else { return Ok(()) };
        probes.reflect(self.destinations.known(), self.routing.numbers.mask)?;
        let verdicts = probes.handle();
        for (destination, position, dead) in &verdicts {
            let set = self.options.config.destinations.iter().find(|set| set.prefix == *destination);
            let path = set.and_then(|set| set.paths.get(*position)).and_then(|path| path.name.as_deref());
            if *dead {
                tracing::warn!(%destination, path, "probes of a path are not answered: its flows take the others");
            } else {
                tracing::info!(%destination, path, "probes of a path are answered again");
            }
        }
        if !verdicts.is_empty() {
            self.write_sites()?;
            self.send_to_peer();
        }
        Ok(())
    }

    /// What is sent to the other edge.
    fn message(&self) -> peer::Message {
        let sites = self.destinations.judged(self.probes.as_ref());
        let sites = || sites.iter().filter_map(|(destination, site)| Some((destination, site.as_ref()?)));
        let digests = sites().map(|(_, site)| site.set.version().digest).collect();
        let dead = sites().flat_map(|(destination, site)| {
            let paths = site.set.raw().path.iter().take(site.set.count() as usize).enumerate();
            let dead = paths.filter(|(position, _)| site.live >> position & 1 == 0);
            dead.map(|(_, path)| (peer::version(*destination), path.id))
        });
        peer::Message::new(self.settings().generation, &digests, dead.collect())
    }

    fn send_to_peer(&mut self) {
        let message = self.message();
        if let Some(peer) = &mut self.peer {
            peer.send(&message);
        }
    }

    /// Reports which seed is in force.
    fn log_seed(&self) {
        let (seed, origin) = (self.settings().seed, self.seed_origin);
        match origin {
            SeedOrigin::Given => {}
            SeedOrigin::Agreed => tracing::info!(seed, "the seed of the hash is {origin}"),
            SeedOrigin::Own | SeedOrigin::Kept => tracing::info!(
                seed,
                "the seed of the hash is {origin}; if an edge at the other end is to choose alike, give both the same `seed`"
            ),
        }
    }
}
