//! What hosts and edges share of the kernel: numbers of tables and rules, bits of the mark, and first hops.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
    ops::RangeInclusive,
};

use sidestep_linux::{
    LinuxError,
    bpf::MAX_SLOTS,
    netlink::{Netlink, NextHop},
};

use crate::AgentError;

/// The kernel's tables: default, main and local.
const KERNEL_TABLES: RangeInclusive<u32> = 253..=255;
/// Priorities between the kernel's rules for the tables local (0) and main (32766).
const PRIORITIES: RangeInclusive<u32> = 1..=32_765;

/// The routing tables of paths.
pub fn tables(base: u32) -> RangeInclusive<u32> {
    base.saturating_add(1)..=base.saturating_add(MAX_SLOTS)
}

/// Refuses tables and priorities that are the kernel's own.
pub fn check_reserved(base: u32, priority: u32) -> Result<(), AgentError> {
    let tables = tables(base);
    if base == 0 || base.checked_add(MAX_SLOTS).is_none() {
        return Err(AgentError::Reserved(format!(
            "the table base {base} leaves no room: its {MAX_SLOTS} tables must have numbers from 2 to {}",
            u32::MAX
        )));
    }
    if tables.start() <= KERNEL_TABLES.end() && KERNEL_TABLES.start() <= tables.end() {
        return Err(AgentError::Reserved(format!(
            "the table base {base} reaches the kernel's own tables (253 default, 254 main, 255 local): choose at most {}, \
             or at least {}",
            KERNEL_TABLES.start() - 1 - MAX_SLOTS,
            KERNEL_TABLES.end()
        )));
    }
    if !PRIORITIES.contains(&priority) {
        return Err(AgentError::Reserved(format!(
            "the rule priority {priority} is not between those of the kernel's rules for the tables local and main: choose \
             {} to {}",
            PRIORITIES.start(),
            PRIORITIES.end()
        )));
    }
    Ok(())
}

/// Refuses to begin in tables that hold routes of others: ours would replace them. An agent that takes over only logs it.
pub async fn check_tables(netlink: &Netlink, base: u32, takes_over: bool) -> Result<(), AgentError> {
    match netlink.foreign_route(tables(base)).await? {
        Some((table, destination)) if takes_over => {
            tracing::warn!(table, %destination, "somebody else has put a route into a table of ours");
            Ok(())
        }
        Some((table, destination)) => Err(AgentError::Foreign { table, destination }),
        None => Ok(()),
    }
}

/// The next hops to these first segments, where the kernel has any.
pub async fn first_hops(
    netlink: &Netlink,
    firsts: &BTreeSet<Ipv6Addr>,
) -> Result<BTreeMap<Ipv6Addr, NextHop>, LinuxError> {
    let mut hops = BTreeMap::new();
    for first in firsts {
        match netlink.route_to(*first).await {
            Ok(hop) => drop(hops.insert(*first, hop)),
            Err(error) if error.is_answer() => {}
            // Paths must not go because a question was lost.
            Err(error) => return Err(error),
        }
    }
    Ok(hops)
}

/// An address as flows are hashed by it: IPv4 within `::ffff:0:0/96`.
pub fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The bits of a mark that are ours.
#[derive(Clone, Copy)]
pub struct MarkBits {
    /// The bits that are the daemon's.
    pub mask: u32,
    /// How many bits are below them.
    pub shift: u32,
}

impl MarkBits {
    /// The bits of this mask.
    pub fn new(mask: u32) -> Self {
        MarkBits { mask, shift: mask.trailing_zeros() }
    }

    /// How many slots there are beside zero, which is the default route: as many as the bits can distinguish, and no more than
    /// there are tables.
    pub fn slots(self) -> u32 {
        self.mask.checked_shr(self.shift).unwrap_or(0).min(MAX_SLOTS)
    }
}
