//! The packets that the kernel is asked about: one of each kind that a rule or a route of others may single out.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use super::{BY_KERNEL, Checker, Expected, LOCAL_TABLE, MAX_ROUTES};
use crate::{
    error::Result,
    netlink::{Flow, LOCAL, MAIN_TABLE, RoutingRule, RuleVerdict},
};

/// Which of the packets that a rule of ours is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All, as far as was asked.
    All,
    /// Those from here.
    From(IpNet),
    /// Those to there.
    To(IpNet),
    /// Those that a rule singles out by other things: users, protocols, ports.
    Selected(String),
}

/// Most sources that are asked about one by one.
const MAX_SOURCES: usize = 8;
/// Addresses that stand for all of the Internet.
const ANYWHERE: [&str; 6] = ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "2001:4860::1", "2a00::1"];
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Any port that no program owns.
const SOME_PORT: u16 = 40_000;

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::All => Ok(()),
            Part::From(net) if net.prefix_len() == net.max_prefix_len() => write!(f, "from {}", net.addr()),
            Part::From(net) => write!(f, "from {net}"),
            Part::To(net) => write!(f, "to {net}"),
            Part::Selected(by) => f.write_str(by),
        }
    }
}

impl Checker<'_> {
    /// Packets without anything special: one whose source the kernel is to choose, and one from each source.
    pub(super) fn first_flows(&self, expected: &Expected) -> Vec<(Part, Flow)> {
        let Some(destination) = expected.sample(expected.destination) else { return Vec::new() };
        let flow = expected.flow(destination);
        let sources = expected.sources.iter().filter_map(|net| Some((*net, self.source_in(expected, *net)?)));
        let of_source = |(net, source)| (Part::From(net), Flow { source: Some(source), ..flow.clone() });
        let mut flows: Vec<_> = sources.take(MAX_SOURCES).map(of_source).collect();
        if expected.input.is_none() {
            flows.insert(0, (Part::All, flow.clone()));
        } else if flows.is_empty() && expected.destination.addr().is_ipv6() {
            // Of IPv4 the kernel wants to know a source.
            flows.push((Part::All, flow));
        }
        flows
    }

    /// Packets that a rule before ours, or a route of others, may single out.
    pub(super) async fn witnesses(&mut self, expected: &Expected) -> Result<Vec<(Part, Flow)>> {
        let ahead: Vec<_> = self.ahead(expected).cloned().collect();
        let mut flows = Vec::new();
        let mut tables = vec![(expected.table, None)];
        for rule in &ahead {
            let Some((part, flow)) = self.witness(expected, rule) else { continue };
            flows.extend((part != Part::All).then(|| (part, flow.clone())));
            if let RuleVerdict::Table(table) = rule.verdict
                && !rule.by_vrf
                // Routes of the main table within a destination are left alone as they are.
                && table != MAIN_TABLE
            {
                tables.push((table, Some(flow)));
            }
        }
        for (table, flow) in tables {
            let Some(base) = flow.or_else(|| Some(self.first_flows(expected).into_iter().next()?.1)) else { continue };
            let is_inner = |net: &IpNet| {
                expected.destination.contains(net)
                    && *net != expected.destination.trunc()
                    && !expected.except.iter().any(|except| except.contains(net))
            };
            let routes = self.routes(table).await?.iter().filter(|route| {
                let by_itself = table == LOCAL_TABLE && route.made_by == BY_KERNEL;
                route.kind != "throw" && !route.is_ours() && !by_itself && is_inner(&route.destination)
            });
            let mut inner: Vec<_> = routes.map(|route| route.destination).collect();
            inner.sort_by_key(IpNet::prefix_len);
            for net in inner.into_iter().take(MAX_ROUTES) {
                let Some(destination) = expected.sample(net) else { continue };
                flows.push((Part::To(net), Flow { destination, ..base.clone() }));
            }
        }
        Ok(flows)
    }

    /// A packet that our rule is for and that another rule may match, too.
    fn witness(&self, expected: &Expected, rule: &RoutingRule) -> Option<(Part, Flow)> {
        let (_, base) = self.first_flows(expected).into_iter().next()?;
        if rule.inverted || (rule.mark.0 ^ expected.mark) & rule.mark.1 != 0 || rule.tos != 0 || rule.of_tunnel {
            return (rule.inverted).then_some((Part::All, base));
        }
        let names = |index: Option<u32>| index.map(|index| self.policy.name(index));
        let comes_by = names(expected.input).unwrap_or_else(|| LOCAL.into());
        if rule.input.as_ref().is_some_and(|name| *name != comes_by)
            || rule.output.is_some() && rule.output != names(expected.output)
        {
            return None;
        }
        let (mut part, mut flow, mut selected) = (Part::All, base, Vec::new());
        if let Some(net) = rule.destination {
            let inner = intersection(net, expected.destination)?;
            flow.destination = expected.sample(inner)?;
            if inner != expected.destination.trunc() {
                part = Part::To(inner);
            }
        }
        if let Some(net) = rule.source {
            let inner = expected.sources.iter().find_map(|source| intersection(net, *source));
            flow.source = Some(self.source_in(expected, inner?)?);
            part = Part::From(net);
        }
        if let Some((first, last)) = rule.users {
            match expected.input {
                // What is forwarded is the kernel's own: the superuser's.
                Some(_) if first > 0 => return None,
                Some(_) => {}
                None => flow.user = Some(first),
            }
            selected.push(format!("of the users {first} to {last}"));
        }
        if let Some(protocol) = rule.protocol {
            if expected.protocol != 0 && expected.protocol != protocol {
                return None;
            }
            flow.protocol = protocol;
            selected.push(format!("of protocol {protocol}"));
        }
        if rule.source_ports.is_some() || rule.destination_ports.is_some() {
            if ![0, TCP, UDP].contains(&flow.protocol) {
                return None;
            }
            flow.protocol = if flow.protocol == 0 { TCP } else { flow.protocol };
            let first = |ports: Option<(u16, u16)>| ports.map_or(SOME_PORT, |ports| ports.0);
            flow.ports = Some((first(rule.source_ports), first(rule.destination_ports)));
            selected.push(match rule.destination_ports.or(rule.source_ports) {
                Some((first, last)) => format!("of the ports {first} to {last}"),
                None => String::new(),
            });
        }
        if !selected.is_empty() {
            let of = if part == Part::All { String::new() } else { format!("{part} ") };
            part = Part::Selected(of + &selected.join(" "));
        }
        Some((part, flow))
    }

    /// An address from which such packets can come.
    fn source_in(&self, expected: &Expected, net: IpNet) -> Option<IpAddr> {
        match expected.input {
            None => Some(net.addr()),
            // The kernel takes no packet for forwarding that comes from an address of its own.
            Some(_) => samples(net).find(|address| !self.own.contains(address)),
        }
    }
}

