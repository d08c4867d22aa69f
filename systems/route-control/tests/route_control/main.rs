//! Route controllers at work: real probes and real connections over two egresses, in namespaces.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

mod config;
#[path = "../../../../crates/hostd/tests/support/daemon.rs"]
mod daemon;
mod effect;
mod flows;
mod follow;
mod health;
mod kinds;
mod load;
mod long;
mod mending;
mod net;
mod passing;

use std::{
    thread,
    time::{Duration, Instant},
};

use sidestep_hostd::AgentError;
use sidestep_linux::testing::root_or_skip;
use sidestep_route_control::daemon::stop_route_control;

use self::net::{Ending, Net, PATIENCE, eventually, file, ip};

/// From the outage to the move at the latest, as `file` has it: a period, the probes that show that an egress is dead, and the
/// timeout of the last one.
const OFF: Duration = Duration::from_millis(500 + 5 * 33 + 200);
/// From the end of the outage to the return: a period, a measurement, and the timeout.
const BACK: Duration = Duration::from_millis(500 + 400 + 200);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_millis(700);

/// OPNsense takes 14 s to see an outage, and leaves flows on the metered line after it (#10684).
#[test]
fn an_outage_moves_a_connection_to_the_other_egress_and_back_and_every_byte_arrives() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let control = net.control(&file(""));
    net.until_fine();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    let six = net.flow("fd02::1".parse().unwrap());
    flow.goes_on();
    let before = net.sent(1);
    net.cut(0, true);
    let off = net.until_active("second");
    assert!(off < OFF + SLACK, "off after {off:?}");
    flow.goes_on();
    six.goes_on();
    assert!(net.sent(1) > before + 40_000, "both go by the second egress");
    net.cut(0, false);
    let back = net.until_active("first");
    assert!(back < BACK + SLACK, "back after {back:?}");
    println!("off after {off:?}, back after {back:?}");
    let before = net.sent(1);
    flow.goes_on();
    six.goes_on();
    assert!(net.sent(1) < before + 20_000, "nothing but probes is left on the second egress");
    let status = net.status();
    let moves: Vec<_> = status.decisions.iter().filter(|one| one.from != one.to).collect();
    let told: Vec<_> = moves.iter().map(|one| (one.to.as_str(), one.reason.as_str())).collect();
    assert_eq!(told, [("second", "dead"), ("first", "recovered")]);
    assert_eq!(moves[0].inputs["first"].health, "dead");
    flow.end();
    six.end();
    control.end(Ending::CleanUp).unwrap();
    net.assert_nothing_is_left();
}

/// dpinger #22: one probe target decides.
#[test]
fn one_dead_target_of_three_moves_nothing_and_all_dead_targets_neither() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    ip(&net.world, "addr del 10.3.0.2/32 dev lo");
    ip(&net.world, "route add blackhole 10.3.0.2/32");
    let named = || {
        let status = net.status();
        let out = |counts: bool| {
            status
                .egresses
                .iter()
                .all(|one| one.targets.iter().filter(|one| one.counts == counts).count() == 1 + usize::from(counts))
        };
        let alone = status
            .egresses
            .iter()
            .all(|one| one.targets.iter().all(|of| (of.lost == of.sent) == (of.address.to_string() == "10.3.0.2")));
        (out(true) && out(false) && alone).then_some(status)
    };
    let status = eventually("the dead target", named);
    thread::sleep(Duration::from_millis(1_200));
    let later = net.status();
    assert!(later.decided > status.decided + 1, "{later:?}");
    assert_eq!((later.active.as_str(), later.moved.len()), ("first", 0), "{later:?}");
    assert!(later.egresses.iter().all(|one| one.seen.health != "dead"), "{later:?}");
    for last in [1, 3] {
        ip(&net.world, &format!("addr del 10.3.0.{last}/32 dev lo"));
        ip(&net.world, &format!("route add blackhole 10.3.0.{last}/32"));
    }
    let reason = || net.status().decisions.last().map(|one| one.reason.clone()).filter(|reason| reason == "all-dead");
    eventually("all are dead", reason);
    thread::sleep(Duration::from_millis(1_200));
    let status = net.status();
    assert_eq!((status.active.as_str(), status.moved.len()), ("first", 0), "{status:?}");
}

