//! The loop that all daemons share: start, reconcile, follow the controller and the kernel, serve metrics, stop.
//!
//! A daemon implements [`Daemon`], with a handler for each kind of input. [`run`] waits for the inputs and
//! calls one handler at a time, so a handler never runs beside another. Handlers note what the daemon wants;
//! [`Daemon::reconcile`] makes the kernel have it. When a shutdown comes, the handler at work is dropped at its next
//! `await`; a daemon therefore notes each thing that it makes before the kernel is asked for it.
//!
//! **Fail static.** A daemon does not wait for its controller to begin: a controller that does not answer is away, and is
//! tried again and again. An error ends a daemon only before it is at work. Later errors are logged, counted and tried
//! again; meanwhile all stays as it is.
//!
//! **Supervised.** The loop tells the service manager when the daemon is ready and what matters, and pings it from where
//! handlers are called: a daemon of which one hangs is started again.

use std::{ops::ControlFlow, time::Duration};

use sidestep_api::{Connection, Latest, Watcher, chain};
use sidestep_linux::netlink::{LinkWatch, RoutingChange};
use sidestep_metrics::{Page, Scrapes};
use sidestep_service::Supervisor;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    AgentError,
    audit::{Audit, next_audit},
};

/// How an operator ends a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The daemon removes what it made in the kernel, unless its options say otherwise.
    CleanUp,
    /// The daemon leaves everything in place for the next one.
    Keep,
}

/// Why a daemon stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// An operator ended it.
    Shutdown(Shutdown),
    /// The daemon found that its work is over.
    Finished,
    /// A handler returned an error.
    Failed,
}

/// What reaches a daemon from outside, besides the controller and the kernel.
pub(crate) struct Inputs<C> {
    /// Configurations that replace the one that the daemon started with.
    pub(crate) configs: UnboundedReceiver<C>,
    /// Readers of the metrics; `None` where no port is open.
    pub(crate) scrapes: Option<Scrapes>,
}

/// What a daemon does with each input.
///
/// An error from [`handle_start`](Self::handle_start) or the first [`reconcile`](Self::reconcile) ends the daemon. Later
/// ones do not, but for those before it is ready that waiting cannot mend. `stop` is called in every case, exactly once.
pub(crate) trait Daemon {
    /// What the controller sends to this kind of daemon.
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
    async fn follow(&self) -> Result<Option<Watcher<Self::Update>>, AgentError>;

    /// Begins the work, with nothing known from the controller.
    async fn handle_start(&mut self) -> Result<(), AgentError>;

    /// Notes an update, or a change of the connection to the controller; [`reconcile`](Self::reconcile) follows an update.
    async fn handle_controller(&mut self, latest: Latest<Self::Update>) -> Result<(), AgentError>;

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
    mut daemon: D,
    inputs: Inputs<D::Config>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let mut supervisor = Supervisor::from_env();
    // Signals that came during the start are noticed here.
    tokio::task::yield_now().await;
    let (result, end) = tokio::select! {
        // A shutdown that came before the work begins prevents it.
        biased;
        shutdown = shutdown => (Ok(()), End::Shutdown(shutdown)),
        result = work(&mut daemon, inputs, &mut supervisor, ready) => {
            let end = if result.is_ok() { End::Finished } else { End::Failed };
            (result, end)
        }
    };
    supervisor.stopping();
    let stopped = daemon.stop(end).await;
    result.and(stopped)
}

async fn work<D: Daemon>(
    daemon: &mut D,
    mut inputs: Inputs<D::Config>,
    supervisor: &mut Supervisor,
    ready: impl FnOnce(),
) -> Result<(), AgentError> {
    let mut watcher = daemon.follow().await?;
    let mut links = LinkWatch::open()?;
    let mut audit = D::AUDITS.then(Audit::open).transpose()?;
    daemon.handle_start().await?;
    daemon.reconcile().await?;

    let mut ready = Some(ready);
    let mut faults = Faults::default();
    // Whether the controller has answered or proved to be away, and whether the kernel may lack something that is wanted.
    let (mut answered, mut differs) = (watcher.is_none(), false);
    let mut settled: Option<Instant> = None;
    // What the daemon waits for itself has failed, and is left alone until the next timeout.
    let mut deaf = false;
    let mut timeouts = interval(D::INTERVAL);
    timeouts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if answered
            && !differs
            && let Some(ready) = ready.take()
        {
            ready();
            supervisor.ready();
        }
        supervisor.status(&daemon.status());
        let mut reconciles = false;
        let result = tokio::select! {
            _ = timeouts.tick() => {
                (deaf, reconciles) = (false, differs);
                match daemon.handle_timeout().await {
                    Ok(ControlFlow::Break(())) => return Ok(()),
                    other => other.map(drop),
                }
            }
            latest = next_update(&mut watcher) => {
                // Nothing comes any more only when the runtime shuts down.
                let Some(latest) = latest else { return Ok(()) };
                answered |= latest.connection != Connection::Connecting;
                reconciles = latest.connection == Connection::Connected;
                daemon.handle_controller(latest).await
            }
            () = links.changed() => {
                settled = settled.or_else(|| Some(Instant::now() + D::SETTLE));
                Ok(())
            }
            () = reached(settled) => {
                let handled = daemon.handle_links().await;
                settled = handled.is_err().then(|| Instant::now() + D::INTERVAL);
                reconciles = handled.is_ok();
                handled
            }
            () = next_audit(&mut audit, |change| daemon.is_concerned(change)) => {
                let began = Instant::now();
                // The kernel removes routes with their interface, which is nobody's fault and is handled as a whole.
                let compared = if settled.is_some() { Ok(false) } else { daemon.compare().await };
                if let Some(audit) = &mut audit {
                    audit.done(began.elapsed());
                }
                reconciles = matches!(compared, Ok(true));
                compared.map(drop)
            }
            Some(config) = inputs.configs.recv() => {
                reconciles = true;
                daemon.handle_config(config).await
            }
            event = daemon.next_event(), if !deaf => {
                let handled = event.and_then(|()| daemon.handle_event());
                deaf = handled.is_err();
                handled
            }
            () = supervisor.due() => {
                supervisor.ping();
                Ok(())
            }
            scrape = Scrapes::next_of(&mut inputs.scrapes) => {
                daemon.read_metrics(faults.count).await.map(|page| scrape.answer(page))
            }
        };
        faults.note(result, ready.is_none())?;
        if reconciles {
            let reconciled = daemon.reconcile().await;
            if differs && reconciled.is_ok() {
                tracing::info!("what had failed is done");
            }
            differs = reconciled.is_err();
            faults.note(reconciled, ready.is_none())?;
        }
    }
}

