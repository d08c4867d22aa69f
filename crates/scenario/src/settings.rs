//! The settings of a system: a table of the scenario file, the system's parameters over it.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sidestep_net::{ParseError, SettingsTable, document::Document};
use toml::{Table, Value};

use crate::{SettingsInfo, SystemError, SystemInfo, SystemSpec};

/// The settings in full that a table stands for, every range checked.
pub(crate) fn fill<T: SettingsTable>(table: &Table) -> Result<Table, SystemError> {
    let settings = T::deserialize(table.clone())
        .map_err(|error| SystemError::BadValue { parameter: "settings".into(), problem: message(&error) })?;
    settings.check()?;
    full(&settings)
}

/// As [`fill`], of the table `key` of a document.
pub(crate) fn read<T: SettingsTable>(document: &Document<'_>, key: &str) -> Result<Table, ParseError> {
    let root = document.root();
    let item = root.get_ref().get(key).unwrap_or(root);
    let settings: T = document.read(item, &[])?;
    settings.check().map_err(|error| document.error_at(item, error.setting, &error))?;
    full(&settings).map_err(|error| document.error_at(root, key, error))
}

/// The settings of a system with its parameters over them, every range checked.
pub(crate) fn overlay<T: SettingsTable>(
    table: &Table,
    of: &SettingsInfo,
    spec: &SystemSpec,
) -> Result<Table, SystemError> {
    full(&overlaid::<T>(table, of, spec)?)
}

/// The settings of a system that it reads as `T`.
pub(crate) fn of<T: SettingsTable>(
    info: &SystemInfo,
    tables: &BTreeMap<String, Table>,
    spec: &SystemSpec,
) -> Result<T, SystemError> {
    let Some(settings) = &info.settings else { return Ok(T::default()) };
    let empty = Table::new();
    overlaid(tables.get(settings.key).unwrap_or(&empty), settings, spec)
}

/// `base` with what the system fixes, and then its parameters, over it.
fn overlaid<T: SettingsTable>(base: &Table, of: &SettingsInfo, spec: &SystemSpec) -> Result<T, SystemError> {
    let bad = |parameter: &str, problem: String| SystemError::BadValue { parameter: parameter.into(), problem };
    let mut settings = T::deserialize(base.clone()).map_err(|error| bad(of.key, message(&error)))?;
    let mut table = full(&settings)?;
    let fixed_keys: Vec<&str> = of.fixed.iter().map(|(key, _)| *key).collect();
    let known: Vec<String> = parameters(&table)
        .map(|(name, _)| name)
        .filter(|name| !T::FILE_ONLY.contains(&name.as_str()) && !fixed_keys.contains(&name.as_str()))
        .collect();
    if let Some((parameter, _)) = spec.params.iter().find(|(parameter, _)| !known.contains(parameter)) {
        return Err(unknown(&spec.name, parameter, &known));
    }
    let given = spec.params.iter().map(|(parameter, value)| (parameter.as_str(), value.as_str()));
    for (parameter, text) in of.fixed.iter().copied().chain(given) {
        if let Some((_, place)) = parameters_mut(&mut table).find(|(name, _)| name == parameter) {
            *place = value_like(place, text).map_err(|problem| bad(parameter, problem))?;
        }
        // Read after each, so that the error is known to be this parameter's.
        settings = T::deserialize(table.clone()).map_err(|error| bad(parameter, message(&error)))?;
    }
    settings.check()?;
    Ok(settings)
}

/// Every setting, as a table.
fn full<T: SettingsTable>(settings: &T) -> Result<Table, SystemError> {
    Table::try_from(settings)
        .map_err(|error| SystemError::BadValue { parameter: "settings".into(), problem: error.to_string() })
}

fn message(error: &toml::de::Error) -> String {
    error.message().trim().into()
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

pub(crate) fn unknown(system: &str, parameter: &str, known: &[String]) -> SystemError {
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    SystemError::UnknownParameter { system: system.into(), parameter: parameter.into(), known }
}
