//! Any bytes are read as an answer of the kernel, by each reader that there is: rtnetlink, sock_diag and nf_tables.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_linux::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => fuzzing::read_routing(bytes),
        1 => fuzzing::read_sockets(bytes),
        _ => fuzzing::read_filters(bytes),
    }
});
