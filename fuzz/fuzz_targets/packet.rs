//! Any bytes are read as a packet or not, without a look beyond their end; what is behind a packet's ports changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_flow_hash::flow_key::{Kind, read};

fuzz_target!(|bytes: &[u8]| {
    // A copy of just this length, so that a look beyond its end is noticed.
    let exact = bytes.to_vec().into_boxed_slice();
    let view = read(&exact);
    if view.is_some_and(|view| view.kind == Kind::Ports) {
        assert_eq!(read(&[bytes, &[0xff; 64]].concat()), view);
    }
});