impl Expected {
    fn flow(&self, destination: IpAddr) -> Flow {
        Flow {
            destination,
            source: None,
            mark: self.mark,
            input: self.input,
            output: self.output,
            user: self.input.is_none().then_some(0),
            protocol: self.protocol,
            ports: None,
        }
    }

    /// An address in a part of the destinations, of which something is expected.
    fn sample(&self, part: IpNet) -> Option<IpAddr> {
        let of_all = |address: &IpAddr| part.contains(address) && self.destination.contains(address);
        let wide = ANYWHERE.iter().filter_map(|address| address.parse().ok()).filter(of_all);
        let wide: Vec<_> = if part.prefix_len() < 8 { wide.collect() } else { Vec::new() };
        let is_expected = |address: &IpAddr| !self.except.iter().any(|net| net.contains(address));
        wide.into_iter().chain(samples(part)).find(is_expected)
    }
}

/// Some addresses of a prefix: near its beginning, its middle and its end.
fn samples(net: IpNet) -> impl Iterator<Item = IpAddr> {
    let quarters = net.subnets((net.prefix_len() + 2).min(net.max_prefix_len())).into_iter().flatten().take(4);
    let some = |net: IpNet| {
        // The first may be an anycast address of routers.
        net.hosts().skip(usize::from(net.prefix_len() + 2 <= net.max_prefix_len())).take(3)
    };
    some(net).chain(quarters.flat_map(some))
}

/// What two prefixes have in common: the longer one, if the other contains it.
fn intersection(one: IpNet, other: IpNet) -> Option<IpNet> {
    let (wide, narrow) = if one.prefix_len() <= other.prefix_len() { (one, other) } else { (other, one) };
    wide.contains(&narrow.trunc()).then(|| narrow.trunc())
}
