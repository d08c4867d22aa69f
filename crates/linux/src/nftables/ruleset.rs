//! What is in the table, as messages of nf_tables.
//!
//! ```text
//! table inet NAME {
//!     chain output {
//!         type route hook output priority mangle;
//!         meta mark & MASK != 0 return
//!         tcp flags & (syn | rst) != 0 goto replies
//!     }
//!     chain replies {
//!         tcp flags & (syn | rst | ack) == syn return
//!         ip6 daddr vmap { PREFIX : goto to-0, ... }
//!         ip daddr vmap { PREFIX : goto to-1, ... }
//!     }
//!     chain to-0 { meta random vmap { RANGE : goto mark-100, ... } }
//!     chain mark-100 { meta mark set mark & ~MASK ^ 0x100 }
//! }
//! table ip6 NAME {
//!     chain sources {
//!         type nat hook postrouting priority srcnat - 1;
//!         meta mark & MASK != 0 fib saddr . oif type local snat to ip6 saddr
//!     }
//! }
//! ```
//!
//! Every packet that leaves the host passes the first rule. Those of connections that have a path end there, which costs
//! them no more than a chain without rules would.
//!
//! The last table, and its like for IPv4, are there only where another program masquerades that family: a chain of the type `nat`
//! makes the kernel track all connections. NAT is decided once for each connection, and the first rule that decides it counts: a
//! connection that is bound to the address that it has anyway is not masqueraded, and may leave by another interface later.
//!
//! All maps are anonymous and constant: no program can change them but by replacing the rule.

use std::collections::BTreeSet;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily,
    nftables::{
        Bitwise, ChainAttribute, ChainMessage, DataAttribute, Expressions, GenMessage, Hook, HookNumber,
        InetHookNumber, ListAttribute, Meta, MetaKey, NfTablesMessage, Operator, RuleAttribute, RuleMessage,
        SetAttribute, SetElementAttribute, SetElementFlags, SetElementList, SetElementMessage, SetFlags, SetMessage,
        TableAttribute, TableMessage, Verdict,
    },
    none::ControlMessage,
};

use super::{
    Draw, Share,
    expressions::{
        ANONYMOUS, IPPROTO_TCP, Layout, NETWORK_HEADER, REGISTER, REGISTER_NUMBER, Rule, compare, is_from, is_of,
        is_protocol, jump, leave, load, lookup, masked, other, payload, tcp_flags, verdict,
    },
};
use crate::netlink::Family;

/// The tables' name and the bits of the mark that are ours.
#[derive(Debug)]
pub struct Ruleset {
    pub name: String,
    pub mask: u32,
}

/// Bytes of a message before its attributes (`struct nfgenmsg`).
pub const HEADER_LEN: usize = 4;

/// The subsystem's number, in the header of a transaction.
const SUBSYSTEM: u16 = 10;
/// As `mangle` in `nft`: after connection tracking, before NAT.
pub(super) const PRIORITY: i32 = -150;
/// Just before `srcnat` in `nft`, where others masquerade.
const BEFORE_SOURCE_NAT: i32 = 99;
/// A map's values are verdicts (`NFT_DATA_VERDICT`).
const DATA_VERDICT: u32 = 0xffff_ff00;
/// `nft` shows keys of maps by these types.
const TYPE_INTEGER: u32 = 4;
/// Shows `nft` the order of keys' bytes: NFTNL_UDATA_SET_KEYBYTEORDER, four bytes.
const KEY_BYTE_ORDER: [u8; 2] = [0, 4];
/// BYTEORDER_HOST_ENDIAN and BYTEORDER_BIG_ENDIAN.
const HOST_ENDIAN: u32 = 1;
const BIG_ENDIAN: u32 = 2;
/// Elements in one message: an attribute has no more than 64 KiB.
const ELEMENTS: usize = 400;

const OUTPUT: &str = "output";
const REPLIES: &str = "replies";
const SOURCES: &str = "sources";

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

