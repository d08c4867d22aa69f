//! When the receiver of [`Profile::Linux`](crate::tcp::Profile) acknowledges (`tcp_event_data_recv`, `__tcp_ack_snd_check`), a
//! SYN too (`tcp_check_req`, `reqsk_timer_handler`).

use sidestep_net::{MaybeTime, Span, Time};

use super::{Blocks, Receiver, flag, near, window::Window};
use crate::{
    packet::{Flags, Packet},
    tcp::{Algorithm, Config, Counters, ReceiverTimeout, clock::Wheel},
};

/// What decides when an ACK goes; times are in nanoseconds.
// In this order: what every segment needs comes first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Acks {
    /// How long an ACK waits now (`icsk_ack.ato`); zero before the first segment.
    wait: u64,
    last_data: u64,
    /// The round-trip time of the handshake; zero: its packets went again, so it is not known (`srtt_us`).
    round_trip: u64,
    /// How long the sender takes to answer with data (`rcv_rtt_est`); zero before the first.
    answer_time: u64,
    /// How long the first segment took to come.
    one_way: u64,
    window: Window,
    /// When the delayed ACK began to wait, and for how long.
    delayed: (Time, u64),
    /// The ticks at which a delayed ACK goes.
    wheel: Wheel,
    /// When ACKs go that wait to go as one.
    compressed_at: Time,
    /// ACKs out of order at this first missing segment, and those since that wait to go as one.
    missing: u32,
    told: u8,
    compressed: u8,
    /// The next ACK goes at once.
    now: bool,
    ecn_seen: bool,
    /// This end closes before the other does.
    closes_first: bool,
    /// How often no answer to the SYN-ACK came in time.
    syn_ack_timeouts: u8,
    /// A segment that had been received before, and must be reported (RFC 2883).
    duplicate: Option<u32>,
    /// ACKs that were compressed so far; those that wait are among them, of which one may still be sent.
    // Where alignment left room: it makes this no larger.
    compressed_ever: u32,
    handshake: Handshake,
    /// When the SYN-ACK was sent and when it was answered, if that was once.
    answered: Option<(Time, Time)>,
    /// When the SYN was sent that was answered last, by its own time.
    syn_at: MaybeTime,
}

/// How far the handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Listen,
    /// SYN-ACKs echo the time of the first SYN, which was answered at `first`. One that came again was answered last at
    /// `again`, and how often the SYN-ACK went again because no answer came.
    SynReceived {
        echo: MaybeTime,
        first: Time,
        again: MaybeTime,
        timeouts: u8,
    },
    Established,
}

/// How often a SYN-ACK goes again, and after what time first (`tcp_synack_retries`, `TCP_TIMEOUT_INIT`; RFC 6298 §2,
/// rule 2.1: no round trip is known yet).
const SYN_ACK_RETRIES: u8 = 5;
const SYN_ACK_TIMEOUT: u64 = 1_000_000_000;
/// SYNs that come again are answered no more often than this (`tcp_invalid_ratelimit`), so that no two ends answer each
/// other for ever.
const SYN_AGAIN: Span = Span::from_millis(500);

/// The bounds of a delayed ACK's time (`TCP_ATO_MIN`, `TCP_DELACK_MAX`). RFC 5681 §4.2 allows half a second; the
/// sender's least timeout is 200 ms above its round trip, so that no ACK is later.
const MIN_WAIT: u64 = 40_000_000;
const MAX_WAIT: u64 = 200_000_000;
/// ACKs that report a gap at once (`TCP_FASTRETRANS_THRESH`: as many as start a recovery), those that may go as one,
/// and how long these wait at most (`tcp_comp_sack_nr`, `tcp_comp_sack_delay_ns`): they cost both ends time, and report
/// the same.
const TOLD: u8 = 3;
const MAX_COMPRESSED: u8 = 44;
const COMPRESSION: u64 = 1_000_000;
/// Blocks that each ACK is sure to have room for (`TCP_SACK_BLOCKS_EXPECTED`).
const BLOCKS: usize = 2;

impl Acks {
    pub(super) fn of(config: &Config) -> Option<Box<Acks>> {
        config.is_linux().then(|| {
            Box::new(Acks {
                wait: 0,
                last_data: 0,
                duplicate: None,
                handshake: Handshake::Listen,
                answered: None,
                closes_first: false,
                syn_ack_timeouts: 0,
                syn_at: MaybeTime::NONE,
                round_trip: 0,
                answer_time: 0,
                one_way: 0,
                window: Window::new(config.receive_window),
                delayed: (Time::ZERO, 0),
                wheel: Wheel::of(config),
                now: false,
                ecn_seen: false,
                missing: 0,
                told: 0,
                compressed: 0,
                compressed_ever: 0,
                compressed_at: Time::MAX,
            })
        })
    }

