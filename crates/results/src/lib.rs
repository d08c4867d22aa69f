//! What a run leaves behind, in the lab and in the simulator alike: names, measures and files.
//!
//! - **Records** are what a world reports: a [`FlowRecord`] for each flow, a [`SubflowRecord`] for each subflow of an MPTCP
//!   connection, a [`SamplePoint`] for each sampled link, path, connection, router, cache or probe.
//! - A [`Recorder`] takes the records of one system and computes its [`SystemResult`]; nothing else computes measures.
//! - A [`Writer`] streams records to `flows.csv`, `series.csv` and `subflows.csv`. At the end of the run it writes
//!   `result.json`, `plot.svg`, `index.html` and `scenario.resolved.toml`.
//! - **Measures** are functions of plain numbers: [`measures`], and [`Estimate`] and [`Repeated`] over several seeds.
//! - A [`Comparison`] puts the measures of two runs of one scenario side by side.
//! - An [`Equivalence`](equivalence::Equivalence) tests whether two worlds give the same, over many runs.
//! - A [`Swept`] scenario was run with several values of some of its keys.
//! - **Pictures and pages** are text: [`draw`] makes a map, [`lines`](lines::lines) lines, [`stacks`] bars, [`table`] the summary
//!   for a terminal, [`document`] a whole HTML page. A [`Tooltips`](tooltip::Tooltips) have what a picture shows where the pointer rests.
//!
//! ```
//! use sidestep_net::{Bytes, Rate, Span, Time};
//! use sidestep_results::{FlowRecord, Recorder, Window};
//!
//! let (warmup, duration, sample) = (Span::from_secs(2), Span::from_secs(10), Span::from_millis(500));
//! let window = Window { warmup, duration, sample };
//! let mut recorder = Recorder::new("tcp", window, [("p1".to_owned(), Rate::from_mbits(100))]);
//! recorder.flow(&FlowRecord {
//!     flow: "f1".into(),
//!     connection: "f1".into(),
//!     end: Time::ZERO + Span::from_secs(10),
//!     bytes: Bytes::new(100_000_000),
//!     bytes_in_window: Bytes::new(90_000_000),
//!     ..FlowRecord::default()
//! });
//! recorder.moved(Time::ZERO + Span::from_secs(3), "ecn");
//! let (result, _trace) = recorder.finish();
//! assert_eq!(result.goodput_mbps, 90.0);
//! assert_eq!(result.total_moves(), 1);
//! ```

mod comparison;
pub mod equivalence;
mod headline;
pub mod lines;
mod links;
mod map;
pub mod measures;
mod named;
mod outage;
mod page;
mod paired;
pub mod palette;
mod parts;
mod plot;
mod record;
mod recorder;
mod repeated;
mod result;
mod roles;
mod scene;
mod seeds;
mod stacks;
mod summary;
mod swept;
#[cfg(test)]
mod testing;
mod times;
pub mod tooltip;
mod trace;
mod validity;
mod whole;
mod writer;

pub use comparison::{ComparedMeasure, Comparison};
pub use headline::{Finding, Headline};
pub use links::{ArcState, LinkSampler, rate_of, reported_paths};
pub use map::{Look, draw};
pub use named::Named;
pub use outage::Recovery;
pub use page::document;
pub use paired::Difference;
pub use parts::Parts;
pub use plot::PlotError;
use plot::plot;
pub use record::{FlowRecord, SampleKind, SamplePoint, SubflowRecord, Window};
pub use recorder::{Late, Recorder};
pub use repeated::{Estimate, Repeated};
pub use result::{LinkResult, PathResult, PathUpdates, RunResult, SCHEMA, SizeBucket, SystemResult, Unfinished};
pub use scene::{CeilingOf, Scene};
pub use seeds::{SeedLog, SeedResult};
pub use sidestep_engine::Outage;
pub use sidestep_scenario::World;
pub use stacks::{Stack, stacks};
pub use summary::table;
pub use swept::{Swept, SweptPoint};
pub use trace::{SeedTrace, Trace};
pub use validity::{Doubt, DoubtKind, ReturnPath, Validity, dead_returns, single_ways};
pub use whole::WriteError;
pub use writer::{Records, Writer};
