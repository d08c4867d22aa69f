use insta::assert_snapshot;
use proptest::prelude::*;
use sidestep_net::GraphNode;

use super::*;

fn network(names: &[&str]) -> Graph {
    let node = |name: &&str| GraphNode { name: (*name).into(), position: None };
    Graph { nodes: names.iter().map(node).collect(), ..Graph::default() }
}

fn cities() -> Graph {
    network(&["Bern", "Genf", "Basel", "Chur"])
}

/// The demands as (from, to, bit/s).
fn demands(text: &str, file_name: &str) -> Vec<(usize, usize, u64)> {
    let (matrix, _) = read_demands(text, file_name, &cities(), None).unwrap();
    matrix.demands.iter().map(|demand| (demand.from, demand.to, demand.rate.bits_per_sec())).collect()
}

fn error(text: &str, file_name: &str) -> String {
    read_demands(text, file_name, &cities(), None).unwrap_err().to_string()
}

const REPETITA: &str = "DEMANDS 3\nlabel src dest bw\ndemand_0 0 1 300632\ndemand_1 2 3 1.5\ndemand_2 0 1 1\n";

const XML: &str = r#"<?xml version="1.0"?>
<network xmlns="http://sndlib.zib.de/network" version="1.0">
 <meta><unit>GBITPERSEC</unit></meta>
 <networkStructure><nodes><node id="Bern"/></nodes></networkStructure>
 <demands>
  <demand id="a"><source>Bern</source><target> Genf </target><demandValue>0.25</demandValue><admissiblePaths/></demand>
  <demand id="b"><source>Chur</source><target>Bern</target><routingUnit>1</routingUnit><demandValue>2</demandValue></demand>
 </demands>
</network>
"#;

const NATIVE: &str = "?SNDlib native format; type: network; version: 1.0\n# a comment\nMETA (\n  unit = MBITPERSEC\n)\n\
    NODES (\n  Bern ( 7.4 46.9 )\n)\nLINKS (\n  L1 ( Bern Genf ) 0 0 0 0 ( 155.00 1.00 )\n)\n\
    DEMANDS (\n  D1 ( Bern Genf ) 1 195.00 UNLIMITED\n  D2 ( Genf Chur ) 1 7.5 UNLIMITED\n)\n";

#[test]
fn each_format_has_its_unit_and_pairs_are_added_up() {
    assert_eq!(demands(REPETITA, "a.0000.demands"), [(0, 1, 300_633_000), (2, 3, 1_500)]);
    assert_eq!(demands(XML, "a.xml"), [(0, 1, 250_000_000), (3, 0, 2_000_000_000)]);
    assert_eq!(demands(NATIVE, "a.txt"), [(0, 1, 195_000_000), (1, 3, 7_500_000)]);
}

#[test]
fn the_count_of_demands_may_be_left_out_but_not_be_wrong() {
    assert_eq!(demands(&REPETITA.replace("DEMANDS 3", "DEMANDS"), "a.demands").len(), 2);
    let brief = |count: &str| {
        let error = error(&REPETITA.replace("DEMANDS 3", count), "a.demands");
        error.lines().next().unwrap().to_owned()
    };
    assert_eq!(brief("DEMANDS 4"), "a.demands:6:1: the file ends before demand 3 of 4");
    assert_eq!(brief("DEMANDS 2"), "a.demands:5:1: there are more lines than the 2 demands that `DEMANDS` announced");
}

