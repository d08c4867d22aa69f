//! What packets carry: nonces that name interfaces, and notifications that routers prove to each other.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The name of an interface in notifications; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u32);

/// The nonces that a packet has room for, the nearest to the sender first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nonces([Nonce; 2]);

/// The key of a link, which only the routers at its ends know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u64; 2]);

/// What a router asks the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Let one packet go for each ACK.
    SlowDown,
    /// Let all packets go again.
    Cancel,
}

/// A notification on an ACK, for the next router or for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// What is asked.
    pub notice: Notice,
    /// For packets that name this interface.
    pub nonce: Nonce,
    /// The proof that a neighbour sends it; see [`Notification::sign`].
    pub mac: u32,
}

/// What an ACK carries with notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckFields {
    /// What the last router asks.
    pub notification: Option<Notification>,
    /// The interfaces that press back, for the sender to name on its data.
    pub nonces: Nonces,
}

/// What an ACK or a SYN-ACK says with limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitFields {
    /// The packets, from the flow's first on, that have arrived in order.
    pub acked: u32,
    /// The packets, from the flow's first on, for which there is room at the receiver and the routers that it has passed.
    pub limit: u32,
    /// By what its driver finds the way of the flow's ACKs from here on.
    pub back: u32,
    /// Whether the flow begins with it, and whether all of the flow has arrived.
    pub begins: bool,
    /// See [`begins`](Self::begins).
    pub done: bool,
}

impl Nonces {
    /// One nonce alone.
    pub fn one(nonce: Nonce) -> Nonces {
        Nonces([nonce, Nonce(0)])
    }

    /// All that there are.
    pub fn iter(self) -> impl Iterator<Item = Nonce> {
        self.0.into_iter().filter(|nonce| *nonce != Nonce(0))
    }

    /// Whether this one is among them.
    pub fn contains(self, nonce: Nonce) -> bool {
        nonce != Nonce(0) && self.0.contains(&nonce)
    }

    /// Puts one first; where there is no room, the last is forgotten.
    pub fn push(&mut self, nonce: Nonce) {
        self.remove(nonce);
        let [first, _] = self.0;
        self.0 = [nonce, first];
    }

    /// Takes one away.
    pub fn remove(&mut self, nonce: Nonce) {
        let [first, second] = self.0;
        self.0 = match (first == nonce, second == nonce) {
            (true, true) => [Nonce(0); 2],
            (true, false) => [second, Nonce(0)],
            (false, true) => [first, Nonce(0)],
            (false, false) => return,
        };
    }
}

impl Notification {
    /// A notification about a flow, with its MAC: SipHash-2-4 under the link's key, of which 32 bits are kept.
    pub fn sign(notice: Notice, nonce: Nonce, flow: u64, key: Option<Key>) -> Notification {
        let mac = key.map_or(0, |key| mac(key, notice, nonce, flow));
        Notification { notice, nonce, mac }
    }

    /// Whether a sender that knows the key has sent it about this flow.
    pub fn is_signed(&self, flow: u64, key: Key) -> bool {
        self.mac == mac(key, self.notice, self.nonce, flow)
    }
}

fn mac(Key([k0, k1]): Key, notice: Notice, nonce: Nonce, flow: u64) -> u32 {
    let mut hasher = SipHasher24::new_with_keys(k0, k1);
    hasher.write_u64(flow);
    hasher.write_u32(nonce.0);
    hasher.write_u8(notice as u8);
    hasher.finish() as u32
}
