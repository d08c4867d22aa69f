//! Changes of a link's channel, and what they do to the packets that it holds.

use std::collections::VecDeque;

use rand_core::Rng;
use sidestep_net::{BurstLoss, Bytes, Channel, Span, Time};

use super::{Burst, DropReason, Early, LinkModel, RedState, Verdict, byte_time};

impl LinkModel {
    /// Changes rate, delay, queue and loss at `now`, also for the packets that have not left the transmitter.
    ///
    /// `carried` has the arrivals of all packets that were accepted and are due after `now`, in order; each is replaced by the
    /// arrival that the driver must use instead, or by `None` if the packet is lost. As on a real link:
    ///
    /// - What is left of the packet in transmission, and all that waits, goes at the new rate. So a link never carries more
    ///   than its rate over time, however often that changes.
    /// - The delay is that which holds when a packet's last bit leaves. What propagates keeps its arrival, and nothing
    ///   overtakes it.
    /// - Losses occur on the medium: those that wait meet the new ones. Where there are fewer, what was lost stays lost.
    /// - Limits, ECN thresholds and RED look at packets that arrive: what waits stays, even beyond a new limit, and keeps its
    ///   mark. RED and burst losses that do not change keep their state.
    pub fn set_channel(&mut self, now: Time, channel: &Channel, carried: &mut [Option<Time>]) {
        self.advance(now);
        let before = Losses { below: self.loss_below, burst: self.burst() };
        let old_byte_time = self.byte_time;
        self.apply(channel);
        if self.free_at <= now {
            self.lost = None;
            return;
        }
        let was_lost = self.take_lost(now);
        self.reschedule(now, old_byte_time);
        let delivered = was_lost.iter().filter(|lost| !**lost).count();
        let (left, held) = carried.split_at_mut(carried.len().saturating_sub(delivered));
        let mut last = left.iter().copied().flatten().next_back().unwrap_or(now);
        let mut held = held.iter_mut();
        for (index, was_lost) in was_lost.into_iter().enumerate() {
            // The first is in transmission, and the others wait behind it.
            let waiting = index.checked_sub(1).and_then(|index| self.queue.get(index)).copied();
            let ends = self.queue.get(index).map_or(self.free_at, |next| next.begins);
            let lost = was_lost || waiting.is_some_and(|_| self.meets_new_losses(before));
            if lost {
                self.lost.get_or_insert_default().push_back(ends);
            }
            let Some(arrival) = (!was_lost).then(|| held.next()).flatten() else { continue };
            *arrival = None;
            if !lost {
                last = last.max(ends + self.delay);
                *arrival = Some(last);
            } else if let Some(waiting) = waiting {
                self.counters.packets = self.counters.packets.saturating_sub(1);
                self.counters.bytes = self.counters.bytes - Bytes::new(u64::from(waiting.len));
                self.counters.drops.random_loss += 1;
            }
        }
        self.last_delivery = last;
    }

    /// Takes over the settings of `channel`.
    pub(super) fn apply(&mut self, channel: &Channel) {
        self.byte_time = byte_time(channel.rate);
        self.delay = channel.delay;
        self.limit = channel.queue.limit;
        self.ecn_threshold = channel.queue.ecn_threshold;
        self.loss_below = (u64::from(channel.loss.ppb()) << 32) / 1_000_000_000;
        let (red, burst) = (channel.queue.red, channel.burst_loss);
        let early = self.early.take().map(|early| *early).unwrap_or_default();
        self.early = (red.is_some() || burst.is_some()).then(|| {
            let red = red.map(|red| early.red.filter(|state| state.has(&red)).unwrap_or_else(|| RedState::new(red)));
            let burst =
                burst.map(|loss| early.burst.filter(|state| state.has(&loss)).unwrap_or_else(|| Burst::new(loss)));
            Box::new(Early { red, burst })
        });
    }

    /// Loses a packet that has just been given its transmission.
    #[cold]
    pub(super) fn lose(&mut self, now: Time) -> Verdict {
        let lost = self.lost.get_or_insert_default();
        while lost.front().is_some_and(|ends| *ends <= now) {
            lost.pop_front();
        }
        lost.push_back(self.free_at);
        self.drop_packet(DropReason::RandomLoss)
    }

    /// Of the packet in transmission and of those that wait, whether each was lost on arrival; forgets these.
    fn take_lost(&mut self, now: Time) -> Vec<bool> {
        let mut lost: VecDeque<Time> = self.lost.take().map(|lost| *lost).unwrap_or_default();
        lost.retain(|ends| *ends > now);
        let begins = self.queue.iter().map(|waiting| waiting.begins);
        let mut is_lost = |ends| lost.front() == Some(&ends) && lost.pop_front().is_some();
        begins.chain([self.free_at]).map(&mut is_lost).collect()
    }

    /// Gives what has not been sent yet its transmission times at the present rate.
    fn reschedule(&mut self, now: Time, old_byte_time: u64) {
        let first_ends = self.queue.front().map_or(self.free_at, |next| next.begins);
        let rest = u128::from(first_ends.since(now).as_nanos());
        // In units of 2⁻³² bytes, and from here on of 2⁻³² ns.
        let bytes = (rest << 64) / u128::from(old_byte_time.max(1));
        let mut time = (bytes * u128::from(self.byte_time)) >> 32;
        let at = |time: u128| now + Span::from_nanos((time >> 32) as u64);
        for waiting in &mut self.queue {
            waiting.begins = at(time);
            time += u128::from(waiting.len) * u128::from(self.byte_time);
        }
        self.free_at = at(time);
        self.free_at_rest = time as u32;
    }

    /// Whether a packet that the former losses have spared meets one of the present losses.
    fn meets_new_losses(&mut self, before: Losses) -> bool {
        // Of those spared before, as many as are missing to the new share.
        let (more, spared) = (self.loss_below.saturating_sub(before.below), (1u64 << 32) - before.below.min(1 << 32));
        if more > 0 && u128::from(self.rng.next_u32()) * u128::from(spared) < u128::from(more) << 32 {
            return true;
        }
        self.burst() != before.burst && self.lose_in_burst()
    }

    fn burst(&self) -> Option<BurstLoss> {
        self.early.as_ref().and_then(|early| early.burst.as_ref()).map(Burst::loss)
    }
}

/// The losses that a channel has.
#[derive(Clone, Copy)]
struct Losses {
    below: u64,
    burst: Option<BurstLoss>,
}
