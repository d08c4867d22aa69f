//! A measure in two worlds: both values, their ratio, its interval, and what that shows.

use serde::Serialize;

use super::Runs;
use crate::{Estimate, SystemResult, measures};

/// With fewer seeds than this nothing is decided.
pub const FEWEST_SEEDS: usize = 6;

/// One measure in both worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What is measured.
    pub measure: &'static str,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// The geometric mean over the seeds and their repetitions in each world, or where a run has zero the mean; `None` where a
    /// seed gave none.
    pub values: [Option<f64>; 2],
    /// The geometric mean over the seeds of the first world's value by the second's, or where a run has zero the ratio of the
    /// sums; `None` likewise, or where hardly a seed has any.
    pub ratio: Option<f64>,
    /// Its 90 % confidence interval, by Student's t of its logarithm; of sums by the jackknife over the seeds.
    pub ci90: Option<[f64; 2]>,
    /// By what factor repetitions of one seed differ in each world, as a standard deviation; `None` of fewer than two.
    pub noise: [Option<f64>; 2],
    /// What the interval shows.
    pub verdict: Verdict,
    /// Why nothing is decided, where the interval alone does not show it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What an interval of a ratio shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of it lies within the margin: two one-sided tests at 5 % (TOST).
    Equivalent,
    /// All of it lies beyond the margin.
    Different,
    /// There is too much noise, there are too few seeds, or some gave no value.
    Undecided,
}

/// Name, unit, and the value of a system's result.
type Measure = (&'static str, &'static str, fn(&SystemResult) -> Option<f64>);

const MEASURES: [Measure; 9] = [
    ("goodput", "Mbit/s", |result| Some(result.goodput_mbps)),
    ("mean FCT", "ms", |result| milliseconds(result.afct_s)),
    ("50 % FCT", "ms", |result| milliseconds(result.fct_p50_s)),
    ("95 % FCT", "ms", |result| milliseconds(result.fct_p95_s)),
    ("99 % FCT", "ms", |result| milliseconds(result.fct_p99_s)),
    ("flows with a timeout", "%", |result| result.timeout_share().map(|share| 100.0 * share)),
    ("moves", "", |result| Some(result.total_moves() as f64)),
    ("drops", "packets", |result| Some(result.total_drops() as f64)),
    ("Jain's index", "", |result| result.fairness),
];

impl Verdict {
    /// The name in files and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Equivalent => "equivalent",
            Verdict::Different => "different",
            Verdict::Undecided => "undecided",
        }
    }

    fn of([low, high]: [f64; 2], margin: f64) -> Verdict {
        let (least, most) = (1.0 / (1.0 + margin), 1.0 + margin);
        if low >= least && high <= most {
            Verdict::Equivalent
        } else if high < least || low > most {
            Verdict::Different
        } else {
            Verdict::Undecided
        }
    }
}

impl Row {
    /// The rows of all measures that occur.
    pub(super) fn all(worlds: [&Runs; 2], repetitions: [usize; 2], margin: f64) -> Vec<Row> {
        MEASURES.into_iter().filter_map(|measure| Row::new(measure, worlds, repetitions, margin)).collect()
    }

    fn new((measure, unit, of): Measure, worlds: [&Runs; 2], repetitions: [usize; 2], margin: f64) -> Option<Row> {
        let by_seed = worlds.map(|runs| {
            let values = |seed: &Vec<SystemResult>| seed.iter().map(of).collect::<Vec<Option<f64>>>();
            runs.seeds.iter().map(values).collect::<Vec<_>>()
        });
        let occurs = |value: &Option<f64>| value.is_some_and(|value| value != 0.0);
        if !by_seed.iter().flatten().flatten().any(occurs) {
            return None;
        }
        let seeds = by_seed[0].len().max(by_seed[1].len());
        let runs: [Vec<Option<Vec<f64>>>; 2] = [0, 1].map(|world| {
            let at = |seed: usize| by_seed[world].get(seed).and_then(|values| whole(values, repetitions[world]));
            (0..seeds).map(at).collect()
        });
        let by_sums = runs.iter().flatten().flatten().flatten().any(|value| *value <= 0.0);
        // Without logarithms of means: of more repetitions of what varies a lot the mean is greater, as a rule.
        let of_seed = |values: &Vec<f64>| {
            let logs = || values.iter().map(|value| value.ln()).collect::<Vec<_>>();
            if by_sums { measures::mean(values) } else { measures::mean(&logs()) }
        };
        let all =
            |runs: &[Option<Vec<f64>>]| runs.iter().map(|run| of_seed(run.as_ref()?)).collect::<Option<Vec<f64>>>();
        let [one, other] = [0, 1].map(|world| all(&runs[world]));
        let logs = one.as_ref().zip(other.as_ref()).and_then(|(one, other)| {
            let difference = |(one, other)| one - other;
            if by_sums { logs_of_sums(one, other) } else { Some(one.iter().zip(other).map(difference).collect()) }
        });
        let estimate = logs.as_deref().and_then(Estimate::of);
        let ci90 = logs.as_deref().filter(|logs| logs.len() >= FEWEST_SEEDS).and_then(Estimate::ninety);
        let ci90 = ci90.map(|interval| interval.map(f64::exp));
        let lacking = (0..seeds).filter(|seed| runs[0][*seed].is_none() || runs[1][*seed].is_none()).count();
        let verdict = ci90.map_or(Verdict::Undecided, |interval| Verdict::of(interval, margin));
        let mut why = match (&logs, ci90) {
            (None, _) if lacking > 0 => format!("{lacking} of {seeds} seeds have no value in a world"),
            (None, _) => "hardly a seed has any in a world".into(),
            (Some(_), None) => format!("{seeds} seeds are fewer than {FEWEST_SEEDS}"),
            (Some(_), Some(_)) if by_sums => "of sums, as some runs have none".into(),
            _ => String::new(),
        };
        let needed = logs.as_deref().filter(|_| ci90.is_some() && verdict == Verdict::Undecided);
        if let Some(seeds) = needed.and_then(|logs| seeds_needed(logs, margin)) {
            let after = if why.is_empty() { "" } else { "; " };
            why += &format!("{after}if both are the same, some {seeds} seeds show it");
        }
        let value = |of_seeds: &Option<Vec<f64>>| {
            let mean = measures::mean(of_seeds.as_deref()?)?;
            Some(if by_sums { mean } else { mean.exp() })
        };
        Some(Row {
            measure,
            unit,
            values: [value(&one), value(&other)],
            ratio: estimate.map(|estimate| estimate.mean.exp()),
            ci90,
            noise: [0, 1].map(|world| noise(&by_seed[world])),
            verdict,
            why,
        })
    }

