//! Paths on which nothing arrives.

use sidestep_net::{Span, Time};
use sidestep_policy::{Connection, PolicyName, PolicySettings, Reason, Round};

use crate::host::{Host, settings};

#[test]
fn a_path_on_which_nothing_arrives_is_left_alone_but_for_one_try_at_a_time() {
    let mut host = Host::new(&[10, 10, 10]);
    let all = [10; 3];
    host.transfers(30, &all);
    host.wait(200);
    host.fail_on(1);
    assert_eq!(host.drawn()[1], 0, "dead");
    assert!(host.dead(1));
    host.wait(300);
    let mut first = host.begun_on(1);
    assert_eq!(first.len(), 1, "one tries it after a quarter of a second");
    host.wait(1_000);
    assert!(first[0].handle_timeout(host.round(0, 0), true, 0).moved);
    host.wait(4_000);
    assert_eq!(host.drawn()[1], 0, "as that failed, no other does for four seconds");
    host.wait(300);
    assert_eq!(host.begun_on(1).len(), 1);
    host.wait(4_300);
    assert_eq!(host.drawn()[1], 0, "and none for eight more");
    host.wait(4_300);
    assert_eq!(host.begun_on(1).len(), 1);
    // The next one that tries it delivers.
    host.wait(17_200);
    while host.transfer(&all) != 1 {}
    assert!(!host.dead(1), "alive again");
    // It takes more than one delivery until it is trusted as before.
    for _ in 0..20 {
        host.wait(1_000);
        host.transfers(6, &all);
    }
    let drawn = host.drawn();
    assert!(drawn.iter().all(|count| (270..400).contains(count)), "{drawn:?}");
}

#[test]
fn a_lost_segment_of_a_host_with_few_connections_keeps_others_away_for_a_moment_only() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(30, &[10, 10]);
    // Nothing else is delivered meanwhile, so it looks as if the path had failed.
    let mut unlucky = [host.open_on(0), host.open_on(0)];
    for connection in &mut unlucky {
        host.wait(250);
        assert!(connection.handle_timeout(host.round(10, 5), false, 0).moved);
        assert_eq!(host.drawn()[0], 0);
    }
    // The second timeout is of the same losses, and does not prolong it.
    host.wait(50);
    let mut trying = host.begun_on(0);
    assert_eq!(trying.len(), 1);
    host.wait(10);
    trying[0].handle_round(host.round(10, 0), 0);
    assert!(!host.dead(0), "its SYN was answered");
}

#[test]
fn a_connection_that_is_accepted_tries_nothing() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(30, &[10, 10]);
    host.wait(500);
    host.fail_on(0);
    host.wait(300);
    // It may do nothing but receive, so it would not be learnt that the path works again.
    assert!(host.drawn()[0] > 5, "the wait is over for all of them");
    assert_eq!(host.begun_on(0).len(), 1, "for those that send a SYN, one begins it again");
}

#[test]
fn no_answer_is_late_where_no_syn_has_left() {
    let mut host = Host::new(&[10, 10]);
    host.now = Time::from_nanos(1);
    host.transfers(30, &[10, 10]);
    // Time is counted from the start of the machine, and 500 ms are within the time that a SYN is awaited for.
    host.wait(500);
    assert!(host.drawn().iter().all(|count| *count > 300));
}

#[test]
fn a_syn_that_is_not_answered_in_time_keeps_others_away_before_its_timeout() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(30, &[10, 10]);
    host.wait(500);
    let ask = |host: &mut Host| {
        let connection = host.open_on(0);
        connection.connect();
        connection
    };
    let mut asking = ask(&mut host);
    host.wait(80);
    assert!(host.drawn()[0] > 300, "an answer may still come");
    host.wait(30);
    assert_eq!(host.drawn()[0], 0, "it is late");
    asking.handle_round(host.round(130, 0), 0);
    host.wait(2);
    assert!(host.drawn()[0] > 0, "it came, and was slow");
    // One that is refused is never answered by what is measured.
    drop(ask(&mut host));
    host.wait(1_000);
    assert_eq!(host.drawn()[0], 0);
    host.wait(600);
    assert!(host.drawn()[0] > 0);
}

