use sidestep_engine::Network;
use sidestep_net::{ArcId, ParallelPaths, Rate, Span};
use sidestep_policy::{PolicySettings, raw};
use sidestep_proto::{
    packet::{Kind, Packet},
    tcp::{Config, Profile},
};

use super::*;

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
    let table = steer.shared((CLIENT, SERVER), 4, Shared::default);
    assert!(Arc::ptr_eq(&table, &steer.shared((CLIENT, SERVER), 4, Shared::default)));
    assert!(!Arc::ptr_eq(&table, &steer.shared((CLIENT, OTHER), 4, Shared::default)), "though the paths are the same");
    steer.forget_shared(&[5]);
    assert!(Arc::ptr_eq(&table, &steer.shared((CLIENT, SERVER), 4, Shared::default)));
    steer.forget_shared(&[4]);
    assert!(!Arc::ptr_eq(&table, &steer.shared((CLIENT, SERVER), 4, Shared::default)));
}

/// A flow whose server was called at 30 ms and is established at 55 ms.
fn accepted() -> (Steer, Arc<Shared>) {
    let mut steer = Steer::new(1, 3);
    let settings = PolicySettings::default();
    let table = steer.shared((SERVER, CLIENT), 0, Shared::default);
    let connection = Connection::begin(&settings, &paths(), None, Time::ZERO, 0).unwrap();
    let topology = ParallelPaths::default().build().unwrap();
    let routes = vec![Network::new(&topology, 1, Span::ZERO).add_route([(ArcId(0), 0)]); 2];
    let data = PathSelector::new(CLIENT, connection, routes.clone());
    let request = Request::new(&settings, &paths(), Some(table.clone())).unwrap();
    steer.by_policy(FlowId(0), 1_000, data, Some(PendingConnection { node: SERVER, peer: CLIENT, request, routes }));
    steer.requested(ms(30), FlowId(0));
    let end = End { half: Half::Receiver, sender: None, srtt: None, received: 0, progress: None };
    steer.happened(ms(55), FlowId(0), end, Event::Accepted);
    (steer, table)
}

/// The server's FIN is acknowledged at 90 ms; its SYN-ACK was sent then, if once only.
fn last_ack(steer: &mut Steer, answered: Option<Time>) {
    let config = Config { profile: Profile::Linux, ..Config::rfc() };
    let mut sender = Sender::new(&config);
    sender.accept(&config, ms(55), answered, false);
    sender.supply(1);
    sender.finish();
    let fin = sender.poll_transmit(&config, ms(80)).unwrap();
    let srtt = sender.srtt();
    let ack = Packet { kind: Kind::Ack, seq: fin.seq + 1, ..Packet::default() };
    let signals = sender.handle_ack(&config, ms(90), &ack).signals;
    let end = End { srtt, ..End::of(Half::Receiver, &sender) };
    steer.happened(ms(90), FlowId(0), end, Event::Signals(signals));
    steer.close(FlowId(0), Half::Receiver, read(ms(90), &sender, 1_000));
}

fn measured(table: &Shared, now: Time) -> Vec<Option<Span>> {
    let raw: Vec<_> = paths().iter().map(Path::to_raw).collect();
    let config = raw::Config::try_from(&PolicySettings::default()).unwrap();
    table.learnt(&config, &raw, now).into_iter().map(|learnt| learnt.delay).collect()
}

#[test]
fn a_host_that_only_receives_learns_by_the_last_ack_how_long_its_syn_ack_took() {
    let (mut steer, table) = accepted();
    assert_eq!(measured(&table, ms(90)), [None, None]);
    last_ack(&mut steer, Some(ms(30)));
    let learnt: Vec<_> = measured(&table, ms(90)).into_iter().flatten().collect();
    assert_eq!(learnt.len(), 1);
}

#[test]
fn a_syn_ack_that_was_sent_again_tells_no_round_trip() {
    let (mut steer, table) = accepted();
    last_ack(&mut steer, None);
    assert_eq!(measured(&table, ms(90)), [None, None]);
}

#[test]
fn a_connection_is_closed_once_at_each_end() {
    let (mut steer, table) = accepted();
    last_ack(&mut steer, Some(ms(30)));
    let once = measured(&table, ms(90));
    steer.close(FlowId(0), Half::Receiver, Round { now: ms(200), srtt: Span::from_millis(100), ..Round::default() });
    assert_eq!(measured(&table, ms(90)), once);
    steer.end(FlowId(0));
    assert_eq!(steer.path_of(FlowId(0)), None);
}
