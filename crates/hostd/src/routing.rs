//! The rules and routes of a daemon in the kernel: what it should have, what it has, and what follows from its reports.
//!
//! All that carries our protocol number in a daemon's [`Domain`] is the daemon's, whichever program made it; nothing else is
//! touched. The kernel reports each change with its content. A report contains nothing new if it is of what is wanted, or of
//! the removal of something that is not: then it is the echo of what the daemon itself has done. Who asked for the change
//! does not matter, as others may use our number.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use ipnet::IpNet;
use sidestep_linux::{
    LinuxError,
    netlink::{MAIN_TABLE, Netlink, PresentRoute, Route, RouteRule, RoutingChange, Rule},
};

/// The place of a route: its table and destination. A daemon has one route at each.
pub type RouteKey = (u32, IpNet);

/// Routes by their places.
pub type Routes = BTreeMap<RouteKey, Route>;

/// Where the rules and routes of a daemon are.
#[derive(Clone, Debug)]
pub struct Domain {
    tables: RangeInclusive<u32>,
    /// `None` for a daemon without rules.
    priorities: Option<RangeInclusive<u32>>,
    has: fn(IpNet) -> bool,
}

impl Domain {
    /// All routes in tables of the daemon's own, and the rules of these priorities that lead there.
    pub fn tables(tables: RangeInclusive<u32>, priorities: RangeInclusive<u32>) -> Self {
        Domain { tables, priorities: Some(priorities), has: |_| true }
    }

    /// The routes of the main table to destinations that only this daemon has routes to; no rules.
    pub fn within_main(has: fn(IpNet) -> bool) -> Self {
        Domain { tables: MAIN_TABLE..=MAIN_TABLE, priorities: None, has }
    }

    fn has_route(&self, table: u32, destination: IpNet) -> bool {
        self.tables.contains(&table) && (self.has)(destination)
    }

    fn has_rule(&self, rule: &Rule) -> bool {
        self.priorities.as_ref().is_some_and(|priorities| priorities.contains(&rule.priority))
            && self.tables.contains(&rule.table)
            && rule.is_ours(*self.tables.start())
    }

    /// The routes of ours that are there, by whichever daemon.
    async fn present(&self, netlink: &Netlink) -> Result<Vec<PresentRoute>, LinuxError> {
        let mut present = netlink.present_routes().await?;
        present.retain(|route| self.has_route(route.table(), route.destination()));
        Ok(present)
    }

    /// The places of routes of ours that are there, by whichever daemon.
    pub async fn keys(&self, netlink: &Netlink) -> Result<BTreeSet<RouteKey>, LinuxError> {
        Ok(self.present(netlink).await?.iter().map(key).collect())
    }

    /// Removes all rules and routes of ours, by whichever daemon; returns how many there were.
    pub async fn clear(&self, netlink: &Netlink) -> Result<usize, LinuxError> {
        let rules = netlink.rules().await?.iter().filter(|rule| self.has_rule(rule)).count();
        self.delete_rules_but(netlink, |_| false).await?;
        let present = self.present(netlink).await?;
        for route in &present {
            netlink.delete_route(route.table(), route.destination()).await?;
        }
        Ok(rules + present.len())
    }

    async fn delete_rules_but(&self, netlink: &Netlink, keep: impl Fn(&Rule) -> bool) -> Result<(), LinuxError> {
        for priority in self.priorities.iter().cloned().flatten() {
            netlink.delete_rules_but(self.tables.clone(), priority, &keep).await?;
        }
        Ok(())
    }
}

/// How the kernel differs from what it should have, and did not before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Rules that are gone.
    pub rules: usize,
    /// Routes that are gone, or lead elsewhere.
    pub routes: usize,
    /// Rules and routes under our protocol number that are not wanted.
    pub surplus: usize,
}

impl Drift {
    /// Whether anything has to be put back or removed.
    pub fn is_any(self) -> bool {
        self.lost() + self.surplus > 0
    }

    /// How many rules and routes have to be put back.
    pub fn lost(self) -> usize {
        self.rules + self.routes
    }

    /// Logs what others have done.
    pub fn log(self) {
        if self.lost() > 0 {
            tracing::warn!(
                rules = self.rules,
                routes = self.routes,
                "another program removed rules or routes of ours, which are put back; if it was systemd-networkd, set \
                 ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in networkd.conf"
            );
        }
        if self.surplus > 0 {
            tracing::warn!(
                surplus = self.surplus,
                "another program added rules or routes under our protocol number, which are removed"
            );
        }
    }
}

/// A route that the kernel does not take.
#[derive(Debug)]
pub struct Refusal {
    /// The route's place.
    pub key: RouteKey,
    /// The kernel's reason.
    pub error: LinuxError,
}

