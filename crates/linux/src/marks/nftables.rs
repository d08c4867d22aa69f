//! Reads from all rules of nf_tables what they do with marks.

use std::{collections::BTreeMap, io};

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};

use super::{FilterUse, MarkAction};

// `linux/netfilter/nf_tables.h` and `nfnetlink.h`.
const GET_RULE: u16 = 10 << 8 | 7;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const META_MARK: u32 = 3;
/// `struct nfgenmsg`, after the header of netlink.
const GENERIC_LEN: usize = 4;
const HEADER_LEN: usize = 16;
const DUMP_REQUEST: u16 = 0x301;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// How the names of our own tables begin, which change marks as we want it.
const OWN_TABLES: &str = "sidestep";

/// What the rules of all tables do with marks; nothing on a kernel without nf_tables.
pub(super) fn read() -> io::Result<Vec<FilterUse>> {
    let mut socket = match Socket::new(NETLINK_NETFILTER) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Vec::new()),
        other => other?,
    };
    socket.bind_auto()?;
    let mut request = Vec::with_capacity(HEADER_LEN + GENERIC_LEN);
    request.extend(((HEADER_LEN + GENERIC_LEN) as u32).to_ne_bytes());
    request.extend(GET_RULE.to_ne_bytes());
    request.extend(DUMP_REQUEST.to_ne_bytes());
    // A sequence number and a port, and of all families and the first version.
    request.extend([0; 12]);
    socket.send(&request, 0)?;
    let mut found = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while let Some((kind, payload, next)) = split_message(rest) {
            rest = next;
            match kind {
                DONE => return Ok(found),
                ERROR => return error_of(payload).map_or(Ok(found), Err),
                _ => found.extend(read_rule(payload)),
            }
        }
    }
}

/// The type and the payload of the first message, and what follows it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let payload = bytes.get(HEADER_LEN..length)?;
    Some((kind, payload, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// What went wrong; `None` if the kernel has no nf_tables.
fn error_of(payload: &[u8]) -> Option<io::Error> {
    let number = i32::from_ne_bytes(payload.get(..4)?.try_into().ok()?).wrapping_neg();
    let is_missing = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOENT, 0].contains(&number);
    (!is_missing).then(|| io::Error::from_raw_os_error(number))
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
    let rule = attributes(payload.get(GENERIC_LEN..).unwrap_or_default());
    let name = |kind| rule.get(&kind).map(|bytes| text(bytes)).unwrap_or_default();
    if name(RULE_TABLE).starts_with(OWN_TABLES) {
        return Vec::new();
    }
    let place = format!("{family} {} {}", name(RULE_TABLE), name(RULE_CHAIN));
    let mut registers = BTreeMap::new();
    let mut found = Vec::new();
    for (_, element) in elements(rule.get(&RULE_EXPRESSIONS).copied().unwrap_or_default()) {
        let expression = attributes(element);
        let data = attributes(expression.get(&EXPR_DATA).copied().unwrap_or_default());
        let name = expression.get(&EXPR_NAME).map(|bytes| text(bytes)).unwrap_or_default();
        found.extend(follow(&name, &data, &mut registers));
    }
    found.into_iter().map(|action| FilterUse { place: place.clone(), action }).collect()
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
fn follow(name: &str, data: &BTreeMap<u16, &[u8]>, registers: &mut BTreeMap<u32, Register>) -> Option<MarkAction> {
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
        "target" | "match" => of_iptables(name, data),
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

/// An extension of iptables (`linux/netfilter/xt_mark.h`, `xt_connmark.h`).
fn of_iptables(name: &str, data: &BTreeMap<u16, &[u8]>) -> Option<MarkAction> {
    let info = data.get(&3)?;
    let word = |at| host_u32(info, at);
    match (name, text(data.get(&1)?).as_str()) {
        ("target", "MARK") => Some(MarkAction::Changed(word(0)? | word(4)?)),
        // Only restoring changes the packet's mark.
        ("target", "CONNMARK") if info.get(12) == Some(&2) => Some(MarkAction::Changed(word(8)? | word(4)?)),
        ("match", "mark") => Some(MarkAction::Compared { mark: word(0)?, mask: word(4)? }),
        _ => None,
    }
}

/// The first four registers of 16 bytes have numbers of their own, beside those of 4 bytes.
fn normalised(register: u32) -> u32 {
    if (1..=4).contains(&register) { 8 + (register - 1) * 4 } else { register }
}

/// Attributes by their type.
fn attributes(bytes: &[u8]) -> BTreeMap<u16, &[u8]> {
    elements(bytes).into_iter().collect()
}

/// Attributes in their order, with their types.
fn elements(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some((kind, value, rest)) = split_attribute(bytes) {
        found.push((kind, value));
        bytes = rest;
    }
    found
}

/// The type and the value of the first attribute (`struct nlattr`), and what follows it.
fn split_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let word = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let length = usize::from(word(0)?);
    // Two bits are flags.
    let kind = word(2)? & 0x3fff;
    Some((kind, bytes.get(4..length)?, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn host_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string()
}
