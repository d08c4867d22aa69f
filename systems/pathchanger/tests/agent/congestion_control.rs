//! The congestion control of a scenario, set by a program of the lab's.

use std::{net::TcpStream, os::fd::OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use sidestep_linux::{
    bpf::congestion_control::{CongestionControl, Wanted},
    netns::set_sysctl,
    sock_diag::TcpInfo,
    testing::root_or_skip,
};

use crate::support::{Lab, TWO_PROVIDERS, connect, listen, socket_in};

#[test]
fn both_ends_of_a_connection_get_the_congestion_control_that_was_asked_for() {
    if !root_or_skip("a congestion control") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    // At most one of the two is the machine's default.
    for name in ["reno", "cubic"] {
        let control =
            CongestionControl::attach(lab.cgroup.0.path(), Wanted { tcp: Some(name), ..Wanted::default() }).unwrap();
        let (client, server) = connection(&lab);
        assert_eq!((name_of(&client), name_of(&server)), (name.into(), name.into()));
        assert_eq!(control.counts().unwrap().refused, 0);
    }
}

#[test]
fn a_congestion_control_that_the_kernel_refuses_is_counted_for_both_ends() {
    if !root_or_skip("a congestion control") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let control =
        CongestionControl::attach(lab.cgroup.0.path(), Wanted { tcp: Some("nosuch"), ..Wanted::default() }).unwrap();
    let _connection = connection(&lab);
    assert_eq!(control.counts().unwrap().refused, 2);
}

#[test]
fn a_congestion_control_that_a_program_chose_itself_is_left_alone_at_both_ends() {
    if !root_or_skip("a congestion control") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let _control =
        CongestionControl::attach(lab.cgroup.0.path(), Wanted { tcp: Some("cubic"), ..Wanted::default() }).unwrap();
    let (client, server) = connection_with(&lab, |socket| {
        nix::sys::socket::setsockopt(socket, sockopt::TcpCongestion, &"reno".into()).unwrap();
    });
    assert_eq!((name_of(&client), name_of(&server)), ("reno".into(), "reno".into()));
}

#[test]
fn a_listener_agrees_to_ecn_where_the_congestion_control_needs_it() {
    if !root_or_skip("a congestion control") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    // To a listener that is not DCTCP's a SYN of DCTCP is as one without ECN. The kernel may lack DCTCP: then the sysctl makes
    // the SYN such, and connections keep what they have.
    for (host, ecn) in [("h", "1"), ("s", "0")] {
        lab.network.node(lab.id(host)).run(|| set_sysctl("ipv4/tcp_ecn", ecn)).unwrap();
    }
    for (name, agreed) in [("reno", false), ("dctcp", true)] {
        let _control =
            CongestionControl::attach(lab.cgroup.0.path(), Wanted { tcp: Some(name), ..Wanted::default() }).unwrap();
        let (client, server) = connection(&lab);
        assert_eq!([client, server].map(|end| TcpInfo::of(&end).unwrap().ecn), [agreed; 2], "{name}");
    }
}

/// A connection from `h` to `s`, both ends of which are of the lab's control group.
fn connection(lab: &Lab) -> (TcpStream, TcpStream) {
    connection_with(lab, |_| {})
}

/// A connection from `h` to `s` in the lab's control group; `adjust` sees both sockets before they connect or listen.
fn connection_with(lab: &Lab, adjust: impl Fn(&OwnedFd)) -> (TcpStream, TcpStream) {
    let socket = |host| -> OwnedFd { socket_in(&lab.cgroup.0, lab.network.node(lab.id(host)), libc::AF_INET6) };
    let server = std::net::SocketAddr::from((lab.address("s"), crate::support::PORT));
    let reusable = socket("s");
    nix::sys::socket::setsockopt(&reusable, sockopt::ReuseAddr, &true).unwrap();
    adjust(&reusable);
    let listener = listen(reusable, server);
    let own = socket("h");
    adjust(&own);
    let client = connect(own, server).unwrap();
    (client, listener.accept().unwrap().0)
}

fn name_of(socket: &TcpStream) -> String {
    getsockopt(socket, sockopt::TcpCongestion).unwrap().to_string_lossy().trim_end_matches('\0').to_string()
}
