//! Tests with real kernels, in namespaces.

mod hop;
mod net;
mod throughput;

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use sidestep_linux::{
    monotonic_now,
    netns::NetNs,
    testing::{cable, eventually, ip, root_or_skip},
};
use sidestep_net::{Span, Time};

use self::net::{Kind, MTU, Net};
use super::{sockets::set_int, *};
use crate::daemon::divert;

const PATIENCE: Duration = Duration::from_secs(10);

fn hosts(v6: bool) -> (IpAddr, IpAddr) {
    let [from, to] = if v6 { ["fd01:0:0:1::1", "fd02:0:0:2::1"] } else { ["10.1.0.1", "10.2.0.1"] };
    (from.parse().unwrap(), to.parse().unwrap())
}

#[test]
fn super_packets_cross_two_routers_by_each_kind_of_link_and_are_forwarded_once_by_each() {
    if !root_or_skip("routers of INRPP") {
        return;
    }
    let net = Net::new();
    for kind in [Kind::UdpV6, Kind::UdpV4, Kind::UdpLinkLocal, Kind::Ethernet, Kind::Tcp] {
        let [one, two] = [0, 1].map(|which| net.start(which, net.hop(which, kind, 64)));
        for v6 in [false, true] {
            let (from, to) = hosts(v6);
            net.transfer(to, 20_000_000);
            let (near, far) = net.udp(from, to);
            let (level, name, got) = match v6 {
                false => (libc::IPPROTO_IP, libc::IP_RECVTTL, libc::IP_TTL),
                true => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, libc::IPV6_HOPLIMIT),
            };
            set_int(far.as_fd(), level, name, 1).unwrap();
            for len in [0_usize, 1, 100, 1_400] {
                near.send(&vec![len as u8; len]).unwrap();
                let (received, hops) = receive_with_int(&far, (level, got));
                assert_eq!((&received, hops), (&vec![len as u8; len], Some(62)), "{kind:?}: two routers, two hops");
                far.send(&received).unwrap();
                assert_eq!(near.recv(&mut [0; 2_000]).unwrap(), len);
            }
            // Super-packets of UDP.
            set_int(near.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 1_000).unwrap();
            near.send(&(0..9_500).map(|at| (at / 1_000) as u8).collect::<Vec<_>>()).unwrap();
            for index in 0..10_u8 {
                let mut buffer = [0; 2_000];
                let len = far.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..len], vec![index; if index < 9 { 1_000 } else { 500 }], "{kind:?}");
            }
        }
        let watch = one.watch.clone();
        let divert = one.stop().divert;
        let [sent, reads, lost] = [&watch.sent, &watch.reads, &watch.lost].map(|count| count.load(Ordering::Relaxed));
        println!("{kind:?}: {sent} segments of {reads} packets, {lost} lost");
        assert!(sent > 27_000 && reads * 2 < sent, "{kind:?}: {sent} segments of {reads} packets");
        assert_eq!(lost, 0, "{kind:?}");
        let core = net.index(&net.r1, "core");
        let counts = divert.counts(core).unwrap();
        // The last ACKs may come when the loop has stopped.
        assert!((reads..reads + 5).contains(&counts.diverted) && counts.oversize == 0, "{kind:?}: {reads} {counts:?}");
        assert!(counts.own > 0 && counts.bytes > 40_000_000, "{counts:?}");
        drop(two);
    }
}

/// Receives a datagram, and the value of a control message.
fn receive_with_int(socket: &std::net::UdpSocket, (level, kind): (i32, i32)) -> (Vec<u8>, Option<i32>) {
    use std::os::fd::AsRawFd;
    let (mut bytes, mut control) = ([0_u8; 2_000], [0_u64; 16]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: plain data for which all zeroes is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    // SAFETY: the header points at locals, which outlive the call.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    assert!(len >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has filled in the control messages, which lie in an aligned local.
    let value = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        let found = !first.is_null() && ((*first).cmsg_level, (*first).cmsg_type) == (level, kind);
        found.then(|| libc::CMSG_DATA(first).cast::<i32>().read_unaligned())
    };
    (bytes[..len as usize].to_vec(), value)
}

