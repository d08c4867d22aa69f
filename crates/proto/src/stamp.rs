//! The Simple Two-way Active Measurement Protocol (STAMP, RFC 8762), unauthenticated, without I/O.
//!
//! A session sender sends numbered test packets to a [`Reflector`]. The reflector answers each with its own number, the time at
//! which the packet came, and the time at which the answer leaves. So the sender knows the round trip without the time that
//! the reflector took, and in which direction packets were lost ([`Directions`]).
//!
//! - [`SenderPacket`] and [`ReflectorPacket`] are the formats; `parse` and `write` take and give bytes.
//! - [`Reflector::handle_request`] answers a packet, within bounds of memory and of packets by source.
//! - [`DirectionLosses::handle_answer`] is the sender's account.
//!
//! Bytes behind the 44 of the base format are extensions (TLVs, RFC 8972). The reflector gives them back: it understands extra
//! padding, and marks all others as unrecognised. So an answer is never longer than its request.
//!
//! ```
//! use sidestep_proto::stamp::{Clock, ErrorEstimate, LENGTH, SenderPacket, Timestamp, WallTime};
//!
//! let now = WallTime::from_nanos(1_800_000_000_250_000_000);
//! let packet = SenderPacket {
//!     sequence: 7,
//!     timestamp: Timestamp::of(Clock::Ntp, now),
//!     error: ErrorEstimate::unsynchronised(Clock::Ntp),
//!     session: 42,
//! };
//! let mut bytes = [0; LENGTH];
//! packet.write(&mut bytes).expect("the buffer has room");
//! assert_eq!(SenderPacket::parse(&bytes), Some((packet, &[][..])));
//! ```

mod reflector;
mod sessions;
#[cfg(test)]
mod tests;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32, U64},
};

pub use reflector::{MIN_SOURCE_PORT, Reflector, ReflectorConfig, ReflectorCounts, Refusal, Request};

/// The port at which reflectors listen by default (RFC 8762, section 4.1).
pub const PORT: u16 = 862;
/// The length of a packet without extensions, in bytes.
pub const LENGTH: usize = 44;

/// A point of the clock that shows the date: nanoseconds since the beginning of 1970, UTC without leap seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(u64);

impl WallTime {
    /// The time `nanos` nanoseconds after the beginning of 1970.
    pub const fn from_nanos(nanos: u64) -> Self {
        WallTime(nanos)
    }

    /// Nanoseconds since the beginning of 1970.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds since `earlier`, negative if that is later.
    pub fn since(self, earlier: WallTime) -> i64 {
        self.0.wrapping_sub(earlier.0) as i64
    }
}

/// How a timestamp is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// As NTP does (RFC 5905, section 6): seconds since 1900 and fractions of 2⁻³² s. The default of the standard.
    #[default]
    Ntp,
    /// As PTP does, truncated (RFC 8877, section 4.3): seconds and nanoseconds.
    Ptp,
}

/// A timestamp of 64 bits as it is on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

const NANOS: u64 = 1_000_000_000;
/// From the beginning of 1900 to that of 1970, in seconds.
const NTP_EPOCH: u64 = 2_208_988_800;

impl Timestamp {
    /// A point of time as this clock writes it; seconds are counted modulo 2³².
    pub fn of(clock: Clock, time: WallTime) -> Self {
        let (seconds, nanos) = (time.0 / NANOS, time.0 % NANOS);
        Timestamp(match clock {
            Clock::Ntp => (seconds + NTP_EPOCH) << 32 | (nanos << 32).div_ceil(NANOS),
            Clock::Ptp => seconds << 32 | nanos,
        })
    }

    /// Nanoseconds from `earlier` to this, negative if that is later; both are of the same clock, less than 68 years apart.
    pub fn since(self, clock: Clock, earlier: Timestamp) -> i64 {
        match clock {
            // Rounded to the nearest: a fraction is a quarter of a nanosecond.
            Clock::Ntp => {
                let fractions = i128::from(self.0.wrapping_sub(earlier.0) as i64);
                ((fractions * i128::from(NANOS) + (1 << 31)) >> 32) as i64
            }
            Clock::Ptp => {
                let seconds = |time: Timestamp| (time.0 >> 32) as u32;
                let nanos = |time: Timestamp| i64::from(time.0 as u32);
                let apart = i64::from(seconds(self).wrapping_sub(seconds(earlier)) as i32);
                apart * NANOS as i64 + nanos(self) - nanos(earlier)
            }
        }
    }
}

/// How good a clock is, and which format its timestamps have (RFC 4656, section 4.1.2; RFC 8762, section 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// Whether the clock is synchronised to UTC by an outside source.
    pub synchronised: bool,
    /// The format of the timestamps.
    pub clock: Clock,
    /// The exponent, 0 to 63: the error is `multiplier` · 2^(`scale` − 32) s.
    pub scale: u8,
    /// The factor; 0 is not allowed on the wire.
    pub multiplier: u8,
}

