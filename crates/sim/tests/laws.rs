//! Throughput of whole connections under random losses, beside the formulas of Reno, CUBIC and coupled subflows.

use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk},
};
use sidestep_sim::{RunOptions, run};

/// Payload of a segment, in bits.
const SEGMENT: f64 = 1428.0 * 8.0;

/// Round trips in milliseconds, and probabilities of loss.
const POINTS: [(f64, f64); 10] = [
    (10.0, 1e-4),
    (10.0, 1e-3),
    (10.0, 1e-2),
    (10.0, 3e-2),
    (40.0, 1e-3),
    (40.0, 1e-2),
    (40.0, 3e-2),
    (160.0, 1e-3),
    (160.0, 1e-2),
    (160.0, 3e-2),
];

/// A connection's mean window over the formula's, by its goodput: the least and the most over the points.
fn beside(profile: &str, control: &str, window: fn(rtt: f64, loss: f64) -> f64) -> (f64, f64) {
    let ratio = |(millis, loss): (f64, f64)| {
        let rtt: f64 = millis / 1e3;
        let expected = window(rtt, loss);
        // For 400 losses.
        let seconds = (400.0 * rtt / (loss * expected)).max(30.0);
        let network = ScenarioBuilder::new(&format!("{:.0} s", 20.0 + seconds)).set("warmup", "20 s").dumbbell(1);
        let network = network.network("rate", "1 Gbit/s").network("queue", "5000 packets");
        let network = network.network("delay", format!("{} ms", millis / 2.0)).network("access_delay", "0 ms");
        let network = network.network("loss", format!("{} %", loss * 100.0)).set("tcp.profile", profile);
        let scenario: Scenario = network.set("tcp.congestion_control", control).flow(bulk("l1", "r1")).build();
        let options = RunOptions::once(sidestep_systems::simulator(), scenario, vec!["tcp".parse().unwrap()]);
        let (result, _) = run(&options, &()).unwrap();
        result.systems.get("tcp").unwrap().goodput_mbps * 1e6 * rtt / SEGMENT / expected
    };
    let ratios = POINTS.map(ratio);
    println!("{control} under {profile}: {ratios:.2?}");
    (ratios.iter().copied().fold(f64::INFINITY, f64::min), ratios.iter().copied().fold(0.0, f64::max))
}

/// Mathis et al.: √(3/2p) segments.
fn reno(_: f64, loss: f64) -> f64 {
    (1.5 / loss).sqrt()
}

/// RFC 9438, section 5.1, equation 6, with C = 0.4 and β = 0.7; where Reno's is larger, its (section 4.3).
fn cubic(rtt: f64, loss: f64) -> f64 {
    ((0.4 * 3.7_f64 / 1.2).powf(0.25) * (rtt / loss).powf(0.75)).max(reno(rtt, loss))
}

/// Timeouts, which the formulas leave out, take their part where losses are many: Linux's take at least 200 ms.
#[test]
fn reno_and_cubic_carry_what_their_formulas_say() {
    let within =
        |(least, most): (f64, f64), from: f64, to: f64| assert!(from < least && most < to, "{least} to {most}");
    within(beside("linux", "reno", reno), 0.76, 1.15);
    within(beside("rfc", "reno", reno), 0.95, 1.25);
    within(beside("linux", "cubic", cubic), 0.6, 1.35);
    within(beside("rfc", "cubic", cubic), 1.0, 1.4);
}

/// Coupled subflows over two paths with the same losses carry together what one Reno would over one of them (RFC 6356, goals 1
/// and 2).
#[test]
fn coupled_subflows_over_two_lossy_paths_carry_what_the_formula_of_one_says() {
    for profile in ["linux", "rfc"] {
        for coupling in ["lia", "olia", "balia"] {
            let ratio = |(millis, loss): (f64, f64)| {
                let rtt: f64 = millis / 1e3;
                let seconds = (800.0 * rtt / (loss * reno(rtt, loss))).max(30.0);
                let network = ScenarioBuilder::new(&format!("{:.0} s", 20.0 + seconds)).set("warmup", "20 s");
                let network = network.parallel_paths(2).network("hops", 1).network("ecmp", true);
                let network = network.network("rate", "1 Gbit/s").network("queue", "5000 packets");
                let network = network.network("delay", format!("{} ms", millis / 2.0)).network("access_delay", "0 ms");
                let network = network.network("loss", format!("{} %", loss * 100.0)).set("tcp.profile", profile);
                let scenario = network.set("tcp.congestion_control", "reno").flow(bulk("c1", "s1")).build();
                let system = format!("mptcp:subflows=2,congestion_control={coupling}");
                let options = RunOptions::once(sidestep_systems::simulator(), scenario, vec![system.parse().unwrap()]);
                let (result, _) = run(&options, &()).unwrap();
                let goodput = result.systems.get(&system).unwrap().goodput_mbps;
                goodput * 1e6 * rtt / SEGMENT / reno(rtt, loss)
            };
            let ratios = [(10.0, 1e-3), (40.0, 1e-3), (40.0, 1e-2), (160.0, 1e-3)].map(ratio);
            println!("{coupling} under {profile}: {ratios:.2?}");
            assert!(ratios.iter().all(|ratio| (0.85..1.2).contains(ratio)), "{coupling}, {profile}: {ratios:.2?}");
        }
    }
}
