//! Any bytes are read as what neighbours, the kernel and predecessors give an INRPP router: datagrams, packets, super-packets,
//! streams, and what passes at a takeover.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sidestep_inrpp::daemon::fuzzing::read(bytes));
