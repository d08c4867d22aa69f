//! MPTCP as hosts open it: joins after the connection is fully established, their handshakes, and paths that die.

use sidestep_proto::mptcp::Joins;

use super::*;

const SECOND: Span = Span::from_secs(1);

/// A connection of `paths` subflows, each over a path of 10 Mbit/s of its own, whose joins are staggered.
fn staggered(paths: u32, interval: Span) -> (Lab, Vec<(RouteId, RouteId)>) {
    staggered_under(1, paths, interval)
}

fn staggered_under(seed: u64, paths: u32, interval: Span) -> (Lab, Vec<(RouteId, RouteId)>) {
    let mut lab = Lab::seeded(parallel(paths), coupled(), Coupling::Lia, Scheduler::MinRtt, seed);
    lab.mptcp.joins = Some(Joins { delay: Span::from_millis(50), interval });
    let routes = (1..=paths).map(|path| lab.routes("c1", "s1", Some(&link_of(path)))).collect();
    (lab, routes)
}

/// The name of a path's link between the routers.
fn link_of(path: u32) -> String {
    if path == 1 { "A-B".into() } else { format!("A-B.{path}") }
}

impl Lab {
    /// Both directions of a path's link.
    fn set_path(&mut self, path: u32, state: LinkState) {
        let link = self.topology.find_link(&link_of(path)).unwrap();
        for arc in [link.0 * 2, link.0 * 2 + 1] {
            self.world.network.set_state(self.world.now(), sidestep_net::ArcId(arc), state);
        }
    }

    /// From when on each subflow could carry data, in seconds.
    fn ready(&self, first: FlowId, count: u32) -> Vec<Option<f64>> {
        let ready = (first.0..first.0 + count).map(|flow| self.world.ready_at(FlowId(flow)));
        ready.map(|at| at.map(Time::as_secs_f64)).collect()
    }
}

#[test]
fn joins_begin_when_data_is_acknowledged_and_follow_each_other() {
    let (mut lab, routes) = staggered(4, Span::from_millis(100));
    let flow = lab.connection(&routes, None);
    lab.world.run_until(Time::ZERO + SECOND);
    let ready: Vec<f64> = lab.ready(flow, 4).into_iter().map(Option::unwrap).collect();
    let round_trip = lab.world.sender(flow).map(|_| ready[0]).unwrap();
    // The SYN, then data and its ACK, then 50 ms; the join's SYN, and the last ACK of its handshake. A full first window makes
    // the data's round trip longer.
    let first_join = ready[1] - 0.05;
    assert!((3.9 * round_trip..6.0 * round_trip).contains(&first_join), "{ready:?}, round trip {round_trip}");
    for pair in ready[1..].windows(2) {
        assert!((pair[1] - pair[0] - 0.1).abs() < 0.02, "{ready:?}");
    }
    // All of them are used.
    assert!((flow.0..flow.0 + 4).all(|flow| lab.world.sender(FlowId(flow)).unwrap().una() > 10));
}

#[test]
fn a_join_carries_no_data_until_its_handshake_is_acknowledged() {
    let (mut lab, routes) = staggered(2, SECOND);
    let flow = lab.connection(&routes, None);
    let second = FlowId(flow.0 + 1);
    let mut answered = None;
    for micros in 0..2_000u64 {
        lab.world.run_until(Time::ZERO + Span::from_micros(100 * micros));
        let sender = lab.world.sender(second).unwrap();
        if sender.state() == State::Open && answered.is_none() {
            answered = Some((lab.world.now(), sender.srtt().unwrap()));
        }
        if sender.next() > 0 {
            break;
        }
    }
    let (at, round_trip) = answered.unwrap();
    let waited = lab.world.now().since(at).as_secs_f64();
    let expected = round_trip.as_secs_f64();
    assert!((waited - expected).abs() < 0.000_5, "{waited} {expected}");
}

#[test]
fn a_join_whose_syn_is_lost_is_tried_again() {
    let (mut lab, routes) = staggered(2, SECOND);
    lab.set_path(2, LinkState::Blackhole);
    let flow = lab.connection(&routes, None);
    lab.world.run_until(Time::ZERO + SECOND + SECOND);
    assert_eq!(lab.ready(flow, 2)[1], None);
    lab.set_path(2, LinkState::Up);
    lab.world.run_until(Time::ZERO + Span::from_secs(5));
    // Its SYN was sent at 0.1 s, and again one and three seconds later.
    let ready = lab.ready(flow, 2)[1].unwrap();
    assert!((3.0..3.5).contains(&ready), "{ready}");
    assert!(lab.world.sender(FlowId(flow.0 + 1)).unwrap().una() > 100);
}

#[test]
fn joins_that_are_never_answered_hang_nothing() {
    for bytes in [Some(2_000_000), None] {
        let (mut lab, routes) = staggered(4, Span::from_millis(10));
        (2..=4).for_each(|path| lab.set_path(path, LinkState::Blackhole));
        let flow = lab.connection(&routes, bytes);
        let stopped = lab.world.run_until(Time::ZERO + Span::from_secs(200));
        match bytes {
            Some(bytes) => {
                assert_eq!(stopped, Stopped::Finished(flow));
                assert_eq!(lab.world.acked_bytes(flow), bytes);
                // One path takes 1.7 s at least.
                assert!(lab.world.now().as_secs_f64() < 3.0, "{:?}", lab.world.now());
            }
            None => {
                assert_eq!(stopped, Stopped::Reached);
                // They were given up after 127 s, and the first carries on.
                let state = |flow: u32| lab.world.sender(FlowId(flow)).unwrap().state();
                assert!((flow.0 + 1..flow.0 + 4).all(|flow| state(flow) == State::Failed));
                assert!(lab.goodput(&[flow], 200, 210)[0] > 8.5);
            }
        }
    }
}

