//! Compiles the headers natively, and reports where they are.

use std::{env, path::Path};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let include = Path::new(&root).join("include");
    let shared = env::var("DEP_SIDESTEP_FLOW_HASH_INCLUDE").expect("the flow hash says where its headers are");
    cc::Build::new()
        .file("src/native.c")
        .include(&include)
        .include(shared)
        .std("c11")
        .extra_warnings(true)
        .compile("sidestep_coupled_native");
    println!("cargo:rerun-if-changed=src/native.c");
    println!("cargo:rerun-if-changed=include");
    // For the build scripts of crates that compile BPF programs (DEP_…_INCLUDE).
    println!("cargo:include={}", include.display());
}
