//! Flows in the order in which they are served.

use super::NONE;

/// The flows before and after each in the ring that it is in, by the flow's place.
pub(super) type Links = Vec<[u32; 2]>;

/// A doubly linked list of flows, which any of them leaves in a few steps. A flow is in one ring at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring { first: NONE, last: NONE, len: 0 }
    }
}

impl Ring {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn iter(self, links: &[[u32; 2]]) -> impl Iterator<Item = u32> {
        std::iter::successors(self.first(), move |at| self.after(links, *at))
    }

    /// The flow after one that is in it.
    pub(super) fn after(&self, links: &[[u32; 2]], at: u32) -> Option<u32> {
        Some(links[at as usize][1]).filter(|next| *next != NONE)
    }

    /// Puts a flow last, which is in no ring.
    pub(super) fn push_back(&mut self, links: &mut Links, at: u32) {
        if links.len() <= at as usize {
            links.resize(at as usize + 1, [NONE; 2]);
        }
        links[at as usize] = [self.last, NONE];
        match self.last {
            NONE => self.first = at,
            last => links[last as usize][1] = at,
        }
        self.last = at;
        self.len += 1;
    }

    /// Takes out a flow that is in it.
    pub(super) fn remove(&mut self, links: &mut Links, at: u32) {
        let [before, after] = links[at as usize];
        match before {
            NONE => self.first = after,
            before => links[before as usize][1] = after,
        }
        match after {
            NONE => self.last = before,
            after => links[after as usize][0] = before,
        }
        self.len -= 1;
    }

    /// Makes the first flow the last.
    pub(super) fn rotate(&mut self, links: &mut Links) {
        if let Some(first) = self.first() {
            self.remove(links, first);
            self.push_back(links, first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As a queue does it in many steps.
        #[test]
        fn flows_come_leave_and_turn_in_order(steps in proptest::collection::vec((0u32..8, any::<bool>()), 0..60)) {
            let (mut links, mut ring, mut model) = (Links::new(), Ring::default(), VecDeque::new());
            for (at, turns) in steps {
                match (turns, model.contains(&at)) {
                    (true, _) if !model.is_empty() => {
                        ring.rotate(&mut links);
                        model.rotate_left(1);
                    }
                    (_, true) => {
                        ring.remove(&mut links, at);
                        model.retain(|of| *of != at);
                    }
                    (_, false) => {
                        ring.push_back(&mut links, at);
                        model.push_back(at);
                    }
                }
                prop_assert_eq!(ring.iter(&links).collect::<VecDeque<_>>(), model.clone());
                prop_assert_eq!((ring.len(), ring.first()), (model.len(), model.front().copied()));
            }
        }
    }
}
