//! The states of congestion control (`tcp_fastretrans_alert`).

use sidestep_net::Time;

use super::{Again, CaState, Linux, ack::Seen};
use crate::tcp::transfer::Transfer;

impl Linux {
    /// Handles an ACK that is a duplicate, reports something, or comes while not all is well.
    #[inline(never)]
    pub(super) fn alert(&mut self, transfer: &mut Transfer, now: Time, seen: &mut Seen) {
        // A mark proves that there was congestion: what is reduced now is not given back (step A of
        // `tcp_fastretrans_alert`).
        if seen.marked {
            self.reduction.prior_ssthresh = 0;
        }
        if self.state == CaState::Open {
            self.undo.first_again = None;
        } else if transfer.una >= transfer.recover {
            match self.state {
                // Only once a segment sent since is acknowledged: that segment announced the reduction.
                CaState::Cwr if transfer.una != transfer.recover => {
                    self.end_reduction();
                    self.set_state(transfer, now, CaState::Open);
                }
                CaState::Recovery => {
                    self.try_undo_recovery(transfer, now, seen.echo);
                    // The window was at the threshold at the end of a recovery that was not taken back.
                    self.end_reduction();
                }
                _ => {}
            }
        }
        let goes_on = match self.state {
            CaState::Recovery => self.recover_on(transfer, now, seen),
            CaState::Loss => self.process_loss(transfer, now, seen),
            _ => self.look_for_losses(transfer, now, seen),
        };
        if goes_on {
            self.again = Again::Lost;
        }
    }

    /// In Recovery; returns whether segments may be sent again.
    fn recover_on(&mut self, transfer: &mut Transfer, now: Time, seen: &mut Seen) -> bool {
        if seen.advanced && self.try_undo_partial(transfer, now, seen.echo, seen.prior_una) {
            return false;
        }
        if self.try_undo_duplicates(transfer) {
            self.try_to_open(transfer, now, seen);
        }
        self.identify_losses(transfer, now, seen);
        if self.state != CaState::Recovery {
            if self.segments.lost == 0 {
                return false;
            }
            self.enter_recovery(transfer, now, seen.marked);
        }
        true
    }

    /// In Loss (`tcp_process_loss`); returns whether segments may be sent again.
    fn process_loss(&mut self, transfer: &mut Transfer, now: Time, seen: &mut Seen) -> bool {
        let again = self.answer_timeout(transfer, now, seen);
        self.identify_losses(transfer, now, seen);
        if self.state == CaState::Open || seen.lost_again {
            return self.look_for_losses(transfer, now, seen);
        }
        match again {
            Again::Nothing => false,
            Again::Lost => true,
            Again::New => {
                self.again = Again::New;
                false
            }
        }
    }

