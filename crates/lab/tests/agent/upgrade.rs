//! Agents of two releases work one after the other with one state: connections go on, and at last all is removed.
//!
//! With every test run both are the program of this tree. `make test-upgrade` takes another release as well, whose program
//! `SIDESTEP_OLD` names, and goes from it to this one and back.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sidestep_linux::testing::root_or_skip;

use crate::{
    support::{
        Flow, Lab, PRIORITY, SOME, TABLE_BASE, TWO_PROVIDERS, eventually, mark, program, tail, via_text, within,
    },
    takeover::Kept,
};

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(20);
/// The longest that a connection may stand still while one agent follows the other, or after its path dies.
const STANDSTILL: Duration = Duration::from_secs(4);

/// How an agent ends before that of the other release begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By `kill -9`.
    Killed,
    /// By SIGTERM, with `--keep`.
    Kept,
}

#[test]
fn agents_of_two_releases_follow_each_other_and_connections_go_on() {
    if !root_or_skip("an upgrade") {
        return;
    }
    let Some(this) = program() else {
        println!("skipped: the program is not built; `cargo build -p sidestep`");
        return;
    };
    let Some(other) = std::env::var_os("SIDESTEP_OLD").map(PathBuf::from) else {
        assert!(succeed(&this, &this, End::Kept, false).is_kept);
        return;
    };
    for end in [End::Killed, End::Kept] {
        let there = succeed(&other, &this, end, false);
        println!("{} {end:?}, then {}: {there:?}", other.display(), this.display());
        // Who does not number its own layout does not look at the number of others.
        let back = succeed(&this, &other, end, !there.is_numbered);
        println!("{} {end:?}, then {}: {back:?}", this.display(), other.display());
    }
}

/// How one agent followed another.
#[derive(Debug)]
struct Outcome {
    /// Whether the first noted the number of its state's layout.
    is_numbered: bool,
    /// Whether the second has the connections of the first, and not only those that open later.
    is_kept: bool,
}

/// Has an agent of `before` move connections, end, and one of `after` follow; in between, `sidestep agent stop` may remove
/// what the first left, as an operator does before an agent that would not understand it.
fn succeed(before: &Path, after: &Path, end: End, is_removed: bool) -> Outcome {
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let host = Host::new(&lab, &kept);
    let nothing = host.installed();
    let first = host.start(before, end).unwrap_or_else(|reason| panic!("{}: {reason}", before.display()));
    let is_numbered = host.state.join("sidestep_layout").exists();
    let flow = Flow::start(lab.connect("h", "s"));
    assert!(host.goes_by(&flow, "R2"), "it begins on the wider path");
    end.come(first);
    assert!(host.goes_by(&flow, "R2"), "{end:?}, and the connection is where it was");
    if is_removed {
        host.stop(before);
    }

    let second = host.start(after, end).unwrap_or_else(|reason| panic!("{}: {reason}", after.display()));
    let standstill = flow.pass(SOME);
    assert!(standstill < STANDSTILL, "{standstill:?}");
    // Another layout: the connection is released, and follows the host's own routes from now on.
    let is_kept = mark(&flow.sender) != 0;
    assert!(is_kept || is_removed || before != after, "the same program knows its own connections");
    assert!(host.goes_by(&flow, if is_kept { "R2" } else { "R1" }), "kept: {is_kept}");
    let fresh = Flow::start(lab.connect("h", "s"));
    fresh.pass(SOME);
    let placed = mark(&fresh.sender);
    assert!(
        placed != 0 && (!is_kept || placed == mark(&flow.sender)),
        "new connections get the wider path: {placed:#x}"
    );

    lab.swallow("R2", "Z", true);
    for flow in [&flow, &fresh] {
        let standstill = flow.pass(SOME);
        assert!(standstill < STANDSTILL, "kept: {is_kept}: {standstill:?}");
    }
    assert_ne!(mark(&fresh.sender), placed, "it has moved");
    assert!(host.goes_by(&fresh, "R1"));
    lab.swallow("R2", "Z", false);

    End::Killed.come(second);
    host.stop(after);
    assert_eq!((host.installed(), host.pins()), (nothing, Vec::<String>::new()), "kept: {is_kept}");
    assert_eq!((mark(&flow.sender), mark(&fresh.sender)), (0, 0), "kept: {is_kept}");
    flow.pass(SOME);
    fresh.pass(SOME);
    Outcome { is_numbered, is_kept }
}

/// What the agents of `h` are started with: two paths, of which the second is much wider.
struct Host<'a> {
    lab: &'a Lab,
    state: PathBuf,
    config: PathBuf,
}

impl<'a> Host<'a> {
    fn new(lab: &'a Lab, kept: &Kept) -> Self {
        let path = |provider, rate| via_text(tail(lab, provider, "h"), provider).replace("1 Gbit/s", rate);
        let agent = "[agent]\nsilence_backoff = { min = \"10 ms\", max = \"1 s\" }\n";
        let paths = path("R1", "1 kbit/s") + &path("R2", "1 Tbit/s");
        let config = format!("{agent}[[destination]]\nprefix = \"{}\"\n{paths}", lab.prefix("s"));
        Host { lab, state: kept.pins(false).directory, config: kept.file("agent.toml", &config) }
    }

    /// Starts an agent, and waits until it is ready; an agent that ends instead is an error with what it says.
    fn start(&self, program: &Path, end: End) -> Result<Child, String> {
        let mut command = within(program, self.lab, "h");
        command.arg("agent").arg("--config").arg(&self.config).arg("--state").arg(&self.state);
        command.arg("--cgroup").arg(self.lab.cgroup.0.path());
        command.args(["--table-base", &TABLE_BASE.to_string(), "--rule-priority", PRIORITY]);
        if end == End::Kept {
            command.arg("--keep");
        }
        let mut agent = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut out, mut errors) = (BufReader::new(agent.stdout.take().unwrap()), agent.stderr.take().unwrap());
        let (send, first) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = out.read_line(&mut line);
            let _ = send.send(line);
        });
        match first.recv_timeout(START) {
            Ok(line) if line.trim() == "ready" => Ok(agent),
            _ => {
                let _ = (agent.kill(), agent.wait());
                let mut reason = String::new();
                errors.read_to_string(&mut reason).unwrap();
                Err(reason)
            }
        }
    }

    fn stop(&self, program: &Path) {
        let stop = within(program, self.lab, "h").args(["agent", "stop", "--state"]).arg(&self.state).output().unwrap();
        assert!(stop.status.success(), "{}", String::from_utf8_lossy(&stop.stderr));
    }

    /// Rules and routes.
    fn installed(&self) -> [String; 2] {
        ["-6 rule show", "-6 route show table all proto 83"].map(|what| self.lab.ip("h", what))
    }

    /// What is pinned. The directory itself stays if a release made it that did not mark it as its own.
    fn pins(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.state) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    /// Whether what a connection sends goes by this provider.
    fn goes_by(&self, flow: &Flow, provider: &str) -> bool {
        let arc = self.lab.arc(provider, "Z");
        eventually(&format!("a connection by {provider}"), || {
            let before = self.lab.carried(arc);
            flow.pass(SOME);
            (self.lab.carried(arc) >= before + SOME / 2).then_some(true)
        })
    }
}

impl End {
    fn come(self, mut agent: Child) {
        match self {
            End::Killed => agent.kill().unwrap(),
            End::Kept => kill(Pid::from_raw(agent.id().cast_signed()), Signal::SIGTERM).unwrap(),
        }
        agent.wait().unwrap();
    }
}
