//! Decides when a live connection leaves its path, and for which: the safe Rust face of `include/policy`.
//!
//! The policy is one C header. It is compiled for the kernel and, here, natively, so what runs is what was simulated. This
//! crate owns no clock and no random source; the caller passes the time and 32 uniform bits with every call.
//!
//! [`Connection`] is the state machine of one TCP connection. It has three kinds of methods:
//!
//! - [`open`](Connection::open) and [`open_among`](Connection::open_among) make one over its paths;
//!   [`close`](Connection::close) ends it.
//! - `handle_…` methods take the signals of TCP: [the end of a round trip](Connection::handle_round), [a burst of
//!   retransmits](Connection::handle_retransmit), [a timeout](Connection::handle_timeout), [data that comes
//!   again](Connection::handle_duplicate). Each returns a [`Decision`].
//! - [`path`](Connection::path) and [`raw`](Connection::raw) read the state.
//!
//! A [`Request`] is a connection that the host has not accepted yet: it draws paths of SYN-ACKs. [`Shared`] is what connections to one destination learn together. [`Exp3`] is the bandit on its own. [`raw`] holds the C structs as they lie in BPF maps; [`raw::Config`] is made of
//! [`PolicySettings`].
//!
//! ```
//! use sidestep_net::{Rate, Span, Time};
//! use sidestep_policy::{PolicySettings, Connection, Path, Reason, Round};
//!
//! let paths = [1, 2].map(|id| Path::new(id, Rate::from_mbits(100), Span::from_millis(10)));
//! let mut connection = Connection::open(&PolicySettings::default(), &paths, Time::ZERO, 0x1234_5678)?;
//! let before = connection.path();
//!
//! // The path fails: at the first timeout the connection leaves it.
//! let round = Round { now: Time::from_nanos(300_000_000), mss: 1448, ..Round::default() };
//! let decision = connection.handle_timeout(round, false, 0x9abc_def0);
//! assert!(decision.moved && decision.path != before);
//! assert_eq!(decision.reason, Some(Reason::Rto));
//! # Ok::<(), sidestep_policy::PolicyError>(())
//! ```

mod config;
mod connection;
mod exp3;
mod plb;
pub mod raw;
mod request;
mod settings;
mod shared;

pub use config::{Path, PolicyError};
pub use connection::{Connection, Decision, Reason, Round, Stay, SynTimeout};
pub use exp3::Exp3;
pub use plb::PlbSettings;
pub use raw::MAX_PATHS;
pub use request::{REWEIGHING, Request, are_off, draw_reply, reply_weights};
pub use settings::{Backoff, OnDead, PolicyName, PolicySettings, RewardName, WeightsName};
pub use shared::{PathLearnt, Shared};
