//! CUBIC in the integers of Linux's `tcp_cubic.c`, with its HyStart.
//!
//! RFC 9438 has the function and its reasons. HyStart is the first one, of Ha and Rhee (2008), as Linux has
//! no HyStart++ (RFC 9406).

use super::control::{Pace, Window};

/// What CUBIC remembers, with the names of `struct bictcp`. Times are in nanoseconds, but for those of the cubic function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    /// Segments whose ACKs open the window by one: the kernel has no parts of segments.
    cnt: u32,
    /// RFC 9438 §4.1.2: W_max, the window at which the path was full last. Zero: it never was.
    last_max_cwnd: u32,
    last_cwnd: u32,
    /// Ticks of the clock when the window's growth was computed last.
    last_time: u64,
    /// RFC 9438 §4.2: W_max of this stage, around which the curve is flat, and K, the time until it is reached.
    origin_point: u32,
    k: u32,
    delay_min: u64,
    /// The tick when this congestion avoidance began, or [`NO_EPOCH`].
    epoch_start: u64,
    /// RFC 9438 §4.3: W_est, the window that Reno would have by now, and the ACKs on its way to the next segment.
    ack_cnt: u32,
    tcp_cwnd: u32,
    found: bool,
    /// HyStart: this round ends when the segment is acknowledged; when it began, and when the last ACK of its train came.
    end_seq: u32,
    round_start: u64,
    last_ack: u64,
    curr_rtt: u64,
    samples: u8,
}

/// How HyStart ended a slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Train,
    Delay,
}

/// Congestion avoidance has not begun. The kernel has zero for it, which its clock does not show.
const NO_EPOCH: u64 = u64::MAX;
/// The clock of the cubic function: 2^10 to the second (`BICTCP_HZ`), so that shifts take the place of divisions.
const CLOCK_BITS: u32 = 10;
/// What β is counted in (`BICTCP_BETA_SCALE`): the kernel has no floating point.
const BETA_SCALE: u32 = 1024;
/// RFC 9438 §4.6: β is 0.7, here 717/1024. Halving, as Reno does, leaves a long fast path idle for long after each
/// loss, and above 0.7 flows come to equal shares more slowly.
const BETA: u32 = 717;
/// `bic_scale`: C of RFC 9438 §5.1 for a tenth of a second, in 1/1024.
const SCALE: u64 = 41;
/// RFC 9438 §5.1: C is 0.4, here 410/1024 (`cube_rtt_scale`). With less, CUBIC cannot fill long fast paths; with more,
/// it takes too much from others there.
const CUBE_RTT_SCALE: u64 = SCALE * 10;
/// RFC 9438 §4.2, figure 2: the 1/C under the root of K, in units of the clock cubed (`cube_factor`).
const CUBE_FACTOR: u64 = (1 << (10 + 3 * CLOCK_BITS)) / CUBE_RTT_SCALE;
/// Eight times the ACKs that Reno takes for a segment at β, per segment of window: 8/α with the α of RFC 9438 §4.3,
/// 3·(1 − β)/(1 + β), by which Reno with this β has the mean window of Reno with a half (`beta_scale`).
const FRIENDLY_SCALE: u32 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);

/// `hystart_low_window`: HyStart looks from this window on, as a smaller one has too few ACKs to distinguish a queue from
/// chance.
const LOW_WINDOW: u32 = 16;
/// `hystart_ack_delta_us`: ACKs farther apart are no train, but answers to what was sent later.
const ACK_DELTA: u64 = 2_000_000;
/// `HYSTART_MIN_SAMPLES`, as N_RTT_SAMPLE of RFC 9406 §4.3: the least of this number of times holds no delayed ACK.
const MIN_SAMPLES: u8 = 8;
/// `HYSTART_DELAY_MIN` and `HYSTART_DELAY_MAX`, as MIN_RTT_THRESH and MAX_RTT_THRESH of RFC 9406 §4.3: a smaller rise
/// is jitter on a short path, and to wait for a larger one on a long path would overshoot.
const DELAY_MIN: u64 = 4_000_000;
const DELAY_MAX: u64 = 16_000_000;

