//! What belongs to which agent: each in a network namespace, a BPF file system and a control group of its own.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::Signal,
};
use serde_json::Value;
use sidestep_linux::{cgroup::Cgroup, netns::NetNs, testing::detach_all};

use crate::common::{Ended, Room, Running, root_or_skip};

/// A path that needs no other host: one rule and one route.
const PLAIN: &str = r#"
[[destination]]
prefix = "2001:db8::/64"
path = [{ plain = true, rate = "1 Mbit/s", rtt = "1 ms" }]
"#;

/// Where agents run.
pub(crate) struct Host {
    room: Room,
    network: NetNs,
    cgroup: Cgroup,
    bpf: PathBuf,
    config: String,
}

impl Host {
    pub(crate) fn new(name: &str) -> Host {
        let room = Room::new();
        let bpf = room.path("bpf");
        fs::create_dir(&bpf).unwrap();
        mount(Some("bpf"), &bpf, Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
        let cgroup = Cgroup::create(&format!("sidestep-test-{name}-{}", std::process::id())).unwrap();
        let config = room.write("agent.toml", PLAIN);
        Host { room, network: NetNs::create().unwrap(), cgroup, bpf, config }
    }

    pub(crate) fn state(&self) -> String {
        self.bpf.join("state").display().to_string()
    }

    /// Starts an agent with its state in `state`, and more options.
    fn start(&self, state: &str, more: &[&str]) -> Running {
        self.start_with(&self.config, state, more)
    }

    /// Starts an agent with this configuration.
    fn start_with(&self, config: &str, state: &str, more: &[&str]) -> Running {
        let cgroup = self.cgroup.path().display().to_string();
        let arguments = ["agent", "--config", config, "--cgroup", &cgroup, "--state", state];
        let arguments = [&arguments[..], more].concat();
        self.network.run(|| Ok(self.room.start(&arguments))).unwrap()
    }

    /// Starts an agent and waits until it is at work.
    pub(crate) fn start_ready(&self, state: &str, more: &[&str]) -> Running {
        let mut agent = self.start(state, more);
        agent.wait_until_ready();
        agent
    }

    /// Starts an agent with the configuration `text` and waits until it is at work.
    pub(crate) fn start_ready_with(&self, text: &str, state: &str) -> Running {
        let mut agent = self.start_with(&self.room.write("other.toml", text), state, &[]);
        agent.wait_until_ready();
        agent
    }

    /// Runs the program in the host's network.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.network.run(|| Ok(self.room.start(arguments))).unwrap().wait()
    }

