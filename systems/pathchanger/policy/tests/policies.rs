//! What each policy does that the others do not, and the guards.

use proptest::prelude::*;
use sidestep_net::{Bytes, Ratio, Span, Time};
use sidestep_policy::{Backoff, Connection, Path, PolicyName, PolicySettings, Reason, RewardName, Round};

/// A segment's payload.
const MSS: u32 = 1_000;

/// Paths of 10 Mbit/s with these round trips in milliseconds.
fn paths(rtts_ms: &[u64]) -> Vec<Path> {
    let path = |(id, rtt): (usize, &u64)| Path {
        id: id as u32,
        weight: 1,
        bdp: Bytes::new(1_250 * rtt),
        rtt: Span::from_millis(*rtt),
        room: None,
    };
    rtts_ms.iter().enumerate().map(path).collect()
}

/// No wait is longer than a nanosecond.
fn config(policy: PolicyName) -> PolicySettings {
    let wait = Backoff { min: Span::from_nanos(1), max: Span::from_nanos(1) };
    PolicySettings {
        policy,
        ce_rounds: 1,
        jitter: Ratio::ZERO,
        congestion_backoff: wait,
        silence_backoff: wait,
        ..PolicySettings::default()
    }
}

/// A connection on the first of these paths, whose first, unjudged, round has ended at time zero.
fn settled(config: &PolicySettings, rtts_ms: &[u64]) -> Connection {
    let mut conn = Connection::open(config, &paths(rtts_ms), Time::ZERO, 0).unwrap();
    conn.handle_round(at(0, 0), 0);
    assert_eq!(conn.path(), 0);
    conn
}

/// With 10 segments of window, a round trip of 10 ms, and nothing marked.
fn at(at_ms: u64, delivered: u32) -> Round {
    Round {
        now: Time::from_nanos(at_ms * 1_000_000),
        cwnd: Bytes::new(10_000),
        srtt: Span::from_millis(10),
        mss: MSS,
        in_flight: 10,
        delivered,
        delivered_ce: 0,
        received: 0,
    }
}

/// A round at this time in which every delivered packet was marked.
fn marked(at_ms: u64, delivered: u32) -> Round {
    Round { delivered_ce: delivered, ..at(at_ms, delivered) }
}

/// By how much the logarithm (base 2) of the first path's weight is above the second's.
fn lead(conn: &Connection) -> f64 {
    let weights = conn.raw().exp3.log_weight;
    (weights[0] - weights[1]) as f64 / 2_f64.powi(32)
}

/// What EXP3 adds to that for a reward on the first of two equal paths.
fn gain(reward: f64) -> f64 {
    0.1 * reward / std::f64::consts::LN_2
}

#[test]
fn next_goes_round_after_so_many_timeouts_in_a_row() {
    let mut conn = settled(&PolicySettings { next_rtos: 2, ..config(PolicyName::Next) }, &[10, 10, 10]);
    let mut now = 0;
    let mut timeout = |conn: &mut Connection, delivered| {
        now += 300;
        conn.handle_timeout(at(now, delivered), false, u32::MAX).path
    };
    assert_eq!([0; 7].map(|delivered| timeout(&mut conn, delivered)), [0, 1, 1, 2, 2, 0, 0]);
    assert_eq!([5, 6, 6].map(|delivered| timeout(&mut conn, delivered)), [0, 0, 1], "what is delivered ends the row");
}

#[test]
fn next_moves_at_the_first_timeout_of_a_syn_and_is_deaf_to_congestion() {
    let mut conn = Connection::open(&config(PolicyName::Next), &paths(&[10; 16]), Time::ZERO, u32::MAX).unwrap();
    assert_eq!(conn.path(), 15, "the first path is drawn");
    let decision = conn.handle_timeout(at(1_000, 0), true, 7);
    assert_eq!((decision.path, decision.moved, decision.reason), (0, true, Some(Reason::SynTimeout)));
    conn.handle_round(at(1_010, 10), 7);
    for time in 2..100 {
        assert!(!conn.handle_round(marked(1_000 * time, 10 * time as u32), 7).decided);
        assert!(!conn.handle_retransmit(at(1_000 * time, 0), 100, 7).decided);
    }
}

