//! Where programs at tc are not allowed: routes into the TUN devices, in a table of their own.
//!
//! The table has the routes of the main one: those out of a managed interface lead into its device, and for what these contain but
//! leads elsewhere the lookup goes on. Rules lead there what comes in by any interface, but not what this host sends itself, nor what
//! the process writes for an edge. The kernel removes a device's routes with the device: if the process ends, it forwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use ipnet::IpNet;
use sidestep_hostd::routing::{Domain, KernelRouting, Refusal, Routes};
use sidestep_linux::{
    LinuxError, Result,
    netlink::{
        Family, FoundRoute, Interface, MAIN_TABLE, Netlink, NextHop, Route, RouteRule, RoutingChange, RoutingWatch,
        Target,
    },
};

use super::PortEntry;

/// The table, and the priority of the rules: before the main table's, and after most others.
const TABLE: u32 = 8_583;
const PRIORITY: u32 = 32_085;

/// What the thread wants diverted, for whom sets routes.
#[derive(Clone, Debug, Default)]
pub struct PortEntries {
    ports: Arc<Mutex<BTreeMap<u32, PortEntry>>>,
    alarm: Arc<AtomicBool>,
}

impl PortEntries {
    /// Nothing yet; `alarm` is set when that changes.
    pub fn new(alarm: Arc<AtomicBool>) -> Self {
        PortEntries { ports: Arc::default(), alarm }
    }

    pub(super) fn set(&self, interface: u32, entry: Option<PortEntry>) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match entry {
            Some(entry) => ports.insert(interface, entry),
            None => ports.remove(&interface),
        };
        if before != entry {
            self.alarm.store(true, Ordering::Relaxed);
        }
    }

    fn get(&self) -> BTreeMap<u32, PortEntry> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The rules and routes of the calling thread's network namespace.
pub struct RouteTable {
    kernel: KernelRouting,
    entries: PortEntries,
    watch: RoutingWatch,
}

impl RouteTable {
    /// Ours, which nobody else may use; needs a Tokio runtime.
    pub async fn open(netlink: &Netlink, entries: PortEntries) -> Result<Self> {
        if let Some((table, destination)) = netlink.foreign_route(TABLE..=TABLE).await? {
            let by = format!("the routing table {table} holds a route to {destination} that is not of an INRPP router");
            return Err(LinuxError::InTheWay { what: "diverting by routes".into(), by });
        }
        Ok(RouteTable { kernel: KernelRouting::new(domain()), entries, watch: RoutingWatch::open()? })
    }

    /// Waits until rules or routes change, but for what this has changed itself.
    pub async fn changed(&mut self) {
        let kernel = &self.kernel;
        self.watch.changed(|change| kernel.concerns(change) || is_of_main(change)).await;
    }

    /// Makes rules and routes follow the ports, the interfaces and the main table.
    pub async fn follow(&mut self, netlink: &Netlink, interfaces: &[Interface]) -> Result<()> {
        let ports = self.entries.get();
        let rules = rules(interfaces, &ports);
        let routes = routes(&netlink.routes_in(MAIN_TABLE).await?, &ports);
        self.kernel.compare(netlink).await?;
        self.kernel.prune(netlink, |rule| rules.contains(rule), |key| routes.contains_key(key)).await?;
        // A device that goes at this moment takes its routes along: the next look finds that.
        let refused = |Refusal { error, .. }: Refusal| error;
        self.kernel.install_routes(netlink, &routes).await.map_err(refused)?;
        self.kernel.install_rules(netlink, rules).await
    }
}

/// Removes the rules and routes of this router, or of one before it; returns whether there were any.
pub async fn remove(netlink: &Netlink) -> Result<bool> {
    Ok(domain().clear(netlink).await? > 0)
}

fn domain() -> Domain {
    Domain::tables(TABLE..=TABLE, PRIORITY..=PRIORITY)
}

/// While a port is up, what comes in by an interface is looked up in the table, but for what the process writes for an edge.
fn rules(interfaces: &[Interface], ports: &BTreeMap<u32, PortEntry>) -> BTreeSet<RouteRule> {
    if !ports.values().any(|port| port.up) {
        return BTreeSet::new();
    }
    let is_of_edge = |index: u32| ports.values().any(|port| port.edge && port.tun == index);
    let inputs = interfaces.iter().filter(|interface| !interface.loopback && !is_of_edge(interface.index));
    let of = |interface: &Interface| {
        let input = Some(interface.name.clone());
        Family::ALL.map(|family| RouteRule {
            family,
            mark: None,
            source: None,
            input: input.clone(),
            table: TABLE,
            priority: PRIORITY,
        })
    };
    inputs.flat_map(of).collect()
}

