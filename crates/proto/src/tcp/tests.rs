//! What a connection sends after losses: each test has a script of losses, and checks the segments sent.

mod laws;
mod linux;
mod received;
mod recorded;
mod script;
mod vectors;

use proptest::prelude::*;
use sidestep_net::{Span, Time};

use self::script::{Script, sent};
use super::{Algorithm, Config, Receiver, Sender, Transmit, rfc::Window};
use crate::packet::{Flags, Packet};

/// Reno with SACK, an ACK for each segment, so that scripts stay short.
fn config() -> Config {
    Config { ack_every: 1, ..Config::rfc() }
}

fn without_sack() -> Config {
    Config { sack: false, ..config() }
}

#[test]
fn a_connection_opens_sends_and_closes() {
    let run = Script::new(config(), 3).run();
    // The one-way delay is 10 ms: SYN at 0, data after a round trip.
    assert_eq!(run.sent, sent(&[(0, "syn"), (20, "0"), (20, "1"), (20, "2")]));
    assert_eq!(run.finished_ms, Some(40));
}

#[test]
fn the_window_doubles_each_round_trip_in_slow_start() {
    let run = Script::new(Config { initial_window: 2, ..config() }, 14).run();
    let at = |ms| run.sent.iter().filter(|one| one.ms == ms).count();
    assert_eq!([at(20), at(40), at(60)], [2, 4, 8]);
}

#[test]
fn the_window_grows_by_segments_or_as_ns_2_counts_by_acks() {
    let grown = |count_acks: bool, ssthresh: f64| {
        let config = Config { count_acks, ..Config::rfc() };
        let mut window = Window::new(&config);
        window.ssthresh = ssthresh;
        window.grow(&config, Time::ZERO, 2, 0);
        window.cwnd
    };
    // An ACK for two segments, in congestion avoidance and in slow start.
    assert_eq!([grown(false, 5.0), grown(true, 5.0)], [10.2, 10.1]);
    assert_eq!([grown(false, 50.0), grown(true, 50.0)], [12.0, 11.0]);
}

#[test]
fn a_lost_syn_is_sent_again_after_a_second_and_then_after_two_more() {
    let run = Script::new(config(), 1).lose_syns(2).run();
    assert_eq!(run.sent, sent(&[(0, "syn"), (1_000, "syn"), (3_000, "syn"), (3_020, "0")]));
    assert_eq!(run.timeouts, 2);
}

#[test]
fn a_connection_whose_syns_are_all_lost_is_given_up() {
    let run = Script::new(Config { syn_retries: 2, ..config() }, 1).lose_syns(9).run();
    assert_eq!(run.sent, sent(&[(0, "syn"), (1_000, "syn"), (3_000, "syn")]));
    assert_eq!(run.finished_ms, Some(7_000));
}

#[test]
fn a_syn_with_a_timeout_of_its_own_is_sent_again_sooner_and_more_often() {
    let timeout = Span::from_millis(90);
    let run = Script::new(config(), 1).lose_syns(1).syn_timeout(timeout, 0).run();
    assert_eq!(run.sent, sent(&[(0, "syn"), (90, "syn"), (110, "0")]));
    let run = Script::new(Config { syn_retries: 1, ..config() }, 1).lose_syns(9).syn_timeout(timeout, 1).run();
    assert_eq!(run.sent, sent(&[(0, "syn"), (90, "syn"), (270, "syn")]));
    assert_eq!(run.finished_ms, Some(630));
}

#[test]
fn a_timeout_shows_what_it_is_for() {
    // The SYN is lost, and later the last segment, of which only the timer can know.
    let run = Script::new(config(), 4).lose_syns(1).lose(3, 1).run();
    assert_eq!(run.fired, ["syn", "retransmission"]);
    // The third segment is not the last, and waits for a fourth one.
    let mut script = Script::new(Config::rfc(), 0).endless();
    script.sender.supply(3);
    assert_eq!(script.run_until(100).fired, ["delayed_ack"]);
}

