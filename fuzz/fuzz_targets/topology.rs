//! Any text is read as a topology file of ours or refused, and what is printed of it is read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_formats::{self as formats, MAX_TEXT};
use sidestep_net::topology_file;

fuzz_target!(|text: &str| {
    match topology_file::parse(text) {
        Ok(topology) => {
            let copy = topology_file::print(&topology);
            // Generators can make it longer than what is read.
            if copy.len() <= MAX_TEXT {
                assert_eq!(topology_file::parse(&copy).as_ref(), Ok(&topology), "{copy}");
            }
            let graph = formats::read(text, "fuzz.toml").expect("the same text");
            assert!(graph.edges.iter().all(|edge| edge.from.max(edge.to) < graph.nodes.len()));
        }
        // Printing it must not fail either.
        Err(error) => assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty()),
    }
});
