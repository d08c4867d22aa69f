//! The router daemon: installs what Path IDs stand for, keeps congestion marks across decapsulation, and reports
//! how busy the links are.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use sidestep_api::{Binding, BindingUpdate, Connection, LinkCounter, Reporter, UsageReport, watch_bindings};
use sidestep_linux::{
    bpf::ecn::EcnDecap,
    monotonic_now,
    netlink::{Interface, LinkWatch, MAIN_TABLE, Netlink, Route, SidAction, Target},
};
use sidestep_metrics::Scrapes;
use sidestep_model::srv6;
use tokio::time::MissedTickBehavior;

use crate::{AgentError, router_metrics::RouterReading};

/// What the router daemon needs to know.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// Where the controller is.
    pub controller: String,
    /// The router's name in the controller's topology.
    pub node: String,
    /// The interface of each of its links: link name to interface name.
    pub links: BTreeMap<String, String>,
    /// Whether to copy congestion marks inward before decapsulation.
    pub ecn: bool,
    /// Where Prometheus may read metrics; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// How often link counters are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the router daemon until `shutdown` completes; calls `ready` when Path IDs are in place.
///
/// On return its routes and programs are gone.
pub async fn run_router(
    options: RouterOptions,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let mut scrapes = Scrapes::listen_if(options.metrics).await?;
    let mut router = Router::start(&options).await?;
    let result = tokio::select! {
        () = shutdown => Ok(()),
        result = router.work(&options, &mut scrapes, ready) => result,
    };
    let stopped = router.apply(&[]).await;
    result.and(stopped)
}

struct Router {
    netlink: Netlink,
    /// Interface index and link name of each link.
    links: BTreeMap<u32, String>,
    /// An interface that SIDs can name.
    interface: u32,
    bindings: BTreeMap<Ipv6Addr, Vec<Ipv6Addr>>,
    /// Links that were down when last looked at.
    down: BTreeSet<String>,
    ecn: Option<EcnDecap>,
    /// What has been counted of dealings with the controller.
    dealings: RouterReading,
    started: Instant,
}

impl Router {
    async fn start(options: &RouterOptions) -> Result<Self, AgentError> {
        let netlink = Netlink::open()?;
        let interfaces = netlink.interfaces().await?;
        let mut links = BTreeMap::new();
        let mut used = Vec::new();
        for (link, name) in &options.links {
            let interface = interfaces.iter().find(|interface| interface.name == *name);
            let interface = interface.ok_or_else(|| AgentError::NoInterface(name.clone()))?;
            links.insert(interface.index, link.clone());
            used.push(interface.clone());
        }
        let outside = |interface: &&Interface| !interface.loopback;
        let interface = used.first().or_else(|| interfaces.iter().find(outside)).map(|interface| interface.index);
        let interface = interface.ok_or_else(|| AgentError::NoInterface("any but the loopback".into()))?;
        let ecn = if options.ecn { Some(EcnDecap::attach(&used)?) } else { None };
        Ok(Router {
            netlink,
            links,
            interface,
            bindings: BTreeMap::new(),
            down: BTreeSet::new(),
            ecn,
            dealings: RouterReading::default(),
            started: Instant::now(),
        })
    }

    async fn work(
        &mut self,
        options: &RouterOptions,
        scrapes: &mut Option<Scrapes>,
        ready: impl FnOnce(),
    ) -> Result<(), AgentError> {
        let mut watcher = watch_bindings(&options.controller, &options.node, true).await?;
        let mut reporter = Reporter::new(&options.controller)?;
        let mut changes = LinkWatch::open()?;
        let mut tick = tokio::time::interval(REPORT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);

        if let Some(update) = watcher.changed().await.and_then(|latest| latest.update) {
            self.dealings.connected = true;
            self.adopt_installed().await?;
            self.hear(&update).await?;
        }
        ready();
        loop {
            tokio::select! {
                latest = watcher.changed() => {
                    let Some(latest) = latest else { return Ok(()) };
                    self.dealings.connected = latest.connection == Connection::Connected;
                    match (&latest.connection, &latest.update) {
                        (Connection::Connected, Some(update)) => self.hear(update).await?,
                        (Connection::Lost { reason }, _) => {
                            tracing::warn!(reason, "the controller is away; the last Path IDs stay");
                        }
                        _ => {}
                    }
                }
                _ = tick.tick() => self.tell(&mut reporter, options).await?,
                // The kernel tells of a link that goes down or up.
                () = changes.began() => self.tell(&mut reporter, options).await?,
                scrape = Scrapes::next_of(scrapes) => match self.read().await {
                    Ok(reading) => scrape.answer(reading.page()),
                    Err(error) => tracing::warn!(%error, "the metrics cannot be read"),
                },
            }
        }
    }