// `linux/netfilter/nf_tables.h`: the attributes of the expressions `fib` and `nat`, and their values.
const FIB_TO: u16 = 1;
const FIB_RESULT: u16 = 2;
const FIB_FLAGS: u16 = 3;
const ADDRESS_TYPE: u32 = 3;
const OF_SOURCE: u32 = 1;
const AT_OUTPUT: u32 = 1 << 4;
const NAT_TYPE: u16 = 1;
const NAT_FAMILY: u16 = 2;
const NAT_FROM: u16 = 3;
const SOURCE_NAT: u32 = 0;
/// An address of this host (`RTN_LOCAL`).
const LOCAL: u32 = 2;

pub(super) type Messages = Vec<(NfTablesMessage, u16)>;

impl Ruleset {
    /// The transaction after which the table contains `draws`, whatever was there.
    pub fn replacement(&self, draws: &[Draw]) -> Messages {
        let output = self.base_chain(OUTPUT, "route", InetHookNumber::LocalOut, PRIORITY);
        // Removing fails unless it is there.
        let mut messages = vec![self.table(), self.removal().remove(0), self.table(), output];
        messages.push(self.chain(REPLIES));
        let marks: BTreeSet<_> = draws.iter().flat_map(|draw| &draw.shares).map(|share| share.mark).collect();
        marks.into_iter().for_each(|mark| messages.extend(self.marking(mark)));
        let mut sets = 0;
        for (position, draw) in draws.iter().enumerate().filter(|(_, draw)| !draw.shares.is_empty()) {
            messages.push(self.chain(&draw_chain(position)));
            self.draw(position, draw, &mut sets, &mut messages);
        }
        messages.extend(self.selection());
        for of in Family::ALL {
            self.destinations(of, draws, &mut sets, &mut messages);
        }
        messages
    }

    /// A chain that gives packets this mark.
    pub(super) fn marking(&self, mark: u32) -> [(NfTablesMessage, u16); 2] {
        [self.chain(&mark_chain(mark)), self.rule(&mark_chain(mark), self.set_mark(mark))]
    }

    /// The transaction after which the draw at `position` has other weights.
    pub fn reweighing(&self, position: usize, draw: &Draw) -> Messages {
        let attributes = vec![RuleAttribute::Table(self.name.clone()), RuleAttribute::Chain(draw_chain(position))];
        let mut messages = vec![(NfTablesMessage::DeleteRule(RuleMessage { attributes }), 0)];
        self.draw(position, draw, &mut 0, &mut messages);
        messages
    }

    /// The transaction after which connections of a family keep their sources, or do not, by a table of that family.
    pub fn sources(&self, of: Family, keep: bool) -> Messages {
        // Removing fails unless it is there.
        let mut messages = vec![self.table(), self.removal().remove(0)];
        if keep {
            let chain = self.base_chain(SOURCES, "nat", InetHookNumber::PostRouting, BEFORE_SOURCE_NAT);
            messages.extend([self.table(), chain, self.rule(SOURCES, self.keep_source(of))]);
        }
        messages
    }

    /// The transaction after which the table is gone.
    pub fn removal(&self) -> Messages {
        let attributes = vec![TableAttribute::Name(self.name.clone())];
        vec![(NfTablesMessage::DeleteTable(TableMessage { attributes }), 0)]
    }

    /// The rules that distinguish packets to draw for from all others, which the first two let go.
    fn selection(&self) -> Messages {
        let tcp = is_protocol(IPPROTO_TCP);
        let special = vec![tcp_flags(), masked(&[SYN | RST]), compare(Operator::NotEqual, vec![0])];
        let opens = vec![tcp_flags(), masked(&[SYN | RST | ACK]), compare(Operator::Equal, vec![SYN])];
        // A mark that a program has set already stays.
        let marked = self.is_marked();
        let to_replies = vec![jump(Verdict::Goto, Some(REPLIES.into()))];
        vec![
            self.rule(OUTPUT, [marked, leave()].concat()),
            self.rule(OUTPUT, [tcp, special, to_replies].concat()),
            self.rule(REPLIES, [opens, leave()].concat()),
        ]
    }

    /// Some of our bits of the mark are set.
    pub(super) fn is_marked(&self) -> Rule {
        vec![load(MetaKey::Mark), masked(&self.mask.to_ne_bytes()), compare(Operator::NotEqual, vec![0; 4])]
    }

