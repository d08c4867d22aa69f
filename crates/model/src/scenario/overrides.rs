//! Values laid over those of a scenario file, as `--set topology.rate=10Mbit/s` does.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::str::FromStr;

use thiserror::Error;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

/// A key of a scenario file and what it is set to.
///
/// ```
/// use sidestep_model::scenario::overrides::{Override, apply};
///
/// let text = "duration = \"1 s\"\n[[flow]]\nkind = \"bulk\"\n";
/// let set: [Override; 2] = ["topology.rate=5 Mbit/s".parse()?, "flow.0.connections=3".parse()?];
/// let text = apply(text, &set)?;
/// assert_eq!(text, "duration = \"1 s\"\n[[flow]]\nkind = \"bulk\"\nconnections = 3\n\n[topology]\nrate = \"5 Mbit/s\"\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Override {
    /// Tables, numbers in lists, and at the end the key.
    path: Vec<String>,
    value: Value,
}

/// A key of a scenario file, and several values for it.
///
/// ```
/// use sidestep_model::scenario::overrides::Sweep;
///
/// let sweep: Sweep = "agent.congestion_backoff={ min = \"1 s\", max = \"2 s\" },{ min = \"2 s\", max = \"4 s\" }".parse()?;
/// assert_eq!((sweep.key(), sweep.values().len()), ("agent.congestion_backoff".to_owned(), 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sweep(Vec<Override>);

/// Why a key cannot be set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OverrideError {
    /// Not `KEY=VALUE`.
    #[error("`{0}` is not KEY=VALUE, such as topology.rate=10Mbit/s or flow.0.connections=4")]
    Form(String),
    /// The key leads into a list without a number.
    #[error("`{key}`: `{list}` is a list of {length}; say {list}.0 for the first")]
    List {
        /// The whole key.
        key: String,
        /// The part that is a list.
        list: String,
        /// How many entries it has.
        length: usize,
    },
    /// The list is shorter.
    #[error("`{key}`: there are {length} entries in `{list}`, counted from 0")]
    Short {
        /// The whole key.
        key: String,
        /// The part that is a list.
        list: String,
        /// How many entries it has.
        length: usize,
    },
    /// The key leads through a value that has no keys.
    #[error("`{key}`: `{part}` is a value and has no keys")]
    NoTable {
        /// The whole key.
        key: String,
        /// The part that is a value.
        part: String,
    },
    /// Not `KEY=VALUE,VALUE…`.
    #[error("`{0}` is not KEY=VALUE,VALUE,… with one value or more, such as topology.rate=10Mbit/s,20Mbit/s")]
    Values(String),
    /// The file itself is no TOML.
    #[error("{0}")]
    File(String),
}

impl FromStr for Override {
    type Err = OverrideError;

    /// Reads `KEY=VALUE`. The value is TOML, or else text, so that quotes can be left out.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || OverrideError::Form(text.to_owned());
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        let path: Vec<String> = key.split('.').map(|part| part.trim().to_owned()).collect();
        let is_key =
            |part: &String| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        if !path.iter().all(is_key) {
            return Err(form());
        }
        let value = value.trim();
        let value = value.parse::<Value>().unwrap_or_else(|_| Value::from(value));
        Ok(Override { path, value: value.decorated(" ", "") })
    }
}

impl FromStr for Sweep {
    type Err = OverrideError;

    /// Reads `KEY=VALUE,VALUE,…`. Commas within quotes, brackets and braces are a value's own.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || OverrideError::Values(text.to_owned());
        let (key, values) = text.split_once('=').ok_or_else(form)?;
        let values = split(values);
        if values.iter().any(|value| value.trim().is_empty()) {
            return Err(form());
        }
        let set = values.into_iter().map(|value| format!("{key}={value}").parse().map_err(|_| form()));
        Ok(Sweep(set.collect::<Result<_, _>>()?))
    }
}

impl Sweep {
    /// The key.
    pub fn key(&self) -> String {
        self.0.first().map_or_else(String::new, Override::key)
    }

    /// The key with each of the values.
    pub fn values(&self) -> &[Override] {
        &self.0
    }
}

/// The parts between the commas that are not within quotes, brackets or braces.
fn split(values: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_u32, None);
    for (at, c) in values.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.extend(values.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(values.get(from..));
    parts
}

/// The text of a scenario file in which these keys have these values. Lines that are not set stay as they are.
pub fn apply(text: &str, set: &[Override]) -> Result<String, OverrideError> {
    if set.is_empty() {
        return Ok(text.to_owned());
    }
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| OverrideError::File(error.to_string()))?;
    for one in set {
        one.lay_over(document.as_table_mut())?;
    }
    Ok(document.to_string())
}

/// Makes of `topology = "Abilene"` the table that it is short for, in the same line.
fn lengthen(topology: &mut Item) {
    if let Item::Value(Value::String(name)) = topology {
        let mut table = InlineTable::from_iter([("network", name.value().as_str())]);
        *table.decor_mut() = name.decor().clone();
        *topology = Item::Value(table.into());
    }
}

