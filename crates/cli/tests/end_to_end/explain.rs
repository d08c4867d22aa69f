//! `sidestep agent explain`: three sentences of what the kernel has, and clear words where there is nothing.

use serde_json::Value;

use crate::{common::root_or_skip, ownership::Host};

#[test]
fn an_address_is_explained_by_what_the_agent_does_with_it_and_an_agent_that_is_not_here_is_missed() {
    if !root_or_skip("explaining an address") {
        return;
    }
    let host = Host::new("explain");
    let state = host.state();
    let explain = |what: &[&str]| host.run(&[&["agent", "explain", "--state", &state][..], what].concat());
    assert!(explain(&["2001:db8::7"]).error(1).contains("no agent keeps its state in"), "none is here yet");
    host.ip("link set lo up");
    host.ip("addr add 2001:db8:1::5/128 dev lo");
    let agent = host.start_ready(&state, &[]);

    let there = explain(&["2001:db8::7"]);
    there.is_fine();
    let sentences: Vec<_> = there.stdout.lines().collect();
    assert_eq!(sentences.len(), 3, "{sentences:?}");
    assert_eq!(sentences[0], "2001:db8::7 belongs to the destination 2001:db8::/64, whose path is plain (alive).");
    assert_eq!(sentences[2], "New connections begin on plain, and cannot move.");
    let elsewhere = explain(&["2001:db9::1"]).stdout;
    assert!(elsewhere.contains("is left alone: no destination of the agent has the address"), "{elsewhere}");
    let own = explain(&["2001:db8:1::5"]).stdout;
    assert!(own.starts_with("2001:db8:1::5 is an address of this host, on lo; its packets are taken to"), "{own}");
    let loopback = explain(&["::1"]).stdout;
    assert!(loopback.contains("is left alone: the address is this host's own"), "{loopback}");

    let json: Value = serde_json::from_str(&explain(&["--json", "2001:db9::1"]).stdout).unwrap();
    assert_eq!(json["schema"], 1);
    let explanation = &json["explanations"][0];
    assert_eq!(explanation["left_alone"]["rule"], "no_destination", "{json:#}");
    assert_eq!(explanation["sentences"].as_array().unwrap().len(), 3);
    assert!(
        explain(&["blue"]).error(2).contains("`blue` is no connection and no address; write LOCAL:PORT-REMOTE:PORT")
    );
    let gone = explain(&["[2001:db8:1::5]:7", "[2001:db8::7]:80"]);
    assert!(
        gone.error(1).contains("there is no connection between [2001:db8:1::5]:7 and [2001:db8::7]:80"),
        "{gone:?}"
    );

    let other = Host::new("explain-other");
    let away = other.run(&["agent", "explain", "--state", &state, "2001:db8::7"]);
    assert!(away.error(1).contains("works in another network namespace: ask there"), "{away:?}");
    agent.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(agent.wait().code, Some(0));
}

/// A host with one provider.
const BLUE: &str = r#"
[[destination]]
prefix = "0.0.0.0/0"
path = [{ name = "blue", via = "10.9.0.2", dev = "wan", rate = "1 Mbit/s", rtt = "1 ms" }]
"#;

#[test]
fn a_vpn_that_takes_the_packets_of_a_path_is_named() {
    if !root_or_skip("a rule that comes first") {
        return;
    }
    let host = Host::new("explain-vpn");
    let state = host.state();
    host.ip("link add wan type veth peer name far");
    for device in ["wan", "far"] {
        host.ip(&format!("link set {device} up"));
    }
    host.ip("addr add 10.9.0.1/24 dev wan");
    host.ip("addr add 10.77.0.1/24 dev far");
    let _agent = host.start_ready_with(BLUE, &state);
    let explain = || host.run(&["agent", "explain", "--state", &state, "10.2.0.1"]).stdout;
    assert!(
        explain().starts_with("10.2.0.1 belongs to the destination 0.0.0.0/0, whose path is blue (alive).\n"),
        "{}",
        explain()
    );
    host.ip("route add default dev far table 99");
    host.ip("rule add pref 99 table 99");
    let said = explain();
    let named = "whose path is blue (its packets are led elsewhere); but others lead packets elsewhere: blue (packets of path blue \
                 to 0.0.0.0/0 leave by far";
    assert!(said.contains(named) && said.lines().next().is_some_and(|first| first.contains("99:")), "{said}");
}
