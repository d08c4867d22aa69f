//! The sending half of a connection.

mod linux;
mod recovery;

use sidestep_net::{Span, Time};

use super::{
    Config, Counters,
    congestion::Window,
    rtt::RoundTrip,
    scoreboard::Scoreboard,
    signals::{Acked, Signals},
    timeout::SenderTimeout,
};
use crate::packet::{Flags, Kind, Packet};

/// The half of a connection that sends data.
///
/// The driver calls [`handle_ack`](Self::handle_ack) and [`handle_timeout`](Self::handle_timeout). After each of them,
/// and after [`open`](Self::open) and [`supply`](Self::supply), it calls [`poll_transmit`](Self::poll_transmit) until
/// that returns `None`.
// Of two cache lines: large simulations are as fast as memory is.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Sender {
    /// The first segment not acknowledged, and the first not sent.
    una: u32,
    next: u32,
    /// Segments below it have been supplied.
    supplied: u32,
    /// Segments below it fit the receiver's window.
    window_end: u32,
    window: Window,
    round_trip: RoundTrip,
    /// When the SYN's or the retransmission timer fires; [`Time::MAX`]: never. Under [`Profile::Linux`] only that: the rest
    /// is in `linux`.
    deadline: Time,
    last_sent: Time,
    /// The round ends when this segment is acknowledged.
    round_end: u32,
    /// Recovery, and the pause of growth after a mark, end when this segment is acknowledged.
    recover: u32,
    delivered: u32,
    delivered_ce: u32,
    retransmits: u32,
    duplicates: u32,
    state: State,
    backoff: u8,
    /// SYNs beyond those that the configuration has sent.
    more_syn_retries: u8,
    flags: u8,
    /// The scoreboard, made at the first loss or reordering.
    board: Option<Box<Scoreboard>>,
    /// What only [`Profile::Linux`] has, whose sender this then is.
    linux: Option<Box<linux::Linux>>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not opened.
    Closed,
    /// The SYN is sent, and not answered.
    SynSent,
    /// No loss is known.
    Open,
    /// The window was reduced for a mark, and does not grow until a round trip later.
    Reduced,
    /// Lost segments are retransmitted.
    Recovery,
    /// The retransmission timer fired.
    Loss,
    /// The last segment was acknowledged.
    Finished,
    /// The SYN was never answered.
    Failed,
}

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its number.
    pub seq: u32,
    /// The kind of packet: a SYN or data.
    pub kind: Kind,
    /// Its marks.
    pub flags: Flags,
}

/// The meaning of the bits of [`Sender::flags`].
mod flag {
    /// ECN was negotiated.
    pub(super) const ECN: u8 = 1;
    /// The next new segment says that the window was reduced.
    pub(super) const CWR: u8 = 2;
    /// The last supplied segment is the last of the connection.
    pub(super) const FIN: u8 = 4;
    /// The window, and nothing else, kept the last segment from being sent.
    pub(super) const LIMITED: u8 = 8;
    /// A SYN, or the first segment of a recovery, is to be sent whatever the window.
    pub(super) const FORCED: u8 = 16;
}

impl Sender {
    /// A connection that is not open yet.
    pub fn new(config: &Config) -> Self {
        Sender {
            una: 0,
            next: 0,
            supplied: 0,
            window_end: config.receive_window,
            window: Window::new(config),
            round_trip: RoundTrip::new(config),
            deadline: Time::MAX,
            last_sent: Time::ZERO,
            round_end: 0,
            recover: 0,
            delivered: 0,
            delivered_ce: 0,
            retransmits: 0,
            duplicates: 0,
            state: State::Closed,
            backoff: 0,
            more_syn_retries: 0,
            flags: 0,
            board: None,
            linux: linux::Linux::of(config),
        }
    }

    /// Has the first SYN sent again after `rto` if no answer comes, and SYNs so many times more than the configuration says.
    pub fn set_syn_timeout(&mut self, rto: Span, more_retries: u8) {
        self.round_trip.set_rto(rto);
        self.more_syn_retries = more_retries;
    }

    /// Begins to connect.
    pub fn open(&mut self) {
        self.state = State::SynSent;
        self.flags |= flag::FORCED;
    }

