//! Reads from the rules of iptables what they do with marks, and which of them masquerade: from its old tables, and from its extensions in nf_tables.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs,
    io::{self, ErrorKind},
    os::fd::AsRawFd,
};

use super::{
    FilterUse, MarkAction,
    chains::{self, Chain, Hook, Step},
    host_u32, text,
};

/// A part of a rule that iptables has code of its own for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    /// Sets which packets the rule is for.
    Match,
    /// Sets what becomes of them.
    Target,
}

/// One of the two programs whose rules the old tables have.
struct Tables {
    program: &'static str,
    /// Where the kernel lists the tables that there are. Asking for another would make it.
    names: &'static str,
    domain: c_int,
    level: c_int,
    /// Bytes of `struct ipt_entry` and `struct ip6t_entry`, which the matches follow.
    entry: usize,
    /// Where the offsets of the target and of the next entry are in them.
    offsets: usize,
}

const TABLES: [Tables; 2] = [
    Tables {
        program: "iptables",
        names: "ip_tables_names",
        domain: libc::AF_INET,
        level: libc::SOL_IP,
        entry: 112,
        offsets: 88,
    },
    Tables {
        program: "ip6tables",
        names: "ip6_tables_names",
        domain: libc::AF_INET6,
        level: libc::SOL_IPV6,
        entry: 168,
        offsets: 140,
    },
];

// `linux/netfilter_ipv4/ip_tables.h`; the numbers of `linux/netfilter_ipv6/ip6_tables.h` are the same.
const GET_INFO: c_int = 64;
const GET_ENTRIES: c_int = 65;
const NAME_LEN: usize = 32;
/// Bytes of `struct ipt_getinfo`, and where in it are what follows.
const INFO_LEN: usize = 84;
const INFO_HOOKS: usize = 32;
const INFO_CHAINS: usize = 36;
const INFO_SIZE: usize = 80;
/// Bytes of `struct ipt_get_entries`, which the entries follow.
const ENTRIES_LEN: usize = 40;
/// Bytes of `struct xt_entry_match` and `struct xt_entry_target`, which their data follow.
const EXTENSION_LEN: usize = 32;
/// The target of the entry that begins a chain of the user's; its data is the name.
const CHAIN: &str = "ERROR";
// `XT_CONNMARK_RESTORE` and `D_SHIFT_LEFT`.
const RESTORE: u8 = 2;
const SHIFT_LEFT: u8 = 0;
/// The chains of the kernel's hooks, in their order.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// What the rules of the old tables do with marks, and what could not be read.
pub(super) fn read() -> (Vec<FilterUse>, Vec<String>) {
    let (mut found, mut unseen) = (Vec::new(), Vec::new());
    for tables in &TABLES {
        let program = tables.program;
        let names = match fs::read_to_string(format!("/proc/thread-self/net/{}", tables.names)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                unseen.push(format!("old tables of {program} ({error})"));
                continue;
            }
            Ok(names) => names,
        };
        for name in names.lines() {
            match read_table(tables, name) {
                Ok((info, entries)) => found.extend(rules(tables, name, &info, &entries)),
                Err(error) => unseen.push(format!("old table {name} of {program} ({error})")),
            }
        }
    }
    (found, unseen)
}

