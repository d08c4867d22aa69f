//! A host with two providers and an address of each, and no address of its own: its connections cannot move. One provider
//! dies silently. What is stuck shows new connections which provider works.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use nix::sys::{
    socket::{setsockopt, sockopt},
    time::TimeVal,
};
use sidestep_hostd::StaticPath;
use sidestep_linux::{netlink, netns::set_sysctl, testing::root_or_skip};
use sidestep_net::Span;
use sidestep_pathchanger::daemon::program::HostProgram;
use sidestep_policy::Stay;

use crate::{
    metrics::{LISTEN, scrape},
    support::{
        Agent, Flow, Lab, PATIENCE, PORT, SOME, TWO_PROVIDERS, connect, eventually, settings, slot, socket_in, tail,
        via,
    },
    takeover::{Kept, in_host},
};

const PROVIDERS: [&str; 2] = ["R1", "R2"];
/// The host's addresses, one of each provider, and their prefixes.
const ADDRESSES: [[&str; 2]; 2] = [["198.51.100.10", "198.51.100.0/24"], ["203.0.113.10", "203.0.113.0/24"]];
const ADDRESSES_V6: [[&str; 2]; 2] = [["2001:db8:a::10", "2001:db8:a::/64"], ["2001:db8:b::10", "2001:db8:b::/64"]];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 1);
const SERVER_NET: &str = "10.0.9.0/24";

/// A family of sockets, and the server as they reach it.
#[derive(Clone, Copy, Debug)]
struct Kind {
    family: libc::c_int,
    server: IpAddr,
}

impl Kind {
    fn all(lab: &Lab) -> [Kind; 3] {
        [
            Kind { family: libc::AF_INET, server: SERVER.into() },
            Kind { family: libc::AF_INET6, server: SERVER.to_ipv6_mapped().into() },
            Kind { family: libc::AF_INET6, server: lab.address("s").into() },
        ]
    }

    fn is_ipv4(self) -> bool {
        self.server.to_canonical().is_ipv4()
    }

    /// Connects; gives up after two seconds.
    fn connect(self, lab: &Lab) -> Option<TcpStream> {
        let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), self.family);
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(2, 0)).unwrap();
        connect(socket, SocketAddr::new(self.server, PORT)).ok()
    }
}

/// The network, with the addresses of both providers. Each provider drops what comes from an address of the other.
fn lab() -> Lab {
    let lab = Lab::new(TWO_PROVIDERS);
    let node = |name: &str| lab.network.node(lab.id(name));
    node("h").run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    for router in ["R1", "R2", "Z"] {
        node(router).run(|| set_sysctl("ipv4/ip_forward", "1")).unwrap();
    }
    lab.ip("s", &format!("address add {SERVER}/32 dev lo"));
    lab.ip("s", &format!("-4 route add default via inet6 {} dev Z", tail(&lab, "Z", "s")));
    lab.ip("Z", &format!("-4 route add {SERVER_NET} via inet6 {} dev s", tail(&lab, "s", "Z")));
    for (provider, addresses) in PROVIDERS.iter().zip(ADDRESSES.iter().zip(&ADDRESSES_V6)) {
        let ([v4, net], [v6, net_v6]) = addresses;
        lab.ip("h", &format!("address add {v4}/24 dev {provider}"));
        lab.ip("h", &format!("-6 address add {v6}/64 dev {provider} nodad"));
        lab.ip(provider, &format!("-4 route add {SERVER_NET} via inet6 {} dev Z", tail(&lab, "Z", provider)));
        for (family, net) in [("-4", net), ("-6", net_v6)] {
            let inet6 = if family == "-4" { "inet6 " } else { "" };
            for (at, next) in [(*provider, "h"), ("Z", *provider)] {
                lab.ip(at, &format!("{family} route add {net} via {inet6}{} dev {next}", tail(&lab, next, at)));
            }
        }
    }
    // Without the agent everything leaves by the first.
    let gateway = tail(&lab, "R1", "h");
    lab.ip("h", &format!("-4 route add {SERVER_NET} via inet6 {gateway} dev R1"));
    lab.ip("h", &format!("-6 route replace {} via {gateway} dev R1 src {}", lab.prefix("s"), ADDRESSES_V6[0][0]));
    lab
}

fn providers(lab: &Lab) -> Vec<StaticPath> {
    // Neither rate nor round trip is given.
    let path = |provider: &&str| StaticPath {
        name: Some((*provider).into()),
        rtt: Span::ZERO,
        ..via(lab, "h", provider, "1 Gbit/s")
    };
    PROVIDERS.iter().map(path).collect()
}

