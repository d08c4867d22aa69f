//! What measures are made of records.

use super::*;
use crate::testing::{SECOND, at, flow, path_sample};

const WINDOW: Window =
    Window { warmup: Span::from_secs(2), duration: Span::from_secs(10), sample: Span::from_millis(500) };

fn recorder() -> Recorder {
    Recorder::new("tcp", WINDOW, [("p1".into(), Rate::from_mbits(100))])
}

#[test]
fn goodput_counts_only_what_was_acknowledged_after_the_warmup() {
    let mut recorder = recorder();
    recorder.flow(&FlowRecord { bytes: Bytes::new(9_000_000), ..flow("a", 0.0, 10.0, 5_000_000) });
    recorder.flow(&flow("b", 0.0, 10.0, 3_000_000));
    let (result, _) = recorder.finish();
    assert_eq!(result.goodput_mbps, 8.0);
    assert_eq!(result.connections, 2);
}

#[test]
fn completion_times_are_of_the_flows_that_completed() {
    let mut recorder = recorder();
    for seconds in 1..=4 {
        let end = f64::from(seconds);
        recorder.flow(&FlowRecord { completed: true, ..flow(&format!("c{seconds}"), 0.0, end, 0) });
    }
    recorder.flow(&flow("endless", 0.0, 10.0, 1));
    let (result, _) = recorder.finish();
    assert_eq!((result.afct_s, result.fct_p50_s, result.fct_p99_s), (Some(2.5), Some(2.0), Some(4.0)));
}

#[test]
fn a_flow_that_has_not_finished_counts_with_what_it_has_taken_so_far() {
    let mut recorder = recorder();
    recorder.flow(&FlowRecord { completed: true, sized: true, ..flow("done", 0.0, 1.0, 0) });
    recorder.flow(&FlowRecord { sized: true, ..flow("stalled", 2.0, 10.0, 0) });
    recorder.flow(&flow("endless", 0.0, 10.0, 1));
    let (result, _) = recorder.finish();
    assert_eq!((result.afct_s, result.fct_p99_s), (Some(1.0), Some(1.0)));
    assert_eq!(result.unfinished, Some(Unfinished { flows: 1, mean_s: 4.5, p50_s: 1.0, p99_s: 8.0 }));
}

#[test]
fn fairness_among_connections_without_a_size_leaves_the_others_out() {
    let mut recorder = recorder();
    recorder.flow(&flow("one", 0.0, 10.0, 1_000));
    recorder.flow(&flow("two", 0.0, 10.0, 1_000));
    recorder.flow(&FlowRecord { sized: true, ..flow("transfer", 0.0, 10.0, 0) });
    let (result, _) = recorder.finish();
    assert_eq!(result.fairness_endless, Some(1.0));
    assert!(result.fairness < Some(0.7));
}

#[test]
fn the_variation_of_a_load_is_its_deviation_over_its_mean() {
    let mut recorder = recorder();
    for (from, load) in [(0.0, 9.0), (2.0, 0.2), (4.0, 0.6), (6.0, 0.2), (8.0, 0.6)] {
        recorder.sample(&path_sample("p1", from, from + 2.0, load, 0));
    }
    let variation = recorder.finish().0.paths.get("p1").unwrap().variation.unwrap();
    assert!((variation - 0.5).abs() < 1e-9, "{variation}");
}

#[test]
fn completion_times_are_counted_by_size() {
    let mut recorder = recorder();
    for (name, bytes, end) in [("a", 10_000, 1.0), ("b", 5_000, 3.0), ("c", 10_001, 2.0), ("d", 50_000_000, 9.0)] {
        let flow = flow(name, 0.0, end, 0);
        recorder.flow(&FlowRecord { completed: true, bytes: Bytes::new(bytes), ..flow });
    }
    let (result, _) = recorder.finish();
    let found: Vec<_> = result.fct_by_size.iter().map(|one| (one.up_to_bytes, one.flows, one.afct_s)).collect();
    assert_eq!(found, [(Some(10_000), 2, 2.0), (Some(100_000), 1, 2.0), (None, 1, 9.0)]);
    assert_eq!((result.fct_p90_s, result.fct_p999_s), (Some(9.0), Some(9.0)));
}

#[test]
fn where_nothing_finished_there_is_no_completion_time() {
    let mut recorder = recorder();
    recorder.flow(&flow("a", 0.0, 10.0, 1_000));
    let (result, _) = recorder.finish();
    assert_eq!((result.afct_s, result.fct_p50_s, result.fct_p99_s), (None, None, None));
}