#[test]
fn with_sack_one_loss_is_repaired_at_the_third_sack_above_it() {
    let run = Script::new(config(), 20).lose(3, 1).run();
    assert_eq!(run.again(), [(3, 40)]);
    assert_eq!((run.timeouts, run.recoveries), (0, 1));
}

#[test]
fn with_sack_two_losses_of_a_window_take_one_recovery() {
    let run = Script::new(config(), 20).lose(2, 1).lose(5, 1).run();
    assert_eq!(run.again().iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [2, 5]);
    assert_eq!((run.timeouts, run.recoveries), (0, 1));
}

#[test]
fn without_sack_each_partial_ack_repairs_one_loss_a_round_trip() {
    let run = Script::new(without_sack(), 20).lose(2, 1).lose(5, 1).run();
    assert_eq!(run.again(), [(2, 40), (5, 60)]);
    assert_eq!((run.timeouts, run.recoveries), (0, 1));
}

#[test]
fn the_first_two_duplicates_let_out_a_new_segment_each() {
    // Segment 0 is lost: the ACKs of 1 and 2 are the duplicates that let 10 and 11 out, that of 3 repairs.
    let run = Script::new(config(), 20).lose(0, 1).run();
    let at_40: Vec<&str> = run.sent.iter().filter(|one| one.ms == 40).map(|one| one.what.as_str()).take(3).collect();
    assert_eq!(at_40, ["10", "11", "0 again"]);
    let run = Script::new(Config { limited_transmit: false, ..config() }, 20).lose(0, 1).run();
    let first = run.sent.iter().find(|one| one.ms == 40).map(|one| one.what.as_str());
    assert_eq!(first, Some("0 again"));
}

#[test]
fn a_lost_last_segment_is_repaired_by_the_timer() {
    let run = Script::new(config(), 5).lose(4, 1).run();
    // The timer runs from the last ACK of new data: at 40 ms, for the round trip of 20 ms and 200 ms more.
    assert_eq!(run.again(), [(4, 260)]);
    assert_eq!(run.timeouts, 1);
}

#[test]
fn the_timer_backs_off_and_comes_back_with_the_first_ack() {
    let run = Script::new(config(), 6).lose(5, 1).lose(5, 2).lose(5, 3).run();
    assert_eq!(run.again(), [(5, 260), (5, 260 + 440), (5, 260 + 440 + 880)]);
    let run = Script::new(config(), 1).lose(0, 1).lose(0, 2).run();
    assert_eq!(run.again().len(), 2);
}

#[test]
fn after_a_timeout_the_window_is_one_segment_and_slow_start_follows() {
    let lost: Vec<u32> = (0..10).collect();
    let run = lost.iter().fold(Script::new(config(), 12), |script, seq| script.lose(*seq, 1)).run();
    assert_eq!(run.timeouts, 1);
    let resent = run.again();
    let per_round = |ms| resent.iter().filter(|(_, at)| *at == ms).count();
    assert_eq!([per_round(240), per_round(260), per_round(280)], [1, 2, 4]);
}

