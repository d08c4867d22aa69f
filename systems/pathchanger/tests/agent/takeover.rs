//! Agents that are killed, stopped by another process, or replaced by another agent: no connection notices.

use std::{
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sidestep_hostd::StaticPath;
use sidestep_linux::testing::root_or_skip;
use sidestep_pathchanger::daemon::{
    program::{HostProgram, Pins},
    stop_host,
};

use crate::support::{Agent, Flow, Lab, MASK, SOME, TWO_PROVIDERS, eventually, mark, settings, slot, via};

/// A BPF file system of the test's own; unmounted when dropped.
pub struct Kept {
    directory: tempfile::TempDir,
    files: tempfile::TempDir,
}

impl Kept {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        nix::mount::mount(Some("bpf"), directory.path(), Some("bpf"), nix::mount::MsFlags::empty(), None::<&str>)
            .unwrap();
        Kept { directory, files: tempfile::tempdir().unwrap() }
    }

    /// A directory that is not on it.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Writes a file for agents to read, outside the BPF file system.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn pins(&self, program: bool) -> Pins {
        Pins { directory: self.directory.path().join("sidestep"), program }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.directory.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

fn paths(lab: &Lab) -> Vec<StaticPath> {
    [("R1", "1 kbit/s"), ("R2", "1 Tbit/s")].map(|(provider, rate)| via(lab, "h", provider, rate)).to_vec()
}

fn start(lab: &Lab, pins: Pins) -> Agent {
    Agent::start_with(lab, "h", settings(), &lab.prefix("s").to_string(), paths(lab), Some(pins))
}

/// A connection from `h` to `s` over the wider of the two paths, which it is given first.
fn flow(lab: &Lab) -> Flow {
    let pair = lab.connect("h", "s");
    assert_eq!(slot(&pair.0), 2);
    let flow = Flow::start(pair);
    flow.pass(SOME);
    flow
}

/// Runs `act` on a thread in the namespace of `h`.
pub fn in_host<T: Send>(lab: &Lab, act: impl FnOnce() -> T + Send) -> T {
    lab.network.node(lab.id("h")).run(|| Ok(act())).unwrap()
}

/// Ends the agent of `h` from outside; whether there was anything.
pub fn stop(lab: &Lab, pins: &Pins) -> bool {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    in_host(lab, || runtime().block_on(stop_host(pins)).unwrap())
}

#[test]
fn a_killed_agents_connections_stay_on_their_paths_and_the_next_one_moves_them_again() {
    if !root_or_skip("killing an agent") {
        return;
    }
    for keeps_program in [false, true] {
        let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
        let pins = kept.pins(keeps_program);
        let agent = start(&lab, pins.clone());
        let flow = flow(&lab);
        agent.kill();
        flow.pass(SOME);
        assert_eq!(slot(&flow.sender), 2, "killed, and the connection is where it was");
        let between = lab.connect("h", "s").0;
        assert_eq!(slot(&between), if keeps_program { 2 } else { 0 }, "new ones as the settings say");

        let next = start(&lab, pins.clone());
        flow.pass(SOME);
        assert_eq!(slot(&flow.sender), 2);
        lab.swallow("R2", "Z", true);
        let outage = flow.pass(SOME);
        assert!(outage.as_secs_f64() < 4.0, "{outage:?}");
        assert_eq!(slot(&flow.sender), 1);
        let moved = next.moved("rto");
        assert_eq!((moved.from, moved.to), (2, 1));
        next.stop();
        assert!(!pins.exist());
        assert_eq!(mark(&flow.sender), 0, "in the end the mark is what it was");
        flow.pass(SOME);
    }
}

/// How the state of an agent shows that it is another version's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Other {
    /// The layout has another number; all maps have the same sizes.
    Numbered,
    /// It is from before there were numbers.
    Unnumbered,
    /// A map of another kind and size is in the place of the configuration.
    Resized,
}

