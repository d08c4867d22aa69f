//! Which keys of a file mean what, and in which unit.

use std::{collections::BTreeMap, str::FromStr};

use thiserror::Error;

/// What a key of nodes or edges stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A node's name.
    Name,
    /// A node's longitude, in degrees.
    Longitude,
    /// A node's latitude, in degrees.
    Latitude,
    /// An edge's transmission rate.
    Rate,
    /// An edge's propagation delay, or its length.
    Delay,
    /// An edge's IGP weight.
    Weight,
    /// Nothing that is read.
    Ignore,
}

/// What a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Bits per second.
    Rate,
    /// Nanoseconds.
    Time,
    /// Nanoseconds that light takes in fibre.
    Length,
}

/// A unit of a rate, a time or a length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) measure: Measure,
    /// Bits per second or nanoseconds.
    pub(crate) factor: f64,
}

/// The meanings that a user gives to keys: `--map KEY=ROLE[:UNIT]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mapping {
    pub(crate) keys: BTreeMap<String, (Role, Option<Unit>)>,
}

/// A key's meaning that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MapError {
    /// No `=`.
    #[error("`{0}` is not KEY=ROLE[:UNIT], such as capacity=rate:Gbit/s or length=delay:km")]
    Form(String),
    /// An unknown role.
    #[error("`{0}` is nothing that a key can mean; name one of rate, delay, weight, name, longitude, latitude, ignore")]
    Role(String),
    /// An unknown unit, or one of another measure.
    #[error("`{unit}` is no unit of a {role}; known are {known}")]
    Unit {
        /// The unit.
        unit: String,
        /// What the key stands for.
        role: &'static str,
        /// The units that fit.
        known: &'static str,
    },
    /// A key with two meanings.
    #[error("the key `{0}` is given two meanings")]
    Twice(String),
}

const RATES: &str = "bit/s, kbit/s, Mbit/s, Gbit/s and Tbit/s";
const DELAYS: &str = "s, ms, µs, ns, and of lengths km, m and mi";

/// What light in fibre takes for a metre, in nanoseconds.
pub(crate) const NANOS_PER_METRE: f64 = 5.0;

const UNITS: [(&[&str], Unit); 12] = [
    (&["bit/s", "bps", "b/s", "bits"], Unit { name: "bit/s", measure: Measure::Rate, factor: 1.0 }),
    (&["kbit/s", "kbps", "kb/s", "kbits", "k"], Unit { name: "kbit/s", measure: Measure::Rate, factor: 1e3 }),
    (&["mbit/s", "mbps", "mb/s", "mbits", "m"], Unit { name: "Mbit/s", measure: Measure::Rate, factor: 1e6 }),
    (&["gbit/s", "gbps", "gb/s", "gbits", "g"], Unit { name: "Gbit/s", measure: Measure::Rate, factor: 1e9 }),
    (&["tbit/s", "tbps", "tb/s", "tbits", "t"], Unit { name: "Tbit/s", measure: Measure::Rate, factor: 1e12 }),
    (&["s", "sec", "seconds"], Unit { name: "s", measure: Measure::Time, factor: 1e9 }),
    (&["ms", "msec", "milliseconds"], Unit { name: "ms", measure: Measure::Time, factor: 1e6 }),
    (&["us", "µs", "usec", "microseconds"], Unit { name: "µs", measure: Measure::Time, factor: 1e3 }),
    (&["ns", "nsec", "nanoseconds"], Unit { name: "ns", measure: Measure::Time, factor: 1.0 }),
    (&["km"], Unit { name: "km", measure: Measure::Length, factor: 1e3 * NANOS_PER_METRE }),
    (&["m", "metres", "meters"], Unit { name: "m", measure: Measure::Length, factor: NANOS_PER_METRE }),
    (&["mi", "miles"], Unit { name: "mi", measure: Measure::Length, factor: 1_609.344 * NANOS_PER_METRE }),
];

impl Unit {
    /// The unit of this name, whatever its case, that a role's values may have.
    pub(crate) fn of(role: Role, name: &str) -> Option<Unit> {
        let name = name.trim().to_lowercase();
        let fits = |unit: &Unit| (role == Role::Rate) == (unit.measure == Measure::Rate);
        UNITS.iter().find(|(names, unit)| fits(unit) && names.contains(&name.as_str())).map(|(_, unit)| *unit)
    }
}

impl Mapping {
    /// Adds a key's meaning, `ROLE` or `ROLE:UNIT`.
    pub fn add(&mut self, key: &str, meaning: &str) -> Result<(), MapError> {
        let (role, unit) = meaning.split_once(':').map_or((meaning, None), |(role, unit)| (role, Some(unit)));
        let (role, word, known) = match role.trim() {
            "rate" => (Role::Rate, "rate", RATES),
            "delay" => (Role::Delay, "delay", DELAYS),
            "weight" => (Role::Weight, "weight", "none"),
            "name" => (Role::Name, "name", "none"),
            "longitude" => (Role::Longitude, "longitude", "none"),
            "latitude" => (Role::Latitude, "latitude", "none"),
            "ignore" => (Role::Ignore, "key that is ignored", "none"),
            other => return Err(MapError::Role(other.into())),
        };
        let fits = matches!(role, Role::Rate | Role::Delay);
        let unit = match unit {
            Some(name) => match Unit::of(role, name).filter(|_| fits) {
                Some(unit) => Some(unit),
                None => return Err(MapError::Unit { unit: name.into(), role: word, known }),
            },
            None => None,
        };
        match self.keys.insert(key.trim().into(), (role, unit)) {
            Some(_) => Err(MapError::Twice(key.trim().into())),
            None => Ok(()),
        }
    }

