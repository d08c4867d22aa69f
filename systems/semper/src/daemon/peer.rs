//! The other edge: whether it has the same set of paths, and which of them it knows to be dead.
//!
//! Each edge reports to the other, every second and when something changes. Nothing is acknowledged or waited for: an edge
//! that receives nothing goes on by what it knows itself. What does not fit into one datagram is split into parts, and heeded
//! when all of them are there; if one is lost, the next round sends all again.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_balance::{Agreement, Version};
use sidestep_hostd::AgentError;
use sidestep_linux::LinuxError;
use tokio::{net::UdpSocket, time::Instant};

use super::EdgeSettings;

/// How long what the other edge reported is believed.
const BELIEVED: Duration = Duration::from_secs(5);
/// Longest datagram: what is left of the least MTU of IPv6, so that no network has to fragment it.
const MAX: usize = 1232;
/// How many dead paths a datagram names at most: with numbers as long as they can be, these fit.
const DEAD_IN_PART: usize = 70;
/// How many datagrams a message has at most: a burst that a socket's buffer holds.
const MAX_PARTS: usize = 64;
/// Version of the format.
const FORMAT: u32 = 2;

/// What an edge reports to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    generation: u64,
    /// The digest of all destinations' sets of paths.
    digest: u64,
    /// The paths that are dead at the sender, by the version of IP and their identity: a path may be dead for one only.
    dead: BTreeSet<(u8, u32)>,
}

/// One datagram of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    /// Version of this format.
    sidestep_edge: u32,
    /// What the parts of one message have in common.
    #[serde(flatten)]
    head: Head,
    /// Which part it is, from 0.
    part: usize,
    dead: Vec<(u8, u32)>,
}

/// What the parts of one message have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// The number of the message, by its sender.
    round: u64,
    generation: u64,
    digest: u64,
    /// How many parts there are.
    parts: usize,
}

/// The parts of a message that have come.
#[derive(Clone, Debug)]
struct Parts {
    head: Head,
    dead: BTreeMap<usize, Vec<(u8, u32)>>,
}

/// What is known of the other edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeAgreement {
    /// Nothing is received from it.
    Silent,
    /// Its sets of paths are the same.
    Agrees,
    /// They differ, and this edge's generation is the lower one.
    OlderHere,
    /// They differ, and this edge's generation is the higher one.
    NewerHere,
    /// They differ, although the generation is the same.
    Conflict,
}

/// The other edge.
pub(super) struct Peer {
    socket: UdpSocket,
    address: SocketAddr,
    heard: Option<(Instant, Message)>,
    /// The message of which not all parts have come.
    coming: Option<Parts>,
    /// The number of the next message.
    round: u64,
    /// What was logged of it last.
    said: EdgeAgreement,
}

/// The version of IP of a destination.
pub(super) fn version(destination: IpNet) -> u8 {
    if destination.addr().is_ipv4() { 4 } else { 6 }
}

impl Message {
    pub(super) fn new(generation: u64, digests: &BTreeSet<u64>, dead: BTreeSet<(u8, u32)>) -> Self {
        Message { generation, digest: digest_of(digests), dead }
    }

    /// The datagrams that carry it. Dead paths for which the last of them has no room are not sent.
    fn parts(&self, round: u64) -> Vec<Vec<u8>> {
        let dead: Vec<_> = self.dead.iter().copied().collect();
        let parts = dead.len().div_ceil(DEAD_IN_PART).clamp(1, MAX_PARTS);
        let head = Head { round, generation: self.generation, digest: self.digest, parts };
        let mut chunks = dead.chunks(DEAD_IN_PART);
        let part = |part| {
            let dead = chunks.next().unwrap_or_default().to_vec();
            serde_json::to_vec(&Part { sidestep_edge: FORMAT, head, part, dead }).ok()
        };
        (0..parts).filter_map(part).collect()
    }

