//! The timers: retransmission, tail loss probe, reordering (`tcp_timer.c`), on the kernel's clock.

use sidestep_net::{Span, Time};

use super::{super::Sender, Again, CaState, Linux};
use crate::{
    packet::Packet,
    tcp::{Config, rtt::RoundTrip, signals::Signals, timeout::SenderTimeout},
};

/// What timers of a few milliseconds have on top (`TCP_TIMEOUT_MIN_US`): less, and a coarse clock would fire too early.
const LEAST: u64 = 2_000_000;
/// SYNs that are sent at equal distances after the first (`tcp_syn_linear_timeouts`). RFC 6298 §5, rule 5.5, would
/// double from the first on, so that two lost SYNs cost three seconds.
const LINEAR_SYNS: u8 = 4;

impl Linux {
    /// A time before which the timer that was armed last does not fire.
    #[inline]
    pub(in crate::tcp::sender) fn earliest(&self) -> Time {
        let (now, after) = self.armed;
        now + Span::from_nanos(after)
    }

    /// When the timer fires that was armed last.
    pub(in crate::tcp::sender) fn due(&self) -> Time {
        let (now, after) = self.armed;
        self.wheel.fires_at(now, after)
    }

    /// Whether a tail loss probe may be scheduled (`tcp_schedule_loss_probe`).
    #[inline]
    pub(super) fn may_probe(&self, config: &Config) -> bool {
        matches!(self.state, CaState::Open | CaState::Cwr) && config.sack
    }

    /// The timer of the SYN fired; `lost_again`: what is lost had been sent again (`tcp_mark_skb_lost`).
    pub(in crate::tcp::sender) fn count_syn_timeout(&mut self, lost_again: bool) {
        self.counters.timeouts += 1;
        self.segments.lost_again += u32::from(lost_again);
    }

    /// When the SYN that is sent now, after so many others, goes again: after times that are equal for the first five, and then
    /// double.
    pub(in crate::tcp::sender) fn syn_due(&mut self, config: &Config, now: Time, own: &RoundTrip, sent: u8) -> Time {
        if sent == 0 {
            self.syn_at = now.as_nanos();
        }
        self.wheel.fires_at(now, own.timeout(config, sent.saturating_sub(LINEAR_SYNS)))
    }
}

impl Sender {
    fn arm(&mut self, linux: &mut Linux, now: Time, after: u64, timer: SenderTimeout) {
        linux.timer = timer;
        // The clock's tick is computed when somebody asks: most timers are set again before.
        linux.armed = (now, after);
        self.deadline = now;
    }

    /// Starts the retransmission timer anew, from when its segment was sent if another timer ran meanwhile
    /// (`tcp_rearm_rto`).
    pub(super) fn rearm(&mut self, linux: &mut Linux, now: Time) {
        if self.una == self.next {
            self.deadline = Time::MAX;
            return;
        }
        if self.deadline != Time::MAX && linux.timer != SenderTimeout::Retransmission {
            return self.rearm_as_sent(linux, now);
        }
        self.arm(linux, now, linux.rto, SenderTimeout::Retransmission);
    }

    /// Starts the retransmission timer from when its segment was sent, as another timer ran, or fired.
    fn rearm_as_sent(&mut self, linux: &mut Linux, now: Time) {
        let after = self.until_timeout(linux, now).max(1);
        self.arm(linux, now, after, SenderTimeout::Retransmission);
    }

    /// How far the timeout of the first segment is away; zero: it is over (`tcp_rto_delta_us`).
    fn until_timeout(&self, linux: &Linux, now: Time) -> u64 {
        (linux.segments.sent_at(self.una) + linux.rto).saturating_sub(now.as_nanos())
    }

    /// Sets the timer after an ACK (`tcp_set_xmit_timer`).
    pub(super) fn set_timer(&mut self, linux: &mut Linux, config: &Config, now: Time) {
        if !self.schedule_probe(linux, config, now, true) {
            self.rearm(linux, now);
        }
    }

    /// Sets the timer for a tail loss probe (`tcp_schedule_loss_probe`); `anew`: the timeout begins now.
    ///
    /// RFC 8985 §7.2: two smoothed round trips, as one would be over before ACKs that are a little late; more where one
    /// segment is out, whose ACK the receiver may delay (TLP.max_ack_delay); a second where no round trip is known; no
    /// later than the timeout.
    pub(super) fn schedule_probe(&mut self, linux: &mut Linux, config: &Config, now: Time, anew: bool) -> bool {
        if self.una == self.next || !linux.may_probe(config) {
            return false;
        }
        let srtt = linux.rtt.srtt();
        let mut after = match srtt {
            0 => Span::from_secs(1).as_nanos(),
            _ if self.outstanding() == 1 => 2 * srtt + config.min_rto.as_nanos(),
            _ => 2 * srtt + LEAST,
        };
        let timeout = if anew { linux.rto } else { self.until_timeout(linux, now) };
        if timeout > 0 {
            after = after.min(timeout);
        }
        self.arm(linux, now, after, SenderTimeout::LossProbe);
        true
    }

    /// Segments may be reordered: looks again later (`tcp_rack_mark_lost`).
    pub(super) fn wait_for_reordered(&mut self, linux: &mut Linux, now: Time, wait: u64) {
        let after = (wait + LEAST).min(linux.rto);
        self.arm(linux, now, after, SenderTimeout::Reordering);
    }

