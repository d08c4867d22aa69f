//! Where the published topologies are.
//!
//! The Topology Zoo is part of sidestep; the other two sets are not, as they state no licence. Where REPETITA's graphs are not
//! at hand, the Zoo's stand in for them, with weights by REPETITA's rule.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use sidestep_formats::{self as formats, MAX_TEXT, Mapping, Reading};
use sidestep_net::{Graph, ParseError, Rate};
use thiserror::Error;

/// A published set of topologies; a folder of the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// REPETITA's Topology Zoo graphs with IGP weights: `repetita/NAME.graph`.
    Repetita,
    /// The Internet Topology Zoo: `zoo/NAME.graphml`.
    Zoo,
    /// Rocketfuel's router-level maps: `rocketfuel/ASN.r0.cch`.
    Rocketfuel,
}

/// Why there are no topologies.
#[derive(Debug, Error)]
pub enum DataError {
    /// The set is missing.
    #[error(
        "there are no *{} in {}; get {}, and name the directory that has them as `{}/` by --data or SIDESTEP_DATA",
        set.suffix(),
        folder.display(),
        set.published(),
        set.folder()
    )]
    NoSet {
        /// The set.
        set: Set,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The set that the name begins with has no topology of that name, and is not shipped.
    #[error(
        "there is no {}; get {}, and name the directory that has them as `{}/` by --data or SIDESTEP_DATA",
        file.display(),
        set.published(),
        set.folder()
    )]
    NotShipped {
        /// The set.
        set: Set,
        /// The file that was looked for.
        file: PathBuf,
    },
    /// No file and no published topology has that name.
    #[error(
        "there is no file `{name}`, and no topology of that name in {} or in the Topology Zoo, which `sidestep topo list --set zoo` lists",
        folder.display()
    )]
    NoTopology {
        /// The name.
        name: String,
        /// The data directory.
        folder: PathBuf,
    },
    /// A file does not have the format that its name shows.
    #[error("{0}")]
    Parse(ParseError),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Set {
    /// All sets, in the order in which a topology's name is looked for.
    pub const ALL: [Set; 3] = [Set::Repetita, Set::Zoo, Set::Rocketfuel];

    /// The set's folder in the data directory.
    pub fn folder(self) -> &'static str {
        match self {
            Set::Repetita => "repetita",
            Set::Zoo => "zoo",
            Set::Rocketfuel => "rocketfuel",
        }
    }

    /// The extension of a file that has a topology of the set by its whole name.
    fn extension(self) -> &'static str {
        match self {
            Set::Repetita => ".graph",
            Set::Zoo => ".graphml",
            Set::Rocketfuel => ".cch",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Set::Repetita => ".graph",
            Set::Zoo => ".graphml",
            Set::Rocketfuel => ".r0.cch",
        }
    }

    fn published(self) -> &'static str {
        match self {
            Set::Repetita => "2016TopologyZooUCL_inverseCapacity of https://github.com/svissicchio/Repetita",
            Set::Zoo => "the data set of http://www.topology-zoo.org",
            Set::Rocketfuel => "the ISP maps of https://research.cs.washington.edu/networking/rocketfuel",
        }
    }
}

/// The topologies of a set, by name.
///
/// The function looks in `given`, or else in `../shared/data` of the working directory or of one above it.
pub fn topologies(given: Option<&Path>, set: Set) -> Result<Vec<Graph>, DataError> {
    let folder = data_directory(given).join(set.folder());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let path = entry.map_err(|source| DataError::File { path: folder.clone(), source })?.path();
        if path.to_string_lossy().ends_with(set.suffix()) {
            files.push(path);
        }
    }
    if files.is_empty() && set == Set::Zoo {
        return sidestep_zoo::TOPOLOGIES.iter().map(|(name, text)| shipped(name, text)).collect();
    }
    if files.is_empty() {
        return Err(DataError::NoSet { set, folder });
    }
    files.sort();
    files.iter().map(|path| read_topology(path)).collect()
}

