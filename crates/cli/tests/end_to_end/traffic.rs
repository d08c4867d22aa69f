//! Users who think, packets at a constant rate, and what a flow's `tcp` sets, in the lab.

use std::collections::BTreeMap;

use crate::common::{Room, Row, number, root_or_skip};

const ONE_PATH: &str = r#"
duration = "4 s"
systems = ["tcp"]
[topology]
generator = "parallel-paths"
paths = 1
rate = "20 Mbit/s"
"#;

#[test]
fn users_think_and_transfer_what_those_of_the_simulator_do() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let flow = "[[flow]]\nkind = \"closed-loop\"\nname = \"loop\"\nfrom = \"c1\"\nto = \"s1\"\nusers = 5\nthink = \"200 ms\"\n\
                size = { distribution = \"exponential\", mean = \"50 kB\" }\n";
    room.run_lab("lab", &format!("{ONE_PATH}{flow}")).is_fine();
    let file = room.path("lab.toml").display().to_string();
    room.run(&["sim", "run", &file, "--out", "sim"]).is_fine();
    let completed = |world| -> BTreeMap<String, f64> {
        let rows = room.rows(world, "flows.csv");
        let rows = rows.iter().filter(|row| row["completed"] == "true");
        rows.map(|row| (row["flow"].clone(), number(row, "bytes"))).collect()
    };
    let (lab, sim) = (completed("lab"), completed("sim"));
    println!("{} transfers in the lab, {} in the simulator", lab.len(), sim.len());
    assert!(lab.len() > 40 && lab.contains_key("loop-4-2"), "{lab:?}");
    let both: Vec<_> = lab.iter().filter(|(name, _)| sim.contains_key(*name)).collect();
    assert!(both.len() * 10 > lab.len() * 8, "{} of {}", both.len(), lab.len());
    assert!(both.iter().all(|(name, bytes)| sim[*name] == **bytes), "{lab:?} {sim:?}");
    for (world, tolerance) in [("lab", 1e-3), ("sim", 1e-4)] {
        let megabits: f64 = room.rows(world, "flows.csv").iter().map(|row| number(row, "bytes") * 8e-6).sum();
        let in_series = megabits_of(&room.rows(world, "series.csv"));
        assert!((in_series / megabits - 1.0).abs() < tolerance, "{world}: {in_series} of {megabits} Mbit");
    }
}

/// What the connections' samples carried, each over its interval. The lab's samples are late on a busy machine: a sample is of the
/// time since the sample before, as of the links, which are all sampled each time. What no sample saw is of whole steps.
fn megabits_of(samples: &[Row]) -> f64 {
    let (mut instants, mut last) = (BTreeMap::new(), 0.0);
    for row in samples.iter().filter(|row| row["kind"] == "link") {
        let at = number(row, "time_s");
        instants.entry(row["time_s"].as_str()).or_insert_with(|| at - std::mem::replace(&mut last, at));
    }
    let connections = samples.iter().filter(|row| row["kind"] == "connection");
    let seconds = |row: &Row| instants.get(row["time_s"].as_str()).copied().unwrap_or(0.1);
    connections.map(|row| number(row, "mbps") * seconds(row)).sum()
}

#[test]
fn transfers_of_a_list_are_those_of_the_list_in_both_worlds() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    room.write("perm.cm", "Nodes 2\nConnections 3\n0->1 id 1 start 500000000000 size 20000\n1->0 start 0 size 5\n0->1 start 0 size 70000\n");
    let flow = "[[flow]]\nkind = \"list\"\nname = \"list\"\nfile = \"perm.cm\"\nstart = \"1 s\"\n";
    let lab = room.run_lab("lab", &format!("{ONE_PATH}{flow}"));
    assert!(lab.stderr.contains("perm.cm: transfers: 3, sizes in bytes and starts in ps"), "{lab:#?}");
    let file = room.path("lab.toml").display().to_string();
    assert_eq!(room.run(&["sim", "run", &file, "--out", "sim"]).code, Some(0));
    for world in ["lab", "sim"] {
        let rows = room.rows(world, "flows.csv");
        let mut found: Vec<_> = rows
            .iter()
            .map(|row| (row["from"].as_str(), row["to"].as_str(), number(row, "bytes"), row["completed"].as_str()))
            .collect();
        found.sort_by(|a, b| a.2.total_cmp(&b.2));
        let expected = [("s1", "c1", 5.0, "true"), ("c1", "s1", 20_000.0, "true"), ("c1", "s1", 70_000.0, "true")];
        assert_eq!(found, expected, "{world}");
        let late = rows.iter().find(|row| number(row, "bytes") == 20_000.0).unwrap();
        assert!((1.4..1.7).contains(&number(late, "start_s")), "{world}: {late:?}");
    }
}

