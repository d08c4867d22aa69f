//! Who else uses bits of the packet mark: rules of routing, and rules of nf_tables and iptables. The latter may also
//! masquerade connections, which then do not survive a move.
//!
//! What cannot be seen: BPF programs that read or write marks (Cilium's), and filters of tc.

use std::{collections::BTreeSet, fmt};

use crate::{
    bpf::MAX_SLOTS,
    error::Result,
    netlink::{Family, Netlink, PROTOCOL, Rule},
};

mod advice;
mod chains;
mod iptables;
mod nftables;

pub use self::chains::Hook;

/// What was found of marks.
#[derive(Clone, Debug, Default)]
pub struct MarkUses {
    /// The rules of routing that look at marks, without ours.
    pub rules: Vec<Rule>,
    /// The rules of nf_tables and iptables that look at marks or change them, or masquerade.
    pub filters: Vec<FilterUse>,
    /// What exists and could not be read.
    pub unseen: Vec<String>,
}

/// What a rule of nf_tables or iptables does with marks, or with source addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterUse {
    /// Whose rule it is: `nf_tables`; `iptables` or `ip6tables` if it is in an old table.
    pub program: &'static str,
    /// Where the rule is: family, table and chain; of an old table, table and chain.
    pub place: String,
    /// What it does.
    pub action: MarkAction,
    /// The hooks from which packets come to it.
    pub hooks: BTreeSet<Hook>,
    /// It does nothing to packets whose mark has any of these bits.
    pub spares: u32,
    /// Whether it is written as one of iptables: in its own tables, or by an extension of it.
    pub of_iptables: bool,
}

/// What is done with a mark, or a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkAction {
    /// It is compared, under a mask.
    Compared {
        /// The value.
        mark: u32,
        /// The bits that count.
        mask: u32,
    },
    /// These bits of it are changed.
    Changed(u32),
    /// These bits of it become those of the connection's mark.
    Restored(u32),
    /// The source becomes an address of the interface by which the packet leaves; the mark does not matter.
    Masquerades,
    /// The source becomes an address that the rule names; the mark does not matter.
    Translates,
}

/// How our bits of the mark meet those of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// Whose, for people.
    pub with: String,
    /// Whether packets with our marks are routed by their rule, or theirs by ours.
    pub misroutes: bool,
}

/// Masks of six bits to choose from, those first where programs meet least.
const CANDIDATES: [u32; 6] = [0x3f00_0000, 0x00fc_0000, 0x003f_0000, 0xfc00_0000, 0x0000_3f00, 0x0000_00fc];

impl MarkUses {
    /// Reads what there is in the calling thread's network namespace.
    pub async fn read(netlink: &Netlink) -> Result<Self> {
        let mut uses = MarkUses::default();
        uses.read_rules(netlink).await?;
        uses.read_filters();
        Ok(uses)
    }

    /// Reads the rules of routing again.
    pub async fn read_rules(&mut self, netlink: &Netlink) -> Result<()> {
        let of_marks = |rule: &Rule| rule.mask != 0 && rule.protocol != PROTOCOL;
        self.rules = netlink.rules().await?.into_iter().filter(of_marks).collect();
        Ok(())
    }

    /// Reads the rules of nf_tables and iptables again. That takes longer: there may be ten thousands.
    pub fn read_filters(&mut self) {
        (self.filters, self.unseen) = iptables::read();
        match nftables::read() {
            Ok(found) => self.filters.extend(found),
            Err(error) => self.unseen.push(format!("rules of nf_tables ({error})")),
        }
    }

    /// How bits `mask` meet others' if their values are used up to `values`.
    pub fn collisions(&self, mask: u32, values: u32) -> Vec<Collision> {
        let ours = || (1..=values).map(|value| value << mask.trailing_zeros()).filter(|mark| mark & !mask == 0);
        let rules = self.rules.iter().filter(|rule| {
            let matches = |mark: u32| ((mark ^ rule.mark) & rule.mask == 0) != rule.inverted;
            // Packets that only pass have none of our marks.
            let is_local = rule.input.as_deref().is_none_or(|input| input == "lo");
            let takes_ours = is_local && ours().any(|mark| matches(mark) != matches(0));
            let is_taken = !rule.inverted && rule.mask & mask != 0 && ours().any(|mark| rule.mark & mask == mark);
            takes_ours || is_taken
        });
        let rules = rules.map(|rule| Collision { with: format!("the rule `{rule}`"), misroutes: true });
        let filters = self.filters.iter().filter(|filter| match filter.action {
            MarkAction::Changed(bits) => bits & mask != 0,
            // A program that asks whether exactly our bits are set knows of us.
            MarkAction::Compared { mark: 0, mask: bits } if bits == mask => false,
            MarkAction::Compared { mark, mask: bits } => {
                ours().any(|ours| ((ours ^ mark) & bits == 0) != (mark & bits == 0))
            }
            // Where that matters, `restorers` returns the rule.
            MarkAction::Restored(_) | MarkAction::Masquerades | MarkAction::Translates => false,
        });
        let filters = filters.map(|filter| Collision { with: filter.to_string(), misroutes: false });
        let mut all: Vec<_> = rules.chain(filters).collect();
        all.dedup();
        all
    }

    /// The rules that put bits `mask` of a connection's mark back onto its packets, which then have the mark of its former path,
    /// where packets come from one of these hooks.
    pub fn restorers(&self, mask: u32, hooks: &[Hook]) -> Vec<&FilterUse> {
        let restores = |one: &&FilterUse| {
            matches!(one.action, MarkAction::Restored(bits) if bits & mask != 0)
                && one.spares & mask != mask
                && hooks.iter().any(|hook| one.hooks.contains(hook))
        };
        let mut all: Vec<_> = self.filters.iter().filter(restores).collect();
        all.dedup();
        all
    }

