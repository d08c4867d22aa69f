//! Whether packets leave as rules and routes of ours require, by the kernel's own answers; and which rule or route of others
//! comes before ours where they do not.
//!
//! That a rule is there means little: one with a lower number decides first. So the kernel is asked about the packets that a
//! rule is for. Where its answer differs, its rules are evaluated as it does it, to name the one that is responsible.

mod witness;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use ipnet::IpNet;

pub use self::witness::Part;
use crate::{
    error::Result,
    netlink::{Answer, Flow, FoundRoute, Netlink, NextHop, Policy, RoutingRule, RuleVerdict, table_name},
};

/// Packets that a rule of ours is for, and where our table leads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Where they go.
    pub destination: IpNet,
    /// Prefixes within, of which nothing is expected.
    pub except: Vec<IpNet>,
    /// Where they come from: addresses of this host, or subnets behind it.
    pub sources: Vec<IpNet>,
    /// Their mark.
    pub mark: u32,
    /// The index of the interface by which they come in; `None` for packets of this host's sockets.
    pub input: Option<u32>,
    /// The index of the interface to which their sockets are bound.
    pub output: Option<u32>,
    /// The protocol above IP; zero: any.
    pub protocol: u8,
    /// Where they are to leave, by any of these.
    pub hops: Vec<NextHop>,
    /// Whether it has to be by our table: another one knows no header of segments.
    pub by_table_only: bool,
    /// Our table.
    pub table: u32,
    /// Our rule's priority.
    pub priority: u32,
}

/// Packets that do not leave as our rule requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Which of the packets.
    pub part: Part,
    /// The packet that the kernel was asked about.
    pub flow: Flow,
    /// What it answered.
    pub answer: Answer,
    /// The interface by which such packets leave, if they do.
    pub leaves_by: Option<String>,
    /// The rule that comes before ours; `None`: a route in our own table does it.
    pub rule: Option<RoutingRule>,
    /// The route by which they go, as `ip route` prints it.
    pub route: Option<String>,
    /// The route's table.
    pub table: Option<u32>,
    /// Our rule's priority.
    pub priority: u32,
}

/// Asks the kernel, by its rules and interfaces as they were when it was made.
pub struct Checker<'a> {
    netlink: &'a Netlink,
    policy: Policy,
    /// Addresses of this host.
    own: BTreeSet<IpAddr>,
    /// Tables that were read.
    tables: BTreeMap<u32, Vec<FoundRoute>>,
    asked: usize,
}

/// Most routes of a table that are looked at one by one.
const MAX_ROUTES: usize = 64;
/// The kernel's own local table, and the routing protocol of its entries.
const LOCAL_TABLE: u32 = 255;
const BY_KERNEL: u8 = 2;

impl<'a> Checker<'a> {
    /// Reads rules, interfaces and addresses.
    pub async fn new(netlink: &'a Netlink) -> Result<Self> {
        let own = netlink.addresses().await?.into_iter().map(|one| one.address.addr()).collect();
        Ok(Checker { netlink, policy: netlink.policy().await?, own, tables: BTreeMap::new(), asked: 0 })
    }

    /// The rules and interfaces that it goes by.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How many packets the kernel was asked about.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// The tables of others whose routes decide about such packets before ours do.
    pub fn tables_ahead(&self, expected: &Expected) -> BTreeSet<u32> {
        let table = |rule: &RoutingRule| match rule.verdict {
            RuleVerdict::Table(table) if !rule.by_vrf => Some(table),
            _ => None,
        };
        self.ahead(expected).filter_map(table).collect()
    }

