//! Router daemons that are killed and started again, and links that vanish: Path IDs and connections stay.

use std::{
    io::{Read, Write},
    net::TcpStream,
    pin::Pin,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use sidestep_hostd::AgentError;
use sidestep_linux::{
    netlink,
    testing::{Damage, assert_mends, root_or_skip},
};
use sidestep_pathchanger::daemon::{RouterOptions, run_router, stop_router};
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    controller::{Managed, TWO_PATHS, controller, managed},
    support::{Daemon, End, Flow, Lab, Ready, SOME, Stopping, eventually, slot},
};

const METRICS: &str = "[::1]:9436";
/// The longest that a connection may stand still while one daemon follows the other.
const STANDSTILL: Duration = Duration::from_secs(4);

/// The router daemon of node `A`; cleans up when dropped.
pub struct Router(Daemon);

impl Router {
    /// Starts it with the links from `A` to these neighbours, each with the name of its interface.
    pub fn start(lab: &Lab, endpoint: &str, links: &[(&str, &str)]) -> Router {
        let started = Daemon::start(lab, "A", runs(lab, endpoint, links));
        Router(started.unwrap_or_else(|ended| panic!("the router is not ready: {ended:?}")))
    }

    /// Starts it, and waits until it ends by itself.
    fn start_and_wait(lab: &Lab, endpoint: &str) -> Result<(), AgentError> {
        Daemon::spawn(lab, "A", runs(lab, endpoint, &[])).0.wait()
    }

    /// Waits until it ends by itself.
    fn wait(mut self) -> Result<(), AgentError> {
        self.0.wait()
    }

    /// Ends it as `kill -9` would.
    pub fn kill(self) {
        self.end(End::Killed).unwrap();
    }

    fn end(mut self, end: End) -> Result<(), AgentError> {
        self.0.end(end)
    }
}

/// Runs it with the links from `A` to these neighbours, each with the name of its interface.
fn runs(
    lab: &Lab,
    endpoint: &str,
    links: &[(&str, &str)],
) -> impl FnOnce(Ready, Stopping) -> RouterRun + Send + 'static {
    let name = |neighbour: &str| lab.topology.link(lab.arc("A", neighbour).link()).name.clone();
    let options = RouterOptions {
        controller: endpoint.into(),
        node: "A".into(),
        links: links.iter().map(|(neighbour, interface)| (name(neighbour), (*interface).into())).collect(),
        ecn: true,
        keep: false,
        metrics: Some(METRICS.parse().unwrap()),
    };
    move |ready, shutdown| {
        Box::pin(async move {
            let (_looks, looks) = unbounded_channel();
            run_router(options, looks, ready, shutdown).await
        })
    }
}

/// A router daemon at work.
type RouterRun = Pin<Box<dyn Future<Output = Result<(), AgentError>>>>;

/// What `ip monitor` sees of routes in a node; ended when dropped.
struct Monitor(Child);

impl Monitor {
    fn start(lab: &Lab, node: &str) -> Monitor {
        let spawn = || Ok(Command::new("ip").args(["-6", "monitor", "route"]).stdout(Stdio::piped()).spawn().unwrap());
        let monitor = Monitor(lab.network.node(lab.id(node)).run(spawn).unwrap());
        // It prints nothing when it listens.
        thread::sleep(Duration::from_millis(300));
        monitor
    }

