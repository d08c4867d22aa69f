//! The daemon of a STAMP reflector (RFC 8762): answers test packets of others, and changes nothing.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::ControlFlow,
    time::Duration,
};

use futures::future::select_all;
use sidestep_hostd::{AgentError, Daemon, End, Handled, Listeners, Metric, Page, Scrapes, Shutdown, run};
use sidestep_linux::{
    LinuxError, monotonic_now,
    reflector::{Reflected, ReflectorSocket},
};
pub use sidestep_proto::stamp::{Clock as StampClock, ReflectorConfig};
use sidestep_proto::stamp::{PORT, Reflector};

const ANSWERED: Metric = Metric::counter("sidestep_reflector_answered", "Test packets that were answered");
const REFUSED: Metric = Metric::counter(
    "sidestep_reflector_refused",
    "Test packets that were not answered, by why: of a wrong length (length), from a port of no sender (port), beyond their source's rate (rate)",
);
const UNSENT: Metric = Metric::counter("sidestep_reflector_unsent", "Answers that the kernel refused to send");
const UNSTAMPED: Metric =
    Metric::counter("sidestep_reflector_unstamped", "Test packets of which the kernel did not say when they came");
const SESSIONS: Metric = Metric::gauge("sidestep_reflector_sessions", "Sessions that are remembered");
const FAULTS: Metric = Metric::counter("sidestep_reflector_faults", "Errors after which the daemon went on");

/// Every metric of a reflector.
pub const REFLECTOR_METRICS: &[Metric] = &[ANSWERED, REFUSED, UNSENT, UNSTAMPED, SESSIONS, FAULTS];

/// Most packets that are answered before the loop looks at something else.
const BATCH: usize = 64;

/// How a reflector should work.
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    /// Where it listens; all have to be there. None: at [`PORT`] of all addresses of the machine, in the families that it has.
    pub listen: Vec<SocketAddr>,
    /// How it answers.
    pub config: ReflectorConfig,
    /// Where Prometheus may read metrics; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// Runs a reflector in the calling thread's network namespace until `shutdown` completes; calls `ready` when it listens.
pub async fn run_reflector(
    options: ReflectorOptions,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let scrapes = Scrapes::listen_if(options.metrics).await?;
    let daemon = Reflectors {
        reflector: Reflector::new(options.config),
        listen: options.listen,
        sockets: Vec::new(),
        reflected: Reflected::default(),
        paused: false,
    };
    run(daemon, Listeners { scrapes, control: None }, ready, shutdown).await
}

struct Reflectors {
    listen: Vec<SocketAddr>,
    sockets: Vec<ReflectorSocket>,
    /// One for all addresses: its bounds are those of the process.
    reflector: Reflector,
    reflected: Reflected,
    /// A socket has failed, and all are left alone until the next timeout.
    paused: bool,
}

impl Daemon for Reflectors {
    type Error = AgentError;
    /// The socket at which something may have come.
    type Event = Result<usize, AgentError>;
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn start(&mut self) -> Result<(), AgentError> {
        let by_default = self.listen.is_empty();
        if by_default {
            let everywhere = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
            self.listen = everywhere.map(|any| SocketAddr::new(any, PORT)).to_vec();
        }
        let mut missing = None;
        for address in &self.listen {
            match ReflectorSocket::listen(*address) {
                Ok(socket) => self.sockets.push(socket),
                Err(error @ LinuxError::Missing { .. }) if by_default => missing = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        match missing {
            Some(error) if self.sockets.is_empty() => Err(error.into()),
            Some(error) => {
                tracing::warn!("{error}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn next_event(&mut self) -> Option<Self::Event> {
        if self.paused || self.sockets.is_empty() {
            return std::future::pending().await;
        }
        let waits = self.sockets.iter().map(|socket| Box::pin(socket.readable()));
        let (result, socket, _) = select_all(waits).await;
        Some(result.map(|()| socket).map_err(AgentError::from))
    }

    async fn handle_event(&mut self, event: Self::Event) -> Handled<AgentError> {
        let Reflectors { sockets, reflector, reflected, .. } = self;
        let result = event.and_then(|socket| match sockets.get_mut(socket) {
            Some(socket) => Ok(socket.reflect(reflector, BATCH, reflected).map(drop)?),
            None => Ok(()),
        });
        self.paused = result.is_err();
        // A flood at one socket keeps no packets of the others waiting.
        if !self.sockets.is_empty() {
            self.sockets.rotate_left(1);
        }
        Handled { result, reconciles: false }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.paused = false;
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        format!("{} sockets listen; {} test packets answered", self.sockets.len(), self.reflector.counts().answered)
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        let (counts, mut page) = (self.reflector.counts(), Page::default());
        page.one(ANSWERED, counts.answered as f64);
        let refused = [("length", counts.length), ("port", counts.port), ("rate", counts.rate)];
        page.each(REFUSED, refused.map(|(reason, count)| (vec![("reason", reason.to_string())], count as f64)));
        page.one(UNSENT, self.reflected.unsent as f64);
        page.one(UNSTAMPED, self.reflected.unstamped as f64);
        page.one(SESSIONS, self.reflector.sessions(monotonic_now()) as f64);
        page.one(FAULTS, faults as f64);
        Ok(page)
    }

    async fn stop(self, _: End) -> Result<(), AgentError> {
        Ok(())
    }
}
