//! What balancing costs, beside plain routing by one path.

use std::{net::UdpSocket, process::Command, thread, time::Duration};

use nix::time::{ClockId, clock_gettime};

use crate::{
    gro::{SET_GSO, SET_TSO, set},
    net::{Edge, Ip, Net, PATHS, PORT, config},
    offload::offload,
};

/// How often each variant is measured; the variants take turns.
const ROUNDS: usize = 16;
const VARIANTS: [&str; 4] = [
    "plain routing",
    "balanced onto the same path",
    "balanced over four paths",
    "over four paths by the kernel's own routes (--offload nexthops)",
];

/// Starts the edges of a variant, or none.
fn edges(net: &Net, variant: usize) -> Option<(Edge, Edge)> {
    if variant == 3 {
        return Some((offload(net, &net.e1, true, 7), offload(net, &net.e2, false, 7)));
    }
    let file = |near| {
        let file = config(near, "");
        let only_first = |line: &str| {
            let end = if line.starts_with("path = ") && variant == 1 { line.find("}, ") } else { None };
            end.map_or(line.to_owned(), |end| format!("{}}}]", &line[..end]))
        };
        file.lines().map(only_first).collect::<Vec<_>>().join("\n")
    };
    (variant > 0).then(|| (net.edge(&net.e1, &file(true)), net.edge(&net.e2, &file(false))))
}

/// Measures all variants in turn, in another order each round, and prints medians and quartiles of what `measure` returns and of
/// its ratio to plain routing in the same round.
fn compare(net: &Net, what: &[&str], mut measure: impl FnMut() -> Vec<f64>) {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut all = vec![Vec::new(); VARIANTS.len()];
        for turn in 0..VARIANTS.len() {
            let variant = (round + turn) % VARIANTS.len();
            let _edges = edges(net, variant);
            all[variant] = measure();
        }
        rounds.push(all);
    }
    let quartiles = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| {
            let place = (values.len() - 1) as f64 * f64::from(quarter) / 4.0;
            let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
            low + (high - low) * place.fract()
        })
    };
    for (index, what) in what.iter().enumerate() {
        for (variant, name) in VARIANTS.iter().enumerate() {
            let [_, median, _] = quartiles(rounds.iter().map(|round| round[variant][index]).collect());
            let [low, middle, high] =
                quartiles(rounds.iter().map(|round| round[variant][index] / round[0][index]).collect());
            println!("{what}, {name}: median {median:.1}; of plain routing {middle:.3} ({low:.3} to {high:.3})");
        }
    }
}

#[test]
#[ignore = "a measurement; needs a quiet machine and iperf3"]
fn throughput_in_pairs_with_the_balancer_and_by_plain_routing() {
    compare_throughput(&Net::new());
}

/// Packets of 1,500 bytes, one by one from the sender to the receiver.
#[test]
#[ignore = "a measurement; needs a quiet machine and iperf3"]
fn throughput_in_pairs_of_packets_that_are_not_merged() {
    let net = Net::new();
    for node in [&net.a, &net.b] {
        [SET_TSO, SET_GSO].into_iter().for_each(|command| set(node, command, false));
    }
    compare_throughput(&net);
}

fn compare_throughput(net: &Net) {
    let serve = || Ok(Command::new("iperf3").args(["-s", "-1", "-D", "-p", "5201"]).status().unwrap());
    compare(net, &["Mbit/s", "Mbit a second of CPU"], || {
        assert!(net.b.run(serve).unwrap().success());
        thread::sleep(Duration::from_millis(300));
        let client = || {
            let arguments = ["-c", "10.2.0.1", "-P", "8", "-t", "2", "-J"];
            Ok(Command::new("iperf3").args(arguments).output().unwrap())
        };
        let output = net.a.run(client).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let number = |pointer: &str| report.pointer(pointer).unwrap().as_f64().unwrap();
        let goodput = number("/end/sum_received/bits_per_second") / 1e6;
        // The kernel forwards in the time of the processes at both ends. They report it in percent of a processor.
        let used =
            number("/end/cpu_utilization_percent/host_total") + number("/end/cpu_utilization_percent/remote_total");
        vec![goodput, goodput / used * 100.0]
    });
}

#[test]
#[ignore = "a measurement; needs a quiet machine"]
fn nanoseconds_to_send_and_forward_a_packet() {
    const PACKETS: u32 = 40_000;
    let net = Net::new();
    let names = [
        "ns a packet of IPv4, 64 bytes",
        "ns a packet of IPv4, 1,472 bytes",
        "ns a packet of IPv6, 64 bytes",
        "ns a packet of IPv6, 1,452 bytes",
    ];
    let nodes = [(Ip::V4, 1_472), (Ip::V6, 1_452)].map(|(version, largest)| {
        let bind = |node: &sidestep_linux::netns::NetNs, at, port| {
            node.run(|| Ok(UdpSocket::bind((at, port)).unwrap())).unwrap()
        };
        let receiver = bind(&net.b, version.at_b(), PORT);
        let senders: Vec<_> = (0..4 * PATHS).map(|_| bind(&net.a, version.at_a(), 0)).collect();
        senders.iter().for_each(|sender| sender.connect((version.at_b(), PORT)).unwrap());
        (receiver, senders, largest)
    });
    compare(&net, &names, || {
        let one = |senders: &[UdpSocket], size: usize| {
            let send = |count: u32| {
                for sender in senders.iter().cycle().take(count as usize) {
                    sender.send(&[0; 1_500][..size]).unwrap();
                }
            };
            // Packets pass the whole path in the time of this thread.
            let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
            send(PACKETS / 10);
            let start = now();
            send(PACKETS);
            (now() - start).as_nanos() as f64 / f64::from(PACKETS)
        };
        let sizes = |largest: usize| [64, largest];
        nodes.iter().flat_map(|(_receiver, senders, largest)| sizes(*largest).map(|size| one(senders, size))).collect()
    });
}
