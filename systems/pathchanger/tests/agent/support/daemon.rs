//! A host agent or router daemon, on a thread inside a node.

use std::{
    os::fd::AsFd,
    pin::Pin,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use nix::sched::{CloneFlags, setns};
use sidestep_hostd::{AgentError, Shutdown};
use tokio::sync::oneshot;

use super::{Lab, READY};

/// A daemon that does its work; cleans up when dropped.
pub struct Daemon {
    stop: Option<oneshot::Sender<End>>,
    thread: Option<JoinHandle<Result<(), AgentError>>>,
}

/// How a daemon ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    CleanUp,
    Keep,
    Killed,
}

/// What a daemon calls when it is ready.
pub type Ready = Box<dyn FnOnce()>;
/// What completes when a daemon is to end.
pub type Stopping = Pin<Box<dyn Future<Output = Shutdown>>>;

impl Daemon {
    /// Starts a daemon, and does not wait; the receiver gets a message when it is ready.
    pub fn spawn<R>(
        lab: &Lab,
        node: &str,
        run: impl FnOnce(Ready, Stopping) -> R + Send + 'static,
    ) -> (Daemon, mpsc::Receiver<()>)
    where
        R: Future<Output = Result<(), AgentError>>,
    {
        let namespace = lab.network.node(lab.id(node)).as_fd().try_clone_to_owned().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (shut, shutdown) = oneshot::channel();
            let shutdown = Box::pin(async { shutdown.await.unwrap_or(Shutdown::CleanUp) });
            let daemon = run(Box::new(move || ready.send(()).unwrap()), shutdown);
            runtime.block_on(async {
                tokio::pin!(daemon);
                let end = tokio::select! {
                    ended = &mut daemon => return ended,
                    end = stopped => end.unwrap_or(End::CleanUp),
                };
                match end {
                    // What the kernel sees of a kill: everything is closed, and nothing cleared up.
                    End::Killed => return Ok(()),
                    End::Keep => shut.send(Shutdown::Keep).unwrap(),
                    // One that is about to end by itself does not listen any more.
                    End::CleanUp => drop(shut.send(Shutdown::CleanUp)),
                }
                daemon.await
            })
        });
        (Daemon { stop: Some(stop), thread: Some(thread) }, is_ready)
    }

    /// Starts a daemon, and waits until it is ready; one that ends before is an error.
    pub fn start<R>(
        lab: &Lab,
        node: &str,
        run: impl FnOnce(Ready, Stopping) -> R + Send + 'static,
    ) -> Result<Daemon, Result<(), AgentError>>
    where
        R: Future<Output = Result<(), AgentError>>,
    {
        let (mut daemon, is_ready) = Daemon::spawn(lab, node, run);
        match is_ready.recv_timeout(READY) {
            Ok(()) => Ok(daemon),
            Err(_) => Err(daemon.end(End::CleanUp)),
        }
    }

    /// Waits until the daemon ends by itself.
    pub fn wait(&mut self) -> Result<(), AgentError> {
        self.thread.take().unwrap().join().unwrap()
    }

    /// Ends the daemon, and waits until it has ended.
    pub fn end(&mut self, end: End) -> Result<(), AgentError> {
        // One that has ended by itself does not listen.
        let _ = self.stop.take().unwrap().send(end);
        self.wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().map(JoinHandle::join);
    }
}
