//! Which policy of the path changer is best where: fixed scenarios, and a verdict on each.
//!
//! - A [`Case`] is a scenario of the tournament: what it is for, what is judged, and whether it may be looked at while a
//!   policy is tuned. [`cases()`] lists them all; they are fixed, and no file changes them.
//!   [`drawn()`] draws more by a seed.
//! - [`play`] runs cases under policies and seeds in the simulator, and leaves a [`Tournament`]: for each case, policy and
//!   [`Measure`] the values of all seeds, and a [`Comparison`] with each baseline. [`Summary`] counts the verdicts.
//! - [`play_in_lab`] plays the short list of [`lab_cases()`] on a [`Stage`] of real kernels, which the caller has.
//! - A [`Verdict`] is of a confidence interval. Less data or more noise never turns a loss into anything better.
//! - The **regret** of a policy is by how much the best fixed assignment of connections to paths beats it.
//! - [`page()`] is all of it as one HTML page, and a [`Tournament`] serialises to JSON.
//!
//! ```
//! use sidestep_tournament::{Options, Set, cases, page, play};
//!
//! let options = Options {
//!     policies: vec!["pathchanger".parse()?, "tcp".parse()?, "random".parse()?],
//!     cases: cases().filter(|case| case.name == "down-short").cloned().collect(),
//!     seeds: 2,
//!     regret: None,
//!     profile: Default::default(),
//!     command: "sidestep bench policies".into(),
//!     stop: Default::default(),
//! };
//! let tournament = play(&options, &())?;
//! assert_eq!(tournament.cases[0].set, Set::Tuning);
//! assert_eq!(tournament.summaries[0].policy, "pathchanger");
//! assert!(page(&tournament).contains("down-short"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cases;
mod fixed;
mod measure;
mod page;
mod play;
mod summary;
mod variant;
mod verdict;

pub use cases::{Case, Class, Set, cases, drawn, lab_cases};
pub use measure::Measure;
pub use page::page;
pub use play::{
    BASELINES, BestFixed, CaseResult, Observer, Options, POLICIES, PlayError, Played, PolicyResult, SCHEMA, Stage,
    Tournament, Values, play, play_in_lab,
};
pub use summary::{Count, Summary};
pub use verdict::{Comparison, LARGEST, MARGIN, Verdict};
