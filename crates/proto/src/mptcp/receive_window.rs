//! The receive window as mainline Linux tunes it, which the subflows of a connection share.

use sidestep_net::{MaybeTime, Span, Time};

use crate::tcp::window;

/// The window of a receiver (`mptcp_rcv_space_adjust` of `net/mptcp/protocol.c`).
///
/// The window that an ACK of a subflow offers is the lesser of what the subflow would offer by itself and of what the connection's
/// buffer leaves. The buffer follows what the application has read in a round trip, and the subflows' buffers follow that. It
/// counts as smaller while a subflow that has joined has received nothing, as the connection reckons with the subflow of which a
/// segment takes the most memory, and of such a one with half of the buffer.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    /// What the buffer holds, and what it holds at most.
    buffer: u32,
    limit: u32,
    /// Whether it was known when this was last measured how much memory a segment of each subflow takes (`scaling_ratio`).
    known: bool,
    /// The most that was read in a round trip, what was read in this one, and when that began.
    space: u32,
    copied: u32,
    since: MaybeTime,
    round_trip: Span,
    /// The end of what was offered, which all subflows share (`rcv_wnd_sent`).
    end: u32,
}

impl ReceiveWindow {
    /// The first window: half of the 131,072 bytes of `tcp_rmem`, in segments.
    pub const FIRST: u32 = window::FIRST;

    /// The window of a connection whose buffer holds at most `limit` segments.
    pub fn new(limit: u32) -> Self {
        ReceiveWindow {
            buffer: window::BUFFER.min(limit),
            limit,
            known: true,
            space: window::INITIAL_SPACE,
            copied: 0,
            since: MaybeTime::NONE,
            round_trip: Span::ZERO,
            end: 0,
        }
    }

    /// `read` segments of the connection are newly in order. `round_trips` gives the smoothed round-trip time of each subflow that has
    /// joined, and `None` of one that has received nothing yet; it is asked once in a round trip. Returns how many segments were
    /// read in a round trip, if the buffer has grown for it: the subflows' [follow](crate::tcp::Receiver::follow).
    pub fn handle_data<I: Iterator<Item = Option<Span>>>(
        &mut self,
        now: Time,
        read: u32,
        round_trips: impl FnOnce() -> I,
    ) -> Option<u32> {
        self.copied = self.copied.saturating_add(read);
        if read == 0 || self.is_within(now) {
            return None;
        }
        (self.round_trip, self.known) = (Span::ZERO, true);
        for round_trip in round_trips() {
            self.round_trip = self.round_trip.max(round_trip.unwrap_or(Span::ZERO));
            self.known &= round_trip.is_some();
        }
        if self.is_within(now) || self.round_trip == Span::ZERO {
            return None;
        }
        let (before, copied) = (self.buffer, self.copied);
        if copied > self.space {
            let needed = window::needed(copied, self.space);
            // This much memory has room for more once it is known what a segment takes.
            let needed = if self.known { needed } else { scaled(needed, window::BUFFER, Self::FIRST) };
            self.buffer = before.max(needed.min(self.limit));
            self.space = copied;
        }
        (self.copied, self.since) = (0, now.into());
        (self.buffer > before).then_some(copied)
    }

    /// Whether a round trip that was measured before is not over.
    fn is_within(&self, now: Time) -> bool {
        self.since.get().is_some_and(|since| now.since(since) < self.round_trip)
    }

    /// Whether `held` segments, which wait for earlier ones, take more than half of the buffer.
    pub fn is_short(&self, held: u32) -> bool {
        held > self.buffer / 2
    }

    /// What an ACK of a subflow offers that would offer `own` by itself, while the first missing segment is `data_ack` and `held`
    /// wait for it: no less than another subflow has offered (`mptcp_set_rwin`).
    pub fn offer(&mut self, own: u32, data_ack: u32, held: u32) -> u32 {
        self.end = self.end.max(data_ack.saturating_add(own.min(self.free(held))));
        self.end - data_ack
    }

