//! What the daemons at the kernel listen to, in addition to what each listens to itself.
//!
//! These are the controller, new configurations, changes of interfaces, and changes of rules and routes. A daemon waits for
//! them in [`Daemon::next_event`](crate::Daemon::next_event), handles each, and then reconciles where that is needed.
//!
//! **Fail static.** A daemon does not wait for its controller to begin: a controller that does not answer is away, and is
//! tried again and again.

use std::time::Duration;

use sidestep_api::{Connection, Latest, Watcher, chain};
use sidestep_linux::netlink::{LinkWatch, RoutingChange};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use crate::{AgentError, audit::Audit};
use crate::{Fault, Handled};

/// How long to wait before changes of interfaces that could not be handled are handled again.
const AGAIN: Duration = Duration::from_secs(1);

impl Fault for AgentError {
    fn can_pass(&self) -> bool {
        AgentError::can_pass(self)
    }

    fn message(&self) -> String {
        chain(self)
    }
}

/// Something to handle.
pub enum Input<U, C> {
    /// An update of the controller's, or a change of the connection to it.
    Controller(Latest<U>),
    /// A configuration that takes the place of the one in force.
    Config(Box<C>),
    /// Interfaces or addresses came, went or changed.
    Links,
    /// Rules and routes are worth comparing: a change concerns the daemon, or the last comparison was long ago.
    Routing,
}

/// Where inputs come from. `U` is what the controller sends, `C` what an operator may replace while the daemon works.
pub struct Inputs<U, C> {
    configs: UnboundedReceiver<C>,
    /// How long to wait after a change of an interface, so that the changes that come with it are handled together.
    settle: Duration,
    /// `None` until the daemon starts.
    sources: Option<Sources<U>>,
    /// When changes of interfaces are handled that have come.
    settled: Option<Instant>,
    /// When the daemon began to compare rules and routes.
    comparing: Option<Instant>,
    /// What the daemon waits for itself has failed, and is left alone until the next timeout.
    paused: bool,
}

/// The controller and the kernel.
struct Sources<U> {
    watcher: Option<Watcher<U>>,
    /// Whether the controller has answered or proved to be away.
    answered: bool,
    links: LinkWatch,
    audit: Audit,
}

impl<U, C> Inputs<U, C> {
    /// Nothing but configurations, until it [listens](Self::listen).
    pub fn new(configs: UnboundedReceiver<C>, settle: Duration) -> Self {
        Inputs { configs, settle, sources: None, settled: None, comparing: None, paused: false }
    }

    /// Begins to listen in the calling thread's namespace, and to the controller if there is one.
    pub fn listen(&mut self, watcher: Option<Watcher<U>>) -> Result<(), AgentError> {
        let answered = watcher.is_none();
        self.sources = Some(Sources { watcher, answered, links: LinkWatch::open()?, audit: Audit::open()? });
        Ok(())
    }

    /// Whether the controller has answered or proved to be away, or there is none.
    pub fn is_answered(&self) -> bool {
        self.sources.as_ref().is_some_and(|sources| sources.answered)
    }

    /// Waits for an input; a change of rules or routes is one if it `concerns` the daemon. Nothing is lost when it is dropped.
    /// Nothing comes any more only when the runtime shuts down.
    pub async fn next(&mut self, concerns: impl Fn(&RoutingChange) -> bool) -> Option<Input<U, C>> {
        let Inputs { configs, settle, sources, settled, comparing, .. } = self;
        let Sources { watcher, answered, links, audit } = sources.as_mut()?;
        loop {
            tokio::select! {
                latest = next_update(watcher) => {
                    let latest = latest?;
                    *answered |= latest.connection != Connection::Connecting;
                    return Some(Input::Controller(latest));
                }
                () = links.changed() => *settled = settled.or_else(|| Some(Instant::now() + *settle)),
                () = reached(*settled) => {
                    *settled = None;
                    return Some(Input::Links);
                }
                // The kernel removes routes with their interface, which is no fault and is handled as a whole.
                () = audit.is_due(&concerns) => match settled {
                    Some(_) => audit.done(Duration::ZERO),
                    None => {
                        *comparing = Some(Instant::now());
                        return Some(Input::Routing);
                    }
                },
                Some(config) = configs.recv() => return Some(Input::Config(Box::new(config))),
            }
        }
    }

