//! The states of an interface.

use sidestep_net::{Bytes, Time};

use super::{
    Config, Counters, Interface, Nonce, Nonces,
    cache::Cache,
    detour::{Detour, Meter},
    nonces::SeenNonces,
};
use crate::{AckProcessing, Backpressure};

/// What an interface does with packets for which its buffer has no room (the paper's Fig. 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// There are none: its cache is empty.
    #[default]
    Push,
    /// It stores them, and sends them around where it can.
    StoreAndDetour,
    /// It also asks those before it to slow down.
    Backpressure,
    /// It notifies them that they need not any more.
    DisableBackpressure,
}

impl State {
    /// The name in results.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Push => "push",
            State::StoreAndDetour => "store-and-detour",
            State::Backpressure => "backpressure",
            State::DisableBackpressure => "disable-backpressure",
        }
    }
}

/// An interface and what it holds.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) is: Interface,
    pub(super) state: State,
    /// When [`State::DisableBackpressure`] ends.
    until: Time,
    pub(super) cache: Cache,
    pub(super) heard: SeenNonces,
    pub(super) meter: Meter,
    pub(super) detours: Vec<Detour>,
    /// When its detours are probed and decided on next; [`Time::MAX`]: not now.
    pub(super) probes: Time,
    pub(super) decides: Time,
    /// When nonces and gates are looked at next.
    pub(super) sweeps: Time,
    /// Until when neighbours' detours may bring something.
    asked: Time,
    /// When a packet of the cache may leave next.
    pub(super) drains: Time,
    pub(super) counters: Counters,
}

impl Port {
    pub(super) fn new(config: &Config, is: Interface) -> Port {
        Port {
            state: State::Push,
            until: Time::MAX,
            cache: Cache::default(),
            heard: SeenNonces::default(),
            meter: Meter::new(config, is.rate),
            detours: is.detours.iter().map(|over| Detour::new(*over)).collect(),
            probes: Time::MAX,
            decides: Time::MAX,
            sweeps: Time::MAX,
            asked: Time::ZERO,
            drains: Time::MAX,
            counters: Counters::default(),
            is,
        }
    }

    /// Follows Fig. 3 to the state that the occupancy of the cache asks for. Section II-A: between S_low and S_high it
    /// stays, so that those before do not receive one notice and then the other with each packet.
    pub(super) fn update(&mut self, config: &Config, now: Time) {
        if config.ack_processing == AckProcessing::Printed && self.state >= State::Backpressure {
            return;
        }
        let occupancy = self.cache.occupancy();
        if config.backpressure == Backpressure::Limits {
            return self.update_with_limits(config, now);
        }
        loop {
            let next = match self.state {
                State::Push if occupancy > Bytes::default() => State::StoreAndDetour,
                State::StoreAndDetour if occupancy == Bytes::default() => State::Push,
                State::StoreAndDetour | State::DisableBackpressure
                    if occupancy > self.is.high && config.ack_processing == AckProcessing::Figure =>
                {
                    State::Backpressure
                }
                State::Backpressure if occupancy < self.is.low => State::DisableBackpressure,
                State::DisableBackpressure if now >= self.until => State::StoreAndDetour,
                _ => break,
            };
            // Algorithm 1, line 5: the paper gives no time. After a notification's own no router waits for the *cancel*
            // any more.
            self.until = if next == State::DisableBackpressure { now + config.expiry } else { Time::MAX };
            self.enter(config, now, next);
        }
    }

    /// Sets with which interfaces its detours begin; those that it had keep their rates.
    pub(super) fn set_detours(&mut self, config: &Config, now: Time, over: Vec<crate::Port>) {
        let had = std::mem::take(&mut self.detours);
        let of = |over: &crate::Port| had.iter().find(|detour| detour.over == *over).cloned();
        self.detours = over.iter().map(|over| of(over).unwrap_or_else(|| Detour::new(*over))).collect();
        self.is.detours = over;
        if self.detours.is_empty() {
            (self.probes, self.decides) = (Time::MAX, Time::MAX);
        } else if self.state != State::Push && self.probes == Time::MAX {
            (self.probes, self.decides) = (now, now + config.decision_interval);
        }
    }

    /// With limits, what flows may have here: what they store, and what may come of them.
    pub(super) fn room(&self, now: Time) -> Bytes {
        if now < self.asked { self.is.high - self.is.reserved } else { self.is.high }
    }

    /// A neighbour asks for a detour over its link. Returns whether it takes all that comes: nothing waits, and with limits there is
    /// room for what a detour brings until its router decides again.
    pub(super) fn is_asked(&mut self, config: &Config, now: Time) -> bool {
        self.asked = now + config.decision_interval + config.probe_interval;
        let has_room = config.backpressure != Backpressure::Limits || self.cache.committed() <= self.room(now);
        self.state == State::Push && has_room
    }

    /// With limits it presses back when most of what it may hold is taken or promised.
    fn update_with_limits(&mut self, config: &Config, now: Time) {
        let (high, committed) = (self.room(now).get(), self.cache.committed());
        let next = match self.state {
            _ if self.cache.occupancy() == Bytes::default() => State::Push,
            _ if committed.get() > high - high / 8 => State::Backpressure,
            State::Backpressure if committed >= self.is.low => State::Backpressure,
            _ => State::StoreAndDetour,
        };
        if next != self.state {
            self.enter(config, now, next);
        }
    }

    /// Algorithm 1 as it is printed, lines 2 to 11: the state that an ACK brings about.
    pub(super) fn update_as_printed(&mut self, config: &Config, now: Time) {
        let occupancy = self.cache.occupancy();
        let next = if occupancy > self.is.high {
            State::Backpressure
        } else if occupancy < self.is.low && self.state == State::Backpressure {
            State::DisableBackpressure
        } else if self.state >= State::Backpressure {
            State::StoreAndDetour
        } else {
            return;
        };
        self.enter(config, now, next);
    }

    fn enter(&mut self, config: &Config, now: Time, next: State) {
        let begins = self.state == State::Push;
        self.state = next;
        if next == State::Push {
            (self.probes, self.decides) = (Time::MAX, Time::MAX);
            for detour in &mut self.detours {
                *detour = Detour::new(detour.over);
            }
        } else if begins && !self.detours.is_empty() {
            // The first probe goes at once: a burst may be over after T_p.
            (self.probes, self.decides) = (now, now + config.decision_interval);
        }
    }

    /// When [`State::DisableBackpressure`] ends; [`Time::MAX`] in other states.
    pub(super) fn ends(&self) -> Time {
        self.until
    }

    /// The interface after this one for which packets that name these nonces are gated.
    pub(super) fn gate(&self, nonces: Nonces) -> Option<Nonce> {
        if self.heard.is_empty() {
            return None;
        }
        nonces.iter().find(|nonce| self.heard.contains(*nonce))
    }
}
