//! The sender's half: full speed until a router sends *slow down*, then one segment for each ACK (the paper's section
//! III-C).

use sidestep_net::{Rate, Span, Time};
use sidestep_proto::{
    packet::{Flags, Kind, Packet},
    tcp::{self, Signals, Transmit, rtt::RoundTrip},
};

use super::{AckFields, Nonces, Notice};
use crate::AfterTimeout;

/// The half of a connection that sends data.
///
/// In open loop it sends at a [rate](Self::set_rate), its share of its host's link. In closed loop it sends a segment for
/// each ACK. There is no fast recovery, since detours reorder packets. A timeout sends the first segment again that is not
/// acknowledged. Where its ACK proves that it was lost, the next hole follows at once; where it was only stored for long,
/// nothing does. The receiver is TCP's.
#[derive(Clone, Debug)]
pub struct Sender {
    phase: Phase,
    /// The first segment not acknowledged, the next to be sent first, and how many there are.
    una: u32,
    next: u32,
    total: u32,
    is_all: bool,
    /// The segment that the receiver has no room for.
    window: u32,
    rtt: RoundTrip,
    /// When the first segment not acknowledged, or the SYN, is sent again.
    deadline: Time,
    backoff: u8,
    resend: bool,
    retransmits: u32,
    /// After a timeout: when the first segment was sent again, and the segment that was due next.
    recovery: Option<(Time, u32)>,
    /// When a router sent *slow down* last; `None`: the loop is open.
    slowed: Option<Time>,
    /// Segments that ACKs have let go.
    permits: u32,
    nonces: Nonces,
    named: Time,
    expiry: Span,
    after_timeout: AfterTimeout,
    /// Whether it does what routers ask.
    obedient: bool,
    /// A segment's length in bits, the rate in bits a second, and when the next segment may leave.
    bits: u64,
    rate: u64,
    paced: Time,
    wakes: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Connecting,
    Connected,
}

/// Which timer of a [`Sender`] is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderTimeout {
    /// The SYN was not answered.
    Syn,
    /// The first segment not acknowledged is taken for lost.
    Retransmission,
    /// The next segment may leave at the rate of open loop.
    Pacing,
    /// No router has sent *slow down* for so long that the loop opens.
    Opening,
}

impl SenderTimeout {
    /// The name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            SenderTimeout::Syn => "syn",
            SenderTimeout::Retransmission => "retransmission",
            SenderTimeout::Pacing => "pacing",
            SenderTimeout::Opening => "opening",
        }
    }
}

/// The most segments that ACKs let go while there is nothing to send. Our choice: a few make up for data that comes
/// late, many would be a burst into a cache that is full.
const MAX_PERMITS: u32 = 4;

impl Sender {
    /// A connection that is not open yet. Its packets are of `len` bytes; a notification holds for `expiry`.
    pub fn new(config: &tcp::Config, len: u16, expiry: Span) -> Self {
        Sender {
            phase: Phase::Closed,
            una: 0,
            next: 0,
            total: 0,
            is_all: false,
            window: config.receive_window,
            rtt: RoundTrip::new(config),
            deadline: Time::MAX,
            backoff: 0,
            resend: false,
            retransmits: 0,
            recovery: None,
            slowed: None,
            permits: 0,
            nonces: Nonces::default(),
            named: Time::ZERO,
            expiry,
            after_timeout: AfterTimeout::Resend,
            obedient: true,
            bits: u64::from(len) * 8,
            rate: 0,
            paced: Time::ZERO,
            wakes: None,
        }
    }

    /// Changes what it does when it has got no ACK for an RTO.
    #[must_use]
    pub fn after_timeout(self, after_timeout: AfterTimeout) -> Self {
        Sender { after_timeout, ..self }
    }

    /// Changes whether it does what routers ask. One that does not sends at its rate always, and names no nonces.
    #[must_use]
    pub fn obedient(self, obedient: bool) -> Self {
        Sender { obedient, ..self }
    }

