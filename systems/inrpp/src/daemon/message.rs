//! What neighbours say to each other beside packets: hellos, probes and grants.
//!
//! All numbers are in network order, and a body has no byte too few or too many. A hello is: session, echo, echoed number, number,
//! rate and received packets (8 bytes each), id (4), MTU (2), a byte of flags, the length of the name and the
//! name, the number of neighbours and each neighbour's id (4) and rate (8). A probe is: port (2), router (4), a byte of
//! flags. A grant is: port (2), a byte of flags, raise and cut (8 bytes each, IEEE 754).

use siphasher::sip::SipHasher24;

use crate::{Port, RouterId};

/// What a router says of itself to a neighbour, some times a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The router's name, 1 to 63 of `[A-Za-z0-9._-]`.
    pub name: String,
    /// Its id, never 0; it follows from the name ([`id_of`]).
    pub id: RouterId,
    /// The number of its session, never 0.
    pub session: u64,
    /// The session of the neighbour whose hello it answers; 0: it has received none.
    pub echo: u64,
    /// The number of that hello.
    pub echo_number: u64,
    /// The number of this hello in its session, from 1.
    pub number: u64,
    /// What it says of the link.
    pub about: About,
}

/// What a hello says of the link and of the router's other neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The capacity of the link, as its router is configured, in bits per second.
    pub rate: u64,
    /// The MTU of the link's interface.
    pub mtu: u16,
    /// Whether the router stops and wants no more packets.
    pub leaving: bool,
    /// Whether it has not read yet all that has come over the link: it echoes hellos late.
    pub behind: bool,
    /// How many packets it has received over the link.
    pub received_packets: u64,
    /// Its neighbours that are alive and over which detours may lead.
    pub neighbours: Vec<Neighbour>,
}

/// A neighbour of the router that says hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its id, never 0.
    pub id: RouterId,
    /// The capacity of the link to it in bits per second.
    pub rate: u64,
}

/// What a router asks a neighbour on a detour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The port of the router that asks, around which the detour leads.
    pub of: Port,
    /// The router to which it leads.
    pub around: RouterId,
    /// Whether packets wait for it.
    pub wants: bool,
}

/// The answer to a probe; see [`crate::Grant`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The port that the probe named.
    pub of: Port,
    /// Whether all that comes is taken.
    pub push: bool,
    /// By how much the rate may rise, finite.
    pub raise: f64,
    /// By what share it must fall, from 0 to 1.
    pub cut: f64,
}

/// The longest name in bytes.
pub const MAX_NAME: usize = 63;
/// How many neighbours a hello names at most.
pub const MAX_NEIGHBOURS: usize = u8::MAX as usize;
/// The length in bytes of a hello's body with the longest name and no neighbour.
pub const HELLO_LEN: usize = 6 * 8 + 4 + 2 + 1 + 1 + MAX_NAME + 1;
/// The length in bytes of a neighbour in a hello.
pub const NEIGHBOUR_LEN: usize = 12;

/// The keys by which names become ids: any will do that all routers have.
const NAMES: (u64, u64) = (0x696e_7270_7020_6964, 0x6f66_2061_206e_616d);

/// Whether a router can have this name: 1 to 63 of `[A-Za-z0-9._-]`.
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// The id of the router of this name, never 0: 32 bits of the name's SipHash-2-4. Two names have the same id with a
/// probability of 2^-32.
pub fn id_of(name: &str) -> RouterId {
    let hash = SipHasher24::new_with_keys(NAMES.0, NAMES.1).hash(name.as_bytes());
    let [high, low] = [(hash >> 32) as u32, hash as u32];
    RouterId(if low != 0 { low } else { high.max(1) })
}

impl Hello {
    /// Appends the body. What is longer than a hello can carry is cut: the name, and neighbours beyond the 255th.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let about = &self.about;
        let numbers = [self.session, self.echo, self.echo_number, self.number];
        for number in numbers.into_iter().chain([about.rate, about.received_packets]) {
            into.extend(number.to_be_bytes());
        }
        into.extend(self.id.0.to_be_bytes());
        into.extend(about.mtu.to_be_bytes());
        into.push(u8::from(about.leaving) | u8::from(about.behind) << 1);
        let name = self.name.as_bytes();
        let name = name.get(..MAX_NAME).unwrap_or(name);
        into.push(name.len() as u8);
        into.extend(name);
        let neighbours = about.neighbours.len().min(MAX_NEIGHBOURS);
        into.push(neighbours as u8);
        for neighbour in about.neighbours.iter().take(neighbours) {
            into.extend(neighbour.id.0.to_be_bytes());
            into.extend(neighbour.rate.to_be_bytes());
        }
    }

    /// The hello that these bytes are; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        let mut rest = Rest(bytes);
        let (session, echo, echo_number, number) = (rest.u64()?, rest.u64()?, rest.u64()?, rest.u64()?);
        let (rate, received_packets) = (rest.u64()?, rest.u64()?);
        let id = rest.router()?;
        let mtu = u16::from_be_bytes(rest.take()?);
        let flags = rest.flags(3)?;
        let (leaving, behind) = (flags & 1 != 0, flags & 2 != 0);
        let [len] = rest.take()?;
        let name = str::from_utf8(rest.slice(len.into())?).ok().filter(|name| is_name(name))?.to_owned();
        let [count] = rest.take()?;
        let mut neighbours = Vec::with_capacity(count.into());
        for _ in 0..count {
            neighbours.push(Neighbour { id: rest.router()?, rate: rest.u64()? });
        }
        let about = About { rate, mtu, leaving, behind, received_packets, neighbours };
        let is_whole = rest.0.is_empty() && session != 0 && number != 0;
        is_whole.then_some(Hello { name, id, session, echo, echo_number, number, about })
    }
}

