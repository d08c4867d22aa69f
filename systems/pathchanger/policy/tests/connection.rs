//! The state machine of a connection, signal by signal.

use proptest::prelude::*;
use sidestep_net::{Bytes, Ratio, Span, Time};
use sidestep_policy::{
    Backoff, Connection, Decision, Path, PolicyError, PolicyName, PolicySettings, Reason, RewardName, Round, Stay,
};

const CWND: Bytes = Bytes::new(50_000);

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn paths(n: u32) -> Vec<Path> {
    (0..n).map(|id| Path { id: 100 + id, weight: 1, bdp: Bytes::new(100_000), rtt: Span::ZERO, room: None }).collect()
}

/// Waits of exactly 100 ms, 200 ms, … 1.6 s on congestion and 10 ms … 80 ms on path failures.
fn config(policy: PolicyName) -> PolicySettings {
    PolicySettings {
        policy,
        ce_rounds: 1,
        jitter: Ratio::ZERO,
        congestion_backoff: Backoff { min: Span::from_millis(100), max: Span::from_millis(1_600) },
        silence_backoff: Backoff { min: Span::from_millis(10), max: Span::from_millis(80) },
        ..PolicySettings::default()
    }
}

/// A connection whose first, unjudged, round has ended at time zero.
fn settled(config: &PolicySettings, n: u32) -> Connection {
    let mut conn = Connection::open(config, &paths(n), Time::ZERO, 0).unwrap();
    conn.handle_round(round(0, 0, 0), 0);
    conn
}

fn round(at_ms: u64, delivered: u32, delivered_ce: u32) -> Round {
    Round { now: ms(at_ms), cwnd: CWND, delivered, delivered_ce, ..Round::default() }
}

/// What is read with a signal that ends no round.
fn at(at_ms: u64) -> Round {
    round(at_ms, 0, 0)
}

/// A signal within the back-off.
fn ignored(path: usize, reason: Reason) -> Decision {
    stayed(path, reason, Stay::BackOff)
}

fn stayed(path: usize, reason: Reason, stay: Stay) -> Decision {
    Decision { path, reason: Some(reason), moved: false, decided: stay == Stay::DrewSame, stay: Some(stay) }
}

fn moved(path: usize, reason: Reason) -> Decision {
    Decision { path, reason: Some(reason), moved: true, decided: true, stay: None }
}

fn quiet(path: usize) -> Decision {
    Decision { path, reason: None, moved: false, decided: false, stay: None }
}

#[test]
fn the_first_path_is_drawn_by_the_policy() {
    let open = |policy, random| {
        let mut paths = paths(4);
        paths[3].weight = 1_000_000;
        Connection::open(&PolicySettings { gamma: 0.01, ..config(policy) }, &paths, ms(5), random).unwrap().path()
    };
    assert_eq!(open(PolicyName::Static, u32::MAX), 0);
    assert_eq!([0, 1 << 30, 1 << 31, u32::MAX].map(|random| open(PolicyName::Random, random)), [0, 1, 2, 3]);
    assert_eq!([0, 1 << 30, 1 << 31, u32::MAX].map(|random| open(PolicyName::Exp3, random)), [0, 3, 3, 3]);
}

#[test]
fn a_path_that_is_left_is_kept_and_one_that_is_gone_is_replaced() {
    let mut conn = Connection::open(&config(PolicyName::Random), &paths(4), Time::ZERO, 3 << 30).unwrap();
    assert_eq!((conn.path(), conn.path_id()), (3, 103));
    // The first is gone, so the last has another index.
    let left: Vec<Path> = paths(4).into_iter().skip(1).collect();
    assert_eq!(conn.handle_paths(&left, None, ms(1), 0), Ok(false));
    assert_eq!((conn.path(), conn.path_id()), (2, 103));
    assert_eq!(conn.path_ids().collect::<Vec<_>>(), [101, 102, 103]);
    assert_eq!(conn.handle_paths(&left[..2], None, ms(2), u32::MAX), Ok(true));
    assert_eq!(conn.path_id(), 102);
    assert!(conn.handle_paths(&[], None, ms(3), 0).is_err());
    assert_eq!(conn.path_ids().count(), 2, "it chooses from those that it had");
}

#[test]
fn path_sets_that_do_not_fit_are_refused() {
    let open = |n| Connection::open(&PolicySettings::default(), &paths(n), Time::ZERO, 0).map(|conn| conn.path());
    assert_eq!(open(0), Err(PolicyError::PathCount(0)));
    assert_eq!(open(17), Err(PolicyError::PathCount(17)));
    assert_eq!(open(16), Ok(0));
}

