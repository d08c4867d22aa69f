//! Answers that come late, egresses that are slow, and egresses that forward nothing.

use super::*;

/// A primary and a backup with three targets, as a live edge has them.
fn patient(seed: u64) -> Bench {
    let settings = RouteControlSettings {
        measurement_period: Span::from_millis(800),
        probe_interval: Span::from_millis(66),
        ..RouteControlSettings::default()
    };
    let mut bench = Bench::new(&settings, &[Rate::ZERO; 2], seed);
    let targets = Targets { of: vec![vec![0, 1, 2]; 2], quorum: 2 };
    bench.controller = bench
        .controller
        .with_targets(targets)
        .with_stability(Stability::default())
        .with_patience(Patience::from_least(settings.loss_timeout));
    bench
}

fn health(bench: &Bench, egress: usize) -> Health {
    bench.controller.report(egress).unwrap().health
}

/// The primary with this round trip from a time on, the backup fine.
fn slow_from(seconds: f64, millis: u64) -> impl Fn(f64, usize) -> Path {
    move |now, egress| if egress == 0 && now >= seconds { with_rtt(millis) } else { FINE }
}

#[test]
fn a_round_trip_beyond_the_shortest_timeout_without_loss_is_fine_from_the_start() {
    for millis in [5, 400, 640, 2_500] {
        let mut bench = patient(millis);
        for second in 4..60 {
            bench.run(f64::from(second), slow_from(0.0, millis));
            assert_eq!(health(&bench, 0), Health::Fine, "{millis} ms, at {second} s");
        }
        let report = bench.controller.report(0).unwrap();
        assert_eq!((bench.moves(), report.loss, report.late), (vec![], 0.0, 0), "{millis} ms");
        assert_eq!(report.rtt, Some(Span::from_millis(millis)));
    }
}

#[test]
fn a_round_trip_that_jumps_from_5_to_640_ms_moves_nothing_and_what_was_counted_as_lost_is_taken_back() {
    for step in 0..50 {
        let mut bench = patient(step);
        let jump = 20.0 + step as f64 * 0.02;
        let path = |now: f64, _| with_rtt(if now >= jump { 640 } else { 5 });
        let mut late = 0;
        for tenth in 0..600 {
            bench.run(f64::from(tenth) * 0.1, path);
            assert!(!matches!(health(&bench, 0), Health::Dead), "{step}: at {} s", f64::from(tenth) * 0.1);
            late = late.max(bench.controller.report(0).unwrap().late);
        }
        assert_eq!(bench.moves(), [], "{step}: {:?}", bench.decisions);
        let report = bench.controller.report(0).unwrap();
        assert!(late > 0 && report.loss < 0.01 && report.health == Health::Fine, "{step}: {late}, {report:?}");
    }
}

#[test]
fn a_queue_of_two_seconds_that_fills_and_drains_without_loss_moves_nothing() {
    // It fills by a second in each, and drains as fast.
    let queue = |now: f64| {
        let phase = now % 20.0;
        (phase - 5.0).clamp(0.0, 2.0) - (phase - 12.0).clamp(0.0, 2.0)
    };
    for step in 0..20 {
        let mut bench = patient(step);
        let path = |now: f64, egress: usize| {
            if egress == 0 { with_rtt(20 + (queue(now + step as f64 * 0.13) * 1e3) as u64) } else { FINE }
        };
        bench.run(120.0, path);
        assert_eq!(bench.moves(), [], "{step}");
    }
}

#[test]
fn a_dead_egress_is_left_as_fast_as_with_a_fixed_timeout_and_a_slow_one_after_two_of_its_round_trips() {
    for (millis, most) in [(5, 1.0 + 0.35 + 0.5), (40, 1.0 + 0.35 + 0.5), (640, 1.0 + 0.35 + 1.3 + 1.0)] {
        let mut slowest = 0.0_f64;
        for step in 0..100 {
            let begin = 30.0 + f64::from(step) * 0.011;
            let mut bench = patient(step as u64);
            bench.run(40.0, |now, egress| match (egress, now >= begin) {
                (0, true) => DEAD,
                (0, false) => with_rtt(millis),
                _ => FINE,
            });
            // Where only the last few probes of a measurement fell into it, they may be loss first.
            assert_eq!(bench.moves().iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1], "{millis} ms");
            let left = bench.decisions.iter().find(|one| one.from != one.to).unwrap().at;
            slowest = slowest.max(left.as_secs_f64() - begin);
        }
        assert!(slowest <= most, "{millis} ms: {slowest} s");
    }
}

#[test]
fn a_slow_backup_does_not_delay_the_escape_from_a_dead_primary_beyond_its_own_answers() {
    let mut slowest = 0.0_f64;
    for step in 0..50 {
        let begin = 30.0 + f64::from(step) * 0.021;
        let mut bench = patient(step as u64);
        bench.run(45.0, |now, egress| match (egress, now >= begin) {
            (0, true) => DEAD,
            (0, false) => FINE,
            _ => with_rtt(640),
        });
        let left = bench.decisions.iter().find(|one| one.from != one.to).expect("a move").at;
        slowest = slowest.max(left.as_secs_f64() - begin);
    }
    // A period would last three of its round trips, 1.9 s, with the rule of the simulator.
    assert!(slowest <= 1.0 + 0.35 + 0.5 + 0.64 + 0.1, "{slowest}");
}

#[test]
fn a_slow_egress_that_loses_at_random_is_seen_to_lose_as_much() {
    let mut bench = patient(5);
    bench.run(400.0, |_, _| Path { loss: 0.1, rtt: Span::from_millis(640) });
    let loss = bench.controller.report(0).unwrap().loss;
    assert!((0.05..0.15).contains(&loss), "{loss}");
}

#[test]
fn an_egress_that_forwards_nothing_is_left_at_once_and_used_again_when_it_does() {
    let mut bench = patient(1);
    bench.run(10.0, |_, _| FINE);
    bench.controller.handle_verdict(at(10.0), 0, false);
    let left = bench.controller.poll_decision();
    assert!(left.is_some_and(|one| (one.to, one.reason) == (1, Reason::ForwardsNothing)), "{left:?}");
    bench.run(60.0, |_, _| FINE);
    assert_eq!((bench.controller.active(), health(&bench, 0)), (1, Health::ForwardsNothing), "its probes are fine");
    // Even if the other one dies it is no fallback_egress.
    bench.run(70.0, |_, egress| if egress == 1 { DEAD } else { FINE });
    assert_eq!((bench.controller.active(), bench.last_reason()), (1, Some(Reason::AllDead)));
    bench.controller.handle_verdict(at(70.0), 0, true);
    bench.run(75.0, |_, _| FINE);
    assert_eq!((bench.controller.active(), health(&bench, 0)), (0, Health::Fine));
}

#[test]
fn an_egress_without_targets_has_no_votes_and_is_not_dead() {
    let mut bench = Bench::two(&guarded());
    bench.controller = bench.controller.with_targets(Targets { of: vec![vec![0], vec![]], quorum: 1 });
    bench.run(10.0, |_, _| FINE);
    assert_eq!((health(&bench, 0), health(&bench, 1)), (Health::Fine, Health::Unknown));
    assert_eq!((bench.moves(), bench.last_reason()), (vec![], Some(Reason::Fine)));
}