#[test]
fn tables_are_matrices_or_lists_whatever_separates_their_cells() {
    let all = [(0, 1, 1_000_000), (0, 2, 2_500_000), (3, 0, 4_000_000)];
    for text in [
        ",Bern,Genf,Basel,Chur\nBern,0,1,2.5,0\nChur,4,0,,9\n",
        "Bern;Genf;Basel;Chur\nBern;0;1;2.5;0\nChur;4;0;0;0\n",
        "\"to \"\"x\",Bern,Genf,\"Basel\",Chur\r\nBern,0,1,2.5,0\r\n# nothing\r\nChur,4,0,0,0\r\n",
        "0,1,2.5,0\n0,0,0,0\n0,0,0,0\n4,0,0,7\n",
        "src,dst,rate\nBern,Genf,1\nBern,Basel,2.5\nChur,Bern,4\n",
        "id\tsource\ttarget\trate_kbps\n1\tBern\tGenf\t1000\n2\t0\t2\t2500\n3\tChur\tBern\t4000\n",
        "Bern Genf 1\nBern Basel 2.5\nChur Bern 3\nChur Bern 1\n",
        "Bern,Genf,1000 kbit/s\nBern,Basel,2.5\nChur,Bern,0.004 Gbit/s\n",
    ] {
        assert_eq!(demands(text, "a.csv"), all, "{text}");
    }
    let names = network(&["Washington, DC", "a", "b"]);
    let (matrix, _) = read_demands("\"Washington, DC\",a,3\n", "a.csv", &names, None).unwrap();
    assert_eq!(matrix.demands, [Demand { from: 0, to: 1, rate: Rate::from_mbits(3) }]);
}

