//! One direction of a wire: frames from one TAP to the other, when the link model delivers them.

use std::sync::Arc;

use nix::errno::Errno;
use sidestep_net::{Bytes, Channel, QueueLimit, Span, Time};
use sidestep_proto::link::{LinkModel, LinkState, Verdict};

use super::{
    ArcStats,
    ecn::{self, ETHERNET_HEADER},
    frames::{Frames, Room},
    thread_stats::ThreadStats,
};
use crate::tap::Tap;

/// Frames read or written at once before the other directions have their turn.
const BATCH: usize = 64;

/// The time for which a direction may hold frames beyond its model, because the machine is late.
const LATE_ROOM: Span = Span::from_millis(20);
/// The least number of frames that a direction may hold beyond its model.
const MIN_FRAMES: u64 = 64;
/// The number of frames that a wire without a rate may hold.
const UNLIMITED_FRAMES: u64 = 4_096;
/// Most bytes that one direction holds.
const MAX_BYTES: u64 = 16 << 20;

/// One direction of a wire.
#[derive(Debug)]
pub(super) struct WireDirection {
    from: Arc<Tap>,
    to: Arc<Tap>,
    /// The Ethernet address of `from`.
    address: [u8; 6],
    model: LinkModel,
    /// When the last frame arrived, or the link changed: the model's time, which only goes on.
    arrived: Time,
    frames: Frames,
    /// Largest Ethernet frame carried.
    max_frame: usize,
    passed: u64,
    oversized: u64,
    overruns: u64,
    write_errors: u64,
    late: u64,
    max_late: Span,
}

impl WireDirection {
    /// A direction that is up and empty.
    pub(super) fn new(from: Arc<Tap>, to: Arc<Tap>, channel: &Channel, mtu: u32, seed: u64, stream: u64) -> Self {
        let max_frame = mtu as usize + ETHERNET_HEADER;
        // An interface that is gone fails when it is read.
        let address = from.address().unwrap_or_default();
        WireDirection {
            from,
            to,
            address,
            arrived: Time::ZERO,
            model: LinkModel::new(channel, seed, stream),
            // One byte more than a frame may have, for `read` to show that it has more.
            frames: Frames::new(capacity(channel, max_frame), max_frame + 1),
            max_frame,
            passed: 0,
            oversized: 0,
            overruns: 0,
            write_errors: 0,
            late: 0,
            max_late: Span::ZERO,
        }
    }

    /// Where frames come from.
    pub(super) fn source(&self) -> &Tap {
        &self.from
    }

    /// When the next frame must be delivered; [`Time::MAX`] without one.
    pub(super) fn next_due(&self) -> Time {
        self.frames.next_due()
    }

