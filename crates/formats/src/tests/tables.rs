//! Edge lists, tables, containerlab, BRITE, SNDlib's native format and Rocketfuel's weights: what is refused, and with what words.

use sidestep_net::Rate;

use super::super::*;

/// The first line of the error.
fn error(text: &str, name: &str) -> String {
    read(text, name).expect_err("it is refused").to_string().lines().next().unwrap_or_default().into()
}

fn ends(graph: &Graph) -> Vec<(&str, &str, bool)> {
    let name = |node: usize| graph.nodes[node].name.as_str();
    graph.edges.iter().map(|edge| (name(edge.from), name(edge.to), edge.directed)).collect()
}

pub(super) const NATIVE: &str = "?SNDlib native format; type: network; version: 1.0
NODES (
  A ( 10.0 50.0 )
  B (-5.5 30.25)
  C
)
LINKS (
  AB ( A B ) 40.00 1.00 2.00 0.00 ( 155.00 3.00 622.00 5.00 )
  BC ( B C ) 0.00 0.00 0.00 0.00 ( UNLIMITED 0.00 )
)
DEMANDS ( AB ( A B ) 1 5 UNLIMITED )
";

pub(super) const BRITE: &str = "Topology: ( 3 Nodes, 2 Edges )
Model (1 - RTWaxman):  3 5 5 1
Nodes: ( 3 )
7 1 3 1 1 -1 RT_NODE
8 0 3 2 2 -1 RT_NODE
9 4 3 1 1 -1 RT_NODE

Edges: ( 2 )
0 7 8 3.0 1.1 10.0 -1 -1 E_RT U
1 8 9 4.0 2.1 -1 -1 -1 E_RT D
";

pub(super) const CSV: &str = "source,target,capacity,delay\na,b,10G,1 ms\nb,\"c, d\",5G,2 ms\n";
pub(super) const LIST: &str = "# an edge list\n1 2 10\n2 3 5.5\n3 1\n";
pub(super) const DICT: &str = "1 2 {'capacity': 10, 'name': 'x, y'}\n2 3 {}\n";
pub(super) const WEIGHTS: &str = "Perth,+Australia1 Sydney,+Australia3 2.5\nSydney,+Australia3 Perth,+Australia1 1\n";