    /// Tells the controller how the links are.
    async fn tell(&mut self, reporter: &mut Reporter, options: &RouterOptions) -> Result<(), AgentError> {
        let report = self.report(&options.node).await?;
        let down: BTreeSet<_> = report.counters.iter().filter(|link| link.down).map(|link| link.link.clone()).collect();
        if down != self.down {
            tracing::info!(at_ns = monotonic_now().as_nanos(), ?down, "links that are down");
            self.down = down;
        }
        // The watcher says when the controller is away; a report that is lost is followed by the next.
        match reporter.report(report).await {
            Ok(_) => self.dealings.taken += 1,
            Err(error) => {
                self.dealings.lost += 1;
                tracing::debug!(%error, "a report was lost");
            }
        }
        Ok(())
    }

    async fn hear(&mut self, update: &BindingUpdate) -> Result<(), AgentError> {
        self.apply(&update.bindings).await
    }

    /// Takes over the Path IDs that an earlier daemon left when it was killed, of which only the SIDs are known.
    async fn adopt_installed(&mut self) -> Result<(), AgentError> {
        for (table, destination) in self.netlink.own_routes().await? {
            let IpAddr::V6(sid) = destination.addr() else { continue };
            if table == MAIN_TABLE && destination.prefix_len() == 128 && srv6::is_binding_sid(sid) {
                self.bindings.insert(sid, Vec::new());
            }
        }
        Ok(())
    }

    /// Makes the installed Path IDs those of `bindings`.
    ///
    /// What is installed is noted at each step, so that one that fails or is cancelled leaves nothing unknown behind.
    async fn apply(&mut self, bindings: &[Binding]) -> Result<(), AgentError> {
        let wanted: BTreeMap<_, _> =
            bindings.iter().map(|binding| (binding.binding_sid, binding.segments.clone())).collect();
        for (sid, segments) in &wanted {
            if self.bindings.get(sid) != Some(segments) {
                let target = Target::Sid(SidAction::EndB6Encaps(segments.clone()), self.interface);
                let route = Route { table: MAIN_TABLE, destination: IpAddr::from(*sid).into(), target, mtu: None };
                self.bindings.insert(*sid, segments.clone());
                self.netlink.add_route(&route).await?;
            }
        }
        let gone: Vec<_> = self.bindings.keys().filter(|sid| !wanted.contains_key(sid)).copied().collect();
        for sid in gone {
            self.netlink.delete_route(MAIN_TABLE, IpAddr::from(sid).into()).await?;
            self.bindings.remove(&sid);
        }
        Ok(())
    }

    /// What Prometheus is told.
    async fn read(&self) -> Result<RouterReading, AgentError> {
        let interfaces = self.netlink.interfaces().await?;
        let sent = |interface: &Interface| Some((self.links.get(&interface.index)?.clone(), interface.tx_bytes));
        Ok(RouterReading {
            path_ids: self.bindings.len(),
            sent: interfaces.iter().filter_map(sent).collect(),
            marks: self.ecn.as_ref().map(EcnDecap::copied).transpose()?.unwrap_or(0),
            ..self.dealings.clone()
        })
    }

    async fn report(&self, node: &str) -> Result<UsageReport, AgentError> {
        let at = self.started.elapsed();
        let interfaces = self.netlink.interfaces().await?;
        let counter = |interface: &Interface| {
            let link = self.links.get(&interface.index)?.clone();
            Some(LinkCounter { link, tx_bytes: interface.tx_bytes, down: !interface.running })
        };
        Ok(UsageReport { node: node.into(), at, counters: interfaces.iter().filter_map(counter).collect() })
    }
}
