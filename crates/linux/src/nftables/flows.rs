//! A table that keeps each flow on the egress by which it began, spreads flows over egresses, or both.
//!
//! ```text
//! table inet NAME {
//!     chain in {
//!         type filter hook prerouting priority mangle;
//!         iifname DEV ct mark & MASK == 0 ct mark set ct mark & ~MASK ^ MARK      # for each egress, to keep flows
//!         iifname DEV return
//!         ct mark & MASK == MARK meta mark set mark & ~MASK ^ MARK                # for each egress, to keep flows
//!         meta mark & MASK != 0 return                                            # from here on, to spread flows
//!         ct mark & MASK != 0 return                                              # to keep flows, too
//!         ip saddr PREFIX return                                                  # for each provider's prefix
//!         meta l4proto tcp goto spread                                            # and udp
//!     }
//!     chain spread {
//!         jhash ip saddr . ip daddr . th sport . th dport mod 64 vmap { BUCKET : goto mark-MARK, ... }
//!     }
//!     chain mark-MARK { meta mark set mark & ~MASK ^ MARK }
//!     chain out {                                                                 # from here on, to keep flows
//!         type route hook output priority mangle;
//!         meta mark & MASK != 0 return
//!         ct mark & MASK == MARK meta mark set mark & ~MASK ^ MARK                # for each egress
//!     }
//!     chain post {
//!         type filter hook postrouting priority mangle;
//!         oifname DEV ct mark & MASK == 0 ct mark set ct mark & ~MASK ^ MARK      # for each egress
//!         oifname DEV ct mark & MASK == MARK return
//!         oifname DEV goto kept
//!     }
//!     chain kept {
//!         ct mark & MASK == MARK drop                                             # for each egress
//!     }
//! }
//! ```
//!
//! A kept flow gets the mark of the egress by which its first packet leaves or comes. Its packets towards the egress carry the mark,
//! and a rule of routing does the rest. A packet of a flow of another egress is dropped before it is given a source address. A mark that
//! is no egress's is another program's, such as wg-quick's 0xca6c: its packets pass.
//!
//! What is forwarded of TCP and UDP is spread by a hash of addresses and ports. Buckets without a mark, all other packets, and those of
//! this host itself, which have the source of an egress, take no egress of the table's choice.

use std::collections::BTreeSet;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR};
use netlink_packet_netfilter::nftables::{Expressions, InetHookNumber, MetaKey, Operator, Verdict};

use super::{
    DrawTable,
    expressions::{
        IPPROTO_TCP, IPPROTO_UDP, REGISTER_NUMBER, Rule, by_hash, compare, is_from, is_of, is_protocol, jump, leave,
        load, masked, other,
    },
    messages,
    ruleset::{Messages, PRIORITY},
    status,
};
use crate::{
    error::{LinuxError, Result},
    netlink::Family,
};

/// An egress of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEgress {
    /// Its interface.
    pub dev: String,
    /// The mark of its flows.
    pub mark: u32,
}

/// What the table does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRules {
    /// The egresses.
    pub egresses: Vec<FlowEgress>,
    /// Whether each flow stays on the egress by which it began.
    pub keeps: bool,
    /// Over which egresses flows are spread; of a family that is not here, over none.
    pub spread: Vec<FlowSpread>,
    /// Packets from these sources are not spread.
    pub sources: Vec<IpNet>,
}

/// How flows of a family are spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpread {
    /// Which packets.
    pub family: Family,
    /// By bucket: the mark of its egress, or zero if the table leaves its packets alone.
    pub marks: Vec<u32>,
}

/// The table, in the network namespace of the thread that opened it. It stays when this value is dropped.
#[derive(Debug)]
pub struct FlowTable {
    table: DrawTable,
}

const IN: &str = "in";
const OUT: &str = "out";
const POST: &str = "post";
const KEPT: &str = "kept";
const SPREAD: &str = "spread";
/// From which the hash begins. It must never change, so that only flows of buckets that move move; its value is of no importance.
const SEED: u32 = 0x5357;
/// The longest name of an interface with its final zero (`IFNAMSIZ`).
const NAME_LEN: usize = 16;

