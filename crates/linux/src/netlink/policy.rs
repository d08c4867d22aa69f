//! Rules of routing of anybody with all that they select by, and which of them a packet meets first.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    link::{LinkAttribute, LinkMessage},
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};

use super::{Family, Flow, LOCAL, Netlink, PROTOCOL, refused, table_name, vrfs};
use crate::error::Result;

/// A rule with all that it selects packets by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingRule {
    /// Which packets.
    pub family: Family,
    /// The kernel tries lower numbers first, and of equal ones the older.
    pub priority: u32,
    /// Whether it is for the packets that do *not* match.
    pub inverted: bool,
    /// The sources; `None`: all.
    pub source: Option<IpNet>,
    /// The destinations; `None`: all.
    pub destination: Option<IpNet>,
    /// Value of the masked mark, and the bits that count; zero if none does.
    pub mark: (u32, u32),
    /// The interface by which packets come; `lo` for those of the host's own sockets.
    pub input: Option<String>,
    /// The interface to which the socket is bound.
    pub output: Option<String>,
    /// The first and the last user whose sockets it is for.
    pub users: Option<(u32, u32)>,
    /// The protocol above IP.
    pub protocol: Option<u8>,
    /// The first and the last source port.
    pub source_ports: Option<(u16, u16)>,
    /// The first and the last destination port.
    pub destination_ports: Option<(u16, u16)>,
    /// The service class (TOS); zero: all.
    pub tos: u8,
    /// Whether it is for packets of tunnels with a number, which ours never have.
    pub of_tunnel: bool,
    /// Whether packets of interfaces in a VRF look in the table of that.
    pub by_vrf: bool,
    /// Routes whose prefix is this long or shorter do not count.
    pub suppress_length: Option<u32>,
    /// Routes by interfaces of this group do not count.
    pub suppress_group: Option<u32>,
    /// What becomes of the packets.
    pub verdict: RuleVerdict,
    /// The routing protocol that made it; zero if none is named.
    pub made_by: u8,
}

/// What a rule does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleVerdict {
    /// It looks in this table.
    Table(u32),
    /// It goes on at the rule of this priority.
    Goto(u32),
    /// It does nothing.
    Nothing,
    /// It drops them: `blackhole`, `unreachable` or `prohibit`.
    Refuses(&'static str),
}

/// What matters of an interface to rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleLink {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: u32,
    /// The table of the VRF that it is in.
    pub vrf: Option<u32>,
    /// Whether it is up.
    pub up: bool,
    /// Whether frames on it begin with an Ethernet header: it is no tunnel.
    pub ethernet: bool,
}

/// The rules in the order in which the kernel tries them, and the interfaces by their index.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The rules of both families.
    pub rules: Vec<RoutingRule>,
    /// The interfaces.
    pub links: BTreeMap<u32, RuleLink>,
}

impl Netlink {
    /// The rules and the interfaces as they are now.
    pub async fn policy(&self) -> Result<Policy> {
        let mut rules: Vec<_> = self.rule_messages().await?.iter().map(read).collect();
        // The kernel lists them so already.
        rules.sort_by_key(|rule| (rule.family, rule.priority));
        let links = self.socket.handle.link().get().execute().try_collect::<Vec<LinkMessage>>().await;
        let links = self.socket.answered(links).map_err(|e| refused("listing interfaces", e))?;
        let in_vrf = vrfs::members(&links);
        let link = |link: &LinkMessage| {
            let read = super::read_interface(link);
            let up = link.header.flags.contains(netlink_packet_route::link::LinkFlags::Up);
            let group = link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::Group(group) => Some(*group),
                _ => None,
            });
            let vrf = in_vrf.get(&read.name).map(|vrf| vrf.table);
            let (group, ethernet) = (group.unwrap_or_default(), read.ethernet);
            (read.index, RuleLink { name: read.name, group, vrf, up, ethernet })
        };
        Ok(Policy { rules, links: links.iter().map(link).collect() })
    }
}

impl Policy {
    /// The name of an interface.
    pub fn name(&self, index: u32) -> String {
        self.links.get(&index).map_or_else(|| format!("interface {index}"), |link| link.name.clone())
    }

    /// The index of an interface.
    pub fn index(&self, name: &str) -> Option<u32> {
        self.links.iter().find(|(_, link)| link.name == name).map(|(index, _)| *index)
    }

