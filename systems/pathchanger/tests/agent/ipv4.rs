//! Destinations of IPv4: by next hops, and inside SRv6. An IPv6 socket that sends to `::ffff:a.b.c.d` uses the same
//! routes, and the agent moves it in the same manner.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    time::Duration,
};

use sidestep_hostd::StaticPath;
use sidestep_linux::{netns::set_sysctl, sock_diag::TcpInfo, testing::root_or_skip};
use sidestep_net::srv6;
use sidestep_pathchanger::daemon::program::HostProgram;

use crate::{
    support::{
        Agent, Flow, LITTLE, Lab, PORT, SOME, TWO_PROVIDERS, connect, eventually, listen, mark, segments, settings,
        slot, socket_in, tail, via,
    },
    takeover::Kept,
};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 1);
/// The client's prefix and the server's.
const NETS: [&str; 2] = ["10.0.1.0/24", "10.0.9.0/24"];

/// Each family of sockets, with the address by which it reaches the server.
fn families() -> [(libc::c_int, IpAddr); 2] {
    [(libc::AF_INET, SERVER.into()), (libc::AF_INET6, SERVER.to_ipv6_mapped().into())]
}

/// Gives `h` and `s` addresses of IPv4, and routes along these nodes from one to the other and back; the neighbours
/// stay those of IPv6.
fn add_ipv4(lab: &Lab, routes: &[&[&str]]) {
    lab.ip("h", &format!("address add {CLIENT}/32 dev lo"));
    lab.ip("s", &format!("address add {SERVER}/32 dev lo"));
    for route in routes {
        for hop in route.windows(2) {
            let (here, next) = (hop[0], hop[1]);
            lab.network.node(lab.id(here)).run(|| set_sysctl("ipv4/ip_forward", "1")).unwrap();
            let net = if route[0] == "s" { NETS[0] } else { NETS[1] };
            let source = match here {
                "h" => format!(" src {CLIENT}"),
                "s" => format!(" src {SERVER}"),
                _ => String::new(),
            };
            let next_hop = tail(lab, next, here);
            lab.ip(here, &format!("-4 route replace {net} via inet6 {next_hop} dev {next}{source}"));
        }
    }
}

fn two_providers() -> Lab {
    let lab = Lab::new(TWO_PROVIDERS);
    add_ipv4(&lab, &[&["h", "R2", "Z", "s"], &["h", "R1", "Z", "s"], &["s", "Z", "R1", "h"]]);
    lab
}

fn providers(lab: &Lab, rates: [&str; 2]) -> Vec<StaticPath> {
    vec![via(lab, "h", "R1", rates[0]), via(lab, "h", "R2", rates[1])]
}

/// Connects to the server, with a socket of the control group.
fn open(lab: &Lab, (family, server): (libc::c_int, IpAddr)) -> Flow {
    let listener = lab.network.node(lab.id("s")).run(|| Ok(TcpListener::bind((SERVER, PORT)).unwrap())).unwrap();
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), family);
    let client = connect(socket, (server, PORT)).unwrap();
    Flow::start((client, listener.accept().unwrap().0))
}

#[test]
fn a_connection_of_ipv4_moves_to_the_other_provider() {
    if !root_or_skip("moving a connection of IPv4") {
        return;
    }
    for family in families() {
        let lab = two_providers();
        let agent = Agent::start(&lab, "h", settings(), NETS[1], providers(&lab, ["1 Tbit/s", "1 kbit/s"]));
        let flow = open(&lab, family);
        flow.pass(SOME);
        assert_eq!(slot(&flow.sender), 1, "{family:?}");
        assert!(lab.carried(lab.arc("R2", "Z")) < LITTLE);
        lab.swallow("R1", "Z", true);
        let outage = flow.pass(SOME);
        // Bytes that were in flight already do not count.
        flow.pass(SOME);
        assert!(outage.as_secs_f64() < 4.0, "{outage:?}");
        assert_eq!(slot(&flow.sender), 2);
        assert!(lab.carried(lab.arc("R2", "Z")) >= SOME);
        let event = agent.moved("rto");
        assert_eq!((event.from, event.to, event.local.ip(), event.remote), (1, 2, CLIENT.into(), server()));
    }
}

fn server() -> SocketAddr {
    (SERVER, PORT).into()
}

/// The shortest path goes over A, the other path over B.
const CORE: &[(&str, &str, u32)] =
    &[("h", "R", 1), ("R", "A", 1), ("A", "Z", 1), ("R", "B", 10), ("B", "Z", 10), ("Z", "s", 1)];

