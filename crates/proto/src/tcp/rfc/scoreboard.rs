//! Which outstanding segments are sacked, lost and retransmitted (RFC 6675), as bits in a ring.

/// Segments that must be sacked above one that counts as lost (RFC 6675, section 2, DupThresh; RFC 5681, section 3.2):
/// fewer are often reordered, and more would leave small windows to the timer.
pub(in crate::tcp) const DUP_THRESH: u32 = 3;

/// The segments between `una` and `next`; all counts are kept, so that nothing looks at the whole window.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    /// For 64 segments each, in a ring: which are sacked, and which retransmitted.
    words: Vec<[u64; 2]>,
    /// How many are sacked.
    pub(super) sacked: u32,
    /// How many segments below `edge` are not sacked.
    pub(super) lost: u32,
    /// How many of the lost ones are retransmitted, and not known to be lost again.
    pub(super) retransmitted: u32,
    /// Every segment below it that is not sacked counts as lost.
    pub(super) edge: u32,
    /// The segment after the highest one sacked.
    highest: u32,
    /// No lost segment below it waits for its retransmission.
    resend_from: u32,
    /// Retransmissions of segments below `watched` were sent before any segment from `watch_end` on. Once as many of the
    /// latter have arrived, every retransmission that has not arrived is lost again. Zero: none is watched.
    watched: u32,
    watch_end: u32,
}

const SACKED: usize = 0;
const RETRANSMITTED: usize = 1;

impl Scoreboard {
    /// Makes room for the segments from `una` to `next`.
    pub(super) fn reserve(&mut self, una: u32, next: u32) {
        // One extra word, because neither end need lie on a word's border.
        let needed = (((next - una) >> 6) as usize + 2).next_power_of_two();
        if needed <= self.words.len() {
            return;
        }
        let mut words = vec![[0; 2]; needed.max(4)];
        if !self.words.is_empty() {
            let (old, new) = (self.words.len() - 1, words.len() - 1);
            // At most once around the old ring: segments beyond it have no marks.
            for word in (una >> 6..=next >> 6).take(self.words.len()) {
                words[word as usize & new] = self.words[word as usize & old];
            }
        }
        self.words = words;
    }

    /// Whether nothing is sacked or lost.
    pub(super) fn is_clean(&self) -> bool {
        self.sacked == 0 && self.lost == 0
    }

    /// Segments in the network: neither sacked nor lost, or retransmitted (RFC 6675, section 4, `SetPipe`).
    pub(super) fn pipe(&self, outstanding: u32) -> u32 {
        outstanding - self.sacked - self.lost + self.retransmitted
    }

    /// Takes a SACK block; returns how many segments it newly reports.
    pub(super) fn sack(&mut self, from: u32, to: u32) -> u32 {
        let (mut new, mut found, mut answered) = (0, 0, 0);
        let edge = self.edge;
        self.each_word(from, to, |first, mask, word| {
            let fresh = mask & !word[SACKED];
            if fresh == 0 {
                return;
            }
            let below = fresh & below(first, edge);
            new += fresh.count_ones();
            found += below.count_ones();
            answered += (below & word[RETRANSMITTED]).count_ones();
            word[SACKED] |= fresh;
            word[RETRANSMITTED] &= !fresh;
        });
        self.sacked += new;
        self.lost -= found;
        self.retransmitted -= answered;
        if new > 0 {
            self.highest = self.highest.max(to);
        }
        new
    }

    /// Forgets the segments from `una` to `ack`; returns how many of them had been sacked.
    pub(super) fn acknowledge(&mut self, una: u32, ack: u32) -> u32 {
        let (mut sacked, mut lost, mut retransmitted) = (0, 0, 0);
        let edge = self.edge;
        self.each_word(una, ack, |first, mask, word| {
            let were = mask & word[SACKED];
            sacked += were.count_ones();
            lost += (mask & !were & below(first, edge)).count_ones();
            retransmitted += (mask & word[RETRANSMITTED] & below(first, edge)).count_ones();
            word[SACKED] &= !mask;
            word[RETRANSMITTED] &= !mask;
        });
        self.sacked -= sacked;
        self.lost -= lost;
        self.retransmitted -= retransmitted;
        self.edge = self.edge.max(ack);
        self.resend_from = self.resend_from.max(ack);
        sacked
    }

    /// Counts every segment as lost that has `threshold` sacked segments above it (RFC 6675, section 4, `IsLost`);
    /// `una` is acknowledged.
    pub(super) fn detect_losses(&mut self, una: u32, threshold: u32) {
        let Some(edge) = self.nth_highest(una, threshold) else { return };
        self.move_edge(edge);
    }

    /// Finds lost retransmissions by the segments sent after them. RFC 6675 leaves these to the timer. Linux first used
    /// this rule (`tcp_mark_lost_retrans`); it now uses the times of RFC 8985. Call after [`sack`](Self::sack).
    pub(super) fn detect_lost_retransmissions(&mut self, una: u32, threshold: u32) {
        if self.watched == 0 {
            return;
        }
        if self.watched <= una {
            self.watched = 0;
        } else if self.highest >= self.watch_end + threshold {
            let watched = self.watched.min(self.edge);
            let mut lost = 0;
            self.each_word(una, watched, |_, mask, word| {
                lost += (word[RETRANSMITTED] & mask).count_ones();
                word[RETRANSMITTED] &= !mask;
            });
            self.retransmitted -= lost;
            self.watched = 0;
            if lost > 0 {
                self.resend_from = una;
            }
        }
    }

    /// After a timeout: counts every segment below `next` as lost that is not sacked, retransmitted or not.
    pub(super) fn lose_all(&mut self, una: u32, next: u32) {
        self.each_word(una, next, |_, mask, word| word[RETRANSMITTED] &= !mask);
        self.retransmitted = 0;
        self.watched = 0;
        self.edge = una;
        self.lost = 0;
        self.resend_from = una;
        self.move_edge(next);
    }

