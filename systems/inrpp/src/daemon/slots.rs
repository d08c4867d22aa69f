//! Packets that wait.
//!
//! Slots are of one size. Memory for them is taken in chunks, up to a limit, and is not given back: the kernel gives pages to
//! those that are written, and what was used last is used first.

use sidestep_net::Bytes;

use crate::{Handle, Port, RouterId};

/// Bytes before each packet, for the shim.
pub const FRONT: usize = 24;
/// A handle that is no slot's.
#[cfg(test)]
pub const NO_SLOT: Handle = Handle(u32::MAX);
/// The bytes of a chunk, unless one slot is longer.
const CHUNK: usize = 1 << 20;
/// Bits of a handle that are the slot's number. Those above count how often it was used, so that an old handle is not
/// taken for a new one.
const BITS: u32 = 24;
const MAX_SLOTS: usize = (1 << BITS) - 1;
const NONE: u32 = u32::MAX;

/// Memory for packets that wait.
///
/// A handle that is not in use is no slot's: its packet is empty, and what is done to it is ignored and counted.
#[derive(Debug)]
pub struct Slots {
    chunks: Vec<Box<[u8]>>,
    slots: Vec<Slot>,
    free: u32,
    /// Bytes of a slot, and slots of a chunk.
    size: usize,
    per_chunk: usize,
    max: usize,
    used: usize,
    peak: usize,
    misused: u64,
}

/// What is to be known of a packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotNote {
    /// The interface of its own next hop.
    pub port: Port,
    /// Its flow, as the core knows it.
    pub flow: u64,
    /// Its first byte in its flow, and the end of its last.
    pub start: u64,
    /// See [`start`](Self::start).
    pub end: u64,
    /// The router that it has to reach, if it is on a detour.
    pub next: RouterId,
    /// Whether its checksum is partial.
    pub partial: bool,
    /// Whether packets of its flow may come in another order.
    pub disturbed: bool,
    /// Whether it is on a detour.
    pub detoured: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    len: u32,
    /// The next slot that is free, if this one is.
    next: u32,
    /// The part of its handle above its number.
    turn: u8,
    used: bool,
    note: SlotNote,
}

impl Default for SlotNote {
    fn default() -> SlotNote {
        SlotNote {
            port: Port(0),
            flow: 0,
            start: 0,
            end: 0,
            next: RouterId(0),
            partial: false,
            disturbed: false,
            detoured: false,
        }
    }
}

impl Slots {
    /// Slots for packets of at most `longest` bytes, with room for a shim before each, in at most `limit` bytes.
    pub fn new(longest: usize, limit: Bytes) -> Slots {
        let size = longest.min(1 << 20) + FRONT;
        let max = usize::try_from(limit.get()).unwrap_or(usize::MAX) / size;
        let per_chunk = (CHUNK / size).max(1);
        let (chunks, slots) = (Vec::new(), Vec::new());
        Slots { chunks, slots, free: NONE, size, per_chunk, max: max.min(MAX_SLOTS), used: 0, peak: 0, misused: 0 }
    }

    /// A slot with an empty packet and a default note; `None`: all are in use.
    pub fn reserve(&mut self) -> Option<Handle> {
        if self.free == NONE {
            self.grow();
        }
        let number = self.free;
        let slot = self.slots.get_mut(number as usize)?;
        self.free = slot.next;
        *slot = Slot { len: 0, next: NONE, used: true, note: SlotNote::default(), ..*slot };
        self.used += 1;
        self.peak = self.peak.max(self.used);
        Some(Handle(u32::from(slot.turn) << BITS | number))
    }

