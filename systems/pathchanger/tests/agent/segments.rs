//! Paths by segment lists of the host's own.

use std::{
    io,
    net::{Ipv6Addr, UdpSocket},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};
use sidestep_linux::{
    netlink::{self, Family, MarkRule, Route, Target},
    sock_diag::TcpInfo,
    testing::root_or_skip,
};
use sidestep_net::srv6;

use crate::support::{Agent, Flow, LITTLE, Lab, SOME, segments, settings, slot, via};

/// The shortest path goes over A. Two links lead to B; no shortest path uses the second.
const CORE: &[(&str, &str, u32)] =
    &[("h", "R", 1), ("R", "A", 1), ("A", "Z", 1), ("R", "B", 10), ("R", "B", 100), ("B", "Z", 10), ("Z", "s", 1)];

#[test]
fn a_segment_list_carries_traffic_by_way_of_a_router() {
    if !root_or_skip("End") {
        return;
    }
    let lab = Lab::new(CORE);
    let by_b = segments(&[srv6::end_sid(lab.locator("B"))], "1 Gbit/s");
    let _agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), vec![by_b]);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let carried = |from, to, link: usize| lab.carried(lab.arcs(from, to)[link]);
    assert!(carried("R", "B", 0) >= SOME && carried("B", "Z", 0) >= SOME);
    assert!(carried("R", "B", 1) < LITTLE && carried("R", "A", 0) < LITTLE);
}

#[test]
fn a_segment_list_carries_traffic_through_a_link_that_no_shortest_way_uses() {
    if !root_or_skip("End.X") {
        return;
    }
    let lab = Lab::new(CORE);
    let link = lab.arcs("R", "B")[1].link();
    let list = [srv6::adjacency_sid(lab.locator("R"), link), srv6::end_sid(lab.locator("A"))];
    let _agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), vec![segments(&list, "1 Gbit/s")]);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let carried = |from, to, link: usize| lab.carried(lab.arcs(from, to)[link]);
    // From B, the shortest path to A leads back over R. From A, the packets go on to Z.
    assert!(carried("R", "B", 1) >= SOME && carried("A", "Z", 0) >= SOME);
    assert!(carried("R", "B", 0) < LITTLE);
}

#[test]
fn an_inserted_header_is_taken_off_the_segment_size_and_the_connection_does_not_stall() {
    if !root_or_skip("the MSS after a move") {
        return;
    }
    let lab = Lab::new(CORE);
    let plain = via(&lab, "h", "R", "1 Tbit/s");
    let by_b = segments(&[srv6::end_sid(lab.locator("B"))], "1 kbit/s");
    let agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), vec![plain, by_b]);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    // IPv6 header, and a TCP header with timestamps.
    let fits = 1_500 - srv6::IPV6_HEADER - 32;
    assert_eq!((slot(&flow.sender), TcpInfo::of(&flow.sender).unwrap().mss), (1, fits));

    lab.swallow("A", "Z", true);
    let outage = flow.pass(SOME);
    agent.moved("rto");
    assert!(outage.as_secs_f64() < 4.0, "{outage:?}");
    // The list and, in its last place, the destination itself.
    let info = TcpInfo::of(&flow.sender).unwrap();
    assert_eq!((slot(&flow.sender), info.mss), (2, fits - srv6::srh_len(2)));
}

/// The trap: in a marked table, a route for everything also catches the packet that has just got its header, whose
/// destination is now the SID, and so on.
#[test]
fn a_marked_route_must_name_the_destination_and_not_everything() {
    if !root_or_skip("a default route with segments") {
        return;
    }
    let lab = Lab::new(CORE);
    let sid = srv6::end_sid(lab.locator("B"));
    let (host, server) = (lab.network.node(lab.id("h")), lab.network.node(lab.id("s")));
    let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 9)).map_err(|e| sidestep_linux::LinuxError::io("bind", e));
    let (from, to) = (host.run(bind).unwrap(), server.run(bind).unwrap());
    to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    setsockopt(&from, sockopt::Mark, &0x100).unwrap();
    let arrives = |destination: &str| {
        host.run(|| {
            netlink::block_on(async |netlink| {
                netlink
                    .add_rule(MarkRule { family: Family::V6, mark: 0x100, mask: 0xff00, table: 8301, priority: 830 })
                    .await?;
                let target = Target::Segments(vec![sid], netlink.route_to(sid).await?);
                let destination = destination.parse().unwrap();
                netlink.add_route(&Route { table: 8301, destination, target, mtu: None }).await?;
                // The kernel may refuse to send, or lose what it took.
                let sent: io::Result<usize> = from.send_to(b"here", (lab.address("s"), 9));
                let arrived = to.recv(&mut [0; 9]).is_ok();
                netlink.delete_route(8301, destination).await?;
                Ok((sent.is_ok(), arrived))
            })
        })
        .unwrap()
    };
    assert_eq!(arrives(&lab.prefix("s").to_string()), (true, true));
    assert!(!arrives("::/0").1);
    assert_eq!(arrives(&lab.prefix("s").to_string()), (true, true));
}
