//! The port where Prometheus reads what a daemon counts.
//!
//! A daemon lists its [`Metric`]s as constants, asks [`Scrapes`] when somebody wants to read them, and answers with a
//! [`Page`]: nothing is counted twice, and nothing is read unless asked for.

mod endpoint;
mod page;

pub use endpoint::{ListenError, Scrape, Scrapes, read_address};
pub use page::{Labels, Metric, Page};