impl Other {
    pub fn make(self, pins: &Pins) {
        let pin = |name: &str| pins.directory.join(name);
        match self {
            Other::Numbered => {
                let map = MapHandle::from_pinned_path(pin("sidestep_layout")).unwrap();
                let mut layout = map.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
                layout[0] ^= 1;
                map.update(&[0; 4], &layout, MapFlags::ANY).unwrap();
            }
            Other::Unnumbered => {
                for name in ["sidestep_layout", "sidestep_release"] {
                    std::fs::remove_file(pin(name)).unwrap();
                }
                // Nor did it mark the directory as its own to remove.
                std::fs::set_permissions(&pins.directory, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            Other::Resized => std::fs::rename(pin("sidestep_counts"), pin("sidestep_config")).unwrap(),
        }
    }
}

#[test]
fn connections_of_another_version_are_released_and_its_state_is_begun_again() {
    if !root_or_skip("the state of another version") {
        return;
    }
    // Bits that an application set outside the mask, and within it.
    const OUTSIDE: u32 = 0x0000_0007;
    const WITHIN: u32 = 0x0500_0000;
    for other in [Other::Numbered, Other::Unnumbered, Other::Resized] {
        let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
        let (rules, routes) = (|| lab.ip("h", "-6 rule show"), || lab.ip("h", "-6 route show table all proto 83"));
        let before = (rules(), routes());
        let pins = kept.pins(true);
        let killed = |own: u32| {
            let agent = start(&lab, pins.clone());
            let listener = lab.serve("s");
            let socket = crate::support::socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Mark, &own).unwrap();
            let server = std::net::SocketAddrV6::new(lab.address("s"), crate::support::PORT, 0, 0);
            let flow = Flow::start((crate::support::connect(socket, server).unwrap(), listener.accept().unwrap().0));
            assert_eq!(mark(&flow.sender), 0x0200_0000 | OUTSIDE);
            agent.kill();
            other.make(&pins);
            flow
        };

        let flow = killed(OUTSIDE);
        assert!(in_host(&lab, || HostProgram::look(&pins).is_err()), "{other:?}: never read for what it is not");
        let next = start(&lab, pins.clone());
        assert_eq!(mark(&flow.sender), OUTSIDE, "{other:?}");
        flow.pass(SOME);
        let fresh = lab.connect("h", "s").0;
        assert_eq!(slot(&fresh), 2, "{other:?}: its slots are free again");
        let listed = in_host(&lab, || HostProgram::look(&pins).unwrap().unwrap().connections().unwrap().len());
        assert_eq!(listed, 1, "{other:?}: one is known, and by one program");
        next.stop();
        assert_eq!((mark(&fresh), pins.exist(), (rules(), routes())), (0, false, before.clone()), "{other:?}");
        flow.pass(SOME);
        drop(flow);

        let flow = killed(OUTSIDE | WITHIN);
        // What an application had in our bits is known only to the version that took them.
        let released = if other == Other::Unnumbered { OUTSIDE } else { OUTSIDE | WITHIN };
        assert!(stop(&lab, &pins), "{other:?}");
        assert_eq!((mark(&flow.sender), pins.exist()), (released, false), "{other:?}");
        assert_eq!((rules(), routes()), before, "{other:?}");
        flow.pass(SOME);
    }
}

#[test]
fn connections_get_the_marks_back_that_they_had() {
    if !root_or_skip("an application with a mark of its own") {
        return;
    }
    const OWN: u32 = 0x15ab_5507;
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, kept.pins(true));
    let listener = lab.serve("s");
    let socket = crate::support::socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Mark, &OWN).unwrap();
    let server = std::net::SocketAddrV6::new(lab.address("s"), crate::support::PORT, 0, 0);
    let client = crate::support::connect(socket, server).unwrap();
    let _accepted = listener.accept().unwrap();
    assert_eq!(mark(&client), OWN & !MASK | 2 << MASK.trailing_zeros());
    agent.kill();
    assert!(stop(&lab, &kept.pins(true)));
    assert_eq!(mark(&client), OWN);
}

