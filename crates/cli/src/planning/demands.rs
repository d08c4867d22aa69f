//! The demands that the user names: files, directories of files, and generators.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use sidestep_formats::{DemandUnit, Generator, read_demands, read_transfers};
use sidestep_net::{Graph, ListedTransfer, ParseError, TrafficMatrix};

use super::{failure::Failure, say_once};

/// More files than this are refused.
const MAX_FILES: usize = 100_000;

/// The most that is read of a file, in bytes; the reader refuses one that has more.
const MAX_LENGTH: u64 = (64 << 20) + 1;

/// The traffic matrices of these names, those of a directory by the names of its files; prints how the first was read.
pub fn load(
    names: &[String],
    unit: Option<DemandUnit>,
    graph: &Graph,
    seed: u32,
) -> Result<Vec<TrafficMatrix>, Failure> {
    let mut matrices = Vec::new();
    let mut said = Vec::new();
    for name in names {
        if let Some(drawn) = draw(name, graph, seed) {
            matrices.push(drawn.map_err(|problem| Failure::usage(format!("--demands {name}: {problem}")))?);
            continue;
        }
        for file in files(Path::new(name))? {
            let (matrix, line) = read(&file, unit, graph).map_err(Failure::usage)?;
            if !said.contains(&line) {
                if said.is_empty() {
                    say_once(&format!("{}: {line}", matrix.name));
                }
                said.push(line);
            }
            matrices.push(matrix);
        }
    }
    Ok(matrices)
}

/// The one traffic matrix of this name, for a scenario; prints how it was read.
pub fn load_one(
    path: &Path,
    name: &str,
    unit: Option<&str>,
    graph: &Graph,
    seed: u64,
) -> Result<TrafficMatrix, String> {
    let unit = unit.map(str::parse).transpose()?;
    // A seed of 32 bits gives the same matrix as `advise` draws.
    if let Some(drawn) = draw(name, graph, u32::try_from(seed).map_err(|_| "the seed must be below 2^32")?) {
        return drawn;
    }
    let (matrix, line) = read(path, unit, graph)?;
    say_once(&format!("{}: {line}", matrix.name));
    Ok(matrix)
}

/// The transfers that a file lists; prints how it was read.
pub fn load_transfers(path: &Path, graph: &Graph) -> Result<Vec<ListedTransfer>, String> {
    let (shown, text) = text(path)?;
    let (transfers, reading) = read_transfers(&text, &shown, graph).map_err(|error| error.to_string())?;
    say_once(&format!("{shown}: {reading}"));
    Ok(transfers)
}

/// The matrix that a name such as `gravity:1 Gbit/s` draws; `None` if the name is a file's.
fn draw(name: &str, graph: &Graph, seed: u32) -> Option<Result<TrafficMatrix, String>> {
    if !TrafficMatrix::is_drawn(name) {
        return None;
    }
    let drawn =
        name.parse().and_then(|generator: Generator| generator.draw(graph, seed).map_err(|error| error.to_string()));
    Some(drawn)
}

fn read(path: &Path, unit: Option<DemandUnit>, graph: &Graph) -> Result<(TrafficMatrix, String), String> {
    let (shown, text) = text(path)?;
    let (matrix, reading) = read_demands(&text, &shown, graph, unit).map_err(|error| error.to_string())?;
    Ok((matrix, reading.to_string()))
}

/// A file's name as it is shown, and its text.
fn text(path: &Path) -> Result<(String, String), String> {
    let shown = path.display().to_string();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LENGTH).read_to_end(&mut bytes));
    read.map_err(|error| format!("{shown}: {error}"))?;
    let text = ParseError::check_text(bytes).map_err(|error| error.in_file(&*shown).to_string())?;
    Ok((shown, text))
}

/// A file, or those of a directory.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_hidden = file.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if file.is_file() && !is_hidden {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            return Err(Failure::usage(format!("{} has more than {MAX_FILES} files", path.display())));
        }
    }
    if files.is_empty() {
        return Err(Failure::usage(format!("{} has no files", path.display())));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use sidestep_net::GraphNode;

    use super::*;

    #[test]
    fn a_directory_is_a_series_by_the_names_of_its_files() {
        let folder = std::env::temp_dir().join(format!("sidestep-demands-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, rate) in [("b.csv", 2), ("a.csv", 1), (".hidden", 3)] {
            fs::write(folder.join(name), format!("src,dst,rate\nx,y,{rate}\n")).unwrap();
        }
        let node = |name: &str| GraphNode { name: name.into(), position: None };
        let graph = Graph { nodes: vec![node("x"), node("y")], ..Graph::default() };
        let names = [folder.display().to_string(), "uniform:1 Gbit/s".into()];
        let matrices = load(&names, None, &graph, 1);
        fs::remove_dir_all(&folder).unwrap();
        let names: Vec<String> = matrices.unwrap().into_iter().map(|matrix| matrix.name).collect();
        assert_eq!(names, ["a", "b", "uniform"]);
    }
}
