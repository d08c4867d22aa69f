//! The daemons' half: follows the controller through its restarts, and reports to it.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use thiserror::Error;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    BindingUpdate, EndpointError, HostIdentity, MAX_MESSAGE_BYTES, PathUpdate, UsageReport,
    endpoint::{chain, client_endpoint},
    proto::{self, path_control_client::PathControlClient},
};

/// The pause before the first attempt to reconnect; it doubles with each one that fails.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The longest pause between attempts.
const LAST_RETRY: Duration = Duration::from_secs(5);
/// How long connecting, the first update and a report may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the controller cannot be used.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The endpoint is not one.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The controller did not answer, or refused.
    #[error("the controller at `{endpoint}`: {reason}")]
    Controller {
        /// The controller's endpoint.
        endpoint: String,
        /// Its answer, or why it could not be reached.
        reason: String,
    },
}

/// The state of the connection to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// No answer yet.
    #[default]
    Connecting,
    /// Updates arrive.
    Connected,
    /// Gone for now; attempts to reconnect go on.
    Lost {
        /// Why.
        reason: String,
    },
}

/// What is known from the controller.
#[derive(Debug)]
pub struct Latest<T> {
    /// The state of the connection to the controller.
    pub connection: Connection,
    /// The last update, kept while the controller is away.
    pub update: Option<Arc<T>>,
}

/// Follows the controller until it is dropped.
#[derive(Debug)]
pub struct Watcher<T> {
    latest: watch::Receiver<Latest<T>>,
    task: JoinHandle<()>,
}

/// Follows the path sets of a host.
///
/// Reconnects after 100 ms, doubling up to 5 s. Only with `fail_fast` is a first attempt that fails an error.
pub async fn watch_paths(
    endpoint: &str,
    host: HostIdentity,
    fail_fast: bool,
) -> Result<Watcher<PathUpdate>, ClientError> {
    let target = client_endpoint(endpoint)?;
    let hello = proto::HostHello::from(host);
    let open = move || {
        let (target, hello) = (target.clone(), hello.clone());
        async move { typed(client(&target).await?.watch_paths(hello).await) }
    };
    start(endpoint, open, fail_fast).await
}

/// Follows the bindings of the access router `node`; reconnects and fails as [`watch_paths`] does.
pub async fn watch_bindings(
    endpoint: &str,
    node: &str,
    fail_fast: bool,
) -> Result<Watcher<BindingUpdate>, ClientError> {
    let target = client_endpoint(endpoint)?;
    let hello = proto::RouterHello { node: node.into() };
    let open = move || {
        let (target, hello) = (target.clone(), hello.clone());
        async move { typed(client(&target).await?.watch_bindings(hello).await) }
    };
    start(endpoint, open, fail_fast).await
}

/// Sends a router's counters to the controller.
#[derive(Clone, Debug)]
pub struct Reporter {
    endpoint: String,
    client: PathControlClient<Channel>,
}

impl Reporter {
    /// A reporter that connects with its first report, and again when the controller was away.
    pub fn new(endpoint: &str) -> Result<Self, EndpointError> {
        let client = PathControlClient::new(client_endpoint(endpoint)?.timeout(ANSWER_TIMEOUT).connect_lazy());
        Ok(Reporter { endpoint: endpoint.into(), client })
    }

    /// Sends one report; after an error simply send the next.
    pub async fn report(&mut self, report: UsageReport) -> Result<(), ClientError> {
        let sent = self.client.report(Request::new(report.into())).await;
        sent.map(drop)
            .map_err(|status| ClientError::Controller { endpoint: self.endpoint.clone(), reason: message_of(&status) })
    }
}

impl<T> Watcher<T> {
    /// What is known now.
    pub fn latest(&self) -> Latest<T> {
        self.latest.borrow().clone()
    }

    /// Waits for the next update or change of the connection; `None` once the runtime shuts down.
    ///
    /// A slow reader misses intermediate updates, never the last.
    pub async fn changed(&mut self) -> Option<Latest<T>> {
        self.latest.changed().await.ok()?;
        Some(self.latest.borrow_and_update().clone())
    }
}

