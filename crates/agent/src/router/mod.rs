//! The router daemon: installs what Path IDs stand for, keeps congestion marks across decapsulation, and reports
//! how busy the links are.

mod metrics;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use sidestep_api::{
    Binding, BindingUpdate, Connection, Latest, LinkCounter, Reporter, UsageReport, Watcher, watch_bindings,
};
use sidestep_linux::{
    bpf::ecn::EcnDecap,
    monotonic_now,
    netlink::{Interface, MAIN_TABLE, Netlink, Route, SidAction, Target},
};
use sidestep_metrics::{Page, Scrapes};
use sidestep_model::srv6;
use tokio::sync::mpsc::unbounded_channel;

pub use self::metrics::ROUTER_METRICS;
use self::metrics::RouterReading;
use crate::{
    AgentError,
    daemon::{self, Daemon, End, Inputs, Shutdown},
};

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

/// Runs the router daemon until `shutdown` completes; calls `ready` when Path IDs are in place.
///
/// On return its routes and programs are gone.
pub async fn run_router(
    options: RouterOptions,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let scrapes = Scrapes::listen_if(options.metrics).await?;
    let router = Router::start(options).await?;
    // There is no configuration that could be read again: the channel is closed at once.
    let (_, configs) = unbounded_channel();
    let shutdown = async {
        shutdown.await;
        Shutdown::CleanUp
    };
    daemon::run(router, Inputs { configs, scrapes }, ready, shutdown).await
}

/// The daemon's hold on the kernel, and its connection to the controller.
struct Router {
    options: RouterOptions,
    netlink: Netlink,
    reporter: Reporter,
    /// Link names by interface index.
    links: BTreeMap<u32, String>,
    /// An interface that the routes of SIDs name; the kernel wants one, whichever it is.
    interface: u32,
    bindings: BTreeMap<Ipv6Addr, Vec<Ipv6Addr>>,
    /// What the controller wants installed; `None` before its first answer.
    update: Option<Arc<BindingUpdate>>,
    /// Links that were down at the last report.
    down: BTreeSet<String>,
    ecn: Option<EcnDecap>,
    /// What has been counted of reports and of the connection to the controller.
    counted: RouterReading,
    started: Instant,
}

impl Router {
    async fn start(options: RouterOptions) -> Result<Self, AgentError> {
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
            reporter: Reporter::new(&options.controller)?,
            options,
            netlink,
            links,
            interface,
            bindings: BTreeMap::new(),
            update: None,
            down: BTreeSet::new(),
            ecn,
            counted: RouterReading::default(),
            started: Instant::now(),
        })
    }

    /// Reports the state of the links to the controller.
    async fn report(&mut self) -> Result<(), AgentError> {
        let report = self.usage().await?;
        let down: BTreeSet<_> = report.counters.iter().filter(|link| link.down).map(|link| link.link.clone()).collect();
        if down != self.down {
            tracing::info!(at_ns = monotonic_now().as_nanos(), ?down, "links that are down");
            self.down = down;
        }
        // The watcher says when the controller is away; a report that is lost is followed by the next.
        match self.reporter.report(report).await {
            Ok(()) => self.counted.taken += 1,
            Err(error) => {
                self.counted.lost += 1;
                tracing::debug!(%error, "a report was lost");
            }
        }
        Ok(())
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
    async fn install(&mut self, bindings: &[Binding]) -> Result<(), AgentError> {
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

    /// What the interfaces of links have sent, and whether they are up.
    async fn usage(&self) -> Result<UsageReport, AgentError> {
        let at = self.started.elapsed();
        let interfaces = self.netlink.interfaces().await?;
        let counter = |interface: &Interface| {
            let link = self.links.get(&interface.index)?.clone();
            Some(LinkCounter { link, tx_bytes: interface.tx_bytes, down: !interface.running })
        };
        Ok(UsageReport {
            node: self.options.node.clone(),
            at,
            counters: interfaces.iter().filter_map(counter).collect(),
        })
    }
}

impl Daemon for Router {
    type Update = BindingUpdate;
    type Config = std::convert::Infallible;

    /// How often link counters are reported.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// A link that goes down or up is reported at once.
    const SETTLE: Duration = Duration::ZERO;

    async fn follow(&self) -> Result<Option<Watcher<BindingUpdate>>, AgentError> {
        Ok(Some(watch_bindings(&self.options.controller, &self.options.node, false).await?))
    }

    async fn handle_start(&mut self) -> Result<(), AgentError> {
        self.adopt_installed().await
    }

    async fn handle_controller(&mut self, latest: Latest<BindingUpdate>) -> Result<(), AgentError> {
        self.counted.connected = latest.connection == Connection::Connected;
        if let Connection::Lost { reason } = &latest.connection {
            tracing::warn!(reason, "the controller is away; the last Path IDs stay");
        }
        self.update = latest.update.or(self.update.take());
        Ok(())
    }

    async fn handle_config(&mut self, config: Self::Config) -> Result<(), AgentError> {
        match config {}
    }

    async fn handle_links(&mut self) -> Result<(), AgentError> {
        self.report().await
    }

    /// Until the controller has said which Path IDs it wants, those of an earlier daemon stay.
    async fn reconcile(&mut self) -> Result<(), AgentError> {
        match self.update.clone() {
            Some(update) => self.install(&update.bindings).await,
            None => Ok(()),
        }
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.report().await?;
        Ok(ControlFlow::Continue(()))
    }

    async fn read_metrics(&self, faults: u64) -> Result<Page, AgentError> {
        let interfaces = self.netlink.interfaces().await?;
        let sent = |interface: &Interface| Some((self.links.get(&interface.index)?.clone(), interface.tx_bytes));
        let reading = RouterReading {
            path_ids: self.bindings.len(),
            sent: interfaces.iter().filter_map(sent).collect(),
            faults,
            marks: self.ecn.as_ref().map(EcnDecap::copied).transpose()?.unwrap_or(0),
            ..self.counted.clone()
        };
        Ok(reading.page())
    }

    async fn stop(mut self, _: End) -> Result<(), AgentError> {
        self.install(&[]).await
    }
}
