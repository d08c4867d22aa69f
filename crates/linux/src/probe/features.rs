//! The features: since which kernel they exist, who needs them, and what is lost without them.

use super::Part;

/// How much a part needs a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The part does not start without the feature.
    Required,
    /// The part does less without the feature.
    Useful,
    /// The part does not use the feature.
    Unused,
}

/// A feature of the kernel that we use.
#[derive(Debug)]
pub struct Feature {
    /// The feature's name for scripts.
    pub id: &'static str,
    /// The feature's name for people.
    pub name: &'static str,
    /// The first kernel that has it.
    pub since: &'static str,
    /// What cannot be done without it.
    pub without: &'static str,
    needs: [Need; 6],
}

impl Feature {
    /// How much `part` needs it.
    pub fn need(&self, part: Part) -> Need {
        self.needs[part as usize]
    }
}

use Need::{Required as R, Unused as N, Useful as U};

/// All features: first what the process may do, then BPF, then networks. The needs are those of agent, router, lab, path
/// manager, edge and route control, in this order.
pub const FEATURES: &[Feature] = &[
    feature(
        "capabilities",
        "CAP_BPF and CAP_NET_ADMIN",
        "5.8",
        [R, R, R, N, R, U],
        "no program can be loaded and no route set: run as root, or with both",
    ),
    feature(
        "perfmon",
        "CAP_PERFMON",
        "5.8",
        [R, N, R, N, R, U],
        "the verifier refuses the path changer, which it cannot harden against speculation",
    ),
    feature("root", "root", "2.6", [N, N, R, N, N, N], "no lab: it makes namespaces, devices and control groups"),
    feature(
        "cgroup2",
        "control groups, version 2",
        "4.5",
        [R, N, R, N, N, N],
        "nothing to attach the path changer to, and no lab",
    ),
    feature(
        "btf",
        "types of the running kernel (BTF)",
        "5.4",
        [R, R, R, N, R, U],
        "our programs cannot be fitted to this kernel",
    ),
    feature(
        "sock-ops",
        "sock_ops programs with the helpers we use",
        "5.8",
        [R, N, R, N, N, N],
        "TCP cannot be observed: no path changer",
    ),
    feature(
        "sk-storage",
        "storage of a program in sockets",
        "5.2",
        [R, N, R, N, N, N],
        "nothing can be learnt per connection: no path changer",
    ),
    feature(
        "ring-buffer",
        "BPF ring buffers",
        "5.8",
        [R, N, R, N, N, N],
        "moves cannot be recorded, and the path changer does not load",
    ),
    feature(
        "lpm-trie",
        "BPF maps by longest prefix",
        "4.11",
        [R, N, R, N, N, N],
        "paths cannot be found by destination: no path changer",
    ),
    feature("path-changer", "the path changer loads and attaches", "6.1", [R, N, R, N, N, N], "no connection is moved"),
    feature(
        "cgroup-attach",
        "the agent's control group takes the path changer",
        "5.7",
        [R, N, N, N, N, N],
        "no connection of its processes is moved",
    ),
    feature(
        "balancer",
        "the balancer of edges loads",
        "6.1",
        [N, N, N, N, R, N],
        "no edge: flows of a site are not balanced",
    ),
    feature(
        "bpffs",
        "BPF file system mounted",
        "4.4",
        [U, N, N, N, N, N],
        "what a killed agent's connections learnt, and the marks that they had before, are lost",
    ),
    feature(
        "reverse-path",
        "IPv4 packets taken from any path (no strict rp_filter)",
        "2.6.31",
        [N, N, N, N, U, U],
        "an edge drops packets that come by another path than its own route, answers to route control's probes by a backup and flows \
         that have moved among them: set net.ipv4.conf.DEV.rp_filter=2, which counts more than the 1 of `all`",
    ),
    feature(
        "forwarding",
        "packets of others forwarded",
        "2.2",
        [N, U, N, N, U, U],
        "packets of the site end here: set net.ipv4.ip_forward=1 and net.ipv6.conf.all.forwarding=1",
    ),
    feature(
        "vrf",
        "egresses outside VRFs",
        "4.3",
        [N, N, N, N, N, U],
        "the kernel asks a VRF's table before the rules of route control: its moves and marks mean nothing to such an egress",
    ),
    feature(
        "path-mtu",
        "the same largest packet by all egresses (path MTU)",
        "2.2",
        [N, N, N, N, N, U],
        "flows that are moved send segments that are too large for their new path: clamp their MSS, and let ICMP pass",
    ),
    feature(
        "multipath-seed",
        "a seed for the kernel's own choice among next hops (fib_multipath_hash_seed)",
        "6.11",
        [N, N, N, N, U, N],
        "no `sidestep edge balance --offload nexthops`",
    ),
    feature(
        "user-namespaces",
        "user namespaces",
        "3.8",
        [N, N, N, N, N, N],
        "`sidestep doctor` tries networks only as root",
    ),
    feature("network-namespaces", "network namespaces", "3.0", [N, N, R, N, N, N], "no lab"),
    feature("ipv6", "IPv6", "2.6", [R, R, R, N, U, U], "no path: paths are IPv6"),
    feature("policy-routing", "rules by mark", "2.6.20", [R, N, R, N, R, R], "marks lead nowhere: no path changer"),
    feature(
        "nf-tables",
        "nf_tables: chains of type route",
        "5.2",
        [U, N, U, N, N, U],
        "SYN-ACKs take the default route: while that is dead, nobody can open a connection to this host",
    ),
    feature(
        "marks",
        "bits of the mark that no rule of others uses",
        "2.6.20",
        [R, N, N, N, N, N],
        "connections are routed wrongly: set `mark_mask` in [pathchanger] to bits that are free",
    ),
    feature(
        "seg6-inline",
        "SRv6: headers inserted (seg6)",
        "4.10",
        [U, N, R, N, U, N],
        "only `via` paths, none by Path ID or segment list",
    ),
    feature("seg6-end", "SRv6: End and End.X", "4.14", [N, U, R, N, N, N], "the router cannot be a segment of a path"),
    feature("seg6-b6-encaps", "SRv6: End.B6.Encaps", "4.14", [N, R, R, N, N, N], "no Path IDs on this router"),
    feature("seg6-dt6", "SRv6: End.DT6", "4.14", [N, U, R, N, U, N], "paths cannot end at this router"),
    feature(
        "seg6-enabled",
        "SRv6 headers accepted (seg6_enabled)",
        "4.10",
        [U, R, R, N, U, N],
        "packets that come with a segment list are dropped",
    ),
    feature(
        "tc-bpf",
        "BPF on ingress and egress (clsact)",
        "5.2",
        [N, R, R, N, R, U],
        "no lab; congestion marks end at decapsulation: start the router with --no-ecn",
    ),
    feature(
        "ecn",
        "ECN of TCP",
        "2.4",
        [U, N, R, N, N, N],
        "congestion is observed by losses and timeouts only, which is late",
    ),
    feature(
        "congestion-control",
        "TCP congestion control",
        "2.6.13",
        [N, N, U, N, N, N],
        "scenarios that name another one do not run",
    ),
    feature(
        "net-admin",
        "CAP_NET_ADMIN",
        "2.2",
        [N, N, N, R, N, R],
        "MPTCP's path manager takes no request, and the kernel no route",
    ),
    feature("mptcp", "MPTCP", "5.6", [N, N, U, R, N, N], "no scenario over MPTCP, and no path manager"),
    feature(
        "mptcp-pm",
        "MPTCP's paths left to a program (path_manager, pm_type)",
        "5.19",
        [N, N, U, R, N, N],
        "no path manager: connections of MPTCP get the subflows that the kernel opens",
    ),
    feature(
        "mptcp-id-0",
        "further subflows from a connection's first address under its number, 0",
        "6.6",
        [N, N, N, U, N, N],
        "the other end sees a second number for the same address; subflows come about all the same",
    ),
    feature("tap", "TAP devices", "2.6", [N, N, R, N, N, N], "no wires, hence no lab"),
    feature(
        "sock-destroy",
        "ending TCP connections (SOCK_DESTROY)",
        "4.5",
        [U, N, N, N, N, N],
        "on_dead = \"reset\" ends nothing: connections that are stuck on a dead path stay there",
    ),
    feature(
        "sock-diag",
        "lists of TCP sockets (sock_diag)",
        "3.3",
        [N, N, R, R, N, N],
        "no measures of connections, hence no lab, and no path manager",
    ),
];

const fn feature(
    id: &'static str,
    name: &'static str,
    since: &'static str,
    needs: [Need; 6],
    without: &'static str,
) -> Feature {
    Feature { id, name, since, without, needs }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_differ_and_versions_are_versions() {
        let ids: BTreeSet<_> = FEATURES.iter().map(|feature| feature.id).collect();
        assert_eq!(ids.len(), FEATURES.len());
        for feature in FEATURES {
            assert!(feature.since.split('.').all(|part| part.parse::<u32>().is_ok()), "{}", feature.since);
        }
    }

    #[test]
    fn needs_are_those_of_the_part_that_is_asked_for() {
        let tap = FEATURES.iter().find(|feature| feature.id == "tap").unwrap();
        assert_eq!(
            Part::ALL.map(|part| tap.need(part)),
            [Need::Unused, Need::Unused, Need::Required, Need::Unused, Need::Unused, Need::Unused]
        );
    }
}
