//! What an ACK acknowledges and reports (`tcp_ack`, `tcp_sacktag_write_queue`, `tcp_clean_rtx_queue`).

use sidestep_net::Time;

use super::{
    super::{Sender, State, flag},
    CaState, Linux,
    cubic::Exit,
    segments::{EVER, SACKED},
    undo::answers_before,
};
use crate::{
    packet::{Flags, Packet},
    tcp::{
        Config,
        signals::{Acked, Signals},
    },
};

/// Most segments that reordering is counted to (`tcp_max_reordering`), or after one odd path no loss would be seen
/// early.
const MAX_REORDERING: u32 = 300;

/// What is known of an ACK (`FLAG_…`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Segments below it were acknowledged before, and the one that was the first beyond all that had been sacked.
    pub(super) prior_una: u32,
    prior_highest: u32,
    pub(super) advanced: bool,
    pub(super) sacked: bool,
    pub(super) marked: bool,
    /// The receiver had something twice: all of it, or a tail loss probe.
    pub(super) duplicate: bool,
    pub(super) probe_duplicate: bool,
    /// A segment has arrived that was sent once, before the recovery began.
    pub(super) original: bool,
    again_acked: bool,
    /// A retransmission was found to be lost.
    pub(super) lost_again: bool,
    /// The timer is to be set anew.
    pub(super) set_timer: bool,
    window_moved: bool,
    /// The echoed time.
    pub(super) echo: Time,
    /// The lowest segment that came later than one sent after it.
    reordered: Option<u32>,
    /// When the first and the last segment were sent that were acknowledged, or sacked; each was sent once.
    acked_at: Option<(u64, u64)>,
    sacked_at: Option<(u64, u64)>,
    delivered: u32,
    /// When the latest segment was sent that it reports; zero: it reports none.
    newest: u64,
}

impl Seen {
    /// Whether the receiver only said again what it had said (`num_dupack`).
    pub(super) fn is_duplicate_ack(&self) -> bool {
        !self.advanced && !self.window_moved && !self.duplicate
    }
}

impl Linux {
    /// Whether nothing is lost, reordered or probed for.
    #[inline]
    fn is_at_ease(&self) -> bool {
        self.state == CaState::Open && self.segments.is_clean() && self.probe_end == 0
    }

    /// Something came later than what was sent after it (`tcp_check_sack_reordering`; RFC 8985 §6.2, step 3).
    pub(super) fn note_reordering(&mut self, low: u32, una: u32) {
        let highest = self.segments.highest_sacked(una);
        if low < highest {
            self.reordering = self.reordering.max((highest - low).min(MAX_REORDERING));
            self.rack.reordered = true;
        }
    }
}

impl Sender {
    /// Handles an ACK in the profile of Linux.
    #[inline]
    pub(in crate::tcp::sender) fn handle_linux_ack(
        &mut self,
        linux: &mut Linux,
        config: &Config,
        now: Time,
        packet: &Packet,
    ) -> Acked {
        let ack = packet.seq;
        if ack > self.next || matches!(self.state, State::Closed | State::SynSent | State::Finished | State::Failed) {
            return Acked::default();
        }
        let marked = packet.flags.has(Flags::ECE) && self.flags & flag::ECN != 0;
        let (outstanding, marked_lost, was) = (self.outstanding(), linux.segments.marked, linux.state);
        let mut acked = Acked::default();
        let mut sacked = false;
        let advances = ack > self.una && packet.sack[0] == (0, 0) && !marked && linux.is_at_ease();
        let sent_at = if advances { linux.segments.sent_once(self.una, ack) } else { None };
        if let Some(sent_at) = sent_at {
            self.advance(linux, (config, now), packet, sent_at, &mut acked);
        } else {
            sacked = self.take_ack(linux, (config, now), packet, marked, &mut acked);
        }
        self.delivered = self.delivered.wrapping_add(acked.delivered);
        if marked {
            self.delivered_ce = self.delivered_ce.wrapping_add(acked.delivered);
            linux.counters.delivered_ce += acked.delivered;
        }
        linux.control.count(acked.delivered, marked, (self.una, self.next));
        if outstanding > 0 {
            let lost = linux.segments.marked.wrapping_sub(marked_lost);
            self.control(linux, (config, now), (&mut acked, sacked), lost);
        }
        self.report(linux, was, &mut acked);
        acked
    }