impl ErrorEstimate {
    /// That of a clock whose quality is not known.
    pub const fn unsynchronised(clock: Clock) -> Self {
        ErrorEstimate { synchronised: false, clock, scale: 63, multiplier: 1 }
    }

    /// The error in seconds.
    pub fn as_secs_f64(self) -> f64 {
        f64::from(self.multiplier) * f64::from(i32::from(self.scale) - 32).exp2()
    }

    fn read(bits: u16) -> Self {
        ErrorEstimate {
            synchronised: bits >> 15 == 1,
            clock: if bits >> 14 & 1 == 1 { Clock::Ptp } else { Clock::Ntp },
            scale: (bits >> 8 & 0x3f) as u8,
            multiplier: bits as u8,
        }
    }

    fn bits(self) -> u16 {
        u16::from(self.synchronised) << 15
            | u16::from(self.clock == Clock::Ptp) << 14
            | u16::from(self.scale & 0x3f) << 8
            | u16::from(self.multiplier)
    }
}

/// What a session sender sends (RFC 8762, section 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderPacket {
    /// The packet's number in its session, from 0.
    pub sequence: u32,
    /// When it was sent.
    pub timestamp: Timestamp,
    /// How good the sender's clock is.
    pub error: ErrorEstimate,
    /// The sender's number for the session (RFC 8972, section 3); 0: none.
    pub session: u16,
}

/// What a reflector answers (RFC 8762, section 4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// The answer's number: how many packets of the session the reflector has answered before. A stateless reflector copies that
    /// of the packet.
    pub sequence: u32,
    /// When the answer was sent.
    pub timestamp: Timestamp,
    /// How good the reflector's clock is.
    pub error: ErrorEstimate,
    /// The sender's number for the session; 0 if it has none, or the reflector does not know it.
    pub session: u16,
    /// When the packet came.
    pub received: Timestamp,
    /// The packet's number.
    pub sender_sequence: u32,
    /// When the packet was sent.
    pub sender_timestamp: Timestamp,
    /// How good the sender's clock is.
    pub sender_error: ErrorEstimate,
    /// The TTL or hop limit with which the packet came.
    pub sender_ttl: u8,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct SenderBytes {
    sequence: U32,
    timestamp: U64,
    error: U16,
    session: U16,
    zero: [u8; 28],
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct ReflectorBytes {
    sequence: U32,
    timestamp: U64,
    error: U16,
    session: U16,
    received: U64,
    sender_sequence: U32,
    sender_timestamp: U64,
    sender_error: U16,
    zero: [u8; 2],
    sender_ttl: u8,
    zero_too: [u8; 3],
}

const _: () = assert!(size_of::<SenderBytes>() == LENGTH && size_of::<ReflectorBytes>() == LENGTH, "RFC 8762");

impl SenderPacket {
    /// Reads a packet and the bytes behind it, which are extensions; `None` if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (wire, extensions) = SenderBytes::ref_from_prefix(bytes).ok()?;
        let packet = SenderPacket {
            sequence: wire.sequence.get(),
            timestamp: Timestamp(wire.timestamp.get()),
            error: ErrorEstimate::read(wire.error.get()),
            session: wire.session.get(),
        };
        Some((packet, extensions))
    }

    /// Writes the packet; what `out` has beyond its [length](LENGTH) becomes extra padding (RFC 8972, section 4.1). `None` if `out`
    /// is too short.
    pub fn write(&self, out: &mut [u8]) -> Option<()> {
        let (base, padding) = out.split_at_mut_checked(LENGTH)?;
        let wire = SenderBytes {
            sequence: self.sequence.into(),
            timestamp: self.timestamp.0.into(),
            error: self.error.bits().into(),
            session: self.session.into(),
            zero: [0; 28],
        };
        base.copy_from_slice(wire.as_bytes());
        padding.fill(0);
        let value =
            padding.len().checked_sub(size_of::<ExtensionBytes>()).and_then(|length| u16::try_from(length).ok());
        if let Some((length, Ok((header, _)))) = value.zip(Some(ExtensionBytes::mut_from_prefix(padding))) {
            *header = ExtensionBytes { flags: UNRECOGNISED, kind: EXTRA_PADDING, length: length.into() };
        }
        Some(())
    }
}

/// The number of the test packet that an ICMP error quotes, which may be cut off behind it.
pub fn quoted_sequence(quoted: &[u8]) -> Option<u32> {
    U32::ref_from_prefix(quoted).ok().map(|(sequence, _)| sequence.get())
}

