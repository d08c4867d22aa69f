//! The congestion window in whole segments, and the algorithms that grow it as Linux does.

use sidestep_net::{Span, Time};

use super::cubic::{Cubic, Exit};
use crate::tcp::{Algorithm, Config, rfc::HALF};

/// The windows, in segments (`snd_cwnd`, `snd_ssthresh`, `snd_cwnd_cnt`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    cwnd: u32,
    ssthresh: u32,
    credit: u32,
}

/// No loss was known yet (`TCP_INFINITE_SSTHRESH`). RFC 5681 §3.1: so high that the path sets the limit, and no guess
/// does.
pub(super) const INFINITE: u32 = 0x7fff_ffff;

/// The clock as the algorithms see it, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) now: u64,
    /// Length of a tick.
    pub(super) tick: u64,
    /// How much longer a train of ACKs may last (`hystart_ack_delay`).
    pub(super) ack_delay: u64,
}

impl Pace {
    pub(super) fn new(tick: u64, now: Time) -> Self {
        Pace { now: now.as_nanos(), tick, ack_delay: 0 }
    }

    pub(super) fn ticks(&self) -> u64 {
        self.now / self.tick
    }

    pub(super) fn hz(&self) -> u64 {
        Span::from_secs(1).as_nanos() / self.tick
    }
}

/// What an algorithm remembers.
#[derive(Clone, Debug)]
pub(super) enum Control {
    Reno,
    /// Apart, as it is larger than the others.
    Cubic(Box<Cubic>),
    Dctcp(Dctcp),
    /// The growth in congestion avoidance is left to the MPTCP connection, which also sets the share of the window that a loss
    /// leaves, Q16.
    Coupled(u32),
    /// It has this many segments, but while it grows back after a timeout.
    Unreduced(u32),
}

/// DCTCP with Linux's integers (`tcp_dctcp.c`): α in units of 1/1024.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dctcp {
    alpha: u32,
    delivered: u32,
    marked: u32,
    round_end: u32,
}

/// `DCTCP_MAX_ALPHA`: all is marked. RFC 8257 §3.3: α begins there, so that the first mark halves the window as Reno
/// would.
const DCTCP_MAX_ALPHA: u32 = 1024;
/// `dctcp_shift_g`: the gain g is 1/16 (RFC 8257 §4.2). With 1 each round's marks would count alone, with 0 none ever
/// would.
const DCTCP_SHIFT_G: u32 = 4;

impl Window {
    pub(super) fn new(config: &Config) -> Self {
        let unreduced = config.algorithm == Algorithm::Unreduced;
        let cwnd = if unreduced { config.receive_window } else { config.initial_window };
        Window { cwnd, ssthresh: INFINITE, credit: 0 }
    }

    /// The window.
    #[inline]
    pub(super) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// The threshold.
    #[inline]
    pub(super) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    #[inline]
    pub(super) fn set_cwnd(&mut self, segments: u32) {
        self.cwnd = segments;
    }

    #[inline]
    pub(super) fn set_ssthresh(&mut self, segments: u32) {
        self.ssthresh = segments;
    }

    /// Halves the window, and the threshold if there is one.
    pub(super) fn halve(&mut self) {
        self.cwnd = (self.cwnd / 2).max(1);
        if self.ssthresh < INFINITE {
            self.ssthresh = (self.ssthresh / 2).max(2);
        }
    }

    #[inline]
    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    pub(super) fn forget_credit(&mut self) {
        self.credit = 0;
    }

    /// Slow start counts every acknowledged segment (`tcp_slow_start`); returns those beyond the threshold. RFC 3465
    /// §2.3 would count two of an ACK; Linux counts all, as a receiver that takes many packets at once answers them at
    /// once.
    fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - (cwnd - self.cwnd);
        self.set_cwnd(cwnd);
        left
    }

    /// Grows by one segment for each `count` that are acknowledged (`tcp_cong_avoid_ai`). RFC 5681 §3.1: counted, and
    /// not by a part of a segment for each ACK, which integers would round to nothing.
    fn avoid(&mut self, count: u32, acked: u32) {
        if self.credit >= count {
            self.credit = 0;
            self.set_cwnd(self.cwnd + 1);
        }
        self.credit += acked;
        if self.credit >= count {
            self.set_cwnd(self.cwnd + self.credit / count);
            self.credit %= count;
        }
    }
}