    /// The numbers as text: both values, ratio, interval, noise.
    pub fn cells(&self) -> [String; 5] {
        let [one, other] = self.values.map(or_dash);
        let [noise_one, noise_other] = self.noise.map(or_dash);
        [one, other, or_dash(self.ratio), ends_or_dash(self.ci90), format!("{noise_one}, {noise_other}")]
    }
}

/// A number as text, if there is one.
pub(super) fn or_dash(number: Option<f64>) -> String {
    number.map_or("–".into(), |number| format!("{number:.3}"))
}

/// An interval by its ends, if there is one.
pub(super) fn ends_or_dash(interval: Option<[f64; 2]>) -> String {
    interval.map_or("–".into(), |[low, high]| format!("{low:.3} to {high:.3}"))
}

/// The number of seeds that show with a probability of 80 % that two equal worlds are equivalent, where the logarithms
/// of their ratios differ as these do; to two digits.
pub(super) fn seeds_needed(logs: &[f64], margin: f64) -> Option<u64> {
    // Normal quantiles of 95 % and 90 %: each of the two tests at 5 % fails with a probability of 10 %.
    const QUANTILES: f64 = 1.645 + 1.282;
    let seeds = (measures::variance(logs)? * (QUANTILES / margin.ln_1p()).powi(2)).max(FEWEST_SEEDS as f64);
    let unit = 10_f64.powi((seeds.log10().floor() as i32 - 1).max(0));
    seeds.is_finite().then(|| ((seeds / unit).ceil() * unit) as u64)
}

fn milliseconds(seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| 1e3 * seconds)
}

/// The values of a seed's repetitions; `None` unless all `wanted` gave one.
fn whole(values: &[Option<f64>], wanted: usize) -> Option<Vec<f64>> {
    let values: Vec<f64> = values.iter().map(|value| value.filter(|value| value.is_finite())).collect::<Option<_>>()?;
    (!values.is_empty() && values.len() >= wanted).then_some(values)
}

/// What each seed contributes to the logarithm of the ratio of the sums, as the jackknife has it (Tukey's pseudo-values): their
/// mean and standard error are those of that logarithm. `None` where a world has nothing without one of the seeds.
pub(super) fn logs_of_sums(one: &[f64], other: &[f64]) -> Option<Vec<f64>> {
    let [all_one, all_other] = [one, other].map(|values| values.iter().sum::<f64>());
    let log = |one: f64, other: f64| (one > 0.0 && other > 0.0).then(|| (one / other).ln());
    let (all, n) = (log(all_one, all_other)?, one.len() as f64);
    let without = |(one, other): (&f64, &f64)| log(all_one - one, all_other - other);
    one.iter().zip(other).map(|pair| Some(n * all - (n - 1.0) * without(pair)?)).collect()
}

/// How much repetitions of one seed differ, pooled over the seeds: e to the standard deviation of logarithms.
fn noise(by_seed: &[Vec<Option<f64>>]) -> Option<f64> {
    let (mut squares, mut freedom) = (0.0, 0);
    for values in by_seed {
        let logs: Vec<f64> = values.iter().flatten().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
        let Some(mean) = measures::mean(&logs) else { continue };
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        freedom += logs.len() - 1;
    }
    (freedom > 0).then(|| (squares / freedom as f64).sqrt().exp())
}
