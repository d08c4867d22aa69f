//! Where connections begin, by what others measured.

use rand_core::Rng;
use sidestep_net::{Bytes, Rate, Span};
use sidestep_policy::{Connection, Path, PolicySettings, Round};

use crate::host::{Host, settings};

#[test]
fn nothing_known_means_shares_by_capacity_and_known_round_trips() {
    let mut host = Host::new(&[10, 10, 10]);
    host.paths[0].weight *= 2;
    assert_eq!(host.drawn().iter().map(|n| (n + 25) / 50).collect::<Vec<_>>(), [10, 5, 5]);
    // A short transfer takes 1.28 ms at 100 Mbit/s. The fourth powers of the ratios of 11.28, 15.28 and 101.28 ms, as empty
    // paths are: 1, 0.297, 0.0002.
    let mut host = Host::new(&[10, 14, 100]);
    let drawn = host.drawn();
    assert!((760..782).contains(&drawn[0]) && (218..240).contains(&drawn[1]) && drawn[2] < 3, "{drawn:?}");
}

#[test]
fn a_slower_path_is_used_as_far_as_the_best_one_is_congested() {
    let mut host = Host::new(&[10, 40]);
    host.transfers(200, &[12, 42]);
    let empty = host.drawn()[1];
    host.transfers(200, &[45, 42]);
    let congested = host.drawn()[1];
    assert!(empty < 15 && (350..650).contains(&congested), "{empty} and {congested} of 1000");
}

#[test]
fn a_connection_that_has_sent_much_does_not_mind_a_longer_path() {
    let longer = |delivered: u32| {
        let mut host = Host::new(&[10, 10, 40]);
        let mut count = 0;
        for _ in 0..300 {
            host.wait(60_000);
            let mut connection = host.open_on(0);
            let random = host.random.next_u32();
            connection.handle_timeout(host.round(10, delivered), false, random);
            count += usize::from(connection.path() == 2);
        }
        count
    };
    let [short, long] = [longer(100), longer(20_000)];
    assert!(short < 15 && (120..180).contains(&long), "{short} and {long} of 300 moved to it");
}

#[test]
fn what_is_shown_of_paths_is_what_draws_go_by() {
    let mut host = Host::new(&[10, 14, 20]);
    for rtts in [None, Some([11, 30, 21])] {
        host.transfers(if rtts.is_some() { 200 } else { 0 }, &rtts.unwrap_or_default());
        let factors: Vec<_> = host.learnt().iter().map(|path| path.factor).collect();
        let sum: f64 = factors.iter().sum();
        for (drawn, factor) in host.drawn().into_iter().zip(&factors) {
            let expected = factor / sum * 1_000.0;
            assert!((drawn as f64 - expected).abs() < 15.0, "{drawn} of 1000 instead of {expected}: {factors:?}");
        }
    }
}

#[test]
fn draws_are_more_even_than_chance_makes_them() {
    let mut host = Host::new(&[10; 4]);
    // Of 40 draws chance would give a path 10, with a standard deviation of 2.7.
    for _ in 0..50 {
        let mut counts = [0_i32; 4];
        (0..40).for_each(|_| counts[host.open().path()] += 1);
        assert!(counts.iter().all(|count| (count - 10).abs() <= 2), "{counts:?}");
    }
}

#[test]
fn weights_of_first_draws_may_be_a_millisecond_old_but_a_path_that_dies_is_left_out_at_once() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(40, &[10, 10]);
    host.wait(500);
    let mut slow = host.open_on(1);
    let before = host.drawn();
    for delivered in (10..200).step_by(10) {
        // It meets a queue, and the draw keeps it where it is.
        slow.handle_round(host.round(300, delivered), u32::MAX);
    }
    // Draws are spread so evenly that a thousand of them differ by chance in a few.
    let unmoved = host.drawn()[1].abs_diff(before[1]) < 10;
    assert!(unmoved, "to compute weights takes longer than to draw, so they are not computed for each");
    host.wait(2);
    assert!(host.drawn()[1] * 4 < before[1], "{:?} after {before:?}", host.drawn());

    let mut host = Host::new(&[10, 10]);
    host.transfers(40, &[10, 10]);
    let mut failing = host.open_on(0);
    host.wait(500);
    assert!(host.drawn()[0] > 300, "weights are known for this millisecond");
    assert!(failing.handle_timeout(host.round(10, 5), false, 0).moved);
    assert_eq!(host.drawn()[0], 0);
}

#[test]
fn what_some_measure_others_go_by_and_it_is_forgotten() {
    let mut host = Host::new(&[10, 10]);
    let slow = [10, 90];
    let taken: Vec<_> = (0..400).map(|_| host.transfer(&slow)).collect();
    let late = taken[200..].iter().filter(|path| **path == 1).count();
    assert!(late < 30, "{late} of the last 200 took the path whose round trips are nine times as long");
    // The queue is gone, or the path is as long as that: that is unknown until it is tried again.
    host.wait(60_000);
    let [first, second] = host.drawn()[..] else { unreachable!() };
    assert!(first > second, "the lowest round trip of a path is remembered: {first}, {second}");

    let mut host = Host::new(&[10, 10]);
    host.transfers(20, &[10, 10]);
    host.transfers(200, &slow);
    let share = |host: &mut Host| host.drawn()[1];
    let soon = share(&mut host);
    host.wait(30_000);
    let later = share(&mut host);
    assert!(soon < 100 && later > 430, "a queue is forgotten: {soon} and then {later} of 1000");
}