fn start(lab: &Lab, kind: Kind) -> Agent {
    let destination = if kind.is_ipv4() { SERVER_NET.into() } else { lab.prefix("s").to_string() };
    Agent::start_as(lab, "h", settings(), &destination, providers(lab), |options| {
        options.config.metrics.listen = Some(LISTEN.parse().unwrap());
    })
}

fn serve(lab: &Lab, kind: Kind) -> TcpListener {
    if kind.is_ipv4() {
        let bind = || Ok(TcpListener::bind((SERVER, PORT)).unwrap());
        return lab.network.node(lab.id("s")).run(bind).unwrap();
    }
    lab.serve("s")
}

/// The first provider loses everything, in both directions, or works again.
fn silence(lab: &Lab, silent: bool) {
    lab.swallow("R1", "Z", silent);
    lab.swallow("Z", "R1", silent);
}

/// The slots of twenty new connections, one after the other; zero for one that failed.
fn twenty(lab: &Lab, kind: Kind, listener: &TcpListener) -> Vec<usize> {
    let open = |_| {
        let slot = kind.connect(lab).map_or(0, |stream| slot(&stream));
        // Its queue must not fill up.
        while listener.accept().is_ok() {}
        slot
    };
    (0..20).map(open).collect()
}

/// Whether a path is dead by what Prometheus reads; `None` where the page has no such path.
fn dead(lab: &Lab, name: &str) -> Option<bool> {
    let of = format!("name=\"{name}\"}}");
    let page = scrape(lab);
    let line = page.lines().find(|line| line.starts_with("sidestep_agent_path_dead{") && line.contains(&of))?;
    Some(line.ends_with(" 1.0"))
}

#[test]
fn new_connections_take_the_other_provider_three_seconds_after_one_died_silently() {
    if !root_or_skip("a provider that dies silently") {
        return;
    }
    for turn in 0..3 {
        let lab = lab();
        let kind = Kind::all(&lab)[turn];
        let agent = start(&lab, kind);
        let listener = serve(&lab, kind);
        let open = || Flow::start((kind.connect(&lab).unwrap(), listener.accept().unwrap().0));
        let mut flows: Vec<Flow> = Vec::new();
        while flows.iter().filter(|flow| slot(&flow.sender) == 1).count() < 2 {
            assert!(flows.len() < 40, "connections begin on both paths");
            flows.push(open());
        }
        for flow in &flows {
            flow.pass(SOME / 10);
        }
        listener.set_nonblocking(true).unwrap();
        assert_eq!(dead(&lab, "R1"), Some(false), "{kind:?}");

        silence(&lab, true);
        thread::sleep(Duration::from_secs(3));
        assert_eq!(twenty(&lab, kind, &listener), [2; 20], "{kind:?}");
        assert_eq!((dead(&lab, "R1"), dead(&lab, "R2")), (Some(true), Some(false)), "{kind:?}");
        let stays = |one: &sidestep_pathchanger::daemon::EventRecord| {
            one.kind == "stayed" && one.stay.as_deref() == Some(Stay::OnlyPath.as_str()) && (one.from, one.to) == (1, 1)
        };
        let event = eventually("a record of a timeout", || agent.events().into_iter().find(stays));
        assert_eq!(event.reason.as_deref(), Some("rto"));
        let page = scrape(&lab);
        let counted = crate::metrics::value(&page, "sidestep_agent_stays_total{why=\"only_path\"}");
        assert!(counted.is_some_and(|n| n >= 1.0), "{page}");
        assert!(page.contains("sidestep_agent_path_rtt_seconds{"), "{kind:?} is measured: {page}");

        silence(&lab, false);
        eventually("the path to work again", || (dead(&lab, "R1") == Some(false)).then_some(()));
        eventually("new connections on it", || twenty(&lab, kind, &listener).contains(&1).then_some(()));
        drop(listener);
        agent.stop();
    }
}

#[test]
fn a_host_that_seldom_connects_finds_out_by_its_first_connection_and_the_agent_tries_the_path() {
    if !root_or_skip("a quiet host's provider that dies") {
        return;
    }
    let lab = lab();
    let kind = Kind::all(&lab)[0];
    let agent = start(&lab, kind);
    let listener = serve(&lab, kind);
    // A far end must be there that the agent may ask.
    let served = loop {
        let stream = kind.connect(&lab).unwrap();
        if slot(&stream) == 2 {
            break stream;
        }
    };
    listener.set_nonblocking(true).unwrap();
    silence(&lab, true);
    eventually("a connection that fails", || kind.connect(&lab).is_none().then_some(()));
    assert_eq!(twenty(&lab, kind, &listener), [2; 20]);
    assert_eq!(dead(&lab, "R1"), Some(true));
    // What was stuck is gone, so that nothing but the agent's own connection can prove the path.
    silence(&lab, false);
    sidestep_linux::testing::eventually("a trial", Duration::from_secs(60), || {
        (dead(&lab, "R1") == Some(false)).then_some(())
    });
    eventually("new connections on it", || twenty(&lab, kind, &listener).contains(&1).then_some(()));
    drop((served, listener));
    agent.stop();
}