    /// Binds a connection with a mark of ours to the source address that it has, if the interface has that address.
    fn keep_source(&self, of: Family) -> Rule {
        let protocol = of.protocol();
        let source = [
            other("fib", &[(FIB_TO, REGISTER_NUMBER), (FIB_RESULT, ADDRESS_TYPE), (FIB_FLAGS, OF_SOURCE | AT_OUTPUT)]),
            compare(Operator::Equal, LOCAL.to_ne_bytes().to_vec()),
            payload(NETWORK_HEADER, of.source_offset(), of.len()),
            other("nat", &[(NAT_TYPE, SOURCE_NAT), (NAT_FAMILY, protocol.into()), (NAT_FROM, REGISTER_NUMBER)]),
        ];
        self.is_marked().into_iter().chain(source).collect()
    }

    /// Sends packets to `draws` of one family on to their chains.
    fn destinations(&self, of: Family, draws: &[Draw], sets: &mut u32, messages: &mut Messages) {
        let prefixes = draws.iter().enumerate().filter(|(_, draw)| Family::of(draw.destination) == of);
        let prefixes: Vec<_> = prefixes
            .map(|(position, draw)| (draw.destination, (!draw.shares.is_empty()).then_some(position)))
            .collect();
        let key = |start: u128| of.bytes(start);
        let ranges = ranges(of, &prefixes);
        let ranges: Vec<_> = ranges.into_iter().map(|(start, to)| (key(start), to.map(draw_chain))).collect();
        if ranges.is_empty() {
            return;
        }
        *sets += 1;
        self.map(*sets, of.key_type(), &ranges, messages);
        let destination = payload(NETWORK_HEADER, of.destination_offset(), of.len());
        messages.push(self.rule(REPLIES, [is_of(of), vec![destination, lookup(*sets)]].concat()));
    }

    /// The rules of a draw: one for each prefix of source addresses that some of its paths name, and one for all others.
    fn draw(&self, position: usize, draw: &Draw, sets: &mut u32, messages: &mut Messages) {
        let of = Family::of(draw.destination);
        let sources = draw.shares.iter().flat_map(|share| &share.sources).filter(|source| Family::of(**source) == of);
        let mut sources: Vec<_> = sources.map(|source| source.trunc()).collect::<BTreeSet<_>>().into_iter().collect();
        sources.sort_by_key(|source| std::cmp::Reverse(source.prefix_len()));
        for source in sources {
            let valid =
                |share: &&Share| share.sources.is_empty() || share.sources.iter().any(|of| of.contains(&source));
            let matches = is_from(of, source);
            self.draw_among(position, matches, draw.shares.iter().filter(valid), sets, messages);
        }
        let anywhere = draw.shares.iter().filter(|share| share.sources.is_empty() || share.unnamed);
        self.draw_among(position, Vec::new(), anywhere, sets, messages);
    }

