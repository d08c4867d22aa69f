//! Paths, ids, segment lists and usage, without a network.

use std::time::Duration;

use sidestep_api::{LinkCounter, UsageReport};
use sidestep_controller::{Controller, PlanError, RequestError};
use sidestep_net::{Rate, Span, srv6};
use sidestep_paths::PathSettings;

use crate::common::{KNOBS, Wire, build, parallel, paths, report, topology, wire};

fn ids(controller: &Controller) -> Vec<(String, Vec<(String, u32)>)> {
    let pair = |set: sidestep_controller::PairPaths| {
        let paths = set.paths.into_iter().map(|path| (path.links.join(","), path.path.id.get()));
        (format!("{}>{}", set.from, set.to), paths.collect())
    };
    controller.sets().into_iter().map(pair).collect()
}

#[test]
fn each_pair_of_access_routers_has_its_disjoint_paths_best_first() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let links: Vec<String> = paths(&controller, "A", "B").iter().map(|path| path.links.join(",")).collect();
    assert_eq!(links, ["A-m1,m1-B", "A-m2,m2-B", "A-m3,m3-B"]);
    let pairs: Vec<_> = controller.sets().into_iter().map(|set| (set.from, set.to, set.sources.len())).collect();
    assert_eq!(pairs, [("A".into(), "B".into(), 2), ("B".into(), "A".into(), 1)]);
}

#[test]
fn a_restarted_controller_gives_the_same_ids_whatever_the_order_of_nodes_and_links() {
    let first = ids(&Controller::new(topology(), KNOBS).unwrap());
    let (mut nodes, mut wires) = parallel();
    nodes.reverse();
    wires.reverse();
    assert_eq!(ids(&Controller::new(build(&nodes, &wires), KNOBS).unwrap()), first);
    let mut all: Vec<u32> = first.iter().flat_map(|(_, paths)| paths.iter().map(|(_, id)| *id)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "{first:?}");
}

#[test]
fn a_changed_network_keeps_the_ids_of_the_paths_that_stay() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let before = ids(&controller);
    let (nodes, wires) = parallel();
    let without_m2: Vec<Wire> = wires.into_iter().filter(|wire| !format!("{:?}", wire.ends).contains("m2")).collect();
    controller.replace(build(&nodes, &without_m2)).unwrap();
    let after = ids(&controller);
    assert_eq!(after[0].1, [before[0].1[0].clone(), before[0].1[2].clone()]);
}

#[test]
fn paths_over_a_link_that_is_down_go_and_come_back_with_their_ids() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let before = ids(&controller);
    let down = |names: &[&str]| names.iter().map(|name| topology().find_link(name).unwrap()).collect();
    assert!(controller.set_down(&down(&["A-m2"])));
    let during = ids(&controller);
    assert_eq!(during[0].1, [before[0].1[0].clone(), before[0].1[2].clone()]);
    assert!(!controller.set_down(&down(&["A-m2", "m2-B"])), "the path is gone already");
    assert!(controller.set_down(&down(&[])));
    assert_eq!(ids(&controller), before);
}

#[test]
fn segment_lists_hold_the_sids_of_the_plan_and_end_by_decapsulating() {
    let topology = topology();
    let locator = |name| topology.node(topology.find(name).unwrap()).locator.unwrap();
    let controller = Controller::new(topology.clone(), KNOBS).unwrap();
    let paths = paths(&controller, "A", "B");
    assert_eq!(paths[0].segments, [srv6::decap_sid(locator("B"))]);
    assert_eq!(paths[1].segments, [srv6::end_sid(locator("m2")), srv6::decap_sid(locator("B"))]);
    let id = paths[1].path.id;
    assert_eq!(paths[1].path.binding_sid, srv6::binding_sid(locator("A"), id.get()));
    let bindings = &controller.bindings()[0];
    assert_eq!(bindings.router, "A");
    let binding = bindings.bindings.iter().find(|binding| binding.path_id == id).unwrap();
    assert_eq!((&binding.segments, binding.binding_sid), (&paths[1].segments, paths[1].path.binding_sid));
}

