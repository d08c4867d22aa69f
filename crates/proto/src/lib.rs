//! Protocol cores without I/O that systems share: [`tcp`], [`mptcp`], the formats of probes ([`echo`], [`stamp`]) with a reflector,
//! [`rounds`] of probes, and the [`link`] that carries packets. A system's own core is in its folder of `systems/`.
//!
//! The caller passes the time and the event, and the core answers what to do. The simulator drives the cores with
//! virtual time; the lab drives [`link`] with the machine's clock. The methods of a connection are of four kinds:
//!
//! - `handle_…` takes an input: a packet that has arrived, or a timeout that is due.
//! - `poll_transmit` returns the next packet that may leave now.
//! - `poll_timeout` returns when `handle_timeout` is due next; `None`: never. `next_timeout`, where there is one, also returns
//!   what for.
//! - The others read the state, give the connection data to send, or change the settings.
//!
//! ```
//! use sidestep_net::{Span, Time};
//! use sidestep_proto::{
//!     packet::{Kind, Packet},
//!     tcp::{Config, Receiver, Sender},
//! };
//!
//! let config = Config::rfc();
//! let (mut sender, mut receiver) = (Sender::new(&config), Receiver::new(&config));
//! sender.supply(3);
//! sender.open();
//! let syn = sender.poll_transmit(&config, Time::ZERO).expect("an open connection sends a SYN");
//! assert_eq!(syn.kind, Kind::Syn);
//! let syn = Packet { kind: syn.kind, flags: syn.flags, ..Packet::default() };
//! let syn_ack = receiver.handle_syn(&config, Time::ZERO, &syn).expect("the first SYN is answered");
//! sender.handle_ack(&config, Time::ZERO + Span::from_millis(20), &syn_ack);
//! // The handshake has taken 20 ms, and the initial window has room for all three segments.
//! let data = std::iter::from_fn(|| sender.poll_transmit(&config, Time::ZERO + Span::from_millis(20)));
//! assert_eq!(data.map(|segment| segment.seq).collect::<Vec<_>>(), [0, 1, 2]);
//! ```
//!
//! [`link::LinkModel`] needs no timeouts: it decides about a packet when the packet arrives.
//!
//! ```
//! use sidestep_net::{Channel, Queue, QueueLimit, Rate, Ratio, Span, Time};
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

pub mod echo;
pub mod link;
pub mod mptcp;
pub mod packet;
pub mod rounds;
pub mod stamp;
pub mod tcp;