    /// Writes a packet, in parts that follow each other. Returns whether it fits; if not, the slot keeps what it had.
    pub fn fill(&mut self, handle: Handle, parts: &[&[u8]]) -> bool {
        let (len, longest) = (parts.iter().map(|part| part.len()).sum::<usize>(), self.size - FRONT);
        let Some(number) = self.number(handle) else {
            self.misused += 1;
            return false;
        };
        if len > longest {
            return false;
        }
        let (at, chunk) = self.place(number);
        let Some(mut rest) = self.chunks.get_mut(chunk).and_then(|chunk| chunk.get_mut(at + FRONT..at + self.size))
        else {
            return false;
        };
        for part in parts {
            let Some((to, after)) = rest.split_at_mut_checked(part.len()) else { return false };
            to.copy_from_slice(part);
            rest = after;
        }
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.len = len as u32;
        }
        true
    }

    /// The packet in a slot.
    pub fn packet(&self, handle: Handle) -> &[u8] {
        let (Some((len, at, chunk)), front) = (self.find(handle), FRONT) else { return &[] };
        self.chunks.get(chunk).and_then(|chunk| chunk.get(at + front..at + front + len)).unwrap_or_default()
    }

    /// The packet in a slot, to be changed.
    #[cfg(test)]
    pub fn packet_mut(&mut self, handle: Handle) -> &mut [u8] {
        self.with_front(handle).get_mut(FRONT..).unwrap_or_default()
    }

    /// The packet in a slot, behind [`FRONT`] bytes for the shim; empty if the handle is no slot's.
    #[cfg(test)]
    pub fn with_front(&mut self, handle: Handle) -> &mut [u8] {
        let Some((len, at, chunk)) = self.find(handle) else {
            self.misused += 1;
            return &mut [];
        };
        self.chunks.get_mut(chunk).and_then(|chunk| chunk.get_mut(at..at + FRONT + len)).unwrap_or_default()
    }

    /// What is noted of the packet in a slot; the default if the handle is no slot's.
    pub fn note(&self, handle: Handle) -> SlotNote {
        let slot = self.number(handle).and_then(|number| self.slots.get(number as usize));
        slot.map_or(SlotNote::default(), |slot| slot.note)
    }

    /// What is noted of the packet in a slot, to be changed.
    pub fn note_mut(&mut self, handle: Handle) -> Option<&mut SlotNote> {
        let number = self.number(handle)?;
        self.slots.get_mut(number as usize).map(|slot| &mut slot.note)
    }

    /// Gives a slot back.
    pub fn free(&mut self, handle: Handle) {
        let Some(slot) = self.number(handle).and_then(|number| self.slots.get_mut(number as usize)) else {
            self.misused += 1;
            return;
        };
        (slot.used, slot.turn, slot.next) = (false, slot.turn.wrapping_add(1), self.free);
        self.free = handle.0 & MAX_SLOTS as u32;
        self.used -= 1;
    }

    /// Bytes of the slots in use.
    pub fn used_bytes(&self) -> Bytes {
        Bytes::new((self.used * self.size) as u64)
    }

    /// The most bytes that were ever in use.
    #[cfg(test)]
    pub fn peak(&self) -> Bytes {
        Bytes::new((self.peak * self.size) as u64)
    }

    /// Bytes that it may use.
    #[cfg(test)]
    pub fn limit(&self) -> Bytes {
        Bytes::new((self.max * self.size) as u64)
    }

    /// How often a handle was no slot's.
    #[cfg(test)]
    pub fn misused(&self) -> u64 {
        self.misused
    }

    /// The number of a slot in use.
    fn number(&self, handle: Handle) -> Option<u32> {
        let number = handle.0 & MAX_SLOTS as u32;
        let slot = self.slots.get(number as usize)?;
        (slot.used && u32::from(slot.turn) == handle.0 >> BITS).then_some(number)
    }

    /// The length of the packet in a slot, and where the slot is.
    fn find(&self, handle: Handle) -> Option<(usize, usize, usize)> {
        let number = self.number(handle)?;
        let (at, chunk) = self.place(number);
        Some((self.slots.get(number as usize)?.len as usize, at, chunk))
    }

    /// Where a slot begins in its chunk, and the chunk.
    fn place(&self, number: u32) -> (usize, usize) {
        let number = number as usize;
        (number % self.per_chunk * self.size, number / self.per_chunk)
    }

    /// Takes memory for one chunk more, if it may.
    fn grow(&mut self) {
        let first = self.slots.len();
        let more = self.per_chunk.min(self.max - first);
        if more == 0 {
            return;
        }
        self.chunks.push(vec![0; more * self.size].into_boxed_slice());
        let last = first + more;
        self.slots.extend((first..last).map(|number| Slot {
            len: 0,
            next: if number + 1 < last { number as u32 + 1 } else { NONE },
            turn: 0,
            used: false,
            note: SlotNote::default(),
        }));
        self.free = first as u32;
    }
}

#[cfg(test)]
mod tests;
