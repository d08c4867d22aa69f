//! Targets of the other kinds: an echo service of UDP, and reflectors of STAMP.

use std::{
    net::{SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use sidestep_linux::{netns::NetNs, testing::root_or_skip};
use sidestep_route_control::reflector::{ReflectorConfig, ReflectorOptions, run_reflector};

use super::{
    OFF, SLACK,
    daemon::Daemon,
    net::{Net, TARGET, eventually, file, ip},
};

/// A reflector at a port of all addresses of a node.
pub fn reflector(node: &NetNs, port: u16) -> Daemon<()> {
    let listen = vec![SocketAddr::from(([0, 0, 0, 0], port))];
    let options = ReflectorOptions { listen, config: ReflectorConfig::default(), metrics: None };
    let (reflector, is_ready) = Daemon::spawn(node, |_configs, ready, stopped| run_reflector(options, ready, stopped));
    is_ready.recv_timeout(super::PATIENCE).expect("a reflector that listens");
    reflector
}

/// Answers each packet of UDP to an address with what is in it, for as long as the test runs.
fn echo(node: &NetNs, at: &str) {
    let socket = node.run(|| Ok(UdpSocket::bind(at).unwrap())).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2_000];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    });
}

#[test]
fn targets_of_udp_and_stamp_show_an_outage_and_its_end_and_one_that_is_down_moves_nothing() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    echo(&net.world, "10.3.0.2:7");
    let _reflector = reflector(&net.world, 862);
    let kinds = [("10.3.0.1", "stamp", ""), ("10.3.0.2", "udp", ""), ("10.3.0.3", "icmp", "")];
    let targets: Vec<_> = kinds
        .iter()
        .map(|(address, kind, more)| {
            format!("[[target]]\naddress = \"{address}\"\nkind = \"{kind}\"\nrate = 10\n{more}")
        })
        .collect();
    let rest = file("");
    let text = format!("{}{}", rest.split(TARGET).next().unwrap(), targets.concat());
    let _control = net.control(&text);
    net.until_fine();
    for of in net.status().egresses.iter().flat_map(|one| &one.targets) {
        assert!(of.lost == 0 && of.rtt_ms.is_some(), "{of:?}");
    }
    let flow = net.flow("10.2.0.1".parse().unwrap());
    net.cut(0, true);
    let off = net.until_active("second");
    assert!(off < OFF + SLACK, "{off:?}");
    net.cut(0, false);
    net.until_active("first");
    flow.goes_on();
    flow.end();
    // The echo service goes: its target is named, and nothing moves.
    ip(&net.world, "addr del 10.3.0.2/32 dev lo");
    ip(&net.world, "route add blackhole 10.3.0.2/32");
    let silent = || {
        let status = net.status();
        let of = |address: &str| {
            let all = status.egresses.iter().flat_map(|one| &one.targets);
            all.filter(|one| one.address.to_string() == address).all(|one| one.lost == one.sent && !one.counts)
        };
        of("10.3.0.2").then_some(status.decided)
    };
    let decided = eventually("the dead echo service", silent);
    eventually("decisions", || (net.status().decided > decided + 4).then_some(()));
    let status = net.status();
    assert_eq!((status.active.as_str(), status.moved.values().sum::<u64>()), ("first", 2), "{status:?}");
}

/// A file whose only target is one's own reflector, with the periods that follow from that.
fn of_ones_own_reflector() -> String {
    let rest = file("").replace("measurement_period = \"400 ms\"\nprobe_interval = \"33 ms\"\n", "");
    let target = "[[target]]\naddress = \"10.3.0.1\"\nkind = \"stamp\"\nport = 8620\nown = true\n";
    format!("{}{target}", rest.split(TARGET).next().unwrap())
}

#[test]
fn ones_own_reflector_is_probed_each_10_ms_and_an_outage_is_left_sooner() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _reflector = reflector(&net.world, 8_620);
    let _control = net.control(&of_ones_own_reflector());
    net.until_fine();
    eventually("forty probes", || (net.status().egresses[0].targets[0].sent == 40).then_some(()));
    net.cut(0, true);
    let off = net.until_active("second");
    assert!(off < Duration::from_millis(500 + 5 * 10 + 200) + SLACK, "{off:?}");
    // The reflector dies: all is dead, and nothing moves.
    net.cut(0, false);
    net.until_active("first");
    ip(&net.world, "addr del 10.3.0.1/32 dev lo");
    ip(&net.world, "route add blackhole 10.3.0.1/32");
    eventually("all are dead", || net.status().decisions.last().filter(|one| one.reason == "all-dead").map(drop));
    assert_eq!(net.status().active, "first");
}

#[test]
fn ones_own_reflector_shows_in_which_direction_an_egress_loses() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _reflector = reflector(&net.world, 8_620);
    let _control = net.control(&of_ones_own_reflector());
    net.until_fine();
    let lost = |egress: usize| {
        let target = net.status().egresses[egress].targets[0].clone();
        (target.lost_forward.unwrap(), target.lost_backward.unwrap())
    };
    assert_eq!(lost(0), (0, 0));
    net.lose_stamp(0, "dport");
    eventually("losses on the way there", || (lost(0).0 >= 20).then_some(()));
    assert_eq!((lost(0).1, lost(1)), (0, (0, 0)));
    net.lose_stamp(0, "sport");
    eventually("losses on the way back", || (lost(0).1 >= 20).then_some(()));
    assert_eq!(lost(1), (0, 0));
}
