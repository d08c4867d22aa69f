//! One direction of a link: a drop-tail queue with ECN marking, a transmitter, a delay, losses and outages.
//!
//! In a queue that is served first in, first out at a known rate, no packet waits for a later one. So the fate of a
//! packet is known when it arrives. [`LinkModel`] therefore decides at once and never stores the packet: the driver
//! keeps it, and delivers it when the [`Verdict`] requires it. Only where the link itself changes are fates
//! [revised](LinkModel::set_channel).

mod change;
mod early;

use std::collections::VecDeque;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
pub use sidestep_net::LinkState;
use sidestep_net::{Bytes, Channel, QueueLimit, Rate, Span, Time};

use self::early::{Burst, RedState};

/// The state of one direction of a link: its settings, its queue and its counters.
#[derive(Clone, Debug)]
pub struct LinkModel {
    /// When the transmitter has sent everything accepted so far, and the fraction of a nanosecond beyond that, in units
    /// of 2⁻³² ns. Without the fraction a fast link would lose capacity to rounding.
    free_at: Time,
    free_at_rest: u32,
    state: LinkState,
    /// Nanoseconds that a byte takes, in units of 2⁻³² ns; zero: none. A multiplication is much faster than a division.
    byte_time: u64,
    delay: Span,
    /// When the last accepted packet is delivered; no later packet overtakes it.
    last_delivery: Time,
    limit: QueueLimit,
    ecn_threshold: Option<QueueLimit>,
    /// A draw of 32 bits below this is a random loss.
    loss_below: u64,
    /// The packets whose transmission had not begun when last looked at.
    queue: VecDeque<Waiting>,
    queued: Bytes,
    counters: Counters,
    rng: Pcg32,
    epoch: u32,
    /// RED and burst losses, which few links have.
    early: Option<Box<Early>>,
    /// When the transmissions end of the packets lost at random, where that may be to come: the driver has none of them.
    #[expect(clippy::box_collection, reason = "few links lose packets, and a pointer is a quarter of an empty queue")]
    lost: Option<Box<VecDeque<Time>>>,
}

#[derive(Clone, Debug, Default)]
struct Early {
    red: Option<RedState>,
    burst: Option<Burst>,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It arrives at the far end, unless the link goes [`LinkState::Down`] before that.
    Deliver {
        /// When its last bit arrives.
        at: Time,
        /// Whether it arrives marked "congestion experienced" (RFC 3168).
        mark_ce: bool,
    },
    /// It never arrives.
    Drop(DropReason),
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue had no room for it, or RED dropped it.
    QueueFull,
    /// It was lost at random on the medium, after it had taken its place in the queue and its transmission time.
    RandomLoss,
    /// The link was down, or went down before the packet was delivered.
    Down,
    /// The link swallowed it while pretending to be up.
    Blackhole,
}

/// The counters of a link since it was made; every packet offered is in exactly one of `packets` and `drops`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets delivered or in flight.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: Bytes,
    /// How many of them are marked CE.
    pub ce_marked: u64,
    /// Packets dropped.
    pub drops: Drops,
    /// Most packets ever in the queue.
    pub max_queue_packets: u32,
    /// Most bytes ever in the queue.
    pub max_queue_bytes: Bytes,
}

/// Packets dropped, by [`DropReason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// [`DropReason::QueueFull`].
    pub queue_full: u64,
    /// [`DropReason::RandomLoss`].
    pub random_loss: u64,
    /// [`DropReason::Down`].
    pub down: u64,
    /// [`DropReason::Blackhole`].
    pub blackhole: u64,
}

/// A packet in the queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When its transmission begins.
    begins: Time,
    len: u32,
}

impl LinkModel {
    /// An idle link that is up; its random losses follow from `seed` and `stream`, one stream per direction.
    pub fn new(channel: &Channel, seed: u64, stream: u64) -> Self {
        // An odd constant spreads neighbouring streams over the seed space (Knuth's multiplicative hash).
        let seed = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut model = LinkModel {
            byte_time: 0,
            delay: Span::ZERO,
            limit: channel.queue.limit,
            ecn_threshold: None,
            loss_below: 0,
            state: LinkState::Up,
            rng: Pcg32::seed_from_u64(seed),
            free_at: Time::ZERO,
            free_at_rest: 0,
            last_delivery: Time::ZERO,
            queue: VecDeque::new(),
            queued: Bytes::default(),
            epoch: 0,
            early: None,
            lost: None,
            counters: Counters::default(),
        };
        model.apply(channel);
        model
    }

