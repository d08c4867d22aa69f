//! One direction of a connection's data: how far it has come, and how far its receiver lets it.

use sidestep_net::Time;

use super::{ACK, AckTemplate, FIN, RST, SYN, TcpFields};
use crate::Port;

/// Bytes of a segment where no SYN was seen: of an Ethernet frame, with timestamps.
pub(super) const UNKNOWN_UNIT: u32 = 1_448;
/// Bytes of a segment at least: what every host takes (RFC 9293, section 3.7.1).
pub(super) const MIN_UNIT: u32 = 536;
/// No sequence number in use is farther ahead of what has passed: the largest window (RFC 7323, section 2.3).
const AHEAD: i32 = 1 << 30;
/// Nor farther behind. This is less, so that a connection that comes back after long is not taken for one of duplicates.
const BEHIND: i32 = 1 << 28;
/// After so many numbers in a row that are farther the connection has gone on elsewhere, and has come back.
const STRAYS: u8 = 3;

/// One direction of a connection's data. Positions are bytes from its first on; a SYN and a FIN count none.
#[derive(Clone, Copy, Debug)]
pub struct Half {
    /// The interface by which its data leaves.
    pub port: Option<Port>,
    /// The interface by which its ACKs leave.
    pub back: Option<Port>,
    /// Its newest ACK ([`Seen::is_newest_ack`](super::Seen::is_newest_ack)), for window updates.
    pub template: Option<AckTemplate>,
    /// Until when its packets may come in another order, as some have taken a detour.
    pub disturbed_until: Time,
    /// Where its windows cannot be read: when the next ACK may leave, and the end of what those before it acknowledge.
    pub spaced: (Time, u64),
    /// The sequence number before its first byte, that of its SYN, once one is known.
    pub(super) first: Option<u32>,
    /// The shift of the windows that its receiver advertises.
    pub(super) scale: Option<u8>,
    pub(super) unit: u32,
    pub(super) end: u64,
    pub(super) acked: u64,
    /// How far its receiver lets it come, by the newest ACK.
    pub(super) reach: u64,
    pub(super) fin: Option<u64>,
    /// Whether all of it, and its FIN, has been acknowledged, or the connection was reset.
    pub(super) done: bool,
    /// Whether a packet of its sender has passed, and an ACK of its receiver.
    pub(super) sent: bool,
    pub(super) answered: bool,
    pub(super) strays: u8,
}

/// A window update: what an ACK of the router's own says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUpdate {
    /// The acknowledgement number: that of the newest ACK.
    pub acknowledgement: u32,
    /// The window, scaled.
    pub window: u16,
}

/// Where a packet lies in its half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether some of it is new.
    pub(super) advances: bool,
}

/// What an ACK says to its half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acked {
    /// Whether none newer has come before.
    pub(super) is_newest: bool,
    pub(super) advances: bool,
    pub(super) is_first: bool,
    /// Whether it acknowledges what can have been sent.
    pub(super) is_plausible: bool,
}

impl Default for Half {
    fn default() -> Half {
        Half {
            port: None,
            back: None,
            template: None,
            disturbed_until: Time::ZERO,
            spaced: (Time::ZERO, 0),
            first: None,
            scale: None,
            unit: UNKNOWN_UNIT,
            end: 0,
            acked: 0,
            reach: 0,
            fin: None,
            done: false,
            sent: false,
            answered: false,
            strays: 0,
        }
    }
}

impl Half {
    /// The end of what has passed.
    #[cfg(test)]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The end of what has been acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// The bytes of a segment, which limits count.
    #[cfg(test)]
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// The shift of the windows that its receiver advertises; `None`: the SYNs have not passed.
    pub fn scale(&self) -> Option<u8> {
        self.scale
    }

    /// Whether all of it has been acknowledged, including its FIN, or the connection was reset.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The segments of its data up to a position, rounded up, as [`Meta::end`](crate::Meta::end) counts them. 2³² of
    /// them are more than 2 TB: from there on it has no limit.
    pub fn data_end(&self, position: u64) -> u32 {
        clamp(position.div_ceil(u64::from(self.unit)))
    }

    /// The segments that have been acknowledged, rounded down.
    pub fn acked_units(&self) -> u32 {
        clamp(self.acked / u64::from(self.unit))
    }

    /// How many segments may come by an ACK, rounded up; `u32::MAX` if the ACK does not say so, or its scale is not known.
    ///
    /// The sender fills a window to its end, with a short segment if need be, and [`data_end`](Self::data_end) counts
    /// that as a whole one. Rounded down, it would be held here although the receiver, or the next router, has room for it; and
    /// each router would understand one less than the next has said, as the scale rounds windows down.
    pub fn limit_of(&self, tcp: &TcpFields) -> u32 {
        let (Some(shift), Some(acked)) = (self.shift(tcp), self.acknowledged(tcp)) else { return u32::MAX };
        self.data_end(acked.saturating_add(u64::from(tcp.window) << shift))
    }

    /// The window to write into an ACK so that at most `limit` segments come; `None`: the ACK stays as it is.
    ///
    /// It is rounded down, is never below one segment, and never above what the receiver has advertised.
    pub fn window_for(&self, tcp: &TcpFields, limit: u32) -> Option<u16> {
        if limit == u32::MAX {
            return None;
        }
        let field = self.field(self.acknowledged(tcp)?, self.shift(tcp)?, limit);
        u16::try_from(field).ok().filter(|window| *window < tcp.window)
    }

