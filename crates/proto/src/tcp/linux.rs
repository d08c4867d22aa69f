//! The sender of [`Profile::Linux`](crate::tcp::Profile): what Linux 6.x does, with the names of `net/ipv4/tcp_input.c`,
//! `tcp_output.c`, `tcp_timer.c` and `tcp_recovery.c`.
//!
//! Windows and counts are in segments, as Linux's are in packets; times are in nanoseconds.

mod ack;
mod alert;
mod batch;
mod control;
mod cubic;
mod rack;
mod reduction;
mod rtt;
mod segments;
mod timers;
mod transmit;
mod undo;

use sidestep_net::{Span, Time};

use self::{
    control::{Control, Pace, Window},
    rack::Rack,
    rtt::Estimator,
    segments::Segments,
};
use super::{
    Config, Counters, State, clock,
    rtt::back_off,
    timeout::SenderTimeout,
    transfer::{Transfer, flag},
};

/// What a sender keeps beside its [`Transfer`].
// In this order: what every ACK and every segment needs is in the first cache lines, as large simulations are as fast as memory is.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Linux {
    rtt: Estimator,
    /// The timeout with its back-off (`icsk_rto`).
    rto: u64,
    /// When the timer was armed, and for how many nanoseconds; [`Time::MAX`]: it does not run.
    armed: (Time, u64),
    rack: Rack,
    window: Window,
    /// What the timer is for.
    timer: SenderTimeout,
    state: CaState,
    /// What may be sent again once the ACK is handled.
    again: Again,
    /// Timeouts in a row (`icsk_retransmits`).
    retransmits: u8,
    /// A tail loss probe was sent when this was the next segment to send; zero: none is out.
    probe_end: u32,
    /// That probe was a segment that had been sent before.
    probe_again: bool,
    /// A probe must be sent now.
    probing: bool,
    /// F-RTO looks for a spurious timeout (RFC 5682).
    frto: bool,
    /// What `Signals` says of the threshold, not reported yet.
    noted: u16,
    /// The degree of reordering (`tp->reordering`).
    reordering: u32,
    /// New segments that this burst has sent so far.
    burst: u32,
    /// New segments of the present batch that are not sent yet.
    batch: u32,
    used: reduction::Used,
    control: Control,
    /// Length of a tick of the algorithms' clock in nanoseconds, and the ticks that timers wait for.
    tick: u64,
    wheel: clock::Wheel,
    segments: Segments,
    reduction: reduction::Reduction,
    undo: undo::Undo,
    /// The SACK blocks of the last ACK that had some.
    recv_sack_cache: [(u32, u32); 3],
    /// When the first SYN was sent.
    syn_at: u64,
    counters: Counters,
}

/// The state of congestion control (`icsk_ca_state`), in Linux's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CaState {
    Open,
    Disorder,
    Cwr,
    Recovery,
    Loss,
}

/// What `tcp_xmit_recovery` must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Nothing,
    /// What is lost.
    Lost,
    /// New segments, by F-RTO, and what is lost if there are none.
    New,
}

/// Segments out of order that are a loss if none were reordered so far (`tcp_reordering`; RFC 5681 §3.2): fewer are
/// often reordered, and more would leave small windows to the timer.
const REORDERING: u32 = 3;

impl Linux {
    pub(super) fn new(config: &Config) -> Self {
        Linux {
            segments: Segments::new(),
            recv_sack_cache: [(0, 0); 3],
            rack: Rack::new(),
            window: Window::new(config),
            control: Control::new(config),
            rtt: Estimator::new(config),
            state: CaState::Open,
            timer: SenderTimeout::Retransmission,
            armed: (Time::MAX, 0),
            tick: clock::tick(config),
            wheel: clock::Wheel::of(config),
            rto: config.initial_rto.as_nanos(),
            retransmits: 0,
            reordering: REORDERING,
            probe_end: 0,
            probe_again: false,
            probing: false,
            reduction: reduction::Reduction::default(),
            undo: undo::Undo::default(),
            frto: false,
            noted: 0,
            again: Again::Nothing,
            used: reduction::Used::default(),
            burst: 0,
            batch: 0,
            syn_at: 0,
            counters: Counters::default(),
        }
    }

    /// The state of an established connection.
    #[inline]
    pub(super) fn state(&self) -> State {
        match self.state {
            CaState::Open | CaState::Disorder => State::Open,
            CaState::Cwr => State::Reduced,
            CaState::Recovery => State::Recovery,
            CaState::Loss => State::Loss,
        }
    }