#[test]
fn plb_moves_after_twelve_congested_rounds_and_always_away() {
    let mut conn = settled(&config(PolicyName::Plb), &[10; 4]);
    let moves: Vec<_> =
        (1..=24).filter(|round| conn.handle_round(marked(10 * round, 10 * *round as u32), 0).moved).collect();
    assert_eq!(moves, [12, 24]);
    // By marks of half of the packets, when nothing is in flight.
    let mut conn = settled(&config(PolicyName::Plb), &[10; 4]);
    let idle = |round: u32| Round { delivered_ce: 5 * round, in_flight: 0, ..at(10, 10 * round) };
    let moves: Vec<_> = (1..=7).filter(|round| conn.handle_round(idle(*round), 0).moved).collect();
    assert_eq!(moves, [3, 6]);
}

#[test]
fn plb_pauses_for_one_to_two_minutes_after_a_timeout() {
    for random in [0, 1, 1 << 20, u32::MAX] {
        let mut conn = settled(&config(PolicyName::Plb), &[10; 2]);
        assert!(conn.handle_timeout(at(1_000, 0), false, random).moved);
        let pause = conn.raw().plb_pause_ns - 1_000_000_000;
        assert!((60_000_000_000..120_000_000_000).contains(&pause), "{pause}");
        let end = 1_000 + pause.div_ceil(1_000_000);
        let moved = |conn: &mut Connection, now: u64| (1..=12).any(|i| conn.handle_round(marked(now, i), 0).moved);
        assert!(!moved(&mut conn.clone(), end - 1));
        assert!(moved(&mut conn, end));
    }
}

#[test]
fn lowest_rtt_earns_the_lowest_propagation_as_a_share_of_the_mean_round_trip() {
    for config in
        [config(PolicyName::LowestRtt), PolicySettings { reward: RewardName::Rtt, ..config(PolicyName::Exp3) }]
    {
        let mut conn = settled(&config, &[20, 8]);
        // Of 15 and 25 ms the mean is 20; what was read before the rounds that count is not in it.
        for (now, srtt) in [(10, 15), (20, 25)] {
            conn.handle_round(Round { srtt: Span::from_millis(srtt), ..at(now, now as u32) }, 0);
        }
        assert!(conn.handle_retransmit(at(30, 20), 3, 0).decided);
        assert!((lead(&conn) - gain(8.0 / 20.0)).abs() < 1e-4, "{}", lead(&conn));
    }
}

#[test]
fn a_rate_earns_its_share_of_the_paths_rate() {
    let mut conn = settled(&PolicySettings { reward: RewardName::Rate, ..config(PolicyName::Exp3) }, &[20, 20]);
    // 50 segments of 1000 bytes in 100 ms are 4 Mbit/s, of 10.
    conn.handle_round(at(40, 30), 0);
    conn.handle_round(at(100, 50), 0);
    assert!(conn.handle_retransmit(at(110, 50), 3, 0).decided);
    assert!((lead(&conn) - gain(0.4)).abs() < 1e-4, "{}", lead(&conn));
}

#[test]
fn without_a_round_the_window_tells_the_rate() {
    let mut conn = settled(&PolicySettings { reward: RewardName::Rate, ..config(PolicyName::Exp3) }, &[20, 20]);
    // 10 kB in 10 ms are 8 Mbit/s.
    assert!(conn.handle_retransmit(at(1, 0), 3, 0).decided);
    assert!((lead(&conn) - gain(0.8)).abs() < 1e-4, "{}", lead(&conn));
}

#[test]
fn exp3_ix_learns_from_path_failures() {
    let mut conn = settled(&config(PolicyName::Exp3Ix), &[10, 10]);
    assert!(conn.handle_timeout(at(300, 0), false, 0).moved);
    let expected = -0.1 / (0.5 + 0.05) / std::f64::consts::LN_2;
    assert!((lead(&conn) - expected).abs() < 1e-4, "{}", lead(&conn));
}