#[test]
fn a_retransmission_that_is_lost_is_found_by_what_was_sent_after_it() {
    let run = Script::new(config(), 60).lose(3, 1).lose(3, 2).run();
    assert_eq!(run.timeouts, 0, "{:?}", run.again());
    assert_eq!(run.again().iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn in_recovery_the_window_halves_once() {
    let mut script = Script::new(Config { initial_window: 20, ..config() }, 100).lose(3, 1).lose(9, 1);
    let run = script.run_until(45);
    assert_eq!(run.recoveries, 1);
    assert!((11.0..=12.0).contains(&script.sender.ssthresh()), "{}", script.sender.ssthresh());
}

#[test]
fn an_ack_is_delayed_by_forty_milliseconds_unless_a_second_segment_comes() {
    let run = Script::new(Config::rfc(), 1).run();
    // The last segment is acknowledged at once.
    assert_eq!(run.acks, [30]);
    let mut script = Script::new(Config::rfc(), 0).endless();
    script.sender.supply(3);
    assert_eq!(script.run_until(100).acks, [30, 70]);
}

#[test]
fn segments_beyond_a_gap_are_acknowledged_at_once() {
    let run = Script::new(Config { initial_window: 4, ..Config::rfc() }, 1_000).lose(0, 1).run_until(35);
    assert_eq!(run.acks, [30, 30, 30]);
}

#[test]
fn the_receive_window_bounds_what_is_in_flight() {
    let mut script = Script::new(Config { receive_window: 5, ..config() }, 100);
    let run = script.run_until(39);
    assert_eq!(run.sent.len(), 1 + 5);
    assert_eq!(script.run().finished_ms, Some(20 + 20 * 20));
}

#[test]
fn a_mark_halves_the_window_once_a_round_trip_and_is_answered() {
    let config = Config { ecn: true, initial_window: 20, ..config() };
    let mut script = Script::new(config, 1_000).mark(2).mark(5);
    script.run_until(58);
    // The ACKs of two segments had opened it to 22.
    assert_eq!(script.sender.ssthresh(), 11.0);
    // Both marks, and the echoes that follow until the sender answers, are of one window of data.
    script.run_until(200);
    assert_eq!(script.reductions, 1);
    assert!(script.answered, "no segment reported that the window was reduced");
    assert_eq!(script.sender.retransmits(), 0);
}

#[test]
fn dctcp_shrinks_by_the_share_of_marks() {
    let config = Config { algorithm: Algorithm::Dctcp, ecn: true, initial_window: 100, ..config() };
    let mut script = Script::new(config, 100_000).window(100).mark_share(10);
    script.run_until(3_000);
    // A tenth of all segments is marked: α settles near 0.1, and each window loses a twentieth of itself.
    let lost = 1.0 - script.sender.ssthresh() / script.before_reduction;
    assert!((0.03..0.08).contains(&lost), "{lost}");
}

/// Whether the SYN, its answer, the ACK of that, new data, its ACK, and data that is sent again are ECN-capable.
fn capable(config: &Config) -> [bool; 6] {
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let (mut sender, mut receiver) = (Sender::new(config), Receiver::new(config));
    let mut other = Receiver::new(config);
    sender.open();
    sender.supply(1);
    let packet = |sent: Transmit, now: Time| Packet {
        kind: sent.kind,
        seq: sent.seq,
        flags: sent.flags,
        sent: now.into(),
        ..Packet::default()
    };
    let syn = packet(sender.poll_transmit(config, at(0)).unwrap(), at(0));
    let answer = receiver.handle_syn(config, at(10), &syn).unwrap();
    sender.handle_ack(config, at(20), &answer);
    let third = other.establish(config, at(20), answer.flags.has(Flags::ECE), None);
    receiver.accept(at(30));
    let data = packet(sender.poll_transmit(config, at(20)).unwrap(), at(20));
    assert_eq!(sender.poll_transmit(config, at(20)), None);
    let mut acks = Vec::new();
    receiver.handle_data(config, at(30), &data, &mut |ack| acks.push(ack));
    let ack = acks.pop().or_else(|| receiver.handle_timeout(config, at(300))).unwrap();
    let mut again = None;
    while again.is_none() {
        let due = sender.poll_timeout().unwrap();
        sender.handle_timeout(config, due);
        again = sender.poll_transmit(config, due);
    }
    let again = again.unwrap();
    assert!(again.flags.has(Flags::RETRANSMIT));
    [syn.flags, answer.flags, third.flags, data.flags, ack.flags, again.flags].map(|flags| flags.has(Flags::ECT))
}

#[test]
fn every_packet_of_dctcp_is_ecn_capable_and_of_others_new_data_alone() {
    for config in [config(), Config::linux()] {
        let with = |algorithm, ecn| capable(&Config { algorithm, ecn, ..config });
        assert_eq!(with(Algorithm::Dctcp, true), [true; 6]);
        assert_eq!(with(Algorithm::Reno, true), [false, false, false, true, false, false]);
        assert_eq!(with(Algorithm::Dctcp, false), [false; 6]);
    }
}

#[test]
fn an_idle_connection_begins_again_with_the_initial_window() {
    let burst_after_idling = |idle_restart| {
        let mut script = Script::new(Config { idle_restart, ..config() }, 0).endless();
        script.sender.supply(200);
        script.run_until(5_000);
        assert!(script.sender.cwnd() > 20.0);
        script.sender.supply(100);
        let before = script.sent.len();
        script.run_until(5_001);
        script.sent.len() - before
    };
    assert_eq!(burst_after_idling(true), 10);
    assert!(burst_after_idling(false) > 20);
}

#[test]
fn a_sender_that_has_little_to_send_does_not_grow_its_window() {
    let mut script = Script::new(config(), 0).endless();
    for _ in 0..50 {
        script.sender.supply(1);
        script.run_until(script.now_ms() + 30);
    }
    assert_eq!(script.sender.cwnd(), 10.0);
}

#[test]
fn cubic_is_concave_up_to_where_it_lost_and_convex_beyond() {
    let config = Config { algorithm: Algorithm::Cubic, ..config() };
    let mut window = Window::new(&config);
    window.cwnd = 1_000.0;
    window.shrink(1_000.0, false);
    assert_eq!(window.cwnd, 700.0);
    // The window in each round trip of 100 ms from the loss on.
    let mut windows = Vec::new();
    for round in 1..200u64 {
        for _ in 0..window.cwnd as u32 {
            window.grow(&config, Time::from_nanos(round * 100_000_000), 1, 100_000_000);
        }
        windows.push(window.cwnd);
    }
    // RFC 9438, equation 2: the window is back where it lost after K = cbrt(0.3 W_max / 0.4) seconds.
    let k = (0.3f64 * 1_000.0 / 0.4).cbrt();
    let at = |seconds: f64| windows[(seconds * 10.0) as usize - 1];
    assert!((at(k) / 1_000.0 - 1.0).abs() < 0.01, "{} after {k} s", at(k));
    assert!(at(0.5 * k) - at(0.25 * k) > at(k) - at(0.75 * k));
    assert!(at(1.5 * k) - at(1.25 * k) > at(1.25 * k) - at(k));
}

#[test]
fn cubic_is_no_slower_than_reno_where_round_trips_are_short() {
    let config = Config { algorithm: Algorithm::Cubic, ..config() };
    let mut window = Window::new(&config);
    window.cwnd = 20.0;
    window.shrink(20.0, false);
    for round in 1..=100u64 {
        for _ in 0..window.cwnd as u32 {
            window.grow(&config, Time::from_nanos(round * 1_000_000), 1, 1_000_000);
        }
    }
    // Reno gains a segment a round; CUBIC's estimate of it 0.53 of one up to where it lost, one from there on.
    assert!(window.cwnd > 14.0 + 0.5 * 100.0, "{}", window.cwnd);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_lost_everything_arrives_and_the_counts_are_right(
        segments in 1u32..200,
        lost in prop::collection::btree_set((0u32..200, 1u32..4), 0..60),
        lost_acks in prop::collection::btree_set(0u32..200, 0..40),
        sack in any::<bool>(),
        every in 1u8..3,
    ) {
        let config = Config { sack, ack_every: every, ..Config::rfc() };
        let script = lost.iter().fold(Script::new(config, segments), |script, (seq, nth)| script.lose(*seq, *nth));
        let run = script.lose_acks(lost_acks).audited().run();
        prop_assert!(run.finished_ms.is_some());
        prop_assert_eq!(run.received, segments);
        let lost = |seq| run.losses.get(&seq).copied().unwrap_or(0);
        for seq in 0..segments {
            let sent = run.transmissions.get(&seq).copied().unwrap_or(0);
            prop_assert!(sent > lost(seq), "{seq}: sent {sent} times, lost {}", lost(seq));
            // With SACK and all ACKs the sender knows what is lost: it sends nothing else again.
            if sack && run.lost_acks == 0 {
                prop_assert_eq!(sent, 1 + lost(seq), "segment {}", seq);
            }
        }
        if run.losses.is_empty() && run.lost_acks == 0 {
            prop_assert_eq!((run.again(), run.timeouts, run.recoveries), (Vec::new(), 0, 0));
        }
    }
}
