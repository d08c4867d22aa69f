//! A table of nf_tables that draws a path for packets that leave without a socket of their own.
//!
//! A SYN-ACK belongs to a connection that is not there yet, and a reset to one that is gone: no program
//! on a control group can move them. A chain of the type `route` can. It changes the mark of each packet as it leaves, and the kernel looks
//! the route up again. Transmissions of one SYN-ACK are drawn independently, so that a dead path costs one of them.
//!
//! The table exists in one network namespace, and sees packets of that namespace only. It cannot distinguish
//! control groups: a request that has not become a connection has none.

mod expressions;
mod flows;
mod ruleset;

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkMessage, NlasIterator,
};
use netlink_packet_netfilter::{NetfilterMessage, nftables::NfTablesMessage};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{setsockopt, sockopt::SndBufForce};

pub use self::flows::{FlowEgress, FlowRules, FlowSpread, FlowTable};
pub(crate) use self::ruleset::HEADER_LEN;
use self::ruleset::Ruleset;
use crate::{
    error::{LinuxError, Result},
    netlink::Family,
};

/// Among which paths to draw for packets to one destination prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The prefix. Of several that contain an address the longest counts.
    pub destination: IpNet,
    /// The paths; without any, packets to the prefix are left alone.
    pub shares: Vec<Share>,
}

/// A path that may be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// What the table writes into its bits of the mark.
    pub mark: u32,
    /// How likely the path is, compared with the others.
    pub weight: u32,
    /// The source addresses that are valid on the path; without any, all are. The source of a SYN-ACK is fixed.
    pub sources: Vec<IpNet>,
    /// Whether addresses that no path names are valid on it as well.
    pub unnamed: bool,
}

/// The table, in the network namespace of the thread that opened it. It stays when this value is dropped.
#[derive(Debug)]
pub struct DrawTable {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
    ruleset: Ruleset,
}

/// What a kernel without nf_tables lacks.
const NEEDS: &str = "it needs nf_tables (CONFIG_NF_TABLES_INET, Linux 5.2 or later)";
/// The type of a message with a generation, with that of the subsystem (`linux/netfilter/nf_tables.h`).
const NEW_GENERATION: u16 = 10 << 8 | 15;
/// Its attribute that is the generation.
const GENERATION_ID: u16 = 1;
/// The kernel's answers are no longer.
const ANSWER_LIMIT: usize = 64 << 10;

impl DrawTable {
    /// Opens a socket for the table `name`, which may be there already. The table changes the bits `mask` of marks, and
    /// only where they are all zero.
    pub fn open(name: &str, mask: u32) -> Result<Self> {
        let what = || format!("opening a socket for the table {name}");
        let failed = |error| LinuxError::new(what(), error, NEEDS);
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        // The kernel answers inside the call that asks: there is never anything to wait for.
        socket.set_non_blocking(true).map_err(failed)?;
        let ruleset = Ruleset { name: name.into(), mask };
        Ok(DrawTable { socket, buffer: vec![0; ANSWER_LIMIT], sequence: 0, ruleset })
    }

    /// Makes new connections of a family with a mark of ours keep the source address that they have, where another program
    /// masquerades them and the interface has that address; or no longer. A table of this family and of the same name does it.
    ///
    /// The kernel drops the state of a masqueraded connection whose packets leave by another interface than the first one
    /// did. Without masquerading this is not wanted: it makes the kernel track all connections of the family.
    pub fn keep_sources(&mut self, of: Family, keep: bool) -> Result<()> {
        self.commit_in(Some(of), &self.ruleset.sources(of, keep), || "keeping sources from being masqueraded")
    }

    /// Makes the table contain these draws, in one step: each packet sees the table as it was, or as it is now.
    pub fn replace(&mut self, draws: &[Draw]) -> Result<()> {
        self.commit(&self.ruleset.replacement(draws), || "writing the table that draws paths of replies")
    }

    /// Gives the draw at this position of the last [`replace`](Self::replace) other weights.
    pub fn reweigh(&mut self, position: usize, draw: &Draw) -> Result<()> {
        self.commit(&self.ruleset.reweighing(position, draw), || "changing how likely paths of replies are")
    }