#[test]
fn a_starved_connection_counts_as_unfair_and_one_that_was_gone_does_not() {
    let mut recorder = recorder();
    recorder.flow(&flow("fed", 0.0, 10.0, 8_000_000));
    recorder.flow(&flow("starved", 0.0, 10.0, 0));
    recorder.flow(&flow("gone", 0.0, 1.5, 0));
    assert_eq!(recorder.finish().0.fairness, Some(0.5));
}

#[test]
fn the_slowest_is_the_connection_without_a_size_that_has_least_and_none_where_there_is_none() {
    let mut recorder = recorder();
    recorder.flow(&FlowRecord { sized: true, ..flow("transfer", 3.0, 4.0, 1) });
    assert_eq!(recorder.finish().0.goodput_mbps_min, None);
    let mut recorder = self::recorder();
    recorder.flow(&FlowRecord { sized: true, ..flow("transfer", 3.0, 4.0, 1) });
    recorder.flow(&flow("fast", 0.0, 10.0, 3_000_000));
    // 2.5 MB in 4 s of the 8 s after the warm-up are 5 Mbit/s; 2 MB in 8 s are 2 Mbit/s.
    recorder.flow(&flow("late", 6.0, 10.0, 2_500_000));
    recorder.flow(&flow("slow", 0.0, 10.0, 2_000_000));
    recorder.flow(&flow("gone", 0.0, 1.5, 0));
    assert_eq!(recorder.finish().0.goodput_mbps_min, Some(2.0));
    let mut starved = self::recorder();
    starved.flow(&flow("fed", 0.0, 10.0, 8_000_000));
    starved.flow(&flow("starved", 0.0, 10.0, 0));
    assert_eq!(starved.finish().0.goodput_mbps_min, Some(0.0));
}

#[test]
fn a_connection_that_came_late_is_judged_by_its_rate_not_by_its_bytes() {
    let mut recorder = recorder();
    recorder.flow(&flow("early", 0.0, 10.0, 8_000_000));
    recorder.flow(&flow("late", 6.0, 10.0, 4_000_000));
    assert_eq!(recorder.finish().0.fairness, Some(1.0));
}

#[test]
fn a_transfer_that_ends_just_after_the_warmup_is_as_fast_as_it_was() {
    let mut recorder = recorder();
    // All is acknowledged in the last millisecond.
    recorder.flow(&FlowRecord { sized: true, ..flow("across", 1.001, 2.001, 1_000_000) });
    recorder.flow(&FlowRecord { sized: true, ..flow("within", 6.0, 7.0, 1_000_000) });
    assert_eq!(recorder.finish().0.fairness, Some(1.0));
}

#[test]
fn transfers_whose_connections_had_the_same_port_count_each() {
    let mut recorder = recorder();
    for (start, end) in [(3.0, 4.0), (8.0, 9.0)] {
        recorder.flow(&FlowRecord { connection: "same".into(), sized: true, ..flow("f", start, end, 1_000) });
    }
    recorder.flow(&FlowRecord { sized: true, ..flow("other", 5.0, 6.0, 1_000) });
    let (result, _) = recorder.finish();
    assert_eq!((result.connections, result.fairness), (3, Some(1.0)));
}

#[test]
fn flows_of_one_connection_count_as_one() {
    let mut recorder = recorder();
    for (start, end) in [(0.0, 4.0), (4.0, 10.0)] {
        recorder.flow(&FlowRecord { connection: "same".into(), ..flow("f", start, end, 1_000) });
    }
    let (result, _) = recorder.finish();
    assert_eq!((result.connections, result.fairness), (1, Some(1.0)));
}

#[test]
fn utilisation_is_weighted_by_time_and_cut_at_the_warmup() {
    let mut recorder = recorder();
    recorder.sample(&path_sample("p1", 1.0, 3.0, 1.0, 5));
    recorder.sample(&path_sample("p1", 3.0, 10.0, 0.0, 9));
    let path = *recorder.finish().0.paths.get("p1").unwrap();
    assert_eq!(path.utilisation, Some(1.0 / 8.0));
    assert_eq!(path.utilisation_second_half, Some(0.0));
    assert_eq!((path.drops, path.capacity_mbps), (9, Some(100.0)));
}

#[test]
fn a_path_that_was_not_announced_is_reported_all_the_same() {
    let mut recorder = recorder();
    recorder.sample(&path_sample("surprise", 0.0, 10.0, 0.5, 0));
    let (result, _) = recorder.finish();
    assert_eq!(result.paths.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["p1", "surprise"]);
    assert_eq!(result.paths.get("p1").unwrap().utilisation, None);
    assert_eq!(result.paths.get("surprise").unwrap().capacity_mbps, None);
}

