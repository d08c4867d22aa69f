//! Settings that are read from files: a struct for each table, which serde reads and prints, and which checks itself.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// A setting outside its range.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{setting} {problem}")]
pub struct SettingError {
    /// The setting's key in the file.
    pub setting: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// A table of a scenario file whose keys a system's parameters override.
pub trait SettingsTable: Clone + Default + Serialize + DeserializeOwned {
    /// Keys that only the file sets, for all systems alike.
    const FILE_ONLY: &'static [&'static str] = &[];

    /// Checks every setting's range; by default every value is fine.
    fn check(&self) -> Result<(), SettingError> {
        Ok(())
    }
}

/// An error about `setting` unless it is fine.
pub fn ensure(fine: bool, setting: &'static str, problem: &'static str) -> Result<(), SettingError> {
    if fine { Ok(()) } else { Err(SettingError { setting, problem }) }
}
