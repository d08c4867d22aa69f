//! What can go wrong between us and the kernel, sorted by what the user can do about it.

use std::io;

use thiserror::Error;

/// A failure of a kernel interface.
#[derive(Debug, Error)]
pub enum LinuxError {
    /// The process lacks a privilege.
    #[error("{what}: not permitted; run as root, or with CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")]
    Privilege {
        /// What was attempted.
        what: String,
    },
    /// The kernel lacks a feature.
    #[error("{what}: this kernel does not support it; {needs}")]
    Missing {
        /// What was attempted.
        what: String,
        /// The feature, and since when kernels have it.
        needs: &'static str,
    },
    /// The kernel refused, for another reason.
    #[error("{what}: {source}")]
    Refused {
        /// What was attempted.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Result of a kernel interface.
pub type Result<T> = std::result::Result<T, LinuxError>;

impl LinuxError {
    /// Sorts `source` by its error number; `needs` names the feature whose absence the kernel would report.
    pub fn new(what: impl Into<String>, source: io::Error, needs: &'static str) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LinuxError::Privilege { what },
            Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ENOSYS) if !needs.is_empty() => {
                LinuxError::Missing { what, needs }
            }
            _ => LinuxError::Refused { what, source },
        }
    }

    /// A failure that no missing feature explains.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::new(what, source.into(), "")
    }

    /// Whether something of the machine is missing (a privilege or a feature), rather than the run having failed.
    pub fn is_environment(&self) -> bool {
        !matches!(self, LinuxError::Refused { .. })
    }

    /// Whether the kernel has answered that it will not do this; else it was out of memory or busy, or was not reached at all, and
    /// the same request may succeed.
    pub fn is_answer(&self) -> bool {
        const FOR_NOW: [i32; 5] = [libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EINTR, libc::EBUSY];
        match self {
            LinuxError::Refused { source, .. } => {
                source.raw_os_error().is_some_and(|number| !FOR_NOW.contains(&number))
            }
            LinuxError::Privilege { .. } | LinuxError::Missing { .. } => true,
        }
    }
}
