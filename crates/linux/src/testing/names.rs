//! What `bpftool` shows of us is recognisable: an operator who finds a program or a map knows whose it is.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use libbpf_rs::query::{MapInfoIter, ProgInfoIter};

/// Longest name that the kernel keeps (`BPF_OBJ_NAME_LEN` less the zero).
const LONGEST: usize = 15;

/// Checks that the kernel shows the programs and maps that this process holds by the names that they have in the sources in
/// `folder`, and that all of these are ours to see; a program that only tests load is in `NAME_parity.bpf.c`, and does not count.
///
/// # Panics
/// Panics if a name differs or is not recognisable.
pub fn assert_names_are_shown(folder: &Path) {
    let (programs, maps) = (ids("prog_id:"), ids("map_id:"));
    let named = |name: &OsStr| name.to_string_lossy().into_owned();
    let mut names: BTreeSet<_> =
        ProgInfoIter::default().filter(|program| programs.contains(&program.id)).map(|one| named(&one.name)).collect();
    names.extend(MapInfoIter::default().filter(|map| maps.contains(&map.id)).map(|map| named(&map.name)));
    // The constants of all objects.
    names.remove("sidestep.rodata");
    let written = written(folder);
    assert!(!written.is_empty(), "no program in {}", folder.display());
    // A name that is cut would differ from the one in the source.
    assert_eq!(names, written);
    for name in names {
        assert!(name.starts_with("sidestep_") && name.len() <= LONGEST, "{name}");
    }
}

/// Identifiers of the programs or maps that this process holds.
fn ids(key: &str) -> BTreeSet<u32> {
    let read = |entry: io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path()).ok();
    let infos: Vec<_> = fs::read_dir("/proc/self/fdinfo").into_iter().flatten().filter_map(read).collect();
    let lines = infos.iter().flat_map(|info| info.lines());
    lines.filter_map(|line| line.strip_prefix(key)?.trim().parse().ok()).collect()
}

/// The names of programs and maps in the sources.
fn written(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in files(folder) {
        if source.to_string_lossy().ends_with("_parity.bpf.c") {
            continue;
        }
        let text = fs::read_to_string(&source).expect("a source");
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let next = lines.peek().filter(|_| line.starts_with("SEC("));
            let program = next.and_then(|next| {
                let operation = next.split_once("BPF_PROG(").map(|(_, rest)| rest);
                next.strip_prefix("int ").or(operation).or_else(|| next.strip_prefix("struct tcp_congestion_ops "))
            });
            let map = line.strip_prefix("} ").filter(|rest| rest.ends_with("SEC(\".maps\");"));
            let name = program.or(map).and_then(|rest| rest.split(['(', ' ', ',']).next());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

/// The files of a folder and of those below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
