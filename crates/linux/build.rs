//! Compiles the BPF programs; their bytecode is embedded in the library.

fn main() {
    sidestep_bpf_build::compile("bpf", &["FLOW_HASH", "COUPLED"]);
}
