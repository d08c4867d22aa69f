//! INRPP routers at work: real connections of hosts that know nothing of them, in namespaces.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

mod faults;
mod net;

use std::fs;

use sidestep_hostd::Shutdown;
use sidestep_inrpp::daemon::{InrppConfig, InrppOptions, run_inrpp};
use sidestep_linux::testing::root_or_skip;

use net::{CHILD, Net, Over};

/// No test, but the daemon of the others, which start this program once more: so that one can be killed.
#[test]
fn daemon_process() {
    let Some(file) = std::env::var_os(CHILD) else { return };
    let config = InrppConfig::parse(&fs::read_to_string(file).unwrap()).unwrap();
    let keys = config
        .neighbours
        .iter()
        .map(|neighbour| neighbour.key_file.as_ref().map(|file| sidestep_inrpp::daemon::read_key(file).unwrap()));
    let options = InrppOptions {
        keys: keys.collect(),
        config,
        keep: false,
        dry_run: false,
        takeover: std::env::var_os("TAKEOVER").is_some(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_configs, changed) = tokio::sync::mpsc::unbounded_channel();
    runtime.block_on(async {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        let shutdown = async {
            term.recv().await;
            Shutdown::CleanUp
        };
        run_inrpp(options, changed, || (), shutdown).await.unwrap();
    });
}

#[test]
fn connections_of_hosts_that_know_nothing_use_the_detour_and_nothing_is_dropped() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    let plain = net.transfer(10_000_000, true, false);
    for over in [Over::Udp, Over::Ethernet, Over::Tcp] {
        let _routers = net.routers(over, "");
        for v6 in [true, false] {
            for back in [false, true] {
                let took = net.transfer(10_000_000, v6, back);
                println!("{over:?} v6 {v6} back {back}: {took:?}, without {plain:?}");
                assert!(took < plain * 8 / 10, "{over:?} {v6} {back}: {took:?} for {plain:?}");
            }
        }
        for node in [&net.a, &net.b, &net.c] {
            let status = net.status(node).unwrap();
            assert!(status.ports.iter().all(|port| port.dropped == 0), "{status:?}");
        }
        let status = net.status(&net.a).unwrap();
        assert!(status.ports.iter().any(|port| port.detoured > 1_000), "{status:?}");
    }
}