    /// What follows from how changes of interfaces were handled.
    pub fn links_handled(&mut self, result: Result<(), AgentError>) -> Handled<AgentError> {
        if result.is_err() {
            self.settled = Some(Instant::now() + AGAIN);
        }
        Handled { reconciles: result.is_ok(), result }
    }

    /// What follows from a comparison of rules and routes, which shows whether they differ.
    pub fn compared(&mut self, differs: Result<bool, AgentError>) -> Handled<AgentError> {
        let began = self.comparing.take();
        if let Some((sources, began)) = self.sources.as_mut().zip(began) {
            sources.audit.done(began.elapsed());
        }
        Handled { reconciles: matches!(differs, Ok(true)), result: differs.map(drop) }
    }

    /// What follows from how an input of the daemon's own was handled: after an error it is left alone for a while.
    pub fn own_handled(&mut self, result: Result<(), AgentError>) -> Handled<AgentError> {
        self.paused = result.is_err();
        Handled { result, reconciles: false }
    }

    /// Whether the daemon's own inputs are left alone.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Notes that a timeout has come.
    pub fn resume(&mut self) {
        self.paused = false;
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
pub async fn reached(instant: Option<Instant>) {
    match instant {
        // Tokio's timers round up to a millisecond: one that is due needs none.
        Some(instant) if instant <= Instant::now() => {}
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, ops::ControlFlow, rc::Rc};

    use crate::{Daemon, End, Listeners, Page, Shutdown, run};
    use sidestep_api::{HostIdentity, PathUpdate, watch_paths};
    use sidestep_linux::{netlink::Netlink, netns::NetNs, testing::root_or_skip};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// A daemon that notes what is asked of it, and breaks off at one of its timeouts.
    struct Notes {
        inputs: Inputs<PathUpdate, u32>,
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
        type Error = AgentError;
        type Event = Input<PathUpdate, u32>;
        const INTERVAL: Duration = Duration::from_millis(20);

        async fn start(&mut self) -> Result<(), AgentError> {
            let identity = || HostIdentity::Node("h".into());
            let watcher = match self.controller {
                Some(endpoint) => Some(watch_paths(endpoint, identity(), false).await?),
                None => None,
            };
            self.inputs.listen(watcher)?;
            self.note("start");
            Ok(())
        }

        async fn next_event(&mut self) -> Option<Self::Event> {
            self.inputs.next(|_| false).await
        }

        async fn handle_event(&mut self, event: Self::Event) -> Handled<AgentError> {
            match event {
                Input::Controller(latest) => {
                    assert!(matches!(latest.connection, Connection::Lost { .. }));
                    self.note("away");
                    Handled { result: Ok(()), reconciles: false }
                }
                Input::Config(config) => {
                    self.note(format!("config {config}"));
                    Handled { result: Ok(()), reconciles: true }
                }
                Input::Links => {
                    self.note("links");
                    self.inputs.links_handled(Ok(()))
                }
                Input::Routing => self.inputs.compared(Ok(false)),
            }
        }

        fn is_ready(&self) -> bool {
            self.inputs.is_answered()
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

        async fn read_metrics(&mut self, _: u64) -> Result<Page, AgentError> {
            Ok(Page::default())
        }

        async fn stop(self, end: End) -> Result<(), AgentError> {
            self.note(format!("stop {end:?}"));
            Ok(())
        }
    }

    /// Runs a daemon that gets these configurations; what it noted, and how it ended.
    fn run_notes(
        mut daemon: Notes,
        configs: &[u32],
        shutdown: impl Future<Output = Shutdown>,
    ) -> (Vec<String>, Result<(), AgentError>) {
        let seen = daemon.seen.clone();
        let (send, receive) = unbounded_channel();
        configs.iter().for_each(|config| send.send(*config).unwrap());
        daemon.inputs = Inputs::new(receive, Duration::from_millis(60));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ready = || seen.borrow_mut().push("ready".into());
        let result = runtime.block_on(run(daemon, Listeners::default(), ready, shutdown));
        (seen.take(), result)
    }

    /// A daemon of this many timeouts.
    fn lasting(timeouts_left: u32) -> Notes {
        let inputs = Inputs::new(unbounded_channel().1, Duration::ZERO);
        Notes { inputs, seen: Rc::default(), timeouts_left, controller: None }
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
