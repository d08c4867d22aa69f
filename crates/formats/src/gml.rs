//! GML (Himsolt 1996), as the Internet Topology Zoo, networkx, igraph and Gephi write it.
//!
//! Lists within nodes and edges, such as `graphics`, are left out.

use super::{
    Fault, MAX_EDGES, MAX_NODES, Mapping, Role, check_count,
    ids::Ids,
    raw::{Book, Cell, Fixed, Raw, RawEdge, RawNode, Text},
    shown,
};

/// Lists nested deeper than this are refused.
const MAX_DEPTH: usize = 64;

/// The keys of the Zoo, whose units are known.
const ZOO: [Fixed; 1] = [("LinkSpeedRaw", false, Role::Rate, Some("bit/s"))];

/// Reads a `.gml` file.
pub(super) fn read(text: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut loader = Loader {
        words: Words { text, at: 0 },
        book: Book::new(mapping, &ZOO),
        ids: Ids::new(),
        raw: Raw::default(),
        directed: false,
    };
    let mut graphs = 0;
    while let Some((at, key)) = loader.words.key(text.len())? {
        match (loader.words.value(&key)?, key.as_str()) {
            (Value::List, "graph") if graphs == 0 => {
                loader.graph()?;
                graphs = 1;
            }
            (Value::List, "graph") => {
                return Err(Fault::new(at, "only one graph in a file is read, and this is the second"));
            }
            (Value::List, _) => loader.words.skip()?,
            (Value::Text(_), _) => {}
        }
    }
    if graphs == 0 {
        return Err(Fault::new(text.len(), "there is no `graph [` in the file"));
    }
    let Loader { mut raw, ids, directed, .. } = loader;
    ids.settle(&mut raw)?;
    raw.edges.iter_mut().for_each(|edge| edge.directed = directed);
    Ok(raw)
}

struct Loader<'t> {
    words: Words<'t>,
    book: Book<'t>,
    ids: Ids<String>,
    /// What was read so far. Until the end of the file, the ends of its edges are numbers of ids.
    raw: Raw,
    directed: bool,
}

/// What stands in a node or an edge.
#[derive(Default)]
struct Item {
    id: Option<Text>,
    source: Option<Text>,
    target: Option<Text>,
    cells: Vec<Cell>,
}

impl Loader<'_> {
    fn graph(&mut self) -> Result<(), Fault> {
        while let Some((at, key)) = self.words.member()? {
            match (self.words.value(&key)?, key.as_str()) {
                (Value::List, "node") => {
                    let Item { id, cells, .. } = self.item(true)?;
                    let id = id.ok_or_else(|| Fault::new(at, "a node needs an `id`"))?;
                    let index = self.raw.nodes.len();
                    check_count(at, "nodes", index, MAX_NODES)?;
                    self.ids.declare(id.at, id.text.clone(), index)?;
                    self.raw.nodes.push(RawNode { id: id.text, cells });
                }
                (Value::List, "edge") => {
                    let Item { source, target, cells, .. } = self.item(false)?;
                    let Some((source, target)) = source.zip(target) else {
                        return Err(Fault::new(at, "an edge needs a `source` and a `target`"));
                    };
                    let from = self.ids.mention(source.at, source.text)?;
                    let to = self.ids.mention(target.at, target.text)?;
                    check_count(at, "edges", self.raw.edges.len(), MAX_EDGES)?;
                    self.raw.edges.push(RawEdge { from, to, directed: false, cells });
                }
                (Value::List, _) => self.words.skip()?,
                (Value::Text(value), "directed") => self.directed = value.text == "1",
                (Value::Text(_), _) => {}
            }
        }
        Ok(())
    }

    /// The values in the open list.
    fn item(&mut self, of_nodes: bool) -> Result<Item, Fault> {
        let mut item = Item::default();
        while let Some((at, key)) = self.words.member()? {
            let Value::Text(value) = self.words.value(&key)? else {
                self.words.skip()?;
                continue;
            };
            match (key.as_str(), of_nodes) {
                ("id", true) => item.id = Some(value),
                ("source", false) => item.source = Some(value),
                ("target", false) => item.target = Some(value),
                _ => {
                    if let Some(place) = self.book.place(&mut self.raw, of_nodes, at, &key)? {
                        item.cells.push((place, value));
                    }
                }
            }
        }
        Ok(item)
    }
}

