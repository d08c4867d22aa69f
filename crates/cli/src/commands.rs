//! What the commands of the daemons do, and those about the program itself.

pub mod agent;
pub mod daemons;
pub mod doctor;
pub mod edge;
pub mod explain;
pub mod manual;
pub mod mptcp_pm;
mod obstacles;
pub mod reflector;
mod signals;
pub mod top;
mod watch;

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use sidestep_net::ParseError;

use crate::failure::{Failure, Outcome};

/// Reads a text file that the user named.
pub fn read(path: &Path) -> Result<String, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    ParseError::check_text(bytes).map_err(|error| Failure::usage(error.in_file(path.display().to_string())))
}

/// Writes a file whole, over one that exists only where that is wanted.
fn write_new(path: &Path, text: &str, force: bool) -> Outcome {
    let failed = |error: std::io::Error| Failure::run(format!("{}: {error}", path.display()));
    if force {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        fs::write(&beside, text).map_err(failed)?;
        return fs::rename(&beside, path).map_err(failed);
    }
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format!("{} exists; --force writes over it", path.display())),
        _ => failed(error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| {
        // Half a file would make the next attempt fail.
        let _ = fs::remove_file(path);
        failed(error)
    })
}

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
    println!("{text}");
    Ok(())
}

/// Threads for what would hold up the loop of a daemon, such as computing paths.
const BLOCKING_THREADS: usize = 4;

/// A runtime with one thread: none of our daemons has work for more.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.max_blocking_threads(BLOCKING_THREADS).enable_all().build().map_err(Failure::run)
}

/// Becomes true when the user, or the system, wants the process to end.
pub fn until_signalled() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::run)?;
    }
    Ok(stop)
}