#[test]
fn matrices_in_json_are_in_the_order_of_the_nodes_or_by_name() {
    let all = [(0, 1, 1_000_000), (3, 0, 4_500_000)];
    assert_eq!(demands("[[0, 1, 0, 0], [0, 0, 0, 0], [0, 0.0, null, 0], [4.5, 0, 0, 8]]", "a.json"), all);
    assert_eq!(demands(r#"{"Bern,Genf": 1, "Chur -> Bern": "4500 kbit/s"}"#, "a.json"), all);
    assert_eq!(demands(r#"{"(0, 1)": 1, "(3, 0)": 4.5}"#, "a.json"), all);
}

#[test]
fn the_users_unit_wins_and_what_is_assumed_is_said() {
    let read = |text, file_name, unit: Option<&str>| {
        let unit = unit.map(|unit| unit.parse().unwrap());
        let (matrix, reading) = read_demands(text, file_name, &cities(), unit).unwrap();
        (matrix.demands[0].rate, reading.to_string())
    };
    let csv = "Bern,Genf,3\nBern,Bern,4\n";
    let assumed = "demands: of 1 pairs, Mbit/s assumed; left out: 1 of a node to itself";
    assert_eq!(read(csv, "a.csv", None), (Rate::from_mbits(3), assumed.into()));
    assert_eq!(read(csv, "a.csv", Some("gbps")).0, Rate::from_mbits(3_000));
    assert_eq!(read(XML, "a.xml", None).1, "demands: of 2 pairs, Gbit/s");
    assert_eq!(read(XML, "a.xml", Some("Mbit/s")).0, Rate::from_bits_per_sec(250_000));
    assert_eq!(
        "km".parse::<DemandUnit>().unwrap_err(),
        "`km` is no unit of a rate; known are bit/s, kbit/s, Mbit/s, Gbit/s and Tbit/s"
    );
}

#[test]
fn errors_show_the_place_and_what_is_right() {
    assert_snapshot!(error("src,dst,rate\nBern,Basle,1\n", "a.csv"), @"
    a.csv:2:6: the network has no node `Basle`; the nearest name is `Basel`
      |
    2 | Bern,Basle,1
      |      ^
    ");
    assert_snapshot!(error(&XML.replace("<target> Genf ", "<target> Geneve "), "a.xml"), @r#"
    a.xml:6:48: the network has no node `Geneve`; the nearest name is `Genf`
      |
    6 |   <demand id="a"><source>Bern</source><target> Geneve </target><demandValue>0.25</demandValue><admissiblePaths/></demand>
      |                                                ^
    "#);
    let brief = |text: &str, name: &str| error(text, name).lines().next().unwrap().to_owned();
    assert_snapshot!(brief(&REPETITA.replace(" 2 3 ", " 2 4 "), "a.demands"), @"a.demands:4:12: there is no node `4`; nodes are numbers below 4");
    assert_snapshot!(brief(&REPETITA.replace("1.5", "-1.5"), "a.demands"), @"a.demands:4:14: the demand `-1.5` is negative");
    assert_snapshot!(brief("Bern,Genf,1e30\n", "a.csv"), @"a.csv:1:11: the demand `1e30` is above 10^18 bit/s; is --demand-unit right?");
    assert_snapshot!(brief("src,dst,rate\nBern,Genf,1e30\n", "a.csv"), @"a.csv:2:11: the demand `1e30` is above 10^18 bit/s; is --demand-unit right?");
    assert_snapshot!(brief("src,dst,rate_furlongs\n", "a.csv"), @"a.csv:1:9: `furlongs` is no unit of a rate; known are bit/s, kbit/s, Mbit/s, Gbit/s and Tbit/s");
    assert_snapshot!(brief("a,Bern,Genf\nChur,1\n", "a.csv"), @"a.csv:2:1: the line has 1 demands, but there are 2 destinations");
    assert_snapshot!(brief("[[0, 1]]", "a.json"), @"a.json:1:2: row 0 has 2 demands; the network has 4 nodes");
    assert_snapshot!(brief(r#"{"Bern": 1}"#, "a.json"), @r#"a.json:1:3: `Bern` is no pair of nodes; write "SOURCE,DESTINATION""#);
    assert_snapshot!(brief("0,0,0,0\n0,0,0,0\n", "a.csv"), @"a.csv:2:1: a matrix of 4 nodes needs as many lines, not 2");
    assert_snapshot!(brief("", "a.pkl"), @"a.pkl:1:1: a pickle is a program and is not read; write the matrix as JSON: json.dump(matrix.tolist(), file)");
    assert_snapshot!(brief("", "a.graph"), @"a.graph:1:1: `.graph` is no format of demands; read are REPETITA (.demands), SNDlib (.xml, .txt), CSV (.csv, .txt) and matrices in JSON (.json)");
    assert_snapshot!(brief("src,dst,rate\nBern,Bern,1\n", "a.csv"), @"a.csv:3:1: there is no demand above zero between two nodes in the file");
    let twins = network(&["a", "a", "b"]);
    let error = read_demands("src,dst,rate\na,b,1\n", "a.csv", &twins, None).unwrap_err();
    assert_eq!(error.message, "several nodes have the name `a`; name them by their places in the file, from 0 to 2");
}

#[test]
fn generated_demands_follow_from_the_seed_and_add_up_to_the_total() {
    let names: Vec<String> = (0..40).map(|node| format!("n{node}")).collect();
    let graph = network(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for text in ["gravity:100 Gbit/s", "uniform:100 Gbit/s"] {
        let generator: Generator = text.parse().unwrap();
        let matrix = generator.draw(&graph, 1).unwrap();
        assert_eq!(matrix.demands.len(), 40 * 39);
        assert!((matrix.total() - 1e11).abs() < 1e4, "{}", matrix.total());
        assert_eq!(matrix, generator.draw(&graph, 1).unwrap());
        assert_ne!(matrix, generator.draw(&graph, 2).unwrap());
    }
    // Of gravity each two rows are in proportion, apart from the diagonal; of a uniform matrix they are not.
    let ratio = |text: &str, to: usize| {
        let matrix = text.parse::<Generator>().unwrap().draw(&graph, 1).unwrap();
        let rate = |from: usize| {
            let found = matrix.demands.iter().find(|demand| (demand.from, demand.to) == (from, to));
            found.unwrap().rate.bits_per_sec() as f64
        };
        rate(0) / rate(1)
    };
    let apart = |text: &str| (ratio(text, 7) / ratio(text, 23) - 1.0).abs();
    assert!(apart("gravity:100 Gbit/s") < 1e-4 && apart("uniform:100 Gbit/s") > 1e-2);
    assert_eq!("gravity".parse::<Generator>(), Err("write gravity:TOTAL or uniform:TOTAL".into()));
    assert_eq!("gravity:0".parse::<Generator>(), Err("the total must be above zero".into()));
    assert_eq!("uniform:1 Gbit/s".parse::<Generator>().unwrap().draw(&network(&["a"]), 1), Err(GenerateError::NoPair));
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(
        text in "[ -~\n\t\",;{}\\[\\]<>é]{0,120}",
        begin in prop::sample::select(vec!["", "DEMANDS 2\nlabel src dest bw\n", "?SNDlib\nDEMANDS (\n", "src,dst,rate\n", "[[", "{\"", "<network><demands>"]),
        extension in prop::sample::select(vec!["demands", "xml", "txt", "csv", "json"]),
    ) {
        let _ = read_demands(&format!("{begin}{text}"), &format!("a.{extension}"), &cities(), None);
    }
}