/// The routes of our table, as the main table is.
fn routes(main: &[FoundRoute], ports: &BTreeMap<u32, PortEntry>) -> Routes {
    // Of several to a destination the kernel takes that of the lowest metric.
    let mut best: BTreeMap<IpNet, &FoundRoute> = BTreeMap::new();
    for route in main.iter().filter(|route| !is_of_link(route.destination)) {
        let known = best.entry(route.destination).or_insert(route);
        if route.metric < known.metric {
            *known = route;
        }
    }
    let diverted = |route: &FoundRoute| match &route.hops[..] {
        [NextHop { interface, .. }] if route.kind == UNICAST && !route.encapsulates => {
            ports.get(interface).filter(|port| port.up)
        }
        _ => None,
    };
    let ours: Vec<IpNet> =
        best.values().filter(|route| diverted(route).is_some()).map(|route| route.destination).collect();
    let target = |route: &FoundRoute| match diverted(route) {
        Some(port) => {
            let mtu = (!port.edge).then_some(port.max_len);
            Some((Target::Via(vec![NextHop { via: None, interface: port.tun }]), mtu))
        }
        // Only within what is diverted it matters what is not.
        None => ours.iter().any(|ours| ours.contains(&route.destination)).then_some((Target::Throw, None)),
    };
    let of = |(destination, route): (IpNet, &FoundRoute)| {
        let (target, mtu) = target(route)?;
        Some(((TABLE, destination), Route { table: TABLE, destination, target, mtu }))
    };
    best.into_iter().filter_map(of).collect()
}

fn is_of_main(change: &RoutingChange) -> bool {
    matches!(change, RoutingChange::Route { route, .. } if route.table() == MAIN_TABLE)
}

/// How a route that just forwards is called.
const UNICAST: &str = "";

/// Whether a destination is of one link only, or of many receivers.
fn is_of_link(destination: IpNet) -> bool {
    match destination {
        IpNet::V4(net) => net.addr().is_multicast() || net.addr().is_link_local(),
        IpNet::V6(net) => net.addr().is_multicast() || net.addr().is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use sidestep_net::Rate;

    use super::*;

    fn port(tun: u32, up: bool, edge: bool) -> PortEntry {
        let rate = Rate::from_bits_per_sec(0);
        PortEntry { tun, up, edge, tcp_only: edge, ethernet: true, max_len: 1_420, rate }
    }

    fn found(destination: &str, interface: u32, metric: u32) -> FoundRoute {
        let (destination, hops) = (destination.parse().unwrap(), vec![NextHop { via: None, interface }]);
        FoundRoute { table: MAIN_TABLE, destination, kind: UNICAST, metric, made_by: 3, hops, encapsulates: false }
    }

    #[test]
    fn routes_out_of_managed_interfaces_lead_into_their_devices() {
        let ports =
            BTreeMap::from([(2, port(12, true, false)), (3, port(13, false, false)), (4, port(14, true, true))]);
        let main = [
            found("10.0.0.0/8", 2, 0),
            found("10.1.0.0/16", 9, 0),
            // The kernel takes the other one.
            found("10.2.0.0/16", 2, 20),
            found("10.2.0.0/16", 9, 10),
            found("10.3.0.0/16", 3, 0),
            found("10.4.0.0/16", 4, 0),
            found("10.5.0.0/16", 2, 0),
            FoundRoute { kind: "blackhole", hops: vec![], ..found("10.6.0.0/16", 0, 0) },
            FoundRoute {
                hops: [2, 9].map(|interface| NextHop { via: None, interface }).into(),
                ..found("10.7.0.0/16", 2, 0)
            },
            found("192.168.0.0/16", 9, 0),
            found("fd00::/16", 2, 1_024),
            found("fe80::/64", 2, 256),
        ];
        let routes = routes(&main, &ports);
        let into = |tun, mtu| (Target::Via(vec![NextHop { via: None, interface: tun }]), mtu);
        let throw = || (Target::Throw, None);
        let expected = [
            ("10.0.0.0/8", into(12, Some(1_420))),
            ("10.1.0.0/16", throw()),
            ("10.2.0.0/16", throw()),
            ("10.3.0.0/16", throw()),
            ("10.4.0.0/16", into(14, None)),
            ("10.5.0.0/16", into(12, Some(1_420))),
            ("10.6.0.0/16", throw()),
            ("10.7.0.0/16", throw()),
            ("fd00::/16", into(12, Some(1_420))),
        ];
        let is: Vec<_> =
            routes.into_values().map(|route| (route.destination.to_string(), (route.target, route.mtu))).collect();
        assert_eq!(is, expected.map(|(destination, target)| (destination.to_string(), target)));
    }

    #[test]
    fn what_the_process_writes_for_an_edge_is_not_brought_back() {
        let interface = |index, name: &str, loopback| {
            let name = name.to_string();
            Interface { index, name, loopback, ethernet: true, mtu: 1_500, running: true, tx_bytes: 0 }
        };
        let all = [(1, "lo"), (2, "eth0"), (12, "inrpp-eth0"), (4, "eth1"), (14, "inrpp-eth1")];
        let interfaces = all.map(|(index, name)| interface(index, name, index == 1));
        let ports = BTreeMap::from([(2, port(12, true, false)), (4, port(14, true, true))]);
        let inputs: BTreeSet<_> = rules(&interfaces, &ports).into_iter().filter_map(|rule| rule.input).collect();
        assert_eq!(inputs, ["eth0", "eth1", "inrpp-eth0"].map(String::from).into());
        assert!(rules(&interfaces, &BTreeMap::from([(2, port(12, false, false))])).is_empty());
    }
}