#[test]
fn a_daemon_killed_under_load_and_during_an_outage_loses_no_connection_and_the_next_goes_on() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let mut control = net.control(&file("fail_back_after = \"60 min\""));
    net.until_fine();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    flow.goes_on();
    net.cut(0, true);
    net.until_active("second");
    net.cut(0, false);
    for _ in 0..4 {
        flow.goes_on();
        control.end(Ending::Killed).unwrap();
        flow.goes_on();
        assert!(ip(&net.edge, "route show table 8562").contains("default via 10.9.1.2 dev p1"));
        control = net.control(&file("fail_back_after = \"60 min\""));
        // It does not begin with the primary: packets go on by the egress that they take.
        let status = net.status();
        assert_eq!(status.active, "second", "{status:?}");
    }
    flow.goes_on();
    control.end(Ending::Keep).unwrap();
    assert!(ip(&net.edge, "rule").contains("lookup 8562"));
    flow.goes_on();
    let control = net.control(&file(""));
    assert_eq!(net.status().active, "second");
    net.until_active("first");
    flow.end();
    control.end(Ending::Killed).unwrap();
    let stopped = net.edge.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Ok(runtime.block_on(async {
            (stop_route_control(8500, 8500).await.unwrap(), stop_route_control(8500, 8500).await.unwrap())
        }))
    });
    assert_eq!(stopped.unwrap(), (true, false));
    net.assert_nothing_is_left();
}

#[test]
fn an_interface_that_goes_down_or_vanishes_is_left_at_once_and_used_again_when_it_is_back() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    flow.goes_on();
    // Only the path there: what comes back takes the same link, which must not be down.
    ip(&net.world, "route replace 10.1.0.0/16 via 10.8.1.1");
    ip(&net.edge, "link set p0 down");
    let off = net.until_active("second");
    assert!(off < Duration::from_millis(100) + SLACK, "{off:?}");
    flow.goes_on();
    let status = net.status();
    assert_eq!(status.egresses[0].unusable.as_deref(), Some("p0 is down or has no carrier"));
    assert_eq!(status.decisions.iter().rfind(|one| one.from != one.to).unwrap().reason, "carrier");
    ip(&net.edge, "link set p0 up");
    net.until_active("first");
    ip(&net.edge, "link del p0");
    net.until_active("second");
    flow.goes_on();
    assert_eq!(net.status().egresses[0].unusable.as_deref(), Some("there is no interface p0"));
    flow.end();
}

#[test]
fn rules_and_routes_that_another_program_removes_are_put_back_and_those_of_others_are_left_alone() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    ip(&net.edge, "route add 10.77.0.0/16 via 10.9.1.2");
    ip(&net.edge, "route add 10.78.0.0/16 via 10.9.1.2 table 8399 proto 83");
    ip(&net.edge, "rule add from 10.66.0.0/16 lookup 8399 pref 8400 protocol 83");
    let before = (ip(&net.edge, "route show table main"), ip(&net.edge, "-6 route show table main"));
    let control = net.control(&file(""));
    net.until_fine();
    // More specific routes of the main table win over ours.
    for destination in ["10.77.0.1", "10.1.0.1"] {
        let by = if destination == "10.1.0.1" { "dev site" } else { "dev p1" };
        assert!(ip(&net.edge, &format!("route get {destination}")).contains(by));
    }
    // Those of one priority may change places.
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    let rules = || (sorted(ip(&net.edge, "rule")), sorted(ip(&net.edge, "-6 rule")));
    let routes = || (ip(&net.edge, "route show table all proto 83"), ip(&net.edge, "-6 route show table all proto 83"));
    let whole = (rules(), routes());
    let flow = net.flow("10.2.0.1".parse().unwrap());
    for damage in [
        "rule del pref 8502",
        "-6 rule del pref 8502",
        "rule del pref 8500",
        "route flush table 8562",
        "-6 route flush table 8562",
        "route flush table 8501",
        "-6 route flush table 8563",
        "route replace default via 10.9.1.2 table 8562",
        // Another program with our protocol's number.
        "route replace default via 10.9.1.2 table 8562 proto 83",
        "-6 route replace default via fd09:0:0:1::2 dev p1 table 8562 proto 83",
        "route replace throw 10.1.0.0/24 table 8501 proto 83",
        "route replace unreachable default table 8501 proto 83",
    ] {
        ip(&net.edge, damage);
        let begin = Instant::now();
        eventually(damage, || ((rules(), routes()) == whole).then_some(()));
        // It is reported: the comparison that comes anyway is half a minute away.
        assert!(begin.elapsed() < Duration::from_secs(5), "{damage}: {:?}", begin.elapsed());
    }
    assert!(net.status().mended >= 11, "{}", net.status().mended);
    flow.end();
    control.end(Ending::CleanUp).unwrap();
    assert_eq!((ip(&net.edge, "route show table main"), ip(&net.edge, "-6 route show table main")), before);
    assert!(ip(&net.edge, "route show table 8399").contains("10.78.0.0/16"));
    assert!(ip(&net.edge, "rule").contains("8400:"));
}