#[test]
fn a_congested_round_moves_after_the_first_back_off() {
    let mut conn = settled(&config(PolicyName::Random), 4);
    assert_eq!(conn.handle_round(round(99, 10, 5), u32::MAX), ignored(0, Reason::Ecn));
    assert_eq!(conn.handle_round(round(100, 20, 9), u32::MAX), quiet(0), "4 of 10 marked");
    assert_eq!(conn.handle_round(round(100, 30, 14), u32::MAX), moved(3, Reason::Ecn));
    assert_eq!((conn.raw().decisions, conn.raw().moves, conn.raw().suppressed), (1, 1, 1));
}

#[test]
fn congestion_may_draw_the_same_path_again() {
    let mut conn = settled(&config(PolicyName::Random), 4);
    let drew_same = stayed(0, Reason::Ecn, Stay::DrewSame);
    assert_eq!(conn.handle_round(round(100, 10, 10), 0), drew_same);
    assert_eq!((conn.raw().decisions, conn.raw().moves), (1, 0));
    assert_eq!(conn.handle_round(round(200, 20, 20), u32::MAX), moved(3, Reason::Ecn), "and the next round is judged");
}

#[test]
fn several_congested_rounds_in_a_row_are_waited_for() {
    let mut conn = settled(&PolicySettings { ce_rounds: 3, ce_window: 3, ..config(PolicyName::Random) }, 2);
    for (round_no, marked) in [(1, 10), (2, 20), (3, 20), (4, 30), (5, 40)] {
        assert_eq!(conn.handle_round(round(200, round_no * 10, marked), u32::MAX), quiet(0), "round {round_no}");
    }
    assert_eq!(conn.handle_round(round(200, 60, 50), u32::MAX), moved(1, Reason::Ecn));
}

#[test]
fn congested_rounds_are_counted_among_the_last_of_the_window() {
    let settings = PolicySettings { ce_rounds: 2, ce_window: 4, ..config(PolicyName::Random) };
    // Rounds 1 and 5 are four apart, one too far; 5 and 8 are within four.
    let mut conn = settled(&settings, 2);
    let congested = [1, 5, 8];
    let mut marked = 0;
    for round_no in 1..=8 {
        marked += if congested.contains(&round_no) { 10 } else { 0 };
        let expected = if round_no == 8 { moved(1, Reason::Ecn) } else { quiet(0) };
        assert_eq!(conn.handle_round(round(200, round_no * 10, marked), u32::MAX), expected, "round {round_no}");
    }
}

#[test]
fn a_window_of_64_rounds_is_looked_back_at_whole() {
    for (gap, expected) in [(63, moved(1, Reason::Ecn)), (64, quiet(0))] {
        let mut conn = settled(&PolicySettings { ce_rounds: 2, ce_window: 64, ..config(PolicyName::Random) }, 2);
        conn.handle_round(round(200, 10, 10), u32::MAX);
        for round_no in 2..=gap {
            conn.handle_round(round(200, round_no * 10, 10), u32::MAX);
        }
        assert_eq!(conn.handle_round(round(200, (gap + 1) * 10, 20), u32::MAX), expected, "{gap} rounds later");
    }
}

#[test]
fn after_a_decision_congested_rounds_are_counted_anew() {
    let mut conn = settled(&PolicySettings { ce_rounds: 2, ce_window: 2, ..config(PolicyName::Random) }, 2);
    conn.handle_round(round(100, 10, 10), 0);
    assert!(conn.handle_round(round(100, 20, 20), 0).decided);
    assert_eq!(conn.handle_round(round(300, 30, 30), 0), quiet(0));
    assert!(conn.handle_round(round(300, 40, 40), 0).decided);
}

#[test]
fn the_round_after_opening_is_not_judged() {
    let mut conn = Connection::open(&config(PolicyName::Random), &paths(4), Time::ZERO, 0).unwrap();
    assert_eq!(conn.handle_round(round(100, 10, 10), u32::MAX), quiet(0));
    assert_eq!(conn.handle_round(round(100, 20, 20), u32::MAX), moved(3, Reason::Ecn));
}

#[test]
fn a_share_of_zero_means_any_mark() {
    let mut conn = settled(&PolicySettings { ce_share: Ratio::ZERO, ..config(PolicyName::Random) }, 4);
    assert_eq!(conn.handle_round(round(100, 1_000, 0), u32::MAX), quiet(0));
    assert_eq!(conn.handle_round(round(100, 2_000, 1), u32::MAX), moved(3, Reason::Ecn));
}

