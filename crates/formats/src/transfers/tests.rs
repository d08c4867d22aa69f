//! What lists of transfers say, and what is refused.

use sidestep_net::{Bytes, Graph, GraphNode, ListedTransfer, Span};

use super::read_transfers;

fn graph() -> Graph {
    let node = |name: &str| GraphNode { name: name.into(), position: None };
    Graph { nodes: ["h1", "h2", "h3", "h4"].map(node).into(), ..Graph::default() }
}

fn read(text: &str, file: &str) -> Vec<(usize, usize, u64, u64)> {
    let (transfers, _) = read_transfers(text, file, &graph()).unwrap();
    let tuple = |ListedTransfer { from, to, size, start }| (from, to, size.get(), start.as_nanos());
    transfers.into_iter().map(tuple).collect()
}

fn complaint(text: &str, file: &str) -> String {
    let error = read_transfers(text, file, &graph()).unwrap_err();
    format!("{}:{}: {}", error.line, error.column, error.message)
}

#[test]
fn connection_matrices_of_htsim_are_in_bytes_and_picoseconds() {
    let text = "Nodes 4\nConnections 3\n3->0 id 1 start 0 size 2000000\n0->1 id 2 start 1500000 size 1 prio 3\n2->2 start 0 size 9\n";
    assert_eq!(read(text, "perm.cm"), [(3, 0, 2_000_000, 0), (0, 1, 1, 1_500)]);
    let (_, reading) = read_transfers(text, "perm.cm", &graph()).unwrap();
    let said = "transfers: 2, sizes in bytes and starts in ps where no unit is given; left out: 1 of a node to itself";
    assert_eq!(reading.to_string(), said);
    for (text, expected) in [
        ("Nodes 5\n", "1:1: the list is for 5 nodes, and the network has 4"),
        ("Connections 2\n0->1 start 0 size 1\n", "2:1: `Connections` announced 2, and there are 1"),
        ("0->1 start 0\n", "1:1: the connection has no `size`; without one it never ends"),
        ("0->1 size 1\n", "1:1: the connection has no `start`"),
        ("0->1 size 1 start\n", "1:13: `start` has no value"),
        ("0->4 size 1 start 0\n", "1:4: there is no node `4`; nodes are numbers below 4"),
        ("0->1 size 1 trigger 3\n", "1:13: a connection that waits for a trigger has no start, and is not read"),
        ("Triggers 1\n", "1:1: connections that wait for triggers have no start, and are not read"),
        ("0->1 size 0 start 0\n", "1:11: the size `0` is not between 1 and 10^12 bytes"),
        ("0->1 size 5 start -1\n", "1:19: the start `-1` is negative"),
        ("", "1:1: there is no transfer between two nodes in the file"),
    ] {
        assert_eq!(complaint(text, "x.cm"), expected);
    }
}

#[test]
fn flows_of_hpcc_are_as_many_as_announced_and_what_follows_is_an_explanation() {
    let text = "2\n2 1 3 100 200000000 2\n3 1 3 100 5000000 2.000005\n\nFirst line: # of flows\nsrc0 dst0 3 dst_port0 size0 start_time0\n";
    let expected = [(2, 1, 200_000_000, 2_000_000_000), (3, 1, 5_000_000, 2_000_005_000)];
    assert_eq!(read(text, "flow.txt"), expected);
    assert_eq!(read("1\n3 1 3 5000000 2.000005\n", "flow.txt"), expected[1..], "without ports");
    assert_eq!(complaint("2\n2 1 3 100 1 0\n", "flow.txt"), "3:1: the file ends before transfer 2 of 2");
    assert!(complaint("1\n2 1 3\n", "flow.txt").starts_with("2:1: 3 fields; expected source"));
}

#[test]
fn tables_have_titles_with_units_or_source_destination_size_and_start() {
    let expected = [(0, 2, 10_000, 2_000_000), (1, 0, 1, 0)];
    for (text, file) in [
        ("src,dst,size,start_ms\nh1,h3,10 kB,2\nh2,h1,1,0\n", "a.csv"),
        ("start (us);size_bytes;to;from\n2000;10000;h3;h1\n0;1;h1;h2\n", "a.csv"),
        ("h1 h3 10000 0.002\n# a remark\nh2 h1 1 0\n", "a.txt"),
        ("0\t2\t10000\t2ms\n1\t0\t1\t0\n", "a.tsv"),
        ("\u{feff}\"source\",\"dest\",\"bytes\",\"time\"\n\"h1\",\"h3\",\"10000\",\"2 ms\"\nh2,h1,1,0 s\n", "a.csv"),
    ] {
        assert_eq!(read(text, file), expected, "{text}");
    }
    for (text, expected) in [
        (
            "src,dst,size\nh1,h2,1\n",
            "1:1: the titles must name source, destination, size and start, such as src,dst,size,start",
        ),
        ("src,dst,size_kb,start\n", "1:9: sizes must be bytes, or have their unit in each cell; not `kb`"),
        ("src,dst,size,start_min\n", "1:14: `min` is no unit of time; known are s, ms, us, ns and ps"),
        ("h1,h2x,1,0\n", "1:4: the network has no node `h2x`; the nearest name is `h2`"),
        ("h1,h2,1\n", "1:1: the line has 3 cells; a transfer needs 4"),
        ("h1,h2,nan,0\n", "1:7: the size `nan` is not a finite number"),
        ("h1,h2,1,1e30\n", "1:9: the start `1e30` is more than 30 years"),
    ] {
        assert_eq!(complaint(text, "a.csv"), expected);
    }
    assert!(complaint("", "a.parquet").starts_with("1:1: `.parquet` is no format of transfers"));
    let (transfers, _) = read_transfers("h1,h2,1 B,1 ns\n", "a.csv", &graph()).unwrap();
    assert_eq!((transfers[0].size, transfers[0].start), (Bytes::new(1), Span::from_nanos(1)));
}

#[test]
fn a_number_says_nothing_where_nodes_were_left_out() {
    let part = Graph { is_part: true, ..graph() };
    assert_eq!(read_transfers("h1,h2,1,0\n", "a.csv", &part).unwrap().0.len(), 1);
    let refused = read_transfers("0,1,1,0\n", "a.csv", &part).unwrap_err().message;
    assert!(refused.starts_with("nodes of the network's file were left out"), "{refused}");
}
