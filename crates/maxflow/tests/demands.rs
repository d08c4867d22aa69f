//! Loads and least utilisations of demands, held against networkx and scipy: `demands/reference.py` wrote the values.

use std::collections::BTreeMap;

use serde::Deserialize;
use sidestep_maxflow::{
    FlowArc, FlowDemand, FlowError, FlowModel, FlowNetwork, Forwarding, LeastUtilisation, Routes, Unwatched,
    least_utilisation,
};
use sidestep_net::NodeId;

#[derive(Debug, Deserialize)]
struct Case {
    nodes: usize,
    arcs: Vec<(u32, u32, f64, u64)>,
    demands: Vec<(u32, u32, f64)>,
    paths: Vec<Vec<Vec<usize>>>,
    single: Vec<f64>,
    ecmp: Vec<f64>,
    disconnected: f64,
    failures: Vec<(f64, f64, f64)>,
    least_given: f64,
    least_any_path: f64,
    least_two_segments: f64,
}

impl Case {
    fn network(&self) -> FlowNetwork {
        network(self.nodes, &self.arcs)
    }

    fn demands(&self) -> Vec<FlowDemand> {
        demands(&self.demands)
    }
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("demands/reference.json")).unwrap()
}

fn network(nodes: usize, arcs: &[(u32, u32, f64, u64)]) -> FlowNetwork {
    let arc = |(from, to, capacity, weight): &(u32, u32, f64, u64)| FlowArc {
        from: NodeId(*from),
        to: NodeId(*to),
        capacity: *capacity,
        weight: *weight,
    };
    FlowNetwork::new(nodes, arcs.iter().map(arc).collect()).unwrap()
}

fn demands(demands: &[(u32, u32, f64)]) -> Vec<FlowDemand> {
    let demand = |(from, to, rate): &(u32, u32, f64)| FlowDemand { from: NodeId(*from), to: NodeId(*to), rate: *rate };
    demands.iter().map(demand).collect()
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-7 * other.abs().max(1.0)
}

fn busiest(network: &FlowNetwork, loads: &[f64]) -> f64 {
    network.busiest(loads).map_or(0.0, |(_, share)| share)
}

fn least(network: &FlowNetwork, demands: &[FlowDemand], model: FlowModel) -> LeastUtilisation {
    least_utilisation(network, demands, Routes::Model(model), &Unwatched).unwrap()
}

fn segments(limit: usize) -> FlowModel {
    FlowModel::Segments { limit: Some(limit), adjacency: false }
}

#[test]
fn loads_are_those_of_networkx_before_and_after_each_failure() {
    for (number, case) in cases().iter().enumerate() {
        let network = case.network();
        let forwarding = Forwarding::new(&network, &case.demands()).unwrap();
        let now = forwarding.loads();
        for (ours, theirs) in [(&now.single, &case.single), (&now.ecmp, &case.ecmp)] {
            assert!(ours.iter().zip(theirs).all(|(one, other)| near(*one, *other)), "{number}: {ours:?} {theirs:?}");
        }
        assert!(near(now.disconnected, case.disconnected));
        for (link, (single, ecmp, disconnected)) in (0u32..).zip(&case.failures) {
            let after = forwarding.loads_without(&[2 * link, 2 * link + 1]);
            assert!(near(busiest(&network, &after.single), *single), "{number}, {link}");
            assert!(near(busiest(&network, &after.ecmp), *ecmp), "{number}, {link}");
            assert!(near(after.disconnected, *disconnected), "{number}, {link}");
        }
    }
}

