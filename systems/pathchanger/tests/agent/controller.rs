//! A controller that ends and is started again: paths and connections stay as they are.

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
};

use sidestep_api::listen;
use sidestep_controller::{Controller, serve};
use sidestep_hostd::{StaticDestination, StaticPath};
use sidestep_linux::{netns::set_sysctl, sock_diag::TcpInfo, testing::root_or_skip};
use sidestep_net::{Rate, Topology, srv6};
use sidestep_pathchanger::daemon::{
    EventRecord, HostOptions,
    program::{HostProgram, Pins},
};
use sidestep_paths::PathSettings;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use crate::{
    router::Router,
    support::{Agent, Flow, Lab, SOME, TABLE_BASE, eventually, mark, plain, settings, slot},
    takeover::{Kept, in_host},
};

const PATHS: PathSettings = PathSettings { max_segments: 4, max_paths: 8, adjacency: true };

/// Two paths from A to B.
pub const TWO_PATHS: &[(&str, &str, u32)] =
    &[("h", "A", 1), ("A", "M", 1), ("M", "B", 1), ("A", "N", 2), ("N", "B", 2), ("B", "s", 1)];

/// A daemon on a thread; ended when dropped.
pub struct Daemon {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Daemon {
    /// Starts `work`, with a receiver that completes when it is to end.
    fn start<W: Future<Output = ()>>(work: impl FnOnce(oneshot::Receiver<()>) -> W + Send + 'static) -> Daemon {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work(stopped));
        });
        Daemon { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// A controller that listens at `endpoint`, and its state.
pub fn controller(topology: Topology, endpoint: &str) -> (Daemon, Arc<Controller>) {
    let controller = Arc::new(Controller::new(topology, PATHS).unwrap());
    (started(controller.clone(), endpoint, None), controller)
}

/// A controller of the lab's network that listens at `endpoint` in a node.
pub fn controller_in(lab: &Lab, node: &str, endpoint: &str) -> Daemon {
    let namespace = lab.network.node(lab.id(node)).as_fd().try_clone_to_owned().unwrap();
    started(Arc::new(Controller::new(lab.topology.clone(), PATHS).unwrap()), endpoint, Some(namespace))
}

fn started(controller: Arc<Controller>, endpoint: &str, namespace: Option<OwnedFd>) -> Daemon {
    let endpoint = endpoint.to_owned();
    Daemon::start(async move |stopped| {
        if let Some(namespace) = namespace {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        }
        let listener = listen(&endpoint).await.unwrap();
        let topologies = mpsc::unbounded_channel().1;
        serve(controller, listener, topologies, None, || {}, async { drop(stopped.await) }).await.unwrap();
    })
}

/// A host `h` whose paths to `s` come from a controller, which a router daemon at `A` follows as well.
///
/// The agent ends first, and the controller last.
pub struct Managed {
    pub agent: Agent,
    pub router: Router,
    pub controller: Daemon,
    pub state: Arc<Controller>,
    pub endpoint: String,
    socket: String,
    _directory: TempDir,
}

/// Such a host in this network.
pub fn managed(lab: &Lab) -> Managed {
    managed_with(lab, None, Vec::new())
}

/// The agent keeps its state in `pins`, and also has destinations of its own.
fn managed_with(lab: &Lab, pins: Option<Pins>, own: Vec<StaticDestination>) -> Managed {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("controller.sock").display().to_string();
    let endpoint = format!("unix:{socket}");
    let (controller, state) = controller(lab.topology.clone(), &endpoint);
    eventually("the controller's socket", || fs::exists(&socket).unwrap().then_some(()));
    let router = Router::start(lab, &endpoint, &[("M", "M"), ("N", "N")]);
    let agent = following(lab, &endpoint, pins, |options| options.config.destinations = own);
    Managed { agent, router, controller, state, endpoint, socket, _directory: directory }
}

/// The agent of `h`, with paths of the controller's only unless `adjust` gives it others.
pub fn following(lab: &Lab, endpoint: &str, pins: Option<Pins>, adjust: impl FnOnce(&mut HostOptions)) -> Agent {
    Agent::start_as(lab, "h", settings(), &lab.prefix("s").to_string(), Vec::new(), |options| {
        options.controller = Some(endpoint.into());
        options.config.destinations.clear();
        options.pins = pins;
        adjust(options);
    })
}

/// Whether a process in a node is connected to a unix socket: the other end's socket is of its namespace.
fn is_connected(lab: &Lab, node: &str, socket: &str) -> bool {
    let sockets = || Ok(fs::read_to_string("/proc/thread-self/net/unix").unwrap());
    let sockets = lab.network.node(lab.id(node)).run(sockets).unwrap();
    sockets.lines().any(|line| line.ends_with(socket))
}

#[test]
fn a_prefix_that_the_file_and_the_controller_have_takes_the_paths_of_the_file_alone() {
    if !root_or_skip("a prefix of the file and of the controller") {
        return;
    }
    let lab = Lab::new(TWO_PATHS);
    let mine = StaticPath { name: Some("mine".into()), ..plain("10 Mbit/s") };
    let own = StaticDestination { prefix: lab.prefix("s").into(), paths: vec![mine] };
    let Managed { _directory, socket, agent, controller: _controller, .. } = managed_with(&lab, None, vec![own]);
    eventually("an agent that is connected", || is_connected(&lab, "h", &socket).then_some(()));
    let routes = || {
        let all = lab.ip("h", "-6 route show table all");
        let throws = all.contains(&format!("throw {} ", lab.prefix("s"))) && all.contains("table 8301");
        (throws, all.matches("table 83").count())
    };
    for _ in 0..10 {
        assert_eq!(routes(), (true, 1), "{}", lab.ip("h", "-6 route show table all"));
        thread::sleep(std::time::Duration::from_millis(20));
    }
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let opened = eventually("an event", || agent.events().into_iter().find(|event| event.kind == "opened"));
    assert_eq!((opened.from_name, opened.to_name), (None, Some("mine".into())));
    agent.stop();
}

#[test]
fn a_controller_that_is_started_again_moves_no_connection() {
    if !root_or_skip("an agent with a controller") {
        return;
    }
    let lab = Lab::new(TWO_PATHS);
    let Managed { _directory, socket, endpoint, controller: first, state, router: _router, agent } = managed(&lab);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    // No signal ever moves an idle connection, also where a busy machine delays packets.
    let idle = lab.connect("h", "s").0;
    assert!(slot(&flow.sender) > 0 && slot(&idle) > 0, "they are on the controller's paths");
    let routes = || (lab.ip("h", "-6 route show table 8301"), lab.ip("h", "-6 route show table 8302"));
    let bindings = || lab.ip("A", "-6 route show proto 83");
    let before = (mark(&idle), routes(), bindings());
    // The IGP takes the first path anyway.
    assert!(before.1.0.contains(" via ") && !before.1.0.contains("seg6"), "{before:?}");
    assert!(before.1.1.contains("seg6"), "{before:?}");
    let connected = || is_connected(&lab, "A", &socket) && is_connected(&lab, "h", &socket);
    eventually("agents that are connected", || connected().then_some(()));

    drop(first);
    eventually("agents that are alone", || (!connected()).then_some(()));
    flow.pass(SOME);
    assert_eq!((mark(&idle), routes(), bindings()), before, "without a controller");
    let (_second, again) = controller(lab.topology.clone(), &endpoint);
    // The first knows how busy links are, which the next one learns from reports.
    let idle_sets = |controller: &Controller| {
        let mut sets = controller.sets();
        sets.iter_mut().flat_map(|set| &mut set.paths).for_each(|path| path.path.usage = Rate::ZERO);
        sets
    };
    assert_eq!(idle_sets(&again), idle_sets(&state), "the same paths by the same ids");
    eventually("agents that are back", || connected().then_some(()));
    flow.pass(SOME);
    assert_eq!((mark(&idle), routes(), bindings()), before, "with the next one");
    let is_moved = |event: &EventRecord| event.kind == "moved" && event.local == idle.local_addr().unwrap();
    assert!(!agent.events().iter().any(is_moved), "{:?}", agent.events());
}

#[test]
fn an_agent_that_is_started_again_while_its_controller_is_away_leaves_all_as_it_was() {
    if !root_or_skip("an agent whose controller is away") {
        return;
    }
    for keeps_program in [false, true] {
        let (lab, kept) = (Lab::new(TWO_PATHS), Kept::new());
        let pins = kept.pins(keeps_program);
        let managed = managed_with(&lab, Some(pins.clone()), Vec::new());
        let Managed { _directory, endpoint, controller: first, router: _router, agent, .. } = managed;
        let flow = Flow::start(lab.connect("h", "s"));
        flow.pass(SOME);
        // No signal ever moves an idle connection, also where a busy machine delays packets.
        let idle = lab.connect("h", "s").0;
        let table = |slot: u32| lab.ip("h", &format!("-6 route show table {}", TABLE_BASE + slot));
        let learnt = || in_host(&lab, || HostProgram::look(&pins).unwrap().unwrap().learnt().unwrap().len());
        let all = || (mark(&idle), table(1), table(2), lab.ip("h", "-6 rule show"), learnt());
        let before = all();
        assert!(slot(&idle) > 0 && !before.1.is_empty() && !before.2.is_empty(), "{before:?}");

        // The controller goes first, so that no daemon is notified of anything.
        drop(first);
        agent.kill();
        // One that cannot start, one that finds neither controller nor control group, and one of a path of its own.
        let failed = Agent::try_start_as(&lab, "h", settings(), "::/0", Vec::new(), |options| {
            options.controller = Some("nobody".into());
            options.pins = Some(pins.clone());
        });
        assert!(failed.is_err());
        assert_eq!(all(), before, "after a start that failed");
        let group = lab.cgroup.0.path().join("later");
        let second = following(&lab, &endpoint, Some(pins.clone()), |options| options.cgroup = group.clone());
        flow.pass(SOME);
        assert_eq!(all(), before, "without controller and control group");
        second.kill();
        let third = following(&lab, &endpoint, Some(pins.clone()), |options| {
            let paths = vec![plain("1 Gbit/s")];
            options.config.destinations = vec![StaticDestination { prefix: "2001:db8::/64".parse().unwrap(), paths }];
        });
        flow.pass(SOME);
        assert!(table(1).contains("throw 2001:db8::/64"), "paths of its own are there at once: {}", table(1));
        assert_eq!((mark(&idle), table(2)), (before.0, before.2.clone()), "without the controller");
        assert!(table(1).contains(&before.1), "{}", table(1));
        let new = Flow::start(lab.connect("h", "s"));
        new.pass(SOME);
        assert!(slot(&new.sender) > 0, "new connections get the last paths");
        // They move as before.
        let dead = ["M", "N"][slot(&flow.sender) - 1];
        let was = slot(&flow.sender);
        lab.swallow("A", dead, true);
        eventually("a move", || (slot(&flow.sender) == 3 - was).then_some(()));
        lab.swallow("A", dead, false);
        third.kill();
        let fourth = following(&lab, &endpoint, Some(pins.clone()), |_| {});
        let (again, _) = controller(lab.topology.clone(), &endpoint);
        eventually("the end of the path that is no longer wanted", || (!table(1).contains("throw")).then_some(()));
        flow.pass(SOME);
        assert_eq!(all(), before, "with the controller back");
        fourth.stop();
        assert_eq!((mark(&idle), pins.exist()), (0, false));
        assert_eq!((table(1), table(2)), (String::new(), String::new()));
        drop(again);
    }
}

#[test]
fn a_connection_carries_no_segments_on_the_shortest_path_and_moves_off_it_and_back() {
    if !root_or_skip("a path without segments") {
        return;
    }
    let lab = Lab::new(TWO_PATHS);
    let Managed { agent, .. } = &managed(&lab);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let begun = slot(&flow.sender);
    // IPv6 header, and a TCP header with timestamps. The second path's list at A has two segments. On the first path packets are
    // no larger, so that none is lost when the connection moves.
    let full = 1_500 - srv6::IPV6_HEADER - 32;
    let size = full - srv6::encap_len(2) - srv6::srh_len(2);
    let middles = ["M", "N"];
    let is_on = |number: usize| {
        assert_eq!((slot(&flow.sender), TcpInfo::of(&flow.sender).unwrap().mss), (number, size));
        let carried = || lab.carried(lab.arc("A", middles[number - 1]));
        let before = carried();
        eventually("packets on the path", || (carried() >= before + SOME).then_some(()));
    };
    is_on(begun);
    // Off the path where it began, back to it, and once more: both paths are left, and both are come back to.
    for from in [begun, 3 - begun, begun] {
        lab.swallow("A", middles[from - 1], true);
        eventually("a move", || (slot(&flow.sender) == 3 - from).then_some(()));
        flow.pass(SOME);
        lab.swallow("A", middles[from - 1], false);
        is_on(3 - from);
    }
    let moves = || agent.events().into_iter().filter(|event| event.kind == "moved").collect::<Vec<_>>();
    let moves = eventually("records of the moves", || Some(moves()).filter(|moves| moves.len() >= 3));
    assert_eq!((moves[0].from, moves[0].to), (moves[1].to, moves[1].from), "both paths have their Path IDs");

    // A host that takes no segments drops what has a used-up list, and so all but the packets of the shortest path.
    if slot(&flow.sender) != 1 {
        lab.swallow("A", "N", true);
        eventually("a move", || (slot(&flow.sender) == 1).then_some(()));
    }
    lab.network.node(lab.id("s")).run(|| set_sysctl("ipv6/conf/all/seg6_enabled", "0")).unwrap();
    flow.pass(10 * SOME);
    assert_eq!(slot(&flow.sender), 1);
}
