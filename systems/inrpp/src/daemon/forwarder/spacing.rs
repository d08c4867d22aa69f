//! Connections whose window scales are not known, as their SYNs passed before the router worked or by another path: their ACKs
//! are spaced.
//!
//! A window that nobody can read cannot be lowered. While data of such a connection wait here, its ACKs go on no faster than the
//! data could leave at an equal part of the link, and its sender, which is clocked by them, follows.

use std::collections::VecDeque;

use sidestep_net::{Bytes, Rate, Span, Time};

use super::{
    super::{shim::Flags, slots::SlotNote},
    Forwarder,
    out::{Leaving, emit},
};
use crate::{Handle, Port};

/// An ACK waits no longer: TCP's least timeout is 200 ms.
const MAX_WAIT: Span = Span::from_millis(100);
/// ACKs that wait; further ones leave at once.
const MAX_WAITING: usize = 4_096;

/// The ACKs that wait, and of each connection when the next may leave.
#[derive(Debug, Default)]
pub(super) struct Spacing {
    waiting: VecDeque<(Time, Handle)>,
    spaced: u64,
}

impl Spacing {
    /// When the first may leave.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// ACKs that have waited.
    pub(super) fn spaced(&self) -> u64 {
        self.spaced
    }
}

impl Forwarder {
    /// Until when an ACK is to wait that acknowledges data which leave by `port`: as long as these would take at an equal part of
    /// the link, while data of the flow wait there. `None`: it may leave now.
    pub(super) fn spacing(&mut self, now: Time, port: Port, flow: u64) -> Option<Time> {
        let held = self.router.occupancy_of(port, flow);
        let flows = self.router.stored(port).count().max(1) as u64;
        let rate = self.ports.get(usize::from(port.0))?.rate.bits_per_sec() / flows;
        let half = self.connections.half_of(flow)?;
        let (next, before) = half.spaced;
        let acked = Bytes::new(half.acked().saturating_sub(before));
        half.spaced.1 = half.acked();
        if held == Bytes::default() && next <= now {
            return None;
        }
        let takes = Rate::from_bits_per_sec(rate.max(1)).time_for(acked);
        let until = (next.max(now) + takes).min(now + MAX_WAIT);
        half.spaced.0 = until;
        Some(until)
    }

    /// Lets an ACK wait; returns false if there is no room.
    pub(super) fn hold_ack(&mut self, until: Time, at: Port, partial: bool, packet: &[u8]) -> bool {
        if self.acks.waiting.len() >= MAX_WAITING {
            return false;
        }
        let Some(handle) = self.slots.reserve() else { return false };
        if !self.slots.fill(handle, &[packet]) {
            self.slots.free(handle);
            return false;
        }
        if let Some(note) = self.slots.note_mut(handle) {
            *note = SlotNote { port: at, partial, ..SlotNote::default() };
        }
        let place = self.acks.waiting.partition_point(|(at, _)| *at <= until);
        self.acks.waiting.insert(place, (until, handle));
        self.acks.spaced += 1;
        true
    }

    /// Sends the ACKs whose time has come.
    pub(super) fn release_acks(&mut self, now: Time) {
        while self.acks.poll_timeout().is_some_and(|at| at <= now)
            && let Some((_, handle)) = self.acks.waiting.pop_front()
        {
            let note = self.slots.note(handle);
            let flags = Flags { partial: note.partial, ..Flags::default() };
            let packet = self.slots.packet(handle);
            emit(&mut self.ports, now, note.port, Leaving { flags, next: None }, packet, &[]);
            self.slots.free(handle);
        }
    }
}
