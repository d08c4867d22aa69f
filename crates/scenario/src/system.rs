//! Systems under test, as they are written everywhere: `NAME:key=value,key=value`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use sidestep_net::SettingError;

use crate::World;

/// A system to run, and the settings that it has to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemSpec {
    /// Which system.
    pub name: String,
    /// Its parameters in the order in which they were written.
    pub params: Vec<(String, String)>,
}

/// A system that cannot be read, or whose parameters do not fit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SystemError {
    /// No system has that name.
    #[error("there is no system `{name}`; known systems: {known}")]
    UnknownSystem {
        /// The name read.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A table that no system reads.
    #[error("there is no table `{key}`; systems read the tables {known}")]
    UnknownTable {
        /// The key read.
        key: String,
        /// Those that there are.
        known: String,
    },
    /// A system without a name, or one that could not be a file's.
    #[error("`{0}` is no name of a system; write letters, digits and `-`")]
    BadName(String),
    /// A parameter without `=`.
    #[error("`{0}` is not a parameter; write `name=value`, with commas between several")]
    NoValue(String),
    /// The system has no such parameter.
    #[error("`{system}` has no parameter `{parameter}`; it has {known}")]
    UnknownParameter {
        /// The system.
        system: String,
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
    #[error("the {world} cannot run the system `{system}` yet; it has {known}")]
    NotInWorld {
        /// The world.
        world: World,
        /// The system.
        system: String,
        /// Those that it runs.
        known: String,
    },
    /// The settings do not fit together.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

impl SystemSpec {
    /// The system without parameters.
    pub fn plain(name: &str) -> Self {
        SystemSpec { name: name.into(), params: Vec::new() }
    }
}

impl FromStr for SystemSpec {
    type Err = SystemError;
    fn from_str(text: &str) -> Result<Self, SystemError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = SystemSpec::plain(name.trim());
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if !(1..=64).contains(&spec.name.len()) || !spec.name.chars().all(fine) {
            return Err(SystemError::BadName(spec.name));
        }
        for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (parameter, value) = part.split_once('=').ok_or_else(|| SystemError::NoValue(part.into()))?;
            let (parameter, value) = (parameter.trim(), value.trim());
            if spec.params.iter().any(|(other, _)| other == parameter) {
                return Err(SystemError::Twice(parameter.into()));
            }
            spec.params.push((parameter.into(), value.into()));
        }
        Ok(spec)
    }
}

impl fmt::Display for SystemSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
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