#[test]
fn the_kernel_forwards_within_a_tenth_of_a_second_when_processes_hang_or_are_gone() {
    if !root_or_skip("routers of INRPP") {
        return;
    }
    let net = Net::new();
    let (from, to) = hosts(true);
    for gone in [false, true] {
        let [one, two] = [0, 1].map(|which| net.start(which, net.hop(which, Kind::UdpV6, 64)));
        let (near, far) = net.udp(from, to);
        near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let echo = |number: u32| {
            near.send(&number.to_be_bytes()).unwrap();
            far.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut buffer = [0; 4];
            while let Ok(4) = far.recv(&mut buffer) {
                if u32::from_be_bytes(buffer) == number {
                    far.send(&buffer).unwrap();
                    while let Ok(4) = near.recv(&mut buffer) {
                        if u32::from_be_bytes(buffer) == number {
                            return true;
                        }
                    }
                }
            }
            false
        };
        assert!((0..20).filter(|number| echo(*number)).count() > 15);
        let begin = Instant::now();
        let hops: Vec<_> = if gone {
            drop([one, two].map(net::Running::stop));
            Vec::new()
        } else {
            [&one, &two].iter().for_each(|hop| hop.watch.hang.store(true, Ordering::Relaxed));
            vec![one, two]
        };
        let mut number = 100;
        while !echo(number) {
            number += 1;
            assert!(begin.elapsed() < PATIENCE);
        }
        let took = begin.elapsed();
        println!("gone: {gone}: the kernel forwards after {} ms", took.as_millis());
        assert!(took < Duration::from_millis(400), "{took:?}, of which an echo that is lost takes 20 ms");
        net.transfer(to, 1_000_000);
        drop(hops);
    }
}

#[test]
fn what_is_too_long_for_the_shim_passes_in_the_kernel() {
    if !root_or_skip("routers of INRPP") {
        return;
    }
    let net = Net::new();
    let core = net.index(&net.r1, "core");
    let hop = net.hop(0, Kind::UdpV6, 64);
    let limit = |max_len| divert::PortEntry { max_len, ..net::entry(hop.core.index()) };
    hop.divert.set_port(core, &limit(1_499)).unwrap();
    let (one, _two) = (net.start(0, hop), net.start(1, net.hop(1, Kind::UdpV6, 64)));
    net.transfer(hosts(true).1, 2_000_000);
    let counts = one.stop().divert.counts(core).unwrap();
    // Super-packets of such segments pass, too.
    assert!(counts.oversize > 20 && (1..20).contains(&counts.diverted), "{counts:?}");
}

/// A cable between two namespaces, `core` at both ends.
fn two() -> [NetNs; 2] {
    let nodes = [(); 2].map(|()| NetNs::create().unwrap());
    cable((&nodes[0], "core"), (&nodes[1], "core"), "10.9.0", "fd09:0:0:9");
    nodes.iter().for_each(|node| drop(ip(node, &format!("link set core mtu {MTU}"))));
    nodes
}

fn ends(which: usize, v6: bool) -> Ends {
    let address = |last: usize| -> SocketAddr {
        if v6 { format!("[fd09:0:0:9::{last}]:7471") } else { format!("10.9.0.{last}:7471") }.parse().unwrap()
    };
    Ends { local: address(which + 1), remote: address(2 - which), interface: Some("core".into()) }
}

/// What comes within a short time.
fn received(link: &mut Link, at_least: usize) -> Vec<Vec<u8>> {
    let (mut buffers, mut all) = (ReceiveBuffers::new(), Vec::new());
    let begin = Instant::now();
    while all.len() < at_least && begin.elapsed() < Duration::from_secs(2) {
        link.receive(&mut buffers, &mut |datagram| all.push(datagram.to_vec()));
        thread::sleep(Duration::from_micros(100));
    }
    all
}

/// An outbox with datagrams of these lengths, and these.
fn outbox_of(lens: &[usize]) -> (Outbox, Vec<Vec<u8>>) {
    let mut outbox = Outbox::new(16 << 20, 10_000);
    let datagram = |(index, len): (usize, &usize)| {
        let packet: Vec<u8> = (0..*len - SHIM).map(|at| (at + index) as u8).collect();
        assert!(outbox.push(&[index as u8; SHIM], &[&packet]));
        [&[index as u8; SHIM][..], &packet].concat()
    };
    let all = lens.iter().enumerate().map(datagram).collect();
    (outbox, all)
}