    /// Takes an ACK that says nothing but that segments have arrived which were sent once, while all is well: most do.
    #[inline(always)]
    fn advance(
        &mut self,
        linux: &mut Linux,
        (config, now): (&Config, Time),
        packet: &Packet,
        (first, last): (u64, u64),
        acked: &mut Acked,
    ) {
        let ack = packet.seq;
        acked.segments = ack - self.una;
        acked.delivered = acked.segments;
        self.window_end = ack.saturating_add(packet.window);
        linux.rack.advance(now.as_nanos(), last, ack - 1, false, linux.rtt.least);
        self.una = ack;
        linux.retransmits = 0;
        self.backoff = 0;
        linux.segments.examined = ack;
        let since = |at: u64| now.as_nanos().saturating_sub(at);
        self.take_rtt(linux, (config, now), (since(first), since(last)), acked);
        linux.rack.adapt(now.as_nanos(), last);
        self.set_timer(linux, config, now);
    }

    /// Takes any ACK; returns whether it reports segments that were not known to have arrived.
    #[inline(never)]
    fn take_ack(
        &mut self,
        linux: &mut Linux,
        (config, now): (&Config, Time),
        packet: &Packet,
        marked: bool,
        acked: &mut Acked,
    ) -> bool {
        let ack = packet.seq;
        let window_end = ack.saturating_add(packet.window);
        let mut seen = Seen {
            prior_una: self.una,
            prior_highest: linux.segments.highest_sacked(self.una),
            advanced: ack > self.una,
            marked,
            window_moved: window_end > self.window_end && ack == self.una,
            echo: packet.sent,
            ..Seen::default()
        };
        if ack >= self.una {
            self.window_end = window_end;
        }
        let outstanding = self.outstanding();
        if packet.sack[0] != (0, 0) {
            self.take_sacks(linux, now, packet, &mut seen);
        }
        if ack >= seen.prior_una {
            acked.segments = ack - seen.prior_una;
            self.clean(linux, (config, now), ack, &mut seen, acked);
        }
        linux.rack.adapt(now.as_nanos(), seen.newest);
        if linux.probe_end > 0 {
            self.end_probe(linux, now, ack, &seen);
        }
        let dubious = seen.sacked || seen.marked || seen.duplicate || linux.state != CaState::Open;
        if (dubious || !seen.advanced && !seen.window_moved) && (outstanding > 0 || seen.duplicate) {
            self.alert(linux, now, &mut seen);
        }
        if seen.set_timer {
            self.set_timer(linux, config, now);
        }
        acked.delivered = seen.delivered;
        seen.sacked
    }

    /// The signals of an ACK.
    fn report(&mut self, linux: &Linux, was: CaState, acked: &mut Acked) {
        let entered = |state: CaState| linux.state == state && was != state;
        if entered(CaState::Recovery) {
            acked.signals.bits |= Signals::RECOVERY;
        }
        if entered(CaState::Cwr) {
            acked.signals.bits |= Signals::REDUCED;
        }
        if acked.segments > 0 && self.una == self.supplied && self.flags & flag::FIN != 0 {
            self.end(State::Finished);
            acked.signals.bits |= Signals::FINISHED;
        }
    }

