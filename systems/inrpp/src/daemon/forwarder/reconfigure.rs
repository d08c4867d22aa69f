//! Ports that come, change and go while the others work: another configuration, or interfaces and devices that are others.
//!
//! The thread stands meanwhile, and packets wait in devices and sockets. The core is made anew, and asked again what becomes
//! of the packets that wait.

use std::{collections::BTreeMap, io};

use sidestep_linux::{
    LinuxError, monotonic_now,
    netlink::{Interface, Netlink},
};
use sidestep_net::Time;

use super::{
    super::{
        InrppOptions,
        config::{EdgeConfig, InrppConfig, Link as LinkConfig, NeighbourConfig},
        divert::{self, PortEntries, Programs},
        message::id_of,
    },
    Forwarder,
    port::{Peer, PortIo},
    report::sum,
    start::{Before, core, device, of_neighbour, order, port, rate_of, slots},
};
use crate::{Key, Port};

/// Where a port is, for who looks whether that still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct PortPlace {
    /// The interface, its index and its MTU.
    pub(in super::super) interface: String,
    pub(in super::super) index: u32,
    pub(in super::super) mtu: u32,
    /// Whether the interface is there.
    pub(in super::super) is_present: bool,
    /// The port's device.
    pub(in super::super) tun: u32,
    pub(in super::super) is_edge: bool,
}

/// A port as it is configured.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Neighbour(&'a NeighbourConfig, Option<Key>),
    Edge(&'a EdgeConfig),
}

impl Wanted<'_> {
    fn interface(&self) -> &str {
        match self {
            Wanted::Neighbour(config, _) => &config.interface,
            Wanted::Edge(config) => &config.interface,
        }
    }

    /// Whether a port is to this neighbour, or an edge.
    fn is(&self, port: &PortIo) -> bool {
        let is_alike = match (self, &port.peer) {
            (Wanted::Neighbour(config, _), Peer::Neighbour(neighbour)) => neighbour.name == config.name,
            (Wanted::Edge(_), Peer::Edge) => true,
            _ => false,
        };
        is_alike && port.interface == self.interface()
    }
}

impl Forwarder {
    /// Where the ports are.
    pub(in super::super) fn places(&self) -> Vec<PortPlace> {
        let of = |port: &PortIo| PortPlace {
            interface: port.interface.clone(),
            index: port.index,
            mtu: u32::from(port.mtu),
            is_present: port.is_present,
            tun: port.tun.index(),
            is_edge: !port.has_neighbour(),
        };
        self.ports.iter().map(of).collect()
    }

    /// How the programs that it has put at interfaces are known.
    pub(in super::super) fn programs(&self) -> Option<Programs> {
        self.divert.programs()
    }

    /// What the routes into its devices should be, if there are some.
    pub(in super::super) fn routed(&self) -> Option<PortEntries> {
        self.divert.routed().cloned()
    }

    /// Makes the ports those that are configured, at the interfaces that there are. One that cannot be made is left out until
    /// this is called again; the error says why.
    pub(in super::super) async fn reconfigure(
        &mut self,
        options: &InrppOptions,
        netlink: &Netlink,
    ) -> Result<(), LinuxError> {
        let now = monotonic_now();
        let interfaces = netlink.interfaces().await?;
        let config = &options.config;
        let wanted = wanted(config, &options.keys);
        self.dismiss(now, &wanted);
        let (saved, bytes, waiting) = self.save(now);
        waiting.into_iter().for_each(|handle| self.slots.free(handle));
        let (ports, result) = self.renew(netlink, config, &wanted, &interfaces).await;
        let places: Vec<Option<usize>> =
            saved.ports.iter().map(|had| ports.iter().position(|port| port.interface == had.interface)).collect();
        self.ports = ports;
        self.adopt(config, &places);
        self.take_packets(now, &saved, &bytes, &places);
        self.set_detours(now);
        self.divert.beat(monotonic_now());
        let attached = self.attach_all(netlink).await;
        // Neighbours learn at once who is here, and how.
        self.next_hello = now;
        result.and(attached)
    }

