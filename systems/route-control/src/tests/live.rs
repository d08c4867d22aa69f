//! What a live edge adds: several targets, a rule for the return, a penalty for flaps.

use super::*;

/// A primary and a backup with three targets, of which two must be reachable.
fn three_targets(seed: u64) -> Bench {
    let mut bench = Bench::new(&guarded(), &[Rate::ZERO; 2], seed);
    let targets = Targets { of: vec![vec![0, 1, 2]; 2], quorum: 2 };
    bench.controller = bench.controller.with_targets(targets).with_stability(Stability::default());
    bench
}

fn with_stability(stability: Stability) -> Bench {
    let mut bench = Bench::two(&guarded());
    bench.controller = bench.controller.with_stability(stability);
    bench
}

const DAMPING: Damping =
    Damping { half_life: Span::from_secs(60), suppress: 3_000.0, reuse: 1_000.0, longest: Span::from_secs(300) };

#[test]
fn one_of_three_targets_that_is_down_moves_nothing_and_is_named() {
    for by in [None, Some(0)] {
        let mut bench = three_targets(1);
        bench.run(5.0, |_, _| FINE);
        bench.silent = vec![(by, 1)];
        bench.run(60.0, |_, _| FINE);
        assert_eq!(bench.moves(), []);
        let report = bench.controller.report(0).unwrap();
        assert_eq!((report.health, report.lost), (Health::Fine, 0.0), "{by:?}");
        let counts: Vec<_> = bench.controller.target_reports(0).iter().map(|one| (one.counts, one.lost > 0)).collect();
        assert_eq!(counts, [(true, false), (false, true), (true, false)]);
    }
}

#[test]
fn two_of_three_targets_that_only_the_primary_does_not_reach_move_the_aggregate() {
    let mut bench = three_targets(2);
    bench.run(5.0, |_, _| FINE);
    bench.silent = vec![(Some(0), 1), (Some(0), 2)];
    bench.run(10.0, |_, _| FINE);
    assert_eq!(bench.moves().len(), 1, "{:?}", bench.moves());
    bench.silent.clear();
    bench.run(20.0, |_, _| FINE);
    assert_eq!(bench.controller.active(), 0);
}

#[test]
fn a_quorum_that_is_not_up_anywhere_is_no_reason_to_move() {
    let mut bench = three_targets(3);
    bench.run(5.0, |_, _| FINE);
    bench.silent = vec![(None, 0), (None, 1)];
    bench.run(30.0, |_, _| FINE);
    assert_eq!((bench.moves(), bench.last_reason()), (vec![], Some(Reason::Fine)));
    bench.silent.push((None, 2));
    bench.run(60.0, |_, _| FINE);
    assert_eq!((bench.moves(), bench.last_reason()), (vec![], Some(Reason::AllDead)));
}

#[test]
fn targets_that_die_all_at_once_move_nothing_although_one_egress_had_the_last_answer() {
    let mut bench = three_targets(7);
    bench.run(5.0, |_, _| FINE);
    // The last five probes of the primary are lost, and the last four of the backup.
    let last = |now: f64| 10.0 - 0.010 - now;
    bench.run(60.0, |now, egress| {
        let silent = now > 20.0 || last(now) < if egress == 0 { 0.045 } else { 0.035 };
        if now > 9.0 && silent { DEAD } else { FINE }
    });
    assert_eq!(bench.moves(), [], "{:?}", bench.decisions);
    assert_eq!(bench.last_reason(), Some(Reason::AllDead));
}

#[test]
fn a_dead_path_is_left_as_fast_with_three_targets_as_with_one() {
    let mut bench = three_targets(4);
    bench.run(40.0, while_bad(10.1, 20.1, DEAD));
    assert_eq!(bench.moves(), [(1, Reason::Dead), (0, Reason::Recovered)]);
    let times: Vec<_> = bench.decisions.iter().filter(|one| one.from != one.to).map(|one| one.at).collect();
    assert!(times[0] < at(10.1 + 1.0 + 0.5 + 0.05), "{times:?}");
    assert!(times[1] < at(20.1 + 1.0 + 0.4 + 0.5), "{times:?}");
}

#[test]
fn loss_on_the_path_to_all_targets_is_seen_through_the_quorum() {
    let mut bench = three_targets(5);
    bench.run(120.0, while_bad(10.0, 120.0, losing(0.1)));
    assert_eq!(bench.controller.active(), 1);
    assert!(bench.controller.report(0).is_some_and(|of| (0.05..0.12).contains(&of.loss)));
}

