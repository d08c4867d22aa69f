//! The receive window as Linux tunes it (`tcp_grow_window`, `tcp_rcv_space_adjust` and `tcp_rcvbuf_grow` of
//! `net/ipv4/tcp_input.c`).

use sidestep_net::Time;

/// What a receiver offers, in segments.
///
/// A threshold grows by two segments with each that comes, up to what the buffer holds. The buffer follows what the application has
/// read in a round trip. Segments are as long as those of an Ethernet frame, and the application reads at once.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// What is offered (`rcv_ssthresh`).
    threshold: u32,
    /// What the buffer holds, and what it may hold at most.
    buffer: u32,
    limit: u32,
    /// The segments in it that wait for an earlier one.
    held: u32,
    /// The most that was read in a round trip, what was read in this one, and when that began (`rcvq_space`).
    space: u32,
    copied: u32,
    since: Time,
}

/// Half of the 131,072 bytes of `tcp_rmem`, before it is known how much memory a segment takes
/// (`TCP_DEFAULT_SCALING_RATIO`).
pub(crate) const FIRST: u32 = 45;
/// 131,072 bytes, of which a segment of 1,428 takes 2,176 with what Linux keeps of it. The kernel reckons with half of them until the
/// first segment has come (`tcp_measure_rcv_mss`).
pub(crate) const BUFFER: u32 = 60;
/// What counts as read in a round trip at first (`TCP_INIT_CWND`).
pub(crate) const INITIAL_SPACE: u32 = 10;

impl Window {
    /// The window of a receiver that may hold `limit` segments.
    pub(super) fn new(limit: u32) -> Window {
        Window {
            threshold: FIRST.min(limit),
            buffer: BUFFER.min(limit),
            limit,
            held: 0,
            space: INITIAL_SPACE,
            copied: 0,
            since: Time::ZERO,
        }
    }

    /// The connection is established: its first round trip begins.
    pub(super) fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// What an ACK offers.
    pub(super) fn offered(&self) -> u32 {
        self.threshold
    }

    /// A segment has come, which is in the buffer beside those that wait if it is in order, until it is read. Returns whether the
    /// window grew, which must be reported at once.
    #[inline]
    pub(super) fn grow(&mut self, in_order: bool) -> bool {
        let taken = self.threshold + self.held + u32::from(in_order);
        if taken >= self.buffer {
            return false;
        }
        // Two, as a sender in slow start sends two for each that was acknowledged.
        self.threshold += (self.buffer - taken).min(2);
        true
    }

    /// The application has read `segments` segments. `round_trip` is in nanoseconds; zero: not known. `beyond`: how far those
    /// reach that wait for an earlier one.
    #[inline]
    pub(super) fn read(&mut self, now: Time, segments: u32, round_trip: u64, beyond: impl FnOnce() -> u32) {
        self.copied = self.copied.saturating_add(segments);
        if round_trip == 0 || now.since(self.since).as_nanos() < round_trip {
            return;
        }
        if self.copied > self.space {
            self.follow(self.copied, beyond());
        }
        (self.copied, self.since) = (0, now);
    }

    /// `copied` segments were read in a round trip, more than in any before: by the application, or from the connection that this
    /// is a subflow of.
    pub(super) fn follow(&mut self, copied: u32, beyond: u32) {
        let needed = needed(copied, self.space).saturating_add(beyond);
        self.buffer = self.buffer.max(needed.min(self.limit));
        self.space = copied;
    }

    /// Segments wait for an earlier one, and reach this far beyond it: the buffer must hold what is sent meanwhile, too
    /// (`tcp_data_queue_ofo`).
    #[inline]
    pub(super) fn make_room(&mut self, beyond: u32) {
        let needed = self.space.saturating_mul(2).saturating_add(beyond);
        self.buffer = self.buffer.max(needed.min(self.limit));
    }

    /// `held` segments wait for an earlier one.
    #[inline]
    pub(super) fn hold(&mut self, held: u32) {
        self.held = held;
    }

    /// Whether these take more than half of the buffer.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.held > self.buffer / 2
    }
}

/// What a buffer must hold when `copied` segments were read in a round trip, and `space` at most in those before
/// (`tcp_rcvbuf_grow`): the measurement is a round trip late, and in slow start the sender doubles its rate.
pub(crate) fn needed(copied: u32, space: u32) -> u32 {
    let window = 2 * u64::from(copied);
    let growth = window * u64::from(copied.saturating_sub(space)) / u64::from(space);
    u32::try_from(window + 2 * growth).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use sidestep_net::Span;

    use super::*;

    const ROUND_TRIP: u64 = 25_000_000;

    fn read(window: &mut Window, millis: u64, segments: u32) {
        window.read(Time::ZERO + Span::from_millis(millis), segments, ROUND_TRIP, || 0);
    }

    // What `tcp:tcp_rcvbuf_grow` reported of Linux 6.18 in the lab: a transfer over 20 Mbit/s and 24 ms.
    #[test]
    fn the_buffer_follows_what_is_read_in_a_round_trip() {
        let mut window = Window::new(4_000);
        read(&mut window, 26, 12);
        assert_eq!((window.buffer, window.space), (60, 12));
        read(&mut window, 53, 24);
        // 313,344 bytes, of which 205,632 of payload.
        assert_eq!((window.buffer, window.space), (144, 24));
        read(&mut window, 60, 30);
        assert_eq!((window.buffer, window.space), (144, 24), "within the round trip");
    }

    #[test]
    fn it_grows_by_two_segments_with_each_until_the_buffer_is_offered() {
        let mut window = Window::new(4_000);
        let grown = (0..20).take_while(|_| window.grow(true)).count();
        assert_eq!((grown, window.offered()), (7, 59));
        // Out of order it is in the buffer after that alone.
        assert!(window.grow(false) && !window.grow(false));
        read(&mut window, 26, 24);
        assert!(window.grow(true));
        // Out of order: what waits takes its place.
        window.hold(200);
        assert!(!window.grow(false));
    }

    #[test]
    fn what_waits_beyond_a_gap_has_room_beside_what_is_read() {
        let mut window = Window::new(4_000);
        window.make_room(30);
        assert_eq!(window.buffer, 60);
        window.make_room(50);
        assert_eq!(window.buffer, 2 * 10 + 50);
        let mut is_short = |held| {
            window.hold(held);
            window.is_short()
        };
        assert!(is_short(36) && !is_short(35));
        window.read(Time::ZERO + Span::from_millis(26), 24, ROUND_TRIP, || 50);
        assert_eq!(window.buffer, 48 + 2 * 67 + 50);
        window.make_room(u32::MAX);
        assert_eq!(window.buffer, 4_000);
    }

    #[test]
    fn it_never_exceeds_the_limit() {
        let mut window = Window::new(20);
        assert!(!window.grow(false));
        read(&mut window, 26, 1_000);
        assert_eq!((window.offered(), window.buffer), (20, 20));
    }
}
