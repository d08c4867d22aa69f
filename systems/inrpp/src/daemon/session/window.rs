//! Which sequence numbers have come: a sliding window after RFC 6479.

/// Numbers this far behind the highest are refused, since nobody knows whether they have come.
pub const WINDOW: u64 = 4096;
/// The ring of bits, of which the window needs half; a power of two, so that no index is outside.
const WORDS: usize = 128;

/// The sequence numbers that have come, which begin with 1.
#[derive(Clone)]
pub struct Window {
    highest: u64,
    seen: [u64; WORDS],
}

impl Window {
    /// A window in which all numbers up to this one have come.
    pub fn after(highest: u64) -> Window {
        let mut window = Window { highest, seen: [u64::MAX; WORDS] };
        // What is above the highest in its word is not cleared later.
        *window.word(highest) = u64::MAX >> (63 - highest % 64);
        window
    }

    /// The highest number that has come.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The number that has these low bits and is nearest to the highest one.
    #[inline]
    pub fn sequence(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.highest as u32).cast_signed();
        self.highest.checked_add_signed(ahead.into()).unwrap_or(low.into())
    }

    /// Notes a number, and returns whether it is new.
    #[inline]
    pub fn insert(&mut self, sequence: u64) -> bool {
        if self.highest.saturating_sub(sequence) >= WINDOW {
            return false;
        }
        if sequence > self.highest {
            let words = (sequence / 64 - self.highest / 64).min(WORDS as u64);
            for ahead in 1..=words {
                *self.word(self.highest.saturating_add(64 * ahead)) = 0;
            }
            self.highest = sequence;
        }
        let (word, bit) = (self.word(sequence), 1 << (sequence % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    #[inline]
    fn word(&mut self, sequence: u64) -> &mut u64 {
        &mut self.seen[(sequence / 64) as usize % WORDS]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Steps from the highest number so far: near, about the window's end, about the ring's end, far.
    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let step = prop_oneof![
            5 => -70..70i64, 2 => -4200..4200i64, 2 => -4100..-4090i64, 1 => 8000..8400i64, 1 => 0..1i64 << 31
        ];
        vec(step, 1..400)
    }

    proptest! {
        #[test]
        fn the_window_takes_what_a_set_of_all_numbers_takes(start in 0..20_000u64, steps in steps()) {
            let mut window = Window::after(start);
            let mut came = BTreeSet::new();
            let mut highest = start;
            for step in steps {
                let sequence = highest.saturating_add_signed(step);
                prop_assert_eq!(window.sequence(sequence as u32), sequence);
                let is_new = sequence > start && highest.saturating_sub(sequence) < WINDOW && came.insert(sequence);
                prop_assert_eq!(window.insert(sequence), is_new, "{} of {}", sequence, highest);
                highest = highest.max(sequence);
                prop_assert_eq!(window.highest(), highest);
            }
        }

        #[test]
        fn any_low_bits_and_any_number_are_taken_without_a_panic(start in any::<u64>(), lows in vec(any::<u32>(), 1..20), any in any::<u64>()) {
            let mut window = Window::after(start);
            for low in lows {
                let sequence = window.sequence(low);
                prop_assert_eq!(sequence as u32, low);
                window.insert(sequence);
            }
            window.insert(any);
        }
    }
}