#[test]
fn the_trace_carries_as_much_as_the_samples_did() {
    let mut recorder = recorder();
    for tick in 1..=20u64 {
        recorder.sample(&SamplePoint {
            time: Time::from_nanos(tick * SECOND / 2),
            interval: Span::from_millis(500),
            kind: SampleKind::Connection,
            name: "c".into(),
            rate: Some(Rate::from_mbits(tick)),
            ..SamplePoint::default()
        });
    }
    recorder.moved(Time::from_nanos(5 * SECOND), "ecn");
    recorder.moved(Time::MAX, "rto");
    let (result, trace) = recorder.finish();
    let megabits: f64 = trace.goodput.iter().sum::<f64>() * 10.0 / BINS as f64;
    assert!((megabits - 105.0).abs() < 1e-6, "{megabits}");
    assert_eq!((trace.moves[BINS / 2], trace.moves[BINS - 1]), (1, 1));
    assert_eq!(result.total_moves(), 2);
}

fn connection_sample(name: &str, to: f64, mbits: u64) -> SamplePoint {
    SamplePoint {
        time: crate::testing::at(to),
        interval: WINDOW.sample,
        kind: SampleKind::Connection,
        name: name.into(),
        rate: Some(Rate::from_mbits(mbits)),
        ..SamplePoint::default()
    }
}

#[test]
fn what_flows_carried_between_samples_is_in_the_series_too() {
    let mut recorder = recorder();
    // 1 MB is seen in two samples, 0.5 MB only at the end, half of it in each of two intervals.
    recorder.sample(&connection_sample("seen", 0.5, 8));
    recorder.sample(&connection_sample("seen", 1.0, 8));
    let rest = recorder.flow(&flow("seen", 0.0, 2.0, 1_500_000));
    let shown: Vec<_> = rest.iter().map(|point| (point.time, point.rate)).collect();
    let each = Some(Rate::from_mbits(4));
    assert_eq!(shown, [(crate::testing::at(1.5), each), (crate::testing::at(2.0), each)]);
    // One that no sample saw, at the very end, and one of a connection that was charged already.
    let rest = recorder.flow(&flow("short", 9.99, 10.0, 20_000));
    assert_eq!((rest.len(), rest[0].time, rest[0].path.as_ref()), (1, crate::testing::at(10.0), None));
    let again = FlowRecord { series: Some("seen".into()), ..flow("second", 4.1, 4.2, 3_000) };
    assert_eq!(recorder.flow(&again)[0].rate, Some(Rate::from_bits_per_sec(48_000)));
    let subflows = FlowRecord { series: None, ..flow("of-subflows", 4.1, 4.2, 3_000) };
    assert_eq!(recorder.flow(&subflows), [], "they have series of their own");
    let (_, trace) = recorder.finish();
    let megabits: f64 = trace.goodput.iter().sum::<f64>() * 10.0 / BINS as f64;
    assert!((megabits - (1_500_000 + 20_000 + 3_000) as f64 * 8e-6).abs() < 1e-9, "{megabits}");
}

#[test]
fn what_rounding_took_from_samples_is_no_data() {
    let mut recorder = recorder();
    let third = Some(Rate::from_bits_per_sec(16_666));
    recorder.sample(&SamplePoint { rate: third, ..connection_sample("c", 3.0, 0) });
    assert_eq!(recorder.flow(&flow("c", 2.5, 3.0, 1_041)), [], "1041.6 bytes less what rounding took");
}

#[test]
fn a_flow_of_no_length_or_beyond_the_run_loses_nothing_and_only_what_came_within_it_is_drawn() {
    let inside = [(10.0, 10.0, 8.0), (0.0, 0.0, 8.0), (3.0, 3.0, 8.0), (2.5, 2.75, 8.0)];
    let beyond = [(9.0, 11.0, 4.0), (11.0, 12.0, 0.0), (11.0, 11.0, 0.0)];
    for (start, end, within) in inside.into_iter().chain(beyond) {
        let mut recorder = recorder();
        let rest = recorder.flow(&flow("c", start, end, 1_000_000));
        let megabits = |point: &SamplePoint| point.rate.unwrap().as_mbits() * point.interval.as_secs_f64();
        let all: f64 = rest.iter().map(megabits).sum();
        assert!((all - 8.0).abs() < 1e-6, "{start} to {end}: {all}");
        let drawn: f64 = recorder.finish().1.goodput.iter().sum::<f64>() * 10.0 / BINS as f64;
        assert!((drawn - within).abs() < 1e-6, "{start} to {end}: {drawn}");
    }
}

