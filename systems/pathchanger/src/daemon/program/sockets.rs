//! All connections of the network namespace at once, by iterators over its sockets.

use std::{io::Read, net::SocketAddr};

use libbpf_rs::Iter;
use sidestep_linux::{
    LinuxError, Result,
    bpf::{failed, program},
};
use sidestep_net::Time;
use sidestep_policy::{Reason, Stay};

use super::{HostProgram, end};

/// A connection that the program manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConnection {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Whether the other end opened it.
    pub passive: bool,
    /// The ID of the path that it is on.
    pub path: u32,
    /// When it opened, by `CLOCK_MONOTONIC`, to within a round trip or so; `None`: nothing has happened to it yet, so that
    /// nothing is stored of it but its path.
    pub opened: Option<Time>,
    /// The last decision, and why; `None`: none since it opened.
    pub decided: Option<(Time, Reason)>,
    /// The last signal, and what kept the connection on its path, if something did; `None`: there was no signal.
    pub signal: Option<Signal>,
    /// Decisions since it opened.
    pub decisions: u32,
    /// Decisions that changed the path, and moves because its path was gone.
    pub moves: u32,
    /// Signals that led to no decision.
    pub suppressed: u32,
}

/// A signal of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// When it came, by `CLOCK_MONOTONIC`.
    pub at: Time,
    /// What it was.
    pub reason: Reason,
    /// What kept the connection on its path; `None`: nothing did, it moved.
    pub stay: Option<Stay>,
}

/// Bytes of `struct host_status`.
const STATUS_LEN: usize = 80;

impl HostProgram {
    /// The connections of the calling thread's network namespace.
    pub fn connections(&self) -> Result<Vec<HostConnection>> {
        let bytes = self.iterate("sidestep_list")?;
        Ok(bytes.chunks_exact(STATUS_LEN).filter_map(read_status).collect())
    }

    /// Makes all connections take note of changed paths; releases those whose destination has no paths any more.
    pub fn adopt_paths(&self) -> Result<()> {
        self.iterate("sidestep_adopt").map(drop)
    }

    /// Makes connections with a path look their route up again, as rules and routes were missing for a while.
    pub fn reroute_connections(&self) -> Result<()> {
        self.iterate("sidestep_lookup").map(drop)
    }

    /// Releases all connections: their marks become what they were before.
    pub fn leave_connections(&self) -> Result<()> {
        self.iterate("sidestep_leave").map(drop)
    }

    pub(super) fn iterate(&self, name: &str) -> Result<Vec<u8>> {
        let what = || format!("visiting connections with {name}");
        let link = program(&self.object, name)?.attach().map_err(|error| failed(what(), &error))?;
        let mut iterator = Iter::new(&link).map_err(|error| failed(what(), &error))?;
        let mut bytes = Vec::new();
        iterator.read_to_end(&mut bytes).map_err(|error| LinuxError::io(what(), error))?;
        Ok(bytes)
    }
}

pub(super) fn read_status(bytes: &[u8]) -> Option<HostConnection> {
    let bytes: &[u8; STATUS_LEN] = bytes.try_into().ok()?;
    let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let time = |at: usize| {
        let nanos = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        (nanos > 0).then(|| Time::from_nanos(nanos))
    };
    let address = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap_or_default();
    let reason = *Reason::ALL.get(usize::from(bytes[60]))?;
    let signal = *Reason::ALL.get(usize::from(bytes[62]))?;
    let stay = Stay::from_raw(bytes[63].into());
    Some(HostConnection {
        local: end(address(24), u16_at(56)),
        remote: end(address(40), u16_at(58)),
        passive: bytes[61] != 0,
        path: u32_at(64),
        opened: time(0),
        decided: time(8).map(|at| (at, reason)),
        signal: time(16).map(|at| Signal { at, reason: signal, stay }),
        decisions: u32_at(68),
        moves: u32_at(72),
        suppressed: u32_at(76),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_as_the_kernel_writes_them() {
        let mut bytes = [0u8; STATUS_LEN];
        assert_eq!(read_status(&bytes).unwrap().opened, None, "a connection of which nothing is stored");
        bytes[..8].copy_from_slice(&7u64.to_ne_bytes());
        bytes[40..56].copy_from_slice(&"fd02:0:9::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        bytes[58..60].copy_from_slice(&443u16.to_ne_bytes());
        bytes[60] = 3;
        bytes[64..68].copy_from_slice(&5u32.to_ne_bytes());
        bytes[72..76].copy_from_slice(&2u32.to_ne_bytes());
        let connection = read_status(&bytes).unwrap();
        assert_eq!(
            (connection.remote, connection.path, connection.moves),
            ("[fd02:0:9::1]:443".parse().unwrap(), 5, 2)
        );
        assert_eq!((connection.decided, connection.signal, connection.passive), (None, None, false));
        bytes[8..16].copy_from_slice(&9u64.to_ne_bytes());
        assert_eq!(read_status(&bytes).unwrap().decided, Some((Time::from_nanos(9), Reason::Rto)));
        bytes[16..24].copy_from_slice(&11u64.to_ne_bytes());
        (bytes[62], bytes[63]) = (4, 2);
        let signal = Signal { at: Time::from_nanos(11), reason: Reason::SynTimeout, stay: Some(Stay::OnlyPath) };
        assert_eq!(read_status(&bytes).unwrap().signal, Some(signal));
        assert_eq!(read_status(&bytes[1..]), None);
    }
}