    /// Ports that are not wanted any more say so, and what waits goes by the kernel.
    fn dismiss(&mut self, now: Time, wanted: &[Wanted<'_>]) {
        for at in 0..self.ports.len() {
            let is_wanted = self.ports.get(at).is_some_and(|port| wanted.iter().any(|wanted| wanted.is(port)));
            if is_wanted {
                continue;
            }
            let at = Port(at as u16);
            self.send_hello(now, at, true);
            if let Some(port) = self.ports.get_mut(usize::from(at.0)) {
                port.is_present = false;
            }
            self.set_entry(at);
            self.give_to_kernel(now, at);
        }
        self.flush(now);
    }

    /// The ports that are wanted, those that there are among them, and why one could not be made.
    async fn renew(
        &mut self,
        netlink: &Netlink,
        config: &InrppConfig,
        wanted: &[Wanted<'_>],
        interfaces: &[Interface],
    ) -> (Vec<PortIo>, Result<(), LinuxError>) {
        let mut had = BTreeMap::new();
        let mut result = Ok(());
        for (at, mut port) in std::mem::take(&mut self.ports).into_iter().enumerate() {
            port.before = sum(port.before, self.router.counters(Port(at as u16)));
            if wanted.iter().any(|wanted| wanted.is(&port)) {
                had.insert(port.interface.clone(), port);
            } else {
                result = result.and(self.remove(netlink, &port).await);
            }
        }
        let mut ports = Vec::new();
        for wanted in wanted {
            let interface = interfaces.iter().find(|interface| interface.name == wanted.interface());
            let before = had.remove(wanted.interface());
            let place = before.as_ref().map(|port| (port.index, port.tun.index()));
            match self.renew_port(&config.settings.name, wanted, before, interface, interfaces) {
                Ok(port) => ports.push(port),
                Err(error) => {
                    tracing::warn!(interface = wanted.interface(), "the kernel forwards, as there is no port: {error}");
                    let forgotten = place.map_or(Ok(()), |(index, tun)| self.divert.remove_port(index, tun));
                    result = forgotten.and(Err(error));
                }
            }
        }
        (ports, result)
    }

    /// Removes what a port has beside its descriptors.
    async fn remove(&self, netlink: &Netlink, port: &PortIo) -> Result<(), LinuxError> {
        tracing::info!(interface = port.interface, "the port is removed");
        self.divert.remove_port(port.index, port.tun.index())?;
        divert::remove(netlink, port.index).await.map(drop)
    }

    /// The port that is wanted, as far as possible with what there was.
    fn renew_port(
        &self,
        name: &str,
        wanted: &Wanted<'_>,
        before: Option<PortIo>,
        interface: Option<&Interface>,
        interfaces: &[Interface],
    ) -> Result<PortIo, LinuxError> {
        let Some(interface) = interface else {
            let what = || format!("finding interface {}", wanted.interface());
            let missing = || LinuxError::io(what(), io::Error::from(io::ErrorKind::NotFound));
            // It may come back.
            return before.map(|port| PortIo { is_present: false, ..port }).ok_or_else(missing);
        };
        let Some(mut port_before) = before else {
            return match wanted {
                Wanted::Neighbour(config, key) => of_neighbour(name, config, *key, interface, Before::default()),
                Wanted::Edge(config) => port(interface, Peer::Edge, config.rate, None),
            };
        };
        self.renew_device(&mut port_before, interface, interfaces)?;
        let is_moved = port_before.index != interface.index;
        if is_moved {
            self.divert.remove_port(port_before.index, port_before.tun.index())?;
        }
        port_before.index = interface.index;
        port_before.mtu = interface.mtu.min(u32::from(u16::MAX)) as u16;
        (port_before.ethernet, port_before.is_present) = (interface.ethernet, true);
        match wanted {
            Wanted::Neighbour(config, key) => renew_neighbour(name, config, *key, port_before, interface, is_moved),
            Wanted::Edge(config) => {
                port_before.rate = config.rate.unwrap_or(super::port::UNLIMITED);
                port_before.has_queue = config.rate.is_some();
                Ok(port_before)
            }
        }
    }

    /// A device that was deleted is made again, and one that was set down is up.
    fn renew_device(
        &self,
        port: &mut PortIo,
        interface: &Interface,
        interfaces: &[Interface],
    ) -> Result<(), LinuxError> {
        let tun = interfaces.iter().find(|found| found.name == port.tun.name() && found.index == port.tun.index());
        if let Some(tun) = tun {
            return port.tun.refresh(interface.mtu, tun.mtu);
        }
        self.divert.remove_port(port.index, port.tun.index())?;
        port.tun = device(interface)?;
        port.is_cut = false;
        Ok(())
    }

    /// Goes by other settings, and numbers ports anew: `places` has the new number of each.
    fn adopt(&mut self, config: &InrppConfig, places: &[Option<usize>]) {
        let settings = &config.settings;
        self.connections.renumber(|port| {
            let at = places.get(usize::from(port.0)).copied().flatten()?;
            Some(Port(at as u16))
        });
        self.connections.set_max(settings.flows as usize);
        if settings.resequence != self.settings.resequence {
            self.order = order(settings);
        }
        self.id = id_of(&settings.name);
        self.slots = slots(settings, &self.ports);
        self.settings = settings.clone();
        match core(settings, &self.ports) {
            Ok(router) => self.router = router,
            // Settings are checked, so that this does not happen.
            Err(error) => tracing::error!("the caches stay what they were: {error}"),
        }
        // Nobody has listened meanwhile.
        let now = monotonic_now();
        self.ports.iter_mut().filter_map(PortIo::neighbour).for_each(|neighbour| neighbour.excuse(now));
    }
}

/// The ports that are configured, in their order.
fn wanted<'a>(config: &'a InrppConfig, keys: &[Option<Key>]) -> Vec<Wanted<'a>> {
    let neighbours = config.neighbours.iter().zip(keys).map(|(neighbour, key)| Wanted::Neighbour(neighbour, *key));
    neighbours.chain(config.edges.iter().map(Wanted::Edge)).collect()
}

