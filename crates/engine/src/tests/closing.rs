//! How flows of TCP close in Linux's profile.

use sidestep_net::Direction;
use sidestep_proto::tcp::Profile;

use super::*;

/// Remembers what happened to the ends of flows, and moves nothing.
#[derive(Debug, Default)]
struct Notes(Vec<(Half, Event)>);

impl Steering for Notes {
    fn requested(&mut self, _: Time, _: FlowId) -> Move {
        Move::default()
    }
    fn happened(&mut self, _: Time, _: FlowId, end: End<'_>, event: Event) -> Move {
        self.0.push((end.half, event));
        Move::default()
    }
}

/// A flow of `bytes` bytes over a line of 50 Mbit/s and 24 ms, just opened.
fn opened(bytes: u64) -> (Topology, World<Notes>, FlowId) {
    late(bytes, &[])
}

/// A flow of `bytes` bytes over that line, just opened, between programs that are woken this late.
fn late(bytes: u64, lateness: &[(Span, Span)]) -> (Topology, World<Notes>, FlowId) {
    let topology = dumbbell(1);
    let tcp = Config { profile: Profile::Linux, ..Config::rfc() };
    let network = Network::new(&topology, 1, Span::ZERO);
    let mut world = World::new(network, tcp, Sizes::default(), Notes::default());
    world.set_late_wakeups(lateness);
    let igp = Igp::new(&topology);
    let [l1, r1] = ["l1", "r1"].map(|name| topology.find(name).unwrap());
    let [forward, reverse] = [(l1, r1), (r1, l1)].map(|(from, to)| {
        let arcs = igp.first_path(from, to).unwrap();
        world.network.add_route(arcs.into_iter().map(|arc| (arc, 0)))
    });
    let flow = world.add_flow(FlowSpec { forward, reverse, bytes: Some(bytes), mss: MSS, tcp: TcpId::default() });
    world.open(flow);
    (topology, world, flow)
}