/// The topology in the file of this path, or the published one of this name, such as `Cogentco`, `zoo/Cogentco` or `1221`.
///
/// A file in the data directory takes precedence over the topology that is shipped.
pub fn topology(given: Option<&Path>, name: &str) -> Result<Graph, DataError> {
    topology_as(given, name, &Mapping::default()).map(|(graph, _)| graph)
}

/// As [`topology`], with keys of the file as the user maps them, and the account of how it was read.
pub fn topology_as(given: Option<&Path>, name: &str, mapping: &Mapping) -> Result<(Graph, Reading), DataError> {
    if Path::new(name).is_file() {
        return read_as(Path::new(name), mapping);
    }
    let folder = data_directory(given);
    let plain = !name.contains("..") && !name.starts_with('/');
    let found = Set::ALL.into_iter().filter(|_| plain).find_map(|set| {
        let rest = set_of(name).filter(|(of, _)| *of == set).map_or(name, |(_, rest)| rest);
        // Of Rocketfuel's maps `3257` is the trimmed one, and `3257.pop` that of another file.
        let paths =
            [set.suffix(), set.extension()].map(|suffix| folder.join(set.folder()).join(format!("{rest}{suffix}")));
        paths.into_iter().find(|path| path.is_file())
    });
    if let Some(path) = found {
        return read_as(&path, mapping);
    }
    let rest = name.strip_prefix("zoo/").unwrap_or(name);
    match sidestep_zoo::find(rest) {
        Some(text) => formats::read_as(text, &format!("{rest}.graphml"), mapping).map_err(DataError::Parse),
        None => Err(match set_of(name) {
            Some((set, rest)) if set != Set::Zoo && plain => DataError::NotShipped {
                set,
                file: folder.join(set.folder()).join(format!("{rest}{}", set.extension())),
            },
            _ => DataError::NoTopology { name: name.into(), folder },
        }),
    }
}

/// The set that a name begins with, and the rest of the name.
fn set_of(name: &str) -> Option<(Set, &str)> {
    let (first, rest) = name.split_once('/')?;
    Set::ALL.into_iter().find(|set| set.folder() == first).map(|set| (set, rest))
}

/// REPETITA's graphs, or where they are not at hand the Topology Zoo's with weights and rates by REPETITA's rule.
///
/// A note reports the second case. `inverse_capacity` has the rule.
pub fn weighted(given: Option<&Path>) -> Result<(Vec<Graph>, Option<&'static str>), DataError> {
    match topologies(given, Set::Repetita) {
        Err(DataError::NoSet { .. }) => {
            let mut all = topologies(given, Set::Zoo)?;
            // REPETITA has all of the Zoo that is shipped but this one.
            all.retain(|graph| graph.name != "Kdl");
            all.iter_mut().for_each(|graph| {
                keep_largest_part(graph);
                inverse_capacity(graph);
            });
            Ok((all, Some(STAND_IN)))
        }
        read => Ok((read?, None)),
    }
}

/// The note on results that come from the Zoo's topologies instead of REPETITA's.
pub const STAND_IN: &str = "computed from the Topology Zoo that is built in, with IGP weights by REPETITA's rule, as REPETITA's \
    own graphs are not at hand: the weights of some links are not the paper's. For these get \
    2016TopologyZooUCL_inverseCapacity of https://github.com/svissicchio/Repetita, and name the directory that has it as \
    `repetita/` by --data or SIDESTEP_DATA";

