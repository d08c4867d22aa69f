//! Any two texts are read as Rocketfuel's weights and latencies or refused, and edges have nodes of the graph for ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_formats::{self as formats, Mapping};

fuzz_target!(|texts: (&str, &str)| {
    let (weights, latencies) = texts;
    let other = Some((latencies, "latencies.intra"));
    match formats::read_with(weights, "weights.intra", other, &Mapping::default()) {
        Ok((graph, _)) => assert!(graph.edges.iter().all(|edge| edge.from.max(edge.to) < graph.nodes.len())),
        // Printing it must not fail either.
        Err(error) => {
            let lines = [weights, latencies].map(|text| text.split('\n').count());
            assert!(error.line <= lines[0].max(lines[1]) && !error.to_string().is_empty());
        }
    }
});
