//! The loop that all daemons share: start, follow the controller and the kernel, serve metrics, stop.
//!
//! A daemon implements [`Daemon`], with a handler for each kind of input. [`run`] waits for the inputs and
//! calls one handler at a time, so a handler never runs beside another. When a shutdown comes, the handler at work is
//! dropped at its next `await`; a daemon therefore notes each thing that it makes before the kernel is asked for it.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use sidestep_api::{Latest, Watcher};
use sidestep_linux::netlink::LinkWatch;
use sidestep_metrics::{Page, Scrapes};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::AgentError;

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
/// An error from a handler ends the daemon; `stop` is called in every case, and exactly once.
pub(crate) trait Daemon {
    /// What the controller sends to this kind of daemon.
    type Update;
    /// What an operator may replace while the daemon works.
    type Config;

    /// How often [`handle_timeout`](Self::handle_timeout) is called.
    const INTERVAL: Duration;
    /// How long to wait after a change of an interface, so that the changes that come with it are handled together.
    const SETTLE: Duration;

    /// Connects to the controller; `None` if the daemon works without one.
    async fn follow(&self) -> Result<Option<Watcher<Self::Update>>, AgentError>;

    /// Begins the work with the first update, or without one where there is no controller.
    async fn handle_start(&mut self, first: Option<Arc<Self::Update>>) -> Result<(), AgentError>;

    /// Handles an update, or a change of the connection to the controller.
    async fn handle_controller(&mut self, latest: Latest<Self::Update>) -> Result<(), AgentError>;

    /// Handles a new configuration.
    async fn handle_config(&mut self, config: Self::Config) -> Result<(), AgentError>;

    /// Handles interfaces or addresses that came, went or changed.
    async fn handle_links(&mut self) -> Result<(), AgentError>;

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

    /// Reads the metrics.
    async fn read_metrics(&self) -> Result<Page, AgentError>;

    /// Ends the work, and removes or keeps what the daemon made.
    async fn stop(self, end: End) -> Result<(), AgentError>;
}

/// Runs `daemon` until `shutdown` completes or its work ends, then stops it; calls `ready` once it has started.
///
/// The daemon's own error comes before one of stopping it.
pub(crate) async fn run<D: Daemon>(
    mut daemon: D,
    inputs: Inputs<D::Config>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let (result, end) = tokio::select! {
        shutdown = shutdown => (Ok(()), End::Shutdown(shutdown)),
        result = work(&mut daemon, inputs, ready) => {
            let end = if result.is_ok() { End::Finished } else { End::Failed };
            (result, end)
        }
    };
    let stopped = daemon.stop(end).await;
    result.and(stopped)
}

