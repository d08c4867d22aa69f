//! What an edge measures of its egresses, over real wires: probes.

mod memory;
mod prober;
