//! containerlab's `.clab.yml`: nodes by name, and links between their interfaces, in the short form and in the extended one.
//!
//! ```yaml
//! topology:
//!   nodes: {a: {kind: linux}, b: {kind: linux}}
//!   links:
//!     - endpoints: ["a:eth1", "b:eth1"]
//!     - endpoints: [{node: a, interface: eth2}, {node: b, interface: eth2}]
//!       labels: {capacity: 10 Gbit/s, delay: 2 ms}
//! ```
//!
//! Keys are those of nodes and links, and of their `labels` and `vars`. Links to the machine below or to other networks are left
//! out, with a warning.

mod yaml;

use super::{
    Fault, MAX_EDGES, MAX_NODES, Mapping, Role, check_count,
    ids::Ids,
    raw::{Book, Cell, Fixed, Raw, RawEdge, RawNode, Text},
};
use yaml::Yaml;

/// The labels by which `containerlab graph` places nodes.
const LABELS: [Fixed; 2] =
    [("graph-geoCoordinateLng", true, Role::Longitude, None), ("graph-geoCoordinateLat", true, Role::Latitude, None)];

/// The ends of links that are no nodes.
const OUTSIDE: [&str; 5] = ["host", "mgmt-net", "macvlan", "vxlan", "dummy"];

/// Reads a `.clab.yml` file.
pub(super) fn read(text: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut yaml = Yaml::new(text);
    let mut loader = Loader { book: Book::new(mapping, &LABELS), ids: Ids::new(), raw: Raw::default(), outside: 0 };
    let mut has_nodes = false;
    yaml.members(&mut |yaml, _, key| match key {
        "topology" => yaml.members(&mut |yaml, _, key| match key {
            "nodes" => {
                has_nodes = true;
                yaml.members(&mut |yaml, at, name| loader.node(yaml, at, name))
            }
            "links" => yaml.elements(&mut |yaml, at| loader.link(yaml, at)),
            _ => yaml.skip(),
        }),
        _ => yaml.skip(),
    })?;
    yaml.end()?;
    if !has_nodes {
        return Err(Fault::new(
            text.len(),
            "there are no `nodes` in a `topology`; of YAML files containerlab's are read",
        ));
    }
    let Loader { ids, mut raw, outside, .. } = loader;
    ids.settle(&mut raw)?;
    if outside > 0 {
        raw.warnings.push(format!("links to what is no node of the lab are left out: {outside}"));
    }
    Ok(raw)
}

struct Loader<'m> {
    book: Book<'m>,
    ids: Ids<String>,
    /// What was read so far. Until the end of the file, the ends of its edges are numbers of ids.
    raw: Raw,
    /// Links that have no node at an end.
    outside: usize,
}

impl Loader<'_> {
    fn node(&mut self, yaml: &mut Yaml<'_>, at: usize, name: &str) -> Result<(), Fault> {
        let index = self.raw.nodes.len();
        check_count(at, "nodes", index, MAX_NODES)?;
        self.ids.declare(at, name.into(), index)?;
        let mut cells = Vec::new();
        // A node may be another's alias, or have nothing at all.
        if yaml.is_mapping()? {
            yaml.members(&mut |yaml, at, key| match key {
                "labels" => yaml.members(&mut |yaml, at, key| self.cell(yaml, true, at, key, &mut cells)),
                _ => self.cell(yaml, true, at, key, &mut cells),
            })?;
        } else {
            yaml.skip()?;
        }
        self.raw.nodes.push(RawNode { id: name.into(), cells });
        Ok(())
    }

    fn link(&mut self, yaml: &mut Yaml<'_>, mut place: usize) -> Result<(), Fault> {
        let (mut ends, mut cells, mut is_alone) = (Vec::new(), Vec::new(), false);
        yaml.members(&mut |yaml, at, key| match key {
            "endpoints" => {
                place = at;
                yaml.elements(&mut |yaml, at| {
                    check_count(at, "endpoints of a link", ends.len(), 2)?;
                    ends.push(endpoint(yaml, at)?);
                    Ok(())
                })
            }
            "endpoint" => {
                is_alone = true;
                yaml.skip()
            }
            "labels" | "vars" => yaml.members(&mut |yaml, at, key| self.cell(yaml, false, at, key, &mut cells)),
            _ => self.cell(yaml, false, at, key, &mut cells),
        })?;
        if is_alone || ends.iter().any(|end| OUTSIDE.contains(&end.text.as_str())) {
            self.outside += 1;
            return Ok(());
        }
        let Ok([from, to]) = <[Text; 2]>::try_from(ends) else {
            return Err(Fault::new(place, "a link needs two `endpoints`, such as [\"a:eth1\", \"b:eth1\"]"));
        };
        let (from, to) = (self.ids.mention(from.at, from.text)?, self.ids.mention(to.at, to.text)?);
        check_count(place, "edges", self.raw.edges.len(), MAX_EDGES)?;
        self.raw.edges.push(RawEdge { from, to, directed: false, cells });
        Ok(())
    }

    fn cell(
        &mut self,
        yaml: &mut Yaml<'_>,
        of_nodes: bool,
        at: usize,
        key: &str,
        cells: &mut Vec<Cell>,
    ) -> Result<(), Fault> {
        match self.book.place(&mut self.raw, of_nodes, at, key)? {
            Some(place) if yaml.is_scalar()? => {
                cells.extend(yaml.scalar()?.map(|value| (place, value)));
                Ok(())
            }
            _ => yaml.skip(),
        }
    }
}

/// The node of an end of a link: `node:interface`, or a mapping with the key `node`.
fn endpoint(yaml: &mut Yaml<'_>, at: usize) -> Result<Text, Fault> {
    let mut node = None;
    if yaml.is_scalar()? {
        node = yaml.scalar()?.map(|Text { at, text }| {
            let name = text.split_once(':').map_or(text.as_str(), |(node, _)| node);
            Text { at, text: name.into() }
        });
    } else {
        yaml.members(&mut |yaml, _, key| match key {
            "node" => {
                node = yaml.scalar()?;
                Ok(())
            }
            _ => yaml.skip(),
        })?;
    }
    node.ok_or_else(|| Fault::new(at, "an endpoint is `node:interface`, or has the key `node`"))
}
