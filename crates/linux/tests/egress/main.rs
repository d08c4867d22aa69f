//! What an edge measures of its egresses, over real wires: probes, and what passes by.

mod net;
mod passive;
mod prober;
