//! Which sockets get a path when they connect, and which are left alone.

use std::{
    collections::BTreeSet,
    io::Read,
    net::{Ipv6Addr, SocketAddrV6, TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    process::Command,
};

use nix::sys::{
    socket::{SockaddrIn6, setsockopt, sockopt},
    time::TimeVal,
};
use sidestep_hostd::{StaticDestination, StaticPath};
use sidestep_linux::{sock_diag::TcpInfo, testing::root_or_skip};
use sidestep_pathchanger::daemon::program::{HostConnection, HostCounters, HostProgram};
use sidestep_policy::{PolicyName, PolicySettings};

use crate::{
    support::{
        Agent, Flow, Lab, PORT, SOME, TWO_PROVIDERS, Trace, connect, eventually, listen, mark, settings, slot,
        socket_in, socket_of, tail, via,
    },
    takeover::{Kept, Other, in_host},
};

/// Two paths from `h`, of which the second is drawn.
fn paths(lab: &Lab) -> Vec<StaticPath> {
    vec![via(lab, "h", "R1", "1 kbit/s"), via(lab, "h", "R2", "1 Tbit/s")]
}

/// An agent on `h` with these paths to this prefix.
fn start(lab: &Lab, kept: &Kept, prefix: &str) -> Agent {
    Agent::start_with(lab, "h", settings(), prefix, paths(lab), Some(kept.pins(false)))
}

fn counters(kept: &Kept) -> HostCounters {
    HostProgram::look(&kept.pins(false)).unwrap().unwrap().counters().unwrap()
}

fn server(lab: &Lab) -> SocketAddrV6 {
    SocketAddrV6::new(lab.address("s"), PORT, 0, 0)
}

fn set_mark(socket: &impl AsFd, mark: u32) {
    setsockopt(socket, sockopt::Mark, &mark).unwrap();
}

fn bind_to_device(socket: &impl AsFd, device: &str) {
    setsockopt(socket, sockopt::BindToDevice, &device.into()).unwrap();
}

#[test]
fn sockets_of_other_namespaces_in_the_control_group_are_left_alone() {
    if !root_or_skip("sockets of another namespace") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    // Both hosts have paths to them, as far as the agent is concerned.
    let to = |host: &str| StaticDestination { prefix: lab.prefix(host).into(), paths: paths(&lab) };
    let agent = Agent::start_as(&lab, "h", settings(), "2001:db8::/64", paths(&lab), |options| {
        options.pins = Some(kept.pins(false));
        options.config.destinations = vec![to("h"), to("s")];
    });
    let (host, other) = (lab.network.node(lab.id("h")), lab.network.node(lab.id("s")));
    let any = SocketAddrV6::new(std::net::Ipv6Addr::UNSPECIFIED, PORT, 0, 0);
    let [at_host, at_other] = [host, other].map(|node| listen(socket_in(&lab.cgroup.0, node, libc::AF_INET6), any));
    let to_host = SocketAddrV6::new(lab.address("h"), PORT, 0, 0);
    let from_other = connect(socket_in(&lab.cgroup.0, other, libc::AF_INET6), to_host).unwrap();
    let accepted_at_host = at_host.accept().unwrap().0;
    assert_eq!((mark(&from_other), slot(&accepted_at_host)), (0, 2));
    let from_host = connect(socket_in(&lab.cgroup.0, host, libc::AF_INET6), server(&lab)).unwrap();
    let accepted_at_other = at_other.accept().unwrap().0;
    assert_eq!((slot(&from_host), mark(&accepted_at_other)), (2, 0));
    let counted = counters(&kept);
    assert_eq!((counted.active, counted.passive, counted.other_netns), (1, 1, 2));

    let flow = Flow::start((from_other, accepted_at_host));
    lab.swallow("Z", "R1", true);
    lab.swallow("Z", "R2", true);
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    assert_eq!(counters(&kept).moved.iter().sum::<u64>(), 0, "its timeouts are no moves");
    assert_eq!(mark(&flow.sender), 0);
    agent.stop();
    assert_eq!((mark(&flow.sender), mark(&accepted_at_other), mark(&from_host)), (0, 0, 0));
}

#[test]
fn a_connection_bound_to_a_device_is_left_alone() {
    if !root_or_skip("a connection that is bound to a device") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, &kept, &lab.prefix("s").to_string());
    let listener = lab.serve("s");
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    bind_to_device(&socket, "R1");
    let bound = connect(socket, server(&lab)).unwrap();
    assert_eq!((mark(&bound), counters(&kept).to_device, counters(&kept).active), (0, 1, 0));

    // One that is bound later has a path until its next signal; that counts as no move.
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    let client = connect(socket, server(&lab)).unwrap();
    let [_first, accepted] = [(); 2].map(|()| listener.accept().unwrap().0);
    assert_eq!(slot(&client), 2);
    bind_to_device(&client, "R1");
    let flow = Flow::start((client, accepted));
    lab.swallow("R1", "Z", true);
    eventually("the connection is left alone", || (counters(&kept).to_device == 2).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!((counters(&kept).moved.iter().sum::<u64>(), slot(&flow.sender)), (0, 2));
    drop(bound);
    agent.stop();
}

#[test]
fn a_connection_whose_mark_the_application_sets_later_is_left_alone() {
    if !root_or_skip("a mark that an application sets") {
        return;
    }
    // Before and after the first signal, which gives the connection storage.
    for (had_signal, own) in [(false, 0x7), (false, 0x15ab_5507), (true, 0x7), (true, 0x15ab_5507)] {
        let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
        let agent = start(&lab, &kept, &lab.prefix("s").to_string());
        let pair = lab.connect("h", "s");
        assert_eq!(slot(&pair.0), 2);
        let flow = Flow::start(pair);
        flow.pass(SOME);
        if had_signal {
            lab.swallow("R2", "Z", true);
            agent.moved("rto");
            flow.pass(SOME);
        }
        let moves = counters(&kept).moved.iter().sum::<u64>();
        set_mark(&flow.sender, own);
        lab.swallow("R1", "Z", true);
        lab.swallow("R2", "Z", true);
        eventually("the connection is left alone", || (counters(&kept).own_mark == 1).then_some(()));
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert_eq!((counters(&kept).moved.iter().sum::<u64>(), mark(&flow.sender)), (moves, own), "{had_signal}");
        let listed = in_host(&lab, || HostProgram::look(&kept.pins(false)).unwrap().unwrap().connections().unwrap());
        assert_eq!(listed, []);
        agent.stop();
        assert_eq!(mark(&flow.sender), own, "nor is it taken back");
    }
}

#[test]
fn a_connection_has_storage_from_its_first_signal_on_and_is_released_in_either_case() {
    if !root_or_skip("connections without storage") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, &kept, &lab.prefix("s").to_string());
    let list = || in_host(&lab, || HostProgram::look(&kept.pins(false)).unwrap().unwrap().connections().unwrap());
    let (quiet, _server) = lab.connect("h", "s");
    let other = lab.connect("h", "s");
    let before = list();
    assert!(before.len() == 2 && before[0].path == before[1].path, "{before:?}");
    assert!(before.iter().all(|one| one.opened.is_none()), "{before:?}");
    let flow = Flow::start(other);
    flow.pass(SOME);
    lab.swallow("R2", "Z", true);
    flow.pass(SOME);
    let same = |one: &HostConnection| one.path == before[0].path;
    // A busy machine may delay packets, so that the connection moves once more, and back.
    let is_so = |list: &[HostConnection]| match list {
        [one, other] => {
            let (quiet, moved) = if one.opened.is_none() { (one, other) } else { (other, one) };
            (same(quiet), quiet.opened, quiet.moves) == (true, None, 0)
                && (same(moved), moved.opened.is_some(), moved.moves > 0) == (false, true, true)
        }
        _ => false,
    };
    eventually("storage of the one that has moved", || is_so(&list()).then_some(()));
    assert_eq!(slot(&quiet), 2);
    eventually("the other path", || (slot(&flow.sender) == 1).then_some(()));
    agent.stop();
    assert_eq!([mark(&quiet), mark(&flow.sender)], [0, 0]);
}