    fn answer_timeout(&mut self, transfer: &mut Transfer, now: Time, seen: &Seen) -> Again {
        let recovered = transfer.una >= transfer.recover;
        if seen.advanced && self.try_undo_loss(transfer, now, seen.echo, false) {
            return Again::Nothing;
        }
        if self.frto {
            // F-RTO, the variant with SACK (RFC 5682, section 3.1).
            // Step 3.b: what was sent before the timeout has arrived, so that not all was lost.
            if seen.original && self.try_undo_loss(transfer, now, seen.echo, true) {
                return Again::Nothing;
            }
            if transfer.next > transfer.recover {
                // Step 3.a: only what was sent after the timeout arrives.
                if seen.sacked || seen.is_duplicate_ack() {
                    self.frto = false;
                }
            } else if seen.advanced && !recovered {
                // Step 2.b: new segments show whether the old ones arrive; if there are none, they are sent again after
                // all.
                transfer.recover = transfer.next;
                if transfer.has_new() {
                    return Again::New;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.try_undo_recovery(transfer, now, seen.echo);
            return Again::Nothing;
        }
        Again::Lost
    }

    /// In the other states; returns whether segments may be sent again.
    fn look_for_losses(&mut self, transfer: &mut Transfer, now: Time, seen: &mut Seen) -> bool {
        if self.state <= CaState::Disorder {
            self.try_undo_duplicates(transfer);
        }
        self.identify_losses(transfer, now, seen);
        if self.segments.lost == 0 {
            self.try_to_open(transfer, now, seen);
            return false;
        }
        self.enter_recovery(transfer, now, seen.marked);
        true
    }

    /// Looks for losses if something arrived (`tcp_identify_packet_loss`).
    fn identify_losses(&mut self, transfer: &Transfer, now: Time, seen: &mut Seen) {
        if transfer.una == transfer.next || !self.rack.advanced {
            return;
        }
        let before = self.segments.retransmitted;
        self.rack.advanced = false;
        let wait = self.detect_losses(transfer, now);
        if wait > 0 {
            self.wait_for_reordered(now, wait);
            seen.set_timer = false;
        }
        seen.lost_again |= self.segments.retransmitted < before;
    }

    /// Counts what was sent too long ago as lost; returns how long to wait for others.
    pub(super) fn detect_losses(&mut self, transfer: &Transfer, now: Time) -> u64 {
        let tolerance = self.tolerance();
        self.rack.detect(now.as_nanos(), &mut self.segments, (transfer.una, transfer.next), tolerance)
    }

    /// Begins to send lost segments again (`tcp_enter_recovery`).
    pub(super) fn enter_recovery(&mut self, transfer: &mut Transfer, now: Time, marked: bool) {
        self.counters.sack_recovery += 1;
        self.reduction.prior_ssthresh = 0;
        let probe = self.probe_end > 0 && self.probe_again;
        self.undo.begin(transfer.una, self.segments.retransmitted, probe);
        if !self.in_reduction() {
            if !marked {
                self.reduction.prior_ssthresh = self.current_ssthresh();
            }
            self.begin_reduction(transfer, false);
        }
        self.set_state(transfer, now, CaState::Recovery);
    }

    /// Whether all is well again (`tcp_try_to_open`).
    pub(super) fn try_to_open(&mut self, transfer: &mut Transfer, now: Time, seen: &Seen) {
        if !self.any_retransmitted(transfer.una, transfer.next) {
            self.undo.first_again = None;
        }
        // `tcp_enter_cwr`; RFC 3168 §6.1.2: once in a window of data, as all its marks report the same queue.
        if seen.marked && self.state < CaState::Cwr {
            self.reduction.prior_ssthresh = 0;
            self.undo.forbid();
            self.begin_reduction(transfer, true);
            self.set_state(transfer, now, CaState::Cwr);
        }
        if self.state != CaState::Cwr {
            self.keep_open(transfer, now);
        }
    }

    /// Open, or Disorder while something is missing (`tcp_try_keep_open`).
    pub(super) fn keep_open(&mut self, transfer: &mut Transfer, now: Time) {
        let of = &self.segments;
        let disorder = of.sacked + of.lost > 0 || self.any_retransmitted(transfer.una, transfer.next);
        let state = if disorder { CaState::Disorder } else { CaState::Open };
        if state != self.state {
            self.set_state(transfer, now, state);
            transfer.recover = transfer.next;
        }
    }

    /// How long reordered segments are waited for (`tcp_rack_reo_wnd`). RFC 8985 §6.2, step 4: a quarter of the least
    /// round trip, as reordering is of the path and not of its queues; more by quarters where that was too little, up
    /// to the smoothed round trip. Nothing while none was ever seen, and a recovery goes on or three segments are
    /// sacked: to wait would only delay it.
    ///
    /// A round trip where routers hold packets, and send some around others: these are as late as caches are long.
    fn tolerance(&self) -> u64 {
        if self.control.is_unreduced() {
            return self.rtt.srtt();
        }
        let early = self.state >= CaState::Recovery || self.segments.sacked >= self.reordering;
        if !self.rack.reordered && early {
            return 0;
        }
        ((self.rtt.least >> 2) * u64::from(self.rack.steps)).min(self.rtt.srtt())
    }
}