    /// A SYN has come; returns which time the answer echoes, and when it goes again. `None`: it is not answered.
    pub(super) fn answer_syn(&mut self, now: Time, packet: &Packet) -> Option<(MaybeTime, Time)> {
        let (echo, first, again, timeouts) = match self.handshake {
            Handshake::Listen => (packet.sent, now, MaybeTime::NONE, 0),
            Handshake::SynReceived { again, .. } if again.get().is_some_and(|at| now.since(at) < SYN_AGAIN) => {
                return None;
            }
            Handshake::SynReceived { echo, first, timeouts, .. } => (echo, first, now.into(), timeouts),
            Handshake::Established => return None,
        };
        self.handshake = Handshake::SynReceived { echo, first, again, timeouts };
        self.syn_at = packet.sent;
        Some((echo, self.syn_ack_due(now, timeouts)))
    }

    /// The SYN-ACK was not answered in time; returns the time that it echoes and when it goes once more, if it does.
    fn repeat_syn_ack(&mut self, now: Time) -> Option<(MaybeTime, Time)> {
        self.syn_ack_timeouts = self.syn_ack_timeouts.saturating_add(1);
        let Handshake::SynReceived { timeouts, echo, .. } = &mut self.handshake else { return None };
        if *timeouts == SYN_ACK_RETRIES {
            self.handshake = Handshake::Listen;
            return None;
        }
        *timeouts += 1;
        let (echo, timeouts) = (*echo, *timeouts);
        Some((echo, self.syn_ack_due(now, timeouts)))
    }

    /// When a SYN-ACK that leaves now goes again.
    fn syn_ack_due(&self, now: Time, timeouts: u8) -> Time {
        self.wheel.fires_at(now, SYN_ACK_TIMEOUT << timeouts)
    }

    /// The handshake is over.
    pub(super) fn begin(&mut self, now: Time) {
        self.last_data = now.as_nanos();
        self.window.begin(now);
    }

    pub(super) fn accept(&mut self, now: Time) {
        if self.is_established() {
            return;
        }
        self.begin(now);
        if let Handshake::SynReceived { first, again: MaybeTime::NONE, timeouts: 0, .. } = self.handshake {
            self.answered = Some((first, now));
            self.round_trip = now.since(first).as_nanos();
        }
        self.handshake = Handshake::Established;
    }

    pub(super) fn offered(&self) -> u32 {
        self.window.offered()
    }

    pub(super) fn answered(&self) -> Option<(Time, Time)> {
        self.answered
    }

    /// The connection has read `copied` segments in a round trip, and its buffer has grown.
    pub(super) fn follow(&mut self, copied: u32, beyond: u32) {
        // One that is not established takes its first measure later.
        if self.is_established() {
            self.window.follow(copied, beyond);
        }
    }

    pub(super) fn close_first(&mut self) {
        self.closes_first = true;
    }

    pub(super) fn waits_for_answer(&self) -> bool {
        matches!(self.handshake, Handshake::SynReceived { .. })
    }

    pub(super) fn is_established(&self) -> bool {
        self.handshake == Handshake::Established
    }

    pub(super) fn note_round_trip(&mut self, round_trip: Span) {
        self.round_trip = round_trip.as_nanos();
    }

    /// When the delayed ACK goes.
    pub(super) fn due(&self) -> Time {
        let (now, after) = self.delayed;
        self.wheel.fires_at(now, after)
    }

    pub(super) fn compressed_at(&self) -> Time {
        self.compressed_at
    }

    /// What the kernel has counted: it adds ACKs that wait when one is sent (`tcp_event_ack_sent`).
    pub(super) fn counters(&self) -> Counters {
        let acks_compressed = self.compressed_ever.saturating_sub(u32::from(self.compressed));
        Counters { acks_compressed, timeouts: self.syn_ack_timeouts.into(), ..Counters::default() }
    }

    /// Its own timeout, which bounds the time that an ACK waits. RFC 6298 §2, rule 2.2, after the handshake's round
    /// trip R alone: R + 4·R/2.
    fn timeout(&self, config: &Config) -> u64 {
        match self.round_trip {
            0 => config.initial_rto.as_nanos(),
            rtt => rtt + (2 * rtt).max(config.min_rto.as_nanos()),
        }
    }

