//! The record of what the path changer did, one JSON object a line.

use std::{cell::RefCell, collections::BTreeMap, net::SocketAddr, rc::Rc};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_hostd::{
    AgentError,
    paths::{DestinationPaths, HostPath},
};
use sidestep_linux::monotonic_now;
use sidestep_net::Time;

use super::{
    quality::Prefixes,
    record_file::{RecordFile, RecordLog},
    summary,
};
use crate::daemon::program::{Event, EventKind, Events};

/// One line of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// `opened`, `moved`, `stayed`, or `reset`: the agent ended it, as it was stuck on a dead path.
    pub kind: String,
    /// The signal, for `moved` and `stayed`.
    pub reason: Option<String>,
    /// What kept it on its path, for `stayed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stay: Option<String>,
    /// Path ID before; zero for `opened`.
    pub from: u32,
    /// Path ID after.
    pub to: u32,
    /// Name of the path before; absent for `opened`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_name: Option<String>,
    /// Name of the path after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_name: Option<String>,
    /// Whether the other end opened the connection.
    pub passive: bool,
    /// Whether the agent only records what it would do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The line of a record that reports that other paths are in place than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathsRecord {
    /// When they were in place: `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// `paths`.
    pub kind: String,
    /// When they were received: `CLOCK_MONOTONIC`, in nanoseconds.
    #[serde(rename = "heard_ns")]
    pub received_ns: u64,
    /// How many destinations have paths.
    pub destinations: usize,
    /// The paths to each destination.
    #[serde(default)]
    pub sets: Vec<SetRecord>,
}

/// The paths to one destination, as a record has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRecord {
    /// The destination prefix.
    pub destination: IpNet,
    /// The paths.
    pub paths: Vec<PathRecord>,
}

/// A path, as a record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Its Path ID.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The mark slot that leads along it; zero in a record of an earlier version.
    #[serde(default)]
    pub slot: u32,
}

/// Any line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventLine {
    /// What happened to a connection.
    Connection(EventRecord),
    /// Other paths are in place, whether from the file or from the controller.
    Paths(PathsRecord),
}

/// The record of events, shared with the callback that receives them.
#[derive(Clone)]
pub(super) struct Recorder(Rc<RefCell<Recording>>);

struct Recording {
    log: Option<RecordLog>,
    dry_run: bool,
    destinations: Prefixes,
    /// The names of paths, by destination and Path ID.
    names: BTreeMap<(IpNet, u32), String>,
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
            stay: event.stay.map(|stay| stay.to_string()),
            from: event.from,
            to: event.to,
            from_name: None,
            to_name: None,
            passive: event.passive,
            dry_run: false,
        }
    }
}

impl PathsRecord {
    /// Paths that were received at one instant and in place at another.
    pub fn new(at: Time, received: Time, sets: Vec<SetRecord>) -> Self {
        let (at_ns, received_ns, destinations) = (at.as_nanos(), received.as_nanos(), sets.len());
        PathsRecord { at_ns, kind: "paths".into(), received_ns, destinations, sets }
    }
}

impl From<&DestinationPaths> for SetRecord {
    fn from(set: &DestinationPaths) -> Self {
        let path = |path: &HostPath| PathRecord { id: path.id, name: path.name.clone(), slot: path.slot };
        SetRecord { destination: set.destination, paths: set.paths.iter().map(path).collect() }
    }
}

impl Recorder {
    /// Into a file, if one is named, and into the log.
    pub(super) fn new(file: Option<RecordFile>, dry_run: bool) -> Self {
        Recorder(Rc::new(RefCell::new(Recording {
            log: file.map(RecordLog::open),
            dry_run,
            destinations: Prefixes::default(),
            names: BTreeMap::new(),
        })))
    }

    /// Records an event.
    pub(super) fn write(&self, event: &Event) {
        let Recording { log, dry_run, destinations, names } = &mut *self.0.borrow_mut();
        let destination = destinations.covering(event.remote.ip());
        let name = |id: u32| names.get(&(destination?, id));
        summary::log_event(event, name(event.from), name(event.to));
        if let Some(log) = log {
            let (from_name, to_name) = (name(event.from).cloned(), name(event.to).cloned());
            log.line(&EventRecord { dry_run: *dry_run, from_name, to_name, ..EventRecord::from(event) });
        }
    }

    /// Records that a connection which was stuck on this path was ended, or in a dry run would have been.
    pub(super) fn reset(&self, at: Time, (local, remote): (SocketAddr, SocketAddr), path: u32) {
        let Recording { log, dry_run, destinations, names } = &mut *self.0.borrow_mut();
        let Some(log) = log else { return };
        let destination = destinations.covering(remote.ip());
        let name = destination.and_then(|destination| names.get(&(destination, path)).cloned());
        log.line(&EventRecord {
            at_ns: at.as_nanos(),
            local,
            remote,
            kind: "reset".into(),
            reason: None,
            stay: None,
            from: path,
            to: path,
            from_name: name.clone(),
            to_name: name,
            passive: false,
            dry_run: *dry_run,
        });
        log.flush();
    }

    /// Takes note of what paths are called.
    pub(super) fn name(&self, sets: &[DestinationPaths]) {
        let mut recording = self.0.borrow_mut();
        recording.destinations = sets.iter().map(|set| set.destination).collect();
        let paths = sets.iter().flat_map(|set| set.paths.iter().map(|path| (set.destination, path)));
        recording.names = paths.map(|(net, path)| ((net, path.id), path.name.clone())).collect();
    }

    /// Records that paths which came at `received` are in place.
    pub(super) fn paths(&self, received: Time, sets: &[DestinationPaths]) {
        if let Some(log) = &mut self.0.borrow_mut().log {
            let sets = sets.iter().map(SetRecord::from).collect();
            log.line(&PathsRecord::new(monotonic_now(), received, sets));
            log.flush();
        }
    }

    /// Records the events that wait, and makes them visible to readers; returns how many records were lost.
    pub(super) fn take(&self, events: &Events<'_>) -> Result<u64, AgentError> {
        events.consume()?;
        let log = &mut self.0.borrow_mut().log;
        Ok(log.as_mut().map_or(0, |log| {
            log.flush();
            log.take_lost()
        }))
    }
}