    /// The window update that lets at most `limit` segments come; `None`: no ACK has passed, its scale is not known, or there
    /// is nothing more to come.
    ///
    /// Rounded and bounded as [`window_for`](Self::window_for), by the newest ACK.
    pub fn update(&self, limit: u32) -> Option<WindowUpdate> {
        let shift = self.scale.filter(|_| self.answered && !self.done)?;
        let acknowledgement = self.first?.wrapping_add(1).wrapping_add(self.acked as u32);
        let advertised = self.reach.saturating_sub(self.acked) >> shift;
        let window = u16::try_from(self.field(self.acked, shift, limit).min(advertised)).ok()?;
        Some(WindowUpdate { acknowledgement, window })
    }

    /// The window, scaled, from a position to a limit.
    fn field(&self, from: u64, shift: u8, limit: u32) -> u64 {
        let unit = u64::from(self.unit);
        let room = (u64::from(limit) * unit).saturating_sub(from) >> shift;
        room.max(unit.div_ceil(1 << shift))
    }

    /// By how much the window of an ACK is shifted: that of a SYN is not (RFC 7323, section 2.2).
    fn shift(&self, tcp: &TcpFields) -> Option<u8> {
        if tcp.flags & SYN != 0 { Some(0) } else { self.scale }
    }

    /// The position that an ACK acknowledges.
    fn acknowledged(&self, tcp: &TcpFields) -> Option<u64> {
        let says = tcp.flags & (ACK | RST) == ACK;
        let position = self.position(tcp.acknowledgement).filter(|_| says)?;
        let position = u64::try_from(position).unwrap_or(0);
        Some(self.fin.map_or(position, |fin| position.min(fin)))
    }

    /// The position of a sequence number, below zero before the first byte: the nearest to what has passed. `None`:
    /// it is too far from there, or nothing has passed.
    pub(super) fn position(&self, sequence: u32) -> Option<i64> {
        let (anchor, ahead) = self.distance(sequence)?;
        let ahead = ahead as i32;
        (-BEHIND..=AHEAD).contains(&ahead).then(|| (anchor as i64).saturating_add(i64::from(ahead)))
    }

    /// What has passed, and how many bytes a sequence number is ahead of that, modulo 2³².
    fn distance(&self, sequence: u32) -> Option<(u64, u32)> {
        let anchor = self.end.max(self.acked);
        let offset = sequence.wrapping_sub(self.first?.wrapping_add(1));
        Some((anchor, offset.wrapping_sub(anchor as u32)))
    }

    /// As [`position`](Self::position). Takes a number that is too far as one ahead, if it is not the first such in a row.
    fn follow(&mut self, sequence: u32) -> Option<i64> {
        let near = self.position(sequence);
        if near.is_some() {
            self.strays = 0;
            return near;
        }
        self.strays = self.strays.saturating_add(1);
        if self.strays < STRAYS {
            return None;
        }
        self.strays = 0;
        let (anchor, ahead) = self.distance(sequence)?;
        Some((anchor as i64).saturating_add(i64::from(ahead)))
    }

    /// A packet of its sender passes, which is no RST. `None`: its number is too far from the others.
    pub(super) fn note_data(&mut self, tcp: &TcpFields) -> Option<Found> {
        let sequence = tcp.sequence.wrapping_add(u32::from(tcp.flags & SYN != 0));
        self.first.get_or_insert(sequence.wrapping_sub(1));
        self.sent = true;
        let start = self.follow(sequence)?;
        let end = u64::try_from(start.saturating_add(i64::from(tcp.payload))).unwrap_or(0);
        let start = u64::try_from(start).unwrap_or(0);
        if tcp.payload > 0 && self.fin.is_some_and(|fin| end > fin) {
            // Its sender goes on, so the FIN was not its own.
            (self.fin, self.done) = (None, false);
        }
        let last = self.fin.unwrap_or(u64::MAX);
        let (start, end) = (start.min(last), end.min(last));
        let fin = (tcp.flags & FIN != 0 && end >= self.end).then_some(end);
        let advances = end > self.end || fin.is_some() && self.fin.is_none();
        self.end = self.end.max(end);
        self.fin = fin.or(self.fin);
        Some(Found { start, end, advances })
    }

    /// An ACK of its receiver passes.
    pub(super) fn note_ack(&mut self, tcp: &TcpFields) -> Acked {
        self.first.get_or_insert(tcp.acknowledgement.wrapping_sub(1));
        let Some(position) = self.follow(tcp.acknowledgement) else { return Acked::default() };
        let is_plausible = (0..=self.end as i64 + 1).contains(&position);
        let position = u64::try_from(position).unwrap_or(0);
        let (is_newest, is_first) = (position >= self.acked, !self.answered);
        self.answered = true;
        let covers_fin = self.fin.is_some_and(|fin| position > fin);
        let position = self.fin.map_or(position, |fin| position.min(fin));
        let advances = position > self.acked || covers_fin && !self.done;
        self.done |= covers_fin;
        self.acked = self.acked.max(position);
        if let Some(shift) = self.shift(tcp).filter(|_| is_newest) {
            self.reach = position.saturating_add(u64::from(tcp.window) << shift);
        }
        Acked { is_newest, advances, is_first, is_plausible }
    }
}

fn clamp(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