#[test]
fn the_papers_policy_takes_any_mark_for_congestion_and_a_timeout_too() {
    let wanted = |policy| PolicySettings { ce_rounds: 3, settle_rounds: 0, ..config(policy) };
    // One of a hundred packets was marked, in one round.
    let one_mark = Round { delivered_ce: 1, ..at(100, 100) };
    assert!(settled(&wanted(PolicyName::Paper), &[10, 10]).handle_round(one_mark, 0).decided);
    assert!(!settled(&wanted(PolicyName::Exp3), &[10, 10]).handle_round(one_mark, 0).decided);

    // A timeout earns the window, 10 kB of 12.5, and the draw may choose the same path. EXP3 has to leave it, for nothing.
    let mut paper = settled(&wanted(PolicyName::Paper), &[10, 10]);
    let decision = paper.handle_timeout(at(300, 10), false, 0);
    assert!(decision.decided && !decision.moved && decision.reason == Some(Reason::Rto));
    assert!((lead(&paper) - gain(0.8)).abs() < 1e-4, "{}", lead(&paper));
    let mut exp3 = settled(&wanted(PolicyName::Exp3), &[10, 10]);
    assert!(exp3.handle_timeout(at(300, 10), false, 0).moved);
    assert_eq!(lead(&exp3), 0.0);

    // That acknowledgements are lost the paper does not look at.
    let late = Span::from_secs(1);
    assert_eq!(settled(&wanted(PolicyName::Paper), &[10, 10]).handle_duplicate(at(1_300, 0), late, 0).reason, None);
    assert!(settled(&wanted(PolicyName::Exp3), &[10, 10]).handle_duplicate(at(1_300, 0), late, 0).moved);
}

#[test]
fn rounds_that_settle_after_a_move_are_not_in_what_the_window_earns() {
    let settings = PolicySettings { settle_rounds: 2, ..config(PolicyName::Exp3) };
    let mut conn = settled(&settings, &[10, 10]);
    conn.handle_round(at(10, 0), 0);
    assert!(conn.handle_timeout(at(300, 0), false, 0).moved);
    let before = lead(&conn);
    let window = |at_ms, bytes| Round { cwnd: Bytes::new(bytes), ..at(at_ms, at_ms as u32) };
    // Two rounds with the window that the other path had, then two with 5 kB, of 12.5.
    for (at_ms, bytes) in [(310, 12_500), (320, 12_500), (330, 5_000), (340, 5_000)] {
        conn.handle_round(window(at_ms, bytes), 0);
    }
    assert!(conn.handle_retransmit(window(345, 5_000), 3, 0).decided);
    // After the failure there was one path to draw from: its probability was 1.
    let learnt = before - lead(&conn);
    assert!((learnt - gain(0.4) / 2.0).abs() < 1e-4, "{learnt}");
}

#[test]
fn a_draw_that_the_guard_restricts_is_rewarded_by_the_probability_among_the_rest() {
    let settings = PolicySettings { settle_rounds: 0, rtt_guard: Span::from_millis(100), ..config(PolicyName::Exp3) };
    let mut conn = settled(&settings, &[10, 10, 300]);
    // The third path is too long: one of two is drawn.
    assert!(conn.handle_round(marked(10, 10), 0).decided);
    let probability = |conn: &Connection, path: usize| {
        let weights = conn.raw().exp3.log_weight.map(|log| (log as f64 / 2_f64.powi(32)).exp2());
        0.9 * weights[path] / weights[..3].iter().sum::<f64>() + 0.1 / 3.0
    };
    let chosen = conn.path();
    let expected = probability(&conn, chosen) / (probability(&conn, 0) + probability(&conn, 1));
    let recorded = f64::from(conn.raw().chance_q32) / 2_f64.powi(32);
    assert!((recorded - expected).abs() < 1e-4, "{recorded} instead of {expected}");
    // What it earns next, 10 kB of 12.5, is divided by that probability.
    let before = conn.raw().exp3.log_weight;
    let next = Round { delivered: 20, delivered_ce: 20, ..at(20, 20) };
    assert!(conn.handle_round(next, 0).decided);
    let lead = |weights: [i64; 16]| (weights[chosen] - weights[2]) as f64 / 2_f64.powi(32);
    let learnt = lead(conn.raw().exp3.log_weight) - lead(before);
    let expected = 0.1 * 0.8 / (expected * 3.0) / std::f64::consts::LN_2;
    assert!((learnt - expected).abs() < 1e-4, "{learnt} instead of {expected}");
}

