//! Connections that begin without a state, as the program in TCP begins them: their mark shows on which path they are.

use std::sync::Arc;

use proptest::prelude::*;
use sidestep_net::{Bytes, Rate, Span, Time};
use sidestep_policy::{Connection, Path, PolicyName, PolicySettings, Reason, Round, Shared, raw};

fn settings() -> PolicySettings {
    PolicySettings { policy: PolicyName::DelayWeighted, ..PolicySettings::default() }
}

fn paths(rtts: &[u64]) -> Vec<Path> {
    let path = |(id, rtt): (u32, &u64)| Path::new(id, Rate::from_mbits(100), Span::from_millis(*rtt));
    (0..).zip(rtts).map(path).collect()
}

fn begin(shared: &Arc<Shared>, rtts: &[u64], random: u32) -> Connection {
    Connection::begin(&settings(), &paths(rtts), Some(shared.clone()), at(0), random).unwrap()
}

/// An hour after the host's start, and `millis` milliseconds.
fn at(millis: u64) -> Time {
    Time::from_nanos(3_600_000_000_000) + Span::from_millis(millis)
}

fn round(at_ms: u64, srtt_ms: u64, delivered: u32) -> Round {
    let srtt = Span::from_millis(srtt_ms);
    Round { now: at(at_ms), cwnd: Bytes::new(14_480), srtt, mss: 1_448, in_flight: 8, delivered, ..Round::default() }
}

#[test]
fn a_connection_without_events_has_no_state_and_is_measured_all_the_same() {
    let shared: Arc<Shared> = Arc::default();
    let mut conn = begin(&shared, &[10, 30], 0);
    let path = conn.path();
    for turn in 1..20 {
        let decision = conn.handle_round(round(10 * turn, 11, 10 * turn as u32), 5);
        assert!(!decision.decided && decision.reason.is_none());
    }
    assert_eq!((conn.path(), conn.raw().congestion.interval_ns), (path, 0), "which a state would have");
    let raw: Vec<_> = paths(&[10, 30]).iter().map(Path::to_raw).collect();
    let learnt = shared.learnt(&raw::Config::try_from(&settings()).unwrap(), &raw, at(200));
    assert!(learnt[path].delay.is_some() && learnt[1 - path].delay.is_none());
    conn.close(round(250, 11, 200));
}

#[test]
fn a_long_queue_in_the_syns_round_trip_moves_a_connection_before_it_has_sent_anything() {
    // With a state from the start that round trip would not be judged: its program has one only from here on.
    let shared: Arc<Shared> = Arc::default();
    let measure = |srtt_ms: u64, at_ms: u64| {
        (0..8).for_each(|random: u32| {
            begin(&shared, &[10, 10], random << 29).handle_round(round(at_ms, srtt_ms, 1), 0);
        })
    };
    measure(10, 1);
    let mut marked = begin(&shared, &[10, 10], 0);
    let moved = marked.handle_round(round(200, 200, 1), u32::MAX);
    assert_eq!((moved.reason, moved.decided), (Some(Reason::StandingQueue), true));
    let mut with_state = Connection::open_among(&settings(), &paths(&[10, 10]), Some(shared), at(0), 0).unwrap();
    assert!(!with_state.handle_round(round(200, 200, 1), u32::MAX).decided);
}

#[test]
fn a_path_set_that_changes_leaves_a_connection_without_a_state_on_its_path() {
    let shared = Arc::default();
    let mut conn = begin(&shared, &[10, 10, 10], u32::MAX);
    let id = conn.path_id();
    let mut reversed = paths(&[10, 10, 10]);
    reversed.reverse();
    assert!(!conn.handle_paths(&reversed, Some(shared.clone()), at(5), 0).unwrap());
    assert_eq!(conn.path_id(), id);
    let others: Vec<Path> = reversed.into_iter().filter(|path| path.id != id).collect();
    assert!(conn.handle_paths(&others, Some(shared), at(6), 0).unwrap());
    assert_ne!(conn.path_id(), id);
    assert_eq!(conn.path_ids().count(), 2);
}

#[test]
fn where_a_policy_needs_weights_of_its_own_a_connection_has_a_state_from_the_start() {
    let exp3 = PolicySettings { policy: PolicyName::Exp3, ..settings() };
    let conn = Connection::begin(&exp3, &paths(&[10, 10]), None, at(0), 0).unwrap();
    assert!(conn.raw().congestion.interval_ns > 0);
}

proptest! {
    #[test]
    fn first_paths_are_drawn_as_for_a_connection_with_a_state(
        rtts in prop::collection::vec(1u64..100, 1..9),
        random in any::<u32>(),
        policy in prop::sample::select(vec![PolicyName::DelayWeighted, PolicyName::Random, PolicyName::Static]),
    ) {
        let settings = PolicySettings { policy, ..settings() };
        let open = |begin: bool| {
            let (shared, paths) = (Some(Arc::default()), paths(&rtts));
            match begin {
                true => Connection::begin(&settings, &paths, shared, at(0), random),
                false => Connection::open_among(&settings, &paths, shared, at(0), random),
            }
        };
        prop_assert_eq!(open(true)?.path(), open(false)?.path());
    }
}