#[test]
fn packets_at_a_constant_rate_fill_their_share_of_a_link() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let flow = "[[flow]]\nkind = \"cbr\"\nname = \"cbr\"\nfrom = \"c1\"\nto = \"s1\"\nrate = \"10 Mbit/s\"\non = \"50 ms\"\n\
                off = \"50 ms\"\n";
    room.run_lab("lab", &format!("{ONE_PATH}{flow}")).is_fine();
    let share = room.result_of("lab", "tcp")["paths"]["path-1"]["utilisation"].as_f64().unwrap();
    assert!((share - 0.25).abs() < 0.02, "half of the time half of the link: {share}");

    let ended = room.run_lab("large", &format!("{ONE_PATH}{flow}packet = 1501\n"));
    assert!(
        ended.complaint(2).contains("flow `cbr`: a packet of UDP over IPv6 has 48 B to the link's 1500 B"),
        "{ended:#?}"
    );
}

#[test]
fn a_flow_has_its_own_receive_window() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    // A round trip of 80 ms: 120 kB of window are 12 Mbit/s.
    let head = "duration = \"4 s\"\nsystems = [\"tcp\"]\n[topology]\ngenerator = \"parallel-paths\"\n\
                paths = 1\nrate = \"60 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"1000 packets\"\n";
    let flow = |name: &str, more: &str| {
        format!("[[flow]]\nkind = \"bulk\"\nname = \"{name}\"\nfrom = \"c1\"\nto = \"s1\"\n{more}\n")
    };
    // One after the other, so that neither waits in the other's queue. The wide one first: Linux remembers the narrow one's
    // slow start threshold for the next connection to the same host. Both by Reno: CUBIC's HyStart ends slow start early where
    // a busy machine delivers packets 10 ms late.
    let narrow =
        flow("narrow", "start = \"2 s\"\ntcp = { receive_window = \"120 kB\", congestion_control = \"reno\" }");
    room.run_lab(
        "out",
        &format!("{head}{}{narrow}", flow("wide", "stop = \"2 s\"\ntcp = { congestion_control = \"reno\" }")),
    )
    .is_fine();
    let rows = room.rows("out", "flows.csv");
    let goodput = |name: &str| number(rows.iter().find(|row| row["flow"] == name).unwrap(), "goodput_mbps");
    let (narrow, wide) = (goodput("narrow-0-0"), goodput("wide-0-0"));
    assert!((6.0..12.5).contains(&narrow) && wide > 14.0, "{narrow} {wide}");

    let ended = room.run_lab("mss", &format!("{head}{}", flow("small", "tcp = { mss = 500 }")));
    let complaint = ended.complaint(2);
    assert!(complaint.contains("`congestion_control` and `receive_window` for one flow alone"), "{ended:#?}");
}

#[test]
fn an_impaired_link_loses_what_arrives_in_its_bad_periods() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    // 500 packets a second, of which those of the second and the fourth second meet an outage.
    let flow = "[[flow]]\nkind = \"cbr\"\nname = \"cbr\"\nfrom = \"c1\"\nto = \"s1\"\nrate = \"4 Mbit/s\"\n";
    let impairment = "[[impairment]]\npath = \"path-1\"\ndirection = \"forward\"\ngood = \"1 s\"\nbad = \"1 s\"\n\
                      distribution = \"fixed\"\neffect = \"outage\"\n";
    room.run_lab("lab", &format!("{ONE_PATH}{flow}{impairment}")).is_fine();
    let drops = room.result_of("lab", "tcp")["paths"]["path-1"]["drops"].as_f64().unwrap();
    assert!((drops / 1_000.0 - 1.0).abs() < 0.1, "{drops}");
}
