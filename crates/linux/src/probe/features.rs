//! The features that every kernel has or lacks: since which release they exist.

/// A feature of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The feature's name for scripts.
    pub id: &'static str,
    /// The feature's name for people.
    pub name: &'static str,
    /// The first kernel that has it.
    pub since: &'static str,
    /// What no part can do without it; empty where that depends on the part.
    pub without: &'static str,
}

/// What the process may do, and what the kernel does with BPF programs.
const BPF: [Feature; 9] = [
    feature(
        "capabilities",
        "CAP_BPF and CAP_NET_ADMIN",
        "5.8",
        "no program can be loaded and no route set: run as root, or with both",
    ),
    feature("perfmon", "CAP_PERFMON", "5.8", ""),
    feature("root", "root", "2.6", ""),
    feature("cgroup2", "control groups, version 2", "4.5", ""),
    feature("btf", "types of the running kernel (BTF)", "5.4", "our programs cannot be fitted to this kernel"),
    feature("sock-ops", "sock_ops programs with the helpers we use", "5.8", ""),
    feature("sk-storage", "storage of a program in sockets", "5.2", ""),
    feature("ring-buffer", "BPF ring buffers", "5.8", ""),
    feature("lpm-trie", "BPF maps by longest prefix", "4.11", ""),
];

/// What is mounted and set, and what networks can do.
const MACHINE: [Feature; 28] = [
    feature("bpffs", "BPF file system mounted", "4.4", ""),
    feature("reverse-path", "IPv4 packets taken from any path (no strict rp_filter)", "2.6.31", ""),
    feature(
        "forwarding",
        "packets of others forwarded",
        "2.2",
        "packets of the site end here: set net.ipv4.ip_forward=1 and net.ipv6.conf.all.forwarding=1",
    ),
    feature("vrf", "egresses outside VRFs", "4.3", ""),
    feature(
        "path-mtu",
        "the same largest packet by all egresses (path MTU)",
        "2.2",
        "flows that are moved send segments that are too large for their new path: clamp their MSS, and let ICMP pass",
    ),
    feature(
        "multipath-seed",
        "a seed for the kernel's own choice among next hops (fib_multipath_hash_seed)",
        "6.11",
        "",
    ),
    feature("user-namespaces", "user namespaces", "3.8", "`sidestep doctor` tries networks only as root"),
    feature("network-namespaces", "network namespaces", "3.0", ""),
    feature("ipv6", "IPv6", "2.6", "no path: paths are IPv6"),
    feature("policy-routing", "rules by mark", "2.6.20", ""),
    feature("nf-tables", "nf_tables: chains of type route", "5.2", ""),
    feature("marks", "bits of the mark that no rule of others uses", "2.6.20", ""),
    feature("seg6-inline", "SRv6: headers inserted (seg6)", "4.10", ""),
    feature("seg6-end", "SRv6: End and End.X", "4.14", ""),
    feature("seg6-b6-encaps", "SRv6: End.B6.Encaps", "4.14", ""),
    feature("seg6-dt6", "SRv6: End.DT6", "4.14", "paths cannot end at this router"),
    feature(
        "seg6-enabled",
        "SRv6 headers accepted (seg6_enabled)",
        "4.10",
        "packets that come with a segment list are dropped",
    ),
    feature("tc-bpf", "BPF on ingress and egress (clsact)", "5.2", ""),
    feature("ecn", "ECN of TCP", "2.4", "congestion is observed by losses and timeouts only, which is late"),
    feature("congestion-control", "TCP congestion control", "2.6.13", ""),
    feature("net-admin", "CAP_NET_ADMIN", "2.2", ""),
    feature("mptcp", "MPTCP", "5.6", ""),
    feature("mptcp-pm", "MPTCP's paths left to a program (path_manager, pm_type)", "5.19", ""),
    feature(
        "mptcp-id-0",
        "further subflows from a connection's first address under its number, 0",
        "6.6",
        "the other end sees a second number for the same address; subflows come about all the same",
    ),
    feature("tap", "TAP devices", "2.6", ""),
    feature("tun", "TUN devices with super-packets (IFF_VNET_HDR)", "2.6.27", ""),
    feature("sock-destroy", "ending TCP connections (SOCK_DESTROY)", "4.5", ""),
    feature("sock-diag", "lists of TCP sockets (sock_diag)", "3.3", ""),
];

const fn feature(id: &'static str, name: &'static str, since: &'static str, without: &'static str) -> Feature {
    Feature { id, name, since, without }
}

/// All features: first what the process may do, then BPF, with the features `own` of our programs, then the machine's settings
/// and its networks.
pub fn features(own: &[Feature]) -> Vec<Feature> {
    [&BPF, own, &MACHINE].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_differ_and_versions_are_versions() {
        let features = features(&[]);
        let ids: BTreeSet<_> = features.iter().map(|feature| feature.id).collect();
        assert_eq!(ids.len(), features.len());
        for feature in features {
            assert!(feature.since.split('.').all(|part| part.parse::<u32>().is_ok()), "{}", feature.since);
        }
    }
}