    /// Whether packets leave as expected; else those that do not: all, if that is so, or a part.
    pub async fn check(&mut self, expected: &Expected) -> Result<Option<Override>> {
        let mut partial: Option<Override> = None;
        let mut all_sources = true;
        for (part, flow) in self.first_flows(expected) {
            match self.override_of(expected, &part, &flow).await? {
                Some(found) if found.part == Part::All => return Ok(Some(found)),
                Some(found) => {
                    all_sources &= matches!(found.part, Part::From(_));
                    partial = partial.or(Some(found));
                }
                None => all_sources = false,
            }
        }
        if let Some(found) = partial {
            let part = if all_sources { Part::All } else { found.part.clone() };
            return Ok(Some(Override { part, ..found }));
        }
        for (part, flow) in self.witnesses(expected).await? {
            if let Some(found) = self.override_of(expected, &part, &flow).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Asks about one packet.
    async fn override_of(&mut self, expected: &Expected, part: &Part, flow: &Flow) -> Result<Option<Override>> {
        self.asked += 1;
        let answer = self.netlink.look_up(flow).await?;
        if expected.is_met(&answer) {
            return Ok(None);
        }
        let Some((rule, route)) = self.responsible(expected, flow, &answer).await? else { return Ok(None) };
        let name = |index| self.policy.name(index);
        // What was asked about may stand for less than all.
        let of_rule = rule.as_ref().filter(|rule| !rule.inverted).and_then(|rule| rule.destination);
        let of_route = route.as_ref().map(|route| route.destination);
        let is_less = |net: &IpNet| expected.destination.contains(net) && *net != expected.destination.trunc();
        let narrowest = of_rule.into_iter().chain(of_route).filter(is_less).max_by_key(IpNet::prefix_len);
        let part = match part {
            Part::All => narrowest.map_or(Part::All, Part::To),
            part => part.clone(),
        };
        Ok(Some(Override {
            part,
            flow: flow.clone(),
            answer,
            leaves_by: answer.interface().map(name),
            rule,
            route: route.as_ref().map(|route| route.describe(name)),
            table: route.map(|route| route.table),
            priority: expected.priority,
        }))
    }

    /// The rule of others that decided before ours, and the route by which it did; no rule if it is a route in our table.
    ///
    /// `None` if nothing of others is to blame: our own table may have no route that can be used now.
    async fn responsible(
        &mut self,
        expected: &Expected,
        flow: &Flow,
        answer: &Answer,
    ) -> Result<Option<(Option<RoutingRule>, Option<FoundRoute>)>> {
        let refused = matches!(answer, Answer::Refused(_));
        let found = if refused { None } else { self.netlink.route_of(flow).await? };
        let met: Vec<_> = self.policy.met(flow).into_iter().cloned().collect();
        let (mut passed_ours, mut jump) = (false, None);
        for rule in met {
            let ours = expected.is_by(&rule);
            let route = match (rule.verdict, self.policy.table_of(&rule, flow)) {
                (RuleVerdict::Goto(_), _) if !passed_ours => {
                    jump = Some(rule);
                    continue;
                }
                (RuleVerdict::Refuses(_), _) if refused => None,
                (_, Some(table)) if refused => match self.refusing(table, &rule, flow).await? {
                    Some(route) => Some(route),
                    None => {
                        passed_ours |= ours;
                        continue;
                    }
                },
                (_, Some(table)) => {
                    let is_it = |route: &&FoundRoute| {
                        let by = answer.interface();
                        route.table == table && !self.policy.suppresses(&rule, route.destination.prefix_len(), by)
                    };
                    match found.as_ref().filter(is_it) {
                        Some(route) => Some(route.clone()),
                        None => {
                            passed_ours |= ours;
                            continue;
                        }
                    }
                }
                _ => continue,
            };
            return Ok(match route {
                _ if ours => route.filter(|route| !route.is_ours()).map(|route| (None, Some(route))),
                _ if passed_ours => None,
                // A rule behind ours decides, as one before jumped over ours.
                route if rule.priority > expected.priority => jump.map(|jump| (Some(jump), route)),
                route => Some((Some(rule), route)),
            });
        }
        Ok(None)
    }

    /// The route of a table that refuses a packet.
    async fn refusing(&mut self, table: u32, rule: &RoutingRule, flow: &Flow) -> Result<Option<FoundRoute>> {
        let covering = self.routes(table).await?.iter().filter(|route| route.destination.contains(&flow.destination));
        let best = covering.max_by_key(|route| (route.destination.prefix_len(), u32::MAX - route.metric)).cloned();
        let refuses = |route: &FoundRoute| {
            matches!(route.kind, "blackhole" | "unreachable" | "prohibit")
                && !self.policy.suppresses(rule, route.destination.prefix_len(), None)
        };
        Ok(best.filter(refuses))
    }

    /// The routes of a table, read once.
    async fn routes(&mut self, table: u32) -> Result<&[FoundRoute]> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.tables.entry(table) {
            place.insert(self.netlink.routes_in(table).await?);
        }
        Ok(self.tables.get(&table).map(Vec::as_slice).unwrap_or_default())
    }

    /// The rules that come before ours.
    fn ahead<'b>(&'b self, expected: &'b Expected) -> impl Iterator<Item = &'b RoutingRule> {
        let ours = self.policy.rules.iter().position(|rule| expected.is_by(rule)).unwrap_or(0);
        self.policy.rules.iter().take(ours).filter(|rule| rule.family == expected.family())
    }
}

impl Expected {
    fn family(&self) -> crate::netlink::Family {
        crate::netlink::Family::of(self.destination)
    }