// `linux/netfilter/nf_tables.h`: the attributes of the expression `ct`, and the key that is the mark.
const CT_INTO: u16 = 1;
const CT_KEY: u16 = 2;
const CT_FROM: u16 = 4;
const CT_MARK: u32 = 3;

// `linux/netfilter/nfnetlink_conntrack.h`: the message that deletes entries, and its attributes.
const DELETE: u16 = 1 << 8 | 2;
const DELETE_MARK: u16 = 8;
const DELETE_MASK: u16 = 21;
/// Bytes of that message.
const DELETE_LEN: u32 = 16 + 4 + 8 + 8;

impl FlowTable {
    /// Opens a socket for the table `name`, which may be there already. The table has the bits `mask` of marks.
    pub fn open(name: &str, mask: u32) -> Result<Self> {
        Ok(FlowTable { table: DrawTable::open(name, mask)? })
    }

    /// Makes the table do this, in one step.
    pub fn replace(&mut self, rules: &FlowRules) -> Result<()> {
        let messages = self.messages(rules);
        self.table.commit(&messages, || "writing the table of flows and their egresses")
    }

    /// Removes the table; returns whether it was there.
    pub fn remove(&mut self) -> Result<bool> {
        let messages = self.table.ruleset.removal();
        match self.table.commit(&messages, || "removing the table that keeps flows on their egress") {
            Ok(()) => Ok(true),
            // Where the kernel has no tables there is none.
            Err(error) if error.is_answer() && !matches!(error, LinuxError::Privilege { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A number that follows from what is in the table now; `None` if it is not there.
    pub fn fingerprint(&mut self) -> Result<Option<u64>> {
        self.table.fingerprint()
    }

    /// Forgets the flows of a family with this mark: their next packets begin flows again. Others stay.
    pub fn forget(&mut self, of: Family, mark: u32) -> Result<()> {
        let failed = |error| LinuxError::io("forgetting flows of an egress", error);
        self.table.sequence = self.table.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(DELETE_LEN as usize);
        bytes.extend(DELETE_LEN.to_ne_bytes());
        bytes.extend(DELETE.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        bytes.extend(self.table.sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        // The header of nfnetlink. The kernel looks at the family where the version is not 0.
        let family = if of == Family::V4 { libc::AF_INET } else { libc::AF_INET6 };
        bytes.extend([family as u8, 1, 0, 0]);
        for (kind, value) in [(DELETE_MARK, mark), (DELETE_MASK, self.table.ruleset.mask)] {
            bytes.extend(8_u16.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value.to_be_bytes());
        }
        self.table.socket.send(&bytes, 0).map_err(failed)?;
        let DrawTable { socket, buffer, sequence, .. } = &mut self.table;
        loop {
            let length = socket.recv(&mut &mut buffer[..], libc::MSG_TRUNC).map_err(failed)?.min(buffer.len());
            for message in messages(buffer.get(..length).unwrap_or_default()) {
                let message = message.map_err(failed)?;
                if message.sequence_number() == *sequence && message.message_type() == NLMSG_ERROR {
                    return status(message.payload()).map_or(Ok(()), |error| Err(failed(error)));
                }
            }
        }
    }

    fn messages(&self, rules: &FlowRules) -> Messages {
        let set = &self.table.ruleset;
        let mut all = vec![set.table(), set.removal().remove(0), set.table()];
        all.push(set.base_chain(IN, "filter", InetHookNumber::PreRouting, PRIORITY));
        for egress in &rules.egresses {
            let device = is_device(MetaKey::Iifname, &egress.dev);
            if rules.keeps {
                all.push(set.rule(IN, [device.clone(), self.begin(egress.mark)].concat()));
            }
            all.push(set.rule(IN, [device, leave()].concat()));
        }
        if rules.keeps {
            self.keep(&rules.egresses, &mut all);
        }
        if !rules.spread.is_empty() {
            self.spread(rules, &mut all);
        }
        all
    }

    /// What keeps each flow on its egress.
    fn keep(&self, egresses: &[FlowEgress], all: &mut Messages) {
        let set = &self.table.ruleset;
        all.push(set.base_chain(OUT, "route", InetHookNumber::LocalOut, PRIORITY));
        all.push(set.base_chain(POST, "filter", InetHookNumber::PostRouting, PRIORITY));
        all.push(set.chain(KEPT));
        all.push(set.rule(OUT, [set.is_marked(), leave()].concat()));
        for egress in egresses {
            for chain in [IN, OUT] {
                all.push(set.rule(chain, [self.has(egress.mark), set.set_mark(egress.mark)].concat()));
            }
            let device = is_device(MetaKey::Oifname, &egress.dev);
            all.push(set.rule(POST, [device.clone(), self.begin(egress.mark)].concat()));
            all.push(set.rule(POST, [device.clone(), self.has(egress.mark), leave()].concat()));
            all.push(set.rule(POST, [device, vec![jump(Verdict::Goto, Some(KEPT.into()))]].concat()));
            all.push(set.rule(KEPT, [self.has(egress.mark), vec![jump(Verdict::Other(DROP), None)]].concat()));
        }
    }

    /// What spreads flows that have no egress yet.
    fn spread(&self, rules: &FlowRules, all: &mut Messages) {
        let set = &self.table.ruleset;
        let marks: BTreeSet<u32> =
            rules.spread.iter().flat_map(|of| &of.marks).copied().filter(|of| *of != 0).collect();
        marks.into_iter().for_each(|mark| all.extend(set.marking(mark)));
        all.push(set.chain(SPREAD));
        all.push(set.rule(IN, [set.is_marked(), leave()].concat()));
        if rules.keeps {
            all.push(set.rule(IN, [self.is_begun(), leave()].concat()));
        }
        for source in &rules.sources {
            let of = Family::of(*source);
            all.push(set.rule(IN, [is_of(of), is_from(of, source.trunc()), leave()].concat()));
        }
        for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
            let spread = vec![jump(Verdict::Goto, Some(SPREAD.into()))];
            all.push(set.rule(IN, [is_protocol(protocol), spread].concat()));
        }
        for (map, of) in (1..).zip(&rules.spread) {
            set.map_of_marks(map, &of.marks, all);
            let rule = [is_of(of.family), by_hash(of.family, of.marks.len() as u32, SEED, map)].concat();
            all.push(set.rule(SPREAD, rule));
        }
    }

    /// Whether our bits of the flow's mark are these.
    fn has(&self, mark: u32) -> Rule {
        let ours = masked(&self.table.ruleset.mask.to_ne_bytes());
        vec![flow_mark(CT_INTO), ours, compare(Operator::Equal, mark.to_ne_bytes().to_vec())]
    }

    /// Whether some of our bits of the flow's mark are set.
    fn is_begun(&self) -> Rule {
        let ours = masked(&self.table.ruleset.mask.to_ne_bytes());
        vec![flow_mark(CT_INTO), ours, compare(Operator::NotEqual, vec![0; 4])]
    }

    /// Gives a flow without a mark of ours this one.
    fn begin(&self, mark: u32) -> Rule {
        let set = vec![flow_mark(CT_INTO), self.table.ruleset.put(mark), flow_mark(CT_FROM)];
        [self.has(0), set].concat()
    }
}

/// The verdict `NF_DROP`.
const DROP: u32 = 0;

/// The flow's mark, into the register or from there.
fn flow_mark(register: u16) -> Expressions {
    let mut values = [(register, REGISTER_NUMBER), (CT_KEY, CT_MARK)];
    values.sort_unstable();
    other("ct", &values)
}

fn is_device(key: MetaKey, dev: &str) -> Rule {
    let mut name = dev.as_bytes().to_vec();
    name.resize(NAME_LEN, 0);
    vec![load(key), compare(Operator::Equal, name)]
}
