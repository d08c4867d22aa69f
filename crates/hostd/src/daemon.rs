//! The loop that all daemons share.

use std::{ops::ControlFlow, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use crate::{
    ControlSocket, Page, Scrapes, Supervisor,
    control::{PendingRequest, Request},
};

/// How an operator ends a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The daemon removes what it made, unless its options require otherwise.
    CleanUp,
    /// The daemon leaves everything in place for the next one.
    Keep,
}

/// Why a daemon stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An operator ended it.
    Shutdown(Shutdown),
    /// The daemon found that its work is over.
    Finished,
    /// It failed before it was at work.
    Failed,
}

/// An error of a daemon.
pub trait Fault: std::error::Error {
    /// Whether the error may pass without anybody changing the command line, the configuration or the machine.
    fn can_pass(&self) -> bool;

    /// The error with its causes, in one line.
    fn message(&self) -> String;
}

/// What became of an event.
#[derive(Debug)]
pub struct Handled<E> {
    /// Whether it could be handled.
    pub result: Result<(), E>,
    /// Whether [`Daemon::reconcile`] has to follow.
    pub reconciles: bool,
}

/// Where peers reach a daemon, in addition to its own inputs.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Where Prometheus reads metrics; `None`: nowhere.
    pub scrapes: Option<Scrapes>,
    /// Where the daemon is asked for its status and to stop; `None`: nowhere.
    pub control: Option<ControlSocket>,
}

/// What a daemon does with each input.
///
/// An error from [`start`](Self::start) or the first [`reconcile`](Self::reconcile) ends the daemon. Later ones do not, but
/// for those before it is ready that waiting cannot mend. [`stop`](Self::stop) is called in every case, exactly once.
#[expect(async_fn_in_trait, reason = "daemons run on one thread; the code that spawns one knows its type")]
pub trait Daemon {
    /// Why something failed.
    type Error: Fault;
    /// What reaches the daemon from outside, in addition to requests for metrics.
    type Event;

    /// How often [`handle_timeout`](Self::handle_timeout) is called, and what failed is tried again.
    const INTERVAL: Duration;

    /// Begins the work.
    async fn start(&mut self) -> Result<(), Self::Error>;

    /// Waits for an event; `None` if the work is over. It must lose nothing when it is dropped.
    async fn next_event(&mut self) -> Option<Self::Event>;

    /// Notes what the event reports; [`reconcile`](Self::reconcile) does what must be done about it.
    async fn handle_event(&mut self, event: Self::Event) -> Handled<Self::Error>;

    /// Makes the world have what the daemon wants; called again after each [`INTERVAL`](Self::INTERVAL) while it fails.
    async fn reconcile(&mut self) -> Result<(), Self::Error>;

    /// Handles what is due every [`INTERVAL`](Self::INTERVAL); `Break` ends the daemon.
    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, Self::Error>;

    /// Whether the daemon has received what it needs to be called ready.
    fn is_ready(&self) -> bool {
        true
    }

    /// What matters now, in one line for the operator.
    fn status(&self) -> String;

    /// The whole status as JSON, for a peer at the [`ControlSocket`].
    fn read_status(&mut self) -> Result<String, Self::Error> {
        Ok("{}".into())
    }

    /// Reads the metrics; `faults` is how many errors the daemon has survived.
    async fn read_metrics(&mut self, faults: u64) -> Result<Page, Self::Error>;

    /// Ends the work, and removes or keeps what the daemon made.
    async fn stop(self, end: End) -> Result<(), Self::Error>;
}