    /// Takes SACK blocks. The first reports a duplicate if it lies below the ACK, where its ends are written the wrong way
    /// around, or within the second (RFC 2883).
    #[inline(never)]
    fn take_sacks(&mut self, linux: &mut Linux, now: Time, packet: &Packet, seen: &mut Seen) {
        let (ack, [first, second, _]) = (packet.seq, packet.sack);
        let below = first.0 > first.1;
        let within = second.0 < second.1 && second.0 <= first.0 && first.1 <= second.1;
        let duplicate = match (below, within) {
            (true, _) => Some(ack.saturating_sub(u32::from(first.0))),
            (_, true) => Some(ack + u32::from(first.0)),
            _ => None,
        };
        // Of those beyond the ACK the kernel keeps another count.
        linux.counters.dsack_received += u32::from(below);
        if let Some(seq) = duplicate {
            self.take_duplicate(linux, seq, seen);
        }
        let skip = usize::from(duplicate.is_some());
        let mut blocks = packet.sack;
        blocks[..skip].fill((0, 0));
        // From the lowest: what is found to be reordered is what lies below the highest sacked before.
        blocks.sort_unstable();
        let cache = linux.recv_sack_cache;
        let mut known = [(0, 0); 3];
        for ((from, to), known) in blocks.into_iter().zip(&mut known) {
            let (from, to) = (ack + u32::from(from), ack + u32::from(to));
            if from < to && to <= self.next {
                // Blocks mostly grow at their ends.
                let cached = cache.iter().find(|(first, end)| (*first..*end).contains(&from));
                let new = cached.map_or(from, |(_, end)| *end).max(self.una);
                self.take_block(linux, now, (new, to), seen);
                *known = (from, to);
            }
        }
        linux.recv_sack_cache = known;
    }

    fn take_block(&mut self, linux: &mut Linux, now: Time, (from, to): (u32, u32), seen: &mut Seen) {
        for seq in from..to {
            if linux.segments.has(seq, SACKED) {
                continue;
            }
            let (sent_at, again) = (linux.segments.sent_at(seq), linux.segments.has(seq, EVER));
            linux.rack.advance(now.as_nanos(), sent_at, seq, again, linux.rtt.least);
            seen.newest = seen.newest.max(sent_at);
            if !linux.segments.has(seq, EVER) {
                if seq < linux.segments.highest_sacked(self.una) {
                    seen.reordered = Some(seen.reordered.map_or(seq, |low| low.min(seq)));
                }
                seen.original |= seq < self.recover;
                seen.sacked_at = Some((seen.sacked_at.map_or(sent_at, |(first, _)| first), sent_at));
            }
            linux.segments.sack(seq);
            seen.sacked = true;
            seen.delivered += 1;
        }
    }

    /// The receiver had a segment already (`tcp_check_dsack`).
    fn take_duplicate(&mut self, linux: &mut Linux, seq: u32, seen: &mut Seen) {
        seen.probe_duplicate = linux.probe_end > 0 && linux.probe_end == seq + 1;
        linux.undo.duplicates += 1;
        // What was not sent again was duplicated by the network, which is no sign of a needless recovery
        // (`tcp_dsack_seen`).
        if linux.undo.duplicates > self.retransmits {
            return;
        }
        // Neither a probe nor a loss without reordering says that the tolerance was too small.
        if linux.rack.reordered && !seen.probe_duplicate {
            linux.rack.duplicate_seen = true;
        }
        seen.duplicate = true;
        seen.delivered += 1;
        if seq < self.una {
            linux.undo.note_duplicate(seq + 1);
        } else if seq < self.next && linux.segments.has(seq, EVER) {
            linux.undo.note_duplicate(seq + 1);
            linux.segments.clear_retransmission(seq);
        }
    }

    /// Forgets what was acknowledged, and takes its round-trip time.
    #[inline]
    fn clean(
        &mut self,
        linux: &mut Linux,
        (config, now): (&Config, Time),
        ack: u32,
        seen: &mut Seen,
        acked: &mut Acked,
    ) {
        let nanos = now.as_nanos();
        let clean = linux.segments.is_clean();
        for seq in self.una..ack {
            let (sent_at, flags) = linux.segments.acknowledge(seq);
            if flags & EVER != 0 {
                seen.again_acked = true;
            } else if flags & SACKED == 0 {
                seen.acked_at = Some((seen.acked_at.map_or(sent_at, |(first, _)| first), sent_at));
                seen.original |= seq < self.recover;
                if seq < seen.prior_highest {
                    seen.reordered = Some(seen.reordered.map_or(seq, |low| low.min(seq)));
                }
            }
            if flags & SACKED == 0 {
                seen.delivered += 1;
                let again = flags & EVER != 0;
                // What was sent first has arrived, of which RACK knows no time (`tcp_skb_spurious_retrans`).
                if !(again && answers_before(seen.echo, sent_at)) {
                    linux.rack.advance(nanos, sent_at, seq, again, linux.rtt.least);
                    seen.newest = seen.newest.max(sent_at);
                }
            }
        }
        self.una = ack;
        if seen.advanced {
            linux.retransmits = 0;
            self.backoff = 0;
        }
        if !clean {
            if let Some(low) = seen.reordered {
                linux.note_reordering(low, self.una);
            }
            linux.segments.forget(ack);
        } else {
            linux.segments.examined = ack;
        }
        let measured = self.measure(linux, (config, now), seen, acked);
        let head_at = (self.una < self.next).then(|| linux.segments.sent_at(self.una));
        // What was sent after the first segment would put its timeout off again and again.
        let sacked_earlier = seen.sacked_at.zip(head_at).is_some_and(|((first, _), head)| first < head);
        seen.set_timer = seen.advanced || measured && sacked_earlier;
    }

