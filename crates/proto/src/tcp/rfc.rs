//! The sender of [`Profile::Rfc`](crate::tcp::Profile): NewReno (RFC 6582) or SACK (RFC 6675) recovery, limited
//! transmit (RFC 3042), and the timer of RFC 6298.
//!
//! Windows are in segments, and may have a fraction.

mod congestion;
mod recovery;
mod scoreboard;

use sidestep_net::{Span, Time};

use self::scoreboard::Scoreboard;
pub(super) use self::{
    congestion::{HALF, Window},
    scoreboard::DUP_THRESH,
};
use super::{
    Config, State, Transmit,
    rtt::RoundTrip,
    signals::{Acked, Signals},
    transfer::{Stage, Transfer, flag},
};
use crate::packet::Packet;

/// What a sender keeps beside its [`Transfer`].
#[derive(Clone, Debug)]
pub(super) struct Rfc {
    pub(super) window: Window,
    pub(super) round_trip: RoundTrip,
    /// When the SYN's or the retransmission timer fires; [`Time::MAX`]: never.
    deadline: Time,
    duplicates: u32,
    phase: Phase,
    /// The window, and nothing else, kept the last segment from being sent.
    limited: bool,
    /// The scoreboard, made at the first loss or reordering.
    board: Option<Box<Scoreboard>>,
}

/// What is done about losses and marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No loss is known.
    Open,
    /// The window was reduced for a mark, and does not grow until a round trip later.
    Reduced,
    /// Lost segments are retransmitted.
    Recovery,
    /// The retransmission timer fired.
    Loss,
}

impl Rfc {
    pub(super) fn new(config: &Config) -> Self {
        Rfc {
            window: Window::new(config),
            round_trip: RoundTrip::new(config),
            deadline: Time::MAX,
            duplicates: 0,
            phase: Phase::Open,
            limited: false,
            board: None,
        }
    }

    /// The state of an established connection.
    #[inline]
    pub(super) fn state(&self) -> State {
        match self.phase {
            Phase::Open => State::Open,
            Phase::Reduced => State::Reduced,
            Phase::Recovery => State::Recovery,
            Phase::Loss => State::Loss,
        }
    }

    /// Starts the timer of the SYN that is sent now, after this many others.
    pub(super) fn arm_syn(&mut self, config: &Config, now: Time, sent: u8) {
        self.deadline = now + Span::from_nanos(self.round_trip.timeout(config, sent));
    }

    /// The SYN was answered.
    pub(super) fn establish(&mut self, transfer: &mut Transfer, config: &Config, now: Time, packet: &Packet) {
        self.deadline = Time::MAX;
        // A retransmitted SYN's answer is ambiguous without the echoed time (Karn; RFC 6298, section 3).
        if let Some(sent) = packet.sent.get() {
            self.round_trip.sample(config, now.since(sent).as_nanos());
        }
        if transfer.backoff > 0 {
            // RFC 5681, section 3.1: after a lost SYN the window begins at one segment.
            self.window.cwnd = 1.0;
        }
        transfer.backoff = 0;
    }

    /// Nothing is sent any more.
    pub(super) fn end(&mut self) {
        self.deadline = Time::MAX;
        self.board = None;
    }

    /// Handles an ACK.
    #[inline]
    pub(super) fn handle_ack(&mut self, transfer: &mut Transfer, config: &Config, now: Time, packet: &Packet) -> Acked {
        let ack = packet.seq;
        if ack < transfer.una || ack > transfer.next || matches!(transfer.stage, Stage::Closed | Stage::SynSent) {
            return Acked::default();
        }
        transfer.window_end = ack.saturating_add(packet.window);
        let segments = ack - transfer.una;
        let marked = transfer.is_marked(packet.flags);
        let calm = self.phase == Phase::Open && segments > 0 && packet.sack[0] == (0, 0) && !marked;
        let troubled = !calm || self.board.as_ref().is_some_and(|board| !board.is_clean());
        let mut acked = Acked { segments, delivered: segments, ..Acked::default() };
        let mut grows = segments;
        if segments > 0
            && let Some(sent) = packet.sent.get()
        {
            let rtt = now.since(sent).as_nanos();
            self.round_trip.sample(config, rtt);
            self.window.sample(rtt);
        }
        let limited = self.is_window_limited(transfer);
        if troubled {
            grows = self.handle_trouble(transfer, config, packet, marked, &mut acked);
        }
        transfer.una = ack;
        transfer.delivered = transfer.delivered.wrapping_add(acked.delivered);
        self.window.count(acked.delivered, marked);
        if marked {
            transfer.delivered_ce = transfer.delivered_ce.wrapping_add(acked.delivered);
        }
        if segments == 0 {
            return acked;
        }
        self.duplicates = 0;
        transfer.backoff = 0;
        self.deadline =
            if ack == transfer.next { Time::MAX } else { now + Span::from_nanos(self.round_trip.timeout(config, 0)) };
        if grows > 0 && limited {
            acked.in_avoidance = self.window.grow(config, now, grows, self.round_trip.srtt_nanos());
        }
        if ack > transfer.round_end {
            transfer.round_end = transfer.next;
            self.window.round();
            acked.signals.bits |= Signals::ROUND;
        }
        if transfer.is_done() {
            transfer.stage = Stage::Finished;
            self.end();
            acked.signals.bits |= Signals::FINISHED;
        }
        acked
    }