/// The best two of three alone would show 0.6, 2.5 and 6.5 %.
#[test]
fn random_loss_is_not_understated_because_the_best_targets_count() {
    for (truth, least) in [(0.02, 0.015), (0.05, 0.041), (0.1, 0.084)] {
        let mut bench = three_targets(11);
        let mut seen = (0.0, 0);
        for second in 1..=400 {
            bench.run(f64::from(second), |_, _| losing(truth));
            seen = (seen.0 + bench.controller.report(0).map_or(0.0, |of| of.lost), seen.1 + 1);
        }
        let mean = seen.0 / f64::from(seen.1);
        assert!((least..truth * 1.05).contains(&mean), "{mean} of {truth}");
    }
}

#[test]
fn a_target_that_is_filtered_by_half_behind_the_primary_is_outvoted() {
    let mut bench = three_targets(12);
    bench.run(5.0, |_, _| FINE);
    bench.dim = Some((0, 1, 0.5));
    bench.run(300.0, |_, _| FINE);
    let outvoted = bench.controller.target_reports(0).iter().filter(|one| !one.counts).count();
    assert_eq!((bench.moves(), outvoted), (vec![], 1), "{:?}", bench.controller.target_reports(0));
}

#[test]
fn the_return_waits_until_the_primary_has_been_fine_for_as_long_as_is_asked() {
    let waiting = Stability { fail_back_after: Span::from_secs(20), ..Stability::default() };
    let mut bench = with_stability(waiting);
    // The primary is back at 30 s, and fails once more at 40 s for a moment.
    bench.run(120.0, |now, egress| {
        let dead = (10.0..30.0).contains(&now) || (40.0..42.0).contains(&now);
        if egress == 0 && dead { DEAD } else { FINE }
    });
    let moves: Vec<_> = bench.decisions.iter().filter(|one| one.from != one.to).map(|one| (one.at, one.to)).collect();
    assert_eq!(moves.iter().map(|one| one.1).collect::<Vec<_>>(), [1, 0]);
    assert!((62.0..65.0).contains(&moves[1].0.as_secs_f64()), "{moves:?}");
    assert!(bench.decisions.iter().any(|one| one.reason == Reason::Recovering));
}

#[test]
fn an_aggregate_that_does_not_return_leaves_the_backup_only_when_that_fails() {
    let mut bench = with_stability(Stability { fail_back: FailBack::Never, ..Stability::default() });
    bench.run(60.0, while_bad(10.0, 20.0, DEAD));
    assert_eq!((bench.moves().len(), bench.last_reason()), (1, Some(Reason::NoFailBack)));
    bench.run(80.0, |now, egress| if egress == 1 && now > 60.0 { DEAD } else { FINE });
    assert_eq!(bench.moves(), [(1, Reason::Dead), (0, Reason::Dead)]);
}

#[test]
fn a_primary_that_flaps_is_suppressed_until_its_penalty_has_decayed_and_used_if_nothing_else_is_alive() {
    let flapping = |now: f64, egress: usize| {
        let dead = now < 200.0 && now % 10.0 < 4.0 && now > 10.0;
        if egress == 0 && dead { DEAD } else { FINE }
    };
    let mut free = with_stability(Stability::default());
    free.run(500.0, flapping);
    let mut damped = with_stability(Stability { damping: Some(DAMPING), ..Stability::default() });
    damped.run(200.0, flapping);
    let (often, seldom) = (free.moves().len(), damped.moves().len());
    assert!(often >= 30 && seldom <= 9, "{often} moves without, {seldom} with");
    assert!(damped.controller.penalty(at(200.0), 0).1 && damped.last_reason() == Some(Reason::Suppressed));
    // The backup dies: a suppressed primary is better than none.
    damped.run(205.0, |_, egress| if egress == 1 { DEAD } else { FINE });
    assert_eq!(damped.controller.active(), 0);
    let mut again = with_stability(Stability { damping: Some(DAMPING), ..Stability::default() });
    again.run(500.0, flapping);
    assert_eq!((again.controller.active(), again.controller.penalty(at(500.0), 0).1), (0, false));
}

