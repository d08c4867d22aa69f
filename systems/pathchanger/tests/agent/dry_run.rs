//! An agent that only records what it would do.

use sidestep_linux::testing::root_or_skip;
use sidestep_net::{Bytes, Queue, QueueLimit, Rate, Ratio};
use sidestep_pathchanger::daemon::program::HostProgram;
use sidestep_policy::{PolicyName, PolicySettings};

use crate::{
    support::{Agent, Flow, Lab, SOME, TABLE_BASE, TWO_PROVIDERS, eventually, mark, settings, via},
    takeover::{Kept, in_host},
};

/// The first provider's link is narrower than what the flow sends, and marks what waits.
fn congested() -> Lab {
    let queue =
        Queue { limit: QueueLimit::Packets(200), ecn_threshold: Some(QueueLimit::Bytes(Bytes::new(6_000))), red: None };
    Lab::with_links(TWO_PROVIDERS, |from, channel| {
        if from == "R1" {
            (channel.rate, channel.queue) = (Rate::from_mbits(2), queue);
        }
    })
}

fn heeds_marks() -> PolicySettings {
    PolicySettings { ce_share: Ratio::from_ppb(500_000_000), gamma: 1.0, ..settings() }
}

#[test]
fn a_dry_run_decides_under_congestion_and_moves_no_connection() {
    if !root_or_skip("a dry run under congestion") {
        return;
    }
    const OWN: u32 = 0x00ab_5507;
    let (lab, kept) = (congested(), Kept::new());
    let rules = lab.ip("h", "-6 rule");
    let paths = ["R1", "R2"].map(|provider| via(&lab, "h", provider, "8 Mbit/s")).to_vec();
    // It always takes the other path; `delay-weighted` may draw the same one for long.
    let settings = PolicySettings { policy: PolicyName::Plb, ..heeds_marks() };
    let agent = Agent::start_as(&lab, "h", settings, &lab.prefix("s").to_string(), paths, |options| {
        (options.dry_run, options.pins) = (true, Some(kept.pins(false)));
    });
    let (client, server) = lab.connect("h", "s");
    nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::Mark, &OWN).unwrap();
    let flow = Flow::start((client, server));

    let program = HostProgram::look(&kept.pins(false)).unwrap().unwrap();
    let seen = eventually("would-be moves", || {
        let seen = in_host(&lab, || program.connections()).unwrap();
        seen.first().copied().filter(|connection| connection.moves > 0)
    });
    assert_eq!(seen.remote.port(), crate::support::PORT);
    assert!(program.counters().unwrap().moved.iter().sum::<u64>() > 0);
    assert_eq!(program.config().unwrap().unwrap().dry_run, 1);
    let event = agent.moved("ecn");
    assert!(event.dry_run && event.from != event.to);

    assert_eq!(mark(&flow.sender), OWN, "no mark is set");
    assert_eq!(lab.ip("h", "-6 rule"), rules, "no rule");
    let tables = lab.ip("h", "-6 route show table all");
    assert!(!tables.contains(&format!("table {}", TABLE_BASE + 1)), "no route: {tables}");
    let before = lab.carried(lab.arc("R2", "Z"));
    flow.pass(SOME);
    assert!(lab.carried(lab.arc("R2", "Z")) - before < crate::support::LITTLE, "no connection is moved");
    agent.stop();
    assert_eq!(mark(&flow.sender), OWN, "nor is a mark taken back that was not given");
}

#[test]
fn a_dry_run_after_an_agent_that_was_killed_puts_everything_back_and_leaves_it_there() {
    if !root_or_skip("a dry run after a kill") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let rules = lab.ip("h", "-6 rule");
    let paths = || ["R1", "R2"].map(|provider| via(&lab, "h", provider, "1 Gbit/s")).to_vec();
    let to = lab.prefix("s").to_string();
    let agent = Agent::start_with(&lab, "h", settings(), &to, paths(), Some(kept.pins(true)));
    let client = lab.connect("h", "s").0;
    assert_ne!(mark(&client), 0);
    agent.kill();
    let dry = Agent::start_as(&lab, "h", settings(), &to, paths(), |options| {
        (options.dry_run, options.pins) = (true, Some(kept.pins(true)));
    });
    assert_eq!(mark(&client), 0);
    assert_eq!(lab.ip("h", "-6 rule"), rules);
    assert_eq!(mark(&lab.connect("h", "s").0), 0);
    dry.stop();
}