#[test]
fn the_round_after_a_move_is_not_judged() {
    let mut conn = settled(&config(PolicyName::Random), 4);
    assert_eq!(conn.handle_round(round(100, 10, 10), u32::MAX), moved(3, Reason::Ecn));
    assert_eq!(conn.handle_retransmit(at(400), 9, 0), quiet(3));
    assert_eq!(conn.handle_round(round(400, 20, 20), 0), quiet(3));
    assert_eq!(conn.handle_round(round(400, 30, 30), 0), moved(0, Reason::Ecn));
}

#[test]
fn a_burst_of_retransmits_within_one_round_moves() {
    let mut conn = settled(&config(PolicyName::Random), 4);
    assert_eq!(conn.handle_retransmit(at(500), 2, u32::MAX), quiet(0));
    conn.handle_round(round(501, 10, 0), 0);
    assert_eq!(conn.handle_retransmit(at(502), 2, u32::MAX), quiet(0));
    assert_eq!(conn.handle_retransmit(at(503), 1, u32::MAX), moved(3, Reason::Retransmit));
}

#[test]
fn each_burst_is_one_signal() {
    let mut conn = settled(&config(PolicyName::Random), 4);
    for _ in 0..2 {
        assert_eq!(conn.handle_retransmit(at(50), 2, u32::MAX), quiet(0));
        assert_eq!(conn.handle_retransmit(at(50), 1, u32::MAX), ignored(0, Reason::Retransmit));
    }
    assert_eq!(conn.raw().suppressed, 2);
}

#[test]
fn deaf_settings_see_neither_retransmits_nor_some_marks() {
    let mut conn = settled(
        &PolicySettings { retransmit_burst: 0, ce_share: Ratio::from_ppb(1_000_000_000), ..config(PolicyName::Random) },
        4,
    );
    assert_eq!(conn.handle_retransmit(at(500), u32::MAX, u32::MAX), quiet(0));
    assert_eq!(conn.handle_round(round(500, 10, 9), u32::MAX), quiet(0));
}

#[test]
fn counters_that_wrap_give_the_same_judgement() {
    let config = config(PolicyName::Random);
    let mut conn = Connection::open(&config, &paths(4), Time::ZERO, 0).unwrap();
    conn.handle_round(round(0, u32::MAX - 4, u32::MAX - 1), 0);
    assert_eq!(conn.handle_round(round(100, 5, 2), u32::MAX), quiet(0), "4 of 10 marked");
    assert_eq!(conn.handle_round(round(100, 15, 7), u32::MAX), moved(3, Reason::Ecn), "5 of 10 marked");
}

#[test]
fn the_first_timeout_moves_at_once_and_always_away() {
    for policy in [PolicyName::Random, PolicyName::Exp3] {
        for random in [0, 1 << 30, 1 << 31, 3 << 30, u32::MAX] {
            let mut conn = Connection::open(&config(policy), &paths(3), ms(7), random).unwrap();
            let first = conn.path();
            let decision = conn.handle_timeout(at(7), true, random);
            assert_ne!(decision.path, first);
            assert_eq!(decision, moved(conn.path(), Reason::SynTimeout));
            assert_eq!(conn.handle_timeout(at(16), false, random), ignored(conn.path(), Reason::Rto));
            let second = conn.path();
            assert_ne!(conn.handle_timeout(at(17), false, random).path, second);
        }
    }
}

#[test]
fn random_leaves_for_each_other_path_equally() {
    let leave = |random| {
        let mut conn = Connection::open(&config(PolicyName::Random), &paths(4), Time::ZERO, 1 << 30).unwrap();
        assert_eq!(conn.path(), 1);
        conn.handle_timeout(at(0), false, random).path
    };
    let third = u32::MAX / 3;
    assert_eq!([0, third, third + 1, 2 * third, 2 * third + 1, u32::MAX].map(leave), [0, 0, 2, 2, 3, 3]);
}

#[test]
fn static_and_single_paths_never_move() {
    for (policy, n) in [(PolicyName::Static, 4), (PolicyName::Random, 1), (PolicyName::Exp3, 1)] {
        let mut conn = settled(&config(policy), n);
        let why = if n == 1 { Stay::OnlyPath } else { Stay::ByPolicy };
        let stays = |reason| stayed(0, reason, why);
        assert_eq!(conn.handle_round(round(5_000, 10, 10), u32::MAX), stays(Reason::Ecn));
        assert_eq!(conn.handle_retransmit(at(5_000), 9, u32::MAX), stays(Reason::Retransmit));
        assert_eq!(conn.handle_timeout(at(5_000), true, u32::MAX), stays(Reason::SynTimeout));
        assert_eq!((conn.raw().decisions, conn.raw().moves, conn.raw().suppressed), (0, 0, 3));
    }
}

