//! A heap of numbers with four children a node: half the levels of a binary one, and one cache line a level.

/// The smallest of many numbers below `u64::MAX`, fast.
#[derive(Clone, Debug)]
pub(super) struct MinHeap {
    top: u64,
    /// The children of the top, of the first of these, of the second, and so on; `u64::MAX` after the last.
    groups: Vec<Group>,
    len: usize,
}

/// The children of a node.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Group([u64; 4]);

impl Group {
    /// The smallest, and its place.
    #[inline(always)]
    fn least(&self) -> (u64, usize) {
        let [a, b, c, d] = self.0;
        let (left, i) = if b < a { (b, 1) } else { (a, 0) };
        let (right, j) = if d < c { (d, 3) } else { (c, 2) };
        if right < left { (right, j) } else { (left, i) }
    }
}

impl Default for MinHeap {
    fn default() -> Self {
        MinHeap { top: u64::MAX, groups: Vec::new(), len: 0 }
    }
}

impl MinHeap {
    /// The smallest; `u64::MAX` of none.
    #[inline(always)]
    pub(super) fn top(&self) -> u64 {
        self.top
    }

    /// How many there are.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn push(&mut self, key: u64) {
        // The group of the last place, whose parent is the node with the group's number.
        let last = self.len + 3;
        let (mut group, mut place) = (last / 4, last % 4);
        self.len += 1;
        if place == 0 {
            self.groups.push(Group([u64::MAX; 4]));
        }
        while group > 0 {
            let above = ((group + 2) / 4, (group + 2) % 4);
            let parent = if group == 1 { self.top } else { self.groups[above.0 - 1].0[above.1] };
            if parent <= key {
                self.groups[group - 1].0[place] = key;
                return;
            }
            self.groups[group - 1].0[place] = parent;
            (group, place) = above;
        }
        self.top = key;
    }

    /// Removes the smallest, of at least one.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.len -= 1;
        let Some(last) = self.groups.last_mut() else {
            self.top = u64::MAX;
            return;
        };
        let place = (self.len + 3) % 4;
        let key = std::mem::replace(&mut last.0[place], u64::MAX);
        if place == 0 {
            self.groups.pop();
        }
        self.replace_top(key);
    }

    /// Puts `key` in the place of the smallest, of at least one.
    #[inline(always)]
    pub(super) fn replace_top(&mut self, key: u64) {
        let first = self.groups.first().map(Group::least);
        let Some((least, mut place)) = first.filter(|(least, _)| *least < key) else {
            self.top = key;
            return;
        };
        self.top = least;
        let mut group = 0;
        loop {
            let below = 4 * group + place + 1;
            let next = self.groups.get(below).map(Group::least);
            let Some((least, at)) = next.filter(|(least, _)| *least < key) else { break };
            self.groups[group].0[place] = least;
            (group, place) = (below, at);
        }
        self.groups[group].0[place] = key;
    }

    /// Keeps the keys for which `keep` returns `true`.
    pub(super) fn retain(&mut self, keep: impl FnMut(&u64) -> bool) {
        let keys = std::iter::once(self.top).chain(self.groups.iter().flat_map(|group| group.0));
        *self = keys.filter(|key| *key < u64::MAX).filter(keep).collect();
    }
}

impl FromIterator<u64> for MinHeap {
    fn from_iter<I: IntoIterator<Item = u64>>(keys: I) -> Self {
        let mut heap = MinHeap::default();
        keys.into_iter().for_each(|key| heap.push(key));
        heap
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
