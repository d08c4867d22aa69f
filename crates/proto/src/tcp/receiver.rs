//! The receiving half of a connection.

mod linux;
pub(crate) mod window;

use sidestep_net::{MaybeTime, Span, Time};

use self::linux::Acks;
use super::{Algorithm, Config, Counters, timeout::ReceiverTimeout};
use crate::packet::{Flags, Kind, Packet};

/// The half of a connection that receives data and acknowledges it.
///
/// The driver completes the ACKs: it sets the flow, the route and the length.
// Of one cache line: large simulations are as fast as memory is.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Receiver {
    /// The first segment not received.
    next: u32,
    /// In-order segments that are not acknowledged yet.
    pending: u8,
    /// ACKs that are still sent at once, at the beginning.
    quick: u8,
    flags: u8,
    /// The time that the next ACK echoes.
    echo: MaybeTime,
    /// When a delayed ACK is due, or a SYN-ACK again; [`Time::MAX`]: never. Of a delayed ACK under
    /// [`Profile::Linux`](super::Profile::Linux) a time before: the rest is in `acks`.
    deadline: Time,
    /// The ranges `[from, to)` that have arrived beyond `next`, the latest change first (RFC 2018, section 4).
    ranges: Vec<(u32, u32)>,
    /// When a segment last came in order.
    progress: MaybeTime,
    /// When it acknowledges under [`Profile::Linux`](super::Profile::Linux).
    acks: Option<Box<Acks>>,
}

/// The SACK blocks of an ACK; see [`Packet::sack`].
type Blocks = [(u16, u16); 3];

/// The meaning of the bits of [`Receiver::flags`].
mod flag {
    /// ECN was negotiated.
    pub(super) const ECN: u8 = 1;
    /// A mark must be echoed: until the sender reduces its window (RFC 3168), or while marks come (DCTCP).
    pub(super) const ECHO: u8 = 2;
    /// The last segment has arrived, in order.
    pub(super) const FIN: u8 = 4;
    /// The last segment has arrived beyond a gap.
    pub(super) const FIN_WAITS: u8 = 8;
    /// What it receives is read from an MPTCP connection, whose buffer its own follows.
    pub(super) const SUBFLOW: u8 = 16;
    /// More than half of that connection's buffer is taken.
    pub(super) const SHORT: u8 = 32;
    /// ACKs are ECN-capable.
    pub(super) const ECT: u8 = 64;
}

impl Receiver {
    /// A receiver that waits for the SYN.
    pub fn new(config: &Config) -> Self {
        Receiver {
            next: 0,
            pending: 0,
            // Linux's begin with the first segment that comes in order.
            quick: if config.is_linux() { 0 } else { config.quick_acks },
            flags: 0,
            echo: MaybeTime::NONE,
            deadline: Time::MAX,
            ranges: Vec::new(),
            progress: MaybeTime::NONE,
            acks: Acks::of(config),
        }
    }

    /// The receiver of a subflow of an MPTCP connection that tunes its window: its own buffer [follows](Self::follow) that.
    pub fn of_subflow(config: &Config) -> Self {
        let receiver = Receiver::new(config);
        Receiver { flags: flag::SUBFLOW, ..receiver }
    }

    /// The connection has read `copied` segments in a round trip, more than in any before, and its buffer has grown
    /// (`mptcp_rcv_space_adjust`).
    pub fn follow(&mut self, copied: u32) {
        if let Some(mut acks) = self.acks.take() {
            acks.follow(copied, self.beyond());
            self.acks = Some(acks);
        }
    }

    /// A segment of a connection is about to be handled: records whether more than half of the connection's buffer is taken.
    #[inline]
    pub fn note_connection(&mut self, short: bool) {
        self.flags = self.flags & !flag::SHORT | if short { flag::SHORT } else { 0 };
    }

