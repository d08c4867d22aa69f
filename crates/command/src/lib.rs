//! What the commands of daemons share, and how a system brings its own into the program.
//!
//! A [`Command`] is a name, what it takes (a type of clap's `Args`), and a function that runs it. A [`Registry`] holds the
//! commands of all systems, describes them to clap, and reads from a command line the [`Invocation`] of one. Those that
//! belong together are in a [`Group`], whose `status` shows the daemon that is at work here: see [`Status`]. The registry also
//! has what `doctor` asks of each system, its [`Examination`].
//!
//! ```
//! use sidestep_command::{Command, Outcome, Registry, println};
//!
//! /// Greet a person
//! #[derive(clap::Args)]
//! struct Greet {
//!     /// Whom
//!     name: String,
//! }
//!
//! fn greet(args: Greet) -> Outcome {
//!     println!("good day, {}", args.name);
//!     Ok(())
//! }
//!
//! let registry = Registry::new().with(Command::of::<Greet>("greet", greet));
//! let program = registry.describe(clap::Command::new("program"));
//! let mut matches = program.get_matches_from(["program", "greet", "Ada"]);
//! registry.read(&mut matches).unwrap().run().unwrap();
//! ```

// First: its macros are for all that follows.
#[macro_use]
pub mod out;

mod examination;
mod failure;
mod files;
mod group;
mod registry;
mod reports;
mod signals;

pub use self::{
    examination::{ConfigFile, Examination, Seen},
    failure::{Failure, Outcome},
    files::{read, warn_of, write_new, write_proposal},
    group::{EDGE, Group, Status},
    registry::{Command, Invocation, Registry},
    reports::{obstacles, parse_interval, plain_table, print_json, print_obstacles, print_stopped},
    signals::{
        announce, at_hangups, reread, run_daemon, runtime, stopped, stopped_or_relieved, succeeded_with,
        until_signalled,
    },
};