    /// When the timer fires; [`Time::MAX`]: never.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.deadline
    }

    /// The timer has fired, and runs no more.
    pub(super) fn disarm(&mut self) {
        self.deadline = Time::MAX;
    }

    /// Handles the retransmission timer, which is due.
    pub(super) fn handle_timeout(&mut self, transfer: &mut Transfer, config: &Config) -> Signals {
        if transfer.una == transfer.next {
            return Signals::default();
        }
        let (una, next) = (transfer.una, transfer.next);
        // A second timeout for the same loss does not halve the threshold again (RFC 5681, section 3.1).
        let first = self.phase != Phase::Loss || una >= transfer.recover;
        self.window.collapse(f64::from(next - una), first);
        let board = self.board.get_or_insert_default();
        board.reserve(una, next);
        if !config.sack {
            board.forget_duplicates();
        }
        board.acknowledge(una, una);
        board.lose_all(una, next);
        self.phase = Phase::Loss;
        transfer.recover = next;
        transfer.backoff = transfer.backoff.saturating_add(1);
        transfer.round_end = next;
        Signals { bits: Signals::TIMEOUT | if first { Signals::SHRUNK } else { 0 } }
    }

    /// The next segment to send.
    // Apart from what the other machine does, so that a driver's loop is small with either.
    #[inline(never)]
    pub(super) fn poll_transmit(&mut self, transfer: &mut Transfer, config: &Config, now: Time) -> Option<Transmit> {
        if !self.window_has_room(transfer, config) {
            self.limited = true;
            return None;
        }
        let resent = match &mut self.board {
            Some(board) if board.lost > board.retransmitted => board.resend(transfer.next),
            _ => None,
        };
        transfer.flags &= !flag::FORCED;
        if let Some(seq) = resent {
            if self.deadline == Time::MAX {
                self.deadline = now + Span::from_nanos(self.round_trip.timeout(config, transfer.backoff));
            }
            return Some(transfer.send_again(now, seq));
        }
        if !transfer.has_new() || transfer.is_over() {
            self.limited = false;
            return None;
        }
        if transfer.outstanding() == 0 {
            self.wake(transfer, config, now);
        }
        Some(transfer.send_new(now))
    }

    /// Resets the window before the first segment after an idle time (RFC 5681, section 4.1).
    #[inline]
    fn wake(&mut self, transfer: &Transfer, config: &Config, now: Time) {
        let timeout = Span::from_nanos(self.round_trip.timeout(config, 0));
        if config.idle_restart && transfer.next > 0 && now.since(transfer.last_sent) > timeout {
            self.window.restart(config);
        }
        self.deadline = now + timeout;
    }

    /// Whether the congestion window allows a segment now, or a segment goes regardless of the window. RFC 3042: for
    /// each that is sacked a new one goes, whose ACK may be the third duplicate.
    #[inline]
    pub(super) fn window_has_room(&self, transfer: &Transfer, config: &Config) -> bool {
        let outstanding = transfer.outstanding();
        let pipe = match &self.board {
            Some(board) if config.limited_transmit || board.lost > 0 => board.pipe(outstanding),
            _ => outstanding,
        };
        f64::from(pipe) + 1.0 <= self.window.cwnd || transfer.flags & flag::FORCED != 0
    }

    /// Segments in the network, of those that are `outstanding`, and lost ones that wait to be sent again.
    #[inline]
    pub(super) fn pipe(&self, outstanding: u32) -> (u32, u32) {
        match &self.board {
            Some(board) => (board.pipe(outstanding), board.lost - board.retransmitted),
            None => (outstanding, 0),
        }
    }

    /// Whether the window held segments back, so that it may grow (RFC 7661; in slow start, as Linux, if half is used).
    #[inline]
    fn is_window_limited(&self, transfer: &Transfer) -> bool {
        self.limited
            || (self.window.cwnd < self.window.ssthresh && self.window.cwnd < 2.0 * f64::from(transfer.outstanding()))
    }

    /// The counts that the scoreboard keeps, and the same counts computed from its bits.
    #[cfg(test)]
    pub(super) fn audit(&self, una: u32, next: u32) -> Option<([u32; 3], [u32; 3])> {
        let board = self.board.as_ref()?;
        Some(([board.sacked, board.lost, board.retransmitted], board.recount(una, next)))
    }
}
