//! How the congestion window grows and shrinks; windows are in segments.

use sidestep_net::{MaybeTime, Time};

use crate::tcp::{Algorithm, Config};

/// Smallest window after a loss (RFC 5681 §3.1, equation 4): one segment would wait for a delayed ACK in each round
/// trip.
const MIN_WINDOW: f64 = 2.0;
/// Reno's share of the window after a loss (RFC 5681 §3.1, equation 4), Q16.
pub(in crate::tcp) const HALF: u32 = 1 << 15;

/// The congestion window and what its algorithm remembers.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Window {
    pub(in crate::tcp) cwnd: f64,
    pub(in crate::tcp) ssthresh: f64,
    /// The share of the window that a loss leaves to Reno, Q16: a half, unless the MPTCP connection has set another.
    pub(in crate::tcp) kept: u32,
    /// Apart, as Reno has none.
    memory: Option<Box<Memory>>,
}

#[derive(Clone, Copy, Debug)]
enum Memory {
    Cubic(Cubic),
    Dctcp(Dctcp),
    Unreduced,
}

/// The state of CUBIC (RFC 9438), with the names of its section 4.
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    /// When this congestion avoidance began.
    epoch: MaybeTime,
    /// W_max: the window before the last loss, or less by fast convergence (section 4.7). The curve is flat there.
    w_max: f64,
    /// K: how long the curve takes to reach W_max.
    k: f64,
    /// W_est: the window that Reno would have by now.
    w_est: f64,
    /// HyStart++ (RFC 9406): the least round-trip time in seconds of the last round and of this one.
    last_round_rtt: f32,
    round_rtt: f32,
    /// The least round-trip time, in seconds, of the round in which conservative slow start began.
    css_rtt: f32,
    /// Samples in this round, and rounds left of conservative slow start (zero: not in it).
    samples: u8,
    css_rounds: u8,
}

/// The state of DCTCP (RFC 8257, section 3.3).
#[derive(Clone, Copy, Debug)]
struct Dctcp {
    alpha: f64,
    acked: u32,
    marked: u32,
}

/// CUBIC's C, in segments per second cubed (RFC 9438, section 5.1). With 0.04 it could not fill long fast paths; with
/// more than 0.4 it takes too much from others there.
const CUBIC_C: f64 = 0.4;
/// CUBIC's β (RFC 9438, section 4.6). Halving, as Reno does, leaves a long fast path idle for long after each loss;
/// above 0.7 flows come to equal shares more slowly.
const CUBIC_BETA: f64 = 0.7;
/// CUBIC's growth in its Reno-friendly region (RFC 9438, section 4.3), with which the mean window is Reno's.
const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
/// DCTCP's gain g of the estimate α: 1/16 (RFC 8257, section 4.2). With 1 a single round's marks would be all that
/// counts.
const DCTCP_GAIN: f64 = 1.0 / 16.0;
/// The constants of HyStart++ (RFC 9406, section 4.3). N_RTT_SAMPLE: the least of this number of times holds no delayed ACK.
const HYSTART_SAMPLES: u8 = 8;
/// MIN_RTT_THRESH and MAX_RTT_THRESH: a smaller rise is jitter on a short path, and to wait for a larger one on a long
/// path would overshoot.
const HYSTART_MIN_RISE: f32 = 0.004;
const HYSTART_MAX_RISE: f32 = 0.016;
/// CSS_ROUNDS: for this number of rounds the window still grows, as a rise that jitter caused is over by then.
const HYSTART_CSS_ROUNDS: u8 = 5;
/// CSS_GROWTH_DIVISOR: a quarter of slow start's growth, which overshoots little if the rise was no jitter.
const HYSTART_CSS_DIVISOR: f64 = 4.0;

impl Window {
    pub(in crate::tcp) fn new(config: &Config) -> Self {
        let memory = match config.algorithm {
            Algorithm::Reno | Algorithm::Coupled => None,
            Algorithm::Cubic => Some(Memory::Cubic(Cubic { round_rtt: f32::INFINITY, ..Cubic::default() })),
            Algorithm::Dctcp => Some(Memory::Dctcp(Dctcp { alpha: 1.0, acked: 0, marked: 0 })),
            Algorithm::Unreduced => Some(Memory::Unreduced),
        };
        let first =
            if config.algorithm == Algorithm::Unreduced { config.receive_window } else { config.initial_window };
        Window { cwnd: f64::from(first), ssthresh: f64::INFINITY, kept: HALF, memory: memory.map(Box::new) }
    }