/// The rules and routes that a daemon wants in its domain, and which of them the kernel lacks.
#[derive(Debug)]
pub struct KernelRouting {
    domain: Domain,
    rules: BTreeSet<RouteRule>,
    routes: Routes,
    /// Of `rules`, those that the kernel may not have.
    absent_rules: BTreeSet<RouteRule>,
    /// Of `routes`, those that the kernel may not have as they should be.
    absent_routes: BTreeSet<RouteKey>,
    /// How often in a row a route was found otherwise than it was made.
    unsettled: BTreeMap<RouteKey, u32>,
    /// Routes of an earlier daemon, until it is known whether they are wanted.
    inherited: BTreeSet<RouteKey>,
}

/// How often in a row a route is put back upon a report. One that the kernel always shows otherwise, or that another daemon
/// wants otherwise, must not keep both busy: from then on it is put back with the comparisons that come anyway.
const MAX_AT_ONCE: u32 = 16;

impl KernelRouting {
    /// Nothing is wanted yet.
    pub fn new(domain: Domain) -> Self {
        KernelRouting {
            domain,
            rules: BTreeSet::new(),
            routes: Routes::new(),
            absent_rules: BTreeSet::new(),
            absent_routes: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            inherited: BTreeSet::new(),
        }
    }

    /// Whether a route there is the daemon's own.
    pub fn owns(&self, table: u32, destination: IpNet) -> bool {
        self.domain.has_route(table, destination)
    }

    /// Whether a change in the kernel is one after which rules or routes of the domain may not be as they should, or a rule of
    /// others may come before ours.
    pub fn concerns(&self, change: &RoutingChange) -> bool {
        match change {
            RoutingChange::Unknown => true,
            RoutingChange::Rule { .. } if self.domain.priorities.is_none() => false,
            RoutingChange::Rule { rule, added } => {
                let is_wanted = self.rules.iter().any(|wanted| rule.is(wanted));
                if *added { !is_wanted } else { is_wanted || !self.domain.has_rule(rule) }
            }
            RoutingChange::Route { route, added } => match self.routes.get(&key(route)) {
                Some(wanted) => !(*added && (route.is(wanted) || self.is_disputed(route))),
                None => *added && self.is_surplus(route),
            },
        }
    }

    fn is_disputed(&self, route: &PresentRoute) -> bool {
        route.is_ours() && self.unsettled.get(&key(route)).is_some_and(|times| *times >= MAX_AT_ONCE)
    }

    /// Whether a route is ours and there is no reason for it; at a place of a wanted route only that is looked at.
    fn is_surplus(&self, route: &PresentRoute) -> bool {
        self.domain.has_route(route.table(), route.destination())
            && route.is_ours()
            && self.routes.get(&key(route)).is_none_or(|wanted| !route.is(wanted))
            && !self.inherited.contains(&key(route))
    }

    /// Notes what the kernel lacks; returns what is new about it.
    pub async fn compare(&mut self, netlink: &Netlink) -> Result<Drift, LinuxError> {
        let mut drift = Drift::default();
        if self.domain.priorities.is_some() {
            let there = netlink.rules().await?;
            let mut absent = self.rules.clone();
            absent.retain(|wanted| !there.iter().any(|rule| rule.is(wanted)));
            drift.rules = absent.difference(&self.absent_rules).count();
            self.absent_rules = absent;
            let is_wanted = |rule: &Rule| self.rules.iter().any(|wanted| rule.is(wanted));
            drift.surplus = there.iter().filter(|rule| self.domain.has_rule(rule) && !is_wanted(rule)).count();
        }
        let present = self.domain.present(netlink).await?;
        let mut absent: BTreeSet<_> = self.routes.keys().copied().collect();
        for route in &present {
            if self.routes.get(&key(route)).is_some_and(|wanted| route.is(wanted)) {
                absent.remove(&key(route));
            }
        }
        self.unsettled.retain(|key, _| absent.contains(key));
        for key in absent.difference(&self.absent_routes) {
            drift.routes += 1;
            *self.unsettled.entry(*key).or_default() += 1;
        }
        self.absent_routes = absent;
        drift.surplus += self.surplus(&present).count();
        Ok(drift)
    }

    /// Those of these routes that must be removed. In the place of an absent one, what is there is about to be replaced.
    fn surplus<'a>(&'a self, present: &'a [PresentRoute]) -> impl Iterator<Item = &'a PresentRoute> {
        present.iter().filter(|route| self.is_surplus(route) && !self.absent_routes.contains(&key(route)))
    }