#[test]
fn neither_a_connection_with_storage_nor_one_without_is_stranded_when_the_layout_changes() {
    if !root_or_skip("connections of another layout") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, &kept, &lab.prefix("s").to_string());
    let (quiet, other) = (lab.connect("h", "s"), Flow::start(lab.connect("h", "s")));
    other.pass(SOME);
    lab.swallow("R2", "Z", true);
    other.pass(SOME);
    assert_eq!([slot(&quiet.0), slot(&other.sender)], [2, 1], "only the other has storage");
    agent.kill();
    Other::Numbered.make(&kept.pins(false));
    let next = start(&lab, &kept, &lab.prefix("s").to_string());
    assert_eq!([mark(&quiet.0), mark(&other.sender)], [0, 0], "both are on the default route");
    for flow in [&Flow::start(quiet), &other] {
        flow.pass(SOME);
    }
    next.stop();
}

#[test]
fn an_ack_of_a_connection_in_time_wait_stays_on_its_path() {
    if !root_or_skip("a connection in TIME-WAIT") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, &kept, &lab.prefix("s").to_string());
    let trace = Trace::start(&lab, "h");
    let (client, mut server) = lab.connect("h", "s");
    assert_eq!(slot(&client), 2);
    let port = client.local_addr().unwrap().port();
    let waiting = |state: &str| {
        let ss = || Ok(Command::new("ss").args(["-Htan", "state", state]).output().unwrap().stdout);
        lab.network.node(lab.id("s")).run(ss).unwrap().iter().filter(|byte| **byte == b'\n').count()
    };
    drop(client);
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "the client has closed first");
    // The first answer to the server's FIN is lost, so the server sends it again.
    lab.swallow("R2", "Z", true);
    drop(server);
    eventually("the server's FIN", || (waiting("last-ack") == 1).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(waiting("last-ack"), 1, "no answer comes by another path");
    lab.swallow("R2", "Z", false);
    eventually("the answer from TIME-WAIT", || (waiting("last-ack") == 0).then_some(()));
    let interfaces = BTreeSet::from_iter(trace.interfaces().remove(&port).unwrap());
    assert_eq!(interfaces, [lab.interface("h", "R2")].into(), "nothing of it took the default route");
    agent.stop();
}