#[test]
fn each_request_to_stop_ends_the_agent_and_leaves_nothing_of_it() {
    if !root_or_skip("stopping an agent") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let pins = kept.pins(true);
    let (rules, routes) = (|| lab.ip("h", "-6 rule show"), || lab.ip("h", "-6 route show table all proto 83"));
    let before = (rules(), routes());
    assert!(!stop(&lab, &pins), "there is nothing to stop");
    for killed in [false, true] {
        let agent = start(&lab, pins.clone());
        let flow = flow(&lab);
        assert_ne!((rules(), routes()), before);
        if killed {
            agent.kill();
            assert!(stop(&lab, &pins));
        } else {
            assert!(stop(&lab, &pins));
            agent.wait().unwrap();
        }
        assert_eq!((rules(), routes()), before);
        assert_eq!(mark(&flow.sender), 0);
        flow.pass(SOME);
        assert_eq!(mark(&lab.connect("h", "s").0), 0, "the program is gone");
        assert!(!pins.exist());
    }
}

#[test]
fn two_agents_do_not_share_a_state() {
    if !root_or_skip("a second agent") {
        return;
    }
    let kept = Kept::new();
    let first = HostProgram::load(Some(kept.pins(false))).unwrap();
    let error = HostProgram::load(Some(kept.pins(false))).unwrap_err().to_string();
    assert!(error.ends_with("another agent is at work with it; `sidestep agent stop` ends it"), "{error}");
    first.remove().unwrap();
    assert!(!kept.pins(false).exist());
    let nowhere = tempfile::tempdir().unwrap();
    let pins = Pins { directory: nowhere.path().join("state"), program: false };
    let error = HostProgram::load(Some(pins)).unwrap_err();
    assert!(error.is_environment() && error.to_string().contains("mount -t bpf"), "{error}");
    assert_eq!(std::fs::read_dir(nowhere.path()).unwrap().count(), 0);
}

#[test]
fn connections_are_listed_with_what_happened_to_them() {
    if !root_or_skip("listing connections") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let pins = kept.pins(false);
    let agent = start(&lab, pins.clone());
    let pair = lab.connect("h", "s");
    let list = || in_host(&lab, || HostProgram::look(&pins).unwrap().unwrap().connections().unwrap());
    let one = list()[0];
    let ids = agent.ids();
    assert_eq!((list().len(), one.path, one.passive, one.moves, one.decided), (1, ids[&2], false, 0, None));
    assert_eq!([one.remote.ip(), one.local.ip()], [lab.address("s"), lab.address("h")].map(IpAddr::from));
    let flow = Flow::start(pair);
    flow.pass(SOME);
    let failed = sidestep_linux::monotonic_now();
    lab.swallow("R2", "Z", true);
    flow.pass(SOME);
    agent.moved("rto");
    let one = list()[0];
    let (at, reason) = one.decided.unwrap();
    assert_eq!((one.path, one.moves > 0, reason.as_str()), (ids[&1], true, "rto"));
    // Between the failure and now, however slow the machine is.
    assert!(one.opened.unwrap() < failed && failed < at && at <= sidestep_linux::monotonic_now());
    drop(flow);
    eventually("the connection's end", || list().is_empty().then_some(()));
}

#[test]
fn connections_for_which_there_is_no_memory_are_left_alone_and_counted() {
    if !root_or_skip("a kernel without memory") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let pins = kept.pins(false);
    let agent = start(&lab, pins.clone());
    let counters = || HostProgram::look(&pins).unwrap().unwrap().counters().unwrap();
    assert_eq!(counters().no_storage, 0);
    // What a socket's storage is charged to; before Linux 6.9 only the first namespace has it.
    let limited = in_host(&lab, || std::fs::write("/proc/sys/net/core/optmem_max", "64").is_ok());
    if !limited {
        println!("skipped: net.core.optmem_max is the machine's");
        return;
    }
    let flow = Flow::start(lab.connect("h", "s"));
    assert_eq!((slot(&flow.sender), counters().active), (2, 1), "to begin it needs none");
    lab.swallow("R2", "Z", true);
    eventually("a signal for which there is no memory", || (counters().no_storage > 0).then_some(()));
    assert_eq!(slot(&flow.sender), 2, "it stays on its path");
    lab.swallow("R2", "Z", false);
    flow.pass(SOME);
    agent.stop();
}