    /// A segment was received in order; returns how many ACKs must go at once at least.
    #[inline]
    fn note_data(&mut self, config: &Config, now: Time, packet: &Packet) -> u8 {
        let nanos = now.as_nanos();
        let gap = nanos.saturating_sub(self.last_data);
        self.last_data = nanos;
        if self.one_way == 0 {
            self.note_first(now, packet);
        }
        if self.wait == 0 {
            self.wait = MIN_WAIT;
            return config.quick_acks;
        }
        // The wait follows the distances of segments, so that an ACK waits just until the next one
        // (`tcp_event_data_recv`).
        if gap <= MIN_WAIT / 2 {
            self.wait = self.wait / 2 + MIN_WAIT / 2;
        } else if gap < self.wait {
            self.wait = (self.wait / 2 + gap).min(self.timeout(config));
        } else if gap > self.timeout(config) {
            // The sender was idle, and begins with a small window.
            return config.quick_acks;
        }
        0
    }

    #[cold]
    fn note_first(&mut self, now: Time, packet: &Packet) {
        self.answer_time = match self.round_trip {
            0 => packet.sent.get().zip(self.syn_at.get()).map_or(0, |(sent, syn)| sent.since(syn).as_nanos()),
            rtt => rtt,
        };
        self.one_way = travelled(now, packet).max(1);
    }

    /// How long ACKs that go as one wait: a twentieth of the round-trip time (`__tcp_ack_snd_check`), so that the
    /// sender loses little time by it.
    fn compression(&self) -> u64 {
        let rtt = if self.round_trip > 0 { self.round_trip } else { self.answer_time };
        (rtt / 20).min(COMPRESSION)
    }

    /// How long an ACK is delayed (`tcp_send_delayed_ack`).
    #[inline]
    fn delay(&self, config: &Config) -> u64 {
        let least = MIN_WAIT.min(config.delayed_ack.as_nanos());
        let bound = if self.round_trip > 0 { self.round_trip.max(least) } else { MAX_WAIT };
        if self.wait > least { self.wait.min(bound).min(MAX_WAIT) } else { self.wait }
    }
}

/// Nanoseconds since a packet was sent.
#[inline]
fn travelled(now: Time, packet: &Packet) -> u64 {
    packet.sent.get().map_or(0, |sent| now.since(sent).as_nanos())
}

impl Receiver {
    // Apart from what the other profile does, so that this stays as small as it was.
    #[inline(never)]
    pub(super) fn take_linux_data(
        &mut self,
        config: &Config,
        now: Time,
        packet: &Packet,
        reply: &mut impl FnMut(Packet),
    ) {
        let Some(mut acks) = self.acks.take() else { return };
        self.handle_linux_data(&mut acks, config, now, packet, reply);
        self.acks = Some(acks);
    }

    /// Handles a segment; calls `reply` with each ACK that must go now.
    fn handle_linux_data(
        &mut self,
        acks: &mut Acks,
        config: &Config,
        now: Time,
        packet: &Packet,
        reply: &mut impl FnMut(Packet),
    ) {
        // Data in order was accepted before.
        if self.next == 0 && acks.handshake != Handshake::Established {
            acks.accept(now);
            self.deadline = Time::MAX;
        }
        if packet.seq < self.next.saturating_sub(u32::from(self.pending)) {
            return reply(self.answer_acknowledged(acks, config, packet.seq));
        }
        let (before, in_order) = (self.next, packet.seq == self.next);
        if in_order {
            self.quick = self.quick.max(acks.note_data(config, now, packet));
        }
        if self.flags & flag::ECN != 0 {
            self.note_marks(acks, config, packet, reply);
        }
        if in_order {
            if self.pending == 0 {
                self.echo = packet.sent;
            }
            self.next += 1;
            self.progress = now.into();
            self.pending = self.pending.saturating_add(1);
        }
        if in_order && self.ranges.is_empty() {
            self.grow_window(acks, true);
            if packet.flags.has(Flags::FIN) {
                self.flags |= flag::FIN;
                // What closes next acknowledges with its own FIN (`tcp_fin`).
                acks.now |= acks.closes_first;
                self.quick = 0;
            }
        } else if let Some(ack) = self.handle_linux_disorder(acks, config, packet, in_order) {
            // What sends this has no ACK of its own (`tcp_ack_snd_check`).
            return reply(ack);
        }
        if in_order && self.flags & flag::SUBFLOW == 0 {
            // As far as data takes longer to come than the first did, it waits in queues.
            let queued = travelled(now, packet).saturating_sub(acks.one_way);
            acks.window.read(now, self.next - before, acks.answer_time + queued, || self.beyond());
        }
        if self.must_answer(acks, config, now) {
            reply(self.answer(acks));
        }
    }

