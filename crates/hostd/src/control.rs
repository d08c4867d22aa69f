//! The sockets at which a daemon is asked for its status and to stop.
//!
//! They are abstract Unix sockets, whose names belong to a network namespace, as routes do. So a name is taken exactly while
//! a daemon of its kind works in this namespace, and a killed one leaves no file. Only the superuser and the daemon's own
//! user are answered.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    io::{self, Read},
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::net::{self, SocketAddr},
    },
    time::Duration,
};

use nix::{
    sys::socket::{getsockopt, sockopt::PeerCredentials},
    unistd::geteuid,
};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// How often, and how far apart, a name is tried: another daemon may be about to end.
const ATTEMPTS: u32 = 10;
/// How long to wait between attempts, and after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a peer may take to send its request, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a daemon may take to answer or to end.
const END: Duration = Duration::from_secs(15);
/// Requests that wait for the daemon; further peers wait in the kernel.
const WAITING: usize = 8;

/// What a daemon is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The status, as JSON.
    Status = b's' as isize,
    /// The end; the connection ends with the daemon.
    Stop = b'q' as isize,
}

/// How the request is known at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Each connection asks for the same.
    Always(Request),
    /// The peer sends one byte; a stop is acknowledged by a line feed.
    Byte,
}

/// Why a daemon could not take its socket, or did not answer.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Another daemon of the kind has the name.
    #[error("another {kind} daemon works in this network namespace; `sidestep {kind} stop` ends it")]
    Occupied {
        /// Its kind, as its command has it.
        kind: &'static str,
    },
    /// The daemon closed the connection without an answer: it answers the superuser and its own user only.
    #[error("{what}: the daemon answers root and its own user only; run as root, or as that user")]
    Unanswered {
        /// What was attempted.
        what: &'static str,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A daemon's hold on its socket: no other daemon of the kind works in the namespace as long as it lives.
#[derive(Debug)]
pub struct ControlSocket {
    send: mpsc::Sender<PendingRequest>,
    requests: mpsc::Receiver<PendingRequest>,
    tasks: Vec<JoinHandle<()>>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct PendingRequest {
    /// What is asked for.
    pub request: Request,
    stream: UnixStream,
}

impl ControlSocket {
    /// Takes the name of the kind's socket; fails if another such daemon works in this namespace, and does not end in this
    /// moment. Needs a Tokio runtime.
    pub async fn claim(name: &str, kind: &'static str, protocol: Protocol) -> Result<Self, ControlError> {
        let mut attempts = ATTEMPTS;
        let listener = loop {
            attempts -= 1;
            match listen(name) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => sleep(PAUSE).await,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(ControlError::Occupied { kind }),
                bound => break bound.map_err(failed("listening for requests to the daemon"))?,
            }
        };
        let (send, requests) = mpsc::channel(WAITING);
        let mut socket = ControlSocket { send, requests, tasks: Vec::new() };
        socket.accept_at(listener, protocol);
        Ok(socket)
    }

    /// Takes requests for the status at a socket of another name, too.
    pub fn with_status_at(mut self, name: &str) -> Result<Self, ControlError> {
        let listener = listen(name).map_err(failed("listening for those who ask for the status"))?;
        self.accept_at(listener, Protocol::Always(Request::Status));
        Ok(self)
    }

    fn accept_at(&mut self, listener: UnixListener, protocol: Protocol) {
        self.tasks.push(tokio::spawn(accept(listener, protocol, self.send.clone())));
    }

    /// Waits for a request. Nothing is lost when it is dropped.
    pub async fn next(&mut self) -> PendingRequest {
        match self.requests.recv().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }

    /// Waits for a request to a daemon that has a socket; for ever without one.
    pub(crate) async fn next_of(socket: &mut Option<Self>) -> PendingRequest {
        match socket {
            Some(socket) => socket.next().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl PendingRequest {
    /// Sends an answer beside the daemon's work: it may be larger than the socket's buffer, and a peer that does not read
    /// holds nothing up.
    pub fn answer(mut self, text: String) {
        tokio::spawn(async move {
            match timeout(PATIENCE, self.stream.write_all(text.as_bytes())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "sending the status"),
                Err(_) => tracing::debug!("a peer asked for the status and does not read it"),
            }
        });
    }
}

/// Reads what peers ask for, one after the other.
async fn accept(listener: UnixListener, protocol: Protocol, send: mpsc::Sender<PendingRequest>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            // Too many open files, for instance.
            sleep(PAUSE).await;
            continue;
        };
        if !is_privileged(&stream) {
            let by = stream.peer_cred().map(|peer| peer.uid());
            tracing::warn!(?by, "a request to the daemon by a user who may not");
            continue;
        }
        let Some(request) = read_request(&mut stream, protocol).await else { continue };
        if send.send(PendingRequest { request, stream }).await.is_err() {
            return;
        }
    }
}

async fn read_request(stream: &mut UnixStream, protocol: Protocol) -> Option<Request> {
    if let Protocol::Always(request) = protocol {
        return Some(request);
    }
    match timeout(PATIENCE, stream.read_u8()).await.ok()?.ok()? {
        byte if byte == Request::Status as u8 => Some(Request::Status),
        byte if byte == Request::Stop as u8 => {
            // The peer knows by this that it may ask for the end, as the end itself shows nothing.
            timeout(PATIENCE, stream.write_u8(b'\n')).await.ok()?.ok()?;
            Some(Request::Stop)
        }
        _ => None,
    }
}

/// Stops the daemon that listens at this name, and waits for its end; returns whether there was one.
pub async fn stop(name: &str, protocol: Protocol) -> Result<bool, ControlError> {
    match protocol {
        Protocol::Byte => Ok(ask(name, Request::Stop).await?.is_some()),
        Protocol::Always(_) => {
            let Some(mut stream) = connect(name)? else { return Ok(false) };
            match timeout(END, stream.read(&mut [0])).await {
                Ok(_) => Ok(true),
                Err(_) => Err(failed("asking the daemon to stop")(io::ErrorKind::TimedOut.into())),
            }
        }
    }
}

/// The status of the daemon that sends it to each peer of this name; `None` if there is no such daemon.
///
/// It blocks, for at most five seconds.
pub fn read_status(name: &str) -> Result<Option<String>, ControlError> {
    const WHAT: &str = "asking the daemon for its status";
    let Some(mut stream) = connect_blocking(name)? else { return Ok(None) };
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed(WHAT))?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed(WHAT))?;
    if text.is_empty() { Err(ControlError::Unanswered { what: WHAT }) } else { Ok(Some(text)) }
}

