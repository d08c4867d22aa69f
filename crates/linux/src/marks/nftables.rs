//! Reads from all rules of nf_tables what they do with marks, and which of them masquerade.

use std::{collections::BTreeMap, io};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NlasIterator};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily,
    nftables::{ChainMessage, NfTablesMessage, RuleMessage},
};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};

use super::{
    FilterUse, MarkAction,
    chains::{self, Chain, Hook, Step},
    host_u32,
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
const DATA_VERDICT: u16 = 2;
const VERDICT_CHAIN: u16 = 2;
const VERDICT_REGISTER: u32 = 0;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const META_MARK: u32 = 3;
const CT_MARK: u32 = 3;
const CMP_EQUAL: u32 = 0;
const NAT_TYPE: u16 = 1;
const NAT_SOURCE: u32 = 0;
/// How the names of our own tables begin, which change marks as we want it.
const OWN_TABLES: &str = "sidestep";

/// What the rules of all tables do with marks; nothing on a kernel without nf_tables.
pub(super) fn read() -> io::Result<Vec<FilterUse>> {
    let mut socket = match Socket::new(NETLINK_NETFILTER) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Vec::new()),
        other => other?,
    };
    socket.bind_auto()?;
    let mut reader = Reader::default();
    dump(&mut socket, NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() }), |payload| {
        reader.read_chain(payload);
    })?;
    dump(&mut socket, NfTablesMessage::GetRule(RuleMessage { attributes: Vec::new() }), |payload| {
        reader.read_rule(payload);
    })?;
    Ok(chains::uses("nf_tables", &reader.chains))
}

/// Hands the bytes of each answer to `each`; nothing on a kernel without nf_tables.
fn dump(socket: &mut Socket, request: NfTablesMessage, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
    let mut bytes = Vec::new();
    append(&mut bytes, NetfilterMessage::new(header, request), NLM_F_REQUEST | NLM_F_DUMP, 1);
    socket.send(&bytes, 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        for message in messages(&bytes) {
            let message = message?;
            match message.message_type() {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    return status(message.payload()).filter(|error| !is_missing(error)).map_or(Ok(()), Err);
                }
                _ => each(message.payload()),
            }
        }
    }
}

/// Whether the kernel has no nf_tables.
fn is_missing(error: &io::Error) -> bool {
    let missing = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOENT];
    error.raw_os_error().is_some_and(|number| missing.contains(&number))
}

/// The chains that were read, and what the rules of each have done to connections' marks so far.
#[derive(Default)]
struct Reader {
    chains: Vec<Chain>,
    by_place: BTreeMap<String, usize>,
    marks: BTreeMap<usize, ConnectionMark>,
}

impl Reader {
    /// The family's name, the attributes, and the names of table and chain under these types; `None` for our own tables.
    fn open(payload: &[u8], (table, chain): (u16, u16)) -> Option<(String, String, Attributes)> {
        let family = match payload.first() {
            Some(1) => "inet",
            Some(2) => "ip",
            Some(5) => "netdev",
            Some(7) => "bridge",
            Some(10) => "ip6",
            _ => "other",
        };
        let attributes = attributes(payload.get(HEADER_LEN..).unwrap_or_default());
        let name = |kind| attributes.get(&kind).map(|bytes: &Vec<u8>| text(bytes)).unwrap_or_default();
        let (table, chain) = (name(table), name(chain));
        (!table.starts_with(OWN_TABLES)).then(|| (format!("{family} {table}"), chain, attributes))
    }

    /// The number of the chain of this name.
    fn chain(&mut self, table: &str, name: &str) -> usize {
        let place = format!("{table} {name}");
        *self.by_place.entry(place.clone()).or_insert_with(|| {
            self.chains.push(Chain { place, table: table.into(), ..Chain::default() });
            self.chains.len() - 1
        })
    }

    fn read_chain(&mut self, payload: &[u8]) {
        let Some((table, name, attributes)) = Reader::open(payload, (CHAIN_TABLE, CHAIN_NAME)) else { return };
        let chain = self.chain(&table, &name);
        let Some(hook) = attributes.get(&CHAIN_HOOK).map(|hook| self::attributes(hook)) else { return };
        let number = hook.get(&HOOK_NUMBER).and_then(|bytes| Some(u32::from_be_bytes(*bytes.first_chunk()?)));
        let kind = attributes.get(&CHAIN_TYPE).map(|bytes| text(bytes)).unwrap_or_default();
        let of_packets = ["inet ", "ip ", "ip6 "].iter().any(|family| table.starts_with(family));
        if let Some(chain) = self.chains.get_mut(chain) {
            chain.hook = Some(match number.filter(|_| of_packets) {
                Some(0) => Hook::Prerouting,
                Some(1) => Hook::Input,
                Some(2) => Hook::Forward,
                Some(3) if kind == "route" => Hook::Rerouted,
                Some(3) => Hook::Output,
                Some(4) => Hook::Postrouting,
                _ => Hook::Other,
            });
        }
    }