    /// A segment has come: what is offered may grow.
    #[inline]
    fn grow_window(&mut self, acks: &mut Acks, in_order: bool) {
        if acks.window.grow(in_order) {
            // As `tcp_grow_window` has it.
            self.quick |= 1;
        }
    }

    /// Handles a segment that is beyond a gap, fills a gap, or was received before; returns an ACK for those that waited, if it
    /// must go before this segment is noted.
    #[inline(never)]
    fn handle_linux_disorder(
        &mut self,
        acks: &mut Acks,
        config: &Config,
        packet: &Packet,
        in_order: bool,
    ) -> Option<Packet> {
        // A duplicate that no ACK has reported yet is forgotten (`tcp_data_queue`).
        acks.duplicate = (!in_order && self.has(packet.seq)).then_some(packet.seq);
        if packet.seq < self.next && !in_order {
            self.go_quick(acks, config.quick_acks);
            acks.now = true;
        }
        let is_late = acks.compressed > 0 && packet.seq > self.next && self.is_late_in_blocks(packet.seq);
        let is_new = acks.duplicate.is_none();
        let waiting = is_late.then(|| self.answer_compressed(acks));
        let waited = !self.ranges.is_empty();
        if is_new {
            self.grow_window(acks, in_order);
        }
        self.handle_disorder(packet, in_order);
        let sums = |(held, end): (u32, u32), (from, to): &(u32, u32)| (held + to - from, end.max(*to));
        let (held, end) = self.ranges.iter().fold((0, self.next), sums);
        acks.window.hold(held);
        if !in_order {
            acks.window.make_room(end - self.next);
        }
        // The gap is filled.
        acks.now |= waited && self.ranges.is_empty();
        waiting
    }

    /// A segment was acknowledged before: unless it acknowledges others, the ACK that reports this is none of those that go at
    /// once. Nothing else is looked at (`tcp_send_dupack`).
    #[cold]
    fn answer_acknowledged(&mut self, acks: &mut Acks, config: &Config, seq: u32) -> Packet {
        self.go_quick(acks, config.quick_acks);
        self.quick = self.quick.saturating_add(u8::from(self.pending == 0));
        acks.duplicate = Some(seq);
        self.answer(acks)
    }

    /// Whether an ACK goes now; otherwise sets a timer for it.
    #[inline(always)]
    fn must_answer(&mut self, acks: &mut Acks, config: &Config, now: Time) -> bool {
        // Of a subflow, too, whatever the connection's window does: what it received is the connection's by now, so that nothing of
        // it waits for the application (`rcv_nxt - copied_seq < sk_rcvlowat` in `__tcp_ack_snd_check`).
        if self.pending >= config.ack_every {
            return true;
        }
        if self.quick > 0 || acks.now {
            return true;
        }
        if self.ranges.is_empty() {
            self.delay_ack(acks, config, now);
            return false;
        }
        if acks.missing != self.next {
            (acks.missing, acks.told) = (self.next, 0);
        }
        if acks.told < TOLD || acks.compressed >= MAX_COMPRESSED {
            acks.told = acks.told.saturating_add(1);
            return true;
        }
        acks.compressed += 1;
        acks.compressed_ever = acks.compressed_ever.saturating_add(1);
        if acks.compressed_at == Time::MAX {
            acks.compressed_at = now + Span::from_nanos(acks.compression());
        }
        false
    }

    /// Makes an ACK wait, unless one does that goes before.
    #[inline]
    fn delay_ack(&mut self, acks: &mut Acks, config: &Config, now: Time) {
        let after = acks.delay(config);
        if self.deadline != Time::MAX && acks.due() <= acks.wheel.fires_at(now, after) {
            return;
        }
        // The clock's tick is computed when a caller asks: most ACKs go before.
        acks.delayed = (now, after);
        self.deadline = now + Span::from_nanos(after);
    }

    #[inline]
    pub(super) fn answer(&mut self, acks: &mut Acks) -> Packet {
        if self.quick > 0 {
            // None go at once while little room is left (`__tcp_select_window`).
            let short = self.is_short(acks);
            self.quick = if short { 0 } else { self.quick - 1 };
            // The last of them ends what was learnt, and the beginning, too (`tcp_dec_quickack_mode`).
            if self.quick == 0 && !short {
                acks.wait = MIN_WAIT;
            }
        }
        acks.now = false;
        acks.compressed = 0;
        acks.compressed_at = Time::MAX;
        let sack = match acks.duplicate.take() {
            Some(seq) => self.blocks_after(seq),
            None => self.blocks(),
        };
        // The FIN of this end is a packet of its own.
        self.ack_with(acks.window.offered(), false, sack)
    }

