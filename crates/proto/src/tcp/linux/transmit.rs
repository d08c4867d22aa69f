//! What is sent, and when a burst ends (`tcp_write_xmit`, `tcp_xmit_retransmit_queue`).

use sidestep_net::Time;

use super::{Again, Linux, control::Pace};
use crate::tcp::{Config, Transmit, timeout::SenderTimeout, transfer::Transfer};

impl Linux {
    /// The next segment to send.
    #[inline(never)]
    pub(in crate::tcp) fn poll_transmit(
        &mut self,
        transfer: &mut Transfer,
        config: &Config,
        now: Time,
    ) -> Option<Transmit> {
        if self.batch > 0 {
            // Both windows had room for all of it when it began.
            self.batch -= 1;
            return Some(self.send_new(transfer, config, now));
        }
        if transfer.is_over() {
            return None;
        }
        if self.probing {
            return Some(self.send_probe(transfer, config, now));
        }
        let room = self.window.cwnd().saturating_sub(self.segments.in_flight(transfer.outstanding()));
        let has_room = room > 0;
        if self.again != Again::Nothing {
            if self.again == Again::New && !(has_room && transfer.has_new()) {
                // F-RTO has no new segment to send.
                let tried = transfer.next > transfer.recover;
                self.frto &= tried;
                self.again = if tried { Again::Nothing } else { Again::Lost };
            }
            if self.again == Again::Lost
                && has_room
                && let Some(seq) = self.segments.next_lost(transfer.una, transfer.next)
            {
                return Some(self.send_again(transfer, now, seq));
            }
        }
        let mut limited = !has_room;
        if has_room && transfer.has_new() {
            limited = self.begin_batch(transfer, now, room);
            if self.batch > 0 {
                self.batch -= 1;
                return Some(self.send_new(transfer, config, now));
            }
        }
        self.end_burst(transfer, config, now, limited);
        None
    }

    /// `limited`: by the congestion window.
    fn end_burst(&mut self, transfer: &Transfer, config: &Config, now: Time, limited: bool) {
        self.again = Again::Nothing;
        if self.burst > 0 || limited && transfer.next < transfer.supplied {
            self.validate(config, now.as_nanos(), (transfer.una, transfer.next), limited);
        }
        if self.burst > 0 {
            self.burst = 0;
            self.schedule_probe(transfer, config, now, false);
        }
    }

    #[inline(always)]
    fn send_new(&mut self, transfer: &mut Transfer, config: &Config, now: Time) -> Transmit {
        let first = transfer.una == transfer.next;
        if first && transfer.next > 0 {
            self.wake(transfer, config, now);
        }
        self.segments.push(transfer.una, transfer.next, now.as_nanos());
        let transmit = transfer.send_new(now);
        self.burst += 1;
        if self.in_reduction() {
            self.reduction.prr_out += 1;
        }
        // Where a probe may follow, the end of the burst sets the timer.
        if (first || !self.is_armed() || self.timer == SenderTimeout::LossProbe) && !self.may_probe(config) {
            self.rearm(transfer, now);
        }
        transmit
    }

    fn send_again(&mut self, transfer: &mut Transfer, now: Time, seq: u32) -> Transmit {
        self.segments.resend(seq, now.as_nanos());
        self.undo.note_resent(now.as_nanos());
        if self.in_reduction() {
            self.reduction.prr_out += 1;
        }
        if seq == transfer.una && self.timer != SenderTimeout::Reordering {
            self.disarm();
            self.rearm(transfer, now);
        }
        transfer.send_again(now, seq)
    }

    /// A tail loss probe: a new segment, whatever the congestion window, or the last one again.
    #[cold]
    fn send_probe(&mut self, transfer: &mut Transfer, config: &Config, now: Time) -> Transmit {
        self.probing = false;
        self.probe_again = !transfer.has_new();
        let transmit = if self.probe_again {
            let seq = transfer.next - 1;
            self.segments.probe(seq, now.as_nanos());
            transfer.send_again(now, seq)
        } else {
            let transmit = self.send_new(transfer, config, now);
            self.burst = 0;
            transmit
        };
        self.probe_end = transfer.next;
        transmit
    }

    /// The first segment after all had been acknowledged.
    fn wake(&mut self, transfer: &Transfer, config: &Config, now: Time) {
        self.control.wake(&Pace::new(self.tick, now), transfer.last_sent.as_nanos());
        let idle = now.since(transfer.last_sent).as_nanos();
        if config.idle_restart && idle > self.rto {
            self.restart(config, now.as_nanos(), idle);
        }
    }
}