#[test]
fn exp3_credits_congestion_with_the_mean_window_and_a_path_failure_with_nothing() {
    let weights_after = |cwnd: &[u64], failure: bool| {
        let mut conn = settled(&config(PolicyName::Exp3), 2);
        for cwnd in cwnd {
            conn.handle_round(Round { cwnd: Bytes::new(*cwnd), ..round(1, 0, 0) }, 0);
        }
        let decision =
            if failure { conn.handle_timeout(at(200), false, 0) } else { conn.handle_retransmit(at(200), 3, 0) };
        assert!(decision.decided);
        conn.raw().exp3.log_weight
    };
    // γ x / (p K) / ln 2, where p is 1/2, K is 2, and x the mean of the rounds by the BDP; the first one is not judged, and
    // without others the present window counts.
    let expected = |x: f64| (-0.1 * x / std::f64::consts::LN_2 * 2_f64.powi(32)) as i64;
    for (cwnd, x) in
        [(vec![], 0.5), (vec![70_000, 30_000], 0.5), (vec![100_000], 1.0), (vec![20_000], 0.2), (vec![u64::MAX], 1.0)]
    {
        let [first, second, ..] = weights_after(&cwnd, false);
        assert_eq!(first, 0);
        assert!((second - expected(x)).abs() < 1 << 17, "{cwnd:?}: {second} instead of {}", expected(x));
    }
    assert_eq!(weights_after(&[100_000], true)[..2], [0, 0]);
}

#[test]
fn without_a_round_the_current_window_is_the_reward() {
    let mut conn = settled(&config(PolicyName::Exp3), 2);
    conn.handle_retransmit(at(200), 3, 0);
    let before = conn.raw().exp3.log_weight[1];
    conn.handle_retransmit(Round { cwnd: Bytes::new(0), ..at(600) }, 3, 0);
    assert_eq!(conn.raw().exp3.log_weight[1], before, "an empty window earns nothing");
    conn.handle_retransmit(Round { cwnd: Bytes::new(100_000), ..at(1_200) }, 3, 0);
    assert!(conn.raw().exp3.log_weight[1] < before);
}

#[test]
fn a_path_without_a_known_capacity_earns_all_unless_the_window_is_empty() {
    let gain = |cwnd| {
        let paths = [Path { id: 0, weight: 1, bdp: Bytes::new(0), rtt: Span::ZERO, room: None }; 2];
        let mut conn = Connection::open(&config(PolicyName::Exp3), &paths, Time::ZERO, 0).unwrap();
        for _ in 0..2 {
            conn.handle_round(Round { cwnd: Bytes::new(cwnd), ..round(0, 0, 0) }, 0);
        }
        assert!(conn.handle_retransmit(at(100), 3, 0).decided);
        -conn.raw().exp3.log_weight[1]
    };
    assert_eq!(gain(0), 0);
    assert!((gain(1) - (0.1 / std::f64::consts::LN_2 * 2_f64.powi(32)) as i64).abs() < 1 << 17);
}

#[test]
fn a_million_rounds_without_a_decision_keep_the_mean_and_do_not_overflow() {
    let mut conn = settled(&config(PolicyName::Exp3), 2);
    for _ in 0..3 << 20 {
        conn.handle_round(Round { cwnd: Bytes::new(u64::MAX), ..round(1, 0, 0) }, 0);
    }
    let mean = conn.raw().cwnd;
    assert!(mean.count <= 1 << 20);
    assert_eq!((mean.sum as f64 / mean.count as f64 / 2_f64.powi(40) * 1e3).round(), 1e3);
}

#[test]
fn the_wait_doubles_up_to_the_longest() {
    let mut conn = settled(&config(PolicyName::Random), 2);
    let mut now = 0;
    for wait in [10, 20, 40, 80, 80, 80] {
        assert!(conn.handle_timeout(at(now), false, 0).decided, "at {now}");
        assert!(!conn.handle_timeout(at(now + wait - 1), false, 0).decided, "at {now} + {wait} - 1");
        now += wait;
    }
    assert_eq!(conn.raw().suppressed, 6);
}

#[test]
fn the_wait_returns_to_the_first_after_four_quiet_intervals() {
    for (pause, interval) in [(160, 80), (161, 20)] {
        let mut conn = settled(&config(PolicyName::Random), 2);
        conn.handle_timeout(at(0), false, 0);
        conn.handle_timeout(at(10), false, 0);
        // The interval is now 40 ms, and a decision doubles it.
        assert!(conn.handle_timeout(at(10 + pause), false, 0).decided);
        assert_eq!(conn.raw().failure.interval_ns, interval * 1_000_000, "after {pause} ms");
    }
}