    /// Whether this is our rule for them.
    fn is_by(&self, rule: &RoutingRule) -> bool {
        let table = RuleVerdict::Table(self.table);
        rule.is_ours()
            && (rule.family, rule.priority, rule.verdict) == (self.family(), self.priority, table)
            && (rule.mark.0 ^ self.mark) & rule.mark.1 == 0
    }

    /// Whether the kernel's answer is as expected.
    fn is_met(&self, answer: &Answer) -> bool {
        let Answer::Leaves { hop, table } = answer else { return false };
        let by_ours = *table == self.table;
        let leads = |wanted: &NextHop| {
            // Of IPv4 by a neighbour with an IPv6 address only the interface may be reported.
            hop.interface == wanted.interface && (hop.via == wanted.via || by_ours && hop.via.is_none())
        };
        (by_ours || !self.by_table_only) && self.hops.iter().any(leads)
    }
}

impl Override {
    /// Whether the rule was put ahead of ours by the kernel, since its maker named no priority.
    pub fn is_unnumbered(&self) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.priority < self.priority && self.priority - rule.priority <= 64)
    }

    /// What an operator can do about it; `option` is how our priority is set.
    pub fn advice(&self, option: &str) -> String {
        let table = self.table.map(table_name).unwrap_or_default();
        let Some(rule) = &self.rule else {
            return format!("table {table} is sidestep's own: delete that route, or have its maker use another table");
        };
        if let Part::To(net) = &self.part {
            return format!(
                "if packets to {net} are to go there, leave them alone by a destination of your own with `path = []`; else give \
                 ours a lower priority with {option}"
            );
        }
        if rule.maker() == Some("wg-quick") {
            return format!(
                "wg-quick names no priority, and the kernel then puts its rules before all others: stop this daemon, `wg-quick \
                 down` and `wg-quick up`, and start this daemon after it; or set `Table = off` and have PostUp add the rules with \
                 a priority greater than {}",
                self.priority
            );
        }
        if self.is_unnumbered() {
            return format!(
                "if its maker names no priority, the kernel puts it before all rules that are there: have it name one greater \
                 than {}, or start it before this daemon; or give ours one less than {} with {option}",
                self.priority, rule.priority
            );
        }
        if rule.priority == 0 {
            return "the kernel asks the rules of priority 0 first: remove that route, or put it in another table"
                .into();
        }
        format!(
            "give ours a priority less than {} with {option}, or that rule one greater than {}",
            rule.priority, self.priority
        )
    }
}

impl fmt::Display for Override {
    /// What happens, and why: to be put after "packets of …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part != Part::All {
            write!(f, "(those {}) ", self.part)?;
        }
        match &self.leaves_by {
            Some(name) => write!(f, "leave by {name}")?,
            None => write!(f, "{}", self.answer)?,
        }
        let place =
            |table: Option<u32>| table.map(|table| format!(" of table {}", table_name(table))).unwrap_or_default();
        match &self.rule {
            Some(rule) => {
                write!(f, ": the rule `{rule}`")?;
                if let Some(maker) = rule.maker() {
                    write!(f, ", such as {maker} makes,")?;
                } else if rule.is_ours() {
                    f.write_str(" of another daemon of sidestep")?;
                }
                write!(f, " comes before ours at {}", self.priority)?;
                match &self.route {
                    Some(route) => write!(f, ", and leads by the route `{route}`{}", place(self.table)),
                    None => Ok(()),
                }
            }
            None => {
                let route = self.route.as_deref().unwrap_or("?");
                write!(f, ": the route `{route}`{}, which is not ours, is preferred to ours", place(self.table))
            }
        }
    }
}
