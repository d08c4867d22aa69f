//! What the daemons at the kernel listen to, for the loop that all daemons share (`sidestep-hostd`).
//!
//! A daemon implements [`Daemon`], with a handler for each kind of input: the controller, a new configuration, changes of
//! interfaces, and changes of rules and routes. It takes those that it needs and leaves the others. [`run`] gives them to
//! the loop, which calls one handler at a time and then, where that is needed, [`Daemon::reconcile`].
//!
//! **Fail static.** A daemon does not wait for its controller to begin: a controller that does not answer is away, and is
//! tried again and again.

use std::{ops::ControlFlow, time::Duration};

use sidestep_api::{Connection, Latest, Watcher, chain};
pub(crate) use sidestep_hostd::{End, Shutdown};
use sidestep_hostd::{Fault, Handled, Listeners, Page};
use sidestep_linux::netlink::{LinkWatch, RoutingChange};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use crate::{
    AgentError,
    audit::{Audit, next_audit},
};

/// What reaches a daemon from outside, besides the controller and the kernel.
pub(crate) struct Inputs<C> {
    /// Configurations that replace the one that the daemon started with.
    pub(crate) configs: UnboundedReceiver<C>,
    /// Where it is asked for its metrics, its status and to stop.
    pub(crate) listeners: Listeners,
}

/// What a daemon does with each input.
///
/// An error from [`handle_start`](Self::handle_start) or the first [`reconcile`](Self::reconcile) ends the daemon. Later
/// ones do not, but for those before it is ready that waiting cannot mend. `stop` is called in every case, exactly once.
pub(crate) trait Daemon {
    /// What the controller sends to this kind of daemon; `()` where none is followed.
    type Update;
    /// What an operator may replace while the daemon works.
    type Config;

    /// How often [`handle_timeout`](Self::handle_timeout) is called, and what failed is tried again.
    const INTERVAL: Duration;
    /// How long to wait after a change of an interface, so that the changes that come with it are handled together.
    const SETTLE: Duration;

    /// Begins to follow the controller; `None` if the daemon works without one.
    ///
    /// It does not wait for an answer: only an address that can never be a controller's is an error.
    async fn follow(&self) -> Result<Option<Watcher<Self::Update>>, AgentError> {
        Ok(None)
    }

    /// Begins the work, with nothing known from the controller.
    async fn handle_start(&mut self) -> Result<(), AgentError>;

    /// Notes an update, or a change of the connection to the controller; [`reconcile`](Self::reconcile) follows an update.
    async fn handle_controller(&mut self, _: Latest<Self::Update>) -> Result<(), AgentError> {
        Ok(())
    }

    /// Notes a new configuration; [`reconcile`](Self::reconcile) follows.
    async fn handle_config(&mut self, config: Self::Config) -> Result<(), AgentError>;

    /// Notes interfaces or addresses that came, went or changed; [`reconcile`](Self::reconcile) follows.
    async fn handle_links(&mut self) -> Result<(), AgentError>;

    /// Whether the daemon has rules and routes that [`compare`](Self::compare) looks after.
    const AUDITS: bool = false;

    /// Whether a change of rules or routes, by whomever, may be one after which they are worth comparing.
    fn is_concerned(&self, _: &RoutingChange) -> bool {
        false
    }

    /// Compares the kernel's rules and routes with the daemon's, now and then and after changes that concern it; returns
    /// whether they differ, so that [`reconcile`](Self::reconcile) has to follow.
    async fn compare(&mut self) -> Result<bool, AgentError> {
        Ok(false)
    }

    /// Makes the kernel have what the daemon wants; called again after each [`INTERVAL`](Self::INTERVAL) while it fails.
    async fn reconcile(&mut self) -> Result<(), AgentError>;

    /// Handles what is due every [`INTERVAL`](Self::INTERVAL); `Break` ends the daemon.
    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError>;

    /// Waits for an input of the daemon's own; it must lose nothing when it is dropped.
    async fn next_event(&self) -> Result<(), AgentError> {
        std::future::pending().await
    }

    /// Handles the input that [`next_event`](Self::next_event) has found.
    fn handle_event(&mut self) -> Result<(), AgentError> {
        Ok(())
    }

    /// What matters now, in one line for the operator.
    fn status(&self) -> String;

    /// The whole status as JSON.
    fn read_status(&mut self) -> Result<String, AgentError> {
        Ok("{}".into())
    }

    /// Reads the metrics; `faults` is how many errors the daemon has survived.
    async fn read_metrics(&self, faults: u64) -> Result<Page, AgentError>;

    /// Ends the work, and removes or keeps what the daemon made.
    async fn stop(self, end: End) -> Result<(), AgentError>;
}