    fn read_rule(&mut self, payload: &[u8]) {
        let Some((table, name, rule)) = Reader::open(payload, (RULE_TABLE, RULE_CHAIN)) else { return };
        let chain = self.chain(&table, &name);
        let connection = self.marks.entry(chain).or_default();
        let mut reading = RuleReader {
            connection,
            registers: BTreeMap::new(),
            tests: Vec::new(),
            others: false,
            step: Step::default(),
        };
        for (_, element) in elements(rule.get(&RULE_EXPRESSIONS).map(Vec::as_slice).unwrap_or_default()) {
            let expression = attributes(&element);
            let data = attributes(expression.get(&EXPR_DATA).map(Vec::as_slice).unwrap_or_default());
            let name = expression.get(&EXPR_NAME).map(|bytes| text(bytes)).unwrap_or_default();
            reading.follow(&table, &name, &data);
        }
        let step = reading.done();
        let matters = !step.actions.is_empty() || !step.jumps.is_empty() || step.jumps_anywhere || step.ends_for != 0;
        if let Some(chain) = self.chains.get_mut(chain).filter(|_| matters) {
            chain.steps.push(step);
        }
    }
}

/// What is known of a connection's mark, at a place in a chain.
#[derive(Clone, Copy, Debug, Default)]
struct ConnectionMark {
    /// Bits that are those of the packet's mark.
    alike: u32,
    /// Bits that are zero.
    zero: u32,
}

/// What is known of a register's bits.
#[derive(Clone, Copy)]
enum Register {
    /// The packet's mark: bits that are kept, and bits that are inverted or set afterwards.
    Mark {
        kept: u32,
        turned: u32,
    },
    /// The connection's mark, likewise.
    Connection {
        kept: u32,
        turned: u32,
    },
    Other,
}

/// What a rule asks of the packet's mark.
#[derive(Clone, Copy)]
struct Test {
    mark: u32,
    mask: u32,
    equal: bool,
}

impl Test {
    /// The bit that has to be set.
    fn set_bit(&self) -> Option<u32> {
        let is_set = self.equal && self.mark == self.mask || !self.equal && self.mark == 0;
        Some(self.mask).filter(|mask| is_set && mask.is_power_of_two())
    }

    /// Whether all bits have to be zero.
    fn is_zero(&self) -> bool {
        self.equal && self.mark == 0
    }
}

/// Follows the expressions of a rule.
struct RuleReader<'a> {
    connection: &'a mut ConnectionMark,
    registers: BTreeMap<u32, Register>,
    tests: Vec<Test>,
    /// Whether it asks for more than the packet's mark.
    others: bool,
    step: Step,
}

