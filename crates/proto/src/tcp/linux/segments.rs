//! The segments in flight: when each was sent last, and what is known of it, in a ring.

use std::collections::VecDeque;

/// The receiver has it.
pub(super) const SACKED: u64 = 1;
/// It was sent again as it was lost, and that is not known to be lost.
pub(super) const RETRANSMITTED: u64 = 2;
/// It counts as lost.
pub(super) const LOST: u64 = 4;
/// It was sent again at some time, a tail loss probe included.
pub(super) const EVER: u64 = 8;

const FLAG_BITS: u32 = 8;

/// The retransmission queue of Linux's `tcp_sock`: a word for each segment, its time in nanoseconds above its flags.
// In this order: what is needed while nothing is lost comes first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Segments {
    words: Vec<u64>,
    /// The least time that is not taken.
    next_stamp: u64,
    /// How many are sacked, count as lost, and are retransmitted (`sacked_out`, `lost_out`, `retrans_out`).
    pub(super) sacked: u32,
    pub(super) lost: u32,
    pub(super) retransmitted: u32,
    /// Segments that were ever marked as lost, and retransmissions of them (`tp->lost`); wraps.
    pub(super) marked: u32,
    /// Segments below it that were sent once are sacked, or were once found to be lost: they are looked at no more.
    pub(super) examined: u32,
    /// The segment after the highest one that was sacked.
    highest: u32,
    /// What was sent again, in the order of its times; some of it was sent once more later.
    pub(super) again: VecDeque<(u32, u64)>,
    /// No lost segment below it waits to be sent again.
    resend_from: u32,
    /// Retransmissions that were lost (`TCPLostRetransmit`).
    pub(super) lost_again: u32,
}

impl Segments {
    pub(super) fn new() -> Self {
        Segments {
            words: vec![0; 16],
            sacked: 0,
            lost: 0,
            retransmitted: 0,
            highest: 0,
            resend_from: 0,
            examined: 0,
            again: VecDeque::new(),
            marked: 0,
            next_stamp: 0,
            lost_again: 0,
        }
    }

    /// A new segment is sent, the first of those that follow `una` and are not sent yet.
    #[inline]
    pub(super) fn push(&mut self, una: u32, seq: u32, now: u64) {
        if (seq - una) as usize >= self.words.len() {
            self.grow(una, seq);
        }
        let stamp = self.stamp(now);
        *self.word_mut(seq) = stamp << FLAG_BITS;
    }

    /// The time of a sending: later than that of all before, by a nanosecond at least, so that times show the order.
    #[inline]
    fn stamp(&mut self, now: u64) -> u64 {
        let stamp = now.max(self.next_stamp);
        self.next_stamp = stamp + 1;
        stamp
    }

    #[cold]
    fn grow(&mut self, una: u32, next: u32) {
        let mut words = vec![0; self.words.len() * 2];
        let (old, new) = (self.words.len() - 1, words.len() - 1);
        for seq in una..next {
            words[seq as usize & new] = self.words[seq as usize & old];
        }
        self.words = words;
    }

    /// When a segment was sent last.
    #[inline]
    pub(super) fn sent_at(&self, seq: u32) -> u64 {
        self.word(seq) >> FLAG_BITS
    }

    /// Whether a segment has one of these flags.
    #[inline]
    pub(super) fn has(&self, seq: u32, flags: u64) -> bool {
        self.word(seq) & flags != 0
    }

    #[inline]
    fn word(&self, seq: u32) -> u64 {
        self.words[seq as usize & (self.words.len() - 1)]
    }

    #[inline]
    fn word_mut(&mut self, seq: u32) -> &mut u64 {
        let mask = self.words.len() - 1;
        &mut self.words[seq as usize & mask]
    }

    /// Segments in the network (`tcp_packets_in_flight`).
    #[inline]
    pub(super) fn in_flight(&self, outstanding: u32) -> u32 {
        outstanding + self.retransmitted - self.sacked - self.lost
    }

    /// Whether nothing is sacked, lost or sent again.
    #[inline]
    pub(super) fn is_clean(&self) -> bool {
        self.sacked | self.lost | self.retransmitted == 0 && self.again.is_empty()
    }

    /// The segment after the highest one sacked; `una` if none is (`tcp_highest_sack_seq`).
    pub(super) fn highest_sacked(&self, una: u32) -> u32 {
        if self.sacked > 0 { self.highest } else { una }
    }

    /// The first segment in flight was acknowledged; returns when it was sent, and its flags.
    #[inline]
    pub(super) fn acknowledge(&mut self, seq: u32) -> (u64, u64) {
        let word = self.word(seq);
        self.sacked -= u32::from(word & SACKED != 0);
        self.lost -= u32::from(word & LOST != 0);
        self.retransmitted -= u32::from(word & RETRANSMITTED != 0);
        (word >> FLAG_BITS, word & ((1 << FLAG_BITS) - 1))
    }

