//! `fuzz/` is a workspace of its own, which nothing here compiles: its lists are held in step with its files and with the crates.

use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The texts between quotation marks behind `key = ` in a file.
fn values(text: &str, key: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
    lines.map(|rest| rest.trim_end_matches('"').to_string()).collect()
}

/// What a crate of ours needs to be built, by its Cargo.toml; tests and features need more.
fn needed(manifest: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if ["[dependencies]", "[build-dependencies]"].contains(&section)
            && let Some((name, _)) = line.split_once(['.', ' ', '='])
            && !line.starts_with('#')
            && !line.contains("optional = true")
        {
            found.insert(name.to_string());
        }
    }
    found
}

/// Where the manifest of `sidestep-NAME` is: crates of ours are in `crates` or in the folders of systems.
fn manifest(name: &str) -> String {
    let folders = ["", "crates/", "systems/", "systems/pathchanger/", "systems/semper/"];
    let paths = folders.map(|folder| format!("{folder}{name}/Cargo.toml"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    paths.into_iter().find(|path| root.join(path).exists()).unwrap_or_else(|| panic!("no folder has `sidestep-{name}`"))
}

/// What a crate needs by the lock; a name may be followed by a version.
fn locked(package: &str) -> BTreeSet<String> {
    let list = package.split_once("dependencies = [").map_or("", |(_, list)| list);
    let names = list.lines().filter_map(|line| line.trim().strip_prefix('"')?.split(['"', ' ']).next());
    names.map(str::to_string).collect()
}

#[test]
fn each_fuzz_target_is_a_program_and_named_where_contributors_look() {
    let manifest = read("fuzz/Cargo.toml");
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets")).unwrap();
    let files: BTreeSet<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string()).collect();
    let mut programs = values(manifest.split_once("[[bin]]").unwrap().1, "name");
    assert_eq!(files, programs);
    let paths: BTreeSet<String> = programs.iter().map(|name| format!("fuzz_targets/{name}.rs")).collect();
    assert_eq!(values(&manifest, "path"), paths);
    let page = read("CONTRIBUTING.md");
    programs.retain(|name| !page.contains(&format!("`{name}`")));
    assert!(programs.is_empty(), "CONTRIBUTING.md does not name {programs:?}");
}

#[test]
fn the_lock_of_the_fuzz_targets_has_what_the_crates_need() {
    let lock = read("fuzz/Cargo.lock");
    let ours = lock.split("[[package]]").filter(|package| !package.contains("\nsource = "));
    let mut seen = 0;
    for package in ours {
        let Some(name) = values(package, "name").first().cloned() else { continue };
        let Some(folder) = name.strip_prefix("sidestep-") else { continue };
        let manifest = manifest(folder);
        let advice = "run `cargo +nightly fetch` in fuzz/, and commit its Cargo.lock";
        let (needed, locked) = (needed(&read(&manifest)), locked(package));
        assert!(needed.is_subset(&locked), "{name} also needs {:?}: {advice}", &needed - &locked);
        seen += 1;
    }
    assert!(seen >= 7, "{seen} crates of ours are in the lock");
}
