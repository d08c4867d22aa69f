//! The controller as a gRPC service.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, StreamExt, future};
use sidestep_api::{HostIdentity, UsageReport, proto, router_name};
use tokio::{sync::watch, task::spawn_blocking};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::controller::{Controller, RequestError, Snapshot};

/// What answers the calls of agents.
pub(crate) struct Service {
    controller: Arc<Controller>,
    /// Its sender is dropped when the service must end.
    closing: watch::Receiver<()>,
}

type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl proto::path_control_server::PathControl for Service {
    type WatchPathsStream = Updates<proto::PathUpdate>;
    type WatchBindingsStream = Updates<proto::BindingUpdate>;

    async fn watch_paths(&self, hello: Request<proto::HostHello>) -> Result<Response<Self::WatchPathsStream>, Status> {
        let host = HostIdentity::try_from(hello.into_inner())?;
        self.updates(
            move |state| state.path_update(&host).map(proto::PathUpdate::from),
            |_, _| true,
            |update| &update.sets,
        )
    }

    async fn watch_bindings(
        &self,
        hello: Request<proto::RouterHello>,
    ) -> Result<Response<Self::WatchBindingsStream>, Status> {
        let router = router_name(hello.into_inner())?;
        self.updates(
            move |state| state.binding_update(&router).map(proto::BindingUpdate::from),
            // Rates do not change what is bound.
            |before, now| !now.has_plan_of(before),
            |update| &update.bindings,
        )
    }

    async fn report(&self, report: Request<proto::UsageReport>) -> Result<Response<proto::Ack>, Status> {
        let report = UsageReport::try_from(report.into_inner())?;
        if self.controller.take(&report)? {
            let controller = self.controller.clone();
            // It may compute for long, and others must not wait.
            let followed = spawn_blocking(move || controller.follow_reports()).await;
            followed.map_err(|error| Status::internal(error.to_string()))?;
        }
        Ok(Response::new(proto::Ack {}))
    }
}

impl Service {
    /// Answers from `controller`; streams end when the sender of `closing` is dropped.
    pub(crate) fn new(controller: Arc<Controller>, closing: watch::Receiver<()>) -> Self {
        Service { controller, closing }
    }

    /// A stream of the `view` of each complete state, without repetitions of the same `content`.
    ///
    /// `may_differ` returns for two states whether their views may; those that cannot are not made.
    ///
    /// A watch channel holds only the last state, so a slow watcher skips states and delays no other.
    fn updates<T, C>(
        &self,
        view: impl Fn(&Snapshot) -> Result<T, RequestError> + Send + 'static,
        may_differ: impl Fn(&Snapshot, &Snapshot) -> bool + Send + 'static,
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
        let mut seen: Option<Arc<Snapshot>> = None;
        let updates = WatchStream::new(states).filter_map(move |state| {
            if !state.is_complete() || seen.as_ref().is_some_and(|seen| !may_differ(seen, &state)) {
                return future::ready(None);
            }
            seen = Some(state.clone());
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