    /// Begins to connect.
    pub fn open(&mut self) {
        (self.phase, self.resend) = (Phase::Connecting, true);
    }

    /// Supplies more segments to send.
    pub fn supply(&mut self, segments: u32) {
        self.total = self.total.saturating_add(segments);
    }

    /// Declares that no segments follow those supplied so far.
    pub fn finish(&mut self) {
        self.is_all = true;
    }

    /// Changes the rate of open loop.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate.bits_per_sec();
    }

    /// Makes open loop wait until then, as the host's link is busy.
    pub fn pause_until(&mut self, at: Time) {
        self.paced = self.paced.max(at);
    }

    /// Whether it would send at its rate now: the loop is open, and there is something to send.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Connected && self.slowed.is_none() && self.next < self.total
    }

    /// Whether routers make it send a segment for each ACK.
    pub fn is_closed_loop(&self) -> bool {
        self.slowed.is_some()
    }

    /// Handles an ACK or a SYN-ACK, and what routers have written on it.
    pub fn handle_ack(&mut self, config: &tcp::Config, now: Time, packet: &Packet, said: &AckFields) -> tcp::Acked {
        let mut acked = tcp::Acked::default();
        if packet.kind == Kind::SynAck {
            if self.phase == Phase::Connecting {
                (self.phase, self.resend, self.deadline, self.backoff) = (Phase::Connected, false, Time::MAX, 0);
                self.window = packet.window;
                if let Some(sent) = packet.sent.get() {
                    self.rtt.sample(config, now.since(sent).as_nanos());
                }
                acked.signals.bits |= Signals::ESTABLISHED;
            }
            return acked;
        }
        if self.phase != Phase::Connected || packet.seq > self.next {
            return acked;
        }
        self.window = self.window.max(packet.seq.saturating_add(packet.window));
        if packet.seq > self.una {
            (acked.segments, acked.delivered) = (packet.seq - self.una, packet.seq - self.una);
            // An echoed time from before the retransmission (RFC 3522, section 3.2) is that of a segment which was not
            // lost.
            self.recovery =
                self.recovery.filter(|(at, to)| packet.sent.get().is_some_and(|sent| sent >= *at) && packet.seq < *to);
            (self.una, self.backoff, self.resend) = (packet.seq, 0, self.recovery.is_some());
            if let Some(sent) = packet.sent.get() {
                self.rtt.sample(config, now.since(sent).as_nanos());
            }
            self.arm(config, now);
            if self.is_all && self.una == self.total {
                self.phase = Phase::Closed;
                acked.signals.bits |= Signals::FINISHED;
            }
        }
        let ignored = AckFields::default();
        let said = if self.obedient { said } else { &ignored };
        if said.nonces != Nonces::default() {
            (self.nonces, self.named) = (said.nonces, now);
        } else if now.since(self.named) >= self.expiry {
            self.nonces = Nonces::default();
        }
        match said.notification.map(|said| said.notice) {
            Some(Notice::SlowDown) => self.slowed = Some(now),
            Some(Notice::Cancel) => self.slowed = None,
            None => {}
        }
        self.permits = if self.slowed.is_some() { (self.permits + 1).min(MAX_PERMITS) } else { 0 };
        acked
    }

    /// Handles the timeouts that are due.
    pub fn handle_timeout(&mut self, config: &tcp::Config, now: Time) -> Signals {
        let mut signals = Signals::default();
        if self.slowed.is_some_and(|at| now.since(at) >= self.expiry) {
            (self.slowed, self.permits) = (None, 0);
        }
        if self.deadline > now {
            return signals;
        }
        self.backoff = self.backoff.saturating_add(1);
        if self.phase == Phase::Connecting {
            if self.backoff > config.syn_retries {
                (self.phase, self.deadline) = (Phase::Closed, Time::MAX);
                signals.bits |= Signals::FINISHED;
                return signals;
            }
            signals.bits |= Signals::SYN_TIMEOUT;
        } else {
            signals.bits |= Signals::TIMEOUT;
            // Section III-C lets all go at full rate again; but a full cache on the path is the likely cause.
            if self.after_timeout == AfterTimeout::Text {
                (self.slowed, self.permits, self.nonces) = (None, 0, Nonces::default());
            }
        }
        self.resend = true;
        self.arm(config, now);
        signals
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout().map(|(due, _)| due)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and what for; `None`: never. After
    /// [`SenderTimeout::Pacing`] there is a segment to [transmit](Self::poll_transmit).
    pub fn next_timeout(&self) -> Option<(Time, SenderTimeout)> {
        let lost = match self.phase {
            Phase::Connecting => SenderTimeout::Syn,
            _ => SenderTimeout::Retransmission,
        };
        let deadline = (self.deadline != Time::MAX).then_some((self.deadline, lost));
        let pacing = self.wakes.map(|due| (due, SenderTimeout::Pacing));
        let waits = self.slowed.filter(|_| self.phase == Phase::Connected);
        let opening = waits.map(|at| (at + self.expiry, SenderTimeout::Opening));
        deadline.into_iter().chain(pacing).chain(opening).min_by_key(|(due, _)| *due)
    }

    /// The next segment to send, if it may leave now, and the interfaces that it names.
    pub fn poll_transmit(&mut self, config: &tcp::Config, now: Time) -> Option<(Transmit, Nonces)> {
        self.wakes = None;
        if self.resend {
            self.resend = false;
            let kind = if self.phase == Phase::Connecting { Kind::Syn } else { Kind::Data };
            let again = kind == Kind::Data;
            if again {
                self.recovery = Some(self.recovery.filter(|_| self.backoff == 0).unwrap_or((now, self.next)));
                self.retransmits += 1;
            }
            self.arm(config, now);
            return Some((self.transmit(kind, self.una, again), self.nonces));
        }
        let window = self.una.saturating_add(config.receive_window).max(self.window);
        if self.phase != Phase::Connected || self.next >= self.total.min(window) {
            return None;
        }
        if self.slowed.is_some() {
            self.permits = self.permits.checked_sub(1)?;
        } else {
            if now < self.paced {
                self.wakes = Some(self.paced);
                return None;
            }
            // A rate that is not limited takes no time.
            let gap = (self.bits * 1_000_000_000).checked_div(self.rate).unwrap_or(0);
            self.paced = self.paced.max(now) + Span::from_nanos(gap);
        }
        let seq = self.next;
        self.next += 1;
        if self.deadline == Time::MAX {
            self.arm(config, now);
        }
        Some((self.transmit(Kind::Data, seq, false), self.nonces))
    }

    /// The first segment not acknowledged.
    pub fn una(&self) -> u32 {
        self.una
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub fn srtt(&self) -> Option<Span> {
        self.rtt.smoothed()
    }

    /// The timeout for what is outstanding, before back-off.
    pub fn rto(&self) -> Span {
        self.rtt.rto()
    }

    /// Segments sent again.
    pub fn retransmits(&self) -> u32 {
        self.retransmits
    }

    fn transmit(&self, kind: Kind, seq: u32, again: bool) -> Transmit {
        let last = kind == Kind::Data && self.is_all && seq + 1 == self.total;
        let flags = Flags::when(last, Flags::FIN).with(Flags::when(again, Flags::RETRANSMIT)).with(Flags::CUSTODY);
        Transmit { kind, seq, flags }
    }

    fn arm(&mut self, config: &tcp::Config, now: Time) {
        let outstanding = self.phase == Phase::Connecting || self.una < self.next;
        let timeout = Span::from_nanos(self.rtt.timeout(config, self.backoff));
        self.deadline = if outstanding { now + timeout } else { Time::MAX };
    }
}
