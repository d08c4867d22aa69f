//! Facts about Linux's TCP, each named after the packetdrill script that states it: what arrives when, and what must leave.
//!
//! The scripts are those of the kernel's selftests (`tools/testing/selftests/net/packetdrill`, there with `tcp_` before their
//! names) and of google/packetdrill (`gtests/net/tcp`). Only the facts are restated; segments are numbered from 0. What a script
//! cannot do here is left out: bytes within segments, a closed window. Linux's profile needs SACK, so scripts without it are
//! restated for the profile of the documents.

use sidestep_net::{Span, Time};

use crate::{
    packet::{Flags, Kind, Packet},
    tcp::{Algorithm, Config, Profile, Receiver, Sender, State},
};

/// A sender of which the test is the other end.
struct Vector {
    config: Config,
    sender: Sender,
    now: Time,
}

fn linux(algorithm: Algorithm) -> Config {
    Config { profile: Profile::Linux, hz: 0, algorithm, ..Config::rfc() }
}

fn without_sack() -> Config {
    Config { sack: false, algorithm: Algorithm::Cubic, ..Config::rfc() }
}

impl Vector {
    /// A connection whose SYN was answered after `rtt_ms` milliseconds.
    fn open(config: Config, rtt_ms: u64) -> Self {
        let mut sender = Sender::new(&config);
        sender.open();
        let start = Time::from_nanos(1_000_000_000);
        assert!(sender.poll_transmit(&config, start).is_some());
        let now = start + Span::from_millis(rtt_ms);
        let flags = Flags::when(config.ecn, Flags::ECE);
        let answer = Packet { kind: Kind::SynAck, sent: start.into(), window: 1_000, flags, ..Packet::default() };
        sender.handle_ack(&config, now, &answer);
        Vector { config, sender, now }
    }

    /// The CUBIC of the scripts.
    fn cubic(rtt_ms: u64) -> Self {
        Vector::open(linux(Algorithm::Cubic), rtt_ms)
    }

    fn sent(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(transmit) = self.sender.poll_transmit(&self.config, self.now) {
            let again = if transmit.flags.has(Flags::RETRANSMIT) { " again" } else { "" };
            sent.push(format!("{}{again}", transmit.seq));
        }
        sent
    }

    fn write(&mut self, segments: u32) -> Vec<String> {
        self.sender.supply(segments);
        self.sent()
    }

    /// Lets time pass; returns what timers send.
    fn wait(&mut self, micros: u64) -> Vec<String> {
        let end = self.now + Span::from_micros(micros);
        let mut sent = Vec::new();
        while let Some((due, _)) = self.sender.next_timeout().filter(|(due, _)| *due <= end) {
            self.now = due;
            self.sender.handle_timeout(&self.config, due);
            sent.extend(self.sent());
        }
        self.now = end;
        sent
    }

    /// An ACK with SACK blocks, `after_ms` milliseconds after what happened before; returns what it lets out.
    fn ack(&mut self, after_ms: u64, ack: u32, sacked: &[(u32, u32)]) -> Vec<String> {
        let early = self.wait(after_ms * 1_000);
        assert!(early.is_empty(), "{early:?} left before the ACK");
        let mut packet = Packet { kind: Kind::Ack, seq: ack, window: 1_000, ..Packet::default() };
        for (block, (from, to)) in packet.sack.iter_mut().zip(sacked) {
            *block = ((from - ack) as u16, (to - ack) as u16);
        }
        self.sender.handle_ack(&self.config, self.now, &packet);
        self.sent()
    }

    /// How many segments are SACKed, count as lost, and are retransmitted.
    fn counts(&self) -> [u32; 3] {
        self.sender.audit().map_or([0; 3], |(kept, _)| kept)
    }

    /// How many segments count as lost, and the degree of reordering.
    fn lost_and_reordering(&self) -> (u32, u32) {
        (self.counts()[1], self.sender.reordering().unwrap())
    }

    fn cwnd(&self) -> u32 {
        self.sender.cwnd() as u32
    }

