//! Compiles the BPF programs of all systems; their bytecode is embedded in the library.

use std::{
    env,
    path::{Path, PathBuf},
};

use libbpf_cargo::SkeletonBuilder;

/// The folders of the programs, and their names. Those of systems are links to their folders, which cargo follows when it packs.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("programs/pathchanger", &["host", "ecn_decap", "policy_parity"]),
    ("programs/semper", &["balance"]),
    ("programs/route-control", &["passive"]),
    ("bpf", &["arrivals", "congestion_control", "idle"]),
];
/// The crates whose headers programs include.
const HEADERS: [&str; 3] = ["FLOW_HASH", "POLICY", "BALANCE"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let include = |directory: &Path| format!("-I{}", directory.display());
    let headers = HEADERS.map(|name| {
        let directory = env::var(format!("DEP_SIDESTEP_{name}_INCLUDE")).expect("each says where its headers are");
        println!("cargo:rerun-if-changed={directory}");
        include(Path::new(&directory))
    });
    for (folder, names) in PROGRAMS {
        let folder = own.join(folder);
        let folder = folder.canonicalize().unwrap_or(folder);
        println!("cargo:rerun-if-changed={}", folder.display());
        let mut arguments = vec![include(&folder), include(&own.join("bpf"))];
        arguments.extend(headers.clone());
        arguments.extend(["-Wall", "-Werror", "-mcpu=v3"].map(String::from));
        for name in names {
            let source = folder.join(format!("{name}.bpf.c"));
            SkeletonBuilder::new()
                .source(&source)
                .obj(out.join(format!("{name}.bpf.o")))
                .clang_args(&arguments)
                .build()
                .unwrap_or_else(|error| {
                    let source = source.display();
                    panic!("cannot compile {source}: {error:?}\nIs clang installed? `make deps` installs it.")
                });
        }
    }
}
