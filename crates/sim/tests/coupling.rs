//! Coupled congestion control of whole MPTCP connections beside TCP.

use std::fs;

use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk},
};
use sidestep_sim::{RunOptions, run};

/// A TCP beside an MPTCP connection of eight subflows: 1 Gbit/s, so that no queue fills, 20 ms each way, a loss of 0.05 %.
fn beside(profile: &str) -> Scenario {
    let network = ScenarioBuilder::new("320 s").set("warmup", "20 s").dumbbell(2).network("rate", "1 Gbit/s");
    let network = network.network("delay", "20 ms").network("loss", "0.05 %").set("tcp.profile", profile);
    let network = network.set("tcp.congestion_control", "reno").set("mptcp.subflows", 8);
    let tcp = bulk("l1", "r1").with("name", "tcp").with("system", "tcp");
    network.flow(tcp).flow(bulk("l2", "r2").with("name", "mptcp")).build()
}

/// The TCP's share of what both carried, the mean of four runs.
fn share(profile: &str, coupling: &str) -> f64 {
    (1..=4).map(|seed| share_of(Scenario { seed, ..beside(profile) }, coupling)).sum::<f64>() / 4.0
}

fn share_of(scenario: Scenario, coupling: &str) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let system = format!("mptcp:congestion_control={coupling}");
    let once = RunOptions::once(sidestep_systems::simulator(), scenario, vec![system.parse().unwrap()]);
    run(&RunOptions { out: Some(dir.path().to_owned()), ..once }, &()).unwrap();
    let text = fs::read_to_string(dir.path().join("flows.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(','));
    let column = lines.next().unwrap().position(|name| name == "bytes_in_window").unwrap();
    let bytes: Vec<f64> = lines.map(|mut cells| cells.nth(column).unwrap().parse().unwrap()).collect();
    bytes[0] / (bytes[0] + bytes[1])
}

/// A fair share is a half. LIA takes a little more: the more its subflows' windows differ, the keener it is.
#[test]
fn coupled_subflows_leave_a_tcp_its_half_in_each_profile() {
    for profile in ["rfc", "linux"] {
        for coupling in ["lia", "olia", "balia"] {
            let share = share(profile, coupling);
            assert!((0.4..=0.625).contains(&share), "{coupling}, {profile}: {share}");
        }
        // One of nine.
        let share = share(profile, "reno");
        assert!((0.09..0.14).contains(&share), "uncoupled, {profile}: {share}");
    }
}
