//! What a scenario lets happen to links during a run, as far as a picture of the run shows it.

use sidestep_net::{ArcId, LinkState, Rate, Span};
use sidestep_scenario::{Change, Scenario, conditions::Conditions};

use crate::measures;

/// Computes what a scenario's senders can carry to its receivers together, in Mbit/s, while arcs have these rates, by their index:
/// `None` of one that carries nothing, zero of one that is not limited. `None` where that has no limit, or is not known.
pub type CeilingOf<'a> = dyn FnMut(&[Option<Rate>]) -> Option<f64> + 'a;

/// Events, and what the network can carry between senders and receivers, over the time of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// What the network can carry, in Mbit/s, from each of these seconds on; empty if that has no limit, or is not known.
    pub(crate) ceiling: Vec<(f64, f64)>,
    /// Its mean over the measured part of the run, and over the seeds.
    pub(crate) mean: Option<f64>,
    /// When the scenario's events happen, in seconds, and what they do.
    pub(crate) events: Vec<(f64, String)>,
}

/// Of no more seeds the mean ceiling is computed.
const MAX_SEEDS: u32 = 100;

impl Scene {
    /// What happens in a run of `scenario` under `seeds` seeds from its own on; curves are of the first.
    pub fn of(scenario: &Scenario, seeds: u32, ceiling_of: &mut CeilingOf<'_>) -> Scene {
        let ceiling = steps(scenario, scenario.seed, ceiling_of).unwrap_or_default();
        // Without impairments the seeds have the same links.
        let more = if scenario.impairments.is_empty() { 1 } else { seeds.clamp(1, MAX_SEEDS) };
        let mut means = vec![mean(scenario, &ceiling)];
        for seed in 1..u64::from(more) {
            let steps = steps(scenario, scenario.seed.wrapping_add(seed), ceiling_of).unwrap_or_default();
            means.push(mean(scenario, &steps));
        }
        let means: Option<Vec<f64>> = means.into_iter().collect();
        let mean = means.and_then(|means| measures::mean(&means));
        Scene { mean, events: events(scenario), ceiling }
    }

    /// The mean of what the network can carry over the measured part of the run, in Mbit/s.
    pub fn ceiling_mbps(&self) -> Option<f64> {
        self.mean.filter(|mean| *mean > 0.0)
    }
}

/// The mean of a ceiling over the measured part of the run.
fn mean(scenario: &Scenario, ceiling: &[(f64, f64)]) -> Option<f64> {
    let (from, to) = (scenario.warmup.as_secs_f64(), scenario.duration.as_secs_f64());
    let ends = ceiling.iter().skip(1).map(|(at, _)| *at).chain([to]);
    let held = ceiling.iter().zip(ends).map(|((at, mbps), end)| mbps * (end.min(to) - at.max(from)).max(0.0));
    (to > from && !ceiling.is_empty()).then(|| held.sum::<f64>() / (to - from))
}

/// The ceiling from each time on at which it changes; `None` if there is none at some time.
fn steps(scenario: &Scenario, seed: u64, ceiling_of: &mut CeilingOf<'_>) -> Option<Vec<(f64, f64)>> {
    let topology = &scenario.topology;
    let arc_count = topology.arc_count() as u32;
    let mut rates: Vec<Option<Rate>> =
        (0..arc_count).map(ArcId).map(|arc| topology.has_arc(arc).then(|| topology.channel(arc).rate)).collect();
    let mut steps = vec![(0.0, ceiling_of(&rates)?)];
    let mut conditions = Conditions::new(scenario, seed);
    while let Some(step) = conditions.next_at().and_then(|at| conditions.advance(at)) {
        for one in step.arcs {
            if let Some(rate) = rates.get_mut(one.arc.index()) {
                *rate = (one.state == LinkState::Up).then_some(one.channel.rate);
            }
        }
        steps.push((step.at.as_secs_f64(), ceiling_of(&rates)?));
    }
    steps.dedup_by(|next, one| next.1 == one.1);
    Some(steps)
}

