//! The frames in flight on one direction: a ring of bytes, so that many small frames take no more room than few
//! large ones.

use std::collections::VecDeque;

use sidestep_net::Time;

/// Frames in the order in which they are due.
#[derive(Debug)]
pub(super) struct Frames {
    /// The ring, and behind it room for one frame that finds the ring full.
    bytes: Vec<u8>,
    max_frame: usize,
    held: VecDeque<Held>,
    /// Where the next frame goes, unless it would not fit before the ring's end.
    write: usize,
}

/// Where a frame lies, and when it is due.
#[derive(Clone, Copy, Debug)]
struct Held {
    due: Time,
    offset: usize,
    len: usize,
}

/// Room for one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    offset: usize,
}

impl Frames {
    /// An empty ring of `capacity` bytes for frames of at most `max_frame`.
    pub(super) fn new(capacity: usize, max_frame: usize) -> Self {
        let capacity = capacity.max(max_frame);
        // Zeroed memory is given by the kernel page by page when first touched: an idle wire takes none.
        Frames { bytes: vec![0; capacity + max_frame], max_frame, held: VecDeque::new(), write: 0 }
    }

    /// Room for a frame of the largest size; the room behind the ring when that is full.
    pub(super) fn room(&self) -> Room {
        let capacity = self.capacity();
        let offset = match self.held.front() {
            // From the start again: the fewer bytes are in use, the more of them stay in the CPU's cache.
            None => Some(0),
            // Held are `first.offset..write`.
            Some(first) if self.write > first.offset => {
                if capacity - self.write >= self.max_frame {
                    Some(self.write)
                } else {
                    (first.offset >= self.max_frame).then_some(0)
                }
            }
            // Held are `first.offset..` and `..write`.
            Some(first) => (first.offset - self.write >= self.max_frame).then_some(self.write),
        };
        Room { offset: offset.unwrap_or(capacity) }
    }

    /// Whether `room` is in the ring, so that its frame can be kept.
    pub(super) fn is_kept(&self, room: Room) -> bool {
        room.offset < self.capacity()
    }

    /// The bytes of `room`.
    pub(super) fn bytes_mut(&mut self, room: Room) -> &mut [u8] {
        &mut self.bytes[room.offset..room.offset + self.max_frame]
    }

    /// Keeps the first `len` bytes of the last `room` given, due at `due` or with the frame before it, if that is
    /// later.
    pub(super) fn push(&mut self, room: Room, len: usize, due: Time) {
        let due = self.held.back().map_or(due, |last| last.due.max(due));
        self.write = room.offset + len;
        self.held.push_back(Held { due, offset: room.offset, len });
    }

    /// The first frame and when it is due.
    pub(super) fn first(&self) -> Option<(Time, &[u8])> {
        let first = self.held.front()?;
        Some((first.due, self.bytes.get(first.offset..first.offset + first.len)?))
    }

    /// When the first frame is due; [`Time::MAX`] without one.
    pub(super) fn next_due(&self) -> Time {
        self.held.front().map_or(Time::MAX, |first| first.due)
    }

    /// Forgets the first frame.
    pub(super) fn pop(&mut self) {
        self.held.pop_front();
    }

    /// Gives the frames of which `is_of` is true the times to which `revise` changes their dues, and forgets those for which it
    /// leaves none. The others stay among them.
    pub(super) fn revise(&mut self, is_of: impl Fn(&[u8]) -> bool, revise: impl FnOnce(&mut [Option<Time>])) {
        let bytes = &self.bytes;
        let is_of: Vec<bool> =
            self.held.iter().map(|held| is_of(&bytes[held.offset..held.offset + held.len])).collect();
        let of = |held: &VecDeque<Held>| {
            held.iter().zip(&is_of).filter_map(|(held, of)| of.then_some(Some(held.due))).collect()
        };
        let mut dues: Vec<Option<Time>> = of(&self.held);
        revise(&mut dues);
        let (mut dues, mut before, mut last) = (dues.into_iter(), None, Time::ZERO);
        let held = self.held.drain(..).zip(&is_of).filter_map(|(held, of)| {
            let waited = before.replace(held.due) == Some(held.due);
            let due = match (*of, waited) {
                (true, _) => dues.next().flatten()?,
                (false, true) => last,
                (false, false) => held.due,
            };
            last = last.max(due);
            Some(Held { due: last, ..held })
        });
        self.held = held.collect();
    }

