//! Why a simulation is not made: a mistake in its file, or too little memory.

use std::path::Path;

use sidestep_scenario::{Scenario, overrides::Override};
use sidestep_sim::{SimError, estimate};

use super::scenario_text;
use crate::planning::failure::Failure;

/// An error with the line of the scenario file that it is about.
pub(super) fn located(path: &Path, set: &[Override], error: SimError) -> Failure {
    match (error.place(), scenario_text(path, set)) {
        (Some(place), Ok(text)) => {
            let error = Scenario::error_at(&text, place, &error.to_string());
            Failure::usage(error.in_file(path.display().to_string()))
        }
        _ => error.into(),
    }
}

/// Refuses a run that is estimated to take more memory than there is.
pub(super) fn check_memory(scenario: &Scenario, simulations: u64) -> Result<(), Failure> {
    let Some(available) = sidestep_linux::available_memory_bytes() else { return Ok(()) };
    let at_once = std::thread::available_parallelism().map_or(1, |count| count.get() as u64).min(simulations);
    let needed = estimate(scenario).saturating_mul(at_once);
    if needed <= available {
        return Ok(());
    }
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    Err(Failure::usage(format!(
        "the run may take {:.1} GB of memory, and {:.1} GB are free; make it smaller, or give --force",
        gigabytes(needed),
        gigabytes(available)
    )))
}