/// The port to a neighbour whose link, key, rate or interface may be others.
fn renew_neighbour(
    name: &str,
    config: &NeighbourConfig,
    key: Option<Key>,
    mut before: PortIo,
    interface: &Interface,
    is_moved: bool,
) -> Result<PortIo, LinuxError> {
    let Peer::Neighbour(neighbour) = &mut before.peer else { return Ok(before) };
    let is_known = neighbour.session.is_of(name, Some(&config.name), key);
    let is_open = neighbour.link_config == config.link && !(is_moved && is_bound(&config.link));
    if !is_known || !is_open {
        let PortIo { tun, peer, before: done, sent_packets, sent_bytes, lost, .. } = before;
        let mut before = Before { tun: Some(tun), ..Before::default() };
        // Its descriptors are closed first: the next has the same address.
        if let Peer::Neighbour(neighbour) = peer
            && is_known
        {
            before.received = (neighbour.received_packets, neighbour.received_bytes);
            before.at_its_hello = neighbour.at_its_hello;
            before.session = Some(neighbour.session);
        }
        let made = of_neighbour(name, config, key, interface, before)?;
        return Ok(PortIo { before: done, sent_packets, sent_bytes, lost, ..made });
    }
    let (rate, follows) = rate_of(config);
    let keeps_rate = follows && neighbour.follows;
    (neighbour.follows, neighbour.most, neighbour.is_border) = (follows, rate, config.border);
    before.rate = if keeps_rate { before.rate.min(rate) } else { rate };
    before.has_queue = true;
    before.set_burst();
    Ok(before)
}

/// Whether a link is bound to an interface by its index.
fn is_bound(link: &LinkConfig) -> bool {
    let is_of_one_link = |address: &std::net::SocketAddr| matches!(address, std::net::SocketAddr::V6(v6) if v6.ip().is_unicast_link_local());
    match link {
        LinkConfig::Ethernet { .. } => true,
        LinkConfig::Udp { local, remote } | LinkConfig::Tcp { local, remote, .. } => {
            is_of_one_link(remote) || local.as_ref().is_some_and(is_of_one_link)
        }
    }
}
