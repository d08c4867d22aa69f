//! Edge lists and tables: an edge a line.
//!
//! With a header its columns are known by their names, as other formats' keys are; two of them name the ends. Without one, lines
//! have two ends and perhaps a weight, or networkx's `{'key': value}`. Separators are commas, semicolons, tabs or white space; `#`
//! begins a comment.

use std::{borrow::Cow, collections::BTreeSet};

use super::{
    Fault, MAX_EDGES, Mapping, Role, check_count,
    ids::Ids,
    raw::{Book, Cell, Fixed, Raw, RawEdge, Text},
    reading::Taken,
    shown,
    words::{Piece, lines},
};

/// The third column of files without a header.
const THIRD: [Fixed; 1] = [("weight", false, Role::Weight, None)];

const SOURCES: [&str; 8] = ["source", "src", "from", "sourcenode", "srcnode", "fromnode", "node1", "nodea"];
const TARGETS: [&str; 10] =
    ["target", "dst", "dest", "to", "destination", "targetnode", "dstnode", "tonode", "node2", "nodeb"];

/// What a column of a header is.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Source,
    Target,
    /// Whether the edge is directed.
    Direction,
    /// A key, by its place; `None`: its values need not be kept.
    Key(Option<u32>),
}

/// Reads an edge list or a table; of files named `.csv` and `.tsv` the separator need not be white space.
pub(super) fn read(text: &str, extension: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut lines = lines(text).filter(|line| !line.text.trim_start().starts_with('#')).peekable();
    let Some(first) = lines.peek() else { return Ok(Raw::default()) };
    let separator = separator(*first, extension);
    let titles = fields(*first, separator)?;
    let ends = ends(&titles);
    let fixed: &[Fixed] = if ends.is_some() { &[] } else { &THIRD };
    let mut loader =
        Loader { book: Book::new(mapping, fixed), ids: Ids::new(), raw: Raw::default(), direction: None, directed: 0 };
    match ends {
        Some(ends) => {
            let columns = loader.columns(&titles, ends)?;
            for line in lines.skip(1) {
                loader.edge(line, fields(line, separator)?, &columns)?;
            }
        }
        None => {
            for line in lines {
                loader.plain_edge(uncommented(line), separator)?;
            }
        }
    }
    Ok(loader.finish())
}