#[test]
fn policies_that_remember_the_first_draw_have_storage_from_the_beginning() {
    if !root_or_skip("a bandit's connection") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let paths = vec![via(&lab, "h", "R1", "1 kbit/s"), via(&lab, "h", "R2", "1 Tbit/s")];
    let settings = PolicySettings { policy: PolicyName::Exp3, ..settings() };
    let agent = Agent::start_with(&lab, "h", settings, &lab.prefix("s").to_string(), paths, Some(kept.pins(false)));
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let list = || in_host(&lab, || HostProgram::look(&kept.pins(false)).unwrap().unwrap().connections().unwrap());
    let one = list()[0];
    assert!(one.opened.is_some() && slot(&flow.sender) == 2, "{one:?}");
    lab.swallow("R2", "Z", true);
    flow.pass(SOME);
    assert_eq!((agent.moved("rto").from, slot(&flow.sender)), (2, 1));
    agent.stop();
}

#[test]
fn datagrams_and_connections_that_were_never_opened_keep_their_marks() {
    if !root_or_skip("sockets of UDP") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let _agent = start(&lab, &kept, &lab.prefix("s").to_string());
    let host = lab.network.node(lab.id("h"));
    let datagrams = UdpSocket::from(crate::support::datagram_socket_in(&lab.cgroup.0, host));
    datagrams.connect(server(&lab)).unwrap();
    assert_eq!(nix::sys::socket::getsockopt(&datagrams, sockopt::Mark), Ok(0));
    let unconnected = socket_of(&lab.cgroup.0, host, libc::AF_INET6, libc::IPPROTO_TCP);
    assert_eq!(mark(&TcpStream::from(unconnected)), 0);
    let counted = counters(&kept);
    assert_eq!((counted.active, counted.untouched), (0, 0));
}

#[test]
fn a_connection_of_tcp_fast_open_has_a_path() {
    if !root_or_skip("TCP Fast Open") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, &kept, &lab.prefix("s").to_string());
    let listener = lab.serve("s");
    let one = |deferred: bool| {
        let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
        if deferred {
            // The SYN leaves with the first data.
            setsockopt(&socket, sockopt::TcpFastOpenConnect, &true).unwrap();
            let client = connect(socket, server(&lab)).unwrap();
            std::io::Write::write_all(&mut &client, b"!").unwrap();
            return client;
        }
        let to = nix::sys::socket::SockaddrStorage::from(server(&lab));
        let flags = nix::sys::socket::MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
        assert_eq!(nix::sys::socket::sendto(socket.as_raw_fd(), b"!", &to, flags), Ok(1));
        TcpStream::from(socket)
    };
    for deferred in [true, false] {
        let client = one(deferred);
        let accepted = listener.accept().unwrap().0;
        assert_eq!(slot(&client), 2, "{deferred}");
        drop(accepted);
    }
    let opened = || agent.events().iter().filter(|one| one.kind == "opened" && one.to > 0).count();
    eventually("a record of each", || (opened() == 2).then_some(()));
    assert_eq!(counters(&kept).active, 2);
}

