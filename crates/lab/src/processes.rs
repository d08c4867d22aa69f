//! The lab's processes: each in a node's namespace and in a control group of the lab's, logging to a file.

use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::{AsRawFd, RawFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sidestep_linux::{EXIT_ENVIRONMENT, cgroup::Cgroup, netns::NetNs};

use crate::error::LabError;

/// How long a daemon may take until it is ready; under emulation, that takes long.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a process may take to end after it was asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// A process of the lab; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    status: Option<ExitStatus>,
}

/// Where a process runs, and where its output goes.
#[derive(Debug)]
pub struct Place<'a> {
    /// The namespace; `None` for the lab's own.
    pub node: Option<&'a NetNs>,
    /// The control group.
    pub cgroup: &'a Cgroup,
    /// Directory of its logs.
    pub logs: &'a Path,
}

impl Process {
    /// Starts `command` at `place` as `name`, which also names its logs.
    pub fn start(name: &str, mut command: Command, place: &Place<'_>) -> Result<Self, LabError> {
        let (stdout, stderr) = (place.logs.join(format!("{name}.out")), place.logs.join(format!("{name}.err")));
        let create = |path: &Path| File::create(path).map_err(LabError::file(path));
        let procs = place.cgroup.open_procs()?;
        let namespace = place.node.map(NetNs::raw_fd);
        command.stdin(Stdio::null()).stdout(create(&stdout)?).stderr(create(&stderr)?);
        // The process gets its own group: Ctrl-C is for the lab, which ends its processes in order.
        command.process_group(0);
        let procs_fd = procs.as_raw_fd();
        // SAFETY: `enter` makes only system calls, as is required between fork and exec; the descriptors are open
        // until `spawn` returns.
        unsafe { command.pre_exec(move || enter(procs_fd, namespace)) };
        let child = command.spawn().map_err(LabError::file(command.get_program()))?;
        Ok(Process { name: name.into(), child, stdout, stderr, status: None })
    }

    /// Waits until the process has printed [`READY`](sidestep_hostd::READY).
    pub fn wait_ready(&mut self, stop: &dyn Fn() -> bool) -> Result<(), LabError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let said = fs::read_to_string(&self.stdout).unwrap_or_default();
            if said.lines().any(|line| line == sidestep_hostd::READY) {
                return Ok(());
            }
            if self.has_ended() {
                return Err(self.failure("ended before it was ready"));
            }
            if stop() {
                return Err(LabError::Interrupted);
            }
            if Instant::now() > deadline {
                return Err(self.failure("was not ready in time"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    /// How the process ended, if it has.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// What the process is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the process printed on standard output.
    pub fn output(&self) -> Result<String, LabError> {
        fs::read_to_string(&self.stdout).map_err(LabError::file(&self.stdout))
    }

    /// An error about the process, with the end of its log.
    pub fn failure(&self, problem: &str) -> LabError {
        let log = fs::read_to_string(&self.stderr).unwrap_or_default();
        let said = |line: &&str| line.starts_with("error: ");
        let last = || log.lines().rev().find(|line| !line.trim().is_empty());
        let words = log.lines().rev().find(said).or_else(last).unwrap_or("(none)").trim();
        let environment = self.status.and_then(|status| status.code()) == Some(EXIT_ENVIRONMENT);
        let words = words.strip_prefix("error: ").unwrap_or(words).into();
        LabError::Process { name: self.name.clone(), problem: problem.into(), words, environment }
    }

    /// Asks the process, and what it started, to end.
    pub(crate) fn ask_to_stop(&mut self) {
        if !self.has_ended() {
            // The process leads its own group and was not reaped, so the number still means that group.
            let _ = kill(Pid::from_raw(-(self.child.id() as i32)), Signal::SIGTERM);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Asks all to stop, waits, and kills those that do not.
pub fn stop_all(processes: &mut [Process]) {
    for process in processes.iter_mut() {
        process.ask_to_stop();
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while !processes.iter_mut().all(Process::has_ended) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    for process in processes.iter_mut().filter(|process| process.status.is_none()) {
        tracing::warn!(name = process.name, "did not end when asked to, and is killed");
    }
}

/// Runs in the child between fork and exec.
fn enter(procs: RawFd, namespace: Option<RawFd>) -> std::io::Result<()> {
    // SAFETY: the descriptor is open in the child as it was in the parent; the file is leaked, not closed twice.
    let mut procs = std::mem::ManuallyDrop::new(unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(procs) });
    procs.write_all(b"0")?;
    if let Some(namespace) = namespace {
        // SAFETY: the namespace's descriptor is open in the child as it was in the parent.
        let namespace = unsafe { std::os::fd::BorrowedFd::borrow_raw(namespace) };
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
    }
    // If the lab is killed, its processes die with it. What they started is found by the control group.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}