    /// Without SACK: counts the first segment as lost (again), after a partial ACK (RFC 6582).
    pub(super) fn lose_first(&mut self, una: u32) {
        let mut again = 0;
        self.each_word(una, una + 1, |_, mask, word| {
            again = (word[RETRANSMITTED] & mask).count_ones();
            word[RETRANSMITTED] &= !mask;
        });
        self.retransmitted -= again;
        self.resend_from = una;
        self.move_edge(una + 1);
    }

    /// Without SACK: counts a duplicate ACK, which shows that one more of the `outstanding` segments has arrived.
    pub(super) fn count_duplicate(&mut self, outstanding: u32) {
        if self.sacked + self.lost < outstanding {
            self.sacked += 1;
        }
    }

    /// Without SACK: `acked` segments were acknowledged. All but the lost one had been counted as arrived.
    pub(super) fn uncount_duplicates(&mut self, acked: u32) {
        self.sacked = self.sacked.saturating_sub(acked.saturating_sub(1));
    }

    /// Without SACK: bounds the arrived segments by those that are `outstanding` and not lost.
    pub(super) fn bound_duplicates(&mut self, outstanding: u32) {
        self.sacked = self.sacked.min(outstanding - self.lost);
    }

    /// Without SACK: resets the count of duplicate ACKs.
    pub(super) fn forget_duplicates(&mut self) {
        self.sacked = 0;
    }

    /// The first lost segment that waits for its retransmission (RFC 6675, section 4, `NextSeg`, rule 1); it counts as
    /// retransmitted from now on.
    ///
    /// `next` is the first segment never sent.
    pub(super) fn resend(&mut self, next: u32) -> Option<u32> {
        if self.lost <= self.retransmitted {
            return None;
        }
        let mut seq = self.resend_from;
        let mask = self.words.len() - 1;
        while seq < self.edge {
            let word = &mut self.words[(seq >> 6) as usize & mask];
            let waiting = !(word[SACKED] | word[RETRANSMITTED]) & (!0 << (seq & 63));
            if waiting != 0 {
                let bit = waiting.trailing_zeros();
                let found = (seq & !63) + bit;
                if found >= self.edge {
                    break;
                }
                word[RETRANSMITTED] |= 1 << bit;
                self.retransmitted += 1;
                self.resend_from = found + 1;
                if self.watched == 0 {
                    self.watch_end = next;
                }
                if self.watch_end == next {
                    self.watched = self.resend_from;
                }
                return Some(found);
            }
            seq = (seq & !63) + 64;
        }
        None
    }

    /// Counts every segment below `edge` as lost that is not sacked.
    fn move_edge(&mut self, edge: u32) {
        if edge <= self.edge {
            return;
        }
        let mut lost = 0;
        self.each_word(self.edge, edge, |_, mask, word| lost += (mask & !word[SACKED]).count_ones());
        self.lost += lost;
        self.edge = edge;
    }

    /// The `threshold`-th highest sacked segment.
    fn nth_highest(&self, una: u32, threshold: u32) -> Option<u32> {
        if self.sacked < threshold || self.words.is_empty() {
            return None;
        }
        let mask = self.words.len() - 1;
        let mut missing = threshold;
        for index in (una >> 6..=(self.highest - 1) >> 6).rev() {
            let mut bits = self.words[index as usize & mask][SACKED];
            while bits != 0 {
                let top = 63 - bits.leading_zeros();
                missing -= 1;
                if missing == 0 {
                    return Some((index << 6) + top);
                }
                bits &= !(1 << top);
            }
        }
        None
    }

    /// Calls `visit` with each word's first segment, the bits of `from..to` in it, and the word.
    #[inline]
    fn each_word(&mut self, from: u32, to: u32, mut visit: impl FnMut(u32, u64, &mut [u64; 2])) {
        if from >= to || self.words.is_empty() {
            return;
        }
        let ring = self.words.len() - 1;
        for index in from >> 6..=(to - 1) >> 6 {
            let first = index << 6;
            let low = !0 << (from.max(first) - first);
            let mask = low & below(first, to);
            visit(first, mask, &mut self.words[index as usize & ring]);
        }
    }

    /// Counts sacked, lost and retransmitted segments again, for tests.
    #[cfg(test)]
    pub(super) fn recount(&self, una: u32, next: u32) -> [u32; 3] {
        let mask = self.words.len() - 1;
        let bit = |seq: u32, kind: usize| self.words[(seq >> 6) as usize & mask][kind] >> (seq & 63) & 1 == 1;
        let mut counts = [0; 3];
        for seq in una..next {
            let lost = seq < self.edge && !bit(seq, SACKED);
            counts[0] += u32::from(bit(seq, SACKED));
            counts[1] += u32::from(lost);
            counts[2] += u32::from(lost && bit(seq, RETRANSMITTED));
        }
        counts
    }
}

/// The bits of a word beginning at segment `first` that lie below `end`.
#[inline]
fn below(first: u32, end: u32) -> u64 {
    match end.saturating_sub(first) {
        0 => 0,
        n if n >= 64 => !0,
        n => (1 << n) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_that_grows_to_many_times_its_size_has_each_mark_once() {
        let mut board = Scoreboard::default();
        board.reserve(70, 170);
        assert_eq!(board.sack(80, 100), 20);
        board.acknowledge(70, 75);
        board.reserve(75, 5_000);
        assert_eq!(board.recount(75, 5_000), [20, 0, 0]);
        assert_eq!(board.acknowledge(75, 5_000), 20);
        assert!(board.is_clean());
    }
}