    /// Adds the wanted rules that the kernel lacks.
    pub async fn install_rules(
        &mut self,
        netlink: &Netlink,
        wanted: impl IntoIterator<Item = RouteRule>,
    ) -> Result<(), LinuxError> {
        for rule in wanted {
            if self.rules.insert(rule.clone()) || self.absent_rules.contains(&rule) {
                self.absent_rules.insert(rule.clone());
                netlink.add_route_rule(&rule).await?;
                self.absent_rules.remove(&rule);
            }
        }
        Ok(())
    }

    /// Adds wanted routes that the kernel lacks, each in the place of its like in one step. It ends with the first that the
    /// kernel refuses, which is not wanted any more then.
    pub async fn install_routes(&mut self, netlink: &Netlink, wanted: &Routes) -> Result<(), Refusal> {
        for (key, route) in wanted {
            if self.routes.get(key) == Some(route) && !self.absent_routes.contains(key) {
                continue;
            }
            // What is there after an error is not known.
            self.routes.insert(*key, route.clone());
            self.absent_routes.insert(*key);
            if let Err(error) = netlink.add_route(route).await {
                self.routes.remove(key);
                self.absent_routes.remove(key);
                return Err(Refusal { key: *key, error });
            }
            self.absent_routes.remove(key);
        }
        Ok(())
    }

    /// Wants these routes, which the kernel may have: [`compare`](Self::compare) finds out.
    pub fn expect_routes(&mut self, wanted: impl IntoIterator<Item = Route>) {
        for route in wanted {
            let key = (route.table, route.destination);
            if self.routes.get(&key) != Some(&route) {
                self.routes.insert(key, route);
                self.absent_routes.insert(key);
            }
        }
    }

    /// Removes all rules and routes of the domain but those that were installed and these keep, and inherited routes.
    pub async fn prune(
        &mut self,
        netlink: &Netlink,
        keep_rule: impl Fn(&RouteRule) -> bool,
        keep_route: impl Fn(&RouteKey) -> bool,
    ) -> Result<(), LinuxError> {
        self.rules.retain(|rule| keep_rule(rule));
        self.absent_rules.retain(|rule| keep_rule(rule));
        self.routes.retain(|key, _| keep_route(key));
        self.absent_routes.retain(|key| keep_route(key));
        self.domain.delete_rules_but(netlink, |rule| self.rules.iter().any(|wanted| rule.is(wanted))).await?;
        let present = self.domain.present(netlink).await?;
        let is_there: BTreeSet<_> = present
            .iter()
            .filter(|route| self.routes.get(&key(route)).is_some_and(|wanted| route.is(wanted)))
            .map(key)
            .collect();
        // In the place of a wanted route another may be that the kernel shows otherwise than it was made: the last one stays.
        let is_last = |route: &PresentRoute| self.routes.contains_key(&key(route)) && !is_there.contains(&key(route));
        for route in self.surplus(&present).filter(|route| !is_last(route)) {
            if self.routes.contains_key(&key(route)) {
                netlink.delete_present(route).await?;
            } else {
                netlink.delete_route(route.table(), route.destination()).await?;
            }
        }
        Ok(())
    }

    /// Notes that the kernel may have none of the routes, as when it has removed them with an interface.
    pub fn forget_routes(&mut self) {
        self.absent_routes = self.routes.keys().copied().collect();
    }

    /// Takes over the routes of an earlier daemon, and those of these rules that it left.
    pub async fn inherit(
        &mut self,
        netlink: &Netlink,
        rules: impl IntoIterator<Item = RouteRule>,
    ) -> Result<(), LinuxError> {
        let there = netlink.rules().await?;
        self.rules.extend(rules.into_iter().filter(|one| there.iter().any(|rule| rule.is(one))));
        self.inherited = self.domain.keys(netlink).await?;
        Ok(())
    }

    /// Whether an earlier daemon has left routes.
    pub fn has_inherited(&self) -> bool {
        !self.inherited.is_empty()
    }

    /// Forgets that these routes were inherited: they go unless they are wanted.
    pub fn disinherit(&mut self, is_decided: impl Fn(&RouteKey) -> bool) {
        self.inherited.retain(|key| !is_decided(key));
    }
}

