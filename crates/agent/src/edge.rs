//! The edge daemon: keeps the balancer's program, its paths, and the rules and routes that make paths of marks.
//!
//! A packet never waits for the daemon. If it dies, program, rules and routes stay, and flows go on along their paths.

mod config;
mod effect;
mod hash_doubts;
mod kernel;
mod metrics;
mod offload;
mod others;
mod peer;
mod probe_config;
mod probes;
mod route_control;
mod seed;
mod settings;
mod status;
mod tenure;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sidestep_hostd::{
    ControlSocket, Daemon, End, Handled, Listeners, Page, Scrapes, Shutdown,
    control::{self, Protocol, Request},
};
use sidestep_linux::{
    bpf::balance::{self, Balancer, BalancerConfig, Side, Site},
    monotonic_now,
    netlink::{Netlink, RoutingChange},
};
use tokio::sync::mpsc::UnboundedReceiver;

pub use self::{
    config::{EdgeConfig, EdgeKnobs, Health, MAX_FLOWS},
    hash_doubts::HashDoubt,
    metrics::EDGE_METRICS,
    peer::EdgeAgreement,
    probe_config::EdgeProbeKnobs,
    route_control::*,
    seed::SeedOrigin,
    status::{
        EdgeDestination, EdgePath, EdgePlace, EdgeProbes, EdgeStatus, PlacedBy, SlotUsed, Tuple, edge_place,
        edge_status,
    },
};
use crate::{
    AgentError,
    effect::{Effects, note},
    firewall::Firewall,
    inputs::{Input, Inputs},
    paths::{MarkBits, Slots, Underlay, check_reserved, check_tables},
    routing::KernelRouting,
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
/// How long a flow of the table may be silent, in seconds of 2^30 ns; and how long it is kept after its end.
const IDLE: u32 = 900;
const CLOSING: u32 = 60;
/// How often flows that have ended are looked for: the kernel copies the whole table for that.
const FORGETTING: Duration = Duration::from_secs(15);

/// Runs the edge daemon until `shutdown` completes; calls `ready` when packets are balanced.
///
/// On return nothing of it is left in the kernel, unless `shutdown` or `options` say that it is kept, or the daemon failed
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
    balancer: Balancer,
    /// What the program was loaded with.
    loaded: BalancerConfig,
    /// The interface that has the program, by its name and side.
    attached: BTreeMap<(String, Side), u32>,
    /// What is said of interfaces that cannot have the program, so that it is said once.
    complaints: BTreeSet<String>,
    /// The slot of each path.
    slots: Slots,
    /// The rules and routes of paths.
    routing: KernelRouting,
    /// The destinations as this edge knows them; `None` for those without paths.
    known: BTreeMap<IpNet, Option<Site>>,
    /// The same as the program has them: paths that are dead at the other edge are dead here.
    sites: BTreeMap<IpNet, Option<Site>>,
    /// Why a path is dead, by destination and name.
    dead: BTreeMap<(IpNet, String), String>,
    /// What paths depend on in the kernel's other tables.
    underlay: Underlay,
    /// The other edge, if it is compared with.
    peer: Option<peer::Peer>,
    /// The probes of paths, if health goes by them.
    probes: Option<probes::Probes>,
    /// Whether packets leave by the paths of their marks.
    effects: Effects,
    /// Rules of others that restore marks.
    firewall: Firewall,
    /// How many rules, routes and filters of ours others removed, and were put back.
    mended: u64,
    /// When flows that have ended were forgotten last.
    forgot_at: Option<Instant>,
    /// Whether an earlier daemon left something, by which packets go.
    inherited: bool,
    /// Whether packets are balanced.
    at_work: bool,
    /// Where the seed in force comes from.
    seed_origin: SeedOrigin,
    /// The flows of the last while, and what is doubtful about them.
    window: hash_doubts::Window,
    doubts: Vec<HashDoubt>,
}

impl Edge {
    async fn start(mut options: EdgeOptions, inputs: Inputs<(), EdgeConfig>) -> Result<Self, AgentError> {
        check_reserved(options.table_base, options.priority)?;
        let netlink = Netlink::open()?;
        let kept = seed::in_place(&netlink, &options.config.edge.inside).await?;
        let seed_origin = options.config.settle_seed(kept);
        let knobs = &options.config.edge;
        let loaded = BalancerConfig {
            mark_mask: knobs.mark_mask,
            dry_run: options.dry_run,
            flows: knobs.stateful.then_some(knobs.flows),
        };
        let domain = kernel::domain(options.table_base, options.priority);
        let inherited = !domain.keys(&netlink).await?.is_empty();
        settings::check_marks(&netlink, &options, inherited).await?;
        if !options.dry_run {
            check_tables(&netlink, options.table_base, inherited).await?;
        }
        Ok(Edge {
            inputs,
            balancer: Balancer::load(&loaded)?,
            netlink,
            loaded,
            attached: BTreeMap::new(),
            complaints: BTreeSet::new(),
            slots: Slots::new(),
            routing: KernelRouting::new(domain),
            known: BTreeMap::new(),
            sites: BTreeMap::new(),
            peer: peer::Peer::open(&options.config.edge)?,
            probes: None,
            dead: BTreeMap::new(),
            underlay: Underlay::default(),
            effects: Effects::default(),
            firewall: Firewall::default(),
            mended: 0,
            forgot_at: None,
            inherited,
            at_work: false,
            seed_origin,
            window: hash_doubts::Window::new(),
            doubts: Vec::new(),
            options,
        })
    }