impl<T> Drop for Watcher<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Latest { connection: self.connection.clone(), update: self.update.clone() }
    }
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Latest { connection: Connection::default(), update: None }
    }
}

/// Updates of one connection; an error describes in words why it broke.
type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, String>> + Send>>;

async fn client(target: &Endpoint) -> Result<PathControlClient<Channel>, String> {
    let channel = target.connect().await.map_err(|error| chain(&error))?;
    Ok(PathControlClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES))
}

fn typed<W, T>(opened: Result<Response<Streaming<W>>, Status>) -> Result<Updates<T>, String>
where
    W: Send + 'static,
    T: TryFrom<W, Error: ToString>,
{
    let stream = opened.map_err(|status| message_of(&status))?.into_inner();
    Ok(stream
        .map(|message| T::try_from(message.map_err(|status| message_of(&status))?).map_err(|error| error.to_string()))
        .boxed())
}

/// A status in words, without the frame that its `Display` puts around them.
fn message_of(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(cause) => chain(cause),
        None if status.message().is_empty() => status.code().to_string(),
        None => status.message().to_owned(),
    }
}

async fn start<T, F, Fut>(endpoint: &str, open: F, fail_fast: bool) -> Result<Watcher<T>, ClientError>
where
    T: Send + Sync + 'static,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Updates<T>, String>> + Send,
{
    let (sender, latest) = watch::channel(Latest::default());
    let mut watcher = Watcher { latest, task: tokio::spawn(async move { follow(open, &sender).await }) };
    if fail_fast {
        let first = watcher.latest.wait_for(|latest| latest.connection != Connection::Connecting).await;
        let reason = match first.as_deref() {
            Ok(Latest { connection: Connection::Lost { reason }, .. }) => Some(reason.clone()),
            Ok(_) => None,
            Err(_) => Some("the runtime shuts down".into()),
        };
        drop(first);
        if let Some(reason) = reason {
            return Err(ClientError::Controller { endpoint: endpoint.into(), reason });
        }
        // The caller's first `changed` must yield the first update too.
        watcher.latest.mark_changed();
    }
    Ok(watcher)
}

/// Connects again and again; nothing but the end of the task ends it.
async fn follow<T, F, Fut>(open: F, sender: &watch::Sender<Latest<T>>)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Updates<T>, String>>,
{
    let mut pause = FIRST_RETRY;
    loop {
        let reason = match timeout(ANSWER_TIMEOUT, open()).await {
            Err(_) => "no answer".to_owned(),
            Ok(Err(reason)) => reason,
            Ok(Ok(updates)) => drain(updates, sender, &mut pause).await,
        };
        lose(sender, Connection::Lost { reason });
        sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
    }
}

/// Delivers updates until the connection breaks; returns why it did. The first one resets the pause between attempts.
///
/// A controller that has just started sends it when it has computed its paths. That may take longer than a caller should
/// wait, so it counts as away meanwhile.
async fn drain<T>(mut updates: Updates<T>, sender: &watch::Sender<Latest<T>>, pause: &mut Duration) -> String {
    let mut next = match timeout(ANSWER_TIMEOUT, updates.next()).await {
        Ok(first) => first,
        Err(_) => {
            lose(sender, Connection::Lost { reason: "it has not computed its paths yet".into() });
            updates.next().await
        }
    };
    loop {
        match next {
            Some(Ok(update)) => deliver(sender, update),
            Some(Err(reason)) => return reason,
            None => return closed(),
        }
        *pause = FIRST_RETRY;
        next = updates.next().await;
    }
}

fn deliver<T>(sender: &watch::Sender<Latest<T>>, update: T) {
    sender.send_replace(Latest { connection: Connection::Connected, update: Some(Arc::new(update)) });
}

/// Notes that the controller is away. Attempts that fail as the last one did are not worth a message each.
fn lose<T>(sender: &watch::Sender<Latest<T>>, lost: Connection) {
    sender.send_if_modified(|latest| {
        let differs = latest.connection != lost;
        latest.connection = lost;
        differs
    });
}

fn closed() -> String {
    "the controller closed the connection".into()
}
