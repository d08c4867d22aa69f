//! Subflows of MPTCP between two sites: unmodified kernels, both daemons, and links that have a rate.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{
        AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
        sockopt::{KeepAlive, RcvBufForce, ReceiveTimeout},
    },
    time::TimeVal,
};
use sidestep_linux::{
    netns::{NetNs, set_sysctl},
    tap::Tap,
    testing::root_or_skip,
    wire::{WireSpec, Wires},
};
use sidestep_net::{Channel, Direction, LinkId, Queue, QueueLimit, Rate, Ratio, Span};
use sidestep_proto::link::LinkState;

use crate::{
    net::{Ip, Net, PATHS, PATIENCE, config, eventually, ip},
    support::{self, Host, Pair, PathManager, Transfer, accepting},
};

/// How many subflows each connection has.
const SUBFLOWS: usize = 16;
/// The path whose link goes down.
const BROKEN: usize = 2;
/// Longer than a packet is in flight, with all queues full.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// Puts wires of 20 Mbit/s in place of the cables of the paths.
fn wires(net: &Net) -> Wires {
    let queue = Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None };
    let (rate, delay) = (Rate::from_mbits(20), Span::from_millis(2));
    let channel = || Channel { rate, delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: 1 };
    let mut specs = Vec::new();
    for path in 0..PATHS {
        let name = format!("p{path}");
        ip(&net.e1, &format!("link del {name}"));
        let [a, b] = [&net.e1, &net.e2].map(|edge| edge.run(|| Ok(Tap::create(&name, 256).unwrap())).unwrap());
        specs.push(WireSpec { a, b, ab: channel(), ba: channel(), mtu: 1500 });
        for (edge, end) in [(&net.e1, 1), (&net.e2, 2)] {
            ip(edge, &format!("addr add 10.9.{path}.{end}/24 dev {name}"));
            ip(edge, &format!("-6 addr add fd09:0:0:{path}::{end}/64 dev {name} nodad"));
            ip(edge, &format!("link set {name} up"));
        }
    }
    for (edge, site, end) in [(&net.e1, 2, 2), (&net.e2, 1, 1)] {
        ip(edge, &format!("route add 10.{site}.0.0/16 via 10.9.0.{end}"));
        ip(edge, &format!("-6 route add fd0{site}::/16 via fd09::{end}"));
    }
    Wires::start(specs, 1, 1, None).unwrap()
}

/// A subflow: its end at the site of the clients, and the other one.
type Subflow = (SocketAddr, SocketAddr);

/// What an edge's packet socket sees of TCP on the interfaces of the paths.
struct Trace {
    socket: OwnedFd,
    /// Which interface each path has.
    paths: BTreeMap<usize, usize>,
}

impl Trace {
    fn start(edge: &NetNs) -> Self {
        let open = || {
            let all = SockProtocol::EthAll;
            Ok(socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, all).unwrap())
        };
        let socket = edge.run(open).unwrap();
        setsockopt(&socket, RcvBufForce, &(64 << 20)).unwrap();
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, 50_000)).unwrap();
        let index = |path| {
            let index = || Ok(nix::net::if_::if_nametoindex(format!("p{path}").as_str()).unwrap());
            (edge.run(index).unwrap() as usize, path)
        };
        Trace { socket, paths: (0..PATHS).map(index).collect() }
    }

    /// Adds the paths by which packets of subflows leave (first) and arrive, for a tenth of a second.
    fn read(&self, seen: &mut BTreeMap<Subflow, [BTreeSet<usize>; 2]>) {
        let (start, mut packet) = (Instant::now(), [0_u8; 64]);
        while start.elapsed() < Duration::from_millis(100) {
            let Ok((length, Some(from))) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut packet) else { continue };
            let Some(path) = self.paths.get(&from.ifindex()) else { continue };
            let Some((source, destination)) = ends(&packet[..length]) else { continue };
            // As libc has it: a packet that this machine sends.
            let leaves = from.pkttype() == libc::PACKET_OUTGOING;
            let subflow = if leaves { (source, destination) } else { (destination, source) };
            seen.entry(subflow).or_default()[usize::from(!leaves)].insert(*path);
        }
    }
}