    fn draw_among<'a>(
        &self,
        position: usize,
        mut rule: Rule,
        shares: impl Iterator<Item = &'a Share>,
        sets: &mut u32,
        messages: &mut Messages,
    ) {
        let shares: Vec<_> = shares.collect();
        let total: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
        let mut before = 0_u64;
        let mut ranges = Vec::new();
        for share in shares.iter().filter(|share| share.weight > 0) {
            // Below 2^32, as `before` is below `total`.
            let start = (u128::from(before) << 32) / u128::from(total.max(1));
            ranges.push(((start as u32).to_be_bytes().to_vec(), Some(mark_chain(share.mark))));
            before += u64::from(share.weight);
        }
        if ranges.is_empty() {
            return;
        }
        *sets += 1;
        self.map(*sets, TYPE_INTEGER, &ranges, messages);
        rule.extend([load(MetaKey::PseudoRandom), lookup(*sets)]);
        messages.push(self.rule(&draw_chain(position), rule));
    }

    /// Changes our bits of the mark, and no other.
    pub(super) fn set_mark(&self, mark: u32) -> Rule {
        let store = Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(REGISTER)]);
        vec![load(MetaKey::Mark), self.put(mark), store]
    }

    /// Puts a mark into our bits of the register.
    pub(super) fn put(&self, mark: u32) -> Expressions {
        let keep = DataAttribute::Value((!self.mask).to_ne_bytes().to_vec());
        let change = DataAttribute::Value((mark & self.mask).to_ne_bytes().to_vec());
        Expressions::Bitwise(vec![
            Bitwise::SourceRegister(REGISTER),
            Bitwise::DestinationRegister(REGISTER),
            Bitwise::Length(size_of::<u32>() as u32),
            Bitwise::Mask(keep),
            Bitwise::Xor(change),
        ])
    }

    pub(super) fn table(&self) -> (NfTablesMessage, u16) {
        let attributes = vec![TableAttribute::Name(self.name.clone())];
        (NfTablesMessage::NewTable(TableMessage { attributes }), NLM_F_CREATE)
    }

    pub(super) fn base_chain(
        &self,
        name: &str,
        kind: &str,
        at: InetHookNumber,
        priority: i32,
    ) -> (NfTablesMessage, u16) {
        let hook = vec![
            Hook::Number(HookNumber::Inet(at)),
            // The attribute is signed.
            Hook::Priority(priority as u32),
        ];
        let attributes = vec![
            ChainAttribute::Table(self.name.clone()),
            ChainAttribute::Name(name.into()),
            ChainAttribute::Hook(hook),
            ChainAttribute::Type(kind.into()),
        ];
        (NfTablesMessage::NewChain(ChainMessage { attributes }), NLM_F_CREATE)
    }

    pub(super) fn chain(&self, name: &str) -> (NfTablesMessage, u16) {
        let attributes = vec![ChainAttribute::Table(self.name.clone()), ChainAttribute::Name(name.into())];
        (NfTablesMessage::NewChain(ChainMessage { attributes }), NLM_F_CREATE)
    }

    pub(super) fn rule(&self, chain: &str, expressions: Rule) -> (NfTablesMessage, u16) {
        let attributes = vec![
            RuleAttribute::Table(self.name.clone()),
            RuleAttribute::Chain(chain.into()),
            RuleAttribute::Expressions(expressions.into_iter().map(ListAttribute::from).collect()),
        ];
        (NfTablesMessage::NewRule(RuleMessage { attributes }), NLM_F_CREATE | NLM_F_APPEND)
    }

    /// A map from ranges to chains: each begins at its key and ends where the next begins, and one without a chain is none.
    fn map(&self, id: u32, key_type: u32, ranges: &[(Vec<u8>, Option<String>)], messages: &mut Messages) {
        let key_len = ranges.first().map_or(0, |(key, _)| key.len());
        let mut elements = Vec::new();
        let mut open = false;
        for (key, chain) in ranges {
            let key = || SetElementAttribute::Key(DataAttribute::Value(key.clone()));
            if open {
                elements.push(vec![key(), SetElementAttribute::Flags(SetElementFlags::IntervalEnd)]);
            }
            open = chain.is_some();
            if let Some(chain) = chain {
                let verdict = verdict(Verdict::Goto, Some(chain.clone()));
                elements.push(vec![key(), SetElementAttribute::Data(verdict)]);
            }
        }
        let kind = (key_type, key_len, SetFlags::Interval, BIG_ENDIAN);
        self.anonymous(id, kind, &elements, messages);
    }

    /// A map from hashes to the chains of these marks; one of zero is none.
    pub(super) fn map_of_marks(&self, id: u32, marks: &[u32], messages: &mut Messages) {
        let marked = (0_u32..).zip(marks).filter(|(_, mark)| **mark != 0);
        let element = |(hash, mark): (u32, &u32)| {
            vec![
                SetElementAttribute::Key(DataAttribute::Value(hash.to_ne_bytes().to_vec())),
                SetElementAttribute::Data(verdict(Verdict::Goto, Some(mark_chain(*mark)))),
            ]
        };
        let elements: Vec<_> = marked.map(element).collect();
        self.anonymous(id, (TYPE_INTEGER, size_of::<u32>(), SetFlags::empty(), HOST_ENDIAN), &elements, messages);
    }

    /// An anonymous, constant map to chains.
    fn anonymous(
        &self,
        id: u32,
        (key_type, key_len, flags, order): (u32, usize, SetFlags, u32),
        elements: &[Vec<SetElementAttribute>],
        messages: &mut Messages,
    ) {
        let attributes = vec![
            SetAttribute::Table(self.name.clone()),
            SetAttribute::Name(ANONYMOUS.into()),
            SetAttribute::Flags(SetFlags::Anonymous | SetFlags::Constant | SetFlags::Map | flags),
            SetAttribute::KeyType(key_type),
            SetAttribute::KeyLen(key_len as u32),
            SetAttribute::DataType(DATA_VERDICT),
            SetAttribute::Id(id),
            SetAttribute::UserData([KEY_BYTE_ORDER.as_slice(), &order.to_ne_bytes()].concat()),
        ];
        messages.push((NfTablesMessage::NewSet(SetMessage { attributes }), NLM_F_CREATE));
        for elements in elements.chunks(ELEMENTS) {
            let attributes = vec![
                SetElementList::Table(self.name.clone()),
                SetElementList::Set(ANONYMOUS.into()),
                SetElementList::SetId(id),
                SetElementList::Elements(elements.iter().cloned().map(ListAttribute::Element).collect()),
            ];
            messages.push((NfTablesMessage::NewSetElement(SetElementMessage { attributes }), NLM_F_CREATE));
        }
    }
}

