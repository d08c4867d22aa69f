//! SNDlib's XML (Orlowski and others 2010): nodes with coordinates, and links with capacities.
//!
//! A link's capacity is that of its pre-installed module, or of its first additional one, in a unit that the file does not
//! fix. Links are read in both directions. Demands and admissible paths are left out.

use super::{
    super::{Fault, MAX_EDGES, MAX_NODES, Mapping, check_count, ids::Ids},
    xml::{Tag, Xml},
};
use crate::raw::{Key, Raw, RawEdge, RawNode, Text};

const LONGITUDE: u32 = 0;
const LATITUDE: u32 = 1;
const CAPACITY: u32 = 2;

/// Reads what is in `<network>`, which is open.
pub(super) fn read(xml: Xml<'_>, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut raw = Raw::default();
    for (name, of) in [("x", (true, false)), ("y", (true, false)), ("capacity", (false, true))] {
        raw.keys.push(Key::new(name, of, mapping, &[]));
    }
    let mut loader = Loader { xml, ids: Ids::new(), raw, geographical: true, mapping };
    loader.walk()?;
    let Loader { mut raw, ids, .. } = loader;
    ids.settle(&mut raw)?;
    Ok(raw)
}

struct Loader<'t> {
    xml: Xml<'t>,
    ids: Ids<String>,
    raw: Raw,
    /// Whether coordinates are longitudes and latitudes.
    geographical: bool,
    mapping: &'t Mapping,
}

impl Loader<'_> {
    /// Reads the children of the open element, up to its end.
    fn walk(&mut self) -> Result<(), Fault> {
        let mut depth = 0;
        loop {
            let Some(tag) = self.xml.child()? else {
                if depth == 0 {
                    return Ok(());
                }
                depth -= 1;
                continue;
            };
            match tag.name.as_str() {
                "nodes" => {
                    self.geographical = tag.get("coordinatesType") != Some("pixel");
                    if self.geographical {
                        let of = (true, false);
                        let fixed =
                            [("x", true, crate::Role::Longitude, None), ("y", true, crate::Role::Latitude, None)];
                        for (place, name) in ["x", "y"].into_iter().enumerate() {
                            if let Some(key) = self.raw.keys.get_mut(place) {
                                *key = Key::new(name, of, self.mapping, &fixed);
                            }
                        }
                    }
                    depth += 1;
                }
                "networkStructure" | "links" => depth += 1,
                "node" => self.node(&tag)?,
                "link" => self.link(&tag)?,
                _ => self.xml.skip()?,
            }
        }
    }

    fn node(&mut self, tag: &Tag) -> Result<(), Fault> {
        let id = tag.need("id")?;
        let mut cells = Vec::new();
        while let Some(child) = self.xml.child()? {
            if child.name != "coordinates" {
                self.xml.skip()?;
                continue;
            }
            while let Some(child) = self.xml.child()? {
                let key = match child.name.as_str() {
                    "x" => LONGITUDE,
                    "y" => LATITUDE,
                    _ => {
                        self.xml.skip()?;
                        continue;
                    }
                };
                let (at, text) = self.xml.text()?;
                cells.push((key, Text { at, text }));
                self.mark(key);
            }
        }
        let index = self.raw.nodes.len();
        check_count(tag.at, "nodes", index, MAX_NODES)?;
        self.raw.nodes.push(RawNode { id: id.into(), cells });
        self.ids.declare(tag.at, id.into(), index)?;
        Ok(())
    }

    fn link(&mut self, tag: &Tag) -> Result<(), Fault> {
        let mut ends = [None, None];
        let mut cells = Vec::new();
        let mut depth = 0;
        loop {
            let Some(child) = self.xml.child()? else {
                if depth == 0 {
                    break;
                }
                depth -= 1;
                continue;
            };
            match child.name.as_str() {
                "source" | "target" => {
                    let (at, text) = self.xml.text()?;
                    let end = self.ids.mention(at, text.trim().into())?;
                    *(if child.name == "source" { &mut ends[0] } else { &mut ends[1] }) = Some(end);
                }
                "preInstalledModule" | "additionalModules" | "addModule" => depth += 1,
                "capacity" if cells.is_empty() => {
                    let (at, text) = self.xml.text()?;
                    cells.push((CAPACITY, Text { at, text }));
                    self.mark(CAPACITY);
                }
                _ => self.xml.skip()?,
            }
        }
        let [Some(from), Some(to)] = ends else {
            return Err(Fault::new(tag.at, "a link needs a `<source>` and a `<target>`"));
        };
        check_count(tag.at, "edges", self.raw.edges.len(), MAX_EDGES)?;
        self.raw.edges.push(RawEdge { from, to, directed: false, cells });
        Ok(())
    }

    fn mark(&mut self, key: u32) {
        if let Some(key) = self.raw.keys.get_mut(key as usize) {
            key.is_used = true;
        }
    }
}
