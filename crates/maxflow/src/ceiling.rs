//! What a network can carry at most between the hosts of a scenario that send and those that receive.

use std::collections::BTreeMap;

use sidestep_net::{ArcId, NodeId, Rate, Topology};
use sidestep_scenario::{Flow, Scenario};

use super::{
    network::{FlowArc, FlowNetwork},
    program::{FlowModel, FlowProgram},
};

/// The ceiling of a scenario's goodput: the largest sum of what its pairs of hosts can carry at once, over any paths.
///
/// It is a multi-commodity maximum flow, so no pair lends its room to another, and no host carries what is not its own.
#[derive(Debug)]
pub struct Ceiling<'a> {
    topology: &'a Topology,
    /// Which node sends to which.
    pairs: Vec<(NodeId, NodeId)>,
    /// By the rates of all arcs: those that were solved.
    known: BTreeMap<Vec<Option<Rate>>, Option<f64>>,
}

/// The most pairs times arcs of a program that is solved: a second or so.
const MAX: usize = 200_000;
/// The most programs of one scenario.
const MAX_PROGRAMS: usize = 128;

impl<'a> Ceiling<'a> {
    /// The ceiling of a scenario; `None` where it has none that is known: programs of the user's talk to whom they please,
    /// a scenario without transfers has no senders, and a large one has no program that is solved in time.
    pub fn of(scenario: &'a Scenario) -> Option<Self> {
        let topology = &scenario.topology;
        let mut pairs: Vec<(NodeId, NodeId)> = Vec::new();
        for flow in &scenario.flows {
            let asks = match flow {
                Flow::Exec(_) => return None,
                // Cross-traffic is no goodput.
                Flow::Cbr(_) => continue,
                Flow::OpenLoop(flow) => flow.request.is_some(),
                Flow::Bulk(_) | Flow::ClosedLoop(_) => false,
            };
            pairs.extend(flow.pairs().iter().map(|(from, to)| if asks { (*to, *from) } else { (*from, *to) }));
        }
        pairs.retain(|(from, to)| from != to);
        pairs.sort_unstable();
        pairs.dedup();
        let small = pairs.len().saturating_mul(topology.arc_count()) <= MAX;
        (!pairs.is_empty() && small).then(|| Ceiling { topology, pairs, known: BTreeMap::new() })
    }

    /// The ceiling in Mbit/s while arcs have these rates, by their index: `None` of one that carries nothing, zero of one that
    /// is not limited. `None` where nothing limits the flow, or too many programs were solved already.
    pub fn mbps(&mut self, rates: &[Option<Rate>]) -> Option<f64> {
        if let Some(known) = self.known.get(rates) {
            return *known;
        }
        let solved = if self.known.len() < MAX_PROGRAMS { self.solve(rates) } else { None };
        self.known.insert(rates.to_vec(), solved);
        solved
    }

