//! What of others keeps decisions from having an effect.

use sidestep_hostd::{Overridden, RestoredMarks};

/// Prints what of others keeps decisions from having an effect.
pub(super) fn print_obstacles(overridden: &[Overridden], restored: &[RestoredMarks]) {
    for line in obstacles(overridden, restored) {
        println!("{line}");
    }
}

/// What of others keeps decisions from having an effect, one line each.
pub(super) fn obstacles(overridden: &[Overridden], restored: &[RestoredMarks]) -> Vec<String> {
    let overridden = overridden.iter().map(|one| format!("{}; {}", one.why, one.advice));
    let restored = restored.iter().map(|one| format!("{}, which undoes moves; {}", one.rule, one.advice));
    overridden.chain(restored).collect()
}