    /// The rules that a packet meets, in their order: those that match, where a `goto` is followed.
    pub fn met<'a>(&'a self, flow: &Flow) -> Vec<&'a RoutingRule> {
        let family = flow.family();
        let rules: Vec<_> = self.rules.iter().filter(|rule| rule.family == family).collect();
        let (mut met, mut at) = (Vec::new(), 0);
        while let Some(rule) = rules.get(at) {
            at += 1;
            if !self.matches(rule, flow) {
                continue;
            }
            met.push(*rule);
            // The kernel lets a rule go to a later one only.
            if let RuleVerdict::Goto(priority) = rule.verdict
                && let Some(target) = rules.iter().position(|other| other.priority == priority)
            {
                at = at.max(target);
            }
        }
        met
    }

    /// Whether a rule is for a packet, as `fib_rule_match` in the kernel decides.
    fn matches(&self, rule: &RoutingRule, flow: &Flow) -> bool {
        let named = |index: Option<u32>| index.and_then(|index| self.links.get(&index));
        let input = flow.input.map_or(Some(LOCAL), |index| named(Some(index)).map(|link| link.name.as_str()));
        let within = |range: Option<(u16, u16)>, port: Option<u16>| {
            range.is_none_or(|(first, last)| port.is_some_and(|port| (first..=last).contains(&port)))
        };
        let of_vrf = || named(flow.input).or_else(|| named(flow.output)).is_some_and(|link| link.vrf.is_some());
        let matches = rule.input.as_deref().is_none_or(|name| input == Some(name))
            && rule.output.as_ref().is_none_or(|name| named(flow.output).is_some_and(|link| link.name == *name))
            && (rule.mark.0 ^ flow.mark) & rule.mark.1 == 0
            && !rule.of_tunnel
            && (!rule.by_vrf || of_vrf())
            && rule.users.is_none_or(|(first, last)| flow.user.is_some_and(|user| (first..=last).contains(&user)))
            && rule.destination.is_none_or(|net| net.contains(&flow.destination))
            && rule
                .source
                .is_none_or(|net| net.prefix_len() == 0 || flow.source.is_some_and(|source| net.contains(&source)))
            && rule.tos == 0
            && rule.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && within(rule.source_ports, flow.ports.map(|ports| ports.0))
            && within(rule.destination_ports, flow.ports.map(|ports| ports.1));
        matches != rule.inverted
    }

    /// The table in which a rule looks for a packet.
    pub fn table_of(&self, rule: &RoutingRule, flow: &Flow) -> Option<u32> {
        let link = || self.links.get(&flow.input.or(flow.output)?);
        match rule.verdict {
            RuleVerdict::Table(_) if rule.by_vrf => link()?.vrf,
            RuleVerdict::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Whether a rule passes over a route with a prefix of this length by this interface.
    pub fn suppresses(&self, rule: &RoutingRule, length: u8, interface: Option<u32>) -> bool {
        let group = interface.and_then(|index| self.links.get(&index)).map(|link| link.group);
        rule.suppress_length.is_some_and(|most| u32::from(length) <= most)
            || rule.suppress_group.is_some() && rule.suppress_group == group
    }
}

impl RoutingRule {
    /// Whether it selects packets by more than mark, source and incoming interface, or does anything but look in a table.
    pub(super) fn is_special(&self) -> bool {
        !matches!(self.verdict, RuleVerdict::Table(_))
            || self.destination.is_some()
            || self.output.is_some()
            || self.users.is_some()
            || self.protocol.is_some()
            || self.source_ports.or(self.destination_ports).is_some()
            || self.tos != 0
            || self.of_tunnel
            || self.by_vrf
            || self.suppress_length.or(self.suppress_group).is_some()
    }

    /// Whether a daemon of sidestep made it.
    pub fn is_ours(&self) -> bool {
        self.made_by == PROTOCOL
    }

    /// The program that makes rules of this shape, as far as we know any.
    pub fn maker(&self) -> Option<&'static str> {
        let selects_nothing = self.source.is_none() && self.input.is_none() && self.mark.1 == 0;
        match (self.verdict, self.mark) {
            (RuleVerdict::Table(table), (mark, u32::MAX)) if self.inverted && table == mark => Some("wg-quick"),
            (RuleVerdict::Table(super::MAIN_TABLE), _) if self.suppress_length == Some(0) && selects_nothing => {
                Some("wg-quick")
            }
            (RuleVerdict::Table(52), _) if (5210..=5270).contains(&self.priority) => Some("tailscale"),
            _ => None,
        }
    }
}

