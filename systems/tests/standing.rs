//! What the systems of the house stand for where they are compared: which one is the baseline, and which one is recommended.

use sidestep_scenario::World;
use sidestep_sim::results::{Headline, RunResult, SystemResult};
use sidestep_systems::simulator;

/// The system that a run of these recommends, and the one that it is compared with; `None`: it compares none.
fn compared(systems: &[&str]) -> Option<(String, String)> {
    let mut run = RunResult::new("test", World::Sim, 1);
    for system in systems {
        run.systems.insert(*system, SystemResult { goodput_mbps: 1.0, ..SystemResult::default() });
    }
    run.conclude(&simulator().catalogue());
    let Headline { system, baseline, .. } = run.headline?;
    system.zip(baseline)
}

#[test]
fn the_recommended_system_is_compared_with_what_the_network_does_where_no_system_decides() {
    let irc = [
        "route-control:mode=none",
        "route-control:mode=ideal",
        "route-control:guards=false",
        "route-control",
        "route-control:mode=predictive",
    ];
    let all = ["ecmp", "mptcp", "inrpp", "semper", "route-control", "pathchanger", "route-control:mode=none", "tcp"];
    let cases: [(&[&str], &str, &str); 11] = [
        (&irc, "route-control", "route-control:mode=none"),
        (&all, "pathchanger", "tcp"),
        (&all[..5], "route-control", "ecmp"),
        (&all[..4], "semper", "ecmp"),
        (&all[..3], "inrpp", "ecmp"),
        (&all[..2], "mptcp", "ecmp"),
        (&["ecmp", "route-control:mode=none"], "ecmp", "route-control:mode=none"),
        (&["tcp", "ecmp"], "ecmp", "tcp"),
        (&["tcp", "rcp", "inrpp"], "inrpp", "tcp"),
        (&["tcp", "semper", "semper:mode=rendezvous", "semper-stateful"], "semper", "tcp"),
        (&["tcp", "random", "pathchanger:gamma=0.2"], "pathchanger:gamma=0.2", "tcp"),
    ];
    for (systems, recommended, baseline) in cases {
        assert_eq!(compared(systems), Some((recommended.into(), baseline.into())), "{systems:?}");
    }
    assert_eq!(compared(&["ecmp", "plb"]), Some(("plb".into(), "ecmp".into())));
}

#[test]
fn dice_and_what_knows_all_are_never_recommended() {
    for never in [
        "random",
        "random:gamma=0.2",
        "pathchanger:policy=random",
        "pathchanger:policy=static",
        "route-control:mode=ideal",
        "route-control:mode=none",
    ] {
        assert_eq!(compared(&["tcp", never]), None, "{never}");
    }
    assert_eq!(compared(&["tcp", "pathchanger:gamma=0.2", "pathchanger:gamma=0.4"]), None, "which of the two?");
}
