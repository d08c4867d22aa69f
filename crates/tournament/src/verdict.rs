//! What a comparison with a baseline shows: a verdict by an interval, never by a point.

use serde::Serialize;
use sidestep_results::Estimate;

use crate::Measure;

/// A ratio within 1 ± this counts as no difference.
pub const MARGIN: f64 = 0.05;

/// The largest ratio of two values of a seed; what is beyond it counts as this, as does anything over zero.
pub const LARGEST: f64 = 1000.0;

/// What the 95 % confidence interval of a ratio shows; a ratio above 1 is in the policy's favour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of it lies above 1 + [`MARGIN`].
    Win,
    /// All of it lies above 1.
    Better,
    /// All of it lies within 1 ± [`MARGIN`].
    Even,
    /// All of it lies below 1, and none below 1 − [`MARGIN`].
    Worse,
    /// All of it lies below 1 − [`MARGIN`]; or all below 1, and its middle below 1 − [`MARGIN`].
    Loss,
    /// None of these: there is too much noise, or a seed gave no value.
    Undecided,
}

/// A policy beside a baseline, by one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The baseline.
    pub baseline: String,
    /// By what they are compared.
    pub measure: Measure,
    /// The geometric mean over the seeds of how many times better the policy is; `None` where no seed gave both values.
    pub ratio: Option<f64>,
    /// The 95 % confidence interval of `ratio`, by Student's t of its logarithm; `None` unless every seed gave both values
    /// and there are at least two.
    pub ci95: Option<[f64; 2]>,
    /// What the interval shows.
    pub verdict: Verdict,
}

impl Verdict {
    /// All of them, the best first.
    pub const ALL: [Verdict; 6] =
        [Verdict::Win, Verdict::Better, Verdict::Even, Verdict::Worse, Verdict::Loss, Verdict::Undecided];

    /// What a ratio and its interval show.
    pub fn of(ratio: f64, [low, high]: [f64; 2]) -> Verdict {
        let (least, most) = (1.0 - MARGIN, 1.0 + MARGIN);
        if low > most {
            Verdict::Win
        } else if high < least || high < 1.0 && ratio < least {
            Verdict::Loss
        } else if low > 1.0 {
            Verdict::Better
        } else if high < 1.0 && low >= least {
            Verdict::Worse
        } else if low >= least && high <= most {
            Verdict::Even
        } else {
            Verdict::Undecided
        }
    }

    /// The name in files and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Win => "win",
            Verdict::Better => "better",
            Verdict::Even => "even",
            Verdict::Worse => "worse",
            Verdict::Loss => "LOSS",
            Verdict::Undecided => "undecided",
        }
    }

    /// A sign for tables, so that a verdict does not show by colour alone.
    pub fn sign(self) -> &'static str {
        match self {
            Verdict::Win => "▲",
            Verdict::Better => "△",
            Verdict::Even => "=",
            Verdict::Worse => "▽",
            Verdict::Loss => "▼",
            Verdict::Undecided => "?",
        }
    }
}

impl Comparison {
    /// Compares the values of a policy with those of a baseline under the same seeds, seed by seed.
    pub fn new(baseline: &str, measure: Measure, own: &[Option<f64>], other: &[Option<f64>]) -> Comparison {
        let pairs = own.iter().zip(other);
        let logs: Vec<f64> = pairs.filter_map(|(own, other)| log_ratio(measure, (*own)?, (*other)?)).collect();
        let estimate = Estimate::of(&logs);
        let complete = logs.len() == own.len().max(other.len()) && logs.len() >= 2;
        let ratio = estimate.map(|estimate| estimate.mean.exp());
        let ci95 = estimate.filter(|_| complete).map(|estimate| estimate.ci95.map(f64::exp));
        let verdict = ratio.zip(ci95).map_or(Verdict::Undecided, |(ratio, ci95)| Verdict::of(ratio, ci95));
        Comparison { baseline: baseline.into(), measure, ratio, ci95, verdict }
    }

    /// Whether it leaves open that the policy loses by more than the margin: undecided, and not shown to be above it.
    pub fn may_lose(&self) -> bool {
        self.verdict == Verdict::Undecided && self.ci95.is_none_or(|[low, _]| low < 1.0 - MARGIN)
    }
}