/// Source and destination of a packet of TCP.
fn ends(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let bytes = |at: usize, length: usize| packet.get(at..at + length);
    let address = |at: usize| -> Option<IpAddr> {
        match packet.first()? >> 4 {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes(at, 4)?).ok()?).into()),
            _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes(at, 16)?).ok()?).into()),
        }
    };
    let (protocol, addresses, transport) = match packet.first()? >> 4 {
        4 => (9, [12, 16], usize::from(packet.first()? & 15) * 4),
        6 => (6, [8, 24], 40),
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(bytes(at, 2)?.try_into().ok()?));
    if i32::from(*packet.get(protocol)?) != libc::IPPROTO_TCP {
        return None;
    }
    let [source, destination] = addresses;
    Some((
        SocketAddr::new(address(source)?, port(transport)?),
        SocketAddr::new(address(destination)?, port(transport + 2)?),
    ))
}

#[test]
fn subflows_cross_both_edges_alike_after_a_link_was_away_and_no_byte_of_a_connection_is_harmed() {
    if !root_or_skip("subflows through edges") {
        return;
    }
    let net = Net::new();
    let wires = wires(&net);
    let [client, server] = [&net.a, &net.b].map(|node| {
        ip(node, "link set lo up");
        Host(node.run(NetNs::current).unwrap())
    });
    // A subflow that the scheduler leaves idle is seen once a second.
    net.a
        .run(|| ["time", "intvl"].iter().try_for_each(|name| set_sysctl(&format!("ipv4/tcp_keepalive_{name}"), "1")))
        .unwrap();
    let pair = Pair::new(client, server);
    let (_e1, _e2) = (net.edge(&net.e1, &config(true, "")), net.edge(&net.e2, &config(false, "")));
    let many = support::config(&format!("count = {SUBFLOWS}"));
    let (_client, _server) = (PathManager::start(&pair.client, many), accepting(&pair.server));
    let begin = |version: Ip| {
        let connection = pair.connect(&version.at_b().to_string());
        setsockopt(&connection.client, KeepAlive, &true).unwrap();
        connection.exchange();
        pair.client.eventually("all subflows", || pair.client.subflows(&connection).len() == SUBFLOWS);
        Transfer::start(connection)
    };
    let transfers = [Ip::V4, Ip::V6, Ip::V4].map(begin);
    let pass = || transfers.iter().for_each(|transfer| transfer.pass(500_000));
    let carry = |paths: &[usize]| {
        let before = net.sent(&net.e1);
        eventually("bytes on the paths", || {
            let now = net.sent(&net.e1);
            paths.iter().all(|path| now[*path] > before[*path] + 100_000).then_some(())
        });
    };
    let set_link = |up: bool| {
        let (handle, link) = (wires.handle(), LinkId(BROKEN as u32));
        for direction in [Direction::AToB, Direction::BToA] {
            let state = if up { LinkState::Up } else { LinkState::Down };
            handle.set_state(link.arc(direction), state).unwrap();
        }
        handle.set_carrier(link, up).unwrap();
        for edge in [&net.e1, &net.e2] {
            let is_so = || net.status(edge).destinations.iter().all(|one| one.paths[BROKEN].live == up);
            eventually("news of the link", || is_so().then_some(()));
        }
    };
    carry(&[0, 1, 2, 3]);
    set_link(false);
    pass();
    carry(&[0, 1, 3]);
    set_link(true);
    carry(&[0, 1, 2, 3]);
    thread::sleep(ON_THE_WAY);

    let (trace, mut seen) = (Trace::start(&net.e1), BTreeMap::new());
    let start = Instant::now();
    let subflows = loop {
        trace.read(&mut seen);
        let of = |transfer: &Transfer| pair.client.subflows(transfer.connection());
        let subflows: BTreeSet<Subflow> =
            transfers.iter().flat_map(of).map(|listed| (listed.ends.local, listed.ends.remote)).collect();
        let is_seen = |subflow: &&Subflow| seen.get(subflow).is_some_and(|ways| ways.iter().all(|way| !way.is_empty()));
        let missing = subflows.iter().filter(|subflow| !is_seen(subflow)).count();
        // There may be more: one that was restored, beside one that came back to life.
        if subflows.len() >= SUBFLOWS * transfers.len() && missing == 0 {
            break subflows;
        }
        assert!(start.elapsed() < PATIENCE, "{missing} of {} subflows are not seen both ways", subflows.len());
    };
    println!("{} subflows were seen both ways within {:?}", subflows.len(), start.elapsed());
    let mut used = BTreeSet::new();
    for subflow in &subflows {
        let [there, back] = &seen[subflow];
        assert!(there.len() == 1 && there == back, "{subflow:?}: {there:?}, {back:?}");
        used.extend(there.iter().copied());
    }
    assert_eq!(used.len(), PATHS);
    pass();
    for transfer in transfers {
        transfer.finish();
    }
}