#[test]
fn a_much_longer_path_is_left_alone_until_there_is_no_other() {
    for policy in [PolicyName::Random, PolicyName::Exp3, PolicyName::Exp3Ix, PolicyName::LowestRtt, PolicyName::Next] {
        for random in [0, 1 << 30, 1 << 31, u32::MAX] {
            let mut conn = settled(&config(policy), &[10, 211, 210]);
            assert_eq!(conn.handle_timeout(at(300, 0), false, random).path, 2, "{policy} {random}");
            let mut conn = settled(&config(policy), &[10, 211, 212]);
            assert_ne!(conn.handle_timeout(at(300, 0), false, random).path, 0, "{policy} {random}");
            let mut conn = settled(&PolicySettings { rtt_guard: Span::ZERO, ..config(policy) }, &[10, 999, 999]);
            assert_ne!(conn.handle_timeout(at(300, 0), false, random).path, 0, "{policy} {random}");
        }
    }
    // Congestion is no reason to take it.
    for policy in [PolicyName::Random, PolicyName::Exp3, PolicyName::Plb] {
        let mut conn = settled(&PolicySettings { plb_rounds: 1, ..config(policy) }, &[10, 211]);
        assert_eq!(conn.handle_round(marked(100, 10), u32::MAX).path, 0, "{policy}");
    }
}

#[test]
fn a_path_longer_than_the_timeout_is_left_alone() {
    let far = PolicySettings { rtt_guard: Span::from_secs(9), ..config(PolicyName::Random) };
    // The timeout is 200 ms more than the round trip of 10 ms.
    assert_eq!(settled(&far, &[10, 211, 210]).handle_timeout(at(300, 0), false, 0).path, 2);
    let unknown = Round { srtt: Span::ZERO, ..at(300, 0) };
    assert_eq!(settled(&far, &[10, 211, 210]).handle_timeout(unknown, true, 0).path, 1);
}

#[test]
fn as_many_rounds_as_wished_are_not_judged_after_a_move() {
    for settle_rounds in 0..5 {
        let mut conn =
            settled(&PolicySettings { settle_rounds, retransmit_burst: 0, ..config(PolicyName::Random) }, &[10, 10]);
        for _ in 1..settle_rounds {
            conn.handle_round(at(0, 0), 0);
        }
        assert!(conn.handle_timeout(at(300, 0), false, u32::MAX).moved);
        let first = (1..10).find(|round| conn.handle_round(marked(300 + 10 * round, 10 * *round as u32), 0).decided);
        assert_eq!(first, Some(u64::from(settle_rounds) + 1));
    }
}

#[test]
fn reordering_by_a_move_to_a_shorter_path_halves_what_that_path_earns() {
    // At 10 segments in 10 ms a packet arrives every millisecond. A round trip that is 6 ms shorter means a one-way delay that
    // is 3 ms shorter.
    for (rtts, guard, reward) in [([16, 10], true, 0.5), ([15, 10], true, 1.0), ([16, 10], false, 1.0)] {
        let settings = PolicySettings { reorder_guard: guard, settle_rounds: 0, ..config(PolicyName::Exp3) };
        let mut conn = settled(&settings, &rtts);
        assert_eq!(conn.handle_timeout(at(300, 0), false, 0).path, 1);
        let before = lead(&conn);
        let round = Round { cwnd: Bytes::new(1 << 30), ..at(310, 0) };
        conn.handle_round(round, 0);
        assert!(conn.handle_retransmit(Round { now: Time::from_nanos(400_000_000), ..round }, 3, 0).decided);
        let learnt = before - lead(&conn);
        // After the failure there was one path to draw from: its probability was 1, and not the half of all draws.
        assert!((learnt - gain(reward) / 2.0).abs() < 1e-4, "{rtts:?} {guard}: {learnt}");
    }
}

/// A connection that only receives, and has received `received` bytes.
fn receiving(at_ms: u64, received: u32) -> Round {
    Round { received, ..at(at_ms, 0) }
}

