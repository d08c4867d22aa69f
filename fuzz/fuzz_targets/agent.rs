//! Any text is read as an agent's file or refused, with a line that the text has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_pathchanger::daemon::HostConfig;

fuzz_target!(|text: &str| {
    if let Err(error) = HostConfig::parse(text) {
        assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty());
    }
});