    /// Begins as the end that was called: its answer to the SYN, sent at `answered` (`None`: it was sent several times), has
    /// been acknowledged.
    pub fn accept(&mut self, config: &Config, now: Time, answered: Option<Time>, ecn: bool) {
        self.state = State::SynSent;
        let answer = Packet {
            kind: Kind::SynAck,
            sent: answered.unwrap_or(Time::ZERO),
            window: config.receive_window,
            flags: Flags::when(ecn, Flags::ECE),
            ..Packet::default()
        };
        self.established(config, now, &answer);
    }

    /// Supplies more segments to send.
    pub fn supply(&mut self, segments: u32) {
        self.supplied = self.supplied.saturating_add(segments);
    }

    /// Declares that no segments follow those supplied so far.
    pub fn finish(&mut self) {
        self.flags |= flag::FIN;
    }

    /// Whether no segments follow those supplied so far.
    pub fn is_finishing(&self) -> bool {
        self.flags & flag::FIN != 0
    }

    /// Handles an ACK or a SYN-ACK.
    #[inline]
    pub fn handle_ack(&mut self, config: &Config, now: Time, packet: &Packet) -> Acked {
        if packet.kind == Kind::SynAck {
            return self.established(config, now, packet);
        }
        if self.linux.is_some() {
            return self.take_linux_ack(config, now, packet);
        }
        let ack = packet.seq;
        if ack < self.una || ack > self.next || matches!(self.state, State::Closed | State::SynSent) {
            return Acked::default();
        }
        self.window_end = ack.saturating_add(packet.window);
        let segments = ack - self.una;
        let marked = packet.flags.has(Flags::ECE) && self.flags & flag::ECN != 0;
        let calm = self.state == State::Open && segments > 0 && packet.sack[0] == (0, 0) && !marked;
        let troubled = !calm || self.board.as_ref().is_some_and(|board| !board.is_clean());
        let mut acked = Acked { segments, delivered: segments, ..Acked::default() };
        let mut grows = segments;
        if segments > 0 && packet.sent != Time::ZERO {
            let rtt = now.since(packet.sent).as_nanos();
            self.round_trip.sample(config, rtt);
            self.window.sample(rtt);
        }
        let limited = self.is_window_limited();
        if troubled {
            grows = self.handle_trouble(config, packet, marked, &mut acked);
        }
        self.una = ack;
        self.delivered = self.delivered.wrapping_add(acked.delivered);
        self.window.count(acked.delivered, marked);
        if marked {
            self.delivered_ce = self.delivered_ce.wrapping_add(acked.delivered);
        }
        if segments == 0 {
            return acked;
        }
        self.duplicates = 0;
        self.backoff = 0;
        self.deadline =
            if ack == self.next { Time::MAX } else { now + Span::from_nanos(self.round_trip.timeout(config, 0)) };
        if grows > 0 && limited {
            acked.in_avoidance = self.window.cwnd >= self.window.ssthresh;
            self.window.grow(config, now, grows, self.round_trip.srtt_nanos());
        }
        if ack > self.round_end {
            self.round_end = self.next;
            self.window.round();
            acked.signals.bits |= Signals::ROUND;
        }
        if ack == self.supplied && self.flags & flag::FIN != 0 {
            self.end(State::Finished);
            acked.signals.bits |= Signals::FINISHED;
        }
        acked
    }

    /// Handles the timeout that is due; before its time nothing happens.
    pub fn handle_timeout(&mut self, config: &Config, now: Time) -> Signals {
        let due = self.next_timeout().filter(|(at, _)| *at <= now);
        let Some((_, timeout)) = due else { return Signals::default() };
        self.deadline = Time::MAX;
        match timeout {
            SenderTimeout::Syn => self.handle_syn_timeout(config),
            _ if self.linux.is_some() => self.with_linux(|own, linux| own.handle_linux_timeout(linux, config, now)),
            _ => self.handle_retransmission_timeout(config),
        }
    }

    fn handle_syn_timeout(&mut self, config: &Config) -> Signals {
        let mut signals = Signals { bits: Signals::SYN_TIMEOUT };
        self.backoff = self.backoff.saturating_add(1);
        let retries = if self.linux.is_some() { Self::linux_syn_retries(config) } else { config.syn_retries };
        let failed = self.backoff > retries.saturating_add(self.more_syn_retries);
        if failed {
            self.end(State::Failed);
            signals.bits |= Signals::FINISHED;
        }
        self.flags |= flag::FORCED;
        let was_sent_again = self.backoff > 1 && !failed;
        self.linux.iter_mut().for_each(|linux| linux.count_syn_timeout(was_sent_again));
        signals
    }

