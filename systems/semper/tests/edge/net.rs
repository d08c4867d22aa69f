//! Two sites, their edge routers, and four paths between these; all gone when dropped.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    time::Duration,
};

use sidestep_linux::{
    netlink,
    netns::{NetNs, set_sysctl},
    testing::{self, cable},
};
use sidestep_semper::daemon::{
    EdgeConfig, EdgeOptions, EdgePlace, EdgeStatus, Tuple, edge_place, edge_status, run_edge,
};

use crate::daemon::Daemon;
pub use crate::daemon::Ending;
pub use sidestep_linux::testing::{ip, try_ip};

/// Longer than anything should take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How many paths there are: `p0` to `p3` at either edge.
pub const PATHS: usize = 4;
/// Bytes of one direction of [`Net::talk`]; the noise of neighbour discovery stays far below half of it.
pub const TALK: usize = 20_000;
pub const PORT: u16 = 5001;

/// The network: `a` – `e1` = four paths = `e2` – `b`.
pub struct Net {
    pub a: NetNs,
    pub e1: NetNs,
    pub e2: NetNs,
    pub b: NetNs,
}

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    V4,
    V6,
}

/// An edge daemon on a thread; cleans up when dropped.
pub type Edge = Daemon<EdgeConfig>;

impl Net {
    pub fn new() -> Net {
        let [a, e1, e2, b] = [(); 4].map(|()| NetNs::create().unwrap());
        let net = Net { a, e1, e2, b };
        for router in [&net.e1, &net.e2] {
            router
                .run(|| {
                    for (name, value) in [
                        ("ipv4/ip_forward", "1"),
                        ("ipv6/conf/all/forwarding", "1"),
                        ("ipv6/conf/all/seg6_enabled", "1"),
                        ("ipv6/conf/default/seg6_enabled", "1"),
                        ("ipv4/conf/all/rp_filter", "0"),
                        ("ipv4/conf/default/rp_filter", "0"),
                        ("ipv6/conf/all/keep_addr_on_down", "1"),
                        ("ipv6/conf/default/keep_addr_on_down", "1"),
                    ] {
                        set_sysctl(name, value)?;
                    }
                    Ok(())
                })
                .unwrap();
        }
        for node in [&net.a, &net.e1, &net.e2, &net.b] {
            // Errors must come, however many.
            let settings =
                [("ipv6/conf/default/accept_dad", "0"), ("ipv4/icmp_ratelimit", "0"), ("ipv6/icmp/ratelimit", "0")];
            node.run(|| settings.iter().try_for_each(|(name, value)| set_sysctl(name, value))).unwrap();
        }
        cable((&net.a, "in"), (&net.e1, "in"), "10.1.0", "fd01:0:0:1");
        cable((&net.b, "in"), (&net.e2, "in"), "10.2.0", "fd02:0:0:2");
        for path in 0..PATHS {
            let name = format!("p{path}");
            cable((&net.e1, &name), (&net.e2, &name), &format!("10.9.{path}"), &format!("fd09:0:0:{path}"));
        }
        ip(&net.a, "route add default via 10.1.0.2");
        ip(&net.a, "-6 route add default via fd01:0:0:1::2");
        ip(&net.b, "route add default via 10.2.0.2");
        ip(&net.b, "-6 route add default via fd02:0:0:2::2");
        // The routers' own routes: the first path.
        ip(&net.e1, "route add 10.2.0.0/16 via 10.9.0.2");
        ip(&net.e1, "-6 route add fd02::/16 via fd09::2");
        ip(&net.e2, "route add 10.1.0.0/16 via 10.9.0.1");
        ip(&net.e2, "-6 route add fd01::/16 via fd09::1");
        net
    }

    /// Bytes that an edge has sent on each path.
    pub fn sent(&self, edge: &NetNs) -> Vec<u64> {
        let read = || netlink::block_on(async |netlink| netlink.interfaces().await);
        let links: BTreeMap<_, _> =
            edge.run(read).unwrap().into_iter().map(|link| (link.name, link.tx_bytes)).collect();
        (0..PATHS).map(|path| links.get(&format!("p{path}")).copied().unwrap_or(0)).collect()
    }

    /// The path that has carried most at an edge since `before`.
    pub fn busiest(&self, edge: &NetNs, before: &[u64]) -> usize {
        let grown: Vec<_> =
            self.sent(edge).iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect();
        let busiest = (0..PATHS).max_by_key(|path| grown[*path]).unwrap();
        let others: u64 = grown.iter().sum::<u64>() - grown[busiest];
        assert!(grown[busiest] > TALK as u64 && others < TALK as u64 / 2, "{grown:?}");
        busiest
    }

