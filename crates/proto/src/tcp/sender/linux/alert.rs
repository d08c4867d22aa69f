//! The states of congestion control (`tcp_fastretrans_alert`).

use sidestep_net::Time;

use super::{super::Sender, Again, CaState, Linux, ack::Seen};

impl Sender {
    /// Handles an ACK that is a duplicate, reports something, or comes while not all is well.
    #[inline(never)]
    pub(super) fn alert(&mut self, linux: &mut Linux, now: Time, seen: &mut Seen) {
        // A mark proves that there was congestion: what is reduced now is not given back (step A of
        // `tcp_fastretrans_alert`).
        if seen.marked {
            linux.reduction.prior_ssthresh = 0;
        }
        if linux.state == CaState::Open {
            linux.undo.first_again = 0;
        } else if self.una >= self.recover {
            match linux.state {
                // Only once a segment sent since is acknowledged: that segment announced the reduction.
                CaState::Cwr if self.una != self.recover => {
                    linux.end_reduction();
                    self.set_state(linux, now, CaState::Open);
                }
                CaState::Recovery => {
                    self.try_undo_recovery(linux, now, seen.echo);
                    self.finish_recovery(linux);
                }
                _ => {}
            }
        }
        let goes_on = match linux.state {
            CaState::Recovery => self.recover_on(linux, now, seen),
            CaState::Loss => self.process_loss(linux, now, seen),
            _ => self.look_for_losses(linux, now, seen),
        };
        if goes_on {
            linux.again = Again::Lost;
        }
    }

    /// In Recovery; returns whether segments may be sent again.
    fn recover_on(&mut self, linux: &mut Linux, now: Time, seen: &mut Seen) -> bool {
        if seen.advanced && self.try_undo_partial(linux, now, seen.echo, seen.prior_una) {
            return false;
        }
        if self.try_undo_duplicates(linux) {
            self.try_to_open(linux, now, seen);
        }
        self.identify_losses(linux, now, seen);
        if linux.state != CaState::Recovery {
            if linux.segments.lost == 0 {
                return false;
            }
            self.enter_recovery_linux(linux, now, seen.marked);
        }
        true
    }

    /// In Loss (`tcp_process_loss`); returns whether segments may be sent again.
    fn process_loss(&mut self, linux: &mut Linux, now: Time, seen: &mut Seen) -> bool {
        let again = self.answer_timeout(linux, now, seen);
        self.identify_losses(linux, now, seen);
        if linux.state == CaState::Open || seen.lost_again {
            return self.look_for_losses(linux, now, seen);
        }
        match again {
            Again::Nothing => false,
            Again::Lost => true,
            Again::New => {
                linux.again = Again::New;
                false
            }
        }
    }

    fn answer_timeout(&mut self, linux: &mut Linux, now: Time, seen: &Seen) -> Again {
        let recovered = self.una >= self.recover;
        if seen.advanced && self.try_undo_loss(linux, now, seen.echo, false) {
            return Again::Nothing;
        }
        if linux.frto {
            // F-RTO, the variant with SACK (RFC 5682, section 3.1).
            // Step 3.b: what was sent before the timeout has arrived, so that not all was lost.
            if seen.original && self.try_undo_loss(linux, now, seen.echo, true) {
                return Again::Nothing;
            }
            if self.next > self.recover {
                // Step 3.a: only what was sent after the timeout arrives.
                if seen.sacked || seen.is_duplicate_ack() {
                    linux.frto = false;
                }
            } else if seen.advanced && !recovered {
                // Step 2.b: new segments show whether the old ones arrive; if there are none, they are sent again after
                // all.
                self.recover = self.next;
                if self.next < self.supplied && self.next < self.window_end {
                    return Again::New;
                }
                linux.frto = false;
            }
        }
        if recovered {
            self.try_undo_recovery(linux, now, seen.echo);
            return Again::Nothing;
        }
        Again::Lost
    }

