//! What each command does.

pub mod advise;
pub mod agent;
pub mod bench;
mod between;
pub mod compare;
pub mod daemons;
pub mod doctor;
mod flows;
pub mod lab;
pub mod manual;
pub mod maxflow;
pub mod paths;
pub mod repro;
pub mod sim;
pub mod top;
pub mod topo;
pub mod traffic;
mod watch;
mod worlds;

use std::{
    fs::File,
    io::Read,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use sidestep_model::Scenario;

use crate::failure::Failure;

/// The most that is read of a file that a scenario names, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Why the lab does not start for an ordinary user.
const NEEDS_ROOT: &str = "the lab makes network namespaces, for which it must run as root; use sudo";

/// Reads a text file that the user named.
fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
    println!("{text}");
    Ok(())
}

/// Writes a file where the user wants it.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::run(format!("{}: {error}", path.display())))
}

/// A runtime with one thread: none of our daemons has work for more.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::run)
}

/// Reads a scenario file, which its stem names if it does not name itself.
fn read_scenario(path: &Path) -> Result<Scenario, Failure> {
    let stem = path.file_stem().map_or_else(|| "scenario".into(), |stem| stem.to_string_lossy().into_owned());
    // Files that it names are beside it.
    let beside = |name: &str| {
        let file = path.with_file_name(name);
        let mut text = String::new();
        let read = File::open(&file).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
        match read {
            Ok(length) if length as u64 > MAX_FILE => Err(format!("{} has more than 4 MiB", file.display())),
            Ok(_) => Ok(text),
            Err(error) => Err(format!("{}: {error}", file.display())),
        }
    };
    let parsed = Scenario::parse_with_files(&read(path)?, &stem, &beside);
    parsed.map_err(|error| Failure::usage(error.in_file(path.display().to_string())))
}

/// Becomes true when the user, or the system, wants the process to end.
fn until_signalled() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::run)?;
    }
    Ok(stop)
}

/// The command line as the user would type it again.
fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c));
        if plain && !word.is_empty() { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    std::iter::once("sidestep".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