    fn free(&self, held: u32) -> u32 {
        let free = self.buffer.saturating_sub(held);
        if self.known { free } else { scaled(free, Self::FIRST, window::BUFFER) }
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
    const HEARD: Option<Span> = Some(ROUND_TRIP);
    const SILENT: Option<Span> = None;
    /// A subflow that offers more than the connection has.
    const MUCH: u32 = 100_000;

    /// A segment every millisecond, each of which is read at once; returns what was read in round trips for which the buffer grew.
    fn read(window: &mut ReceiveWindow, millis: std::ops::RangeInclusive<u64>, joined: &[Option<Span>]) -> Vec<u32> {
        let handle = |at| window.handle_data(Time::ZERO + Span::from_millis(at), 1, || joined.iter().copied());
        millis.filter_map(handle).collect()
    }

    #[test]
    fn it_grows_with_what_was_read_in_a_round_trip() {
        let mut window = ReceiveWindow::new(10_000);
        assert_eq!((window.offer(45, 0, 0), window.offer(MUCH, 0, 0)), (45, 60));
        assert_eq!(read(&mut window, 0..=99, &[HEARD]), []);
        // 100 in a round trip instead of 10: 200, and twice 200 times 90 tenths.
        assert_eq!(read(&mut window, 100..=101, &[HEARD]), [100]);
        assert_eq!((window.buffer, window.free(0)), (3_800, 3_800));
        // As many in the next one: it stays.
        assert_eq!(read(&mut window, 102..=300, &[HEARD]), []);
        // What waits for earlier segments takes room.
        assert_eq!((window.free(3_750), window.free(4_000)), (50, 0));
        assert!(window.is_short(1_901) && !window.is_short(1_900));
    }

    #[test]
    fn it_counts_as_smaller_while_a_subflow_that_joined_has_received_nothing() {
        let mut window = ReceiveWindow::new(10_000);
        read(&mut window, 0..=9, &[HEARD]);
        let mut take = |millis: u64, second: Option<Span>, expected: [u32; 2]| {
            let now = Time::ZERO + Span::from_millis(millis);
            window.handle_data(now, 1, || [HEARD, second].into_iter());
            assert_eq!([window.free(0), window.free(20)], expected, "{millis}");
        };
        take(50, SILENT, [60, 40]);
        // Once in a round trip it looks again: the other has joined.
        take(150, SILENT, [45, 30]);
        take(151, HEARD, [45, 30]);
        take(250, HEARD, [60, 40]);
    }

    #[test]
    fn what_was_read_lets_it_grow_to_as_many_segments_whether_or_not_their_memory_is_known() {
        let grown = |joined: &[Option<Span>]| {
            let mut window = ReceiveWindow::new(10_000);
            assert_eq!(read(&mut window, 0..=100, joined), [100]);
            (window.known, window.buffer)
        };
        assert_eq!(grown(&[HEARD]), (true, 3_800));
        // Of what counts as 5,066 three quarters are left.
        assert_eq!(grown(&[HEARD, SILENT]), (false, 5_066));
    }

    #[test]
    fn subflows_share_the_end_of_what_is_offered() {
        let mut window = ReceiveWindow::new(10_000);
        assert_eq!(window.offer(50, 0, 0), 50);
        // Another would offer less by itself, and may send as much.
        assert_eq!(window.offer(45, 10, 0), 45);
        assert_eq!(window.offer(30, 10, 0), 45);
        // Of 60 only 40 are free, and what was offered stays so.
        assert_eq!(window.offer(45, 10, 20), 45);
    }

    #[test]
    fn it_never_exceeds_the_limit() {
        let mut window = ReceiveWindow::new(60);
        assert_eq!(read(&mut window, 1..=1_000, &[HEARD]), []);
        assert_eq!((window.buffer, window.free(0)), (60, 60));
        assert_eq!(ReceiveWindow::new(20).free(0), 20);
    }
}
