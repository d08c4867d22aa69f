//! Which segments are lost, by the times when they were sent (RFC 8985; Linux's `tcp_recovery.c`).

use super::segments::{EVER, LOST, RETRANSMITTED, SACKED, Segments};

/// The latest segment that is known to have arrived, by the time when it was sent, and the tolerance of reordering.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    /// When it was sent, and the segment after it (RFC 8985 §5.3: RACK.xmit_ts and RACK.end_seq).
    sent_at: u64,
    end: u32,
    /// Its round-trip time, or that of a segment which arrived later (RACK.rtt).
    round_trip: u64,
    /// Quarters of the least round-trip time that reordered segments are waited for, and for how many more recoveries
    /// (RACK.reo_wnd_mult and RACK.reo_wnd_persist).
    pub(super) steps: u8,
    pub(super) persists: u8,
    /// A segment arrived since losses were looked for.
    pub(super) advanced: bool,
    /// A segment was sent again needlessly.
    pub(super) duplicate_seen: bool,
    /// When the tolerance was widened last.
    widened_at: u64,
    /// A segment arrived later than one that was sent after it (RACK.reordering_seen).
    pub(super) reordered: bool,
}

/// For how many recoveries the tolerance stays wide (`TCP_RACK_RECOVERY_THRESH`). RFC 8985 §6.2, step 4: 16, so that
/// where reordering lasts one recovery in 16 at most is spurious, and where it has ended losses do not wait for ever.
pub(super) const PERSISTS: u8 = 16;

impl Rack {
    pub(super) fn new() -> Self {
        Rack {
            sent_at: 0,
            end: 0,
            round_trip: 0,
            steps: 1,
            persists: 0,
            advanced: false,
            duplicate_seen: false,
            widened_at: 0,
            reordered: false,
        }
    }

    /// A segment has arrived that was sent last at `sent_at` (`tcp_rack_advance`).
    #[inline]
    pub(super) fn advance(&mut self, now: u64, sent_at: u64, seq: u32, again: bool, min_rtt: u64) {
        let round_trip = now.saturating_sub(sent_at);
        // RFC 8985 §6.2, step 2: nothing is answered in less than the least round trip, so the ACK is for what was sent
        // first. Its time would make the round trip far too short, and others lost.
        if again && round_trip < min_rtt {
            return;
        }
        self.advanced = true;
        self.round_trip = round_trip;
        // Many segments are sent in one tick of the clock: of these the number shows which is the latest
        // (RACK_sent_after).
        if sent_at > self.sent_at || sent_at == self.sent_at && seq + 1 > self.end {
            (self.sent_at, self.end) = (sent_at, seq + 1);
        }
    }

    /// Widens the tolerance if something was sent again needlessly, and the `newest` segment that an ACK reports was sent since
    /// it was widened last (`tcp_rack_update_reo_wnd`). Zero: the ACK reports none.
    ///
    /// RFC 8985 §6.2, step 4: one step in a round trip, as what was sent again before the last step shows nothing about it.
    #[inline]
    pub(super) fn adapt(&mut self, now: u64, newest: Option<u64>) {
        let Some(newest) = newest else { return };
        if self.duplicate_seen {
            self.duplicate_seen = false;
            if newest >= self.widened_at {
                self.steps = self.steps.saturating_add(1);
                self.widened_at = now;
                self.persists = PERSISTS;
            }
        } else if self.persists == 0 {
            self.steps = 1;
        }
    }

    /// Whether a segment was sent before the latest that has arrived.
    fn is_before(&self, sent_at: u64, seq: u32) -> bool {
        sent_at < self.sent_at || sent_at == self.sent_at && seq + 1 < self.end
    }

    /// RFC 8985 §6.2, step 5: how much longer a segment may be on its way; less than a microsecond, by which Linux
    /// counts, is nothing: what was sent at
    /// one time, here a nanosecond apart, is lost at one time.
    fn remaining(&self, now: u64, sent_at: u64, tolerance: u64) -> u64 {
        let left = (self.round_trip + tolerance).saturating_sub(now.saturating_sub(sent_at));
        if left < 1_000 { 0 } else { left }
    }

    /// Whether a segment was sent so recently that it may still arrive. RFC 8985 §6.3 adds the tolerance of reordering,
    /// which Linux leaves out (`tcp_timeout_mark_lost`).
    pub(super) fn may_arrive(&self, now: u64, sent_at: u64) -> bool {
        self.remaining(now, sent_at, 0) > 0
    }

    /// Counts segments as lost that were sent long enough before the latest that has arrived (`tcp_rack_detect_loss`). Returns
    /// how long to wait until those count as lost that do not yet; zero: none is waited for.
    pub(super) fn detect(&self, now: u64, segments: &mut Segments, (una, next): (u32, u32), tolerance: u64) -> u64 {
        let wait = self.detect_first(now, segments, next, tolerance);
        self.detect_again(now, segments, una, tolerance).max(wait)
    }

    /// Among those that were sent once, which are in the order of their times.
    fn detect_first(&self, now: u64, segments: &mut Segments, next: u32, tolerance: u64) -> u64 {
        let mut wait = 0;
        let mut resolved = true;
        for seq in segments.examined..next {
            let sent_at = segments.sent_at(seq);
            if !segments.has(seq, SACKED | LOST | EVER) {
                if !self.is_before(sent_at, seq) {
                    break;
                }
                match self.remaining(now, sent_at, tolerance) {
                    0 => segments.lose(seq),
                    remaining => {
                        wait = wait.max(remaining);
                        resolved = false;
                    }
                }
            }
            if resolved {
                segments.examined = seq + 1;
            }
        }
        wait
    }

    /// Among those that were sent again.
    fn detect_again(&self, now: u64, segments: &mut Segments, una: u32, tolerance: u64) -> u64 {
        let (mut wait, mut kept) = (0, 0);
        while let Some(&(seq, sent_at)) = segments.again.get(kept) {
            let is_known = |segments: &Segments| {
                let lost = segments.has(seq, LOST) && !segments.has(seq, RETRANSMITTED);
                seq < una || segments.sent_at(seq) != sent_at || segments.has(seq, SACKED) || lost
            };
            if !is_known(segments) {
                if !self.is_before(sent_at, seq) {
                    break;
                }
                match self.remaining(now, sent_at, tolerance) {
                    0 => {
                        segments.lose(seq);
                        // No segment was sent at this time: the entry means nothing any more.
                        segments.again[kept].1 = u64::MAX;
                    }
                    remaining => wait = wait.max(remaining),
                }
            }
            if kept == 0 && is_known(segments) {
                segments.again.pop_front();
            } else {
                kept += 1;
            }
        }
        wait
    }
}
