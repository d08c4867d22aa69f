//! Traffic between whom and how much demands say, and lists of transfers.

use sidestep_net::{
    Bytes, Demand, Files, Graph, GraphEdge, GraphNode, ListedTransfer, Rate, Span, Time, TrafficMatrix,
};
use sidestep_scenario::{Arrivals, Flow, Scenario, workload::Arrival};

use super::{INLINE, inline};

const POISSON: &str = "[[flow]]\nkind = \"poisson\"\npairing = \"demands\"\nsize = \"125 kB\"\n";

/// A network a–b–c, a matrix and a list, whatever their names.
struct Three;

impl Files for Three {
    fn text(&self, name: &str) -> Result<String, String> {
        Err(format!("no {name}"))
    }

    fn network(&self, _: &str, _: &std::collections::BTreeMap<String, String>) -> Result<Graph, String> {
        let node = |name: &str| GraphNode { name: name.into(), position: None };
        let edge = |from, to| GraphEdge { from, to, directed: false, weight: None, rate: None, delay: None };
        Ok(Graph { nodes: ["a", "b", "c"].map(node).into(), edges: vec![edge(0, 1), edge(1, 2)], ..Graph::default() })
    }

    fn demands(&self, name: &str, unit: Option<&str>, graph: &Graph, seed: u64) -> Result<TrafficMatrix, String> {
        if TrafficMatrix::is_drawn(name) {
            // From the first place to the last.
            let to = graph.nodes.len() - 1;
            return Ok(TrafficMatrix {
                name: "drawn".into(),
                demands: vec![Demand { from: 0, to, rate: Rate::from_mbits(4) }],
            });
        }
        assert_eq!((unit, seed), (Some("kbit/s"), 1));
        if name != "three.demands" {
            return Err(format!("no {name}"));
        }
        let at = |name: &str| graph.nodes.iter().position(|node| node.name == name).unwrap();
        let demand = |from, to, mbits| Demand { from: at(from), to: at(to), rate: Rate::from_mbits(mbits) };
        Ok(TrafficMatrix { name: "three".into(), demands: vec![demand("a", "c", 8), demand("c", "a", 2)] })
    }

    fn transfers(&self, _: &str, graph: &Graph) -> Result<Vec<ListedTransfer>, String> {
        assert_eq!(graph.nodes.len(), 3);
        let transfer =
            |from, to, start| ListedTransfer { from, to, size: Bytes::new(9), start: Span::from_millis(start) };
        Ok(vec![transfer(0, 2, 7), transfer(2, 0, 3), transfer(0, 2, 5)])
    }
}

fn three(more: &str) -> Result<Scenario, String> {
    let text = format!("duration = \"10 s\"\n[topology]\nnetwork = \"three\"\nhosts = 2\n{more}");
    Scenario::parse_with_files(&text, "three", &Three).map_err(|error| error.to_string())
}

/// Pairs by name, and the rest of the only flow.
fn named(scenario: &Scenario) -> Vec<String> {
    let name = |id| scenario.topology.node(id).name.as_str();
    scenario.flows[0].pairs().iter().map(|(from, to)| format!("{}>{}", name(*from), name(*to))).collect()
}

