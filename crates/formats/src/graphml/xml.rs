//! XML element by element, from a text that is not trusted: no tree, no recursion, no entities but XML's own five.

use std::fmt;

use quick_xml::{
    Error, Reader, XmlVersion,
    escape::resolve_xml_entity,
    events::{BytesRef, BytesStart, Event, attributes::AttrError},
};

use crate::{Fault, shown};

/// Elements nested deeper than this are refused; GraphML needs four levels.
const MAX_DEPTH: usize = 64;

/// More attributes in one element are refused, because each is compared with every other.
const MAX_ATTRIBUTES: usize = 64;

/// The start of an element.
pub(crate) struct Tag {
    /// Where its `<` stands.
    pub(crate) at: usize,
    /// Without the prefix of its namespace.
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
}

/// A place in an XML text, within the elements that are open there.
pub(crate) struct Xml<'t> {
    reader: Reader<&'t [u8]>,
    open: Vec<String>,
}

impl Tag {
    /// The value of an attribute.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of an attribute that the element must have.
    pub(crate) fn need(&self, name: &str) -> Result<&str, Fault> {
        self.get(name)
            .ok_or_else(|| Fault::new(self.at, format!("`{}` needs the attribute `{name}`", shown(&self.name))))
    }
}

impl<'t> Xml<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        Xml { reader, open: Vec::new() }
    }

    /// Opens the next element within the open one. If there is none, closes the open one and returns `None`.
    ///
    /// Outside of all elements `None` is the end of the text.
    pub(crate) fn child(&mut self) -> Result<Option<Tag>, Fault> {
        loop {
            match self.event()? {
                (at, Event::Start(start)) => return self.enter(at, &start).map(Some),
                (_, Event::End(_) | Event::Eof) => {
                    self.open.pop();
                    return Ok(None);
                }
                (at, Event::Text(text)) if !text.trim().is_empty() => return Err(self.stray(at, &text)),
                (at, Event::CData(text)) => return Err(self.stray(at, &text)),
                (at, Event::GeneralRef(name)) => return Err(self.stray(at, &name)),
                _ => {}
            }
        }
    }

    /// Closes the open element without looking at what is in it.
    pub(crate) fn skip(&mut self) -> Result<(), Fault> {
        let outside = self.open.len().saturating_sub(1);
        while self.open.len() > outside {
            match self.event()? {
                (at, Event::Start(start)) => drop(self.enter(at, &start)?),
                (_, Event::End(_)) => drop(self.open.pop()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Closes the open element and returns its text and the offset where that begins. Elements in it are skipped.
    pub(crate) fn text(&mut self) -> Result<(usize, String), Fault> {
        let begin = self.position();
        let mut all = String::new();
        loop {
            match self.event()? {
                (_, Event::Text(text)) => all.push_str(&text.xml10_content()),
                (_, Event::CData(text)) => all.push_str(&text.xml10_content()),
                (at, Event::GeneralRef(name)) => {
                    push_reference(&mut all, &name).map_err(|error| Fault::new(at, error))?
                }
                (at, Event::Start(start)) => {
                    self.enter(at, &start)?;
                    self.skip()?;
                }
                (_, Event::End(_)) => {
                    self.open.pop();
                    return Ok((begin, all));
                }
                _ => {}
            }
        }
    }

    /// Closes the open element and returns the text of the first element of this name in it, and where that begins.
    pub(crate) fn text_of(&mut self, name: &str) -> Result<(usize, String), Fault> {
        let mut found = (self.position(), String::new());
        let mut depth = 0;
        loop {
            match self.event()? {
                (at, Event::Start(start)) => {
                    let tag = self.enter(at, &start)?;
                    if tag.name == name && found.1.is_empty() {
                        found = self.text()?;
                    } else {
                        depth += 1;
                    }
                }
                (_, Event::End(_)) => {
                    self.open.pop();
                    if depth == 0 {
                        return Ok(found);
                    }
                    depth -= 1;
                }
                _ => {}
            }
        }
    }

    /// Where the next event begins.
    fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    /// The next event and where it begins. The text ends outside of all elements only.
    fn event(&mut self) -> Result<(usize, Event<'t>), Fault> {
        let at = self.position();
        match self.reader.read_event() {
            Ok(Event::DocType(_)) => Err(Fault::new(at, "document type declarations are not read; remove it")),
            Ok(Event::Eof) => match self.open.last() {
                Some(name) => Err(Fault::new(at, format!("the text ends within `{}`", shown(name)))),
                None => Ok((at, Event::Eof)),
            },
            Ok(event) => Ok((at, event)),
            Err(error) => {
                let at = usize::try_from(self.reader.error_position()).unwrap_or(usize::MAX);
                Err(Fault::new(at, complaint(&error)))
            }
        }
    }

    fn enter(&mut self, at: usize, start: &BytesStart<'_>) -> Result<Tag, Fault> {
        let name = start.name().into_inner();
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == ':') {
            return Err(Fault::new(at, "a name must follow `<`"));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(Fault::new(at, format!("elements are nested deeper than {MAX_DEPTH} levels")));
        }
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            if attributes.len() == MAX_ATTRIBUTES {
                return Err(Fault::new(at, format!("the element has more than {MAX_ATTRIBUTES} attributes")));
            }
            let attribute = attribute.map_err(|error| bad_attribute(at, &error))?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|error| Fault::new(at, complaint(&error)))?;
            attributes.push((attribute.key.into_inner().to_owned(), value.into_owned()));
        }
        self.open.push(name.to_owned());
        let local = name.rsplit(':').next().unwrap_or(name);
        Ok(Tag { at, name: local.to_owned(), attributes })
    }

    fn stray(&self, at: usize, text: &str) -> Fault {
        let place =
            self.open.last().map_or("outside of all elements".into(), |name| format!("within `{}`", shown(name)));
        Fault::new(at, format!("there should be no text {place}, but `{}`", shown(text.trim())))
    }
}

/// Appends the character that `&name;` stands for.
fn push_reference(text: &mut String, name: &BytesRef<'_>) -> Result<(), String> {
    match (name.resolve_char_ref(), resolve_xml_entity(name)) {
        (Ok(Some(character)), _) => text.push(character),
        (Ok(None), Some(characters)) => text.push_str(characters),
        _ => return Err(format!("`&{};` stands for no character", shown(name))),
    }
    Ok(())
}

/// The error of an attribute, which counts from behind the `<` at `at`.
fn bad_attribute(at: usize, error: &AttrError) -> Fault {
    let (offset, message) = match *error {
        AttrError::ExpectedEq(offset) => (offset, "an attribute's name is followed by `=` and a value"),
        AttrError::ExpectedValue(offset) | AttrError::UnquotedValue(offset) => {
            (offset, "an attribute's value stands in quotes")
        }
        AttrError::ExpectedQuote(offset, _) => (offset, "an attribute's value ends with the quote that it begins with"),
        AttrError::Duplicated(offset, _) => (offset, "the element has two attributes of this name"),
    };
    Fault::new(at.saturating_add(1).saturating_add(offset), message)
}

fn complaint(error: &Error) -> String {
    // Leaves out the kind of error, which the crate puts in front.
    let error: &dyn fmt::Display = match error {
        Error::Syntax(error) => error,
        Error::IllFormed(error) => error,
        Error::Escape(error) => error,
        other => other,
    };
    format!("not well-formed XML: {error}")
}