    /// Removes the table, and what keeps sources; returns whether the table was there.
    pub fn remove(&mut self) -> Result<bool> {
        Family::ALL.into_iter().try_for_each(|of| self.keep_sources(of, false))?;
        match self.commit(&self.ruleset.removal(), || "removing the table that draws paths of replies") {
            Ok(()) => Ok(true),
            Err(LinuxError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A number that changes whenever anybody changes any table of the namespace.
    pub fn generation(&mut self) -> Result<u32> {
        let mut generation = None;
        self.ask_header(None, ruleset::generation(), 0, |kind, payload| {
            generation = generation.or_else(|| read_generation(kind, payload));
        })?;
        generation.ok_or_else(|| reading(io::ErrorKind::InvalidData.into()))
    }

    /// A number that follows from what is in the table now, and in those that keep sources; `None` if the table is not there.
    pub fn fingerprint(&mut self) -> Result<Option<u64>> {
        let mut hasher = DefaultHasher::new();
        if !self.hash(None, &mut hasher)? {
            return Ok(None);
        }
        for of in Family::ALL {
            self.hash(Some(of), &mut hasher)?.hash(&mut hasher);
        }
        Ok(Some(hasher.finish()))
    }

    /// Hashes what is in the table of this family, or of both; returns whether it is there.
    fn hash(&mut self, of: Option<Family>, hasher: &mut DefaultHasher) -> Result<bool> {
        match self.ask_raw(of, ruleset::table(&self.ruleset.name), 0, |payload| payload.hash(hasher)) {
            Err(LinuxError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
            other => other?,
        }
        self.ask_raw(of, ruleset::rules(&self.ruleset.name), NLM_F_DUMP, |payload| payload.hash(hasher))?;
        Ok(true)
    }

    /// Asks, and hands the bytes of each answer to `each`, without the header that counts generations.
    fn ask_raw(
        &mut self,
        of: Option<Family>,
        message: NfTablesMessage,
        flags: u16,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        self.ask_header(of, message, flags, |_, payload| each(payload.get(HEADER_LEN..).unwrap_or_default()))
    }

    /// Asks, and hands the type and the bytes of each answer to `each`.
    fn ask_header(
        &mut self,
        of: Option<Family>,
        message: NfTablesMessage,
        flags: u16,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        append(&mut bytes, ruleset::in_family(of, message), flags | NLM_F_REQUEST, self.sequence);
        self.socket.send(&bytes, 0).map_err(reading)?;
        loop {
            let length = match self.socket.recv(&mut &mut self.buffer[..], libc::MSG_TRUNC) {
                Ok(length) => length,
                // A dump ends with a message that marks its end; a single answer is alone.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(reading(error)),
            };
            let datagram = self.buffer.get(..length).ok_or_else(|| reading(io::ErrorKind::InvalidData.into()))?;
            for message in messages(datagram) {
                let message = message.map_err(reading)?;
                match message.message_type() {
                    _ if message.sequence_number() != self.sequence => {}
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        if let Some(error) = status(message.payload()) {
                            return Err(reading(error));
                        }
                    }
                    kind => each(kind, message.payload()),
                }
            }
        }
    }

    fn commit(&mut self, transaction: &[(NfTablesMessage, u16)], what: impl Fn() -> &'static str) -> Result<()> {
        self.commit_in(None, transaction, what)
    }

    /// Sends a transaction: all of it takes effect at once, or nothing does.
    fn commit_in(
        &mut self,
        of: Option<Family>,
        transaction: &[(NfTablesMessage, u16)],
        what: impl Fn() -> &'static str,
    ) -> Result<()> {
        let failed = |error| LinuxError::new(what(), error, NEEDS);
        let mut next = || {
            self.sequence = self.sequence.wrapping_add(1);
            self.sequence
        };
        let mut bytes = Vec::new();
        append(&mut bytes, ruleset::batch_begin(), NLM_F_REQUEST, next());
        let mut last = 0;
        for (index, (message, flags)) in transaction.iter().enumerate() {
            last = next();
            let ack = if index + 1 == transaction.len() { NLM_F_ACK } else { 0 };
            append(&mut bytes, ruleset::in_family(of, message.clone()), flags | ack | NLM_F_REQUEST, last);
        }
        append(&mut bytes, ruleset::batch_end(), NLM_F_REQUEST, next());
        // SAFETY: the descriptor is the socket's, which lives beyond this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) };
        // The kernel takes a transaction as one datagram.
        setsockopt(&descriptor, SndBufForce, &(bytes.len() + ANSWER_LIMIT)).map_err(|error| failed(error.into()))?;
        self.socket.send(&bytes, 0).map_err(failed)?;
        // All answers wait already. Without the last message's the transaction was not carried out.
        let mut result = Err(io::ErrorKind::InvalidData.into());
        let mut refused = None;
        loop {
            let length = match self.socket.recv(&mut &mut self.buffer[..], libc::MSG_TRUNC) {
                Ok(length) => length.min(self.buffer.len()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed(error)),
            };
            for message in messages(self.buffer.get(..length).unwrap_or_default()) {
                let message = message.map_err(failed)?;
                match (message.message_type(), status(message.payload())) {
                    (NLMSG_ERROR, None) if message.sequence_number() == last => result = Ok(()),
                    (NLMSG_ERROR, Some(error)) => refused = refused.or(Some(error)),
                    _ => {}
                }
            }
        }
        refused.map_or(result, Err).map_err(failed)
    }
}

/// Removes all tables of the calling thread's namespace, as `nft flush ruleset` does; for tests.
pub fn flush_ruleset() -> Result<()> {
    DrawTable::open("", 0)?.commit(&[ruleset::flush()], || "removing all tables")
}

/// Appends a message, and the padding that the next one needs.
pub(crate) fn append(bytes: &mut Vec<u8>, message: NetfilterMessage, flags: u16, sequence: u32) {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let start = bytes.len();
    bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
    if let Some(room) = bytes.get_mut(start..) {
        message.serialize(room);
    }
}

/// The messages of one datagram.
pub(crate) fn messages(mut rest: &[u8]) -> impl Iterator<Item = io::Result<NetlinkBuffer<&[u8]>>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = NetlinkBuffer::new_checked(rest).map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        let length = message.as_ref().map_or(rest.len(), |message| (message.length() as usize).next_multiple_of(4));
        rest = rest.get(length..).unwrap_or_default();
        Some(message)
    })
}

