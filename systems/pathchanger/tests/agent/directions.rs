//! The end that accepted a connection moves the direction in which it sends.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};

use sidestep_linux::testing::root_or_skip;

use crate::support::{Agent, Flow, Lab, PORT, SOME, TWO_PROVIDERS, connect, listen, settings, slot, socket_in, via};

#[test]
fn a_server_moves_what_it_sends() {
    if !root_or_skip("moving an accepted connection") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let paths = vec![via(&lab, "h", "R1", "1 Tbit/s"), via(&lab, "h", "R2", "1 kbit/s")];
    let agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), paths);
    let (host, client) = (lab.network.node(lab.id("h")), lab.network.node(lab.id("s")));
    let listener =
        listen(socket_in(&lab.cgroup.0, host, libc::AF_INET6), SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PORT, 0, 0));
    // In the same group, and in a namespace whose agent this is not: the paths are only to the client's prefix.
    let client = socket_in(&lab.cgroup.0, client, libc::AF_INET6);
    let client = connect(client, SocketAddrV6::new(lab.address("h"), PORT, 0, 0)).unwrap();
    let flow = Flow::start((listener.accept().unwrap().0, client));
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 1);
    lab.swallow("R1", "Z", true);
    flow.pass(SOME);
    let event = agent.moved("rto");
    assert_eq!((event.passive, event.from, event.to), (true, 1, 2));
    assert_eq!((event.local.port(), event.remote.ip()), (PORT, IpAddr::from(lab.address("s"))));
    assert!(agent.events().iter().all(|event| event.passive), "the client has no paths to the server");
}
