//! The settings of systems: each table of the scenario file that a system may take parameters from.
//!
//! A table is one line in `settings!` below and one file in `settings/`, which holds its struct: serde reads it from
//! the scenario, prints it in the resolved copy, and lays a system's parameters over it.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use serde::Serialize;
use toml::{Table, Value};

use sidestep_net::{SettingError, SettingsTable};
pub(crate) use sidestep_policy::{AgentKnobs, PlbKnobs};
pub(crate) use sidestep_proto::{inrpp::InrppKnobs, irc::IrcKnobs, mptcp::MptcpKnobs, rcp::RcpKnobs};

mod semper;
pub use semper::SemperKnobs;

use super::{Scenario, SystemError, SystemName, SystemSpec};

/// Hands the tables of settings to the macro `$callback`: module and key in the file, variant, struct, what it holds.
macro_rules! settings {
    ($callback:ident) => {
        $callback! {
            (mptcp Mptcp MptcpKnobs "MPTCP's settings.")
            (semper Semper SemperKnobs "SEMPER's settings.")
            (irc Irc IrcKnobs "Intelligent route control's settings.")
            (rcp Rcp RcpKnobs "The Rate Control Protocol's settings.")
            (inrpp Inrpp InrppKnobs "In-Network Resource Pooling's settings.")
            (plb Plb PlbKnobs "Protective Load Balancing's settings.")
            (agent Agent AgentKnobs "The path changer's settings.")
        }
    };
}
pub(super) use settings;

macro_rules! tables {
    ($(($key:ident $variant:ident $knobs:ident $what:literal))*) => {
        $(
            impl From<$knobs> for Settings {
                fn from(knobs: $knobs) -> Settings {
                    Settings::$variant(knobs)
                }
            }
        )*

        /// The settings of systems as a scenario has them, before a system's own parameters.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct SystemKnobs {
            $(#[doc = $what] pub $key: $knobs,)*
        }

        /// The settings of one system, its own parameters included.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Settings {
            /// The system has none.
            None,
            $(#[doc = $what] $variant($knobs),)*
        }

        impl SystemKnobs {
            /// Checks every setting's range; an error comes with the table's key.
            pub(super) fn check(&self) -> Result<(), (&'static str, SettingError)> {
                $(self.$key.check().map_err(|error| (stringify!($key), error))?;)*
                Ok(())
            }
        }

        impl Settings {
            fn check(&self) -> Result<(), SettingError> {
                match self {
                    Settings::None => Ok(()),
                    $(Settings::$variant(knobs) => knobs.check(),)*
                }
            }
        }
    };
}

settings!(tables);

/// The settings in the column of the table of systems, the parameters of `$spec` over them.
macro_rules! overlaid {
    ($knobs:ident $spec:ident none) => {
        match $spec.params.first() {
            Some((parameter, _)) => Err(unknown($spec.name, parameter, &[])),
            None => Ok(Settings::None),
        }
    };
    ($knobs:ident $spec:ident ($table:ident $($key:ident = $value:literal),+)) => {
        overlay(&$knobs.$table, &[$((stringify!($key), $value)),+], $spec).map(Settings::from)
    };
    ($knobs:ident $spec:ident $table:ident) => {
        overlay(&$knobs.$table, &[], $spec).map(Settings::from)
    };
}

macro_rules! systems_settings {
    ($(($module:ident $variant:ident $name:literal $sim:tt $lab:tt $settings:tt $what:literal))*) => {
        /// The settings of a system: `knobs` with the system's parameters over them, ranges not yet checked.
        pub(super) fn of_system(knobs: &SystemKnobs, spec: &SystemSpec) -> Result<Settings, SystemError> {
            match spec.name {
                $(SystemName::$variant => overlaid!(knobs spec $settings),)*
            }
        }
    };
}

crate::systems!(systems_settings);

impl SystemKnobs {
    /// The settings of a system with its own parameters over these, every range checked.
    pub(super) fn of(&self, spec: &SystemSpec) -> Result<Settings, SystemError> {
        let settings = of_system(self, spec)?;
        settings.check()?;
        Ok(settings)
    }
}

impl Scenario {
    /// The settings of a system in this scenario: the file's with the system's own parameters over them.
    ///
    /// Fails on parameters that the system does not have, and on values out of range.
    pub fn settings(&self, spec: &SystemSpec) -> Result<Settings, SystemError> {
        self.knobs.of(spec)
    }
}

/// `base` with what the system fixes, and then its parameters, over it.
fn overlay<T: SettingsTable>(base: &T, fixed: &[(&str, &str)], spec: &SystemSpec) -> Result<T, SystemError> {
    let bad = |parameter: &str, problem: String| SystemError::BadValue { parameter: parameter.into(), problem };
    let mut table = Table::try_from(base).map_err(|error| bad(spec.name.as_str(), error.to_string()))?;
    let fixed_keys: Vec<&str> = fixed.iter().map(|(key, _)| *key).collect();
    let known: Vec<String> = parameters(&table)
        .map(|(name, _)| name)
        .filter(|name| !T::FILE_ONLY.contains(&name.as_str()) && !fixed_keys.contains(&name.as_str()))
        .collect();
    if let Some((parameter, _)) = spec.params.iter().find(|(parameter, _)| !known.contains(parameter)) {
        return Err(unknown(spec.name, parameter, &known));
    }
    let given = spec.params.iter().map(|(parameter, value)| (parameter.as_str(), value.as_str()));
    let mut settings = base.clone();
    for (parameter, text) in fixed.iter().copied().chain(given) {
        if let Some((_, place)) = parameters_mut(&mut table).find(|(name, _)| name == parameter) {
            *place = value_like(place, text).map_err(|problem| bad(parameter, problem))?;
        }
        // Read after each, so that the error is known to be this parameter's.
        settings = T::deserialize(table.clone()).map_err(|error| bad(parameter, error.message().trim().into()))?;
    }
    Ok(settings)
}

/// `text` as a value of the type that the setting has.
fn value_like(setting: &Value, text: &str) -> Result<Value, String> {
    match setting {
        Value::Integer(_) => text.parse().map(Value::Integer).map_err(|_| format!("`{text}` is not a whole number")),
        Value::Float(_) => text.parse().map(Value::Float).map_err(|_| format!("`{text}` is not a number")),
        Value::Boolean(_) => {
            text.parse().map(Value::Boolean).map_err(|_| format!("`{text}` is neither `true` nor `false`"))
        }
        _ => Ok(Value::String(text.into())),
    }
}

/// The settings of a table by the names of their parameters: `congestion_backoff.min` is `congestion_min`.
fn parameters(table: &Table) -> impl Iterator<Item = (String, &Value)> {
    table.iter().flat_map(|(key, value)| match value {
        Value::Table(inner) => inner.iter().map(|(part, value)| (nested(key, part), value)).collect(),
        value => vec![(key.clone(), value)],
    })
}

fn parameters_mut(table: &mut Table) -> impl Iterator<Item = (String, &mut Value)> {
    table.iter_mut().flat_map(|(key, value)| match value {
        Value::Table(inner) => inner.iter_mut().map(|(part, value)| (nested(key, part), value)).collect(),
        value => vec![(key.clone(), value)],
    })
}

fn nested(key: &str, part: &str) -> String {
    format!("{}_{part}", key.strip_suffix("_backoff").unwrap_or(key))
}

fn unknown(system: SystemName, parameter: &str, known: &[String]) -> SystemError {
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    SystemError::UnknownParameter { system, parameter: parameter.into(), known }
}