    /// Handles a SYN; returns the SYN-ACK, if it is answered: Linux does not answer each that comes again.
    pub fn handle_syn(&mut self, config: &Config, now: Time, packet: &Packet) -> Option<Packet> {
        let mut echo = packet.sent;
        if let Some(acks) = &mut self.acks {
            (echo, self.deadline) = acks.answer_syn(now, packet)?;
        }
        if config.ecn && packet.flags.has(Flags::ECE.with(Flags::CWR)) {
            self.negotiated(config);
        }
        Some(self.syn_ack(config, echo))
    }

    /// The SYN-ACK was answered.
    pub fn accept(&mut self, now: Time) {
        if let Some(acks) = &mut self.acks {
            acks.accept(now);
            self.deadline = Time::MAX;
        }
    }

    /// When the SYN-ACK was sent, and when it was answered; `None`: it was not, or was sent more than once, so that the answer
    /// shows no time (`tcp_synack_rtt_meas`).
    pub fn answered(&self) -> Option<(Time, Time)> {
        self.acks.as_ref()?.answered()
    }

    /// This end closes before the other does: it acknowledges the other's FIN at once.
    pub fn close_first(&mut self) {
        self.acks.iter_mut().for_each(|acks| acks.close_first());
    }

    fn negotiated(&mut self, config: &Config) {
        self.flags |= flag::ECN | if config.needs_ecn() { flag::ECT } else { 0 };
    }

    fn syn_ack(&self, config: &Config, echo: MaybeTime) -> Packet {
        Packet {
            kind: Kind::SynAck,
            sent: echo,
            window: self.offered(config),
            flags: Flags::when(self.flags & flag::ECN != 0, Flags::ECE).with(self.capable()),
            ..Packet::default()
        }
    }

    /// Whether what this end sends without data is ECN-capable.
    #[inline]
    fn capable(&self) -> Flags {
        Flags::when(self.flags & flag::ECT != 0, Flags::ECT)
    }

    /// Begins as the end that called: its SYN was answered, after `round_trip`. Returns the ACK of that.
    pub fn establish(&mut self, config: &Config, now: Time, ecn: bool, round_trip: Option<Span>) -> Packet {
        if ecn {
            self.negotiated(config);
        }
        if let Some(acks) = &mut self.acks {
            acks.begin(now);
            acks.note_round_trip(round_trip.unwrap_or_default());
        }
        Packet { kind: Kind::Ack, window: self.offered(config), flags: self.capable(), ..Packet::default() }
    }

    /// The segments that it has room for.
    pub fn offered(&self, config: &Config) -> u32 {
        self.acks.as_ref().map_or(config.receive_window, |acks| acks.offered())
    }

    /// The ACK for what has arrived so far, as data that leaves carries it: none has to go any more.
    pub fn acknowledge(&mut self, config: &Config) -> Packet {
        let quick = self.quick.saturating_sub(u8::from(self.pending > 0));
        let ack = self.answer_now().unwrap_or_else(|| self.ack(config));
        self.quick = quick;
        ack
    }

    /// The ACK for what has arrived so far under [`Profile::Linux`](super::Profile::Linux); `None` under the other.
    fn answer_now(&mut self) -> Option<Packet> {
        let mut acks = self.acks.take()?;
        let ack = self.answer(&mut acks);
        self.acks = Some(acks);
        Some(ack)
    }

