//! Connections as rows, for the process that takes over.

use serde::{Deserialize, Serialize};

use super::{Connection, MAX_SCALE, half::MIN_UNIT};
use crate::daemon::connections::Half;

/// No position is beyond this, so that sums of positions and windows fit.
const MAX_POSITION: u64 = 1 << 62;

/// A connection that is open. Interfaces and the last ACKs are not in it: the next packets say them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its key.
    pub key: u64,
    /// Whether it speaks MPTCP.
    pub is_multipath: bool,
    /// The data of both directions, that of packets that are not reversed first.
    pub halves: [HalfRow; 2],
}

/// One direction of its data; see [`Half`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfRow {
    /// The sequence number before the first byte.
    pub first: Option<u32>,
    /// The shift of the windows that its receiver advertises.
    pub scale: Option<u8>,
    /// Bytes of a segment.
    pub unit: u32,
    /// The end of what has passed.
    pub end: u64,
    /// The end of what has been acknowledged.
    pub acked: u64,
    /// How far its receiver lets it come.
    pub reach: u64,
    /// Where its FIN is.
    pub fin: Option<u64>,
    /// Whether that has been acknowledged.
    pub done: bool,
}

impl Connection {
    pub(super) fn export(&self) -> Row {
        let halves = self.halves.each_ref().map(|half| {
            let Half { first, scale, unit, end, acked, reach, fin, done, .. } = *half;
            HalfRow { first, scale, unit, end, acked, reach, fin, done }
        });
        Row { key: self.key, is_multipath: self.is_multipath, halves }
    }

    /// `None`: no router has written this.
    pub(super) fn import(row: &Row) -> Option<Connection> {
        let is_sound = |half: &HalfRow| {
            let positions = [half.end, half.acked, half.reach, half.fin.unwrap_or(0)];
            let unit = MIN_UNIT..=u32::from(u16::MAX);
            positions.iter().all(|position| *position <= MAX_POSITION)
                && unit.contains(&half.unit)
                && half.scale.is_none_or(|scale| scale <= MAX_SCALE)
        };
        if row.key & 1 != 0 || !row.halves.iter().all(is_sound) {
            return None;
        }
        let halves = row.halves.each_ref().map(|row| {
            let HalfRow { first, scale, unit, end, acked, reach, fin, done } = *row;
            let known = first.is_some();
            Half { first, scale, unit, end, acked, reach, fin, done, sent: known, answered: known, ..Half::default() }
        });
        Some(Connection {
            key: row.key,
            is_multipath: row.is_multipath,
            is_open: true,
            halves,
            ..Connection::default()
        })
    }
}
