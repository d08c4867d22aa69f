//! How what the kernel routes out of a managed interface gets into the process: by a program at tc, or by routes.

mod filters;
mod routes;
mod state;

use sidestep_linux::{
    Result,
    netlink::{Interface, Netlink},
};
use sidestep_net::{Rate, Time};

pub use self::{
    filters::{Filters, Programs, remove},
    routes::{PortEntries, RouteTable},
    state::Mode,
};

/// What the program knows of a managed interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortEntry {
    /// The index of the port's TUN device.
    pub tun: u32,
    /// Whether packets are diverted at all.
    pub up: bool,
    /// Whether what the process writes into the device leaves here, and passes: an edge.
    pub edge: bool,
    /// Whether of other protocols than TCP all pass: an edge without a rate.
    pub tcp_only: bool,
    /// Whether frames of the interface begin with an Ethernet header.
    pub ethernet: bool,
    /// Longer packets, and super-packets of longer segments, pass: there is no room for the shim.
    pub max_len: u32,
    /// The rate above which an idle router begins to divert; zero: this port does not make it begin.
    pub rate: Rate,
}

/// What became of the packets that the kernel has routed out of an interface. A super-packet counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DivertCounts {
    /// Diverted into the TUN device, which counts those for which it has no room.
    pub diverted: u64,
    /// Passed, as the port is not up.
    pub down: u64,
    /// Passed, as the process gives no sign of life.
    pub stale: u64,
    /// Passed: the router's own, or what came from the process.
    pub own: u64,
    /// Passed: no IP.
    pub other: u64,
    /// Passed: too long.
    pub oversize: u64,
    /// Passed: not TCP, or a fragment of it, where only TCP is diverted.
    pub not_tcp: u64,
    /// Passed, as the router is idle.
    pub idle: u64,
    /// Bytes of what was diverted.
    pub bytes: u64,
}

/// The way into the process.
#[derive(Debug)]
pub enum Divert {
    /// Programs at tc.
    Filters(Filters),
    /// Routes, which the daemon sets.
    Routes(PortEntries),
}

impl Divert {
    /// See [`Filters::attach`].
    pub async fn attach(&self, netlink: &Netlink, interface: &Interface) -> Result<()> {
        match self {
            Divert::Filters(filters) => filters.attach(netlink, interface).await,
            Divert::Routes(_) => Ok(()),
        }
    }

    /// See [`Filters::attach_reinject`]. Without programs what the process writes for an edge is routed.
    pub async fn attach_reinject(&self, netlink: &Netlink, tun: u32, interface: u32) -> Result<()> {
        match self {
            Divert::Filters(filters) => filters.attach_reinject(netlink, tun, interface).await,
            Divert::Routes(_) => Ok(()),
        }
    }

    /// How its programs are known, if it has some.
    pub fn programs(&self) -> Option<Programs> {
        match self {
            Divert::Filters(filters) => Some(filters.programs()),
            Divert::Routes(_) => None,
        }
    }

    /// What its routes should be, if it has some.
    pub fn routed(&self) -> Option<&PortEntries> {
        match self {
            Divert::Filters(_) => None,
            Divert::Routes(entries) => Some(entries),
        }
    }

    /// Sets what becomes of the packets of an interface.
    pub fn set_port(&self, interface: u32, entry: &PortEntry) -> Result<()> {
        match self {
            Divert::Filters(filters) => filters.set_port(interface, entry),
            Divert::Routes(entries) => {
                entries.set(interface, Some(*entry));
                Ok(())
            }
        }
    }

    /// Forgets an interface, whose packets then pass, and its counts, and a TUN device; what is not known is fine.
    pub fn remove_port(&self, interface: u32, tun: u32) -> Result<()> {
        match self {
            Divert::Filters(filters) => filters.remove_port(interface, tun),
            Divert::Routes(entries) => {
                entries.set(interface, None);
                Ok(())
            }
        }
    }

    /// See [`Filters::beat`]. Routes need no sign of life: they go with the devices.
    pub fn beat(&self, now: Time) {
        if let Divert::Filters(filters) = self {
            filters.beat(now);
        }
    }

    /// See [`Filters::stop`].
    pub fn stop(&self) {
        if let Divert::Filters(filters) = self {
            filters.stop();
        }
    }

    /// See [`Filters::set_mode`].
    pub fn set_mode(&self, mode: Mode) {
        if let Divert::Filters(filters) = self {
            filters.set_mode(mode);
        }
    }

    /// What becomes of packets now.
    pub fn mode(&self) -> Mode {
        match self {
            Divert::Filters(filters) => filters.mode(),
            Divert::Routes(_) => Mode::Divert,
        }
    }

    /// What became of the packets of an interface since it was set first; all zero for one that is not known, and with routes.
    pub fn counts(&self, interface: u32) -> Result<DivertCounts> {
        match self {
            Divert::Filters(filters) => filters.counts(interface),
            Divert::Routes(_) => Ok(DivertCounts::default()),
        }
    }
}

/// Removes our filters, rules and routes, also those that killed processes have left; returns whether there were any.
pub async fn remove_all(netlink: &Netlink) -> Result<bool> {
    let removed = filters::remove_all(netlink).await?;
    Ok(routes::remove(netlink).await? || removed)
}
