//! A server whose default route back is dead: each SYN-ACK is drawn a path, by a table that survives what routes survive.

use std::{
    net::{SocketAddr, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use sidestep_hostd::{MetricsConfig, StaticPath};
use sidestep_linux::{netlink, nftables::flush_ruleset, testing::root_or_skip};

use crate::{
    metrics,
    support::{
        Agent, Lab, MASK, PORT, TABLE_BASE, TWO_PROVIDERS, eventually, listen, plain, settings, slot, socket_in, via,
    },
    takeover::{Kept, in_host, stop},
};

/// Long enough for one SYN-ACK, and too short for a second.
const ONE: Duration = Duration::from_millis(900);

/// Two paths of these bandwidths, of which the first is the default route.
fn paths(lab: &Lab, rates: [&str; 2]) -> Vec<StaticPath> {
    std::iter::zip(["R1", "R2"], rates).map(|(provider, rate)| via(lab, "h", provider, rate)).collect()
}

fn start(lab: &Lab, kept: &Kept, dry_run: bool) -> Agent {
    // A quarter of the SYN-ACKs takes the dead path. That nine in a row do, as many as a client has while it waits, does not occur.
    let paths = paths(lab, ["8 Mbit/s", "24 Mbit/s"]);
    Agent::start_as(lab, "h", settings(), &lab.prefix("s").to_string(), paths, |options| {
        (options.pins, options.dry_run) = (Some(kept.pins(true)), dry_run);
        options.config.metrics = MetricsConfig { listen: Some(metrics::LISTEN.parse().unwrap()), bpf_stats: false };
    })
}

/// How many of `count` connections from `s` to `h`, opened at once, are established in this time.
fn established(lab: &Lab, count: usize, within: Duration) -> usize {
    let to = SocketAddr::new(lab.address("h").into(), PORT);
    let one = || lab.network.node(lab.id("s")).run(|| Ok(TcpStream::connect_timeout(&to, within).is_ok())).unwrap();
    thread::scope(|scope| {
        let all: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
    })
}

/// The table in `h`, as nft prints it; empty if it is not there.
fn table(lab: &Lab) -> String {
    let name = format!("sidestep-{TABLE_BASE}");
    let listed = in_host(lab, || Command::new("nft").args(["list", "table", "inet", &name]).output().unwrap());
    String::from_utf8(listed.stdout).unwrap()
}

#[test]
fn all_clients_connect_to_a_server_whose_default_route_is_dead_whatever_dies_or_is_flushed() {
    if !root_or_skip("SYN-ACKs of a server") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    lab.network.node(lab.id("h")).run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    let listener = listen(socket, SocketAddr::new(lab.address("h").into(), PORT));
    lab.swallow("h", "R1", true);
    assert_eq!(established(&lab, 2, ONE), 0, "without an agent");

    start(&lab, &kept, true).stop();
    assert_eq!(table(&lab), "", "a dry run installs nothing");
    let agent = start(&lab, &kept, false);
    assert_eq!(established(&lab, 6, Duration::from_secs(16)), 6);
    let accepted: Vec<_> = (0..6).map(|_| listener.accept().unwrap().0).collect();
    assert!(accepted.iter().all(|one| slot(one) > 0), "the connections have paths of their own");

    // Another program's `nft flush ruleset` is mended and counted.
    let value = |name: &str| metrics::value(&metrics::scrape(&lab), name);
    let parts = || table(&lab).lines().filter(|line| !line.contains("meta random")).collect::<Vec<_>>().join("\n");
    let before = parts();
    in_host(&lab, flush_ruleset).unwrap();
    assert_eq!(table(&lab), "");
    // The shares that paths have by what is measured may be others.
    eventually("the table is back", || (parts() == before && table(&lab).contains("meta random")).then_some(()));
    assert_eq!(value("sidestep_agent_replies_drawn"), Some(1.0));
    assert_eq!(value("sidestep_agent_replies_mended_total"), Some(1.0));

    // A killed agent's table stays, and the next takes it over.
    agent.kill();
    assert_eq!(established(&lab, 4, Duration::from_secs(16)), 4);
    let next = start(&lab, &kept, false);
    assert_eq!(established(&lab, 4, Duration::from_secs(16)), 4);
    next.stop();
    assert_eq!(table(&lab), "");
    assert_eq!(established(&lab, 2, ONE), 0, "stopped");

    // `agent stop` removes what a killed agent left.
    start(&lab, &kept, false).kill();
    assert_ne!(table(&lab), "");
    assert!(stop(&lab, &kept.pins(true)));
    assert_eq!(table(&lab), "");
}

#[test]
fn the_weights_of_replies_follow_what_connections_learn_and_paths_that_change() {
    if !root_or_skip("weights of SYN-ACKs") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let settings = sidestep_policy::PolicySettings::default();
    let prefix = lab.prefix("s").to_string();
    let agent = Agent::start(&lab, "h", settings.clone(), &prefix, paths(&lab, ["8 Mbit/s"; 2]));
    let shares = || table(&lab).lines().filter(|line| line.contains("meta random")).collect::<String>();
    let chain = |slot: u32| format!("mark-{:x}", slot << MASK.trailing_zeros());
    let equal = shares();
    assert!(equal.contains("0-2147483647"), "two equal halves: {equal}");
    // Connections that send learn that the first path is dead.
    lab.swallow("h", "R1", true);
    let flows: Vec<_> = (0..4).map(|_| crate::support::Flow::start(lab.connect("h", "s"))).collect();
    let little = eventually("the dead path has little", || Some(shares()).filter(|now| *now != equal));
    assert!(little.contains(&chain(1)) && little.contains(&chain(2)), "but something: {little}");
    drop(flows);
    agent.reconfigure(settings, &prefix, vec![plain("8 Mbit/s")]);
    eventually("one path is left", || (!table(&lab).contains(&chain(2))).then_some(()));
}
