use sidestep_model::{ArcId, ParallelPaths, Rate, scenario::AgentKnobs};
use sidestep_policy::raw;
use sidestep_proto::tcp::Config;

use super::*;
use crate::engine::Network;

const CLIENT: NodeId = NodeId(0);
const SERVER: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

fn paths() -> Vec<Path> {
    (1..3).map(|id| Path::new(id, Rate::from_mbits(10), Span::from_millis(10))).collect()
}

fn ms(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

#[test]
fn a_host_learns_of_each_other_host_apart_until_the_path_set_changes() {
    let mut steer = Steer::new(1, 3);
    let table = steer.shared((CLIENT, SERVER), 4);
    assert!(Arc::ptr_eq(&table, &steer.shared((CLIENT, SERVER), 4)));
    assert!(!Arc::ptr_eq(&table, &steer.shared((CLIENT, OTHER), 4)), "though the paths are the same");
    steer.forget_shared(&[5]);
    assert!(Arc::ptr_eq(&table, &steer.shared((CLIENT, SERVER), 4)));
    steer.forget_shared(&[4]);
    assert!(!Arc::ptr_eq(&table, &steer.shared((CLIENT, SERVER), 4)));
}

/// A flow whose SYN arrived `syns` times, the last time at 30 ms, and whose data followed at 55 ms.
fn answered(syns: u64) -> (Steer, Arc<Shared>) {
    let mut steer = Steer::new(1, 3);
    let knobs = AgentKnobs::default();
    let table = steer.shared((SERVER, CLIENT), 0);
    let connection = Connection::begin(&knobs, &paths(), None, Time::ZERO, 0).unwrap();
    let topology = ParallelPaths::default().build().unwrap();
    let routes = vec![Network::new(&topology, 1, Span::ZERO).add_route([(ArcId(0), 0)]); 2];
    let data = Chosen { node: CLIENT, connection: Box::new(connection), routes: routes.clone() };
    let request = Request::new(&knobs, &paths(), Some(table.clone())).unwrap();
    steer.by_policy(FlowId(0), 1_000, data, Some(Asked::new(SERVER, request, routes)));
    for syn in (0..syns).rev() {
        steer.requested(ms(30 - syn), FlowId(0));
    }
    steer.established(ms(40), FlowId(0), &Sender::new(&Config::default()));
    steer.answered(ms(55), FlowId(0));
    (steer, table)
}

fn measured(table: &Shared, now: Time) -> Vec<Option<Span>> {
    let raw: Vec<_> = paths().iter().map(Path::to_raw).collect();
    let config = raw::Config::try_from(&AgentKnobs::default()).unwrap();
    table.learnt(&config, &raw, now).into_iter().map(|learnt| learnt.delay).collect()
}

#[test]
fn a_host_that_only_receives_learns_by_the_last_ack_how_long_its_syn_ack_took() {
    let (mut steer, table) = answered(1);
    steer.end(FlowId(0), Round::default());
    assert_eq!(measured(&table, ms(90)), [None, None]);
    steer.closed(ms(90), FlowId(0));
    assert_eq!(measured(&table, ms(90)).into_iter().flatten().count(), 1);
    // Only once, even if its place belongs to another flow by then.
    steer.closed(ms(91), FlowId(0));
    assert_eq!(measured(&table, ms(91)).into_iter().flatten().count(), 1);
}

#[test]
fn a_syn_ack_that_was_sent_again_tells_no_round_trip() {
    let (mut steer, table) = answered(2);
    steer.end(FlowId(0), Round::default());
    steer.closed(ms(90), FlowId(0));
    assert_eq!(measured(&table, ms(90)), [None, None]);
}
