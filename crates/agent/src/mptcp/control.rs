//! One path manager for each network namespace, which can be asked for its status, and to stop.
//!
//! It listens at an abstract Unix socket, whose names belong to a network namespace, as connections do. So the name is taken
//! exactly while a path manager works in this namespace, and there is no file that a killed one could leave.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{io, time::Duration};

use sidestep_linux::LinuxError;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::timeout,
};

use crate::{AgentError, instance};

/// The socket's name.
const NAME: &str = "sidestep-mptcp-pm";
/// How long to wait when nobody can be let in.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one who connects may take to say what is wanted, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a path manager may take to answer or to end.
const END: Duration = Duration::from_secs(15);
/// Requests that wait for the path manager.
const WAITING: usize = 8;

/// What can be asked for: a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The status, as JSON.
    Status = b's' as isize,
    /// The end.
    Stop = b'q' as isize,
}

/// The right to be the path manager of this namespace.
pub(super) struct Control {
    requests: Mutex<mpsc::Receiver<(Request, UnixStream)>>,
    task: JoinHandle<()>,
}

impl Control {
    /// Takes the name; fails if another path manager works in this namespace, and does not end in this moment.
    pub(super) async fn claim() -> Result<Self, AgentError> {
        let listener = instance::listen(NAME, "mptcp-pm").await?;
        let (send, requests) = mpsc::channel(WAITING);
        Ok(Control { requests: Mutex::new(requests), task: tokio::spawn(accept(listener, send)) })
    }

    /// Waits for a request. Nothing is lost when it is dropped.
    pub(super) async fn next(&self) -> (Request, UnixStream) {
        match self.requests.lock().await.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads what those want who connect, one after the other.
async fn accept(listener: UnixListener, send: mpsc::Sender<(Request, UnixStream)>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            // Too many open files, for instance.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if !instance::is_privileged(&stream) {
            let by = stream.peer_cred().map(|peer| peer.uid());
            tracing::warn!(?by, "a request to the path manager by a user who may not");
            continue;
        }
        let request = match timeout(PATIENCE, stream.read_u8()).await {
            Ok(Ok(byte)) if byte == Request::Status as u8 => Request::Status,
            Ok(Ok(byte)) if byte == Request::Stop as u8 => Request::Stop,
            _ => continue,
        };
        // Who may ask for the end knows by this, as the end itself says nothing.
        if request == Request::Stop && !matches!(timeout(PATIENCE, stream.write_u8(b'\n')).await, Ok(Ok(()))) {
            continue;
        }
        if send.send((request, stream)).await.is_err() {
            return;
        }
    }
}

/// Answers a request; who does not read in time gets no more.
pub(super) fn answer(mut stream: UnixStream, text: String) {
    tokio::spawn(async move { timeout(PATIENCE, stream.write_all(text.as_bytes())).await });
}

/// Asks the path manager of this namespace, and waits for its answer, which ends with the connection; `None` if there is no
/// path manager. One that says nothing has refused.
pub(super) async fn ask(request: Request) -> Result<Option<String>, AgentError> {
    let failed = |error: io::Error| LinuxError::io("asking the path manager", error);
    let Some(mut stream) = instance::connect(NAME)? else { return Ok(None) };
    let mut answer = String::new();
    let exchange = async {
        stream.write_u8(request as u8).await?;
        stream.read_to_string(&mut answer).await
    };
    match timeout(END, exchange).await {
        // It may refuse before it has read what is wanted.
        Ok(Err(error)) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            return Err(failed(error).into());
        }
        Ok(_) => {}
        Err(_) => return Err(failed(io::ErrorKind::TimedOut.into()).into()),
    }
    if answer.is_empty() {
        return Err(LinuxError::not_answered("asking the path manager").into());
    }
    Ok(Some(answer))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net;

    use sidestep_linux::{netns::NetNs, testing::root_or_skip};

    use super::*;

    #[test]
    fn a_stop_is_granted_or_refused_and_the_asker_knows_which() {
        if !root_or_skip("asking the path manager") {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let work = || {
            runtime.block_on(async {
                assert!(ask(Request::Stop).await.unwrap().is_none(), "there is none");
                let control = Control::claim().await.unwrap();
                let end = async { drop(control.next().await) };
                let (answer, ()) = tokio::join!(ask(Request::Stop), end);
                assert!(answer.unwrap().is_some());
                drop(control);
                tokio::task::yield_now().await;
                // This is what those see who may not ask, before or after what they want was read.
                let listener = net::UnixListener::bind_addr(&instance::address(NAME).unwrap()).unwrap();
                listener.set_nonblocking(true).unwrap();
                let listener = UnixListener::from_std(listener).unwrap();
                for reads in [false, true] {
                    let refuse = async {
                        let (mut stream, _) = listener.accept().await.unwrap();
                        if reads {
                            stream.read_u8().await.unwrap();
                        }
                    };
                    let (answer, ()) = tokio::join!(ask(Request::Stop), refuse);
                    let refused = matches!(answer, Err(AgentError::Linux(LinuxError::Privilege { .. })));
                    assert!(refused, "{answer:?}");
                }
            });
            Ok(())
        };
        NetNs::create().unwrap().run(work).unwrap();
    }
}
