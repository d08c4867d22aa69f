//! Files that are there as a whole or not at all, and why a run's files could not be written.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::PlotError;

/// Why a run's files could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A file or directory could not be made, written or removed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A record could not be added to a CSV file.
    #[error("cannot add a record to {}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: csv::Error,
    },
    /// The result could not be put as JSON.
    #[error("cannot put the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A run cannot go on with the seeds of another.
    #[error("{} is of another scenario or version, so this run cannot go on with it; leave `--resume` away", path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
    },
    /// The plot could not be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Writes a file under another name and renames it, so that readers see all of it or none.
pub(crate) fn write_whole(dir: &Path, name: &str, text: &str) -> Result<(), WriteError> {
    let path = dir.join(name);
    let unfinished = dir.join(format!(".{name}.unfinished"));
    let written = File::create(&unfinished).and_then(|file| {
        let mut file = BufWriter::new(file);
        file.write_all(text.as_bytes())?;
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&unfinished, &path)
    });
    if written.is_err() {
        // The first error is the one to report; what this leaves behind is not the result.
        let _ = fs::remove_file(&unfinished);
    }
    written.map_err(io_error("write", &path))
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError + use<> {
    let path = path.to_owned();
    move |source| WriteError::Io { action, path, source }
}
