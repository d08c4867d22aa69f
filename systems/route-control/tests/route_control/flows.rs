//! `moves = "new-connections"`: flows stay on their egress, and begin again only where they cannot stay.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use sidestep_linux::{netns::set_sysctl, testing::root_or_skip};

use super::net::{Ending, Net, eventually, file, nft};

/// OPNsense #9789 and VyOS #5120: only flows of a dead egress are forgotten.
#[test]
fn each_flow_stays_on_its_egress_until_that_is_dead_and_new_ones_take_the_one_in_use() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    net.masquerade();
    let control = net.control(&file("moves = \"new-connections\""));
    net.until_fine();
    net.cut(0, true);
    net.until_active("second");
    // Begun by the second egress, with its address.
    let stays = net.flow("10.2.0.1".parse().unwrap());
    stays.goes_on();
    net.cut(0, false);
    net.until_active("first");
    let before = net.sent(1);
    stays.goes_on();
    stays.goes_on();
    assert!(net.sent(1) > before + 30_000, "it goes on by the second");
    stays.end();
    // A flow whose egress dies is reset soon, and a new one works. That of the other egress goes on.
    let mut client = net.talk_by_second();
    let new = net.flow("10.3.0.1".parse().unwrap());
    let before = net.sent(0);
    new.goes_on();
    assert!(net.sent(0) > before + 15_000, "a new one takes the first");
    net.cut(1, true);
    eventually("the flow of the dead egress ends", || client.write_all(b"hello").is_err().then_some(()));
    new.goes_on();
    net.cut(1, false);
    // What another program flushes is put back.
    net.flush_flows();
    eventually("the table of flows", || net.has_flows().then_some(()));
    control.end(Ending::CleanUp).unwrap();
    assert!(!net.has_flows());
    new.end();
    net.assert_nothing_is_left();
}

/// OPNsense #10684: flows do not stay on a metered line for longer than is asked.
#[test]
fn flows_of_an_egress_that_drains_begin_again_after_the_time_that_is_given_and_others_stay() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    net.masquerade();
    let text = file("moves = \"new-connections\"").replace("\"p1\"", "\"p1\"\nmetered = true\ndrain = \"3 s\"");
    let control = net.control(&text);
    net.until_fine();
    let mut client = net.talk_by_second();
    let returned = Instant::now();
    let other = net.flow("10.3.0.1".parse().unwrap());
    for _ in 0..20 {
        client.write_all(b"hello").expect("it may stay for a while");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(returned.elapsed() < Duration::from_millis(2_900), "the machine is too slow for this test");
    eventually("the flow begins again", || client.write_all(b"hello").is_err().then_some(()));
    let drained = returned.elapsed();
    assert!((2_900..6_000).contains(&drained.as_millis()), "{drained:?}");
    other.goes_on();
    other.end();
    control.end(Ending::CleanUp).unwrap();
    net.assert_nothing_is_left();
}

/// OPNsense #9789: states are not killed while there is nowhere to go.
#[test]
fn flows_are_not_forgotten_while_all_egresses_are_dead() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    net.masquerade();
    let _control = net.control(&file("moves = \"new-connections\""));
    net.until_fine();
    // A packet in the middle of a forgotten flow has no translation, and ends it.
    net.edge.run(|| set_sysctl("netfilter/nf_conntrack_tcp_loose", "0")).unwrap();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    flow.goes_on();
    for transit in 0..2 {
        net.cut(transit, true);
    }
    eventually("all are dead", || net.status().decisions.last().filter(|one| one.reason == "all-dead").map(drop));
    let decided = net.status().decided;
    eventually("decisions", || (net.status().decided > decided + 3).then_some(()));
    for transit in 0..2 {
        net.cut(transit, false);
    }
    flow.goes_on();
    flow.end();
}

/// wg-quick saves its mark, 51820, in that of the connection of its own packets: bits of it are in ours, and are no egress.
#[test]
fn a_flow_with_the_mark_of_another_program_goes_on() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    net.masquerade();
    let marks = "add table inet vpn; add chain inet vpn pre { type filter hook prerouting priority -160; }; \
                 add rule inet vpn pre iifname != { p0, p1 } ct mark set 51820";
    nft(&net.edge, marks);
    let _control = net.control(&file("moves = \"new-connections\""));
    net.until_fine();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    flow.goes_on();
    flow.end();
}
