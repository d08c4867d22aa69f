//! The thread's beginning: devices, links, programs and the core, as the configuration has them.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicBool, mpsc},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use sidestep_hostd::AgentError;
use sidestep_linux::{
    LinuxError, monotonic_now,
    netlink::{Interface, Netlink},
    tun::{MAX_READ, Tun},
};
use sidestep_net::{Bytes, Rate, Time};

use super::super::{
    InrppOptions,
    config::{DEFAULT_PORT, DivertBy, Link as LinkConfig, LinkRate, NeighbourConfig, RouterSettings, tun_name},
    connections::Connections,
    divert::{Divert, Filters, Mode, PortEntries},
    link::{Ends, EthernetLink, Link, Outbox, ReceiveBuffers, TcpLink, UdpLink},
    message::id_of,
    resequence::Resequencer,
    segments::Joiner,
    session::Session,
    slots::Slots,
    takeover::{Passed, SavedPort},
};
use super::{
    Counts, Forwarder, Mailbox, Spacing,
    port::{self, Neighbour, NeighbourState, Peer, PortIo, UNLIMITED},
};
use crate::{Counters, Key, Router};

/// Packets that wait in a TUN device to be read.
const QUEUE: u32 = 5_000;
/// Bytes of packets that wait for those before them, of a flow and of all.
const MAX_DISORDER: [u64; 2] = [4 << 20, 32 << 20];
/// The rate of an interface that does not know its own.
const UNKNOWN: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// Bytes and datagrams that an outbox holds: those of a round.
const OUTBOX: usize = 1 << 20;
const DATAGRAMS: usize = 4_096;

impl Forwarder {
    /// Makes what `options` ask for. Nothing is diverted before the first neighbour answers, or an edge's packets.
    pub(in super::super) async fn start(
        options: &InrppOptions,
        netlink: &Netlink,
        mut passed: Option<Passed>,
    ) -> Result<(Self, Mailbox), AgentError> {
        let config = &options.config;
        let interfaces = netlink.interfaces().await?;
        let alarm = Arc::new(AtomicBool::new(false));
        let divert = match config.settings.divert {
            DivertBy::Filters => Divert::Filters(Filters::load()?),
            DivertBy::Routes => Divert::Routes(PortEntries::new(Arc::clone(&alarm))),
        };
        let mut ports = Vec::new();
        let mut inherited = passed.as_mut().map(inherit).unwrap_or_default();
        for (neighbour, key) in config.neighbours.iter().zip(&options.keys) {
            let (name, interface) = (&config.settings.name, find(&interfaces, &neighbour.interface)?);
            let before = inherited.remove(&interface.name).map(|before| before.of(name, neighbour, *key));
            let before = before.transpose()?.unwrap_or_default();
            ports.push(of_neighbour(name, neighbour, *key, interface, before)?);
        }
        for edge in &config.edges {
            let tun =
                inherited.remove(&edge.interface).map(|before| Tun::from_fd(before.tun, &tun_name(&edge.interface)));
            ports.push(port(find(&interfaces, &edge.interface)?, Peer::Edge, edge.rate, tun.transpose()?)?);
        }
        let settings = config.settings.clone();
        let router = core(&settings, &ports)?;
        let failed = |errno: nix::errno::Errno| LinuxError::io("preparing the forwarder", errno);
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?);
        let (sender, commands) = mpsc::channel();
        let mailbox = Mailbox { commands: sender, bell: Arc::clone(&bell), alarm: Arc::clone(&alarm) };
        let now = monotonic_now();
        let mut forwarder = Forwarder {
            id: id_of(&settings.name),
            dry_run: options.dry_run,
            router,
            alarm,
            divert,
            connections: Connections::new(settings.flows as usize),
            slots: slots(&settings, &ports),
            order: order(&settings),
            acks: Spacing::default(),
            ready: Vec::new(),
            joiner: Joiner::new(),
            buffers: ReceiveBuffers::new(),
            datagrams: Vec::with_capacity(2_048),
            read: vec![0; MAX_READ],
            keys: [random()?, random()?],
            counts: Counts::default(),
            commands,
            bell,
            started: now,
            next_hello: now,
            next_beat: now,
            next_drain: now,
            next_wake: now,
            next_reconnect: now,
            busy: now,
            ports,
            settings,
        };
        if let Some(passed) = &passed {
            forwarder.take(now, passed);
        }
        Ok((forwarder, mailbox))
    }

    /// Puts the programs where the ports are.
    pub(in super::super) async fn attach(&mut self, netlink: &Netlink) -> Result<(), AgentError> {
        self.divert.set_mode(Mode::Divert);
        // Before the first packet meets the program.
        self.divert.beat(monotonic_now());
        Ok(self.attach_all(netlink).await?)
    }

    /// Puts each program where it is not.
    pub(super) async fn attach_all(&mut self, netlink: &Netlink) -> Result<(), LinuxError> {
        let interfaces = netlink.interfaces().await?;
        for at in 0..self.ports.len() {
            let (index, tun) = (self.ports[at].index, self.ports[at].tun.index());
            if self.ports[at].is_cut {
                continue;
            }
            if self.ports[at].neighbour().is_none() {
                self.divert.attach_reinject(netlink, tun, index).await?;
            }
            self.set_entry(crate::Port(at as u16));
            if let Some(interface) = interfaces.iter().find(|interface| interface.index == index) {
                self.divert.attach(netlink, interface).await?;
            }
        }
        Ok(())
    }
}

