//! What an ACK acknowledges and reports (`tcp_ack`, `tcp_sacktag_write_queue`, `tcp_clean_rtx_queue`).

use sidestep_net::{MaybeTime, Time};

use super::{
    CaState, Linux,
    cubic::Exit,
    segments::{EVER, SACKED},
    undo::answers_before,
};
use crate::{
    packet::Packet,
    tcp::{
        Config,
        signals::{Acked, Signals},
        transfer::{Stage, Transfer},
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
    /// The timer must be set again.
    pub(super) set_timer: bool,
    window_moved: bool,
    /// The echoed time.
    pub(super) echo: MaybeTime,
    /// The lowest segment that came later than one sent after it.
    reordered: Option<u32>,
    /// When the first and the last segment were sent that were acknowledged, or sacked; each was sent once.
    acked_at: Option<(u64, u64)>,
    sacked_at: Option<(u64, u64)>,
    delivered: u32,
    /// When the latest segment was sent that it reports.
    newest: Option<u64>,
}

impl Seen {
    /// Whether the receiver only repeated what it had reported (`num_dupack`).
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

    /// Handles an ACK.
    // Apart from what the other machine does, so that a driver's loop is small with either.
    #[inline(never)]
    pub(in crate::tcp) fn handle_ack(
        &mut self,
        transfer: &mut Transfer,
        config: &Config,
        now: Time,
        packet: &Packet,
    ) -> Acked {
        let ack = packet.seq;
        if ack > transfer.next || transfer.stage != Stage::Established {
            return Acked::default();
        }
        let marked = transfer.is_marked(packet.flags);
        let (outstanding, marked_lost, was) = (transfer.outstanding(), self.segments.marked, self.state);
        let mut acked = Acked::default();
        let mut sacked = false;
        let advances = ack > transfer.una && packet.sack[0] == (0, 0) && !marked && self.is_at_ease();
        let sent_at = if advances { self.segments.sent_once(transfer.una, ack) } else { None };
        if let Some(sent_at) = sent_at {
            self.advance(transfer, (config, now), packet, sent_at, &mut acked);
        } else {
            sacked = self.take_ack(transfer, (config, now), packet, marked, &mut acked);
        }
        transfer.delivered = transfer.delivered.wrapping_add(acked.delivered);
        if marked {
            transfer.delivered_ce = transfer.delivered_ce.wrapping_add(acked.delivered);
        }
        if outstanding > 0 {
            let lost = self.segments.marked.wrapping_sub(marked_lost);
            self.control(transfer, (config, now), (&mut acked, sacked), lost);
        }
        self.report(transfer, was, &mut acked);
        acked
    }

    /// Takes an ACK that reports only that segments have arrived which were sent once, while all is well: most do.
    #[inline(always)]
    fn advance(
        &mut self,
        transfer: &mut Transfer,
        (config, now): (&Config, Time),
        packet: &Packet,
        (first, last): (u64, u64),
        acked: &mut Acked,
    ) {
        let ack = packet.seq;
        acked.segments = ack - transfer.una;
        acked.delivered = acked.segments;
        transfer.window_end = ack.saturating_add(packet.window);
        self.rack.advance(now.as_nanos(), last, ack - 1, false, self.rtt.least);
        transfer.una = ack;
        self.retransmits = 0;
        transfer.backoff = 0;
        self.segments.examined = ack;
        let since = |at: u64| now.as_nanos().saturating_sub(at);
        self.take_rtt(transfer, (config, now), (since(first), since(last)), acked);
        self.rack.adapt(now.as_nanos(), Some(last));
        self.control.count(acked.delivered, false, (transfer.una, transfer.next));
        self.set_timer(transfer, config, now);
    }

    /// Takes any ACK; returns whether it reports segments that were not known to have arrived.
    #[inline(never)]
    fn take_ack(
        &mut self,
        transfer: &mut Transfer,
        (config, now): (&Config, Time),
        packet: &Packet,
        marked: bool,
        acked: &mut Acked,
    ) -> bool {
        let ack = packet.seq;
        let window_end = ack.saturating_add(packet.window);
        let mut seen = Seen {
            prior_una: transfer.una,
            prior_highest: self.segments.highest_sacked(transfer.una),
            advanced: ack > transfer.una,
            marked,
            window_moved: window_end > transfer.window_end && ack == transfer.una,
            echo: packet.sent,
            ..Seen::default()
        };
        if ack >= transfer.una {
            transfer.window_end = window_end;
        }
        let outstanding = transfer.outstanding();
        if packet.sack[0] != (0, 0) {
            self.take_sacks(transfer, now, packet, &mut seen);
        }
        if ack >= seen.prior_una {
            acked.segments = ack - seen.prior_una;
            self.clean(transfer, (config, now), ack, &mut seen, acked);
        }
        self.rack.adapt(now.as_nanos(), seen.newest);
        // Before a mark reduces the window (`tcp_in_ack_event`).
        self.control.count(seen.delivered, marked, (transfer.una, transfer.next));
        if self.probe_end > 0 {
            self.end_probe(transfer, now, ack, &seen);
        }
        let dubious = seen.sacked || seen.marked || seen.duplicate || self.state != CaState::Open;
        if (dubious || !seen.advanced && !seen.window_moved) && (outstanding > 0 || seen.duplicate) {
            self.alert(transfer, now, &mut seen);
        }
        if seen.set_timer {
            self.set_timer(transfer, config, now);
        }
        acked.delivered = seen.delivered;
        seen.sacked
    }

    /// The signals of an ACK.
    fn report(&mut self, transfer: &mut Transfer, was: CaState, acked: &mut Acked) {
        acked.signals.bits |= std::mem::take(&mut self.noted);
        let entered = |state: CaState| self.state == state && was != state;
        if entered(CaState::Recovery) {
            acked.signals.bits |= Signals::RECOVERY;
        }
        if entered(CaState::Cwr) {
            acked.signals.bits |= Signals::REDUCED;
        }
        if acked.segments > 0 && transfer.is_done() {
            transfer.stage = Stage::Finished;
            self.disarm();
            acked.signals.bits |= Signals::FINISHED;
        }
    }

    /// Takes SACK blocks. The first reports a duplicate if it lies below the ACK, where its ends are written in the wrong order
    /// around, or within the second (RFC 2883).
    #[inline(never)]
    fn take_sacks(&mut self, transfer: &Transfer, now: Time, packet: &Packet, seen: &mut Seen) {
        let (ack, [first, second, _]) = (packet.seq, packet.sack);
        let below = first.0 > first.1;
        let within = second.0 < second.1 && second.0 <= first.0 && first.1 <= second.1;
        let duplicate = match (below, within) {
            (true, _) => Some(ack.saturating_sub(u32::from(first.0))),
            (_, true) => Some(ack + u32::from(first.0)),
            _ => None,
        };
        // Of those beyond the ACK the kernel keeps another count.
        self.counters.dsack_received += u32::from(below);
        if let Some(seq) = duplicate {
            self.take_duplicate(transfer, seq, seen);
        }
        let skip = usize::from(duplicate.is_some());
        let mut blocks = packet.sack;
        blocks[..skip].fill((0, 0));
        // From the lowest: what is found to be reordered is what lies below the highest sacked before.
        blocks.sort_unstable();
        let cache = self.recv_sack_cache;
        let mut known = [(0, 0); 3];
        for ((from, to), known) in blocks.into_iter().zip(&mut known) {
            let (from, to) = (ack + u32::from(from), ack + u32::from(to));
            if from < to && to <= transfer.next {
                // Blocks mostly grow at their ends.
                let cached = cache.iter().find(|(first, end)| (*first..*end).contains(&from));
                let new = cached.map_or(from, |(_, end)| *end).max(transfer.una);
                self.take_block(transfer, now, (new, to), seen);
                *known = (from, to);
            }
        }
        self.recv_sack_cache = known;
    }

    fn take_block(&mut self, transfer: &Transfer, now: Time, (from, to): (u32, u32), seen: &mut Seen) {
        for seq in from..to {
            if self.segments.has(seq, SACKED) {
                continue;
            }
            let (sent_at, again) = (self.segments.sent_at(seq), self.segments.has(seq, EVER));
            self.rack.advance(now.as_nanos(), sent_at, seq, again, self.rtt.least);
            seen.newest = seen.newest.max(Some(sent_at));
            if !self.segments.has(seq, EVER) {
                if seq < self.segments.highest_sacked(transfer.una) {
                    seen.reordered = Some(seen.reordered.map_or(seq, |low| low.min(seq)));
                }
                seen.original |= seq < transfer.recover;
                seen.sacked_at = Some((seen.sacked_at.map_or(sent_at, |(first, _)| first), sent_at));
            }
            self.segments.sack(seq);
            seen.sacked = true;
            seen.delivered += 1;
        }
    }

    /// The receiver had a segment already (`tcp_check_dsack`).
    fn take_duplicate(&mut self, transfer: &Transfer, seq: u32, seen: &mut Seen) {
        seen.probe_duplicate = self.probe_end > 0 && self.probe_end == seq + 1;
        self.undo.duplicates += 1;
        // What was not sent again was duplicated by the network, which is no sign of a needless recovery
        // (`tcp_dsack_seen`).
        if self.undo.duplicates > transfer.retransmits {
            return;
        }
        // Neither a probe nor a loss without reordering shows that the tolerance was too small.
        if self.rack.reordered && !seen.probe_duplicate {
            self.rack.duplicate_seen = true;
        }
        seen.duplicate = true;
        seen.delivered += 1;
        if seq < transfer.una {
            self.undo.note_duplicate(seq + 1);
        } else if seq < transfer.next && self.segments.has(seq, EVER) {
            self.undo.note_duplicate(seq + 1);
            self.segments.clear_retransmission(seq);
        }
    }

    /// Forgets what was acknowledged, and takes its round-trip time.
    #[inline]
    fn clean(
        &mut self,
        transfer: &mut Transfer,
        (config, now): (&Config, Time),
        ack: u32,
        seen: &mut Seen,
        acked: &mut Acked,
    ) {
        let nanos = now.as_nanos();
        let clean = self.segments.is_clean();
        for seq in transfer.una..ack {
            let (sent_at, flags) = self.segments.acknowledge(seq);
            if flags & EVER != 0 {
                seen.again_acked = true;
            } else if flags & SACKED == 0 {
                seen.acked_at = Some((seen.acked_at.map_or(sent_at, |(first, _)| first), sent_at));
                seen.original |= seq < transfer.recover;
                if seq < seen.prior_highest {
                    seen.reordered = Some(seen.reordered.map_or(seq, |low| low.min(seq)));
                }
            }
            if flags & SACKED == 0 {
                seen.delivered += 1;
                let again = flags & EVER != 0;
                // What was sent first has arrived, of which RACK knows no time (`tcp_skb_spurious_retrans`).
                if !(again && answers_before(seen.echo, sent_at)) {
                    self.rack.advance(nanos, sent_at, seq, again, self.rtt.least);
                    seen.newest = seen.newest.max(Some(sent_at));
                }
            }
        }
        transfer.una = ack;
        if seen.advanced {
            self.retransmits = 0;
            transfer.backoff = 0;
        }
        if !clean {
            if let Some(low) = seen.reordered {
                self.note_reordering(low, transfer.una);
            }
            self.segments.forget(ack);
        } else {
            self.segments.examined = ack;
        }
        let measured = self.measure(transfer, (config, now), seen, acked);
        let head_at = (transfer.una < transfer.next).then(|| self.segments.sent_at(transfer.una));
        // What was sent after the first segment would put its timeout off again and again.
        let sacked_earlier = seen.sacked_at.zip(head_at).is_some_and(|((first, _), head)| first < head);
        seen.set_timer = seen.advanced || measured && sacked_earlier;
    }

    /// Takes the round-trip time of an ACK (`tcp_ack_update_rtt`); returns whether there is one. RFC 6298 §3 (Karn):
    /// none of what was sent again, whose ACK may answer either; but the echoed time shows which it was.
    fn measure(
        &mut self,
        transfer: &mut Transfer,
        (config, now): (&Config, Time),
        seen: &Seen,
        acked: &mut Acked,
    ) -> bool {
        let since = |at: u64| now.as_nanos().saturating_sub(at);
        let own = seen.acked_at.filter(|_| !seen.again_acked).map(|(first, last)| (since(first), since(last)));
        let by_sack = seen.sacked_at.map(|(first, last)| (since(first), since(last)));
        let by_echo = seen.echo.get().filter(|_| seen.advanced).map(|echo| since(echo.as_nanos()));
        let Some(rtt) = own.map(|(first, _)| first).or(by_sack.map(|(first, _)| first)).or(by_echo) else {
            return false;
        };
        let last = by_sack.or(own).map_or(rtt, |(_, last)| last);
        self.take_rtt(transfer, (config, now), (rtt, last), acked);
        true
    }

    /// Takes a round-trip time, and that of the segment of the ACK that was sent last.
    #[inline]
    fn take_rtt(
        &mut self,
        transfer: &mut Transfer,
        (config, now): (&Config, Time),
        (rtt, last): (u64, u64),
        acked: &mut Acked,
    ) {
        self.rtt.sample_least(last);
        let round_ended = transfer.una > transfer.round_end;
        self.rtt.sample(config, rtt, round_ended);
        if round_ended {
            transfer.round_end = transfer.next;
            acked.signals.bits |= Signals::ROUND;
        }
        self.rto = self.rtt.rto;
        if self.control.watches_delay() {
            self.watch_delay(transfer, now, last);
        }
    }

    fn watch_delay(&mut self, transfer: &Transfer, now: Time, rtt: u64) {
        let pace = self.pace(transfer, now);
        let Some(exit) = self.control.sample(&pace, &self.window, rtt, (transfer.una, transfer.next)) else { return };
        self.window.set_ssthresh(self.window.cwnd());
        let count = match exit {
            Exit::Train => &mut self.counters.hystart_train,
            Exit::Delay => &mut self.counters.hystart_delay,
        };
        *count += 1;
    }

    /// What an ACK shows about a tail loss probe (`tcp_process_tlp_ack`; RFC 8985, section 7.4).
    fn end_probe(&mut self, transfer: &mut Transfer, now: Time, ack: u32, seen: &Seen) {
        if ack < self.probe_end {
            return;
        }
        if !self.probe_again || seen.probe_duplicate {
            self.probe_end = 0;
        } else if ack > self.probe_end {
            // Only the probe arrived: it repaired a loss, for which the window shrinks.
            self.begin_reduction(transfer, false);
            self.set_state(transfer, now, CaState::Cwr);
            self.end_reduction();
            self.keep_open(transfer, now);
            self.counters.loss_probe_recovery += 1;
        } else if !(seen.advanced || seen.window_moved || seen.sacked) {
            self.probe_end = 0;
        }
    }
}
