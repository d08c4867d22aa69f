//! The program itself, as an operator starts it in a node.

use std::{
    net::Ipv6Addr,
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use super::Lab;

/// The priority of the rules of agents that are started by the program.
pub const PRIORITY: &str = "830";

/// The program itself, which is built beside the tests.
pub fn program() -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("sidestep"));
    std::env::var_os("SIDESTEP_PROGRAM").map(PathBuf::from).or_else(beside).filter(|program| program.exists())
}

/// A program in a node.
pub fn within(program: &Path, lab: &Lab, node: &str) -> Command {
    let namespace = lab.network.node(lab.id(node)).raw_fd();
    let mut command = Command::new(program);
    // SAFETY: one system call, on a descriptor that lives as long as the lab.
    unsafe {
        command.pre_exec(move || match libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command
}

/// A path by a next hop, as it stands in an agent's file.
pub fn via_text(via: Ipv6Addr, dev: &str) -> String {
    format!("[[destination.path]]\nvia = \"{via}\"\ndev = \"{dev}\"\nrate = \"1 Gbit/s\"\nrtt = \"6 ms\"\n")
}