    /// `count` ACKs of two segments each from `from` on, a step of time apart; returns the windows after each.
    fn ack_pairs(&mut self, step_ms: u64, from: u32, count: u32) -> u32 {
        for pair in 1..=count {
            self.ack(step_ms, from + 2 * pair, &[]);
        }
        self.cwnd()
    }
}

/// The numbers of new segments.
fn new(segments: std::ops::Range<u32>) -> Vec<String> {
    segments.map(|seq| seq.to_string()).collect()
}

#[test]
fn slow_start_ack_per_1pkt() {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(20), new(0..10));
    assert_eq!(v.ack(105, 1, &[]), new(10..12));
    assert_eq!(v.ack(5, 2, &[]), new(12..14));
    assert_eq!(v.cwnd(), 12);
}

#[test]
fn slow_start_ack_per_2pkt() {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(20), new(0..10));
    assert_eq!(v.ack(105, 2, &[]), new(10..14));
    assert_eq!(v.ack(5, 4, &[]), new(14..18));
    assert_eq!(v.ack(5, 6, &[]), new(18..20));
    assert_eq!(v.cwnd(), 16);
}

#[test]
fn slow_start_ack_per_4pkt() {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(30), new(0..10));
    assert_eq!(v.ack(110, 4, &[]), new(10..18));
    assert_eq!(v.ack(10, 8, &[]), new(18..26));
    assert_eq!(v.ack(5, 10, &[]), new(26..30));
    assert_eq!(v.cwnd(), 20);
}

#[test]
fn slow_start_ack_per_2pkt_send_5pkt() {
    let mut v = Vector::cubic(1);
    assert_eq!(v.write(5), new(0..5));
    let windows: Vec<u32> = [2, 4, 5].iter().map(|ack| (v.ack(0, *ack, &[]), v.cwnd()).1).collect();
    assert_eq!(windows, [10, 10, 10]);
}

#[test]
fn slow_start_ack_per_2pkt_send_6pkt() {
    let mut v = Vector::cubic(1);
    assert_eq!(v.write(6), new(0..6));
    let windows: Vec<u32> = [2, 4, 6].iter().map(|ack| (v.ack(0, *ack, &[]), v.cwnd()).1).collect();
    assert_eq!(windows, [12, 12, 12]);
}

#[test]
fn slow_start_app_limited() {
    let mut v = Vector::cubic(100);
    v.write(10);
    let mut windows = vec![(v.ack(105, 2, &[]), v.cwnd()).1];
    windows.extend([4, 6, 8, 10].iter().map(|ack| (v.ack(5, *ack, &[]), v.cwnd()).1));
    assert_eq!(windows, [12, 14, 16, 18, 20]);
}

#[test]
fn slow_start_app_limited_9_packets_out() {
    let mut v = Vector::cubic(100);
    v.write(9);
    let mut windows = vec![(v.ack(105, 2, &[]), v.cwnd()).1];
    windows.extend([4, 6, 8, 9].iter().map(|ack| (v.ack(5, *ack, &[]), v.cwnd()).1));
    assert_eq!(windows, [12, 14, 16, 18, 18]);
}

#[test]
fn slow_start_after_idle() {
    let mut v = Vector::cubic(100);
    v.write(26);
    assert_eq!(v.ack(100, 10, &[]), new(10..26));
    v.ack(100, 26, &[]);
    assert_eq!(v.cwnd(), 36);
    v.wait(2_000_000);
    // Halved for each timeout, down to the initial window.
    assert_eq!(v.write(20).len(), 10);
    assert_eq!(v.cwnd(), 10);
}

#[test]
fn fr_4pkt_sack() {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(4), new(0..4));
    assert!(v.ack(100, 0, &[(1, 2)]).is_empty());
    assert!(v.ack(0, 0, &[(1, 3)]).is_empty());
    assert_eq!(v.ack(0, 0, &[(1, 4)]), ["0 again"]);
    assert!(v.ack(100, 4, &[]).is_empty());
}

#[test]
fn fr_4pkt_sack_linux() {
    let mut v = Vector::cubic(100);
    v.write(1);
    v.ack(100, 1, &[]);
    assert_eq!(v.write(4), new(1..5));
    assert!(v.ack(100, 1, &[(2, 3)]).is_empty());
    assert!(v.ack(0, 1, &[(2, 4)]).is_empty());
    assert_eq!(v.ack(0, 1, &[(2, 5)]), ["1 again"]);
}

