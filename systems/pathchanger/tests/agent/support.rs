//! A network, an agent and a connection, each gone when dropped.

mod agent;
mod daemon;
mod flow;
mod program;
mod sockets;
mod trace;

use std::{
    io::ErrorKind,
    net::{Ipv6Addr, SocketAddrV6, TcpListener, TcpStream},
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use ipnet::Ipv6Net;
use nix::sys::socket::{getsockopt, sockopt};
use sidestep_lab::{
    Network,
    plan::{self, Multipath},
};
use sidestep_linux::cgroup::Cgroup;
use sidestep_net::{
    ArcId, Channel, Link, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology, srv6,
};
use sidestep_paths::Igp;
use sidestep_proto::link::LinkState;
use sidestep_scenario::TcpSettings;

pub use self::{
    agent::{Agent, TABLE_BASE, plain, segments, settings, tail, via},
    daemon::{Daemon, End, Ready, Stopping},
    flow::Flow,
    program::{PRIORITY, installed, program, run_agent, start, stop_agent, via_text, within},
    sockets::{connect, datagram_socket_in, listen, socket_in, socket_of},
    trace::Trace,
};

/// Longer than anything should take on a machine that is busy with other tests, and less than the periods of daemons that look
/// again by the clock.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a daemon may take to start: one that is traced, or on a busy or emulated machine.
pub const READY: Duration = Duration::from_secs(90);
/// The bits of a mark that are the agent's, as its settings have it by default.
pub const MASK: u32 = 0x3f00_0000;
/// Where servers listen.
pub const PORT: u16 = 5001;

/// Bytes that show that a connection carries, in a tenth of a second.
pub const SOME: u64 = 200_000;
/// Bytes that a link without the connection does not exceed: the kernel's own multicast.
pub const LITTLE: u64 = 10_000;

/// A network that exists, and a control group for the sockets that the agent may move.
pub struct Lab {
    pub topology: Topology,
    pub network: Network,
    pub cgroup: TestGroup,
}

/// A control group; removed when dropped.
pub struct TestGroup(pub Cgroup);

/// A host with two providers, of which the first is its default, and a server.
pub const TWO_PROVIDERS: &[(&str, &str, u32)] =
    &[("h", "R1", 1), ("h", "R2", 1), ("R1", "Z", 1), ("R2", "Z", 1), ("Z", "s", 1)];

impl Lab {
    /// Builds these links, each with its weight; nodes in lower case are hosts.
    pub fn new(links: &[(&str, &str, u32)]) -> Lab {
        Self::with_links(links, |_, _| {})
    }

    /// Builds these links, each with its weight; `adjust` may change each channel, by the name of the node that sends.
    pub fn with_links(links: &[(&str, &str, u32)], adjust: impl Fn(&str, &mut Channel)) -> Lab {
        let mut topology = Topology::new();
        for (from, to, weight) in links {
            let [a, b] = [from, to].map(|name| node(&mut topology, name));
            let queue = Queue { limit: QueueLimit::Packets(1_000), ecn_threshold: None, red: None };
            let (rate, delay) = (Rate::default(), Span::from_millis(1));
            let channel = Channel { rate, delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: (*weight).into() };
            let name = format!("link-{}", topology.links().len());
            let [ab, ba] = [from, to].map(|sender| {
                let mut channel = channel;
                adjust(sender, &mut channel);
                channel
            });
            topology.add_link(Link { name, a, b, ab, ba, mtu: 1500 }).unwrap();
        }
        srv6::assign_addresses(&mut topology);
        let plans = plan::plan(&topology, &Igp::new(&topology), Multipath::Single).unwrap();
        let network = Network::build(&topology, plans, &TcpSettings::default(), 1).unwrap();
        Lab { topology, network, cgroup: TestGroup::new() }
    }

    pub fn id(&self, node: &str) -> NodeId {
        self.topology.find(node).unwrap()
    }

    pub fn prefix(&self, host: &str) -> Ipv6Net {
        self.topology.node(self.id(host)).prefix.unwrap()
    }

    pub fn locator(&self, router: &str) -> Ipv6Net {
        self.topology.node(self.id(router)).locator.unwrap()
    }

    pub fn address(&self, host: &str) -> Ipv6Addr {
        srv6::host_address(self.prefix(host))
    }

    /// The arcs from one node to the other; several for parallel links.
    pub fn arcs(&self, from: &str, to: &str) -> Vec<ArcId> {
        let to = self.id(to);
        let outgoing = self.topology.outgoing(self.id(from)).iter();
        outgoing.filter(|arc| self.topology.head(**arc) == to).copied().collect()
    }

    pub fn arc(&self, from: &str, to: &str) -> ArcId {
        self.arcs(from, to)[0]
    }

    /// Makes links swallow every packet from one node to the other, but not back; or makes them carry packets again.
    pub fn swallow(&self, from: &str, to: &str, swallow: bool) {
        let state = if swallow { LinkState::Blackhole } else { LinkState::Up };
        self.network.wires().set_state(self.arc(from, to), state).unwrap();
        // Wires answer in order: when these have, the link is in its new state.
        self.network.wires().stats().unwrap();
    }

    /// Bytes that an arc has carried.
    pub fn carried(&self, arc: ArcId) -> u64 {
        self.network.wires().stats().unwrap().arcs[arc.index()].counters.bytes.get()
    }

    /// Waits until what a connection sends goes over a link. What was in flight before may arrive by another.
    pub fn wait_until_over(&self, flow: &Flow, from: &str, to: &str) {
        let arc = self.arc(from, to);
        eventually(&format!("a connection over the link from {from} to {to}"), || {
            let before = self.carried(arc);
            flow.pass(SOME);
            (self.carried(arc) >= before + SOME / 2).then_some(())
        });
    }

    /// The number of the interface of a node towards its neighbour.
    pub fn interface(&self, node: &str, neighbour: &str) -> i32 {
        let link = self.ip(node, &format!("-o link show dev {neighbour}"));
        link.split(':').next().and_then(|number| number.parse().ok()).unwrap()
    }

    /// Connects from `host`, with a socket of the control group, to a server on `server`.
    pub fn connect(&self, host: &str, server: &str) -> (TcpStream, TcpStream) {
        let listener = self.serve(server);
        let socket = socket_in(&self.cgroup.0, self.network.node(self.id(host)), libc::AF_INET6);
        let client = connect(socket, SocketAddrV6::new(self.address(server), PORT, 0, 0)).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// A server outside the control group.
    pub fn serve(&self, server: &str) -> TcpListener {
        let bind = || match TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)) {
            // A child that another test has just forked has a copy of the last listener, until it runs its program.
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            listener => Ok(Some(listener.unwrap())),
        };
        eventually("a port that is free", || self.network.node(self.id(server)).run(bind).unwrap())
    }

    /// Whether iproute2 does in a node what it is asked.
    pub fn try_ip(&self, node: &str, arguments: &str) -> bool {
        self.iproute2(node, arguments).status.success()
    }

    fn iproute2(&self, node: &str, arguments: &str) -> Output {
        let run = || Ok(Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed"));
        self.network.node(self.id(node)).run(run).unwrap()
    }

    /// What iproute2 prints in a node, in one line.
    pub fn ip(&self, node: &str, arguments: &str) -> String {
        let output = self.iproute2(node, arguments);
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        one_line(&output)
    }

    /// What iproute2 prints in a node, in one line; also where it fails, as it does for a table without routes.
    pub fn ip_output(&self, node: &str, arguments: &str) -> String {
        one_line(&self.iproute2(node, arguments))
    }
}

fn one_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

impl TestGroup {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        TestGroup(Cgroup::create(&format!("sidestep-test-{}-{number}", std::process::id())).unwrap())
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        if let Err(error) = self.0.destroy() {
            eprintln!("{error}");
        }
    }
}

/// The mark of a socket.
pub fn mark(socket: &TcpStream) -> u32 {
    getsockopt(socket, sockopt::Mark).unwrap()
}

/// Number of the path that a socket's mark names, counted from one; zero for the default route.
pub fn slot(socket: &TcpStream) -> usize {
    ((mark(socket) & MASK) >> MASK.trailing_zeros()) as usize
}

/// Waits until `check` gives something.
pub fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    sidestep_linux::testing::eventually(what, PATIENCE, check)
}

fn node(topology: &mut Topology, name: &str) -> NodeId {
    let kind = if name.starts_with(|c: char| c.is_ascii_lowercase()) { NodeKind::Host } else { NodeKind::Router };
    if let Ok(id) = topology.find(name) {
        return id;
    }
    topology.add_node(Node { name: name.into(), kind, prefix: None, locator: None }).unwrap()
}
