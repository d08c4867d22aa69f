//! Short connections that learn together.

use std::io::{Read, Write};

use sidestep_linux::testing::root_or_skip;
use sidestep_net::Span;
use sidestep_pathchanger::daemon::program::HostProgram;
use sidestep_policy::{PolicyName, PolicySettings, RewardName, WeightsName};

use crate::{
    support::{Agent, Lab, eventually, settings, slot, via},
    takeover::Kept,
};

/// One transfer from the host to the server over a few round trips; returns the path that it began on.
fn transfer(lab: &Lab) -> usize {
    let (mut client, mut server) = lab.connect("h", "s");
    let path = slot(&client);
    client.write_all(&[7; 60_000]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read_to_end(&mut Vec::new()).unwrap(), 60_000);
    path
}

#[test]
fn short_connections_leave_a_slow_provider_and_the_next_agent_knows_why() {
    if !root_or_skip("connections that learn together") {
        return;
    }
    // ACKs return over the host's first link, so that the other link is slow only for those who send over it.
    let links = [("h", "R2", 1), ("h", "R1", 1), ("R1", "Z", 3), ("R2", "Z", 1), ("Z", "s", 1)];
    let lab = Lab::with_links(&links, |from, channel| {
        if from == "R1" {
            channel.delay = Span::from_millis(100);
        }
    });
    let kept = Kept::new();
    let settings = PolicySettings {
        policy: PolicyName::Exp3Ix,
        gamma: 1.0,
        reward: RewardName::Rtt,
        weights: WeightsName::Prefix,
        ..settings()
    };
    let paths = || ["R1", "R2"].map(|provider| via(&lab, "h", provider, "1 Gbit/s")).to_vec();
    let start =
        || Agent::start_with(&lab, "h", settings.clone(), &lab.prefix("s").to_string(), paths(), Some(kept.pins(true)));
    let agent = start();
    let program = || HostProgram::look(&kept.pins(true)).unwrap().unwrap();
    let factors = || {
        let learnt = program().learnt().unwrap();
        assert_eq!((learnt.len(), learnt[0].destination), (1, lab.prefix("s").into()));
        learnt[0].paths.iter().map(|(id, of)| (*id, of.factor)).collect::<Vec<_>>()
    };
    let ids = agent.ids();
    assert_eq!(factors(), [(ids[&1], 1.0), (ids[&2], 1.0)], "nothing is learnt yet");
    for _ in 0..40 {
        transfer(&lab);
    }
    let slow = eventually("the slow provider is known", || {
        // On a busy machine round trips show less, so that it takes more of them.
        transfer(&lab);
        let factors = factors();
        (factors[1].1 == 1.0 && factors[0].1 < 0.1).then_some(factors[0].1)
    });
    assert!(slow > 0.0);
    let taken: Vec<_> = (0..20).map(|_| transfer(&lab)).collect();
    assert!(taken.iter().filter(|path| **path == 1).count() <= 8, "{taken:?}");

    agent.kill();
    let next = start();
    assert!(factors()[0].1 < 0.1, "what was learnt outlives the agent: {:?}", factors());
    transfer(&lab);
    next.stop();
}