    /// Grows the window after `acked` segments were acknowledged while it was the limit; `srtt` is in nanoseconds. Returns for
    /// how many of them the MPTCP connection may grow it.
    #[inline]
    pub(in crate::tcp) fn grow(&mut self, config: &Config, now: Time, acked: u32, srtt: u64) -> u32 {
        let acked = if config.count_acks { 1 } else { acked };
        if self.cwnd < self.ssthresh {
            // RFC 3465, section 2.3, with L = 2: an ACK for two segments opens the window by two, which makes up for
            // delayed ACKs; more would let a burst follow lost ACKs.
            let step = f64::from(acked.min(u32::from(config.ack_every).max(2)));
            match self.memory.as_deref() {
                Some(Memory::Cubic(cubic)) if cubic.css_rounds > 0 => self.cwnd += step / HYSTART_CSS_DIVISOR,
                _ => self.cwnd = (self.cwnd + step).min(self.ssthresh.max(self.cwnd)),
            }
            return 0;
        }
        match self.memory.as_deref_mut() {
            Some(Memory::Cubic(cubic)) => cubic.grow(&mut self.cwnd, now, f64::from(acked), srtt as f64 * 1e-9),
            Some(Memory::Unreduced) => {}
            _ if config.algorithm == Algorithm::Coupled => return acked,
            // RFC 5681, section 3.1: a segment in a round trip.
            _ => self.cwnd += f64::from(acked) / self.cwnd,
        }
        0
    }

    /// Shrinks the window after a loss or, if `marked`, an echoed mark; `flight` segments are in the network.
    pub(in crate::tcp) fn shrink(&mut self, flight: f64, marked: bool) {
        // RFC 5681, section 3.1: what is in flight, as a window that was not used shows nothing about the path.
        let base = flight.min(self.cwnd);
        let window = match self.memory.as_deref_mut() {
            None => base * f64::from(self.kept) / 65_536.0,
            Some(Memory::Cubic(cubic)) => {
                cubic.shrink(base);
                base * CUBIC_BETA
            }
            // RFC 8257, section 3.3, step 9: by as much as is marked; section 3.5: a loss counts as Reno's.
            Some(Memory::Dctcp(dctcp)) if marked => self.cwnd * (1.0 - dctcp.alpha / 2.0),
            Some(Memory::Dctcp(_)) => base * 0.5,
            Some(Memory::Unreduced) => return,
        };
        self.ssthresh = window.max(MIN_WINDOW);
        self.cwnd = self.ssthresh;
    }

    /// Changes the window by whole segments; two stay.
    #[inline]
    pub(in crate::tcp) fn change(&mut self, segments: i32) {
        self.cwnd = (self.cwnd + f64::from(segments)).max(MIN_WINDOW);
    }

    /// Halves the window, and the threshold if there is one.
    pub(in crate::tcp) fn halve(&mut self) {
        self.cwnd = (self.cwnd / 2.0).max(1.0);
        self.ssthresh = (self.ssthresh / 2.0).max(MIN_WINDOW);
    }

    /// Shrinks the window after a retransmission timeout to the loss window, one segment (RFC 5681, section 3.1): no
    /// ACK paces what is sent, so that more would be a burst.
    pub(super) fn collapse(&mut self, flight: f64, first: bool) {
        if first {
            self.shrink(flight, false);
        }
        match self.memory.as_deref_mut() {
            Some(Memory::Cubic(cubic)) => cubic.epoch = MaybeTime::NONE,
            Some(Memory::Unreduced) => return,
            _ => {}
        }
        self.cwnd = 1.0;
    }

    /// Resets the window after an idle time of a timeout (RFC 5681, section 4.1): else a whole window would leave at
    /// once, onto a path that others may have filled.
    pub(super) fn restart(&mut self, config: &Config) {
        if matches!(self.memory.as_deref(), Some(Memory::Unreduced)) {
            return;
        }
        self.cwnd = self.cwnd.min(f64::from(config.initial_window));
        if let Some(Memory::Cubic(cubic)) = self.memory.as_deref_mut() {
            cubic.epoch = MaybeTime::NONE;
        }
    }

