//! What a scenario lets happen to links during a run, as far as a picture of the run shows it.

use sidestep_model::{
    ArcId, LinkState, Rate, Scenario, Span,
    scenario::{Change, conditions::Conditions},
};

use crate::links::reported;

/// Events, and what the reported paths hold together, over the time of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// The sum of the capacities of the paths that work, in Mbit/s, from so many seconds on; empty if one is not limited.
    pub(crate) ceiling: Vec<(f64, f64)>,
    /// Its mean over the measured part of the run.
    pub(crate) mean: Option<f64>,
    /// When the scenario's events happen, in seconds, and what they do.
    pub(crate) events: Vec<(f64, String)>,
}

impl Scene {
    /// What happens in a run of `scenario` under its own seed.
    pub fn of(scenario: &Scenario) -> Scene {
        let mut ceiling = steps(scenario).unwrap_or_default();
        ceiling.dedup_by(|next, one| next.1 == one.1);
        let (from, to) = (scenario.warmup.as_secs_f64(), scenario.duration.as_secs_f64());
        let ends = ceiling.iter().skip(1).map(|(at, _)| *at).chain([to]);
        let held = ceiling.iter().zip(ends).map(|((at, mbps), end)| mbps * (end.min(to) - at.max(from)).max(0.0));
        let mean = (to > from && !ceiling.is_empty()).then(|| held.sum::<f64>() / (to - from));
        Scene { mean, events: events(scenario), ceiling }
    }

    /// The mean of what the paths that work hold together over the measured part of the run, in Mbit/s.
    pub fn ceiling_mbps(&self) -> Option<f64> {
        self.mean.filter(|mean| *mean > 0.0)
    }
}

/// The sum of the capacities at each time at which it may change; `None` if a path is not limited.
fn steps(scenario: &Scenario) -> Option<Vec<(f64, f64)>> {
    let topology = &scenario.topology;
    let paths = reported(topology);
    let arc_count = topology.arc_count() as u32;
    let mut arcs: Vec<(Rate, LinkState)> =
        (0..arc_count).map(|arc| (topology.channel(ArcId(arc)).rate, LinkState::Up)).collect();
    let sum = |arcs: &[(Rate, LinkState)]| {
        let held = paths.iter().map(|path| {
            let states = || path.arcs.iter().filter_map(|arc| arcs.get(*arc));
            if states().any(|(_, state)| *state != LinkState::Up) {
                return Some(0.0);
            }
            states().map(|(rate, _)| rate.as_mbits()).filter(|mbps| *mbps > 0.0).min_by(f64::total_cmp)
        });
        (!paths.is_empty()).then(|| held.sum::<Option<f64>>()).flatten()
    };
    let mut steps = vec![(0.0, sum(&arcs)?)];
    let mut conditions = Conditions::new(scenario, scenario.seed);
    while let Some(step) = conditions.next_at().and_then(|at| conditions.advance(at)) {
        for one in step.arcs {
            if let Some(arc) = arcs.get_mut(one.arc.index()) {
                *arc = (one.channel.rate, one.state);
            }
        }
        steps.push((step.at.as_secs_f64(), sum(&arcs)?));
    }
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
    use sidestep_model::scenario::builder::{ScenarioBuilder, blackhole, down, up};

    use super::*;

    fn paths() -> ScenarioBuilder {
        let paths = ScenarioBuilder::new("10 s").set("warmup", "2 s").parallel_paths(3).network("hops", 2);
        paths.network("rate", "10 Mbit/s")
    }

    #[test]
    fn a_path_that_died_leaves_the_ceiling_while_it_is_away() {
        let events = [down("4 s").link("A-m1"), up("6 s").link("A-m1"), blackhole("9 s").link("m2-B")];
        let scene = Scene::of(&events.into_iter().fold(paths(), ScenarioBuilder::event).build());
        assert_eq!(scene.ceiling, [(0.0, 30.0), (4.0, 20.0), (6.0, 30.0), (9.0, 20.0)]);
        assert_eq!(scene.ceiling_mbps(), Some((2.0 * 30.0 + 2.0 * 20.0 + 3.0 * 30.0 + 20.0) / 8.0));
        let shown: Vec<_> = scene.events.iter().map(|(at, text)| (*at, text.as_str())).collect();
        assert_eq!(shown, [(4.0, "A-m1 down"), (6.0, "A-m1 up"), (9.0, "m2-B blackhole")]);
    }

    #[test]
    fn a_path_without_a_limit_leaves_no_ceiling() {
        let scene = Scene::of(&paths().network("rate", "0 bit/s").build());
        assert_eq!((scene.ceiling.as_slice(), scene.ceiling_mbps()), (&[][..], None));
    }
}
