//! What the daemon needs of a machine, and how its program is tried.

use sidestep_linux::probe::{self, Feature, Finding, Part};

use super::balancer::{Balancer, BalancerConfig};

/// The edge daemon.
pub const EDGE: Part = Part {
    name: "edge",
    required: &["capabilities", "perfmon", "btf", "balancer", "policy-routing", "tc-bpf"],
    useful: &["reverse-path", "forwarding", "multipath-seed", "ipv6", "seg6-inline", "seg6-dt6", "seg6-enabled"],
    without: &[("multipath-seed", "no `sidestep edge balance --offload nexthops`")],
};

/// What is tried of the daemon's program.
pub const FEATURES: [Feature; 1] = [Feature {
    id: "balancer",
    name: "the balancer of edges loads",
    since: "6.1",
    without: "no edge: flows of a site are not balanced",
}];

/// Loads the program with a table of flows, which has more to verify.
pub fn try_program() -> [Finding; 1] {
    [probe::try_program(|| Balancer::load(&BalancerConfig { mark_mask: 1, dry_run: true, flows: Some(1) }))]
}