#[test]
fn a_run_without_time_or_records_has_measures_without_values() {
    let window = Window { duration: Span::ZERO, ..WINDOW };
    let mut recorder = Recorder::new("tcp", window, [("p1".into(), Rate::default())]);
    recorder.sample(&path_sample("p1", 0.0, 1.0, 0.5, 0));
    recorder.flow(&flow("a", 0.0, 1.0, 7));
    let (result, trace) = recorder.finish();
    assert_eq!((result.goodput_mbps, result.fairness), (0.0, None));
    assert!(trace.goodput.iter().all(|x| x.is_finite()));
}

#[test]
fn a_flow_with_timeouts_counts_once_however_they_were_seen() {
    let mut recorder = recorder();
    let outage = Outage { at: Time::ZERO, rto: Span::from_millis(200), until: None, timeouts: 3 };
    recorder.flow(&FlowRecord { timeouts: 3, ..flow("counted", 0.0, 1.0, 1_000) });
    recorder.flow(&FlowRecord { outages: vec![outage, outage], ..flow("watched", 0.0, 1.0, 1_000) });
    recorder.flow(&flow("fine", 0.0, 1.0, 1_000));
    let (result, _) = recorder.finish();
    assert_eq!((result.flows, result.flows_with_timeout), (3, 2));
    assert_eq!(result.timeout_share(), Some(2.0 / 3.0));
}

#[test]
fn what_hosts_counted_is_summed_and_zeros_are_left_out() {
    let mut recorder = recorder();
    let counted = |probes: u64| [("TCPLossProbes".to_owned(), probes), ("TCPTimeouts".to_owned(), 0)];
    recorder.tcp(counted(2));
    recorder.tcp(counted(3));
    let quantiles = vec![Span::from_micros(10), Span::from_micros(20)];
    let wires = WireTimes { threads: 2, ..WireTimes::default() };
    let (max, share, lost) = (Span::from_millis(4), 0.25, 7);
    recorder.late(Late { max, share, quantiles: quantiles.clone(), wires: wires.clone(), lost });
    let micros = Span::from_micros;
    (0..1_001).rev().for_each(|due| recorder.late_start(micros(due), micros(due % 7)));
    recorder.late_wakeups((0..10_001).rev().map(|at| (micros(at), micros(at % 3))));
    let (result, _) = recorder.finish();
    assert_eq!(result.late.late_wakeups.len(), 5_001);
    assert_eq!(result.late.late_wakeups[4_999..], [(micros(9_998), micros(2)), (micros(10_000), micros(1))]);
    assert_eq!(result.late.late_starts, (0..1_000).map(|due| micros(due % 7)).collect::<Vec<_>>());
    assert_eq!(result.tcp, [("TCPLossProbes".to_owned(), 5)].into());
    assert_eq!((result.late_ms_max, result.late_share, result.lost_outside), (Some(4.0), Some(0.25), 7));
    assert_eq!((result.lateness, result.late.wires), (quantiles, Some(wires)));
}

/// What a run of 300 s has left when 10 s of it are over.
fn ten_seconds(window: Window) -> Recorder {
    let mut recorder = Recorder::new("tcp", window, [("p1".into(), Rate::from_mbits(100))]);
    for tick in 0..20u32 {
        let from = f64::from(tick) / 2.0;
        recorder.sample(&path_sample("p1", from, from + 0.5, f64::from(tick * 7 % 10) / 10.0, u64::from(tick)));
        recorder.sample(&connection_sample("a", from + 0.5, 6));
    }
    recorder
}

fn its_flows(recorder: &mut Recorder) -> Vec<SamplePoint> {
    let mut rest = recorder.flow(&FlowRecord { bytes: Bytes::new(9_000_000), ..flow("a", 0.0, 10.0, 5_000_000) });
    rest.extend(recorder.flow(&flow("b", 6.0, 10.0, 3_000_000)));
    rest.extend(recorder.flow(&FlowRecord { sized: true, ..flow("stalled", 1.0, 10.0, 1_000) }));
    rest
}