/// Sends one datagram, so that neighbours' addresses are known: the kernel keeps few packets that wait for these.
fn know_each_other(mut send: impl FnMut(&mut Outbox) -> Sent, far: &mut Link) {
    send(&mut outbox_of(&[100]).0);
    assert_eq!(received(far, 1).len(), 1);
}

#[test]
fn datagrams_of_any_length_arrive_by_udp_with_and_without_segmentation() {
    if !root_or_skip("links") {
        return;
    }
    let nodes = two();
    let lens =
        [[1_500; 100].as_slice(), &[24, 25, 1_551, 1_552, 1_553, 1_600, 9_000, MAX_DATAGRAM], &[300; 70]].concat();
    for v6 in [false, true] {
        let open = |which: usize| nodes[which].run(|| UdpLink::open(&ends(which, v6))).unwrap();
        let (mut near, mut far) = (open(0), Link::Udp(open(1)));
        know_each_other(|outbox| near.send(outbox), &mut far);
        for (segmentation, burst) in [(true, 64), (true, 7), (false, 64)] {
            near.segmentation_for_test(segmentation);
            let (mut outbox, expected) = outbox_of(&lens);
            outbox.set_burst(burst);
            let sent = near.send(&mut outbox);
            let bytes: usize = lens.iter().sum();
            let all = Sent { datagrams: lens.len() as u32, bytes: bytes as u64, ..Sent::default() };
            assert_eq!(sent, all, "{v6} {segmentation}");
            let mut got = received(&mut far, lens.len());
            // Fragments are put together later than what follows them arrives.
            got.sort();
            let mut expected = expected;
            expected.sort();
            assert!(got == expected, "{} of {}", got.len(), expected.len());
        }
        assert_eq!(far.overhead(), if v6 { 62 } else { 42 });
    }
}

#[test]
fn a_neighbour_without_a_process_refuses_datagrams_of_udp() {
    if !root_or_skip("links") {
        return;
    }
    let nodes = two();
    for v6 in [false, true] {
        let mut link = Link::Udp(nodes[0].run(|| UdpLink::open(&ends(0, v6))).unwrap());
        let refused = || {
            let (mut outbox, _) = outbox_of(&[100; 10]);
            let sent = link.send(&mut outbox);
            assert!(outbox.is_empty());
            (sent.refused || link.receive(&mut ReceiveBuffers::new(), &mut |_| {}).refused).then_some(())
        };
        eventually("a refusal", PATIENCE, refused);
    }
}

#[test]
fn what_a_socket_does_not_take_waits_and_is_sent_later() {
    if !root_or_skip("links") {
        return;
    }
    let nodes = two();
    let [mut near, mut far] =
        [0, 1].map(|which| Link::Udp(nodes[which].run(|| UdpLink::open(&ends(which, true))).unwrap()));
    know_each_other(|outbox| near.send(outbox), &mut far);
    // A slow device, behind which the socket's buffer fills up.
    ip(&nodes[0], "tc qdisc add dev core root tbf rate 200mbit burst 32kb limit 100mb");
    let (mut outbox, expected) = outbox_of(&[1_500; 10_000]);
    let first = near.send(&mut outbox);
    assert!(near.is_blocked() && first.datagrams > 0 && first.datagrams < 10_000, "{first:?}");
    let mut got = Vec::new();
    let mut buffers = ReceiveBuffers::new();
    eventually("all datagrams", PATIENCE, || {
        far.receive(&mut buffers, &mut |datagram| got.push(datagram.to_vec()));
        near.send(&mut outbox);
        (got.len() == expected.len()).then_some(())
    });
    let first = got.iter().zip(&expected).position(|(got, expected)| got != expected);
    assert!(first.is_none(), "another order from {first:?} on");
    assert!(outbox.is_empty() && !near.is_blocked());
}

