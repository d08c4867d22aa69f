//! Everything of sidestep that touches the Linux kernel: namespaces, netlink, wires, BPF, sockets.

pub mod bpf;
pub mod cgroup;
mod error;
pub mod netlink;
pub mod netns;
pub mod sock_diag;
pub mod tap;
pub mod testing;
pub mod wire;

pub use error::{LinuxError, Result};

/// Whether the process has the superuser's rights.
pub fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}