/// What the kernel reports about a table, and its entries.
fn read_table(tables: &Tables, name: &str) -> io::Result<([u8; INFO_LEN], Vec<u8>)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let family = if tables.domain == libc::AF_INET { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let ask = |option, bytes: &mut [u8]| {
        let mut length = libc::socklen_t::try_from(bytes.len()).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `length` bytes, which are those of `bytes`.
        let result = unsafe {
            libc::getsockopt(socket.as_raw_fd(), tables.level, option, bytes.as_mut_ptr().cast(), &mut length)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let mut name_bytes = [0; NAME_LEN];
    name_bytes.iter_mut().zip(name.bytes().take(NAME_LEN - 1)).for_each(|(to, from)| *to = from);
    let mut info = [0; INFO_LEN];
    info.iter_mut().zip(name_bytes).for_each(|(to, from)| *to = from);
    ask(GET_INFO, &mut info)?;
    let size = host_u32(&info, INFO_SIZE).unwrap_or_default();
    // The kernel requires the size, and refuses another one, as when rules have changed meanwhile.
    let mut bytes = [&name_bytes[..], &size.to_ne_bytes(), &[0; 4]].concat();
    bytes.resize(ENTRIES_LEN + size as usize, 0);
    ask(GET_ENTRIES, &mut bytes)?;
    Ok((info, bytes.split_off(ENTRIES_LEN)))
}

/// What the rules of a table do with marks.
fn rules(tables: &Tables, table: &str, info: &[u8], entries: &[u8]) -> Vec<FilterUse> {
    let hooks = host_u32(info, INFO_HOOKS).unwrap_or_default();
    let called_at = |offset: usize| {
        let begins = |hook: &usize| {
            hooks & 1 << hook != 0 && host_u32(info, INFO_CHAINS + 4 * hook) == u32::try_from(offset).ok()
        };
        (0..HOOKS.len()).find(begins)
    };
    let place = |chain: &str| format!("{table} {chain}");
    let (mut chains, mut offset) = (Vec::new(), 0);
    // Where the chains of the user begin, by offset, and the jumps that will be given names.
    let mut begins = BTreeMap::new();
    let mut jumps: Vec<(usize, usize, usize)> = Vec::new();
    while let Some((entry, target)) = split_entry(tables, entries.get(offset..).unwrap_or_default()) {
        if let Some(hook) = called_at(offset) {
            let name = HOOKS.get(hook).copied().unwrap_or_default();
            chains.push(Chain { place: place(name), hook: Some(hook_of(table, hook)), ..Chain::default() });
        }
        let mut step = Step { of_iptables: true, ..Step::default() };
        let mut tests = Tests::default();
        let mut rest = entry.get(tables.entry..target).unwrap_or_default();
        while let Some(Part { size, name, revision, data }) = split_part(rest) {
            tests.note(&name, data);
            step.actions.extend(action(Extension::Match, &name, revision, data));
            rest = rest.get(size..).unwrap_or_default();
        }
        step.spares = tests.spares;
        match split_part(entry.get(target..).unwrap_or_default()) {
            Some(Part { name, data, .. }) if name == CHAIN => {
                let name = text(data);
                begins.insert(offset + entry.len(), place(&name));
                chains.push(Chain { place: place(&name), ..Chain::default() });
            }
            Some(Part { name, data, .. }) if name.is_empty() => match host_u32(data, 0).map(u32::cast_signed) {
                Some(verdict) if verdict < 0 && is_for_all(tables, entry) => step.ends_for = tests.ends_for(),
                Some(to) if to >= 0 => {
                    let at = (chains.len().saturating_sub(1), chains.last().map_or(0, |chain| chain.steps.len()));
                    jumps.push((at.0, at.1, usize::try_from(to).unwrap_or_default()));
                }
                _ => {}
            },
            Some(Part { name, revision, data, .. }) => {
                step.actions.extend(action(Extension::Target, &name, revision, data));
            }
            None => {}
        }
        if let Some(chain) = chains.last_mut() {
            chain.steps.push(step);
        }
        offset += entry.len();
    }
    for (chain, step, to) in jumps {
        let step = chains.get_mut(chain).and_then(|chain| chain.steps.get_mut(step));
        if let (Some(step), Some(name)) = (step, begins.get(&to)) {
            step.jumps.push(name.clone());
        }
    }
    chains::uses(tables.program, &chains)
}

/// Whether an entry contains nothing about addresses and interfaces, so that it is for all packets that its matches let through.
fn is_for_all(tables: &Tables, entry: &[u8]) -> bool {
    entry.get(..tables.offsets.saturating_sub(4)).is_some_and(|selector| selector.iter().all(|byte| *byte == 0))
}

/// What calls a chain of this name in this table.
fn hook_of(table: &str, hook: usize) -> Hook {
    match hook {
        0 => Hook::Prerouting,
        1 => Hook::Input,
        2 => Hook::Forward,
        3 if table == "mangle" => Hook::Rerouted,
        3 => Hook::Output,
        4 => Hook::Postrouting,
        _ => Hook::Other,
    }
}

/// What a rule's matches ask of the mark.
#[derive(Debug, Default)]
pub(super) struct Tests {
    /// Bits that have to be zero.
    pub(super) spares: u32,
    /// Bits of which one has to be set, and whether nothing else is asked.
    some: Option<u32>,
    others: bool,
}

impl Tests {
    /// Notes a match.
    pub(super) fn note(&mut self, name: &str, data: &[u8]) {
        let (mark, mask) = (host_u32(data, 0), host_u32(data, 4));
        match (name, mark, mask, data.get(8)) {
            ("mark", Some(0), Some(mask), Some(0)) => self.spares |= mask,
            ("mark", Some(0), Some(mask), Some(_)) if self.some.is_none() => self.some = Some(mask),
            ("comment", ..) => {}
            _ => self.others = true,
        }
    }

    /// The bits of which a packet need have only one for the rule to be for it.
    pub(super) fn ends_for(&self) -> u32 {
        self.some.filter(|_| !self.others && self.spares == 0).unwrap_or(0)
    }
}

/// The first entry, and where its target is.
fn split_entry<'a>(tables: &Tables, bytes: &'a [u8]) -> Option<(&'a [u8], usize)> {
    let next = usize::from(host_u16(bytes, tables.offsets + 2)?);
    // A length of nothing would have no end.
    let entry = bytes.get(..next).filter(|entry| entry.len() >= tables.entry)?;
    Some((entry, usize::from(host_u16(bytes, tables.offsets)?)))
}

/// A match or a target in an entry.
struct Part<'a> {
    size: usize,
    name: String,
    revision: u32,
    data: &'a [u8],
}

