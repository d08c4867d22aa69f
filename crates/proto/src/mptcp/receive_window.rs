//! The receive window as mainline Linux tunes it, which the subflows of a connection share.

use sidestep_model::{Span, Time};

use crate::tcp::window;

/// The window of a receiver (`mptcp_rcv_space_adjust` of `net/mptcp/protocol.c`, `tcp_grow_window` of `net/ipv4/tcp_input.c`).
///
/// Each subflow has a threshold, which grows by two segments with each segment that it receives. The window that an ACK of
/// the subflow offers is the lesser of that threshold and of what the connection's buffer leaves. The buffer follows what the
/// application has read in a round trip.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    /// What each subflow offers at most.
    thresholds: Vec<u32>,
    /// What the buffer holds, and what it holds at most.
    buffer: u32,
    limit: u32,
    /// The most that was read in a round trip, what was read in this one, and when that began.
    space: u32,
    copied: u32,
    since: Time,
    round_trip: Span,
}

impl ReceiveWindow {
    /// The first window: half of the 131,072 bytes of `tcp_rmem`, in segments.
    pub const FIRST: u32 = window::FIRST;

    /// The window of a connection of so many subflows, whose buffer holds at most `limit` segments.
    pub fn new(subflows: usize, limit: u32) -> Self {
        ReceiveWindow {
            thresholds: vec![Self::FIRST.min(limit); subflows],
            buffer: window::BUFFER.min(limit),
            limit,
            space: window::INITIAL_SPACE,
            copied: 0,
            since: Time::ZERO,
            round_trip: Span::ZERO,
        }
    }

    /// A subflow has received a segment, after which `read` segments of the connection are newly in order. `round_trip` gives
    /// the longest round-trip time of the subflows; it is asked once in a round trip.
    pub fn handle_data(&mut self, now: Time, subflow: usize, read: u32, round_trip: impl FnOnce() -> Span) {
        if let Some(threshold) = self.thresholds.get_mut(subflow) {
            *threshold = (*threshold + 2).min(self.buffer);
        }
        self.copied = self.copied.saturating_add(read);
        if read == 0 || now.since(self.since) < self.round_trip {
            return;
        }
        self.round_trip = round_trip();
        if now.since(self.since) < self.round_trip || self.round_trip == Span::ZERO {
            return;
        }
        if self.copied > self.space {
            self.buffer = self.buffer.max(window::needed(self.copied, self.space).min(self.limit));
            self.space = self.copied;
        }
        (self.copied, self.since) = (0, now);
    }

    /// What an ACK of a subflow offers while the buffer holds so many segments that wait for earlier ones.
    pub fn offered(&self, subflow: usize, held: u32) -> u32 {
        self.thresholds.get(subflow).copied().unwrap_or(0).min(self.buffer.saturating_sub(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Span = Span::from_millis(100);

    /// A segment over a subflow every millisecond, each of which is read at once.
    fn read(window: &mut ReceiveWindow, from: u64, to: u64, subflow: usize) {
        for millis in from..to {
            window.handle_data(Time::ZERO + Span::from_millis(millis), subflow, 1, || ROUND_TRIP);
        }
    }

    #[test]
    fn it_grows_by_two_segments_for_each_received_up_to_what_was_read_in_a_round_trip() {
        let mut window = ReceiveWindow::new(2, 10_000);
        assert_eq!((window.offered(0, 0), window.offered(1, 0)), (45, 45));
        // The buffer holds 60. Linux 6.18 was seen to offer 45 segments first, and 58 from the eighth on.
        read(&mut window, 1, 99, 0);
        assert_eq!((window.offered(0, 0), window.offered(1, 0)), (60, 45));
        // 100 in a round trip instead of 10: 200, and twice 200 times 90 tenths.
        read(&mut window, 99, 101, 0);
        assert_eq!(window.buffer, 200 + 2 * 1_800);
        read(&mut window, 101, 111, 0);
        assert_eq!((window.offered(0, 0), window.offered(1, 0)), (80, 45));
        // What waits for earlier segments takes room.
        assert_eq!((window.offered(0, 3_750), window.offered(0, 4_000)), (50, 0));
    }

    #[test]
    fn it_never_exceeds_the_limit() {
        let mut window = ReceiveWindow::new(1, 60);
        read(&mut window, 1, 1_000, 0);
        assert_eq!((window.buffer, window.offered(0, 0)), (60, 60));
        assert_eq!(ReceiveWindow::new(1, 20).offered(0, 0), 20);
    }
}