    /// Counts delivered and marked segments, for DCTCP (RFC 8257, section 3.3, steps 1 to 3).
    #[inline]
    pub(super) fn count(&mut self, delivered: u32, marked: bool) {
        if let Some(Memory::Dctcp(dctcp)) = self.memory.as_deref_mut() {
            dctcp.acked += delivered;
            dctcp.marked += if marked { delivered } else { 0 };
        }
    }

    /// Takes a round-trip time in nanoseconds, for HyStart++ (RFC 9406, section 4.2): the least of a round, against
    /// that of the round before. Times that fall again in conservative slow start show that the rise was jitter.
    #[inline]
    pub(super) fn sample(&mut self, rtt: u64) {
        if self.cwnd >= self.ssthresh {
            return;
        }
        if let Some(Memory::Cubic(cubic)) = self.memory.as_deref_mut() {
            cubic.round_rtt = cubic.round_rtt.min(rtt as f32 * 1e-9);
            cubic.samples = cubic.samples.saturating_add(1);
            // MIN_RTT_DIVISOR is 8.
            let rise = (cubic.last_round_rtt / 8.0).clamp(HYSTART_MIN_RISE, HYSTART_MAX_RISE);
            if cubic.samples < HYSTART_SAMPLES || cubic.last_round_rtt == 0.0 {
                return;
            }
            let slower = cubic.round_rtt >= cubic.last_round_rtt + rise;
            match cubic.css_rounds {
                0 if slower => (cubic.css_rounds, cubic.css_rtt) = (HYSTART_CSS_ROUNDS, cubic.round_rtt),
                1.. if cubic.round_rtt < cubic.css_rtt => cubic.css_rounds = 0,
                _ => {}
            }
        }
    }

    /// Ends a round trip.
    pub(super) fn round(&mut self) {
        match self.memory.as_deref_mut() {
            Some(Memory::Dctcp(dctcp)) if dctcp.acked > 0 => {
                let share = f64::from(dctcp.marked) / f64::from(dctcp.acked);
                dctcp.alpha += DCTCP_GAIN * (share - dctcp.alpha);
                (dctcp.acked, dctcp.marked) = (0, 0);
            }
            Some(Memory::Cubic(cubic)) if self.cwnd < self.ssthresh => {
                match cubic.css_rounds {
                    1 => {
                        cubic.css_rounds = 0;
                        self.ssthresh = self.cwnd;
                    }
                    0 if cubic.round_rtt.is_finite() => cubic.last_round_rtt = cubic.round_rtt,
                    0 => {}
                    _ => cubic.css_rounds -= 1,
                }
                (cubic.round_rtt, cubic.samples) = (f32::INFINITY, 0);
            }
            _ => {}
        }
    }
}

impl Cubic {
    /// CUBIC's growth (RFC 9438, sections 4.2 to 4.5).
    #[inline]
    fn grow(&mut self, cwnd: &mut f64, now: Time, acked: f64, srtt: f64) {
        if self.epoch.is_none() {
            self.epoch = now.into();
            self.w_est = *cwnd;
            self.w_max = self.w_max.max(*cwnd);
            self.k = ((self.w_max - *cwnd) / CUBIC_C).cbrt();
        }
        let at = |t: f64| CUBIC_C * (t - self.k).powi(3) + self.w_max;
        let t = now.since(self.epoch.get().unwrap_or(now)).as_secs_f64();
        // Section 4.3: once W_est is where the last loss was (cwnd_prior; here W_max), it grows as Reno does.
        let alpha = if self.w_est < self.w_max { CUBIC_ALPHA } else { 1.0 };
        self.w_est += alpha * acked / *cwnd;
        if at(t) < self.w_est {
            *cwnd = cwnd.max(self.w_est);
            return;
        }
        // Section 4.2: never less than now, and by a half in a round trip at most, which is slower than slow start.
        let target = at(t + srtt).clamp(*cwnd, 1.5 * *cwnd);
        *cwnd += (target - *cwnd) * acked / *cwnd;
    }

    /// CUBIC's decrease (RFC 9438, section 4.6), with fast convergence (section 4.7): a flow that loses below the last maximum
    /// leaves room to a new flow.
    fn shrink(&mut self, window: f64) {
        self.w_max = if window < self.w_max { window * (1.0 + CUBIC_BETA) / 2.0 } else { window };
        self.epoch = MaybeTime::NONE;
        self.css_rounds = 0;
    }
}