#[test]
fn a_connection_of_ipv4_moves_from_one_segment_list_to_the_other() {
    if !root_or_skip("IPv4 inside SRv6") {
        return;
    }
    for family in families() {
        let lab = Lab::new(CORE);
        // Between R and Z there is no route of IPv4 to the server.
        add_ipv4(&lab, &[&["h", "R"], &["Z", "s"], &["s", "Z", "A", "R", "h"]]);
        let egress = srv6::router_address(lab.locator("Z")).to_bits() & !0xffff_ffff_ffff_ffff | (0xd4 << 64);
        let egress = std::net::Ipv6Addr::from_bits(egress);
        lab.ip("Z", &format!("-6 route add {egress} encap seg6local action End.DX4 nh4 {SERVER} dev s"));
        let by = |router, rate| segments(&[srv6::end_sid(lab.locator(router)), egress], rate);
        let paths = vec![by("A", "1 Tbit/s"), by("B", "1 kbit/s")];
        let agent = Agent::start(&lab, "h", settings(), NETS[1], paths);
        let flow = open(&lab, family);
        flow.pass(SOME);
        assert_eq!(slot(&flow.sender), 1, "{family:?}");
        assert!(lab.carried(lab.arc("A", "Z")) >= SOME && lab.carried(lab.arc("B", "Z")) < LITTLE);
        // The kernel takes the outer header and its list off the segment size. Inside: IPv4, and TCP with timestamps.
        let fits = 1_500 - srv6::encap_len(2) - 20 - 32;
        assert_eq!(TcpInfo::of(&flow.sender).unwrap().mss, fits);

        lab.swallow("A", "Z", true);
        let outage = flow.pass(SOME);
        // Bytes that were in flight already do not count.
        flow.pass(SOME);
        assert!(outage.as_secs_f64() < 4.0, "{outage:?}");
        assert_eq!((agent.moved("rto").to, slot(&flow.sender)), (2, 2));
        assert!(lab.carried(lab.arc("B", "Z")) >= SOME);
    }
}

#[test]
fn a_server_moves_what_it_sends_to_clients_of_ipv4() {
    if !root_or_skip("moving an accepted connection of IPv4") {
        return;
    }
    for (family, address) in [
        (libc::AF_INET, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        (libc::AF_INET6, IpAddr::from(std::net::Ipv6Addr::UNSPECIFIED)),
    ] {
        let lab = two_providers();
        let agent = Agent::start(&lab, "h", settings(), NETS[1], providers(&lab, ["1 Tbit/s", "1 kbit/s"]));
        let listener = listen(socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), family), (address, PORT));
        let client = socket_in(&lab.cgroup.0, lab.network.node(lab.id("s")), libc::AF_INET);
        let client = connect(client, (CLIENT, PORT)).unwrap();
        let flow = Flow::start((listener.accept().unwrap().0, client));
        flow.pass(SOME);
        lab.swallow("R1", "Z", true);
        flow.pass(SOME);
        let event = agent.moved("rto");
        assert_eq!((event.passive, event.to, event.remote.ip()), (true, 2, SERVER.into()), "{family}");
    }
}

#[test]
fn connections_of_ipv4_are_listed_follow_their_paths_and_are_left_as_they_were() {
    if !root_or_skip("paths of IPv4 that change") {
        return;
    }
    let (lab, kept) = (two_providers(), Kept::new());
    let pins = kept.pins(false);
    let rules = || lab.ip("h", "-4 rule show");
    let routes = || lab.ip("h", "-4 route show table all proto 83");
    let before = (rules(), routes());
    let paths = providers(&lab, ["1 kbit/s", "1 Tbit/s"]);
    let agent = Agent::start_with(&lab, "h", settings(), NETS[1], paths, Some(pins.clone()));
    assert!(rules().contains("830: from all fwmark 0x2000000/0x3f000000 iif lo lookup 8302"), "{}", rules());
    assert!(routes().contains("table 8302"), "{}", routes());
    assert!(!lab.ip("h", "-6 rule show").contains("fwmark"), "IPv6 has no paths");
    let flows = families().map(|family| open(&lab, family));
    for flow in &flows {
        flow.pass(SOME);
        assert_eq!(slot(&flow.sender), 2);
    }
    let listed = || HostProgram::look(&pins).unwrap().unwrap().connections().unwrap();
    let list = lab.network.node(lab.id("h")).run(|| Ok(listed())).unwrap();
    assert_eq!(list.iter().map(|one| (one.remote, one.path)).collect::<Vec<_>>(), [(server(), agent.ids()[&2]); 2]);
    assert!(list.iter().all(|one| one.local.ip() == CLIENT));

    agent.reconfigure(settings(), NETS[1], vec![via(&lab, "h", "R1", "1 Gbit/s")]);
    for flow in &flows {
        eventually("the only path left", || (slot(&flow.sender) == 1).then_some(()));
    }
    agent.stop();
    assert_eq!((rules(), routes()), before);
    std::thread::sleep(Duration::from_millis(50));
    for flow in &flows {
        assert_eq!(mark(&flow.sender), 0);
        flow.pass(SOME);
    }
}
