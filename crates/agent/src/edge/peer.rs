//! The other edge: whether it has the same set of paths, and which of them it knows to be dead.
//!
//! Each edge tells the other, every second and when something changes, in one datagram. Nothing is acknowledged, and nobody
//! waits: an edge that hears nothing goes on by what it knows itself.

use std::{collections::BTreeSet, io, net::SocketAddr, time::Duration};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_linux::LinuxError;
use sidestep_policy::balance::{Agreement, Version};
use tokio::{net::UdpSocket, time::Instant};

use super::EdgeKnobs;
use crate::AgentError;

/// How long what the other edge said is believed.
const BELIEVED: Duration = Duration::from_secs(5);
/// Longest datagram.
const MOST: usize = 8192;

/// What an edge tells the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    /// Version of this format.
    sidestep_edge: u32,
    generation: u64,
    /// The digest of each destination's set of paths.
    digests: BTreeSet<u64>,
    /// The paths that are dead at the sender, by the version of IP and their identity: a path may be dead for one only.
    dead: BTreeSet<(u8, u32)>,
}

/// What is known of the other edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeAgreement {
    /// Nothing is heard of it.
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
    /// What was said of it last.
    said: EdgeAgreement,
}

/// The version of IP of a destination.
pub(super) fn version(destination: IpNet) -> u8 {
    if destination.addr().is_ipv4() { 4 } else { 6 }
}

impl Message {
    pub(super) fn new(generation: u64, digests: BTreeSet<u64>, dead: BTreeSet<(u8, u32)>) -> Self {
        Message { sidestep_edge: 1, generation, digests, dead }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|message: &Message| message.sidestep_edge == 1)
    }

    /// How this edge's sets stand beside the other's.
    fn compare(&self, other: &Message) -> EdgeAgreement {
        // The sets as a whole have the same digest if and only if each one has.
        let version = |message: &Message, digest| Version { generation: message.generation, digest };
        let same = u64::from(self.digests != other.digests);
        match version(self, 0).compare(version(other, same)) {
            Agreement::Same => EdgeAgreement::Agrees,
            Agreement::Older => EdgeAgreement::OlderHere,
            Agreement::Newer => EdgeAgreement::NewerHere,
            Agreement::Conflict => EdgeAgreement::Conflict,
        }
    }
}

impl Peer {
    /// Begins to listen, if there is another edge to compare with.
    pub(super) fn open(knobs: &EdgeKnobs) -> Result<Option<Self>, AgentError> {
        let (Some(listen), Some(address)) = (knobs.listen, knobs.peer) else { return Ok(None) };
        let failed = |error: io::Error| LinuxError::io(format!("listening for the other edge at {listen}"), error);
        let socket = std::net::UdpSocket::bind(listen).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let socket = UdpSocket::from_std(socket).map_err(failed)?;
        Ok(Some(Peer { socket, address, heard: None, said: EdgeAgreement::Silent }))
    }

    /// Waits until a datagram is there.
    pub(super) async fn is_heard(&self) -> Result<(), AgentError> {
        let failed = |error| LinuxError::io("listening for the other edge", error);
        Ok(self.socket.readable().await.map_err(failed)?)
    }

    /// Takes the datagrams that are there; others than the other edge's are not heeded.
    pub(super) fn take(&mut self) {
        let mut bytes = [0; MOST];
        while let Ok((length, from)) = self.socket.try_recv_from(&mut bytes) {
            let message = bytes.get(..length).and_then(Message::read);
            match message {
                Some(message) if from == self.address => self.heard = Some((Instant::now(), message)),
                _ => tracing::debug!(%from, "a datagram that is not the other edge's"),
            }
        }
    }

    /// Tells the other edge, and says if the edges have begun to differ or to agree.
    pub(super) fn tell(&mut self, own: &Message) {
        if let Ok(text) = serde_json::to_vec(own) {
            // It is not there yet, or a network is: the next one is due in a second.
            drop(self.socket.try_send_to(&text, self.address));
        }
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edges_agree_if_their_sets_do_whatever_their_generations() {
        let message =
            |generation, digests: &[u64]| Message::new(generation, digests.iter().copied().collect(), BTreeSet::new());
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
        let text = serde_json::to_vec(&own).unwrap();
        assert_eq!(Message::read(&text), Some(own));
        assert_eq!(Message::read(br#"{"sidestep_edge":2,"generation":1,"digests":[],"dead":[]}"#), None);
    }

    proptest! {
        #[test]
        fn any_datagram_is_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Message::read(&bytes));
        }
    }
}
