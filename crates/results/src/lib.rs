//! What a run leaves behind, in the lab and in the simulator alike: names, measures and files.
//!
//! A [`Recorder`] takes one system's raw records and computes its [`SystemResult`]; nothing else computes measures.
//! A [`Writer`] streams the records to `flows.csv` and `series.csv` and, at the end of the run, writes `result.json`,
//! `plot.svg`, `index.html` and `scenario.resolved.toml` beside them.

pub mod ink;
mod links;
mod map;
pub mod measures;
mod named;
mod outage;
mod page;
mod plot;
mod record;
mod recorder;
mod repeated;
mod result;
mod stacks;
mod summary;
#[cfg(test)]
mod testing;
mod writer;

pub use links::{ArcState, LinkSampler, rate_of, reported_paths};
pub use map::{Look, draw};
pub use named::Named;
pub use outage::{Outage, Recovery};
pub use page::document;
use page::page;
pub use plot::PlotError;
use plot::plot;
pub use record::{FlowRecord, SampleKind, SamplePoint, Window};
pub use recorder::{Recorder, Trace};
pub use repeated::{Estimate, Repeated};
pub use result::{LinkResult, PathResult, PathUpdates, RunResult, SCHEMA, SizeBucket, SystemResult};
pub use sidestep_model::World;
pub use stacks::{Stack, stacks};
pub use summary::table;
pub use writer::{Records, WriteError, Writer};
