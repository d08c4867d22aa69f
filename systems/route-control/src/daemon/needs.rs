//! What the daemon needs of a machine.

use sidestep_linux::probe::Part;

/// The route controller.
pub const ROUTE_CONTROL: Part = Part {
    name: "route-control",
    required: &["policy-routing", "net-admin"],
    useful: &[
        "capabilities",
        "perfmon",
        "btf",
        "reverse-path",
        "forwarding",
        "vrf",
        "path-mtu",
        "ipv6",
        "nf-tables",
        "tc-bpf",
    ],
    without: &[
        (
            "reverse-path",
            "an edge drops packets that come by another path than its own route, answers to route control's probes by a backup and flows \
             that have moved among them: set net.ipv4.conf.DEV.rp_filter=2, which counts more than the 1 of `all`",
        ),
        (
            "vrf",
            "the kernel asks a VRF's table before the rules of route control: its moves and marks mean nothing to such an egress",
        ),
    ],
};