/// The events, those of one instant together.
fn events(scenario: &Scenario) -> Vec<(f64, String)> {
    let mut events: Vec<(Span, String)> = Vec::new();
    for event in scenario.events.iter().filter(|event| event.at <= scenario.duration) {
        let links = match event.links[..] {
            [link] => scenario.topology.link(link).name.clone(),
            _ => format!("{} links", event.links.len()),
        };
        let change = match event.change {
            Change::Down => "down".to_owned(),
            Change::Up => "up".to_owned(),
            Change::Blackhole => "blackhole".to_owned(),
            Change::Rate(rate) => rate.to_string(),
            Change::Delay(delay) => delay.to_string(),
            Change::Loss(share) => format!("loses {:.3} %", share.as_f64() * 100.0),
        };
        let text = format!("{links} {change}");
        match events.last_mut().filter(|(at, _)| *at == event.at) {
            Some((_, all)) => *all = format!("{all}, {text}"),
            None => events.push((event.at, text)),
        }
    }
    events.into_iter().map(|(at, text)| (at.as_secs_f64(), text)).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_scenario::builder::{ScenarioBuilder, blackhole, down, impairment, up};

    use super::*;

    fn paths() -> ScenarioBuilder {
        let paths = ScenarioBuilder::new("10 s").set("warmup", "2 s").parallel_paths(3).network("hops", 2);
        paths.network("rate", "10 Mbit/s")
    }

    /// What leaves the first router towards others, summed up: the ceiling of these paths.
    fn sum(scenario: &Scenario) -> impl FnMut(&[Option<Rate>]) -> Option<f64> + '_ {
        let topology = &scenario.topology;
        |rates| {
            let from = topology.find("A").unwrap();
            let out = topology.outgoing(from).iter().filter(|arc| topology.is_router(topology.head(**arc)));
            let whole = out.map(|arc| {
                let next = topology.outgoing(topology.head(*arc)).iter().find(|next| topology.head(**next) != from);
                let rate = |arc: &ArcId| rates[arc.index()].map_or(0.0, Rate::as_mbits);
                rate(arc).min(next.map_or(0.0, rate))
            });
            Some(whole.sum())
        }
    }

    #[test]
    fn a_path_that_died_leaves_the_ceiling_while_it_is_away() {
        let events = [down("4 s").link("A-m1"), up("6 s").link("A-m1"), blackhole("9 s").link("m2-B")];
        let scenario = events.into_iter().fold(paths(), ScenarioBuilder::event).build();
        let scene = Scene::of(&scenario, 1, &mut sum(&scenario));
        assert_eq!(scene.ceiling, [(0.0, 30.0), (4.0, 20.0), (6.0, 30.0), (9.0, 20.0)]);
        assert_eq!(scene.ceiling_mbps(), Some((2.0 * 30.0 + 2.0 * 20.0 + 3.0 * 30.0 + 20.0) / 8.0));
        let shown: Vec<_> = scene.events.iter().map(|(at, text)| (*at, text.as_str())).collect();
        assert_eq!(shown, [(4.0, "A-m1 down"), (6.0, "A-m1 up"), (9.0, "m2-B blackhole")]);
    }

    #[test]
    fn links_that_are_impaired_at_random_have_the_mean_ceiling_of_all_seeds() {
        let scenario = paths().impairment(impairment("2 s", "2 s", "outage").link("A-m1")).build();
        let of = |seeds| Scene::of(&scenario, seeds, &mut sum(&scenario));
        let (one, three) = (of(1), of(3));
        assert_eq!(one.ceiling, three.ceiling, "curves are of the first seed");
        let alone = |seed| mean(&scenario, &steps(&scenario, seed, &mut sum(&scenario)).unwrap()).unwrap();
        let all = [1, 2, 3].map(|seed| alone(scenario.seed + seed - 1));
        assert!((three.ceiling_mbps().unwrap() - all.iter().sum::<f64>() / 3.0).abs() < 1e-9, "{all:?}");
        assert_eq!(one.ceiling_mbps(), Some(all[0]));
    }

    #[test]
    fn what_is_not_limited_leaves_no_ceiling() {
        let scene = Scene::of(&paths().build(), 1, &mut |_| None);
        assert_eq!((scene.ceiling.as_slice(), scene.ceiling_mbps()), (&[][..], None));
    }
}