impl ReflectorPacket {
    /// Reads an answer and the bytes behind it, which are extensions; `None` if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (wire, extensions) = ReflectorBytes::ref_from_prefix(bytes).ok()?;
        let packet = ReflectorPacket {
            sequence: wire.sequence.get(),
            timestamp: Timestamp(wire.timestamp.get()),
            error: ErrorEstimate::read(wire.error.get()),
            session: wire.session.get(),
            received: Timestamp(wire.received.get()),
            sender_sequence: wire.sender_sequence.get(),
            sender_timestamp: Timestamp(wire.sender_timestamp.get()),
            sender_error: ErrorEstimate::read(wire.sender_error.get()),
            sender_ttl: wire.sender_ttl,
        };
        Some((packet, extensions))
    }

    /// Writes the answer, without extensions; `None` if `out` is too short.
    pub fn write(&self, out: &mut [u8]) -> Option<()> {
        let wire = ReflectorBytes {
            sequence: self.sequence.into(),
            timestamp: self.timestamp.0.into(),
            error: self.error.bits().into(),
            session: self.session.into(),
            received: self.received.0.into(),
            sender_sequence: self.sender_sequence.into(),
            sender_timestamp: self.sender_timestamp.0.into(),
            sender_error: self.sender_error.bits().into(),
            zero: [0; 2],
            sender_ttl: self.sender_ttl,
            zero_too: [0; 3],
        };
        out.get_mut(..LENGTH)?.copy_from_slice(wire.as_bytes());
        Some(())
    }

    /// How long the reflector took, in nanoseconds: negative if its clock was set meanwhile.
    pub fn turnaround(&self) -> i64 {
        self.timestamp.since(self.error.clock, self.received)
    }
}

/// The beginning of an extension (RFC 8972, section 4).
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct ExtensionBytes {
    flags: u8,
    kind: u8,
    length: U16,
}

/// Flag of an extension: the end that has set it does not know the extension. Senders set it, too.
const UNRECOGNISED: u8 = 0x80;
/// Flag of an extension that does not fit into its packet.
const MALFORMED: u8 = 0x40;
/// The extension that only makes a packet longer.
const EXTRA_PADDING: u8 = 1;

/// Marks for each extension whether it was understood, as a reflector has to. Zeros at the end are padding and stay.
fn mark_extensions(mut rest: &mut [u8]) {
    while let Ok((header, values)) = ExtensionBytes::mut_from_prefix(rest) {
        let length = usize::from(header.length.get());
        if header.kind == 0 && length == 0 {
            return;
        }
        if length > values.len() {
            header.flags |= MALFORMED;
            return;
        }
        match header.kind {
            EXTRA_PADDING => header.flags &= !UNRECOGNISED,
            _ => header.flags |= UNRECOGNISED,
        }
        rest = values.get_mut(length..).unwrap_or_default();
    }
}

/// Packets lost since the session began, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    /// Packets that did not reach the reflector.
    pub forward: u64,
    /// Packets that it answered, and whose answers did not come.
    pub backward: u64,
}

/// A session sender's account of which direction has lost packets.
///
/// It compares its own numbers with those of a stateful reflector. Packets sent after the last one that was answered are in no
/// account yet. An answer that comes late takes back what was counted for it. A stateless reflector copies the sender's
/// numbers: all losses seem to be backward ones. When a reflector begins to count again, the losses meanwhile are in no account.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectionLosses {
    /// The highest numbers seen: the sender's, and the reflector's.
    last: Option<(u32, u32)>,
    lost: Directions,
}

impl DirectionLosses {
    /// Takes an answer that is no duplicate; returns what is lost so far.
    pub fn handle_answer(&mut self, sender_sequence: u32, reflector_sequence: u32) -> Directions {
        // Both count from 0: before the first packet, each was at −1.
        let (sent, reflected) = self.last.unwrap_or((u32::MAX, u32::MAX));
        let newer = sender_sequence.wrapping_sub(sent) as i32;
        let further = reflector_sequence.wrapping_sub(reflected) as i32;
        match (newer, further) {
            // A packet that the network has doubled is answered twice: then the reflector is ahead.
            (1.., 1..) => {
                let answered = further.min(newer);
                self.lost.forward += u64::from(newer.abs_diff(answered));
                self.lost.backward += u64::from(answered.abs_diff(1));
                self.last = Some((sender_sequence, reflector_sequence));
            }
            // It was answered before another whose answer has come: its answer was late.
            (..=0, ..=0) => self.lost.backward = self.lost.backward.saturating_sub(1),
            // It reached the reflector after one that was sent later.
            (..=0, 1..) => {
                self.lost.forward = self.lost.forward.saturating_sub(1);
                self.lost.backward += u64::from(further.abs_diff(1));
                self.last = Some((sent, reflector_sequence));
            }
            // The reflector has forgotten the session.
            (1.., ..=0) => self.last = Some((sender_sequence, reflector_sequence)),
        }
        self.lost
    }
}
