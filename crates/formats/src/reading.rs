//! What was taken of a file, what was assumed, and what was left.

use std::fmt;

use serde::Serialize;

/// The account of how a file was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// What became of each kind of value; empty for our own files, which have all.
    pub taken: Vec<Taken>,
    /// Keys of nodes and edges that nothing was made of, in the order of the file.
    pub ignored: Vec<String>,
    /// What is probably not as it was meant.
    pub warnings: Vec<String>,
}

/// The account of one kind of value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// "names", "positions", "rates", "delays", "weights" or "directions".
    pub kind: &'static str,
    /// The key or keys of the file; `None`: it has none.
    pub key: Option<String>,
    /// Of how many nodes or edges there is a value.
    pub known: usize,
    /// How many there are.
    pub of: usize,
    /// The unit of the values.
    pub unit: Option<&'static str>,
    /// Whether the unit is assumed: neither the file nor the user says it.
    pub assumed: bool,
    /// What is taken for the others.
    pub rest: Option<String>,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taken { kind, key, known, of, unit, assumed, rest } = self;
        write!(f, "{kind}: ")?;
        match key {
            Some(key) => write!(f, "key {key}, {known} of {of}")?,
            None => write!(f, "none in the file")?,
        }
        if let Some(unit) = unit {
            write!(f, ", {unit}{}", if *assumed { " assumed" } else { "" })?;
        }
        rest.as_ref().map_or(Ok(()), |rest| write!(f, "; {rest}"))
    }
}

impl Reading {
    /// The account in lines, one a kind.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.taken.iter().map(ToString::to_string).collect();
        if !self.ignored.is_empty() {
            let some: Vec<String> = self.ignored.iter().take(MAX_SHOWN).map(|key| format!("`{key}`")).collect();
            let more = self.ignored.len().saturating_sub(MAX_SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!("ignored: {}{more}", some.join(", ")));
        }
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        lines
    }
}

/// More ignored keys than this are counted only.
const MAX_SHOWN: usize = 12;
