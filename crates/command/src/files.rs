//! Files that the user names.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    path::Path,
};

use sidestep_hostd::Proposal;
use sidestep_net::ParseError;

use crate::{Failure, Outcome};

/// Reads a text file that the user named.
pub fn read(path: &Path) -> Result<String, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    ParseError::check_text(bytes).map_err(|error| Failure::usage(error.in_file(path.display().to_string())))
}

/// Reports what was read otherwise than it stands in a file.
pub fn warn_of(notes: Vec<ParseError>, path: &Path) {
    for note in notes {
        tracing::warn!("{}", note.in_file(path.display().to_string()));
    }
}

/// Writes a file whole, over one that exists only where that is wanted.
pub fn write_new(path: &Path, text: &str, force: bool) -> Outcome {
    let failed = |error: io::Error| Failure::run(format!("{}: {error}", path.display()));
    if force {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        fs::write(&beside, text).map_err(failed)?;
        return fs::rename(&beside, path).map_err(failed);
    }
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format!("{} exists; --force writes over it", path.display())),
        _ => failed(error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| {
        // Half a file would make the next attempt fail.
        let _ = fs::remove_file(path);
        failed(error)
    })
}

/// Writes a configuration that a daemon proposes, to standard output if there is no file, and reports what was found.
pub fn write_proposal(proposal: &Proposal, output: Option<&Path>, force: bool) -> Outcome {
    let Proposal { text, found, missing } = proposal;
    let Some(output) = output else {
        print!("{text}");
        return Ok(());
    };
    write_new(output, text, force)?;
    println!("{} is written. Found:", output.display());
    found.iter().for_each(|line| println!("  {line}"));
    if !missing.is_empty() {
        println!("Left to you:");
        missing.iter().for_each(|line| println!("  {line}"));
    }
    Ok(())
}