#[test]
fn a_syn_is_sent_again_as_soon_as_its_answer_is_late_by_what_others_measured() {
    let mut host = Host::new(&[10, 10]);
    let asking = host.open_on(0);
    assert_eq!(asking.syn_timeout(host.now), None, "no round trip was measured: TCP waits for its second");
    host.transfers(30, &[10, 10]);
    let timeout = asking.syn_timeout(host.now).unwrap();
    let milliseconds = timeout.rto.as_nanos() / 1_000_000;
    assert!((87..90).contains(&milliseconds), "67 ms and two round trips, not {milliseconds} ms");
    // 127 times a second is what Linux waits for with six retries. 87 ms, with four more, are 178 s.
    assert_eq!(timeout.more_retries, 4);
    // A queue prolongs it, until TCP's own is no longer.
    host.transfers(60, &[400, 400]);
    let queued = asking.syn_timeout(host.now).unwrap();
    assert!(queued.rto > timeout.rto && queued.more_retries < 4, "{queued:?}");
    host.transfers(300, &[900, 900]);
    assert_eq!(asking.syn_timeout(host.now), None);
    // Dice measure nothing.
    let random = PolicySettings { policy: PolicyName::Random, ..settings() };
    let drawn = Connection::open_among(&random, &host.paths, Some(host.shared.clone()), host.now, 0).unwrap();
    assert_eq!(drawn.syn_timeout(host.now), None);
}

#[test]
fn a_timeout_on_a_path_that_works_for_others_does_not_make_it_dead() {
    let mut host = Host::new(&[10, 10]);
    let mut unlucky = host.open_on(0);
    host.transfers(30, &[10, 10]);
    let decision = unlucky.handle_timeout(host.round(10, 5), false, 0);
    assert!(decision.decided && !decision.moved, "it may stay, as the path works");
    // It counts as a long round trip, and not as the end of the path.
    host.wait(2);
    assert!(host.drawn()[0] > 200);
    host.wait(400);
    host.transfers(30, &[10, 10]);
    assert!(
        unlucky.handle_timeout(host.round(10, 5), false, 0).moved,
        "nothing arrived since: the path is not its own"
    );
}

#[test]
fn a_syn_whose_answer_was_lost_stays_on_a_path_that_works_for_others() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(30, &[10, 10]);
    host.fail_on(1);
    // The other path works. The answer to a SYN on it comes back by a path that the other end draws.
    let mut unlucky = host.open_on(0);
    unlucky.connect();
    let mut other = host.open_on(0);
    host.wait(60);
    other.handle_round(host.round(10, 10), 0);
    host.wait(30);
    let decision = unlucky.handle_timeout(host.round(0, 0), true, 0);
    assert!(decision.decided && !decision.moved, "it would have moved to the dead path");
    assert!(!host.dead(0) && host.drawn()[0] > 0);
    // A second SYN is lost: the path may work for others only.
    host.wait(2_000);
    assert!(unlucky.handle_timeout(host.round(0, 0), true, 0).moved);
}

#[test]
fn a_first_timeout_may_stay_where_all_other_paths_are_dead() {
    let mut host = Host::new(&[10, 10]);
    host.transfers(30, &[10, 10]);
    let mut sending = host.open_on(0);
    sending.handle_round(host.round(10, 5), 0);
    host.fail_on(1);
    assert!(host.dead(1));
    // No connection has delivered on its own path since, so that may have failed as well; but only the other one is known to.
    let decision = sending.handle_timeout(host.round(10, 5), false, 0);
    assert!(decision.decided && !decision.moved);
    host.wait(400);
    assert!(sending.handle_timeout(host.round(10, 5), false, 0).moved, "the second timeout in a row");
}

#[test]
fn syn_acks_return_to_a_path_after_other_packets_where_acknowledgements_were_lost() {
    let mut host = Host::new(&[10, 10]);
    let mut receiving = host.open_on(0);
    host.wait(1_000);
    assert!(receiving.handle_duplicate(host.round(10, 0), Span::from_millis(500), 0).moved);
    let states = [1_000, 4_000, 13_000].map(|wait| {
        host.wait(wait);
        (host.dead(0), host.learnt()[0].unanswered)
    });
    assert_eq!(states, [(true, true), (false, true), (false, false)]);
}

#[test]
fn if_all_paths_are_dead_all_are_tried_and_none_waits_longer_for_that() {
    let mut host = Host::new(&[10, 10]);
    for mut connection in [host.open_on(0), host.open_on(1)] {
        host.wait(100);
        assert!(connection.handle_timeout(host.round(0, 0), true, 0).moved);
    }
    assert!(host.drawn().iter().all(|count| *count > 300));
    // One of them delivers. The other is tried after the same quarter of a second as ever.
    host.open_on(0).handle_round(host.round(10, 0), 0);
    host.wait(300);
    assert_eq!(host.begun_on(1).len(), 1);
}

#[test]
fn acknowledgements_that_do_not_arrive_keep_others_away_for_some_time_only() {
    let mut host = Host::new(&[10, 10]);
    let mut receiver = host.open_on(0);
    host.wait(500);
    let round = Round { received: 1, ..host.round(10, 0) };
    assert_eq!(receiver.handle_duplicate(round, Span::from_millis(300), 0).reason, Some(Reason::AckLoss));
    assert_eq!(host.drawn()[0], 0);
    // Who only receives never learns whether a try worked, so all may try.
    host.wait(20_000);
    assert!(host.drawn()[0] > 300);
}
