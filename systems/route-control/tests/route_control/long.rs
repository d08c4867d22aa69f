//! Measurements that take minutes: `cargo test --test route_control -- --ignored --nocapture --test-threads 1`.

use std::{
    thread,
    time::{Duration, Instant},
};

use sidestep_linux::testing::root_or_skip;

use super::{
    BACK, OFF, SLACK,
    net::{Ending, Net, file},
};

/// The least, the middle, the 95th and the largest of some times.
fn distribution(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{what}: least {:?}, median {:?}, 95 % {:?}, most {:?}", at(0), at(50), at(95), at(100));
}

#[test]
#[ignore = "four minutes"]
fn fifty_outages() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let control = net.control(&file(""));
    net.until_fine();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    let (mut off, mut back) = (Vec::new(), Vec::new());
    for number in 0..50_u64 {
        // At any instant of a period.
        thread::sleep(Duration::from_millis(300 + number * 37 % 500));
        net.cut(0, true);
        off.push(net.until_active("second"));
        flow.goes_on();
        net.cut(0, false);
        back.push(net.until_active("first"));
        if back.last() > Some(&BACK) {
            let decisions = net.status().decisions;
            let seen = |one: &sidestep_route_control::daemon::DecisionRecord| {
                let first = &one.inputs["first"];
                format!(
                    "{:.3} {} {} lost {:.3} loss {:.3}",
                    one.at % 100.0,
                    one.reason,
                    first.health,
                    first.lost,
                    first.loss
                )
            };
            let last: Vec<_> = decisions.iter().rev().take(6).map(seen).collect();
            println!("slow: {:?} after {:?}: {last:#?}", back.last(), off.last());
        }
    }
    let moves = net.status().moved;
    distribution("off the dead egress", &mut off);
    distribution("back to the primary", &mut back);
    println!("moves: {moves:?}");
    assert!(off.iter().all(|time| *time < OFF + SLACK) && back.iter().all(|time| *time < BACK + SLACK));
    assert_eq!(moves.values().sum::<u64>(), 100);
    flow.end();
    control.end(Ending::CleanUp).unwrap();
    net.assert_nothing_is_left();
}

#[test]
#[ignore = "two minutes"]
fn a_hundred_kills_under_load() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    let text = file("fail_back = \"never\"");
    let mut longest = Duration::ZERO;
    for number in 0..100_u64 {
        let begin = Instant::now();
        let control = net.control(&text);
        longest = longest.max(begin.elapsed());
        // Now and then while packets are on the other egress, and while they move.
        if number % 10 == 5 {
            net.until_fine();
            let to = if net.status().active == "first" { (0, "second") } else { (1, "first") };
            net.cut(to.0, true);
            net.until_active(to.1);
            net.cut(to.0, false);
        }
        thread::sleep(Duration::from_millis(number * 13 % 400));
        control.end(Ending::Killed).unwrap();
        flow.goes_on();
    }
    println!("longest start: {longest:?}");
    let control = net.control(&text);
    flow.end();
    control.end(Ending::CleanUp).unwrap();
    net.assert_nothing_is_left();
}

#[test]
#[ignore = "ten minutes"]
fn ten_minutes_at_five_percent_loss_by_both() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    let flow = net.flow("10.2.0.1".parse().unwrap());
    for transit in 0..2 {
        net.lose(transit, 5);
    }
    thread::sleep(Duration::from_secs(600));
    let status = net.status();
    let losses: Vec<_> = status.egresses.iter().map(|one| one.seen.loss).collect();
    println!("{} decisions, moves {:?}, loss {losses:?}", status.decided, status.moved);
    assert!(status.moved.values().sum::<u64>() <= 1);
    flow.end();
}
