//! Which edges have a controller, and its configuration.

use std::{collections::BTreeSet, fmt::Write};

use ipnet::Ipv6Net;
use sidestep_lab::plan::NodePlan;
use sidestep_net::{ArcId, NodeId, Rate, Ratio, Topology, srv6};
use sidestep_paths::Igp;
use sidestep_scenario::{Flow, Scenario};

use crate::RouteControlSettings;

/// An edge that controls what its hosts send to those of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controlled {
    /// The edge.
    pub edge: NodeId,
    /// The other one, which answers probes.
    pub far: NodeId,
    /// By egress, the primary first: the path to the other edge.
    pub egresses: Vec<Vec<ArcId>>,
}

/// The port of the reflectors: the standard's.
pub const PORT: u16 = 862;

/// The controlled edges of a scenario, in the order of their nodes; an error means that the lab cannot do what the settings ask.
pub fn controlled(scenario: &Scenario, settings: &RouteControlSettings) -> Result<Vec<Controlled>, String> {
    let topology = &scenario.topology;
    let connections = scenario.flows.iter().filter(|flow| flow.transport().is_some());
    let pairs = connections.flat_map(Flow::pairs);
    let apart = |(from, to): &(NodeId, NodeId)| Some((topology.access_router(*from)?, topology.access_router(*to)?));
    let edges: Vec<(NodeId, NodeId)> = pairs.filter_map(apart).filter(|(edge, far)| edge != far).collect();
    let named: BTreeSet<NodeId> = settings
        .edges
        .iter()
        .map(|name| topology.find(name).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let mut found: Vec<Controlled> = Vec::new();
    for (edge, far) in edges {
        let is_asked = if named.is_empty() { links(topology, edge).len() > 1 } else { named.contains(&edge) };
        let known = found.iter().find(|one| one.edge == edge);
        if let Some(known) = known.filter(|known| known.far != far) {
            let name = |node: NodeId| &topology.node(node).name;
            return Err(format!(
                "a daemon decides for all destinations at once: hosts of `{}` send to those of `{}` and of `{}`",
                name(edge),
                name(known.far),
                name(far)
            ));
        }
        if is_asked && known.is_none() {
            found.push(Controlled { edge, far, egresses: egresses(topology, edge, far)? });
        }
    }
    if let Some(silent) = named.iter().find(|edge| !found.iter().any(|one| one.edge == **edge)) {
        return Err(format!("no host of the edge `{}` sends to another edge", topology.node(*silent).name));
    }
    let unlimited = |arcs: &Vec<ArcId>| capacity(topology, arcs).is_none();
    if let Some(site) = found.iter().find(|site| settings.load > Ratio::ZERO && site.egresses.iter().any(unlimited)) {
        let name = &topology.node(site.edge).name;
        return Err(format!("load needs a rate on each path from `{name}` to the other edge"));
    }
    found.sort_by_key(|one| one.edge);
    Ok(found)
}

/// The least rate on a path, if one has any.
fn capacity(topology: &Topology, arcs: &[ArcId]) -> Option<Rate> {
    arcs.iter().map(|arc| topology.channel(*arc).rate).filter(|rate| *rate > Rate::ZERO).min()
}

/// The links of a router to others.
fn links(topology: &Topology, router: NodeId) -> Vec<ArcId> {
    let arcs = topology.outgoing(router).iter().copied();
    arcs.filter(|arc| topology.is_router(topology.head(*arc))).collect()
}

/// The paths out of an edge to another one, the shortest first.
fn egresses(topology: &Topology, edge: NodeId, far: NodeId) -> Result<Vec<Vec<ArcId>>, String> {
    let name = |node: NodeId| &topology.node(node).name;
    let links = links(topology, edge);
    let beyond = Igp::without(topology, &links.iter().map(|arc| arc.link()).collect());
    let mut found = Vec::new();
    for arc in links {
        let next = topology.head(arc);
        let Some((rest, distance)) = beyond.first_path(next, far).zip(beyond.distance(next, far)) else { continue };
        // Routers forward by the IGP, which knows of no egress.
        if Igp::new(topology).first_path(next, far).as_ref() != Some(&rest) {
            return Err(format!(
                "`{}` sends back to `{}` what is for `{}`: raise a weight",
                name(next),
                name(edge),
                name(far)
            ));
        }
        let arcs: Vec<ArcId> = std::iter::once(arc).chain(rest).collect();
        found.push((distance + topology.channel(arc).weight, arcs));
    }
    found.sort();
    if found.len() < 2 {
        return Err(format!("`{}` has no two ways to `{}`", name(edge), name(far)));
    }
    Ok(found.into_iter().map(|(_, arcs)| arcs).collect())
}

/// The links of the egresses, by the arcs that leave the edges: answers to an egress's probes must come back by it.
pub fn first_arcs(sites: &[Controlled]) -> Vec<ArcId> {
    sites.iter().flat_map(|site| site.egresses.iter().filter_map(|arcs| arcs.first().copied())).collect()
}

/// The address at which an edge answers probes.
pub fn reflector_address(topology: &Topology, router: NodeId) -> Option<std::net::Ipv6Addr> {
    topology.node(router).locator.map(srv6::router_address)
}

/// The file of the controller of an edge.
pub fn config(
    topology: &Topology,
    plan: &NodePlan,
    site: &Controlled,
    settings: &RouteControlSettings,
) -> Result<String, String> {
    let prefixes: Vec<String> = topology
        .host_arcs(site.far)
        .filter_map(|arc| topology.node(topology.head(arc)).prefix)
        .map(|prefix: Ipv6Net| format!("\"{prefix}\""))
        .collect();
    let control = RouteControlSettings { edges: Vec::new(), ..settings.clone() };
    let control = toml::to_string(&std::collections::BTreeMap::from([("control", control)]));
    let mut text = format!(
        "[route_control]\ndestinations = [{}]\n\n{}\n[damping]\nenabled = false\n",
        prefixes.join(", "),
        control.map_err(|error| error.to_string())?,
    );
    for arcs in &site.egresses {
        let first = arcs.first().copied();
        let interface = plan.interfaces.iter().find(|interface| Some(interface.arc) == first);
        let Some((interface, (_, via))) = interface.and_then(|of| Some((of, of.addresses.first()?))) else { continue };
        let capacity = capacity(topology, arcs).map(|rate| format!("capacity = \"{} bit/s\"\n", rate.bits_per_sec()));
        let (name, dev) = (&topology.link(interface.arc.link()).name, &interface.name);
        let capacity = capacity.unwrap_or_default();
        let _ = write!(text, "\n[[egress]]\nname = \"{name}\"\ndev = \"{dev}\"\nvia = [\"{via}\"]\n{capacity}");
    }
    if let Some(address) = reflector_address(topology, site.far) {
        let _ = write!(text, "\n[[target]]\naddress = \"{address}\"\nkind = \"stamp\"\nport = {PORT}\nown = true\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use crate::RouteControlMode;
    use crate::daemon::RouteControlConfig;

    use super::*;
    use sidestep_lab::plan::{Multipath, RouteTarget, link_prefix, pin_links, plan};

    fn scenario(more: &str) -> Scenario {
        let text = include_str!("../../../../scenarios/route-control.toml");
        Scenario::parse(&format!("{text}{more}"), "test").unwrap()
    }

    #[test]
    fn the_ready_scenario_has_one_controlled_edge_whose_file_names_the_primary_first() {
        let scenario = scenario("");
        let settings = RouteControlSettings {
            edges: vec!["E".into()],
            mode: RouteControlMode::Predictive,
            ..RouteControlSettings::default()
        };
        let sites = controlled(&scenario, &settings).unwrap();
        let topology = &scenario.topology;
        let igp = Igp::new(topology);
        let mut plans = plan(topology, &igp, Multipath::Single).unwrap();
        pin_links(topology, &igp, Multipath::Single, &first_arcs(&sites), &mut plans);
        let [site] = &sites[..] else { panic!("{sites:?}") };
        let plan = plans.iter().find(|plan| plan.node == site.edge).unwrap();
        let config = RouteControlConfig::parse(&config(topology, plan, site, &settings).unwrap()).unwrap();
        let egresses: Vec<_> = config.egresses.iter().map(|one| (one.name.as_str(), one.capacity.as_mbits())).collect();
        assert_eq!(egresses, [("E-P", 8.0), ("E-B", 5.0)]);
        assert!(config.targets[0].own && config.is_passive() && config.control.mode == RouteControlMode::Predictive);
        // Answers come back by the egress whose address they go to.
        let far = plans.iter().find(|plan| plan.node == site.far).unwrap();
        for (egress, next) in [("E-P", "P"), ("E-B", "B")] {
            let link = topology.find_link(egress).unwrap();
            let route = far.routes.iter().find(|route| route.destination == link_prefix(link)).unwrap();
            let RouteTarget::Interfaces(positions) = &route.target else { panic!("{route:?}") };
            assert_eq!(far.interfaces[positions[0]].name, next);
        }
    }

    #[test]
    fn what_a_daemon_cannot_control_is_refused() {
        let with = |edges: &[&str]| RouteControlSettings {
            edges: edges.iter().map(|one| (*one).into()).collect(),
            ..RouteControlSettings::default()
        };
        let problem = |more: &str, edges: &[&str]| controlled(&scenario(more), &with(edges)).unwrap_err();
        assert!(problem("", &["D"]).contains("no host of the edge `D` sends"));
        assert!(problem("", &["nowhere"]).contains("nowhere"));
        let load = RouteControlSettings { load: "80 %".parse().unwrap(), ..with(&[]) };
        let unlimited = include_str!("../../../../scenarios/route-control.toml");
        let unlimited =
            ["5 Mbit/s", "1 Gbit/s"].iter().fold(unlimited.to_owned(), |text, rate| text.replace(rate, "0 bit/s"));
        let refused = controlled(&Scenario::parse(&unlimited, "test").unwrap(), &load).unwrap_err();
        assert!(refused.contains("load needs a rate on each path from `E`"), "{refused}");
        assert!(controlled(&scenario(""), &load).is_ok());
        let other = "[[flow]]\nkind = \"bulk\"\nfrom = \"s\"\nto = \"h\"\n";
        assert_eq!(controlled(&scenario(other), &with(&[])).unwrap().len(), 2);
    }
}