pub(super) const CLAB: &str = "name: lab
topology:
  nodes:
    a: {kind: linux}
    b: {kind: linux, labels: {tier: 1}}
  links:
    - endpoints: [\"a:eth1\", \"b:eth1\"]
    - type: veth
      endpoints: [{node: a, interface: eth2}, {node: b, interface: eth2}]
      labels: {capacity: 10 Gbit/s, delay: 2 ms}
";

#[test]
fn separators_are_found_and_quotes_kept() {
    for (text, name) in [
        ("a,b,2\nb,c d,3\n", "a.csv"),
        ("a;b;2\nb;\"c d\";3\n", "a.csv"),
        ("a\tb\t2\nb\tc d\t3\n", "a.tsv"),
        ("a\tb\t2\nb\tc d\t3\n", "a.csv"),
        ("a b 2\nb \"c d\" 3\n", "a.csv"),
        ("a, b, 2\nb, c d, 3\n", "a.txt"),
        ("a,b,2\r\nb,c d,3\r\n", "a.edges"),
        ("  a\t b   2\n\n# none\nb \"c d\" 3", "a.edgelist"),
    ] {
        let graph = read(text, name).unwrap();
        assert_eq!(ends(&graph), [("a", "b", false), ("b", "c d", false)], "{text}");
        assert_eq!(graph.edges.iter().map(|edge| edge.weight).collect::<Vec<_>>(), [Some(2.0), Some(3.0)], "{text}");
    }
    assert_eq!(ends(&read("a b 2 # two\n", "a.txt").unwrap()), [("a", "b", false)]);
    assert_eq!(ends(&read("O\"Hare,6\"\n", "a.csv").unwrap()), [("O\"Hare", "6\"", false)]);
    let graph = read("from,to\n\"a \"\"x\"\"\",b\n", "a.csv").unwrap();
    assert_eq!(ends(&graph), [("a \"x\"", "b", false)]);
}

#[test]
fn a_list_with_both_directions_of_a_link_is_directed() {
    assert_eq!(
        ends(&read("a b\nb c\nb b", "a.txt").unwrap()),
        [("a", "b", false), ("b", "c", false), ("b", "b", false)]
    );
    let graph = read("a b\nb c\nb a", "a.txt").unwrap();
    assert_eq!(ends(&graph), [("a", "b", true), ("b", "c", true), ("b", "a", true)]);
    assert_eq!(graph.links().len(), 2);
    let graph = read("src,dst,Type\na,b,Directed\nb,a,Undirected\nb,c,\n", "a.csv").unwrap();
    assert_eq!(ends(&graph), [("a", "b", true), ("b", "a", false), ("b", "c", false)]);
    // Of another kind of `type` nothing is made.
    let (graph, reading) = read_as("src,dst,type\na,b,1\n", "a.csv", &Mapping::default()).unwrap();
    assert_eq!((ends(&graph), reading.ignored), (vec![("a", "b", false)], vec!["type".into()]));
}

#[test]
fn the_user_maps_columns_and_the_third_of_a_list() {
    let mapping = |text: &str| text.parse::<Mapping>().unwrap();
    let (graph, _) = read_as(LIST, "a.txt", &mapping("weight=rate:Mbit/s")).unwrap();
    assert_eq!(graph.edges[0].rate.map(Rate::as_mbits), Some(10.0));
    let (graph, _) = read_as(WEIGHTS, "weights.intra", &mapping("weight=delay:ms")).unwrap();
    assert_eq!(graph.edges[0].delay.map(|delay| delay.as_nanos()), Some(2_500_000));
    let (graph, _) = read_as(NATIVE, "a.txt", &mapping("routing_cost=weight")).unwrap();
    assert_eq!(graph.edges[0].weight, Some(2.0));
}

#[test]
fn lists_and_tables_say_what_is_wrong_and_where() {
    let needs =
        "without a header that names the columns `source` and `target`, a line has two ends and perhaps a weight";
    assert_eq!(error("a b 1\nc\n", "a.txt"), format!("a.txt:2:1: {needs}"));
    assert_eq!(error("a b 1 2\n", "a.txt"), format!("a.txt:1:7: {needs}"));
    assert_eq!(error("a,b,x\n", "a.csv"), format!("a.csv:1:5: `x` is not a weight; {needs}"));
    assert_eq!(error("a,b,-1\n", "a.csv"), "a.csv:1:5: the weight `-1` is negative");
    assert_eq!(error("source,target,cost\na,b\n", "a.csv"), "a.csv:2:4: 2 fields stand below a header of 3");
    assert_eq!(error("source,target\na,b,,9\n", "a.csv"), "a.csv:2:5: 4 fields stand below a header of 2");
    assert_eq!(error("source,target\na,\n", "a.csv"), "a.csv:2:3: the name of a node is empty");
    assert_eq!(error("a,\"b\nc,d\n", "a.csv"), "a.csv:1:3: the line ends within quotes");
    assert_eq!(error("1 2 {'a' 1}\n", "a.txt"), "a.txt:1:6: expected `'KEY': VALUE`");
    assert_eq!(error("# nothing\n", "a.csv"), "a.csv:2:1: there is not one node in the file");
    assert_eq!(error("source,target\n", "a.csv"), "a.csv:2:1: there is not one node in the file");
}

#[test]
fn sndlibs_native_format_says_what_is_wrong_and_where() {
    let graph = read(NATIVE, "a.txt").unwrap();
    assert_eq!(
        graph.edges.iter().map(|edge| edge.rate.map(Rate::as_mbits)).collect::<Vec<_>>(),
        [Some(40_000.0), None]
    );
    assert_eq!(graph.nodes[1].position, Some((-5.5, 30.25)));
    // Coordinates of a picture place no router on earth.
    assert_eq!(read(&NATIVE.replace("10.0 50.0", "410.0 50.0"), "a.txt").unwrap().nodes[1].position, None);
    let changed = |old: &str, new: &str| error(&NATIVE.replacen(old, new, 1), "a.txt");
    assert_eq!(changed("( A B ) 40", "( A D ) 40"), "a.txt:8:10: there is no node `D`");
    assert_eq!(changed("  C\n", "  A\n"), "a.txt:5:3: node `A` exists twice; give each an id of its own");
    assert_eq!(
        changed("40.00 1.00 2.00 0.00 (", "40.00 ("),
        "a.txt:8:20: `(` stands where the link's capacity_cost should"
    );
    assert_eq!(changed("( 10.0 50.0 )", "( 10.0 )"), "a.txt:3:12: `)` stands where a coordinate should");
    assert_eq!(changed("UNLIMITED )\n", ""), "a.txt:11:26: the end stands where `)` should");
}

#[test]
fn brite_says_what_is_wrong_and_where() {
    let graph = read(BRITE, "a.brite").unwrap();
    assert_eq!(ends(&graph), [("7", "8", false), ("8", "9", true)]);
    assert_eq!(graph.edges.iter().map(|edge| edge.rate.map(Rate::as_mbits)).collect::<Vec<_>>(), [Some(10.0), None]);
    assert_eq!(graph.edges[0].delay.map(|delay| delay.as_nanos()), Some(1_100_000));
    let changed = |old: &str, new: &str| error(&BRITE.replacen(old, new, 1), "a.brite");
    assert_eq!(changed("8 9 4.0", "8 6 4.0"), "a.brite:10:5: there is no node `6`");
    let few = changed("9 4 3 1 1 -1 RT_NODE", "9 4");
    assert_eq!(few, "a.brite:6:4: only 2 fields; expected a node: id, two coordinates, and more");
    assert_eq!(
        changed("Nodes: ( 3 )", "Nodes: ( 2 )"),
        "a.brite:6:1: expected `Edges: ( M )` behind the 2 nodes that `Nodes:` announced"
    );
    assert_eq!(
        changed("Edges: ( 2 )", "Edges: ( 1 )"),
        "a.brite:10:1: there are more lines than the 1 edges that `Edges:` announced"
    );
    assert_eq!(changed("Edges: ( 2 )", "Edges: ( 3 )"), "a.brite:11:1: expected edge 2 of 3");
    assert_eq!(
        changed("Nodes: ( 3 )", "Nodes: ( x )"),
        "a.brite:3:1: expected a count in parentheses, of at most 1000000"
    );
    assert_eq!(error("", "a.brite"), "a.brite:1:1: expected `Topology: ( N Nodes, M Edges )`");
}

#[test]
fn rocketfuels_weights_and_latencies_are_one_network() {
    let latencies =
        "Sydney,+Australia3 Perth,+Australia1 3\nPerth,+Australia1 Sydney,+Australia3 4\nPerth,+Australia1 x 9\n";
    let both = |latencies| {
        let companion = Some((latencies, "1221/latencies.intra"));
        read_with(WEIGHTS, "1221/weights.intra", companion, &Mapping::default())
    };
    let (graph, _) = both(latencies).unwrap();
    assert_eq!((graph.name.as_str(), graph.nodes.len(), graph.edges.len()), ("1221", 3, 3));
    let values: Vec<_> =
        graph.edges.iter().map(|edge| (edge.weight, edge.delay.map(|delay| delay.as_nanos()))).collect();
    assert_eq!(values, [(Some(2.5), Some(4_000_000)), (Some(1.0), Some(3_000_000)), (None, Some(9_000_000))]);
    // An error in the second file names it.
    let first = |text| both(text).unwrap_err().to_string().lines().next().unwrap().to_owned();
    assert_eq!(
        first("a b 1\nc d\n"),
        "1221/latencies.intra:2:4: only 2 fields; expected a link: its two ends, and its weight or latency"
    );
    assert_eq!(first("a b 1\nc d e\n"), "1221/latencies.intra:2:5: the delay `e` is not a finite number");
    assert_eq!(error("a b -1", "1.weights.intra"), "1.weights.intra:1:5: the weight `-1` is negative");
    assert_eq!(
        error("a b 1", "a.intra"),
        "a.intra:1:1: name the file `weights.intra` or `latencies.intra`, by what its lines have"
    );
    assert_eq!(companion("x/1221.weights.intra").as_deref(), Some("x/1221.latencies.intra"));
    assert_eq!((companion("latencies.intra").as_deref(), companion("a.cch")), (Some("weights.intra"), None));
    assert_eq!(read(WEIGHTS, "x/1221.weights.intra").unwrap().name, "1221");
    assert_eq!(read(WEIGHTS, "weights.intra").unwrap().name, "weights");
}

#[test]
fn containerlab_says_what_is_wrong_and_where() {
    let graph = read(CLAB, "x/a.clab.yml").unwrap();
    assert_eq!((graph.name.as_str(), ends(&graph)), ("a", vec![("a", "b", false); 2]));
    assert_eq!(graph.edges[1].rate.map(Rate::as_mbits), Some(10_000.0));
    let changed = |old: &str, new: &str| error(&CLAB.replacen(old, new, 1), "a.clab.yml");
    assert_eq!(changed("a:eth1", "c:eth1"), "a.clab.yml:7:19: there is no node `c`");
    assert_eq!(
        changed("\"a:eth1\", ", ""),
        "a.clab.yml:7:7: a link needs two `endpoints`, such as [\"a:eth1\", \"b:eth1\"]"
    );
    assert_eq!(
        changed("[\"a:eth1\"", "[\"a:eth2\", \"a:eth1\""),
        "a.clab.yml:7:39: there are more than 2 endpoints of a link"
    );
    assert_eq!(
        changed("topology:", "topologie:"),
        "a.clab.yml:11:1: there are no `nodes` in a `topology`; of YAML files containerlab's are read"
    );
    assert_eq!(
        changed("name: lab", "name: [lab"),
        "a.clab.yml:2:9: this is not YAML: illegal placement of ':' indicator"
    );
    let none = "topology: {nodes: {a: }, links: none}\n";
    assert_eq!(error(none, "a.clab.yml"), "a.clab.yml:1:33: `none` stands where a sequence should");
    let two = changed("name: lab", "name: é\n---\na: 1");
    assert!(two.contains("only one document in a file is read"), "{two}");
    let deep = format!("a: {}", "[".repeat(200));
    assert!(error(&deep, "a.yaml").contains("nested deeper than 64 levels"), "{}", error(&deep, "a.yaml"));
    let deep = format!("{}a: 1\n", (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>());
    assert!(error(&deep, "a.yaml").contains("nested deeper than 64 levels"), "{}", error(&deep, "a.yaml"));
}
