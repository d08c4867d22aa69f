//! What each command does.

pub mod bench;
pub mod daemons;
pub mod lab;
pub mod traffic;

use std::path::Path;

use crate::failure::Failure;

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

/// A runtime with one thread: none of our daemons has work for more.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::run)
}
