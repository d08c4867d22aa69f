//! Compiles the daemon's BPF program; its bytecode is embedded in the library.

fn main() {
    // A simulator needs no clang.
    #[cfg(feature = "daemon")]
    sidestep_bpf_build::compile("bpf", &[]);
}
