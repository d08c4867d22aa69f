//! What is measured, and by what a policy is judged.

use serde::{Serialize, Serializer};

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
    /// Moves to another path, divided by the number of connections.
    Moves,
    /// Coefficient of variation of a path's load between samples of a second, as a mean over the paths.
    LoadVariation,
    /// Share of the transfers that have not finished at the end of the run.
    Unfinished,
}

impl Measure {
    /// All measures, in the order in which they are shown.
    pub const ALL: [Measure; 8] = [
        Measure::Goodput,
        Measure::Mean,
        Measure::Median,
        Measure::P99,
        Measure::Fairness,
        Measure::Moves,
        Measure::LoadVariation,
        Measure::Unfinished,
    ];

    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Measure::Goodput => "goodput_mbps",
            Measure::Mean => "mean_s",
            Measure::Median => "p50_s",
            Measure::P99 => "p99_s",
            Measure::Fairness => "fairness",
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
            Measure::Moves => "moves a connection",
            Measure::LoadVariation => "load variation",
            Measure::Unfinished => "unfinished",
        }
    }

    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Measure::Goodput | Measure::Fairness)
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