fn millis(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// When the flow finished, and when nothing of it was left.
fn ends(world: &mut World<Notes>, flow: FlowId) -> [Time; 2] {
    [(); 2].map(|()| {
        assert_eq!(world.run_until(millis(100_000)), Stopped::Finished(flow));
        world.now()
    })
}

/// Packets that have left over the line, from left to right and back.
fn packets(topology: &Topology, world: &mut World<Notes>) -> [u64; 2] {
    let line = topology.find_link("L-R").unwrap();
    let now = world.now();
    [Direction::AToB, Direction::BToA].map(|direction| world.network.arc(now, line.arc(direction)).0.packets)
}

#[test]
fn a_short_flow_is_closed_by_a_fin_of_its_own_at_either_end() {
    let (topology, mut world, flow) = opened(3_000);
    let [finished, over] = ends(&mut world, flow);
    // Two round trips; the last ACK takes half of another.
    assert_eq!([finished, over].map(|at| at.since(Time::ZERO).as_nanos() / 1_000_000), [48, 60]);
    assert!(world.is_over(flow));
    assert_eq!((world.acked_bytes(flow), world.sender(flow).unwrap().supplied()), (3_000, 4));
    // SYN, the ACK of the answer, three segments, FIN and the last ACK; the answer, four ACKs while they go at once, FIN.
    assert_eq!(packets(&topology, &mut world), [7, 5]);
}

#[test]
fn a_client_that_is_late_to_read_the_end_finishes_after_the_kernels_are_done() {
    let (topology, mut world, flow) = late(3_000, &[(Span::ZERO, Span::from_millis(100))]);
    // Three wake-ups; meanwhile the server's FIN was acknowledged.
    let [finished, over] = [(); 2].map(|()| {
        let stopped = world.run_until(millis(1_000));
        (stopped, world.now().since(Time::ZERO).as_nanos() / 1_000_000)
    });
    assert_eq!((finished, over), ((Stopped::Finished(flow), 348), (Stopped::Reached, 1_000)));
    assert!(world.is_over(flow));
    // One ACK more than in time: the server's kernel acknowledges the FIN before its program closes.
    assert_eq!(packets(&topology, &mut world), [7, 6]);
}

#[test]
fn programs_of_a_flow_that_was_closed_are_not_woken() {
    let (_, mut world, flow) = late(3_000, &[(Span::ZERO, Span::from_millis(100))]);
    // Connected, and the program is not woken yet.
    assert_eq!(world.run_until(millis(50)), Stopped::Reached);
    world.release(flow);
    let routes = world.routes(flow);
    let spec = FlowSpec { forward: routes.0, reverse: routes.1, bytes: Some(1), mss: MSS, tcp: TcpId::default() };
    assert_eq!(world.add_flow(spec), flow, "the place is used again");
    assert_eq!(world.run_until(millis(1_000)), Stopped::Reached);
    assert_eq!(world.sender(flow).unwrap().supplied(), 0);
}

#[test]
fn an_empty_flow_of_late_programs_is_a_fin() {
    let (topology, mut world, flow) = late(0, &[(Span::ZERO, Span::from_millis(100))]);
    assert_eq!(world.run_until(millis(1_000)), Stopped::Finished(flow));
    assert_eq!((world.acked_bytes(flow), world.sender(flow).unwrap().supplied()), (0, 1));
    assert_eq!(packets(&topology, &mut world), [4, 3]);
}

#[test]
fn the_last_segment_of_a_longer_flow_shows_that_nothing_follows() {
    let (_, mut world, flow) = opened(100_000);
    ends(&mut world, flow);
    assert_eq!((world.acked_bytes(flow), world.sender(flow).unwrap().supplied()), (100_000, 71));
}

#[test]
fn an_empty_flow_is_a_fin() {
    let (_, mut world, flow) = opened(0);
    ends(&mut world, flow);
    assert_eq!((world.acked_bytes(flow), world.sender(flow).unwrap().supplied()), (0, 1));
}

#[test]
fn a_servers_fin_that_is_lost_goes_again_and_its_program_hears_of_it() {
    let (topology, mut world, flow) = opened(3_000);
    let line = topology.find_link("L-R").unwrap();
    world.run_until(millis(36));
    // The server's answer to the client's FIN leaves soon after.
    world.network.set_state(world.now(), line.arc(Direction::BToA), LinkState::Blackhole);
    world.run_until(millis(2_000));
    world.network.set_state(world.now(), line.arc(Direction::BToA), LinkState::Up);
    let [finished, over] = ends(&mut world, flow);
    assert!(finished > millis(2_000) && over > finished, "{finished:?}, {over:?}");
    let of_server = |event: &&(Half, Event)| event.0 == Half::Receiver;
    let events: Vec<_> = world.steering.0.iter().filter(of_server).map(|(_, event)| *event).collect();
    assert_eq!(events[0], Event::Accepted);
    let timeouts = events.iter().filter(|event| matches!(event, Event::Signals(signals) if signals.timeout())).count();
    assert!(timeouts >= 2 && events.contains(&Event::Retransmitted(1)), "{events:?}");
    assert_eq!(world.server(flow).unwrap().counters().unwrap().timeouts as usize, timeouts);
}

#[test]
fn a_lost_last_ack_costs_the_client_nothing() {
    let (topology, mut world, flow) = opened(3_000);
    let line = topology.find_link("L-R").unwrap();
    let Stopped::Finished(_) = world.run_until(millis(100)) else { panic!("not finished") };
    world.network.set_state(world.now(), line.arc(Direction::AToB), LinkState::Blackhole);
    assert_eq!(world.run_until(millis(1_000)), Stopped::Reached);
    assert!(!world.is_over(flow));
    world.network.set_state(world.now(), line.arc(Direction::AToB), LinkState::Up);
    assert_eq!(world.run_until(millis(10_000)), Stopped::Finished(flow));
    assert!(world.is_over(flow));
}
