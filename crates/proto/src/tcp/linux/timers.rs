//! The timers: retransmission, tail loss probe, reordering (`tcp_timer.c`), on the kernel's clock.

use sidestep_net::{Span, Time};

use super::{Again, CaState, Linux, back_off};
use crate::{
    packet::Packet,
    tcp::{Config, signals::Signals, timeout::SenderTimeout, transfer::Transfer},
};

/// What timers of a few milliseconds have on top (`TCP_TIMEOUT_MIN_US`): less, and a coarse clock would fire too early.
const MIN: u64 = 2_000_000;
/// SYNs that are sent at equal distances after the first (`tcp_syn_linear_timeouts`). RFC 6298 §5, rule 5.5, would
/// double from the first on, so that two lost SYNs cost three seconds.
const LINEAR_SYNS: u8 = 4;

impl Linux {
    /// When the timer fires, and what it is for; `None`: it does not run.
    #[inline]
    pub(in crate::tcp) fn next_timeout(&self) -> Option<(Time, SenderTimeout)> {
        let (now, after) = self.armed;
        self.is_armed().then(|| (self.wheel.fires_at(now, after), self.timer))
    }

    /// When the next is due, if that is before `limit`: cheaper where it is not.
    #[inline]
    pub(in crate::tcp) fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        let (now, after) = self.armed;
        // The clock's ticks come later.
        if !self.is_armed() || now + Span::from_nanos(after) >= limit {
            return None;
        }
        self.next_timeout().map(|(due, _)| due).filter(|due| *due < limit)
    }

    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.armed.0 != Time::MAX
    }

    #[inline]
    pub(in crate::tcp) fn disarm(&mut self) {
        self.armed.0 = Time::MAX;
    }

    /// Whether a tail loss probe may be scheduled (`tcp_schedule_loss_probe`).
    #[inline]
    pub(super) fn may_probe(&self, config: &Config) -> bool {
        matches!(self.state, CaState::Open | CaState::Cwr) && config.sack
    }

    /// The timer of the SYN fired; `lost_again`: what is lost had been sent again (`tcp_mark_skb_lost`).
    pub(in crate::tcp) fn count_syn_timeout(&mut self, lost_again: bool) {
        self.counters.timeouts += 1;
        self.segments.lost_again += u32::from(lost_again);
    }

    /// Starts the timer of the SYN that is sent now, after this many others: the first five times are equal, and then they
    /// double.
    pub(in crate::tcp) fn arm_syn(&mut self, config: &Config, now: Time, sent: u8) {
        if sent == 0 {
            self.syn_at = now.as_nanos();
        }
        self.arm(now, back_off(self.rtt.rto, config, sent.saturating_sub(LINEAR_SYNS)), SenderTimeout::Syn);
    }

    fn arm(&mut self, now: Time, after: u64, timer: SenderTimeout) {
        self.timer = timer;
        // The clock's tick is computed when a caller asks: most timers are set again before.
        self.armed = (now, after);
    }

    /// Starts the retransmission timer again, from when its segment was sent if another timer ran meanwhile
    /// (`tcp_rearm_rto`).
    pub(super) fn rearm(&mut self, transfer: &Transfer, now: Time) {
        if transfer.una == transfer.next {
            self.disarm();
            return;
        }
        if self.is_armed() && self.timer != SenderTimeout::Retransmission {
            return self.rearm_as_sent(transfer, now);
        }
        self.arm(now, self.rto, SenderTimeout::Retransmission);
    }

    /// Starts the retransmission timer from when its segment was sent, as another timer ran, or fired.
    fn rearm_as_sent(&mut self, transfer: &Transfer, now: Time) {
        let after = self.until_timeout(transfer, now).max(1);
        self.arm(now, after, SenderTimeout::Retransmission);
    }

    /// How far the timeout of the first segment is away; zero: it is over (`tcp_rto_delta_us`).
    fn until_timeout(&self, transfer: &Transfer, now: Time) -> u64 {
        (self.segments.sent_at(transfer.una) + self.rto).saturating_sub(now.as_nanos())
    }

    /// Sets the timer after an ACK (`tcp_set_xmit_timer`).
    pub(super) fn set_timer(&mut self, transfer: &Transfer, config: &Config, now: Time) {
        if !self.schedule_probe(transfer, config, now, true) {
            self.rearm(transfer, now);
        }
    }

    /// Sets the timer for a tail loss probe (`tcp_schedule_loss_probe`); with `restarts` the timeout begins now.
    ///
    /// RFC 8985 §7.2: two smoothed round trips, as one would be over before ACKs that are a little late; more where one
    /// segment is out, whose ACK the receiver may delay (TLP.max_ack_delay); a second where no round trip is known; no
    /// later than the timeout.
    pub(super) fn schedule_probe(&mut self, transfer: &Transfer, config: &Config, now: Time, restarts: bool) -> bool {
        if transfer.una == transfer.next || !self.may_probe(config) {
            return false;
        }
        let srtt = self.rtt.srtt();
        let mut after = match srtt {
            0 => Span::from_secs(1).as_nanos(),
            _ if transfer.outstanding() == 1 => 2 * srtt + config.min_rto.as_nanos(),
            _ => 2 * srtt + MIN,
        };
        let timeout = if restarts { self.rto } else { self.until_timeout(transfer, now) };
        if timeout > 0 {
            after = after.min(timeout);
        }
        self.arm(now, after, SenderTimeout::LossProbe);
        true
    }

    /// Segments may be reordered: looks again later (`tcp_rack_mark_lost`).
    pub(super) fn wait_for_reordered(&mut self, now: Time, wait: u64) {
        let after = (wait + MIN).min(self.rto);
        self.arm(now, after, SenderTimeout::Reordering);
    }

    /// Handles the timer that is due, and runs no more.
    pub(in crate::tcp) fn handle_timeout(&mut self, transfer: &mut Transfer, config: &Config, now: Time) -> Signals {
        if transfer.una == transfer.next {
            return Signals::default();
        }
        match self.timer {
            SenderTimeout::LossProbe => self.probe(transfer, now),
            SenderTimeout::Reordering => self.handle_reordering(transfer, now),
            SenderTimeout::Retransmission | SenderTimeout::Syn => self.handle_loss(transfer, config, now),
        }
    }

    /// `tcp_send_loss_probe`: a new segment if there is one, else the last one again.
    fn probe(&mut self, transfer: &Transfer, now: Time) -> Signals {
        // RFC 8985 §7.3: at most one is out, so that probes never exceed the window by more than a segment.
        if self.probe_end > 0 {
            self.rearm_as_sent(transfer, now);
            return Signals::default();
        }
        self.probing = true;
        self.counters.loss_probes += 1;
        self.disarm();
        self.rearm(transfer, now);
        Signals { bits: Signals::PROBE }
    }

    /// `tcp_rack_reo_timeout`.
    fn handle_reordering(&mut self, transfer: &mut Transfer, now: Time) -> Signals {
        let (before, marked) = (self.segments.in_flight(transfer.outstanding()), self.segments.marked);
        let mut signals = Signals { bits: Signals::PROBE };
        self.detect_losses(transfer, now);
        if self.segments.in_flight(transfer.outstanding()) != before {
            if self.state != CaState::Recovery {
                self.enter_recovery(transfer, now, false);
                let lost = self.segments.marked.wrapping_sub(marked);
                self.reduce(transfer.outstanding(), 1, lost, false);
                signals.bits |= Signals::RECOVERY | std::mem::take(&mut self.noted);
            }
            self.again = Again::Lost;
        }
        self.rearm_as_sent(transfer, now);
        signals
    }

    /// The first segment is taken for lost (`tcp_retransmit_timer`, `tcp_enter_loss`).
    fn handle_loss(&mut self, transfer: &mut Transfer, config: &Config, now: Time) -> Signals {
        self.counters.timeouts += 1;
        let new_recovery = self.state < CaState::Recovery;
        self.mark_all_but_recent(transfer, now);
        // RFC 5681 §3.1: the threshold halves once for a loss, and not with each timeout for it.
        let is_new = self.state <= CaState::Disorder || transfer.recover <= transfer.una;
        if is_new || self.state == CaState::Loss && self.retransmits == 0 {
            self.reduction.prior_ssthresh = self.current_ssthresh();
            self.reduction.prior_cwnd = self.window.cwnd();
            self.shrink(false);
            let probe = self.probe_end > 0 && self.probe_again;
            self.undo.begin(transfer.una, self.segments.retransmitted, probe);
        }
        // RFC 5681 §3.1: the loss window, one segment; Linux adds what was sent too recently to be lost.
        self.window.set_cwnd(self.segments.in_flight(transfer.outstanding()) + 1);
        self.window.forget_credit();
        // Enough was sacked for a recovery, and none began: the degree of reordering is too high.
        if self.state <= CaState::Disorder && self.segments.sacked >= super::REORDERING {
            self.reordering = self.reordering.min(super::REORDERING);
        }
        self.set_state(transfer, now, CaState::Loss);
        transfer.recover = transfer.next;
        self.probe_end = 0;
        transfer.announce_reduction();
        // RFC 5682 §3.1, step 1: not in another recovery, whose segments could not be distinguished from those of before the
        // timeout.
        self.frto = new_recovery || self.retransmits > 0;
        self.retransmits = self.retransmits.saturating_add(1);
        transfer.backoff = transfer.backoff.saturating_add(1);
        // RFC 6298 §5, rule 5.5, and §2, rule 2.5: a path that answers nothing is asked ever more rarely, but asked.
        self.rto = (self.rto * 2).min(config.max_rto.as_nanos());
        self.again = Again::Lost;
        self.arm(now, self.rto, SenderTimeout::Retransmission);
        Signals { bits: Signals::TIMEOUT | std::mem::take(&mut self.noted) }
    }

    /// After a timeout all counts as lost but what was sent too recently (`tcp_timeout_mark_lost`; RFC 8985 §6.3).
    fn mark_all_but_recent(&mut self, transfer: &Transfer, now: Time) {
        for seq in transfer.una..transfer.next {
            if seq == transfer.una || !self.rack.may_arrive(now.as_nanos(), self.segments.sent_at(seq)) {
                self.segments.lose(seq);
            }
        }
    }

    /// SYNs that are sent again before the connection is given up.
    pub(in crate::tcp) fn syn_retries(config: &Config) -> u8 {
        config.syn_retries.saturating_add(LINEAR_SYNS)
    }

    /// The SYN was answered.
    pub(in crate::tcp) fn establish(&mut self, transfer: &mut Transfer, config: &Config, now: Time, packet: &Packet) {
        self.disarm();
        if let Some(sent) = packet.sent.get() {
            let rtt = now.since(sent).as_nanos();
            self.rtt.sample_least(rtt);
            self.rtt.sample(config, rtt, true);
        }
        self.rto = self.rtt.rto;
        // RFC 5681 §3.1: one segment after a lost SYN; Linux after two (`tcp_init_transfer`), as a timeout of a second
        // fires early on long paths. Unless it answers the first SYN after all.
        let answers_first =
            packet.sent.get().is_some_and(|sent| sent.as_nanos() / 1_000_000 == self.syn_at / 1_000_000);
        if transfer.backoff > 1 && !answers_first {
            self.window.set_cwnd(1);
        }
        self.control.reset(now.as_nanos(), transfer.next);
        transfer.backoff = 0;
    }
}