    fn handle_retransmission_timeout(&mut self, config: &Config) -> Signals {
        if self.una == self.next {
            return Signals::default();
        }
        let (una, next) = (self.una, self.next);
        // A second timeout for the same loss does not halve the threshold again (RFC 5681, section 3.1).
        let first = self.state != State::Loss || una >= self.recover;
        self.window.collapse(f64::from(next - una), first);
        let board = self.board.get_or_insert_default();
        board.reserve(una, next);
        if !config.sack {
            board.forget_duplicates();
        }
        board.acknowledge(una, una);
        board.lose_all(una, next);
        self.state = State::Loss;
        self.recover = next;
        self.backoff = self.backoff.saturating_add(1);
        self.round_end = next;
        Signals { bits: Signals::TIMEOUT }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    #[inline(always)]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout().map(|(due, _)| due)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and what for; `None`: never.
    #[inline(always)]
    pub fn next_timeout(&self) -> Option<(Time, SenderTimeout)> {
        if self.deadline == Time::MAX {
            return None;
        }
        Some(match &self.linux {
            _ if self.state == State::SynSent => (self.deadline, SenderTimeout::Syn),
            Some(linux) => (linux.due(), linux.timer()),
            None => (self.deadline, SenderTimeout::Retransmission),
        })
    }

    /// As [`poll_timeout`](Self::poll_timeout), if that is due before `limit`: cheaper where it is not.
    #[inline]
    pub fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        match &self.linux {
            Some(linux) if self.state != State::SynSent && linux.earliest() >= limit => None,
            _ => self.poll_timeout().filter(|due| *due < limit),
        }
    }

    /// The next segment to send.
    #[inline]
    pub fn poll_transmit(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        if self.linux.is_some() && self.state != State::SynSent {
            return self.poll_linux(config, now);
        }
        self.poll_rfc(config, now)
    }

    // Apart from what the other profile does, so that a driver's loop is small with either.
    #[inline(never)]
    fn poll_rfc(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        if !self.window_has_room(config) {
            self.flags |= flag::LIMITED;
            return None;
        }
        if self.state == State::SynSent {
            return self.transmit_syn(config, now);
        }
        self.transmit_next(config, now)
    }

    #[inline(always)]
    fn transmit_next(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        let outstanding = self.next - self.una;
        let resent = match &mut self.board {
            Some(board) if board.lost > board.retransmitted => board.resend(self.next),
            _ => None,
        };
        self.flags &= !flag::FORCED;
        if let Some(seq) = resent {
            return Some(self.transmit_again(config, now, seq));
        }
        if self.next >= self.supplied || self.next >= self.window_end || self.is_over() {
            self.flags &= !flag::LIMITED;
            return None;
        }
        if outstanding == 0 {
            self.wake(config, now);
        }
        let seq = self.next;
        self.next += 1;
        self.last_sent = now;
        let mut flags = Flags::when(self.flags & flag::ECN != 0, Flags::ECT);
        if self.flags & (flag::CWR | flag::FIN) != 0 {
            flags = flags.with(Flags::when(self.flags & flag::CWR != 0, Flags::CWR));
            let last = self.flags & flag::FIN != 0 && self.next == self.supplied;
            flags = flags.with(Flags::when(last, Flags::FIN));
            self.flags &= !flag::CWR;
        }
        Some(Transmit { seq, kind: Kind::Data, flags })
    }

    /// Whether the congestion window allows a segment now, or a segment goes regardless of the window. RFC 3042: for
    /// each that is sacked a new one goes, whose ACK may be the third duplicate.
    #[inline]
    pub fn window_has_room(&self, config: &Config) -> bool {
        let outstanding = self.next - self.una;
        let pipe = match &self.board {
            Some(board) if config.limited_transmit || board.lost > 0 => board.pipe(outstanding),
            Some(_) => outstanding,
            None => self.linux.as_ref().map_or(outstanding, |linux| linux.in_flight(outstanding)),
        };
        f64::from(pipe) + 1.0 <= self.window.cwnd || self.flags & flag::FORCED != 0
    }