#[test]
fn a_run_that_was_cut_short_has_the_measures_of_one_that_was_to_be_as_long() {
    let mut whole = ten_seconds(WINDOW);
    let mut cut = ten_seconds(Window { duration: Span::from_secs(300), ..WINDOW });
    cut.cut(at(10.0));
    assert_eq!(its_flows(&mut whole), its_flows(&mut cut), "the same samples, none of them after the end");
    let (whole, (mut cut, trace)) = (whole.finish().0, cut.finish());
    assert_eq!(cut.incomplete, ["interrupted after 10 s of 300 s; all measures are of that time"]);
    assert_eq!((cut.planned_s, cut.is_cut(), whole.is_cut()), (Some(300.0), true, false));
    let half = |result: &SystemResult| result.paths.get("p1").unwrap().utilisation_second_half.unwrap();
    assert!((half(&whole) - half(&cut)).abs() < 1e-6, "{} {}", half(&whole), half(&cut));
    cut.paths.get_mut("p1").unwrap().utilisation_second_half = Some(half(&whole));
    assert_eq!(SystemResult { planned_s: None, incomplete: Vec::new(), ..cut }, whole);
    // Steps of 2 s.
    assert_eq!((trace.window.duration, trace.goodput.len()), (Span::from_secs(10), 5));
    let megabits: f64 = trace.goodput.iter().sum::<f64>() * 2.0;
    assert!(trace.paths.values().all(|shares| shares.len() == 5) && trace.moves.len() == 5);
    assert!((megabits - (9_000_000.0 + 3_000_000.0 + 1_000.0) * 8e-6).abs() < 0.1, "{megabits}");
}

#[test]
fn the_last_step_of_the_trace_of_a_run_that_was_cut_short_is_as_fast_as_it_was() {
    let mut recorder = Recorder::new("tcp", Window { duration: Span::from_secs(600), ..WINDOW }, []);
    recorder.sample(&SamplePoint { interval: Span::from_secs(5), ..connection_sample("a", 5.0, 10) });
    recorder.cut(at(5.0));
    // Steps of 4 s.
    assert_eq!(recorder.finish().1.goodput, [10.0, 10.0]);
}

#[test]
fn a_run_that_was_cut_short_within_the_warmup_has_measured_nothing() {
    for end in [1.5, 2.0] {
        let mut recorder = Recorder::new("tcp", WINDOW, [("p1".into(), Rate::from_mbits(100))]);
        recorder.sample(&path_sample("p1", 0.0, end, 0.5, 0));
        recorder.cut(at(end));
        recorder.flow(&FlowRecord { bytes: Bytes::new(9_000), ..flow("a", 0.0, end, 0) });
        let (result, _) = recorder.finish();
        assert!(result.goodput_mbps.is_nan(), "{}", result.goodput_mbps);
        let path = result.paths.get("p1").unwrap();
        assert_eq!((result.fairness, path.utilisation, path.utilisation_second_half), (None, None, None));
        assert!(result.incomplete[0].ends_with("within the warm-up, so that nothing was measured"), "{result:?}");
        let json = serde_json::to_string(&result).unwrap();
        assert!(json.starts_with("{\"goodput_mbps\":null,"), "{json}");
        assert!(serde_json::from_str::<SystemResult>(&json).unwrap().goodput_mbps.is_nan());
    }
}

#[test]
fn the_second_half_of_a_long_run_that_was_cut_short_is_nearly_that_of_its_samples() {
    let window = Window { duration: Span::from_secs(1_000_000), ..WINDOW };
    let mut recorder = Recorder::new("tcp", window, [("p1".into(), Rate::from_mbits(100))]);
    let share = |second: u32| f64::from(second) / 10_000.0;
    (0..7_777).for_each(|second| {
        let from = f64::from(second);
        recorder.sample(&path_sample("p1", from, from + 1.0, share(second), 0));
    });
    recorder.cut(at(7_777.0));
    let found = recorder.finish().0.paths.get("p1").unwrap().utilisation_second_half.unwrap();
    let wanted = (7_777.0 * 0.75) / 10_000.0;
    assert!((found / wanted - 1.0).abs() < 1e-3, "{found} {wanted}");
}

#[test]
fn of_several_caches_the_fullest_is_traced() {
    let mut recorder = recorder();
    for (name, share) in [("a", 0.25), ("b", 0.75), ("c", 0.5)] {
        let held = SamplePoint { kind: SampleKind::Cache, ..path_sample(name, 2.0, 3.0, share, 0) };
        recorder.sample(&held);
    }
    let (_, trace) = recorder.finish();
    let seen: Vec<f64> = trace.caches.iter().flatten().copied().collect();
    assert!(!seen.is_empty() && seen.iter().all(|share| *share == 0.75), "{seen:?}");
}