#[test]
fn a_path_set_that_shrinks_moves_even_idle_connections_at_once() {
    if !root_or_skip("a smaller path set") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let pins = kept.pins(false);
    let agent = start(&lab, pins.clone());
    let idle = lab.connect("h", "s");
    assert_eq!(slot(&idle.0), 2);
    agent.kill();
    // The next agent knows the first path only; then none at all.
    let fewer = paths(&lab)[..1].to_vec();
    let next = Agent::start_with(&lab, "h", settings(), &lab.prefix("s").to_string(), fewer, Some(pins.clone()));
    assert_eq!(slot(&idle.0), 1);
    next.kill();
    let elsewhere = Agent::start_with(&lab, "h", settings(), "2001:db8::/64", paths(&lab), Some(pins));
    assert_eq!(mark(&idle.0), 0);
    let flow = Flow::start(idle);
    flow.pass(SOME);
    drop(elsewhere);
}

#[test]
fn a_control_group_that_is_made_again_is_found() {
    if !root_or_skip("a control group that goes") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, kept.pins(true));
    let directory: &Path = lab.cgroup.0.path();
    std::fs::remove_dir(directory).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    std::fs::create_dir(directory).unwrap();
    let attached = || {
        let (sender, _receiver) = lab.connect("h", "s");
        (slot(&sender) == 2).then_some(())
    };
    eventually("the program to act on the new control group", attached);
    agent.stop();
}

#[test]
fn an_interface_that_comes_back_carries_its_path_again() {
    if !root_or_skip("an interface that goes down") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, kept.pins(false));
    let flow = flow(&lab);
    let routes = || lab.ip("h", "-6 route show table all proto 83");
    assert_eq!(routes().matches(" table 830").count(), 2, "{}", routes());
    let word_after = |text: String, word: &str| {
        text.split_whitespace().skip_while(|other| *other != word).nth(1).unwrap().to_string()
    };
    let address = word_after(lab.ip("h", "-6 addr show dev R2"), "inet6");
    let neighbour = word_after(lab.ip("h", "-6 neigh show fe80::2 dev R2"), "lladdr");
    lab.ip("h", "link set R2 down");
    // The kernel took the route away; what is left is the first path, and its place is the first.
    eventually("the connection on the path that is left", || (slot(&flow.sender) == 1).then_some(()));
    flow.pass(SOME);
    assert_eq!(routes().matches(" table 830").count(), 1, "{}", routes());
    // With the interface its address went, and what was known of the neighbour.
    lab.ip("h", "link set R2 up");
    lab.ip("h", &format!("-6 addr add {address} dev R2 nodad"));
    lab.ip("h", &format!("-6 neigh replace fe80::2 lladdr {neighbour} dev R2 nud permanent"));
    eventually("both routes", || (routes().matches(" table 830").count() == 2).then_some(()));
    flow.pass(SOME);
    agent.stop();
}

#[test]
fn a_configuration_that_is_read_again_moves_connections_to_where_it_says() {
    if !root_or_skip("a new configuration") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let agent = start(&lab, kept.pins(false));
    let flow = flow(&lab);
    agent.reconfigure(settings(), &lab.prefix("s").to_string(), paths(&lab)[..1].to_vec());
    eventually("the connection on the only path", || (slot(&flow.sender) == 1).then_some(()));
    flow.pass(SOME);
    agent.stop();
}
