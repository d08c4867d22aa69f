//! A daemon on a thread in a network namespace, with configurations that may change and the ways in which it may end.

use std::{future::Future, os::fd::AsFd, pin::Pin, sync::mpsc, thread};

use sidestep_hostd::{AgentError, Shutdown};
use sidestep_linux::netns::NetNs;
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};

/// A daemon at work; cleans up when dropped.
pub struct Daemon<C> {
    stop: Option<oneshot::Sender<Ending>>,
    configs: UnboundedSender<C>,
    thread: Option<thread::JoinHandle<Result<(), AgentError>>>,
}

/// How a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    CleanUp,
    Keep,
    Killed,
}

/// What a daemon calls when it is ready, and what ends it.
pub type Ready = Box<dyn FnOnce()>;
pub type Stopped = Pin<Box<dyn Future<Output = Shutdown>>>;

impl<C: Send + 'static> Daemon<C> {
    /// Starts what `run` makes of the configurations to come; the receiver gets a message when it is ready.
    pub fn spawn<D>(
        node: &NetNs,
        run: impl FnOnce(UnboundedReceiver<C>, Ready, Stopped) -> D + Send + 'static,
    ) -> (Daemon<C>, mpsc::Receiver<()>)
    where
        D: Future<Output = Result<(), AgentError>>,
    {
        let namespace = node.as_fd().try_clone_to_owned().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let (configs, changed) = unbounded_channel();
        let thread = thread::spawn(move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (shut, shutdown) = oneshot::channel();
            let shutdown = async { shutdown.await.unwrap_or(Shutdown::CleanUp) };
            let daemon = run(changed, Box::new(move || ready.send(()).unwrap()), Box::pin(shutdown));
            runtime.block_on(async {
                tokio::pin!(daemon);
                let ending = tokio::select! {
                    ended = &mut daemon => return ended,
                    ending = stopped => ending.unwrap_or(Ending::CleanUp),
                };
                match ending {
                    // What the kernel sees of a kill: everything is closed, and nothing cleared up.
                    Ending::Killed => return Ok(()),
                    Ending::Keep => shut.send(Shutdown::Keep).unwrap(),
                    Ending::CleanUp => shut.send(Shutdown::CleanUp).unwrap(),
                }
                daemon.await
            })
        });
        (Daemon { stop: Some(stop), configs, thread: Some(thread) }, is_ready)
    }

    /// Makes it take another configuration.
    pub fn configure(&self, config: C) {
        assert!(self.configs.send(config).is_ok(), "the daemon has ended");
    }

    pub fn end(mut self, ending: Ending) -> Result<(), AgentError> {
        let _ = self.stop.take().unwrap().send(ending);
        self.thread.take().unwrap().join().unwrap()
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> Result<(), AgentError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl<C> Drop for Daemon<C> {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().map(thread::JoinHandle::join);
    }
}
