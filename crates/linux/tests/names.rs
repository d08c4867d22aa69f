//! What `bpftool` shows of us is recognisable: an operator who finds a program or a map knows whose it is.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use sidestep_linux::{
    bpf::{
        arrivals::Arrivals,
        balance::{Balancer, BalancerConfig},
        congestion_control::CongestionControl,
        ecn::EcnProgram,
        host::HostProgram,
        idle::IdlePrograms,
        passive::Passive,
    },
    cgroup::Cgroup,
    testing::root_or_skip,
};

/// Longest name that the kernel keeps (`BPF_OBJ_NAME_LEN` less the zero).
const LONGEST: usize = 15;

#[test]
fn programs_and_maps_are_recognisable_in_bpftool() {
    if !root_or_skip("names of programs and maps") {
        return;
    }
    let cgroup = Cgroup::create(&format!("sidestep-test-names-{}", std::process::id())).unwrap();
    let loaded = (
        HostProgram::load(None).unwrap(),
        EcnProgram::load().unwrap(),
        Arrivals::load().unwrap(),
        CongestionControl::attach(cgroup.path(), "reno").unwrap(),
        IdlePrograms::attach(cgroup.path()).unwrap(),
        Balancer::load(&BalancerConfig { mark_mask: 0xff00, dry_run: false, flows: None }).unwrap(),
        Passive::load(16).unwrap(),
    );
    let (programs, maps) = (ids("prog_id:"), ids("map_id:"));
    let named = |name: &std::ffi::OsStr| name.to_string_lossy().into_owned();
    let mut names: BTreeSet<_> =
        ProgInfoIter::default().filter(|program| programs.contains(&program.id)).map(|one| named(&one.name)).collect();
    names.extend(MapInfoIter::default().filter(|map| maps.contains(&map.id)).map(|map| named(&map.name)));
    drop(loaded);
    cgroup.destroy().unwrap();

    assert!(names.remove("sidestep.rodata"), "constants: {names:?}");
    let written = written();
    assert!(written.len() > 10, "{written:?}");
    // A name that is cut would differ from the one in the source.
    assert_eq!(names, written);
    for name in names {
        assert!(name.starts_with("sidestep_") && name.len() <= LONGEST, "{name}");
    }
}

/// Identifiers of the programs or maps that this process holds.
fn ids(key: &str) -> BTreeSet<u32> {
    let read = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
    let infos: Vec<_> = fs::read_dir("/proc/self/fdinfo").unwrap().map(read).collect();
    let lines = infos.iter().flat_map(|info| info.lines());
    lines.filter_map(|line| line.strip_prefix(key)?.trim().parse().ok()).collect()
}

/// The names of programs and maps in the sources, but for the program that only tests load.
fn written() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rooms = ["crates/linux", "systems/pathchanger", "systems/semper", "systems/route-control"];
    for source in rooms.iter().flat_map(|room| files(&root.join(room).join("bpf"))) {
        if source.ends_with("policy_parity.bpf.c") {
            continue;
        }
        let text = fs::read_to_string(&source).unwrap();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let program = lines.peek().filter(|_| line.starts_with("SEC(")).and_then(|next| next.strip_prefix("int "));
            let map = line.strip_prefix("} ").filter(|rest| rest.ends_with("SEC(\".maps\");"));
            let name = program.or(map).and_then(|rest| rest.split(['(', ' ']).next());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

/// The files of a folder and of those below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
