//! What several commands take and print alike.

use comfy_table::{Row, Table, presets};
use serde::Serialize;
use sidestep_hostd::{Overridden, RestoredMarks};
use sidestep_net::{Span, UnitError};

use crate::{Failure, Outcome};

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
    println!("{text}");
    Ok(())
}

/// Prints what became of a daemon that was to end: in the words of `removed` if there was one, else of `nothing`.
pub fn print_stopped(stopped: bool, json: bool, removed: &str, nothing: &str) -> Outcome {
    if json {
        return print_json(&serde_json::json!({ "schema": 1, "stopped": stopped }));
    }
    println!("{}", if stopped { removed } else { nothing });
    Ok(())
}

/// A table without lines.
pub fn plain_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}

/// Prints what of others keeps decisions from having an effect.
pub fn print_obstacles(overridden: &[Overridden], restored: &[RestoredMarks]) {
    for line in obstacles(overridden, restored) {
        println!("{line}");
    }
}

/// What of others keeps decisions from having an effect, one line each.
pub fn obstacles(overridden: &[Overridden], restored: &[RestoredMarks]) -> Vec<String> {
    let overridden = overridden.iter().map(|one| format!("{}; {}", one.why, one.advice));
    let restored = restored.iter().map(|one| format!("{}, which undoes moves; {}", one.rule, one.advice));
    overridden.chain(restored).collect()
}

/// Reads how often a command looks again.
pub fn parse_interval(text: &str) -> Result<Span, String> {
    let interval: Span = text.parse().map_err(|error: UnitError| error.to_string())?;
    let limits = Span::from_millis(100)..=Span::from_secs(3_600);
    if limits.contains(&interval) { Ok(interval) } else { Err("it must be from 100 ms to 1 h".into()) }
}
