//! Any text is read as an edge list or as a table or refused, and edges have nodes of the graph for ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_formats as formats;

fuzz_target!(|text: &str| {
    for name in ["fuzz.csv", "fuzz.tsv", "fuzz.edges"] {
        match formats::read(text, name) {
            Ok(graph) => assert!(graph.edges.iter().all(|edge| edge.from.max(edge.to) < graph.nodes.len())),
            // Printing it must not fail either.
            Err(error) => assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty()),
        }
    }
});