    /// Reports a segment that was received twice, and after it what lies beyond the gap.
    #[cold]
    fn blocks_after(&self, duplicate: u32) -> Blocks {
        let (above, below) = (duplicate.saturating_sub(self.next), self.next.saturating_sub(duplicate));
        let report = if below > 0 { (near(below), 0) } else { (near(above), near(above + 1)) };
        let [first, second, _] = self.blocks();
        [report, first, second]
    }

    /// The next ACKs go at once (`tcp_enter_quickack_mode`).
    fn go_quick(&mut self, acks: &mut Acks, count: u8) {
        self.quick = self.quick.max(count);
        acks.wait = MIN_WAIT;
    }

    /// Echoes marks until the sender answers (`__tcp_ecn_check_ce`, `tcp_ecn_accept_cwr`); DCTCP echoes each change.
    fn note_marks(&mut self, acks: &mut Acks, config: &Config, packet: &Packet, reply: &mut impl FnMut(Packet)) {
        let answered = packet.flags.has(Flags::CWR);
        // The sender's window may be one segment, which a delayed ACK would hold up.
        acks.now |= answered;
        if config.algorithm == Algorithm::Dctcp {
            return self.note_change_of_marks(acks, packet, reply);
        }
        if answered {
            self.flags &= !flag::ECHO;
        }
        if packet.flags.has(Flags::CE) {
            if self.flags & flag::ECHO == 0 {
                self.go_quick(acks, 2);
                self.flags |= flag::ECHO;
            }
            acks.ecn_seen = true;
        } else if packet.flags.has(Flags::ECT) {
            acks.ecn_seen = true;
        } else if acks.ecn_seen {
            // Sent again, most likely (RFC 3168 §6.1.5: without ECT).
            self.go_quick(acks, 2);
        }
    }

    /// Marks begin or end: what came before is acknowledged as it was, and this segment at once (`dctcp_ece_ack_update`).
    fn note_change_of_marks(&mut self, acks: &mut Acks, packet: &Packet, reply: &mut impl FnMut(Packet)) {
        if packet.flags.has(Flags::CE) == (self.flags & flag::ECHO != 0) {
            return;
        }
        if self.pending > 0 {
            let quick = self.quick;
            reply(self.answer(acks));
            self.quick = quick;
        }
        self.flags ^= flag::ECHO;
        acks.now = true;
    }

    /// Returns the ACK or SYN-ACK that is due.
    pub(super) fn handle_linux_timeout(&mut self, acks: &mut Acks, config: &Config, now: Time) -> Option<Packet> {
        let (due, timeout) = self.poll_of(Some(acks))?;
        if now < due {
            return None;
        }
        if timeout == ReceiverTimeout::SynAck {
            let again = acks.repeat_syn_ack(now);
            self.deadline = again.map_or(Time::MAX, |(_, due)| due);
            return again.map(|(echo, _)| self.syn_ack(config, echo));
        }
        if timeout == ReceiverTimeout::DelayedAck {
            // The wait was without success: the next waits for longer.
            acks.wait = (acks.wait * 2).min(acks.timeout(config));
            if self.pending == 0 {
                self.deadline = Time::MAX;
                return None;
            }
        }
        Some(self.answer_compressed(acks))
    }

    /// The ACK for those that wait, if any do, of which it is one (`tcp_compressed_ack_kick`, `tcp_sack_compress_send_ack`).
    fn answer_compressed(&mut self, acks: &mut Acks) -> Packet {
        acks.compressed_ever = acks.compressed_ever.saturating_sub(u32::from(acks.compressed > 0));
        self.answer(acks)
    }

    /// Whether more than half of the buffer is taken: a subflow's data is in the connection's.
    #[inline]
    fn is_short(&self, acks: &Acks) -> bool {
        match self.flags & flag::SUBFLOW {
            0 => acks.window.is_short(),
            _ => self.flags & flag::SHORT != 0,
        }
    }

    /// How far what waits for an earlier segment reaches beyond that.
    pub(super) fn beyond(&self) -> u32 {
        self.ranges.iter().map(|(_, to)| to - self.next).max().unwrap_or(0)
    }

    /// Whether what arrives beyond a gap makes or lengthens a block that an ACK may have no room for (`tcp_sack_new_ofo_skb`).
    fn is_late_in_blocks(&self, seq: u32) -> bool {
        let touches = |(from, to): &(u32, u32)| *from <= seq + 1 && seq <= *to;
        self.ranges.len() >= BLOCKS && !self.ranges.iter().take(BLOCKS).any(touches)
    }
}

const _: () = assert!(size_of::<Acks>() == 192, "three cache lines");
