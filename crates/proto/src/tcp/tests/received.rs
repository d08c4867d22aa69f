//! Recordings of Linux as a receiver, by `scripts/record-tcp`: when it acknowledges, what its ACKs contain, and what it counts.

use sidestep_net::{Span, Time};

use super::recorded::{assert_all_are_replayed, millis, replay_directory};
use crate::{
    packet::{Flags, Kind, Packet},
    tcp::{Config, Counters, Profile, Receiver, ReceiverTimeout},
};

/// The kernel's timer of delayed ACKs fires this much later than due: two ticks of 250 a second, and what the recorder takes.
const TICKS: Span = Span::from_micros(8_300);
/// That of compressed ACKs has no ticks, but may be 0.1 ms late (`tcp_comp_sack_slack_ns`).
const EXACT: Span = Span::from_micros(500);
/// The kernel reckons the time of a delayed ACK in ticks, too.
const TICK: Span = Span::from_millis(4);
/// How exactly the recorder knows a time.
const LATE: Span = Span::from_micros(300);

/// One recorded connection, with our receiver in the kernel's place.
struct Replay {
    config: Config,
    receiver: Receiver,
    round_trip: Span,
    start: Time,
    ecn: bool,
    plain: bool,
    /// ACKs of the present segment.
    ready: Vec<String>,
}

macro_rules! received {
    ($($name:ident $file:literal)*) => {
        $(
            #[test]
            fn $name() {
                let differences = replay(include_str!(concat!("received/", $file, ".txt")));
                assert!(differences.is_empty(), "{}", differences.join("\n"));
            }
        )*

        #[test]
        fn every_recording_of_a_receiver_is_replayed() {
            assert_all_are_replayed("received", &[$($file),*]);
        }
    };
}

received! {
    a_segment_that_was_acknowledged_before_begins_quick_acks "acknowledged-before"
    its_ack_is_one_of_these_if_it_acknowledges_another "acknowledged-before-one"
    acks_of_a_gap_within_a_millisecond_go_as_one "compressed"
    acks_of_a_gap_go_as_one_for_less_time_on_short_round_trips "compressed-less"
    acks_that_wait_go_before_a_third_block_changes "compressed-blocks"
    blocks_grow_while_acks_wait "compressed-grow"
    a_segment_beyond_a_gap_that_comes_twice_waits_too "compressed-twice"
    an_ack_waits_for_another_segment "delayed"
    a_segment_beyond_a_gap_is_in_the_buffer_after_the_window_has_grown "filled-gap"
    a_mark_on_the_first_segment_ends_no_quick_acks "first-marked"
    what_comes_before_the_first_segment_ends_its_quick_acks "first-out-of-order"
    a_first_segment_after_a_timeout_has_quick_acks_all_the_same "first-out-of-order-late"
    quick_acks_begin_again_after_a_timeout "idle"
    a_mark_is_echoed_until_the_sender_answers "mark"
    each_segment_is_acknowledged_at_first "quick-at-first"
    a_segment_that_was_sent_again_is_acknowledged_at_once "sent-again"
}

#[test]
#[ignore = "needs recordings in the directory that SIDESTEP_RECORDINGS names"]
fn received_recordings_of_a_directory_are_replayed() {
    let wrong = replay_directory("accept", replay);
    assert!(wrong == 0, "{wrong}");
}

/// Replays a file; returns what ours does otherwise.
fn replay(text: &str) -> Vec<String> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
    let mut replay = Replay::open(lines.next().unwrap());
    let mut differences = Vec::new();
    while let Some(line) = lines.next() {
        let (at, action) = line.split_once(' ').unwrap();
        let mut check = |ours: Option<String>, theirs: &str| {
            if ours.as_deref().unwrap_or_default() != theirs {
                differences.push(format!("{line}\n  Linux: {theirs}\n  ours:  {}", ours.unwrap_or_default()));
            }
        };
        check(replay.be_silent_until(millis(at)), "");
        if let Some(words) = action.strip_prefix("seg ") {
            replay.receive(millis(at), words);
        }
        while let Some(answer) = lines.next_if(|line| line.starts_with(' ')) {
            let (kind, answer) = answer.trim().split_once(' ').unwrap_or(("=", ""));
            if kind == "=" {
                check(Some(replay.counted()), &known(answer));
                continue;
            }
            let (at, ack) = answer.split_once(' ').unwrap();
            let ours = replay.answer(millis(at));
            // Without timestamps there is room for four blocks; ours have three.
            let blocks = ack.split(',').count();
            check(ours, if replay.plain && blocks == 4 { ack.rsplit_once(',').unwrap().0 } else { ack });
        }
        if !replay.ready.is_empty() {
            check(Some(std::mem::take(&mut replay.ready).join("; ")), "");
        }
    }
    differences
}

