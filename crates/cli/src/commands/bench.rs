//! `sidestep bench`.

use crate::{args::Bench, failure::Outcome};

/// Runs `sidestep bench …`.
pub fn run(bench: Bench) -> Outcome {
    let Bench::Wire { .. } = bench;
    Ok(())
}
