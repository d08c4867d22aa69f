//! One system over time, as pictures show it: of one seed, or the middle of several.

use serde::{Deserialize, Serialize};

use crate::{Named, Window, measures, times::Times};

/// One system over time, in a bounded number of steps; what the plot shows.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) system: String,
    pub(crate) window: Window,
    /// Goodput of all connections in each step, in Mbit/s; of several seeds the median.
    pub(crate) goodput: Vec<f64>,
    /// Utilisation of each path in each step; `None` where it was not sampled.
    pub(crate) paths: Named<Vec<Option<f64>>>,
    /// The occupancy of the fullest cache in each step; `None` where there is none.
    pub(crate) caches: Vec<Option<f64>>,
    /// Moves in each step.
    pub(crate) moves: Vec<u32>,
    /// Completion times, of all seeds.
    pub(crate) times: Times,
    /// Between what the goodput of most seeds is; `None` of one seed.
    pub(crate) band: Option<Band>,
}

/// The goodput under several seeds, in each step in Mbit/s.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Band {
    /// One seed in twenty is lower.
    pub(crate) low: Vec<f64>,
    /// One seed in twenty is higher.
    pub(crate) high: Vec<f64>,
    /// How many seeds there are.
    pub(crate) seeds: usize,
}

/// What a picture of several seeds needs of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeedTrace {
    /// Goodput in each step, in Mbit/s.
    goodput: Vec<f64>,
    /// Completion times.
    times: Times,
}

impl Trace {
    /// How long the run is, in seconds.
    pub(crate) fn duration(&self) -> f64 {
        self.window.duration.as_secs_f64()
    }

    /// What is needed of it beside other seeds.
    pub fn of_seed(&self) -> SeedTrace {
        SeedTrace { goodput: self.goodput.clone(), times: self.times.clone() }
    }

    /// This seed together with others: the median goodput of all, a band, and all completion times. Paths and moves stay this seed's.
    #[must_use]
    pub fn with_seeds(mut self, others: &[SeedTrace]) -> Trace {
        if others.is_empty() {
            return self;
        }
        let own = self.of_seed();
        let all: Vec<&SeedTrace> = std::iter::once(&own).chain(others).collect();
        let mut band = Band { seeds: all.len(), ..Band::default() };
        for step in 0..self.goodput.len() {
            let mut values: Vec<f64> = all.iter().filter_map(|seed| seed.goodput.get(step).copied()).collect();
            values.sort_by(f64::total_cmp);
            let at = |percent| measures::percentile(&values, percent).unwrap_or_default();
            self.goodput[step] = measures::median(&values).unwrap_or_default();
            band.low.push(at(5));
            band.high.push(at(95));
        }
        others.iter().for_each(|seed| self.times.add(&seed.times));
        self.band = Some(band);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn of_several_seeds_the_line_is_the_median_and_the_band_has_nine_tenths_of_them() {
        let (_, mut traces) = testing::traced_run(&["tcp"], 1);
        let first = Trace { goodput: vec![10.0, 0.0], ..traces.remove(0) };
        let seed = |mbps: f64| SeedTrace { goodput: vec![mbps, 2.0 * mbps], times: Times::of([mbps].into_iter(), 0) };
        assert_eq!(first.clone().with_seeds(&[]).band, None);
        let all = first.with_seeds(&[seed(30.0), seed(20.0), seed(60.0)]);
        assert_eq!(all.goodput, [25.0, 50.0]);
        let band = all.band.unwrap();
        assert_eq!((band.low, band.high, band.seeds), (vec![10.0, 0.0], vec![60.0, 120.0], 4));
        assert_eq!(all.times.completed(), 3);
    }

    #[test]
    fn what_is_kept_of_a_seed_reads_back_to_the_bit() {
        let seed = SeedTrace { goodput: vec![0.1 + 0.2, 1e-9], times: Times::of([0.3, 7.0, 0.3].into_iter(), 2) };
        let json = serde_json::to_string(&seed).unwrap();
        assert_eq!(serde_json::from_str::<SeedTrace>(&json).unwrap(), seed);
    }
}