fn find<'a>(interfaces: &'a [Interface], name: &str) -> Result<&'a Interface, AgentError> {
    let missing = || LinuxError::io(format!("finding interface {name}"), io::Error::from(io::ErrorKind::NotFound));
    Ok(interfaces.iter().find(|interface| interface.name == name).ok_or_else(missing)?)
}

/// What there was at an interface before its port is made.
#[derive(Default)]
pub(super) struct Before {
    pub(super) tun: Option<Tun>,
    pub(super) link: Option<OwnedFd>,
    pub(super) session: Option<Session>,
    /// Packets and bytes that have come in the session.
    pub(super) received: (u64, u64),
    pub(super) at_its_hello: u64,
    pub(super) is_alive: bool,
    /// The rate that was found.
    pub(super) rate: Option<Rate>,
}

/// The port to a neighbour.
pub(super) fn of_neighbour(
    name: &str,
    config: &NeighbourConfig,
    key: Option<Key>,
    interface: &Interface,
    before: Before,
) -> Result<PortIo, LinuxError> {
    let link = open_link(&config.link, interface, before.link)?;
    let state = if before.is_alive { NeighbourState::Alive } else { NeighbourState::Silent };
    let session = match before.session {
        Some(session) => session,
        None => Session::new(name, Some(&config.name), key, random()? | 1),
    };
    let (most, follows) = rate_of(config);
    let rate = before.rate.filter(|_| follows).map_or(most, |found| found.min(most));
    let neighbour = Neighbour {
        name: config.name.clone(),
        link_name: link_name(&config.link),
        link_config: config.link,
        id: id_of(&config.name),
        is_border: config.border,
        has_key: key.is_some(),
        session,
        outbox: Outbox::new(OUTBOX, DATAGRAMS),
        link,
        state,
        spoke: monotonic_now(),
        heard: monotonic_now(),
        about: None,
        unread: None,
        malformed: 0,
        lost: 0,
        refused: false,
        received_packets: before.received.0,
        received_bytes: before.received.1,
        at_its_hello: before.at_its_hello,
        sealed: 0,
        at_hello: [port::Carried::default(); port::HELLOS],
        judged: port::Carried { at: monotonic_now(), ..port::Carried::default() },
        carries: before.rate.map_or(0.0, |rate| rate.bits_per_sec() as f64),
        follows,
        most,
    };
    let mut made = port(interface, Peer::Neighbour(Box::new(neighbour)), Some(rate), before.tun)?;
    made.set_burst();
    Ok(made)
}

/// The rate that a link has at first, and whether it follows what the neighbour receives.
pub(super) fn rate_of(config: &NeighbourConfig) -> (Rate, bool) {
    match config.rate {
        LinkRate::Fixed(rate) => (rate, false),
        LinkRate::Auto => (speed(&config.interface).unwrap_or(UNKNOWN), true),
    }
}

/// The core with these ports.
pub(super) fn core(settings: &RouterSettings, ports: &[PortIo]) -> Result<Router, LinuxError> {
    let interfaces = ports.iter().map(|port| port::interface(port, settings)).collect();
    let router = Router::new(settings.core().config(), id_of(&settings.name), interfaces);
    router.map_err(|error| LinuxError::io("setting up the caches", io::Error::other(error)))
}

/// Room for the packets that wait at these ports.
pub(super) fn slots(settings: &RouterSettings, ports: &[PortIo]) -> Slots {
    let longest = ports.iter().map(|port| usize::from(port.mtu)).max().unwrap_or(1_500);
    let queues = ports.iter().filter(|port| port.has_queue).count() as u64;
    Slots::new(longest, Bytes::new(queues * (settings.cache.get() * 2) + MAX_DISORDER[1]))
}

/// What restores the order of flows.
pub(super) fn order(settings: &RouterSettings) -> Option<Resequencer> {
    let [flow, all] = MAX_DISORDER.map(Bytes::new);
    settings.resequence.map(|wait| Resequencer::new(wait, flow, all))
}

/// What the router before this one had at an interface.
struct Inherited {
    tun: OwnedFd,
    link: Option<OwnedFd>,
    saved: SavedPort,
}

