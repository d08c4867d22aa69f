//! Coupled congestion control at real connections: who gets it, who keeps its own, and what stays when the path manager goes.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::sys::socket::{setsockopt, sockopt};
use sidestep_coupled::Algorithm;
use sidestep_linux::{
    bpf::coupled::{has_links, is_registered},
    mptcp::{SubflowRequests, TcpEnds},
    netns::set_sysctl,
    testing::root_or_skip,
};

use crate::{
    SECOND,
    support::{Connection, Pair, PathManager, Transfer, accept_only, config, mptcp_socket, pair, state},
};

/// What is registered holds for the whole machine, so that only one of these tests may run.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client and a server whose path managers couple connections.
fn coupled(pair: &Pair, algorithm: Algorithm) -> (PathManager, PathManager) {
    let table = format!("count = 4\n[congestion]\nalgorithm = \"{algorithm}\"");
    let mut server = accept_only();
    server.congestion = config(&table).congestion;
    (PathManager::start(&pair.client, config(&table)), PathManager::start(&pair.server, server))
}

fn connected(pair: &Pair, to: &str) -> Connection {
    let connection = pair.connect(to);
    connection.exchange();
    pair.client.eventually("four subflows", || pair.client.subflows(&connection).len() == 4);
    connection
}

/// How the subflows of both ends are coupled.
fn couplings(pair: &Pair, connection: &Connection) -> Vec<Option<Algorithm>> {
    let client = pair.client.subflows(connection);
    let is_other = |one: &TcpEnds| client.iter().any(|of| of.ends.local == one.ends.remote);
    let server = pair.server.tcp().into_iter().filter(is_other);
    client.iter().copied().chain(server).map(|one| one.subflow.and_then(|subflow| subflow.window.coupling)).collect()
}

/// The congestion control of the TCP connections of a host that are no subflows.
fn name_of(socket: &impl AsFd) -> String {
    let name = nix::sys::socket::getsockopt(socket, sockopt::TcpCongestion).unwrap();
    name.to_string_lossy().trim_end_matches('\0').to_string()
}

#[test]
fn every_subflow_of_both_ends_is_coupled_over_both_families_and_data_arrive() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _alone = alone();
    for algorithm in Algorithm::ALL {
        let pair = pair();
        let (client, server) = coupled(&pair, algorithm);
        for to in ["fd42::2", "10.42.0.2"] {
            let connection = connected(&pair, to);
            assert_eq!(couplings(&pair, &connection), [Some(algorithm); 8], "{to}");
            connection.send(20_000_000);
            let listed = || client.status().connections.iter().find_map(|one| one.coupled.clone());
            pair.client.eventually("windows", || {
                let subflows = listed().map(|coupled| coupled.subflows).unwrap_or_default();
                subflows.iter().map(|one| one.acked).sum::<u64>() > 1_000_000 && subflows.len() == 4
            });
            assert!(listed().unwrap().alpha.unwrap() > 0.0);
        }
        let status = client.status().congestion;
        assert_eq!((status.algorithm, status.given, status.refused), (Some(algorithm), 8, 0));
        let metric = "sidestep_mptcp_congestion_subflows_total{became=\"given\"}";
        assert_eq!(server.counter(metric), 8.0);
    }
}

#[test]
fn tcp_and_a_programs_own_choice_are_left_alone() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _alone = alone();
    let pair = pair();
    let (client, _server) = coupled(&pair, Algorithm::Olia);
    // TCP, and MPTCP to a server that does not speak it.
    let tcp = pair.client.run(|| tcp_to(&pair, libc::IPPROTO_TCP));
    let fallback = pair.client.run(|| tcp_to(&pair, libc::IPPROTO_MPTCP));
    let usual = name_of(&tcp);
    assert_ne!(usual, "olia");
    assert_eq!(name_of(&fallback), usual, "it fell back");
    let other = if usual == "reno" { "cubic" } else { "reno" };
    let socket = pair.client.run(|| mptcp_socket(libc::AF_INET6));
    setsockopt(&socket, sockopt::TcpCongestion, &other.into()).unwrap();
    let connection = pair.connect_with(socket, "fd42::2");
    connection.exchange();
    pair.client.eventually("four subflows", || pair.client.subflows(&connection).len() == 4);
    let subflows = pair.client.subflows(&connection);
    assert!(subflows.iter().all(|one| one.subflow.unwrap().window.coupling.is_none()), "{subflows:?}");
    // Another option is no choice of a congestion control, although the kernel copies both to subflows.
    let socket = pair.client.run(|| mptcp_socket(libc::AF_INET6));
    setsockopt(&socket, sockopt::KeepAlive, &true).unwrap();
    setsockopt(&socket, sockopt::SndBuf, &1_000_000).unwrap();
    let connection = pair.connect_with(socket, "fd42::2");
    connection.exchange();
    pair.client.eventually("four subflows", || pair.client.subflows(&connection).len() == 4);
    let subflows = pair.client.subflows(&connection);
    assert!(subflows.iter().all(|one| one.subflow.unwrap().window.coupling.is_some()), "{subflows:?}");
    let status = client.status().congestion;
    assert_eq!((status.given, status.chosen, status.fallbacks), (4, 4, 1));
}