impl RuleReader<'_> {
    /// Follows an expression through the registers.
    fn follow(&mut self, table: &str, name: &str, data: &Attributes) {
        let number = |kind: u16| Some(u32::from_be_bytes(data.get(&kind)?.get(..4)?.try_into().ok()?));
        let value = |kind: u16| host_u32(attributes(data.get(&kind)?).get(&DATA_VALUE)?, 0);
        let register = |kind: u16| number(kind).map(normalised);
        match name {
            "meta" if number(2) == Some(META_MARK) => match (register(1), register(3)) {
                (Some(to), _) => drop(self.registers.insert(to, Register::Mark { kept: u32::MAX, turned: 0 })),
                (_, Some(from)) => self.set_mark(from),
                _ => {}
            },
            "ct" if number(2) == Some(CT_MARK) => match (register(1), register(4)) {
                (Some(to), _) => drop(self.registers.insert(to, Register::Connection { kept: u32::MAX, turned: 0 })),
                (_, Some(from)) => self.set_connection_mark(from),
                _ => {}
            },
            "bitwise" => {
                let (Some(from), Some(to)) = (register(1), register(2)) else { return };
                let from = self.registers.get(&from).copied().unwrap_or(Register::Other);
                let result = match (from, value(4), value(5)) {
                    (Register::Mark { kept, turned }, Some(mask), Some(xor)) => {
                        Register::Mark { kept: kept & mask, turned: (turned & mask) ^ xor }
                    }
                    (Register::Connection { kept, turned }, Some(mask), Some(xor)) => {
                        Register::Connection { kept: kept & mask, turned: (turned & mask) ^ xor }
                    }
                    _ => Register::Other,
                };
                self.registers.insert(to, result);
            }
            "cmp" => {
                let from = register(1).and_then(|from| self.registers.get(&from).copied());
                match (from, value(3)) {
                    (Some(Register::Mark { kept, turned }), Some(value)) => {
                        let equal = number(2) == Some(CMP_EQUAL);
                        self.tests.push(Test { mark: (value ^ turned) & kept, mask: kept, equal });
                    }
                    _ => self.others = true,
                }
            }
            "masq" => self.step.actions.push(MarkAction::Masquerades),
            "nat" if number(NAT_TYPE) == Some(NAT_SOURCE) => self.step.actions.push(MarkAction::Translates),
            "immediate" => {
                if let Some(verdict) = data.get(&2).and_then(|data| attributes(data).remove(&DATA_VERDICT)) {
                    self.end(table, &attributes(&verdict));
                } else if let Some(to) = register(1) {
                    self.registers.insert(to, Register::Other);
                }
            }
            "target" | "match" => self.follow_iptables(name == "target", data),
            "counter" | "log" | "notrack" => {}
            _ => {
                self.others |=
                    !matches!(name, "payload" | "numgen" | "meta" | "ct" | "hash" | "fib" | "rt" | "socket" | "exthdr");
                self.step.jumps_anywhere |= matches!(name, "lookup") && number(3) == Some(VERDICT_REGISTER);
                // Whatever else writes a register makes it something else.
                let destination = match name {
                    "ct" | "payload" | "numgen" | "meta" => 1,
                    "hash" => 2,
                    "lookup" => 3,
                    _ => return,
                };
                if let Some(to) = register(destination) {
                    self.registers.insert(to, Register::Other);
                }
            }
        }
    }

    /// An extension of iptables.
    fn follow_iptables(&mut self, is_target: bool, data: &Attributes) {
        let (Some(name), Some(info)) = (data.get(&1).map(|name| text(name)), data.get(&3)) else { return };
        let revision =
            data.get(&2).and_then(|bytes| Some(u32::from_be_bytes(*bytes.first_chunk()?))).unwrap_or_default();
        let kind = if is_target { Extension::Target } else { Extension::Match };
        match (iptables::action(kind, &name, revision, info), info.get(8)) {
            (Some(MarkAction::Compared { mark, mask }), inverted) if !is_target => {
                self.tests.push(Test { mark, mask, equal: inverted == Some(&0) });
            }
            (Some(action), _) => {
                self.step.actions.push(action);
                self.step.of_iptables = true;
                *self.connection = ConnectionMark::default();
            }
            // A connection's mark may be saved.
            (None, _) if is_target => *self.connection = ConnectionMark::default(),
            (None, _) => self.others |= name != "comment",
        }
    }

    /// The packet's mark becomes what is in a register.
    fn set_mark(&mut self, from: u32) {
        let always = self.tests.is_empty() && !self.others;
        let (action, changed) = match self.registers.get(&from).copied() {
            Some(Register::Mark { kept, turned }) => (MarkAction::Changed(!kept | turned), !kept | turned),
            Some(Register::Connection { kept, turned }) => {
                let changed = !(kept & !turned & self.connection.alike);
                if always {
                    self.connection.alike |= kept & !turned;
                }
                self.step.actions.extend((changed != 0).then_some(MarkAction::Restored(changed)));
                return;
            }
            _ => (MarkAction::Changed(u32::MAX), u32::MAX),
        };
        self.connection.alike &= !changed;
        self.step.actions.push(action);
    }

    /// The connection's mark becomes what is in a register.
    fn set_connection_mark(&mut self, from: u32) {
        let always = self.tests.is_empty() && !self.others;
        let ConnectionMark { alike, zero } = *self.connection;
        let (now_alike, now_zero) = match self.registers.get(&from).copied() {
            Some(Register::Mark { kept, turned }) => (kept & !turned, !kept & !turned),
            Some(Register::Connection { kept, turned }) => {
                let bit = self.tests.first().and_then(Test::set_bit).filter(|_| self.tests.len() == 1 && !self.others);
                if let Some(bit) = bit
                    && turned == bit
                    && kept | bit == u32::MAX
                    && zero & bit != 0
                {
                    // It follows the packet's, whichever it is; the question is no other's.
                    self.tests.clear();
                    *self.connection = ConnectionMark { alike: alike | bit, zero: zero & !bit };
                    return;
                }
                let same = kept & !turned;
                (alike & same, zero & same | !kept & !turned)
            }
            _ => (0, 0),
        };
        *self.connection = if always {
            ConnectionMark { alike: now_alike, zero: now_zero }
        } else {
            ConnectionMark { alike: alike & now_alike, zero: zero & now_zero }
        };
    }

    /// A verdict: packets go on in another chain, or no further in this one.
    fn end(&mut self, table: &str, verdict: &Attributes) {
        if let Some(chain) = verdict.get(&VERDICT_CHAIN) {
            self.step.jumps.push(format!("{table} {}", text(chain)));
            // What happens to the connection's mark there is not followed.
            *self.connection = ConnectionMark::default();
        } else if let [Test { mark: 0, mask, equal: false }] = self.tests[..]
            && !self.others
        {
            self.step.ends_for = mask;
        }
    }

    fn done(mut self) -> Step {
        self.step.spares = self.tests.iter().filter(|test| test.is_zero()).fold(0, |bits, test| bits | test.mask);
        let compared = self.tests.iter().map(|test| MarkAction::Compared { mark: test.mark, mask: test.mask });
        self.step.actions.splice(0..0, compared);
        self.step
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
    let mut reader = Reader::default();
    for message in messages(bytes).map_while(io::Result::ok) {
        reader.read_chain(message.payload());
        reader.read_rule(message.payload());
    }
    chains::uses("nf_tables", &reader.chains)
}