impl Probe {
    /// The body.
    pub fn encode(&self) -> [u8; 7] {
        let ([a, b], [c, d, e, f]) = (self.of.0.to_be_bytes(), self.around.0.to_be_bytes());
        [a, b, c, d, e, f, self.wants.into()]
    }

    /// The probe that these bytes are; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Probe> {
        let mut rest = Rest(bytes);
        let of = Port(u16::from_be_bytes(rest.take()?));
        let probe = Probe { of, around: rest.router()?, wants: rest.flags(1)? == 1 };
        rest.0.is_empty().then_some(probe)
    }
}

impl Grant {
    /// The body.
    pub fn encode(&self) -> [u8; 19] {
        let mut bytes = [0; 19];
        bytes[..2].copy_from_slice(&self.of.0.to_be_bytes());
        bytes[2] = self.push.into();
        bytes[3..11].copy_from_slice(&self.raise.to_be_bytes());
        bytes[11..].copy_from_slice(&self.cut.to_be_bytes());
        bytes
    }

    /// The grant that these bytes are; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        let mut rest = Rest(bytes);
        let of = Port(u16::from_be_bytes(rest.take()?));
        let push = rest.flags(1)? == 1;
        let (raise, cut) = (f64::from_be_bytes(rest.take()?), f64::from_be_bytes(rest.take()?));
        let is_whole = rest.0.is_empty() && raise.is_finite() && (0.0..=1.0).contains(&cut);
        is_whole.then_some(Grant { of, push, raise, cut })
    }
}

/// Bytes that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (&bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(bytes)
    }

    fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// An id, which is never 0.
    fn router(&mut self) -> Option<RouterId> {
        self.take().map(u32::from_be_bytes).filter(|id| *id != 0).map(RouterId)
    }

    /// A byte of flags of which only `known` may be set.
    fn flags(&mut self, known: u8) -> Option<u8> {
        self.take().map(|[byte]| byte).filter(|byte| byte & !known == 0)
    }
}