/// The generation that an answer reports, if it is one. It is read here, as the library's parser panics on attributes within
/// attributes that are longer than what they are in.
fn read_generation(kind: u16, payload: &[u8]) -> Option<u32> {
    if kind != NEW_GENERATION {
        return None;
    }
    let mut attributes = NlasIterator::new(payload.get(HEADER_LEN..)?).map_while(std::result::Result::ok);
    let id = attributes.find(|attribute| attribute.kind() == GENERATION_ID)?;
    Some(u32::from_be_bytes(*id.value().first_chunk()?))
}

/// The error that an answer reports, if it is one.
pub(crate) fn status(payload: &[u8]) -> Option<io::Error> {
    match i32::from_ne_bytes(*payload.first_chunk()?) {
        0 => None,
        errno => Some(io::Error::from_raw_os_error(errno.saturating_neg())),
    }
}

fn reading(error: io::Error) -> LinuxError {
    LinuxError::new("reading the tables of nf_tables", error, NEEDS)
}

/// What fuzzing reads.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    use super::*;

    /// Reads the messages of a datagram as answers of nf_tables.
    pub(crate) fn read(bytes: &[u8]) {
        for message in messages(bytes).map_while(io::Result::ok) {
            let _ = status(message.payload());
            let _ = read_generation(message.message_type(), message.payload());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_read_from_its_own_answer_only() {
        // The header of nf_tables, the generation, and the process that made it.
        let answer = [0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 2, 7, 8, 0, 2, 0, 0, 0, 0, 9];
        assert_eq!(read_generation(NEW_GENERATION, &answer), Some(0x0207));
        assert_eq!(read_generation(NEW_GENERATION, &answer[..10]), None);
        assert_eq!(read_generation(NEW_GENERATION - 1, &answer), None);
    }

    #[test]
    fn a_rule_whose_value_claims_more_than_there_is_makes_no_reader_panic() {
        // Fuzzing found it.
        let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/netlink/filters-long-value");
        let bytes = std::fs::read(seed).unwrap();
        crate::fuzzing::read_filters(&bytes[1..]);
    }
}
