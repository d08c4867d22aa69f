//! Protocol cores without I/O: the caller passes the time and what happened, and the core answers what to do.
//!
//! The simulator drives them with virtual time; the lab drives [`link`] with the machine's clock. The methods are of four
//! kinds:
//!
//! - `handle_…` takes an input: a packet that has arrived, or a timeout that is due.
//! - `poll_transmit` returns the next packet that may leave now.
//! - `poll_timeout` returns when `handle_timeout` is due next.
//! - The others read the state, or change the settings.
//!
//! [`link::LinkModel`] needs no timeouts: it decides about a packet when it arrives.
//!
//! ```
//! use sidestep_model::{Channel, Queue, QueueLimit, Rate, Ratio, Span, Time};
//! use sidestep_proto::link::{LinkModel, Verdict};
//!
//! // 100 Mbit/s and 5 ms: a packet of 1500 bytes takes 120 µs to send.
//! let channel = Channel {
//!     rate: Rate::from_mbits(100),
//!     delay: Span::from_millis(5),
//!     queue: Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None },
//!     loss: Ratio::ZERO,
//!     burst_loss: None,
//!     weight: 1,
//! };
//! let mut link = LinkModel::new(&channel, 1, 0);
//! let verdict = link.enqueue(Time::ZERO, 1500, false);
//! assert!(matches!(verdict, Verdict::Deliver { at, .. } if at == Time::from_nanos(5_120_000)));
//! ```

pub mod link;
pub mod mptcp;
pub mod packet;
pub mod rcp;
pub mod tcp;