/// Runs `daemon` until `shutdown` completes or its work ends, then stops it.
///
/// It calls `ready` when the daemon [is](Daemon::is_ready) and nothing that it wants has failed. The daemon's own error
/// comes before one of stopping it. A peer that asks for the end sees its connection end when the daemon has stopped. Needs
/// a Tokio runtime.
pub async fn run<D: Daemon>(
    mut daemon: D,
    mut listeners: Listeners,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), D::Error> {
    let mut supervisor = Supervisor::from_env();
    // Signals that came during the start are noticed here.
    tokio::task::yield_now().await;
    let (result, end, _asked) = tokio::select! {
        // A shutdown that came before the work begins prevents it.
        biased;
        shutdown = shutdown => (Ok(()), End::Shutdown(shutdown), None),
        result = work(&mut daemon, &mut listeners, &mut supervisor, ready) => match result {
            Ok(asked) => (Ok(()), End::Finished, asked),
            Err(error) => (Err(error), End::Failed, None),
        }
    };
    supervisor.stopping();
    let stopped = daemon.stop(end).await;
    // Only now: another daemon of the kind finds nothing half removed.
    drop(listeners);
    result.and(stopped)
}

/// Works until the daemon has finished, or a peer asks for the end, which is returned.
async fn work<D: Daemon>(
    daemon: &mut D,
    listeners: &mut Listeners,
    supervisor: &mut Supervisor,
    ready: impl FnOnce(),
) -> Result<Option<PendingRequest>, D::Error> {
    daemon.start().await?;
    daemon.reconcile().await?;

    let mut ready = Some(ready);
    let mut faults = Faults::default();
    // Whether the world may lack something that is wanted.
    let mut differs = false;
    let mut timeouts = interval(D::INTERVAL);
    timeouts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if !differs
            && daemon.is_ready()
            && let Some(ready) = ready.take()
        {
            ready();
            supervisor.ready();
        }
        supervisor.status(&daemon.status());
        let mut reconciles = false;
        let mut source = Source::Event;
        let result = tokio::select! {
            _ = timeouts.tick() => {
                reconciles = differs;
                source = Source::Timeout;
                match daemon.handle_timeout().await {
                    Ok(ControlFlow::Break(())) => return Ok(None),
                    other => other.map(drop),
                }
            }
            event = daemon.next_event() => {
                let Some(event) = event else { return Ok(None) };
                let handled = daemon.handle_event(event).await;
                reconciles = handled.reconciles;
                handled.result
            }
            () = supervisor.due() => {
                supervisor.ping();
                Ok(())
            }
            asked = ControlSocket::next_of(&mut listeners.control) => {
                if asked.request == Request::Stop {
                    tracing::info!("asked to stop");
                    return Ok(Some(asked));
                }
                source = Source::Status;
                daemon.read_status().map(|status| asked.answer(status))
            }
            scrape = Scrapes::next_of(&mut listeners.scrapes) => {
                source = Source::Scrape;
                daemon.read_metrics(faults.count).await.map(|page| scrape.answer(page))
            }
        };
        faults.note(source, result, ready.is_none())?;
        if reconciles {
            let reconciled = daemon.reconcile().await;
            if differs && reconciled.is_ok() {
                tracing::info!("what had failed is done");
            }
            differs = reconciled.is_err();
            faults.note(Source::Reconcile, reconciled, ready.is_none())?;
        }
    }
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Event,
    Timeout,
    Scrape,
    Status,
    Reconcile,
}

/// The errors that a daemon has survived.
#[derive(Default)]
struct Faults {
    count: u64,
    /// What was logged last, and where it came from: the same again is logged quietly.
    last: Option<(Source, String)>,
}

impl Faults {
    /// Counts and logs an error, and lets the daemon go on; unless it is not ready yet, and waiting cannot mend the error.
    /// After a success of the same source the same error is news again. An event's success means nothing for other events.
    fn note<E: Fault>(&mut self, source: Source, result: Result<(), E>, is_ready: bool) -> Result<(), E> {
        let Err(error) = result else {
            self.last = self.last.take().filter(|(failed, _)| *failed != source || source == Source::Event);
            return Ok(());
        };
        if !is_ready && !error.can_pass() {
            return Err(error);
        }
        self.count += 1;
        let message = error.message();
        if self.last.as_ref().is_some_and(|(_, last)| *last == message) {
            tracing::debug!("failed again: {message}");
        } else {
            tracing::warn!("failed, and is tried again; all stays as it is: {message}");
        }
        self.last = Some((source, message));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, fmt, rc::Rc};