/// A connection to a server that speaks only TCP.
fn tcp_to(pair: &Pair, protocol: libc::c_int) -> OwnedFd {
    use std::os::fd::FromRawFd;
    let listener = pair.server.run(|| std::net::TcpListener::bind("[fd42::2]:0").unwrap());
    let at = listener.local_addr().unwrap();
    // SAFETY: the descriptor is new, and no other code has it.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET6, libc::SOCK_STREAM, protocol)) };
    nix::sys::socket::connect(socket.as_raw_fd(), &nix::sys::socket::SockaddrStorage::from(at)).unwrap();
    let _accepted = listener.accept().unwrap();
    socket
}

#[test]
fn connections_stay_coupled_when_the_path_manager_goes_and_new_ones_have_the_hosts() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _alone = alone();
    let pair = pair();
    let (client, server) = coupled(&pair, Algorithm::Olia);
    let connection = connected(&pair, "fd42::2");
    // Another path manager takes over: what it registers anew is for new connections.
    let left = client.kill();
    assert!(is_registered(Algorithm::Olia), "the server's holds it");
    let client =
        PathManager::start_with(&pair.client, config("count = 4\n[congestion]\nalgorithm = \"olia\""), left, |_| {});
    let second = connected(&pair, "fd42::2");
    assert_eq!(couplings(&pair, &second), [Some(Algorithm::Olia); 8]);
    client.stop();
    server.stop();
    // Before Linux 6.4 it stays registered, and is given to no connection.
    if has_links() {
        pair.client.within(5 * SECOND, "its end", || !is_registered(Algorithm::Olia));
    }
    connection.send(20_000_000);
    assert_eq!(couplings(&pair, &connection), [Some(Algorithm::Olia); 8]);
    let third = pair.connect("fd42::2");
    third.exchange();
    assert!(couplings(&pair, &third).iter().all(Option::is_none));
}

#[test]
fn every_byte_arrives_while_coupled_subflows_die_and_join_and_after_idle_times_with_and_without_ecn() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _alone = alone();
    for (algorithm, ecn) in [(Algorithm::Olia, "1"), (Algorithm::Balia, "0")] {
        let pair = pair();
        for host in [&pair.client, &pair.server] {
            host.run(|| set_sysctl("ipv4/tcp_ecn", ecn).unwrap());
        }
        // A queue that overflows: subflows lose, recover and time out.
        let shape = "tc qdisc add dev veth root tbf rate 100mbit burst 30kb limit 60kb";
        let run = || Command::new("sh").args(["-c", shape]).status().unwrap();
        assert!(pair.client.run(run).success());
        let (client, _server) = coupled(&pair, algorithm);
        let transfer = Transfer::start(connected(&pair, "fd42::2"));
        // Each waits twice as long for its successor.
        for round in 0..2 {
            transfer.pass(2_000_000);
            let subflows = pair.client.subflows(transfer.connection());
            let victim = pair.client.joined(&subflows)[round % 2];
            let token = victim.subflow.unwrap().token;
            // It may have died by itself.
            _ = pair.client.run(|| SubflowRequests::open().unwrap().destroy(token, &victim.ends));
            let four = || pair.client.subflows(transfer.connection()).len() == 4;
            pair.client.eventually("another subflow", four);
        }
        let couplings = couplings(&pair, transfer.connection());
        assert!(couplings.iter().all(|one| *one == Some(algorithm)), "{couplings:?}");
        transfer.finish();
        // Longer than a timeout: windows begin anew (`tcp_slow_start_after_idle`).
        let connection = connected(&pair, "10.42.0.2");
        for _ in 0..3 {
            connection.send(2_000_000);
            std::thread::sleep(SECOND / 2);
        }
        assert!(client.status().congestion.given >= 4 + 4 + 2);
    }
}

#[test]
fn a_dry_run_registers_nothing_and_another_algorithm_is_for_new_connections() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _alone = alone();
    let pair = pair();
    let balia = config("count = 4\n[congestion]\nalgorithm = \"balia\"");
    let dry = PathManager::start_with(&pair.client, balia, state(), |options| options.dry_run = true);
    assert!(!is_registered(Algorithm::Balia) || !has_links());
    assert_eq!(dry.status().congestion.algorithm, Some(Algorithm::Balia));
    assert_eq!(dry.status().congestion.cgroup, None);
    drop(dry);
    let (client, server) = coupled(&pair, Algorithm::Lia);
    let connection = connected(&pair, "fd42::2");
    drop((client, server));
    let (_client, _server) = coupled(&pair, Algorithm::Olia);
    let second = connected(&pair, "fd42::2");
    assert_eq!(couplings(&pair, &connection), [Some(Algorithm::Lia); 8]);
    assert_eq!(couplings(&pair, &second), [Some(Algorithm::Olia); 8]);
}
