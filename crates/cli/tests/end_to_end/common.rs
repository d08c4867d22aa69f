//! The program in a directory of its own, bounded in time, and cleaned up after whatever happens.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use sidestep_linux::cgroup::{self, Cgroup};

pub use sidestep_linux::testing::root_or_skip;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_sidestep");
/// Where labs keep their sockets.
pub const RUN: &str = "/run/sidestep";
/// Longer than any command here should take, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Two slow paths between one client and one server, and an agent that is quick to move; add flows.
///
/// The queues are so long that nothing is dropped for want of room.
pub const TWO_PATHS: &str = r#"
systems = ["pathchanger"]
warmup = "500 ms"

[pathchanger]
congestion_backoff = { min = "50 ms", max = "500 ms" }

[topology]
generator = "parallel-paths"
paths = 2
rate = "10 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
ecn = "15 packets"
"#;

/// Bulk connections over [`TWO_PATHS`] that last as long as the run.
pub const BULK: &str = r#"
[[flow]]
kind = "bulk"
name = "bulk"
from = "c1"
to = "s1"
connections = 4
"#;

/// A directory to run commands in, removed when dropped.
pub struct Room {
    directory: tempfile::TempDir,
    commands: AtomicU32,
}

/// A running command; when dropped it is killed, and whatever its lab left is removed.
pub struct Running {
    child: Child,
    lab: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// What it printed on standard output.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
}

/// A row of a CSV file by column.
pub type Row = BTreeMap<String, String>;

impl Room {
    /// An empty room.
    pub fn new() -> Self {
        Room { directory: tempfile::tempdir().unwrap(), commands: AtomicU32::new(0) }
    }