/// The logarithm of how many times better one value is than another, at most that of [`LARGEST`].
pub(crate) fn log_ratio(measure: Measure, own: f64, other: f64) -> Option<f64> {
    let (better, worse) = if measure.more_is_better() { (own, other) } else { (other, own) };
    let finite = better.is_finite() && worse.is_finite() && better >= 0.0 && worse >= 0.0;
    // Nothing carried by either is no difference.
    let ratio = if better == worse { 1.0 } else { better / worse };
    finite.then(|| ratio.clamp(1.0 / LARGEST, LARGEST).ln())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    fn compare(measure: Measure, own: &[f64], other: &[f64]) -> Comparison {
        Comparison::new("random", measure, &some(own), &some(other))
    }

    #[test]
    fn each_verdict_is_of_where_the_interval_lies() {
        let of = |low, high| Verdict::of((low + high) / 2.0, [low, high]);
        assert_eq!(of(1.06, 1.5), Verdict::Win);
        assert_eq!(of(1.01, 1.5), Verdict::Better);
        assert_eq!(of(0.96, 1.04), Verdict::Even);
        assert_eq!(of(0.96, 0.99), Verdict::Worse);
        assert_eq!(of(0.80, 0.94), Verdict::Loss);
        // Its middle is 0.93, and it does not reach 1.
        assert_eq!(of(0.87, 0.99), Verdict::Loss);
        // Its middle is 0.96.
        assert_eq!(of(0.93, 0.99), Verdict::Undecided);
        assert_eq!(of(0.90, 1.01), Verdict::Undecided);
        assert_eq!(of(0.97, 1.10), Verdict::Undecided);
        assert_eq!(of(0.50, 2.00), Verdict::Undecided);
    }

    #[test]
    fn a_ratio_above_one_is_in_the_policys_favour_whatever_is_measured() {
        let (more, less) = ([2.0, 2.02, 1.98], [1.0, 1.0, 1.0]);
        assert_eq!(compare(Measure::Goodput, &more, &less).verdict, Verdict::Win);
        assert_eq!(compare(Measure::Goodput, &less, &more).verdict, Verdict::Loss);
        assert_eq!(compare(Measure::P99, &less, &more).verdict, Verdict::Win);
        let ratio = compare(Measure::P99, &more, &less).ratio.unwrap();
        assert!((ratio - 0.5).abs() < 1e-3, "{ratio}");
    }

    #[test]
    fn seeds_are_paired() {
        // The seeds differ by far more than the policies do.
        let own = [100.0, 1000.0, 10.0, 1.0, 5000.0];
        let other = own.map(|value| value * 0.99);
        assert_eq!(compare(Measure::Goodput, &own, &other).verdict, Verdict::Better);
    }

    #[test]
    fn a_baseline_that_carries_nothing_is_beaten_and_two_that_carry_nothing_are_even() {
        let beaten = compare(Measure::Goodput, &[50.0, 51.0], &[0.0, 0.0]);
        assert_eq!((beaten.verdict, beaten.ratio.map(f64::round)), (Verdict::Win, Some(LARGEST)));
        assert_eq!(compare(Measure::Goodput, &[0.0, 0.0], &[50.0, 51.0]).verdict, Verdict::Loss);
        assert_eq!(compare(Measure::Goodput, &[0.0, 0.0], &[0.0, 0.0]).verdict, Verdict::Even);
    }

    #[test]
    fn a_seed_without_a_value_and_a_single_seed_decide_nothing() {
        let single = compare(Measure::Goodput, &[2.0], &[1.0]);
        assert_eq!((single.ratio, single.verdict, single.may_lose()), (Some(2.0), Verdict::Undecided, true));
        let missing = Comparison::new("tcp", Measure::Mean, &[Some(1.0), Some(1.0), None], &some(&[3.0; 3]));
        assert_eq!((missing.ci95, missing.verdict), (None, Verdict::Undecided));
        let none = Comparison::new("tcp", Measure::Mean, &[None, None], &some(&[3.0; 2]));
        assert_eq!((none.ratio, none.verdict), (None, Verdict::Undecided));
    }

    #[test]
    fn what_is_undecided_above_the_margin_cannot_be_a_loss() {
        let at = |ci95| Comparison {
            ci95: Some(ci95),
            ratio: Some(1.0),
            verdict: Verdict::Undecided,
            ..compare(Measure::Mean, &[1.0; 2], &[1.0; 2])
        };
        assert!(!at([0.96, 1.2]).may_lose());
        assert!(at([0.94, 1.2]).may_lose());
    }

    proptest! {
        /// Values on a scale of logarithms, and noise of mean zero.
        #[test]
        fn more_noise_never_turns_a_loss_into_anything_that_passes(
            noise in prop::collection::vec(-1.0..1.0f64, 3..30), shift in -1.0..1.0f64, spread in 0.0..0.2f64, louder in 0.0..1.0f64,
        ) {
            let mean = noise.iter().sum::<f64>() / noise.len() as f64;
            let at = |factor: f64| {
                let own: Vec<f64> = noise.iter().map(|e| (shift + factor * (e - mean)).exp()).collect();
                compare(Measure::Goodput, &own, &vec![1.0; own.len()])
            };
            let passes = |one: &Comparison| one.verdict != Verdict::Loss && !one.may_lose();
            let (quiet, loud) = (at(spread), at(spread + louder));
            prop_assert!(passes(&quiet) || !passes(&loud), "{quiet:?} {loud:?}");
            prop_assert!(quiet.verdict == Verdict::Win || loud.verdict != Verdict::Win);
        }
    }
}
