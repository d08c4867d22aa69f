//! TOML text whose values keep their positions, so that every error names line and column.
//!
//! The readers of scenarios, topologies and the agent's configuration use it:
//!
//! ```
//! use sidestep_net::document::Document;
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct File { port: u16 }
//!
//! let document = Document::parse("port = 70000")?;
//! let error = document.read::<File>(document.root(), &[]).err().map(|error| error.in_file("x.toml").to_string());
//! assert!(error.is_some_and(|error| error.starts_with("x.toml:1:8: ")));
//! # Ok::<(), sidestep_net::ParseError>(())
//! ```

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeMap, fmt, ops::Range};

use crate::{Graph, ListedTransfer, TrafficMatrix};
use ipnet::IpNet;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use thiserror::Error;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

/// Text longer than this is refused, in bytes.
pub const MAX_TEXT: usize = 4 << 20;
/// Most characters of a line that an error shows.
const MAX_SHOWN: usize = 160;

/// What is wrong with a scenario or topology file, and where.
///
/// Displays as `FILE:LINE:COLUMN: message` with the line and a caret below it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct ParseError {
    /// The file, where the caller named it with [`ParseError::in_file`].
    pub file: Option<String>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line itself; of a long one, what surrounds the place.
    pub source_line: String,
    /// How many characters of the line come before `source_line`.
    pub skipped: usize,
}

/// A value and where it stands.
pub type Item<'t> = Spanned<DeValue<'t>>;

/// A text that is TOML.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    root: Item<'t>,
}

/// One string or a list of strings.
pub struct OneOrMany(pub Vec<String>);

/// What a scenario file may name: other files, and published networks.
pub trait Files {
    /// The text of a file, or why there is none.
    fn text(&self, name: &str) -> Result<String, String>;

    /// A network that is published or in a file, or why there is none; `map` gives keys of its file a meaning, `ROLE` or
    /// `ROLE:UNIT`.
    fn network(&self, name: &str, map: &BTreeMap<String, String>) -> Result<Graph, String> {
        let _ = map;
        Err(format!("`{name}`: networks that a scenario names cannot be read here"))
    }

    /// Demands between nodes of `graph` that are in a file, or that `seed` decides (`gravity:TOTAL`, `uniform:TOTAL`), or why there
    /// are none; `unit` is that of rates without one.
    fn demands(&self, name: &str, unit: Option<&str>, graph: &Graph, seed: u64) -> Result<TrafficMatrix, String> {
        let _ = (unit, graph, seed);
        Err(format!("`{name}`: demands that a scenario names cannot be read here"))
    }

    /// The transfers between nodes of `graph` that a file lists, or why there are none.
    fn transfers(&self, name: &str, graph: &Graph) -> Result<Vec<ListedTransfer>, String> {
        let _ = graph;
        Err(format!("`{name}`: lists of transfers that a scenario names cannot be read here"))
    }
}

/// None of them can be read.
pub struct Unread;

impl Files for Unread {
    fn text(&self, name: &str) -> Result<String, String> {
        Err(format!("`{name}`: files that a scenario names cannot be read here"))
    }
}

/// The texts of files alone.
impl<F: Fn(&str) -> Result<String, String>> Files for F {
    fn text(&self, name: &str) -> Result<String, String> {
        self(name)
    }
}

impl ParseError {
    /// Puts the file's name in front of the error.
    pub fn in_file(self, file: impl Into<String>) -> Self {
        ParseError { file: Some(file.into()), ..self }
    }

    /// Reads the bytes of a file as text. The error names the first place that is not UTF-8.
    pub fn check_text(bytes: Vec<u8>) -> Result<String, ParseError> {
        String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default()).into_owned();
            ParseError::new(&before, valid, "this is not UTF-8 text; is it the right file?")
        })
    }

    /// An error at a byte of `text`.
    pub fn new(text: &str, offset: usize, message: &str) -> Self {
        let boundary = |at: &usize| text.is_char_boundary(*at);
        let offset = (0..=offset.min(text.len())).rev().find(boundary).unwrap_or(0);
        let (before, after) = text.split_at(offset);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = after.find('\n').map_or(text.len(), |newline| offset + newline);
        let whole = text.get(start..end).unwrap_or_default().trim_end();
        let column = text.get(start..offset).unwrap_or_default().chars().count();
        let skipped = if whole.chars().count() > MAX_SHOWN { column.saturating_sub(MAX_SHOWN / 4) } else { 0 };
        ParseError {
            file: None,
            line: before.matches('\n').count() + 1,
            column: column + 1,
            message: printable(message, 400),
            source_line: printable(&whole.chars().skip(skipped).take(MAX_SHOWN).collect::<String>(), MAX_SHOWN),
            skipped,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        if !self.source_line.trim().is_empty() {
            let number = self.line.to_string();
            let (margin, caret) = (number.len(), self.column.saturating_sub(self.skipped));
            write!(f, "\n{:margin$} |\n{number} | {}\n{:margin$} | {:>caret$}", "", self.source_line, "", '^')?;
        }
        Ok(())
    }
}