#[test]
fn parallel_links_take_an_adjacency_segment() {
    let direct = |a, b| wire(a, b, 10);
    let mut topology = build(&["c1", "s1", "A", "B"], &[direct("c1", "A"), direct("A", "B"), direct("s1", "B")]);
    let mut twin = topology.link(topology.find_link("A-B").unwrap()).clone();
    twin.name = "A-B.2".into();
    let twin = topology.add_link(twin).unwrap();
    let locator = |name| topology.node(topology.find(name).unwrap()).locator.unwrap();
    let expected = [srv6::adjacency_sid(locator("A"), twin), srv6::decap_sid(locator("B"))];
    let controller = Controller::new(topology.clone(), KNOBS).unwrap();
    assert!(paths(&controller, "A", "B").iter().any(|path| path.segments == expected));
}

#[test]
fn a_route_leaves_room_for_the_encapsulation_of_its_own_segment_list() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let mtus: Vec<u32> = paths(&controller, "A", "B").iter().map(|path| path.path.route_mtu).collect();
    assert_eq!(mtus, [1700 - 40 - 8 - 16, 1700 - 40 - 8 - 32, 1700 - 40 - 8 - 32]);
}

#[test]
fn the_shortest_path_needs_no_segments_and_is_bound_all_the_same() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let plain = |controller: &Controller| -> Vec<_> {
        paths(controller, "A", "B").into_iter().map(|path| (path.links[0].clone(), path.path.plain_mtu)).collect()
    };
    let of = |link: &str, mtu| (link.to_owned(), mtu);
    assert_eq!(plain(&controller), [of("A-m1", Some(1700)), of("A-m2", None), of("A-m3", None)]);
    assert_eq!(controller.bindings()[0].bindings.len(), 3, "for agents that know of no such path");
    controller.set_down(&[topology().find_link("m1-B").unwrap()].into());
    assert_eq!(plain(&controller), [of("A-m2", Some(1700)), of("A-m3", None)]);
}

#[test]
fn a_path_too_thin_for_ipv6_after_encapsulation_is_left_out() {
    let (nodes, mut wires) = parallel();
    for wire in &mut wires {
        match wire.ends {
            ("A", "m1") => wire.mtu = 1280 + 40 + 8 + 16,
            ("A", "m2") => wire.mtu = 1280 + 40 + 8 + 32 - 1,
            _ => {}
        }
    }
    let controller = Controller::new(build(&nodes, &wires), KNOBS).unwrap();
    let left: Vec<_> =
        paths(&controller, "A", "B").iter().map(|path| (path.links[0].clone(), path.path.route_mtu)).collect();
    assert_eq!(left, [("A-m1".into(), 1280), ("A-m3".into(), 1620)]);
}

#[test]
fn paths_have_the_name_that_results_use_or_one_from_their_id() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let paths = paths(&controller, "A", "B");
    assert_eq!(paths[0].path.name, "path-1");
    assert_eq!(paths[1].path.name, format!("A>B#{}", paths[1].path.id));
    let delays = (paths[0].path.delay, paths[0].path.rtt, paths[0].path.capacity);
    assert_eq!(delays, (Span::from_millis(2), Span::from_millis(4), Rate::from_mbits(100)));
}

#[test]
fn usage_is_the_capacity_less_what_is_still_available() {
    let (nodes, mut wires) = parallel();
    for wire in &mut wires {
        if wire.ends == ("m1", "B") {
            wire.mbits = 40;
        }
    }
    let controller = Controller::new(build(&nodes, &wires), KNOBS).unwrap();
    let usage = |node: &str, link: &str, mbits: u64| {
        controller.record(&report(node, 1, link, 0)).unwrap();
        controller.record(&report(node, 2, link, mbits * 1_000_000 / 8)).unwrap();
        controller.publish();
        paths(&controller, "A", "B")[0].path.usage
    };
    assert_eq!(usage("A", "A-m1", 50), Rate::default(), "50 of 100 Mbit/s leave the thin link's 40 free");
    assert_eq!(usage("A", "A-m1", 70), Rate::from_mbits(10), "30 are left of 40");
    assert_eq!(usage("m1", "m1-B", 15), Rate::from_mbits(15), "25 are left of 40");
    assert_eq!(usage("m1", "m1-B", 90), Rate::from_mbits(40), "never more than the capacity");
    assert_eq!(paths(&controller, "B", "A").last().unwrap().path.usage, Rate::default(), "the other direction is idle");
}

