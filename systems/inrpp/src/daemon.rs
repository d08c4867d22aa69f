//! The INRPP router's daemon: stores, sends around and presses back, for hosts that know nothing of it.
//!
//! The kernel routes, the process queues. What the kernel routes out of a managed interface is diverted at tc egress into a TUN
//! device of the process. From there a packet goes to the neighbour's process, which hands it to its own kernel. If the process
//! ends or hangs, the program at egress passes all packets within 100 ms.

mod config;
mod connections;
mod divert;
mod forwarder;
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
mod tun;

use std::{
    io,
    ops::ControlFlow,
    os::unix::net::UnixStream,
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use sidestep_hostd::{AgentError, ControlSocket, Daemon, End, Handled, Listeners, Page, Scrapes, Shutdown, control};
use sidestep_linux::{LinuxError, monotonic_now, netlink::Netlink};
use tokio::{net::UnixListener, sync::mpsc::UnboundedReceiver};

pub use self::{
    config::{
        DEFAULT_PORT, EdgeConfig, Idle, InrppConfig, KeyError, Link, LinkRate, MAX_FLOWS, MetricsTable,
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
    forwarder::{Command, Forwarder, Mailbox},
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
    /// Until it runs.
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
    /// When it looked whether the programs are in place, and how often one was not.
    looked: Instant,
    mended: u64,
}

/// What reaches the daemon.
enum Event {
    Config(Box<InrppConfigs>),
    Successor(UnixStream),
}

/// How often it looks whether the programs are in place.
const LOOK: Duration = Duration::from_secs(1);
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
            mended: 0,
        })
    }

    /// Puts the programs in place, and lets the thread run.
    async fn begin(&mut self) -> Result<(), AgentError> {
        if let Some(mut forwarder) = self.forwarder.take() {
            forwarder.attach(&self.netlink).await?;
            self.run(forwarder)?;
        }
        Ok(())
    }

    fn run(&mut self, forwarder: Forwarder) -> Result<(), AgentError> {
        let failed = |error| LinuxError::io("starting the forwarder", error);
        let thread = std::thread::Builder::new().name("inrpp-forwarder".into());
        self.thread = Some(thread.spawn(move || forwarder.run()).map_err(failed)?);
        Ok(())
    }

    /// Hands all to a successor; if that fails, this router goes on.
    fn hand_over(&mut self, stream: &UnixStream) -> Result<(), AgentError> {
        if !takeover::may_take(stream) {
            tracing::warn!("a user who may not has asked to take over");
            return Ok(());
        }
        self.mailbox.send(Command::HandOver);
        let Some(Ok(mut forwarder)) = self.thread.take().map(JoinHandle::join) else { return Ok(()) };
        let (saved, bytes, waiting) = forwarder.save(monotonic_now());
        let handed = takeover::hand_over(stream, &saved, &forwarder.descriptors(), &bytes);
        if matches!(handed, Ok(true)) {
            tracing::info!(packets = saved.packets.len(), "another router has taken over");
            self.is_succeeded = true;
            return Ok(());
        }
        tracing::warn!("a router that wanted to take over has failed, and this one goes on: {handed:?}");
        forwarder.put_back(monotonic_now(), waiting);
        self.run(forwarder)
    }

    /// Has the programs put back that another program has removed.
    async fn look(&mut self) -> Result<(), AgentError> {
        for interface in self.netlink.interfaces().await? {
            let is_ours = self.options.config.interfaces().any(|name| name == interface.name);
            if is_ours && !divert::is_there(&self.netlink, interface.index).await? {
                tracing::warn!(
                    interface = interface.name,
                    "another program removed a filter of ours, which is put back"
                );
                self.mended += 1;
                self.mailbox.send(Command::Attach);
            }
        }
        Ok(())
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
        let listener = takeover::listen()?;
        let failed = |error| LinuxError::io("listening for a router that takes over", error);
        self.successors = Some(UnixListener::from_std(listener).map_err(failed)?);
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
        tokio::select! {
            configs = configs => Some(Event::Config(Box::new(configs))),
            accepted = successor => match accepted.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => Some(Event::Successor(stream)),
                Err(_) => std::future::pending().await,
            },
        }
    }

    async fn handle_event(&mut self, event: Event) -> Handled<AgentError> {
        let (config, _) = match event {
            Event::Config(configs) => *configs,
            Event::Successor(stream) => return Handled { result: self.hand_over(&stream), reconciles: false },
        };
        let result = if self.mailbox.send(Command::Config(Box::new(config.clone()))) {
            self.options.config = config;
            Ok(())
        } else {
            Err(LinuxError::io("configuring the forwarder", io::Error::from(io::ErrorKind::BrokenPipe)).into())
        };
        Handled { result, reconciles: false }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        if self.is_succeeded || self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Ok(ControlFlow::Break(()));
        }
        if self.looked.elapsed() > LOOK {
            self.looked = Instant::now();
            self.look().await?;
        }
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
        self.mailbox.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // It says goodbye to its neighbours, and gives what waits to the kernel.
            drop(thread.join());
        }
        drop(self.forwarder.take());
        if !keeps {
            divert::remove_all(&self.netlink).await?;
        }
        Ok(())
    }
}

/// Loads the program, for a trial.
pub(crate) fn load_program() -> sidestep_linux::Result<()> {
    divert::Divert::load().map(drop)
}
