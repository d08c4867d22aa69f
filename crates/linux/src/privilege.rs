//! Why the kernel did not permit something: what the process lacks, or what stands in its way though it lacks nothing.
//!
//! `EPERM` and `EACCES` have many causes. A user who is told to run as root and is root already learns nothing.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use crate::capabilities::{Capability, Privileges};

/// What was not permitted, by the kind of causes that it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed<'a> {
    /// A request about networks, or one of a kind that is not known.
    Request,
    /// A BPF program was refused; by the verifier, if the error is `EACCES`.
    Load {
        /// Whether the error is `EACCES`.
        access: bool,
    },
    /// Something at a place in the file system.
    File(&'a Path),
}

/// What the kernel asks about when it decides, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// Whether the process is root.
    root: bool,
    user: u32,
    privileges: Privileges,
    /// Whether it is in a user namespace, where capabilities count for little.
    nested: bool,
    /// Whether a seccomp filter looks at its system calls.
    filtered: bool,
    /// How the kernel is locked down against its own root.
    lockdown: Option<String>,
    /// The profile of a security module that confines it.
    confined: Option<String>,
    /// The security modules of the machine.
    modules: Option<String>,
}

/// Why `deed` was not permitted, in a clause without a full stop that also says what to do.
pub(crate) fn cause(deed: Deed<'_>) -> String {
    Standing::read().cause(deed)
}

/// The capabilities that the daemons need among them, of which each needs some.
const NEEDED: [Capability; 3] = [Privileges::NET_ADMIN, Privileges::BPF, Privileges::PERFMON];

impl Standing {
    fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let status = text("/proc/thread-self/status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.split_whitespace().map(str::to_string).collect::<Vec<_>>()).unwrap_or_default()
        };
        // Real, effective, saved, of the file system.
        let user = field("Uid:").get(1).and_then(|user| user.parse().ok()).unwrap_or(u32::MAX);
        Standing {
            root: user == 0,
            user,
            privileges: Privileges::parse(&status),
            nested: is_nested(&text("/proc/thread-self/uid_map")),
            filtered: field("Seccomp:").first().is_some_and(|mode| mode != "0"),
            lockdown: chosen(&text("/sys/kernel/security/lockdown")).filter(|mode| mode != "none"),
            confined: confinement(&text("/proc/thread-self/attr/current")),
            modules: Some(text("/sys/kernel/security/lsm").trim().to_string()).filter(|modules| !modules.is_empty()),
        }
    }

    fn cause(&self, deed: Deed<'_>) -> String {
        if let Deed::File(path) = deed {
            return self.cause_at(path);
        }
        if self.nested {
            return "the process is in a user namespace, as in a container, and its capabilities there do not count for BPF nor for \
                    networks of others; run it outside"
                .into();
        }
        let missing: Vec<_> =
            NEEDED.into_iter().filter(|one| !self.privileges.has(*one)).map(Capability::name).collect();
        match (missing.as_slice(), self.root) {
            ([], _) => self.cause_beyond(deed),
            (_, false) => format!("this process lacks {}; run as root, or with these", and(&missing)),
            (_, true) => format!(
                "this process is root and lacks {}: a container, or a unit's CapabilityBoundingSet=, has taken that from it",
                and(&missing)
            ),
        }
    }

    /// What refuses a process that has all capabilities.
    fn cause_beyond(&self, deed: Deed<'_>) -> String {
        if deed == (Deed::Load { access: true }) {
            return "the kernel's verifier refuses the program, though the process has all capabilities that it takes; with \
                    SIDESTEP_LOG=debug the log has the verifier's words, for a report"
                .into();
        }
        let mut found = Vec::new();
        found.extend(self.lockdown.as_ref().map(|mode| format!("the kernel is locked down ({mode})")));
        found.extend(self.filtered.then(|| "a seccomp filter looks at this process's system calls".to_string()));
        found.extend(
            self.confined.as_ref().map(|profile| format!("a security module confines this process ({profile})")),
        );
        let mut text = "not for want of a capability, as this process has them".to_string();
        text += &match (found.is_empty(), &self.modules) {
            (false, _) => format!("; {}", and(&found)),
            (true, Some(modules)) => {
                format!("; perhaps by a security module ({modules}): `dmesg` and the audit log may say more")
            }
            (true, None) => "; `dmesg` and the audit log may say more".into(),
        };
        text
    }

    /// What refuses at a place in the file system.
    fn cause_at(&self, path: &Path) -> String {
        let there = path.ancestors().find_map(|place| Some((place, fs::metadata(place).ok()?)));
        match there {
            Some((place, found)) if found.uid() != self.user && !self.root => format!(
                "{} belongs to user {}, has the mode {:o}, and this process is of user {}; run as that user, or as root",
                place.display(),
                found.uid(),
                found.mode() & 0o7777,
                self.user
            ),
            _ => self.cause_beyond(Deed::Request),
        }
    }
}

