//! The router daemon: installs what Path IDs stand for, keeps congestion marks across decapsulation, and reports
//! how busy the links are.

mod links;
mod metrics;
mod reports;
mod sids;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use sidestep_api::{BindingUpdate, Connection, Latest, UsageReport, watch_bindings};
use sidestep_hostd::{
    AgentError, ControlSocket, Daemon, End, Handled, Listeners, Page, Scrapes, Shutdown,
    control::{self, Protocol, Request},
    inputs::{Input, Inputs},
};
use sidestep_linux::netlink::Netlink;
use tokio::sync::mpsc::UnboundedReceiver;

pub use self::metrics::ROUTER_METRICS;
use self::{
    links::Links,
    metrics::RouterReading,
    reports::Reports,
    sids::{Sids, remove_sids},
};
use crate::daemon::ecn_decap::EcnDecap;

/// The name by which the router daemon of a network namespace is known.
const NAME: &str = "sidestep-router";
/// Each connection there asks for the end.
const PROTOCOL: Protocol = Protocol::Always(Request::Stop);

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
    /// Whether everything stays in place on a shutdown, for the next daemon to take over.
    pub keep: bool,
    /// Where Prometheus may read metrics; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// Runs the router daemon until `shutdown` completes; calls `ready` when Path IDs are in place.
///
/// On return nothing of it is left in the kernel, unless `shutdown` or `options` keep it, or the daemon
/// failed. What an earlier daemon left is taken over in place, and stays as it is until the controller answers. An
/// interface that does not exist is reported as a link that is down, until it appears. Whatever comes through `looks`
/// makes the daemon look at once at what it would look at within a second.
pub async fn run_router(
    options: RouterOptions,
    looks: UnboundedReceiver<()>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let metrics = options.metrics;
    let control = Some(ControlSocket::claim(NAME, "router", PROTOCOL).await?);
    let router = Router::start(options, looks)?;
    let listeners = Listeners { scrapes: Scrapes::listen_if(metrics).await?, control };
    sidestep_hostd::run(router, listeners, ready, shutdown).await
}

/// Ends the router daemon of the calling thread's network namespace, and removes what it or one before it left.
///
/// Returns whether there was anything.
pub async fn stop_router() -> Result<bool, AgentError> {
    let stopped = control::stop(NAME, PROTOCOL).await?;
    let netlink = Netlink::open()?;
    let removed = remove_sids(&netlink).await?;
    let programs = netlink.interfaces().await?.iter().filter(|interface| EcnDecap::remove(interface)).count();
    Ok(stopped || removed + programs > 0)
}

/// The daemon's hold on the kernel, and its connection to the controller.
struct Router {
    options: RouterOptions,
    inputs: Inputs<BindingUpdate, ()>,
    netlink: Netlink,
    reports: Reports,
    sids: Sids,
    links: Links,
    connected: bool,
    started: Instant,
}

impl Router {
    fn start(options: RouterOptions, looks: UnboundedReceiver<()>) -> Result<Self, AgentError> {
        Ok(Router {
            // A link that goes down or up is reported at once.
            inputs: Inputs::new(looks, Duration::ZERO),
            netlink: Netlink::open()?,
            reports: Reports::new(&options.controller)?,
            sids: Sids::open()?,
            links: Links::new(&options.links, options.ecn),
            options,
            connected: false,
            started: Instant::now(),
        })
    }

    fn handle_controller(&mut self, latest: Latest<BindingUpdate>) {
        self.connected = latest.connection == Connection::Connected;
        if let Connection::Lost { reason } = &latest.connection {
            tracing::warn!(reason, "the controller is away; the last Path IDs stay");
        }
        if let Some(update) = &latest.update {
            self.sids.want(&update.bindings);
        }
    }

    async fn handle_links(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.report().await
    }

    /// Looks at the links, and reports their state to the controller.
    async fn report(&mut self) -> Result<(), AgentError> {
        self.links.refresh(&self.netlink).await?;
        self.reports.send(UsageReport {
            node: self.options.node.clone(),
            at: self.started.elapsed(),
            counters: self.links.counters(),
        });
        Ok(())
    }
}

impl Daemon for Router {
    type Error = AgentError;
    type Event = Input<BindingUpdate, ()>;

    /// How often link counters are reported, and SIDs that the kernel has refused are tried again.
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn start(&mut self) -> Result<(), AgentError> {
        self.inputs.listen(Some(watch_bindings(&self.options.controller, &self.options.node, false).await?))?;
        self.links.refresh(&self.netlink).await
    }

    async fn next_event(&mut self) -> Option<Self::Event> {
        let Router { inputs, sids, .. } = self;
        inputs.next(|change| sids.concerns(change)).await
    }

    async fn handle_event(&mut self, event: Self::Event) -> Handled<AgentError> {
        match event {
            Input::Controller(latest) => {
                self.handle_controller(latest);
                Handled { result: Ok(()), reconciles: self.connected }
            }
            Input::Config(_) => Handled { result: self.report().await, reconciles: true },
            Input::Links => {
                let result = self.handle_links().await;
                self.inputs.links_handled(result)
            }
            Input::Routing => {
                let differs = self.sids.compare(&self.netlink).await;
                self.inputs.compared(differs)
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.inputs.is_answered()
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.sids.reconcile(&self.netlink).await
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.netlink.renew()?;
        self.report().await?;
        if self.sids.has_refused() {
            self.sids.reconcile(&self.netlink).await?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        let controller = if self.connected { "connected" } else { "away" };
        let down: Vec<&str> = self.links.down().iter().map(String::as_str).collect();
        let down = if down.is_empty() { String::new() } else { format!("; links down: {}", down.join(" ")) };
        format!("controller {controller}; {}{down}", self.sids.status())
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        let reading = RouterReading {
            connected: self.connected,
            taken: self.reports.taken(),
            lost: self.reports.lost(),
            sids: self.sids.count().await?,
            links: self.links.readings(&self.netlink).await?,
            marks: self.links.marks()?,
            faults,
        };
        Ok(reading.page())
    }

    async fn stop(self, end: End) -> Result<(), AgentError> {
        let keeps = match end {
            End::Shutdown(Shutdown::Keep) | End::Failed => true,
            End::Shutdown(Shutdown::CleanUp) => self.options.keep,
            End::Finished => false,
        };
        if keeps {
            self.links.leave();
            return Ok(());
        }
        remove_sids(&self.netlink).await?;
        Ok(())
    }
}
