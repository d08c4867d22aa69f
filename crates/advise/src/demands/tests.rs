use sidestep_maxflow::Unwatched;
use sidestep_net::{Demand, GraphEdge, GraphNode};
use sidestep_paths::analysis::NetOptions;

use super::*;

fn options() -> DemandOptions {
    DemandOptions {
        max_segments: 2,
        paths: PathSettings::default(),
        default_rate: None,
        say_capacities: |capacities| format!("{} unknown", capacities.unknown),
    }
}

fn edge(from: usize, to: usize, mbits: u64) -> GraphEdge {
    GraphEdge { from, to, directed: false, weight: Some(1.0), rate: Some(Rate::from_mbits(mbits)), delay: None }
}

fn graph(nodes: usize, edges: Vec<GraphEdge>) -> Graph {
    let node = |index| GraphNode { name: format!("n{index}"), position: None };
    Graph { name: "a".into(), nodes: (0..nodes).map(node).collect(), edges, ..Graph::default() }
}

/// A square of links of 10 Mbit/s, with a tail of 100 at its second corner.
fn square() -> Graph {
    graph(5, vec![edge(0, 1, 10), edge(1, 2, 10), edge(2, 3, 10), edge(3, 0, 10), edge(1, 4, 100)])
}

fn matrix(name: &str, demands: &[(usize, usize, u64)]) -> TrafficMatrix {
    let demand =
        |(from, to, mbits): &(usize, usize, u64)| Demand { from: *from, to: *to, rate: Rate::from_mbits(*mbits) };
    TrafficMatrix { name: name.into(), demands: demands.iter().map(demand).collect() }
}

fn advice(graph: &Graph, matrices: &[TrafficMatrix]) -> DemandAdvice {
    let net = Net::new(graph, NetOptions::default()).unwrap();
    advise_demands(graph, &net, matrices, &options(), &Unwatched).unwrap()
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-7
}

/// By name, the utilisation and what may grow.
fn of(advice: &DemandAdvice, name: &str) -> (f64, Option<f64>) {
    let routing = advice.worst.routings.iter().find(|routing| routing.name == name).unwrap();
    (routing.utilisation, routing.growth)
}

#[test]
fn on_a_square_by_hand() {
    let advice = advice(&square(), &[matrix("m", &[(0, 2, 8), (0, 1, 4), (4, 1, 5)])]);
    // 0 to 2 has two ways; of equal ones the single path takes the first link, which 0 to 1 takes too.
    for (name, utilisation) in
        [("igp", 1.2), ("ecmp", 0.8), ("segments", 0.6), ("mptcp", 0.6), ("any-path", 0.6), ("ecmp-failure", 1.2)]
    {
        let (found, growth) = of(&advice, name);
        assert!(near(found, utilisation), "{name}: {found}");
        assert!(near(growth.unwrap() * found, 1.0), "{name}");
    }
    let first = &advice.worst.utilisation[0];
    assert_eq!((first.ends.clone(), first.rate_mbps), (["n0".into(), "n1".into()], Some(10.0)));
    assert_eq!(advice.worst.utilisation.len(), 10);
    let tail = advice.worst.failures.iter().find(|failure| failure.failed == ["n1", "n4"]).unwrap();
    assert_eq!((tail.disconnected_mbps, tail.ecmp), (5.0, 0.8));
    let lost = advice.worst.failures.iter().filter(|failure| failure.disconnected_mbps > 0.0).count();
    assert_eq!((lost, advice.worst.failures.len(), advice.series.len()), (1, 5, 0));
    // After the failure of either of 0's links the other carries all.
    let worst = &advice.worst.failures[0];
    assert!(near(worst.ecmp, 1.2) && worst.link.is_some(), "{worst:?}");
    assert_eq!((advice.worst.total_mbps, advice.worst.disconnected_mbps), (17.0, 0.0));
}

#[test]
fn links_of_one_direction_and_links_without_a_limit_keep_what_they_are() {
    let one_way = |from, to, mbits| GraphEdge { directed: true, ..edge(from, to, mbits) };
    // 2 -> 0 is stored as a link from 0 to 2 whose other direction alone there is.
    let ring = graph(3, vec![one_way(0, 1, 10), one_way(1, 2, 0), one_way(2, 0, 20)]);
    let advice = advice(&ring, &[matrix("m", &[(2, 1, 5), (0, 2, 1)])]);
    assert_eq!(advice.worst.utilisation.len(), 3);
    for name in ["igp", "ecmp", "segments", "mptcp", "any-path"] {
        assert!(near(of(&advice, name).0, 0.6), "{name}: {:?}", of(&advice, name));
    }
    assert_eq!(advice.worst.utilisation[2].rate_mbps, None);
    assert!(advice.worst.failures.iter().all(|failure| failure.disconnected_mbps >= 1.0));
}

#[test]
fn of_a_series_the_worst_matrix_is_shown_and_the_median_beside_it() {
    let matrices = [1, 8, 2].map(|mbits| matrix(&format!("of {mbits}"), &[(0, 1, mbits)]));
    let advice = advice(&square(), &matrices);
    assert_eq!((advice.matrices, advice.worst.matrix.as_str()), (3, "of 8"));
    let row = |name: &str| advice.series.iter().find(|row| row.name == name).unwrap();
    assert_eq!(row("ecmp").extent, Extent { worst: 0.8, median: 0.2 });
    assert_eq!((row("igp").matrix.as_str(), advice.series.len()), ("of 8", 7));
    assert!(near(row("any-path").extent.median, 0.1));
}

#[test]
fn without_links_nothing_is_used_and_all_is_disconnected() {
    let advice = advice(&graph(3, vec![edge(0, 1, 10)]), &[matrix("m", &[(0, 2, 3)])]);
    assert_eq!((advice.worst.disconnected_mbps, of(&advice, "mptcp")), (3.0, (0.0, None)));
}