impl Inherited {
    /// What the port to a neighbour goes on with.
    fn of(self, name: &str, config: &NeighbourConfig, key: Option<Key>) -> Result<Before, LinuxError> {
        let Inherited { tun, link, saved: SavedPort { link: known, neighbour: saved, .. } } = self;
        let tun = Some(Tun::from_fd(tun, &tun_name(&config.interface))?);
        let is_same = known.is_some_and(|known| known == link_name(&config.link));
        let mut before = Before { tun, link: link.filter(|_| is_same), ..Before::default() };
        let Some(saved) = saved else { return Ok(before) };
        before.rate = Some(Rate::from_bits_per_sec(saved.rate.max(1))).filter(|_| is_same);
        before.session = Session::from_saved(name, Some(&config.name), key, &saved.session);
        if before.session.is_some() {
            (before.received, before.at_its_hello) = (saved.received, saved.at_its_hello);
            // A TCP connection is still to be made.
            before.is_alive = is_same && saved.alive && !matches!(config.link, LinkConfig::Tcp { .. });
        }
        Ok(before)
    }
}

/// By interface, what the router before this one had.
fn inherit(passed: &mut Passed) -> BTreeMap<String, Inherited> {
    let mut descriptors = std::mem::take(&mut passed.descriptors).into_iter();
    let of = |saved: &SavedPort| {
        let tun = descriptors.next()?;
        let link = if saved.link.is_some() { descriptors.next() } else { None };
        Some((saved.interface.clone(), Inherited { tun, link, saved: saved.clone() }))
    };
    passed.saved.ports.iter().map_while(of).collect()
}

/// Opens the link that is configured, or takes over one.
pub(super) fn open_link(
    config: &LinkConfig,
    interface: &Interface,
    descriptor: Option<OwnedFd>,
) -> Result<Link, LinuxError> {
    let any = |remote: &SocketAddr, port| match remote {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    };
    let here = |address: SocketAddr| on_link(address, interface.index);
    match config {
        LinkConfig::Udp { local, remote } => {
            let local = here(local.unwrap_or_else(|| any(remote, DEFAULT_PORT)));
            let ends = Ends { local, remote: here(*remote), interface: None };
            Ok(Link::Udp(match descriptor {
                Some(descriptor) => UdpLink::from_fd(descriptor, &ends),
                None => UdpLink::open(&ends)?,
            }))
        }
        LinkConfig::Ethernet { remote } => {
            Ok(Link::Ethernet(EthernetLink::open(&interface.name, *remote, descriptor)?))
        }
        LinkConfig::Tcp { local, remote, listen } => {
            let remote = here(*remote);
            let local = match local {
                Some(local) => here(*local),
                // Other links may listen at other addresses.
                None if *listen => local_address(remote, DEFAULT_PORT).unwrap_or_else(|| any(&remote, DEFAULT_PORT)),
                None => any(&remote, 0),
            };
            let ends = Ends { local, remote, interface: None };
            Ok(Link::Tcp(TcpLink::open(&ends, *listen, descriptor, monotonic_now())?))
        }
    }
}

/// The address from which the kernel sends to another, with this port.
fn local_address(remote: SocketAddr, port: u16) -> Option<SocketAddr> {
    let any = if remote.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(remote).map(|()| socket));
    let mut local = socket.and_then(|socket| socket.local_addr()).ok()?;
    local.set_port(port);
    Some(local)
}

/// An address of one link is on this interface.
fn on_link(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface))
        }
        other => other,
    }
}

/// The device of a port.
pub(super) fn device(interface: &Interface) -> Result<Tun, LinuxError> {
    Tun::create(&tun_name(&interface.name), interface.mtu, QUEUE)
}

/// The port at an interface.
pub(super) fn port(
    interface: &Interface,
    peer: Peer,
    rate: Option<Rate>,
    tun: Option<Tun>,
) -> Result<PortIo, LinuxError> {
    let tun = tun.map_or_else(|| device(interface), Ok)?;
    Ok(PortIo {
        tun,
        is_present: true,
        is_cut: false,
        before: Counters::default(),
        interface: interface.name.clone(),
        index: interface.index,
        ethernet: interface.ethernet,
        mtu: interface.mtu.min(u32::from(u16::MAX)) as u16,
        peer,
        rate: rate.unwrap_or(UNLIMITED),
        has_queue: rate.is_some(),
        free_at: Time::ZERO,
        sent_packets: 0,
        sent_bytes: 0,
        lost: 0,
        leaving: Vec::new(),
        ends: Vec::new(),
    })
}

/// What an interface says of its speed.
fn speed(interface: &str) -> Option<Rate> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let mbits = text.trim().parse::<u64>().ok().filter(|speed| (1..=1_000_000).contains(speed))?;
    Some(Rate::from_mbits(mbits))
}

fn link_name(link: &LinkConfig) -> String {
    match link {
        LinkConfig::Udp { remote, .. } => format!("udp {remote}"),
        LinkConfig::Ethernet { .. } => "ethernet".into(),
        LinkConfig::Tcp { remote, .. } => format!("tcp {remote}"),
    }
}

/// A number that nobody can guess.
fn random() -> Result<u64, LinuxError> {
    let bytes = sidestep_linux::random().map_err(|error| LinuxError::io("drawing random bits", error))?;
    Ok(u64::from_ne_bytes(bytes))
}
