//! The seed of an edge's hash: whose it is, how long it stays, and what shows that another router has the same.

use std::net::{SocketAddr, UdpSocket};

use sidestep_linux::testing::root_or_skip;
use sidestep_semper::daemon::{HashDoubt, SeedOrigin};

use crate::net::{Ending, Ip, Net, PATHS, config, eventually, tuple};

/// A file that says nothing of another edge.
fn alone(near: bool, more: &str) -> String {
    config(near, more).replace("symmetric = true\n", "")
}

#[test]
fn each_edge_has_a_seed_of_its_own_that_stays_over_a_reload_and_a_kill_and_a_pair_has_one() {
    if !root_or_skip("seeds of edges") {
        return;
    }
    let net = Net::new();
    let seed = |node| {
        let status = net.status(node);
        (status.seed, status.seed_origin)
    };
    let (e1, e2) = (net.edge(&net.e1, &alone(true, "")), net.edge(&net.e2, &alone(false, "")));
    let (own, other) = (seed(&net.e1), seed(&net.e2));
    assert_eq!((own.1, other.1), (SeedOrigin::Own, SeedOrigin::Own));
    assert!(own.0 != 0 && own.0 != other.0, "{own:?} {other:?}");

    e1.reload(&alone(true, "generation = 5"));
    eventually("the reload", || (net.status(&net.e1).generation == 5).then_some(()));
    assert_eq!(seed(&net.e1).0, own.0);
    e1.end(Ending::Killed).unwrap();
    let e1 = net.edge(&net.e1, &alone(true, ""));
    assert_eq!(seed(&net.e1), (own.0, SeedOrigin::Kept));
    drop(e1);

    // A version whose default was 0 worked here, and flows go by that.
    net.edge(&net.e1, &config(true, "")).end(Ending::Killed).unwrap();
    let e1 = net.edge(&net.e1, &alone(true, ""));
    assert_eq!(seed(&net.e1), (0, SeedOrigin::Kept));
    eventually("a warning", || net.status(&net.e1).doubts.contains(&HashDoubt::CommonSeed).then_some(()));
    drop(e1);
    let e1 = net.edge(&net.e1, &alone(true, ""));
    assert_eq!(seed(&net.e1), own, "after it has cleared up it begins with its own");
    drop(e1);

    let peers = |listen, peer| format!("listen = \"10.9.0.{listen}:8400\"\npeer = \"10.9.0.{peer}:8400\"");
    let _e1 = net.edge(&net.e1, &alone(true, &peers(1, 2)));
    drop(e2);
    let _e2 = net.edge(&net.e2, &alone(false, &peers(2, 1)));
    assert_eq!(seed(&net.e1), seed(&net.e2));
    assert_eq!(seed(&net.e1).1, SeedOrigin::Agreed);
    assert!(seed(&net.e1).0 != 0 && net.status(&net.e1).doubts.is_empty());
}

#[test]
fn an_edge_behind_a_router_with_the_same_hash_says_which_paths_get_no_flow_and_with_how_many_elsewhere() {
    if !root_or_skip("seeds of edges") {
        return;
    }
    let net = Net::new();
    let _edge = net.edge(&net.e1, &alone(true, "seed = 7"));
    let status = net.status(&net.e1);
    let send = |wanted: &dyn Fn(usize) -> bool, flows: usize| {
        let to = SocketAddr::new(Ip::V4.at_b(), 9);
        let at = |port| SocketAddr::new(Ip::V4.at_a(), port);
        let is_wanted = |port: &u16| wanted(status.place(&tuple("udp", at(*port), to)).unwrap().unwrap().position);
        let ports: Vec<u16> = (20_000..60_000).filter(is_wanted).take(flows).collect();
        assert_eq!(ports.len(), flows);
        for port in ports {
            let socket = net.a.run(|| Ok(UdpSocket::bind(at(port)).unwrap())).unwrap();
            socket.send_to(b"x", to).unwrap();
        }
    };
    // The daemon has begun to note flows of these paths.
    std::thread::sleep(std::time::Duration::from_secs(3));
    // A router before this one, of two paths: it sends here what has an even hash.
    send(&|position| position.is_multiple_of(2), 160);
    let (idle, flows) = eventually("a warning", || {
        net.status(&net.e1).doubts.into_iter().find_map(|doubt| match doubt {
            HashDoubt::Idle { prefixes, idle, live, flows } => {
                assert_eq!((prefixes[0].to_string().as_str(), live), ("10.2.0.0/16", PATHS));
                Some((idle, flows))
            }
            HashDoubt::CommonSeed => None,
        })
    });
    assert_eq!(idle, ["path-1", "path-3"]);
    assert!((80..240).contains(&flows), "about 160: {flows}");
    // With another seed before it, every path gets some.
    send(&|_| true, 40);
    eventually("the end of the warning", || net.status(&net.e1).doubts.is_empty().then_some(()));
}
