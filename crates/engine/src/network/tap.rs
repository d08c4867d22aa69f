//! Copies of the packets that cross some arcs.

use sidestep_net::{ArcId, Time};
use sidestep_proto::packet::{Flags, Packet};

use super::{Network, PackedPacket, packed::MARKED};

/// What is copied as it arrives.
#[derive(Debug)]
pub(super) struct Tap {
    /// Whether of each arc.
    arcs: Vec<bool>,
    copies: Vec<Copied>,
}

/// A packet that arrived at the far end of an arc that is watched.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// When.
    pub time: Time,
    /// Of which arc.
    pub arc: ArcId,
    /// Bytes of encapsulation there.
    pub extra: u16,
    /// It, with the marks that it has so far.
    pub packet: Packet,
}

impl Network {
    /// Copies every packet that crosses one of `arcs`, for [`take_copies`](Self::take_copies).
    pub fn watch(&mut self, arcs: &[ArcId]) {
        let mut watched = vec![false; self.arcs.len()];
        for arc in arcs {
            watched[arc.index()] = true;
        }
        self.tap = Some(Box::new(Tap { arcs: watched, copies: Vec::new() }));
        self.plain = self.is_plain();
    }

    /// The packets copied since this was called last, in the order of their arrival.
    pub fn take_copies(&mut self) -> Vec<Copied> {
        self.tap.as_mut().map(|tap| std::mem::take(&mut tap.copies)).unwrap_or_default()
    }

    #[inline]
    pub(super) fn copy(&mut self, now: u64, arc: usize, carried: PackedPacket) {
        let Some(tap) = self.tap.as_mut().filter(|tap| tap.arcs[arc]) else { return };
        let mut packet = self.packets[carried.packet as usize];
        packet.flags = packet.flags.with(Flags::when(carried.word() & MARKED != 0, Flags::CE));
        let extra = self.hops[carried.hop as usize].extra() as u16;
        tap.copies.push(Copied { time: Time::from_nanos(now), arc: ArcId(arc as u32), extra, packet });
    }
}
