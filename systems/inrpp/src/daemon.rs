//! The INRPP router's daemon: stores, sends around and presses back, for hosts that know nothing of it.
//!
//! The kernel routes, the process queues. What the kernel routes out of a managed interface is diverted at tc egress into a TUN
//! device of the process. From there a packet goes to the neighbour's process, which hands it to its own kernel. If the process
//! ends or hangs, the program at egress passes all packets within 100 ms.

mod config;
mod connections;
mod divert;
mod forwarder;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod headers;
mod link;
mod message;
mod metrics;
pub mod needs;
mod resequence;
mod segments;
mod session;
mod shim;
mod slots;
mod status;
mod takeover;

use std::{
    io,
    ops::ControlFlow,
    os::unix::net::UnixStream,
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use sidestep_hostd::{
    AgentError, ControlSocket, Daemon, End, Handled, Listeners, Page, Scrapes, Shutdown, Supervisor, control,
};
use sidestep_linux::{
    LinuxError, monotonic_now,
    netlink::{Interface, Netlink},
};
use tokio::{net::UnixListener, sync::mpsc::UnboundedReceiver};

pub use self::{
    config::{
        DEFAULT_PORT, DivertBy, EdgeConfig, Idle, InrppConfig, KeyError, Link, LinkRate, MAX_FLOWS, MetricsTable,
        NeighbourConfig, RouterSettings, check_memory, free_memory, fresh_key, read_key, tun_name,
    },
    metrics::INRPP_METRICS,
    status::{
        ConnectionsStatus, DetourStatus, InrppStatus, Mode, PassedCounts, PortKind, PortState, PortStatus,
        RefusedCounts, ResequenceStatus, inrpp_status,
    },
};

#[cfg(all(test, feature = "command"))]
pub(crate) use self::status::example as example_status;
use self::{
    divert::{Programs, RouteTable},
    forwarder::{Command, Forwarder, Mailbox, PortPlace},
    status::{NAME, PROTOCOL, STATUS_NAME},
    takeover::Passed,
};
use crate::Key;

/// What the router needs to know.
#[derive(Clone, Debug)]
pub struct InrppOptions {
    /// This router, its neighbours and its edges.
    pub config: InrppConfig,
    /// By neighbour: the key that is shared with it.
    pub keys: Vec<Option<Key>>,
    /// Whether the programs at interfaces stay on a shutdown; they pass all packets.
    pub keep: bool,
    /// Whether to greet neighbours only, and to divert nothing.
    pub dry_run: bool,
    /// Whether to take over devices, links and packets from the router that works.
    pub takeover: bool,
}

/// A configuration, and the key of each neighbour.
pub type InrppConfigs = (InrppConfig, Vec<Option<Key>>);

/// Runs the router of the calling thread's network namespace until `shutdown` completes; calls `ready` when each neighbour
/// answers, or had the time to.
pub async fn run_inrpp(
    options: InrppOptions,
    configs: UnboundedReceiver<InrppConfigs>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let taken = if options.takeover { takeover::take()? } else { None };
    let Some((passed, working)) = taken else {
        let scrapes = Scrapes::listen_if(options.config.metrics.listen).await?;
        let control = ControlSocket::claim(NAME, "inrpp", PROTOCOL).await?.with_status_at(STATUS_NAME)?;
        let router = InrppRouter::start(options, configs, None).await?;
        return sidestep_hostd::run(router, Listeners { scrapes, control: Some(control) }, ready, shutdown).await;
    };
    let listen = options.config.metrics.listen;
    let mut router = InrppRouter::start(options, configs, Some(passed)).await?;
    router.begin().await?;
    working.works().map_err(|error| LinuxError::io("taking over from the router that works", error))?;
    // The other one ends now.
    let control = ControlSocket::claim(NAME, "inrpp", PROTOCOL).await?.with_status_at(STATUS_NAME)?;
    let scrapes = Scrapes::listen_if(listen).await?;
    sidestep_hostd::run(router, Listeners { scrapes, control: Some(control) }, ready, shutdown).await
}

/// Ends the router of the calling thread's network namespace, and removes what it or one before it left. Returns whether there was
/// anything.
pub async fn stop_inrpp() -> Result<bool, AgentError> {
    let stopped = control::stop(NAME, PROTOCOL).await?;
    let removed = divert::remove_all(&Netlink::open()?).await?;
    Ok(stopped || removed)
}

/// The daemon's hold on the thread that moves packets.
struct InrppRouter {
    options: InrppOptions,
    configs: UnboundedReceiver<InrppConfigs>,
    netlink: Netlink,
    /// While it does not run.
    forwarder: Option<Forwarder>,
    thread: Option<JoinHandle<Forwarder>>,
    mailbox: Mailbox,
    started: Instant,
    line: String,
    all_answer: bool,
    /// Where a successor connects.
    successors: Option<UnixListener>,
    /// Whether one has taken all.
    is_succeeded: bool,
    /// When it last looked whether the programs are in place, and when it last reported.
    looked: Instant,
    reported: Instant,
    /// Where its ports are, and how its programs are known.
    places: Vec<PortPlace>,
    programs: Option<Programs>,
    /// The rules and routes in the place of programs, and whether those that they follow have changed.
    routes: Option<RouteTable>,
    are_routes_other: bool,
    /// When making the ports last failed.
    tried: Option<Instant>,
    /// Whether the thread has ended by itself.
    has_failed: bool,
}

/// What reaches the daemon.
enum Event {
    Config(Box<InrppConfigs>),
    Successor(UnixStream),
    Routes,
}

/// How often it looks whether the programs are in place.
const LOOK: Duration = Duration::from_secs(1);
/// After how long ports that could not be made are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The longest MTU that a port has.
const MAX_MTU: u32 = u16::MAX as u32;
/// How long the thread may take to report.
const PATIENCE: Duration = Duration::from_secs(1);

impl InrppRouter {
    async fn start(
        options: InrppOptions,
        configs: UnboundedReceiver<InrppConfigs>,
        passed: Option<Passed>,
    ) -> Result<Self, AgentError> {
        let netlink = Netlink::open()?;
        let (forwarder, mailbox) = Forwarder::start(&options, &netlink, passed).await?;
        let (places, programs) = (forwarder.places(), forwarder.programs());
        let routes = match forwarder.routed() {
            Some(entries) => Some(RouteTable::open(&netlink, entries).await?),
            None => None,
        };
        Ok(InrppRouter {
            options,
            configs,
            netlink,
            forwarder: Some(forwarder),
            thread: None,
            mailbox,
            started: Instant::now(),
            line: String::new(),
            all_answer: false,
            successors: None,
            is_succeeded: false,
            looked: Instant::now(),
            reported: Instant::now(),
            places,
            programs,
            routes,
            are_routes_other: false,
            tried: None,
            has_failed: false,
        })
    }

    /// Puts the programs in place, and lets the thread run.
    async fn begin(&mut self) -> Result<(), AgentError> {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.attach(&self.netlink).await?;
        }
        self.run()
    }

    fn run(&mut self) -> Result<(), AgentError> {
        let Some(forwarder) = self.forwarder.take() else { return Ok(()) };
        self.places = forwarder.places();
        let failed = |error| LinuxError::io("starting the forwarder", error);
        let thread = std::thread::Builder::new().name("inrpp-forwarder".into());
        self.thread = Some(thread.spawn(move || forwarder.run()).map_err(failed)?);
        Ok(())
    }

    /// Has the thread stand, so that the forwarder is here; returns whether it is.
    fn pause(&mut self) -> bool {
        self.mailbox.send(Command::Pause);
        if let Some(Ok(forwarder)) = self.thread.take().map(JoinHandle::join) {
            self.forwarder = Some(forwarder);
        }
        self.forwarder.is_some()
    }

    /// Makes the ports those that are configured, at the interfaces that there are.
    async fn reconfigure(&mut self) -> Result<(), AgentError> {
        if !self.pause() {
            return Ok(());
        }
        let done = match &mut self.forwarder {
            Some(forwarder) => forwarder.reconfigure(&self.options, &self.netlink).await,
            None => Ok(()),
        };
        // Each attempt costs packets their places for a moment.
        self.tried = done.is_err().then(Instant::now);
        self.run()?;
        Ok(done?)
    }

    /// Hands all to a successor; if that fails, this router goes on.
    async fn hand_over(&mut self, stream: &UnixStream) -> Result<(), AgentError> {
        if !control::is_privileged(stream) {
            tracing::warn!("a user who may not has asked to take over");
            return Ok(());
        }
        if !self.pause() {
            return Ok(());
        }
        let Some(forwarder) = &mut self.forwarder else { return Ok(()) };
        let (saved, bytes, waiting) = forwarder.save(monotonic_now());
        let handed = takeover::hand_over(stream, &saved, &forwarder.descriptors(), &bytes);
        if matches!(handed, Ok(true)) {
            tracing::info!(packets = saved.packets.len(), "another router has taken over");
            // Before this process ends: the service manager would stop the unit.
            if let Some(process) = takeover::process_of(stream) {
                Supervisor::from_env().succeeded_by(process);
            }
            self.is_succeeded = true;
            return Ok(());
        }
        tracing::warn!("a router that wanted to take over has failed, and this one goes on: {handed:?}");
        forwarder.put_back(monotonic_now(), waiting);
        // Its programs may be in the place of ours.
        let attached = forwarder.attach(&self.netlink).await;
        self.run()?;
        attached
    }

    /// Has the programs put back that another program has removed, and the ports follow their interfaces.
    async fn look(&mut self) -> Result<(), AgentError> {
        let interfaces = self.netlink.interfaces().await?;
        if self.differs(&interfaces) && self.tried.is_none_or(|tried| tried.elapsed() > RETRY) {
            return self.reconfigure().await;
        }
        if let Some(routes) = &mut self.routes {
            routes.follow(&self.netlink, &interfaces).await?;
        }
        let Some(programs) = self.programs else { return Ok(()) };
        for place in self.places.iter().filter(|place| place.is_present) {
            let is_there = programs.divert(&self.netlink, place.index).await?
                && (!place.is_edge || programs.emit(&self.netlink, place.tun).await?);
            if !is_there {
                tracing::warn!(
                    interface = place.interface,
                    "another program removed a filter of ours, which is put back"
                );
                self.mailbox.send(Command::Attach);
            }
        }
        Ok(())
    }

    /// Whether the ports are not those that they should be at these interfaces.
    fn differs(&self, interfaces: &[Interface]) -> bool {
        let find = |name: &str| interfaces.iter().find(|interface| interface.name == name);
        self.options.config.interfaces().any(|name| {
            let place = self.places.iter().find(|place| place.interface == name);
            match (place, find(name)) {
                (Some(place), Some(interface)) => {
                    let tun = find(&tun_name(name)).is_some_and(|tun| tun.index == place.tun && tun.running);
                    !place.is_present
                        || place.index != interface.index
                        || place.mtu != interface.mtu.min(MAX_MTU)
                        || !tun
                }
                (Some(place), None) => place.is_present,
                (None, found) => found.is_some(),
            }
        })
    }

    fn report(&self) -> Result<InrppStatus, AgentError> {
        let (reply, answer) = mpsc::channel();
        let gone = || LinuxError::io("asking the forwarder", io::Error::from(io::ErrorKind::TimedOut));
        if !self.mailbox.send(Command::Status(reply)) {
            return Err(gone().into());
        }
        Ok(answer.recv_timeout(PATIENCE).map_err(|_| gone())?)
    }
}

