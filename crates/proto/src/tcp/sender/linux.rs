//! The sender of [`Profile::Linux`](crate::tcp::Profile): what Linux 6.x does, with the names of `net/ipv4/tcp_input.c`,
//! `tcp_output.c`, `tcp_timer.c` and `tcp_recovery.c`.
//!
//! Windows and counts are in segments, as Linux's are in packets; times are in nanoseconds.

mod ack;
mod alert;
mod control;
mod cubic;
mod rack;
mod reduction;
mod rtt;
mod segments;
mod timers;
mod transmit;
mod undo;

use sidestep_model::Time;

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
#[derive(Clone, Debug)]
pub(super) struct Linux {
    segments: Segments,
    rack: Rack,
    window: Window,
    /// The windows that the other half shows, in whole segments.
    shown: (u32, u32),
    control: Control,
    rtt: Estimator,
    state: CaState,
    /// What the timer is for, when it was armed, and for how many nanoseconds.
    timer: SenderTimeout,
    armed: (Time, u64),
    /// Lengths of ticks in nanoseconds: of the algorithms' clock, and of the timers', zero if these are exact.
    tick: u64,
    wheel_tick: u64,
    /// The timeout with its back-off (`icsk_rto`), and timeouts in a row (`icsk_retransmits`).
    rto: u64,
    retransmits: u8,
    /// The degree of reordering (`tp->reordering`).
    reordering: u32,
    /// A tail loss probe was sent when this was the next segment to send; zero: none is out.
    probe_end: u32,
    /// That probe was a segment that had been sent before.
    probe_again: bool,
    /// A probe is to be sent now.
    probing: bool,
    reduction: reduction::Reduction,
    undo: undo::Undo,
    /// F-RTO looks for a timeout in vain (RFC 5682).
    frto: bool,
    /// What may be sent again once the ACK is handled.
    again: Again,
    used: reduction::Used,
    /// New segments that this burst has sent so far.
    burst: u32,
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

/// Segments out of order that are a loss if none were reordered so far (`tcp_reordering`).
const REORDERING: u32 = 3;

impl Linux {
    /// What a sender with these settings keeps; `None`: its profile is another, or something else limits its rate.
    pub(super) fn of(config: &Config) -> Option<Box<Linux>> {
        config.is_linux().then(|| Box::new(Linux::new(config)))
    }

    fn new(config: &Config) -> Self {
        Linux {
            segments: Segments::new(),
            rack: Rack::new(),
            window: Window::new(config),
            shown: (0, 0),
            control: Control::new(config),
            rtt: Estimator::default(),
            state: CaState::Open,
            timer: SenderTimeout::Retransmission,
            armed: (Time::ZERO, 0),
            tick: clock::tick(config),
            wheel_tick: clock::wheel_tick(config),
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

    /// Takes the windows as others may have set them: the MPTCP connection.
    fn load(&mut self, window: &crate::tcp::congestion::Window) {
        if window.cwnd != f64::from(self.shown.0) {
            self.window.cwnd = window.cwnd as u32;
            self.shown.0 = self.window.cwnd;
        }
        if window.ssthresh != f64::from(self.shown.1) {
            self.window.ssthresh = (window.ssthresh as u32).min(control::INFINITE);
            self.shown.1 = self.window.ssthresh;
        }
    }

    fn store(&mut self, window: &mut crate::tcp::congestion::Window) {
        if self.window.cwnd != self.shown.0 {
            self.shown.0 = self.window.cwnd;
            window.cwnd = f64::from(self.window.cwnd);
        }
        if self.window.ssthresh != self.shown.1 {
            self.shown.1 = self.window.ssthresh;
            let infinite = self.window.ssthresh == control::INFINITE;
            window.ssthresh = if infinite { f64::INFINITY } else { f64::from(self.window.ssthresh) };
        }
    }
}

impl Sender {
    /// Calls `act` with the Linux half and the windows of both brought into line.
    #[inline]
    pub(super) fn with_linux<R: Default>(&mut self, act: impl FnOnce(&mut Self, &mut Linux) -> R) -> R {
        let Some(mut linux) = self.linux.take() else { return R::default() };
        linux.load(&self.window);
        let result = act(self, &mut linux);
        linux.store(&mut self.window);
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
        // 64 KiB four times over at the pacing rate, but a millisecond at most.
        let train = (TRAIN_SEGMENTS / self.pacing_rate().max(1e-3)).min(1e-3);
        Pace { ack_delay: (train * 1e9) as u64, ..pace }
    }
}

/// Segments of 1448 bytes in four times 64 KiB.
const TRAIN_SEGMENTS: f64 = 181.0;
