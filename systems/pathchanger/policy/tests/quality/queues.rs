//! Queues that only this path has.

use sidestep_policy::Reason;

use crate::host::Host;

#[test]
fn a_queue_that_only_this_path_has_is_a_signal_after_some_rounds() {
    let queue = |srtt: u64| {
        let mut host = Host::new(&[10, 10]);
        host.transfers(30, &[10, 10]);
        let mut connection = host.open_on(0);
        connection.handle_round(host.round(10, 0), 0);
        let mut signals = 0;
        for round in 1..40 {
            host.wait(20);
            let decision = connection.handle_round(host.round(srtt, round * 10), u32::MAX);
            signals += u32::from(decision.reason == Some(Reason::StandingQueue));
            if decision.moved {
                break;
            }
        }
        signals
    };
    assert_eq!(queue(12), 0, "an idle path");
    assert_eq!(queue(30), 1, "a standing queue");
}

#[test]
fn a_short_connection_leaves_a_long_queue_at_once_and_others_wait_for_eight_rounds() {
    // Queues of 22 and 11 ms; 6.7 ms make a signal.
    for (srtt, began, rounds) in [(32, 0, 1), (21, 0, 4), (32, 1_000, 8)] {
        let mut host = Host::new(&[10, 10]);
        host.transfers(30, &[10, 10]);
        let mut connection = host.open_on(0);
        connection.handle_round(host.round(10, began), 0);
        let signal = (1..20).find(|round| {
            host.wait(20);
            let decision = connection.handle_round(host.round(srtt, began + round * 10), u32::MAX);
            decision.reason == Some(Reason::StandingQueue)
        });
        assert_eq!(signal, Some(rounds), "{srtt} ms, {began} segments delivered before");
    }
}

#[test]
fn a_queue_that_stands_for_longer_than_a_minute_is_taken_for_the_path() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(30, &[10, 10]);
    let mut connection = host.open_on(0);
    let (mut delivered, mut last) = (10_000, 0);
    connection.handle_round(host.round(10, delivered), 0);
    for second in 0..180 {
        for _ in 0..20 {
            host.wait(50);
            delivered += 10;
            // It stays where it is: only the other path's queue is short, but the draw keeps it.
            let decision = connection.handle_round(host.round(50, delivered), 0);
            assert!(!decision.moved);
            if decision.reason == Some(Reason::StandingQueue) {
                last = second;
            }
        }
    }
    assert!((70..90).contains(&last), "heard for {last} s");
}
