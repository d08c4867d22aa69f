//! Compiles BPF programs, for the build scripts of the crates that load them.
//!
//! The types of the kernel are in `vmlinux.h`, which comes with this crate. The bytecode of `NAME.bpf.c` becomes
//! `NAME.bpf.o` in the folder to which the build script writes.
//!
//! ```no_run
//! // In a build script, with the headers of a dependency that has `links = "sidestep_flow_hash"`:
//! sidestep_bpf_build::compile("bpf", &["FLOW_HASH"]);
//! ```

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use libbpf_cargo::SkeletonBuilder;

/// The folder of `vmlinux.h`.
const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// Compiles each `*.bpf.c` of a folder of the calling crate. They may include the headers there, those of the kernel and of
/// libbpf, and those of the dependencies whose build scripts report a folder as `DEP_SIDESTEP_name_INCLUDE`.
///
/// # Panics
/// Panics, as a build script does, if a program does not compile, or is not called by a build script.
pub fn compile(folder: &str, headers: &[&str]) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let folder = own.join(folder);
    let mut includes = vec![folder.clone(), PathBuf::from(KERNEL)];
    includes.extend(headers.iter().map(|name| {
        let directory = env::var_os(format!("DEP_SIDESTEP_{name}_INCLUDE"));
        PathBuf::from(directory.unwrap_or_else(|| panic!("{name} is no dependency that reports where its headers are")))
    }));
    let mut arguments = Vec::new();
    for directory in &includes {
        println!("cargo:rerun-if-changed={}", directory.display());
        arguments.push(format!("-I{}", directory.display()));
    }
    arguments.extend(["-Wall", "-Werror", "-mcpu=v3"].map(String::from));
    for (source, name) in programs(&folder) {
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

/// The programs of a folder, and their names.
fn programs(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a folder that can be listed").path());
    let program = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".bpf.c")?.to_string();
        Some((path, name))
    };
    paths.filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_the_kernel_are_no_program() {
        assert!(Path::new(KERNEL).join("vmlinux.h").exists());
        assert_eq!(programs(Path::new(KERNEL)), []);
    }
}
