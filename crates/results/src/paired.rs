//! How far a system is from the baseline, seed by seed: both had the same traffic and the same failures there.

use serde::{Deserialize, Serialize};

use crate::{Estimate, RunResult, SystemResult, summary::taken_at};

/// A system's measure less the baseline's, over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The system.
    pub system: String,
    /// The system that it is compared with.
    pub baseline: String,
    /// What is measured.
    pub measure: String,
    /// Its unit.
    pub unit: String,
    /// How many seeds both systems have.
    pub seeds: u32,
    /// The difference.
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// Name, unit, how often the value goes into it, and the value of one seed.
type Measure = (&'static str, &'static str, f64, fn(&SystemResult) -> Option<f64>);

const MEASURES: [Measure; 4] = [
    ("goodput", "Mbit/s", 1.0, |one| Some(one.goodput_mbps)),
    ("mean time", "ms", 1e3, |one| taken_at(one).map(|[mean, ..]| mean)),
    ("50 % of times", "ms", 1e3, |one| taken_at(one).map(|[_, median, _]| median)),
    ("99 % of times", "ms", 1e3, |one| taken_at(one).map(|[.., long]| long)),
];

impl Difference {
    /// Whether the interval has zero in it, so that the seeds show no difference.
    pub fn is_none(&self) -> bool {
        let [low, high] = self.estimate.ci95;
        low <= 0.0 && high >= 0.0
    }
}

/// All differences from this baseline; none of a single seed, or without a baseline.
pub(crate) fn differences(run: &RunResult, baseline: Option<&str>) -> Vec<Difference> {
    let Some(baseline) = baseline else { return Vec::new() };
    let others = run.systems.iter().filter(|(name, _)| *name != baseline);
    let of = |(name, _): (&str, &SystemResult)| {
        let each = MEASURES.iter().filter_map(|(measure, unit, times, of)| {
            let (estimate, seeds) = between(run, name, baseline, &|one| of(one).map(|value| value * times))?;
            let (system, baseline) = (name.to_owned(), baseline.to_owned());
            let (measure, unit) = ((*measure).to_owned(), (*unit).to_owned());
            Some(Difference { system, baseline, measure, unit, seeds, estimate })
        });
        each.collect::<Vec<_>>()
    };
    others.flat_map(of).collect()
}

/// A measure of one system less that of another, and over how many seeds; `None` of fewer than two, of seeds that change
/// nothing, or where a seed lacks it.
pub(crate) fn between(
    run: &RunResult,
    system: &str,
    other: &str,
    of: &dyn Fn(&SystemResult) -> Option<f64>,
) -> Option<(Estimate, u32)> {
    let repeated = |name: &str| run.systems.get(name)?.repeated.as_ref();
    let (own, theirs) = (repeated(system)?, repeated(other)?);
    // Seeds that change nothing are one run.
    if own.same && theirs.same {
        return None;
    }
    let (own, theirs) = (&own.each, &theirs.each);
    if own.len() != theirs.len() || own.len() < 2 {
        return None;
    }
    let less = own.iter().zip(theirs).map(|(own, theirs)| Some(of(own)? - of(theirs)?));
    let less: Option<Vec<f64>> = less.collect();
    Some((Estimate::of(&less?)?, own.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Repeated, World};

    /// A run of systems with these goodputs under each seed.
    fn run(systems: &[(&str, &[f64])]) -> RunResult {
        let mut run = RunResult::new("test", World::Sim, 1);
        for (name, seeds) in systems {
            let one = |mbps: &f64| SystemResult { goodput_mbps: *mbps, ..SystemResult::default() };
            let each: Vec<SystemResult> = seeds.iter().map(one).collect();
            let repeated = if each.len() > 1 { Repeated::of(&each) } else { None };
            run.systems.insert(*name, SystemResult { repeated, ..each[0].clone() });
        }
        run
    }

    #[test]
    fn seeds_that_differ_much_hide_no_difference_that_each_of_them_has() {
        // Between seeds 30 Mbit/s, between systems 2 ± 0.1.
        let run = run(&[("tcp", &[10.0, 20.0, 40.0]), ("pathchanger", &[12.0, 22.05, 41.95])]);
        let found = differences(&run, Some("tcp"));
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (one.system.as_str(), one.baseline.as_str(), one.measure.as_str()),
            ("pathchanger", "tcp", "goodput")
        );
        assert!((one.estimate.mean - 2.0).abs() < 1e-9 && !one.is_none() && one.seeds == 3, "{one:?}");
        let own = Estimate::of(&[12.0, 22.05, 41.95]).unwrap();
        assert!(own.overlaps(&Estimate::of(&[10.0, 20.0, 40.0]).unwrap()), "intervals of the means tell nothing");
        let json = serde_json::to_value(one).unwrap();
        assert!(json["mean"].is_number() && json["ci95"].is_array() && json["unit"] == "Mbit/s", "{json}");
    }

    #[test]
    fn an_interval_with_zero_in_it_is_no_difference_and_one_seed_has_none() {
        let noisy = run(&[("tcp", &[10.0, 20.0, 40.0]), ("ecmp", &[12.0, 17.0, 41.0])]);
        assert!(differences(&noisy, Some("tcp"))[0].is_none());
        assert!(differences(&run(&[("tcp", &[10.0]), ("ecmp", &[12.0])]), Some("tcp")).is_empty());
        assert!(differences(&noisy, None).is_empty(), "no baseline");
    }
}
