//! Hellos of a session: what is sent, and what becomes of one that comes.

use sidestep_net::{Span, Time};
use siphasher::sip::SipHasher24;

use super::{Established, HelloSeen, Refused, Session, window::Window};
use crate::{
    Key, RouterId,
    daemon::{
        message::{About, HELLO_LEN, Hello, MAX_NEIGHBOURS, NEIGHBOUR_LEN, id_of},
        shim::{Flags, Kind, Shim},
    },
};

/// The least time between two answers.
const BETWEEN_ANSWERS: Span = Span::from_millis(10);
/// What is around a datagram in its frame at most: headers of IPv6 and UDP, and some options.
const AROUND: usize = 64;
/// The least MTU that hellos are cut for: that of IPv4.
const MIN_MTU: u16 = 576;

impl Session {
    /// The datagram of the next hello.
    ///
    /// Of the neighbours, those are left out, last first, for which a frame of the link's MTU has no room.
    pub fn hello(&mut self, about: &About) -> Vec<u8> {
        self.hellos += 1;
        let established = self.established.as_ref().map(|established| (established.session, established.number));
        let (echo, echo_number) = self.answer.take().or(established).or(self.candidate).unwrap_or_default();
        let mut about = about.clone();
        about.neighbours.truncate(room_for_neighbours(about.mtu));
        let (name, id, session, number) = (self.name.clone(), self.id, self.number, self.hellos);
        let mut datagram = vec![0; Shim::LEN];
        Hello { name, id, session, echo, echo_number, number, about }.encode(&mut datagram);
        let mut shim = Shim { kind: Kind::Hello, flags: Flags::default(), sequence: number as u32, next: None, mac: 0 };
        if let Some((into, body)) = datagram.split_first_chunk_mut() {
            shim.mac = hello_mac(self.key, id, &shim, body);
            shim.write(into);
        }
        datagram
    }

    /// What a hello says that has come, or why it is not believed.
    pub fn handle_hello(&mut self, now: Time, datagram: &[u8]) -> Result<HelloSeen, Refused> {
        let hello = self.read(datagram).map_err(|why| self.count(why))?;
        let (ours, sent) = (self.number, self.hellos);
        let is_echo = hello.echo == ours && (1..=sent).contains(&hello.echo_number);
        let (mut fresh, mut began, mut advances) = (is_echo, false, false);
        match &mut self.established {
            Some(established) if established.session == hello.session => {
                if hello.number <= established.number {
                    return Err(self.count(Refused::Replayed));
                }
                established.number = hello.number;
                fresh &= hello.echo_number >= established.echoed;
                advances = fresh && hello.echo_number > established.echoed;
            }
            established => {
                fresh &= established.as_ref().is_none_or(|established| hello.echo_number > established.floor);
                if fresh {
                    (began, advances) = (true, true);
                    let new = Established::new(self.key, ours, hello.session, hello.id, Window::after(0));
                    *established = Some(Established { number: hello.number, ..new });
                } else {
                    self.candidate = Some((hello.session, hello.number));
                }
            }
        }
        if let Some(established) = self.established.as_mut().filter(|_| fresh) {
            established.floor = sent;
            established.echoed = hello.echo_number;
        }
        let answer = (!fresh || began) && self.may_answer(now);
        if answer {
            self.answer = Some((hello.session, hello.number));
        }
        Ok(HelloSeen { hello, fresh, began, advances, answer })
    }

    fn read(&self, datagram: &[u8]) -> Result<Hello, Refused> {
        let (shim, body) = Shim::read(datagram).ok_or(Refused::Malformed)?;
        let is_plain = shim.kind == Kind::Hello && shim.flags == Flags::default() && shim.next.is_none();
        let hello = Hello::decode(body).filter(|_| is_plain).ok_or(Refused::Malformed)?;
        if shim.mac != hello_mac(self.key, hello.id, &shim, body) {
            return Err(Refused::Forged);
        }
        if hello.number as u32 != shim.sequence {
            return Err(Refused::Malformed);
        }
        if hello.id == self.id || hello.session == self.number {
            return Err(Refused::Reflected);
        }
        let is_expected = self.expected.as_ref().is_none_or(|expected| *expected == hello.name);
        if is_expected && hello.id == id_of(&hello.name) { Ok(hello) } else { Err(Refused::Unexpected) }
    }

    /// Whoever replays hellos makes us send no more than this.
    fn may_answer(&mut self, now: Time) -> bool {
        let may = self.answered_at.is_none_or(|at| now.since(at) >= BETWEEN_ANSWERS);
        if may {
            self.answered_at = Some(now);
        }
        may
    }
}

fn room_for_neighbours(mtu: u16) -> usize {
    let room = usize::from(mtu.max(MIN_MTU)).saturating_sub(AROUND + Shim::LEN + HELLO_LEN);
    (room / NEIGHBOUR_LEN).min(MAX_NEIGHBOURS)
}

/// The MAC of a hello: SipHash-2-4 under the link's key of what it is, who sends it, the shim and the body. A link without a key
/// has zero.
fn hello_mac(key: Option<Key>, from: RouterId, shim: &Shim, body: &[u8]) -> u64 {
    let Some(Key([k0, k1])) = key else { return 0 };
    let from = from.0.to_be_bytes();
    let input = [b"a hello ", &from[..], &shim.covered(), body].concat();
    SipHasher24::new_with_keys(k0, k1).hash(&input)
}
