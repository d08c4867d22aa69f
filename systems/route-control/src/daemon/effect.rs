//! Whether packets of the site, and probes, leave by the egresses that were decided for them.

use ipnet::IpNet;
use sidestep_hostd::{
    AgentError,
    effect::{Led, OPTION, Watched, led, subnets},
    paths::tables,
};
use sidestep_linux::{
    effect::Checker,
    marks::{Hook, MarkUses},
    netlink::{InterfaceAddress, Netlink, RoutingRule},
};

use sidestep_net::Ratio;

use super::{Moves, RouteControl, RouteControlConfig, kernel::Numbers};

/// Most interfaces of the site that are asked about.
const MAX_INPUTS: usize = 8;

impl RouteControl {
    /// Asks the kernel whether packets leave as decided.
    pub(super) async fn check_effect(&mut self) -> Result<(), AgentError> {
        if self.options.dry_run || !self.tenure.is_at_work() {
            return Ok(());
        }
        let (config, numbers, netlink) = (&self.options.config, self.numbers(), &self.netlink);
        let all = async |checker: &Checker<'_>| View { config, numbers, netlink }.watched(checker).await;
        self.others.effects.look(netlink, all, OPTION).await
    }

    /// Reads which rules of others restore marks of probes, and of flows if these are kept on their egress.
    pub(super) fn read_firewall(&mut self) {
        let consequence = "probes, and flows that are kept on an egress or spread to it, may leave by another one";
        let config = &self.options.config;
        let keeps = config.route_control.moves != Moves::Aggregate || config.control.load > Ratio::ZERO;
        let hooks: &[Hook] = if keeps { &[Hook::Prerouting, Hook::Rerouted] } else { &[Hook::Rerouted] };
        let mask = self.numbers().mask;
        self.others.firewall.read(&mut MarkUses::default(), mask, hooks, consequence);
    }
}

/// What packets with a mark or a source of an egress are called.
pub(super) fn probes_of(egress: &str) -> String {
    format!("probes of {egress}")
}

struct View<'a> {
    config: &'a RouteControlConfig,
    numbers: Numbers,
    netlink: &'a Netlink,
}

impl View<'_> {
    async fn watched(&self, checker: &Checker<'_>) -> Result<Vec<Watched>, AgentError> {
        let (tables, policy) = (tables(self.numbers.base), checker.policy());
        let routes = self.netlink.own_routes_found().await?;
        let routes: Vec<_> = routes.into_iter().filter(|route| tables.contains(&route.table)).collect();
        let addresses = self.netlink.addresses().await?;
        let priorities = self.numbers.priority..=self.numbers.priority.saturating_add(2);
        let is_egress = |name: &str| self.config.egresses.iter().any(|egress| egress.dev == name);
        let has_address = |index: u32| addresses.iter().any(|one| one.interface == index);
        let inputs = policy.links.iter().filter(|(index, link)| {
            link.up && link.ethernet && link.vrf.is_none() && has_address(**index) && !is_egress(&link.name)
        });
        let inputs: Vec<u32> = inputs.map(|(index, _)| *index).take(MAX_INPUTS).collect();
        let mut watched = Vec::new();
        for led in led(&policy.rules, &routes, |rule: &RoutingRule| priorities.contains(&rule.priority)) {
            self.watch(&led, checker, &inputs, &addresses, &mut watched);
        }
        Ok(watched)
    }

    /// The packets that one rule is for, by one route of its table.
    fn watch(
        &self,
        led: &Led<'_>,
        checker: &Checker<'_>,
        inputs: &[u32],
        addresses: &[InterfaceAddress],
        watched: &mut Vec<Watched>,
    ) {
        let egress = (0..self.config.egresses.len()).find(|egress| self.numbers.table(*egress) == led.route.table);
        let of = egress.and_then(|egress| self.config.egresses.get(egress));
        let destination = led.route.destination;
        let is_target = self.config.targets.iter().any(|target| IpNet::from(target.address) == destination);
        let mut forwarded = |what: String, sources: &dyn Fn(u32) -> Vec<IpNet>| {
            for input in inputs {
                let expected = sidestep_linux::effect::Expected {
                    input: Some(*input),
                    sources: sources(*input),
                    ..led.expected()
                };
                watched.push(Watched { what: what.clone(), expected });
            }
        };
        match (of, led.rule.source, led.rule.mark.1) {
            (Some(of), None, mask) if mask != 0 && is_target => {
                let output = checker.policy().index(&of.dev);
                let expected = sidestep_linux::effect::Expected { output, ..led.expected() };
                watched.push(Watched { what: probes_of(&of.name), expected });
            }
            (Some(of), None, mask) if mask != 0 && self.config.route_control.moves != Moves::Aggregate => {
                forwarded(format!("flows kept on {}, to {destination}", of.name), &|input| {
                    subnets(addresses, input, led.rule.family)
                });
            }
            (Some(_), Some(source), _) if !is_target => {
                forwarded(format!("{source} to {destination}"), &|_| vec![source])
            }
            (None, None, 0) if led.route.table == self.numbers.decision() => {
                forwarded(format!("the site to {destination}"), &|input| subnets(addresses, input, led.rule.family));
                watched
                    .push(Watched { what: format!("this router itself to {destination}"), expected: led.expected() });
            }
            _ => {}
        }
    }
}
