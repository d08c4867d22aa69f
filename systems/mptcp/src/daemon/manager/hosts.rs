//! What the host's addresses and routes mean for subflows.

use std::{collections::BTreeSet, net::IpAddr};

use sidestep_linux::mptcp::{NewSubflow, Token};

use super::{Manager, NUMBERS};

/// The host, as far as it matters to where a connection may have subflows.
#[derive(Debug, Default)]
pub(in crate::daemon) struct HostView {
    /// Addresses that subflows between all pairs may begin from, in addition to that of the first.
    pub(in crate::daemon) addresses: Vec<IpAddr>,
    /// Addresses that were there and are not, among them those of interfaces that are down.
    pub(in crate::daemon) gone: BTreeSet<IpAddr>,
    /// From where to where no route leads by the address's own interface.
    pub(in crate::daemon) unroutable: BTreeSet<(IpAddr, IpAddr)>,
    /// All addresses that are there.
    present: BTreeSet<IpAddr>,
}

/// The most pairs of addresses without a route that are remembered.
const MAX_UNROUTABLE: usize = 65_536;

impl Manager {
    /// Takes the addresses that subflows may begin from; those beyond the most that have a number are not used.
    pub fn handle_addresses(&mut self, mut addresses: Vec<IpAddr>) {
        for address in &addresses {
            let is_free = |number: &u8| !self.numbers.contains_key(number);
            let is_over = |number: &u8| self.numbers.get(number).is_none_or(|old| !addresses.contains(old));
            if self.number_of(*address).is_none()
                && let Some(number) = NUMBERS.clone().find(is_free).or_else(|| NUMBERS.clone().find(is_over))
            {
                self.numbers.insert(number, *address);
            }
        }
        addresses.retain(|address| self.number_of(*address).is_some());
        if self.host.addresses == addresses {
            return;
        }
        let new: BTreeSet<IpAddr> =
            addresses.iter().filter(|address| !self.host.addresses.contains(address)).copied().collect();
        self.host.addresses = addresses;
        self.encourage(&new);
        self.look_at_all();
    }

    /// Takes all addresses of interfaces that work. Subflows from one that was there and is not any more are ended, as soon as
    /// their connection has another one that works.
    pub fn handle_present(&mut self, present: BTreeSet<IpAddr>) {
        if self.host.present == present {
            return;
        }
        let before = std::mem::replace(&mut self.host.present, present);
        let back: BTreeSet<IpAddr> = self.host.gone.intersection(&self.host.present).copied().collect();
        let went: Vec<IpAddr> = before.difference(&self.host.present).copied().collect();
        self.host.gone.retain(|address| !back.contains(address));
        self.host.gone.extend(went);
        self.forget_unused_gone();
        if !back.is_empty() {
            self.encourage(&back);
        }
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.end_stranded(token));
        self.look_at_all();
    }

    /// Whether a subflow is wanted only if a route leads to its other end by the interface of its address.
    pub fn needs_route(&self, subflow: &NewSubflow) -> bool {
        let connection = self.connections.get(&subflow.token);
        connection.is_some_and(|connection| connection.first.ends.local.ip() != subflow.local.ip())
    }

    /// Notes that routes or rules have changed: what had no route may have one.
    pub fn handle_routes(&mut self) {
        if !self.host.unroutable.is_empty() {
            self.host.unroutable.clear();
            self.look_at_all();
        }
    }

    /// Notes that no route leads from a subflow's address to its other end by the address's interface: the subflow was not asked
    /// for, and is not wanted until [routes change](Self::handle_routes).
    pub fn handle_no_route(&mut self, subflow: &NewSubflow) {
        if self.host.unroutable.len() >= MAX_UNROUTABLE {
            self.host.unroutable.clear();
        }
        self.host.unroutable.insert((subflow.local.ip(), subflow.remote.ip()));
        self.queue(subflow.token);
    }

    /// The addresses from which no route leads to the other end of some connection.
    pub(in crate::daemon) fn unroutable(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        self.host.unroutable.iter().copied()
    }

    /// Ends subflows whose address is gone, if another one of the connection works; the other end is notified first.
    pub(super) fn end_stranded(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token).filter(|_| !self.host.gone.is_empty()) else { return };
        if connection.is_kernels {
            return;
        }
        let stranded = connection.stranded(&self.host.gone);
        let own = connection.first.ends.local.ip();
        let opened_here = !connection.first.accepted;
        let addresses: BTreeSet<IpAddr> = stranded.iter().map(|ends| ends.local.ip()).collect();
        let news: Vec<IpAddr> = addresses.into_iter().filter(|address| connection.withdrawn.insert(*address)).collect();
        for address in news {
            let number = if address == own { Some(0) } else { self.number_of(address).filter(|_| opened_here) };
            self.withdrawn.extend(number.map(|number| (token, number)));
        }
        self.dead.extend(stranded.into_iter().map(|ends| (token, ends)));
    }

    /// Makes the next attempt of subflows from these addresses due at once: what failed before does not count for them now.
    fn encourage(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.host.unroutable.retain(|(local, _)| !addresses.contains(local));
        self.connections.values_mut().for_each(|connection| connection.encourage(addresses));
    }

    /// Forgets addresses that are gone and that no connection has.
    fn forget_unused_gone(&mut self) {
        if self.host.gone.is_empty() {
            return;
        }
        let used: BTreeSet<IpAddr> = self
            .connections
            .values()
            .flat_map(|connection| connection.subflows.keys().chain([&connection.first.ends]))
            .map(|ends| ends.local.ip())
            .collect();
        self.host.gone.retain(|address| used.contains(address));
    }
}
