//! In-Network Resource Pooling (INRPP): routers store what a link cannot take, send it around over one neighbour, and press
//! back hop by hop.
//!
//! Each interface has a buffer, and before it a cache. What the buffer has no room for goes to the cache, and over
//! detours with spare capacity. A router lets no more of a flow come than its cache has room for: it lowers the window of
//! the ACKs that pass, and the router before it, or the sender, sends no packet beyond that ([`Backpressure::Limits`]). The
//! paper's text has notices in its place ([`Backpressure::Notices`]): while a cache is full the router writes *slow down* on
//! the ACKs that pass, and the router before it lets one packet of these flows go for each ACK.
//! [`Router`] is a router's half. With limits the sender is TCP's, whose receive window they are; [`Sender`] is that of notices.
//!
//! The core holds handles and never bytes. Its driver passes in what arrives, carries out what it asks for through
//! [`Egress`], and wakes it at [`Router::poll_timeout`].

mod cache;
#[cfg(feature = "command")]
#[expect(clippy::disallowed_methods, reason = "a command that looks again and again has a clock")]
pub mod command;
#[cfg(feature = "daemon")]
#[expect(clippy::disallowed_methods, reason = "a daemon has a clock and threads")]
pub mod daemon;
mod detour;
mod fields;
mod interface;
#[cfg(feature = "lab")]
pub mod lab;
mod measures;
mod nonces;
mod router;
mod sender;
mod settings;
#[cfg(feature = "sim")]
pub mod sim;

#[cfg(test)]
mod tests;

use sidestep_net::{Bytes, Rate, Span, Time};
#[cfg(feature = "scenario")]
use sidestep_scenario::{Standing, SystemInfo};
use thiserror::Error;

pub use fields::{AckFields, Key, LimitFields, Nonce, Nonces, Notice, Notification};
pub use interface::State;
pub use measures::{CacheMeasures, CustodyMeasures};
pub use router::{Counters, Router};
pub use sender::{Sender, SenderTimeout};
pub use settings::{
    AckProcessing, AfterTimeout, Backpressure, Credit, Hosts, InrppSettings, Notifications, Preset, Threshold,
};

/// INRPP, as scenarios name it.
#[cfg(feature = "scenario")]
pub const INRPP: SystemInfo =
    SystemInfo::with_settings::<InrppSettings>("inrpp", "In-Network Resource Pooling in every router", "inrpp")
        .with_standing(Standing::recommended(4));

/// An interface of a router, by its place in the list that the router was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// A packet, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub u32);

/// A router, as others know it that probe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouterId(pub u32);

/// The settings of all routers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Between two probes of a detour (T_p).
    pub probe_interval: Span,
    /// Between two decisions on whether a detour is used (T_d).
    pub decision_interval: Span,
    /// The gain of a detour's rate (α), above 0 and below π/(4√2). That of its queue is β = α²√2.
    pub alpha: f64,
    /// How interfaces press back.
    pub backpressure: Backpressure,
    /// How long a notification holds that is not repeated.
    pub expiry: Span,
    /// When the state of an interface changes, and what its ACKs carry.
    pub ack_processing: AckProcessing,
    /// Which packets an ACK releases.
    pub credit: Credit,
    /// Which packets carry notifications.
    pub notifications: Notifications,
    /// By whose rules detours get their rates: [`Preset::Ns3`] has the use that the router measures and an equal part of what
    /// is spare, in the place of raises and cuts.
    pub preset: Preset,
}

/// What an interface is like.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// The capacity of its link.
    pub rate: Rate,
    /// How long its full buffer takes to drain.
    pub buffer: Span,
    /// What its cache holds at most.
    pub cache: Bytes,
    /// Above this occupancy it presses back (S_high).
    pub high: Bytes,
    /// Below this occupancy it stops to press back (S_low).
    pub low: Bytes,
    /// With limits, the part of S_high that is left for what detours of neighbours bring, while these ask for some.
    pub reserved: Bytes,
    /// What packets of other protocols may take in addition.
    pub others: Bytes,
    /// The key that it shares with the router at the other end; `None`: a host is there, and no notification is believed.
    pub key: Option<Key>,
    /// What names it in notifications.
    pub nonce: Nonce,
    /// The interfaces to neighbours that are neighbours of the next hop, too.
    pub detours: Vec<Port>,
}

/// Why an interface cannot be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InterfaceError {
    /// The thresholds are out of order.
    #[error("interface {}: the low threshold ({low}) must be below the high one ({high}), and that at most the cache ({cache})", of.0)]
    Thresholds {
        /// The interface.
        of: Port,
        /// S_low.
        low: Bytes,
        /// S_high.
        high: Bytes,
        /// The size of the cache.
        cache: Bytes,
    },
    /// The cache cannot hold one packet.
    #[error("interface {}: a cache of {cache} cannot hold a packet of 1500 bytes", of.0)]
    Small {
        /// The interface.
        of: Port,
        /// The size of the cache.
        cache: Bytes,
    },
    /// A detour is not an interface of the router, or the interface itself.
    #[error("interface {}: there is no detour over interface {}", of.0, over.0)]
    Detour {
        /// The interface.
        of: Port,
        /// The detour.
        over: Port,
    },
    /// A detour begins with an interface that has no key, so that no router is at its other end.
    #[error("interface {}: a detour leads over it, so it needs the key that it shares with the router at its other end", of.0)]
    Key {
        /// The interface.
        of: Port,
    },
}