#[test]
fn fr_4pkt() {
    let mut v = Vector::open(without_sack(), 100);
    assert_eq!(v.write(4), new(0..4));
    assert!(v.ack(100, 0, &[]).is_empty());
    assert!(v.ack(0, 0, &[]).is_empty());
    assert_eq!(v.ack(0, 0, &[]), ["0 again"]);
    assert!(v.ack(100, 4, &[]).is_empty());
}

#[test]
fn fr_4pkt_fack_last_mss() {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(4), new(0..4));
    assert!(v.ack(100, 0, &[(3, 4)]).is_empty());
    // A quarter of the round trip and 2 ms. The script has 40 ms, two ticks of a slow clock; those of sack-shift-sacked have 27.
    assert!(v.wait(26_000).is_empty());
    assert_eq!(v.wait(1_000), ["0 again"]);
}

#[test]
fn limited_transmit_no_sack() {
    let mut v = Vector::open(without_sack(), 100);
    assert_eq!(v.write(15), new(0..10));
    assert_eq!(v.ack(110, 0, &[]), ["10"]);
    assert_eq!(v.ack(10, 0, &[]), ["11"]);
    // It was reordering, no loss. The script has 12 and 13 here, and 14 after the next ACK: Linux's window grows by the one segment
    // that no duplicate reported, ours by two, as in RFC 3465.
    assert_eq!(v.ack(10, 3, &[]), new(12..15));
    assert_eq!(v.cwnd(), 12);
    for ack in [5, 7, 9, 11, 13, 15] {
        assert!(v.ack(20, ack, &[]).is_empty());
    }
}

#[test]
fn sack_shift_sacked_2_6_8_3_9_nofack() {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(10), new(0..10));
    assert!(v.ack(100, 0, &[(2, 3)]).is_empty());
    assert!(v.ack(1, 0, &[(2, 3), (6, 7)]).is_empty());
    assert_eq!(v.ack(1, 0, &[(2, 3), (6, 7), (8, 9)]), ["0 again"]);
    assert_eq!((v.sender.state(), v.counts()[1]), (State::Recovery, 6));
    assert_eq!(v.ack(7, 0, &[(2, 4), (6, 7), (8, 9)]), ["1 again"]);
    assert_eq!(v.lost_and_reordering(), (5, 6));
    v.ack(10, 0, &[(2, 4), (6, 7), (8, 10)]);
    assert_eq!(v.counts()[1], 5);
    v.ack(83, 1, &[(2, 4), (6, 7), (8, 10)]);
    assert_eq!(v.counts()[1], 4);
    v.ack(17, 4, &[(6, 7), (8, 10)]);
    assert_eq!(v.counts()[1], 3);
    v.ack(10, 7, &[(8, 10)]);
    v.ack(100, 10, &[]);
    assert_eq!((v.sender.state(), v.counts()), (State::Open, [0; 3]));
}

/// Ten segments, of which the receiver reports the eighth; the reordering timer begins recovery.
fn sack_shift_sacked_7() -> Vector {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(10), new(0..10));
    assert!(v.ack(100, 0, &[(7, 8)]).is_empty());
    assert!(v.wait(26_000).is_empty());
    assert_eq!(v.wait(1_000), ["0 again"]);
    assert_eq!(v.sender.state(), State::Recovery);
    assert_eq!(v.lost_and_reordering(), (7, 3));
    v
}

#[test]
fn sack_shift_sacked_7_3_4_8_9_fack() {
    let mut v = sack_shift_sacked_7();
    assert_eq!(v.ack(2, 0, &[(3, 4), (7, 8)]), ["1 again"]);
    assert_eq!(v.lost_and_reordering(), (6, 5));
    assert_eq!(v.ack(2, 0, &[(3, 5), (7, 8)]), ["2 again"]);
    assert_eq!(v.counts()[1], 5);
    // The script names it after the next ACK, 2 ms later, with a tolerance of 4 ms.
    assert_eq!(v.ack(2, 0, &[(3, 5), (7, 9)]), ["5 again"]);
    v.ack(2, 0, &[(3, 5), (7, 10)]);
    v.ack(100, 10, &[]);
    assert_eq!((v.sender.state(), v.counts()), (State::Open, [0; 3]));
}

