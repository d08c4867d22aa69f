//! What is sent, and when a burst ends (`tcp_write_xmit`, `tcp_xmit_retransmit_queue`).

use sidestep_net::Time;

use super::{
    super::{Sender, Transmit, flag},
    Again, Linux,
    control::Pace,
};
use crate::{
    packet::{Flags, Kind},
    tcp::{Config, timeout::SenderTimeout},
};

impl Sender {
    /// The next segment to send in the profile of Linux.
    #[inline]
    pub(in crate::tcp::sender) fn next_segment(
        &mut self,
        linux: &mut Linux,
        config: &Config,
        now: Time,
    ) -> Option<Transmit> {
        if linux.batch > 0 {
            // Both windows had room for all of it when it began.
            linux.batch -= 1;
            return Some(self.send_new(linux, config, now));
        }
        if self.is_over() {
            return None;
        }
        if linux.probing {
            return Some(self.send_probe(linux, config, now));
        }
        let room = linux.window.cwnd.saturating_sub(linux.segments.in_flight(self.outstanding()));
        let has_room = room > 0;
        if linux.again != Again::Nothing {
            if linux.again == Again::New && !(has_room && self.has_new()) {
                // F-RTO has no new segment to send.
                let tried = self.next > self.recover;
                linux.frto &= tried;
                linux.again = if tried { Again::Nothing } else { Again::Lost };
            }
            if linux.again == Again::Lost
                && has_room
                && let Some(seq) = linux.segments.next_lost(self.una, self.next)
            {
                return Some(self.send_again(linux, now, seq));
            }
        }
        let mut limited = !has_room;
        if has_room && self.has_new() {
            limited = self.begin_batch(linux, now, room);
            if linux.batch > 0 {
                linux.batch -= 1;
                return Some(self.send_new(linux, config, now));
            }
        }
        self.end_burst(linux, config, now, limited);
        None
    }

    /// Whether the receiver's window allows a new segment.
    pub(super) fn has_new(&self) -> bool {
        self.next < self.supplied && self.next < self.window_end
    }

    /// `limited`: by the congestion window.
    fn end_burst(&mut self, linux: &mut Linux, config: &Config, now: Time, limited: bool) {
        linux.again = Again::Nothing;
        if linux.burst > 0 || limited && self.next < self.supplied {
            linux.validate(config, now.as_nanos(), (self.una, self.next), limited);
        }
        if linux.burst > 0 {
            linux.burst = 0;
            self.schedule_probe(linux, config, now, false);
        }
    }

    #[inline(always)]
    fn send_new(&mut self, linux: &mut Linux, config: &Config, now: Time) -> Transmit {
        let first = self.una == self.next;
        if first && self.next > 0 {
            self.wake_linux(linux, config, now);
        }
        let seq = self.next;
        linux.segments.push(self.una, seq, now.as_nanos());
        self.next += 1;
        self.last_sent = now;
        linux.burst += 1;
        if linux.in_reduction() {
            linux.reduction.prr_out += 1;
        }
        // Where a probe may follow, the end of the burst sets the timer.
        if (first || self.deadline == Time::MAX || linux.timer == SenderTimeout::LossProbe) && !linux.may_probe(config)
        {
            self.rearm(linux, now);
        }
        let mut flags = Flags::when(self.flags & flag::ECN != 0, Flags::ECT);
        if self.flags & (flag::CWR | flag::FIN) != 0 {
            flags = flags.with(Flags::when(self.flags & flag::CWR != 0, Flags::CWR));
            self.flags &= !flag::CWR;
            let last = self.flags & flag::FIN != 0 && self.next == self.supplied;
            flags = flags.with(Flags::when(last, Flags::FIN));
        }
        Transmit { seq, kind: Kind::Data, flags }
    }

    fn send_again(&mut self, linux: &mut Linux, now: Time, seq: u32) -> Transmit {
        linux.segments.resend(seq, now.as_nanos());
        linux.undo.note_resent(now.as_nanos());
        if linux.in_reduction() {
            linux.reduction.prr_out += 1;
        }
        if seq == self.una && linux.timer != SenderTimeout::Reordering {
            self.deadline = Time::MAX;
            self.rearm(linux, now);
        }
        self.sent_before(now, seq)
    }

    /// A tail loss probe: a new segment, whatever the congestion window, or the last one again.
    #[cold]
    fn send_probe(&mut self, linux: &mut Linux, config: &Config, now: Time) -> Transmit {
        linux.probing = false;
        linux.probe_again = !self.has_new();
        let transmit = if linux.probe_again {
            let seq = self.next - 1;
            linux.segments.probe(seq, now.as_nanos());
            self.sent_before(now, seq)
        } else {
            let transmit = self.send_new(linux, config, now);
            linux.burst = 0;
            transmit
        };
        linux.probe_end = self.next;
        transmit
    }

    fn sent_before(&mut self, now: Time, seq: u32) -> Transmit {
        self.retransmits += 1;
        self.last_sent = now;
        let last = self.flags & flag::FIN != 0 && seq + 1 == self.supplied;
        // Not ECN-capable (RFC 3168, section 6.1.5).
        Transmit { seq, kind: Kind::Data, flags: Flags::RETRANSMIT.with(Flags::when(last, Flags::FIN)) }
    }

    /// The first segment after all had been acknowledged.
    fn wake_linux(&mut self, linux: &mut Linux, config: &Config, now: Time) {
        linux.control.wake(&Pace::new(linux.tick, now), self.last_sent.as_nanos());
        let idle = now.since(self.last_sent).as_nanos();
        if config.idle_restart && idle > linux.rto {
            linux.restart(config, now.as_nanos(), idle);
        }
    }
}
