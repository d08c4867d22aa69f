//! Any bytes are read as what comes to a prober or to a reflector, and a reflector answers with no more bytes than came.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sidestep_linux::fuzzing::read_probes(bytes));
