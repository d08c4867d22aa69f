//! Which policy of the path changer is best where: fixed scenarios, and a verdict on each.
//!
//! - A [`Case`] is a scenario of the tournament: what it is for, what is judged, and whether it may be looked at while a
//!   policy is tuned. [`cases()`] lists them all; they are fixed, and no file changes them.
//!
//! ```
//! use sidestep_tournament::{Class, Set, cases};
//!
//! let judging = cases().filter(|case| case.set == Set::Judging);
//! let scenario = judging.filter(|case| case.class == Class::Failure).map(|case| case.scenario()).next();
//! assert!(scenario.is_some_and(|scenario| !scenario.events.is_empty()));
//! ```

mod cases;
mod measure;

pub use cases::{Case, Class, Set, cases};
pub use measure::Measure;
