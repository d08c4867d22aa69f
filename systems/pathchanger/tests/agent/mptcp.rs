//! Connections of MPTCP: each subflow is a connection of its own to the path changer.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr, SocketAddrV6},
};

use sidestep_linux::testing::root_or_skip;

use crate::support::{
    Agent, Flow, Lab, PORT, SOME, TWO_PROVIDERS, connect, eventually, listen, settings, socket_of, via,
};

#[test]
fn each_subflow_of_an_mptcp_connection_has_its_own_path_and_moves_by_itself() {
    if !root_or_skip("subflows of MPTCP") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let (host, server) = (lab.network.node(lab.id("h")), lab.network.node(lab.id("s")));
    let second = Ipv6Addr::from_bits(lab.address("h").to_bits() + 1);
    lab.ip("h", &format!("address add {second}/128 dev lo nodad"));
    lab.ip("h", &format!("mptcp endpoint add {second} subflow"));
    for node in ["h", "s"] {
        lab.ip(node, "mptcp limits set subflow 2");
    }
    let paths = vec![via(&lab, "h", "R1", "1 Tbit/s"), via(&lab, "h", "R2", "1 kbit/s")];
    let agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), paths);
    let socket = |node| socket_of(&lab.cgroup.0, node, libc::AF_INET6, libc::IPPROTO_MPTCP);
    let listener = listen(socket(server), SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PORT, 0, 0));
    let client = connect(socket(host), SocketAddrV6::new(lab.address("s"), PORT, 0, 0)).unwrap();
    let flow = Flow::start((client, listener.accept().unwrap().0));
    flow.pass(SOME);
    let subflows = BTreeSet::from([lab.address("h"), second].map(IpAddr::from));
    let those_that = |kind: &str, to| {
        let events = agent.events();
        events.iter().filter(|e| e.kind == kind && e.to == to).map(|e| e.local.ip()).collect::<BTreeSet<_>>()
    };
    eventually("a path for each subflow", || (those_that("opened", 1) == subflows).then_some(()));

    lab.swallow("R1", "Z", true);
    flow.pass(20 * SOME);
    eventually("a move of each subflow", || (those_that("moved", 2) == subflows).then_some(()));
    assert!(lab.carried(lab.arc("R2", "Z")) >= SOME);
}
