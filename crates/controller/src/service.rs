//! The controller as a gRPC service.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, future};
use sidestep_api::{HostIdentity, Listener, UsageReport, proto, router_name};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::controller::{Controller, RequestError, Snapshot};

/// How often changed usage is sent out.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// How long calls may take to end after the shutdown; a watcher that does not read must not hold it up.
const GRACE: Duration = Duration::from_secs(2);

/// Serves agents on `listener` until `shutdown`; the watchers' streams then end and the socket is gone.
pub async fn serve(
    controller: Arc<Controller>,
    listener: Listener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let (open, mut closing) = watch::channel(());
    let service = Service { controller: controller.clone(), closing: closing.clone() };
    let stop = async move {
        shutdown.await;
        drop(open);
    };
    let overdue = async move {
        while closing.changed().await.is_ok() {}
        sleep(GRACE).await;
    };
    tokio::select! {
        served = listener.serve(service, stop) => served,
        () = overdue => Ok(()),
        never = publish_each_second(&controller) => match never {},
    }
}

struct Service {
    controller: Arc<Controller>,
    /// Its sender is dropped when the service is to end.
    closing: watch::Receiver<()>,
}

type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl proto::path_control_server::PathControl for Service {
    type WatchPathsStream = Updates<proto::PathUpdate>;
    type WatchBindingsStream = Updates<proto::BindingUpdate>;

    async fn watch_paths(&self, hello: Request<proto::HostHello>) -> Result<Response<Self::WatchPathsStream>, Status> {
        let host = HostIdentity::try_from(hello.into_inner())?;
        self.updates(move |state| state.path_update(&host).map(proto::PathUpdate::from), |update| &update.sets)
    }

    async fn watch_bindings(
        &self,
        hello: Request<proto::RouterHello>,
    ) -> Result<Response<Self::WatchBindingsStream>, Status> {
        let router = router_name(hello.into_inner())?;
        self.updates(
            move |state| state.binding_update(&router).map(proto::BindingUpdate::from),
            |update| &update.bindings,
        )
    }

    async fn report(&self, report: Request<proto::UsageReport>) -> Result<Response<proto::Ack>, Status> {
        let report = UsageReport::try_from(report.into_inner())?;
        self.controller.record(&report)?;
        Ok(Response::new(proto::Ack {}))
    }
}

impl Service {
    /// A stream of the `view` of each state, without repetitions of the same `content`.
    ///
    /// A watch channel holds only the last state, so a slow watcher skips states and delays no other.
    fn updates<T, C>(
        &self,
        view: impl Fn(&Snapshot) -> Result<T, RequestError> + Send + 'static,
        content: impl Fn(&T) -> &C + Send + 'static,
    ) -> Result<Response<Updates<T>>, Status>
    where
        T: Clone + Send + 'static,
        C: PartialEq,
    {
        let states = self.controller.subscribe();
        // Asked here too, so that a bad request is refused before there is a stream.
        view(&states.borrow())?;
        let mut closing = self.closing.clone();
        let closed = async move { while closing.changed().await.is_ok() {} };
        let mut last: Option<T> = None;
        let updates = WatchStream::new(states).filter_map(move |state| {
            let update = view(&state).map_err(Status::from);
            let item = match (&last, update) {
                (Some(last), Ok(update)) if content(last) == content(&update) => None,
                (_, update) => Some(update),
            };
            if let Some(Ok(update)) = &item {
                last = Some(update.clone());
            }
            future::ready(item)
        });
        Ok(Response::new(updates.take_until(Box::pin(closed)).boxed()))
    }
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::UnknownNode(_) | RequestError::UnknownPrefix(_) => Status::not_found(error.to_string()),
            _ => Status::invalid_argument(error.to_string()),
        }
    }
}

async fn publish_each_second(controller: &Controller) -> Infallible {
    let mut ticks = interval(PUBLISH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        controller.publish();
    }
}
