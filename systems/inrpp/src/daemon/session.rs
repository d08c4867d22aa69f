//! The session of two neighbours: who may speak, and what is a replay.
//!
//! Each end has a random number for its session. A hello names it, and echoes that of the other end with the number of the
//! hello that it answers. A hello that echoes ours is *fresh*: its sender has received us since we began. Two fresh hellos make
//! a session, whose packets have keys of their own in each direction, and sequence numbers.
//!
//! A hello of another session than the established one changes nothing by itself, as it may be a replay: it is answered once with
//! an echo of its own. Its sender takes the place of the established session when it echoes a hello that we sent *after* the last
//! fresh one of the established session. So of two sessions the later one wins, and what was recorded in any earlier one is of
//! no use.
//!
//! On a link without a key anybody is believed. Its packets have a tag of the two sessions in the place of the MAC: a packet that
//! was in flight when a router began anew would otherwise move the replay window by all that the session before had sent.

mod hellos;
mod saved;
mod window;

use serde::Serialize;
use sidestep_net::Time;
use siphasher::sip::{SipHasher13, SipHasher24};

use self::window::Window;
use super::{
    message::{Hello, MAX_NAME, id_of},
    shim::{Flags, Kind, Shim},
};
use crate::{Key, RouterId};

pub use self::saved::SavedSession;

/// The session with one neighbour.
#[derive(Clone)]
pub struct Session {
    name: String,
    id: RouterId,
    /// The name that the neighbour must have.
    expected: Option<String>,
    key: Option<Key>,
    /// The number of our session.
    number: u64,
    /// How many hellos we have sent.
    hellos: u64,
    established: Option<Established>,
    /// The session and the number of the last hello that was not fresh.
    candidate: Option<(u64, u64)>,
    /// What the next hello echoes, once, in the place of the established session.
    answer: Option<(u64, u64)>,
    answered_at: Option<Time>,
    /// The sequence number of the last packet sent.
    sequence: u64,
    counts: Counts,
}

/// A session that the neighbour has proved to be in.
#[derive(Clone)]
struct Established {
    session: u64,
    id: RouterId,
    /// The number of its last hello.
    number: u64,
    /// How many hellos we had sent when its last fresh one came: a later session echoes a later one.
    floor: u64,
    /// The number of ours that its last fresh one echoes: what came before the session was established is not fresh later.
    echoed: u64,
    sending: Proof,
    receiving: Proof,
    window: Window,
}

/// What proves packets of one direction of a session.
#[derive(Clone, Copy)]
enum Proof {
    Mac(Key),
    Tag(u64),
}

/// What a hello that was believed says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloSeen {
    /// The hello.
    pub hello: Hello,
    /// Whether it echoes our session: its sender is alive and has received us. Only then may what it says be used.
    pub fresh: bool,
    /// Whether a session is established by it, with a neighbour that we did not know or that has begun anew. What was in flight
    /// in the session before is lost.
    pub began: bool,
    /// Whether it echoes a later hello of ours than those before: its sender receives us. How late it does so says nothing: where much
    /// waits, hellos wait with it.
    pub advances: bool,
    /// Whether to send a hello at once.
    pub answer: bool,
}

/// Why a datagram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no message of this version.
    Malformed,
    /// Its MAC is wrong: another key, another session, or changed on the way.
    Forged,
    /// It has come before, or may have.
    Replayed,
    /// There is no session that it belongs to.
    NoSession,
    /// It is our own.
    Reflected,
    /// It is of another router than the one that is configured.
    Unexpected,
}

/// How many datagrams have been refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// See [`Refused::Malformed`].
    pub malformed: u64,
    /// See [`Refused::Forged`].
    pub forged: u64,
    /// See [`Refused::Replayed`].
    pub replayed: u64,
    /// See [`Refused::NoSession`].
    pub no_session: u64,
    /// See [`Refused::Reflected`].
    pub reflected: u64,
    /// See [`Refused::Unexpected`].
    pub unexpected: u64,
}

/// How many bytes of a packet its MAC covers: the headers of IP and TCP, for IPv6 without extension headers too, with the
/// sequence numbers, the window and the checksum.
///
/// From these the router learns, and by these it limits what others send. The rest is as safe as on the bare link: who can change
/// it could drop or change the packet there too, and a checksum without a key would not stop them. MACs over all of it would cost
/// ten times as much.
const COVERED: usize = 64;
/// What the MAC of a packet is computed of: the shim, the sequence number, the packet's length and its first bytes.
const MAC_INPUT: usize = Shim::COVERED + 8 + 8 + COVERED;

impl Session {
    /// A session with the neighbour over one link, which is expected to be called `expected` if that is given.
    ///
    /// `number` is random, and names our session to the neighbour; it must never come again, and is not 0.
    pub fn new(name: &str, expected: Option<&str>, key: Option<Key>, number: u64) -> Session {
        debug_assert!((1..=MAX_NAME).contains(&name.len()), "a router has a name");
        Session {
            name: name.to_owned(),
            id: id_of(name),
            expected: expected.map(str::to_owned),
            key,
            number: number.max(1),
            hellos: 0,
            established: None,
            candidate: None,
            answer: None,
            answered_at: None,
            sequence: 0,
            counts: Counts::default(),
        }
    }

