//! What the daemon needs of a machine.

use sidestep_linux::{
    bpf::coupled,
    probe::{self, Feature, Finding, Part},
};

/// The path manager for MPTCP.
pub const PATH_MANAGER: Part = Part {
    name: "mptcp-pm",
    required: &["net-admin", "mptcp", "mptcp-pm", "sock-diag"],
    useful: &["mptcp-id-0", "capabilities", "perfmon", "cgroup2", "coupled"],
    without: &[
        ("net-admin", "MPTCP's path manager takes no request, and the kernel no route"),
        ("mptcp", "no scenario over MPTCP, and no path manager"),
        ("mptcp-pm", "no path manager: connections of MPTCP get the subflows that the kernel opens"),
        ("sock-diag", "no measures of connections, hence no lab, and no path manager"),
    ],
};

/// What is tried of the programs.
pub const FEATURES: [Feature; 1] = [Feature {
    id: "coupled",
    name: "coupled congestion control of MPTCP loads (LIA, OLIA, BALIA)",
    since: "6.1",
    without: "subflows of MPTCP have the machine's congestion control, each for itself",
}];

/// Loads the programs without registering them.
pub fn try_program() -> [Finding; 1] {
    [probe::try_program(coupled::check)]
}
