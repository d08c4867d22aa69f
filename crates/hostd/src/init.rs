//! First configurations, proposed from what the machine has.

use std::{fs, path::PathBuf};

use sidestep_net::Rate;

/// What `init` of a daemon found, and the configuration that follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The file.
    pub text: String,
    /// What was found, a line each.
    pub found: Vec<String>,
    /// What was not found or is left to the operator, a line each.
    pub missing: Vec<String>,
}

/// What the file contains after its comments on what was found.
const HOW_TO_TRY: &str = "#\n# Try it with";

impl Proposal {
    /// Adds lines to what is left to the operator.
    pub fn note(&mut self, lines: Vec<String>) {
        let comments: String = lines.iter().map(|line| format!("# - {line}\n")).collect();
        self.text = self.text.replacen(HOW_TO_TRY, &format!("{comments}{HOW_TO_TRY}"), 1);
        self.missing.extend(lines);
    }
}

/// The speed of a link; `None` where the kernel does not know, as for virtual interfaces.
pub fn speed(file: &PathBuf) -> Option<Rate> {
    let megabits: i64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    u64::try_from(megabits).ok().filter(|megabits| *megabits > 0).map(Rate::from_mbits)
}