#[test]
fn sack_shift_sacked_7_5_6_8_9_fack() {
    let mut v = sack_shift_sacked_7();
    assert_eq!(v.ack(0, 0, &[(5, 6), (7, 8)]), ["1 again"]);
    assert_eq!(v.lost_and_reordering(), (6, 3));
    assert_eq!(v.ack(0, 0, &[(5, 8)]), ["2 again"]);
    assert_eq!(v.counts()[1], 5);
    assert_eq!(v.ack(0, 0, &[(5, 9)]), ["3 again"]);
    assert_eq!(v.ack(0, 0, &[(5, 10)]), ["4 again"]);
    v.ack(100, 10, &[]);
    assert_eq!((v.sender.state(), v.counts()), (State::Open, [0; 3]));
}

#[test]
fn sack_route_refresh_ip_tos() {
    let mut v = Vector::cubic(10);
    v.wait(10_000);
    assert_eq!(v.write(4), new(0..4));
    assert!(v.ack(10, 4, &[]).is_empty());
    v.wait(10_000);
    assert_eq!(v.write(4), new(4..8));
    assert!(v.ack(10, 8, &[]).is_empty());
    v.wait(10_000);
    assert_eq!(v.write(10), new(8..18));
    assert_eq!(v.ack(10, 9, &[(11, 12), (14, 18)]), ["9 again", "10 again", "12 again", "13 again"]);
    assert_eq!(v.counts(), [5, 4, 4]);
    assert!(v.ack(8, 18, &[]).is_empty());
    assert_eq!(v.counts(), [0; 3]);
}

#[test]
fn limited_transmit_sack() {
    let mut v = Vector::cubic(100);
    assert_eq!(v.write(15), new(0..10));
    assert_eq!(v.ack(110, 0, &[(1, 2)]), ["10"]);
    assert_eq!(v.ack(10, 0, &[(1, 3)]), ["11"]);
    // It was reordering, no loss.
    assert_eq!(v.ack(10, 3, &[]), new(12..14));
    assert_eq!(v.ack(20, 5, &[]), ["14"]);
}

#[test]
fn prr_ss_10pkt_lost_1() {
    let mut v = Vector::cubic(100);
    v.write(10);
    assert!(v.ack(110, 0, &[(1, 2)]).is_empty());
    assert!(v.ack(10, 0, &[(1, 3)]).is_empty());
    assert_eq!(v.ack(10, 0, &[(1, 4)]), ["0 again"]);
    assert_eq!((v.sender.state(), v.cwnd(), v.sender.ssthresh()), (State::Recovery, 7, 7.0));
    v.wait(20_000);
    assert!(v.write(7).is_empty());
    for (end, seq) in (5..=10).zip(10..) {
        assert_eq!(v.ack(10, 0, &[(1, end)]), new(seq..seq + 1));
    }
    assert_eq!(v.ack(20, 10, &[]), ["16"]);
    assert_eq!((v.sender.state(), v.cwnd(), v.sender.ssthresh()), (State::Open, 7, 7.0));
}

#[test]
fn prr_ss_30pkt_lost1_4() {
    let mut v = Vector::cubic(10);
    v.write(10);
    assert!(v.ack(10, 0, &[(4, 5)]).is_empty());
    assert!(v.ack(2, 0, &[(4, 6)]).is_empty());
    assert_eq!(v.ack(0, 0, &[(4, 7)]), ["0 again"]);
    assert_eq!(v.ack(0, 0, &[(4, 8)]), ["1 again"]);
    assert_eq!(v.ack(0, 0, &[(4, 9)]), ["2 again"]);
    assert_eq!(v.ack(0, 0, &[(4, 10)]), ["3 again"]);
    v.ack(10, 1, &[(4, 10)]);
    v.ack(0, 2, &[(4, 10)]);
    v.ack(0, 3, &[(4, 10)]);
    v.ack(0, 10, &[]);
    v.wait(10_000);
    assert_eq!(v.write(10), new(10..17));
}

