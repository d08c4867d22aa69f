//! Units as types. Each parses from, and prints as, a number and a unit: `"50 ms"`, `"100 Mbit/s"`.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    fmt,
    ops::{Add, AddAssign, Mul, Sub},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

/// An instant, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(u64);

/// An instant, or none, in the space of an instant: no instant of a run stands for "none".
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaybeTime(Time);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span(u64);

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rate(u64);

/// An amount of data in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bytes(u64);

/// The size of a queue, or a threshold in it, in bytes or in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueLimit {
    /// This number of bytes.
    Bytes(Bytes),
    /// This number of packets.
    Packets(u32),
}

/// A share in 0..=1, in parts per billion; parses from `"1 %"` or `"0.01"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ratio(u32);

/// A quantity that could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// The text is not a number followed by a unit.
    #[error("`{text}` is not a {what}; write a number and a unit, such as `{example}`")]
    Syntax {
        /// What was read.
        text: String,
        /// The kind of quantity expected.
        what: &'static str,
        /// A valid example.
        example: &'static str,
    },
    /// The unit is not one of those known.
    #[error("`{unit}` is not a unit of {what}; known units: {known}")]
    Unit {
        /// The unit read.
        unit: String,
        /// The kind of quantity expected.
        what: &'static str,
        /// The units known, largest last.
        known: String,
    },
    /// The quantity is outside what the type can hold.
    #[error("`{text}` is outside the range of a {what}")]
    Range {
        /// What was read.
        text: String,
        /// The kind of quantity expected.
        what: &'static str,
    },
}

/// The largest quantity that is read: everything below leaves room for additions.
pub const MAX_QUANTITY: u64 = 9_200_000_000_000_000_000;

/// Nanoseconds in a second.
const NANOS: u64 = 1_000_000_000;

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than any event.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    /// The span since `earlier`, zero if that is later.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl MaybeTime {
    /// No instant.
    pub const NONE: MaybeTime = MaybeTime(Time::MAX);

    /// The instant `time`; [`Time::MAX`], which no run reaches, is none.
    #[inline]
    pub const fn at(time: Time) -> Self {
        MaybeTime(time)
    }

    /// The instant, if there is one.
    #[inline]
    pub const fn get(self) -> Option<Time> {
        if self.0.0 == u64::MAX { None } else { Some(self.0) }
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0.0 == u64::MAX
    }
}

impl Default for MaybeTime {
    fn default() -> Self {
        MaybeTime::NONE
    }
}

impl From<Time> for MaybeTime {
    #[inline]
    fn from(time: Time) -> Self {
        MaybeTime::at(time)
    }
}

impl From<Option<Time>> for MaybeTime {
    #[inline]
    fn from(time: Option<Time>) -> Self {
        time.map_or(MaybeTime::NONE, MaybeTime::at)
    }
}