/// Runs `daemon` until `shutdown` completes or its work ends, then stops it.
///
/// It calls `ready` when the daemon has started and the controller has answered, or has proved to be away. The daemon's own
/// error comes before one of stopping it.
pub(crate) async fn run<D: Daemon>(
    daemon: D,
    inputs: Inputs<D::Config>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let listening = Listening { daemon, configs: inputs.configs, sources: None, settled: None, deaf: false };
    sidestep_hostd::run(listening, inputs.listeners, ready, shutdown).await
}

impl Fault for AgentError {
    fn can_pass(&self) -> bool {
        AgentError::can_pass(self)
    }

    fn message(&self) -> String {
        chain(self)
    }
}

/// A daemon with what it listens to.
struct Listening<D: Daemon> {
    daemon: D,
    configs: UnboundedReceiver<D::Config>,
    /// `None` until the daemon starts.
    sources: Option<Sources<D::Update>>,
    /// When changes of interfaces are handled that have come.
    settled: Option<Instant>,
    /// What the daemon waits for itself has failed, and is left alone until the next timeout.
    deaf: bool,
}

/// The controller and the kernel.
struct Sources<U> {
    watcher: Option<Watcher<U>>,
    /// Whether the controller has answered or proved to be away.
    answered: bool,
    links: LinkWatch,
    audit: Option<Audit>,
}

enum Event<U, C> {
    Controller(Latest<U>),
    Config(C),
    Links,
    Audit,
    /// The daemon's own, or why none comes.
    Own(Result<(), AgentError>),
}

impl<D: Daemon> sidestep_hostd::Daemon for Listening<D> {
    type Error = AgentError;
    type Event = Event<D::Update, D::Config>;
    const INTERVAL: Duration = D::INTERVAL;

    async fn start(&mut self) -> Result<(), AgentError> {
        let watcher = self.daemon.follow().await?;
        let audit = D::AUDITS.then(Audit::open).transpose()?;
        let answered = watcher.is_none();
        self.sources = Some(Sources { watcher, answered, links: LinkWatch::open()?, audit });
        self.daemon.handle_start().await
    }

    async fn next_event(&mut self) -> Option<Self::Event> {
        let Listening { daemon, configs, sources, settled, deaf } = self;
        let Sources { watcher, links, audit, .. } = sources.as_mut()?;
        loop {
            let event = tokio::select! {
                // Nothing comes any more only when the runtime shuts down.
                latest = next_update(watcher) => Event::Controller(latest?),
                () = links.changed() => {
                    *settled = settled.or_else(|| Some(Instant::now() + D::SETTLE));
                    continue;
                }
                () = reached(*settled) => Event::Links,
                () = next_audit(audit, |change| daemon.is_concerned(change)) => Event::Audit,
                Some(config) = configs.recv() => Event::Config(config),
                event = daemon.next_event(), if !*deaf => Event::Own(event),
            };
            return Some(event);
        }
    }

    async fn handle_event(&mut self, event: Self::Event) -> Handled<AgentError> {
        let Listening { daemon, sources, settled, .. } = self;
        match event {
            Event::Controller(latest) => {
                let reconciles = latest.connection == Connection::Connected;
                if let Some(sources) = sources {
                    sources.answered |= latest.connection != Connection::Connecting;
                }
                Handled { result: daemon.handle_controller(latest).await, reconciles }
            }
            Event::Config(config) => Handled { result: daemon.handle_config(config).await, reconciles: true },
            Event::Links => {
                let result = daemon.handle_links().await;
                *settled = result.is_err().then(|| Instant::now() + D::INTERVAL);
                Handled { reconciles: result.is_ok(), result }
            }
            Event::Audit => {
                let began = Instant::now();
                // The kernel removes routes with their interface, which is nobody's fault and is handled as a whole.
                let compared = if settled.is_some() { Ok(false) } else { daemon.compare().await };
                if let Some(audit) = sources.as_mut().and_then(|sources| sources.audit.as_mut()) {
                    audit.done(began.elapsed());
                }
                Handled { reconciles: matches!(compared, Ok(true)), result: compared.map(drop) }
            }
            Event::Own(event) => {
                let result = event.and_then(|()| daemon.handle_event());
                self.deaf = result.is_err();
                Handled { result, reconciles: false }
            }
        }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        self.daemon.reconcile().await
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.deaf = false;
        self.daemon.handle_timeout().await
    }

    fn is_ready(&self) -> bool {
        self.sources.as_ref().is_some_and(|sources| sources.answered)
    }

    fn status(&self) -> String {
        self.daemon.status()
    }

    fn read_status(&mut self) -> Result<String, AgentError> {
        self.daemon.read_status()
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        self.daemon.read_metrics(faults).await
    }

    async fn stop(self, end: End) -> Result<(), AgentError> {
        self.daemon.stop(end).await
    }
}

/// The controller's next update; never completes without a controller.
async fn next_update<T>(watcher: &mut Option<Watcher<T>>) -> Option<Latest<T>> {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}