    /// Makes the ring at least `capacity` bytes large.
    pub(super) fn grow(&mut self, capacity: usize) {
        if capacity <= self.capacity() {
            return;
        }
        let mut larger = Frames::new(capacity, self.max_frame);
        while let Some((due, frame)) = self.first() {
            // In the ring: each frame had room for a largest one when it came, and the ring is larger now.
            let room = larger.room();
            let len = frame.len();
            larger.bytes_mut(room)[..len].copy_from_slice(frame);
            larger.push(room, len, due);
            self.pop();
        }
        *self = larger;
    }

    fn capacity(&self) -> usize {
        self.bytes.len() - self.max_frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 100;

    /// Offers a frame of `len` bytes, each of them `mark`; whether it was kept.
    fn offer(frames: &mut Frames, mark: u8, len: usize) -> bool {
        let room = frames.room();
        frames.bytes_mut(room).fill(mark);
        let kept = frames.is_kept(room);
        if kept {
            frames.push(room, len, Time::ZERO);
        }
        kept
    }

    #[test]
    fn a_full_ring_takes_no_frame_and_loses_none() {
        let mut frames = Frames::new(350, MAX);
        assert!(offer(&mut frames, 1, 100) && offer(&mut frames, 2, 100) && offer(&mut frames, 3, 100));
        assert!(!offer(&mut frames, 4, 100));
        frames.pop();
        assert!(offer(&mut frames, 5, 100));
        assert!(!offer(&mut frames, 6, 100));
        assert_eq!(frames.first(), Some((Time::ZERO, [2; 100].as_slice())));
    }

    #[test]
    fn a_full_ring_has_room_again_when_it_has_grown() {
        let mut frames = Frames::new(200, MAX);
        assert!(offer(&mut frames, 1, 100) && offer(&mut frames, 2, 100) && !offer(&mut frames, 3, 100));
        frames.grow(300);
        assert!(offer(&mut frames, 3, 100) && !offer(&mut frames, 4, 100));
    }

    #[test]
    fn frames_whose_dues_are_revised_stay_in_order_and_take_with_them_what_waited_behind() {
        let at = Time::from_nanos;
        let mut frames = Frames::new(1_000, MAX);
        // Of the model but the second and the last, of which the second waits for the first.
        for (mark, due) in [(1, 500), (2, 90), (3, 600), (4, 700), (5, 800), (6, 900)] {
            let room = frames.room();
            frames.bytes_mut(room).fill(mark);
            frames.push(room, 10, at(due));
        }
        let is_of = |frame: &[u8]| ![2, 6].contains(&frame[0]);
        frames.revise(is_of, |dues| {
            assert_eq!(dues, [500, 600, 700, 800].map(|due| Some(at(due))));
            dues.copy_from_slice(&[Some(at(300)), Some(at(310)), None, Some(at(950))]);
        });
        let mut found = Vec::new();
        while let Some((due, frame)) = frames.first() {
            found.push((frame[0], due.as_nanos()));
            frames.pop();
        }
        assert_eq!(found, [(1, 300), (2, 300), (3, 310), (5, 950), (6, 950)]);
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            capacity in MAX..1_000,
            steps in prop::collection::vec((any::<bool>(), 1..=MAX, 0..10u32), 1..300),
        ) {
            let mut frames = Frames::new(capacity, MAX);
            let mut expected = VecDeque::new();
            for (number, (push, len, growth)) in steps.into_iter().enumerate() {
                let mark = number as u8;
                if push {
                    if offer(&mut frames, mark, len) {
                        expected.push_back(vec![mark; len]);
                    } else {
                        prop_assert!(!expected.is_empty());
                    }
                } else {
                    frames.pop();
                    expected.pop_front();
                }
                if growth == 0 {
                    frames.grow(capacity + number);
                }
                prop_assert_eq!(frames.first().map(|(_, bytes)| bytes), expected.front().map(Vec::as_slice));
            }
        }
    }
}