/// Words as a sentence has them: `a, b and c`.
pub(crate) fn and<T: AsRef<str>>(words: &[T]) -> String {
    match words {
        [] => String::new(),
        [one] => one.as_ref().into(),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", first.join(", "), last.as_ref())
        }
    }
}

/// Whether this map of users is not that of the machine, which maps all to themselves.
fn is_nested(map: &str) -> bool {
    let words: Vec<_> = map.split_whitespace().collect();
    !words.is_empty() && words != ["0", "0", "4294967295"]
}

/// The word in brackets: `none [integrity] confidentiality`.
fn chosen(choices: &str) -> Option<String> {
    Some(choices.split_once('[')?.1.split_once(']')?.0.to_string())
}

/// The profile that a security module has for the process; `None` if it leaves it alone. SELinux has a context for each.
fn confinement(label: &str) -> Option<String> {
    let label = label.trim_matches(['\0', '\n', ' ']);
    let free = label.is_empty() || label.contains("unconfined") || label.starts_with("kernel");
    (!free).then(|| label.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capabilities(mask: &str) -> Privileges {
        Privileges::parse(&format!("CapEff:\t{mask}\n"))
    }

    fn root() -> Standing {
        Standing { root: true, privileges: capabilities("000001ffffffffff"), ..Standing::default() }
    }

    #[test]
    fn who_lacks_a_capability_is_told_which_and_only_who_is_not_root_to_become_it() {
        let user = Standing { root: false, user: 1000, ..Standing::default() };
        assert_eq!(
            user.cause(Deed::Request),
            "this process lacks CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; run as root, or with these"
        );
        let two = Standing { privileges: capabilities("0000008000001000"), ..user };
        assert_eq!(
            two.cause(Deed::Load { access: false }),
            "this process lacks CAP_PERFMON; run as root, or with these"
        );
        let bound = Standing { privileges: capabilities("0000000000001000"), ..root() };
        let said = bound.cause(Deed::Load { access: false });
        assert!(said.starts_with("this process is root and lacks CAP_BPF and CAP_PERFMON: a container"), "{said}");
        let nested = Standing { nested: true, ..root() };
        assert!(nested.cause(Deed::Request).contains("user namespace"));
    }

    #[test]
    fn root_with_all_capabilities_is_told_what_else_refuses_and_never_to_run_as_root() {
        let causes = [
            (root(), "as this process has them; `dmesg`"),
            (
                Standing { modules: Some("lockdown,apparmor".into()), ..root() },
                "by a security module (lockdown,apparmor)",
            ),
            (Standing { lockdown: Some("integrity".into()), ..root() }, "; the kernel is locked down (integrity)"),
            (Standing { filtered: true, ..root() }, "a seccomp filter"),
            (Standing { confined: Some("x (enforce)".into()), ..root() }, "confines this process (x (enforce))"),
        ];
        for (standing, expected) in causes {
            for deed in [Deed::Request, Deed::Load { access: false }, Deed::File(Path::new("/"))] {
                let said = standing.cause(deed);
                assert!(said.contains(expected) && !said.contains("as root"), "{said}");
            }
            assert!(standing.cause(Deed::Load { access: true }).starts_with("the kernel's verifier refuses"));
        }
    }

    #[test]
    fn at_a_file_the_owner_is_named() {
        let user = Standing { root: false, user: 65_534, ..root() };
        let said = user.cause(Deed::File(Path::new("/proc/nosuch/deeper")));
        assert!(
            said.starts_with("/proc belongs to user 0, has the mode 555, and this process is of user 65534"),
            "{said}"
        );
    }

    #[test]
    fn the_machines_own_files_are_read() {
        assert!(!is_nested("         0          0 4294967295\n") && !is_nested(""));
        assert!(is_nested("         0       1000          1\n"));
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen("none"), None);
        for free in ["", "unconfined\n", "unconfined_u:unconfined_r:unconfined_t:s0\0", "kernel\n"] {
            assert_eq!(confinement(free), None, "{free:?}");
        }
        assert_eq!(confinement("docker-default (enforce)\n").as_deref(), Some("docker-default (enforce)"));
        let here = Standing::read();
        assert_eq!(here.root, nix::unistd::geteuid().is_root());
    }

    proptest! {
        #[test]
        fn no_text_panics_the_readers(text: String) {
            let _ = (is_nested(&text), chosen(&text), confinement(&text));
        }
    }
}
