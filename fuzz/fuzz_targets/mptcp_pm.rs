//! Any text is read as a path manager's file or refused, with a line that the text has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_mptcp::daemon::MptcpPmConfig;

fuzz_target!(|text: &str| {
    let error = MptcpPmConfig::parse(text).err();
    // Printing a note or an error must not fail either.
    for problem in MptcpPmConfig::notes(text).iter().chain(&error) {
        assert!((1..=text.split('\n').count()).contains(&problem.line) && !problem.to_string().is_empty());
    }
});
