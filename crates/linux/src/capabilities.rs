//! What the process may do.

use std::fs;

/// What the process may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    effective: u64,
}

/// A capability by its number (`linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(u32, &'static str);

impl Capability {
    /// Its name: `CAP_BPF`.
    pub(crate) fn name(self) -> &'static str {
        self.1
    }
}

impl Privileges {
    /// Networks: routes, rules, devices.
    pub const NET_ADMIN: Capability = Capability(12, "CAP_NET_ADMIN");
    /// Namespaces, among much else.
    pub const SYS_ADMIN: Capability = Capability(21, "CAP_SYS_ADMIN");
    /// Programs that the verifier does not harden against speculation. It cannot harden every program.
    pub const PERFMON: Capability = Capability(38, "CAP_PERFMON");
    /// BPF programs and maps.
    pub const BPF: Capability = Capability(39, "CAP_BPF");

    /// The capabilities of the calling thread; none if the kernel does not report them.
    pub fn read() -> Self {
        Self::of("thread-self")
    }

    /// The capabilities of a process, by its name in `/proc`; none if the kernel does not report them.
    pub(crate) fn of(process: &str) -> Self {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default())
    }

    /// Whether the process has `capability`; CAP_SYS_ADMIN includes those that were split from it.
    pub fn has(self, capability: Capability) -> bool {
        let bit = |capability: Capability| self.effective >> capability.0 & 1 == 1;
        bit(capability) || [Self::BPF, Self::PERFMON].contains(&capability) && bit(Self::SYS_ADMIN)
    }

    /// What is missing of [`BPF`](Self::BPF) and [`NET_ADMIN`](Self::NET_ADMIN), in a sentence; `None` if nothing is.
    pub fn without_bpf(self) -> Option<String> {
        self.without(&[Self::BPF, Self::NET_ADMIN])
    }

    /// What is missing for a program that the verifier cannot harden; `None` if nothing is.
    pub fn without_unhardened_bpf(self) -> Option<String> {
        self.without(&[Self::BPF, Self::NET_ADMIN, Self::PERFMON])
    }

    /// What is missing of `needed`, in a sentence; `None` if nothing is.
    pub(crate) fn without(self, needed: &[Capability]) -> Option<String> {
        let missing: Vec<_> = needed.iter().filter(|one| !self.has(**one)).map(|one| one.1).collect();
        (!missing.is_empty()).then(|| format!("this process lacks {}", missing.join(" and ")))
    }

    /// Reads them from the text of `/proc/PID/status`; none if it does not contain them.
    pub(crate) fn parse(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        Privileges { effective: effective.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let none = Privileges::parse("Name:\tx\nCapEff:\t0000000000000000\n");
        assert!(!none.has(Privileges::BPF));
        assert_eq!(none.without_bpf().as_deref(), Some("this process lacks CAP_BPF and CAP_NET_ADMIN"));
        let three = Privileges::parse("CapPrm:\t0\nCapEff:\t000000c000001000\n");
        assert!(three.has(Privileges::BPF) && three.has(Privileges::NET_ADMIN) && !three.has(Privileges::SYS_ADMIN));
        assert_eq!(three.without_unhardened_bpf(), None);
        let two = Privileges::parse("CapEff:\t0000008000001000\n");
        assert_eq!(two.without_bpf(), None);
        assert_eq!(two.without_unhardened_bpf().as_deref(), Some("this process lacks CAP_PERFMON"));
        let old = Privileges::parse("CapEff:\t0000000000200000\n");
        assert_eq!(old.without_bpf().as_deref(), Some("this process lacks CAP_NET_ADMIN"));
        assert!(!Privileges::parse("nonsense").has(Privileges::NET_ADMIN));
    }
}