    /// In the other states; returns whether segments may be sent again.
    fn look_for_losses(&mut self, linux: &mut Linux, now: Time, seen: &mut Seen) -> bool {
        if linux.state <= CaState::Disorder {
            self.try_undo_duplicates(linux);
        }
        self.identify_losses(linux, now, seen);
        if linux.segments.lost == 0 {
            self.try_to_open(linux, now, seen);
            return false;
        }
        self.enter_recovery_linux(linux, now, seen.marked);
        true
    }

    /// Looks for losses if something arrived (`tcp_identify_packet_loss`).
    fn identify_losses(&mut self, linux: &mut Linux, now: Time, seen: &mut Seen) {
        if self.una == self.next || !linux.rack.advanced {
            return;
        }
        let before = linux.segments.retransmitted;
        linux.rack.advanced = false;
        let wait = self.detect_losses(linux, now);
        if wait > 0 {
            self.wait_for_reordered(linux, now, wait);
            seen.set_timer = false;
        }
        seen.lost_again |= linux.segments.retransmitted < before;
    }

    /// Counts what was sent too long ago as lost; returns how long to wait for others.
    pub(super) fn detect_losses(&self, linux: &mut Linux, now: Time) -> u64 {
        let tolerance = linux.tolerance();
        linux.rack.detect(now.as_nanos(), &mut linux.segments, (self.una, self.next), tolerance)
    }

    /// Begins to send lost segments again (`tcp_enter_recovery`).
    pub(super) fn enter_recovery_linux(&mut self, linux: &mut Linux, now: Time, marked: bool) {
        linux.counters.sack_recovery += 1;
        linux.reduction.prior_ssthresh = 0;
        let probe = linux.probe_end > 0 && linux.probe_again;
        linux.undo.begin(self.una, linux.segments.retransmitted, probe);
        if !linux.in_reduction() {
            if !marked {
                linux.reduction.prior_ssthresh = linux.current_ssthresh();
            }
            self.begin_reduction(linux, false);
        }
        self.set_state(linux, now, CaState::Recovery);
    }

    /// The window was at the threshold at the end of a recovery that was not taken back.
    fn finish_recovery(&mut self, linux: &mut Linux) {
        linux.end_reduction();
    }

    /// Whether all is well again (`tcp_try_to_open`).
    pub(super) fn try_to_open(&mut self, linux: &mut Linux, now: Time, seen: &Seen) {
        if !linux.any_retransmitted(self.una, self.next) {
            linux.undo.first_again = 0;
        }
        // `tcp_enter_cwr`; RFC 3168 §6.1.2: once in a window of data, as all its marks tell of the same queue.
        if seen.marked && linux.state < CaState::Cwr {
            linux.reduction.prior_ssthresh = 0;
            linux.undo.forbid();
            self.begin_reduction(linux, true);
            self.set_state(linux, now, CaState::Cwr);
        }
        if linux.state != CaState::Cwr {
            self.keep_open(linux, now);
        }
    }

    /// Open, or Disorder while something is missing (`tcp_try_keep_open`).
    pub(super) fn keep_open(&mut self, linux: &mut Linux, now: Time) {
        let of = &linux.segments;
        let disorder = of.sacked + of.lost > 0 || linux.any_retransmitted(self.una, self.next);
        let state = if disorder { CaState::Disorder } else { CaState::Open };
        if state != linux.state {
            self.set_state(linux, now, state);
            self.recover = self.next;
        }
    }
}

impl Linux {
    /// How long reordered segments are waited for (`tcp_rack_reo_wnd`). RFC 8985 §6.2, step 4: a quarter of the least
    /// round trip, as reordering is of the path and not of its queues; more by quarters where that was too little, up
    /// to the smoothed round trip. Nothing while none was ever seen, and a recovery goes on or three segments are
    /// sacked: to wait would only delay it.
    fn tolerance(&self) -> u64 {
        let early = self.state >= CaState::Recovery || self.segments.sacked >= self.reordering;
        if !self.rack.reordered && early {
            return 0;
        }
        ((self.rtt.least >> 2) * u64::from(self.rack.steps)).min(self.rtt.srtt())
    }
}
