//! Traffic of other kinds through two edges: UDP, IPv4 over segment lists, strict reverse paths, programs that know no MPTCP.

use std::{
    collections::BTreeSet,
    env, fs,
    net::{SocketAddr, TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, getsockname, socket},
};
use sidestep_linux::{
    mptcp::tcp_ends,
    netns::{NetNs, set_sysctl},
    sock_diag::{SockDiag, TcpState},
    testing::root_or_skip,
};

use crate::{
    net::{Ip, Net, PATHS, PATIENCE, PORT, config, eventually, ip, tuple},
    support::{self, Host, PathManager, accepting},
};

#[test]
fn both_directions_of_udp_take_the_path_that_both_edges_name() {
    if !root_or_skip("UDP through edges") {
        return;
    }
    let net = Net::new();
    let (_e1, _e2) = (net.edge(&net.e1, &config(true, "")), net.edge(&net.e2, &config(false, "")));
    for version in [Ip::V4, Ip::V6] {
        let server = net.b.run(|| Ok(UdpSocket::bind((version.at_b(), PORT)).unwrap())).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut used = BTreeSet::new();
        while used.len() < PATHS {
            let client = net.a.run(|| Ok(UdpSocket::bind((version.at_a(), 0)).unwrap())).unwrap();
            client.connect((version.at_b(), PORT)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let flow = tuple("udp", client.local_addr().unwrap(), client.peer_addr().unwrap());
            let before = [net.sent(&net.e1), net.sent(&net.e2)];
            let (mut packet, mut from) = ([0; 1_500], None);
            for number in 0..30_u8 {
                client.send(&[number; 1_000]).unwrap();
                let (length, sender) = server.recv_from(&mut packet).unwrap();
                server.send_to(&packet[..length], sender).unwrap();
                assert_eq!((client.recv(&mut packet).unwrap(), packet[999]), (1_000, number));
                assert_eq!(*from.get_or_insert(sender), sender);
            }
            let taken = [net.busiest(&net.e1, &before[0]), net.busiest(&net.e2, &before[1])];
            let named = [&net.e1, &net.e2].map(|edge| net.place(edge, &flow).position);
            assert_eq!(taken, named, "{flow:?}");
            assert_eq!(taken[0], taken[1]);
            used.insert(taken[0]);
        }
    }
}

#[test]
fn ipv4_crosses_the_network_inside_segment_lists() {
    if !root_or_skip("IPv4 over SRv6 at an edge") {
        return;
    }
    let net = Net::new();
    // The last segment decapsulates towards the site: End.DX4, as End.DT4 and End.DT46 need a VRF, which not every kernel has.
    for (near, far, locator, last) in [(&net.e1, &net.e2, "fd0f:0:2", 2), (&net.e2, &net.e1, "fd0f:0:1", 1)] {
        for path in ["all", "p1", "p2"] {
            far.run(|| set_sysctl(&format!("ipv6/conf/{path}/seg6_enabled"), "1")).unwrap();
        }
        for path in [1, 2] {
            ip(near, &format!("link set p{path} mtu 1700"));
            ip(near, &format!("-6 route add {locator}:{path}::/64 via fd09:0:0:{path}::{last}"));
            let decapsulates = format!("encap seg6local action End.DX4 nh4 10.{last}.0.1 dev p{path}");
            ip(far, &format!("-6 route add {locator}:{path}:: {decapsulates}"));
        }
    }
    let file = |site: &str, locator: &str| {
        let path = |path| format!("{{ name = \"sid-{path}\", segments = [\"{locator}:{path}::\"] }}");
        format!(
            "[edge]\ninside = [\"in\"]\nsymmetric = true\n[[destination]]\nprefix = \"{site}\"\npath = [{}, {}]\n",
            path(1),
            path(2)
        )
    };
    let _e1 = net.edge(&net.e1, &file("10.2.0.0/16", "fd0f:0:2"));
    let _e2 = net.edge(&net.e2, &file("10.1.0.0/16", "fd0f:0:1"));
    let status = net.status(&net.e1);
    let listener = net.listen(Ip::V4);
    let mut used = BTreeSet::new();
    for _ in 0..16 {
        let mut both = net.connect(Ip::V4, &listener);
        let flow = tuple("tcp", both.0.local_addr().unwrap(), both.0.peer_addr().unwrap());
        let named = status.place(&flow).unwrap().unwrap().position + 1;
        assert_eq!(net.paths_of(&mut both), [named; 2]);
        used.insert(named);
    }
    assert_eq!(used, BTreeSet::from([1, 2]));
}

#[test]
fn a_strict_reverse_path_harms_at_the_paths_and_not_at_the_site_with_src_valid_mark_or_without() {
    if !root_or_skip("rp_filter at an edge") {
        return;
    }
    let net = Net::new();
    let (_e1, _e2) = (net.edge(&net.e1, &config(true, "")), net.edge(&net.e2, &config(false, "")));
    let set = |interface: &str, name: &str, value: &str| {
        net.e1.run(|| set_sysctl(&format!("ipv4/conf/{interface}/{name}"), value)).unwrap();
    };
    let listener = net.listen(Ip::V4);
    set("in", "rp_filter", "1");
    for valid in ["0", "1"] {
        set("in", "src_valid_mark", valid);
        let mut used = BTreeSet::new();
        while used.len() < PATHS {
            let paths = net.paths_of(&mut net.connect(Ip::V4, &listener));
            assert_eq!(paths[0], paths[1]);
            used.insert(paths[0]);
        }
    }
    // What comes from the other edge carries no mark here: the path back is the router's own route, the first path.
    set("p1", "rp_filter", "1");
    for valid in ["0", "1"] {
        set("p1", "src_valid_mark", valid);
        let status = net.status(&net.e1);
        let (mut through, mut lost) = (0, 0);
        while through < 8 || lost < 2 {
            let socket = net.a.run(|| Ok(bound_socket())).unwrap();
            let local: SockaddrIn = getsockname(socket.as_raw_fd()).unwrap();
            let remote = SocketAddr::new(Ip::V4.at_b(), PORT);
            let local = SocketAddr::new(Ip::V4.at_a(), local.port());
            let position = status.place(&tuple("tcp", local, remote)).unwrap().unwrap().position;
            let patience = if position == 1 { 300 } else { 15_000 };
            let connected = connects(&socket, patience);
            assert_eq!(connected, position != 1, "path {position}, src_valid_mark {valid}");
            (through, lost) = (through + usize::from(connected), lost + usize::from(!connected));
        }
    }
    set("p1", "rp_filter", "2");
    set("p1", "src_valid_mark", "0");
    // No process has accepted those that came about.
    drop(listener);
    let listener = net.listen(Ip::V4);
    for _ in 0..16 {
        net.talk(&mut net.connect(Ip::V4, &listener));
    }
}

/// A socket of TCP at the first site that has its port already.
fn bound_socket() -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
    bind(socket.as_raw_fd(), &SockaddrIn::new(10, 1, 0, 1, 0)).unwrap();
    socket
}

