//! Any text is read as demands and as a list of transfers in each format, or refused at a line of it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_formats::{read_demands, read_transfers};
use sidestep_net::{Bytes, Graph, GraphNode, ParseError};

fuzz_target!(|text: &str| {
    let node = |name: &str| GraphNode { name: name.into(), position: None };
    let graph = Graph { nodes: ["a", "b", "c", "3", "b"].map(node).into(), ..Graph::default() };
    let lines = text.split('\n').count();
    let refused = |error: ParseError| assert!(error.line <= lines && !error.to_string().is_empty());
    for file in ["x.demands", "x.xml", "x.csv", "x.txt", "x.json"] {
        match read_demands(text, file, &graph, None) {
            Ok((matrix, _)) => {
                assert!(matrix.demands.is_sorted() && !matrix.demands.is_empty());
                assert!(matrix.demands.iter().all(|demand| demand.from.max(demand.to) < 5 && demand.from != demand.to));
            }
            Err(error) => refused(error),
        }
    }
    for file in ["x.cm", "x.csv", "x.txt"] {
        match read_transfers(text, file, &graph) {
            Ok((transfers, _)) => {
                let fine = |one: &sidestep_net::ListedTransfer| {
                    one.from.max(one.to) < 5 && one.from != one.to && one.size > Bytes::new(0)
                };
                assert!(!transfers.is_empty() && transfers.iter().all(fine));
            }
            Err(error) => refused(error),
        }
    }
});
