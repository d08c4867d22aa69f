//! YAML event by event, from a text that is not trusted: no tree, no recursion, no aliases but where they are passed over.

use std::str::Chars;

use yaml_rust2::{
    Event,
    parser::Parser,
    scanner::{Marker, ScanError},
};

use crate::{Fault, raw::Text, shown};

/// Values nested deeper than this are refused.
const MAX_DEPTH: usize = 64;

/// A YAML text that is read from the beginning to the end.
pub(super) struct Yaml<'t> {
    parser: Parser<Chars<'t>>,
    place: Place<'t>,
}

/// The place in the text of the last character that was asked for: its number, and its offset in bytes.
struct Place<'t> {
    text: &'t str,
    number: usize,
    at: usize,
}

impl Place<'_> {
    /// Where the character of a marker stands. It is never far, as markers go forward but for the length of a key.
    fn of(&mut self, marker: &Marker) -> usize {
        let ahead = self.text.get(self.at..).unwrap_or_default().chars();
        for c in ahead.take(marker.index().saturating_sub(self.number)) {
            self.number += 1;
            self.at += c.len_utf8();
        }
        let back = self.text.get(..self.at).unwrap_or_default().chars().rev();
        for c in back.take(self.number.saturating_sub(marker.index())) {
            self.number -= 1;
            self.at -= c.len_utf8();
        }
        self.at
    }

    fn fault(&mut self, error: &ScanError) -> Fault {
        Fault::new(self.of(error.marker()), format!("this is not YAML: {}", error.info()))
    }
}

impl<'t> Yaml<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Yaml { parser: Parser::new_from_str(text), place: Place { text, number: 0, at: 0 } }
    }

    /// The next event that stays, behind the starts of stream and document.
    fn peek(&mut self) -> Result<&Event, Fault> {
        while let (Event::StreamStart | Event::DocumentStart, _) =
            self.parser.peek().map_err(|error| self.place.fault(&error))?
        {
            self.parser.next_token().map_err(|error| self.place.fault(&error))?;
        }
        self.parser.peek().map(|(event, _)| event).map_err(|error| self.place.fault(&error))
    }

    fn next(&mut self) -> Result<(usize, Event), Fault> {
        self.peek()?;
        let (event, marker) = self.parser.next_token().map_err(|error| self.place.fault(&error))?;
        Ok((self.place.of(&marker), event))
    }

    /// Whether a mapping begins.
    pub(super) fn is_mapping(&mut self) -> Result<bool, Fault> {
        Ok(matches!(self.peek()?, Event::MappingStart(..)))
    }

    /// Whether the next value is neither a mapping, a sequence nor an alias.
    pub(super) fn is_scalar(&mut self) -> Result<bool, Fault> {
        Ok(matches!(self.peek()?, Event::Scalar(..)))
    }

    /// A mapping: each member with its place and its key; `each` reads the value. No value is an empty mapping.
    pub(super) fn members(
        &mut self,
        each: &mut dyn FnMut(&mut Self, usize, &str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self.next()? {
            (_, Event::MappingStart(..)) => {}
            (_, Event::Scalar(text, ..)) if is_null(&text) => return Ok(()),
            (at, event) => return Err(expected(at, &event, "a mapping")),
        }
        loop {
            match self.next()? {
                (_, Event::MappingEnd) => return Ok(()),
                (at, Event::Scalar(key, ..)) => each(self, at, &key)?,
                (at, event) => return Err(expected(at, &event, "a key")),
            }
        }
    }

    /// A sequence; `each` reads the element that stands at a place. No value is an empty sequence.
    pub(super) fn elements(
        &mut self,
        each: &mut dyn FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self.next()? {
            (_, Event::SequenceStart(..)) => {}
            (_, Event::Scalar(text, ..)) if is_null(&text) => return Ok(()),
            (at, event) => return Err(expected(at, &event, "a sequence")),
        }
        while !matches!(self.peek()?, Event::SequenceEnd) {
            let marker = self.parser.peek().map(|(_, marker)| *marker).map_err(|error| self.place.fault(&error))?;
            let at = self.place.of(&marker);
            each(self, at)?;
        }
        self.next().map(drop)
    }

    /// A value that is neither a mapping nor a sequence; `None` if it is null.
    pub(super) fn scalar(&mut self) -> Result<Option<Text>, Fault> {
        match self.next()? {
            (_, Event::Scalar(text, ..)) if is_null(&text) => Ok(None),
            (at, Event::Scalar(text, ..)) => Ok(Some(Text { at, text })),
            (at, event) => Err(expected(at, &event, "a value")),
        }
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        let mut depth: usize = 0;
        loop {
            let (at, event) = self.next()?;
            match event {
                Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
                Event::MappingEnd | Event::SequenceEnd if depth > 0 => depth -= 1,
                Event::Scalar(..) | Event::Alias(_) => {}
                _ => return Err(expected(at, &event, "a value")),
            }
            if depth == 0 {
                return Ok(());
            }
            if depth > MAX_DEPTH {
                return Err(Fault::new(at, format!("values are nested deeper than {MAX_DEPTH} levels")));
            }
        }
    }

    /// The end of the only document.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        let (at, event) = self.next()?;
        match (event, self.peek()?) {
            (Event::StreamEnd, _) | (Event::DocumentEnd, Event::StreamEnd) => Ok(()),
            _ => Err(Fault::new(at, "only one document in a file is read, and it ends here")),
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn expected(at: usize, event: &Event, what: &str) -> Fault {
    let found = match event {
        Event::Scalar(text, ..) => format!("`{}`", shown(text)),
        Event::Alias(_) => "an alias".into(),
        Event::SequenceStart(..) => "a sequence".into(),
        Event::MappingStart(..) => "a mapping".into(),
        _ => "the end".into(),
    };
    Fault::new(at, format!("{found} stands where {what} should"))
}
