//! What the daemon needs of a machine.

use sidestep_linux::probe::Part;

/// The path manager for MPTCP.
pub const PATH_MANAGER: Part = Part {
    name: "mptcp-pm",
    required: &["net-admin", "mptcp", "mptcp-pm", "sock-diag"],
    useful: &["mptcp-id-0"],
    without: &[
        ("net-admin", "MPTCP's path manager takes no request, and the kernel no route"),
        ("mptcp", "no scenario over MPTCP, and no path manager"),
        ("mptcp-pm", "no path manager: connections of MPTCP get the subflows that the kernel opens"),
        ("sock-diag", "no measures of connections, hence no lab, and no path manager"),
    ],
};
