//! The addresses and routes of the host, as the kernel has them now.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use sidestep_hostd::AgentError;
use sidestep_linux::{
    mptcp::HostQueries,
    netlink::{Family, Netlink, PROTOCOL},
};

use super::addresses::{AddressStatus, AddressesConfig, Judged, Link, PathsOf};

/// Reads addresses, and asks the kernel for routes.
pub(super) struct HostNetwork {
    queries: HostQueries,
    judged: Judged,
    /// The marks by which the host agent leads packets of its connections.
    marks: BTreeSet<(bool, u32)>,
}

impl HostNetwork {
    /// Of the calling thread's network namespace; nothing is read yet.
    pub(super) fn open() -> Result<Self, AgentError> {
        Ok(HostNetwork { queries: HostQueries::open()?, judged: Judged::default(), marks: BTreeSet::new() })
    }

    /// Reads the addresses, and what a host agent leads elsewhere.
    pub(super) async fn read(&mut self, config: &AddressesConfig) -> Result<(), AgentError> {
        let netlink = Netlink::open()?;
        let links: BTreeMap<u32, Link> = netlink
            .interfaces()
            .await?
            .into_iter()
            .map(|one| (one.index, Link { name: one.name, running: one.running, loopback: one.loopback }))
            .collect();
        self.judged = config.judge(&self.queries.addresses()?, &links);
        self.marks = match config.paths {
            PathsOf::Routes => BTreeSet::new(),
            PathsOf::Agent => {
                let rules = netlink.rules().await?;
                let ours =
                    rules.iter().filter(|rule| rule.protocol == PROTOCOL && rule.mask != 0 && rule.source.is_none());
                ours.map(|rule| (rule.family == Family::V4, rule.mark)).collect()
            }
        };
        Ok(())
    }

    /// The addresses that subflows may begin from.
    pub(super) fn usable(&self) -> Vec<IpAddr> {
        self.judged.usable.keys().copied().collect()
    }

    /// The addresses of interfaces that work.
    pub(super) fn present(&self) -> BTreeSet<IpAddr> {
        self.judged.present.iter().copied().collect()
    }

    /// Whether a packet from this address to `remote` leaves by the address's own interface: without a mark, or with one of the
    /// host agent's.
    pub(super) fn leaves(&mut self, local: IpAddr, remote: IpAddr) -> bool {
        // Of others the kernel itself reports what it can.
        let Some(wanted) = self.judged.usable.get(&local).copied() else { return true };
        let agents = self.marks.iter().filter(|(is_v4, _)| *is_v4 == local.is_ipv4()).map(|(_, mark)| *mark);
        let marks: Vec<u32> = [0].into_iter().chain(agents).collect();
        let mut leaves_by = |mark| match self.queries.output_interface(local, remote, mark) {
            Ok(interface) => interface.is_some_and(|interface| wanted.is_none_or(|wanted| wanted == interface)),
            Err(error) => {
                tracing::debug!(%error, "no route is taken for one");
                false
            }
        };
        marks.into_iter().any(&mut leaves_by)
    }

    /// What each address is good for, with those from which no route leads to the other end of some connection.
    pub(super) fn status(&self, unroutable: impl Iterator<Item = (IpAddr, IpAddr)>) -> Vec<AddressStatus> {
        let mut nowhere: BTreeMap<IpAddr, IpAddr> = BTreeMap::new();
        nowhere.extend(unroutable);
        let with_routes = |one: &AddressStatus| {
            let no_route =
                || nowhere.get(&one.address).map(|remote| format!("no route by {} to {remote}", one.interface));
            AddressStatus { why_not: one.why_not.clone().or_else(no_route), ..one.clone() }
        };
        self.judged.all.iter().map(with_routes).collect()
    }
}