/// Completes at `instant`; never without one.
async fn reached(instant: Option<Instant>) {
    match instant {
        // Tokio's timers round up to a millisecond: one that is due needs none.
        Some(instant) if instant <= Instant::now() => {}
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use sidestep_api::{HostIdentity, PathUpdate, watch_paths};
    use sidestep_linux::{netlink::Netlink, netns::NetNs, testing::root_or_skip};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// A daemon that notes what is asked of it, and breaks off at one of its timeouts.
    #[derive(Default)]
    struct Notes {
        seen: Rc<RefCell<Vec<String>>>,
        timeouts_left: u32,
        controller: Option<&'static str>,
    }

    impl Notes {
        fn note(&self, what: impl Into<String>) {
            self.seen.borrow_mut().push(what.into());
        }
    }

    impl Daemon for Notes {
        type Update = PathUpdate;
        type Config = u32;
        const INTERVAL: Duration = Duration::from_millis(20);
        const SETTLE: Duration = Duration::from_millis(60);

        async fn follow(&self) -> Result<Option<Watcher<PathUpdate>>, AgentError> {
            let Some(endpoint) = self.controller else { return Ok(None) };
            Ok(Some(watch_paths(endpoint, HostIdentity::Node("h".into()), false).await?))
        }

        async fn handle_start(&mut self) -> Result<(), AgentError> {
            self.note("start");
            Ok(())
        }

        async fn handle_controller(&mut self, latest: Latest<PathUpdate>) -> Result<(), AgentError> {
            assert!(matches!(latest.connection, Connection::Lost { .. }));
            self.note("away");
            Ok(())
        }

        async fn handle_config(&mut self, config: u32) -> Result<(), AgentError> {
            self.note(format!("config {config}"));
            Ok(())
        }

        async fn handle_links(&mut self) -> Result<(), AgentError> {
            self.note("links");
            Ok(())
        }

        async fn reconcile(&mut self) -> Result<(), AgentError> {
            self.note("reconciled");
            Ok(())
        }

        async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
            self.timeouts_left -= 1;
            Ok(if self.timeouts_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }

        fn status(&self) -> String {
            String::new()
        }

        async fn read_metrics(&self, _: u64) -> Result<Page, AgentError> {
            Ok(Page::default())
        }

        async fn stop(self, end: End) -> Result<(), AgentError> {
            self.note(format!("stop {end:?}"));
            Ok(())
        }
    }

    /// Runs a daemon that gets these configurations; what it noted, and how it ended.
    fn run_notes(
        daemon: Notes,
        configs: &[u32],
        shutdown: impl Future<Output = Shutdown>,
    ) -> (Vec<String>, Result<(), AgentError>) {
        let seen = daemon.seen.clone();
        let (send, receive) = unbounded_channel();
        configs.iter().for_each(|config| send.send(*config).unwrap());
        let inputs = Inputs { configs: receive, listeners: Listeners::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ready = || seen.borrow_mut().push("ready".into());
        let result = runtime.block_on(run(daemon, inputs, ready, shutdown));
        (seen.take(), result)
    }

    /// A daemon of this many timeouts.
    fn lasting(timeouts_left: u32) -> Notes {
        Notes { timeouts_left, ..Notes::default() }
    }

    #[test]
    fn each_configuration_is_handled_and_reconciled() {
        let (seen, result) = run_notes(lasting(5), &[7, 8], std::future::pending());
        let work = ["config 7", "reconciled", "config 8", "reconciled"];
        assert_eq!(seen, [&["start", "reconciled", "ready"], &work[..], &["stop Finished"]].concat());
        assert!(result.is_ok());
    }

    #[test]
    fn a_daemon_begins_without_its_controller_and_is_ready_when_that_proves_to_be_away() {
        let daemon = || Notes { controller: Some("unix:/nonexistent/socket"), ..lasting(10) };
        let (seen, result) = run_notes(daemon(), &[], std::future::pending());
        assert_eq!(seen, ["start", "reconciled", "away", "ready", "stop Finished"], "and says so once");
        assert!(result.is_ok());
        let (seen, result) = run_notes(Notes { controller: Some("nowhere"), ..daemon() }, &[], std::future::pending());
        assert_eq!(seen, ["stop Failed"], "an address that no controller can have");
        assert!(!result.unwrap_err().can_pass());
    }

    #[test]
    fn a_change_of_an_interface_is_handled_although_timeouts_come_before_it_has_settled() {
        if !root_or_skip("changing an interface") {
            return;
        }
        let namespace = NetNs::create().unwrap();
        let seen = namespace.run(|| {
            let change = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Netlink::open().unwrap().loopback_up().await.unwrap();
                std::future::pending().await
            };
            Ok(run_notes(lasting(20), &[], change).0)
        });
        assert_eq!(seen.unwrap(), ["start", "reconciled", "ready", "links", "reconciled", "stop Finished"]);
    }
}
