//! What is this host's own or on a link only is left alone, whatever prefix covers it.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use sidestep_hostd::StaticDestination;
use sidestep_linux::{netlink, testing::root_or_skip};
use sidestep_pathchanger::daemon::program::HostProgram;

use crate::{
    support::{Agent, Lab, TWO_PROVIDERS, connect, eventually, mark, settings, socket_in, via},
    takeover::{Kept, in_host},
};

/// The mark of a connection of the host to one of its own addresses.
fn mark_towards(lab: &Lab, address: &str) -> u32 {
    let address: IpAddr = address.parse().unwrap();
    let bind: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let listener = in_host(lab, || TcpListener::bind((bind, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), family);
    let client = connect(socket, SocketAddr::new(address, port)).unwrap();
    mark(&client)
}

#[test]
fn the_hosts_own_addresses_are_left_alone_and_so_is_one_that_comes_later() {
    if !root_or_skip("connections of a host to itself") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let pins = kept.pins(false);
    lab.network.node(lab.id("h")).run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    lab.ip("h", "address add 10.9.8.7/32 dev lo");
    let paths = || ["R1", "R2"].map(|by| via(&lab, "h", by, "1 Gbit/s")).to_vec();
    let agent = Agent::start_with(&lab, "h", settings(), "::/0", paths(), Some(pins.clone()));
    let both =
        ["::/0", "0.0.0.0/0"].map(|prefix| StaticDestination { prefix: prefix.parse().unwrap(), paths: paths() });
    agent.reconfigure_all(settings(), both.to_vec());
    eventually("both destinations", || agent.has_destination("0.0.0.0/0").then_some(()));
    let own = lab.address("h").to_string();
    for address in ["127.0.0.1", "127.9.9.9", "10.9.8.7", "0.0.0.0", "::1", "::", "::ffff:10.9.8.7", &own] {
        assert_eq!(mark_towards(&lab, address), 0, "{address}");
    }
    let opened = || {
        let counters = in_host(&lab, || HostProgram::look(&pins).unwrap().unwrap().counters().unwrap());
        counters.active + counters.passive
    };
    assert_eq!(opened(), 0, "nothing of this got a path");
    for (family, net) in [("-4", "throw 10.9.8.7"), ("-4", "throw 224.0.0.0/4"), ("-6", "throw fe80::/10")] {
        let routes = lab.ip("h", &format!("{family} route show table 8301"));
        assert!(routes.contains(net), "{net} is not in {routes}");
    }

    for (address, add) in
        [("10.9.8.6", "address add 10.9.8.6/32 dev lo"), ("fd77::1", "-6 address add fd77::1/128 dev lo")]
    {
        lab.ip("h", add);
        let start = Instant::now();
        eventually("the new address to be left alone", || (mark_towards(&lab, address) == 0).then_some(()));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
    agent.stop();
}