    fn knobs(&self) -> &EdgeKnobs {
        &self.options.config.edge
    }

    /// How many paths a destination can have.
    fn most_slots(&self) -> u32 {
        MarkBits::new(self.loaded.mark_mask).slots()
    }
}

/// What reaches the edge daemon.
enum Event {
    Input(Input<(), EdgeConfig>),
    /// The other edge is heard, probes are due or answered, or these cannot be asked.
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
        let Edge { inputs, routing, underlay, effects, peer, probes, .. } = self;
        let is_deaf = inputs.is_deaf();
        let concerns = |change: &RoutingChange| {
            routing.concerns(change) || effects.concerns(change) || underlay.concerns(routing, change)
        };
        tokio::select! {
            input = inputs.next(concerns) => input.map(Event::Input),
            heard = heard(peer.as_ref()), if !is_deaf => Some(Event::Own(heard)),
            probed = probed(probes.as_ref()), if !is_deaf => Some(Event::Own(probed)),
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
        if !std::mem::replace(&mut self.at_work, true) {
            settings::warn_of_mtu(self).await?;
        }
        note(self.check_effect().await);
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.inputs.hear();
        self.netlink.renew()?;
        self.stay_attached().await?;
        self.refresh_probes()?;
        self.write_sites()?;
        self.tell_peer();
        if self.firewall.is_due() {
            self.read_firewall();
        }
        self.doubt_hash()?;
        if self.loaded.flows.is_some() && self.forgot_at.is_none_or(|at| at.elapsed() >= FORGETTING) {
            self.forgot_at = Some(Instant::now());
            self.balancer.forget_flows((monotonic_now().as_nanos() >> 30) as u32, IDLE, CLOSING)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        let paths: usize = self.options.config.destinations.iter().map(|set| set.paths.len()).sum();
        let dead = if self.dead.is_empty() { String::new() } else { format!(", {} dead", self.dead.len()) };
        let overridden = overridden(&self.effects, &self.firewall);
        let absent = self.missing_inside();
        let absent = if absent.is_empty() { String::new() } else { format!("; not on {}", absent.join(" ")) };
        format!("{paths} paths to {} destinations{dead}{absent}{overridden}", self.options.config.destinations.len())
    }

    fn read_status(&mut self) -> Result<String, AgentError> {
        status::to_json(&self.current_status()?)
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        Ok(metrics::page(&self.current_status()?, faults))
    }

    async fn stop(self, end: End) -> Result<(), AgentError> {
        if keeps(end, self.at_work, self.inherited, self.options.keep) {
            return Ok(());
        }
        kernel::remove_all(&self.netlink, self.options.table_base, self.options.priority).await.map(drop)
    }
}

/// How many kinds of packets do not leave as decided, and how many rules restore marks, for the status in one line.
fn overridden(effects: &Effects, firewall: &Firewall) -> String {
    let restored = match firewall.found().len() {
        0 => String::new(),
        count => format!("; {count} rules of others restore mark_mask"),
    };
    match effects.found().count() {
        0 => restored,
        count => format!("; {count} kinds of packets do not leave as decided{restored}"),
    }
}

/// Whether a daemon that ends leaves everything in place.
fn keeps(end: End, at_work: bool, inherited: bool, keep: bool) -> bool {
    match end {
        End::Shutdown(Shutdown::Keep) | End::Failed => at_work || inherited,
        End::Shutdown(Shutdown::CleanUp) if !at_work => inherited,
        End::Shutdown(Shutdown::CleanUp) => keep,
        End::Finished => false,
    }
}

/// Waits for the other edge; never completes without one.
async fn heard(peer: Option<&peer::Peer>) -> Result<(), AgentError> {
    match peer {
        Some(peer) => peer.is_heard().await,
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
        // One that nobody gave stays while the daemon works.
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
        let Some(knobs) = config.probing().filter(|_| !self.options.dry_run) else {
            self.probes = None;
            return Ok(());
        };
        let probes = self.probes.get_or_insert_with(|| probes::Probes::new(knobs.clone()));
        probes.set_knobs(knobs);
        Ok(probes.refresh(config, &self.known, self.loaded.mark_mask)?)
    }

    /// Sends and takes probes, and acts on what they say.
    fn handle_probes(&mut self) -> Result<(), AgentError> {
        let Some(probes) = &mut self.probes else { return Ok(()) };
        probes.reflect(&self.known, self.loaded.mark_mask)?;
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
            self.tell_peer();
        }
        Ok(())
    }