impl Interface {
    /// An interface with the paper's thresholds: S_high is the cache but for what arrives in a round trip, or half of it if that
    /// is more, and S_low half of that.
    pub fn new(rate: Rate, buffer: Span, cache: Bytes, rtt: Span, key: Option<Key>, nonce: Nonce) -> Interface {
        let high = (cache - rate.bytes_in(rtt)).max(Bytes::new(cache.get() / 2));
        let low = Bytes::new(high.get() / 2);
        let others = rate.bytes_in(buffer);
        let reserved = Bytes::default();
        Interface { rate, buffer, cache, high, low, reserved, others, key, nonce, detours: Vec::new() }
    }

    /// The least buffer before a link, that of ten packets of this length: with less, what shares a link with a detour meets its
    /// packets and looks like overload.
    pub fn least_buffer(rate: Rate, packet: u64) -> Span {
        rate.time_for(Bytes::new(10 * packet))
    }

    /// With limits: all of the cache may be promised, but for what neighbours' detours may bring while they ask for some. That has no
    /// limit here, and comes until their routers decide again. Returns how much that is.
    pub fn keep_room(&mut self, decides: Span) -> Bytes {
        self.high = self.cache;
        self.low = Bytes::new(self.high.get() / 2);
        self.reserved = self.rate.bytes_in(decides).min(Bytes::new(self.cache.get() / 2));
        self.reserved
    }
}

/// What arrives at most while a router asks those before it to slow down: a cache with so much room above S_high loses
/// nothing.
///
/// `inputs` are the capacity of each link from which data may come, its one-way delay, and the longest time between two
/// ACKs that go back over it; `drain` is the capacity of the link behind the cache. Each input sends on for the time that
/// an ACK waits to be sent, travels, and what is in flight travels: C·(2·delay + time between ACKs). The wait is the longest, as
/// the first ACK may find its link free. The delay is that from the sender where routers between store nothing, since these gate
/// only what names the interface; what routers further up have stored names nothing and comes in addition: add it.
pub fn custody_margin(inputs: &[(Rate, Span, Span)], drain: Rate) -> Bytes {
    let longest = inputs.iter().map(|(_, delay, acks)| delay.as_nanos() * 2 + acks.as_nanos()).max().unwrap_or(0);
    let arrives = inputs.iter().fold(Bytes::default(), |sum, (rate, delay, acks)| {
        sum + rate.bytes_in(Span::from_nanos(delay.as_nanos() * 2 + acks.as_nanos()))
    });
    let leaves = drain.bytes_in(Span::from_nanos(longest));
    arrives - leaves
}

/// What a data packet states of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Its flow.
    pub flow: u64,
    /// Its length in bytes on the link.
    pub len: u32,
    /// The packets of its flow up to it and with it, as limits count them.
    pub end: u32,
    /// The interfaces that its sender knows to press back.
    pub nonces: Nonces,
    /// Whether it is on a detour already.
    pub detoured: bool,
}

/// What becomes of a data packet that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on over its own next hop.
    Forward,
    /// It goes over this interface, around its own next hop's link.
    Detour(Port),
    /// The router keeps it.
    Hold,
    /// The cache is full.
    Drop,
}

/// What a router asks a neighbour on a detour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who asks.
    pub from: RouterId,
    /// For the detour around which of its interfaces.
    pub of: Port,
    /// Whether it has packets to send around.
    pub wants: bool,
}

/// The answer to a [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// For the detour around which interface of the router that asked.
    pub of: Port,
    /// Whether the interface behind the detour takes all that comes.
    pub push: bool,
    /// By how much the router may raise its rate, in bytes per T_p (Δ⁺); with [`Preset::Ns3`] above what it uses, and negative
    /// where there is too much.
    pub raise: f64,
    /// By what share it must lower its rate, from 0 to 1 (Δ⁻).
    pub cut: f64,
}

/// What a router needs of the node that it runs in.
pub trait Egress {
    /// When the interface will have sent all that was handed to it.
    fn free_at(&self, port: Port) -> Time;

    /// Sends a packet that was held, by its own next hop's interface, or around it; it carries what the router writes on it.
    fn send(&mut self, packet: Handle, way: Way, said: Option<Notification>);

    /// With limits: sends a window update, an ACK of the router's own that repeats the flow's last one but for its limit.
    fn update(&mut self, flow: u64, ack: &LimitFields);

    /// Drops a packet that was held.
    fn discard(&mut self, packet: Handle, why: Loss);

    /// The interface of a held packet's next hop now; `None`: there is none.
    fn next_hop(&mut self, packet: Handle) -> Option<Port>;

    /// Sends a probe around interface `probe.of` over the neighbour at `over`, for that neighbour's interface to the next hop.
    fn probe(&mut self, over: Port, probe: Probe);
}

/// Why a packet that was held is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Routing leads nowhere any more.
    NoRoute,
    /// Routing leads to an interface whose cache is full.
    CacheFull,
    /// Its flow has stored most in a cache that is full.
    FairPart,
}

/// How a held packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the interface of its own next hop.
    Direct(Port),
    /// Over this interface, around its own next hop's link.
    Detour(Port),
}