/// Leaves the edges of the part with most nodes: pairs across parts have no path, and REPETITA's graphs have hardly any.
fn keep_largest_part(graph: &mut Graph) {
    fn root(part: &[usize], mut node: usize) -> usize {
        while part[node] != node {
            node = part[node];
        }
        node
    }
    let mut part: Vec<usize> = (0..graph.nodes.len()).collect();
    for edge in &graph.edges {
        let (one, other) = (root(&part, edge.from), root(&part, edge.to));
        part[one.max(other)] = one.min(other);
    }
    let roots: Vec<usize> = (0..part.len()).map(|node| root(&part, node)).collect();
    let size = |root: usize| roots.iter().filter(|of| **of == root).count();
    let all = (0..roots.len()).filter(|node| roots[*node] == *node);
    let largest = all.max_by_key(|root| (size(*root), usize::MAX - root));
    graph.edges.retain(|edge| Some(roots[edge.from]) == largest);
}

/// Gives links the rates and weights that REPETITA's set 2016TopologyZooUCL_inverseCapacity has.
///
/// A rate is at least a twentieth of the fastest, one that is not known is the mean of the others (1 Gbit/s if none is), and a
/// weight is ten times the fastest rate over the link's own, rounded down. 234 of the 257 graphs that are in both sets get
/// REPETITA's rates to the last digit; of the others REPETITA read more from the labels of links.
fn inverse_capacity(graph: &mut Graph) {
    let known: Vec<u64> = graph.edges.iter().filter_map(|edge| edge.rate).map(Rate::bits_per_sec).collect();
    let fastest = known.iter().copied().max().unwrap_or(1_000_000_000);
    let at_least = |rate: u64| rate.max(fastest / 20);
    let mean = known.iter().map(|rate| u128::from(at_least(*rate))).sum::<u128>() / known.len().max(1) as u128;
    let unknown = if known.is_empty() { fastest } else { mean as u64 };
    for edge in &mut graph.edges {
        let rate = edge.rate.map_or(unknown, |rate| at_least(rate.bits_per_sec())).max(1);
        edge.weight = Some((u128::from(fastest) * 10 / u128::from(rate)) as f64);
        edge.rate = Some(Rate::from_bits_per_sec(rate));
    }
}

fn shipped(name: &str, text: &str) -> Result<Graph, DataError> {
    formats::read(text, &format!("{name}.graphml")).map_err(DataError::Parse)
}

/// Reads a topology file in the format that its extension names.
fn read_topology(path: &Path) -> Result<Graph, DataError> {
    read_as(path, &Mapping::default()).map(|(graph, _)| graph)
}

fn read_as(path: &Path, mapping: &Mapping) -> Result<(Graph, Reading), DataError> {
    let name = path.to_string_lossy();
    let text = text_of(path)?;
    let other = formats::companion(&name).filter(|other| Path::new(other).is_file());
    let other = other.map(|name| text_of(Path::new(&name)).map(|text| (text, name))).transpose()?;
    let other = other.as_ref().map(|(text, name)| (text.as_str(), name.as_str()));
    formats::read_with(&text, &name, other, mapping).map_err(DataError::Parse)
}