/// Whether a connection to the other site comes about in `patience` milliseconds.
fn connects(socket: &OwnedFd, patience: u16) -> bool {
    let _ = connect(socket.as_raw_fd(), &SockaddrIn::new(10, 2, 0, 1, PORT));
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::from(patience)).unwrap();
    polled[0].revents() == Some(PollFlags::POLLOUT)
}

/// Where Debian's package libmptcpwrap0 has what `mptcpize run` loads into a program; `LIBMPTCPWRAP` names another place.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/mptcpize/libmptcpwrap.so.0.0.1";

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program in a node as `mptcpize run` does: with a library that makes its sockets of TCP sockets of MPTCP.
fn mptcpized(node: &NetNs, program: &str, arguments: &[&str], output: Stdio) -> Running {
    let library = env::var("LIBMPTCPWRAP").unwrap_or_else(|_| LIBRARY.into());
    assert!(Path::new(&library).exists(), "{library}: install mptcpize, or set LIBMPTCPWRAP");
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    Running(node.run(|| Ok(command.spawn().unwrap())).unwrap())
}

#[test]
#[ignore = "needs mptcpize, curl and python3"]
fn an_unmodified_program_under_mptcpize_has_32_subflows_over_all_paths_and_its_file_is_intact() {
    let net = Net::new();
    let [client, server] = [&net.a, &net.b].map(|node| {
        ip(node, "link set lo up");
        Host(node.run(NetNs::current).unwrap())
    });
    let (_e1, _e2) = (net.edge(&net.e1, &config(true, "")), net.edge(&net.e2, &config(false, "")));
    let (_client, _server) = (PathManager::start(&client, support::config("")), accepting(&server));
    let directory = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..64_u32 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    fs::write(directory.path().join("file"), &bytes).unwrap();
    let (place, port) = (directory.path().to_str().unwrap(), PORT.to_string());
    let serve = ["-m", "http.server", "--bind", "10.2.0.1", "--directory", place, &port];
    let _http = mptcpized(&net.b, "python3", &serve, Stdio::null());
    eventually("the server", || net.a.run(|| Ok(TcpStream::connect(("10.2.0.1", PORT)).ok())).unwrap());
    let before = net.sent(&net.e2);
    let got = directory.path().join("got");
    let url = format!("http://10.2.0.1:{PORT}/file");
    let fetch = ["--silent", "--limit-rate", "16M", "--output", got.to_str().unwrap(), &url];
    let mut curl = mptcpized(&net.a, "curl", &fetch, Stdio::null());
    let subflows = || {
        let mut all = client.run(|| tcp_ends(&mut SockDiag::open().unwrap()).unwrap());
        all.retain(|ends| ends.state == TcpState::Established && ends.subflow.is_some());
        all
    };
    eventually("32 subflows", || (subflows().len() == 32).then_some(()));
    let mut of_path = [0; PATHS];
    for listed in subflows() {
        let flow = tuple("tcp", listed.ends.local, listed.ends.remote);
        let [there, back] = [&net.e1, &net.e2].map(|edge| net.place(edge, &flow).position);
        assert_eq!(there, back);
        of_path[there] += 1;
    }
    println!("subflows of curl by path: {of_path:?}");
    assert!(of_path.iter().all(|count| *count > 0), "{of_path:?}");
    assert!(curl.0.wait().unwrap().success());
    thread::sleep(Duration::from_millis(100));
    assert!(fs::read(got).unwrap() == bytes, "what arrived is what was sent");
    let carried: Vec<u64> = net.sent(&net.e2).iter().zip(&before).map(|(now, before)| now - before).collect();
    println!("bytes by path: {carried:?}");
    assert!(carried.iter().filter(|bytes| **bytes > 1 << 20).count() >= 2, "{carried:?}");
}
