//! The program itself, as an operator starts it in a node.

use std::{
    io::{BufRead, BufReader},
    net::Ipv6Addr,
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use super::{Lab, READY, TABLE_BASE};

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

/// Has `command`, which is or runs the program, run an agent with this file and this state.
pub fn run_agent(command: &mut Command, lab: &Lab, config: &Path, state: &Path) {
    command.arg("agent").arg("--config").arg(config).arg("--state").arg(state);
    command.arg("--cgroup").arg(lab.cgroup.0.path());
    command.args(["--table-base", &TABLE_BASE.to_string(), "--rule-priority", PRIORITY]);
}

/// Starts a daemon, and waits until it is ready; one that ends before is an error: how it ended, and what it prints.
pub fn start(command: &mut Command, context: &str) -> Result<Child, Output> {
    let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(daemon.stdout.take().unwrap());
    let (send, first) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let _ = out.read_line(&mut line);
        let _ = send.send(line);
    });
    let line = first.recv_timeout(READY);
    match line.as_ref().map(|line| line.trim()) {
        Ok("ready") => {
            // Nothing reads what it prints from now on.
            daemon.stderr = None;
            Ok(daemon)
        }
        Ok("") => Err(daemon.wait_with_output().unwrap()),
        _ => {
            let _ = daemon.kill();
            let said = daemon.wait_with_output().unwrap();
            panic!("{context}: neither ready nor ended: {line:?}: {}", String::from_utf8_lossy(&said.stderr));
        }
    }
}

/// Makes `sidestep agent stop` remove what an agent of `h` with this state has left.
pub fn stop_agent(program: &Path, lab: &Lab, state: &Path, context: &str) {
    let stop = within(program, lab, "h").args(["agent", "stop", "--state"]).arg(state).output().unwrap();
    assert!(stop.status.success(), "{context}: {}", String::from_utf8_lossy(&stop.stderr));
}

/// The rules of `h`, and the routes that agents have made there.
pub fn installed(lab: &Lab) -> [String; 2] {
    ["-6 rule show", "-6 route show table all proto 83"].map(|what| lab.ip("h", what))
}

/// A path by a next hop, as it stands in an agent's file.
pub fn via_text(via: Ipv6Addr, dev: &str) -> String {
    format!("[[destination.path]]\nvia = \"{via}\"\ndev = \"{dev}\"\nrate = \"1 Gbit/s\"\nrtt = \"6 ms\"\n")
}