/// The text of a file that is not too large to be read.
fn text_of(path: &Path) -> Result<String, DataError> {
    let failed = |source| DataError::File { path: path.to_path_buf(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_TEXT as u64 {
        return Err(failed(io::Error::other("is larger than 64 MiB")));
    }
    Ok(String::from_utf8_lossy(&fs::read(path).map_err(failed)?).into_owned())
}

fn data_directory(given: Option<&Path>) -> PathBuf {
    let beside = || {
        let here = env::current_dir().unwrap_or_default();
        here.ancestors().skip(1).map(|above| above.join("shared/data")).find(|folder| folder.is_dir())
    };
    given.map(Path::to_path_buf).or_else(beside).unwrap_or_else(|| "../shared/data".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_not_there_is_answered_with_where_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        for (set, address) in [(Set::Repetita, "svissicchio/Repetita"), (Set::Rocketfuel, "rocketfuel")] {
            let message = topologies(Some(dir.path()), set).unwrap_err().to_string();
            assert!(message.contains(address) && message.contains("SIDESTEP_DATA"), "{message}");
        }
    }

    #[test]
    fn a_topology_of_a_set_that_is_not_shipped_is_answered_with_its_file_and_where_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        for (name, file, address) in [
            ("rocketfuel/3257.pop", "rocketfuel/3257.pop.cch", "networking/rocketfuel"),
            ("repetita/Cogentco", "repetita/Cogentco.graph", "svissicchio/Repetita"),
        ] {
            let message = topology(Some(dir.path()), name).unwrap_err().to_string();
            assert!(message.contains(file) && message.contains(address) && message.contains("--data"), "{message}");
        }
    }

    #[test]
    fn the_zoo_stands_in_for_repetitas_graphs_with_weights_by_their_rule() {
        let dir = tempfile::tempdir().unwrap();
        let (all, note) = weighted(Some(dir.path())).unwrap();
        assert!(note.unwrap().contains("built in") && all.len() == 260, "{note:?}: {}", all.len());
        assert!(all.iter().flat_map(|graph| &graph.edges).all(|edge| edge.rate.is_some() && edge.weight >= Some(10.0)));
        // As REPETITA has them: Aconet's unknown links have the mean, 6.625 Gbit/s, and Cesnet1999's slow ones a twentieth.
        let weights = |name: &str| {
            let graph = all.iter().find(|graph| graph.name == name).unwrap();
            let mut weights: Vec<u32> =
                graph.edges.iter().filter_map(|edge| edge.weight).map(|one| one as u32).collect();
            weights.sort_unstable();
            weights.dedup();
            weights
        };
        assert_eq!(
            [weights("Aconet"), weights("Cesnet1999"), weights("Abvt")],
            [vec![10, 15, 100], vec![10, 45, 193, 200], vec![10]]
        );
        // Of four parts, the one with most nodes has all edges that are left.
        let telekom = all.iter().find(|graph| graph.name == "DeutscheTelekom").unwrap();
        assert!(telekom.edges.len() < topology(Some(dir.path()), "DeutscheTelekom").unwrap().edges.len());
        fs::create_dir(dir.path().join("repetita")).unwrap();
        let text = "NODES 2\nlabel x y\na 0 0\nb 0 0\n\nEDGES 1\nlabel src dest weight bw delay\ne 0 1 7 1000 1\n";
        fs::write(dir.path().join("repetita/Small.graph"), text).unwrap();
        let (all, note) = weighted(Some(dir.path())).unwrap();
        assert_eq!((all.len(), note), (1, None));
    }

    #[test]
    fn a_topology_is_found_by_path_by_name_and_by_set() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("zoo")).unwrap();
        let file = dir.path().join("zoo/Small.graphml");
        fs::write(&file, "<graphml><graph edgedefault=\"undirected\"><node id=\"a\"/></graph></graphml>").unwrap();
        for name in ["Small", "zoo/Small", &file.to_string_lossy()] {
            assert_eq!(topology(Some(dir.path()), name).unwrap().nodes.len(), 1);
        }
        assert_eq!(topologies(Some(dir.path()), Set::Zoo).unwrap()[0].name, "Small");
        for name in ["Large", "repetita/Small", "../zoo/Small", "repetita/Abilene"] {
            assert!(topology(Some(dir.path()), name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_topology_zoo_is_there_without_any_data_and_gives_way_to_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["Abilene", "zoo/Abilene"] {
            assert_eq!(topology(Some(dir.path()), name).unwrap().nodes.len(), 11);
        }
        assert!(topologies(Some(dir.path()), Set::Zoo).unwrap().len() > 250);
        fs::create_dir(dir.path().join("zoo")).unwrap();
        let text = "<graphml><graph edgedefault=\"undirected\"><node id=\"a\"/></graph></graphml>";
        fs::write(dir.path().join("zoo/Abilene.graphml"), text).unwrap();
        assert_eq!(topology(Some(dir.path()), "Abilene").unwrap().nodes.len(), 1);
    }
}