    /// The neighbour, once a session with it is established.
    #[cfg(test)]
    pub fn neighbour(&self) -> Option<RouterId> {
        self.established.as_ref().map(|established| established.id)
    }

    /// The number of the last hello that was made.
    pub fn hellos(&self) -> u64 {
        self.hellos
    }

    /// Whether it is that of a router of this name with this neighbour, by this key.
    pub fn is_of(&self, name: &str, expected: Option<&str>, key: Option<Key>) -> bool {
        self.name == name && self.expected.as_deref() == expected && self.key == key
    }

    /// What has been refused so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts a datagram that was refused before it came here, and returns why.
    pub fn count(&mut self, why: Refused) -> Refused {
        let counts = &mut self.counts;
        *match why {
            Refused::Malformed => &mut counts.malformed,
            Refused::Forged => &mut counts.forged,
            Refused::Replayed => &mut counts.replayed,
            Refused::NoSession => &mut counts.no_session,
            Refused::Reflected => &mut counts.reflected,
            Refused::Unexpected => &mut counts.unexpected,
        } += 1;
        why
    }

    /// Writes the shim of the packet that these parts are together, and returns whether there is a session in which it can be
    /// sent. Each call takes a sequence number.
    #[must_use]
    pub fn seal(
        &mut self,
        kind: Kind,
        flags: Flags,
        next: Option<RouterId>,
        parts: &[&[u8]],
        into: &mut [u8; Shim::LEN],
    ) -> bool {
        let Some(established) = &self.established else { return false };
        self.sequence += 1;
        let mut shim = Shim { kind, flags, sequence: self.sequence as u32, next, mac: 0 };
        shim.mac = established.sending.of(&shim, self.sequence, parts);
        shim.write(into);
        true
    }

    /// Checks a datagram that is not a hello: that the neighbour has sent it in this session, and that it has not come before.
    pub fn open(&mut self, shim: &Shim, packet: &[u8]) -> Result<(), Refused> {
        self.check(shim, packet).map_err(|why| self.count(why))
    }

    fn check(&mut self, shim: &Shim, packet: &[u8]) -> Result<(), Refused> {
        if shim.kind == Kind::Hello {
            return Err(Refused::Malformed);
        }
        let established = self.established.as_mut().ok_or(Refused::NoSession)?;
        let sequence = established.window.sequence(shim.sequence);
        if shim.mac != established.receiving.of(shim, sequence, &[packet]) {
            return Err(match established.receiving {
                Proof::Mac(_) => Refused::Forged,
                Proof::Tag(_) => Refused::NoSession,
            });
        }
        if established.window.insert(sequence) { Ok(()) } else { Err(Refused::Replayed) }
    }
}

impl Established {
    fn new(key: Option<Key>, ours: u64, session: u64, id: RouterId, window: Window) -> Established {
        let (sending, receiving) = (Proof::new(key, ours, session), Proof::new(key, session, ours));
        Established { session, id, number: 0, floor: 0, echoed: 0, sending, receiving, window }
    }
}

impl Proof {
    /// That of what one session sends to another: a key of their numbers in this order, so that no packet is right on its way
    /// back.
    fn new(key: Option<Key>, from: u64, to: u64) -> Proof {
        let Key([k0, k1]) = key.unwrap_or(Key([0; 2]));
        let half = |label: &[u8; 8]| {
            let mut input = [0; 24];
            input[..8].copy_from_slice(label);
            input[8..16].copy_from_slice(&from.to_be_bytes());
            input[16..].copy_from_slice(&to.to_be_bytes());
            SipHasher24::new_with_keys(k0, k1).hash(&input)
        };
        match key {
            Some(_) => Proof::Mac(Key([half(b"session0"), half(b"session1")])),
            None => Proof::Tag(half(b"open tag")),
        }
    }

    #[inline]
    fn of(self, shim: &Shim, sequence: u64, parts: &[&[u8]]) -> u64 {
        match self {
            Proof::Mac(Key([k0, k1])) => {
                SipHasher13::new_with_keys(k0, k1).hash(&mac_input(&shim.covered(), sequence, parts))
            }
            Proof::Tag(tag) => tag,
        }
    }
}

/// A packet shorter than what is covered is filled up with zeros, which its length tells from bytes of its own.
#[inline]
fn mac_input(shim: &[u8; Shim::COVERED], sequence: u64, parts: &[&[u8]]) -> [u8; MAC_INPUT] {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut input = [0; MAC_INPUT];
    input[..16].copy_from_slice(shim);
    input[16..24].copy_from_slice(&sequence.to_be_bytes());
    input[24..32].copy_from_slice(&(len as u64).to_be_bytes());
    let mut room = &mut input[32..];
    if let Some(start) = parts.first().and_then(|part| part.first_chunk::<COVERED>()) {
        room.copy_from_slice(start);
        return input;
    }
    for part in parts {
        let len = part.len().min(room.len());
        let (into, rest) = room.split_at_mut(len);
        into.copy_from_slice(&part[..len]);
        room = rest;
    }
    input
}

#[cfg(test)]
mod tests;