impl Override {
    fn lay_over(&self, table: &mut dyn TableLike) -> Result<(), OverrideError> {
        let Some((key, path)) = self.path.split_last() else { return Ok(()) };
        let mut table = table;
        let mut path = path.iter().enumerate();
        while let Some((depth, part)) = path.next() {
            let item = table.entry(part).or_insert_with(|| Item::Table(Table::new()));
            if depth == 0 && part == "topology" {
                lengthen(item);
            }
            let list = || self.path.get(..=depth).unwrap_or_default().join(".");
            if item.is_table_like() {
                table = item.as_table_like_mut().ok_or_else(|| self.no_table(&list()))?;
                continue;
            }
            let length =
                item.as_array_of_tables().map(toml_edit::ArrayOfTables::len).ok_or_else(|| self.no_table(&list()))?;
            let number = path.next().and_then(|(_, number)| number.parse::<usize>().ok());
            let number = number.ok_or_else(|| OverrideError::List { key: self.key(), list: list(), length })?;
            let entry = item.as_array_of_tables_mut().and_then(|tables| tables.get_mut(number));
            table = entry.ok_or_else(|| OverrideError::Short { key: self.key(), list: list(), length })?;
        }
        if let Some(tables) = table.get(key).and_then(Item::as_array_of_tables) {
            return Err(OverrideError::List { key: self.key(), list: self.key(), length: tables.len() });
        }
        match table.get_mut(key).and_then(Item::as_value_mut) {
            Some(present) => {
                // Comments and white space around the value stay.
                let around = present.decor().clone();
                *present = self.value.clone();
                *present.decor_mut() = around;
            }
            None => {
                table.insert(key, value(self.value.clone()));
            }
        }
        Ok(())
    }

    fn no_table(&self, part: &str) -> OverrideError {
        OverrideError::NoTable { key: self.key(), part: part.to_owned() }
    }

    fn key(&self) -> String {
        self.path.join(".")
    }

    /// The value as TOML, a text without its quotes.
    pub fn value(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.to_string().trim().to_owned(), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "# Why.\nduration = \"1 s\" # short\ntcp = { ecn = true }\n\n[[flow]]\nkind = \"bulk\"\n\n[[flow]]\nkind = \"cbr\"\nsize = { mean = \"3 kB\" }\n";

    fn set(text: &str, set: &[&str]) -> Result<String, OverrideError> {
        apply(text, &set.iter().map(|one| one.parse()).collect::<Result<Vec<Override>, _>>()?)
    }

    #[test]
    fn a_key_is_set_where_it_stands_and_all_else_stays() {
        let text = set(FILE, &["duration=2 s", "flow.1.size.mean=\"9 kB\"", "tcp.ecn=false", "flow.1.rate=5"]).unwrap();
        let expected = FILE.replace("\"1 s\"", "\"2 s\"").replace("3 kB", "9 kB").replace("true", "false");
        assert_eq!(text, expected + "rate = 5\n");
        assert_eq!(set(FILE, &[]).unwrap(), FILE);
    }

    #[test]
    fn tables_that_are_missing_are_made_and_the_last_value_counts() {
        let text = set("a = 1\n", &["agent.gamma=0.2", "agent.gamma=0.3", "agent.policy=plb"]).unwrap();
        assert_eq!(text, "a = 1\n\n[agent]\ngamma = 0.3\npolicy = \"plb\"\n");
    }

    #[test]
    fn a_topology_that_is_named_in_short_has_keys_too() {
        let text =
            set("topology = \"Abilene\" # small\n[tcp]\n", &["topology.rate=5 Mbit/s", "topology.hosts=2"]).unwrap();
        assert_eq!(text, "topology = { network = \"Abilene\", rate = \"5 Mbit/s\", hosts = 2} # small\n[tcp]\n");
        assert_eq!(set("topology = \"a\"\n", &["topology=b"]).unwrap(), "topology = \"b\"\n");
    }

    #[test]
    fn a_key_that_leads_nowhere_is_told_with_what_to_say() {
        for (one, says) in [
            ("duration", "`duration` is not KEY=VALUE, such as topology.rate=10Mbit/s or flow.0.connections=4"),
            (".a=1", "`.a=1` is not KEY=VALUE, such as topology.rate=10Mbit/s or flow.0.connections=4"),
            ("flow.size=1", "`flow.size`: `flow` is a list of 2; say flow.0 for the first"),
            ("flow=1", "`flow`: `flow` is a list of 2; say flow.0 for the first"),
            ("flow.2.size=1", "`flow.2.size`: there are 2 entries in `flow`, counted from 0"),
            ("duration.x=1", "`duration.x`: `duration` is a value and has no keys"),
        ] {
            assert_eq!(set(FILE, &[one]).unwrap_err().to_string(), says);
        }
    }

    #[test]
    fn a_sweep_has_the_values_between_the_commas_that_are_its_own() {
        let values = |text: &str| -> Vec<String> {
            text.parse::<Sweep>().unwrap().values().iter().map(Override::value).collect()
        };
        assert_eq!(values("topology.rate=10 Mbit/s, \"20, or so\",5"), ["10 Mbit/s", "20, or so", "5"]);
        assert_eq!(values("a={ x = 1, y = [1, 2] },{ x = 2 }"), ["{ x = 1, y = [1, 2] }", "{ x = 2 }"]);
        assert_eq!(values("a=true"), ["true"]);
        for wrong in ["a", "a=", "a=1,,2", "a=1,", "=1,2"] {
            let says = wrong.parse::<Sweep>().unwrap_err().to_string();
            assert!(says.starts_with(&format!("`{wrong}` is not KEY=VALUE")), "{wrong}: {says}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(one in "[a-z.0-9=\\[\\]{}\" ]{0,30}", file in "(a = 1\n|\\[[a-z]\\]\n|\\[\\[[a-z]\\]\\]\n|[a-z]=\\{\\}\n){0,4}") {
            if let Ok(text) = set(&file, &[&one]) {
                prop_assert!(text.parse::<DocumentMut>().is_ok(), "{text}");
            }
        }
    }
}