impl fmt::Debug for MaybeTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Span(nanos)
    }

    /// A span of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Span(micros * 1_000)
    }

    /// A span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Span(millis * 1_000_000)
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Span(secs * NANOS)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    /// The span as the standard library's type.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl Rate {
    /// No rate, or one that is not known.
    pub const ZERO: Rate = Rate(0);

    /// A rate of `bits` per second.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Rate(bits)
    }

    /// A rate of `mbits` megabits per second.
    pub const fn from_mbits(mbits: u64) -> Self {
        Rate(mbits * 1_000_000)
    }

    /// Bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Megabits (10⁶ bits) per second.
    pub fn as_mbits(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Time that `bytes` take at this rate, rounded up; [`Span::ZERO`] at rate zero, which means "not limited".
    pub fn time_for(self, bytes: Bytes) -> Span {
        if self.0 == 0 {
            return Span::ZERO;
        }
        // Dividing 128 bits takes many times as long, and a packet never needs them.
        if let Some(bits) = bytes.0.checked_mul(8 * NANOS) {
            return Span(bits.div_ceil(self.0));
        }
        let nanos = (u128::from(bytes.0) * 8 * u128::from(NANOS)).div_ceil(u128::from(self.0));
        Span(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Bytes that pass in `span` at this rate, rounded down.
    pub fn bytes_in(self, span: Span) -> Bytes {
        if let Some(bits) = self.0.checked_mul(span.0) {
            return Bytes(bits / (8 * NANOS));
        }
        let bytes = u128::from(self.0) * u128::from(span.0) / (8 * u128::from(NANOS));
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Bytes {
    /// An amount of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Bytes(bytes)
    }

    /// The amount in bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Ratio {
    /// Nothing.
    pub const ZERO: Ratio = Ratio(0);

    /// A ratio of `ppb` parts per billion, at most one.
    pub const fn from_ppb(ppb: u32) -> Self {
        Ratio(if ppb > 1_000_000_000 { 1_000_000_000 } else { ppb })
    }

    /// Parts per billion.
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// The ratio as a number in 0..=1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e9
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, times: u64) -> Span {
        Span(self.0.saturating_mul(times))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

/// A unit's name and how many of the base unit it is.
type UnitTable = &'static [(&'static str, u64)];

const SPAN_UNITS: UnitTable =
    &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", NANOS), ("min", 60 * NANOS)];
const RATE_UNITS: UnitTable =
    &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000), ("Tbit/s", 1_000_000_000_000)];
const BYTES_UNITS: UnitTable = &[
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];
const PACKET_UNITS: UnitTable = &[("packets", 1), ("packet", 1)];

/// Splits `"1.5 ms"` into its number and its unit.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// Reads a number and one of `units` as a whole number of base units.
fn parse_quantity(text: &str, units: UnitTable, what: &'static str, example: &'static str) -> Result<u64, UnitError> {
    let syntax = || UnitError::Syntax { text: text.into(), what, example };
    let (digits, unit) = split(text);
    let number: f64 = digits.parse().map_err(|_| syntax())?;
    if unit.is_empty() && number != 0.0 {
        return Err(syntax());
    }
    let factor = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => {
            let known = units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            return Err(UnitError::Unit { unit: unit.into(), what, known });
        }
    };
    // Whole numbers do not pass through floating point, which has no room for all of them.
    let value = match digits.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        // A cast goes to the nearest value that there is.
        Err(_) => Some((number * factor as f64).round() as u64),
    };
    value.filter(|value| *value <= MAX_QUANTITY).ok_or_else(|| UnitError::Range { text: text.into(), what })
}

/// Prints `value` in the largest of `units` that divides it.
fn print_quantity(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let divides = |(_, factor): &&(&str, u64)| value != 0 && value.is_multiple_of(*factor);
    // The smallest unit is 1, which divides all.
    let (unit, factor) = units.iter().rev().find(divides).or(units.first()).copied().unwrap_or(("", 1));
    write!(f, "{} {unit}", value / factor)
}

