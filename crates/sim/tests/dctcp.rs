//! DCTCP over whole connections: beside the equation of its paper, and beside a kernel.

use sidestep_results::SystemResult;
use sidestep_scenario::Scenario;
use sidestep_sim::{RunOptions, run};

/// The scenario with other values, under plain TCP.
fn result(set: &[(&str, String)]) -> SystemResult {
    let text = include_str!("../../../scenarios/dctcp.toml");
    let set: Vec<_> = set.iter().map(|(key, value)| format!("{key}={value}").parse().unwrap()).collect();
    let text = sidestep_scenario::overrides::apply(text, &set).unwrap();
    let scenario = Scenario::parse(&text, "dctcp").unwrap();
    let options = RunOptions::once(sidestep_systems::simulator(), scenario, vec!["tcp".parse().unwrap()]);
    run(&options, &()).unwrap().0.systems.get("tcp").unwrap().clone()
}

/// Alizadeh et al., "Data Center TCP", 2010, section 3.3, equation 6: α²(1 − α/4) = (2W + 1)/(W + 1)², with W = C·RTT + K.
fn marked(window: f64) -> f64 {
    let right = (2.0 * window + 1.0) / (window + 1.0).powi(2);
    (0..50).fold(right.sqrt(), |alpha: f64, _| (right / (1.0 - alpha / 4.0)).sqrt())
}

/// Acknowledged segment by segment, as the paper assumes: with delayed ACKs the queue crosses the threshold in steps of two.
#[test]
fn as_many_packets_are_marked_as_the_papers_equation_says() {
    for (mbits, millis, threshold) in
        [(20.0, 10.0, 15.0), (100.0, 5.0, 20.0), (100.0, 5.0, 65.0), (100.0, 20.0, 60.0), (400.0, 2.5, 40.0)]
    {
        let result = result(&[
            ("tcp.profile", "rfc".into()),
            ("tcp.ack_every", "1".into()),
            ("duration", "40 s".into()),
            ("topology.rate", format!("{mbits} Mbit/s")),
            ("topology.delay", format!("{millis} ms")),
            ("topology.ecn", format!("{threshold} packets")),
            ("flow[0].connections", "1".into()),
        ]);
        let packets = result.goodput_mbps * 1e6 / (8.0 * 1_428.0) * 40.0;
        let window = mbits * 1e6 * 2.0 * millis / 1e3 / (8.0 * 1_500.0) + threshold;
        let ratio = result.links["L-R:L>R"].marks as f64 / packets / marked(window);
        println!("{mbits} Mbit/s, {millis} ms, K = {threshold}: {ratio:.2} of the equation");
        assert!((0.85..1.15).contains(&ratio), "{mbits} Mbit/s, {millis} ms, K = {threshold}: {ratio}");
    }
}

/// What Linux 6.18 carries in the lab (docs/validation.md), as shares of the link: batches of segments cost a flow alone much where
/// the threshold is below them, and two flows share unequally for good, which `rfc` does not.
#[test]
fn a_flow_alone_and_two_together_carry_what_a_kernels_do() {
    let of = |profile: &str, threshold: u32, connections: u32, seed: u32| {
        result(&[
            ("tcp.profile", profile.into()),
            ("topology.ecn", format!("{threshold} packets")),
            ("flow[0].connections", connections.to_string()),
            ("seed", seed.to_string()),
        ])
    };
    for (threshold, kernel, tolerance) in [(20, 0.94, 0.02), (7, 0.79, 0.1), (5, 0.62, 0.05)] {
        let share = (1..=5).map(|seed| of("linux", threshold, 1, seed).goodput_mbps).sum::<f64>() / 500.0;
        println!("K = {threshold}: {share:.3} of the link, {kernel} in a kernel");
        assert!((share - kernel).abs() < tolerance, "K = {threshold}: {share}, and a kernel {kernel}");
    }
    let smaller = |profile: &str| {
        let shares = (1..=5).map(|seed| of(profile, 20, 2, seed).goodput_mbps_min.unwrap() / 100.0);
        shares.sum::<f64>() / 5.0
    };
    let (linux, rfc) = (smaller("linux"), smaller("rfc"));
    println!("the smaller of two has {linux:.3} of the link under linux, {rfc:.3} under rfc, 0.22 in a kernel");
    assert!((0.15..0.29).contains(&linux) && rfc > 0.42, "{linux}, {rfc}");
}