    pub fn listen(&self, version: Ip) -> TcpListener {
        self.b.run(|| Ok(TcpListener::bind((version.at_b(), PORT)).unwrap())).unwrap()
    }

    pub fn connect(&self, version: Ip, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = self.a.run(|| Ok(TcpStream::connect((version.at_b(), PORT)).unwrap())).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Makes both ends of a connection send each other some bytes.
    pub fn talk(&self, (client, server): &mut (TcpStream, TcpStream)) {
        pass(client, server);
        pass(server, client);
    }

    /// Makes both ends of a connection send; returns the path of what `e1` has sent, and of what `e2` has.
    pub fn paths_of(&self, both: &mut (TcpStream, TcpStream)) -> [usize; 2] {
        let before = [self.sent(&self.e1), self.sent(&self.e2)];
        self.talk(both);
        [self.busiest(&self.e1, &before[0]), self.busiest(&self.e2, &before[1])]
    }

    /// Starts the daemon of an edge, and waits until it is ready.
    pub fn edge(&self, node: &NetNs, config: &str) -> Edge {
        let (edge, is_ready) = self.spawn(node, config, false);
        if is_ready.recv_timeout(PATIENCE).is_err() {
            panic!("the edge is not ready: {:?}", edge.end(Ending::Killed));
        }
        edge
    }

    /// Starts the daemon of an edge; the receiver gets a message when it is ready.
    pub fn spawn(&self, node: &NetNs, config: &str, dry_run: bool) -> (Edge, mpsc::Receiver<()>) {
        let config = EdgeConfig::parse(config).unwrap();
        self.spawn_with(
            node,
            EdgeOptions { config, table_base: 8400, priority: 8400, keep: false, offload: false, dry_run },
        )
    }

    /// The same with other options.
    pub fn spawn_with(&self, node: &NetNs, options: EdgeOptions) -> (Edge, mpsc::Receiver<()>) {
        Edge::spawn(node, |configs, ready, stopped| run_edge(options, configs, ready, stopped))
    }

    pub fn status(&self, node: &NetNs) -> EdgeStatus {
        node.run(|| Ok(edge_status().unwrap().expect("an edge works here"))).unwrap()
    }

    /// Where a flow is, as `sidestep edge where` shows at an edge.
    pub fn place(&self, node: &NetNs, flow: &Tuple) -> EdgePlace {
        let status = self.status(node);
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            Ok(runtime.block_on(edge_place(&status, flow)).unwrap().unwrap().expect("it is in a destination"))
        };
        node.run(ask).unwrap()
    }
}

impl Ip {
    pub fn at_a(self) -> IpAddr {
        if self == Ip::V4 { "10.1.0.1".parse().unwrap() } else { "fd01:0:0:1::1".parse().unwrap() }
    }

    pub fn at_b(self) -> IpAddr {
        if self == Ip::V4 { "10.2.0.1".parse().unwrap() } else { "fd02:0:0:2::1".parse().unwrap() }
    }
}

impl Edge {
    /// Makes it read another file.
    pub fn reload(&self, config: &str) {
        self.configure(EdgeConfig::parse(config).unwrap());
    }
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(&[7; TALK]).unwrap();
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    to.read_exact(&mut [0; TALK]).unwrap();
}

/// A file of an edge; `more` are further lines of `[edge]`.
pub fn config(near: bool, more: &str) -> String {
    let (sites, last) = if near { (["10.2.0.0/16", "fd02::/16"], 2) } else { (["10.1.0.0/16", "fd01::/16"], 1) };
    let path = |version: usize, path: usize| {
        let via = [format!("10.9.{path}.{last}"), format!("fd09:0:0:{path}::{last}")];
        format!("{{ name = \"path-{path}\", via = \"{}\", dev = \"p{path}\" }}", via[version])
    };
    let destination = |version: usize| {
        let paths: Vec<_> = (0..PATHS).map(|number| path(version, number)).collect();
        format!("[[destination]]\nprefix = \"{}\"\npath = [{}]\n", sites[version], paths.join(", "))
    };
    format!("[edge]\ninside = [\"in\"]\nsymmetric = true\n{more}\n{}{}", destination(0), destination(1))
}

/// Waits until `check` gives something.
pub fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    testing::eventually(what, PATIENCE, check)
}

/// A flow as `sidestep edge where` takes it.
pub fn tuple(protocol: &str, from: SocketAddr, to: SocketAddr) -> sidestep_semper::daemon::Tuple {
    format!("{protocol} {from} {to}").parse().unwrap()
}