/// Reads any bytes as all that a neighbour can send: what is read must be written as it was, and no session may begin with
/// bytes that echo nothing.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz(data: &[u8]) {
    use sidestep_net::Time;

    use super::{session::Session, shim::Shim};

    if let Some(hello) = Hello::decode(data) {
        let mut again = Vec::new();
        hello.encode(&mut again);
        assert_eq!(again, data);
    }
    if let Some(probe) = Probe::decode(data) {
        assert_eq!(probe.encode(), data);
    }
    if let Some(grant) = Grant::decode(data) {
        assert_eq!(grant.encode(), data);
    }
    let mut session = Session::new("us", None, None, 0x5e55_1011);
    let _ = session.hello(&About::default());
    if let Some((shim, packet)) = Shim::read(data) {
        let mut again = [0; Shim::LEN];
        shim.write(&mut again);
        assert_eq!([&again[..], packet].concat(), data);
        assert!(session.open(&shim, packet).is_err(), "nothing is opened without a session");
    }
    let _ = session.handle_hello(Time::ZERO, data);
    if let Some((shim, packet)) = Shim::read(data) {
        let _ = session.open(&shim, packet);
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn any_hello() -> impl Strategy<Value = Hello> {
        let id = || (1..=u32::MAX).prop_map(RouterId);
        let neighbour = (id(), any::<u64>()).prop_map(|(id, rate)| Neighbour { id, rate });
        let about = (any::<[u64; 2]>(), any::<u16>(), any::<[bool; 2]>(), vec(neighbour, 0..=MAX_NEIGHBOURS)).prop_map(
            |([rate, received_packets], mtu, [leaving, behind], neighbours)| About {
                rate,
                mtu,
                leaving,
                behind,
                received_packets,
                neighbours,
            },
        );
        ("[A-Za-z0-9._-]{1,63}", id(), 1..=u64::MAX, any::<[u64; 2]>(), 1..=u64::MAX, about).prop_map(
            |(name, id, session, [echo, echo_number], number, about)| Hello {
                name,
                id,
                session,
                echo,
                echo_number,
                number,
                about,
            },
        )
    }

    fn encoded(hello: &Hello) -> Vec<u8> {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        bytes
    }

    fn plain() -> Hello {
        let about = About { neighbours: vec![Neighbour { id: RouterId(7), rate: 1 }], ..About::default() };
        Hello { name: "r1".into(), id: RouterId(1), session: 1, echo: 0, echo_number: 0, number: 1, about }
    }

    #[test]
    fn values_without_a_meaning_are_refused() {
        let long = "x".repeat(64);
        for name in ["", "a b", "ä", "a/b", "a\n", long.as_str()] {
            assert!(!is_name(name), "{name}");
        }
        let neighbour = Neighbour { id: RouterId(0), rate: 1 };
        let broken = [
            Hello { id: RouterId(0), ..plain() },
            Hello { session: 0, ..plain() },
            Hello { number: 0, ..plain() },
            Hello { name: String::new(), ..plain() },
            Hello { name: "a b".into(), ..plain() },
            Hello { about: About { neighbours: vec![neighbour], ..About::default() }, ..plain() },
        ];
        for hello in broken {
            assert_eq!(Hello::decode(&encoded(&hello)), None, "{hello:?}");
        }
        assert_eq!(Hello::decode(&encoded(&plain())), Some(plain()));
        let probe = Probe { of: Port(1), around: RouterId(0), wants: true };
        assert_eq!(Probe::decode(&probe.encode()), None);
        let grant = |raise, cut| Grant { of: Port(1), push: false, raise, cut };
        for (raise, cut) in [(f64::NAN, 0.0), (f64::INFINITY, 0.0), (0.0, f64::NAN), (0.0, -0.1), (0.0, 1.1)] {
            assert_eq!(Grant::decode(&grant(raise, cut).encode()), None, "{raise} {cut}");
        }
        assert_eq!(Grant::decode(&grant(-1e9, 1.0).encode()), Some(grant(-1e9, 1.0)));
    }

    #[test]
    fn what_is_too_long_for_a_hello_is_cut() {
        let neighbours = vec![Neighbour { id: RouterId(7), rate: 1 }; 300];
        let hello = Hello { name: "x".repeat(70), about: About { neighbours, ..About::default() }, ..plain() };
        let bytes = encoded(&hello);
        let read = Hello::decode(&bytes).unwrap();
        assert_eq!((read.name.len(), read.about.neighbours.len()), (MAX_NAME, MAX_NEIGHBOURS));
        assert_eq!(bytes.len(), HELLO_LEN + MAX_NEIGHBOURS * NEIGHBOUR_LEN);
    }

    #[test]
    fn ids_stay_what_they_are_between_versions() {
        assert_eq!([id_of("r0"), id_of("r1")], [RouterId(0xff38_9934), RouterId(0xd975_17d6)]);
    }

    proptest! {
        #[test]
        fn a_hello_that_is_encoded_is_decoded(hello in any_hello()) {
            prop_assert_eq!(Hello::decode(&encoded(&hello)), Some(hello));
        }

        #[test]
        fn a_hello_of_another_length_is_refused(hello in any_hello(), cut in 1..400usize, more in vec(any::<u8>(), 1..40)) {
            let bytes = encoded(&hello);
            prop_assert_eq!(Hello::decode(&bytes[..bytes.len().saturating_sub(cut)]), None);
            prop_assert_eq!(Hello::decode(&[bytes, more].concat()), None);
        }

        #[test]
        fn probes_and_grants_that_are_encoded_are_decoded(
            of in any::<u16>(), id in 1..=u32::MAX, yes in any::<bool>(), raise in -1e12..1e12f64, cut in 0.0..=1.0f64,
        ) {
            let probe = Probe { of: Port(of), around: RouterId(id), wants: yes };
            prop_assert_eq!(Probe::decode(&probe.encode()), Some(probe));
            let grant = Grant { of: Port(of), push: yes, raise, cut };
            prop_assert_eq!(Grant::decode(&grant.encode()), Some(grant));
            prop_assert_eq!(Probe::decode(&[&probe.encode()[..], &[0]].concat()), None);
            prop_assert_eq!(Grant::decode(&[&grant.encode()[..], &[0]].concat()), None);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..400)) {
            fuzz(&bytes);
        }

        #[test]
        fn broken_messages_are_read_without_a_panic(
            hello in any_hello(), at in any::<prop::sample::Index>(), byte in any::<u8>(), kind in 0x10..0x14u8,
        ) {
            let mut bytes = [&[kind][..], &[0; 23], &encoded(&hello)].concat();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            fuzz(&bytes);
            fuzz(&bytes[24..]);
        }

        #[test]
        fn short_messages_are_read_without_a_panic(bytes in vec(any::<u8>(), 7), grant in vec(any::<u8>(), 19)) {
            fuzz(&bytes);
            fuzz(&grant);
        }
    }
}
