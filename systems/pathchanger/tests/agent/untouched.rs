//! What the path changer leaves alone.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use sidestep_linux::{
    netlink,
    netns::{NetNs, NetNsId},
    testing::root_or_skip,
};
use sidestep_pathchanger::daemon::program::{HostConfig, HostCounters, HostProgram, SlotPath};
use sidestep_policy::{Path, PolicySettings, raw};

use crate::support::{Agent, Lab, MASK, TWO_PROVIDERS, TestGroup, connect, listen, mark, settings, socket_in, via};

#[test]
fn connections_to_destinations_without_paths_keep_their_marks() {
    if !root_or_skip("a destination without paths") {
        return;
    }
    let mut links = TWO_PROVIDERS.to_vec();
    links.push(("Z", "other", 1));
    let lab = Lab::new(&links);
    let paths = vec![via(&lab, "h", "R1", "1 Gbit/s"), via(&lab, "h", "R2", "1 Gbit/s")];
    let agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), paths);
    assert_eq!(mark(&lab.connect("h", "other").0), 0);
    assert_ne!(mark(&lab.connect("h", "s").0), 0);
    crate::support::eventually("one event", || (agent.events().len() == 1).then_some(()));
}

#[test]
fn ipv4_has_no_paths_even_where_all_of_ipv6_has() {
    if !root_or_skip("IPv4 beside the path changer") {
        return;
    }
    let namespace = NetNs::create().unwrap();
    namespace.run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    let group = TestGroup::new();
    let mut program = HostProgram::load(None).unwrap();
    let policy = raw::Config::try_from(&PolicySettings::default()).unwrap();
    program
        .configure(&HostConfig {
            policy,
            mark_mask: MASK,
            mark_shift: MASK.trailing_zeros(),
            table_base: 0,
            priority: 0,
            dry_run: 0,
            controller: 0,
            events: 0,
            netns_inode: 0,
            paths_ns: 0,
            netns_cookie: namespace.run(NetNsId::current).unwrap().cookie,
            mended: 0,
            resets: 0,
        })
        .unwrap();
    let path = Path::new(7, "1 Gbit/s".parse().unwrap(), "1 ms".parse().unwrap()).to_raw();
    program.set_paths("::/0".parse().unwrap(), &[SlotPath { slot: 1, path }]).unwrap();
    program.attach(group.0.path()).unwrap();

    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let mut expected = HostCounters::default();
    for (family, to, touched) in [
        (libc::AF_INET, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false),
        (libc::AF_INET6, SocketAddr::from(SocketAddrV6::new(mapped, 0, 0, 0)), false),
        (libc::AF_INET6, SocketAddr::from((Ipv6Addr::LOCALHOST, 0)), true),
    ] {
        let socket = || socket_in(&group.0, &namespace, family);
        let listener = listen(socket(), to);
        let client = connect(socket(), listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        if touched {
            (expected.active, expected.passive) = (expected.active + 1, expected.passive + 1);
        } else {
            expected.untouched += 2;
        }
        let marked = if touched { 1 << MASK.trailing_zeros() } else { 0 };
        assert_eq!((mark(&client), mark(&server)), (marked, marked), "{to}");
        assert_eq!(program.counters().unwrap(), expected, "{to}");
    }
}