fn key(route: &PresentRoute) -> RouteKey {
    (route.table(), route.destination())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sidestep_linux::{
        netlink::{Family, LOCAL, MarkRule, NextHop, RoutingWatch, Target, block_on},
        netns::NetNs,
        testing::{ip, root_or_skip},
    };
    use tokio::time::timeout;

    use super::*;

    const TABLE: u32 = 8301;

    #[test]
    fn what_others_do_under_our_number_concerns_the_daemon_and_the_echo_of_what_it_does_itself_does_not() {
        if !root_or_skip("reports of rules and routes") {
            return;
        }
        let node = NetNs::create().unwrap();
        for command in ["link add name eth type veth peer name far", "link set eth up", "link set far up"] {
            ip(&node, command);
        }
        let run = |command: &str| drop(ip(&node, command));
        let inside = || {
            block_on(async |netlink| {
                assert_concerns(netlink, run).await;
                Ok(())
            })
        };
        node.run(inside).unwrap();
    }

    async fn assert_concerns(netlink: &Netlink, run: impl Fn(&str)) {
        let interface = netlink.index_of("eth").await.unwrap();
        let hop = |via: &str| NextHop { via: Some(via.parse().unwrap()), interface };
        let route = |net: &str, target| Route { table: TABLE, destination: net.parse().unwrap(), target, mtu: None };
        let routes = |via: &str| -> Routes {
            let all = [route("fd00:1::/64", Target::Via(vec![hop(via)])), route("fd00:2::/64", Target::Throw)];
            all.into_iter().map(|route| ((route.table, route.destination), route)).collect()
        };
        let rule =
            MarkRule { family: Family::V6, mark: 0x100, mask: 0xff00, table: TABLE, priority: 830 }.for_input(LOCAL);
        let mut routing = KernelRouting::new(Domain::tables(TABLE..=8302, 830..=830));
        let mut watch = RoutingWatch::open().unwrap();
        let wait = Duration::from_millis(200);
        // A route that throws is removed first, and its removal is reported: that alone is compared.
        let is_echo = async |watch: &mut RoutingWatch, routing: &KernelRouting| {
            let concerns = |change: &RoutingChange| {
                !matches!(change, RoutingChange::Route { added: false, .. }) && routing.concerns(change)
            };
            timeout(wait, watch.changed(concerns)).await.is_err()
        };
        routing.install_rules(netlink, [rule.clone()]).await.unwrap();
        for via in ["fe80::2", "fe80::3"] {
            routing.install_routes(netlink, &routes(via)).await.unwrap();
        }
        assert!(!is_echo(&mut watch, &routing).await, "the route by fe80::2 is not wanted any more");
        assert!(is_echo(&mut watch, &routing).await);
        assert_eq!(routing.compare(netlink).await.unwrap(), Drift::default());

        for (command, (rules, lost, surplus)) in [
            ("-6 route del fd00:1::/64 table 8301", (0, 1, 0)),
            ("-6 route replace fd00:1::/64 via fe80::4 dev eth table 8301 proto 83", (0, 1, 0)),
            ("-6 route replace fd00:1::/64 via fe80::4 dev eth table 8301", (0, 1, 0)),
            ("-6 route add fd00:1::/64 via fe80::4 dev eth metric 5 table 8301 proto 83", (0, 0, 1)),
            ("-6 route add fd00:3::/64 via fe80::4 dev eth table 8302 proto 83", (0, 0, 1)),
            ("-6 rule del priority 830", (1, 0, 0)),
            ("-6 rule add fwmark 0x100/0xff00 iif lo lookup 8302 priority 830 protocol 83", (0, 0, 1)),
            ("-6 rule add fwmark 0x100/0xff00 iif lo ipproto tcp lookup 8301 priority 830 protocol 83", (0, 0, 1)),
        ] {
            run(command);
            timeout(wait * 10, watch.changed(|change| routing.concerns(change))).await.expect(command);
            let drift = routing.compare(netlink).await.unwrap();
            assert_eq!(drift, Drift { rules, routes: lost, surplus }, "{command}");
            routing.install_rules(netlink, [rule.clone()]).await.unwrap();
            routing.install_routes(netlink, &routes("fe80::3")).await.unwrap();
            routing.prune(netlink, |_| true, |_| true).await.unwrap();
            assert_eq!(routing.compare(netlink).await.unwrap(), Drift::default(), "after {command}");
            assert_eq!(netlink.rules().await.unwrap().iter().filter(|rule| rule.priority == 830).count(), 1);
            assert_eq!(netlink.present_routes().await.unwrap().len(), 2, "after {command}");
            while timeout(wait, watch.changed(|_| true)).await.is_ok() {}
        }
        // What others do elsewhere, or under another number, is theirs.
        for command in [
            "-6 route add fd00:9::/64 via fe80::4 dev eth table 8301",
            "-6 route add fd00:9::/64 via fe80::4 dev eth table 8303 proto 83",
        ] {
            run(command);
            assert!(timeout(wait, watch.changed(|change| routing.concerns(change))).await.is_err(), "{command}");
        }
        routing.prune(netlink, |_| false, |_| false).await.unwrap();
        assert!(netlink.rules().await.unwrap().iter().all(|rule| rule.priority != 830));
        let left = netlink.present_routes().await.unwrap();
        assert_eq!(left.iter().map(PresentRoute::table).collect::<Vec<_>>(), [8303]);
    }
}