    use super::*;
    use crate::control::{self, Protocol};

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Refused {
        passes: bool,
    }

    impl fmt::Display for Refused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("refused")
        }
    }

    impl std::error::Error for Refused {}

    impl Fault for Refused {
        fn can_pass(&self) -> bool {
            self.passes
        }

        fn message(&self) -> String {
            self.to_string()
        }
    }

    /// A daemon that notes what is asked of it, and breaks off at one of its timeouts.
    #[derive(Default)]
    struct Notes {
        seen: Rc<RefCell<Vec<String>>>,
        timeouts_left: u32,
        /// What happens, one event after the other.
        events: VecDeque<u32>,
        /// How each reconciliation ends; those after the last succeed.
        reconciliations: VecDeque<Result<(), Refused>>,
        /// It is ready when this event has come.
        waits_for: Option<u32>,
    }

    impl Notes {
        fn note(&self, what: impl Into<String>) {
            self.seen.borrow_mut().push(what.into());
        }
    }

    impl Daemon for Notes {
        type Error = Refused;
        type Event = u32;
        const INTERVAL: Duration = Duration::from_millis(20);

        async fn start(&mut self) -> Result<(), Refused> {
            self.note("start");
            Ok(())
        }

        async fn next_event(&mut self) -> Option<u32> {
            match self.events.pop_front() {
                Some(event) => Some(event),
                None => std::future::pending().await,
            }
        }

        async fn handle_event(&mut self, event: u32) -> Handled<Refused> {
            self.note(format!("event {event}"));
            self.waits_for.take_if(|awaited| *awaited == event);
            Handled { result: Ok(()), reconciles: true }
        }

        async fn reconcile(&mut self) -> Result<(), Refused> {
            let result = self.reconciliations.pop_front().unwrap_or(Ok(()));
            self.note(if result.is_ok() { "reconciled" } else { "failed" });
            result
        }

        async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, Refused> {
            self.timeouts_left -= 1;
            Ok(if self.timeouts_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }

        fn is_ready(&self) -> bool {
            self.waits_for.is_none()
        }

        fn status(&self) -> String {
            String::new()
        }

        async fn read_metrics(&mut self, _: u64) -> Result<Page, Refused> {
            Ok(Page::default())
        }

        async fn stop(self, end: End) -> Result<(), Refused> {
            self.note(format!("stop {end:?}"));
            Ok(())
        }
    }

    /// Runs a daemon to its end; what it noted, and how it ended.
    fn run_notes(daemon: Notes, shutdown: impl Future<Output = Shutdown>) -> (Vec<String>, Result<(), Refused>) {
        let seen = daemon.seen.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ready = || seen.borrow_mut().push("ready".into());
        let result = runtime.block_on(run(daemon, Listeners::default(), ready, shutdown));
        (seen.take(), result)
    }

    /// A daemon of this many timeouts, and these events.
    fn lasting(timeouts_left: u32, events: &[u32]) -> Notes {
        Notes { timeouts_left, events: events.iter().copied().collect(), ..Notes::default() }
    }

    #[test]
    fn a_daemon_starts_is_ready_works_and_stops_once() {
        let (seen, result) = run_notes(lasting(5, &[7, 8]), std::future::pending());
        let work = ["event 7", "reconciled", "event 8", "reconciled"];
        assert_eq!(seen, [&["start", "reconciled", "ready"], &work[..], &["stop Finished"]].concat());
        assert_eq!(result, Ok(()));
    }

    #[test]
    fn a_daemon_that_needs_an_event_is_ready_only_then() {
        let daemon = Notes { waits_for: Some(8), ..lasting(5, &[7, 8]) };
        let (seen, _) = run_notes(daemon, std::future::pending());
        let work = ["event 7", "reconciled", "event 8", "reconciled", "ready"];
        assert_eq!(seen, [&["start", "reconciled"], &work[..], &["stop Finished"]].concat());
    }

    #[test]
    fn an_operator_ends_a_daemon_and_says_whether_it_keeps_its_work() {
        for wish in [Shutdown::CleanUp, Shutdown::Keep] {
            let shutdown = async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                wish
            };
            let (seen, result) = run_notes(lasting(10_000, &[]), shutdown);
            assert_eq!(seen[..3], ["start", "reconciled", "ready"]);
            assert_eq!(seen[3..], [format!("stop Shutdown({wish:?})")]);
            assert_eq!(result, Ok(()));
            let (seen, _) = run_notes(lasting(10_000, &[]), std::future::ready(wish));
            assert_eq!(seen, [format!("stop Shutdown({wish:?})")], "ended before it began");
        }
    }

    #[tokio::test]
    async fn a_peer_gets_the_status_and_sees_its_connection_end_when_the_daemon_has_stopped() {
        let name = format!("sidestep-hostd-test/{}/loop", std::process::id());
        let control = ControlSocket::claim(&name, "test", Protocol::Byte).await.unwrap();
        let daemon = lasting(10_000, &[]);
        let seen = daemon.seen.clone();
        let listeners = Listeners { scrapes: None, control: Some(control) };
        let running = run(daemon, listeners, || {}, std::future::pending());
        let asking = async {
            assert_eq!(control::ask(&name, Request::Status).await.unwrap().unwrap(), "{}");
            assert_eq!(seen.borrow()[..], ["start", "reconciled"]);
            assert!(control::stop(&name, Protocol::Byte).await.unwrap());
            assert_eq!(seen.borrow()[2..], ["stop Finished"]);
        };
        let (result, ()) = tokio::join!(running, asking);
        assert_eq!(result, Ok(()));
        assert!(!control::stop(&name, Protocol::Byte).await.unwrap(), "the name is free");
    }

    #[test]
    fn an_error_before_the_daemon_is_at_work_ends_it_and_is_its_result() {
        let refused = Refused { passes: true };
        let reconciliations = VecDeque::from([Err(refused.clone())]);
        let (seen, result) = run_notes(Notes { reconciliations, ..lasting(10_000, &[7]) }, std::future::pending());
        assert_eq!(seen, ["start", "failed", "stop Failed"]);
        assert_eq!(result, Err(refused));
    }

    #[test]
    fn an_error_at_work_does_not_end_the_daemon_and_is_tried_again() {
        let failed = |passes| Err(Refused { passes });
        let reconciliations = VecDeque::from([Ok(()), failed(true), failed(true), failed(false)]);
        let (seen, result) = run_notes(Notes { reconciliations, ..lasting(8, &[7]) }, std::future::pending());
        let work = ["event 7", "failed", "failed", "failed", "reconciled"];
        assert_eq!(seen, [&["start", "reconciled", "ready"], &work[..], &["stop Finished"]].concat());
        assert_eq!(result, Ok(()));
    }

    #[test]
    fn an_error_is_news_again_after_a_success_of_what_had_failed() {
        let mut faults = Faults::default();
        let note = |faults: &mut Faults, source, result| {
            assert_eq!(faults.note(source, result, true), Ok(()));
            faults.last.is_some()
        };
        let refused = Err(Refused { passes: true });
        for source in [Source::Timeout, Source::Scrape, Source::Reconcile] {
            assert!(note(&mut faults, source, refused.clone()));
            assert!(note(&mut faults, Source::Event, Ok(())));
            assert!(!note(&mut faults, source, Ok(())));
        }
        assert_eq!(faults.count, 3);
    }

    #[test]
    fn an_error_that_waiting_cannot_mend_ends_a_daemon_that_is_not_ready() {
        for (passes, end) in [(true, "stop Finished"), (false, "stop Failed")] {
            let reconciliations = VecDeque::from([Ok(()), Err(Refused { passes })]);
            let daemon = Notes { reconciliations, waits_for: Some(9), ..lasting(5, &[7]) };
            let (seen, result) = run_notes(daemon, std::future::pending());
            assert_eq!((seen.last().unwrap().as_str(), result.is_ok()), (end, passes));
        }
    }
}