    /// Decides on an IP packet of `len` bytes that arrives at `now`; times never decrease from call to call.
    ///
    /// The ECN threshold is compared with the queue that the packet finds on arrival.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Time, len: u32, ecn_capable: bool) -> Verdict {
        match self.state {
            LinkState::Up => {}
            LinkState::Down => return self.drop_packet(DropReason::Down),
            LinkState::Blackhole => return self.drop_packet(DropReason::Blackhole),
        }
        self.advance(now);
        let waits = self.free_at > now;
        if waits && !self.has_room(len) {
            return self.drop_packet(DropReason::QueueFull);
        }
        let mut mark_ce = ecn_capable && self.ecn_threshold.is_some_and(|threshold| self.reaches(threshold));
        if self.early.is_some() && self.hit_early(now) {
            if !ecn_capable {
                return self.drop_packet(DropReason::QueueFull);
            }
            mark_ce = true;
        }
        if waits {
            self.queue.push_back(Waiting { begins: self.free_at, len });
            self.queued = self.queued + Bytes::new(u64::from(len));
            self.counters.max_queue_packets = self.counters.max_queue_packets.max(self.queue.len() as u32);
            self.counters.max_queue_bytes = self.counters.max_queue_bytes.max(self.queued);
        }
        self.transmit(now, len);
        if self.loss_below > 0 && u64::from(self.rng.next_u32()) < self.loss_below {
            return self.lose(now);
        }
        if self.early.is_some() && self.lose_in_burst() {
            return self.lose(now);
        }
        let at = (self.free_at + self.delay).max(self.last_delivery);
        self.last_delivery = at;
        self.counters.packets += 1;
        self.counters.bytes = self.counters.bytes + Bytes::new(u64::from(len));
        self.counters.ce_marked += u64::from(mark_ce);
        Verdict::Deliver { at, mark_ce }
    }

    /// Changes whether packets are carried, from `now` on.
    ///
    /// After [`LinkState::Down`] the driver must discard every packet whose delivery is due after `now`, and
    /// report each with [`discarded`](Self::discarded). A driver that cannot reach them keeps the
    /// [`epoch`](Self::epoch) beside each packet and discards those of an earlier one when they come due.
    pub fn set_state(&mut self, now: Time, state: LinkState) {
        if state == LinkState::Down && self.state != LinkState::Down {
            self.epoch = self.epoch.wrapping_add(1);
            self.queue.clear();
            self.queued = Bytes::default();
            self.lost = None;
            self.free_at = now;
            self.free_at_rest = 0;
            self.last_delivery = now;
        }
        self.state = state;
    }

    /// Moves an accepted packet of `len` bytes from the delivered to the dropped ones: an outage caught it.
    pub fn discarded(&mut self, len: u32) {
        self.counters.packets = self.counters.packets.saturating_sub(1);
        self.counters.bytes = self.counters.bytes - Bytes::new(u64::from(len));
        self.counters.drops.down += 1;
    }

    /// How many outages there have been; see [`set_state`](Self::set_state).
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether packets are carried.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// The propagation delay.
    pub fn delay(&self) -> Span {
        self.delay
    }

    /// Packets and bytes that wait at `now`; what is being transmitted does not count.
    pub fn occupancy(&mut self, now: Time) -> (u32, Bytes) {
        self.advance(now);
        (self.queue.len() as u32, self.queued)
    }

    /// When everything that was handed over will have been sent.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// What the link has done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Reads the state that [`enqueue`](Self::enqueue) will read, except the queue, so that a driver can prefetch it
    /// into the processor's cache. The result means nothing.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        self.free_at.as_nanos() ^ self.byte_time ^ self.loss_below ^ self.queued.get() ^ self.counters.packets
    }

    /// Reads the queue, so that a driver can prefetch it into the processor's cache before [`enqueue`](Self::enqueue).
    /// The result means nothing.
    #[inline(always)]
    pub fn read_queue(&self) -> u64 {
        let len = |waiting: Option<&Waiting>| waiting.map_or(0, |waiting| u64::from(waiting.len));
        len(self.queue.front()) ^ len(self.queue.back())
    }

    /// Whether RED hits the packet that arrives.
    fn hit_early(&mut self, now: Time) -> bool {
        let byte_time = self.byte_time as f64 / 4_294_967_296.0;
        let red = self.early.as_mut().and_then(|early| early.red.as_mut());
        red.is_some_and(|red| red.hits(now, self.queued, byte_time, &mut self.rng))
    }

    fn lose_in_burst(&mut self) -> bool {
        let burst = self.early.as_mut().and_then(|early| early.burst.as_mut());
        burst.is_some_and(|burst| burst.loses(&mut self.rng))
    }

    /// Forgets the packets whose transmission has begun.
    #[inline]
    fn advance(&mut self, now: Time) {
        if self.free_at <= now {
            // Restarts at the front of the memory, which is in the processor's cache.
            self.queue.clear();
            self.queued = Bytes::default();
            return;
        }
        while let Some(first) = self.queue.front() {
            if first.begins > now {
                break;
            }
            self.queued = self.queued - Bytes::new(u64::from(first.len));
            self.queue.pop_front();
        }
    }

    /// Whether the queue can take `len` more bytes.
    #[inline]
    fn has_room(&self, len: u32) -> bool {
        match self.limit {
            QueueLimit::Packets(limit) => self.queue.len() < limit as usize,
            QueueLimit::Bytes(limit) => self.queued + Bytes::new(u64::from(len)) <= limit,
        }
    }

    #[inline]
    fn reaches(&self, threshold: QueueLimit) -> bool {
        match threshold {
            QueueLimit::Packets(packets) => self.queue.len() >= packets as usize,
            QueueLimit::Bytes(bytes) => self.queued >= bytes,
        }
    }

    /// Keeps the transmitter busy with `len` bytes, from `now` or from when it is free.
    #[inline]
    fn transmit(&mut self, now: Time, len: u32) {
        if self.free_at <= now {
            // The fraction is below a nanosecond: a link that becomes free within this nanosecond counts as idle.
            self.free_at = now;
            self.free_at_rest = 0;
        }
        let time = u128::from(len) * u128::from(self.byte_time) + u128::from(self.free_at_rest);
        self.free_at += Span::from_nanos((time >> 32) as u64);
        self.free_at_rest = time as u32;
    }

    fn drop_packet(&mut self, reason: DropReason) -> Verdict {
        let drops = &mut self.counters.drops;
        match reason {
            DropReason::QueueFull => drops.queue_full += 1,
            DropReason::RandomLoss => drops.random_loss += 1,
            DropReason::Down => drops.down += 1,
            DropReason::Blackhole => drops.blackhole += 1,
        }
        Verdict::Drop(reason)
    }
}

/// Nanoseconds that a byte takes at `rate`, in units of 2⁻³² ns; zero where the rate is not limited.
///
/// Rounded up, so that no link is faster than its rate. At 100 Gbit/s the error is 3 parts in 10⁹.
fn byte_time(rate: Rate) -> u64 {
    let rate = u128::from(rate.bits_per_sec());
    if rate == 0 {
        return 0;
    }
    let time = (8_000_000_000u128 << 32).div_ceil(rate);
    u64::try_from(time).unwrap_or(u64::MAX)
}

impl Drops {
    /// The drops of all reasons together.
    pub fn total(&self) -> u64 {
        self.queue_full + self.random_loss + self.down + self.blackhole
    }

    /// The drops of each reason, with its name.
    pub fn by_cause(&self) -> [(&'static str, u64); 4] {
        let Drops { queue_full, random_loss, down, blackhole } = *self;
        [("queue full", queue_full), ("random loss", random_loss), ("link down", down), ("black hole", blackhole)]
    }
}

#[cfg(test)]
mod tests;
