//! What a daemon runs in, signals to it, and what it reports when it is ready.

use std::{
    env,
    io::{self, Write},
    process,
    sync::{Arc, atomic::AtomicBool},
};

use sidestep_hostd::{READY, Shutdown};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::spawn_blocking,
};

use crate::{Failure, Outcome};

/// Threads for what would hold up the loop of a daemon, such as computing paths.
const BLOCKING_THREADS: usize = 4;

/// A runtime with one thread: none of our daemons has work for more.
pub fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_current_thread();
    builder.max_blocking_threads(BLOCKING_THREADS).enable_all().build().map_err(Failure::run)
}

/// Becomes true when the user, or the system, wants the process to end.
pub fn until_signalled() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::run)?;
    }
    Ok(stop)
}

/// What `read` gives at each SIGHUP, which would otherwise end the daemon.
pub fn at_hangups<T: Send + 'static>(read: impl Fn() -> Option<T> + Send + Sync + 'static) -> UnboundedReceiver<T> {
    let (send, receive) = unbounded_channel();
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return receive };
    let read = Arc::new(read);
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let read = read.clone();
            // The file may be large or far away, and the daemon must not wait.
            if let Ok(Some(value)) = spawn_blocking(move || read()).await {
                drop(send.send(value));
            }
        }
    });
    receive
}

/// What `read` gives of a file at each SIGHUP, if there is one; a failure is logged, and `what` stays what it was.
pub fn reread<T: Send + 'static>(
    what: &'static str,
    read: impl Fn() -> Result<Option<T>, Failure> + Send + Sync + 'static,
) -> UnboundedReceiver<T> {
    at_hangups(move || {
        let failed = |error| tracing::error!("{what} stays what it was: {error}");
        read().map_err(failed).ok().flatten()
    })
}

/// Runs a daemon until it ends; what waits for signals is made in its runtime.
pub fn run_daemon<E>(work: impl AsyncFnOnce() -> Result<(), E>) -> Outcome
where
    Failure: From<E>,
{
    runtime()?.block_on(work()).map_err(Failure::from)
}

/// Completes when a signal ends the agent; SIGUSR2 makes it leave everything to the next one.
///
/// From the call on, and not only from the first poll, these signals do nothing else.
pub fn stopped_or_relieved() -> impl Future<Output = Shutdown> {
    let (stopped, relieved) = (stopped(), signal(SignalKind::user_defined2()));
    async {
        let Ok(mut relieved) = relieved else {
            stopped.await;
            return Shutdown::CleanUp;
        };
        tokio::select! {
            () = stopped => Shutdown::CleanUp,
            _ = relieved.recv() => Shutdown::Keep,
        }
    }
}

/// At each SIGUSR1 starts the program that is now in this one's place, with the same arguments and `option`, so that it takes over.
/// Until it has, this one goes on. To be called in a daemon's runtime.
pub fn succeeded_with(option: &'static str) {
    let Ok(mut asked) = signal(SignalKind::user_defined1()) else { return };
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            if let Err(error) = start_successor(option) {
                tracing::error!("cannot start a successor, and this one goes on: {error}");
            }
        }
    });
}

/// By a shell that ends at once: of a unit whose main process is not its child, the service manager would not see the end.
fn start_successor(option: &str) -> io::Result<()> {
    let mut arguments = env::args_os();
    let program = arguments.next().ok_or(io::ErrorKind::NotFound)?;
    let arguments = arguments.filter(|argument| argument != option);
    let mut shell = process::Command::new("sh");
    shell.args(["-c", "\"$0\" \"$@\" &"]).arg(program).args(arguments).arg(option);
    // The service manager waits for pings, of whichever process it names here.
    let ended = shell.env_remove("WATCHDOG_PID").status()?;
    if ended.success() { Ok(()) } else { Err(io::Error::other(ended.to_string())) }
}

/// Completes when a signal ends a daemon; the signal does nothing else from the call on.
pub fn stopped() -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async {
        // Without handlers the default action ends the process, which is what is wanted.
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// Reports that the daemon is ready.
pub fn announce() {
    println!("{READY}");
    let _ = std::io::stdout().flush();
}