/// The message that removes all tables of all families.
pub fn flush() -> (NfTablesMessage, u16) {
    (NfTablesMessage::DeleteTable(TableMessage { attributes: Vec::new() }), 0)
}

/// The question for the number of the present generation.
pub fn generation() -> NfTablesMessage {
    NfTablesMessage::GetGen(GenMessage { attributes: Vec::new() })
}

/// The question for a table.
pub fn table(name: &str) -> NfTablesMessage {
    NfTablesMessage::GetTable(TableMessage { attributes: vec![TableAttribute::Name(name.into())] })
}

/// The question for the rules of a table.
pub fn rules(table: &str) -> NfTablesMessage {
    NfTablesMessage::GetRule(RuleMessage { attributes: vec![RuleAttribute::Table(table.into())] })
}

/// A message about a table of one family, or of both.
pub fn in_family(of: Option<Family>, message: NfTablesMessage) -> NetfilterMessage {
    let all = matches!(&message, NfTablesMessage::DeleteTable(table) if table.attributes.is_empty());
    let family = match of {
        _ if all => NetfilterProtoFamily::Unspec,
        None => NetfilterProtoFamily::Inet,
        Some(Family::V4) => NetfilterProtoFamily::IPv4,
        Some(Family::V6) => NetfilterProtoFamily::IPv6,
    };
    NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), message)
}

/// The message that begins a transaction.
pub fn batch_begin() -> NetfilterMessage {
    control(ControlMessage::BatchBegin)
}

/// The message that ends a transaction.
pub fn batch_end() -> NetfilterMessage {
    control(ControlMessage::BatchEnd)
}

fn control(message: ControlMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, SUBSYSTEM), message)
}

/// Where ranges of addresses begin, in ascending order, and to what the longest prefix that contains them leads.
fn ranges(of: Family, prefixes: &[(IpNet, Option<usize>)]) -> Vec<(u128, Option<usize>)> {
    let mut sorted: Vec<_> =
        prefixes.iter().map(|(net, to)| (of.first(*net), net.prefix_len(), of.last(*net), *to)).collect();
    sorted.sort_unstable();
    let mut found = Vec::<(u128, Option<usize>)>::new();
    // The prefixes around the present address, the longest last.
    let mut around = Vec::<(u128, Option<usize>)>::new();
    let mut begin = |start: u128, to: Option<usize>| {
        found.pop_if(|(before, _)| *before == start);
        if found.last().and_then(|(_, to)| *to) != to {
            found.push((start, to));
        }
    };
    let leave_before = |around: &mut Vec<(u128, Option<usize>)>, address: Option<u128>, begin: &mut dyn FnMut(_, _)| {
        while let Some((last, _)) = around.pop_if(|(last, _)| address.is_none_or(|address| *last < address)) {
            if last < of.greatest() {
                begin(last + 1, around.last().and_then(|(_, to)| *to));
            }
        }
    };
    for (first, _, last, to) in sorted {
        leave_before(&mut around, Some(first), &mut begin);
        begin(first, to);
        around.push((last, to));
    }
    leave_before(&mut around, None, &mut begin);
    found
}

fn draw_chain(position: usize) -> String {
    format!("to-{position}")
}

fn mark_chain(mark: u32) -> String {
    format!("mark-{mark:x}")
}
