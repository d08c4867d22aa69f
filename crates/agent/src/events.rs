//! The record of what the path changer did, one JSON object a line.

use std::{
    fs::File,
    io::{BufWriter, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sidestep_linux::bpf::host::{Event, EventKind};

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
                (if event.from == event.to { "stayed" } else { "moved" }, Some(reason.name().to_string()))
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

impl EventLog {
    /// Starts a new record, of a dry run or not.
    pub fn create(path: &Path, dry_run: bool) -> Result<Self, AgentError> {
        let file = File::create(path).map_err(|source| AgentError::File { path: path.into(), source })?;
        Ok(EventLog { path: path.into(), file: BufWriter::new(file), dry_run })
    }

    /// Adds a line.
    pub fn write(&mut self, event: &Event) -> Result<(), AgentError> {
        let failed = |source| AgentError::File { path: self.path.clone(), source };
        let record = EventRecord { dry_run: self.dry_run, ..EventRecord::from(event) };
        serde_json::to_writer(&mut self.file, &record).map_err(|error| failed(error.into()))?;
        self.file.write_all(b"\n").map_err(failed)
    }

    /// Makes what was added visible to readers.
    pub fn flush(&mut self) -> Result<(), AgentError> {
        self.file.flush().map_err(|source| AgentError::File { path: self.path.clone(), source })
    }
}