    /// Takes the frames that wait in the TAP, at most a batch of them, and notes what each takes.
    ///
    /// # Errors
    /// The TAP is gone.
    pub(super) fn receive(&mut self, stats: &mut ThreadStats) -> Result<(), Errno> {
        for _ in 0..BATCH {
            let room = self.frames.room();
            let bytes = self.frames.bytes_mut(room);
            match nix::unistd::read(&*self.from, &mut *bytes) {
                Ok(len) => {
                    let now = stats.read();
                    let arrived = stats.arrival(bytes, self.address, now);
                    self.arrived = self.arrived.max(arrived);
                    self.admit(self.arrived, room, len);
                }
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Hands the frames that are due by `now` to the far TAP, at most a batch of them, and notes how late each was and
    /// what it took; returns when that was done.
    pub(super) fn transmit(&mut self, now: Time, stats: &mut ThreadStats) -> Time {
        let mut begun = now;
        for _ in 0..BATCH {
            let Some((due, frame)) = self.frames.first() else { break };
            if due > now {
                break;
            }
            stats.hands_over(due);
            if nix::unistd::write(&*self.to, frame).is_err() {
                self.write_errors += 1;
            }
            let behind = begun.since(due);
            self.late += u64::from(stats.lateness.record(behind));
            self.max_late = self.max_late.max(behind);
            self.frames.pop();
            begun = stats.wrote();
        }
        stats.handed_over();
        begun
    }

    /// Changes whether the direction carries frames; a cut loses those that it holds.
    pub(super) fn set_state(&mut self, now: Time, state: LinkState) {
        self.model.set_state(now, state);
        self.arrived = self.arrived.max(now);
        while state == LinkState::Down
            && let Some((_, frame)) = self.frames.first()
        {
            match ecn::ecn_of(frame) {
                Some(_) => self.model.discarded(packet_len(frame.len())),
                None => self.passed -= 1,
            }
            self.frames.pop();
        }
    }

    /// Changes rate, delay, queue and loss, also for the frames that the model has not sent yet.
    pub(super) fn set_channel(&mut self, now: Time, channel: &Channel) {
        self.arrived = self.arrived.max(now);
        let model = &mut self.model;
        self.frames.revise(|frame| ecn::ecn_of(frame).is_some(), |dues| model.set_channel(now, channel, dues));
        self.frames.grow(capacity(channel, self.max_frame));
    }

    /// What the direction has done, and what it holds at `now`.
    pub(super) fn stats(&self, now: Time) -> ArcStats {
        // A copy of the model: a frame that arrived before `now` and is read later finds the queue as it was then.
        let (queue_packets, queue_bytes) = self.model.clone().occupancy(now);
        ArcStats {
            counters: *self.model.counters(),
            queue_packets,
            queue_bytes,
            passed: self.passed,
            oversized: self.oversized,
            overruns: self.overruns,
            write_errors: self.write_errors,
            late: self.late,
            max_late: self.max_late,
        }
    }

    /// Decides on the frame of `len` bytes that was read into `room`.
    fn admit(&mut self, now: Time, room: Room, len: usize) {
        if len > self.max_frame {
            self.oversized += 1;
            return;
        }
        if !self.frames.is_kept(room) {
            self.overruns += 1;
            return;
        }
        let Some(frame) = self.frames.bytes_mut(room).get_mut(..len) else { return };
        let due = match ecn::ecn_of(frame) {
            Some(ecn) => match self.model.enqueue(now, packet_len(len), ecn::is_capable(ecn)) {
                Verdict::Deliver { at, mark_ce } => {
                    if mark_ce {
                        ecn::mark_ce(frame);
                    }
                    at
                }
                Verdict::Drop(_) => return,
            },
            None if self.model.state() == LinkState::Up => {
                self.passed += 1;
                now + self.model.delay()
            }
            None => return,
        };
        self.frames.push(room, len, due);
    }
}

/// Length of the IP packet in a frame: links' rates and limits do not know of Ethernet.
fn packet_len(frame_len: usize) -> u32 {
    frame_len.saturating_sub(ETHERNET_HEADER) as u32
}

/// Bytes that a direction with this channel can hold at once.
fn capacity(channel: &Channel, max_frame: usize) -> usize {
    let frame = max_frame as u64;
    let queue = match channel.queue.limit {
        QueueLimit::Packets(packets) => u64::from(packets).saturating_mul(frame),
        QueueLimit::Bytes(bytes) => bytes.get(),
    };
    let flight = channel.rate.bytes_in(channel.delay + LATE_ROOM);
    let held = if channel.rate.bits_per_sec() == 0 {
        UNLIMITED_FRAMES * frame
    } else {
        // The model counts no Ethernet headers: up to a third of what small packets take.
        let counted = Bytes::new(queue) + flight;
        counted.get() / 2 * 3 + MIN_FRAMES * frame
    };
    held.min(MAX_BYTES) as usize
}

#[cfg(test)]
mod tests {
    use sidestep_net::{Queue, Rate, Ratio};

    use super::*;
    use crate::{netns::NetNs, testing::root_or_skip};

    /// A direction of 10 Mbit/s, over which 1000 bytes take 800 µs, and in which one packet may wait.
    fn direction() -> WireDirection {
        let ends = || Ok((Arc::new(Tap::create("near", 1)?), Arc::new(Tap::create("far", 1)?)));
        let (near, far) = NetNs::create().unwrap().run(ends).unwrap();
        let queue = Queue { limit: QueueLimit::Packets(1), ecn_threshold: None, red: None };
        let (rate, delay) = (Rate::from_mbits(10), Span::ZERO);
        let channel = Channel { rate, delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: 1 };
        WireDirection::new(near, far, &channel, 1_500, 1, 0)
    }

    impl WireDirection {
        /// A frame with an IP packet of 1000 bytes is read that arrived this number of microseconds after the start.
        fn reads(&mut self, arrived: u64) {
            let (room, len) = (self.frames.room(), ETHERNET_HEADER + 1_000);
            self.frames.bytes_mut(room)[..len].fill(0);
            self.frames.bytes_mut(room)[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            self.admit(at(arrived), room, len);
        }

        fn waiting(&self, micros: u64) -> u32 {
            self.stats(at(micros)).queue_packets
        }
    }

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000 * micros)
    }

    #[test]
    fn who_asks_for_statistics_changes_nothing_for_a_frame_that_arrived_before_and_is_read_later() {
        if !root_or_skip("wires") {
            return;
        }
        let mut direction = direction();
        direction.reads(0);
        direction.reads(0);
        // The second one's transmission begins at 800 µs.
        assert_eq!(direction.waiting(900), 0);
        direction.reads(750);
        assert_eq!(direction.stats(at(900)).counters.drops.queue_full, 1, "the queue was full when it arrived");
        direction.reads(850);
        let stats = direction.stats(at(850));
        assert_eq!((stats.counters.packets, stats.queue_packets, stats.queue_bytes), (3, 1, Bytes::new(1_000)));
        // Of a link at rest, too, it is what waits now, not what did at the last arrival.
        assert_eq!(direction.waiting(10_000), 0);
    }
}
