//! Reads from all rules of nf_tables what they do with marks, and which of them masquerade.

use std::{collections::BTreeMap, io};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NlasIterator};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily,
    nftables::{NfTablesMessage, RuleMessage},
};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};

use super::{
    FilterUse, MarkAction, host_u32,
    iptables::{self, Extension},
    text,
};
use crate::nftables::{HEADER_LEN, append, messages, status};

// `linux/netfilter/nf_tables.h`.
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const META_MARK: u32 = 3;
/// How the names of our own tables begin, which change marks as we want it.
const OWN_TABLES: &str = "sidestep";

/// What the rules of all tables do with marks; nothing on a kernel without nf_tables.
pub(super) fn read() -> io::Result<Vec<FilterUse>> {
    let mut socket = match Socket::new(NETLINK_NETFILTER) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Vec::new()),
        other => other?,
    };
    socket.bind_auto()?;
    let mut request = Vec::new();
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
    let all = NfTablesMessage::GetRule(RuleMessage { attributes: Vec::new() });
    append(&mut request, NetfilterMessage::new(header, all), NLM_F_REQUEST | NLM_F_DUMP, 1);
    socket.send(&request, 0)?;
    let mut found = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        for message in messages(&bytes) {
            let message = message?;
            match message.message_type() {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => {
                    return status(message.payload()).filter(|error| !is_missing(error)).map_or(Ok(found), Err);
                }
                _ => found.extend(read_rule(message.payload())),
            }
        }
    }
}

/// Whether the kernel has no nf_tables.
fn is_missing(error: &io::Error) -> bool {
    let missing = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOENT];
    error.raw_os_error().is_some_and(|number| missing.contains(&number))
}

fn read_rule(payload: &[u8]) -> Vec<FilterUse> {
    let family = match payload.first() {
        Some(1) => "inet",
        Some(2) => "ip",
        Some(5) => "netdev",
        Some(7) => "bridge",
        Some(10) => "ip6",
        _ => "other",
    };
    let rule = attributes(payload.get(HEADER_LEN..).unwrap_or_default());
    let name = |kind| rule.get(&kind).map(|bytes| text(bytes)).unwrap_or_default();
    if name(RULE_TABLE).starts_with(OWN_TABLES) {
        return Vec::new();
    }
    let place = format!("{family} {} {}", name(RULE_TABLE), name(RULE_CHAIN));
    let mut registers = BTreeMap::new();
    let mut found = Vec::new();
    for (_, element) in elements(rule.get(&RULE_EXPRESSIONS).map(Vec::as_slice).unwrap_or_default()) {
        let expression = attributes(&element);
        let data = attributes(expression.get(&EXPR_DATA).map(Vec::as_slice).unwrap_or_default());
        let name = expression.get(&EXPR_NAME).map(|bytes| text(bytes)).unwrap_or_default();
        found.extend(follow(&name, &data, &mut registers));
    }
    found.into_iter().map(|action| FilterUse { program: "nf_tables", place: place.clone(), action }).collect()
}

/// What is known of a register's bits.
#[derive(Clone, Copy)]
enum Register {
    /// The packet's mark: bits that are kept, and bits that are inverted or set afterwards.
    Mark {
        kept: u32,
        turned: u32,
    },
    Other,
}

/// Follows an expression through the registers; returns what it does with the mark.
fn follow(name: &str, data: &Attributes, registers: &mut BTreeMap<u32, Register>) -> Option<MarkAction> {
    let number = |kind: u16| Some(u32::from_be_bytes(data.get(&kind)?.get(..4)?.try_into().ok()?));
    let value = |kind: u16| host_u32(attributes(data.get(&kind)?).get(&DATA_VALUE)?, 0);
    let register = |kind: u16| number(kind).map(normalised);
    match name {
        "meta" if number(2) == Some(META_MARK) => match (register(1), register(3)) {
            (Some(to), _) => {
                registers.insert(to, Register::Mark { kept: u32::MAX, turned: 0 });
                None
            }
            (_, Some(from)) => Some(MarkAction::Changed(match registers.get(&from) {
                Some(Register::Mark { kept, turned }) => !kept | turned,
                _ => u32::MAX,
            })),
            _ => None,
        },
        "bitwise" => {
            let from = registers.get(&register(1)?).copied().unwrap_or(Register::Other);
            let result = match (from, value(4), value(5)) {
                (Register::Mark { kept, turned }, Some(mask), Some(xor)) => {
                    Register::Mark { kept: kept & mask, turned: (turned & mask) ^ xor }
                }
                _ => Register::Other,
            };
            registers.insert(register(2)?, result);
            None
        }
        "cmp" => match registers.get(&register(1)?)? {
            Register::Mark { kept, turned } => {
                Some(MarkAction::Compared { mark: (value(3)? ^ turned) & kept, mask: *kept })
            }
            Register::Other => None,
        },
        "masq" => Some(MarkAction::Masquerades),
        "target" | "match" => {
            let kind = if name == "target" { Extension::Target } else { Extension::Match };
            iptables::action(kind, &text(data.get(&1)?), number(2)?, data.get(&3)?)
        }
        _ => {
            // Whatever else writes a register makes it something else.
            let destination = match name {
                "immediate" | "ct" | "payload" | "numgen" | "meta" => 1,
                "hash" => 2,
                "lookup" => 3,
                _ => return None,
            };
            registers.insert(register(destination)?, Register::Other);
            None
        }
    }
}

/// The first four registers of 16 bytes have numbers of their own, beside those of 4 bytes.
fn normalised(register: u32) -> u32 {
    if (1..=4).contains(&register) { 8 + (register - 1) * 4 } else { register }
}

/// Attributes by their type.
type Attributes = BTreeMap<u16, Vec<u8>>;

fn attributes(bytes: &[u8]) -> Attributes {
    elements(bytes).collect()
}

/// Attributes in their order, with their types; those after a broken one are left out.
fn elements(bytes: &[u8]) -> impl Iterator<Item = (u16, Vec<u8>)> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|attribute| (attribute.kind(), attribute.value().to_vec()))
}

/// The rules of one datagram, for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn read_rules(bytes: &[u8]) -> Vec<FilterUse> {
    messages(bytes).map_while(io::Result::ok).flat_map(|message| read_rule(message.payload())).collect()
}