/// Sends a request to the daemon that reads them at this name ([`Protocol::Byte`]), and waits for its answer, which ends with
/// the connection; `None` if there is no such daemon. One that sends nothing has refused.
pub async fn ask(name: &str, request: Request) -> Result<Option<String>, ControlError> {
    const WHAT: &str = "asking the daemon";
    let Some(mut stream) = connect(name)? else { return Ok(None) };
    let mut answer = String::new();
    let exchange = async {
        stream.write_u8(request as u8).await?;
        stream.read_to_string(&mut answer).await
    };
    match timeout(END, exchange).await {
        // It may refuse before it has read the request.
        Ok(Err(error)) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            return Err(failed(WHAT)(error));
        }
        Ok(_) => {}
        Err(_) => return Err(failed(WHAT)(io::ErrorKind::TimedOut.into())),
    }
    if answer.is_empty() { Err(ControlError::Unanswered { what: WHAT }) } else { Ok(Some(answer)) }
}

/// Listens at this name of the network namespace. Needs a Tokio runtime.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = net::UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Reaches the daemon of this namespace that has this name; `None` if there is none.
pub fn connect_blocking(name: &str) -> Result<Option<net::UnixStream>, ControlError> {
    let connected = SocketAddr::from_abstract_name(name).and_then(|address| net::UnixStream::connect_addr(&address));
    match connected {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(failed("reaching the daemon of this namespace")(error)),
    }
}

fn connect(name: &str) -> Result<Option<UnixStream>, ControlError> {
    let Some(stream) = connect_blocking(name)? else { return Ok(None) };
    let failed = failed("reaching the daemon of this namespace");
    match stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => Err(failed(error)),
    }
}

/// Whether the other end of a Unix socket is the superuser's, or of the daemon's own user.
pub fn is_privileged(stream: &impl AsFd) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ControlError {
    move |source| ControlError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that no other test has.
    fn name(of: &str) -> String {
        format!("sidestep-hostd-test/{}/{of}", std::process::id())
    }

    #[tokio::test]
    async fn a_stop_is_granted_or_refused_and_the_peer_knows_which() {
        let name = name("stop");
        assert!(ask(&name, Request::Stop).await.unwrap().is_none(), "there is none");
        let mut control = ControlSocket::claim(&name, "test", Protocol::Byte).await.unwrap();
        let end = async { drop(control.next().await) };
        let (answer, ()) = tokio::join!(ask(&name, Request::Stop), end);
        assert!(answer.unwrap().is_some());
        drop(control);
        tokio::task::yield_now().await;
        // This is what a peer sees that may not ask, before or after its request was read.
        let listener = listen(&name).unwrap();
        for reads in [false, true] {
            let refuse = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                if reads {
                    stream.read_u8().await.unwrap();
                }
            };
            let (answer, ()) = tokio::join!(ask(&name, Request::Stop), refuse);
            assert!(matches!(answer, Err(ControlError::Unanswered { .. })), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_name_is_taken_once_and_the_end_of_its_holder_ends_those_who_asked() {
        let name = name("claim");
        let always = Protocol::Always(Request::Stop);
        let mut control = ControlSocket::claim(&name, "test", always).await.unwrap();
        let second = ControlSocket::claim(&name, "test", always).await;
        assert!(matches!(second, Err(ControlError::Occupied { kind: "test" })), "{second:?}");
        let end = async {
            assert_eq!(control.next().await.request, Request::Stop);
            drop(control);
        };
        let (stopped, ()) = tokio::join!(stop(&name, always), end);
        assert!(stopped.unwrap());
        assert!(!stop(&name, always).await.unwrap());
        ControlSocket::claim(&name, "test", always).await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_larger_than_a_sockets_buffer_arrives_whole() {
        let name = name("status");
        let control = ControlSocket::claim(&name, "test", Protocol::Always(Request::Stop)).await.unwrap();
        let status_at = format!("{name}/status");
        let mut control = control.with_status_at(&status_at).unwrap();
        let text: String = (0..4 << 20).map(|n: u32| char::from(b'a' + (n % 26) as u8)).collect();
        let asking = tokio::task::spawn_blocking(move || read_status(&status_at));
        let asked = control.next().await;
        assert_eq!(asked.request, Request::Status);
        asked.answer(text.clone());
        let read = asking.await.unwrap().unwrap().unwrap();
        assert!(read == text, "{} bytes", read.len());
    }
}
