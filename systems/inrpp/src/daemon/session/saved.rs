//! A session on its way to the process that takes over.

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use super::{Established, Session, window::Window};
use crate::{Key, RouterId};

/// By how much a successor's numbers are ahead: whatever its predecessor has sent meanwhile, nothing comes twice.
const SKIP: u64 = 1 << 20;

/// What a successor needs to go on with a session, but for the key, which it reads itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSession {
    /// The number of our session.
    pub number: u64,
    /// How many hellos we have sent.
    pub hellos: u64,
    /// The sequence number of the last packet sent.
    pub sequence: u64,
    /// What the key and the names are known by.
    pub fingerprint: u64,
    /// The session that the neighbour has proved to be in.
    pub neighbour: Option<SavedNeighbour>,
}

/// The neighbour's half of a [`SavedSession`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedNeighbour {
    /// The number of its session.
    pub session: u64,
    /// Its id.
    pub id: u32,
    /// The number of its last hello.
    pub number: u64,
    /// How many hellos we had sent when its last fresh one came.
    pub floor: u64,
    /// The number of ours that this one echoed.
    pub echoed: u64,
    /// The highest sequence number that has come.
    pub highest: u64,
}

impl Session {
    /// What a successor needs to go on with the session.
    pub fn export(&self) -> SavedSession {
        let neighbour = self.established.as_ref().map(|established| SavedNeighbour {
            session: established.session,
            id: established.id.0,
            number: established.number,
            floor: established.floor,
            echoed: established.echoed,
            highest: established.window.highest(),
        });
        let fingerprint = self.fingerprint();
        SavedSession { number: self.number, hellos: self.hellos, sequence: self.sequence, fingerprint, neighbour }
    }

    /// The session that was saved; `None` if it was with another name, neighbour or key, so that a new one has to begin.
    ///
    /// Packets that were sent before it was saved, and come only now, are taken for replays.
    pub fn from_saved(name: &str, expected: Option<&str>, key: Option<Key>, saved: &SavedSession) -> Option<Session> {
        let mut session = Session::new(name, expected, key, saved.number);
        if saved.fingerprint != session.fingerprint() || saved.number == 0 {
            return None;
        }
        session.hellos = saved.hellos.checked_add(SKIP)?;
        session.sequence = saved.sequence.checked_add(SKIP)?;
        session.established = saved.neighbour.map(|neighbour| {
            let window = Window::after(neighbour.highest);
            let established = Established::new(key, saved.number, neighbour.session, RouterId(neighbour.id), window);
            let SavedNeighbour { number, floor, echoed, .. } = neighbour;
            Established { number, floor, echoed, ..established }
        });
        Some(session)
    }

    /// Goes on after a successor that has failed: nothing that it has sent meanwhile comes twice.
    pub fn go_on(&mut self) {
        self.hellos = self.hellos.saturating_add(2 * SKIP);
        self.sequence = self.sequence.saturating_add(2 * SKIP);
    }

    fn fingerprint(&self) -> u64 {
        let Key([k0, k1]) = self.key.unwrap_or(Key([0; 2]));
        let expected = self.expected.as_deref().unwrap_or_default();
        let text = format!("takeover {} {} {expected}", self.key.is_some(), self.name);
        SipHasher24::new_with_keys(k0, k1).hash(text.as_bytes())
    }
}