fn split_part(bytes: &[u8]) -> Option<Part<'_>> {
    let size = usize::from(host_u16(bytes, 0)?);
    let (name, revision) = bytes.get(2..EXTENSION_LEN)?.split_at_checked(EXTENSION_LEN - 3)?;
    let revision = revision.first().copied()?.into();
    Some(Part { size, name: text(name), revision, data: bytes.get(EXTENSION_LEN..size)? })
}

/// What an extension does with marks, by its data (`linux/netfilter/xt_mark.h`, `xt_connmark.h`).
pub(super) fn action(kind: Extension, name: &str, revision: u32, data: &[u8]) -> Option<MarkAction> {
    let (word, byte) = (|at| host_u32(data, at), |at: usize| data.get(at).copied());
    match (kind, name) {
        (Extension::Target, "MARK") => Some(MarkAction::Changed(word(0)? | word(4)?)),
        (Extension::Target, "CONNMARK") => {
            let (mask, cleared) = (word(4)?, word(8)?);
            // Revision 2 shifts what it copies: the direction, the bits, and then the mode.
            let (mode, copied) = match revision {
                ..2 => (byte(12)?, Some(mask)),
                _ if byte(12)? == SHIFT_LEFT => (byte(14)?, mask.checked_shl(byte(13)?.into())),
                _ => (byte(14)?, mask.checked_shr(byte(13)?.into())),
            };
            // Only restoring changes the packet's mark.
            (mode == RESTORE).then_some(MarkAction::Restored(cleared | copied.unwrap_or(0)))
        }
        (Extension::Target, "MASQUERADE") => Some(MarkAction::Masquerades),
        (Extension::Target, "SNAT") => Some(MarkAction::Translates),
        (Extension::Match, "mark") => Some(MarkAction::Compared { mark: word(0)?, mask: word(4)? }),
        _ => None,
    }
}

fn host_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // What Linux 6.18 on x86-64 reported of the table `mangle` of an empty namespace after these commands, `struct ipt_getinfo`
    // and then the entries:
    //
    // iptables-legacy -t mangle -A OUTPUT -p tcp -m mark --mark 0x1000000/0xff000000 -j MARK --set-xmark 0x2000000/0xf000000
    // iptables-legacy -t mangle -N mine
    // iptables-legacy -t mangle -A mine -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff
    // iptables-legacy -t mangle -A mine -j CONNMARK --save-mark --nfmask 0xff00 --ctmask 0xff00
    // ip6tables-legacy -t mangle -A PREROUTING -m mark ! --mark 0x5 -j ACCEPT
    const RECORDED: [&[u8]; 2] = [include_bytes!("iptables-mangle.bin"), include_bytes!("ip6tables-mangle.bin")];

    fn read(family: usize, bytes: &[u8]) -> Vec<String> {
        let (info, entries) = bytes.split_at(INFO_LEN.min(bytes.len()));
        rules(&TABLES[family], "mangle", info, entries).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_of_the_old_tables_are_read_with_their_chains() {
        assert_eq!(
            read(0, RECORDED[0]),
            [
                "a rule of iptables in mangle OUTPUT, which looks for the mark 0x1000000/0xff000000",
                "a rule of iptables in mangle OUTPUT, which changes the bits 0xf000000",
                "a rule of iptables in mangle mine, which restores the bits 0xff from the connection's mark",
            ]
        );
        assert_eq!(
            read(1, RECORDED[1]),
            ["a rule of ip6tables in mangle PREROUTING, which looks for the mark 0x5/0xffffffff"]
        );
    }

    #[test]
    fn what_restores_a_mark_changes_it_in_either_revision_and_shifted() {
        let info = |tail: &[u8]| {
            let words = [0u32, 0xff, 0xf00].map(u32::to_ne_bytes).concat();
            [&words[..], tail, &[0; 4]].concat()
        };
        let of = |revision, tail: &[u8]| action(Extension::Target, "CONNMARK", revision, &info(tail));
        assert_eq!(of(1, &[RESTORE]), Some(MarkAction::Restored(0xfff)));
        assert_eq!(of(1, &[0]), None);
        assert_eq!(of(2, &[SHIFT_LEFT, 0, RESTORE]), Some(MarkAction::Restored(0xfff)));
        assert_eq!(of(2, &[SHIFT_LEFT, 16, RESTORE]), Some(MarkAction::Restored(0xff_0f00)));
        assert_eq!(of(2, &[1, 4, RESTORE]), Some(MarkAction::Restored(0xf0f)));
        assert_eq!(of(2, &[RESTORE, 0, 1]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_table_make_the_reader_panic_or_last(
            family in 0usize..2,
            damage in prop::collection::vec((0usize..2000, any::<u8>()), 0..6),
            length in 0usize..2000,
        ) {
            let mut bytes = RECORDED[family].to_vec();
            for (at, value) in damage {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            read(family, &bytes);
        }
    }
}
