//! A heap of numbers with four children a node: half the levels of a binary one, and one cache line a level.

/// The smallest of many numbers, fast.
#[derive(Clone, Debug, Default)]
pub(super) struct MinHeap {
    keys: Vec<u64>,
}

impl MinHeap {
    /// The smallest; `u64::MAX` of none.
    #[inline(always)]
    pub(super) fn top(&self) -> u64 {
        self.keys.first().copied().unwrap_or(u64::MAX)
    }

    /// How many there are.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    pub(super) fn push(&mut self, key: u64) {
        let mut at = self.keys.len();
        self.keys.push(key);
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.keys[parent] <= key {
                break;
            }
            self.keys[at] = self.keys[parent];
            at = parent;
        }
        self.keys[at] = key;
    }

    /// Removes the smallest, of at least one.
    #[inline]
    pub(super) fn pop(&mut self) {
        if let Some(last) = self.keys.pop()
            && !self.keys.is_empty()
        {
            self.replace_top(last);
        }
    }

    /// Puts `key` in the place of the smallest, of at least one.
    #[inline(always)]
    pub(super) fn replace_top(&mut self, key: u64) {
        let keys = &mut self.keys[..];
        let mut at = 0;
        loop {
            let first = 4 * at + 1;
            let (least, child) = if let Some([a, b, c, d]) = keys.get(first..first + 4) {
                let (left, i) = if b < a { (*b, first + 1) } else { (*a, first) };
                let (right, j) = if d < c { (*d, first + 3) } else { (*c, first + 2) };
                if right < left { (right, j) } else { (left, i) }
            } else {
                let rest = keys.get(first..).unwrap_or_default().iter().enumerate();
                match rest.min_by_key(|(_, key)| **key) {
                    Some((offset, least)) => (*least, first + offset),
                    None => break,
                }
            };
            if key <= least {
                break;
            }
            keys[at] = least;
            at = child;
        }
        keys[at] = key;
    }

    /// Keeps the keys that `keep` says.
    pub(super) fn retain(&mut self, keep: impl FnMut(&u64) -> bool) {
        let mut keys = std::mem::take(&mut self.keys);
        keys.retain(keep);
        // A sorted list is a heap.
        keys.sort_unstable();
        self.keys = keys;
    }
}

impl FromIterator<u64> for MinHeap {
    fn from_iter<I: IntoIterator<Item = u64>>(keys: I) -> Self {
        let mut keys: Vec<u64> = keys.into_iter().collect();
        // A sorted list is a heap.
        keys.sort_unstable();
        MinHeap { keys }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_out_in_order(numbers in prop::collection::vec(0u64..1000, 0..300), replaced in prop::collection::vec(0u64..1000, 0..100)) {
            let (mut heap, mut expected) = (MinHeap::default(), std::collections::BinaryHeap::new());
            for number in numbers {
                heap.push(number);
                expected.push(std::cmp::Reverse(number));
            }
            for number in replaced {
                if expected.pop().is_some() {
                    expected.push(std::cmp::Reverse(number));
                    heap.replace_top(number);
                }
            }
            while let Some(std::cmp::Reverse(number)) = expected.pop() {
                prop_assert_eq!(heap.top(), number);
                heap.pop();
            }
            prop_assert_eq!(heap.top(), u64::MAX);
        }
    }
}
