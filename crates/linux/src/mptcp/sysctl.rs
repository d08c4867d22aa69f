//! Who manages the paths of new connections: the kernel, or a program.

use std::{fs, io, path::Path};

use crate::{
    error::{LinuxError, Result},
    probe::machine::sysctl,
};

/// The directory of MPTCP's sysctls of the calling thread's network namespace.
const DIRECTORY: &str = "/proc/sys/net/mptcp";

/// Who manages the paths of sockets that are made from now on; a socket keeps the manager that it was made with, and an
/// accepted one has that of the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSetting {
    /// The sysctl below `/proc/sys/net/mptcp`: `path_manager` (Linux 6.15 and later) or `pm_type`.
    pub sysctl: &'static str,
    /// Its value.
    pub value: String,
}

impl ManagerSetting {
    /// What the calling thread's network namespace has now.
    pub fn current() -> Result<Self> {
        for sysctl in ["path_manager", "pm_type"] {
            match fs::read_to_string(Path::new(DIRECTORY).join(sysctl)) {
                Ok(value) => return Ok(ManagerSetting { sysctl, value: value.trim().into() }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(LinuxError::io(format!("reading net.mptcp.{sysctl}"), error)),
            }
        }
        let has_mptcp = Path::new(DIRECTORY).join("enabled").exists();
        let needs = if has_mptcp {
            "a userspace path manager needs Linux 5.19 or later (net.mptcp.pm_type)"
        } else {
            "it needs CONFIG_MPTCP (Linux 5.6 or later)"
        };
        Err(LinuxError::Missing { what: "looking for MPTCP's path managers".into(), needs })
    }

    /// The value of the same sysctl that leaves paths to a program.
    pub fn for_programs(&self) -> Self {
        let value = if self.sysctl == "path_manager" { "userspace" } else { "1" };
        ManagerSetting { sysctl: self.sysctl, value: value.into() }
    }

    /// Whether paths are left to a program.
    pub fn is_for_programs(&self) -> bool {
        *self == self.for_programs()
    }

    /// The sysctl of that name, if it is one that sets who manages paths.
    pub fn named(sysctl: &str, value: &str) -> Option<Self> {
        let sysctl = ["path_manager", "pm_type"].into_iter().find(|name| *name == sysctl)?;
        Some(ManagerSetting { sysctl, value: value.into() })
    }

    /// Sets it in the calling thread's network namespace.
    pub fn set(&self) -> Result<()> {
        let what = || format!("setting net.mptcp.{} to {}", self.sysctl, self.value);
        fs::write(Path::new(DIRECTORY).join(self.sysctl), &self.value).map_err(|error| LinuxError::io(what(), error))
    }

    /// Whether new sockets can be of MPTCP at all (`net.mptcp.enabled`).
    pub fn is_mptcp_enabled() -> bool {
        sysctl("mptcp/enabled").is_some_and(|value| value != "0")
    }
}

/// The ports from which the kernel takes those of connections (`net.ipv4.ip_local_port_range`), first and last.
pub fn port_range() -> (u16, u16) {
    let text = sysctl("ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(last)) if first <= last => (first, last),
        _ => (32_768, 60_999),
    }
}