#[test]
fn a_dry_run_decides_and_writes_nothing() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    // Without rules of ours probes go where the main table leads, bound to their interface.
    ip(&net.edge, "route add default via 10.9.1.2 metric 100");
    let state = || (ip(&net.edge, "rule"), ip(&net.edge, "route show table all"));
    let before = state();
    let (control, is_ready) = net.spawn(&file(""), true);
    is_ready.recv_timeout(PATIENCE).unwrap();
    net.until_fine();
    assert_eq!(state(), before);
    net.cut(0, true);
    net.until_active("second");
    assert_eq!(state(), before);
    let stopped = Instant::now();
    control.end(Ending::CleanUp).unwrap();
    assert!(stopped.elapsed() < Duration::from_secs(2));
    assert_eq!(state(), before);
}

#[test]
fn packets_with_a_providers_source_leave_by_that_provider_or_not_at_all() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let text = file("").replace("dev = \"p1\"", "dev = \"p1\"\nsource = [\"2001:db8:b::/48\", \"10.66.0.0/16\"]");
    let _control = net.control(&text);
    net.until_fine();
    let by = |from: &str| {
        let six = if from.contains(':') { ("-6 ", "fd02::1") } else { ("", "10.2.0.1") };
        net::try_ip(&net.edge, &format!("{}route get {} from {from} iif site", six.0, six.1))
    };
    for from in ["2001:db8:b::7", "10.66.0.7"] {
        assert!(by(from).unwrap().contains("dev p1"), "{:?}", by(from));
    }
    for from in ["fd01:0:0:1::1", "10.1.0.1"] {
        assert!(by(from).unwrap().contains("dev p0"), "{:?}", by(from));
    }
    // Their egress is gone: they are refused, and all others go on.
    ip(&net.edge, "link set p1 down");
    eventually("p1 is down", || net.status().egresses[1].unusable.clone().map(drop));
    for from in ["2001:db8:b::7", "10.66.0.7"] {
        eventually("refused", || by(from).is_none_or(|text| text.contains("unreachable")).then_some(()));
    }
    assert!(by("10.1.0.1").unwrap().contains("dev p0"));
}

#[test]
fn another_configuration_takes_effect_without_a_break() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let control = net.control(&file(""));
    net.until_fine();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    control.reload(&file("").replace("[\"0.0.0.0/0\", \"::/0\"]", "[\"10.2.0.0/16\"]"));
    eventually("the other destination", || {
        let table = ip(&net.edge, "route show table 8562");
        (table.contains("10.2.0.0/16") && !table.contains("default")).then_some(())
    });
    flow.goes_on();
    net.cut(0, true);
    net.until_active("second");
    flow.goes_on();
    flow.end();
    // Another egress is the primary from now on.
    let swapped =
        file("").replace("\"first\"", "\"x\"").replace("\"second\"", "\"first\"").replace("\"x\"", "\"second\"");
    control.reload(
        &swapped
            .replace("dev = \"p0\"\nvia = [\"10.9.0.2\", \"fd09::2\"]", "dev = \"P\"")
            .replace("dev = \"P\"", "dev = \"p0\"\nvia = [\"10.9.0.2\", \"fd09::2\"]"),
    );
    eventually("the other order", || (net.status().egresses[0].name == "second").then_some(()));
}