impl Control {
    pub(super) fn new(config: &Config) -> Self {
        match config.algorithm {
            Algorithm::Reno => Control::Reno,
            Algorithm::Unreduced => Control::Unreduced(config.receive_window),
            Algorithm::Cubic => Control::Cubic(Box::new(Cubic::new())),
            Algorithm::Dctcp => Control::Dctcp(Dctcp { alpha: DCTCP_MAX_ALPHA, delivered: 0, marked: 0, round_end: 0 }),
            Algorithm::Coupled => Control::Coupled(HALF),
        }
    }

    /// The connection is established, or timed out.
    pub(super) fn reset(&mut self, now: u64, next: u32) {
        if let Control::Cubic(cubic) = self {
            cubic.reset(now, next);
        }
    }

    /// Grows the window after `acked` segments were acknowledged; returns for how many the MPTCP connection may.
    #[inline]
    pub(super) fn grow(&mut self, pace: &Pace, window: &mut Window, acked: u32) -> u32 {
        let mut acked = acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
            if acked == 0 {
                return 0;
            }
        }
        let count = match self {
            Control::Cubic(cubic) => cubic.count(pace, window.cwnd(), acked),
            Control::Reno | Control::Dctcp(_) => window.cwnd(),
            Control::Coupled(_) => return acked,
            Control::Unreduced(_) => return 0,
        };
        window.avoid(count, acked);
        0
    }

    /// The threshold after a loss or a mark.
    pub(super) fn shrink(&mut self, cwnd: u32, marked: bool) -> u32 {
        match self {
            Control::Unreduced(window) => *window,
            Control::Cubic(cubic) => cubic.shrink(cwnd),
            Control::Dctcp(dctcp) if marked => {
                // RFC 8257 §3.3, step 9: α/2 of the window, with α in 1/1024.
                let less = (u64::from(cwnd) * u64::from(dctcp.alpha)) >> 11;
                cwnd.saturating_sub(less as u32).max(2)
            }
            // `tcp_reno_ssthresh`; RFC 5681 §3.1, equation 4, has what is in flight for the window. RFC 8257 §3.5:
            // DCTCP meets a loss as Reno does, since marks did not prevent it.
            Control::Reno | Control::Dctcp(_) => (cwnd / 2).max(2),
            Control::Coupled(kept) => (((u64::from(cwnd) * u64::from(*kept)) >> 16) as u32).max(2),
        }
    }

    /// Whether something else limits the rate.
    #[inline]
    pub(super) fn is_unreduced(&self) -> bool {
        matches!(self, Control::Unreduced(_))
    }

    /// Whether it looks at round-trip times.
    #[inline]
    pub(super) fn watches_delay(&self) -> bool {
        matches!(self, Control::Cubic(_))
    }

    /// Takes the round-trip time of the last segment of an ACK.
    #[inline]
    pub(super) fn sample(&mut self, pace: &Pace, window: &Window, rtt: u64, ends: (u32, u32)) -> Option<Exit> {
        match self {
            Control::Cubic(cubic) => cubic.sample(pace, window, rtt, ends),
            _ => None,
        }
    }

    /// The connection sends again after it was idle.
    pub(super) fn wake(&mut self, pace: &Pace, last_sent: u64) {
        if let Control::Cubic(cubic) = self {
            cubic.wake(pace, last_sent);
        }
    }

    /// Counts delivered and marked segments, for DCTCP (`dctcp_update_alpha`; RFC 8257 §3.3, steps 1 to 8).
    #[inline]
    pub(super) fn count(&mut self, delivered: u32, marked: bool, (una, next): (u32, u32)) {
        let Control::Dctcp(dctcp) = self else { return };
        dctcp.delivered += delivered;
        dctcp.marked += if marked { delivered } else { 0 };
        if una < dctcp.round_end {
            return;
        }
        let less = dctcp.alpha >> DCTCP_SHIFT_G;
        // RFC 8257 §4.2: what a shift takes nothing from any more is zero, or α would never reach that.
        let mut now = if less == 0 { 0 } else { dctcp.alpha - less };
        if dctcp.marked > 0 {
            let share = (u64::from(dctcp.marked) << (10 - DCTCP_SHIFT_G)) / u64::from(dctcp.delivered.max(1));
            now = (now + share as u32).min(DCTCP_MAX_ALPHA);
        }
        *dctcp = Dctcp { alpha: now, delivered: 0, marked: 0, round_end: next };
    }
}
