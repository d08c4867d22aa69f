//! What an edge measures of its egresses, over real wires: probes, and what passes by.

mod memory;
mod net;
mod passive;
mod prober;
