//! What to run in the lab.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sidestep_scenario::{Scenario, SystemSpec};

use crate::system::Registry;

/// What to run, and where to leave the results.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The experiment.
    pub scenario: Scenario,
    /// The systems that there are.
    pub registry: Registry,
    /// The systems to run, in order.
    pub systems: Vec<SystemSpec>,
    /// Directory of the results.
    pub out: PathBuf,
    /// The `sidestep` program, of which the lab's daemons are subcommands.
    pub program: PathBuf,
    /// The command line that repeats the run.
    pub command: String,
    /// Set to end the run early.
    pub stop: Arc<AtomicBool>,
}

impl RunOptions {
    /// Whether the user wants the run to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
