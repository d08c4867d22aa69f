//! How the window shrinks, by proportional rate reduction (RFC 6937; as Linux has it, its successor, RFC 9937), and
//! when it may grow.

use sidestep_net::Time;

use super::{CaState, Linux, control::INFINITE};
use crate::tcp::{
    Config,
    signals::{Acked, Signals},
    transfer::Transfer,
};

/// A reduction of the window that is under way, with Linux's names (RFC 9937 §6.1). Where Linux has the window before
/// it, the RFC has what was in flight then (RecoverFS).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    pub(super) prior_cwnd: u32,
    pub(super) prior_ssthresh: u32,
    prr_delivered: u32,
    pub(super) prr_out: u32,
}

/// How much of the window is used (`tcp_cwnd_validate`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) limited: bool,
    most: u32,
    round_end: u32,
    /// When the window might last grow or shrink (`snd_cwnd_stamp`), and the most that was used of it since it was used fully.
    pub(super) since: u64,
    pub(super) segments: u32,
}

impl Linux {
    pub(super) fn in_reduction(&self) -> bool {
        matches!(self.state, CaState::Cwr | CaState::Recovery)
    }

    /// The threshold that slow start should have after a pause (`tcp_current_ssthresh`). RFC 2861 §3: three quarters of
    /// the window are what it was on the mean, as it swings between a half and the whole of its maximum.
    pub(super) fn current_ssthresh(&self) -> u32 {
        if self.in_reduction() {
            return self.window.ssthresh();
        }
        self.window.ssthresh().max((self.window.cwnd() >> 1) + (self.window.cwnd() >> 2))
    }

    /// Ends a reduction (`tcp_end_cwnd_reduction`; RFC 9937 §6.4): the window is the threshold, however little was in
    /// flight.
    pub(super) fn end_reduction(&mut self) {
        if self.window.ssthresh() < INFINITE && (self.state == CaState::Cwr || self.undo.is_possible()) {
            self.window.set_cwnd(self.window.ssthresh());
        }
    }

    /// What proportional rate reduction lets out after an ACK (`tcp_cwnd_reduction`; RFC 9937 §6.2).
    ///
    /// Above the threshold it lets out as many of the segments that arrive as the window should keep, so that sending
    /// slows down over a round trip and does not pause for half of one. Below it nothing more leaves than has arrived
    /// (PRR-CRB), and one more where an ACK advances and reports no new loss (PRR-SSRB), as only then the path can bear
    /// more.
    pub(super) fn reduce(&mut self, outstanding: u32, delivered: u32, lost: u32, advanced: bool) {
        let of = &mut self.reduction;
        if delivered == 0 || of.prior_cwnd == 0 {
            return;
        }
        of.prr_delivered += delivered;
        let in_flight = self.segments.in_flight(outstanding);
        let (ssthresh, prior) = (u64::from(self.window.ssthresh()), u64::from(of.prior_cwnd));
        let mut count = if in_flight > self.window.ssthresh() {
            let allowed = (ssthresh * u64::from(of.prr_delivered)).div_ceil(prior) as i64;
            allowed - i64::from(of.prr_out)
        } else {
            let room = i64::from(self.window.ssthresh() - in_flight);
            let behind = i64::from(of.prr_delivered) - i64::from(of.prr_out);
            let count = behind.max(i64::from(delivered)) + i64::from(advanced && lost == 0);
            count.min(room)
        };
        // RFC 9937 §6.2: the first segment of a recovery is sent again at once, as all that follows waits for its ACK.
        count = count.max(i64::from(of.prr_out == 0)).max(0);
        self.window.set_cwnd(in_flight + count as u32);
    }

    /// Whether the window, and nothing else, keeps segments back (`tcp_is_cwnd_limited`). RFC 2861 §3: a window that is
    /// not full shows nothing of what the path can carry. In slow start half of it is enough, so that it doubles.
    pub(super) fn is_window_limited(&self) -> bool {
        self.used.limited || self.window.in_slow_start() && self.window.cwnd() < 2 * self.used.most
    }

