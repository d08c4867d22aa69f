//! What the lab needs of a machine.

use sidestep_linux::probe::Part;

/// The lab, which runs all systems, and hence needs what they need.
pub(crate) const LAB: Part = Part {
    name: "lab",
    required: &[
        "capabilities",
        "perfmon",
        "root",
        "cgroup2",
        "btf",
        "sock-ops",
        "sk-storage",
        "ring-buffer",
        "lpm-trie",
        "path-changer",
        "network-namespaces",
        "ipv6",
        "policy-routing",
        "seg6-inline",
        "seg6-end",
        "seg6-b6-encaps",
        "seg6-dt6",
        "seg6-enabled",
        "tc-bpf",
        "ecn",
        "tap",
        "sock-diag",
    ],
    useful: &["nf-tables", "congestion-control", "mptcp", "mptcp-pm"],
    without: &[
        ("root", "no lab: it makes namespaces, devices and control groups"),
        ("network-namespaces", "no lab"),
        ("congestion-control", "scenarios that name another one do not run"),
        ("tap", "no wires, hence no lab"),
    ],
};
