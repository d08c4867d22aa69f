//! Rules: which packets are routed by which table.

use std::{fmt, ops::RangeInclusive};

use futures::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};
use rtnetlink::IpVersion;

use super::{Family, Netlink, PROTOCOL, policy, refused, tolerate};
use crate::error::Result;

/// The interface by which packets of the host's own sockets come, to the kernel.
pub const LOCAL: &str = "lo";

/// A rule: packets of this host whose mark, under `mask`, is `mark` are routed by `table`.
///
/// It names the loopback interface as the incoming one, which the kernel takes for every packet that leaves a socket of
/// the host. So packets that the host only forwards never match, whatever mark others give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkRule {
    /// Which packets.
    pub family: Family,
    /// Value of the masked mark.
    pub mark: u32,
    /// The bits that count.
    pub mask: u32,
    /// The table to look in.
    pub table: u32,
    /// Priority among the rules; the kernel tries lower numbers first.
    pub priority: u32,
}

/// A rule for packets by their mark, their source and the interface by which they come; for all packets without any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteRule {
    /// Which packets.
    pub family: Family,
    /// Value of the masked mark, and the bits that count.
    pub mark: Option<(u32, u32)>,
    /// The sources.
    pub source: Option<IpNet>,
    /// The interface by which they come, which need not exist yet; [`LOCAL`] for those of the host's own sockets.
    pub input: Option<String>,
    /// The table to look in.
    pub table: u32,
    /// Priority among the rules; the kernel tries lower numbers first.
    pub priority: u32,
}

impl MarkRule {
    /// The same for marked packets that come in by the interface of the name `input`.
    pub fn for_input(self, input: &str) -> RouteRule {
        let MarkRule { family, mark, mask, table, priority } = self;
        let mark = (mask != 0).then_some((mark, mask));
        RouteRule { family, mark, source: None, input: Some(input.into()), table, priority }
    }
}

/// A rule of anybody, as far as it matters to marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which packets.
    pub family: Family,
    /// Priority among the rules; the kernel tries lower numbers first.
    pub priority: u32,
    /// The table to look in; zero for a rule that does something else.
    pub table: u32,
    /// Value of the masked mark.
    pub mark: u32,
    /// The bits of the mark that count; zero if none does.
    pub mask: u32,
    /// Whether it is for the packets that do *not* match.
    pub inverted: bool,
    /// The interface by which packets come; `lo` for those of the host's own sockets.
    pub input: Option<String>,
    /// The sources of packets; `None`: all.
    pub source: Option<IpNet>,
    /// Whether it selects packets by anything else, or does anything but look in a table.
    pub is_special: bool,
    /// The routing protocol that made it; zero if none is named.
    pub protocol: u8,
}

impl Netlink {
    /// All rules of both families.
    pub async fn rules(&self) -> Result<Vec<Rule>> {
        Ok(self.rule_messages().await?.iter().map(read).collect())
    }

    /// Adds a rule for marked packets of this host, with the protocol [`PROTOCOL`]; one that exists is fine.
    pub async fn add_rule(&self, rule: MarkRule) -> Result<()> {
        self.add_route_rule(&rule.for_input(LOCAL)).await
    }

