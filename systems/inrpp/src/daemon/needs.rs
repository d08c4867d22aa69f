//! What the INRPP router needs of a machine, and how its program is tried.

use sidestep_linux::probe::{self, Feature, Finding, Part};

/// The INRPP router.
pub const INRPP: Part = Part {
    name: "inrpp",
    required: &["capabilities", "perfmon", "btf", "tun", "divert", "tc-bpf"],
    useful: &["forwarding", "ipv6"],
    without: &[("tun", "no INRPP router: packets cannot be brought to its process")],
};

/// What is tried of the router's program.
pub const FEATURES: [Feature; 1] = [Feature {
    id: "divert",
    name: "the program of INRPP routers loads",
    since: "6.1",
    without: "no INRPP router: packets cannot be diverted",
}];

/// Loads the program.
pub fn try_program() -> [Finding; 1] {
    [probe::try_program(super::load_program)]
}