    /// Handles the timer that is due.
    pub(in crate::tcp::sender) fn handle_linux_timeout(
        &mut self,
        linux: &mut Linux,
        config: &Config,
        now: Time,
    ) -> Signals {
        if self.una == self.next {
            self.deadline = Time::MAX;
            return Signals::default();
        }
        match linux.timer {
            SenderTimeout::LossProbe => self.probe(linux, now),
            SenderTimeout::Reordering => self.handle_reordering(linux, now),
            SenderTimeout::Retransmission | SenderTimeout::Syn => self.handle_loss(linux, config, now),
        }
    }

    /// `tcp_send_loss_probe`: a new segment if there is one, else the last one again.
    fn probe(&mut self, linux: &mut Linux, now: Time) -> Signals {
        // RFC 8985 §7.3: at most one is out, so that probes never exceed the window by more than a segment.
        if linux.probe_end > 0 {
            self.rearm_as_sent(linux, now);
            return Signals::default();
        }
        linux.probing = true;
        linux.counters.loss_probes += 1;
        self.deadline = Time::MAX;
        self.rearm(linux, now);
        Signals { bits: Signals::PROBE }
    }

    /// `tcp_rack_reo_timeout`.
    fn handle_reordering(&mut self, linux: &mut Linux, now: Time) -> Signals {
        let (before, marked) = (linux.segments.in_flight(self.outstanding()), linux.segments.marked);
        let mut signals = Signals { bits: Signals::PROBE };
        self.detect_losses(linux, now);
        if linux.segments.in_flight(self.outstanding()) != before {
            if linux.state != CaState::Recovery {
                self.enter_recovery_linux(linux, now, false);
                let lost = linux.segments.marked.wrapping_sub(marked);
                linux.reduce(self.outstanding(), 1, lost, false);
                signals.bits |= Signals::RECOVERY;
            }
            linux.again = Again::Lost;
        }
        self.rearm_as_sent(linux, now);
        signals
    }

    /// The first segment is taken for lost (`tcp_retransmit_timer`, `tcp_enter_loss`).
    fn handle_loss(&mut self, linux: &mut Linux, config: &Config, now: Time) -> Signals {
        linux.counters.timeouts += 1;
        let new_recovery = linux.state < CaState::Recovery;
        self.mark_all_but_recent(linux, now);
        // RFC 5681 §3.1: the threshold halves once for a loss, and not with each timeout for it.
        let is_new = linux.state <= CaState::Disorder || self.recover <= self.una;
        if is_new || linux.state == CaState::Loss && linux.retransmits == 0 {
            linux.reduction.prior_ssthresh = linux.current_ssthresh();
            linux.reduction.prior_cwnd = linux.window.cwnd;
            linux.window.ssthresh = linux.control.shrink(linux.window.cwnd, false);
            let probe = linux.probe_end > 0 && linux.probe_again;
            linux.undo.begin(self.una, linux.segments.retransmitted, probe);
        }
        // RFC 5681 §3.1: the loss window, one segment; Linux adds what was sent too recently to be lost.
        linux.window.cwnd = linux.segments.in_flight(self.outstanding()) + 1;
        linux.window.forget_credit();
        // Enough was sacked for a recovery, and none began: the degree of reordering is too high.
        if linux.state <= CaState::Disorder && linux.segments.sacked >= super::REORDERING {
            linux.reordering = linux.reordering.min(super::REORDERING);
        }
        self.set_state(linux, now, CaState::Loss);
        self.recover = self.next;
        linux.probe_end = 0;
        self.announce_reduction();
        // RFC 5682 §3.1, step 1: not in another recovery, whose segments could not be told from those of before the
        // timeout.
        linux.frto = new_recovery || linux.retransmits > 0;
        linux.retransmits = linux.retransmits.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1);
        // RFC 6298 §5, rule 5.5, and §2, rule 2.5: a path that answers nothing is asked ever more rarely, but asked.
        linux.rto = (linux.rto * 2).min(config.max_rto.as_nanos());
        linux.again = Again::Lost;
        self.arm(linux, now, linux.rto, SenderTimeout::Retransmission);
        Signals { bits: Signals::TIMEOUT }
    }

    /// After a timeout all counts as lost but what was sent too recently (`tcp_timeout_mark_lost`; RFC 8985 §6.3).
    fn mark_all_but_recent(&mut self, linux: &mut Linux, now: Time) {
        for seq in self.una..self.next {
            if seq == self.una || !linux.rack.may_arrive(now.as_nanos(), linux.segments.sent_at(seq)) {
                linux.segments.lose(seq);
            }
        }
    }

    /// SYNs that are sent again before the connection is given up.
    pub(in crate::tcp::sender) fn linux_syn_retries(config: &Config) -> u8 {
        config.syn_retries.saturating_add(LINEAR_SYNS)
    }

    /// The SYN was answered.
    pub(in crate::tcp::sender) fn establish(&mut self, linux: &mut Linux, config: &Config, now: Time, packet: &Packet) {
        if packet.sent != Time::ZERO {
            let rtt = now.since(packet.sent).as_nanos();
            linux.rtt.sample_least(rtt);
            linux.rtt.sample(config, rtt, true);
            linux.rto = linux.rtt.timeout(config);
            self.round_trip.adopt(linux.rtt.srtt(), linux.rto);
        } else {
            linux.rto = self.round_trip.timeout(config, 0);
        }
        // RFC 5681 §3.1: one segment after a lost SYN; Linux after two (`tcp_init_transfer`), as a timeout of a second
        // fires early on long paths. Unless it answers the first SYN after all.
        let answers_first = packet.sent.as_nanos() / 1_000_000 == linux.syn_at / 1_000_000;
        if self.backoff > 1 && !answers_first {
            linux.window.cwnd = 1;
        }
        linux.control.reset(now.as_nanos(), self.next);
        self.backoff = 0;
    }
}