#[test]
fn a_link_that_a_router_no_longer_reports_is_down_until_it_does_or_another_daemon_begins() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let report = |secs: u64, links: &[&str]| {
        let counters = links.iter().map(|link| LinkCounter { link: (*link).into(), tx_bytes: 0, down: false });
        UsageReport { node: "A".into(), at: Duration::from_secs(secs), counters: counters.collect() }
    };
    let paths = |report: UsageReport| {
        controller.record(&report).unwrap();
        controller.sets()[0].paths.len()
    };
    assert_eq!(paths(report(1, &["A-m1", "A-m2"])), 3);
    assert_eq!(paths(report(2, &["A-m1"])), 2, "the interface of A-m2 is gone");
    assert_eq!(paths(report(3, &["A-m1"])), 2);
    assert_eq!(paths(report(4, &["A-m1", "A-m2"])), 3);
    assert_eq!(paths(report(5, &["A-m2"])), 2);
    assert_eq!(paths(report(1, &["A-m2"])), 3, "a daemon that was started again without A-m1");
}

#[test]
fn unchanged_rates_are_not_published_again() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    assert!(!controller.publish());
    controller.record(&report("A", 1, "A-m1", 0)).unwrap();
    controller.record(&report("A", 2, "A-m1", 1_000)).unwrap();
    assert!(controller.publish());
    assert!(!controller.publish());
}

#[test]
fn reports_of_other_nodes_links_are_refused_as_a_whole() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let mut foreign = report("A", 1, "A-m1", 0);
    foreign.counters.extend(report("A", 1, "m1-B", 0).counters);
    let error = controller.record(&foreign).unwrap_err();
    assert_eq!(error.to_string(), "`m1-B` is not a link of `A`");
    assert_eq!(controller.record(&report("X", 1, "A-m1", 0)), Err(RequestError::UnknownNode("X".into())));
    assert_eq!(controller.record(&report("c1", 1, "c1-A", 0)), Err(RequestError::NotARouter("c1".into())));
    controller.record(&report("A", 2, "A-m1", 1_000)).unwrap();
    assert!(!controller.publish(), "the refused report left no reading behind");
}

#[test]
fn a_network_without_addresses_or_access_is_refused_by_the_nodes_name() {
    let refused = |change: fn(&mut sidestep_net::Topology)| {
        let mut topology = topology();
        change(&mut topology);
        Controller::new(topology, KNOBS).err().unwrap()
    };
    let error = refused(|topology| topology.node_mut(topology.find("m2").unwrap()).locator = None);
    assert_eq!(error, PlanError::Locator(sidestep_control::LocatorError::Missing("m2".into())));
    let error = refused(|topology| topology.node_mut(topology.find("c2").unwrap()).prefix = None);
    assert_eq!(error, PlanError::NoPrefix("c2".into()));
    let error = refused(|topology| {
        let prefix = topology.node(topology.find("c1").unwrap()).prefix;
        topology.node_mut(topology.find("s1").unwrap()).prefix = prefix;
    });
    assert!(matches!(error, PlanError::SamePrefix { .. }), "{error}");
    let error = Controller::new(build(&["c1", "A"], &[]), KNOBS).err().unwrap();
    assert_eq!(error.to_string(), "host `c1` is not linked to any router");
    let settings = PathSettings { max_paths: 17, ..KNOBS };
    assert!(matches!(Controller::new(topology(), settings).err(), Some(PlanError::Settings(_))));
}

#[test]
fn the_sets_are_printable_as_json_with_numbers() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let json = serde_json::to_value(controller.sets()).unwrap();
    let path = &json[0]["paths"][0];
    assert_eq!((&path["capacity_bps"], &path["delay_ns"]), (&100_000_000.into(), &2_000_000.into()));
    assert_eq!(path["links"], serde_json::json!(["A-m1", "m1-B"]));
    assert!(path["id"].is_u64() && path["binding_sid"].is_string(), "{path}");
    assert_eq!(serde_json::to_value(controller.bindings()).unwrap()[0]["router"], "A");
}

#[test]
fn prometheus_reads_how_many_paths_there_are() {
    let controller = Controller::new(topology(), KNOBS).unwrap();
    let page = controller.page(3).into_text().unwrap();
    let paths: usize = controller.sets().iter().map(|pair| pair.paths.len()).sum();
    assert!(page.contains(&format!("\nsidestep_controller_paths {paths}.0\n")) && paths > 0, "{page}");
    for metric in sidestep_controller::CONTROLLER_METRICS {
        assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
    }
}
