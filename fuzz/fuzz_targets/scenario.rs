//! Any text is read as a scenario or refused, and the resolved copy of what is read is the same scenario.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_net::document::MAX_TEXT;
use sidestep_scenario::Scenario;

fuzz_target!(|text: &str| {
    match Scenario::parse(text, "fuzz") {
        Ok(scenario) => {
            let copy = scenario.to_toml();
            // Patterns and generators can make it longer than what is read.
            if copy.len() <= MAX_TEXT {
                assert_eq!(Scenario::parse(&copy, "fuzz").as_ref(), Ok(&scenario), "{copy}");
            }
        }
        // Printing it must not fail either.
        Err(error) => assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty()),
    }
});