#[test]
fn demands_of_the_scenario_give_pairs_and_rates() {
    let demand =
        |from: &str, to: &str, rate: &str| format!("[[demand]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"\n");
    // The two hosts at A have equal parts of what A wants.
    let text = format!("[demands]\nscale = 0.5\n{}{}", demand("A", "s1", "4 Mbit/s"), demand("s1", "c1", "6 Mbit/s"));
    let scenario = inline(&format!("{text}{POISSON}")).unwrap();
    assert_eq!(named(&scenario), ["c1>s1", "c2>s1", "s1>c1"]);
    let Flow::OpenLoop(flow) = &scenario.flows[0] else { panic!("{:?}", scenario.flows) };
    let Arrivals::Poisson { rate, shares, .. } = &flow.arrivals else { panic!("{flow:?}") };
    // Half of 10 Mbit/s is 5 transfers of 125 kB a second.
    assert_eq!((*rate, shares.as_slice()), (5.0, [1e6, 1e6, 3e6].as_slice()));
    assert_eq!(Scenario::parse(&scenario.to_toml(), "inline").unwrap(), scenario);

    let cbr = inline(&format!("{text}[[flow]]\nkind = \"cbr\"\npairing = \"demands\"\n")).unwrap();
    let Flow::Cbr(flow) = &cbr.flows[0] else { panic!("{:?}", cbr.flows) };
    assert_eq!(flow.rates, [1, 1, 3].map(Rate::from_mbits));
    assert_eq!(Scenario::parse(&cbr.to_toml(), "inline").unwrap(), cbr);
    let bulk = inline(&format!("{text}[[flow]]\nkind = \"bulk\"\npairing = \"demands\"\n")).unwrap();
    assert_eq!(named(&bulk), ["c1>s1", "c2>s1", "s1>c1"]);

    let refused = |text: &str| inline(text).unwrap_err().message;
    assert!(refused(&text).starts_with("no flow uses the demands; add [[flow]]"));
    assert!(refused(POISSON).starts_with("there are no demands; add `[demands]`"));
    assert_eq!(refused(&demand("A", "c9", "1 Mbit/s")), "there is no node `c9`");
    assert_eq!(refused(&demand("c1", "c1", "1 Mbit/s")), "must be another place than `from`");
    assert_eq!(refused(&demand("c1", "s1", "0 bit/s")), "must be above zero");
    assert_eq!(refused("[demands]\nscale = 1.0\n"), "name a file of demands, or add a `[[demand]]`");
    assert_eq!(refused("[demands]\nscale = -1\n"), "must be a number above zero");
    assert!(
        refused(&format!("[demands]\nfile = \"x\"\n{}", demand("A", "s1", "1 Mbit/s"))).starts_with("leave out either")
    );
    let both = format!("{text}{POISSON}rate = 5.0\n");
    let none = "the demands say how often and between whom; leave out `rate`, `load`, `load_of` and `shares`";
    assert_eq!(refused(&both), none);
    let between = format!("{text}{POISSON}from = \"c1\"\nto = \"s1\"\n");
    assert_eq!(refused(&between), "the demands say between whom; leave `from` and `to` out");
}

#[test]
fn demands_of_a_file_are_between_the_networks_nodes_and_their_hosts_share_them() {
    let head = "[demands]\nfile = \"three.demands\"\nunit = \"kbit/s\"\n";
    let scenario = three(&format!("{head}{POISSON}")).unwrap();
    let pairs =
        ["h-a>h-c", "h-a>h-c.2", "h-a.2>h-c", "h-a.2>h-c.2", "h-c>h-a", "h-c>h-a.2", "h-c.2>h-a", "h-c.2>h-a.2"];
    assert_eq!(named(&scenario), pairs);
    let Flow::OpenLoop(flow) = &scenario.flows[0] else { panic!("{:?}", scenario.flows) };
    let Arrivals::Poisson { rate, shares, .. } = &flow.arrivals else { panic!("{flow:?}") };
    assert_eq!((*rate, shares.as_slice()), (10.0, [2e6, 2e6, 2e6, 2e6, 5e5, 5e5, 5e5, 5e5].as_slice()));
    let many = flow.arrivals(0, 1, Span::from_secs(10_000)).filter(|arrival| arrival.pair < 4).count() as f64;
    let all = flow.arrivals(0, 1, Span::from_secs(10_000)).count() as f64;
    assert!((all / 100_000.0 - 1.0).abs() < 0.02 && (many / all - 0.8).abs() < 0.01, "{many} of {all}");

    let without = three(&format!("at = [\"a\", \"b\"]\n{head}{POISSON}")).unwrap_err();
    assert!(without.contains("the router \"c\" has a demand, and no host"), "{without}");
    // Drawn ones are between places with hosts: b and c here, and hosts alone where they stand for themselves.
    let drawn = "[demands]\nfile = \"gravity:4 Mbit/s\"\n";
    let scenario = three(&format!("at = [\"b\", \"c\"]\n{drawn}{POISSON}")).unwrap();
    assert_eq!(named(&scenario), ["h-b>h-c", "h-b>h-c.2", "h-b.2>h-c", "h-b.2>h-c.2"]);
    let text = format!("{INLINE}{drawn}{POISSON}");
    let scenario = Scenario::parse_with_files(&text, "inline", &Three).unwrap();
    assert_eq!(named(&scenario), ["c1>s1"]);
    let unread = Scenario::parse(&format!("{INLINE}[demands]\nfile = \"x\"\n{POISSON}"), "inline").unwrap_err().message;
    assert_eq!(unread, "`x`: demands that a scenario names cannot be read here");
}

#[test]
fn lists_of_transfers_are_sorted_and_begin_when_they_say() {
    let text = "[[flow]]\nkind = \"list\"\nstart = \"1 s\"\ntransfers = [[\"s1\", \"c1\", \"2 kB\", \"3 s\"], \
                [\"c1\", \"s1\", \"1 MB\", \"10 ms\"], [\"s1\", \"c1\", \"1 B\", \"9 s\"]]\n";
    let scenario = inline(text).unwrap();
    assert_eq!(named(&scenario), ["c1>s1", "s1>c1"]);
    let Flow::OpenLoop(flow) = &scenario.flows[0] else { panic!("{:?}", scenario.flows) };
    let at = |millis, pair, size| Arrival { at: Time::ZERO + Span::from_millis(millis), pair, size: Bytes::new(size) };
    // The third begins when the run ends.
    let run: Vec<Arrival> = flow.arrivals(0, 7, scenario.duration).collect();
    assert_eq!(run, [at(1_010, 0, 1_000_000), at(4_000, 1, 2_000)]);
    assert_eq!(flow.expected(scenario.duration), 2.0);
    assert_eq!(Scenario::parse(&scenario.to_toml(), "inline").unwrap(), scenario);

    let listed = three("[[flow]]\nkind = \"list\"\nfile = \"x.csv\"\n").unwrap();
    // The hosts of a router take turns.
    assert_eq!(named(&listed), ["h-c.2>h-a.2", "h-a>h-c"]);
    let late = inline("[[flow]]\nkind = \"list\"\ntransfers = [[\"s1\", \"c1\", \"2 kB\", \"20 s\"]]\n").unwrap();
    let (_, why) = late.idle([1]).unwrap();
    assert_eq!(why, "no transfer begins: the first of the list does so at 20 s; raise the duration, or add a flow");
    let refused = |transfers: &str| {
        inline(&format!("[[flow]]\nkind = \"list\"\ntransfers = [{transfers}]\n")).unwrap_err().message
    };
    assert_eq!(refused("[\"s1\", \"s1\", \"2 kB\", \"0 s\"]"), "a transfer is between two hosts");
    assert_eq!(refused("[\"s1\", \"A\", \"2 kB\", \"0 s\"]"), "`A` is a router; flows run between hosts");
    assert_eq!(refused("[\"s1\", \"c1\", \"0 B\", \"0 s\"]"), "the size must be more than nothing");
    assert_eq!(refused(""), "there is no transfer in it");
}