    /// What the other edge is told.
    fn message(&self) -> peer::Message {
        let sites = self.judged();
        let sites = || sites.iter().filter_map(|(destination, site)| Some((destination, site.as_ref()?)));
        let digests = sites().map(|(_, site)| site.set.version().digest).collect();
        let dead = sites().flat_map(|(destination, site)| {
            let paths = site.set.raw().path.iter().take(site.set.count() as usize).enumerate();
            let dead = paths.filter(|(position, _)| site.live >> position & 1 == 0);
            dead.map(|(_, path)| (peer::version(*destination), path.id))
        });
        peer::Message::new(self.knobs().generation, &digests, dead.collect())
    }

    fn tell_peer(&mut self) {
        let message = self.message();
        if let Some(peer) = &mut self.peer {
            peer.tell(&message);
        }
    }

    /// Says which seed is in force.
    fn log_seed(&self) {
        let (seed, origin) = (self.knobs().seed, self.seed_origin);
        match origin {
            SeedOrigin::Given => {}
            SeedOrigin::Agreed => tracing::info!(seed, "the seed of the hash is {origin}"),
            SeedOrigin::Own | SeedOrigin::Kept => tracing::info!(
                seed,
                "the seed of the hash is {origin}; if an edge at the other end is to choose alike, give both the same `seed`"
            ),
        }
    }

    /// Interfaces of the site that do not have the program.
    fn missing_inside(&self) -> Vec<&str> {
        let has = |name: &&String| !self.attached.contains_key(&((*name).clone(), Side::Site));
        self.knobs().inside.iter().filter(has).map(String::as_str).collect()
    }

    /// Puts the program back where somebody removed it.
    async fn stay_attached(&mut self) -> Result<(), AgentError> {
        let attached: Vec<_> =
            self.attached.iter().map(|((name, side), index)| (name.clone(), *side, *index)).collect();
        let mut lost = 0;
        for (name, side, index) in attached {
            if !self.balancer.is_attached(&self.netlink, index, side).await? {
                self.attached.remove(&(name, side));
                lost += 1;
            }
        }
        if lost > 0 {
            let before = self.attached.len();
            self.attach_all().await?;
            let back = self.attached.len() - before;
            self.mended += back as u64;
            if back > 0 {
                tracing::warn!(filters = back, "somebody removed filters of ours, which are put back");
            }
        } else if !self.missing_inside().is_empty() {
            self.attach_all().await?;
        }
        Ok(())
    }

    /// Attaches the program to the interfaces that are there and do not have it, and removes it from those of which the
    /// configuration no longer speaks.
    async fn attach_all(&mut self) -> Result<(), AgentError> {
        let interfaces = self.netlink.interfaces().await?;
        let interfaces: BTreeMap<_, _> = interfaces.into_iter().map(|one| (one.name.clone(), one)).collect();
        let inside = self.knobs().inside.iter().map(|name| (name.clone(), Side::Site));
        let outside = self.options.config.outside().into_iter().filter(|_| self.loaded.flows.is_some());
        let outside = outside.map(|name| (name.to_string(), Side::Paths));
        let wanted: BTreeSet<(String, Side)> = inside.chain(outside).collect();
        self.attached.retain(|(name, _), index| interfaces.get(name).is_some_and(|now| now.index == *index));
        for (name, side) in &wanted {
            let key = (name.clone(), *side);
            let Some(interface) = interfaces.get(name).filter(|_| !self.attached.contains_key(&key)) else {
                continue;
            };
            match self.balancer.attach(&self.netlink, interface, *side).await {
                Ok(()) => {
                    self.complaints.remove(name);
                    self.attached.insert(key, interface.index);
                }
                Err(error) if error.is_environment() => return Err(error.into()),
                Err(error) if self.complaints.insert(name.clone()) => {
                    tracing::warn!(%error, "packets that come in by {name} take the router's own route until it succeeds");
                }
                Err(_) => {}
            }
        }
        let unwanted: Vec<_> = self.attached.keys().filter(|key| !wanted.contains(key)).cloned().collect();
        for key in unwanted {
            if let Some(index) = self.attached.remove(&key) {
                balance::remove_side(&self.netlink, index, key.1).await?;
            }
        }
        if !self.at_work {
            // An earlier daemon may have had other interfaces, or a table, or left the choice to the kernel.
            for (name, interface) in &interfaces {
                balance::remove_but(&self.netlink, interface.index, |side| wanted.contains(&(name.clone(), side)))
                    .await?;
            }
        }
        Ok(())
    }
}
