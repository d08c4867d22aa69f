//! Node-link JSON, as networkx writes it: `nodes`, and `links` or `edges` between their ids.
//!
//! Objects and arrays within nodes and edges are left out. Nodes without an `id` have their places as ids, from 0 on.

use super::{
    Fault, MAX_EDGES, MAX_NODES, Mapping, check_count,
    ids::Ids,
    raw::{Book, Cell, Raw, RawEdge, RawNode, Text},
    shown,
};

/// Values nested deeper than this are refused.
const MAX_DEPTH: usize = 64;

/// Reads a `.json` file.
pub(super) fn read(text: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut json = Json { text, at: 0 };
    let (mut book, mut ids, mut raw) = (Book::new(mapping, &[]), Ids::new(), Raw::default());
    let (mut directed, mut has_nodes) = (false, false);
    json.members(|json, _, key| match key {
        "directed" => {
            directed = json.scalar()?.is_some_and(|value| value.text == "true");
            Ok(())
        }
        "nodes" => {
            has_nodes = true;
            json.elements(|json| node(json, &mut book, &mut ids, &mut raw))
        }
        "links" | "edges" => json.elements(|json| edge(json, &mut book, &mut ids, &mut raw)),
        _ => json.skip(),
    })?;
    json.end()?;
    if !has_nodes {
        return Err(Fault::new(
            text.len(),
            "there is no array `nodes` in the file; node-link JSON has `nodes` and `links`",
        ));
    }
    ids.settle(&mut raw)?;
    raw.edges.iter_mut().for_each(|edge| edge.directed = directed);
    Ok(raw)
}

fn node(json: &mut Json<'_>, book: &mut Book<'_>, ids: &mut Ids<String>, raw: &mut Raw) -> Result<(), Fault> {
    let index = raw.nodes.len();
    let begin = json.at;
    let (mut id, mut cells) = (None, Vec::new());
    json.members(|json, at, key| match key {
        "id" => {
            id = json.scalar()?;
            Ok(())
        }
        _ => cell(json, book, raw, true, (at, key), &mut cells),
    })?;
    check_count(begin, "nodes", index, MAX_NODES)?;
    let Text { at, text } = id.unwrap_or_else(|| Text { at: begin, text: index.to_string() });
    ids.declare(at, text.clone(), index)?;
    raw.nodes.push(RawNode { id: text, cells });
    Ok(())
}

fn edge(json: &mut Json<'_>, book: &mut Book<'_>, ids: &mut Ids<String>, raw: &mut Raw) -> Result<(), Fault> {
    let begin = json.at;
    let (mut source, mut target, mut cells) = (None, None, Vec::new());
    json.members(|json, at, key| match key {
        "source" => {
            source = json.scalar()?;
            Ok(())
        }
        "target" => {
            target = json.scalar()?;
            Ok(())
        }
        // The number of a parallel edge.
        "key" => json.skip(),
        _ => cell(json, book, raw, false, (at, key), &mut cells),
    })?;
    let Some((source, target)) = source.zip(target) else {
        return Err(Fault::new(begin, "an edge needs a `source` and a `target`"));
    };
    let (from, to) = (ids.mention(source.at, source.text)?, ids.mention(target.at, target.text)?);
    check_count(begin, "edges", raw.edges.len(), MAX_EDGES)?;
    raw.edges.push(RawEdge { from, to, directed: false, cells });
    Ok(())
}

fn cell(
    json: &mut Json<'_>,
    book: &mut Book<'_>,
    raw: &mut Raw,
    of_nodes: bool,
    (at, key): (usize, &str),
    cells: &mut Vec<Cell>,
) -> Result<(), Fault> {
    match book.place(raw, of_nodes, at, key)? {
        Some(place) if !json.is_nested() => {
            cells.extend(json.scalar()?.map(|value| (place, value)));
            Ok(())
        }
        _ => json.skip(),
    }
}

/// A JSON text that is read from left to right.
pub(crate) struct Json<'t> {
    pub(crate) text: &'t str,
    pub(crate) at: usize,
}

impl<'t> Json<'t> {
    /// The rest of the text behind white space.
    pub(crate) fn rest(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let word = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.at += rest.len() - word.len();
        word
    }