impl FromStr for Span {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_quantity(text, SPAN_UNITS, "time", "50 ms").map(Span)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_quantity(f, self.0, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", NANOS)])
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_quantity(text, RATE_UNITS, "rate", "100 Mbit/s").map(Rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_quantity(f, self.0, RATE_UNITS)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_quantity(text, BYTES_UNITS, "size", "64 KiB").map(Bytes)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_quantity(f, self.0, &[("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)])
    }
}

impl FromStr for QueueLimit {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "queue size";
        const EXAMPLE: &str = "100 packets` or `64 KiB";
        if text.trim_end().ends_with("packets") || text.trim_end().ends_with("packet") {
            let packets = parse_quantity(text, PACKET_UNITS, WHAT, EXAMPLE)?;
            let packets = u32::try_from(packets).map_err(|_| UnitError::Range { text: text.into(), what: WHAT })?;
            return Ok(QueueLimit::Packets(packets));
        }
        parse_quantity(text, BYTES_UNITS, WHAT, EXAMPLE).map(|bytes| QueueLimit::Bytes(Bytes(bytes)))
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Bytes(bytes) => bytes.fmt(f),
            QueueLimit::Packets(packets) => write!(f, "{packets} packets"),
        }
    }
}

impl FromStr for Ratio {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "share";
        let (digits, unit) = split(text);
        let number: f64 = digits.parse().map_err(|_| UnitError::Syntax {
            text: text.into(),
            what: WHAT,
            example: "1 %` or `0.01",
        })?;
        let value = match unit {
            "" => number,
            "%" => number / 100.0,
            _ => return Err(UnitError::Unit { unit: unit.into(), what: WHAT, known: "%, or none".into() }),
        };
        if (0.0..=1.0).contains(&value) {
            Ok(Ratio((value * 1e9).round() as u32))
        } else {
            Err(UnitError::Range { text: text.into(), what: WHAT })
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 1e7)
    }
}

/// Serde through the textual form.
macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Span, Rate, Bytes, QueueLimit, Ratio);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!("50 ms".parse(), Ok(Span::from_millis(50)));
        assert_eq!("1.5us".parse(), Ok(Span::from_nanos(1_500)));
        assert_eq!("100 Mbit/s".parse(), Ok(Rate::from_mbits(100)));
        assert_eq!("64 KiB".parse(), Ok(Bytes::new(65_536)));
        assert_eq!("100 packets".parse(), Ok(QueueLimit::Packets(100)));
        assert_eq!("150 kB".parse(), Ok(QueueLimit::Bytes(Bytes::new(150_000))));
        assert_eq!("0.1 %".parse(), Ok(Ratio::from_ppb(1_000_000)));
        assert_eq!("0".parse(), Ok(Span::ZERO));
        assert_eq!("9007199254740993 ns".parse(), Ok(Span::from_nanos((1 << 53) + 1)));
    }

    #[test]
    fn a_quantity_without_a_unit_is_refused_with_an_example() {
        let error = "50".parse::<Span>().unwrap_err();
        assert_eq!(error.to_string(), "`50` is not a time; write a number and a unit, such as `50 ms`");
        let error = "5 Mbps".parse::<Rate>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`Mbps` is not a unit of rate; known units: bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s"
        );
        assert!("1e400 s".parse::<Span>().is_err());
        assert!("99999999999999 min".parse::<Span>().is_err());
        assert!("-1 s".parse::<Span>().is_err());
        assert!("150 %".parse::<Ratio>().is_err());
    }

    #[test]
    fn a_packet_takes_its_length_over_the_rate() {
        assert_eq!(Rate::from_mbits(100).time_for(Bytes::new(1_500)), Span::from_micros(120));
        assert_eq!(Rate::from_mbits(100).bytes_in(Span::from_millis(8)), Bytes::new(100_000));
    }

    proptest! {
        /// Small and large numbers are divided in different ways.
        #[test]
        fn rates_times_and_bytes_are_as_with_numbers_of_any_size(
            rate in 1..u64::MAX, rate_bits in 0..64u32, amount in any::<u64>(), amount_bits in 0..64u32,
        ) {
            let (rate, amount) = ((rate >> rate_bits).max(1), amount >> amount_bits);
            let wide = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
            let nanos = (u128::from(amount) * 8_000_000_000).div_ceil(u128::from(rate));
            prop_assert_eq!(Rate(rate).time_for(Bytes(amount)), Span(wide(nanos)));
            let bytes = u128::from(rate) * u128::from(amount) / 8_000_000_000;
            prop_assert_eq!(Rate(rate).bytes_in(Span(amount)), Bytes(wide(bytes)));
        }

        #[test]
        fn printing_and_reading_give_the_quantity_back(nanos in 0..=MAX_QUANTITY) {
            prop_assert_eq!(Span(nanos).to_string().parse(), Ok(Span(nanos)));
            prop_assert_eq!(Rate(nanos).to_string().parse(), Ok(Rate(nanos)));
            prop_assert_eq!(Bytes(nanos).to_string().parse(), Ok(Bytes(nanos)));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC*") {
            let _ = (text.parse::<Span>(), text.parse::<Rate>(), text.parse::<QueueLimit>(), text.parse::<Ratio>());
        }
    }
}