#[test]
fn data_that_comes_again_after_half_an_rto_without_new_data_moves_the_acknowledgements() {
    // The RTO is 10 ms + 200 ms.
    let failure = Backoff { min: Span::from_millis(10), max: Span::from_secs(10) };
    let mut conn = settled(&PolicySettings { silence_backoff: failure, ..config(PolicyName::Exp3) }, &[10, 10, 10]);
    let soon = conn.handle_duplicate(receiving(1_000, 5), Span::from_millis(104), 7);
    assert_eq!((soon.moved, soon.reason), (false, None), "reordering retransmits without need");
    let late = conn.handle_duplicate(receiving(1_001, 5), Span::from_millis(106), 7);
    assert_eq!((late.moved, late.reason), (true, Some(Reason::AckLoss)));
    let again = conn.handle_duplicate(receiving(1_002, 5), Span::from_millis(107), 7);
    assert!(!again.decided, "the back-off takes what comes together for one signal");
}

#[test]
fn data_that_comes_again_is_no_signal_where_that_is_not_wanted() {
    let mut conn = settled(&PolicySettings { ack_quiet: Ratio::ZERO, ..config(PolicyName::Exp3) }, &[10, 10]);
    assert!(!conn.handle_duplicate(receiving(1_000, 5), Span::from_secs(10), 7).decided);
}

#[test]
fn a_path_that_failed_is_not_drawn_again_before_something_arrives() {
    for policy in [
        PolicyName::Exp3,
        PolicyName::Exp3Ix,
        PolicyName::LowestRtt,
        PolicyName::Random,
        PolicyName::Plb,
        PolicyName::Next,
    ] {
        for draw in 0..200_u32 {
            let random = draw.wrapping_mul(0x9e37_79b9);
            let mut conn = settled(&config(policy), &[10; 4]);
            let first = conn.handle_timeout(at(1_000, 0), false, random).path;
            let second = conn.handle_timeout(at(2_000, 0), false, random.rotate_left(7)).path;
            let third = conn.handle_timeout(at(4_000, 0), false, random.rotate_left(14)).path;
            let mut seen = [0, first, second, third];
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3], "{policy:?}");
            // All have failed: it begins again, and only the last is known to have failed.
            assert_ne!(conn.handle_timeout(at(8_000, 0), false, random).path, third);
        }
    }
    let mut back = 0;
    for draw in 0..200_u32 {
        let mut conn = settled(&config(PolicyName::Random), &[10; 4]);
        conn.handle_timeout(at(1_000, 0), false, draw.wrapping_mul(0x9e37_79b9));
        back += u32::from(conn.handle_timeout(at(2_000, 9), false, draw.wrapping_mul(0x85eb_ca6b)).path == 0);
    }
    assert!(back > 30, "a delivery by another path proves nothing of the first: {back}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Of `n` paths of which one delivers, any policy that moves finds it, and each dead one is left in time.
    #[test]
    fn a_dead_path_is_left_after_n_timeouts(
        policy in prop::sample::select(vec![PolicyName::Next, PolicyName::Plb, PolicyName::Random, PolicyName::Exp3, PolicyName::Exp3Ix,
                                            PolicyName::LowestRtt]),
        next_rtos in 1..5_u32,
        rtts in prop::collection::vec(1..1_000_u64, 2..=16),
        syn in any::<bool>(),
        draws in prop::collection::vec(any::<u32>(), 100),
    ) {
        let settings = PolicySettings { next_rtos, ..config(policy) };
        let mut conn = Connection::open(&settings, &paths(&rtts), Time::ZERO, draws[0])?;
        let patience = if policy == PolicyName::Next { next_rtos } else { 1 };
        let mut now = 0;
        for (number, draw) in draws.iter().enumerate() {
            let before = conn.path();
            now += 300;
            let moved = conn.handle_timeout(at(now, 0), syn, *draw).path != before;
            prop_assert_eq!(moved, (number as u32 + 1).is_multiple_of(patience));
        }
    }

    /// Round robin visits every path that the guard lets pass before it comes back.
    #[test]
    fn next_leaves_out_no_path(n in 2..=16_usize, draw in any::<u32>()) {
        let mut conn = Connection::open(&config(PolicyName::Next), &paths(&vec![10; n]), Time::ZERO, draw)?;
        let first = conn.path();
        for step in 1..=n {
            prop_assert_eq!(conn.handle_timeout(at(300 * step as u64, 0), false, draw).path, (first + step) % n);
        }
    }
}