    pub(crate) fn expected(&mut self, what: &str) -> Fault {
        let rest = self.rest();
        let found: String = rest.chars().take(10).collect();
        let found = if found.is_empty() { "the end".into() } else { format!("`{}`", shown(&found)) };
        Fault::new(self.at, format!("{found} stands where {what} should"))
    }

    /// Takes this character if it is the next one.
    pub(crate) fn takes(&mut self, c: char) -> bool {
        let takes = self.rest().starts_with(c);
        self.at += usize::from(takes) * c.len_utf8();
        takes
    }

    /// Whether an object or an array begins.
    pub(crate) fn is_nested(&mut self) -> bool {
        self.rest().starts_with(['{', '['])
    }

    /// An object: each member with its place and its key; `each` reads the value.
    pub(crate) fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, usize, &str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if !self.takes('{') {
            return Err(self.expected("an object, `{`,"));
        }
        if self.takes('}') {
            return Ok(());
        }
        loop {
            self.rest();
            let at = self.at;
            let key = self.string()?;
            if !self.takes(':') {
                return Err(self.expected("`:`"));
            }
            each(self, at, &key)?;
            if !self.takes(',') {
                return if self.takes('}') { Ok(()) } else { Err(self.expected("`,` or `}`")) };
            }
        }
    }

    /// An array; `each` reads an element.
    pub(crate) fn elements(&mut self, mut each: impl FnMut(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        if !self.takes('[') {
            return Err(self.expected("an array, `[`,"));
        }
        if self.takes(']') {
            return Ok(());
        }
        loop {
            self.rest();
            each(self)?;
            if !self.takes(',') {
                return if self.takes(']') { Ok(()) } else { Err(self.expected("`,` or `]`")) };
            }
        }
    }

    /// A number, a word or a string, as text; `None` of `null`.
    pub(crate) fn scalar(&mut self) -> Result<Option<Text>, Fault> {
        let rest = self.rest();
        let at = self.at;
        if rest.starts_with('"') {
            return Ok(Some(Text { at, text: self.string()? }));
        }
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
        let word = rest.get(..length).unwrap_or_default();
        // networkx writes NaN and Infinity, too; they are no values of anything that is read.
        let is_word = matches!(word, "true" | "false" | "null" | "NaN" | "Infinity" | "-Infinity");
        if !is_word && word.parse::<f64>().is_err() {
            return Err(self.expected("a value"));
        }
        self.at += length;
        Ok((word != "null").then(|| Text { at, text: word.into() }))
    }

    pub(crate) fn string(&mut self) -> Result<String, Fault> {
        if !self.takes('"') {
            return Err(self.expected("a string"));
        }
        let begin = self.at;
        let mut out = String::new();
        let mut escaped = false;
        let mut chars = self.text.get(begin..).unwrap_or_default().char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' if !escaped => {
                    self.at = begin + offset + 1;
                    return Ok(out);
                }
                '\\' if !escaped => {
                    escaped = true;
                    continue;
                }
                'n' | 't' | 'r' | 'b' | 'f' if escaped => out.push(' '),
                'u' if escaped => {
                    let code = self.text.get(begin + offset + 1..begin + offset + 5);
                    let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
                    out.push(code.and_then(char::from_u32).unwrap_or('\u{fffd}'));
                    chars.nth(3);
                }
                c => out.push(c),
            }
            escaped = false;
        }
        Err(Fault::new(begin, "the text ends within a string"))
    }

    /// Passes over a value.
    fn skip(&mut self) -> Result<(), Fault> {
        let mut open: Vec<char> = Vec::new();
        loop {
            if self.takes('{') {
                open.push('}');
            } else if self.takes('[') {
                open.push(']');
            } else if open.last().is_some_and(|close| self.rest().starts_with(*close)) {
                self.at += 1;
                open.pop();
            } else if open.is_empty() || !(self.takes(',') || self.takes(':')) {
                self.scalar()?;
            }
            if open.is_empty() {
                return Ok(());
            }
            if open.len() > MAX_DEPTH {
                return Err(Fault::new(self.at, format!("values are nested deeper than {MAX_DEPTH} levels")));
            }
        }
    }

    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }
}