impl fmt::Display for RoutingRule {
    /// As `ip rule` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |net: Option<IpNet>| net.map_or_else(|| "all".into(), |net| net.to_string());
        let not = if self.inverted { "not " } else { "" };
        write!(f, "{}: {not}from {}", self.priority, all(self.source))?;
        if let Some(net) = self.destination {
            write!(f, " to {net}")?;
        }
        match self.mark {
            (_, 0) => {}
            (mark, u32::MAX) => write!(f, " fwmark {mark:#x}")?,
            (mark, mask) => write!(f, " fwmark {mark:#x}/{mask:#x}")?,
        }
        for (what, name) in [("iif", &self.input), ("oif", &self.output)] {
            if let Some(name) = name {
                write!(f, " {what} {name}")?;
            }
        }
        if let Some((first, last)) = self.users {
            write!(f, " uidrange {first}-{last}")?;
        }
        if let Some(protocol) = self.protocol {
            write!(f, " ipproto {protocol}")?;
        }
        for (what, ports) in [("sport", self.source_ports), ("dport", self.destination_ports)] {
            if let Some((first, last)) = ports {
                write!(f, " {what} {first}-{last}")?;
            }
        }
        match self.verdict {
            RuleVerdict::Table(_) if self.by_vrf => write!(f, " lookup [l3mdev-table]")?,
            RuleVerdict::Table(table) => write!(f, " lookup {}", table_name(table))?,
            RuleVerdict::Goto(priority) => write!(f, " goto {priority}")?,
            RuleVerdict::Nothing => write!(f, " nop")?,
            RuleVerdict::Refuses(how) => write!(f, " {how}")?,
        }
        if let Some(length) = self.suppress_length {
            write!(f, " suppress_prefixlength {length}")?;
        }
        if let Some(group) = self.suppress_group {
            write!(f, " suppress_ifgroup {group}")?;
        }
        Ok(())
    }
}

pub(super) fn read(message: &RuleMessage) -> RoutingRule {
    let header = &message.header;
    let (family, any): (_, IpAddr) = match header.family {
        AddressFamily::Inet => (Family::V4, Ipv4Addr::UNSPECIFIED.into()),
        _ => (Family::V6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let given = |length| (length > 0).then(|| IpNet::new(any, length).ok()).flatten();
    let mut rule = RoutingRule {
        family,
        priority: 0,
        inverted: header.flags.contains(RuleFlags::Invert),
        source: given(header.src_len),
        destination: given(header.dst_len),
        mark: (0, 0),
        input: None,
        output: None,
        users: None,
        protocol: None,
        source_ports: None,
        destination_ports: None,
        tos: header.tos,
        of_tunnel: false,
        by_vrf: false,
        suppress_length: None,
        suppress_group: None,
        verdict: match header.action {
            RuleAction::ToTable => RuleVerdict::Table(header.table.into()),
            RuleAction::Blackhole => RuleVerdict::Refuses("blackhole"),
            RuleAction::Unreachable => RuleVerdict::Refuses("unreachable"),
            RuleAction::Prohibit => RuleVerdict::Refuses("prohibit"),
            _ => RuleVerdict::Nothing,
        },
        made_by: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) if matches!(rule.verdict, RuleVerdict::Table(_)) => {
                rule.verdict = RuleVerdict::Table(*table);
            }
            RuleAttribute::Goto(priority) if header.action == RuleAction::Goto => {
                rule.verdict = RuleVerdict::Goto(*priority);
            }
            RuleAttribute::FwMark(mark) => rule.mark.0 = *mark,
            RuleAttribute::FwMask(mask) => rule.mark.1 = *mask,
            RuleAttribute::Iifname(name) => rule.input = Some(name.clone()),
            RuleAttribute::Oifname(name) => rule.output = Some(name.clone()),
            RuleAttribute::Source(net) => rule.source = IpNet::new(*net, header.src_len).ok(),
            RuleAttribute::Destination(net) => rule.destination = IpNet::new(*net, header.dst_len).ok(),
            RuleAttribute::UidRange(users) => rule.users = Some((users.start, users.end)),
            RuleAttribute::IpProtocol(protocol) => rule.protocol = u8::try_from(i32::from(*protocol)).ok(),
            RuleAttribute::SourcePortRange(ports) => rule.source_ports = Some((ports.start, ports.end)),
            RuleAttribute::DestinationPortRange(ports) => rule.destination_ports = Some((ports.start, ports.end)),
            RuleAttribute::TunId(number) => rule.of_tunnel = *number != 0,
            RuleAttribute::L3MDev(by_vrf) => rule.by_vrf = *by_vrf,
            RuleAttribute::SuppressPrefixLen(length) if *length != u32::MAX => rule.suppress_length = Some(*length),
            RuleAttribute::SuppressIfGroup(group) if *group != u32::MAX => rule.suppress_group = Some(*group),
            RuleAttribute::Protocol(protocol) => rule.made_by = u8::from(*protocol),
            _ => {}
        }
    }
    rule
}
