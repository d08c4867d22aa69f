//! One daemon of a kind for each network namespace, which can be asked to stop.
//!
//! The daemon listens at an abstract Unix socket, whose names belong to a network namespace, as routes do. So the name
//! is taken exactly while a daemon works in this namespace, and there is no file that a killed one could leave.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{self, SocketAddr},
    },
    sync::{Mutex, PoisonError},
    time::Duration,
};

use nix::unistd::geteuid;
use sidestep_linux::LinuxError;
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, UnixStream},
};

use crate::AgentError;

/// How often, and how far apart, the name is tried: another daemon may be about to end.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// How long a daemon may take to stop after it was asked to.
const PATIENCE: Duration = Duration::from_secs(15);

/// The right to be the daemon of its kind in this namespace.
pub(crate) struct Instance {
    listener: UnixListener,
    /// Who has connected and is not judged yet.
    came: Mutex<Option<UnixStream>>,
    /// Who asked for the end; they see our end as that of this connection.
    asked: Option<UnixStream>,
}

impl Instance {
    /// Takes the name of its kind's socket; fails if another such daemon works in this namespace, and does not end in this
    /// moment.
    pub(crate) async fn claim(name: &str, kind: &'static str) -> Result<Self, AgentError> {
        Ok(Instance { listener: listen(name, kind).await?, came: Mutex::default(), asked: None })
    }

    /// Waits until somebody asks for the end.
    pub(crate) async fn asked(&self) -> Result<(), AgentError> {
        if self.asked.is_some() {
            return std::future::pending().await;
        }
        let failed = |error| LinuxError::io("accepting a request to stop", error);
        let (stream, _) = self.listener.accept().await.map_err(failed)?;
        *self.came.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        Ok(())
    }

    /// Takes a request; it counts if it is the superuser's, or of the daemon's own user.
    pub(crate) fn take(&mut self) {
        let came = self.came.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(stream) = came else { return };
        if is_privileged(&stream) {
            self.asked = Some(stream);
        } else {
            let by = stream.peer_cred().map(|peer| peer.uid());
            tracing::warn!(?by, "a request to stop by a user who may not");
        }
    }

    /// Whether somebody who may has asked for the end.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.asked.is_some()
    }
}

/// Has the daemon of this namespace stop that has this name, and waits for its end; returns whether there was one.
pub(crate) async fn stop(name: &str) -> Result<bool, AgentError> {
    let Some(mut stream) = connect(name)? else { return Ok(false) };
    match tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await {
        Ok(_) => Ok(true),
        Err(_) => Err(LinuxError::io("asking the daemon to stop", io::ErrorKind::TimedOut).into()),
    }
}

/// Takes the name of a kind's socket; fails if another such daemon works in this namespace, and does not end in this moment.
pub(crate) async fn listen(name: &str, kind: &'static str) -> Result<UnixListener, AgentError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => AgentError::Occupied { kind },
        _ => LinuxError::io("listening for requests to the daemon", source).into(),
    };
    let address = address(name).map_err(failed)?;
    let mut attempts = ATTEMPTS;
    let listener = loop {
        attempts -= 1;
        match net::UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {
                tokio::time::sleep(PAUSE).await;
            }
            bound => break bound.map_err(failed)?,
        }
    };
    listener.set_nonblocking(true).map_err(failed)?;
    UnixListener::from_std(listener).map_err(failed)
}

/// Reaches the daemon of this namespace that has this name; `None` if there is none.
pub(crate) fn connect(name: &str) -> Result<Option<UnixStream>, AgentError> {
    let failed = |error: io::Error| LinuxError::io("reaching the daemon of this namespace", error);
    let stream = match net::UnixStream::connect_addr(&address(name).map_err(failed)?) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(failed(error).into()),
    };
    stream.set_nonblocking(true).map_err(failed)?;
    Ok(Some(UnixStream::from_std(stream).map_err(failed)?))
}

/// Whether the other end is the superuser's, or of the daemon's own user.
pub(crate) fn is_privileged(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

pub(crate) fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}
