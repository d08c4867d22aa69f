//! Agents of two releases work one after the other with one state: connections go on, and at last all is removed.
//!
//! With every test run both are the program of this tree. `make test-upgrade` takes another release as well, whose program
//! `SIDESTEP_OLD` names, and goes from it to this one and back.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sidestep_linux::testing::root_or_skip;

use crate::{
    support::{
        Flow, Lab, SOME, TWO_PROVIDERS, installed, mark, program, run_agent, start, stop_agent, tail, via_text, within,
    },
    takeover::Kept,
};

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

/// Makes an agent of `before` move connections and end, and one of `after` follow; in between, `sidestep agent stop` may remove
/// what the first left, as an operator does before an agent that would not understand it.
fn succeed(before: &Path, after: &Path, end: End, is_removed: bool) -> Outcome {
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let host = Host::new(&lab, &kept);
    let nothing = installed(&lab);
    let first = host.start(before, end);
    let is_numbered = host.state.join("sidestep_layout").exists();
    let flow = Flow::start(lab.connect("h", "s"));
    lab.wait_until_over(&flow, "R2", "Z");
    end.come(first);
    lab.wait_until_over(&flow, "R2", "Z");
    if is_removed {
        host.stop(before);
    }

    let second = host.start(after, end);
    let standstill = flow.pass(SOME);
    assert!(standstill < STANDSTILL, "{standstill:?}");
    // Another layout: the connection is released, and follows the host's own routes from now on.
    let is_kept = mark(&flow.sender) != 0;
    assert!(is_kept || is_removed || before != after, "the same program knows its own connections");
    lab.wait_until_over(&flow, if is_kept { "R2" } else { "R1" }, "Z");
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
    lab.swallow("R2", "Z", false);

    End::Killed.come(second);
    host.stop(after);
    assert_eq!((installed(&lab), host.pins()), (nothing, Vec::<String>::new()), "kept: {is_kept}");
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
        let agent = "[pathchanger]\nsilence_backoff = { min = \"10 ms\", max = \"1 s\" }\n";
        let paths = path("R1", "1 kbit/s") + &path("R2", "1 Tbit/s");
        let config = format!("{agent}[[destination]]\nprefix = \"{}\"\n{paths}", lab.prefix("s"));
        Host { lab, state: kept.pins(false).directory, config: kept.file("agent.toml", &config) }
    }

    /// Starts an agent, and waits until it is ready.
    fn start(&self, program: &Path, end: End) -> Child {
        let mut command = within(program, self.lab, "h");
        run_agent(&mut command, self.lab, &self.config, &self.state);
        if end == End::Kept {
            command.arg("--keep");
        }
        let context = program.display().to_string();
        start(&mut command, &context)
            .unwrap_or_else(|ended| panic!("{context}: {}", String::from_utf8_lossy(&ended.stderr)))
    }

    fn stop(&self, program: &Path) {
        stop_agent(program, self.lab, &self.state, &program.display().to_string());
    }

    /// What is pinned. The directory itself stays if a release made it that did not mark it as its own.
    fn pins(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.state) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
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