    /// Whether there is a segment that the receiver's window allows: a new one, or one to send again.
    pub fn has_segment(&self) -> bool {
        let again = match &self.linux {
            Some(linux) => linux.waiting() > 0,
            None => self.board.as_ref().is_some_and(|board| board.lost > board.retransmitted),
        };
        again || self.next < self.supplied && self.next < self.window_end && !self.is_over()
    }

    /// The congestion window, in segments.
    #[inline]
    pub fn cwnd(&self) -> f64 {
        self.window.cwnd
    }

    /// Sets the congestion window, in segments; for the MPTCP connection that couples it.
    #[inline]
    pub fn set_cwnd(&mut self, segments: f64) {
        self.window.cwnd = segments;
        self.linux.iter_mut().for_each(|linux| linux.take_cwnd(segments));
    }

    /// The slow-start threshold in segments; infinite before the first loss.
    pub fn ssthresh(&self) -> f64 {
        self.window.ssthresh
    }

    /// Sets the slow-start threshold.
    pub fn set_ssthresh(&mut self, segments: f64) {
        self.window.ssthresh = segments;
        self.linux.iter_mut().for_each(|linux| linux.take_ssthresh(segments));
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub fn srtt(&self) -> Option<Span> {
        self.round_trip.smoothed()
    }

    /// Segments sent and not acknowledged.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.next - self.una
    }

    /// Segments supplied and not acknowledged, those not sent yet included.
    #[inline]
    pub fn queued(&self) -> u32 {
        self.supplied - self.una
    }

    /// The rate at which Linux would pace, in segments a second (`tcp_update_pacing_rate`); before the first sample as if the
    /// round trip took a second. Twice the window in slow start, 1.2 times later, so that it can grow. None is paced.
    pub fn pacing_rate(&self) -> f64 {
        let srtt = self.srtt().unwrap_or(Span::from_secs(1));
        let gain = if self.window.cwnd < self.window.ssthresh / 2.0 { 2.0 } else { 1.2 };
        gain * self.window.cwnd.max(f64::from(self.in_flight())) / srtt.as_secs_f64()
    }

    /// Halves the congestion window, and the slow-start threshold if there is one; for the MPTCP connection whose receive
    /// window the subflow blocks.
    pub fn halve(&mut self) {
        self.window.halve();
        self.set_cwnd(self.window.cwnd);
        self.set_ssthresh(self.window.ssthresh);
    }

    /// How many new segments the windows allow now, if they were supplied.
    #[inline]
    pub fn room(&self) -> u32 {
        if matches!(self.state, State::Closed | State::SynSent) || self.is_over() {
            return 0;
        }
        let outstanding = self.next - self.una;
        let (pipe, waiting) = match &self.board {
            Some(board) => (board.pipe(outstanding), board.lost - board.retransmitted),
            None => self.linux.as_ref().map_or((outstanding, 0), |of| (of.in_flight(outstanding), of.waiting())),
        };
        let unsent = self.supplied - self.next;
        let taken = pipe + waiting + unsent;
        (self.window.cwnd as u32).saturating_sub(taken).min(self.window_end.saturating_sub(self.supplied))
    }

    /// The first segment not acknowledged.
    #[inline]
    pub fn una(&self) -> u32 {
        self.una
    }

    /// The first segment not sent.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Segments supplied so far.
    #[inline]
    pub fn supplied(&self) -> u32 {
        self.supplied
    }

    /// The state of the connection.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Segments sent again.
    pub fn retransmits(&self) -> u32 {
        self.retransmits
    }

    /// Segments known to have arrived; wraps.
    pub fn delivered(&self) -> u32 {
        self.delivered
    }

    /// Segments known to have arrived whose ACK echoed a mark, counted as Linux does; wraps.
    pub fn delivered_ce(&self) -> u32 {
        self.delivered_ce
    }

    /// The retransmission timeout before back-off.
    pub fn rto(&self) -> Span {
        self.round_trip.rto()
    }

    /// Whether it is that of [`Profile::Linux`](super::Profile::Linux).
    #[inline]
    pub fn is_linux(&self) -> bool {
        self.linux.is_some()
    }

