//! The port where Prometheus reads what a daemon counts.
//!
//! A daemon lists its [`Metric`]s as constants, waits with [`Scrapes`] for readers, and answers each with a [`Page`]. So it
//! counts nothing twice, and reads nothing unless asked.
//!
//! The methods are of three kinds: [`Metric::counter`] and [`Metric::gauge`] describe a measure; [`Page::one`] and
//! [`Page::each`] add values to a page; [`Scrapes`] listens at a port and waits for readers.
//!
//! ```
//! use sidestep_metrics::{Metric, Page};
//!
//! const MOVES: Metric = Metric::counter("moves", "Moves of connections, by the signal");
//!
//! let mut page = Page::default();
//! page.each(MOVES, [(vec![("reason", "rto".to_string())], 2.0)]);
//! assert!(page.into_text()?.contains("moves_total{reason=\"rto\"} 2.0\n"));
//! # Ok::<(), std::fmt::Error>(())
//! ```

mod endpoint;
mod page;

pub use endpoint::{ListenError, Scrape, Scrapes, read_address};
pub use page::{Labels, Metric, Page};