    /// Handles a segment; calls `reply` with each ACK that must go now.
    #[inline]
    pub fn handle_data(&mut self, config: &Config, now: Time, packet: &Packet, reply: &mut impl FnMut(Packet)) {
        if self.acks.is_some() {
            return self.take_linux_data(config, now, packet, reply);
        }
        if self.flags & flag::ECN != 0 {
            self.handle_marks(config, packet, reply);
        }
        let in_order = packet.seq == self.next;
        if in_order {
            if self.pending == 0 {
                // RFC 7323, section 4.3: the earliest segment that the ACK is for.
                self.echo = packet.sent;
            }
            self.next += 1;
            self.progress = now.into();
            self.pending += 1;
        }
        if in_order && self.ranges.is_empty() {
            let last = packet.flags.has(Flags::FIN);
            if last {
                self.flags |= flag::FIN;
            }
            // RFC 5681, section 4.2: an ACK for every second segment, and in half a second at most: fewer leave the
            // sender without a clock.
            if self.pending < config.ack_every && self.quick == 0 && !last {
                if self.pending == 1 {
                    self.deadline = now + config.delayed_ack;
                }
                return;
            }
            self.quick = self.quick.saturating_sub(1);
        } else {
            // RFC 5681, section 3.2: an ACK at once, beyond a gap and where one is filled, as the sender counts these.
            self.handle_disorder(packet, in_order);
        }
        reply(self.ack(config));
    }

    /// Returns the delayed ACK if it is due, or the SYN-ACK that goes again.
    pub fn handle_timeout(&mut self, config: &Config, now: Time) -> Option<Packet> {
        if let Some(mut acks) = self.acks.take() {
            let ack = self.handle_linux_timeout(&mut acks, config, now);
            self.acks = Some(acks);
            return ack;
        }
        let due = self.poll_timeout()?;
        (now >= due && self.pending > 0).then(|| self.ack(config))
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    #[inline(always)]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout().map(|(due, _)| due)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and what for; `None`: never.
    #[inline]
    pub fn next_timeout(&self) -> Option<(Time, ReceiverTimeout)> {
        self.poll_of(self.acks.as_deref())
    }

    /// As [`poll_timeout`](Self::poll_timeout), if that is due before `limit`: cheaper where it is not.
    #[inline]
    pub fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        match &self.acks {
            Some(acks) if self.deadline >= limit && acks.compressed_at() >= limit => None,
            _ => self.poll_timeout().filter(|due| *due < limit),
        }
    }

    #[inline]
    fn poll_of(&self, acks: Option<&Acks>) -> Option<(Time, ReceiverTimeout)> {
        let (due, timeout) = match acks {
            _ if self.deadline == Time::MAX => (Time::MAX, ReceiverTimeout::DelayedAck),
            Some(acks) if acks.waits_for_answer() => (self.deadline, ReceiverTimeout::SynAck),
            Some(acks) => (acks.due(), ReceiverTimeout::DelayedAck),
            None => (self.deadline, ReceiverTimeout::DelayedAck),
        };
        match acks {
            Some(acks) if acks.compressed_at() < due => Some((acks.compressed_at(), ReceiverTimeout::CompressedAck)),
            _ => (due != Time::MAX).then_some((due, timeout)),
        }
    }

    /// Segments received in order.
    #[inline]
    pub fn received(&self) -> u32 {
        self.next
    }

    /// How many segments are newly in order if this one arrives.
    #[inline]
    pub fn in_order_with(&self, seq: u32) -> u32 {
        let after = |at: u32| self.ranges.iter().find(|(from, _)| *from == at).map_or(at, |(_, to)| *to);
        if seq == self.next { after(seq + 1) - seq } else { 0 }
    }

    /// Whether the handshake is over, as far as this end knows.
    pub fn is_accepted(&self) -> bool {
        self.has_data() || self.acks.as_ref().is_some_and(|acks| acks.is_established())
    }

    /// Whether it has received any data, be it out of order.
    pub fn has_data(&self) -> bool {
        self.next > 0 || !self.ranges.is_empty()
    }

    /// When a segment last came in order.
    #[inline]
    pub fn progress(&self) -> Option<Time> {
        self.progress.get()
    }

    /// What happened, as the kernel counts it; `None` under [`Profile::Rfc`](crate::tcp::Profile::Rfc).
    pub fn counters(&self) -> Option<Counters> {
        self.acks.as_ref().map(|acks| acks.counters())
    }

    /// Whether everything up to the last segment has arrived.
    pub fn is_complete(&self) -> bool {
        self.flags & flag::FIN != 0
    }

