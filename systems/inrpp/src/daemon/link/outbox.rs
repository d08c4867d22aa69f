//! What is to be sent over one link.

use super::{MAX_DATAGRAM, SHIM};

/// The most segments of a `UDP_SEGMENT` message (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const MAX_SEGMENTS: usize = 64;

/// Datagrams for one link, one behind the other in one piece of memory, so that those of equal size are one message.
#[derive(Debug)]
pub struct Outbox {
    bytes: Box<[u8]>,
    /// Where the first datagram begins, and the last one ends.
    start: usize,
    end: usize,
    /// The lengths of datagrams; those before `first` are gone.
    lens: Vec<u32>,
    first: usize,
    max_datagrams: usize,
    burst: usize,
}

/// Datagrams of equal size, but for the last, which may be shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Where it begins in the outbox's bytes.
    pub(super) offset: usize,
    pub(super) len: usize,
    /// The length of a datagram.
    pub(super) segment: usize,
    /// How many there are.
    pub(super) count: usize,
}

impl Outbox {
    /// An outbox for at most so many bytes and datagrams, empty.
    pub fn new(max_bytes: usize, max_datagrams: usize) -> Self {
        Outbox {
            bytes: vec![0; max_bytes].into_boxed_slice(),
            start: 0,
            end: 0,
            lens: Vec::with_capacity(max_datagrams),
            first: 0,
            max_datagrams,
            burst: MAX_SEGMENTS,
        }
    }

    /// At most so many segments become one message, which leaves without a pause.
    pub fn set_burst(&mut self, segments: usize) {
        self.burst = segments.clamp(1, MAX_SEGMENTS);
    }