#[test]
fn carrier_that_is_back_proves_nothing_before_a_measurement() {
    let mut bench = with_stability(Stability::default());
    bench.run(10.0, |_, _| FINE);
    bench.controller.handle_carrier(at(10.0), 0, false);
    let left = bench.controller.poll_decision();
    assert!(left.is_some_and(|one| (one.to, one.reason) == (1, Reason::Carrier)), "{left:?}");
    bench.run(15.0, |_, egress| if egress == 0 { DEAD } else { FINE });
    // The carrier is back, and the path behind it is still dead.
    bench.controller.handle_carrier(at(15.0), 0, true);
    bench.run(25.0, |_, egress| if egress == 0 { DEAD } else { FINE });
    assert_eq!(bench.controller.active(), 1);
    bench.run(30.0, |_, _| FINE);
    assert_eq!(bench.controller.active(), 0);
}

#[test]
fn a_hold_down_keeps_an_impaired_egress_and_not_a_dead_one() {
    let settings = RouteControlSettings { hold_down: Span::from_secs(60), ..guarded() };
    let mut bench = Bench::two(&settings);
    bench.run(20.0, while_bad(5.0, 8.0, DEAD));
    assert_eq!((bench.moves(), bench.last_reason()), (vec![(1, Reason::Dead)], Some(Reason::HoldDown)));
    bench.run(25.0, |_, egress| if egress == 1 { DEAD } else { FINE });
    assert_eq!(bench.moves(), [(1, Reason::Dead), (0, Reason::Dead)], "within the hold-down");
}

#[test]
fn a_daemon_that_takes_over_goes_on_from_the_egress_in_use() {
    let mut bench = Bench::two(&guarded());
    bench.controller = bench.controller.starting_at(1);
    assert_eq!(bench.controller.active(), 1);
    bench.run(10.0, |_, egress| if egress == 0 { DEAD } else { FINE });
    assert_eq!(bench.moves(), []);
    bench.run(20.0, |_, _| FINE);
    assert_eq!(bench.moves(), [(0, Reason::Recovered)]);
}

/// Periods of half a second with twelve probes to three targets, as a live edge may have them.
fn short_periods() -> RouteControlSettings {
    let millis = Span::from_millis;
    RouteControlSettings {
        routing_period: millis(500),
        measurement_period: millis(400),
        probe_interval: millis(33),
        loss_timeout: millis(200),
        ..RouteControlSettings::default()
    }
}

#[test]
fn however_an_outage_lies_in_its_measurements_the_return_takes_a_period_a_measurement_and_the_timeout_at_most() {
    let targets = Targets { of: vec![vec![0, 1, 2]; 2], quorum: 2 };
    let (mut slowest, mut moved) = (0.0_f64, 0);
    for step in 0..400 {
        let begin = 5.0 + f64::from(step) * 0.0037;
        let mut bench = Bench::new(&short_periods(), &[Rate::ZERO; 2], step as u64);
        bench.controller = bench.controller.with_targets(targets.clone()).with_stability(Stability::default());
        let mut now = begin;
        // It ends as soon as it was left, or some time after.
        while bench.controller.active() == 0 && now < begin + 3.0 {
            now += 0.005;
            bench.run(now, while_bad(begin, 1e9, DEAD));
        }
        let end = now + f64::from(step % 4) * 0.11;
        bench.run(end, while_bad(begin, 1e9, DEAD));
        bench.run(end + 5.0, while_bad(begin, end, DEAD));
        let back = bench.decisions.iter().rfind(|one| (one.from, one.to) == (1, 0));
        moved += u32::from(back.is_some());
        slowest = slowest.max(back.map_or(0.0, |one| one.at.as_secs_f64() - end));
    }
    assert_eq!(moved, 400);
    assert!(slowest > 0.4 && slowest < 0.5 + 0.4 + 0.2, "{slowest}");
}

#[test]
fn a_probe_that_is_lost_some_time_after_an_outage_moves_nothing() {
    let targets = Targets { of: vec![vec![0, 1, 2]; 2], quorum: 2 };
    for step in 0..100 {
        let (begin, lost) = (5.0 + f64::from(step) * 0.013, 9.0 + f64::from(step) * 0.005);
        let mut bench = Bench::new(&short_periods(), &[Rate::ZERO; 2], step as u64);
        bench.controller = bench.controller.with_targets(targets.clone()).with_stability(Stability::default());
        bench.run(20.0, |now, egress| {
            let dead = (begin..begin + 1.5).contains(&now) || (lost..lost + 0.05).contains(&now);
            if egress == 0 && dead { DEAD } else { FINE }
        });
        let to: Vec<_> = bench.moves().iter().map(|(to, _)| *to).collect();
        assert_eq!(to, [1, 0], "{step}: {:?}", bench.moves());
    }
}