#[test]
fn prr_ss_30pkt_lost_1_4_11_16() {
    let mut v = Vector::cubic(10);
    assert_eq!(v.write(20), new(0..10));
    assert_eq!(v.ack(10, 0, &[(4, 5)]), ["10"]);
    assert_eq!(v.ack(2, 0, &[(4, 6)]), ["11"]);
    assert_eq!(v.ack(2, 0, &[(4, 7)]), ["0 again"]);
    assert_eq!(v.ack(2, 0, &[(4, 8)]), ["1 again"]);
    assert_eq!(v.ack(2, 0, &[(4, 9)]), ["2 again"]);
    assert_eq!(v.ack(2, 0, &[(4, 10)]), ["3 again"]);
    // As many as arrive.
    assert_eq!(v.ack(2, 0, &[(4, 11)]), ["12"]);
    assert_eq!(v.ack(2, 0, &[(4, 12)]), ["13"]);
    // One more, up to the threshold.
    assert_eq!(v.ack(10, 1, &[(4, 12)]), ["14", "15"]);
    assert_eq!(v.ack(2, 1, &[(2, 12)]), ["1 again", "16"]);
    assert_eq!(v.ack(2, 1, &[(2, 13)]), ["17"]);
    assert_eq!(v.ack(2, 1, &[(2, 14)]), ["18"]);
}

#[test]
fn prr_ss_ack_below_snd_una_cubic() {
    let mut v = Vector::cubic(10);
    v.write(10);
    assert!(v.ack(10, 0, &[(1, 2)]).is_empty());
    assert!(v.ack(0, 0, &[(1, 3)]).is_empty());
    assert_eq!(v.ack(0, 0, &[(1, 3), (8, 9)]), ["0 again"]);
    assert_eq!(v.ack(12, 4, &[(8, 9)]), ["4 again", "5 again", "6 again"]);
    v.write(10);
    // An older ACK, which reports more.
    assert_eq!(v.ack(2, 3, &[(5, 7)]), ["7 again", "10"]);
}

#[test]
fn cubic_bulk_166k_grows_by_one_segment_for_twenty() {
    let mut v = Vector::cubic(100);
    v.write(400);
    assert_eq!(v.ack_pairs(100, 0, 5), 20);
    assert_eq!(v.ack_pairs(100, 10, 5), 30);
    // HyStart ends slow start by delay: at 48 in the script, whose sender is paced by fq, and earlier here, where none is.
    assert_eq!(v.ack_pairs(100, 20, 4), 36);
    assert_eq!(v.sender.counters().unwrap().hystart_delay, 1);
    assert_eq!(v.ack_pairs(100, 28, 10), 37);
    assert_eq!(v.ack_pairs(100, 48, 10), 38);
}

#[test]
fn cubic_bulk_166k_idle_restart_earns_nothing_by_idling() {
    let mut v = Vector::open(Config { idle_restart: false, ..linux(Algorithm::Cubic) }, 100);
    v.write(40);
    assert_eq!(v.ack_pairs(100, 0, 14), 36);
    v.ack_pairs(100, 28, 6);
    let before = v.cwnd();
    v.wait(4_000_000);
    v.write(160);
    // A segment for twenty, as before: none for the seconds that passed.
    assert!(v.ack_pairs(100, 40, 10) <= before + 1);
    assert!(v.ack_pairs(100, 60, 10) <= before + 2);
}

#[test]
fn cubic_hystart_delay_rtt_jumps_upward() {
    let mut v = Vector::cubic(200);
    v.write(30);
    v.ack(200, 10, &[]);
    assert_eq!(v.cwnd(), 20);
    let mut windows = vec![(v.ack(240, 12, &[]), v.cwnd()).1];
    windows.extend((7..=15).map(|pair| (v.ack(1, 2 * pair, &[]), v.cwnd()).1));
    assert_eq!(windows, [22, 24, 26, 28, 30, 32, 34, 36, 36, 36]);
    assert_eq!(v.sender.ssthresh(), 36.0);
}