impl Daemon for InrppRouter {
    type Error = AgentError;
    type Event = Event;

    /// How often it looks whether the programs are where they should be.
    const INTERVAL: Duration = Duration::from_millis(50);

    async fn start(&mut self) -> Result<(), AgentError> {
        self.successors = Some(takeover::listen()?);
        self.begin().await
    }

    async fn next_event(&mut self) -> Option<Event> {
        if self.is_succeeded {
            return None;
        }
        let configs = async {
            match self.configs.recv().await {
                Some(configs) => configs,
                None => std::future::pending().await,
            }
        };
        let successor = async {
            match &self.successors {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        let routes = async {
            match &mut self.routes {
                Some(routes) => routes.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = routes => Some(Event::Routes),
            configs = configs => Some(Event::Config(Box::new(configs))),
            accepted = successor => match accepted.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => Some(Event::Successor(stream)),
                Err(_) => std::future::pending().await,
            },
        }
    }

    async fn handle_event(&mut self, event: Event) -> Handled<AgentError> {
        let result = match event {
            Event::Config(configs) => {
                let (config, keys) = *configs;
                if config.metrics.listen != self.options.config.metrics.listen {
                    tracing::warn!("metrics stay where they are until the router is started again");
                }
                if config.settings.divert != self.options.config.settings.divert {
                    tracing::warn!("`divert` stays as it is until the router is started again");
                }
                (self.options.config, self.options.keys) = (config, keys);
                tracing::info!("the configuration was read again");
                self.reconfigure().await
            }
            Event::Successor(stream) => self.hand_over(&stream).await,
            Event::Routes => {
                // With the next look: many changes often come together.
                self.are_routes_other = true;
                Ok(())
            }
        };
        Handled { result, reconciles: false }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        if self.is_succeeded {
            return Ok(ControlFlow::Break(()));
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            self.has_failed = true;
            return Ok(ControlFlow::Break(()));
        }
        let is_other = std::mem::take(&mut self.are_routes_other);
        if self.mailbox.alarmed() || is_other || self.looked.elapsed() > LOOK {
            self.looked = Instant::now();
            self.look().await?;
        }
        // A report takes some of the time in which the thread moves packets.
        if self.is_ready() && self.reported.elapsed() < LOOK {
            return Ok(ControlFlow::Continue(()));
        }
        self.reported = Instant::now();
        let status = self.report()?;
        self.line = status.line();
        self.all_answer = status.ports.iter().all(|port| !matches!(port.state, PortState::Silent | PortState::Leaving));
        Ok(ControlFlow::Continue(()))
    }

    /// Connections that begin before a neighbour answers would be unknown.
    fn is_ready(&self) -> bool {
        let hellos = self.options.config.settings.hello.to_std() * 5;
        self.all_answer || self.started.elapsed() > hellos
    }

    fn status(&self) -> String {
        self.line.clone()
    }

    fn read_status(&mut self) -> Result<String, AgentError> {
        sidestep_hostd::status::to_json(&self.report()?)
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        Ok(metrics::page(&self.report()?, faults))
    }

    async fn stop(mut self, end: End) -> Result<(), AgentError> {
        if self.is_succeeded {
            return Ok(());
        }
        let keeps = self.options.keep || end == End::Shutdown(Shutdown::Keep);
        if self.routes.is_some() {
            // Or what waits would come back.
            divert::remove_all(&self.netlink).await?;
        }
        self.mailbox.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // It says goodbye to its neighbours, and gives what waits to the kernel.
            drop(thread.join());
        }
        if let Some(mut forwarder) = self.forwarder.take() {
            forwarder.say_goodbye(monotonic_now());
        }
        if !keeps {
            divert::remove_all(&self.netlink).await?;
        }
        if self.has_failed {
            let error = io::Error::other("the thread ended by itself: please report what it logged");
            return Err(LinuxError::io("moving packets", error).into());
        }
        Ok(())
    }
}

/// Loads the program, for a trial.
pub(crate) fn load_program() -> sidestep_linux::Result<()> {
    divert::Filters::load().map(drop)
}