    pub(crate) fn ip(&self, arguments: &str) -> String {
        let run = || Ok(Command::new("ip").args(arguments.split(' ')).output().unwrap());
        let output = self.network.run(run).unwrap();
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What there is of agents in the kernel.
    fn traces(&self) -> (usize, usize, bool) {
        let rules = self.ip("-6 rule show").lines().filter(|line| line.contains("fwmark")).count();
        let routes = self.ip("-6 route show table all proto 83").lines().count();
        (rules, routes, fs::exists(self.state()).unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = umount2(&self.bpf, MntFlags::MNT_DETACH);
        let _ = self.cgroup.destroy();
    }
}

const ALL: (usize, usize, bool) = (1, 1, true);
const NOTHING: (usize, usize, bool) = (0, 0, false);

#[test]
fn a_check_and_a_dry_run_show_what_a_prefix_that_covers_everything_captures() {
    if !root_or_skip("a prefix that covers everything") {
        return;
    }
    let host = Host::new("covering");
    for arguments in [
        "link set lo up",
        "link add v0 type veth peer name v1",
        "link set v0 up",
        "link set v1 up",
        "addr add fd00:ee::1/64 dev v0 nodad",
        "-6 route add fd00:a::/48 via fd00:ee::2",
    ] {
        host.ip(arguments);
    }
    let config = host.room.write("all.toml", &PLAIN.replace("2001:db8::/64", "::/0"));
    let checked = host.run(&["agent", "--check", "--config", &config]);
    let line = "\n::/0: connections get a path, but for fd00:a::/48, fd00:ee::/64, ";
    assert!(checked.stdout.contains(line) && checked.stdout.contains("fe80::/10, ff00::/8"), "{checked:?}");
    let mut agent = host.start_with(&config, &host.state(), &["--dry-run"]);
    agent.wait_until_ready();
    let status = host.run(&["agent", "status", "--state", &host.state()]);
    let alone = status.stdout.lines().find(|line| line.starts_with("left alone: ")).unwrap_or_default();
    for net in ["fd00:a::/48", "fd00:ee::/64", "fe80::/10", "ff00::/8"] {
        assert!(alone.contains(net), "{net}: {status:?}");
    }
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.wait().code, Some(0));
}

#[test]
fn doctor_tries_the_mask_of_the_agent_that_is_at_work() {
    if !root_or_skip("doctor beside an agent") {
        return;
    }
    let host = Host::new("doctor");
    let agent = host.start_ready(&host.state(), &[]);
    assert_eq!(host.run(&["doctor", "--json"]).code, Some(0));
    // The agent works already, and goes on.
    host.ip("-6 rule add fwmark 0x1000000/0x1000000 lookup 2004 priority 32000");
    let ended = host.run(&["doctor", "--json"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let marks = report["features"].as_array().unwrap().iter().find(|feature| feature["id"] == "marks").unwrap();
    let detail = marks["detail"].as_str().unwrap();
    assert!(detail.starts_with("mark_mask 0x3f000000, of the agent at work (process "), "{detail}");
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.wait().code, Some(0));
}

#[test]
fn an_agent_that_is_ended_in_its_first_moments_leaves_nothing_of_its_own_and_all_that_it_took_over() {
    if !root_or_skip("ending agents") {
        return;
    }
    let host = Host::new("moments");
    for delay in (0..12).map(|n| Duration::from_millis(n * n * 2)) {
        let agent = host.start(&host.state(), &[]);
        thread::sleep(delay);
        agent.signal(Signal::SIGTERM);
        agent.wait();
        assert_eq!(host.traces(), NOTHING, "ended {delay:?} after its start");
    }
    for delay in (0..6).map(|n| Duration::from_millis(n * n * 8)) {
        let agent = host.start(&host.state(), &[]);
        thread::sleep(delay);
        agent.kill();
        host.run(&["agent", "stop", "--state", &host.state()]).is_fine();
        assert_eq!(host.traces(), NOTHING, "killed {delay:?} after its start");
    }
    for delay in (0..6).map(|n| Duration::from_millis(n * n * 8)) {
        host.start_ready(&host.state(), &[]).kill();
        assert_eq!(host.traces(), ALL);
        let agent = host.start(&host.state(), &[]);
        thread::sleep(delay);
        agent.signal(Signal::SIGTERM);
        let ended = agent.wait();
        let was_ready = !ended.stdout.is_empty();
        let left = host.traces();
        assert!(left == ALL || left == NOTHING, "ended {delay:?} after its start: {left:?}");
        assert!(!was_ready || left == NOTHING, "one that was at work takes all with it: {left:?}");
        host.run(&["agent", "stop", "--state", &host.state()]).is_fine();
        assert_eq!(host.traces(), NOTHING);
    }
}

#[test]
fn a_second_agent_is_refused_where_it_would_use_what_another_one_uses() {
    if !root_or_skip("two agents") {
        return;
    }
    let host = Host::new("second");
    let first = host.start_ready(&host.state(), &[]);
    let other = host.bpf.join("other").display().to_string();
    let same = host.start(&other, &[]).wait();
    assert!(same.error(1).starts_with(&format!("another agent (process {}) uses", first.id())), "{same:?}");
    let overlapping = host.start(&other, &["--table-base", "8310", "--rule-priority", "8400"]).wait();
    assert!(overlapping.error(1).contains("routing tables 8311 to 8373"), "{overlapping:?}");
    assert!(!fs::exists(&other).unwrap(), "they leave nothing");
    assert_eq!(host.traces(), ALL, "and touch nothing");

    let marks = host.room.write("marks.toml", &format!("[pathchanger]\nmark_mask = 0xff00\n{PLAIN}"));
    let more = ["--table-base", "9000", "--rule-priority", "9000", "--config", &marks];
    let cgroup = host.cgroup.path().display().to_string();
    let arguments = [&["agent", "--state", &other, "--cgroup", &cgroup], &more[..]].concat();
    let mut beside = host.network.run(|| Ok(host.room.start(&arguments))).unwrap();
    beside.wait_until_ready();
    assert_eq!(host.traces().0, 2);
    beside.signal(Signal::SIGTERM);
    assert_eq!(beside.wait().code, Some(0));
    assert_eq!(host.traces(), ALL);
    // A killed one has nothing any more.
    first.kill();
    let next = host.start_ready(&other, &[]);
    next.signal(Signal::SIGTERM);
    assert_eq!(next.wait().code, Some(0));
}

#[test]
fn a_killed_agent_is_removed_in_its_own_network_namespace_only_and_status_shows_that_it_is_gone() {
    if !root_or_skip("a killed agent") {
        return;
    }
    let host = Host::new("killed");
    let state = host.state();
    let status = |json: bool| {
        let arguments = ["agent", "status", "--state", &state, "--json"];
        host.run(&arguments[..if json { 5 } else { 4 }]).stdout
    };
    let read = || serde_json::from_str::<Value>(&status(true)).unwrap();
    let agent = host.start_ready(&state, &["--controller", "unix:/nonexistent/socket"]);
    assert_eq!((&read()["at_work"], &read()["controller"]), (&true.into(), &"away".into()));
    assert!(status(false).contains("controller away"), "{}", status(false));
    agent.kill();
    assert_eq!((&read()["at_work"], &read()["controller"]), (&false.into(), &"none".into()));
    assert!(read()["last_at_work_s"].as_f64().is_some_and(|seconds| seconds < 60.0), "{}", read());
    assert!(status(false).contains("no agent is at work since "), "{}", status(false));

    // A process must be in the namespace for others to find it.
    let mut sleep = host.network.run(|| Ok(Command::new("sleep").arg("100").spawn().unwrap())).unwrap();
    let outside = host.room.run(&["agent", "stop", "--state", &state]);
    let place = outside.error(1).split("--net=").nth(1).unwrap().split(' ').next().unwrap().to_string();
    assert_eq!(place, format!("/proc/{}/ns/net", sleep.id()));
    assert_eq!(host.traces(), ALL, "nothing was touched");
    let cgroup = host.cgroup.path().display().to_string();
    let elsewhere =
        host.room.start(&["agent", "--config", &host.config, "--state", &state, "--cgroup", &cgroup]).wait();
    assert!(elsewhere.error(1).contains("left rules and routes in another network namespace"), "{elsewhere:?}");
    assert_eq!(host.traces(), ALL);
    // What the message recommends is what helps.
    let mut nsenter = Command::new("nsenter");
    nsenter.arg(format!("--net={place}")).arg(crate::common::PROGRAM).args(["agent", "stop", "--state", &state]);
    let stopped = host.room.start_command(nsenter).wait();
    stopped.is_fine();
    assert_eq!(host.traces(), NOTHING);
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn status_shows_that_the_program_is_not_attached() {
    if !root_or_skip("a program that is detached") {
        return;
    }
    let host = Host::new("detached");
    let state = host.state();
    let status = || host.run(&["agent", "status", "--state", &state]).stdout;
    let said = "the program is not attached to its control group: new connections are left alone";
    let agent = host.start_ready(&state, &[]);
    assert!(!status().contains(said), "{}", status());
    // It would attach the program again at once.
    agent.signal(Signal::SIGSTOP);
    assert_eq!(detach_all(host.cgroup.path()), 3);
    assert!(status().contains(said), "{}", status());
    let read = || -> Value {
        serde_json::from_str(&host.run(&["agent", "status", "--state", &state, "--json"]).stdout).unwrap()
    };
    assert_eq!(read()["attached"], false);
    agent.signal(Signal::SIGCONT);
    let deadline = Instant::now() + Duration::from_secs(10);
    while read()["attached"] != true {
        assert!(Instant::now() < deadline, "{}", status());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_agent_at_work_can_be_stopped_from_another_network_namespace() {
    if !root_or_skip("an agent") {
        return;
    }
    let host = Host::new("outside");
    let agent = host.start_ready(&host.state(), &[]);
    let outside = host.room.run(&["agent", "stop", "--state", &host.state()]);
    outside.is_fine();
    assert_eq!(agent.wait().code, Some(0));
    assert_eq!(host.traces(), NOTHING);
}

#[test]
fn an_agent_goes_on_when_the_file_system_of_its_state_is_unmounted() {
    if !root_or_skip("an agent") {
        return;
    }
    let host = Host::new("unmounted");
    let mut agent = host.start_ready(&host.state(), &[]);
    umount2(&host.bpf, MntFlags::MNT_DETACH).unwrap();
    // It looks for a request to end twice a second.
    thread::sleep(Duration::from_millis(1_200));
    agent.wait_until_ready();
    assert_eq!(host.traces(), (ALL.0, ALL.1, false));
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.wait().code, Some(0));
    assert_eq!(host.traces(), NOTHING);
}

#[test]
fn an_agent_does_not_begin_in_tables_that_others_use() {
    if !root_or_skip("an agent") {
        return;
    }
    let host = Host::new("tables");
    host.ip("link set lo up");
    host.ip("-6 route add 2001:db8::/64 dev lo table 8301");
    let ended = host.start(&host.state(), &[]).wait();
    assert!(ended.error(1).starts_with("the routing table 8301 holds a route to 2001:db8::/64 "), "{ended:?}");
    assert_eq!(host.traces(), NOTHING);
    assert!(host.ip("-6 route show table 8301").contains("2001:db8::/64 dev lo"));
    // An agent that takes over reports that, and works.
    host.ip("-6 route flush table 8301");
    host.start_ready(&host.state(), &[]).kill();
    host.ip("-6 route add 2001:db8:1::/64 dev lo table 8301");
    let agent = host.start_ready(&host.state(), &[]);
    agent.signal(Signal::SIGTERM);
    let ended = agent.wait();
    assert!(ended.stderr.contains("somebody else has put a route into a table of ours"), "{ended:?}");
    assert!(host.ip("-6 route show table 8301").contains("2001:db8:1::/64 dev lo"), "it is not ours to remove");
    assert_eq!(host.traces(), NOTHING);
}

#[test]
fn tables_and_priorities_of_the_kernel_are_refused() {
    if !root_or_skip("agents") {
        return;
    }
    let host = Host::new("reserved");
    for wrong in [
        ["--table-base", "0"],
        ["--table-base", "190"],
        ["--table-base", "253"],
        ["--table-base", "254"],
        ["--table-base", "4294967290"],
        ["--rule-priority", "0"],
        ["--rule-priority", "32766"],
        ["--rule-priority", "4294967295"],
    ] {
        let ended = host.start(&host.state(), &wrong).wait();
        assert!(ended.error(2).contains(wrong[1]), "{ended:?}");
        assert_eq!(host.traces(), NOTHING, "{wrong:?}");
    }
    for right in
        [["--table-base", "189"], ["--table-base", "255"], ["--rule-priority", "1"], ["--rule-priority", "32765"]]
    {
        let agent = host.start_ready(&host.state(), &right);
        assert_eq!(host.traces(), ALL, "{right:?}");
        agent.signal(Signal::SIGTERM);
        assert_eq!(agent.wait().code, Some(0));
        assert_eq!(host.traces(), NOTHING, "{right:?}");
    }
}

#[test]
fn another_programs_pins_beside_the_state_stay() {
    if !root_or_skip("pins of others") {
        return;
    }
    let host = Host::new("pins");
    // At the root of the file system, and in a directory that is not the agent's.
    let directory = host.bpf.join("theirs");
    fs::create_dir(&directory).unwrap();
    for state in [host.bpf.clone(), directory] {
        let foreign = state.join("foreign");
        fs::create_dir(&foreign).unwrap();
        // A pinned map, of the only kind that is at hand, by a name that is not ours.
        let donor = host.bpf.join("donor").display().to_string();
        let donating = host.start_ready(&donor, &[]);
        donating.kill();
        fs::rename(host.bpf.join("donor/sidestep_counts"), foreign.join("map")).unwrap();
        fs::rename(host.bpf.join("donor/sidestep_events"), state.join("link")).unwrap();
        host.run(&["agent", "stop", "--state", &donor]).is_fine();
        assert!(!fs::exists(&donor).unwrap());

        let place = state.display().to_string();
        for stops in [false, true] {
            let agent = host.start_ready(&place, &["--when-killed", "last-paths"]);
            assert!(state.join("sidestep_config").exists() && state.join("sidestep_link").exists());
            if stops {
                host.run(&["agent", "stop", "--state", &place]).is_fine();
            } else {
                agent.signal(Signal::SIGTERM);
            }
            assert_eq!(agent.wait().code, Some(0));
            let mut left: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            // The kernel's own files are at the root.
            left.retain(|name| !["theirs", "maps.debug", "progs.debug"].iter().any(|other| name == other));
            left.sort();
            assert_eq!(left, ["foreign", "link"]);
            assert!(foreign.join("map").exists());
            assert_eq!(host.traces(), NOTHING);
        }
        fs::remove_file(state.join("link")).unwrap();
        fs::remove_file(foreign.join("map")).unwrap();
        fs::remove_dir(foreign).unwrap();
    }
    // A directory that agents made goes with them, with those above it.
    let deep = host.bpf.join("a/b/state");
    let agent = host.start_ready(&deep.display().to_string(), &[]);
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.wait().code, Some(0));
    assert!(!host.bpf.join("a").exists() && host.bpf.join("theirs").exists());
}