#[test]
fn cubic_hystart_delay_min_rtt_jumps_downward() {
    let mut v = Vector::cubic(200);
    v.write(28);
    v.ack(200, 10, &[]);
    v.wait(180_000);
    v.write(2);
    assert_eq!((v.ack(20, 12, &[]), v.cwnd()).1, 22);
    for pair in 7..=15 {
        v.ack(1, 2 * pair, &[]);
        assert!(v.sender.ssthresh().is_infinite(), "{pair}");
    }
    assert_eq!(v.cwnd(), 40);
}

#[test]
fn cubic_rto_ss_ca_cwnd_bump() {
    let mut v = Vector::cubic(100);
    v.write(1);
    v.ack(100, 1, &[]);
    assert_eq!((v.write(1), v.cwnd()), (new(1..2), 10));
    // The timeout is shorter than the probe's two round trips and 200 ms.
    assert!(v.wait(299_000).is_empty());
    assert_eq!(v.wait(4_000), ["1 again"]);
    assert_eq!(v.wait(300_000), ["1 again"]);
    v.ack(100, 2, &[]);
    assert_eq!((v.cwnd(), v.sender.ssthresh()), (2, 7.0));
    assert_eq!(v.write(200), new(2..4));
    let steps = [(100, 3), (2, 4), (98, 5), (2, 6), (2, 7), (2, 8), (98, 9), (2, 10), (2, 11), (2, 12), (2, 13)];
    let windows: Vec<u32> = steps.iter().map(|(ms, ack)| (v.ack(*ms, *ack, &[]), v.cwnd()).1).collect();
    assert_eq!(windows[..5], [3, 4, 5, 6, 7]);
    let steps = [(2, 14), (2, 15), (98, 16), (2, 17), (2, 18), (2, 19), (2, 20), (2, 21), (2, 22)];
    let windows: Vec<u32> = steps.iter().map(|(ms, ack)| (v.ack(*ms, *ack, &[]), v.cwnd()).1).collect();
    assert_eq!(windows, [7; 9]);
    // One segment more for twenty that are acknowledged.
    assert_eq!(v.ack(98, 23, &[]).len(), 2);
    assert_eq!(v.cwnd(), 8);
}

#[test]
fn ecn_uses_ect0() {
    let config = Config { ecn: true, ..linux(Algorithm::Cubic) };
    let mut v = Vector::open(config, 2);
    v.sender.supply(1);
    let transmit = v.sender.poll_transmit(&config, v.now).unwrap();
    assert!(transmit.flags.has(Flags::ECT));
}

#[test]
fn dsack_mult() {
    let config = linux(Algorithm::Cubic);
    let mut receiver = Receiver::new(&config);
    let mut arrive = |seq: u32| {
        let packet = Packet { seq, sent: Time::from_nanos(1).into(), ..Packet::default() };
        let mut acks = Vec::new();
        receiver.handle_data(&config, Time::from_nanos(1), &packet, &mut |ack| acks.push(ack));
        // Some wait for a millisecond at most, so that several go as one.
        let due = receiver.next_timeout().map_or(Time::ZERO, |(due, _)| due);
        let ack = acks.pop().or_else(|| receiver.handle_timeout(&config, due)).unwrap();
        let blocks: Vec<_> = ack.sack.into_iter().filter(|block| *block != (0, 0)).collect();
        (ack.seq, blocks)
    };
    assert_eq!(arrive(1), (0, vec![(1, 2)]));
    assert_eq!(arrive(2), (0, vec![(1, 3)]));
    assert_eq!(arrive(4), (0, vec![(4, 5), (1, 3)]));
    assert_eq!(arrive(7), (0, vec![(7, 8), (4, 5), (1, 3)]));
    // A duplicate beyond the gap comes first, and what is around it after it.
    assert_eq!(arrive(4), (0, vec![(4, 5), (4, 5), (7, 8)]));
    for seq in [0, 3, 5, 6] {
        arrive(seq);
    }
    // An older one lies this far below the ACK.
    assert_eq!(arrive(0), (8, vec![(8, 0)]));
}
