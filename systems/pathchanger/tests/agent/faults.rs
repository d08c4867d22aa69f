//! Every call to the kernel fails once: what works is never destroyed, and a failed start leaves nothing behind.
//!
//! `strace` makes one system call of the program fail, each time another. Some of the calls with every test run; `make
//! test-faults` takes all. With `SIDESTEP_FAULTS=n` each `n`-th call fails.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
};

use sidestep_linux::testing::root_or_skip;

use crate::{
    support::{
        Flow, Lab, PRIORITY, SOME, TWO_PROVIDERS, eventually, installed, mark, program, run_agent, start, stop_agent,
        tail, via_text, within,
    },
    takeover::Kept,
};

/// Each so-many-th call fails with the other tests.
const SOME_CALLS: usize = 20;
/// The calls by which the agent reaches programs, maps, rules and routes, and an error that the kernel can give.
const CALLS: [(&str, &str); 3] = [("bpf", "ENOMEM"), ("sendto", "ENOBUFS"), ("recvfrom", "ENOBUFS")];

#[test]
fn whichever_call_fails_an_agent_works_or_says_why_and_destroys_nothing() {
    if !root_or_skip("calls that fail") {
        return;
    }
    let Some(program) = program() else {
        println!("skipped: the program is not built; `cargo build -p sidestep`");
        return;
    };
    let every = std::env::var("SIDESTEP_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(SOME_CALLS);
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let trial = Trial::new(&program, &lab, &kept);
    let nothing = installed(&lab);

    // A first start finds nothing.
    let counts = trial.count();
    let (mut tried, mut refused) = (0, 0);
    for ((call, error), calls) in std::iter::zip(CALLS, counts) {
        for nth in (1..=calls).step_by(every) {
            tried += 1;
            let context = format!("call {nth} of {calls} of {call} fails at a first start");
            match trial.start(Some((call, error, nth))) {
                Started::Works(agent) => {
                    eventually(&context, || trial.is_whole().then_some(()));
                    end(agent);
                    trial.stop(&context);
                }
                Started::Refuses => refused += 1,
            }
            assert_eq!((installed(&lab), trial.state.exists()), (nothing.clone(), false), "{context}");
        }
    }

    // A later one takes over what an agent has left that was killed.
    let Started::Works(agent) = trial.start(None) else { panic!("an undisturbed start fails") };
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let whole = installed(&lab);
    assert!(trial.is_whole() && mark(&flow.sender) != 0, "{whole:?}");
    end(agent);
    for ((call, error), calls) in std::iter::zip(CALLS, counts) {
        for nth in (1..=calls).step_by(every) {
            tried += 1;
            let context = format!("call {nth} of {calls} of {call} fails when another agent's work is taken over");
            match trial.start(Some((call, error, nth))) {
                Started::Works(agent) => {
                    eventually(&context, || trial.is_whole().then_some(()));
                    end(agent);
                }
                Started::Refuses => refused += 1,
            }
            // It keeps a path; which one is the policy's choice, and on a busy machine there are timeouts.
            assert_eq!((installed(&lab), mark(&flow.sender) != 0), (whole.clone(), true), "{context}");
            flow.pass(SOME);
        }
    }
    trial.stop("at the end");
    println!("{tried} calls failed, {refused} of them ended the agent's start");
    assert_eq!((installed(&lab), trial.state.exists(), mark(&flow.sender)), (nothing, false, 0));
}

/// An agent with two paths, whose calls can be made to fail.
struct Trial<'a> {
    program: &'a Path,
    lab: &'a Lab,
    state: PathBuf,
    config: PathBuf,
    trace: PathBuf,
}

/// How a start ended.
enum Started {
    Works(Child),
    /// It ended, and reported why on standard error.
    Refuses,
}

impl<'a> Trial<'a> {
    fn new(program: &'a Path, lab: &'a Lab, kept: &Kept) -> Self {
        let path = |provider| via_text(tail(lab, provider, "h"), provider);
        let text = format!("[[destination]]\nprefix = \"{}\"\n{}{}", lab.prefix("s"), path("R1"), path("R2"));
        let (config, trace) = (kept.file("faults.toml", &text), kept.files().join("trace"));
        Trial { program, lab, state: kept.pins(false).directory, config, trace }
    }

    fn is_whole(&self) -> bool {
        let [rules, routes] = installed(self.lab);
        rules.matches(&format!("{PRIORITY}:")).count() == 2 && routes.matches(" table 83").count() == 2
    }

    /// Starts an agent of which this call fails: its name, the error, and which of these calls, counted from one.
    fn start(&self, fault: Option<(&str, &str, usize)>) -> Started {
        let mut command = within(Path::new("strace"), self.lab, "h");
        // -D: the agent is our child, and the tracer is not.
        command.args(["-D", "-f", "-qq", "-e", &format!("trace={}", CALLS.map(|(call, _)| call).join(","))]);
        command.arg("-o").arg(&self.trace);
        if let Some((call, error, nth)) = fault {
            command.args(["-e", &format!("inject={call}:error={error}:when={nth}")]);
        }
        command.arg(self.program);
        run_agent(&mut command, self.lab, &self.config, &self.state);
        match start(&mut command, &format!("{fault:?}")) {
            Ok(agent) => Started::Works(agent),
            Err(ended) => {
                let reason = String::from_utf8_lossy(&ended.stderr);
                assert!(!ended.status.success(), "{fault:?}: {reason}");
                assert!(!reason.is_empty() && !reason.contains("panicked"), "{fault:?}: {reason}");
                Started::Refuses
            }
        }
    }

    /// How many of each of [`CALLS`] an undisturbed first start makes.
    fn count(&self) -> [usize; CALLS.len()] {
        let Started::Works(agent) = self.start(None) else { panic!("an undisturbed start fails") };
        end(agent);
        let trace = fs::read_to_string(&self.trace).unwrap();
        self.stop("an undisturbed start");
        CALLS.map(|(call, _)| trace.lines().filter(|line| line.contains(&format!(" {call}("))).count())
    }

    fn stop(&self, context: &str) {
        stop_agent(self.program, self.lab, &self.state, context);
    }
}

/// Ends an agent as `kill -9` does.
fn end(mut agent: Child) {
    agent.kill().unwrap();
    agent.wait().unwrap();
}