#[test]
fn a_primary_that_loses_at_random_and_dies_for_a_while_has_to_prove_that_it_lost_its_loss() {
    let mut bench = Bench::two(&guarded());
    let path = |now: f64, egress: usize| match (egress, now) {
        (0, 10.0..20.0) => losing(0.05),
        (0, 20.0..22.0) => DEAD,
        (0, 22.0..60.0) => losing(0.05),
        _ => FINE,
    };
    bench.run(60.0, path);
    assert_eq!((bench.moves().len(), bench.controller.active()), (1, 1), "{:?}", bench.moves());
    bench.run(70.0, path);
    assert_eq!(bench.controller.active(), 0);
}

/// Two egresses of which the first carries the aggregate; its probes are lost as `path` gives, and `passage` is what passes it.
fn with_passage(path: impl Fn(f64) -> f64, passage: Passage, settings: &RouteControlSettings) -> Bench {
    let mut bench = Bench::two(settings);
    while let Some((now, timeout)) = bench.controller.next_timeout().filter(|(due, _)| *due < at(15.0)) {
        if timeout == Timeout::Decision {
            let last_advance = (passage.acked > Bytes::new(0)).then_some(now);
            bench.controller.handle_passages(now, &[Passage { last_advance, ..passage }, Passage::default()]);
        }
        bench.controller.handle_timeout(now, 0);
        bench.decisions.extend(bench.controller.poll_decision());
        while let Some(probe) = bench.controller.poll_transmit(now) {
            let drawn = f64::from(bench.random.next_u32()) / 4_294_967_296.0;
            if probe.egress == 1 || drawn >= path(now.as_secs_f64()) {
                bench.controller.handle_answer(now + Span::from_millis(20), probe, None);
            }
        }
    }
    bench
}

const PASSAGE: Passage = Passage {
    acked: Bytes::new(1_000_000),
    connections: 10,
    segments: 700,
    retransmitted: 0,
    rtt: Some(Span::from_millis(50)),
    last_advance: None,
};

#[test]
fn what_passes_an_egress_contradicts_its_probes_whether_they_all_die_or_some() {
    let settings = RouteControlSettings { decision_jitter: Ratio::ZERO, ..RouteControlSettings::default() };
    for loss in [0.2, 0.5, 1.0] {
        let bad = |now: f64| if now > 5.0 { loss } else { 0.0 };
        assert_eq!(with_passage(bad, PASSAGE, &settings).moves(), [], "{loss}");
        // The same loss of data is believed, and so is an egress by which nothing advances.
        let lossy = Passage { retransmitted: (700.0 * loss) as u32, ..PASSAGE };
        let silent = Passage { segments: 20, acked: Bytes::new(0), ..PASSAGE };
        let moves = |passage| with_passage(bad, passage, &settings).moves().len();
        assert!(moves(silent) == 1 && (loss == 1.0 || moves(lossy) == 1), "{loss}");
        let without = RouteControlSettings { ack_veto: false, ..settings.clone() };
        assert_eq!(with_passage(bad, PASSAGE, &without).moves().len(), 1, "{loss}");
    }
}

#[test]
fn what_passes_an_egress_is_reported_and_shows_how_far_the_far_ends_are() {
    let settings = RouteControlSettings { mode: RouteControlMode::Predictive, ..guarded() };
    let bench =
        with_passage(|now| if now > 5.0 { 0.02 } else { 0.0 }, Passage { retransmitted: 14, ..PASSAGE }, &settings);
    let report = bench.controller.report(0).unwrap();
    let (passage, rate) = report.passage.unwrap();
    assert_eq!((passage.retransmitted, passage.connections), (14, 10));
    assert!((rate.as_mbits() - 8.0).abs() < 1.0, "{rate}");
    // 50 ms by what passed, 20 ms by probes: the formula goes by 50 ms for both.
    assert_eq!(report.rtt, Some(Span::from_millis(20)));
    assert_eq!(bench.controller.report(1).unwrap().passage.map(|(passage, _)| passage.rtt), Some(None));
}
