//! The conditions of links over a run, against a reference that counts everything from the start for each step.

use proptest::{collection::vec, prelude::*};
use sidestep_net::{ArcId, Direction, LinkId, LinkState, Rate, Ratio, Span};
use sidestep_scenario::{
    Change, Effect, Event, Impairment, Scenario,
    conditions::{ArcCondition, Cause, Conditions, Step},
};

use super::{
    inline,
    round_trip::{events, impairments, topologies},
};

/// Everything that changes, in the order in which it should.
fn causes(scenario: &Scenario, seed: u64) -> Vec<(Span, Cause)> {
    let mut all: Vec<(Span, Cause)> =
        scenario.events.iter().enumerate().map(|(number, event)| (event.at, Cause::Event(number))).collect();
    for (number, impairment) in scenario.impairments.iter().enumerate() {
        let mut links = impairment.links.clone();
        links.sort();
        links.dedup();
        for link in links {
            let changes = impairment.transitions(number, link, seed, scenario.duration);
            all.extend(changes.map(|one| (one.at, Cause::Impairment { number, link, bad: one.bad })));
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

/// One direction of a link after these causes.
fn reference(scenario: &Scenario, done: &[(Span, Cause)], arc: ArcId) -> ArcCondition {
    let forward = arc.direction() == Direction::AToB;
    let touches = |links: &[LinkId], directions: &[Direction]| {
        links.contains(&arc.link()) && directions.iter().any(|one| (*one == Direction::AToB) == forward)
    };
    let (mut channel, mut state) = (*scenario.topology.channel(arc), LinkState::Up);
    let mut bad = vec![0_i32; scenario.impairments.len()];
    for (_, cause) in done {
        match cause {
            Cause::Event(number) => {
                let Event { links, direction, change, .. } = &scenario.events[*number];
                match change {
                    _ if !touches(links, direction.directions()) => {}
                    Change::Down => state = LinkState::Down,
                    Change::Up => state = LinkState::Up,
                    Change::Blackhole => state = LinkState::Blackhole,
                    Change::Rate(rate) => channel.rate = *rate,
                    Change::Delay(delay) => channel.delay = *delay,
                    Change::Loss(loss) => channel.loss = *loss,
                }
            }
            Cause::Impairment { number, link, bad: begins } => {
                if touches(&[*link], scenario.impairments[*number].direction.directions()) {
                    bad[*number] += if *begins { 1 } else { -1 };
                }
            }
        }
    }
    let mut passes = 1.0 - channel.loss.as_f64();
    for (bad, Impairment { effect, .. }) in bad.iter().zip(&scenario.impairments) {
        match effect {
            Effect::Loss(loss) if *bad > 0 => passes *= 1.0 - loss.as_f64(),
            Effect::Outage if *bad > 0 && state != LinkState::Down => state = LinkState::Blackhole,
            _ => {}
        }
    }
    channel.loss = Ratio::from_ppb(((1.0 - passes) * 1e9).round() as u32);
    ArcCondition { arc, channel, state }
}

/// Whether two conditions are the same but for rounding of losses.
fn alike(one: &ArcCondition, other: &ArcCondition) -> bool {
    let same_loss = one.channel.loss.ppb().abs_diff(other.channel.loss.ppb()) <= 4;
    let channel = sidestep_net::Channel { loss: other.channel.loss, ..one.channel };
    same_loss && (one.arc, one.state, channel) == (other.arc, other.state, other.channel)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn conditions_agree_with_counting_everything_from_the_start(
        (topology, mut events, impairments) in topologies().prop_flat_map(|topology| {
            (Just(topology.clone()), vec(events(topology.clone()), 0..12), vec(impairments(topology), 0..4))
        }),
        seed in any::<u64>(),
        looks in vec(0_u64..10_000_000_000, 0..8),
    ) {
        events.sort_by_key(|event| event.at);
        // Long periods, so that the reference takes a moment only.
        let long = |span: Span| span + Span::from_millis(300);
        let impairments = impairments.into_iter().map(|one| Impairment { good: long(one.good), bad: long(one.bad), ..one });
        let impairments = impairments.collect();
        let scenario = Scenario { topology, events, impairments, ..inline("").expect("it is read") };
        let expected = causes(&scenario, seed);
        let mut conditions = Conditions::new(&scenario, seed);
        let mut done = 0;
        let mut looks: Vec<Span> = looks.into_iter().map(Span::from_nanos).chain([scenario.duration]).collect();
        looks.sort();
        for now in looks {
            while let Some(Step { at, cause, arcs, routing }) = conditions.advance(now) {
                let failed = |done: usize| -> Vec<LinkId> {
                    let down = |arc: ArcId| reference(&scenario, &expected[..done], arc).state == LinkState::Down;
                    let either = |link: &LinkId| down(link.arc(Direction::AToB)) || down(link.arc(Direction::BToA));
                    scenario.topology.link_ids().filter(either).collect()
                };
                prop_assert_eq!(Some(&(at, cause)), expected.get(done));
                prop_assert!(at <= now);
                prop_assert_eq!(routing, failed(done) != failed(done + 1));
                done += 1;
                prop_assert_eq!(conditions.failed().iter().copied().collect::<Vec<_>>(), failed(done));
                prop_assert!(!arcs.is_empty());
                for arc in (0..scenario.topology.arc_count() as u32).map(ArcId) {
                    let want = reference(&scenario, &expected[..done], arc);
                    prop_assert!(alike(&conditions.arc(arc), &want), "{:?} is not {:?}", conditions.arc(arc), want);
                }
            }
            prop_assert!(conditions.next_at().is_none_or(|at| at > now));
        }
        prop_assert_eq!(done, expected.len());
    }
}

#[test]
fn an_outage_swallows_packets_where_routing_does_not_notice_and_a_link_that_is_down_stays_down() {
    let scenario = inline(
        "[[event]]\nat = '2 s'\nlink = 'A-B'\naction = 'down'\n\
         [[event]]\nat = '3500 ms'\nlink = 'A-B'\naction = 'up'\n\
         [[impairment]]\nlink = 'A-B'\ngood = '1 s'\nbad = '3 s'\ndistribution = 'fixed'\neffect = 'outage'\nstop = '5 s'\n\
         [[impairment]]\nlink = 'A-B'\ndirection = 'forward'\ngood = '1 s'\nbad = '1 s'\ndistribution = 'fixed'\n\
         effect = 'loss'\nloss = '50 %'\nstop = '2500 ms'",
    );
    let scenario = scenario.expect("it is read");
    let mut conditions = Conditions::new(&scenario, 1);
    let (forward, reverse) = (LinkId(2).arc(Direction::AToB), LinkId(2).arc(Direction::BToA));
    let mut seen = Vec::new();
    while let Some(step) = conditions.next_at().and_then(|at| conditions.advance(at)) {
        let states = [forward, reverse].map(|arc| conditions.arc(arc).state);
        let losses = [forward, reverse].map(|arc| conditions.arc(arc).channel.loss.to_string());
        seen.push(format!(
            "{}: {states:?} {} {} routing: {} failed: {} cut: {}",
            step.at,
            losses[0],
            losses[1],
            step.routing,
            conditions.failed().len(),
            conditions.is_cut(LinkId(2))
        ));
    }
    insta::assert_snapshot!(seen.join("\n"), @r"
    1 s: [Blackhole, Blackhole] 0.1 % 0.1 % routing: false failed: 0 cut: false
    1 s: [Blackhole, Blackhole] 50.05 % 0.1 % routing: false failed: 0 cut: false
    2 s: [Down, Down] 50.05 % 0.1 % routing: true failed: 1 cut: true
    2 s: [Down, Down] 0.1 % 0.1 % routing: false failed: 1 cut: true
    3500 ms: [Blackhole, Blackhole] 0.1 % 0.1 % routing: true failed: 0 cut: false
    4 s: [Up, Up] 0.1 % 0.1 % routing: false failed: 0 cut: false
    ");
}

#[test]
fn an_impairment_leaves_what_events_have_set() {
    let scenario = inline(
        "[[event]]\nat = '1500 ms'\nlink = 'A-B'\naction = 'rate'\nrate = '7 Mbit/s'\n\
         [[impairment]]\nlink = 'A-B'\ngood = '1 s'\nbad = '1 s'\ndistribution = 'fixed'\neffect = 'loss'\nloss = '10 %'\nstop = '3 s'",
    );
    let scenario = scenario.expect("it is read");
    let mut conditions = Conditions::new(&scenario, 1);
    while conditions.advance(Span::from_secs(9)).is_some() {}
    let channel = conditions.arc(LinkId(2).arc(Direction::AToB)).channel;
    assert_eq!((channel.rate, channel.loss), (Rate::from_mbits(7), Ratio::from_ppb(1_000_000)));
}