    /// Takes the round-trip time of an ACK (`tcp_ack_update_rtt`); returns whether there is one. RFC 6298 §3 (Karn):
    /// none of what was sent again, whose ACK may answer either; but the echoed time tells which it was.
    fn measure(&mut self, linux: &mut Linux, (config, now): (&Config, Time), seen: &Seen, acked: &mut Acked) -> bool {
        let since = |at: u64| now.as_nanos().saturating_sub(at);
        let own = seen.acked_at.filter(|_| !seen.again_acked).map(|(first, last)| (since(first), since(last)));
        let by_sack = seen.sacked_at.map(|(first, last)| (since(first), since(last)));
        let by_echo = (seen.advanced && seen.echo != Time::ZERO).then(|| since(seen.echo.as_nanos()));
        let Some(rtt) = own.map(|(first, _)| first).or(by_sack.map(|(first, _)| first)).or(by_echo) else {
            return false;
        };
        let last = by_sack.or(own).map_or(rtt, |(_, last)| last);
        self.take_rtt(linux, (config, now), (rtt, last), acked);
        true
    }

    /// Takes a round-trip time, and that of the segment of the ACK that was sent last.
    #[inline]
    fn take_rtt(
        &mut self,
        linux: &mut Linux,
        (config, now): (&Config, Time),
        (rtt, last): (u64, u64),
        acked: &mut Acked,
    ) {
        linux.rtt.sample_least(last);
        let round_ended = self.una > self.round_end;
        linux.rtt.sample(config, rtt, round_ended);
        if round_ended {
            self.round_end = self.next;
            acked.signals.bits |= Signals::ROUND;
        }
        linux.rto = linux.rtt.timeout(config);
        self.round_trip.adopt(linux.rtt.srtt(), linux.rto);
        if linux.control.watches_delay() {
            self.watch_delay(linux, now, last);
        }
    }

    fn watch_delay(&mut self, linux: &mut Linux, now: Time, rtt: u64) {
        let pace = self.pace(linux, now);
        let Some(exit) = linux.control.sample(&pace, &linux.window, rtt, (self.una, self.next)) else { return };
        linux.window.ssthresh = linux.window.cwnd;
        let count = match exit {
            Exit::Train => &mut linux.counters.hystart_train,
            Exit::Delay => &mut linux.counters.hystart_delay,
        };
        *count += 1;
    }

    /// What an ACK says of a tail loss probe (`tcp_process_tlp_ack`; RFC 8985, section 7.4).
    fn end_probe(&mut self, linux: &mut Linux, now: Time, ack: u32, seen: &Seen) {
        if ack < linux.probe_end {
            return;
        }
        if !linux.probe_again || seen.probe_duplicate {
            linux.probe_end = 0;
        } else if ack > linux.probe_end {
            // Only the probe arrived: it repaired a loss, for which the window shrinks.
            self.begin_reduction(linux, false);
            self.set_state(linux, now, CaState::Cwr);
            linux.end_reduction();
            self.keep_open(linux, now);
            linux.counters.loss_probe_recovery += 1;
        } else if !(seen.advanced || seen.window_moved || seen.sacked) {
            linux.probe_end = 0;
        }
    }
}
