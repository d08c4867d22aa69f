//! Edges that keep a table of TCP connections.

use std::net::{TcpListener, TcpStream};

use sidestep_linux::testing::root_or_skip;
use sidestep_semper::daemon::PlacedBy;

use crate::net::{Ending, Ip, Net, PATHS, PORT, config, tuple};

type Connection = (TcpStream, TcpStream);

#[test]
fn edges_with_tables_agree_about_every_connection_also_if_one_begins_later_or_anew() {
    if !root_or_skip("edges with tables") {
        return;
    }
    let net = Net::new();
    let [near, far] = [true, false].map(|near| config(near, "stateful = true"));
    let at_b = net.listen(Ip::V4);
    let at_a = net.a.run(|| Ok(TcpListener::bind((Ip::V6.at_a(), PORT)).unwrap())).unwrap();
    let open = |count: usize| -> [Vec<Connection>; 2] {
        let back = || {
            let client = net.b.run(|| Ok(TcpStream::connect((Ip::V6.at_a(), PORT)).unwrap())).unwrap();
            (client, at_a.accept().unwrap().0)
        };
        [(0..count).map(|_| net.connect(Ip::V4, &at_b)).collect(), (0..count).map(|_| back()).collect()]
    };
    let talk = |connections: &mut [Connection]| connections.iter_mut().for_each(|both| net.talk(both));
    // The path of each connection, which is the same at both edges.
    let agree = |connections: &mut [Connection]| -> Vec<usize> {
        let one = |both: &mut Connection| {
            let [here, there] = net.paths_of(both);
            assert_eq!(here, there, "{both:?}");
            // What `edge where` shows, at either edge and of either direction.
            let [ours, theirs] = [both.0.local_addr().unwrap(), both.0.peer_addr().unwrap()];
            for (edge, flow) in [(&net.e1, tuple("tcp", ours, theirs)), (&net.e2, tuple("tcp", theirs, ours))] {
                let place = net.place(edge, &flow);
                assert_eq!((place.position, place.by), (here, PlacedBy::Table), "{both:?}");
            }
            here
        };
        connections.iter_mut().map(one).collect()
    };
    let in_turn = |paths: &[usize]| paths.windows(2).all(|pair| pair[1] == (pair[0] + 1) % PATHS);

    let first = net.edge(&net.e1, &near);
    let [from_a, from_b] = open(4);
    let mut all: Vec<_> = from_a.into_iter().chain(from_b).collect();
    talk(&mut all);
    let _e2 = net.edge(&net.e2, &far);
    talk(&mut all);
    let paths = agree(&mut all);
    assert!(in_turn(&paths[..4]), "{paths:?}");

    // Connections that begin now agree from their first packet on.
    let [mut from_a, mut from_b] = open(6);
    let paths = [agree(&mut from_a), agree(&mut from_b)];
    assert!(paths.iter().all(|paths| in_turn(paths)), "{paths:?}");

    // The next daemon's table is empty.
    all.extend(from_a.into_iter().chain(from_b));
    first.end(Ending::Killed).unwrap();
    let _e1 = net.edge(&net.e1, &near);
    talk(&mut all);
    agree(&mut all);
    let counts = [net.status(&net.e1), net.status(&net.e2)].map(|status| (status.flows, status.packets["table_full"]));
    assert_eq!(counts, [(Some(20), 0); 2]);
    let unknown = tuple("tcp", "10.1.0.1:9".parse().unwrap(), "10.2.0.1:9".parse().unwrap());
    assert_eq!(net.place(&net.e1, &unknown).by, PlacedBy::Hash);
}