/// A line without the comment behind its fields.
fn uncommented(line: Piece<'_>) -> Piece<'_> {
    let end = [" #", "\t#"].into_iter().filter_map(|mark| line.text.find(mark)).min();
    Piece { text: line.text.get(..end.unwrap_or(line.text.len())).unwrap_or_default(), ..line }
}

/// The columns of the ends of edges, by the titles of a header; `None` if it is none.
fn ends(titles: &[Field<'_>]) -> Option<(usize, usize)> {
    Some((place(titles, &SOURCES)?, place(titles, &TARGETS)?))
}

/// The first of the columns that have one of these titles, whatever their case.
fn place(titles: &[Field<'_>], known: &[&str]) -> Option<usize> {
    titles.iter().position(|title| {
        let letters = title.text.chars().filter(|c| c.is_alphanumeric());
        let plain: String = letters.flat_map(char::to_lowercase).collect();
        known.contains(&plain.as_str())
    })
}

struct Loader<'m> {
    book: Book<'m>,
    ids: Ids<String>,
    raw: Raw,
    /// The title of the column that says which edges are directed.
    direction: Option<String>,
    /// For how many edges it does.
    directed: usize,
}

impl Loader<'_> {
    /// What the columns are.
    fn columns(&mut self, titles: &[Field<'_>], (source, target): (usize, usize)) -> Result<Vec<Column>, Fault> {
        let direction = place(titles, &["directed"]).or_else(|| place(titles, &["type"]));
        self.direction = direction.and_then(|index| titles.get(index)).map(|title| title.text.clone().into_owned());
        let mut columns = Vec::new();
        for (index, title) in titles.iter().enumerate() {
            columns.push(match index {
                _ if index == source => Column::Source,
                _ if index == target => Column::Target,
                _ if Some(index) == direction => Column::Direction,
                // The numbers of rows that some programs write.
                _ if title.text.is_empty() => Column::Key(None),
                _ => Column::Key(self.book.place(&mut self.raw, false, title.at, &title.text)?),
            });
        }
        Ok(columns)
    }

    /// An edge of a file with a header.
    fn edge(&mut self, line: Piece<'_>, fields: Vec<Field<'_>>, columns: &[Column]) -> Result<(), Fault> {
        let (found, wanted) = (fields.len(), columns.len());
        if found != wanted {
            let at = fields.get(wanted).map_or(line.at + line.text.trim_end().len(), |field| field.at);
            return Err(Fault::new(at, format!("{found} fields stand below a header of {wanted}")));
        }
        let (mut ends, mut cells, mut direction) = ([None, None], Vec::new(), None);
        for (field, column) in fields.into_iter().zip(columns) {
            match column {
                Column::Source => ends[0] = Some(field),
                Column::Target => ends[1] = Some(field),
                Column::Direction => {
                    let Some(title) = &self.direction else { continue };
                    direction = directed(title, &field.text);
                    // Another `type` is a key like others.
                    if direction.is_none() {
                        let place = self.book.place(&mut self.raw, false, field.at, title)?;
                        cells.extend(place.map(|place| (place, field.into())));
                    }
                }
                Column::Key(Some(place)) => cells.push((*place, field.into())),
                Column::Key(None) => {}
            }
        }
        let [Some(from), Some(to)] = ends else { return Err(line.fault("a line needs both ends of an edge")) };
        self.push(line.at, [from, to], cells, direction)
    }

    /// An edge of a file without a header.
    fn plain_edge(&mut self, line: Piece<'_>, separator: Option<char>) -> Result<(), Fault> {
        let (line, data) = split_data(line);
        let mut fields = fields(line, separator)?;
        if data.is_some() && fields.last().is_some_and(|last| last.text.is_empty()) {
            fields.pop();
        }
        let mut cells = Vec::new();
        if let Some(data) = data {
            self.data(data, &mut cells)?;
        }
        let mut fields = fields.into_iter();
        let (from, to, third, rest) = (fields.next(), fields.next(), fields.next(), fields.next());
        let needs =
            "without a header that names the columns `source` and `target`, a line has two ends and perhaps a weight";
        if let Some(rest) = rest.as_ref().or(third.as_ref().filter(|_| data.is_some())) {
            return Err(Fault::new(rest.at, needs));
        }
        let (Some(from), Some(to)) = (from, to) else { return Err(line.fault(needs)) };
        if let Some(third) = third {
            if third.text.parse::<f64>().is_err() && !third.text.is_empty() {
                return Err(Fault::new(third.at, format!("`{}` is not a weight; {needs}", shown(&third.text))));
            }
            let place = self.book.place(&mut self.raw, false, third.at, "weight")?;
            cells.extend(place.map(|place| (place, third.into())));
        }
        self.push(line.at, [from, to], cells, None)
    }

    /// The values of `{'key': value, ...}`, as Python writes it.
    fn data(&mut self, data: Piece<'_>, cells: &mut Vec<Cell>) -> Result<(), Fault> {
        let inner = data.text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default();
        let inner = Piece { at: data.at + 1, text: inner };
        for entry in quoted(inner, Some(','), '\'')?.into_iter().filter(|entry| !entry.text.is_empty()) {
            let [key, value] = match quoted(entry, Some(':'), '\'')?[..] {
                [key, value] => [key, value],
                _ => return Err(entry.fault("expected `'KEY': VALUE`")),
            };
            let bare = |piece: Piece<'_>| piece.text.trim_matches(['\'', '"']).to_owned();
            if let Some(place) = self.book.place(&mut self.raw, false, key.at, &bare(key))? {
                cells.push((place, Text { at: value.at, text: bare(value) }));
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        at: usize,
        ends: [Field<'_>; 2],
        cells: Vec<Cell>,
        direction: Option<bool>,
    ) -> Result<(), Fault> {
        if let Some(empty) = ends.iter().find(|end| end.text.is_empty()) {
            return Err(Fault::new(empty.at, "the name of a node is empty"));
        }
        let [from, to] = &ends;
        let from = self.ids.node(&mut self.raw, from.at, &from.text)?;
        let to = self.ids.node(&mut self.raw, to.at, &to.text)?;
        check_count(at, "edges", self.raw.edges.len(), MAX_EDGES)?;
        self.raw.edges.push(RawEdge { from, to, directed: direction.unwrap_or_default(), cells });
        self.directed += usize::from(direction.is_some());
        Ok(())
    }

    /// Decides the directions of edges where no column does: a file that lists a link in both has a line for each.
    fn finish(self) -> Raw {
        let Loader { mut raw, direction, directed, .. } = self;
        let taken = Taken::of("directions", None, raw.edges.len());
        if directed > 0 {
            let key = direction.map(|title| format!("`{}`", shown(&title)));
            raw.directions = Some(Taken { key, known: directed, ..taken });
            return raw;
        }
        let ends: BTreeSet<(usize, usize)> = raw.edges.iter().map(|edge| (edge.from, edge.to)).collect();
        let are_directed = ends.iter().any(|(from, to)| from < to && ends.contains(&(*to, *from)));
        raw.edges.iter_mut().for_each(|edge| edge.directed = are_directed);
        let rest = match are_directed {
            true => "a line is one direction, as some links have a line for each",
            false => "a line is both directions of a link",
        };
        raw.directions = Some(Taken { rest: Some(rest.into()), ..taken });
        raw
    }
}

/// What a cell of a column of directions says.
fn directed(title: &str, text: &str) -> Option<bool> {
    let is_type = title.eq_ignore_ascii_case("type");
    match text.to_ascii_lowercase().as_str() {
        "directed" => Some(true),
        "undirected" => Some(false),
        "true" | "yes" | "1" if !is_type => Some(true),
        "false" | "no" | "0" if !is_type => Some(false),
        _ => None,
    }
}

/// What separates the fields of lines such as the first; `None` is white space.
fn separator(first: Piece<'_>, extension: &str) -> Option<char> {
    let (first, _) = split_data(first);
    let line = first.text.trim();
    match extension {
        "tsv" => Some('\t'),
        "csv" => [';', ',', '\t'].into_iter().find(|separator| line.contains(*separator)),
        // `1, 2` has commas, `Perth,+Australia Sydney,+Australia` has not.
        _ => [',', ';'].into_iter().find(|separator| {
            line.contains(*separator)
                && (!line.contains(char::is_whitespace) || first.words().any(|word| word.text.ends_with(*separator)))
        }),
    }
}

/// A line, and the `{...}` that networkx writes at its end.
fn split_data(line: Piece<'_>) -> (Piece<'_>, Option<Piece<'_>>) {
    let text = line.text.trim_end();
    match text.split_once('{').filter(|_| text.ends_with('}')) {
        Some((before, _)) => {
            let (text, data) = text.split_at(before.len());
            (Piece { text, ..line }, Some(Piece { at: line.at + text.len(), text: data }))
        }
        None => (line, None),
    }
}

/// The value of a field, without quotes.
struct Field<'t> {
    at: usize,
    text: Cow<'t, str>,
}

impl From<Field<'_>> for Text {
    fn from(field: Field<'_>) -> Self {
        Text { at: field.at, text: field.text.into_owned() }
    }
}

/// The fields of a line; those in quotation marks may have the separator within.
fn fields(line: Piece<'_>, separator: Option<char>) -> Result<Vec<Field<'_>>, Fault> {
    let pieces = quoted(line, separator, '"')?.into_iter();
    let fields = pieces.map(|piece| {
        let inner = piece.text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let text = inner.map_or(piece.text.into(), |inner| inner.replace("\"\"", "\"").into());
        Field { at: piece.at, text }
    });
    Ok(fields.collect())
}

/// The trimmed parts of a line between separators outside of quotes.
pub(crate) fn quoted(line: Piece<'_>, separator: Option<char>, quote: char) -> Result<Vec<Piece<'_>>, Fault> {
    let line = Piece { text: line.text.trim_end_matches(['\n', '\r']), ..line };
    let (mut parts, mut begin) = (Vec::new(), 0);
    // Where the open quote is, where the last one closed, and whether the part has begun.
    let (mut open, mut closed, mut has_begun) = (None, None, false);
    let mut add = |begin: usize, end: usize| {
        let text = line.text.get(begin..end).unwrap_or_default();
        let at = line.at + begin + (text.len() - text.trim_start().len());
        let part = Piece { at, text: text.trim() };
        if separator.is_some() || !part.text.is_empty() {
            parts.push(part);
        }
    };
    for (at, c) in line.text.char_indices() {
        let next = at + c.len_utf8();
        if c == quote && open.is_some() {
            (open, closed) = (None, Some(next));
        } else if c == quote && (!has_begun || closed == Some(at)) {
            // At the beginning of a part, or doubled within one in quotes; elsewhere it is a character like others.
            (open, has_begun) = (Some(at), true);
        } else if open.is_none() && separator.map_or(c.is_whitespace(), |separator| c == separator) {
            add(begin, at);
            (begin, has_begun) = (next, false);
        } else {
            has_begun |= !c.is_whitespace();
        }
    }
    if let Some(at) = open {
        return Err(Fault::new(line.at + at, "the line ends within quotes"));
    }
    add(begin, line.text.len());
    Ok(parts)
}

/// The cells of a line, without quotes.
pub(crate) fn cells(line: Piece<'_>, separator: Option<char>) -> Result<Vec<Piece<'_>>, Fault> {
    let mut cells = quoted(line, separator, '"')?;
    for cell in &mut cells {
        if let Some(text) = cell.text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            *cell = Piece { at: cell.at + 1, text };
        }
    }
    Ok(cells)
}