/// A second provider's address of `h`, behind `R2`; the host's own address is the first provider's.
const SECOND: &str = "fd0b::5";

/// Each provider drops what has a source address of the other one.
fn with_source_filters() -> Lab {
    let lab = Lab::new(TWO_PROVIDERS);
    lab.ip("h", &format!("-6 address add {SECOND}/64 dev R2 nodad"));
    lab.ip("Z", &format!("-6 route add fd0b::/64 via {} dev R2", tail(&lab, "R2", "Z")));
    lab.ip("R2", &format!("-6 route add fd0b::/64 via {} dev h", tail(&lab, "h", "R2")));
    lab.ip("R1", "-6 rule add from fd0b::/64 priority 10 blackhole");
    lab.ip("R2", &format!("-6 rule add from {} priority 10 blackhole", lab.prefix("h")));
    lab
}

fn bound_to(lab: &Lab, source: Ipv6Addr) -> OwnedFd {
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    nix::sys::socket::bind(socket.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(source, 0, 0, 0))).unwrap();
    socket
}

#[test]
fn a_new_connection_has_a_source_address_that_its_provider_takes() {
    if !root_or_skip("providers that filter sources") {
        return;
    }
    let lab = with_source_filters();
    let paths = ["R1", "R2"].map(|provider| via(&lab, "h", provider, "1 Gbit/s")).to_vec();
    let settings = PolicySettings { policy: PolicyName::Random, ..settings() };
    let agent = Agent::start(&lab, "h", settings, &lab.prefix("s").to_string(), paths);
    let sources = [lab.address("h"), SECOND.parse().unwrap()];
    let mut taken = [0; 2];
    for _ in 0..16 {
        let client = lab.connect("h", "s").0;
        let index = slot(&client) - 1;
        taken[index] += 1;
        assert_eq!(client.local_addr().unwrap().ip(), sources[index]);
        // A SYN that was dropped would have come again after a second, and moved the connection.
        assert_eq!(TcpInfo::of(&client).unwrap().retrans_total, 0);
    }
    assert!(taken.iter().all(|taken| *taken > 0), "{taken:?}");
    agent.stop();
}

#[test]
fn a_connection_takes_only_paths_on_which_its_source_address_is_valid() {
    if !root_or_skip("providers that filter sources, in mid-connection") {
        return;
    }
    for named in [false, true] {
        let lab = with_source_filters();
        // The first path is drawn, where it may be.
        let mut paths = vec![via(&lab, "h", "R1", "1 Tbit/s"), via(&lab, "h", "R2", "1 kbit/s")];
        if named {
            paths[0].sources = vec![lab.prefix("h").into()];
            paths[1].sources = vec!["fd0b::/64".parse().unwrap()];
        }
        let kept = Kept::new();
        let pins = Some(kept.pins(false));
        let agent = Agent::start_with(&lab, "h", settings(), &lab.prefix("s").to_string(), paths, pins);
        let listener = lab.serve("s");
        let open = |source| {
            let client = connect(bound_to(&lab, source), server(&lab)).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let second = open(SECOND.parse().unwrap());
        assert_eq!(slot(&second.0), 2, "{named}");
        let first = Flow::start(open(lab.address("h")));
        first.pass(SOME);
        assert_eq!(slot(&first.sender), 1);
        lab.swallow("R1", "Z", true);
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!((slot(&first.sender), counters(&kept).moved.iter().sum::<u64>()), (1, 0), "{named}");
        lab.swallow("R1", "Z", false);
        first.pass(SOME);

        // An address that belongs to neither: no path takes it if all paths name what they take.
        lab.ip("h", "-6 address add fd0c::5/128 dev lo nodad");
        let third = bound_to(&lab, "fd0c::5".parse().unwrap());
        nix::sys::socket::setsockopt(&third, sockopt::SendTimeout, &TimeVal::new(0, 50_000)).unwrap();
        let third = connect(third, server(&lab));
        assert!(third.is_err(), "there is no way back");
        assert_eq!(counters(&kept).no_source, u64::from(named));
        agent.stop();
    }
}
