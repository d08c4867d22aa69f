//! The receive window as mainline Linux tunes it, which the subflows of a connection share.

use sidestep_model::{Span, Time};

use crate::tcp::window;

/// The window of a receiver (`mptcp_rcv_space_adjust` of `net/mptcp/protocol.c`, `tcp_grow_window` of `net/ipv4/tcp_input.c`).
///
/// Each subflow has a threshold, which grows by two segments with each segment that it receives. The window that an ACK of
/// the subflow offers is the lesser of that threshold and of what the connection's buffer leaves. The buffer follows what the
/// application has read in a round trip. It counts as smaller while a subflow that has joined has received nothing, as the
/// connection reckons with the subflow of which a segment takes the most memory, and of such a one with half of the buffer.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    /// What each subflow offers at most, and whether it has received anything.
    thresholds: Vec<(u32, bool)>,
    /// What the buffer holds, and what it holds at most.
    buffer: u32,
    limit: u32,
    /// Whether it was known when this was last measured how much memory a segment of each subflow takes (`scaling_ratio`).
    known: bool,
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
            thresholds: vec![(Self::FIRST.min(limit), false); subflows],
            buffer: window::BUFFER.min(limit),
            limit,
            known: true,
            space: window::INITIAL_SPACE,
            copied: 0,
            since: Time::ZERO,
            round_trip: Span::ZERO,
        }
    }

    /// A subflow has received a segment, after which `read` segments of the connection are newly in order. `round_trips` gives
    /// the round-trip time of each subflow that has joined, and `None` of the others; it is asked once in a round trip.
    pub fn handle_data<I: Iterator<Item = Option<Span>>>(
        &mut self,
        now: Time,
        subflow: usize,
        read: u32,
        round_trips: impl FnOnce() -> I,
    ) {
        if let Some((threshold, heard)) = self.thresholds.get_mut(subflow) {
            *threshold = (*threshold + 2).min(self.buffer);
            *heard = true;
        }
        self.copied = self.copied.saturating_add(read);
        if read == 0 || now.since(self.since) < self.round_trip {
            return;
        }
        (self.round_trip, self.known) = (Span::ZERO, true);
        for ((_, heard), round_trip) in self.thresholds.iter().zip(round_trips()) {
            let Some(round_trip) = round_trip else { continue };
            self.round_trip = self.round_trip.max(round_trip);
            self.known &= heard;
        }
        if now.since(self.since) < self.round_trip || self.round_trip == Span::ZERO {
            return;
        }
        if self.copied > self.space {
            let needed = window::needed(self.copied, self.space);
            // So much memory has room for more once it is known what a segment takes.
            let needed = if self.known { needed } else { scaled(needed, window::BUFFER, Self::FIRST) };
            self.buffer = self.buffer.max(needed.min(self.limit));
            self.space = self.copied;
        }
        (self.copied, self.since) = (0, now);
    }

    /// What an ACK of a subflow offers while the buffer holds so many segments that wait for earlier ones.
    pub fn offered(&self, subflow: usize, held: u32) -> u32 {
        let free = self.buffer.saturating_sub(held);
        let free = if self.known { free } else { scaled(free, Self::FIRST, window::BUFFER) };
        self.thresholds.get(subflow).map_or(0, |(threshold, _)| *threshold).min(free)
    }
}

/// `number` times `times` divided by `by`.
fn scaled(number: u32, times: u32, by: u32) -> u32 {
    (u64::from(number) * u64::from(times) / u64::from(by)).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Span = Span::from_millis(100);

    /// A segment over a subflow every millisecond, each of which is read at once.
    fn read(window: &mut ReceiveWindow, from: u64, to: u64, subflow: usize) {
        for millis in from..to {
            window.handle_data(Time::ZERO + Span::from_millis(millis), subflow, 1, || {
                [Some(ROUND_TRIP), None].into_iter()
            });
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
    fn it_counts_as_smaller_while_a_subflow_that_joined_has_received_nothing() {
        let mut window = ReceiveWindow::new(2, 10_000);
        read(&mut window, 1, 9, 0);
        assert_eq!(window.offered(0, 0), 60);
        let mut take = |millis: u64, subflow, expected: [u32; 2]| {
            let now = Time::ZERO + Span::from_millis(millis);
            window.handle_data(now, subflow, 1, || [Some(ROUND_TRIP); 2].into_iter());
            assert_eq!([window.offered(0, 0), window.offered(0, 20)], expected, "{millis}");
        };
        take(50, 0, [60, 40]);
        // Once in a round trip it looks again: the other has joined.
        take(150, 0, [45, 30]);
        take(151, 1, [45, 30]);
        take(250, 0, [60, 40]);
    }

    #[test]
    fn what_was_read_lets_it_grow_to_as_many_segments_whether_or_not_their_memory_is_known() {
        let grown = |joined: Option<Span>| {
            let mut window = ReceiveWindow::new(2, 10_000);
            let trips = [Some(ROUND_TRIP), joined];
            for millis in 1..=100 {
                window.handle_data(Time::ZERO + Span::from_millis(millis), 0, 1, || trips.into_iter());
            }
            (window.known, window.buffer)
        };
        assert_eq!(grown(None), (true, 3_800));
        // Of what counts as 5,066 three quarters are left.
        assert_eq!(grown(Some(ROUND_TRIP)), (false, 5_066));
    }

    #[test]
    fn it_never_exceeds_the_limit() {
        let mut window = ReceiveWindow::new(1, 60);
        read(&mut window, 1, 1_000, 0);
        assert_eq!((window.buffer, window.offered(0, 0)), (60, 60));
        assert_eq!(ReceiveWindow::new(1, 20).offered(0, 0), 20);
    }
}
