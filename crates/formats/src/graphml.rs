//! GraphML, with the keys of the Internet Topology Zoo.
//!
//! The reader takes `label`, `Longitude` and `Latitude` of nodes, and `LinkSpeedRaw` (bit/s) and `weight` of edges; it
//! skips every other key. Nested graphs and hyperedges are errors, because a [`Graph`] cannot have them. A document
//! type declaration is an error too: no topology needs entities of its own.

mod xml;

use std::collections::BTreeMap;

use sidestep_net::Rate;

use super::{Fault, Graph, GraphEdge, GraphNode, add_edge, add_node, ids::Ids, quantity, shown};
use xml::{Tag, Xml};

/// Reads a GraphML file.
pub(super) fn read(text: &str) -> Result<Graph, Fault> {
    let mut loader = Loader {
        xml: Xml::new(text),
        keys: BTreeMap::new(),
        defaults: Values::default(),
        ids: Ids::new(),
        graph: Graph::default(),
    };
    match loader.xml.child()? {
        Some(root) if root.name == "graphml" => {}
        other => return Err(Fault::new(other.map_or(text.len(), |tag| tag.at), "expected `<graphml>`")),
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

/// A key whose values are read.
#[derive(Clone, Copy)]
enum Field {
    Label,
    Longitude,
    Latitude,
    Speed,
    Weight,
}

/// The values of a node's or an edge's keys.
#[derive(Clone, Default)]
struct Values {
    label: Option<String>,
    longitude: Option<f64>,
    latitude: Option<f64>,
    speed: Option<Rate>,
    weight: Option<f64>,
}

struct Loader<'t> {
    xml: Xml<'t>,
    /// All keys by their ids; `None` for a key that is skipped.
    keys: BTreeMap<String, Option<Field>>,
    /// The default values of keys, without labels: copies of a long label would need much more memory than the file.
    defaults: Values,
    ids: Ids<String>,
    /// The graph so far. Until the end of the file, the ends of its edges are numbers of ids.
    graph: Graph,
}

impl Loader<'_> {
    /// A `key`: what an id of `data` stands for.
    fn key(&mut self, tag: &Tag) -> Result<(), Fault> {
        let field = match (tag.get("for").unwrap_or("all"), tag.get("attr.name").unwrap_or_default()) {
            ("node" | "all", "label") => Some(Field::Label),
            ("node" | "all", "Longitude") => Some(Field::Longitude),
            ("node" | "all", "Latitude") => Some(Field::Latitude),
            ("edge" | "all", "LinkSpeedRaw") => Some(Field::Speed),
            ("edge" | "all", "weight") => Some(Field::Weight),
            _ => None,
        };
        let id = tag.need("id")?;
        if self.keys.insert(id.into(), field).is_some() {
            return Err(Fault::new(tag.at, format!("key `{}` exists twice; give each an id of its own", shown(id))));
        }
        while let Some(child) = self.xml.child()? {
            match field {
                Some(field) if child.name == "default" => {
                    let (at, text) = self.xml.text()?;
                    self.defaults.set(field, &text).map_err(|error| Fault::new(at, error))?;
                    self.defaults.label = None;
                }
                _ => self.xml.skip()?,
            }
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
        let Values { label, longitude, latitude, .. } = self.values()?;
        let name = label.unwrap_or_else(|| id.into());
        let index = add_node(&mut self.graph, tag.at, GraphNode { name, position: longitude.zip(latitude) })?;
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
        let Values { speed: rate, weight, .. } = self.values()?;
        add_edge(&mut self.graph, tag.at, GraphEdge { from, to, directed, weight, rate, delay: None })
    }

    /// The values in the `data` of the open element, up to its end.
    fn values(&mut self) -> Result<Values, Fault> {
        let mut values = self.defaults.clone();
        while let Some(tag) = self.xml.child()? {
            if tag.name == "graph" {
                return Err(Fault::new(tag.at, "graphs within nodes are not read"));
            }
            if tag.name != "data" {
                self.xml.skip()?;
                continue;
            }
            let id = tag.need("key")?;
            match self.keys.get(id) {
                Some(Some(field)) => {
                    let (at, text) = self.xml.text()?;
                    values.set(*field, &text).map_err(|error| Fault::new(at, error))?;
                }
                Some(None) => self.xml.skip()?,
                None => return Err(Fault::new(tag.at, format!("no `<key>` before here has the id `{}`", shown(id)))),
            }
        }
        Ok(values)
    }

    fn finish(self) -> Result<Graph, Fault> {
        let Loader { mut graph, ids, .. } = self;
        let nodes = ids.nodes()?;
        for edge in &mut graph.edges {
            for end in [&mut edge.from, &mut edge.to] {
                *end = nodes.get(*end).copied().unwrap_or_default();
            }
        }
        Ok(graph)
    }
}

impl Values {
    /// Sets the value of a key; a blank value counts as absent.
    fn set(&mut self, field: Field, text: &str) -> Result<(), String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        match field {
            Field::Label => self.label = Some(text.into()),
            Field::Longitude => self.longitude = Some(quantity::number("longitude", text)?),
            Field::Latitude => self.latitude = Some(quantity::number("latitude", text)?),
            Field::Speed => self.speed = Some(quantity::rate("speed", text, 1)?),
            Field::Weight => self.weight = Some(quantity::amount("weight", text)?),
        }
        Ok(())
    }
}