    /// Copies a datagram into the outbox, in parts; returns false, and takes nothing, if there is no room.
    #[must_use]
    pub fn push(&mut self, shim: &[u8; SHIM], parts: &[&[u8]]) -> bool {
        let len = parts.iter().fold(SHIM, |sum, part| sum.saturating_add(part.len()));
        if len > MAX_DATAGRAM || !self.make_room(len) {
            return false;
        }
        let Some(to) = self.bytes.get_mut(self.end..self.end + len) else { return false };
        let Some((head, mut rest)) = to.split_at_mut_checked(SHIM) else { return false };
        head.copy_from_slice(shim);
        for part in parts {
            let Some((to, after)) = rest.split_at_mut_checked(part.len()) else { return false };
            to.copy_from_slice(part);
            rest = after;
        }
        self.end += len;
        self.lens.push(len as u32);
        true
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// Datagrams that wait.
    pub fn datagrams(&self) -> usize {
        self.lens.len() - self.first
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.first == self.lens.len()
    }

    /// Drops all that waits; returns how many datagrams that were.
    pub fn clear(&mut self) -> usize {
        let dropped = self.datagrams();
        (self.start, self.end, self.first) = (0, 0, 0);
        self.lens.clear();
        dropped
    }

    /// The message that begins `after` these others, of datagrams of at most `max_segment` bytes; one longer is alone.
    pub(super) fn message(&self, after: &[Message], max_segment: usize) -> Option<Message> {
        let skipped: usize = after.iter().map(|message| message.count).sum();
        let offset = after.last().map_or(self.start, |message| message.offset + message.len);
        let mut lens = self.lens.get(self.first + skipped..)?.iter().map(|len| *len as usize);
        let segment = lens.next()?;
        let mut message = Message { offset, len: segment, segment, count: 1 };
        if segment > max_segment {
            return Some(message);
        }
        for len in lens.take(self.burst - 1) {
            if len > segment || message.len + len > MAX_DATAGRAM {
                break;
            }
            message.len += len;
            message.count += 1;
            if len < segment {
                break;
            }
        }
        Some(message)
    }

    /// The bytes of a message; none if it is not of this outbox.
    pub(super) fn bytes_of(&self, message: &Message) -> &[u8] {
        self.bytes.get(message.offset..message.offset + message.len).unwrap_or_default()
    }

    /// Removes the first message.
    pub(super) fn remove(&mut self, message: &Message) {
        self.start = (message.offset + message.len).min(self.end);
        self.first = (self.first + message.count).min(self.lens.len());
        if self.is_empty() {
            self.clear();
        }
    }

    /// Whether there is room for one more datagram, after those that wait have been moved to the front if need be.
    fn make_room(&mut self, len: usize) -> bool {
        if self.datagrams() >= self.max_datagrams || self.bytes() + len > self.bytes.len() {
            return false;
        }
        if self.end + len > self.bytes.len() || self.lens.len() == self.max_datagrams {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.end, self.start) = (self.end - self.start, 0);
            self.lens.drain(..self.first);
            self.first = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_SHIM: [u8; SHIM] = [7; SHIM];

    #[test]
    fn equal_datagrams_are_one_message_and_a_shorter_one_is_its_last() {
        let mut outbox = Outbox::new(1 << 20, 1_000);
        for len in [100, 100, 100, 60, 100, 120, 120] {
            assert!(outbox.push(&NO_SHIM, &[&vec![1; len - SHIM]]));
        }
        let mut messages = Vec::new();
        while let Some(message) = outbox.message(&messages, 1_400) {
            messages.push(message);
        }
        let shape = |message: &Message| (message.segment, message.count, message.len);
        assert_eq!(messages.iter().map(shape).collect::<Vec<_>>(), [(100, 4, 360), (100, 1, 100), (120, 2, 240)]);
        assert_eq!(outbox.message(&[], 99).map(|message| message.count), Some(1), "too long to be a segment");
    }

    #[test]
    fn what_has_no_room_is_not_taken_and_room_comes_back() {
        let mut outbox = Outbox::new(300, 3);
        assert!(outbox.push(&NO_SHIM, &[&[1; 76]]) && outbox.push(&NO_SHIM, &[&[2; 76]]));
        assert!(!outbox.push(&NO_SHIM, &[&[3; 77]]), "301 bytes");
        assert!(outbox.push(&NO_SHIM, &[&[3; 76]]) && !outbox.push(&NO_SHIM, &[]));
        outbox.set_burst(1);
        let first = outbox.message(&[], 1_000).unwrap();
        assert_eq!(outbox.bytes_of(&first)[SHIM..], [1; 76]);
        outbox.remove(&first);
        assert!(outbox.push(&NO_SHIM, &[&[4; 70], &[5; 6]]));
        assert_eq!((outbox.datagrams(), outbox.bytes()), (3, 300));
        assert!(!Outbox::new(1 << 20, 9).push(&NO_SHIM, &[&vec![0; MAX_DATAGRAM]]), "longer than any datagram");
    }

    proptest! {
        /// Against a queue of vectors: the same bytes come out in the same order, in messages that the kernel takes.
        #[test]
        fn an_outbox_is_a_queue_of_datagrams(steps in prop::collection::vec((0_usize..6, 0_usize..3_000), 1..400), burst in 1_usize..80) {
            let mut outbox = Outbox::new(40_000, 30);
            outbox.set_burst(burst);
            let mut queue = std::collections::VecDeque::new();
            for (index, (what, len)) in steps.into_iter().enumerate() {
                if what > 0 {
                    // Sizes that repeat, so that messages have several datagrams.
                    let packet = vec![index as u8; if what > 2 { 1_000 } else { len }];
                    let room = queue.len() < 30 && queue.iter().map(Vec::len).sum::<usize>() + SHIM + packet.len() <= 40_000;
                    prop_assert_eq!(outbox.push(&NO_SHIM, &[&packet]), room);
                    if room {
                        queue.push_back([&NO_SHIM[..], &packet].concat());
                    }
                    continue;
                }
                let Some(message) = outbox.message(&[], 2_000) else {
                    prop_assert!(queue.is_empty());
                    continue;
                };
                prop_assert!(message.len <= MAX_DATAGRAM && message.count <= burst.min(MAX_SEGMENTS));
                let parts: Vec<Vec<u8>> = outbox.bytes_of(&message).chunks(message.segment).map(<[u8]>::to_vec).collect();
                prop_assert_eq!(parts.len(), message.count);
                for part in parts {
                    prop_assert_eq!(Some(part), queue.pop_front());
                }
                outbox.remove(&message);
                prop_assert_eq!((outbox.datagrams(), outbox.bytes()), (queue.len(), queue.iter().map(Vec::len).sum()));
            }
        }
    }
}
