//! What a topology offers, asked as its operator would.

use std::collections::BTreeSet;

use serde_json::Value;
use sidestep_net::topology_file;
use sidestep_scenario::builder::replace_once;

use crate::common::{Ended, Room};

/// A ring of five with a tail; the detour takes two segments.
const RING: &str = r#"<graphml><key attr.name="label" for="node" id="n"/><graph edgedefault="undirected">
<node id="0"><data key="n">Perth</data></node><node id="1"/><node id="2"/><node id="3"/><node id="4"/><node id="5"/>
<edge source="0" target="1"/><edge source="1" target="2"/><edge source="2" target="3"/><edge source="3" target="4"/>
<edge source="4" target="0"/><edge source="4" target="5"/></graph></graphml>
"#;

fn json(ended: &Ended) -> Value {
    ended.is_fine();
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_file_is_described_pruned_and_drawn() {
    let room = Room::new();
    let file = room.write("Ring.graphml", RING);
    let info = json(&room.run(&["topo", "info", &file, "--json"]));
    assert_eq!((&info["name"], &info["nodes"], &info["pruned"]["access"]), (&"Ring".into(), &6.into(), &5.into()));
    let pruned = json(&room.run(&["topo", "prune", &file, "--json"]));
    assert_eq!((pruned["nodes"].as_array().unwrap().len(), &pruned["nodes"][0]["name"]), (5, &"Perth".into()));
    let drawn = json(&room.run(&["topo", "draw", &file, "--json"]));
    assert_eq!(drawn["file"], "Ring.svg");
    assert!(std::fs::read_to_string(room.path("Ring.svg")).unwrap().contains("Perth"));
}

#[test]
fn weights_and_latencies_of_rocketfuel_are_read_together() {
    let room = Room::new();
    let weights = room.write("1221.weights.intra", "Perth1 Sydney2 2\nSydney2 Perth1 3\n");
    room.write("1221.latencies.intra", "Sydney2 Perth1 17\nPerth1 Sydney2 17\n");
    let info = json(&room.run(&["topo", "info", &weights, "--json"]));
    assert_eq!((&info["name"], &info["nodes"], &info["links"]), (&"1221".into(), &2.into(), &1.into()));
    let known = |kind: &str| {
        let taken = info["reading"]["taken"].as_array().unwrap().iter().find(|taken| taken["kind"] == kind).unwrap();
        taken["known"].clone()
    };
    assert_eq!((known("weights"), known("delays")), (2.into(), 2.into()));
}

#[test]
fn what_was_read_of_a_file_is_printed_and_a_mapping_changes_it() {
    let room = Room::new();
    let ring: String = (0..4)
        .map(|node| {
            format!("<edge source=\"{node}\" target=\"{}\"><data key=\"c\">{}</data></edge>", (node + 1) % 4, 50 + node)
        })
        .collect();
    let nodes = "<node id=\"0\"/><node id=\"1\"/><node id=\"2\"/><node id=\"3\"/><node id=\"4\"/>";
    let keys = "<key id=\"c\" for=\"edge\" attr.name=\"capacity\"/>";
    let text = format!("<graphml>{keys}<graph edgedefault=\"directed\">{nodes}{ring}</graph></graphml>");
    let file = room.write("one.graphml", &text);
    let told = room.run(&["topo", "info", &file, "--json"]);
    let has = |line: &str| assert!(told.stderr.lines().any(|one| one == line), "{told:#?}");
    has("one: rates: key `capacity`, 4 of 4, Gbit/s assumed");
    has("one: directions: none in the file; 4 of 4 links have one direction only");
    let info = json(&told);
    assert_eq!((&info["reading"]["taken"][1]["kind"], &info["symmetric"]), (&"rates".into(), &false.into()));
    let disjoint = ["paths", "disjoint", &file, "--no-prune", "--between", "all", "--part", "largest", "--json"];
    let found = json(&room.run(&disjoint));
    assert_eq!((&found["pairs"], &found["curves"][0]["pairs"]), (&12.into(), &serde_json::json!([0, 12])));
    let around = ["paths", "between", &file, "1", "0", "--map", "capacity=weight", "--json"];
    let found = json(&room.run(&around));
    assert_eq!(found["paths"][0]["nodes"], serde_json::json!(["1", "2", "3", "0"]));
    assert_eq!(found["paths"][0]["cost"], 51 + 52 + 53);
    let refused = room.run(&["topo", "info", &file, "--map", "speed=rate"]);
    assert!(refused.complaint(2).contains("there is no key `speed` to map; there are `capacity`"), "{refused:?}");
}

#[test]
fn paths_are_counted_by_algorithm_and_by_segments() {
    let room = Room::new();
    let file = room.write("Ring.graphml", RING);
    let disjoint = json(&room.run(&["paths", "disjoint", &file, "--json"]));
    assert_eq!((&disjoint["pairs"], &disjoint["curves"][0]["mean"]), (&10.into(), &2.0.into()));
    let segments = json(&room.run(&["paths", "segments", &file, "--max-segments", "3", "--json"]));
    let means: Vec<&Value> = segments["curves"].as_array().unwrap().iter().map(|curve| &curve["mean"]).collect();
    assert_eq!(means, [&Value::from(1.0), &2.0.into(), &2.0.into()]);
    let detours = json(&room.run(&["paths", "detours", &file, "--json"]));
    assert_eq!((&detours["links"], &detours["one_hop"], &detours["neither"]), (&6.into(), &0.into(), &6.into()));
    assert!(room.run(&["paths", "segments", &file]).stdout.contains("at most 10 segments"));
}

/// In the ring of five each pair has a detour, which a single shortest path leaves idle.
#[test]
fn maximum_flows_are_compared_by_model_and_the_distribution_is_drawn() {
    let room = Room::new();
    let file = room.write("Ring.graphml", RING);
    let command =
        ["maxflow", &file, "--share", "1%,100%", "--draws", "3", "--max-segments", "1,2", "--svg", "gain.svg"];
    let found = json(&room.run(&[&command[..], &["--json"]].concat()));
    assert_eq!((&found["between"], &found["programs"], &found["interrupted"]), (&5.into(), &60.into(), &false.into()));
    assert!(found["largest_gap"].as_f64() <= Some(1e-6) && found["capacities"].as_str().unwrap().contains("1 Gbit/s"));
    let one = &found["shares"][0];
    assert_eq!((&one["pairs"], &one["draws"]), (&1.into(), &3.into()));
    let gain = |model: &Value| model["gain_over"]["ecmp"]["mean"].as_f64().unwrap().round();
    let gains: Vec<(&str, f64)> =
        one["models"].as_array().unwrap().iter().map(|model| (model["name"].as_str().unwrap(), gain(model))).collect();
    let without = [("single-path", 0.0), ("ecmp", 0.0), ("multipath", 0.0), ("sr-1", 0.0), ("sr-1-multipath", 0.0)];
    let with = [("sr-2", 100.0), ("sr-2-multipath", 100.0), ("sr", 100.0), ("sr-multipath", 100.0), ("bound", 100.0)];
    assert_eq!(gains, [without, with].concat());
    assert!(std::fs::read_to_string(room.path("gain.svg")).unwrap().contains("share of draws"));
    let table = room.run(&command).stdout;
    assert!(table.contains("100.0 ± 0.0") && table.contains("60 programs"), "{table}");
    // Two links in the other direction and an adjacency: one segment, for pairs that are no neighbours.
    let forced = json(&room.run(&["maxflow", &file, "--share", "1%", "--max-segments", "1", "--adjacency", "--json"]));
    let sr_1 = &forced["shares"][0]["models"][3];
    assert_eq!((&forced["adjacency"], &sr_1["name"]), (&true.into(), &"sr-1".into()));
    assert!((1.0..100.0).contains(&gain(sr_1)), "{sr_1}");
    let refused = room.run(&["maxflow", &file, "--merge-parallel"]);
    assert!(refused.error(2).contains("leave out --merge-parallel"), "{refused:?}");
}

/// A ring of five has two paths for each pair, the second by three segments or fewer, and any link's failure leaves
/// one.
#[test]
fn advice_is_given_in_a_sentence_as_json_and_on_a_page_that_needs_nothing_beside_it() {
    let room = Room::new();
    let file = room.write("Ring.graphml", &replace_once(RING, "Perth", "&lt;script&gt;"));
    let text = room.run(&["advise", &file, "--draws", "3"]);
    text.is_fine();
    assert!(
        text.stdout
            .starts_with("Ring: 2 segments are enough: 100 % of the pairs have a second path, and carry 100 % more"),
        "{text:?}"
    );
    let page = std::fs::read_to_string(room.path("out/advise/Ring.html")).unwrap();
    assert!(page.contains("&lt;script&gt;") && page.contains("<svg"), "{page}");
    for banned in ["<script", "src=", "@import", "url(", "<link", "https://"] {
        assert!(!page.contains(banned), "{banned}");
    }
    let advice = json(&room.run(&["advise", &file, "--draws", "3", "--json", "--out", "a/page.html"]));
    assert_eq!((&advice["between"], &advice["asked"], &advice["pairs"]), (&"access".into(), &5.into(), &10.into()));
    assert_eq!((&advice["limit"]["advised"], &advice["flow"]["gain"]["mean"]), (&2.into(), &100.0.into()));
    assert_eq!((&advice["links_relied_on"], advice["reliance"].as_array().unwrap().len()), (&5.into(), 5));
    assert!(advice["reliance"].as_array().unwrap().iter().all(|one| one["exposed"] == 10 && one["in_transit"] == 3));
    assert!(room.path("a/page.html").is_file());
    // One pair of ten, one way or the other: there are no more choices, and each gains as much.
    let flow = &advice["flow"];
    assert_eq!((&flow["draws"], &flow["ended"], &flow["narrow"]), (&20.into(), &"all".into(), &true.into()));
    assert_eq!((&flow["different_pairs"], &flow["of_pairs"]), (&10.into(), &10.into()));
    assert_eq!(
        (&flow["gain_at_limit"]["median"], &flow["gain_at_limit"]["range"]),
        (&100.0.into(), &serde_json::json!([100.0, 100.0]))
    );
    assert!(text.stdout.contains("the median of all 20 choices of 1 of 10 pairs, from 100 to 100 %"), "{text:?}");
}

#[test]
fn advice_is_given_where_there_are_no_access_routers_no_second_paths_or_several_parts() {
    let room = Room::new();
    let head =
        "<graphml><graph edgedefault=\"undirected\"><node id=\"0\"/><node id=\"1\"/><node id=\"2\"/><node id=\"3\"/>";
    let edge = |(from, to): &(u32, u32)| format!("<edge source=\"{from}\" target=\"{to}\"/>");
    let graph = |name: &str, ends: &[(u32, u32)]| {
        let edges: String = ends.iter().map(edge).collect();
        room.write(name, &format!("{head}{edges}</graph></graphml>"))
    };
    let mesh = graph("mesh.graphml", &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
    let advice = json(&room.run(&["advise", &mesh, "--json"]));
    assert_eq!(
        (&advice["between"], &advice["asked"], &advice["most"]["mean"]),
        (&"pruned".into(), &4.into(), &3.0.into())
    );
    let star = graph("star.graphml", &[(0, 1), (0, 2), (0, 3)]);
    let advice = room.run(&["advise", &star]);
    advice.is_fine();
    assert!(advice.stdout.starts_with("star: No pair has a second path"), "{advice:?}");
    let apart = graph("apart.graphml", &[(0, 1), (0, 1), (2, 3), (2, 3)]);
    let advice = json(&room.run(&["advise", &apart, "--json"]));
    assert_eq!((&advice["parts"], &advice["most"]["pairs"]), (&2.into(), &serde_json::json!([4, 0, 2])));
}

#[test]
fn a_topology_is_converted_and_its_shared_risks_count() {
    let room = Room::new();
    let file = room.write("Ring.graphml", RING);
    let done = json(&room.run(&["topo", "convert", &file, "ring.toml", "--default-rate", "10 Mbit/s", "--json"]));
    assert_eq!((&done["rates_assumed"], &done["delays_computed"]), (&6.into(), &6.into()));
    let text = std::fs::read_to_string(room.path("ring.toml")).unwrap();
    assert!(text.contains("\"Perth\"") && text.contains("10 Mbit/s"), "{text}");
    json(&room.run(&["topo", "convert", "ring.toml", "ring.graph", "--json"]));
    let info = json(&room.run(&["topo", "info", "ring.graph", "--json"]));
    assert_eq!((&info["nodes"], &info["links"], &info["symmetric"]), (&6.into(), &6.into(), &true.into()));
    // All links in one duct: no pair has two paths that share no risk.
    let mut one_duct = topology_file::parse(&text).unwrap();
    for link in one_duct.link_ids() {
        one_duct.set_risk_groups(link, BTreeSet::from([1]));
    }
    let ducts = room.write("ducts.toml", &topology_file::print(&one_duct));
    let disjoint = json(&room.run(&["paths", "disjoint", &ducts, "--svg", "paths.svg", "--json"]));
    assert_eq!(
        (&disjoint["curves"][0]["mean"], &disjoint["curves"][3]["name"]),
        (&2.0.into(), &"risk-disjoint".into())
    );
    assert_eq!(disjoint["curves"][3]["mean"], 1.0);
    assert!(std::fs::read_to_string(room.path("paths.svg")).unwrap().contains("risk-disjoint"));
    let between =
        |apart: &str| json(&room.run(&["paths", "between", &ducts, "Perth", "2", "--apart", apart, "--json"]));
    let both = between("nodes");
    assert_eq!(both["paths"][1]["nodes"], serde_json::json!(["Perth", "4", "3", "2"]));
    assert_eq!((both["paths"].as_array().unwrap().len(), between("risks")["paths"].as_array().unwrap().len()), (2, 1));
    let unknown = room.run(&["paths", "between", &ducts, "Perth", "Rome"]);
    assert!(unknown.error(2).contains("there is no node `Rome`; there are Perth"), "{unknown:?}");
    let refused = room.run(&["topo", "convert", &file, "ring.gml"]);
    assert!(refused.error(2).contains(".toml (ours), .graph (REPETITA) or .graphml"), "{refused:?}");
}

#[test]
fn figures_of_topologies_are_computed_from_the_zoo_that_is_built_in_and_others_report_which_data_they_need() {
    let room = Room::new();
    let done = room.run(&["repro", "run", "tpc-fig8b", "tpc-fig6a", "--out", "repro", "--data", "."]);
    done.is_fine();
    assert_eq!(
        done.stdout.matches("  note: computed from the Topology Zoo that is built in").count(),
        2,
        "{}",
        done.stdout
    );
    // The paper's claims hold on the Zoo's own graphs, too.
    for claim in [
        "disjoint paths with one segment",
        "disjoint paths with ten segments",
        "of what ten segments add to one, 4 add",
    ] {
        let line = done.stdout.lines().find(|line| line.contains(claim)).unwrap();
        assert!(line.ends_with(" holds"), "{line}");
    }
    for (id, file) in [("inrpp-rocketfuel", "rocketfuel/3257.pop.cch"), ("inrpp-table1", "rocketfuel")] {
        let error = room.run(&["repro", "run", id, "--out", "repro", "--data", "."]).error(3).to_owned();
        assert!(error.contains(file) && error.contains("networking/rocketfuel") && error.contains("--data"), "{error}");
    }
}

#[test]
fn without_data_there_is_the_topology_zoo_and_for_the_rest_the_error_shows_where_it_is() {
    let room = Room::new();
    let error = room.run(&["topo", "list", "--set", "repetita", "--data", "."]).error(3).to_string();
    assert!(error.contains("svissicchio/Repetita") && error.contains("--data"), "{error}");
    let list = json(&room.run(&["topo", "list", "--data", ".", "--json"]));
    assert!(list.as_array().unwrap().iter().any(|one| one["name"] == "Abilene" && one["nodes"] == 11), "{list}");
    let error = room.run(&["paths", "disjoint", "Cogentko", "--data", "."]).error(2).to_string();
    assert!(error.starts_with("there is no file `Cogentko`") && error.contains("topo list"), "{error}");
    let file = room.write("two.graph", "NODES 2\nlabel x y\na 0 0\nb 0 0\n\nEDGES 0\nlabel src dest weight bw delay\n");
    let error = room.run(&["paths", "disjoint", &file]).error(2).to_string();
    assert!(error.contains("--between all, or --no-prune"), "{error}");
}

#[test]
fn demands_are_put_on_links_before_and_after_failures() {
    let room = Room::new();
    let file = room.write("Ring.graphml", RING);
    room.write("m.csv", "src,dst,rate\nPerth,2,6\nPerth,1,2\n");
    let ask = ["advise", &file, "--default-rate", "10 Mbit/s", "--demands", "m.csv"];
    let text = room.run(&ask);
    text.is_fine();
    let headline = "Ring: Under ECMP the network carries 1.25 times these demands, then Perth \u{2192} 1 is full; \
                    1.25 times with any one link down; no routing carries more than 2.50 times.";
    assert!(text.stdout.starts_with(headline), "{text:#?}");
    assert!(text.stderr.contains("m: demands: of 2 pairs, Mbit/s assumed"), "{text:#?}");
    let page = std::fs::read_to_string(room.path("out/advise/Ring-demands.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("80.0 % under ECMP"), "{page}");
    let advice = json(&room.run(&[&ask[..], &["--demand-unit", "kbit/s", "--json"]].concat()));
    assert_eq!(
        (&advice["matrix"], &advice["total_mbps"], &advice["matrices"]),
        (&"m".into(), &0.008.into(), &1.into())
    );
    let first = &advice["utilisation"][0];
    assert_eq!((&first["ends"], &first["ecmp"]), (&serde_json::json!(["Perth", "1"]), &0.0008.into()));
    let series = json(&room.run(&["advise", &file, "--demands", "m.csv", "--demands", "gravity:1 Gbit/s", "--json"]));
    assert_eq!((&series["matrices"], series["series"].as_array().unwrap().len()), (&2.into(), 7));
    room.write("m.csv", "src,dst,rate\nPert,2,6\n");
    let refused = room.run(&ask);
    assert!(
        refused.stderr.contains("m.csv:2:1: the network has no node `Pert`; the nearest name is `Perth`"),
        "{refused:#?}"
    );
}

#[test]
fn demands_that_are_replayed_load_links_as_advise_computes() {
    let room = Room::new();
    let file = room.write("Ring.graphml", RING);
    room.write("m.csv", "src,dst,rate\nPerth,2,6\nPerth,1,2\n2,Perth,1\n");
    let ask = ["advise", &file, "--default-rate", "10 Mbit/s", "--demands", "m.csv", "--json"];
    let advice = json(&room.run(&ask));
    let scenario = |flow: &str, duration: u32| {
        let head = format!("duration = \"{duration} s\"\nwarmup = \"2 s\"\n[topology]\nnetwork = \"Ring.graphml\"\n");
        room.write("replay.toml", &format!("{head}rate = \"10 Mbit/s\"\n[[flow]]\npairing = \"demands\"\n{flow}"))
    };
    // Packets exactly; transfers by TCP on average, and with headers.
    for (flow, duration, tolerance) in
        [("kind = \"cbr\"\n", 12, 0.01), ("kind = \"poisson\"\nsize = \"50 kB\"\n", 300, 0.08)]
    {
        let file = scenario(flow, duration);
        let ended = room.run(&["sim", "run", &file, "--demands", "m.csv", "--json"]);
        assert!(ended.stderr.contains("m: demands: of 3 pairs, Mbit/s assumed"), "{ended:#?}");
        let links = &json(&ended)["systems"]["tcp"]["links"];
        let mut loaded = 0;
        for used in advice["utilisation"].as_array().unwrap() {
            let [from, to] = [&used["ends"][0], &used["ends"][1]].map(|end| end.as_str().unwrap());
            let names = [format!("{from}-{to}:{from}>{to}"), format!("{to}-{from}:{from}>{to}")];
            let measured = names.iter().find_map(|name| links[name]["utilisation"].as_f64()).unwrap();
            let expected = used["igp"].as_f64().unwrap();
            assert!((measured - expected).abs() <= tolerance, "{from} to {to}: {measured}, and {expected} expected");
            loaded += u32::from(expected > 0.0);
        }
        assert!(loaded >= 3, "{advice}");
    }
    let file = scenario("kind = \"bulk\"\n", 12);
    let refused = room.run(&["sim", "run", &file, "--demands", "none.csv"]);
    assert!(refused.complaint(2).contains("none.csv: No such file"), "{refused:#?}");
}
