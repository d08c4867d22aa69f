//! The nodes that files of traffic name: by name, or by their places in the network's file.

use std::collections::BTreeMap;

use sidestep_net::Graph;

use crate::{Fault, shown, words::Piece};

/// Of more nodes than this no nearest name is looked for.
const MAX_COMPARED: usize = 20_000;

/// The nodes of a graph by name.
pub(crate) struct Places<'g> {
    pub(crate) graph: &'g Graph,
    /// By name: the node's index; `None` if several have it.
    names: BTreeMap<&'g str, Option<usize>>,
}

impl<'g> Places<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        let mut names = BTreeMap::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            names.entry(node.name.as_str()).and_modify(|first| *first = None).or_insert(Some(index));
        }
        Places { graph, names }
    }

    /// The node of this name, or, if no node has it, of this number.
    pub(crate) fn node(&self, piece: Piece<'_>) -> Result<usize, Fault> {
        match self.names.get(piece.text) {
            Some(Some(index)) => Ok(*index),
            Some(None) => Err(piece.fault(format!(
                "several nodes have the name `{}`; name them by their places in the file, from 0 to {}",
                shown(piece.text),
                self.graph.nodes.len().saturating_sub(1)
            ))),
            None if piece.text.parse::<usize>().is_ok() => self.number(piece),
            None => Err(piece.fault(self.unknown(piece.text))),
        }
    }

    /// The node of this number, from 0 on.
    pub(crate) fn number(&self, piece: Piece<'_>) -> Result<usize, Fault> {
        let nodes = self.graph.nodes.len();
        match piece.text.parse() {
            Ok(_) if self.graph.is_part => Err(piece.fault(
                "nodes of the network's file were left out, so that a number says no node; give names, or take the whole network",
            )),
            Ok(index) if index < nodes => Ok(index),
            _ => Err(piece.fault(format!("there is no node `{}`; nodes are numbers below {nodes}", shown(piece.text)))),
        }
    }

    /// The error of a name that no node has, with the one that is most like it.
    fn unknown(&self, name: &str) -> String {
        let alike = |other: &&&str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
        let compared = self.names.keys().take(MAX_COMPARED).filter(|_| name.len() <= 256);
        let nearest = compared.max_by(|a, b| alike(a).total_cmp(&alike(b)));
        let nearest = nearest.map_or(String::new(), |nearest| format!("; the nearest name is `{}`", shown(nearest)));
        format!("the network has no node `{}`{nearest}", shown(name))
    }
}
