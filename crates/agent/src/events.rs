//! The record of what the path changer did, one JSON object a line.

use std::{
    fs::File,
    io::{BufWriter, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sidestep_linux::bpf::host::{Event, EventKind};
use sidestep_model::Time;

use crate::AgentError;

/// One line of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// `opened`, `moved` or `stayed`.
    pub kind: String,
    /// The signal, for `moved` and `stayed`.
    pub reason: Option<String>,
    /// Path ID before; zero for `opened`.
    pub from: u32,
    /// Path ID after.
    pub to: u32,
    /// Whether the other end opened the connection.
    pub passive: bool,
    /// Whether the agent only records what it would do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The line of a record that says that other paths came from the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathsRecord {
    /// When they were in place: `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// `paths`.
    pub kind: String,
    /// When they were heard of.
    pub heard_ns: u64,
    /// How many destinations have paths.
    pub destinations: usize,
}

/// Any line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventLine {
    /// Of a connection.
    Connection(EventRecord),
    /// Of paths.
    Paths(PathsRecord),
}

/// A file of records.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: BufWriter<File>,
    dry_run: bool,
}

impl From<&Event> for EventRecord {
    fn from(event: &Event) -> Self {
        let (kind, reason) = match event.kind {
            EventKind::Opened => ("opened", None),
            EventKind::Decided(reason) => {
                (if event.from == event.to { "stayed" } else { "moved" }, Some(reason.to_string()))
            }
        };
        EventRecord {
            at_ns: event.at.as_nanos(),
            local: event.local,
            remote: event.remote,
            kind: kind.into(),
            reason,
            from: event.from,
            to: event.to,
            passive: event.passive,
            dry_run: false,
        }
    }
}

impl PathsRecord {
    /// Paths heard of at one instant and in place at another.
    pub fn new(at: Time, heard: Time, destinations: usize) -> Self {
        PathsRecord { at_ns: at.as_nanos(), kind: "paths".into(), heard_ns: heard.as_nanos(), destinations }
    }
}

impl EventLog {
    /// Starts a new record, of a dry run or not.
    pub fn create(path: &Path, dry_run: bool) -> Result<Self, AgentError> {
        let file = File::create(path).map_err(|source| AgentError::File { path: path.into(), source })?;
        Ok(EventLog { path: path.into(), file: BufWriter::new(file), dry_run })
    }

    /// Adds a line.
    pub fn write(&mut self, event: &Event) -> Result<(), AgentError> {
        self.line(&EventRecord { dry_run: self.dry_run, ..EventRecord::from(event) })
    }

    /// Adds a line about paths.
    pub fn paths(&mut self, record: &PathsRecord) -> Result<(), AgentError> {
        self.line(record)
    }

    fn line(&mut self, record: &impl Serialize) -> Result<(), AgentError> {
        let failed = |source| AgentError::File { path: self.path.clone(), source };
        serde_json::to_writer(&mut self.file, record).map_err(|error| failed(error.into()))?;
        self.file.write_all(b"\n").map_err(failed)
    }

    /// Makes what was added visible to readers.
    pub fn flush(&mut self) -> Result<(), AgentError> {
        self.file.flush().map_err(|source| AgentError::File { path: self.path.clone(), source })
    }
}
