//! What the daemons need of a machine, and how their programs are tried.

use std::path::Path;

use sidestep_linux::{
    Result,
    probe::{Feature, Finding, Part, TryFilter, try_on_control_groups},
};

use super::{ecn_decap::EcnProgram, program::HostProgram};

/// The host daemon.
pub const AGENT: Part = Part {
    name: "agent",
    required: &[
        "capabilities",
        "perfmon",
        "cgroup2",
        "btf",
        "sock-ops",
        "sk-storage",
        "ring-buffer",
        "lpm-trie",
        "path-changer",
        "cgroup-attach",
        "ipv6",
        "policy-routing",
        "marks",
    ],
    useful: &["bpffs", "nf-tables", "seg6-inline", "seg6-enabled", "ecn", "sock-destroy"],
    without: &[
        ("perfmon", "the verifier refuses the path changer, which it cannot harden against speculation"),
        ("cgroup2", "nothing to attach the path changer to, and no lab"),
        ("sock-ops", "TCP cannot be observed: no path changer"),
        ("sk-storage", "nothing can be learnt per connection: no path changer"),
        ("ring-buffer", "moves cannot be recorded, and the path changer does not load"),
        ("lpm-trie", "paths cannot be found by destination: no path changer"),
        ("bpffs", "what a killed agent's connections learnt, and the marks that they had before, are lost"),
        ("policy-routing", "marks lead nowhere: no path changer"),
        ("nf-tables", "SYN-ACKs take the default route: while that is dead, nobody can open a connection to this host"),
        ("marks", "connections are routed wrongly: set `mark_mask` in [pathchanger] to bits that are free"),
        ("seg6-inline", "only `via` paths, none by Path ID or segment list"),
        ("sock-destroy", "on_dead = \"reset\" ends nothing: connections that are stuck on a dead path stay there"),
    ],
};

/// The router daemon.
pub const ROUTER: Part = Part {
    name: "router",
    required: &["capabilities", "btf", "ipv6", "seg6-b6-encaps", "seg6-enabled", "tc-bpf"],
    useful: &["forwarding", "seg6-end", "seg6-dt6"],
    without: &[
        ("seg6-end", "the router cannot be a segment of a path"),
        ("seg6-b6-encaps", "no Path IDs on this router"),
        ("tc-bpf", "no lab; congestion marks end at decapsulation: start the router with --no-ecn"),
    ],
};

/// What is tried of the host daemon's program.
pub const FEATURES: [Feature; 2] = [
    Feature {
        id: "path-changer",
        name: "the path changer loads and attaches",
        since: "6.1",
        without: "no connection is moved",
    },
    Feature {
        id: "cgroup-attach",
        name: "the agent's control group takes the path changer",
        since: "5.7",
        without: "no connection of its processes is moved",
    },
];

/// Loads the host daemon's program, and attaches it to a control group without processes; then to that of the agent, `None` being
/// the root, in which it leaves all sockets alone, as it has no configuration, and is detached at once.
pub fn try_program(cgroup: Option<&Path>) -> [Finding; 2] {
    try_on_control_groups(cgroup, || HostProgram::load(None), HostProgram::attach)
}

/// Loads the router daemon's program, to be tried on an interface.
pub fn load_filter() -> Result<TryFilter> {
    let program = EcnProgram::load()?;
    Ok(Box::new(|interface| program.attach(interface).map(drop)))
}
