//! GraphML, as the Internet Topology Zoo, networkx, igraph, Gephi and yEd write it.
//!
//! Keys are understood by their names, or as the user maps them; yEd's labels are those of its shapes. Nested graphs and
//! hyperedges are errors, because a [`Graph`] cannot have them. A document type declaration is an error too: no topology
//! needs entities of its own. SNDlib's XML is another vocabulary, and is read by [`sndlib`].

mod sndlib;
pub(crate) mod xml;

use std::collections::BTreeMap;

use super::{
    Fault, MAX_EDGES, MAX_NODES, Mapping, Role, check_count,
    ids::Ids,
    raw::{Cell, Fixed, Key, Raw, RawEdge, RawNode, Text},
    shown,
};
use xml::{Tag, Xml};

/// The keys of the Zoo, whose units are known.
const ZOO: [Fixed; 5] = [
    ("label", true, Role::Name, None),
    ("Longitude", true, Role::Longitude, None),
    ("Latitude", true, Role::Latitude, None),
    ("LinkSpeedRaw", false, Role::Rate, Some("bit/s")),
    ("weight", false, Role::Weight, None),
];
/// The name of yEd's key for the shapes of nodes.
const YED: &str = "NodeLabel";

/// Reads an XML file: GraphML, or SNDlib's.
pub(super) fn read(text: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut loader = Loader {
        xml: Xml::new(text),
        keys: BTreeMap::new(),
        names: BTreeMap::new(),
        ids: Ids::new(),
        raw: Raw::default(),
        mapping,
    };
    match loader.xml.child()? {
        Some(root) if root.name == "graphml" => {}
        Some(root) if root.name == "network" => return sndlib::read(loader.xml, mapping),
        other => {
            let at = other.map_or(text.len(), |tag| tag.at);
            return Err(Fault::new(at, "expected `<graphml>`, or `<network>` of SNDlib"));
        }
    }
    let mut graphs = 0;
    while let Some(tag) = loader.xml.child()? {
        match tag.name.as_str() {
            "key" => loader.key(&tag)?,
            "graph" if graphs == 0 => {
                loader.graph(&tag)?;
                graphs = 1;
            }
            "graph" => return Err(Fault::new(tag.at, "only one graph in a file is read, and this is the second")),
            _ => loader.xml.skip()?,
        }
    }
    if let Some(tag) = loader.xml.child()? {
        return Err(Fault::new(tag.at, "the file should end after `</graphml>`"));
    }
    if graphs == 0 {
        return Err(Fault::new(text.len(), "there is no `<graph>` in the file"));
    }
    loader.finish()
}

struct Loader<'t> {
    xml: Xml<'t>,
    /// The places of keys by their ids.
    keys: BTreeMap<String, usize>,
    /// The places of keys by their names, and by whether they are of nodes and of edges: networkx declares a key once for each
    /// type of its values.
    names: BTreeMap<(String, (bool, bool)), usize>,
    ids: Ids<String>,
    /// What was read so far. Until the end of the file, the ends of its edges are numbers of ids.
    raw: Raw,
    mapping: &'t Mapping,
}

impl Loader<'_> {
    /// A `key`: what an id of `data` stands for.
    fn key(&mut self, tag: &Tag) -> Result<(), Fault> {
        let of = match tag.get("for").unwrap_or("all") {
            "node" => (true, false),
            "edge" => (false, true),
            "all" => (true, true),
            _ => (false, false),
        };
        let id = tag.need("id")?;
        let name = match (tag.get("attr.name"), tag.get("yfiles.type")) {
            (_, Some("nodegraphics")) => YED,
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => id,
        };
        let place = *self.names.entry((name.into(), of)).or_insert(self.raw.keys.len());
        if self.keys.insert(id.into(), place).is_some() {
            return Err(Fault::new(tag.at, format!("key `{}` exists twice; give each an id of its own", shown(id))));
        }
        let mut key = Key::new(name, of, self.mapping, &ZOO);
        while let Some(child) = self.xml.child()? {
            match child.name == "default" && !(key.is_skipped(true) && key.is_skipped(false)) {
                true => {
                    let (at, text) = self.xml.text()?;
                    key.default = Some(Text { at, text });
                }
                false => self.xml.skip()?,
            }
        }
        match self.raw.keys.get_mut(place) {
            Some(same) => same.default = same.default.take().or(key.default),
            None => self.raw.keys.push(key),
        }
        Ok(())
    }

    fn graph(&mut self, tag: &Tag) -> Result<(), Fault> {
        let directed = match tag.get("edgedefault") {
            Some("directed") => true,
            Some("undirected") | None => false,
            Some(_) => return Err(Fault::new(tag.at, "`edgedefault` must be `directed` or `undirected`")),
        };
        while let Some(tag) = self.xml.child()? {
            match tag.name.as_str() {
                "node" => self.node(&tag)?,
                "edge" => self.edge(&tag, directed)?,
                "hyperedge" => return Err(Fault::new(tag.at, "hyperedges are not read; write a node and edges to it")),
                _ => self.xml.skip()?,
            }
        }
        Ok(())
    }

    fn node(&mut self, tag: &Tag) -> Result<(), Fault> {
        let id = tag.need("id")?;
        let cells = self.cells(true)?;
        let index = self.raw.nodes.len();
        check_count(tag.at, "nodes", index, MAX_NODES)?;
        self.raw.nodes.push(RawNode { id: id.into(), cells });
        self.ids.declare(tag.at, id.into(), index)?;
        Ok(())
    }

    fn edge(&mut self, tag: &Tag, directed: bool) -> Result<(), Fault> {
        let directed = match tag.get("directed") {
            Some("true" | "1") => true,
            Some("false" | "0") => false,
            None => directed,
            Some(_) => return Err(Fault::new(tag.at, "`directed` must be `true` or `false`")),
        };
        let from = self.ids.mention(tag.at, tag.need("source")?.into())?;
        let to = self.ids.mention(tag.at, tag.need("target")?.into())?;
        let cells = self.cells(false)?;
        check_count(tag.at, "edges", self.raw.edges.len(), MAX_EDGES)?;
        self.raw.edges.push(RawEdge { from, to, directed, cells });
        Ok(())
    }

    /// The values in the `data` of the open element, up to its end.
    fn cells(&mut self, of_nodes: bool) -> Result<Vec<Cell>, Fault> {
        let mut cells = Vec::new();
        while let Some(tag) = self.xml.child()? {
            if tag.name == "graph" {
                return Err(Fault::new(tag.at, "graphs within nodes are not read"));
            }
            if tag.name != "data" {
                self.xml.skip()?;
                continue;
            }
            let id = tag.need("key")?;
            let known = self.keys.get(id).and_then(|place| Some((*place, self.raw.keys.get_mut(*place)?)));
            let Some((place, key)) = known else {
                return Err(Fault::new(tag.at, format!("no `<key>` before here has the id `{}`", shown(id))));
            };
            key.is_used = true;
            if key.is_skipped(of_nodes) {
                self.xml.skip()?;
                continue;
            }
            let (at, text) = if key.name == YED { self.xml.text_of(YED)? } else { self.xml.text()? };
            if !text.trim().is_empty() {
                cells.push((place as u32, Text { at, text }));
            }
        }
        Ok(cells)
    }

    fn finish(self) -> Result<Raw, Fault> {
        let Loader { mut raw, ids, .. } = self;
        ids.settle(&mut raw)?;
        Ok(raw)
    }
}