#[test]
fn least_utilisations_are_those_of_scipy_over_all_paths_at_once() {
    for (number, case) in cases().iter().enumerate() {
        let (network, demands) = (case.network(), case.demands());
        let ends = |(from, to, _): &(u32, u32, f64)| (NodeId(*from), NodeId(*to));
        let paths: BTreeMap<_, _> = case.demands.iter().map(ends).zip(case.paths.iter().cloned()).collect();
        let given = least_utilisation(&network, &demands, Routes::Given(&paths), &Unwatched).unwrap();
        let found = [given, least(&network, &demands, segments(2)), least(&network, &demands, FlowModel::AnyPath)];
        let wanted = [case.least_given, case.least_two_segments, case.least_any_path];
        for (found, wanted) in found.iter().zip(wanted) {
            assert!(near(found.utilisation, wanted), "{number}: {} instead of {wanted}", found.utilisation);
            assert!(near(found.bound, wanted) && found.bound <= found.utilisation, "{number}: {}", found.bound);
            assert!(near(busiest(&network, &found.loads), found.utilisation), "{number}");
            assert!(near(found.disconnected, case.disconnected), "{number}");
        }
        let ecmp = least(&network, &demands, FlowModel::Ecmp);
        assert!(near(ecmp.utilisation, busiest(&network, &case.ecmp)), "{number}");
        assert!(found[2].utilisation <= found[1].utilisation * (1.0 + 1e-9));
        assert!(found[1].utilisation <= ecmp.utilisation * (1.0 + 1e-9));
    }
}

#[test]
fn demands_k_times_as_large_load_k_times_as_much() {
    for case in cases() {
        let (network, demands) = (case.network(), case.demands());
        for k in [0.125, 3.0, 1e4] {
            let scaled: Vec<FlowDemand> =
                demands.iter().map(|demand| FlowDemand { rate: k * demand.rate, ..*demand }).collect();
            let [before, after] =
                [&demands, &scaled].map(|demands| Forwarding::new(&network, demands).unwrap().loads());
            assert!(before.ecmp.iter().zip(&after.ecmp).all(|(one, other)| near(k * one, *other)));
            assert!(before.single.iter().zip(&after.single).all(|(one, other)| near(k * one, *other)));
            let [before, after] = [&demands, &scaled].map(|demands| least(&network, demands, segments(2)).utilisation);
            assert!(near(k * before / after, 1.0), "{before} {after}");
        }
    }
}

/// A square of links with a capacity of 10 and a weight of 1; link l is the arcs 2 l and 2 l + 1.
fn square() -> FlowNetwork {
    let link = |a, b| [(a, b, 10.0, 1), (b, a, 10.0, 1)];
    network(4, &[link(0, 1), link(1, 2), link(2, 3), link(3, 0)].concat())
}

#[test]
fn on_a_square_by_hand() {
    let square = square();
    // Across the square there are two ways; along a side there is one.
    let demands = demands(&[(0, 2, 8.0), (0, 1, 4.0)]);
    let forwarding = Forwarding::new(&square, &demands).unwrap();
    let now = forwarding.loads();
    // Of 0's arcs, 0 leads to 1 and 7 to 3: the lowest is taken.
    assert_eq!(now.single, [12.0, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(now.ecmp, [8.0, 0.0, 4.0, 0.0, 0.0, 4.0, 0.0, 4.0]);
    assert_eq!((square.busiest(&now.single), square.busiest(&now.ecmp)), (Some((0, 1.2)), Some((0, 0.8))));
    // Without the link 0-1 all goes over 3; without 0-1 and 0-3 nothing goes.
    let after = forwarding.loads_without(&[0, 1]);
    assert_eq!(after.ecmp, [0.0, 0.0, 0.0, 4.0, 0.0, 12.0, 0.0, 12.0]);
    assert_eq!(forwarding.loads_without(&[0, 1, 6, 7]).disconnected, 12.0);
    // The 12 that leave 0 have two ways of 10.
    assert!(near(least(&square, &demands, FlowModel::AnyPath).utilisation, 0.6));
    assert!(near(least(&square, &demands, segments(2)).utilisation, 0.6));
    assert!(near(least(&square, &demands, segments(1)).utilisation, 0.8));
}

#[test]
fn nothing_to_send_uses_nothing_and_wrong_demands_are_refused() {
    let square = square();
    assert_eq!(least(&square, &[], FlowModel::AnyPath).utilisation, 0.0);
    let error = |demand| Forwarding::new(&square, &demands(&[demand])).err();
    assert_eq!(error((0, 0, 1.0)), Some(FlowError::Pair { node: NodeId(0) }));
    assert_eq!(error((0, 7, 1.0)), Some(FlowError::UnknownNode { node: NodeId(7), nodes: 4 }));
    assert_eq!(error((0, 1, 0.0)), Some(FlowError::Rate { rate: 0.0 }));
    assert!(matches!(error((0, 1, f64::NAN)), Some(FlowError::Rate { .. })));
}