#[test]
fn one_route_controller_works_in_a_namespace_and_marks_of_others_are_refused() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let control = net.control(&file(""));
    let (second, _ready) = net.spawn(&file(""), false);
    let error = second.wait().unwrap_err();
    assert!(matches!(error, AgentError::Occupied { .. }), "{error}");
    control.end(Ending::CleanUp).unwrap();
    ip(&net.edge, "rule add fwmark 0x10/0x10 lookup 100 pref 100");
    let (third, _ready) = net.spawn(&file(""), false);
    let error = third.wait().unwrap_err();
    assert!(matches!(error, AgentError::MarkCollision { .. }), "{error}");
    net.assert_nothing_is_left();
}

/// mwan3 #11431 and #12309: probes leave by the wrong egress.
#[test]
fn probes_leave_by_the_egress_that_they_measure_whatever_is_in_use() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file("fail_back = \"never\""));
    net.until_fine();
    let health = || net.status().egresses.iter().map(|one| one.seen.health.clone()).collect::<Vec<_>>();
    for (dead, expected) in [(1, ["fine", "dead"]), (0, ["dead", "fine"])] {
        net.cut(dead, true);
        eventually("one dead egress", || (health() == expected).then_some(()));
        net.cut(dead, false);
        // One good measurement is no proof: it takes some.
        eventually("two fine egresses", || (health() == ["fine", "fine"]).then_some(()));
    }
    // The second is in use since, and the first is still measured by its own link.
    assert_eq!(net.status().active, "second");
    net.cut(0, true);
    eventually("the first is dead", || (health() == ["dead", "fine"]).then_some(()));
    assert_eq!(net.status().moved.values().sum::<u64>(), 1);
}

/// openmptcprouter #4355: the primary is promoted too early.
#[test]
fn packets_return_only_after_the_primary_was_fine_for_as_long_as_is_asked() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file("fail_back_after = \"3 s\""));
    net.until_fine();
    net.cut(0, true);
    net.until_active("second");
    // Back for a moment only.
    net.cut(0, false);
    eventually("the first is fine again", || (net.status().egresses[0].seen.health == "fine").then_some(()));
    net.cut(0, true);
    eventually("the first is dead", || (net.status().egresses[0].seen.health == "dead").then_some(()));
    assert_eq!((net.status().active.as_str(), net.status().moved.values().sum::<u64>()), ("second", 1));
    net.cut(0, false);
    let back = net.until_active("first");
    assert!(back > Duration::from_secs(3), "{back:?}");
    assert!(net.status().decisions.iter().any(|one| one.reason == "recovering"));
}

/// OPNsense #4971: alarms under load.
#[test]
fn loss_by_both_egresses_and_load_on_the_primary_move_nothing() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    net.limit(0, "8mbit");
    let _control = net.control(&file(""));
    net.until_fine();
    let flow = net.load("10.2.0.1".parse().unwrap());
    let decided = net.status().decided;
    eventually("decisions under load", || (net.status().decided > decided + 5).then_some(()));
    let status = net.status();
    assert_eq!((status.active.as_str(), status.moved.len()), ("first", 0), "{status:?}");
    // The probes see the queue that the load has filled.
    assert!(status.egresses[0].seen.rtt_ms > Some(1.0), "{status:?}");
    flow.end();
    for transit in 0..2 {
        net.lose(transit, 5);
    }
    let decided = net.status().decided;
    eventually("decisions at 5 % loss", || (net.status().decided > decided + 6).then_some(()));
    let status = net.status();
    assert!(status.moved.values().sum::<u64>() <= 1, "{status:?}");
    assert!(status.egresses.iter().any(|one| one.seen.loss > 0.0), "{status:?}");
}