#[test]
fn a_connection_whose_first_syn_is_never_answered_is_over_and_opens_nothing_else() {
    let (mut lab, routes) = staggered(2, SECOND);
    lab.set_path(1, LinkState::Blackhole);
    let flow = lab.connection(&routes, Some(1_000));
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(200)), Stopped::Finished(flow));
    assert!((126.0..128.0).contains(&lab.world.now().as_secs_f64()));
    assert_eq!((lab.world.acked_bytes(flow), lab.ready(flow, 2)), (0, vec![None, None]));
    assert_eq!(lab.world.sender(FlowId(flow.0 + 1)).unwrap().state(), State::Closed);
}

#[test]
fn under_the_scheduler_of_linux_data_of_a_silent_subflow_is_sent_again_over_an_idle_one_until_it_is_stale() {
    let (mut lab, routes) = staggered(4, Span::from_millis(10));
    lab.mptcp.scheduler = Scheduler::Linux;
    let flow = lab.connection(&routes, None);
    let all = lab.goodput(&[flow], 20, 30)[0];
    lab.set_path(2, LinkState::Blackhole);
    let [meanwhile, later] = [(30, 45), (45, 60)].map(|(from, to)| lab.goodput(&[flow], from, to)[0]);
    let second = |lab: &Lab| lab.world.sender(FlowId(flow.0 + 1)).unwrap().supplied();
    let given = second(&lab);
    lab.world.run_until(Time::ZERO + Span::from_secs(65));
    assert_eq!(second(&lab), given, "a stale subflow gets no data");
    lab.set_path(2, LinkState::Up);
    lab.world.run_until(Time::ZERO + Span::from_secs(130));
    let back = lab.goodput(&[flow], 130, 140)[0];
    let what = format!("{all}, then {meanwhile}, {later}, and {back}");
    // Four paths carry 37.6 at most, and three 28.2.
    assert!(all > 30.0 && meanwhile > 0.5 * all && later > 27.0 && back > 36.0, "{what}");
}

#[test]
fn under_the_scheduler_of_linux_the_third_packet_of_a_join_goes_again_until_it_is_acknowledged() {
    let (mut lab, routes) = staggered(2, SECOND);
    lab.mptcp.scheduler = Scheduler::Linux;
    let flow = lab.connection(&routes, None);
    let second = |lab: &Lab| lab.world.sender(FlowId(flow.0 + 1)).unwrap().clone();
    while second(&lab).state() != State::Open {
        lab.world.run_until(lab.world.now() + Span::from_micros(100));
    }
    // The third packet has just left, and is on the host's link.
    let (answered, round_trip) = (lab.world.now(), second(&lab).srtt().unwrap());
    let after = |round_trips: u64| answered + Span::from_nanos(round_trip.as_nanos() / 2 * round_trips);
    lab.set_path(2, LinkState::Blackhole);
    lab.world.run_until(after(5));
    assert_eq!((lab.ready(flow, 2)[1], second(&lab).supplied()), (None, 0));
    lab.set_path(2, LinkState::Up);
    lab.world.run_until(after(40));
    // It was sent again without success after two round trips, and once more after four: the answer came after five.
    let waited = lab.ready(flow, 2)[1].unwrap() - answered.as_secs_f64();
    let expected = 5.0 * round_trip.as_secs_f64();
    assert!((waited - expected).abs() < 0.1 * expected, "{waited} {expected}");
    assert!(second(&lab).una() > 0);
}

#[test]
fn a_link_removed_in_mid_run_stalls_no_connection_and_serves_again_when_it_is_back() {
    for (stale_after, gone) in
        [(1, LinkState::Down), (1, LinkState::Blackhole), (4, LinkState::Down), (4, LinkState::Blackhole)]
    {
        let run = |seed| {
            let (mut lab, routes) = staggered_under(seed, 4, Span::from_millis(10));
            lab.mptcp.stale_after = stale_after;
            let flow = lab.connection(&routes, None);
            let all = lab.goodput(&[flow], 3, 10)[0];
            lab.set_path(2, gone);
            // After as many timeouts, each twice as long as the one before, the subflow is found to be dead. The others send on.
            let [at_once, meanwhile] = [(10, 12), (12, 24)].map(|(from, to)| lab.goodput(&[flow], from, to)[0]);
            lab.set_path(2, LinkState::Up);
            lab.world.run_until(Time::ZERO + Span::from_secs(40));
            [all, at_once, meanwhile, lab.goodput(&[flow], 40, 50)[0]]
        };
        // How far the timer had come when the path went is chance.
        let runs: Vec<[f64; 4]> = (1..=4).map(run).collect();
        let mean = |which: usize| runs.iter().map(|run| run[which]).sum::<f64>() / runs.len() as f64;
        let [all, at_once, meanwhile, back] = [0, 1, 2, 3].map(mean);
        let present = (2.0 * at_once + 12.0 * meanwhile) / 14.0;
        let what = format!("stale after {stale_after}, {gone:?}: {all}, then {at_once}, {meanwhile}, and {back}");
        assert!(all > 34.0 && present > 0.9 * 0.75 * all && back > 0.97 * all, "{what}");
        assert!(stale_after > 1 || at_once > 0.5 * all, "{what}");
    }
}
