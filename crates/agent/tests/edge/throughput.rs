//! What balancing costs.

use std::thread;
use std::time::Duration;

use crate::net::{Net, config};

#[test]
#[ignore = "a measurement; needs a quiet machine and iperf3"]
fn throughput_in_pairs_with_the_balancer_and_by_plain_routing() {
    let net = Net::new();
    let serve = || Ok(std::process::Command::new("iperf3").args(["-s", "-1", "-D", "-p", "5201"]).status().unwrap());
    let measure = || {
        assert!(net.b.run(serve).unwrap().success());
        thread::sleep(Duration::from_millis(300));
        let client = || {
            let arguments = ["-c", "10.2.0.1", "-P", "8", "-t", "3", "-J"];
            Ok(std::process::Command::new("iperf3").args(arguments).output().unwrap())
        };
        let output = net.a.run(client).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e9
    };
    let mut ratios = Vec::new();
    for round in 0..12 {
        let pair = |balanced: bool| {
            let _edges =
                balanced.then(|| (net.edge(&net.e1, &config(true, "")), net.edge(&net.e2, &config(false, ""))));
            measure()
        };
        // Each comes first in turn.
        let (balanced, plain) = if round % 2 == 0 {
            let plain = pair(false);
            (pair(true), plain)
        } else {
            (pair(true), pair(false))
        };
        println!("plain {plain:.2} Gbit/s, balanced {balanced:.2} Gbit/s");
        ratios.push(balanced / plain);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", (ratios[5] + ratios[6]) / 2.0);
}