/// The words of the text that are not read yet.
struct Words<'t> {
    text: &'t str,
    at: usize,
}

enum Value {
    /// A list begins.
    List,
    /// A number, or a string without its quotes.
    Text(Text),
}

impl<'t> Words<'t> {
    /// The rest of the text behind white space and comments.
    fn rest(&mut self) -> &'t str {
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let word = rest.trim_start();
            self.at += rest.len() - word.len();
            if !word.starts_with('#') {
                return word;
            }
            self.at += word.find('\n').unwrap_or(word.len());
        }
    }

    fn take(&mut self, length: usize) -> &'t str {
        let taken = self.text.get(self.at..self.at + length).unwrap_or_default();
        self.at += length;
        taken
    }

    /// The next key and where it stands; `None` at the end of the text.
    fn key(&mut self, end: usize) -> Result<Option<(usize, String)>, Fault> {
        let rest = self.rest();
        if rest.is_empty() {
            self.at = end;
            return Ok(None);
        }
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if length == 0 {
            let word: String = rest.chars().take(20).collect();
            return Err(Fault::new(self.at, format!("`{}` stands where a key should", shown(&word))));
        }
        let at = self.at;
        Ok(Some((at, self.take(length).to_owned())))
    }

    /// The next key of the open list; closes it and returns `None` at its end.
    fn member(&mut self) -> Result<Option<(usize, String)>, Fault> {
        if self.rest().starts_with(']') {
            self.at += 1;
            return Ok(None);
        }
        let end = self.text.len();
        self.key(end)?.map(Some).ok_or_else(|| Fault::new(end, "the text ends within a list"))
    }

    /// The value of a key.
    fn value(&mut self, key: &str) -> Result<Value, Fault> {
        let rest = self.rest();
        let at = self.at;
        if rest.starts_with('[') {
            self.at += 1;
            return Ok(Value::List);
        }
        if let Some(string) = rest.strip_prefix('"') {
            let length = string.find('"').ok_or_else(|| Fault::new(at, "the text ends within a string"))?;
            self.at += 1;
            let text = unescaped(self.take(length));
            self.at += 1;
            return Ok(Value::Text(Text { at, text }));
        }
        let length = rest.find(|c: char| c.is_whitespace() || "[]\"".contains(c)).unwrap_or(rest.len());
        if length == 0 {
            return Err(Fault::new(at, format!("the key `{}` has no value", shown(key))));
        }
        Ok(Value::Text(Text { at, text: self.take(length).to_owned() }))
    }

    /// Closes the open list without looking at what is in it.
    fn skip(&mut self) -> Result<(), Fault> {
        let mut depth = 1;
        while depth > 0 {
            let Some((at, key)) = self.member()? else {
                depth -= 1;
                continue;
            };
            if matches!(self.value(&key)?, Value::List) {
                depth += 1;
            }
            if depth > MAX_DEPTH {
                return Err(Fault::new(at, format!("lists are nested deeper than {MAX_DEPTH} levels")));
            }
        }
        Ok(())
    }
}

/// A string with the characters that its entities stand for; unknown ones stay.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        out.push_str(before);
        let entity = behind.split_once(';').and_then(|(name, after)| {
            let code = name.strip_prefix('#').and_then(|code| match code.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => code.parse().ok(),
            });
            let named = [("amp", '&'), ("quot", '"'), ("lt", '<'), ("gt", '>'), ("apos", '\'')];
            let found = named.iter().find(|(known, _)| *known == name).map(|(_, c)| *c);
            found.or_else(|| char::from_u32(code?)).map(|c| (c, after))
        });
        match entity {
            Some((c, after)) => {
                out.push(c);
                rest = after;
            }
            None => {
                out.push('&');
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out
}
