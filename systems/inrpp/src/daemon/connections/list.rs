//! Places of a table in an order, in which each is found, put and taken out in a few steps.

/// No place.
pub(in crate::daemon) const NONE: u32 = u32::MAX;

/// The places before and after each in the list that it is in, by place.
pub(in crate::daemon) type Links = Vec<[u32; 2]>;

/// A doubly linked list of places. A place is in one list of the same links at most.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for List {
    fn default() -> List {
        List { first: NONE, last: NONE, len: 0 }
    }
}

impl List {
    pub(in crate::daemon) fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub(in crate::daemon) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(in crate::daemon) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(in crate::daemon) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    /// The place before one that is in it.
    pub(in crate::daemon) fn before(&self, links: &Links, at: u32) -> Option<u32> {
        links.get(at as usize).map(|[before, _]| *before).filter(|before| *before != NONE)
    }

    /// Puts a place last, which is in no list.
    pub(in crate::daemon) fn push_back(&mut self, links: &mut Links, at: u32) {
        self.insert_after(links, self.last(), at);
    }

    /// Puts a place, which is in no list, behind one that is in it; `None`: first.
    pub(in crate::daemon) fn insert_after(&mut self, links: &mut Links, before: Option<u32>, at: u32) {
        if links.len() <= at as usize {
            links.resize(at as usize + 1, [NONE; 2]);
        }
        let after = match before {
            None => self.first,
            Some(before) => links.get(before as usize).map_or(NONE, |of| of[1]),
        };
        self.join(links, before.unwrap_or(NONE), at);
        self.join(links, at, after);
        self.len += 1;
    }

    /// Takes out a place that is in it.
    pub(in crate::daemon) fn remove(&mut self, links: &mut Links, at: u32) {
        let Some([before, after]) = links.get(at as usize).copied() else { return };
        self.join(links, before, after);
        self.len = self.len.saturating_sub(1);
    }

    /// Makes two places neighbours, of which one may be none.
    fn join(&mut self, links: &mut Links, before: u32, after: u32) {
        match links.get_mut(before as usize) {
            None => self.first = after,
            Some(of) => of[1] = after,
        }
        match links.get_mut(after as usize) {
            None => self.last = before,
            Some(of) => of[0] = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As a vector has it.
        #[test]
        fn places_are_put_and_taken_out_anywhere(steps in proptest::collection::vec((0u32..8, 0usize..8), 0..80)) {
            let (mut links, mut list, mut model) = (Links::new(), List::default(), Vec::new());
            for (at, after) in steps {
                if let Some(found) = model.iter().position(|of| *of == at) {
                    list.remove(&mut links, at);
                    model.remove(found);
                } else {
                    let place = after.min(model.len());
                    list.insert_after(&mut links, place.checked_sub(1).map(|before| model[before]), at);
                    model.insert(place, at);
                }
                let backwards: Vec<u32> = std::iter::successors(list.last(), |at| list.before(&links, *at)).collect();
                prop_assert!(backwards.iter().rev().eq(&model), "{:?} for {:?}", backwards, model);
                prop_assert_eq!((list.first(), list.len()), (model.first().copied(), model.len()));
            }
        }
    }
}
