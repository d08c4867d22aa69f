//! Whether packets that the balancer has marked, and probes, leave by the paths of their marks.

use std::collections::BTreeMap;

use ipnet::IpNet;
use sidestep_hostd::{
    AgentError,
    effect::{OPTION, Watched, led, path_of, subnets},
    paths::{Slots, tables},
};
use sidestep_linux::{
    effect::Checker,
    marks::{Hook, MarkUses},
    netlink::{LOCAL, Netlink, RoutingRule},
};

use super::{Edge, path_routing::Numbers};

impl Edge {
    /// Asks the kernel whether marked packets leave by their paths.
    pub(super) async fn check_effect(&mut self) -> Result<(), AgentError> {
        if self.options.dry_run {
            return Ok(());
        }
        let view = View {
            netlink: &self.netlink,
            numbers: self.routing.numbers,
            paths: Some((self.path_names(), self.routing.slots())),
        };
        self.others.effects.look(&self.netlink, async |checker: &Checker<'_>| view.watched(checker).await, OPTION).await
    }

    /// Reads which rules of others restore marks that the balancer or probes have set.
    pub(super) fn read_firewall(&mut self) {
        let consequence = "a flow goes on along its former path when that is dead";
        let probes = self.options.config.probing().is_some();
        let hooks: &[Hook] = if probes { &[Hook::Prerouting, Hook::Rerouted] } else { &[Hook::Prerouting] };
        self.others.firewall.read(&mut MarkUses::default(), self.routing.numbers.mask, hooks, consequence);
    }

    fn path_names(&self) -> PathNames {
        let sets = self.options.config.destinations.iter();
        let path = |set: &sidestep_hostd::paths::StaticDestination| {
            let ids = set.path_ids();
            let named = set.paths.iter().filter_map(|path| {
                Some(((set.prefix, ids.get(&path.key())?.get()), path.name.clone().unwrap_or_default()))
            });
            named.collect::<Vec<_>>()
        };
        sets.flat_map(path).collect()
    }
}

/// By destination and number.
type PathNames = BTreeMap<(IpNet, u32), String>;

struct View<'a> {
    netlink: &'a Netlink,
    numbers: Numbers,
    /// The names of paths, and their slots; `None` where one route has all of them.
    paths: Option<(PathNames, &'a Slots)>,
}

impl View<'_> {
    async fn watched(&self, checker: &Checker<'_>) -> Result<Vec<Watched>, AgentError> {
        let (tables, policy) = (tables(self.numbers.table_base), checker.policy());
        let routes = self.netlink.own_routes_found().await?;
        let routes: Vec<_> = routes.into_iter().filter(|route| tables.contains(&route.table)).collect();
        let addresses = self.netlink.addresses().await?;
        let of_ours = |rule: &RoutingRule| {
            rule.priority == self.numbers.priority && rule.mark.1 == self.numbers.mask && rule.input.is_some()
        };
        let mut watched = Vec::new();
        for led in led(&policy.rules, &routes, of_ours) {
            let destination = led.route.destination;
            let mut expected = led.expected();
            let Some(what) = self.what(destination, led.route.table) else { continue };
            match led.rule.input.as_deref() {
                Some(LOCAL) => watched.push(Watched { what: format!("probes of {what}"), expected }),
                // An interface that is not there brings no packets.
                Some(input) => {
                    let Some(index) = policy.index(input) else { continue };
                    expected.sources = subnets(&addresses, index, led.rule.family);
                    expected.input = Some(index);
                    watched.push(Watched { what, expected });
                }
                None => {}
            }
        }
        Ok(watched)
    }

    /// What packets to a destination by one of our tables are called.
    fn what(&self, destination: IpNet, table: u32) -> Option<String> {
        let Some((names, slots)) = &self.paths else { return Some(format!("the site to {destination}")) };
        let is_its = |slot: &u32| self.numbers.table_base + slot == table;
        let (id, _) = slots.get(&destination)?.iter().find(|(_, slot)| is_its(slot))?;
        Some(path_of(names.get(&(destination, *id))?, destination))
    }
}

/// What is expected of packets that the kernel itself draws a path for.
pub(super) async fn offloaded(
    netlink: &Netlink,
    checker: &Checker<'_>,
    (table_base, priority): (u32, u32),
) -> Result<Vec<Watched>, AgentError> {
    let numbers = Numbers { table_base, priority, mask: 0 };
    View { netlink, numbers, paths: None }.watched(checker).await
}
