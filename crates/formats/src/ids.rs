//! Ids of nodes that may be named before they are declared.

use std::{collections::BTreeMap, fmt};

use super::{
    Fault, MAX_NODES, check_count,
    raw::{Raw, RawNode},
    shown,
};

/// Numbers for ids, given out at their first mention.
#[derive(Debug)]
pub(super) struct Ids<K> {
    numbers: BTreeMap<K, usize>,
    mentions: Vec<Mention>,
}

#[derive(Debug)]
struct Mention {
    /// Where in the text it was first.
    at: usize,
    /// The node of that id, once it is declared.
    node: Option<usize>,
}

impl<K: Ord + fmt::Display> Ids<K> {
    pub(super) fn new() -> Self {
        Ids { numbers: BTreeMap::new(), mentions: Vec::new() }
    }

    /// The number of an id that stands at `at`.
    pub(super) fn mention(&mut self, at: usize, id: K) -> Result<usize, Fault> {
        let next = self.mentions.len();
        let number = *self.numbers.entry(id).or_insert(next);
        if number == next {
            check_count(at, "nodes", next, MAX_NODES)?;
            self.mentions.push(Mention { at, node: None });
        }
        Ok(number)
    }

    /// Records that the id is that of `node`; no id can be that of two. Returns its number.
    pub(super) fn declare(&mut self, at: usize, id: K, node: usize) -> Result<usize, Fault> {
        let number = self.mention(at, id)?;
        match self.mentions.get_mut(number) {
            Some(mention) if mention.node.is_none() => mention.node = Some(node),
            _ => {
                return Err(Fault::new(
                    at,
                    format!("node `{}` exists twice; give each an id of its own", self.id(number)),
                ));
            }
        }
        Ok(number)
    }

    /// The nodes by the numbers of their ids; fails where an id without a node was first mentioned.
    pub(super) fn nodes(&self) -> Result<Vec<usize>, Fault> {
        let known = |(number, mention): (usize, &Mention)| {
            mention.node.ok_or_else(|| Fault::new(mention.at, format!("there is no node `{}`", self.id(number))))
        };
        self.mentions.iter().enumerate().map(known).collect()
    }

    /// Makes the ends of edges, which are numbers of ids, places of nodes; fails as [`Self::nodes`] does.
    pub(super) fn settle(&self, raw: &mut Raw) -> Result<(), Fault> {
        let nodes = self.nodes()?;
        for edge in &mut raw.edges {
            for end in [&mut edge.from, &mut edge.to] {
                *end = nodes.get(*end).copied().unwrap_or_default();
            }
        }
        Ok(())
    }

    fn id(&self, number: usize) -> String {
        self.numbers
            .iter()
            .find(|(_, other)| **other == number)
            .map_or_else(String::new, |(id, _)| shown(&id.to_string()))
    }
}

impl Ids<String> {
    /// The place of the node of this id, for formats in which the first mention of a node is its declaration.
    pub(super) fn node(&mut self, raw: &mut Raw, at: usize, id: &str) -> Result<usize, Fault> {
        let place = self.mention(at, id.into())?;
        if place == raw.nodes.len() {
            raw.nodes.push(RawNode { id: id.into(), cells: Vec::new() });
        }
        Ok(place)
    }
}
