//! How many segments leave together, and which wait for more (`tcp_tso_autosize`, `tcp_cwnd_test`, `tcp_tso_should_defer`).

use sidestep_net::{Span, Time};

use super::{CaState, Linux};
use crate::tcp::transfer::{Transfer, flag};

/// Fewest segments of a full batch (`tcp_min_tso_segs`).
const MIN_SEGMENTS: u32 = 2;
/// Bytes of a segment, and most bytes of a batch (`sk_gso_max_size`).
const SEGMENT: u32 = 1448;
const MAX_BYTES: u64 = 65_536;
/// A hundredth of a segment's bytes in 1024 batches a second (`sk_pacing_shift`), times the nanoseconds of a second.
const BATCH_BYTES: u64 = SEGMENT as u64 * 1_000_000_000 / 1024 / 100;
/// A batch halves for each period of this many nanoseconds in the least round-trip time (`tcp_tso_rtt_log`).
const HALVING: u64 = 512_000;
/// A batch leaves that is this part of a window (`tcp_tso_win_divisor`).
const WINDOW_DIVISOR: u32 = 3;
/// Nothing waits longer than this after what was sent last, nor for an ACK that is farther away (`NSEC_PER_MSEC` in
/// `tcp_tso_should_defer`): a full batch would not be worth the delay.
const SOON: Span = Span::from_millis(1);

impl Linux {
    /// Sets how many segments leave together now, none if they wait, where the congestion window has room for `room`; returns
    /// whether it makes them wait.
    #[inline]
    pub(super) fn begin_batch(&mut self, transfer: &Transfer, now: Time, room: u32) -> bool {
        let (allowed, waiting) = (transfer.window_end - transfer.next, transfer.supplied - transfer.next);
        // The full batch comes last, as it takes a division.
        if waiting > 1
            && self.defers(transfer, now, (room, allowed, waiting))
            && room.min(allowed) < self.full_batch(transfer)
        {
            return room < allowed && room <= waiting;
        }
        // Two batches fit the window at least.
        let half = (self.window.cwnd() / 2).max(1);
        self.batch = half.min(room).min(allowed).min(waiting);
        if self.batch > MIN_SEGMENTS {
            self.batch = self.batch.min(self.full_batch(transfer));
        }
        false
    }

    /// The segments of a full batch: what goes in a 1024th of a second at the pacing rate (`tcp_update_pacing_rate`), and more on short
    /// round trips.
    #[inline]
    fn full_batch(&self, transfer: &Transfer) -> u32 {
        let (cwnd, ssthresh) = (self.window.cwnd(), self.window.ssthresh());
        let percent = if cwnd < ssthresh / 2 { 200 } else { 120 };
        let paced = u64::from(cwnd.max(transfer.outstanding())) * percent * BATCH_BYTES / self.rtt.srtt().max(1);
        let near = MAX_BYTES.checked_shr((self.rtt.least / HALVING) as u32).unwrap_or(0);
        ((paced + near).min(MAX_BYTES) as u32 / SEGMENT).max(MIN_SEGMENTS)
    }

    /// Whether less than a full batch waits for the next ACK.
    fn defers(&self, transfer: &Transfer, now: Time, (room, allowed, waiting): (u32, u32, u32)) -> bool {
        let window = self.window.cwnd().min(transfer.window_end - transfer.una);
        if self.state >= CaState::Recovery
            || now.since(transfer.last_sent) > SOON
            || transfer.una == transfer.next
            || room.min(allowed) * WINDOW_DIVISOR >= window
        {
            return false;
        }
        let srtt = self.rtt.srtt();
        let ack_at = self.segments.sent_at(transfer.una) + srtt;
        if ack_at > now.as_nanos() + (srtt / 2).min(SOON.as_nanos()) {
            return false;
        }
        let no_more = transfer.flags & flag::FIN != 0;
        !no_more || room.min(allowed) <= waiting
    }
}