    /// The ACK for what has arrived so far.
    #[inline]
    fn ack(&mut self, config: &Config) -> Packet {
        let sack = if config.sack { self.blocks() } else { Blocks::default() };
        self.ack_with(config.receive_window, self.is_complete(), sack)
    }

    /// The ACK that offers `window`, carries whether it is `last`, and has these SACK blocks.
    #[inline]
    fn ack_with(&mut self, window: u32, last: bool, sack: Blocks) -> Packet {
        self.pending = 0;
        self.deadline = Time::MAX;
        let echo = Flags::when(self.flags & flag::ECHO != 0, Flags::ECE);
        let flags = echo.with(Flags::when(last, Flags::FIN)).with(self.capable());
        Packet { kind: Kind::Ack, sent: self.echo, seq: self.next, window, flags, sack, ..Packet::default() }
    }

    /// What has arrived beyond a gap.
    #[inline]
    fn blocks(&self) -> Blocks {
        let mut sack = Blocks::default();
        for (block, (from, to)) in sack.iter_mut().zip(&self.ranges) {
            *block = (near(from - self.next), near(to - self.next));
        }
        sack
    }

    /// Decides whether ACKs echo a mark (RFC 3168, section 6.1.3). For DCTCP, each ACK reports exactly the marks of its
    /// segments (RFC 8257, section 3.2).
    fn handle_marks(&mut self, config: &Config, packet: &Packet, reply: &mut impl FnMut(Packet)) {
        let marked = packet.flags.has(Flags::CE);
        if config.algorithm == Algorithm::Dctcp {
            if marked != (self.flags & flag::ECHO != 0) {
                if self.pending > 0 {
                    let ack = self.ack(config);
                    reply(ack);
                }
                self.flags ^= flag::ECHO;
            }
            return;
        }
        if packet.flags.has(Flags::CWR) {
            self.flags &= !flag::ECHO;
        }
        if marked {
            self.flags |= flag::ECHO;
        }
    }

    /// Whether a segment was received before.
    fn has(&self, seq: u32) -> bool {
        // Most often it is the segment after the last one. Ranges do not touch, so it is in none then.
        let follows = self.ranges.first().is_some_and(|(_, to)| *to == seq);
        seq < self.next || !follows && self.ranges.iter().any(|(from, to)| (*from..*to).contains(&seq))
    }

    /// Handles a segment that is beyond a gap, fills a gap, or was received before.
    fn handle_disorder(&mut self, packet: &Packet, in_order: bool) {
        if packet.flags.has(Flags::FIN) {
            self.flags |= flag::FIN_WAITS;
        }
        if in_order {
            if let Some(at) = self.ranges.iter().position(|(from, _)| *from == self.next) {
                self.next = self.ranges.remove(at).1;
            }
            if self.ranges.is_empty() && self.flags & flag::FIN_WAITS != 0 {
                self.flags |= flag::FIN;
            }
            return;
        }
        let seq = packet.seq;
        if seq < self.next {
            return;
        }
        // Most often it is the segment after the last one.
        if let Some(first) = self.ranges.first_mut()
            && first.1 == seq
            && self.ranges.iter().skip(1).all(|(from, _)| *from != seq + 1)
        {
            self.ranges[0].1 = seq + 1;
            return;
        }
        let mut grown = (seq, seq + 1);
        self.ranges.retain(|&(from, to)| {
            if from <= seq && seq < to {
                grown = (from, to);
                return false;
            }
            if to == seq {
                grown.0 = from;
            } else if from == seq + 1 {
                grown.1 = to;
            }
            to != seq && from != seq + 1
        });
        self.ranges.insert(0, grown);
    }
}

/// A distance in a SACK block. The field is too small for a longer one, so the block then reports less than has arrived.
fn near(distance: u32) -> u16 {
    distance.min(u32::from(u16::MAX)) as u16
}

const _: () = assert!(size_of::<Receiver>() == 64, "a receiver without what only some have is one cache line");
