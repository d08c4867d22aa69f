//! Compiles the BPF programs; their bytecode is embedded in the library.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bpf =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("../../bpf");
    println!("cargo:rerun-if-changed={}", bpf.display());

    let include = format!("-I{}", bpf.join("include").display());
    for name in ["host", "balance", "ecn_decap", "arrivals", "passive", "congestion_control", "idle", "policy_parity"] {
        let source = bpf.join(format!("src/{name}.bpf.c"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args([include.as_str(), "-Wall", "-Werror", "-mcpu=v3"])
            .build()
            .unwrap_or_else(|error| {
                panic!("cannot compile {}: {error:?}\nIs clang installed? `make deps` installs it.", source.display())
            });
    }
}
