//! SNDlib's native format (Orlowski and others 2010): sections in parentheses, of which nodes and links are read.
//!
//! ```text
//! NODES ( ID ( LONGITUDE LATITUDE ) ... )
//! LINKS ( ID ( SOURCE TARGET ) CAPACITY CAPACITY_COST ROUTING_COST SETUP_COST ( MODULE_CAPACITY MODULE_COST ... ) ... )
//! ```
//!
//! As in [SNDlib's XML](super::graphml), a link's capacity is that of its pre-installed module, or of its first additional one,
//! and links are read in both directions. Coordinates that no place on earth has are those of a picture.

use super::{
    Fault, MAX_EDGES, MAX_NODES, Mapping, Role, check_count,
    ids::Ids,
    raw::{Fixed, Key, Raw, RawEdge, RawNode},
    shown,
    words::Piece,
};

/// The first word of such a file.
pub(super) const MAGIC: &str = "?SNDlib";

const PLACES: [Fixed; 2] = [("x", true, Role::Longitude, None), ("y", true, Role::Latitude, None)];
const KEYS: [&str; 6] = ["x", "y", "capacity", "capacity_cost", "routing_cost", "setup_cost"];
const CAPACITY: usize = 2;

/// Reads a file of the native format.
pub(super) fn read(text: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut loader = Loader { tokens: Tokens { text, at: 0 }, ids: Ids::new(), raw: Raw::default(), is_map: true };
    let mut keys: Vec<Key> = KEYS.iter().enumerate().map(|(place, name)| key(name, place, mapping, true)).collect();
    while let Some(section) = loader.tokens.next() {
        loader.tokens.expect("(")?;
        match section.text {
            "NODES" => loader.nodes()?,
            "LINKS" => loader.links(&mut keys)?,
            _ => loader.tokens.skip()?,
        }
    }
    if !loader.is_map {
        let names = KEYS.iter().enumerate().take(CAPACITY);
        keys.iter_mut().zip(names).for_each(|(old, (place, name))| *old = key(name, place, mapping, false));
    }
    let Loader { mut raw, ids, .. } = loader;
    for (place, key) in keys.iter_mut().enumerate().take(CAPACITY) {
        key.is_used = raw.nodes.iter().any(|node| node.cells.iter().any(|(of, _)| *of as usize == place));
    }
    raw.keys = keys;
    ids.settle(&mut raw)?;
    Ok(raw)
}

fn key(name: &str, place: usize, mapping: &Mapping, is_map: bool) -> Key {
    let of_nodes = place < CAPACITY;
    Key::new(name, (of_nodes, !of_nodes), mapping, if is_map { &PLACES } else { &[] })
}

struct Loader<'t> {
    tokens: Tokens<'t>,
    ids: Ids<String>,
    raw: Raw,
    /// Whether all coordinates may be longitudes and latitudes.
    is_map: bool,
}

impl Loader<'_> {
    fn nodes(&mut self) -> Result<(), Fault> {
        while let Some(id) = self.tokens.item()? {
            let mut cells = Vec::new();
            if self.tokens.takes("(") {
                for (key, limit) in [(0, 180.0), (1, 90.0)] {
                    let value = self.tokens.word("a coordinate")?;
                    self.is_map &= value.text.parse().is_ok_and(|value: f64| value.abs() <= limit);
                    cells.push((key, value.into()));
                }
                self.tokens.expect(")")?;
            }
            let index = self.raw.nodes.len();
            check_count(id.at, "nodes", index, MAX_NODES)?;
            self.ids.declare(id.at, id.text.into(), index)?;
            self.raw.nodes.push(RawNode { id: id.text.into(), cells });
        }
        Ok(())
    }

    fn links(&mut self, keys: &mut [Key]) -> Result<(), Fault> {
        while let Some(link) = self.tokens.item()? {
            self.tokens.expect("(")?;
            let mut end = |what| {
                let id = self.tokens.word(what)?;
                self.ids.mention(id.at, id.text.into())
            };
            let (from, to) = (end("the link's source")?, end("the link's target")?);
            self.tokens.expect(")")?;
            let mut cells = Vec::new();
            for (place, key) in keys.iter_mut().enumerate().skip(CAPACITY) {
                let value = self.tokens.word(&format!("the link's {}", key.name))?;
                // Zero is how the format says that there is none.
                if value.text.parse() != Ok(0.0) {
                    key.is_used = true;
                    cells.push((place as u32, value.into()));
                }
            }
            self.tokens.expect("(")?;
            while let Some(module) = self.tokens.item()? {
                self.tokens.word("the module's cost")?;
                let is_first = !cells.iter().any(|(of, _)| *of as usize == CAPACITY);
                if is_first && module.text != "UNLIMITED" {
                    keys.iter_mut().skip(CAPACITY).take(1).for_each(|key| key.is_used = true);
                    cells.push((CAPACITY as u32, module.into()));
                }
            }
            check_count(link.at, "edges", self.raw.edges.len(), MAX_EDGES)?;
            self.raw.edges.push(RawEdge { from, to, directed: false, cells });
        }
        Ok(())
    }
}

/// The parentheses and words of the text that are not read yet.
struct Tokens<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Tokens<'t> {
    /// The next token, behind white space, comments and the line of the format's name.
    fn peek(&mut self) -> Option<Piece<'t>> {
        loop {
            let rest = self.text.get(self.at..)?;
            let word = rest.trim_start();
            self.at += rest.len() - word.len();
            let first = word.chars().next()?;
            if first == '#' || word.starts_with(MAGIC) {
                self.at += word.find('\n').unwrap_or(word.len());
                continue;
            }
            let length = match first {
                '(' | ')' => 1,
                _ => word.find(|c: char| c.is_whitespace() || "()".contains(c)).unwrap_or(word.len()),
            };
            return Some(Piece { at: self.at, text: word.get(..length)? });
        }
    }

    fn next(&mut self) -> Option<Piece<'t>> {
        let token = self.peek()?;
        self.at += token.text.len();
        Some(token)
    }

    /// Takes this token if it is the next one.
    fn takes(&mut self, token: &str) -> bool {
        let takes = self.peek().is_some_and(|next| next.text == token);
        self.at += usize::from(takes) * token.len();
        takes
    }

    fn expect(&mut self, token: &str) -> Result<(), Fault> {
        if self.takes(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }

    /// The next word.
    fn word(&mut self, what: &str) -> Result<Piece<'t>, Fault> {
        let is_word = self.peek().is_some_and(|next| !matches!(next.text, "(" | ")"));
        let word = if is_word { self.next() } else { None };
        word.ok_or_else(|| self.expected(what))
    }

    /// The first word of the next item of the open list; closes the list and returns `None` at its end.
    fn item(&mut self) -> Result<Option<Piece<'t>>, Fault> {
        if self.takes(")") { Ok(None) } else { self.word("a name, a number or `)`").map(Some) }
    }

    /// Closes the open list without looking at what is in it.
    fn skip(&mut self) -> Result<(), Fault> {
        let mut depth = 1;
        while depth > 0 {
            match self.next().map(|token| token.text) {
                Some("(") => depth += 1,
                Some(")") => depth -= 1,
                Some(_) => {}
                None => return Err(self.expected("`)`")),
            }
        }
        Ok(())
    }

    fn expected(&mut self, what: &str) -> Fault {
        let found = self.peek().map_or_else(|| "the end".into(), |found| format!("`{}`", shown(found.text)));
        Fault::new(self.at, format!("{found} stands where {what} should"))
    }
}