impl Cubic {
    pub(super) fn new() -> Self {
        Cubic {
            cnt: 0,
            last_max_cwnd: 0,
            last_cwnd: 0,
            last_time: 0,
            origin_point: 0,
            k: 0,
            delay_min: 0,
            epoch_start: NO_EPOCH,
            ack_cnt: 0,
            tcp_cwnd: 0,
            found: false,
            end_seq: 0,
            round_start: 0,
            last_ack: 0,
            curr_rtt: u64::MAX,
            samples: 0,
        }
    }

    /// The connection is established, or timed out: everything is forgotten (`bictcp_reset`). RFC 9438 §4.8: what the
    /// path carried before a timeout is not known to fit it now, so K is 0 and W_max the window that slow start ends
    /// with.
    pub(super) fn reset(&mut self, now: u64, next: u32) {
        *self = Cubic::new();
        self.begin_round(now, next);
    }

    fn begin_round(&mut self, now: u64, next: u32) {
        (self.round_start, self.last_ack) = (now, now);
        self.end_seq = next;
        self.curr_rtt = u64::MAX;
        self.samples = 0;
    }

    /// The threshold after a loss or a mark (`cubictcp_recalc_ssthresh`).
    pub(super) fn shrink(&mut self, cwnd: u32) -> u32 {
        self.epoch_start = NO_EPOCH;
        // RFC 9438 §4.7, fast convergence: a flow that loses below the last maximum has less to hope for, and leaves room to a
        // new flow.
        let converged = (u64::from(cwnd) * u64::from(BETA_SCALE + BETA) / u64::from(2 * BETA_SCALE)) as u32;
        self.last_max_cwnd = if cwnd < self.last_max_cwnd { converged } else { cwnd };
        // RFC 9438 §4.6: two segments at least, as a window of one would wait for a delayed ACK in each round trip.
        ((u64::from(cwnd) * u64::from(BETA) / u64::from(BETA_SCALE)) as u32).max(2)
    }

    /// The connection sends again after it was idle since `last_sent`: that time does not count
    /// (`cubictcp_cwnd_event`). RFC 9438 §5.8: else the curve would be far above what the path was shown to carry.
    pub(super) fn wake(&mut self, pace: &Pace, last_sent: u64) {
        let (now, since) = (pace.ticks(), last_sent / pace.tick);
        if self.epoch_start != NO_EPOCH && now > since {
            self.epoch_start = (self.epoch_start + now - since).min(now);
        }
    }

    /// Takes the round-trip time of the last segment of an ACK (`cubictcp_acked`); returns whether slow start ends.
    #[inline]
    pub(super) fn sample(&mut self, pace: &Pace, window: &Window, rtt: u64, (una, next): (u32, u32)) -> Option<Exit> {
        // For a second after a recovery times are not those of the path (`cubictcp_acked`): its queue has just drained.
        if self.epoch_start != NO_EPOCH && pace.ticks().saturating_sub(self.epoch_start) < pace.hz() {
            return None;
        }
        let rtt = rtt.max(1);
        if self.delay_min == 0 || rtt < self.delay_min {
            self.delay_min = rtt;
        }
        if self.found || !window.in_slow_start() {
            return None;
        }
        self.look(pace, window, rtt, (una, next))
    }