    /// How this edge's sets stand beside the other's.
    fn compare(&self, other: &Message) -> EdgeAgreement {
        let version = |message: &Message, digest| Version { generation: message.generation, digest };
        let same = u64::from(self.digest != other.digest);
        match version(self, 0).compare(version(other, same)) {
            Agreement::Same => EdgeAgreement::Agrees,
            Agreement::Older => EdgeAgreement::OlderHere,
            Agreement::Newer => EdgeAgreement::NewerHere,
            Agreement::Conflict => EdgeAgreement::Conflict,
        }
    }
}

/// The digest of a set of digests: 64-bit FNV-1a (draft-eastlake-fnv) of them in their order.
fn digest_of(digests: &BTreeSet<u64>) -> u64 {
    let bytes = digests.iter().flat_map(|digest| digest.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Part {
    fn read(bytes: &[u8]) -> Option<Self> {
        let is_ours =
            |part: &Part| part.sidestep_edge == FORMAT && part.head.parts <= MAX_PARTS && part.part < part.head.parts;
        serde_json::from_slice(bytes).ok().filter(is_ours)
    }

    /// Adds it to the parts of its message; the message, if it is the last one of them.
    fn complete(self, coming: &mut Option<Parts>) -> Option<Message> {
        let head = self.head;
        if coming.as_ref().is_none_or(|coming| coming.head != head) {
            *coming = Some(Parts { head, dead: BTreeMap::new() });
        }
        let parts = coming.as_mut()?;
        parts.dead.insert(self.part, self.dead);
        if parts.dead.len() < head.parts {
            return None;
        }
        let dead = coming.take()?.dead.into_values().flatten().collect();
        Some(Message { generation: head.generation, digest: head.digest, dead })
    }
}

impl Peer {
    /// Begins to listen, if there is another edge to compare with.
    pub(super) fn open(settings: &EdgeSettings) -> Result<Option<Self>, AgentError> {
        let (Some(listen), Some(address)) = (settings.listen, settings.peer) else { return Ok(None) };
        let failed = |error: io::Error| LinuxError::io(format!("listening for the other edge at {listen}"), error);
        let socket = std::net::UdpSocket::bind(listen).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let socket = UdpSocket::from_std(socket).map_err(failed)?;
        Ok(Some(Peer { socket, address, heard: None, coming: None, round: 0, said: EdgeAgreement::Silent }))
    }

    /// Waits until a datagram is there.
    pub(super) async fn is_readable(&self) -> Result<(), AgentError> {
        let failed = |error| LinuxError::io("listening for the other edge", error);
        Ok(self.socket.readable().await.map_err(failed)?)
    }

    /// Takes the datagrams that are there; others than the other edge's are not heeded.
    pub(super) fn take(&mut self) {
        let mut bytes = [0; MAX];
        while let Ok((length, from)) = self.socket.try_recv_from(&mut bytes) {
            let part = bytes.get(..length).and_then(Part::read);
            let Some(part) = part.filter(|_| from == self.address) else {
                tracing::debug!(%from, "a datagram that is not the other edge's");
                continue;
            };
            if let Some(message) = part.complete(&mut self.coming) {
                self.heard = Some((Instant::now(), message));
            }
        }
    }

    /// Reports to the other edge, and logs if the edges have begun to differ or to agree.
    pub(super) fn send(&mut self, own: &Message) {
        for part in own.parts(self.round) {
            // It is not there yet, or a network is: the next message is due in a second.
            drop(self.socket.try_send_to(&part, self.address));
        }
        self.round = self.round.wrapping_add(1);
        let now = self.agreement(own);
        if std::mem::replace(&mut self.said, now) == now {
            return;
        }
        match now {
            EdgeAgreement::Agrees => tracing::info!(edge = %self.address, "the other edge has the same paths"),
            EdgeAgreement::Silent => tracing::warn!(edge = %self.address, "nothing is heard of the other edge"),
            EdgeAgreement::OlderHere | EdgeAgreement::NewerHere | EdgeAgreement::Conflict => {
                let theirs = self.believed().map(|message| message.generation);
                tracing::warn!(
                    edge = %self.address, generation = own.generation, theirs,
                    "the other edge has other paths, another order, mode or seed: flows take different paths there and back; \
                     compare `sidestep edge status` of both"
                );
            }
        }
    }

    /// How the edges' sets stand.
    pub(super) fn agreement(&self, own: &Message) -> EdgeAgreement {
        self.believed().map_or(EdgeAgreement::Silent, |theirs| own.compare(theirs))
    }

    /// The paths that are dead at the other edge, by the version of IP and their identity.
    pub(super) fn dead(&self) -> BTreeSet<(u8, u32)> {
        self.believed().map(|message| message.dead.clone()).unwrap_or_default()
    }

    fn believed(&self) -> Option<&Message> {
        self.heard.as_ref().filter(|(at, _)| at.elapsed() < BELIEVED).map(|(_, message)| message)
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edges_agree_if_their_sets_do_whatever_their_generations() {
        let message =
            |generation, digests: &[u64]| Message::new(generation, &digests.iter().copied().collect(), BTreeSet::new());
        let own = message(3, &[1, 2]);
        for (other, expected) in [
            (message(3, &[2, 1]), EdgeAgreement::Agrees),
            (message(9, &[1, 2]), EdgeAgreement::Agrees),
            (message(4, &[1]), EdgeAgreement::OlderHere),
            (message(2, &[1, 2, 3]), EdgeAgreement::NewerHere),
            (message(3, &[]), EdgeAgreement::Conflict),
        ] {
            assert_eq!(own.compare(&other), expected, "{other:?}");
        }
    }

    /// What is made of datagrams that come in this order.
    fn made_of(parts: &[Vec<u8>], coming: &mut Option<Parts>) -> Vec<Message> {
        let read = |bytes: &Vec<u8>| Part::read(bytes.get(..MAX).unwrap_or(bytes));
        parts.iter().filter_map(|bytes| read(bytes)?.complete(coming)).collect()
    }

    #[test]
    fn agreement_and_dead_paths_are_sent_however_many_sets_of_paths_there_are() {
        let digests: BTreeSet<u64> = (0..2_000).map(|set| u64::MAX - set).collect();
        for dead in [0, 1, 70, 71, 3_000] {
            let dead: BTreeSet<_> = (0..dead).map(|path| (6, u32::MAX - path)).collect();
            let message = Message::new(u64::MAX, &digests, dead);
            let mut parts = message.parts(u64::MAX);
            assert!(parts.iter().all(|part| part.len() <= MAX), "{:?}", parts.iter().map(Vec::len).max());
            let mut coming = None;
            assert_eq!(made_of(&parts, &mut coming), slice::from_ref(&message));
            // In any order, also if one comes twice.
            parts.reverse();
            parts.insert(0, parts[0].clone());
            let made = made_of(&parts, &mut coming);
            assert_eq!(made.last(), Some(&message));
            assert_eq!(message.compare(&made[0]), EdgeAgreement::Agrees);
            // One part is lost; the next round sends all.
            if parts.len() > 2 {
                assert_eq!(made_of(&parts[2..], &mut coming), []);
                assert_eq!(made_of(&message.parts(0), &mut coming), slice::from_ref(&message));
            }
        }
        let too_many = Message::new(1, &digests, (0..10_000).map(|path| (4, path)).collect());
        let mut coming = None;
        let told = made_of(&too_many.parts(0), &mut coming).remove(0);
        assert_eq!((told.dead.len(), told.digest), (DEAD_IN_PART * MAX_PARTS, too_many.digest));
        let other = br#"{"sidestep_edge":3,"round":0,"generation":1,"digest":1,"parts":1,"part":0,"dead":[]}"#;
        assert_eq!(Part::read(other), None);
    }

    proptest! {
        #[test]
        fn any_datagram_is_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Part::read(&bytes));
        }
    }
}
