//! Detours: how much a neighbour's link can take in addition to its own load, and what a router sends around by it.
//!
//! The neighbour measures its link over intervals of T_p. What it has to share in an interval is
//! SC = α·T_p·RB − β·Q bytes, where RB is the residual bandwidth in bytes a second, C − L, and Q the queue in bytes. Of N routers
//! that want capacity each may raise its rate by Δ⁺ = SC/N bytes per T_p; a negative SC makes each lower it by the share
//! Δ⁻ = |SC|/(L·T_p), where L is the load in bytes a second. So r ← r + Δ⁺/T_p − r·Δ⁻.
//!
//! These are equations (1) to (3) of Rene and others, "A Congestion Control Framework Based on In-Network Resource
//! Pooling", 2021, section III-B, after Kandula and others' TeXCP. As printed, Δ⁺ is not divided by T_p nor L
//! multiplied by it; so are the units right. Without an answer from the neighbour two routers take the same spare rate,
//! overload the link, leave it, and return.

use std::f64::consts::SQRT_2;

use sidestep_net::{Bytes, Rate, Span, Time};

use super::{Config, Grant, Port, RouterId};
use crate::Preset;

/// The weight of an interval in the average of the load: that of a mean over five intervals (the paper's section
/// III-B), with the usual 2/(n + 1). A single interval would let a burst of packets pass for load.
const WEIGHT: f64 = 2.0 / 6.0;
/// After this number of intervals without news the link counts as idle: our choice, as by then the average has forgotten all.
const MAX_IDLE_INTERVALS: u32 = 100;
/// Routers that ask for the same link; others share what these leave. Our choice, which bounds memory: no router has so
/// many neighbours.
const MAX_ROUTERS: usize = 256;

/// What a router knows of the load of one of its links.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    /// Bytes a second.
    capacity: f64,
    /// The end of this interval, and the bytes that were sent in it.
    ends: Time,
    sent: u64,
    load: f64,
    /// The load of the last interval alone.
    last: f64,
    /// SC of the last interval.
    spare: f64,
    /// Who asked for the link, and when last.
    askers: Vec<(RouterId, Time)>,
}

impl Meter {
    pub(super) fn new(config: &Config, rate: Rate) -> Meter {
        let capacity = rate.bits_per_sec() as f64 / 8.0;
        Meter {
            capacity,
            ends: Time::ZERO + config.probe_interval,
            sent: 0,
            load: 0.0,
            last: 0.0,
            spare: 0.0,
            askers: Vec::new(),
        }
    }

    pub(super) fn set_capacity(&mut self, rate: Rate) {
        self.capacity = rate.bits_per_sec() as f64 / 8.0;
    }

    /// A packet is handed to the link.
    pub(super) fn sent(&mut self, len: u32) {
        self.sent += u64::from(len);
    }

    /// Ends the intervals that are over; `queue` are the bytes that wait now, without the packet that is being sent.
    pub(super) fn advance(&mut self, config: &Config, now: Time, queue: Bytes) {
        let interval = config.probe_interval;
        let mut ended = 0;
        while self.ends <= now {
            if ended == MAX_IDLE_INTERVALS {
                self.ends = now + interval;
                break;
            }
            ended += 1;
            let load = std::mem::take(&mut self.sent) as f64 / interval.as_secs_f64();
            self.load = match config.preset {
                Preset::Text => self.load + WEIGHT * (load - self.load),
                Preset::Ns3 => 0.6 * load + 0.4 * (load + self.last) / 2.0,
            };
            self.last = load;
            self.ends += interval;
        }
        if ended > 0 {
            // Section III-B, below equation (3): with β = α²√2 and α below π/(4√2) rates do not swing for ever.
            let beta = config.alpha * config.alpha * SQRT_2;
            let residual = interval.as_secs_f64() * (self.capacity - self.load);
            self.spare = match config.preset {
                Preset::Text => config.alpha * residual - beta * queue.get() as f64,
                Preset::Ns3 => residual,
            };
        }
    }

    /// What one of the routers that ask may do, after [`advance`](Self::advance): equation (2). Equal parts are added
    /// and equal shares taken off, so that rates become equal, as windows do under Reno.
    pub(super) fn grant(
        &mut self,
        config: &Config,
        now: Time,
        from: RouterId,
        wants: bool,
        of: Port,
        push: bool,
    ) -> Grant {
        self.askers.retain(|(router, at)| *router != from && now.since(*at) < config.decision_interval);
        if wants && self.askers.len() < MAX_ROUTERS {
            self.askers.push((from, now));
        }
        let interval = config.probe_interval.as_secs_f64();
        let sharers = self.askers.len().max(1) as f64;
        if config.preset == Preset::Ns3 {
            return Grant { of, push, raise: self.spare / sharers, cut: 0.0 };
        }
        let raise = if wants { self.spare.max(0.0) / sharers } else { 0.0 };
        let carried = self.load * interval;
        let cut = if self.spare >= 0.0 {
            0.0
        } else if carried > 0.0 {
            (-self.spare / carried).min(1.0)
        } else {
            1.0
        };
        Grant { of, push, raise, cut }
    }
}