    fn solve(&self, rates: &[Option<Rate>]) -> Option<f64> {
        let all: f64 = rates.iter().flatten().map(|rate| rate.as_mbits()).sum();
        let nodes = self.topology.nodes().len();
        // A host's packets leave from one node and arrive at another, so that none passes through it.
        let arrival = |node: NodeId| {
            if self.topology.is_router(node) { node } else { NodeId(node.0 + nodes as u32) }
        };
        let arc = |(index, rate): (usize, &Option<Rate>)| {
            let arc = ArcId(index as u32);
            let mbps = (*rate)?.as_mbits();
            // More than all that is limited is as good as no limit.
            let capacity = if mbps > 0.0 { mbps } else { 2.0 * all + 1.0 };
            let (from, to) = (self.topology.tail(arc), arrival(self.topology.head(arc)));
            Some(FlowArc { from, to, capacity, weight: 1 })
        };
        let arcs: Vec<FlowArc> = rates.iter().enumerate().filter_map(arc).collect();
        if arcs.is_empty() {
            return Some(0.0);
        }
        let network = FlowNetwork::new(2 * nodes, arcs).ok()?;
        let pairs: Vec<(NodeId, NodeId)> = self.pairs.iter().map(|(from, to)| (*from, arrival(*to))).collect();
        let flow = FlowProgram::new(&network, FlowModel::AnyPath).solve(&pairs).ok()?.flow;
        // A solver's last digits mean nothing.
        let rounded = (flow * 1e6).round() / 1e6;
        (rounded <= all).then_some(rounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceiling(text: &str) -> Option<f64> {
        let scenario = Scenario::parse(&format!("duration = \"1 s\"\n{text}"), "test").unwrap();
        let arcs = 0..scenario.topology.arc_count() as u32;
        let rates: Vec<_> = arcs.map(|arc| Some(scenario.topology.channel(ArcId(arc)).rate)).collect();
        Ceiling::of(&scenario)?.mbps(&rates)
    }

    fn network(nodes: &str, links: &[(&str, &str, &str)]) -> String {
        let node = |name: &str| {
            let kind = if name.starts_with('h') { "host" } else { "router" };
            format!("[[topology.node]]\nname = \"{name}\"\nkind = \"{kind}\"\n")
        };
        let link = |(a, b, rate): &(&str, &str, &str)| {
            format!("[[topology.link]]\nends = [\"{a}\", \"{b}\"]\nrate = \"{rate}\"\ndelay = \"1 ms\"\n")
        };
        nodes.split(' ').map(node).chain(links.iter().map(link)).collect()
    }

    fn flow(from: &str, to: &str) -> String {
        format!("[[flow]]\nkind = \"bulk\"\nfrom = \"{from}\"\nto = \"{to}\"\n")
    }

    #[test]
    fn ready_scenarios_have_the_ceilings_that_their_texts_tell() {
        let of = |text: &str| {
            let scenario = Scenario::parse(text, "test").unwrap();
            let arcs = 0..scenario.topology.arc_count() as u32;
            let rates: Vec<_> = arcs.map(|arc| Some(scenario.topology.channel(ArcId(arc)).rate)).collect();
            Ceiling::of(&scenario).and_then(|mut ceiling| ceiling.mbps(&rates))
        };
        assert_eq!(of(include_str!("../../../scenarios/inrpp.toml")), Some(20.0));
        assert_eq!(of(include_str!("../../../scenarios/six-paths.toml")), Some(120.0));
        assert_eq!(of(include_str!("../../../scenarios/semper.toml")), Some(80.0));
        assert_eq!(of(include_str!("../../../scenarios/route-control.toml")), Some(13.0));
        assert_eq!(of(include_str!("../../../scenarios/unmodified.toml")), None, "programs talk to whom they please");
    }

    #[test]
    fn the_hosts_own_links_limit_as_others_do_and_pairs_lend_no_room_to_each_other() {
        let links =
            [("h1", "A", "10 Mbit/s"), ("A", "B", "50 Mbit/s"), ("B", "h2", "100 Mbit/s"), ("h3", "A", "7 Mbit/s")];
        let network = network("h1 h2 h3 A B", &links);
        assert_eq!(ceiling(&format!("{network}{}", flow("h1", "h2"))), Some(10.0));
        assert_eq!(ceiling(&format!("{network}{}{}", flow("h1", "h2"), flow("h3", "h2"))), Some(17.0));
        // One flow for all could go from h1 to h3, past the link between the routers.
        let across = format!("{network}{}{}", flow("h1", "h2"), flow("h2", "h3"));
        assert_eq!(ceiling(&across), Some(17.0));
    }

    #[test]
    fn no_host_carries_what_is_not_its_own() {
        let links = [
            ("h1", "A", "100 Mbit/s"),
            ("A", "B", "5 Mbit/s"),
            ("B", "h2", "100 Mbit/s"),
            ("A", "h3", "50 Mbit/s"),
            ("h3", "B", "50 Mbit/s"),
        ];
        let network = network("h1 h2 h3 A B", &links);
        assert_eq!(ceiling(&format!("{network}{}", flow("h1", "h2"))), Some(5.0));
    }

    #[test]
    fn answers_come_from_the_host_that_is_asked_and_what_nothing_limits_has_no_ceiling() {
        let network = network("h1 h2 A", &[("h1", "A", "10 Mbit/s"), ("A", "h2", "0 bit/s")]);
        let asked = "[[flow]]\nkind = \"poisson\"\nfrom = \"h1\"\nto = \"h2\"\nrate = 5\nsize = \"1 kB\"\nrequest = \"100 B\"\n";
        assert_eq!(ceiling(&format!("{network}{asked}")), Some(10.0));
        let free = self::network("h1 h2 A", &[("h1", "A", "0 bit/s"), ("A", "h2", "0 bit/s")]);
        assert_eq!(ceiling(&format!("{free}{}", flow("h1", "h2"))), None);
    }

    #[test]
    fn a_link_that_carries_nothing_takes_its_room_away() {
        let text = format!(
            "duration = \"1 s\"\n[topology]\ngenerator = \"parallel-paths\"\npaths = 3\nhops = 1\nrate = \"10 Mbit/s\"\n{}",
            flow("c1", "s1")
        );
        let scenario = Scenario::parse(&text, "test").unwrap();
        let topology = &scenario.topology;
        let mut rates: Vec<_> =
            (0..topology.arc_count() as u32).map(|arc| Some(topology.channel(ArcId(arc)).rate)).collect();
        let mut ceiling = Ceiling::of(&scenario).unwrap();
        assert_eq!(ceiling.mbps(&rates), Some(30.0));
        let dead = (0..topology.arc_count() as u32)
            .map(ArcId)
            .find(|arc| topology.is_router(topology.tail(*arc)) && topology.is_router(topology.head(*arc)));
        rates[dead.unwrap().index()] = None;
        let with_one_less = ceiling.mbps(&rates);
        rates[dead.unwrap().reversed().index()] = None;
        assert_eq!(ceiling.mbps(&rates), Some(20.0));
        assert!([Some(20.0), Some(30.0)].contains(&with_one_less));
        rates.fill(None);
        assert_eq!(ceiling.mbps(&rates), Some(0.0));
    }
}
