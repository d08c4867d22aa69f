//! What passes the egresses decides where probes err: they are filtered, or loss that they see costs TCP little.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use sidestep_linux::testing::root_or_skip;
use sidestep_route_control::daemon::{PredictionErrors, stop_route_control};

use super::{
    OFF, SLACK,
    kinds::reflector,
    net::{Ending, Net, TARGET, eventually, file, ip},
};

/// Waits for `count` decisions.
fn decisions(net: &Net, count: u64) {
    let decided = net.status().decided;
    eventually("decisions", || (net.status().decided > decided + count).then_some(()));
}

#[test]
fn acknowledgements_that_advance_veto_a_false_alarm_of_the_probes() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let control = net.control(&file("passive = true"));
    net.until_fine();
    let flows = ["10.2.0.1", "10.3.0.3"].map(|to| net.flow(to.parse().unwrap()));
    decisions(&net, 2);
    // All probes of the first egress are filtered, or half of them; what TCP sends goes on.
    for percent in [100, 50] {
        net.lose_probes(0, percent);
        decisions(&net, 8);
        let status = net.status();
        assert_eq!((status.active.as_str(), status.moved.len()), ("first", 0), "{percent} %: {status:?}");
        let seen = &status.egresses[0].seen;
        assert!(seen.lost > 0.0 && seen.health == "fine", "{percent} %: {seen:?}");
        let passed = seen.passed.as_ref().unwrap();
        assert!(passed.goodput_mbps > 1.0 && passed.segments > 100 && passed.rtt_ms.is_some(), "{passed:?}");
        assert_eq!(status.egresses[1].seen.passed.as_ref().unwrap().segments, 0);
    }
    net.lose_probes(0, 0);
    eventually("no loss", || (net.status().egresses[0].seen.lost == 0.0).then_some(()));
    // Nothing advances any more: now the probes are right. Much is in flight, and is sent again by the other egress: what was
    // lost here and is acknowledged there shows nothing of this one.
    for transit in 0..2 {
        net.limit(transit, "20mbit");
    }
    let load = net.load("10.3.0.2".parse().unwrap());
    load.goes_on();
    net.cut(0, true);
    let off = net.until_active("second");
    assert!(off < OFF + SLACK, "{off:?}");
    decisions(&net, 10);
    assert_eq!(
        (net.status().active.as_str(), net.status().moved.values().sum::<u64>()),
        ("second", 1),
        "{:?}",
        net.status()
    );
    flows.iter().for_each(|flow| flow.goes_on());
    drop(load);
    net.cut(0, false);
    net.until_active("first");
    // Without the measurement the filtered probes move everything.
    control.reload(&file("passive = false"));
    eventually("no programs", || net.filters().is_empty().then_some(()));
    net.until_fine();
    net.lose_probes(0, 100);
    net.until_active("second");
    flows.into_iter().for_each(|flow| flow.end());
    control.end(Ending::CleanUp).unwrap();
    net.assert_nothing_is_left();
}

#[test]
fn a_clean_1_mbit_backup_beside_an_8_mbit_primary_that_loses_2_percent_is_not_taken() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    net.limit(0, "8mbit");
    net.limit(1, "1mbit");
    let _reflector = reflector(&net.world, 862);
    let rest = file("");
    let rest =
        rest.split(TARGET).next().unwrap().replace("measurement_period = \"400 ms\"\nprobe_interval = \"33 ms\"\n", "");
    // So that it is soon sure of 2 %.
    let rest = rest.replace("[control]", "[control]\nconfidence = 2.0");
    let rest =
        rest.replace("\"p0\"", "\"p0\"\ncapacity = \"8 Mbit/s\"").replace("\"p1\"", "\"p1\"\ncapacity = \"1 Mbit/s\"");
    let text = format!("{rest}[[target]]\naddress = \"10.3.0.1\"\nkind = \"stamp\"\nown = true\n");
    let control = net.control(&text.replace("[control]", "[control]\nmode = \"predictive\""));
    net.until_fine();
    // An idle site is no evidence of what an egress gives.
    decisions(&net, 4);
    net.lose(0, 2);
    decisions(&net, 4);
    let flows = ["10.2.0.1", "10.3.0.2", "10.3.0.3"].map(|to| net.load(to.parse().unwrap()));
    decisions(&net, 40);
    let status = net.status();
    assert_eq!((status.active.as_str(), status.moved.len()), ("first", 0), "{status:?}");
    assert!(status.passive && status.decisions.iter().any(|one| one.reason == "not-better"), "{status:?}");
    let [first, second] = [0, 1].map(|egress| status.egresses[egress].seen.clone());
    let (got, predicted) = (first.passed.unwrap().goodput_mbps, [first.predicted_mbps, second.predicted_mbps]);
    assert_eq!(status.prediction_errors, Some(PredictionErrors::default()), "nothing has moved");
    println!("got {got:.2} Mbit/s, predicted {predicted:?}, loss {:.3} and {:.3}", first.loss, second.loss);
    assert!(got > 2.0 && predicted[0] > predicted[1], "{got} {predicted:?}");
    // Who goes by loss alone moves.
    control.reload(&text);
    net.until_active("second");
    assert_eq!(net.status().prediction_errors, None);
    drop(flows);
}

#[test]
fn programs_that_another_program_removes_come_back_and_a_killed_daemons_are_removed() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let control = net.control(&file("passive = true"));
    let programs = || net.filters().matches("handle 0x5357").count();
    assert_eq!(programs(), 4, "{}", net.filters());
    let clear = || Ok(Command::new("tc").args(["filter", "del", "dev", "p1", "egress"]).status().unwrap().success());
    assert!(net.edge.run(clear).unwrap());
    // No event reports filters, so that they are found missing when something else is compared.
    ip(&net.edge, "rule del pref 8502");
    eventually("the program is back", || (programs() == 4).then_some(()));
    control.end(Ending::Killed).unwrap();
    thread::sleep(Duration::from_millis(100));
    let control = net.control(&file("passive = true"));
    assert_eq!(programs(), 4);
    // An interface that comes again is measured again.
    let begin = Instant::now();
    ip(&net.edge, "link set p1 down");
    ip(&net.edge, "link set p1 up");
    eventually("both are fine", || net.status().egresses.iter().all(|one| one.seen.health == "fine").then_some(()));
    assert!(programs() == 4 && begin.elapsed() > Duration::ZERO);
    control.end(Ending::Killed).unwrap();
    let stopped = net.edge.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Ok(runtime.block_on(stop_route_control(8500, 8500)).unwrap())
    });
    assert!(stopped.unwrap());
    net.assert_nothing_is_left();
}