    /// When the first and the last of the segments `from..to` were sent, if each was sent once and nothing is known of it.
    #[inline(always)]
    pub(super) fn sent_once(&self, from: u32, to: u32) -> Option<(u64, u64)> {
        let words = (from..to).fold(0, |words, seq| words | self.word(seq));
        if words & ((1 << FLAG_BITS) - 1) != 0 {
            return None;
        }
        Some((self.sent_at(from), self.sent_at(to - 1)))
    }

    /// Segments below `una` are forgotten.
    pub(super) fn forget(&mut self, una: u32) {
        self.examined = self.examined.max(una);
        self.resend_from = self.resend_from.max(una);
        while self.again.front().is_some_and(|(seq, _)| *seq < una) {
            self.again.pop_front();
        }
    }

    /// The receiver has a segment: the part of `tcp_sacktag_one` that keeps counts.
    pub(super) fn sack(&mut self, seq: u32) {
        let word = self.word_mut(seq);
        let flags = *word;
        if flags & RETRANSMITTED != 0 {
            // One that was not lost is believed to be in flight still.
            if flags & LOST != 0 {
                *word &= !(LOST | RETRANSMITTED);
                self.lost -= 1;
                self.retransmitted -= 1;
            }
        } else if flags & LOST != 0 {
            *word &= !LOST;
            self.lost -= 1;
        }
        *self.word_mut(seq) |= SACKED;
        self.sacked += 1;
        self.highest = self.highest.max(seq + 1);
    }

    /// The receiver had a segment twice (D-SACK) that is still in flight.
    pub(super) fn clear_retransmission(&mut self, seq: u32) {
        if self.has(seq, RETRANSMITTED) {
            *self.word_mut(seq) &= !RETRANSMITTED;
            self.retransmitted -= 1;
        }
    }

    /// Counts a segment as lost, or its retransmission (`tcp_mark_skb_lost`).
    pub(super) fn lose(&mut self, seq: u32) {
        let word = self.word_mut(seq);
        let flags = *word;
        if flags & SACKED != 0 {
            return;
        }
        if flags & LOST == 0 {
            *word |= LOST;
            self.lost += 1;
        } else if flags & RETRANSMITTED != 0 {
            *word &= !RETRANSMITTED;
            self.retransmitted -= 1;
            self.lost_again += 1;
        } else {
            return;
        }
        self.marked = self.marked.wrapping_add(1);
        self.resend_from = self.resend_from.min(seq);
    }

    /// Nothing counts as lost any more. What RACK had found to be lost it does not look at again, unless it was sent again:
    /// it has left the list of what was sent (`tsorted_sent_queue`).
    pub(super) fn unmark_losses(&mut self, una: u32, next: u32) {
        if self.lost > 0 {
            for seq in una..next {
                *self.word_mut(seq) &= !LOST;
            }
        }
        self.lost = 0;
        self.resend_from = una;
    }

    /// The first lost segment that waits to be sent again.
    pub(super) fn next_lost(&mut self, una: u32, next: u32) -> Option<u32> {
        if self.retransmitted >= self.lost {
            return None;
        }
        let found =
            (self.resend_from.max(una)..next).find(|seq| self.word(*seq) & (LOST | SACKED | RETRANSMITTED) == LOST);
        self.resend_from = found.unwrap_or(next);
        found
    }

    /// A lost segment is sent again.
    pub(super) fn resend(&mut self, seq: u32, now: u64) {
        let flags = self.word(seq) & ((1 << FLAG_BITS) - 1);
        let stamp = self.stamp(now);
        *self.word_mut(seq) = stamp << FLAG_BITS | flags | RETRANSMITTED | EVER;
        self.retransmitted += 1;
        self.again.push_back((seq, stamp));
        self.resend_from = seq + 1;
    }

    /// A segment is sent again that does not count as lost.
    pub(super) fn probe(&mut self, seq: u32, now: u64) {
        let flags = self.word(seq) & ((1 << FLAG_BITS) - 1);
        let stamp = self.stamp(now);
        *self.word_mut(seq) = stamp << FLAG_BITS | flags | EVER;
        self.again.push_back((seq, stamp));
    }

    /// Counts sacked, lost and retransmitted segments again, for tests.
    #[cfg(test)]
    pub(super) fn recount(&self, una: u32, next: u32) -> [u32; 3] {
        let count = |flag| (una..next).filter(|seq| self.has(*seq, flag)).count() as u32;
        [count(SACKED), count(LOST), count(RETRANSMITTED)]
    }
}