#[test]
fn congestion_and_path_failures_have_back_offs_of_their_own() {
    let mut conn = settled(&config(PolicyName::Random), 3);
    assert!(conn.handle_timeout(at(100), false, u32::MAX).moved);
    conn.handle_round(round(101, 10, 0), 0);
    assert!(conn.handle_retransmit(at(101), 3, 0).decided);
}

#[test]
fn a_clock_that_goes_back_only_delays() {
    let mut conn = settled(&config(PolicyName::Random), 2);
    assert!(conn.handle_timeout(at(1_000), false, 0).decided);
    assert_eq!(conn.handle_timeout(at(0), false, 0), ignored(1, Reason::Rto));
    assert_eq!(conn.raw().failure.interval_ns, 20_000_000, "which is not taken for a quiet time");
    assert!(conn.handle_timeout(at(1_010), false, 0).decided);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn jitter_keeps_the_wait_within_its_half_on_both_sides(random in any::<u32>(), ppb in 0..=1_000_000_000_u32) {
        let jitter = Ratio::from_ppb(ppb);
        let conn = Connection::open(&PolicySettings { jitter, ..config(PolicyName::Random) }, &paths(2), ms(1), random)?;
        let wait = (conn.raw().congestion.next_ns - 1_000_000) as f64 / 100e6;
        let half = jitter.as_f64() / 2.0 + 1e-4;
        prop_assert!((1.0 - half..=1.0 + half).contains(&wait), "{wait}");
        prop_assert_eq!(conn.raw().failure.next_ns, 0);
    }

    #[test]
    fn no_history_breaks_the_state(
        policy in prop::sample::select(&PolicyName::ALL[..]),
        reward in prop::sample::select(&RewardName::ALL[..]),
        n in 1..=16_u32,
        bdp in any::<u64>(),
        max in any::<u64>(),
        calls in prop::collection::vec((0..5, any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()), 0..300),
    ) {
        let span = Span::from_nanos(max);
        let backoff = Backoff { min: Span::from_nanos(max / 1_000), max: span };
        let config = PolicySettings { reward, congestion_backoff: backoff, silence_backoff: backoff, ce_share: Ratio::ZERO, reorder_guard: true, ..config(policy) };
        let paths: Vec<Path> = (0..n).map(|id| Path { id, weight: id, bdp: Bytes::new(bdp >> (id * 4)), rtt: Span::from_nanos(bdp << id), room: None }).collect();
        let mut conn = Connection::open(&config, &paths, Time::from_nanos(max), 3)?;
        for (call, now, cwnd, count, random) in calls {
            let (now, cwnd, before) = (Time::from_nanos(now), Bytes::new(cwnd), conn.path());
            let srtt = Span::from_nanos(cwnd.get().rotate_left(count));
            let round = Round { now, cwnd, srtt, mss: count, in_flight: count % 2, delivered: count, delivered_ce: random, received: random };
            let decision = match call {
                0 => conn.handle_retransmit(round, count, random),
                1 => conn.handle_timeout(round, count % 2 == 0, random),
                2 => conn.handle_duplicate(round, srtt, random),
                _ => conn.handle_round(round, random),
            };
            prop_assert!(decision.path < n as usize);
            prop_assert_eq!(decision.path, conn.path());
            prop_assert_eq!(decision.moved, conn.path() != before);
            prop_assert!(decision.decided || !decision.moved);
            let weights = &conn.raw().exp3.log_weight[..n as usize];
            prop_assert_eq!(weights.iter().max(), Some(&0));
        }
        prop_assert!(conn.raw().moves <= conn.raw().decisions);
    }
}

#[test]
fn jitter_is_spread_evenly() {
    let wait = |random: u32| {
        let conn = Connection::open(&PolicySettings::default(), &paths(2), Time::ZERO, random).unwrap();
        conn.raw().congestion.next_ns as f64 / 100e6
    };
    // Draws by the same bits, in order: the waits must not be in order as well.
    let waits: Vec<f64> = (0..10_000).map(|i| wait(i * 429_496)).collect();
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    assert!((mean - 1.0).abs() < 0.01, "{mean}");
    let rises = waits.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((4_500..5_500).contains(&rises), "{rises}");
    let low = waits.iter().filter(|wait| **wait < 0.875).count();
    assert!((2_250..2_750).contains(&low), "{low}");
}