    /// The families of which another program masquerades connections.
    pub fn masqueraded(&self) -> Vec<Family> {
        let rules = || self.filters.iter().filter(|filter| filter.action == MarkAction::Masquerades);
        Family::ALL.into_iter().filter(|of| rules().any(|rule| rule.concerns(*of))).collect()
    }

    /// The families of which another program translates the sources of connections, by a masquerade or to a fixed address.
    pub fn translated(&self) -> Vec<Family> {
        let translates = |rule: &&FilterUse| matches!(rule.action, MarkAction::Masquerades | MarkAction::Translates);
        let rules = || self.filters.iter().filter(translates);
        Family::ALL.into_iter().filter(|of| rules().any(|rule| rule.concerns(*of))).collect()
    }

    /// A mask of six bits that meets no other program's; `None` if there is none to suggest.
    pub fn free_mask(&self) -> Option<u32> {
        let meets = |mask: u32| self.collisions(mask, MAX_SLOTS).iter().any(|collision| collision.misroutes);
        let is_changed = |mask: u32| {
            let changes = |filter: &FilterUse| matches!(filter.action, MarkAction::Changed(bits) | MarkAction::Restored(bits) if bits != u32::MAX && bits & mask != 0);
            self.filters.iter().any(changes)
        };
        CANDIDATES.into_iter().find(|mask| !meets(*mask) && !is_changed(*mask))
    }
}

impl FilterUse {
    /// Whether packets of this family may meet the rule.
    fn concerns(&self, of: Family) -> bool {
        let (tables, other) = match of {
            Family::V4 => ("iptables", "ip6 "),
            Family::V6 => ("ip6tables", "ip "),
        };
        if self.program == "nf_tables" { !self.place.starts_with(other) } else { self.program == tables }
    }
}

impl fmt::Display for FilterUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a rule of {} in {}, which ", self.program, self.place)?;
        match self.action {
            MarkAction::Compared { mark, mask } => write!(f, "looks for the mark {mark:#x}/{mask:#x}"),
            MarkAction::Changed(bits) => write!(f, "changes the bits {bits:#x}"),
            MarkAction::Restored(bits) => write!(f, "restores the bits {bits:#x} from the connection's mark"),
            MarkAction::Masquerades => f.write_str("masquerades"),
            MarkAction::Translates => f.write_str("translates sources"),
        }
    }
}

fn host_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A name, which zeros follow.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// What fuzzing reads.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    use super::*;

    /// Reads a datagram with rules of nf_tables, and finds whose marks theirs meet.
    pub(crate) fn read(bytes: &[u8]) {
        let uses = MarkUses { filters: nftables::read_rules(bytes), ..MarkUses::default() };
        assert!(uses.collisions(CANDIDATES[0], 63).len() <= uses.filters.len());
        let _ = uses.free_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mark: u32, mask: u32) -> Rule {
        let input = None;
        Rule {
            family: Family::V4,
            priority: 9,
            table: 2004,
            mark,
            mask,
            inverted: false,
            input,
            source: None,
            is_special: false,
            protocol: 0,
        }
    }

    fn meets(rule: Rule, mask: u32) -> bool {
        let uses = MarkUses { rules: vec![rule], ..MarkUses::default() };
        !uses.collisions(mask, 63).is_empty()
    }

    #[test]
    fn a_rule_meets_a_mask_if_it_asks_for_marks_that_we_set() {
        const MASK: u32 = 0x3f00_0000;
        assert!(!meets(rule(0x200, 0xf00), MASK));
        assert!(meets(rule(0x200, 0xf00), 0xff00));
        assert!(!meets(Rule { inverted: true, ..rule(0xca6c, u32::MAX) }, MASK), "WireGuard's");
        assert!(meets(rule(0x100_0000, u32::MAX), MASK));
        assert!(meets(rule(0x1000_0000, 0xf000_0000), 0xff00_0000));
        // They look at packets that come by an interface: ours do not, but theirs might have a slot of ours in their mark.
        let passing = |mark| Rule { input: Some("eth0".into()), ..rule(mark, MASK) };
        assert!(meets(passing(0x100_0000), MASK));
        assert!(!meets(passing(0), MASK));
        let inverted = Rule { inverted: true, ..rule(0, MASK) };
        assert!(meets(inverted, MASK), "it is for all marks that we set");
    }

    #[test]
    fn a_free_mask_is_one_that_nothing_seen_meets() {
        let uses = |rules: Vec<Rule>, changed: &[u32]| {
            let filter = |bits: &u32| {
                let (program, place) = ("nf_tables", "ip mangle OUTPUT".into());
                let (action, hooks) = (MarkAction::Changed(*bits), BTreeSet::new());
                FilterUse { program, place, action, hooks, spares: 0, of_iptables: false }
            };
            MarkUses { rules, filters: changed.iter().map(filter).collect(), unseen: Vec::new() }
        };
        assert_eq!(uses(Vec::new(), &[]).free_mask(), Some(0x3f00_0000));
        assert_eq!(uses(vec![rule(0x100_0000, 0xff00_0000)], &[0x4000]).free_mask(), Some(0x00fc_0000));
        assert_eq!(uses(vec![rule(0x100_0000, 0xff00_0000)], &[0xffff_0000]).free_mask(), Some(0x3f00));
        assert_eq!(uses(Vec::new(), &[0xffff_0000, 0xffff]).free_mask(), None);
        assert_eq!(
            uses(Vec::new(), &[u32::MAX]).free_mask(),
            Some(0x3f00_0000),
            "nothing is free of a rule that sets all"
        );
    }
}
