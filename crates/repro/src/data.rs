//! Where the published topologies are.
//!
//! The Topology Zoo is part of sidestep; the other two sets are not, as they state no licence.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use sidestep_formats::{self as formats, MAX_TEXT};
use sidestep_model::{Graph, scenario::ParseError};
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
    /// A file does not have the format that its name says.
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
    if Path::new(name).is_file() {
        return read_topology(Path::new(name));
    }
    let folder = data_directory(given);
    let plain = !name.contains("..") && !name.starts_with('/');
    let found = Set::ALL.into_iter().filter(|_| plain).find_map(|set| {
        let rest = name.split_once('/').filter(|(first, _)| *first == set.folder()).map_or(name, |(_, rest)| rest);
        // Of Rocketfuel's maps `3257` is the trimmed one, and `3257.pop` that of another file.
        let other = if set == Set::Rocketfuel { ".cch" } else { set.suffix() };
        let paths = [set.suffix(), other].map(|suffix| folder.join(set.folder()).join(format!("{rest}{suffix}")));
        paths.into_iter().find(|path| path.is_file())
    });
    if let Some(path) = found {
        return read_topology(&path);
    }
    let rest = name.strip_prefix("zoo/").unwrap_or(name);
    match sidestep_zoo::find(rest) {
        Some(text) => shipped(rest, text),
        None => Err(DataError::NoTopology { name: name.into(), folder }),
    }
}

fn shipped(name: &str, text: &str) -> Result<Graph, DataError> {
    formats::read(text, &format!("{name}.graphml")).map_err(DataError::Parse)
}

/// Reads a topology file in the format that its extension says.
fn read_topology(path: &Path) -> Result<Graph, DataError> {
    let failed = |source| DataError::File { path: path.to_path_buf(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_TEXT as u64 {
        return Err(failed(io::Error::other("is larger than 64 MiB")));
    }
    let bytes = fs::read(path).map_err(failed)?;
    formats::read(&String::from_utf8_lossy(&bytes), &path.to_string_lossy()).map_err(DataError::Parse)
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
