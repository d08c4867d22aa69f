//! The interfaces downstream that press back, as an interface before them has learnt.

use sidestep_net::{Span, Time};

use super::Nonce;

/// A bounded set of nonces, each with when it was received last.
///
/// A nonce that still holds is never evicted by another: when all places are taken, a new one is refused.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenNonces {
    nonces: Vec<(Nonce, Time)>,
}

/// Places for nonces.
const MAX: usize = 32;

impl SeenNonces {
    /// Notes that a nonce was received. Returns whether there was a place for it.
    pub(super) fn insert(&mut self, now: Time, nonce: Nonce, expiry: Span) -> bool {
        if let Some((_, at)) = self.nonces.iter_mut().find(|(known, _)| *known == nonce) {
            *at = now;
            return true;
        }
        if self.nonces.len() == MAX {
            self.expire(now, expiry, |_| ());
        }
        let has_room = self.nonces.len() < MAX;
        if has_room {
            self.nonces.push((nonce, now));
        }
        has_room
    }

    pub(super) fn remove(&mut self, nonce: Nonce) -> bool {
        let before = self.nonces.len();
        self.nonces.retain(|(known, _)| *known != nonce);
        self.nonces.len() < before
    }

    pub(super) fn contains(&self, nonce: Nonce) -> bool {
        self.nonces.iter().any(|(known, _)| *known == nonce)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nonces.is_empty()
    }

    /// Forgets those that were not received for `expiry`, and calls `gone` with each.
    pub(super) fn expire(&mut self, now: Time, expiry: Span, mut gone: impl FnMut(Nonce)) {
        self.nonces.retain(|(nonce, at)| {
            let holds = now.since(*at) < expiry;
            if !holds {
                gone(*nonce);
            }
            holds
        });
    }
}