#[test]
fn an_ethernet_link_learns_its_neighbour_and_refuses_what_is_longer_than_a_frame() {
    if !root_or_skip("links") {
        return;
    }
    let nodes = two();
    let [mut near, mut far] =
        [0, 1].map(|which| Link::Ethernet(nodes[which].run(|| EthernetLink::open("core", None, None)).unwrap()));
    let (mut outbox, mut expected) = outbox_of(&[24, 30, 1_598, 1_599, 1_000]);
    let sent = near.send(&mut outbox);
    assert_eq!((sent.datagrams, sent.too_long, sent.lost), (4, 1, 0));
    expected.remove(3);
    assert_eq!(received(&mut far, 4), expected, "to all, and without padding");
    let Link::Ethernet(learnt) = &mut far else { unreachable!() };
    assert_eq!(learnt.peer_for_test().map(|address| address[0] & 1), Some(0), "a station's address");
    // Frames of others are not taken, once a neighbour is known.
    ip(&nodes[0], "link set core address 02:00:00:00:00:07");
    near.send(&mut outbox_of(&[100]).0);
    let mut bad = 0;
    eventually("a stranger's frame", PATIENCE, || {
        bad += far.receive(&mut ReceiveBuffers::new(), &mut |_| panic!("of a stranger")).bad;
        (bad > 0).then_some(())
    });
    far.forget();
    near.send(&mut outbox_of(&[100]).0);
    assert_eq!(received(&mut far, 1).len(), 1);
    ip(&nodes[0], "link set core down");
    assert_eq!(near.send(&mut outbox_of(&[100]).0).lost, 1, "the interface is down");
    ip(&nodes[0], "link set core up");
}

#[test]
fn a_tcp_link_that_was_cut_connects_again_and_strangers_are_closed() {
    if !root_or_skip("links") {
        return;
    }
    let nodes = two();
    let mut now = Time::from_nanos(1);
    let open = |which: usize, now| {
        Link::Tcp(nodes[which].run(|| TcpLink::open(&ends(which, true), which == 0, None, now)).unwrap())
    };
    // The one that connects comes first, and is refused.
    let mut far = open(1, now);
    let mut near = open(0, now);
    let sent = near.send(&mut outbox_of(&[100; 3]).0);
    assert_eq!((sent.lost, near.is_connected()), (3, false));
    let mut exchange = |near: &mut Link, far: &mut Link| {
        eventually("a connection", PATIENCE, || {
            now += Span::from_millis(100);
            nodes[1].run(|| far.reconnect(now)).unwrap();
            nodes[0].run(|| near.reconnect(now)).unwrap();
            (near.is_connected() && far.is_connected()).then_some(())
        });
        for lens in [vec![24, 30_000, 1_500], vec![1_500; 3_000]] {
            let (mut outbox, expected) = outbox_of(&lens);
            let (mut got, mut buffers, mut blocked) = (Vec::new(), ReceiveBuffers::new(), false);
            eventually("all datagrams", PATIENCE, || {
                far.send(&mut outbox);
                blocked |= far.is_blocked();
                near.receive(&mut buffers, &mut |datagram| got.push(datagram.to_vec()));
                (got.len() == expected.len()).then_some(())
            });
            assert!(got == expected && !far.is_blocked());
            assert_eq!(blocked, lens.len() == 3_000, "4.5 MB are more than the buffers hold");
        }
    };
    exchange(&mut near, &mut far);
    let generation = near.generation();
    far.forget();
    assert!(!far.is_connected());
    eventually("the end of the connection", PATIENCE, || {
        near.receive(&mut ReceiveBuffers::new(), &mut |_| {}).refused.then_some(())
    });
    exchange(&mut near, &mut far);
    assert!(near.generation() > generation);
    // The connection is cut under both: the new one replaces it.
    let mut again = open(1, Time::from_nanos(1));
    exchange(&mut near, &mut again);

    ip(&nodes[1], "-6 addr add fd09:0:0:9::7/64 dev core nodad");
    let other = Ends { local: "[fd09:0:0:9::7]:0".parse().unwrap(), ..ends(1, true) };
    let _stranger = nodes[1].run(|| TcpLink::open(&other, false, None, monotonic_now())).unwrap();
    let Link::Tcp(near) = &mut near else { unreachable!() };
    eventually("a stranger", PATIENCE, || {
        near.reconnect(monotonic_now());
        (near.strangers() > 0).then_some(())
    });
    assert!(near.is_connected(), "the neighbour's connection stays");
}