#[test]
fn moves_by_changed_paths_are_counted_and_a_path_that_went_is_shown() {
    if !root_or_skip("paths that go under connections") {
        return;
    }
    let (lab, kept) = (lab(), Kept::new());
    let pins = kept.pins(false);
    let kind = Kind::all(&lab)[0];
    // Both take all addresses.
    let paths = || -> Vec<StaticPath> {
        let all = vec!["0.0.0.0/0".parse().unwrap()];
        providers(&lab).into_iter().map(|path| StaticPath { sources: all.clone(), ..path }).collect()
    };
    let agent = Agent::start_with(&lab, "h", settings(), SERVER_NET, paths(), Some(pins.clone()));
    let listener = serve(&lab, kind);
    let (mut streams, mut ends) = (Vec::new(), Vec::new());
    while streams.iter().filter(|stream| slot(stream) == 1).count() < 3 {
        streams.push(kind.connect(&lab).unwrap());
        ends.push(listener.accept().unwrap().0);
    }
    let on_first = streams.iter().filter(|stream| slot(stream) == 1).count() as u64;
    let gone = agent.ids()[&1];
    agent.reconfigure(settings(), SERVER_NET, paths().split_off(1));
    eventually("the other path", || streams.iter().all(|stream| slot(stream) == 2).then_some(()));
    let (counters, list, names) = in_host(&lab, || {
        let program = HostProgram::look(&pins).unwrap().unwrap();
        let names = eventually("the name", || {
            let names = program.names().unwrap();
            names.keys().any(|(_, id)| *id == gone).then_some(names)
        });
        (program.counters().unwrap(), program.connections().unwrap(), names)
    });
    assert_eq!(counters.moves().find(|(reason, _)| *reason == "paths_changed"), Some(("paths_changed", on_first)));
    let moved: Vec<_> = list.iter().filter(|one| one.moves == 1).collect();
    assert_eq!(moved.len() as u64, on_first, "{list:?}");
    assert!(moved.iter().all(|one| one.decided.is_some_and(|(_, why)| why.as_str() == "paths_changed")), "{moved:?}");
    // A path with a name and without a slot was withdrawn.
    assert!(names.iter().any(|((_, id), name)| *id == gone && name == "R1"), "{names:?}");
    drop((listener, ends));
    agent.stop();
}

#[test]
fn a_connection_whose_address_the_host_has_lost_shows_nothing_of_the_provider_that_is_left() {
    if !root_or_skip("an interface that goes") {
        return;
    }
    let lab = lab();
    let kind = Kind::all(&lab)[0];
    let agent = start(&lab, kind);
    let listener = serve(&lab, kind);
    let (mut stuck, mut peer) = loop {
        let (stream, peer) = (kind.connect(&lab).unwrap(), listener.accept().unwrap().0);
        if slot(&stream) == 1 {
            break (stream, peer);
        }
    };
    let (lost, net) = (ADDRESSES[0][0], ADDRESSES[0][1]);
    // It goes with data on the path, and the kernel removes its routes with it.
    silence(&lab, true);
    stuck.write_all(&[7; 1000]).unwrap();
    lab.ip("h", &format!("address del {lost}/24 dev R1"));
    agent.reconfigure(settings(), SERVER_NET, providers(&lab).split_off(1));
    eventually("the path that is left", || (slot(&stuck) == 2).then_some(()));
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(100));
        assert_ne!(dead(&lab, "R2"), Some(true));
    }
    listener.set_nonblocking(true).unwrap();
    assert_eq!(twenty(&lab, kind, &listener), [2; 20]);
    assert_eq!(dead(&lab, "R2"), Some(false));

    // It goes on when its address and path are back.
    silence(&lab, false);
    lab.ip("h", &format!("address add {lost}/24 dev R1"));
    lab.ip("R1", &format!("-4 route replace {net} via inet6 {} dev h", tail(&lab, "h", "R1")));
    agent.reconfigure(settings(), SERVER_NET, providers(&lab));
    eventually("its own provider", || (slot(&stuck) != 2).then_some(()));
    let mut received = [0; 1000];
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.read_exact(&mut received).unwrap();
    agent.stop();
}