impl<'t> Document<'t> {
    /// Reads `text`, which must be TOML of at most [`MAX_TEXT`] bytes.
    pub fn parse(text: &'t str) -> Result<Self, ParseError> {
        if text.len() > MAX_TEXT {
            return Err(ParseError::new("", 0, "the file is larger than 4 MiB; is it the right one?"));
        }
        let root = DeTable::parse(text).map_err(|error| from_toml(text, &error))?;
        let span = root.span();
        Ok(Document { text, root: Spanned::new(span, DeValue::Table(root.into_inner())) })
    }

    /// The table of the whole file.
    pub fn root(&self) -> &Item<'t> {
        &self.root
    }

    /// Reads a value as `T`, whose fields must be all of its keys except for `without`.
    pub fn read<T: DeserializeOwned>(&self, item: &Item<'t>, without: &[&str]) -> Result<T, ParseError> {
        let mut item = item.clone();
        if let DeValue::Table(table) = item.get_mut() {
            for key in without {
                table.remove(*key);
            }
        }
        T::deserialize(ValueDeserializer::from(item)).map_err(|error| from_toml(self.text, &error))
    }

    /// The tables listed under `key`, none if it is absent.
    pub fn tables<'a>(&self, item: &'a Item<'t>, key: &str) -> Result<&'a [Item<'t>], ParseError> {
        let Some(value) = item.get_ref().get(key) else { return Ok(&[]) };
        let bad = |item: &Item<'t>| self.error(item.span(), format!("`{key}` must be a list of tables"));
        let list = value.get_ref().as_array().ok_or_else(|| bad(value))?;
        match list.iter().find(|item| !item.get_ref().is_table()) {
            Some(other) => Err(bad(other)),
            None => Ok(list),
        }
    }

    /// A note that the prefix under `key` has bits beyond its length, and is read without them; `None` if it has none.
    pub fn note_host_bits(&self, item: &Item<'t>, key: &str) -> Option<ParseError> {
        let prefix: IpNet = item.get_ref().get(key)?.get_ref().as_str()?.parse().ok()?;
        let network = prefix.trunc();
        let note = || self.error_at(item, key, format!("{prefix} has host bits; it is read as {network}"));
        (prefix.addr() != network.addr()).then(note)
    }

    /// An error at `span`.
    pub fn error(&self, span: Range<usize>, message: impl fmt::Display) -> ParseError {
        ParseError::new(self.text, span.start, &message.to_string())
    }

    /// An error at the value of `key`, or at the table where it has no such key.
    pub fn error_at(&self, item: &Item<'t>, key: &str, message: impl fmt::Display) -> ParseError {
        self.error(item.get_ref().get(key).unwrap_or(item).span(), message)
    }

    /// An error at the `index`-th element under `key`; at the value itself if it is not a list.
    pub fn error_in(&self, item: &Item<'t>, key: &str, index: usize, message: impl fmt::Display) -> ParseError {
        let element = item.get_ref().get(key).and_then(|list| list.get_ref().get(index));
        match element {
            Some(element) => self.error(element.span(), message),
            None => self.error_at(item, key, message),
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, a pattern or a list of them")
            }
            fn visit_str<E>(self, name: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![name.into()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOrMany, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany)
            }
        }
        deserializer.deserialize_any(Names)
    }
}

fn from_toml(text: &str, error: &toml::de::Error) -> ParseError {
    let message = error.message().trim().replace('\n', "; ");
    ParseError::new(text, error.span().map_or(0, |span| span.start), &message)
}

/// `text` without control characters, which a terminal might obey, and cut to `limit` characters.
pub fn printable(text: &str, limit: usize) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = chars.by_ref().take(limit).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// A TOML list of strings.
pub fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| quoted(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

/// A TOML string.
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
