//! Any text is read as an edge's file or refused, with a line that the text has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_semper::daemon::{EdgeConfig, EdgeStatus};

fuzz_target!(|text: &str| match EdgeConfig::parse(text) {
    // What was read makes a set of paths for each destination.
    Ok(config) => drop(EdgeStatus::of_config(&config).unwrap()),
    Err(error) => assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty()),
});
