//! A scenario run under several seeds: means, and how far they can be trusted.

use serde::{Deserialize, Serialize};

use crate::{SystemResult, measures};

/// Measures of one system over several seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// How many seeds.
    pub seeds: u32,
    /// All seeds gave the same, as where nothing is drawn at random: the values are those of one run, and have no interval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same: bool,
    /// Goodput in Mbit/s.
    pub goodput_mbps: Estimate,
    /// Mean flow completion time in seconds; `None` unless flows completed under every seed.
    pub afct_s: Option<Estimate>,
    /// Median flow completion time in seconds.
    pub fct_p50_s: Option<Estimate>,
    /// 99th percentile of the flow completion times in seconds.
    pub fct_p99_s: Option<Estimate>,
    /// Jain's index over the connections' goodput.
    pub fairness: Option<Estimate>,
    /// Goodput in Mbit/s of the slowest connection that carried flows without a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_mbps_min: Option<Estimate>,
    /// Moves of all connections, for all reasons.
    pub moves: Estimate,
    /// Utilisation of the least used path in the second half.
    pub least_used: Option<Estimate>,
    /// The results of each seed, in the order of the seeds. They are kept in memory only: `result.json` lacks them.
    #[serde(skip)]
    pub each: Vec<SystemResult>,
}

/// A mean and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The interval, by Student's t; twice the mean if there is only one value.
    pub ci95: [f64; 2],
}

impl Repeated {
    /// The measures over the results of one system under different seeds; `None` if there are none.
    pub fn of(results: &[SystemResult]) -> Option<Repeated> {
        let of = |measure: &dyn Fn(&SystemResult) -> Option<f64>| {
            let values: Option<Vec<f64>> = results.iter().map(measure).collect();
            Estimate::of(&values?)
        };
        Some(Repeated {
            seeds: results.len() as u32,
            same: results.len() > 1 && results.windows(2).all(|pair| pair[0] == pair[1]),
            goodput_mbps: of(&|result| Some(result.goodput_mbps))?,
            afct_s: of(&|result| result.afct_s),
            fct_p50_s: of(&|result| result.fct_p50_s),
            fct_p99_s: of(&|result| result.fct_p99_s),
            fairness: of(&|result| result.fairness),
            goodput_mbps_min: of(&|result| result.goodput_mbps_min),
            moves: of(&|result| Some(result.total_moves() as f64))?,
            least_used: of(&|result| result.least_used_path().map(|(_, share)| share)),
            each: results.to_vec(),
        })
    }
}

impl Estimate {
    /// The estimate from independent values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let mean = measures::mean(values)?;
        let half = standard_error(values).map_or(0.0, |error| student_t_975(values.len() - 1) * error);
        Some(Estimate { mean, ci95: [mean - half, mean + half] })
    }

    /// The 90 % confidence interval of the mean, by Student's t; `None` of fewer than two values.
    pub fn ninety(values: &[f64]) -> Option<[f64; 2]> {
        let mean = measures::mean(values)?;
        let error = standard_error(values)?;
        let half = student_t_950(values.len() - 1) * error;
        Some([mean - half, mean + half])
    }

    /// Half the interval's width.
    pub fn half_width(&self) -> f64 {
        (self.ci95[1] - self.ci95[0]) / 2.0
    }

    /// Whether the two intervals have a value in common.
    pub fn overlaps(&self, other: &Estimate) -> bool {
        self.ci95[0] <= other.ci95[1] && other.ci95[0] <= self.ci95[1]
    }
}

/// The standard error of the mean; `None` of fewer than two values.
fn standard_error(values: &[f64]) -> Option<f64> {
    Some((measures::variance(values)? / values.len() as f64).sqrt())
}

/// The 97.5th percentile of Student's t with `freedom` degrees of freedom.
fn student_t_975(freedom: usize) -> f64 {
    const EXACT: [f64; 10] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281];
    student_t(freedom, &EXACT, 1.959_963_985)
}

/// The 95th percentile of Student's t with `freedom` degrees of freedom.
fn student_t_950(freedom: usize) -> f64 {
    const EXACT: [f64; 10] = [6.3138, 2.9200, 2.3534, 2.1318, 2.0150, 1.9432, 1.8946, 1.8595, 1.8331, 1.8125];
    student_t(freedom, &EXACT, 1.644_853_627)
}

/// A percentile of Student's t, which of the normal distribution is `x`: exact ones up to 10 degrees of freedom, then the
/// expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5), good to 10⁻⁴ from there on.
fn student_t(freedom: usize, exact: &[f64; 10], x: f64) -> f64 {
    if let Some(exact) = freedom.checked_sub(1).and_then(|index| exact.get(index)) {
        return *exact;
    }
    let v = freedom as f64;
    let (x3, x5, x7) = (x.powi(3), x.powi(5), x.powi(7));
    let first = (x3 + x) / 4.0;
    let second = (5.0 * x5 + 16.0 * x3 + 3.0 * x) / 96.0;
    let third = (3.0 * x7 + 19.0 * x5 + 17.0 * x3 - 15.0 * x) / 384.0;
    x + first / v + second / v.powi(2) + third / v.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentiles_of_student_are_those_of_the_tables() {
        for (freedom, expected) in [(1, 12.706), (4, 2.776), (10, 2.228), (11, 2.201), (29, 2.045), (120, 1.980)] {
            assert!((student_t_975(freedom) - expected).abs() < 6e-4, "{freedom}: {}", student_t_975(freedom));
        }
    }

    #[test]
    fn the_interval_of_ninety_percent_has_the_percentiles_of_the_tables() {
        for (freedom, expected) in [(1, 6.314), (5, 2.015), (11, 1.796), (19, 1.729), (120, 1.658)] {
            assert!((student_t_950(freedom) - expected).abs() < 6e-4, "{freedom}: {}", student_t_950(freedom));
        }
        // Mean 4, standard deviation 2, five values.
        let [low, high] = Estimate::ninety(&[2.0, 2.0, 4.0, 6.0, 6.0]).unwrap();
        let half = 2.1318 * 2.0 / 5f64.sqrt();
        assert!((low - 4.0 + half).abs() < 1e-9 && (high - 4.0 - half).abs() < 1e-9);
        assert_eq!((Estimate::ninety(&[3.0]), Estimate::ninety(&[])), (None, None));
    }

    #[test]
    fn an_interval_is_around_the_mean_and_as_wide_as_students_t_gives() {
        // Mean 4, standard deviation 2, five values.
        let estimate = Estimate::of(&[2.0, 2.0, 4.0, 6.0, 6.0]).unwrap();
        let half = 2.7764 * 2.0 / 5f64.sqrt();
        assert_eq!(estimate.mean, 4.0);
        assert!((estimate.half_width() - half).abs() < 1e-9);
        assert_eq!(Estimate::of(&[3.0]), Some(Estimate { mean: 3.0, ci95: [3.0, 3.0] }));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn a_measure_that_a_seed_lacks_has_no_estimate() {
        let with = SystemResult { goodput_mbps: 1.0, afct_s: Some(1.0), ..SystemResult::default() };
        let repeated = Repeated::of(&[with.clone(), SystemResult { afct_s: None, ..with.clone() }]).unwrap();
        assert_eq!((repeated.seeds, repeated.goodput_mbps.mean, repeated.afct_s), (2, 1.0, None));
        assert!(Repeated::of(&[with.clone(), with]).unwrap().afct_s.is_some());
        assert_eq!(repeated.each.iter().map(|result| result.afct_s).collect::<Vec<_>>(), [Some(1.0), None]);
        assert!(!serde_json::to_string(&repeated).unwrap().contains("each"));
    }
}
