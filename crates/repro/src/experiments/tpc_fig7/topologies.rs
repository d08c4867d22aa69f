//! REPETITA's networks, pruned as the paper prunes them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use sidestep_model::{
    NodeId,
    formats::{self, Graph},
};
use sidestep_paths::{FlowArc, FlowNetwork};

use crate::{ReproError, write::file};

/// A network without what hangs on it by one link only.
pub(super) struct Pruned {
    pub(super) name: String,
    /// Capacities in bit/s.
    pub(super) network: FlowNetwork,
    /// Routers with exactly two links, parallel ones counted.
    pub(super) access: Vec<NodeId>,
}

/// All of REPETITA's networks of which something is left, by name.
pub(super) fn read() -> Result<Vec<Pruned>, ReproError> {
    let folder = folder()?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).map_err(file(&folder))? {
        let path = entry.map_err(file(&folder))?.path();
        if path.extension().is_some_and(|extension| extension == "graph") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut networks = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(file(&path))?;
        let graph = formats::read(&text, &name).map_err(|error| ReproError::Run(error.to_string()))?;
        let pruned = prune(&graph).map_err(|error| ReproError::Run(format!("{name}: {error}")))?;
        if !pruned.network.arcs().is_empty() {
            networks.push(pruned);
        }
    }
    match networks.is_empty() {
        true => Err(ReproError::Run(format!("{}: there are no networks in it", folder.display()))),
        false => Ok(networks),
    }
}

/// Where REPETITA's files are.
fn folder() -> Result<PathBuf, ReproError> {
    let data = env::var_os("SIDESTEP_DATA").map_or_else(|| Path::new("../shared/data").to_path_buf(), PathBuf::from);
    let folder = data.join("repetita");
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(ReproError::Run(format!(
            "{} is not there; set SIDESTEP_DATA to a directory with REPETITA’s set 2016TopologyZooUCL_inverseCapacity as \
             `repetita`",
            folder.display()
        ))),
    }
}

/// Removes nodes with fewer than two links, parallel ones counted, until there are none; loops do not count.
fn prune(graph: &Graph) -> Result<Pruned, String> {
    let edges = || graph.edges.iter().filter(|edge| edge.from != edge.to);
    let mut kept = vec![true; graph.nodes.len()];
    let degrees = loop {
        let mut degrees = vec![0; graph.nodes.len()];
        for edge in edges().filter(|edge| kept[edge.from] && kept[edge.to]) {
            // Each direction is an edge, and counts at its tail.
            degrees[edge.from] += 1;
        }
        let before = kept.clone();
        kept.iter_mut().zip(&degrees).for_each(|(kept, degree)| *kept &= *degree >= 2);
        if kept == before {
            break degrees;
        }
    };
    let mut ids = vec![None; graph.nodes.len()];
    for (new, old) in (0..).zip((0..graph.nodes.len()).filter(|node| kept[*node])) {
        ids[old] = Some(NodeId(new));
    }
    let mut arcs = Vec::new();
    for edge in edges() {
        let (Some(from), Some(to)) = (ids[edge.from], ids[edge.to]) else { continue };
        let capacity = edge.rate.ok_or("an edge has no bandwidth")?.bits_per_sec() as f64;
        let weight = edge.weight.filter(|weight| weight.fract() == 0.0 && (1.0..=1e9).contains(weight));
        let weight = weight.ok_or("an edge has no weight that is a whole number from 1 on")? as u32;
        arcs.push(FlowArc { from, to, capacity, weight });
    }
    let access = (0..graph.nodes.len()).filter(|node| degrees[*node] == 2).filter_map(|node| ids[node]).collect();
    let nodes = kept.iter().filter(|kept| **kept).count();
    let network = FlowNetwork::new(nodes, arcs).map_err(|error| error.to_string())?;
    Ok(Pruned { name: graph.name.clone(), network, access })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_on_by_one_link_goes_and_parallel_links_count() {
        // A triangle 0-1-2 with a tail 2-3-4, and 5 on two parallel links to 0; 1 has a loop.
        let ends = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (0, 5), (0, 5)];
        let both = ends.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).chain([(1, 1)]);
        let edges: Vec<String> = both.map(|(a, b)| format!("e {a} {b} 10 1000 1")).collect();
        let nodes = "n 0 0\n".repeat(6);
        let text = format!(
            "NODES 6\nlabel x y\n{nodes}\nEDGES {}\nlabel src dest weight bw delay\n{}\n",
            edges.len(),
            edges.join("\n")
        );
        let pruned = prune(&formats::read(&text, "t.graph").unwrap()).unwrap();
        assert_eq!((pruned.network.node_count(), pruned.network.arcs().len()), (4, 10));
        assert_eq!(pruned.access, [NodeId(1), NodeId(2), NodeId(3)]);
    }

    #[test]
    fn as_many_networks_are_left_as_the_paper_has() {
        if folder().is_err() {
            println!("skipped: set SIDESTEP_DATA to the published topologies");
            return;
        }
        let networks = read().unwrap();
        let analysed = networks.iter().filter(|network| network.access.len() >= 2).count();
        assert_eq!((networks.len(), analysed), (233, 219));
    }
}