    /// Adds a rule, with the protocol [`PROTOCOL`]; one that exists is fine.
    pub async fn add_route_rule(&self, rule: &RouteRule) -> Result<()> {
        let mut request = self.socket.handle.rule().add().table_id(rule.table).priority(rule.priority);
        request = request.action(RuleAction::ToTable);
        let message = request.message_mut();
        message.header.family = rule.family.into();
        if let Some((mark, mask)) = rule.mark {
            message.attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]);
        }
        if let Some(source) = rule.source {
            message.header.src_len = source.prefix_len();
            message.attributes.push(RuleAttribute::Source(source.network()));
        }
        message.attributes.extend(rule.input.clone().map(RuleAttribute::Iifname));
        message.attributes.push(RuleAttribute::Protocol(PROTOCOL.into()));
        let added = request.execute().await;
        tolerate(self.socket.answered(added), libc::EEXIST, || match rule.mark {
            Some((mark, mask)) => format!("adding the rule for mark {mark:#x}/{mask:#x}"),
            None => format!("adding the rule for table {}", rule.table),
        })
    }

    /// Adds a rule: packets from `source` are routed by `table`.
    pub async fn add_source_rule(&self, source: std::net::Ipv6Addr, table: u32, priority: u32) -> Result<()> {
        let request =
            self.socket.handle.rule().add().v6().source_prefix(source, 128).table_id(table).priority(priority);
        let added = request.action(RuleAction::ToTable).execute().await;
        self.socket.answered(added).map_err(|e| refused(format!("adding the rule for packets from {source}"), e))
    }

    /// Removes every rule of ours that looks in one of `tables` at `priority`.
    pub async fn delete_rules(&self, tables: RangeInclusive<u32>, priority: u32) -> Result<()> {
        self.delete_rules_but(tables, priority, |_| false).await
    }

    /// Removes every rule of ours that looks in one of `tables` at `priority`, but for those to `keep`.
    pub async fn delete_rules_but(
        &self,
        tables: RangeInclusive<u32>,
        priority: u32,
        keep: impl Fn(&Rule) -> bool,
    ) -> Result<()> {
        for message in self.rule_messages().await? {
            let rule = read(&message);
            let is_there = rule.priority == priority && tables.contains(&rule.table);
            if is_there && rule.is_ours(*tables.start()) && !keep(&rule) {
                let deleted = self.socket.handle.rule().del(message).execute().await;
                tolerate(self.socket.answered(deleted), libc::ENOENT, || "removing a rule".to_string())?;
            }
        }
        Ok(())
    }

    pub(super) async fn rule_messages(&self) -> Result<Vec<RuleMessage>> {
        let mut all = Vec::new();
        for family in [IpVersion::V4, IpVersion::V6] {
            let rules = self.socket.handle.rule().get(family).execute().try_collect::<Vec<_>>().await;
            all.extend(self.socket.answered(rules).map_err(|e| refused("listing rules", e))?);
        }
        Ok(all)
    }
}

impl Rule {
    /// Whether it is as [`Netlink::add_route_rule`] makes this one.
    pub fn is(&self, rule: &RouteRule) -> bool {
        let (mark, mask) = rule.mark.unwrap_or_default();
        (self.family, self.mark, self.mask, self.table, self.priority)
            == (rule.family, mark, mask, rule.table, rule.priority)
            && (&self.input, self.source) == (&rule.input, rule.source)
            && !self.inverted
            && !self.is_special
            && self.protocol == PROTOCOL
    }

    /// Whether we made it, if the first slot's table is `first`.
    ///
    /// Version 0.1.0 set no protocol, as `ip` does not. Its rules are recognised by the slot, which names the table.
    pub fn is_ours(&self, first: u32) -> bool {
        let slot = self.mark.checked_shr(self.mask.trailing_zeros()).unwrap_or(0);
        self.protocol == PROTOCOL || self.protocol == 0 && slot > 0 && self.table.checked_sub(first) == Some(slot - 1)
    }
}

impl fmt::Display for Rule {
    /// As `ip rule` prints it, without what does not matter to marks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.inverted { "not " } else { "" };
        write!(f, "{}: {not}from all fwmark {:#x}", self.priority, self.mark)?;
        if self.mask != u32::MAX {
            write!(f, "/{:#x}", self.mask)?;
        }
        if let Some(input) = &self.input {
            write!(f, " iif {input}")?;
        }
        if self.table == 0 { Ok(()) } else { write!(f, " lookup {}", self.table) }
    }
}

pub(super) fn read(message: &RuleMessage) -> Rule {
    let family = if message.header.family == AddressFamily::Inet { Family::V4 } else { Family::V6 };
    let inverted = message.header.flags.contains(RuleFlags::Invert);
    let table = u32::from(message.header.table);
    let mut rule = Rule {
        family,
        priority: 0,
        table,
        mark: 0,
        mask: 0,
        inverted,
        input: None,
        source: None,
        is_special: policy::read(message).is_special(),
        protocol: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            RuleAttribute::FwMark(mark) => rule.mark = *mark,
            RuleAttribute::FwMask(mask) => rule.mask = *mask,
            RuleAttribute::Iifname(name) => rule.input = Some(name.clone()),
            RuleAttribute::Source(source) => rule.source = IpNet::new(*source, message.header.src_len).ok(),
            RuleAttribute::Protocol(protocol) => rule.protocol = u8::from(*protocol),
            _ => {}
        }
    }
    rule
}
