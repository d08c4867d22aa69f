//! What is measured, and by what a policy is judged.

use serde::{Serialize, Serializer};
use sidestep_results::{SystemResult, measures};

/// A quantity of a run, one for each policy, scenario and seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Application bytes acknowledged after the warm-up, over that time, in Mbit/s.
    Goodput,
    /// Mean completion time in seconds; a transfer that has not finished counts with the time it has taken so far.
    Mean,
    /// Median of these completion times in seconds.
    Median,
    /// 99th percentile of these completion times in seconds.
    P99,
    /// Jain's index over the goodput of the connections that send until they are stopped.
    Fairness,
    /// Goodput of the slowest of these connections, in Mbit/s.
    Slowest,
    /// Moves to another path, divided by the number of connections.
    Moves,
    /// Coefficient of variation of a path's load between samples of a second, as a mean over the paths.
    LoadVariation,
    /// Share of the transfers that have not finished at the end of the run.
    Unfinished,
}

impl Measure {
    /// All measures, in the order in which they are shown.
    pub const ALL: [Measure; 9] = [
        Measure::Goodput,
        Measure::Mean,
        Measure::Median,
        Measure::P99,
        Measure::Fairness,
        Measure::Slowest,
        Measure::Moves,
        Measure::LoadVariation,
        Measure::Unfinished,
    ];

    /// Its value in the results of a seed; `None` where there is nothing of it to measure.
    pub fn of(self, result: &SystemResult) -> Option<f64> {
        let with_unfinished = result.unfinished.as_ref();
        match self {
            Measure::Goodput => Some(result.goodput_mbps),
            Measure::Mean => with_unfinished.map(|times| times.mean_s).or(result.afct_s),
            Measure::Median => with_unfinished.map(|times| times.p50_s).or(result.fct_p50_s),
            Measure::P99 => with_unfinished.map(|times| times.p99_s).or(result.fct_p99_s),
            Measure::Fairness => result.fairness_endless,
            Measure::Slowest => result.goodput_mbps_min,
            Measure::Moves => (result.connections > 0).then(|| result.total_moves() as f64 / result.connections as f64),
            Measure::LoadVariation => {
                let of_paths: Vec<f64> = result.paths.values().filter_map(|path| path.variation).collect();
                measures::mean(&of_paths)
            }
            Measure::Unfinished => {
                let completed: u64 = result.fct_by_size.iter().map(|bucket| bucket.flows).sum();
                let unfinished = with_unfinished.map_or(0, |times| times.flows);
                let all = completed + unfinished;
                (all > 0).then(|| unfinished as f64 / all as f64)
            }
        }
    }

    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Measure::Goodput => "goodput_mbps",
            Measure::Mean => "mean_s",
            Measure::Median => "p50_s",
            Measure::P99 => "p99_s",
            Measure::Fairness => "fairness",
            Measure::Slowest => "goodput_mbps_min",
            Measure::Moves => "moves_per_connection",
            Measure::LoadVariation => "load_variation",
            Measure::Unfinished => "unfinished",
        }
    }

    /// The name on pages, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Measure::Goodput => "goodput, Mbit/s",
            Measure::Mean => "mean completion, s",
            Measure::Median => "median completion, s",
            Measure::P99 => "99 % completion, s",
            Measure::Fairness => "Jain’s index",
            Measure::Slowest => "slowest, Mbit/s",
            Measure::Moves => "moves a connection",
            Measure::LoadVariation => "load variation",
            Measure::Unfinished => "unfinished",
        }
    }

    /// The name in tables that have little room.
    pub fn short_title(self) -> &'static str {
        match self {
            Measure::Goodput => "goodput",
            Measure::Mean => "mean",
            Measure::P99 => "99 %",
            other => other.title(),
        }
    }

    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Measure::Goodput | Measure::Fairness | Measure::Slowest)
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use sidestep_results::{SizeBucket, Unfinished};

    use super::*;

    #[test]
    fn transfers_that_have_not_finished_count_where_there_are_any() {
        let mut result = SystemResult { afct_s: Some(1.0), fct_p99_s: Some(2.0), ..SystemResult::default() };
        result.fct_by_size.push(SizeBucket { flows: 3, ..SizeBucket::default() });
        assert_eq!((Measure::Mean.of(&result), Measure::Unfinished.of(&result)), (Some(1.0), Some(0.0)));
        result.unfinished = Some(Unfinished { flows: 1, mean_s: 5.0, p50_s: 1.5, p99_s: 17.0 });
        assert_eq!((Measure::Mean.of(&result), Measure::P99.of(&result)), (Some(5.0), Some(17.0)));
        assert_eq!(Measure::Unfinished.of(&result), Some(0.25));
    }

    #[test]
    fn what_a_run_does_not_have_has_no_value() {
        let nothing = SystemResult::default();
        let values: Vec<_> = Measure::ALL.into_iter().filter_map(|measure| measure.of(&nothing)).collect();
        assert_eq!(values, [0.0]);
    }
}
