//! Any bytes are read as what lies in pinned maps, as events, and as what iterators over sockets write.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sidestep_pathchanger::daemon::program::fuzzing::read_pins(bytes));
