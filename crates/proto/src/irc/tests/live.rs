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
    let knobs = IrcKnobs { hold_down: Span::from_secs(60), ..guarded() };
    let mut bench = Bench::two(&knobs);
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
