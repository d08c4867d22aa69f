//! Where a file names interfaces.

use std::{collections::BTreeMap, fmt};

use sidestep_net::ParseError;

/// Where the file names each interface for the first time, for errors that only the machine shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places(BTreeMap<String, ParseError>);

/// A place in the file, as it stands in front of a message; empty where there is no file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place(Option<Box<ParseError>>);

impl Places {
    /// Notes where the file names an interface first.
    pub(super) fn note(&mut self, interface: &str, place: impl FnOnce() -> ParseError) {
        self.0.entry(interface.to_string()).or_insert_with(place);
    }

    /// The place of an interface.
    pub fn of(&self, interface: &str) -> Place {
        Place(self.0.get(interface).cloned().map(Box::new))
    }

    /// Puts the file's name in front of every place.
    pub fn in_file(self, file: &str) -> Self {
        Places(self.0.into_iter().map(|(interface, place)| (interface, place.in_file(file))).collect())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.0 else { return Ok(()) };
        if let Some(file) = &place.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{}:{}: ", place.line, place.column)
    }
}
