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

use sidestep_net::Time;

use self::{
    control::{Control, Pace, Window},
    rack::Rack,
    rtt::Estimator,
    segments::Segments,
};
use super::{Sender, State, Transmit};
use crate::{
    packet::Packet,
    tcp::{Config, Counters, clock, signals::Acked, timeout::SenderTimeout},
};

/// What a sender keeps beside what both profiles have.
// In this order: what every ACK and every segment needs is in the first cache lines, as large simulations are as fast as memory is.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Linux {
    rtt: Estimator,
    /// The timeout with its back-off (`icsk_rto`).
    rto: u64,
    /// When the timer was armed, and for how many nanoseconds.
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
    /// A probe is to be sent now.
    probing: bool,
    /// F-RTO looks for a timeout in vain (RFC 5682).
    frto: bool,
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

/// What `tcp_xmit_recovery` is to do.
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
    /// What a sender with these settings keeps; `None`: its profile is another, or something else limits its rate.
    pub(super) fn of(config: &Config) -> Option<Box<Linux>> {
        config.is_linux().then(|| Box::new(Linux::new(config)))
    }

    fn new(config: &Config) -> Self {
        Linux {
            segments: Segments::new(),
            recv_sack_cache: [(0, 0); 3],
            rack: Rack::new(),
            window: Window::new(config),
            control: Control::new(config),
            rtt: Estimator::default(),
            state: CaState::Open,
            timer: SenderTimeout::Retransmission,
            armed: (Time::ZERO, 0),
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
            again: Again::Nothing,
            used: reduction::Used::default(),
            burst: 0,
            batch: 0,
            syn_at: 0,
            counters: Counters::default(),
        }
    }

    pub(super) fn timer(&self) -> SenderTimeout {
        self.timer
    }

    pub(super) fn in_flight(&self, outstanding: u32) -> u32 {
        self.segments.in_flight(outstanding)
    }

    /// Lost segments that wait to be sent again.
    pub(super) fn waiting(&self) -> u32 {
        if self.again == Again::Nothing { 0 } else { self.segments.lost.saturating_sub(self.segments.retransmitted) }
    }

    pub(super) fn counters(&self) -> Counters {
        Counters { lost_retransmits: self.segments.lost_again, ..self.counters }
    }

    #[cfg(test)]
    pub(super) fn audit(&self, una: u32, next: u32) -> ([u32; 3], [u32; 3]) {
        let of = &self.segments;
        ([of.sacked, of.lost, of.retransmitted], of.recount(una, next))
    }

    /// Takes the congestion window as another has set it: the MPTCP connection.
    #[inline]
    pub(super) fn take_cwnd(&mut self, segments: f64) {
        self.window.cwnd = segments as u32;
    }

    /// Takes the slow-start threshold as another has set it.
    #[inline]
    pub(super) fn take_ssthresh(&mut self, segments: f64) {
        self.window.ssthresh = (segments as u32).min(control::INFINITE);
    }
}

impl Sender {
    /// Calls `act` with the Linux half; where that changes the windows, the other half shows them, too.
    #[inline]
    pub(super) fn with_linux<R: Default>(&mut self, act: impl FnOnce(&mut Self, &mut Linux) -> R) -> R {
        let Some(mut linux) = self.linux.take() else { return R::default() };
        let (cwnd, ssthresh) = (linux.window.cwnd, linux.window.ssthresh);
        let result = act(self, &mut linux);
        let window = &linux.window;
        // What another has set may have a fraction, which stays as long as the whole segments do.
        if window.cwnd != cwnd {
            self.window.cwnd = f64::from(window.cwnd);
        }
        if window.ssthresh != ssthresh {
            let infinite = window.ssthresh == control::INFINITE;
            self.window.ssthresh = if infinite { f64::INFINITY } else { f64::from(window.ssthresh) };
        }
        self.linux = Some(linux);
        result
    }

    // Apart from what the other profile does, so that this stays as small as it was.
    #[inline(never)]
    pub(super) fn take_linux_ack(&mut self, config: &Config, now: Time, packet: &Packet) -> Acked {
        self.with_linux(|own, linux| own.handle_linux_ack(linux, config, now, packet))
    }

    #[inline(never)]
    pub(super) fn poll_linux(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        self.with_linux(|own, linux| own.next_segment(linux, config, now))
    }

    /// The degree of reordering; `None`: the profile is another.
    #[cfg(test)]
    pub(in crate::tcp) fn reordering(&self) -> Option<u32> {
        self.linux.as_ref().map(|linux| linux.reordering)
    }

    fn set_state(&mut self, linux: &mut Linux, now: Time, state: CaState) {
        if state == CaState::Loss {
            linux.control.reset(now.as_nanos(), self.next);
        }
        linux.state = state;
        self.state = match state {
            CaState::Open | CaState::Disorder => State::Open,
            CaState::Cwr => State::Reduced,
            CaState::Recovery => State::Recovery,
            CaState::Loss => State::Loss,
        };
    }

    fn outstanding(&self) -> u32 {
        self.next - self.una
    }

    fn pace(&self, linux: &Linux, now: Time) -> Pace {
        let pace = Pace::new(linux.tick, now);
        if !linux.window.in_slow_start() {
            return pace;
        }
        // 64 KiB four times over at the pacing rate, but a millisecond at most (`hystart_ack_delay`): packets that are
        // sent or received as one make a train longer than the path does.
        let train = (TRAIN_SEGMENTS / self.pacing_rate().max(1e-3)).min(1e-3);
        Pace { ack_delay: (train * 1e9) as u64, ..pace }
    }
}

/// Segments of 1448 bytes in four times 64 KiB.
const TRAIN_SEGMENTS: f64 = 181.0;
