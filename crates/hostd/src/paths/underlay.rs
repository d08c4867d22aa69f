//! What others have in the kernel's tables that paths depend on: routes to first segments, and routes that win over paths.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
};

use sidestep_linux::netlink::{Netlink, NextHop, RoutingChange};

use super::{Exceptions, first_hops};
use crate::{AgentError, routing::KernelRouting};

/// The routes of others that paths depend on, as they were when paths were last put in place.
#[derive(Debug, Default)]
pub struct Underlay {
    /// The first segments of all paths.
    pub firsts: BTreeSet<Ipv6Addr>,
    /// The next hops to those that the kernel has a route to.
    pub hops: BTreeMap<Ipv6Addr, NextHop>,
    /// What the main table has within destinations with paths.
    pub exceptions: Exceptions,
}

impl Underlay {
    /// Whether a change is of a route outside of the daemon's own that leads to a first segment, or into a destination.
    pub fn concerns(&self, routing: &KernelRouting, change: &RoutingChange) -> bool {
        let RoutingChange::Route { route, added } = change else { return false };
        let (table, destination) = (route.table(), route.destination());
        !routing.owns(table, destination)
            && (self.firsts.iter().any(|first| destination.contains(&IpAddr::from(*first)))
                || self.exceptions.differ_by(table, destination, *added))
    }

    /// Whether a path begins with another hop than it did, or other routes win over paths.
    pub async fn has_changed(&self, netlink: &Netlink) -> Result<bool, AgentError> {
        Ok(first_hops(netlink, &self.firsts).await? != self.hops || self.exceptions.changed(netlink).await?)
    }
}