/// The errors that a daemon has survived.
#[derive(Default)]
struct Faults {
    count: u64,
    /// What was logged last: the same again is logged quietly.
    last: String,
}

impl Faults {
    /// Counts and logs an error, and lets the daemon go on; unless it is not ready yet, and waiting cannot mend the error.
    fn note(&mut self, result: Result<(), AgentError>, is_ready: bool) -> Result<(), AgentError> {
        let Err(error) = result else { return Ok(()) };
        if !is_ready && !error.can_pass() {
            return Err(error);
        }
        self.count += 1;
        let message = chain(&error);
        if message == self.last {
            tracing::debug!("failed again: {message}");
        } else {
            tracing::warn!("failed, and is tried again; all stays as it is: {message}");
        }
        self.last = message;
        Ok(())
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
        /// How each reconciliation ends; those after the last succeed.
        reconciliations: Vec<Result<(), AgentError>>,
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
            let result = if self.reconciliations.is_empty() { Ok(()) } else { self.reconciliations.remove(0) };
            self.note(if result.is_ok() { "reconciled" } else { "failed" });
            result
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
        let inputs = Inputs { configs: receive, scrapes: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ready = || seen.borrow_mut().push("ready".into());
        let result = runtime.block_on(run(daemon, inputs, ready, shutdown));
        (seen.take(), result)
    }

    /// A daemon of this many timeouts.
    fn lasting(timeouts_left: u32) -> Notes {
        Notes { timeouts_left, ..Notes::default() }
    }

    fn refused() -> Result<(), AgentError> {
        Err(sidestep_linux::LinuxError::io("trying", std::io::ErrorKind::OutOfMemory).into())
    }

    #[test]
    fn a_daemon_starts_is_ready_works_and_stops_once() {
        let (seen, result) = run_notes(lasting(5), &[7, 8], std::future::pending());
        let work = ["config 7", "reconciled", "config 8", "reconciled"];
        assert_eq!(seen, [&["start", "reconciled", "ready"], &work[..], &["stop Finished"]].concat());
        assert!(result.is_ok());
    }

    #[test]
    fn an_operator_ends_a_daemon_and_says_whether_it_keeps_its_work() {
        for wish in [Shutdown::CleanUp, Shutdown::Keep] {
            let shutdown = async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                wish
            };
            let (seen, result) = run_notes(lasting(10_000), &[], shutdown);
            assert_eq!(seen[..3], ["start", "reconciled", "ready"]);
            assert_eq!(seen[3..], [format!("stop Shutdown({wish:?})")]);
            assert!(result.is_ok());
            let (seen, _) = run_notes(lasting(10_000), &[], std::future::ready(wish));
            assert_eq!(seen, [format!("stop Shutdown({wish:?})")], "ended before it began");
        }
    }

    #[test]
    fn an_error_before_the_daemon_is_at_work_ends_it_and_is_its_result() {
        let daemon = Notes { reconciliations: vec![refused()], ..lasting(10_000) };
        let (seen, result) = run_notes(daemon, &[7, 8], std::future::pending());
        assert_eq!(seen, ["start", "failed", "stop Failed"]);
        assert!(matches!(result, Err(AgentError::Linux(_))), "{result:?}");
    }

    #[test]
    fn an_error_at_work_does_not_end_the_daemon_and_is_tried_again() {
        let reconciliations = vec![Ok(()), refused(), refused(), Err(AgentError::NothingToDo)];
        let (seen, result) = run_notes(Notes { reconciliations, ..lasting(8) }, &[7], std::future::pending());
        let work = ["config 7", "failed", "failed", "failed", "reconciled"];
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