    /// HyStart (`hystart_update`): a train of ACKs that lasts half of the least round-trip time, or times that have risen.
    ///
    /// Half, as segments are not paced: a train that long fills the way to the receiver, and a longer one waits in a
    /// queue. An eighth of the round trip more than the least shows that queue itself.
    fn look(&mut self, pace: &Pace, window: &Window, rtt: u64, (una, next): (u32, u32)) -> Option<Exit> {
        if una > self.end_seq {
            self.begin_round(pace.now, next);
        }
        if window.cwnd() < LOW_WINDOW {
            return None;
        }
        let mut exit = None;
        if pace.now - self.last_ack <= ACK_DELTA {
            self.last_ack = pace.now;
            if pace.now - self.round_start > (self.delay_min + pace.ack_delay) / 2 {
                self.found = true;
                exit = Some(Exit::Train);
            }
        }
        self.curr_rtt = self.curr_rtt.min(rtt);
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
        } else if self.curr_rtt > self.delay_min + (self.delay_min >> 3).clamp(DELAY_MIN, DELAY_MAX) {
            self.found = true;
            exit = exit.or(Some(Exit::Delay));
        }
        exit
    }

    /// How many acknowledged segments open the window by one (`bictcp_update`).
    pub(super) fn count(&mut self, pace: &Pace, cwnd: u32, acked: u32) -> u32 {
        self.ack_cnt = self.ack_cnt.saturating_add(acked);
        let now = pace.ticks();
        // `HZ / 32`: the curve has not moved enough for another count, and to compute it for each ACK costs.
        if self.last_cwnd == cwnd && now - self.last_time.min(now) <= pace.hz() / 32 {
            return self.cnt;
        }
        if self.epoch_start == NO_EPOCH || now != self.last_time {
            self.last_cwnd = cwnd;
            self.last_time = now;
            self.follow_curve(pace, cwnd, acked);
        }
        self.be_friendly(cwnd);
        // RFC 9438 §4.2: by a half in a round trip at most, so that it never grows as fast as slow start does.
        self.cnt = self.cnt.max(2);
        self.cnt
    }

    /// RFC 9438 §4.2, figure 1: W(t) = C·(t − K)³ + W_max, a round trip ahead, when the ACKs of what is sent now come.
    /// The RFC takes the smoothed round trip, Linux the least, which no queue lengthens.
    fn follow_curve(&mut self, pace: &Pace, cwnd: u32, acked: u32) {
        if self.epoch_start == NO_EPOCH {
            self.epoch_start = pace.ticks();
            self.ack_cnt = acked;
            self.tcp_cwnd = cwnd;
            (self.k, self.origin_point) = match self.last_max_cwnd.checked_sub(cwnd) {
                Some(below) if below > 0 => (cube_root(CUBE_FACTOR * u64::from(below)), self.last_max_cwnd),
                _ => (0, cwnd),
            };
        }
        let ticks = pace.ticks() - self.epoch_start.min(pace.ticks()) + self.delay_min.div_ceil(pace.tick);
        let t = (ticks << CLOCK_BITS) / pace.hz();
        let k = u64::from(self.k);
        let offset = t.abs_diff(k);
        let cube = (u128::from(CUBE_RTT_SCALE) * u128::from(offset).pow(3)) >> (10 + 3 * CLOCK_BITS);
        let delta = u32::try_from(cube).unwrap_or(u32::MAX / 2);
        let target =
            if t < k { self.origin_point.saturating_sub(delta) } else { self.origin_point.saturating_add(delta) };
        // RFC 9438 §4.4 and §4.5: (target − cwnd)/cwnd for each ACK. Above the curve Linux grows by a hundredth of a
        // segment in a round trip, where the RFC stands still.
        self.cnt = if target > cwnd { cwnd / (target - cwnd) } else { 100 * cwnd };
        // The first growth would be too slow while no limit is known: 5 % in a round trip at least (`bictcp_update`).
        if self.last_max_cwnd == 0 {
            self.cnt = self.cnt.min(20);
        }
    }

    /// Grows no slower than Reno with this β (RFC 9438 §4.3), as the curve does where round trips or windows are small.
    /// Linux keeps α when W_est has reached the window before the loss, from where on it is 1 in the RFC.
    fn be_friendly(&mut self, cwnd: u32) {
        let step = (cwnd * FRIENDLY_SCALE) >> 3;
        while self.ack_cnt > step {
            self.ack_cnt -= step;
            self.tcp_cwnd += 1;
        }
        if self.tcp_cwnd > cwnd {
            self.cnt = self.cnt.min(cwnd / (self.tcp_cwnd - cwnd));
        }
    }
}

/// The cube root, rounded down. Linux's is a table and a step of Newton's, 0.2 % off on the mean (`cubic_root`).
fn cube_root(of: u64) -> u32 {
    (of as f64).cbrt() as u32
}
