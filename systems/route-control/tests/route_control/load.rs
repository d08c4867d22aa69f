//! `load`: a full egress gives flows to another one, and takes them back.

use std::{thread, time::Duration};

use sidestep_linux::testing::root_or_skip;

use super::net::{Ending, Flow, Net, eventually, file};

/// Flows leave an egress that uses four fifths of its capacity.
fn loaded(more: &str) -> String {
    file(more)
        .replace("[control]", "[control]\nload = \"80 %\"\nload_wait = \"1 s\"")
        .replace("\"p0\"", "\"p0\"\ncapacity = \"4 Mbit/s\"")
        .replace("\"p1\"", "\"p1\"\ncapacity = \"8 Mbit/s\"")
}

fn limited() -> Net {
    let net = Net::new();
    net.limit(0, "4mbit");
    net.limit(1, "8mbit");
    net
}

fn received(flows: &[Flow]) -> u64 {
    flows.iter().map(Flow::received).sum()
}

/// The share of the flows that an egress has.
fn share(net: &Net, egress: usize) -> f64 {
    net.status().egresses[egress].seen.share.unwrap()
}

/// How often something has moved for a reason.
fn moves(net: &Net, reason: &str) -> u64 {
    net.status().moved.get(reason).copied().unwrap_or(0)
}

#[test]
fn endless_flows_use_both_egresses_and_return_when_one_has_room_for_all() {
    if !root_or_skip("route control") {
        return;
    }
    let net = limited();
    let control = net.control(&loaded(""));
    net.until_fine();
    assert!(!net.has_flows(), "no load, no table");
    let addresses = ["10.2.0.1", "10.3.0.1", "10.3.0.2", "10.3.0.3", "fd02::1", "fd03::1"];
    let flows = addresses.map(|to| net.load(to.parse().unwrap()));
    eventually("flows move", || (moves(&net, "load") > 0).then_some(()));
    assert!(net.has_flows());
    // Twelve Mbit/s, of which four would be the primary's.
    let carried = || {
        let before = received(&flows);
        thread::sleep(Duration::from_secs(3));
        (received(&flows) - before) as f64 * 8.0 / 3e6
    };
    let both = eventually("both are full", || Some(carried()).filter(|mbits| *mbits > 8.0));
    println!("{both:.1} Mbit/s");
    let status = net.status();
    assert_eq!(status.active, "first", "{status:?}");
    let record = status.decisions.iter().find(|one| one.reason == "load").unwrap();
    assert_eq!((record.from.as_str(), record.to.as_str()), ("first", "second"), "{record:?}");
    assert!(record.share.is_some() && record.inputs["first"].utilisation.unwrap() > 0.8, "{record:?}");
    // What another program flushes is put back.
    net.flush_flows();
    eventually("the table", || net.has_flows().then_some(()));
    // The second dies: all of it goes by the first.
    net.cut(1, true);
    eventually("the second has none", || (share(&net, 1) == 0.0).then_some(()));
    flows.iter().for_each(Flow::goes_on);
    net.cut(1, false);
    eventually("the second again", || (share(&net, 1) > 0.0).then_some(()));
    // A move that is not judged yet would be undone for what the end of the flows brings.
    eventually("nothing moves any more", || {
        let before = net.status().moved;
        thread::sleep(Duration::from_secs(6));
        (net.status().moved == before).then_some(())
    });
    flows.into_iter().for_each(Flow::end);
    eventually("all return", || (share(&net, 0) == 1.0).then_some(()));
    eventually("no table", || (!net.has_flows()).then_some(()));
    assert!(moves(&net, "load-over") > 0, "{:?}", net.status().moved);
    control.end(Ending::CleanUp).unwrap();
    net.assert_nothing_is_left();
}

#[test]
fn flows_that_are_kept_stay_and_new_ones_leave_a_full_egress() {
    if !root_or_skip("route control") {
        return;
    }
    let net = limited();
    net.masquerade();
    let control = net.control(&loaded("moves = \"new-connections\""));
    net.until_fine();
    let old = net.load("10.2.0.1".parse().unwrap());
    eventually("most new flows leave", || (share(&net, 1) >= 0.5).then_some(()));
    let before = net.sent(1);
    old.goes_on();
    old.goes_on();
    assert!(net.sent(1) < before + 20_000, "it stays, and nothing but probes is on the second");
    let mut new = Vec::new();
    eventually("a new one takes the second", || {
        new.push(net.load(["10.3.0.1", "10.3.0.2", "10.3.0.3"][new.len() % 3].parse().unwrap()));
        new.iter().for_each(Flow::goes_on);
        (net.sent(1) > before + 200_000).then_some(())
    });
    old.end();
    new.into_iter().for_each(Flow::end);
    control.end(Ending::CleanUp).unwrap();
    assert!(!net.has_flows());
    net.assert_nothing_is_left();
}

#[test]
fn packets_with_a_providers_source_are_not_spread() {
    if !root_or_skip("route control") {
        return;
    }
    let net = limited();
    let text = loaded("").replace("dev = \"p0\"", "dev = \"p0\"\nsource = \"10.1.0.0/24\"");
    let _control = net.control(&text);
    net.until_fine();
    let flows = ["10.2.0.1", "10.3.0.1", "10.3.0.2", "10.3.0.3"].map(|to| net.load(to.parse().unwrap()));
    eventually("all that may move", || (moves(&net, "load") > 1).then_some(()));
    let before = net.sent(1);
    flows.iter().for_each(Flow::goes_on);
    assert!(net.sent(1) < before + 50_000, "nothing but probes is on the second");
}

#[test]
fn a_reload_ends_load_and_everything_of_it() {
    if !root_or_skip("route control") {
        return;
    }
    let net = limited();
    let control = net.control(&loaded(""));
    net.until_fine();
    let flows = ["10.2.0.1", "10.3.0.1"].map(|to| net.load(to.parse().unwrap()));
    eventually("flows move", || net.has_flows().then_some(()));
    control.reload(&file(""));
    eventually("no table", || (!net.has_flows()).then_some(()));
    assert_eq!(net.status().egresses[0].seen.share, None);
    control.reload(&loaded(""));
    eventually("the table again", || net.has_flows().then_some(()));
    // A killed daemon leaves it, and the next takes over.
    control.end(Ending::Killed).unwrap();
    assert!(net.has_flows());
    let control = net.control(&file(""));
    assert!(!net.has_flows());
    drop(flows);
    control.end(Ending::CleanUp).unwrap();
    net.assert_nothing_is_left();
}