    /// Notes after a burst how much of the window is used (`tcp_cwnd_validate`).
    pub(super) fn validate(&mut self, config: &Config, now: u64, (una, next): (u32, u32), limited: bool) {
        let outstanding = next - una;
        let used = &mut self.used;
        if una >= used.round_end || limited || !used.limited && outstanding > used.most {
            (used.limited, used.most, used.round_end) = (limited, outstanding, next);
        }
        if self.is_window_limited() {
            (self.used.segments, self.used.since) = (0, now);
            return;
        }
        self.used.segments = self.used.segments.max(outstanding);
        if config.idle_restart && now - self.used.since >= self.rto {
            self.shrink_unused(config);
            self.used.since = now;
        }
    }

    /// The application has not used the window for a timeout (`tcp_cwnd_application_limited`). RFC 2861 §3.1: the
    /// window goes half of the way to what was used, as nothing has shown recently that the path carries the rest.
    fn shrink_unused(&mut self, config: &Config) {
        if self.state != CaState::Open {
            return;
        }
        let used = self.used.segments.max(config.initial_window);
        if used < self.window.cwnd() {
            self.window.set_ssthresh(self.current_ssthresh());
            self.window.set_cwnd((self.window.cwnd() + used) / 2);
        }
        self.used.segments = 0;
    }

    /// The connection was idle for `idle`: the window halves for each timeout (`tcp_cwnd_restart`). RFC 2861 §3.1 and
    /// RFC 5681 §4.1: no ACK paces what is sent next, and others may have taken the path's rate.
    pub(super) fn restart(&mut self, config: &Config, now: u64, idle: u64) {
        self.window.set_ssthresh(self.current_ssthresh());
        let least = config.initial_window.min(self.window.cwnd());
        let mut left = idle.saturating_sub(self.rto);
        while left > 0 && self.window.cwnd() > least {
            self.window.set_cwnd(self.window.cwnd() / 2);
            left = left.saturating_sub(self.rto);
        }
        self.window.set_cwnd(self.window.cwnd().max(least));
        (self.used.segments, self.used.since) = (0, now);
    }

    /// Begins a reduction (`tcp_init_cwnd_reduction`).
    pub(super) fn begin_reduction(&mut self, transfer: &mut Transfer, marked: bool) {
        transfer.recover = transfer.next;
        self.probe_end = 0;
        self.window.forget_credit();
        self.reduction.prior_cwnd = self.window.cwnd();
        (self.reduction.prr_delivered, self.reduction.prr_out) = (0, 0);
        self.shrink(marked);
        transfer.announce_reduction();
    }

    /// Sets the threshold after a loss or a mark (`icsk_ca_ops->ssthresh`).
    pub(super) fn shrink(&mut self, marked: bool) {
        self.window.set_ssthresh(self.control.shrink(self.window.cwnd(), marked));
        self.noted |= Signals::SHRUNK;
    }

    /// Reduces or grows the window after an ACK (`tcp_cong_control`).
    pub(super) fn control(
        &mut self,
        transfer: &Transfer,
        (config, now): (&Config, Time),
        (acked, sacked): (&mut Acked, bool),
        lost: u32,
    ) {
        let advanced = acked.segments > 0;
        if self.in_reduction() {
            return self.reduce(transfer.outstanding(), acked.delivered, lost, advanced);
        }
        // `tcp_may_raise_cwnd`: where much is reordered, few ACKs advance.
        let reordered = self.reordering > super::REORDERING;
        let may_grow = advanced || reordered && sacked;
        if may_grow {
            // Whether it grows or not (`tcp_cong_avoid`).
            self.used.since = now.as_nanos();
        }
        if may_grow && acked.delivered > 0 && self.is_window_limited() {
            let count = if config.count_acks { 1 } else { acked.delivered };
            let pace = super::control::Pace::new(self.tick, now);
            acked.in_avoidance = self.control.grow(&pace, &mut self.window, count);
        }
    }
}
