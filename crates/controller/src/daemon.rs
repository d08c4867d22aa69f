//! The controller as a daemon: it answers agents, computes paths when the network is new, and publishes each second.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use futures::FutureExt;
use sidestep_api::{Listener, chain};
use sidestep_hostd::{Daemon, End, Fault, Handled, Listeners, Page, Scrapes, Shutdown, run};
use sidestep_net::Topology;
use thiserror::Error;
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    task::{JoinError, JoinHandle, spawn_blocking},
    time::timeout,
};

use crate::{controller::Controller, plan::PlanError, service::Service};

/// How long calls may take to end after the shutdown; a watcher that does not read must not hold it up.
const GRACE: Duration = Duration::from_secs(2);

/// Why a controller cannot go on.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It cannot answer agents.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
    /// The network has no paths that could be computed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Part of it panicked.
    #[error(transparent)]
    Panic(#[from] JoinError),
}

impl Fault for ServeError {
    fn can_pass(&self) -> bool {
        !matches!(self, ServeError::Plan(_))
    }

    fn message(&self) -> String {
        chain(self)
    }
}

/// Serves agents on `listener` until `shutdown`; the watchers' streams then end and the socket is gone.
///
/// The service manager receives at once that the controller is ready: it listens. Watchers wait until the paths are computed, if
/// they are not yet; `computed` is called then. A topology that comes through `topologies` replaces the network. Needs a
/// Tokio runtime.
pub async fn serve(
    controller: Arc<Controller>,
    listener: Listener,
    topologies: UnboundedReceiver<Topology>,
    scrapes: Option<Scrapes>,
    computed: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (open, closing) = watch::channel(());
    let mut closed = closing.clone();
    let stop = async move { while closed.changed().await.is_ok() {} };
    let server = Some(tokio::spawn(listener.serve(Service::new(controller.clone(), closing), stop)));
    let serving = Serving {
        controller,
        topologies,
        server,
        open,
        computed: Some(Box::new(computed)),
        wanted: Some(Wanted::FirstPaths),
        computing: None,
        failed: None,
    };
    run(serving, Listeners { scrapes, control: None }, || {}, shutdown.map(|()| Shutdown::CleanUp)).await
}

/// What the daemon holds.
struct Serving {
    controller: Arc<Controller>,
    topologies: UnboundedReceiver<Topology>,
    /// Answers calls until `open` is dropped.
    server: Option<JoinHandle<Result<(), tonic::transport::Error>>>,
    open: watch::Sender<()>,
    computed: Option<Box<dyn FnOnce() + Send>>,
    /// What must be computed when the present computation has ended.
    wanted: Option<Wanted>,
    computing: Option<JoinHandle<Result<(), PlanError>>>,
    /// Why there is no use in going on.
    failed: Option<ServeError>,
}

enum Wanted {
    FirstPaths,
    /// The paths of another network.
    Replacement(Box<Topology>),
}

enum Event {
    /// A computation has ended.
    Computed(Result<(), ServeError>),
    /// There is another network.
    Topology(Box<Topology>),
}

impl Serving {
    /// Notes how a computation ended. Without first paths the controller is of no use; later ones leave those that it has.
    fn note(&mut self, result: Result<(), ServeError>) {
        match (result, self.computed.take()) {
            (Ok(()), Some(computed)) => computed(),
            (Ok(()), None) => {}
            (Err(error), Some(_)) => self.failed = Some(error),
            (Err(error), None) => tracing::error!("the topology stays what it was: {}", error.message()),
        }
    }
}

impl Daemon for Serving {
    type Error = ServeError;
    type Event = Event;

    /// How often changed usage is sent out.
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn start(&mut self) -> Result<(), ServeError> {
        Ok(())
    }

    async fn next_event(&mut self) -> Option<Event> {
        if self.failed.is_some() {
            return None;
        }
        tokio::select! {
            served = finished(&mut self.server) => {
                self.server = None;
                self.failed = served.map_err(ServeError::from).and_then(|served| Ok(served?)).err();
                None
            }
            computed = finished(&mut self.computing) => {
                self.computing = None;
                Some(Event::Computed(computed.map_err(ServeError::from).and_then(|result| Ok(result?))))
            }
            Some(topology) = self.topologies.recv() => Some(Event::Topology(Box::new(topology))),
        }
    }

    async fn handle_event(&mut self, event: Event) -> Handled<ServeError> {
        match event {
            Event::Computed(result) => self.note(result),
            Event::Topology(topology) => self.wanted = Some(Wanted::Replacement(topology)),
        }
        Handled { result: Ok(()), reconciles: true }
    }

    /// Starts the computation of what is wanted. That may take long, and agents must not wait.
    async fn reconcile(&mut self) -> Result<(), ServeError> {
        if self.computing.is_none()
            && let Some(wanted) = self.wanted.take()
        {
            let controller = self.controller.clone();
            self.computing = Some(spawn_blocking(move || match wanted {
                Wanted::FirstPaths => controller.compute(),
                Wanted::Replacement(topology) => {
                    let (nodes, links) = (topology.nodes().len(), topology.links().len());
                    controller.replace(*topology)?;
                    tracing::info!(nodes, links, "read the topology again");
                    Ok(())
                }
            }));
        }
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, ServeError> {
        self.controller.publish();
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        self.controller.status()
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, ServeError> {
        Ok(self.controller.page(faults))
    }

    async fn stop(mut self, _: End) -> Result<(), ServeError> {
        drop(self.open);
        if let Some(error) = self.failed {
            return Err(error);
        }
        match timeout(GRACE, finished(&mut self.server)).await {
            Ok(served) => Ok(served??),
            Err(_) => {
                self.server.iter().for_each(JoinHandle::abort);
                Ok(())
            }
        }
    }
}

/// The result of a task; never without one.
async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
