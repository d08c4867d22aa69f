//! Takes the Topology Zoo's files out of the sources of the crate `bgpsim`, which Cargo has downloaded.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What is read of nodes and edges, as a key's `attr.name` and `for`.
const READ: [(&str, &str); 5] =
    [("label", "node"), ("Longitude", "node"), ("Latitude", "node"), ("LinkSpeedRaw", "edge"), ("weight", "edge")];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.toml");
    let folder = sources()?.join("topology_zoo");
    // For the test that compares what is kept with what is published.
    println!("cargo::rustc-env=TOPOLOGY_ZOO={}", folder.display());
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "graphml") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!("{} has no topologies", folder.display()).into());
    }
    let mut table = String::from("&[\n");
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let short = out.join(format!("{name}.graphml"));
        fs::write(&short, shortened(&fs::read_to_string(&path)?))?;
        writeln!(table, "    ({name:?}, include_str!({:?})),", short.display().to_string())?;
    }
    table.push(']');
    fs::write(out.join("table.rs"), table)?;
    Ok(())
}

/// Where Cargo keeps the sources of `bgpsim`.
fn sources() -> Result<PathBuf, Box<dyn Error>> {
    let mut said = String::new();
    // Without the network if that is possible.
    for offline in [&["--offline"][..], &[]] {
        let mut command = Command::new(env::var("CARGO")?);
        command.args(["metadata", "--format-version=1", "--locked"]).args(offline);
        let output = command.current_dir(env::var("CARGO_MANIFEST_DIR")?).output()?;
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        if let Some(folder) = folder(&String::from_utf8_lossy(&output.stdout)) {
            return Ok(folder);
        }
    }
    Err(format!("cargo does not say where the sources of the crate bgpsim are; run `cargo fetch`. {said}").into())
}

/// The folder of the manifest that is `…/bgpsim-VERSION/Cargo.toml`, or `…/bgpsim/Cargo.toml` of a vendored copy.
fn folder(metadata: &str) -> Option<PathBuf> {
    let paths = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folders = paths.filter_map(|path| Path::new(path).parent());
    let is_it = |folder: &&Path| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        (name == "bgpsim" || name.starts_with("bgpsim-0")) && folder.join("topology_zoo").is_dir()
    };
    folders.into_iter().find(is_it).map(Path::to_path_buf)
}

/// The file without what no loader of ours reads: a third of it.
fn shortened(text: &str) -> String {
    let attribute = |line: &str, name: &str| -> Option<String> {
        line.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split('"').next()).map(str::to_owned)
    };
    let is_read = |line: &&str| {
        READ.iter().any(|(name, kind)| {
            attribute(line, "attr.name").as_deref() == Some(*name) && attribute(line, "for").as_deref() == Some(*kind)
        })
    };
    let keys: Vec<String> = text
        .lines()
        .filter(|line| line.trim_start().starts_with("<key "))
        .filter(is_read)
        .filter_map(|line| attribute(line, "id"))
        .collect();
    let mut out = String::new();
    let mut skips = false;
    for line in text.lines().map(str::trim) {
        if skips || (line.starts_with("<data ") && !attribute(line, "key").is_some_and(|key| keys.contains(&key))) {
            skips = !line.ends_with("</data>");
        } else if !line.starts_with("<key ") || is_read(&line) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}