impl Replay {
    fn open(line: &str) -> Self {
        let mut words = line.split(' ').skip(1);
        let round_trip = millis(words.next().unwrap());
        let option = words.next();
        let ecn = option == Some("ecn");
        let config = Config { profile: Profile::Linux, hz: 0, ecn, quick_acks: 16, ..Config::rfc() };
        let mut receiver = Receiver::new(&config);
        let syn = Time::from_nanos(1_000_000_000);
        let flags = Flags::when(ecn, Flags::ECE.with(Flags::CWR));
        let half = Span::from_nanos(round_trip.as_nanos() / 2);
        receiver.handle_syn(
            &config,
            syn + half,
            &Packet { kind: Kind::Syn, sent: syn.into(), flags, ..Packet::default() },
        );
        let start = syn + half + round_trip;
        receiver.accept(start);
        Replay { config, receiver, round_trip, start, ecn, plain: option == Some("plain"), ready: Vec::new() }
    }

    fn receive(&mut self, at: Span, words: &str) {
        let now = self.start + at;
        let mut words = words.split(' ');
        let seq = words.next().unwrap().parse().unwrap();
        let mut flags = Flags::when(self.ecn, Flags::ECT);
        for word in words {
            flags = match word {
                "ce" => flags.with(Flags::CE),
                "cwr" => flags.with(Flags::CWR),
                "again" => Flags::RETRANSMIT,
                _ => panic!("{word}"),
            };
        }
        let sent = Time::from_nanos(now.as_nanos() - self.round_trip.as_nanos() / 2);
        let packet = Packet { kind: Kind::Data, seq, sent: sent.into(), flags, ..Packet::default() };
        let ready = &mut self.ready;
        self.receiver.handle_data(&self.config, now, &packet, &mut |ack| ready.push(written(&ack)));
    }

    /// What the receiver has counted.
    fn counted(&self) -> String {
        let counters = self.receiver.counters().unwrap();
        let named = counters.named().filter(|(_, count)| *count > 0);
        named.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(" ")
    }

    /// What a timer sends in a time in which the kernel sends nothing.
    fn be_silent_until(&mut self, at: Span) -> Option<String> {
        let at = self.start + at;
        while let Some((due, timer)) = self.receiver.next_timeout()
            && due + lateness(timer) < at
        {
            if let Some(ack) = self.receiver.handle_timeout(&self.config, due) {
                let since = due.since(self.start).as_secs_f64() * 1e3;
                return Some(format!("{} at {since:.2} ms", written(&ack)));
            }
        }
        None
    }

    /// The ACK that the kernel sent at this time: one of the present segment, or a timer's.
    fn answer(&mut self, at: Span) -> Option<String> {
        if !self.ready.is_empty() {
            return Some(self.ready.remove(0));
        }
        let at = self.start + at;
        let (due, timer) = self.receiver.next_timeout()?;
        let early = if timer == ReceiverTimeout::DelayedAck { TICK } else { LATE };
        if due > at + early || at > due + lateness(timer) {
            return Some(format!("by a timer at {:.2} ms", due.since(self.start).as_secs_f64() * 1e3));
        }
        self.receiver.handle_timeout(&self.config, at.max(due)).map(|ack| written(&ack))
    }
}

/// Of a recording's counters and their values, those that ours has, too.
fn known(recorded: &str) -> String {
    let words: Vec<_> = recorded.split_whitespace().collect();
    let has = |words: &&[&str]| Counters::default().named().any(|(name, _)| name == words[0]);
    words.chunks(2).filter(has).map(|words| words.join(" ")).collect::<Vec<_>>().join(" ")
}

fn lateness(timer: ReceiverTimeout) -> Span {
    if timer == ReceiverTimeout::CompressedAck { EXACT } else { TICKS }
}

fn written(ack: &Packet) -> String {
    let blocks: Vec<_> = (ack.sack.iter().filter(|block| **block != (0, 0)))
        .map(|&(from, to)| match from > to {
            true => (ack.seq - u32::from(from), ack.seq - u32::from(from) + 1),
            false => (ack.seq + u32::from(from), ack.seq + u32::from(to)),
        })
        .map(|(from, to)| format!("{from}-{to}"))
        .collect();
    let sack = if blocks.is_empty() { String::new() } else { format!(" sack {}", blocks.join(",")) };
    format!("ack {}{sack}{}", ack.seq, if ack.flags.has(Flags::ECE) { " ece" } else { "" })
}