    /// The congestion window.
    #[inline]
    pub(super) fn cwnd(&self) -> f64 {
        f64::from(self.window.cwnd())
    }

    /// Changes the congestion window by whole segments, of which two stay.
    #[inline]
    pub(super) fn change_cwnd(&mut self, segments: i32) {
        self.window.set_cwnd(self.window.cwnd().saturating_add_signed(segments).max(2));
    }

    /// Sets the share of the window that a loss leaves, Q16.
    #[inline]
    pub(super) fn set_loss_share(&mut self, share: u32) {
        if let Control::Coupled(kept) = &mut self.control {
            *kept = share;
        }
    }

    /// Halves the congestion window and the threshold.
    pub(super) fn halve(&mut self) {
        self.window.halve();
    }

    /// The slow-start threshold; infinite before the first loss.
    pub(super) fn ssthresh(&self) -> f64 {
        let ssthresh = self.window.ssthresh();
        if ssthresh == control::INFINITE { f64::INFINITY } else { f64::from(ssthresh) }
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub(super) fn srtt(&self) -> Option<Span> {
        self.rtt.smoothed()
    }

    /// The retransmission timeout before back-off.
    pub(super) fn rto(&self) -> Span {
        Span::from_nanos(self.rtt.rto)
    }

    /// Sets the timeout until the first sample.
    pub(super) fn set_rto(&mut self, rto: Span) {
        self.rtt.rto = rto.as_nanos();
    }

    /// Segments in the network, of those that are `outstanding`, and lost ones that wait to be sent again.
    #[inline]
    pub(super) fn pipe(&self, outstanding: u32) -> (u32, u32) {
        let waiting = self.segments.lost.saturating_sub(self.segments.retransmitted);
        (self.segments.in_flight(outstanding), if self.again == Again::Nothing { 0 } else { waiting })
    }

    /// Whether the congestion window allows a segment now, or the SYN must be sent.
    #[inline]
    pub(super) fn window_has_room(&self, transfer: &Transfer) -> bool {
        self.segments.in_flight(transfer.outstanding()) < self.window.cwnd() || transfer.flags & flag::FORCED != 0
    }

    /// What happened.
    pub(super) fn counters(&self, transfer: &Transfer) -> Counters {
        Counters { lost_retransmits: self.segments.lost_again, delivered_ce: transfer.delivered_ce, ..self.counters }
    }

    /// The degree of reordering.
    #[cfg(test)]
    pub(super) fn reordering(&self) -> u32 {
        self.reordering
    }

    #[cfg(test)]
    pub(super) fn audit(&self, una: u32, next: u32) -> ([u32; 3], [u32; 3]) {
        let of = &self.segments;
        ([of.sacked, of.lost, of.retransmitted], of.recount(una, next))
    }

    fn set_state(&mut self, transfer: &Transfer, now: Time, state: CaState) {
        if state == CaState::Loss {
            self.control.reset(now.as_nanos(), transfer.next);
        }
        self.state = state;
    }

    fn pace(&self, transfer: &Transfer, now: Time) -> Pace {
        let pace = Pace::new(self.tick, now);
        if !self.window.in_slow_start() {
            return pace;
        }
        // 64 KiB four times over at the pacing rate, but a millisecond at most (`hystart_ack_delay`): packets that are
        // sent or received as one make a train longer than the path does.
        let rate = pacing_rate((self.cwnd(), self.ssthresh()), self.srtt(), transfer.outstanding());
        let train = (TRAIN_SEGMENTS / rate.max(1e-3)).min(1e-3);
        Pace { ack_delay: (train * 1e9) as u64, ..pace }
    }
}

/// The rate at which Linux would pace, in segments a second (`tcp_update_pacing_rate`), with these windows and this many
/// segments in flight.
pub(super) fn pacing_rate((cwnd, ssthresh): (f64, f64), srtt: Option<Span>, in_flight: u32) -> f64 {
    let srtt = srtt.unwrap_or(Span::from_secs(1));
    let gain = if cwnd < ssthresh / 2.0 { 2.0 } else { 1.2 };
    gain * cwnd.max(f64::from(in_flight)) / srtt.as_secs_f64()
}

/// Segments of 1448 bytes in four times 64 KiB.
const TRAIN_SEGMENTS: f64 = 181.0;