/// A detour, as the router that uses it knows it.
#[derive(Clone, Debug)]
pub(super) struct Detour {
    pub(super) over: Port,
    /// Bytes a second.
    rate: f64,
    /// Whether the interface behind the neighbour takes all that comes.
    push: bool,
    answered: Option<Time>,
    pub(super) used: bool,
    tokens: f64,
    filled: Time,
    /// Bytes that it has carried since it was answered last.
    carried: f64,
}

/// Most bytes that a detour that was not used may send at once: two packets, our choice. With less a packet would wait
/// for the one before; more would fill the neighbour's buffer, from where it cannot be sent around.
const BURST: f64 = 3_000.0;

impl Detour {
    pub(super) fn new(over: Port) -> Detour {
        Detour {
            over,
            rate: 0.0,
            push: false,
            answered: None,
            used: false,
            tokens: 0.0,
            filled: Time::ZERO,
            carried: 0.0,
        }
    }

    /// The neighbour has answered; `own` is what the first link of the detour grants. Equation (3), with the lesser
    /// raise and the larger cut of the two links (section III-A).
    pub(super) fn handle_grant(&mut self, config: &Config, now: Time, capacity: f64, grant: Grant, own: Grant) {
        self.fill(now);
        let before = self.answered.replace(now);
        self.push = grant.push;
        let carried = std::mem::take(&mut self.carried);
        let interval = config.probe_interval.as_secs_f64();
        if config.preset == Preset::Ns3 {
            let passed = before.map_or(interval, |before| now.since(before).as_secs_f64().max(interval / 2.0));
            let spare = grant.raise.min(own.raise);
            let spare = if spare.is_finite() { spare } else { 0.0 };
            self.rate = (carried / passed + spare / interval).clamp(0.0, capacity);
            return;
        }
        let (raise, cut) = (grant.raise.min(own.raise), grant.cut.max(own.cut));
        let (raise, cut) = (if raise.is_finite() { raise.max(0.0) } else { 0.0 }, cut.clamp(0.0, 1.0));
        self.rate = (self.rate + raise / interval - self.rate * cut).clamp(0.0, capacity);
    }

    /// Whether the neighbour has ever answered since packets are stored.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.is_some()
    }

    /// Decides whether it is used until the next decision: `own` is whether its first interface takes all that comes.
    /// Section III-A: both links must be in push, or detours would only move packets to another cache. T_d is at
    /// least 5·T_p there, so that a decision rests on more than one answer.
    pub(super) fn decide(&mut self, config: &Config, now: Time, own: bool) {
        self.fill(now);
        let fresh = self.answered.is_some_and(|at| now.since(at) < config.decision_interval);
        self.used = own && self.push && fresh;
        if !self.used {
            (self.rate, self.tokens) = (0.0, 0.0);
        }
    }

    /// Takes the right to send `len` bytes now; returns whether there was one.
    pub(super) fn take(&mut self, now: Time, len: u32) -> bool {
        self.fill(now);
        let may = self.used && self.tokens >= f64::from(len);
        if may {
            self.tokens -= f64::from(len);
            self.carried += f64::from(len);
        }
        may
    }

    /// Sends `len` bytes, for which it was [ready](Self::ready); a packet may be longer than was thought.
    pub(super) fn spend(&mut self, now: Time, len: u32) {
        self.fill(now);
        self.tokens -= f64::from(len);
        self.carried += f64::from(len);
    }

    /// When a packet of `len` bytes may be sent; `None`: not before the rate rises.
    pub(super) fn ready(&self, len: u32) -> Option<Time> {
        let lacks = (f64::from(len) - self.tokens).max(0.0);
        (self.used && self.rate >= 1.0)
            .then(|| self.filled + Span::from_nanos((lacks / self.rate * 1e9).min(1e12) as u64 + 1))
    }

    fn fill(&mut self, now: Time) {
        // A millisecond's worth, our choice: a driver that wakes that late loses none of the rate.
        let burst = BURST.max(self.rate * 1e-3);
        self.tokens = (self.tokens + self.rate * now.since(self.filled).as_secs_f64()).min(burst);
        self.filled = now;
    }

    /// Bytes a second that it may carry.
    pub(super) fn rate(&self) -> f64 {
        if self.used { self.rate } else { 0.0 }
    }
}