    /// How often a route to `destination` was removed.
    fn removals(mut self, destination: &str) -> usize {
        thread::sleep(Duration::from_millis(100));
        self.0.kill().unwrap();
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text.lines().filter(|line| line.starts_with("Deleted") && line.contains(destination)).count()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The binding SIDs that node `A` has, by the kernel.
fn sids(lab: &Lab) -> Vec<String> {
    let read = || {
        netlink::block_on(async |_| {
            let sids = netlink::BindingSids::open()?.read().await?;
            assert!(sids.values().all(|bound| bound.on_loopback));
            Ok(sids.keys().map(ToString::to_string).collect())
        })
    };
    lab.network.node(lab.id("A")).run(read).unwrap()
}

/// The value of a metric of the router daemon.
fn metric(lab: &Lab, name: &str) -> Option<f64> {
    let read = || {
        let mut page = String::new();
        let mut stream = TcpStream::connect(METRICS).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        stream.read_to_string(&mut page).unwrap();
        Ok(page)
    };
    let page = lab.network.node(lab.id("A")).run(read).unwrap();
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// A connection on the second path, which has a Path ID.
fn flow_on_the_second_path(lab: &Lab) -> Flow {
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    if slot(&flow.sender) == 1 {
        lab.swallow("A", "M", true);
        eventually("a move", || (slot(&flow.sender) == 2).then_some(()));
        lab.swallow("A", "M", false);
    }
    flow.pass(SOME);
    flow
}

#[test]
fn a_connection_outlives_the_deletion_of_an_interface_the_kill_of_its_router_and_a_flush_of_its_sid() {
    if !root_or_skip("a router daemon") {
        return;
    }
    let lab = Lab::new(TWO_PATHS);
    let Managed { agent: _agent, router, controller: _controller, state, endpoint, .. } = &mut managed(&lab);
    let flow = flow_on_the_second_path(&lab);
    let over_n = &lab.topology.link(lab.arc("A", "N").link()).name;
    let from_h = state.sets().into_iter().find(|set| set.from == "A").unwrap();
    let used = from_h.paths.iter().find(|path| path.links.contains(over_n)).unwrap().path.binding_sid.to_string();
    // Another takes over, whose first interface can go without harm to the network itself.
    for command in ["link add first type veth peer name other", "link set first up", "link set other up"] {
        lab.ip("A", command);
    }
    let links = [("M", "first"), ("N", "N")];
    let monitor = Monitor::start(&lab, "A");
    let hand_over = |router: &mut Router, end: End| {
        router.0.end(end).unwrap();
        assert!(flow.pass(SOME) < STANDSTILL);
        *router = Router::start(&lab, endpoint, &links);
        assert!(flow.pass(SOME) < STANDSTILL);
    };
    hand_over(router, End::Keep);
    assert_eq!(sids(&lab).len(), 2);

    // The interface goes, and with it all routes that name it.
    lab.ip("A", "link del first");
    assert!(flow.pass(SOME) < STANDSTILL);
    // The controller was notified of it: one path is left.
    eventually("a report that the link is down", || (state.sets()[0].paths.len() == 1).then_some(()));
    eventually("one Path ID", || (sids(&lab) == [used.clone()]).then_some(()));
    eventually("its metric", || (metric(&lab, "sidestep_router_path_ids") == Some(1.0)).then_some(()));

    hand_over(router, End::Killed);
    assert_eq!(sids(&lab), std::slice::from_ref(&used));
    assert_eq!(monitor.removals(&used), 0, "the SID was there all the time");

    // Another program removes it.
    lab.ip("A", &format!("-6 route del {used}/128"));
    eventually("the SID", || (sids(&lab) == [used.clone()]).then_some(()));
    flow.pass(SOME);
    eventually("the metric", || (metric(&lab, "sidestep_router_path_ids_put_back_total") == Some(1.0)).then_some(()));
}

#[test]
fn a_sid_that_another_program_replaces_under_our_number_is_back_within_a_second() {
    if !root_or_skip("a router daemon") {
        return;
    }
    let lab = Lab::new(TWO_PATHS);
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("unix:{}", directory.path().join("controller.sock").display());
    let (_controller, _) = controller(lab.topology.clone(), &endpoint);
    let _router = Router::start(&lab, &endpoint, &[("M", "M"), ("N", "N")]);
    eventually("Path IDs", || (sids(&lab).len() == 2).then_some(()));
    let put_back = || metric(&lab, "sidestep_router_path_ids_put_back_total").unwrap() as u64;
    let [one, other] = &sids(&lab)[..] else { unreachable!() };
    let damage = |what, commands| Damage { what, commands, counts: true };
    let elsewhere = format!("local {one}/128 encap seg6local action End.B6.Encaps srh segs {other} dev lo table main");
    assert_mends(
        lab.network.node(lab.id("A")),
        put_back,
        &[
            damage("a SID deleted", &format!("-6 route del {one}/128")),
            damage("a SID changed", &format!("-6 route replace {elsewhere}")),
            damage("a SID replaced", &format!("-6 route replace {elsewhere} proto 83")),
        ],
    );
}

#[test]
fn a_router_without_its_controller_keeps_what_it_finds_and_only_a_stop_removes_it() {
    if !root_or_skip("a router daemon") {
        return;
    }
    let lab = Lab::new(TWO_PATHS);
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("unix:{}", directory.path().join("controller.sock").display());
    let start = || Router::start(&lab, &endpoint, &[("M", "M"), ("N", "N")]);
    let filters = || tc_filters(&lab, "M") + tc_filters(&lab, "N");

    // Nothing is there, and no controller answers: it is ready all the same.
    let router = start();
    assert_eq!((sids(&lab).len(), filters()), (0, 2));
    let (first, _) = controller(lab.topology.clone(), &endpoint);
    eventually("Path IDs", || (sids(&lab).len() == 2).then_some(()));
    let before = sids(&lab);
    let second = Router::start_and_wait(&lab, &endpoint);
    assert!(matches!(second, Err(AgentError::Occupied { .. })), "{second:?}");

    let monitor = Monitor::start(&lab, "A");
    drop(first);
    router.end(End::Keep).unwrap();
    assert_eq!((sids(&lab), filters()), (before.clone(), 2));
    let router = start();
    assert_eq!((sids(&lab), filters()), (before.clone(), 2));
    router.end(End::Killed).unwrap();
    assert_eq!(sids(&lab), before);
    let router = start();
    assert_eq!((sids(&lab), filters()), (before.clone(), 2));
    assert_eq!(monitor.removals(":b:"), 0);

    assert!(stop(&lab));
    router.wait().unwrap();
    assert_eq!((sids(&lab).len(), filters()), (0, 0));
    assert!(!stop(&lab), "nothing is left");
    let (_controller, _) = controller(lab.topology.clone(), &endpoint);
    let router = start();
    eventually("the same Path IDs", || (sids(&lab) == before).then_some(()));
    router.end(End::Killed).unwrap();
    assert!(stop(&lab), "what a killed daemon left");
    assert_eq!((sids(&lab).len(), filters()), (0, 0));
    start().end(End::CleanUp).unwrap();
    assert_eq!((sids(&lab).len(), filters()), (0, 0));
}

#[test]
fn an_interface_that_is_absent_is_a_link_that_is_down_until_it_appears_whatever_its_index() {
    if !root_or_skip("a router daemon") {
        return;
    }
    let lab = Lab::new(TWO_PATHS);
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("unix:{}", directory.path().join("controller.sock").display());
    let (_controller, state) = controller(lab.topology.clone(), &endpoint);
    let _router = Router::start(&lab, &endpoint, &[("M", "M"), ("N", "later")]);
    let paths = |wanted: usize| {
        let count = || state.sets().iter().map(|set| set.paths.len()).max();
        eventually("the controller's paths", || (count() == Some(wanted)).then_some(()));
    };
    paths(1);
    for _ in 0..2 {
        lab.ip("A", "link add later type veth peer name other");
        lab.ip("A", "link set other up");
        lab.ip("A", "link set later up");
        paths(2);
        eventually("the program for ECN", || (tc_filters(&lab, "later") == 1).then_some(()));
        lab.ip("A", "link del later");
        paths(1);
    }
}

/// `sidestep router stop` in node `A`.
fn stop(lab: &Lab) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    lab.network.node(lab.id("A")).run(|| Ok(runtime.block_on(stop_router()).unwrap())).unwrap()
}

fn tc_filters(lab: &Lab, interface: &str) -> usize {
    let run = || Ok(Command::new("tc").args(["filter", "show", "dev", interface, "ingress"]).output().unwrap());
    let output = lab.network.node(lab.id("A")).run(run).unwrap();
    String::from_utf8_lossy(&output.stdout).matches("handle 0x5353").count()
}