    /// What happened, as the kernel counts it; `None` under [`Profile::Rfc`](crate::tcp::Profile::Rfc).
    pub fn counters(&self) -> Option<Counters> {
        self.linux.as_ref().map(|linux| linux.counters())
    }

    /// Timeouts in a row.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    #[inline]
    fn is_over(&self) -> bool {
        matches!(self.state, State::Finished | State::Failed)
    }

    /// Whether the window held segments back, so that it may grow (RFC 7661; in slow start, as Linux, if half is used).
    #[inline]
    fn is_window_limited(&self) -> bool {
        self.flags & flag::LIMITED != 0
            || (self.window.cwnd < self.window.ssthresh && self.window.cwnd < 2.0 * f64::from(self.next - self.una))
    }

    fn established(&mut self, config: &Config, now: Time, packet: &Packet) -> Acked {
        if self.state != State::SynSent {
            return Acked::default();
        }
        self.state = State::Open;
        self.window_end = packet.window;
        self.deadline = Time::MAX;
        if self.linux.is_some() {
            self.with_linux(|own, linux| own.establish(linux, config, now, packet));
        } else {
            // A retransmitted SYN's answer is ambiguous without the echoed time (Karn; RFC 6298, section 3).
            if packet.sent != Time::ZERO {
                self.round_trip.sample(config, now.since(packet.sent).as_nanos());
            }
            if self.backoff > 0 {
                // RFC 5681, section 3.1: after a lost SYN the window begins at one segment.
                self.window.cwnd = 1.0;
            }
            self.backoff = 0;
        }
        self.flags &= !flag::FORCED;
        if config.ecn && packet.flags.has(Flags::ECE) {
            self.flags |= flag::ECN;
        }
        let mut acked = Acked::default();
        acked.signals.bits |= Signals::ESTABLISHED;
        if self.supplied == 0 && self.flags & flag::FIN != 0 {
            self.end(State::Finished);
            acked.signals.bits |= Signals::FINISHED;
        }
        acked
    }

    fn transmit_syn(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        if self.flags & flag::FORCED == 0 {
            return None;
        }
        self.flags &= !flag::FORCED;
        self.deadline = match &mut self.linux {
            Some(linux) => linux.syn_due(config, now, &self.round_trip, self.backoff),
            None => now + Span::from_nanos(self.round_trip.timeout(config, self.backoff)),
        };
        // Linux's asks for no ECN when it goes again, as a router may drop what does (`tcp_ecn_fallback`).
        let asks = config.ecn && !(self.linux.is_some() && self.backoff > 0);
        let flags = Flags::when(asks, Flags::ECE.with(Flags::CWR));
        Some(Transmit { seq: 0, kind: Kind::Syn, flags })
    }

    fn transmit_again(&mut self, config: &Config, now: Time, seq: u32) -> Transmit {
        self.retransmits += 1;
        self.last_sent = now;
        if self.deadline == Time::MAX {
            self.deadline = now + Span::from_nanos(self.round_trip.timeout(config, self.backoff));
        }
        let last = self.flags & flag::FIN != 0 && seq + 1 == self.supplied;
        // Not ECN-capable (RFC 3168, section 6.1.5).
        Transmit { seq, kind: Kind::Data, flags: Flags::RETRANSMIT.with(Flags::when(last, Flags::FIN)) }
    }

    /// Resets the window before the first segment after an idle time (RFC 5681, section 4.1).
    #[inline]
    fn wake(&mut self, config: &Config, now: Time) {
        let timeout = Span::from_nanos(self.round_trip.timeout(config, 0));
        if config.idle_restart && self.next > 0 && now.since(self.last_sent) > timeout {
            self.window.restart(config);
        }
        self.deadline = now + timeout;
    }

    fn end(&mut self, state: State) {
        self.state = state;
        self.deadline = Time::MAX;
        self.board = None;
    }

    /// The counts that the scoreboard keeps, and the same counts computed from its bits.
    #[cfg(test)]
    pub(super) fn audit(&self) -> Option<([u32; 3], [u32; 3])> {
        if let Some(linux) = &self.linux {
            return Some(linux.audit(self.una, self.next));
        }
        let board = self.board.as_ref()?;
        Some(([board.sacked, board.lost, board.retransmitted], board.recount(self.una, self.next)))
    }
}

const _: () = assert!(size_of::<Sender>() == 128, "a sender without what only some have is two cache lines");
