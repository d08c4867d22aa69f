//! A run's tables, `series.csv` above all.

use std::path::Path;

use csv::StringRecord;
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
    /// What the row describes: `link`, `path`, `connection`, `cache`.
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
    let mut all = Vec::new();
    each_record(&run.join("series.csv"), |record, head| {
        all.push(record.deserialize(Some(head))?);
        Ok(())
    })?;
    Ok(all)
}

/// Calls `handle` with each record of a CSV file, with the file's head. One record's memory serves all, so that files of millions
/// of rows can be read with rows that borrow.
pub(crate) fn each_record(
    path: &Path,
    mut handle: impl FnMut(&StringRecord, &StringRecord) -> Result<(), csv::Error>,
) -> Result<(), ReproError> {
    let mut read = || -> Result<(), csv::Error> {
        let mut reader = csv::Reader::from_path(path)?;
        let head = reader.headers()?.clone();
        let mut record = StringRecord::new();
        while reader.read_record(&mut record)? {
            handle(&record, &head)?;
        }
        Ok(())
    };
    read().map_err(|error| ReproError::Run(format!("{}: {error}", path.display())))
}
