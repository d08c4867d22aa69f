//! Compiles the policy header natively.

fn main() {
    let include = "include";
    cc::Build::new()
        .file("src/native.c")
        .file("src/flow_key.c")
        .include(include)
        .std("c11")
        .extra_warnings(true)
        .compile("sidestep_policy_native");
    println!("cargo:rerun-if-changed=src/native.c");
    println!("cargo:rerun-if-changed=src/flow_key.c");
    println!("cargo:rerun-if-changed={include}/policy");
}
