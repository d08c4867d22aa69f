//! A run's series over time, as its `series.csv` has them.

use std::path::Path;

use serde::Deserialize;

use crate::ReproError;

/// A row of `series.csv`: a link, a path, a connection or a cache at one sample. A column that is absent is empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sample {
    /// The system's name.
    pub(crate) system: String,
    /// The sample's time in seconds; rates are means since the sample before.
    pub(crate) time_s: f64,
    /// What the row tells of: `link`, `path`, `connection`, `cache`.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
    /// What it carried, in Mbit/s.
    pub(crate) mbps: Option<f64>,
    /// What waits in it, in bytes.
    pub(crate) queue_bytes: Option<f64>,
    /// Packets dropped so far.
    pub(crate) drops: Option<u64>,
    /// A connection's congestion window in bytes.
    pub(crate) cwnd_bytes: Option<f64>,
    /// A connection's path; a cache's state.
    pub(crate) path: String,
}

/// Reads the series of the run in a directory.
pub(crate) fn read(run: &Path) -> Result<Vec<Sample>, ReproError> {
    let path = run.join("series.csv");
    let failed = |error: csv::Error| ReproError::Run(format!("{}: {error}", path.display()));
    csv::Reader::from_path(&path).map_err(failed)?.deserialize().collect::<Result<_, _>>().map_err(failed)
}
