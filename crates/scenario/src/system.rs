//! Systems under test, as they are written everywhere: `pathchanger:policy=exp3,gamma=0.2`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use sidestep_net::SettingError;

use super::{SystemKnobs, settings};
use crate::systems::{SystemName, World, listed};

/// A system to run, and the settings that it has to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemSpec {
    /// Which system.
    pub name: SystemName,
    /// Its parameters in the order in which they were written.
    pub params: Vec<(String, String)>,
}

/// A system that cannot be read, or whose parameters do not fit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SystemError {
    /// No system has that name.
    #[error("there is no system `{0}`; known systems: {known}", known = known_systems())]
    UnknownSystem(String),
    /// A parameter without `=`.
    #[error("`{0}` is not a parameter; write `name=value`, with commas between several")]
    NoValue(String),
    /// The system has no such parameter.
    #[error("`{system}` has no parameter `{parameter}`; it has {known}")]
    UnknownParameter {
        /// The system.
        system: SystemName,
        /// The parameter read.
        parameter: String,
        /// Those that it has.
        known: String,
    },
    /// A parameter that is given twice.
    #[error("parameter `{0}` is given twice")]
    Twice(String),
    /// A value that the parameter cannot take.
    #[error("{parameter}: {problem}")]
    BadValue {
        /// The parameter.
        parameter: String,
        /// Why the value does not fit.
        problem: String,
    },
    /// A world cannot run the system.
    #[error("the {world} cannot run the system `{system}` yet; it has {known}", known = listed(.world.systems()))]
    NotInWorld {
        /// The world.
        world: World,
        /// The system.
        system: SystemName,
    },
    /// The settings do not fit together.
    #[error(transparent)]
    Knob(#[from] SettingError),
}

impl SystemSpec {
    /// The system without parameters.
    pub const fn plain(name: SystemName) -> Self {
        SystemSpec { name, params: Vec::new() }
    }
}

fn known_systems() -> String {
    SystemName::ALL.map(SystemName::as_str).join(", ")
}

impl FromStr for SystemSpec {
    type Err = SystemError;
    fn from_str(text: &str) -> Result<Self, SystemError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = SystemSpec::plain(name.trim().parse()?);
        for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (parameter, value) = part.split_once('=').ok_or_else(|| SystemError::NoValue(part.into()))?;
            let (parameter, value) = (parameter.trim(), value.trim());
            if spec.params.iter().any(|(other, _)| other == parameter) {
                return Err(SystemError::Twice(parameter.into()));
            }
            spec.params.push((parameter.into(), value.into()));
        }
        // Values are read now so that a bad one is reported where it is written; whether it fits the other settings
        // shows with those of the scenario.
        settings::of_system(&SystemKnobs::default(), &spec)?;
        Ok(spec)
    }
}

impl fmt::Display for SystemSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)?;
        for (index, (parameter, value)) in self.params.iter().enumerate() {
            write!(f, "{}{parameter}={value}", if index == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl Serialize for SystemSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SystemSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