    /// The path of a file or directory in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file and returns its path as an argument.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Starts the program with `arguments`.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        self.start_command(command)
    }

    /// Starts a command in the room.
    pub fn start_command(&self, mut command: Command) -> Running {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let (stdout, stderr) = (self.path(&format!("{number}.stdout")), self.path(&format!("{number}.stderr")));
        command.current_dir(self.directory.path()).env_remove("SIDESTEP_LOG").env("RUST_BACKTRACE", "1");
        command.stdin(Stdio::null());
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        let child = command.spawn().unwrap();
        Running { lab: lab_of(child.id()), child, stdout, stderr }
    }

    /// Runs the program with `arguments` to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    /// Starts `lab run` on a scenario that is written to `NAME.toml`; its results go to `NAME`.
    pub fn start_lab(&self, name: &str, scenario: &str) -> Running {
        let file = self.write(&format!("{name}.toml"), scenario);
        self.start(&["lab", "run", &file, "--out", name])
    }

    /// Runs `lab run` on a scenario to its end.
    pub fn run_lab(&self, name: &str, scenario: &str) -> Ended {
        self.start_lab(name, scenario).wait()
    }

    /// What a run in `name` left as result of `system`.
    pub fn result_of(&self, name: &str, system: &str) -> Value {
        let text = fs::read_to_string(self.path(name).join("result.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["systems"][system].clone()
    }

    /// The rows of a CSV file of the run in `name`.
    pub fn rows(&self, name: &str, file: &str) -> Vec<Row> {
        let mut reader = csv::Reader::from_path(self.path(name).join(file)).unwrap();
        reader.deserialize().map(Result::unwrap).collect()
    }

    /// Waits until the run in `name` sends its bulk traffic.
    pub fn wait_for_traffic(&self, name: &str, running: &mut Running) {
        let logs = self.path(name).join("logs");
        let sends = |system: PathBuf| fs::read_dir(system).is_ok_and(|logs| logs.flatten().any(|log| is_sender(&log)));
        let begun = || fs::read_dir(&logs).is_ok_and(|systems| systems.flatten().any(|system| sends(system.path())));
        running.wait_until("traffic", begun);
        // Senders begin together, a moment after their start.
        thread::sleep(Duration::from_millis(700));
    }
}

fn is_sender(log: &fs::DirEntry) -> bool {
    log.file_name().to_string_lossy().starts_with("send-")
}

impl Running {
    /// The name of the lab that this process makes, if it must make one.
    pub fn lab(&self) -> &str {
        &self.lab
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a daemon reports that it does its work.
    pub fn wait_until_ready(&mut self) {
        let stdout = self.stdout.clone();
        self.wait_until("the daemon being ready", || fs::read_to_string(&stdout).is_ok_and(|text| text == "ready\n"));
    }

    /// Waits until it has printed `count` whole lines on standard output; returns them.
    pub fn wait_until_printed(&mut self, count: usize) -> Vec<String> {
        let stdout = self.stdout.clone();
        let printed = || fs::read_to_string(&stdout).unwrap_or_default();
        self.wait_until("enough lines", || printed().matches('\n').count() >= count);
        printed().lines().take(count).map(str::to_string).collect()
    }

    /// Kills it, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits until `so` holds, which must happen while the command runs.
    pub fn wait_until(&mut self, what: &str, so: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !so() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended without {what}: {}", fs::read_to_string(&self.stderr).unwrap());
            assert!(Instant::now() < deadline, "no {what} in time");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of the command, and kills it when that takes too long.
    pub fn wait(self) -> Ended {
        self.wait_and(|| {})
    }

    /// Waits for the end of the command, and calls `look` before the files that it left are cleaned up.
    pub fn wait_and(mut self, look: impl FnOnce()) -> Ended {
        let deadline = Instant::now() + TIMEOUT;
        let status: ExitStatus = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "not done in time: {}", fs::read_to_string(&self.stderr).unwrap());
            thread::sleep(Duration::from_millis(5));
        };
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        look();
        Ended { code: status.code(), stdout: read(&self.stdout), stderr: read(&self.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The processes are killed one by one as well, in case the clean-up itself is broken.
        for (pid, _) in processes_in(&self.lab) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if let Ok(mount) = cgroup::mount_point() {
            let _ = Cgroup::at(mount.join(&self.lab)).destroy();
        }
        let _ = fs::remove_dir_all(Path::new(RUN).join(&self.lab));
    }
}

impl Ended {
    /// Asserts that all went well, and nothing was printed on standard error but how networks were read.
    #[track_caller]
    pub fn is_fine(&self) {
        assert_eq!((self.code, self.complaints()), (Some(0), Vec::new()), "{self:#?}");
    }

    /// The lines of standard error without those on how networks were read.
    fn complaints(&self) -> Vec<&str> {
        const KINDS: [&str; 9] =
            ["names", "positions", "rates", "delays", "weights", "directions", "demands", "ignored", "warning"];
        let is_reading = |line: &&str| KINDS.iter().any(|kind| line.contains(&format!(": {kind}: ")));
        self.stderr.lines().filter(|line| !is_reading(line)).collect()
    }

    /// Asserts that it failed with `code` and one line, which is returned without its `error: `.
    #[track_caller]
    pub fn error(&self, code: i32) -> &str {
        let line = self.complaint(code);
        assert_eq!(self.complaints().len(), 1, "{self:#?}");
        line
    }

    /// Asserts that it failed with `code` and returns the error, which may continue with the place in the file or with
    /// advice on usage.
    #[track_caller]
    pub fn complaint(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stderr.contains("panicked") && !self.stderr.contains("backtrace"), "{self:#?}");
        let errors: Vec<_> = self.stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
        assert_eq!(errors.len(), 1, "{self:#?}");
        errors[0]
    }
}

/// The name that the lab of a process gives itself; one that is not reaped keeps its number and start time.
pub fn lab_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    format!("sidestep-lab.{pid}.{started}")
}

/// What there is of a lab outside its directory of results; empty when all is gone.
///
/// Its namespaces, interfaces and BPF programs have no names: they live as long as processes and control groups that
/// hold them, which are what is looked for, and would be found here if they were pinned or mounted.
pub fn traces_of(lab: &str) -> Vec<String> {
    let places = [cgroup::mount_point().unwrap().join(lab), Path::new(RUN).join(lab)];
    let mut traces: Vec<_> =
        places.iter().filter(|place| place.exists()).map(|place| place.display().to_string()).collect();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    traces.extend(mounts.lines().filter(|line| line.contains("sidestep")).map(|line| format!("mount {line}")));
    for directory in ["/run/netns", "/sys/fs/bpf"] {
        let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let ours = names.filter(|path| path.to_string_lossy().contains("sidestep"));
        traces.extend(ours.map(|path| path.display().to_string()));
    }
    traces.extend(processes_in(lab).into_iter().map(|(pid, command)| format!("process {pid}: {command}")));
    traces
}

/// The processes in the control groups of `lab`, with their command lines.
pub fn processes_in(lab: &str) -> Vec<(i32, String)> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let member = |pid: i32| {
        // A process that ends while we look is not there. Zombies hold nothing, and wait for another process to reap them.
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        (groups.contains(lab) && !command.is_empty()).then_some((pid, command))
    };
    pids.filter_map(member).collect()
}

/// A number in a row.
pub fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap()
}