#[test]
fn losses_count_like_delay() {
    let mut host = Host::new(&[10, 10]);
    for _ in 0..300 {
        let mut connection = host.open();
        let lossy = connection.path() == 1;
        for delivered in [0, 10, 20] {
            host.wait(1);
            let round = host.round(10, delivered);
            if lossy && delivered == 10 {
                connection.handle_retransmit(round, 1, 0);
            }
            connection.handle_round(round, 0);
        }
    }
    let drawn = host.drawn();
    assert!(drawn[1] < 320, "{drawn:?}");
}

#[test]
fn a_path_that_is_slower_than_believed_is_known_for_longer_than_a_queue() {
    let slow = |rtts: [u64; 3]| {
        let mut host = Host::new(&[10, 10]);
        for _ in 0..20 {
            let mut connection = host.open_on(1);
            // Rounds of ten segments wait behind themselves, the handshake does not.
            for (rtt, delivered) in rtts.into_iter().zip([0, 10, 20]) {
                host.wait(50);
                connection.handle_round(host.round(rtt, delivered), 0);
            }
        }
        host.wait(15_000);
        host
    };
    let queue = slow([10, 10, 70]).drawn()[1];
    let mut host = slow([10, 70, 70]);
    let own = host.drawn()[1];
    assert!(queue > 430 && own < 10, "{queue} and {own} of 1000");
    host.wait(200_000);
    assert!(host.drawn()[1] > 430, "in the end that is forgotten, too");
    // A round without the wait shows at once that the path is fast.
    let mut host = slow([10, 70, 70]);
    let mut connection = host.open_on(1);
    for delivered in [1, 11, 21] {
        host.wait(50);
        connection.handle_round(host.round(10, delivered), 0);
    }
    host.wait(10_000);
    assert!(host.drawn()[1] > 430);
}

#[test]
fn handshakes_do_not_hide_that_transfers_are_slow() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(20, &[10, 10]);
    for _ in 0..50 {
        let mut connection = host.open_on(1);
        for (rtt, delivered) in [(10, 1), (90, 2), (90, 4)] {
            host.wait(10);
            connection.handle_round(host.round(rtt, delivered), 0);
        }
    }
    let known = host.drawn()[1];
    for _ in 0..200 {
        host.wait(1);
        let mut connection = host.open_on(1);
        connection.handle_round(host.round(10, 1), 0);
    }
    host.wait(2);
    let after = host.drawn()[1];
    assert!(known < 30 && after < 40, "{known}, and {after} of 1000 after 200 handshakes");
}

#[test]
fn a_connection_that_has_a_wide_path_for_itself_is_not_moved_to_a_narrow_one() {
    let moved = |cwnd: u64| {
        let mut host = Host::new(&[10, 10]);
        host.paths[1] = Path { weight: 1_000_000, ..Path::new(1, Rate::from_mbits(10), Span::from_millis(10)) };
        let settings = PolicySettings { retransmit_burst: 1, gain_guard: false, ..settings() };
        let mut connection = loop {
            let draw = host.random.next_u32();
            let shared = Some(host.shared.clone());
            let connection = Connection::open_among(&settings, &host.paths, shared, host.now, draw).unwrap();
            if connection.path() == 0 {
                break connection;
            }
        };
        host.wait(60_000);
        connection.handle_round(host.round(10, 1), 0);
        let round = Round { cwnd: Bytes::new(cwnd), ..host.round(10, 10) };
        let decision = connection.handle_retransmit(round, 1, u32::MAX);
        assert!(decision.decided);
        decision.moved
    };
    // Windows of 8 and 40 Mbit/s.
    assert!(moved(10_000) && !moved(50_000));
}

#[test]
fn rare_samples_of_a_queue_show_as_much_as_frequent_ones() {
    let added = |pause_ms: u64| {
        let mut host = Host::new(&[10]);
        host.paths.push(Path::new(1, Rate::from_mbits(100), Span::from_millis(10)));
        let mut connection = host.open();
        connection.handle_round(host.round(10, 1), 0);
        for round in 2..2 + 8_000 / pause_ms as u32 {
            host.wait(pause_ms);
            connection.handle_round(host.round(110, round), 0);
        }
        host.learnt()[connection.path()].delay.unwrap().as_secs_f64() * 1e3
    };
    for pause in [10, 100, 500, 1_000] {
        let delay = added(pause);
        assert!((90.0..125.0).contains(&delay), "{pause} ms between samples: {delay} ms instead of 110");
    }
}

#[test]
fn connections_that_end_early_show_the_same_of_a_path_as_long_ones() {
    let added = |rounds: u64| {
        let mut host = Host::new(&[10, 10]);
        // The lowest round trip is known, and a queue of 50 ms stands from then on.
        host.transfers(20, &[10, 10]);
        let until = host.now + Span::from_secs(8);
        while host.now < until {
            let mut connection = host.open_on(0);
            for round in 0..=rounds {
                host.wait(60);
                connection.handle_round(host.round(60, 1 + 10 * round as u32), 0);
            }
        }
        host.learnt()[0].delay.unwrap().as_secs_f64() * 1e3
    };
    let delays = [1, 3, 20, 100].map(added);
    // Long rounds of several segments count for the path's own rate as well, which is what the longest add.
    assert!(delays.iter().all(|delay| (60.0..75.0).contains(delay)), "{delays:?} ms instead of 61");
}