    /// Whether no key has been given a meaning.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl FromStr for Mapping {
    type Err = MapError;

    fn from_str(text: &str) -> Result<Self, MapError> {
        let (key, meaning) = text.split_once('=').ok_or_else(|| MapError::Form(text.into()))?;
        let mut mapping = Mapping::default();
        mapping.add(key, meaning)?;
        Ok(mapping)
    }
}

impl Extend<Mapping> for Mapping {
    fn extend<I: IntoIterator<Item = Mapping>>(&mut self, others: I) {
        others.into_iter().for_each(|other| self.keys.extend(other.keys));
    }
}

/// What a key probably means, by its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Guess {
    pub(crate) role: Role,
    pub(crate) unit: Option<Unit>,
    /// Whether the name does not say the unit.
    pub(crate) assumed: bool,
    /// Of several keys of a role the one of the least rank is read.
    pub(crate) rank: u8,
}

/// What a key probably means; `None` if it is not known.
pub(crate) fn guess(name: &str, of_nodes: bool) -> Option<Guess> {
    const NODES: [(&str, Role); 9] = [
        ("label", Role::Name),
        ("name", Role::Name),
        ("longitude", Role::Longitude),
        ("lon", Role::Longitude),
        ("lng", Role::Longitude),
        ("long", Role::Longitude),
        ("latitude", Role::Latitude),
        ("lat", Role::Latitude),
        ("nodelabel", Role::Name),
    ];
    const EDGES: [(&str, Role); 21] = [
        ("linkspeedraw", Role::Rate),
        ("capacity", Role::Rate),
        ("bandwidth", Role::Rate),
        ("datarate", Role::Rate),
        ("rate", Role::Rate),
        ("speed", Role::Rate),
        ("bw", Role::Rate),
        ("cap", Role::Rate),
        ("propagationdelay", Role::Delay),
        ("delay", Role::Delay),
        ("latency", Role::Delay),
        ("length", Role::Delay),
        ("distance", Role::Delay),
        ("dist", Role::Delay),
        ("weight", Role::Weight),
        ("igpmetric", Role::Weight),
        ("igpweight", Role::Weight),
        ("ospfcost", Role::Weight),
        ("isismetric", Role::Weight),
        ("metric", Role::Weight),
        ("cost", Role::Weight),
    ];
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let known: &[(&str, Role)] = if of_nodes { &NODES } else { &EDGES };
    let exact = known.iter().position(|(key, _)| *key == plain);
    let (rank, unit) = match exact {
        Some(rank) => (rank, None),
        // Such as `bandwidth_mbps`.
        None => known.iter().enumerate().find_map(|(rank, (key, role))| {
            let unit = plain.strip_prefix(key).filter(|unit| unit.chars().count() >= 2)?;
            let unit = Unit::of(*role, unit)?;
            matches!(role, Role::Rate | Role::Delay).then_some((rank, Some(unit)))
        })?,
    };
    let (key, role) = known.get(rank)?;
    let is_length = matches!(*key, "length" | "distance" | "dist");
    let assumed = unit.is_none();
    let unit = if is_length && assumed { Unit::of(Role::Delay, "km") } else { unit };
    Some(Guess { role: *role, unit, assumed, rank: rank as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_are_read_and_wrong_ones_say_what_is_right() {
        let mapping: Mapping = "length=delay:km".parse().unwrap();
        assert_eq!(mapping.keys["length"], (Role::Delay, Unit::of(Role::Delay, "km")));
        let error = |text: &str| text.parse::<Mapping>().unwrap_err().to_string();
        assert_eq!(error("length"), "`length` is not KEY=ROLE[:UNIT], such as capacity=rate:Gbit/s or length=delay:km");
        assert_eq!(
            error("a=speed"),
            "`speed` is nothing that a key can mean; name one of rate, delay, weight, name, longitude, latitude, ignore"
        );
        assert_eq!(error("a=rate:km"), "`km` is no unit of a rate; known are bit/s, kbit/s, Mbit/s, Gbit/s and Tbit/s");
        assert_eq!(error("a=weight:ms"), "`ms` is no unit of a weight; known are none");
        let mut twice = mapping;
        assert_eq!(twice.add("length", "rate"), Err(MapError::Twice("length".into())));
    }

    #[test]
    fn keys_are_known_by_their_names_with_a_unit_behind_or_without() {
        let edge = |name| guess(name, false).map(|guess| (guess.role, guess.unit.map(|unit| unit.name)));
        assert_eq!(edge("Bandwidth"), Some((Role::Rate, None)));
        assert_eq!(edge("bandwidth_mbps"), Some((Role::Rate, Some("Mbit/s"))));
        assert_eq!(edge("delay (ms)"), Some((Role::Delay, Some("ms"))));
        assert_eq!(edge("dist"), Some((Role::Delay, Some("km"))));
        assert_eq!(edge("igp_metric"), Some((Role::Weight, None)));
        assert_eq!((edge("color"), edge("LinkSpeed"), edge("delays")), (None, None, None));
        assert_eq!(guess("lat", true).map(|guess| guess.role), Some(Role::Latitude));
        assert_eq!(guess("capacity", true), None);
    }
}