async fn work<D: Daemon>(
    daemon: &mut D,
    mut inputs: Inputs<D::Config>,
    ready: impl FnOnce(),
) -> Result<(), AgentError> {
    let mut watcher = daemon.follow().await?;
    let mut links = LinkWatch::open()?;
    let first = match &mut watcher {
        Some(watcher) => watcher.changed().await.and_then(|latest| latest.update),
        None => None,
    };
    daemon.handle_start(first).await?;
    ready();

    let mut timeouts = interval(D::INTERVAL);
    timeouts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut settled: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = timeouts.tick() => {
                if daemon.handle_timeout().await?.is_break() {
                    return Ok(());
                }
            }
            latest = next_update(&mut watcher) => {
                // Nothing comes any more only when the runtime shuts down.
                let Some(latest) = latest else { return Ok(()) };
                daemon.handle_controller(latest).await?;
            }
            () = links.changed() => settled = settled.or_else(|| Some(Instant::now() + D::SETTLE)),
            () = reached(settled) => {
                settled = None;
                daemon.handle_links().await?;
            }
            Some(config) = inputs.configs.recv() => daemon.handle_config(config).await?,
            event = daemon.next_event() => {
                event?;
                daemon.handle_event()?;
            }
            scrape = Scrapes::next_of(&mut inputs.scrapes) => match daemon.read_metrics().await {
                Ok(page) => scrape.answer(page),
                Err(error) => tracing::warn!(%error, "the metrics cannot be read"),
            },
        }
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
    use std::{cell::RefCell, convert::Infallible, rc::Rc};

    use sidestep_linux::{netlink::Netlink, netns::NetNs, testing::root_or_skip};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// A daemon that notes what is asked of it, and breaks off at one of its timeouts.
    struct Notes {
        seen: Rc<RefCell<Vec<String>>>,
        timeouts_left: u32,
        fails: bool,
    }

    impl Notes {
        fn note(&self, what: impl Into<String>) {
            self.seen.borrow_mut().push(what.into());
        }
    }

    impl Daemon for Notes {
        type Update = Infallible;
        type Config = u32;
        const INTERVAL: Duration = Duration::from_millis(20);
        const SETTLE: Duration = Duration::from_millis(60);

        async fn follow(&self) -> Result<Option<Watcher<Infallible>>, AgentError> {
            Ok(None)
        }

        async fn handle_start(&mut self, first: Option<Arc<Infallible>>) -> Result<(), AgentError> {
            assert!(first.is_none());
            self.note("start");
            Ok(())
        }

        async fn handle_controller(&mut self, _: Latest<Infallible>) -> Result<(), AgentError> {
            unreachable!("there is no controller")
        }

        async fn handle_config(&mut self, config: u32) -> Result<(), AgentError> {
            self.note(format!("config {config}"));
            if self.fails { Err(AgentError::NothingToDo) } else { Ok(()) }
        }

        async fn handle_links(&mut self) -> Result<(), AgentError> {
            self.note("links");
            Ok(())
        }

        async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
            self.timeouts_left -= 1;
            Ok(if self.timeouts_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }

        async fn read_metrics(&self) -> Result<Page, AgentError> {
            Ok(Page::default())
        }

        async fn stop(self, end: End) -> Result<(), AgentError> {
            self.note(format!("stop {end:?}"));
            Ok(())
        }
    }

    /// Runs a daemon of this many timeouts that gets these configurations; what it noted, and how it ended.
    fn run_notes(
        timeouts_left: u32,
        fails: bool,
        configs: &[u32],
        shutdown: impl Future<Output = Shutdown>,
    ) -> (Vec<String>, Result<(), AgentError>) {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let daemon = Notes { seen: seen.clone(), timeouts_left, fails };
        let (send, receive) = unbounded_channel();
        configs.iter().for_each(|config| send.send(*config).unwrap());
        let inputs = Inputs { configs: receive, scrapes: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ready = || seen.borrow_mut().push("ready".into());
        let result = runtime.block_on(run(daemon, inputs, ready, shutdown));
        (seen.take(), result)
    }

    #[test]
    fn a_daemon_starts_is_ready_works_and_stops_once() {
        let (seen, result) = run_notes(5, false, &[7, 8], std::future::pending());
        assert_eq!(seen, ["start", "ready", "config 7", "config 8", "stop Finished"]);
        assert!(result.is_ok());
    }

    #[test]
    fn an_operator_ends_a_daemon_and_says_whether_it_keeps_its_work() {
        for wish in [Shutdown::CleanUp, Shutdown::Keep] {
            let shutdown = async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                wish
            };
            let (seen, result) = run_notes(10_000, false, &[], shutdown);
            assert_eq!(seen, ["start".to_string(), "ready".into(), format!("stop Shutdown({wish:?})")]);
            assert!(result.is_ok());
        }
    }

    #[test]
    fn an_error_of_a_handler_ends_the_daemon_and_is_its_result() {
        let (seen, result) = run_notes(10_000, true, &[7, 8], std::future::pending());
        assert_eq!(seen, ["start", "ready", "config 7", "stop Failed"]);
        assert!(matches!(result, Err(AgentError::NothingToDo)), "{result:?}");
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
            Ok(run_notes(20, false, &[], change).0)
        });
        assert_eq!(seen.unwrap(), ["start", "ready", "links", "stop Finished"]);
    }
}
