//! What coupled congestion control costs, and that it is there for very many subflows; `make bench-mptcp-pm` runs these.

use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::{libbpf_sys, query::ProgInfoIter};
use sidestep_coupled::Algorithm;
use sidestep_linux::{netns::set_sysctl, testing::root_or_skip};

use crate::{
    SECOND,
    support::{self, PathManager, Transfer, accept_only, config, pair},
};

/// Runs and nanoseconds of the programs of this name so far.
fn spent(name: &str) -> (u64, u64) {
    let of = ProgInfoIter::default().filter(|program| program.name.to_string_lossy() == name);
    of.fold((0, 0), |(runs, time), program| (runs + program.run_cnt, time + program.run_time_ns))
}

/// Makes the kernel measure programs while it lives.
fn measuring() -> OwnedFd {
    // SAFETY: a system call without pointers, whose result is checked.
    let descriptor = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(descriptor >= 0, "statistics of BPF: {descriptor}");
    // SAFETY: the kernel has just made this descriptor for us.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// The time of `cong_avoid`, which is called for each ACK that advances, as the kernel measures it; the two readings of the clock are
/// included. Where few ACKs come the subflows' structs are not in the cache: a look at all of them then costs most.
#[test]
#[ignore = "takes a minute and a half; `make bench-mptcp-pm` runs it"]
fn an_acknowledgement_of_many_costs_less_than_400_ns_with_8_subflows_and_600_with_32() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _measuring = measuring();
    for (subflows, limit) in [(8, 400), (32, 600)] {
        for rate in ["1gbit", "20mbit"] {
            for algorithm in Algorithm::ALL {
                let pair = pair();
                for host in [&pair.client, &pair.server] {
                    let burst = if rate == "1gbit" { "500kb" } else { "20kb" };
                    let shape = format!("qdisc add dev veth root tbf rate {rate} burst {burst} latency 40ms");
                    let run = || std::process::Command::new("tc").args(shape.split(' ')).status().unwrap();
                    assert!(host.run(run).success());
                }
                let table = format!("count = {subflows}\n[congestion]\nalgorithm = \"{algorithm}\"");
                let client = PathManager::start(&pair.client, config(&table));
                let server = PathManager::start(&pair.server, accept_only());
                let connection = pair.connect("fd42::2");
                connection.exchange();
                pair.client.eventually("subflows", || pair.client.subflows(&connection).len() == subflows);
                let transfer = Transfer::start(connection);
                std::thread::sleep(SECOND * 2);
                let before = spent(&format!("sidestep_c{algorithm}"));
                std::thread::sleep(SECOND * 4);
                let after = spent(&format!("sidestep_c{algorithm}"));
                transfer.finish();
                let (runs, time) = (after.0 - before.0, after.1 - before.1);
                println!("{algorithm}, {subflows} subflows, {rate}: {} ns for each of {runs} ACKs", time / runs.max(1));
                assert!(runs > 500 && (time / runs < limit || rate == "20mbit"), "{runs} {time}");
                drop((client, server));
            }
        }
    }
}

#[test]
#[ignore = "takes a minute; `make bench-mptcp-pm` runs it"]
fn a_thousand_connections_of_32_coupled_subflows_carry_data() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    support::allow_files(20_000);
    let pair = pair();
    pair.client.run(|| set_sysctl("ipv4/ip_local_port_range", "2048 65535").unwrap());
    let client = PathManager::start(&pair.client, config("count = 32\n[congestion]\nalgorithm = \"olia\""));
    let _server = PathManager::start(&pair.server, accept_only());
    let began = std::time::Instant::now();
    let connections: Vec<_> = (0..1_000).map(|_| pair.connect("fd42::2")).collect();
    connections.iter().for_each(|connection| connection.exchange());
    pair.client.within(SECOND * 60, "32,000 subflows", || pair.client.all_subflows() == 32_000);
    println!("32,000 subflows after {:?}", began.elapsed());
    let coupled = || {
        let all = pair.client.tcp().into_iter().filter_map(|one| one.subflow);
        all.filter(|subflow| subflow.window.coupling == Some(Algorithm::Olia)).count()
    };
    assert_eq!(coupled(), 32_000);
    let _measuring = measuring();
    let sending = std::time::Instant::now();
    connections.iter().for_each(|connection| connection.send(100_000));
    let (runs, time) = spent("sidestep_colia");
    println!("100 kB over each in {:?}; {} ns for each of {runs} ACKs", sending.elapsed(), time / runs.max(1));
    assert_eq!(coupled(), 32_000);
    assert_eq!(client.status().congestion.given, 32_000);
    drop(connections);
    pair.client.within(SECOND * 60, "their end", || client.status().connections.is_empty());
}
