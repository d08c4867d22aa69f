//! What can go wrong between us and the kernel, sorted by what the user can do about it.

use std::{io, path::Path};

use thiserror::Error;

use crate::privilege::{Deed, cause};

/// A failure of a kernel interface.
#[derive(Debug, Error)]
pub enum LinuxError {
    /// The process lacks a privilege, or something else does not let it.
    #[error("{what}: not permitted: {why}")]
    Privilege {
        /// What was attempted.
        what: String,
        /// What the process lacks or what refuses, and what to do.
        why: String,
    },
    /// Something of others stands in the way, whatever the privileges are.
    #[error("{what}: refused, as {by}")]
    InTheWay {
        /// What was attempted.
        what: String,
        /// What stands in the way, and what to do.
        by: String,
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
            Some(libc::EPERM | libc::EACCES) => LinuxError::Privilege { what, why: cause(Deed::Request) },
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

    /// A daemon did not answer, as it answers only root and its own user.
    pub fn not_answered(what: &str) -> Self {
        let why = "the daemon answers root and its own user only; run as root, or as that user";
        LinuxError::Privilege { what: what.into(), why: why.into() }
    }

    /// A failure at a place in the file system.
    pub fn file(what: impl Into<String>, path: &Path, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                LinuxError::Privilege { what: what.into(), why: cause(Deed::File(path)) }
            }
            _ => Self::io(what, source),
        }
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
            LinuxError::Privilege { .. } | LinuxError::InTheWay { .. } | LinuxError::Missing { .. } => true,
        }
    }
}
