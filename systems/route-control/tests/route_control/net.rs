//! A site behind an edge router with two egresses, two transit routers, and the rest of the world; all gone when dropped.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sidestep_linux::{
    netlink,
    netns::{NetNs, set_sysctl},
    testing::{self, cable},
};
use sidestep_route_control::daemon::{
    RouteControlConfig, RouteControlOptions, RouteControlStatus, route_control_status, run_route_control,
};

use crate::daemon::Daemon;
pub use crate::daemon::Ending;
pub use sidestep_linux::testing::{ip, try_ip};

/// Longer than anything should take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(40);
const PORT: u16 = 5001;

/// The network: `host` – `edge` = `transit[0]` and `transit[1]` = `world`.
///
/// The world has a server and three targets. It answers the site by the first transit always, and what comes from the edge's own
/// addresses by the transit of that link. So an outage towards the world is one of a path, and the path back is not in question.
pub struct Net {
    pub host: NetNs,
    pub edge: NetNs,
    pub transit: [NetNs; 2],
    pub world: NetNs,
}

/// A running daemon; when dropped it is ended.
pub type Control = Daemon<RouteControlConfig>;

impl Net {
    pub fn new() -> Net {
        let node = |forwards: bool| {
            let node = NetNs::create().unwrap();
            let prepare = || {
                if forwards {
                    set_sysctl("ipv4/ip_forward", "1")?;
                    set_sysctl("ipv6/conf/all/forwarding", "1")?;
                }
                for name in ["ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter"] {
                    set_sysctl(name, "0")?;
                }
                set_sysctl("ipv6/conf/default/accept_dad", "0")?;
                // Else addresses of IPv6 go with an interface that goes down.
                set_sysctl("ipv6/conf/default/keep_addr_on_down", "1")?;
                netlink::block_on(async |netlink| netlink.loopback_up().await)
            };
            node.run(prepare).unwrap();
            node
        };
        let net = Net { host: node(false), edge: node(true), transit: [node(true), node(true)], world: node(true) };
        cable((&net.host, "north"), (&net.edge, "site"), "10.1.0", "fd01:0:0:1");
        for (number, transit) in net.transit.iter().enumerate() {
            let out = format!("p{number}");
            cable((&net.edge, &out), (transit, "site"), &format!("10.9.{number}"), &format!("fd09:0:0:{number}"));
            cable((transit, "north"), (&net.world, &out), &format!("10.8.{number}"), &format!("fd08:0:0:{number}"));
            ip(transit, &format!("route add 10.2.0.0/15 via 10.8.{number}.2"));
            ip(transit, &format!("-6 route add fd02::/15 via fd08:0:0:{number}::2"));
            ip(transit, &format!("route add 10.1.0.0/16 via 10.9.{number}.1"));
            ip(transit, &format!("-6 route add fd01::/16 via fd09:0:0:{number}::1"));
            ip(&net.world, &format!("route add 10.9.{number}.0/24 via 10.8.{number}.1"));
            ip(&net.world, &format!("-6 route add fd09:0:0:{number}::/64 via fd08:0:0:{number}::1"));
        }
        ip(&net.host, "route add default via 10.1.0.2");
        ip(&net.host, "-6 route add default via fd01:0:0:1::2");
        ip(&net.edge, "route add default via 10.9.0.2");
        ip(&net.edge, "-6 route add default via fd09::2");
        ip(&net.world, "route add 10.1.0.0/16 via 10.8.0.1");
        ip(&net.world, "-6 route add fd01::/16 via fd08::1");
        for address in ["10.2.0.1", "10.3.0.1", "10.3.0.2", "10.3.0.3"] {
            ip(&net.world, &format!("addr add {address}/32 dev lo"));
        }
        for address in ["fd02::1", "fd03::1"] {
            ip(&net.world, &format!("-6 addr add {address}/128 dev lo"));
        }
        net
    }

    /// Loses everything that a transit gets for the world, silently; or no longer.
    pub fn cut(&self, transit: usize, dead: bool) {
        let action = if dead { "add" } else { "del" };
        for half in ["10.2.0.0/16", "10.3.0.0/16"] {
            ip(&self.transit[transit], &format!("route {action} blackhole {half}"));
        }
        for half in ["fd02::/16", "fd03::/16"] {
            ip(&self.transit[transit], &format!("-6 route {action} blackhole {half} metric 10"));
        }
    }

    /// Makes a transit lose `percent` of a hundred packets in each direction, at random.
    pub fn lose(&self, transit: usize, percent: u32) {
        let rules = format!(
            "add table inet loss; add chain inet loss forward {{ type filter hook forward priority 0; }}; \
             add rule inet loss forward numgen random mod 100 < {percent} drop"
        );
        run_in(&self.transit[transit], "nft", &[&rules]);
    }

    /// Makes a transit lose `percent` of a hundred probes by ICMP, and nothing else; zero ends that.
    pub fn lose_probes(&self, transit: usize, percent: u32) {
        let share = if percent < 100 { format!("numgen random mod 100 < {percent}") } else { String::new() };
        let rules = format!(
            "add table inet probes; delete table inet probes; add table inet probes; \
             add chain inet probes forward {{ type filter hook forward priority 0; }}; \
             add rule inet probes forward ip protocol icmp {share} drop"
        );
        run_in(&self.transit[transit], "nft", &[&rules]);
    }

    /// Makes a transit lose a fifth of what goes to the reflector at port 8620 (`dport`), or comes from it (`sport`), and no more
    /// of the other.
    pub fn lose_stamp(&self, transit: usize, port: &str) {
        let rules = format!(
            "add table inet stamp; delete table inet stamp; add table inet stamp; \
             add chain inet stamp forward {{ type filter hook forward priority 0; }}; \
             add rule inet stamp forward udp {port} 8620 numgen random mod 100 < 20 drop"
        );
        run_in(&self.transit[transit], "nft", &[&rules]);
    }

    /// Makes a transit send to the world no faster than this, with a queue of 100 ms.
    pub fn limit(&self, transit: usize, rate: &str) {
        let arguments = format!("qdisc add dev north root tbf rate {rate} burst 10k latency 100ms");
        run_in(&self.transit[transit], "tc", &arguments.split(' ').collect::<Vec<_>>());
    }

    /// Makes the edge give what leaves by an egress the address of that.
    pub fn masquerade(&self) {
        let rules = "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; \
                     add rule ip nat post oifname { p0, p1 } masquerade";
        run_in(&self.edge, "nft", &[rules]);
    }

    /// A connection that begins while the second egress is in use, and outlives that.
    pub fn talk_by_second(&self) -> TcpStream {
        self.cut(0, true);
        self.until_active("second");
        let address = SocketAddr::new("10.3.0.2".parse().unwrap(), PORT);
        let listener = self.world.run(|| Ok(TcpListener::bind(address).unwrap())).unwrap();
        let client = self.host.run(|| Ok(TcpStream::connect(address).unwrap())).unwrap();
        let mut server = listener.accept().unwrap().0;
        thread::spawn(move || while server.read(&mut [0; 100]).is_ok_and(|length| length > 0) {});
        self.cut(0, false);
        self.until_active("first");
        client
    }

    pub fn flush_flows(&self) {
        run_in(&self.edge, "nft", &["delete table inet sidestep-8500"]);
    }

    /// Whether the table of flows is there.
    pub fn has_flows(&self) -> bool {
        let run = || Ok(Command::new("nft").args(["list", "tables"]).output().expect("nft is installed"));
        String::from_utf8_lossy(&self.edge.run(run).unwrap().stdout).contains("inet sidestep-8500")
    }

    /// Bytes that the edge has sent by an egress.
    pub fn sent(&self, egress: usize) -> u64 {
        let read = || netlink::block_on(async |netlink| netlink.interfaces().await);
        let links = self.edge.run(read).unwrap();
        links.iter().find(|link| link.name == format!("p{egress}")).map_or(0, |link| link.tx_bytes)
    }

    /// Starts the daemon, and waits until it is ready.
    pub fn control(&self, config: &str) -> Control {
        let (control, is_ready) = self.spawn(config, false);
        if is_ready.recv_timeout(PATIENCE).is_err() {
            panic!("the route controller is not ready: {:?}", control.end(Ending::Killed));
        }
        control
    }

    /// Starts the daemon; the receiver gets a message when it is ready.
    pub fn spawn(&self, config: &str, dry_run: bool) -> (Control, mpsc::Receiver<()>) {
        let config = RouteControlConfig::parse(config).unwrap_or_else(|error| panic!("{error}"));
        let options = RouteControlOptions { config, table_base: 8500, priority: 8500, keep: false, dry_run };
        Control::spawn(&self.edge, |configs, ready, stopped| run_route_control(options, configs, ready, stopped))
    }

    pub fn status(&self) -> RouteControlStatus {
        self.edge.run(|| Ok(route_control_status().unwrap().expect("a route controller works here"))).unwrap()
    }

    /// Waits until this egress is in use; returns how long that took.
    pub fn until_active(&self, name: &str) -> Duration {
        let begin = Instant::now();
        eventually(&format!("{name} in use"), || (self.status().active == name).then_some(()));
        begin.elapsed()
    }

    /// Waits until both egresses were measured and are fine.
    pub fn until_fine(&self) {
        let is_fine = |status: &RouteControlStatus| status.egresses.iter().all(|one| one.seen.health == "fine");
        eventually("two fine egresses", || is_fine(&self.status()).then_some(()));
    }

    /// The host sends to the world without a pause.
    pub fn flow(&self, to: IpAddr) -> Flow {
        Flow::start(self, to, BLOCK)
    }

    /// The host sends to the world as fast as it can.
    pub fn load(&self, to: IpAddr) -> Flow {
        Flow::start(self, to, 50 * BLOCK)
    }

    /// The programs on the egresses' interfaces.
    pub fn filters(&self) -> String {
        let sides = ["p0", "p1"].into_iter().flat_map(|dev| [(dev, "ingress"), (dev, "egress")]);
        let shown = sides.map(|(dev, side)| {
            let run = || Ok(Command::new("tc").args(["filter", "show", "dev", dev, side]).output().expect("tc"));
            String::from_utf8_lossy(&self.edge.run(run).unwrap().stdout).into_owned()
        });
        shown.collect()
    }

    /// Asserts that nothing of a route controller is in the kernel.
    pub fn assert_nothing_is_left(&self) {
        for version in ["-4", "-6"] {
            let rules = ip(&self.edge, &format!("{version} rule"));
            assert!(!rules.contains("lookup 85"), "{rules}");
            assert_eq!(ip(&self.edge, &format!("{version} route show table all proto 83")), "");
        }
        assert_eq!(self.filters(), "");
    }
}

/// A connection on which the host sends without a pause, and the world checks every byte.
pub struct Flow {
    ends: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    sender: Option<JoinHandle<u64>>,
    receiver: Option<JoinHandle<u64>>,
}

/// Bytes sent at once, and how often: about 2 Mbit/s.
const BLOCK: usize = 2_000;
const EVERY: Duration = Duration::from_millis(8);

fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9) >> 24) as u8
}

impl Flow {
    /// Sends `block` bytes each [`EVERY`].
    fn start(net: &Net, to: IpAddr, block: usize) -> Flow {
        let address = SocketAddr::new(to, PORT);
        let listener = net.world.run(|| Ok(TcpListener::bind(address).unwrap())).unwrap();
        let mut client = net.host.run(|| Ok(TcpStream::connect(address).unwrap())).unwrap();
        let mut server = listener.accept().unwrap().0;
        let (ends, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let is_end = ends.clone();
        let sender = thread::spawn(move || {
            let mut position = 0;
            while !is_end.load(Ordering::Relaxed) {
                let bytes: Vec<u8> = (position..position + block as u64).map(byte_at).collect();
                client.write_all(&bytes).expect("the connection goes on");
                position += block as u64;
                thread::sleep(EVERY);
            }
            position
        });
        let count = received.clone();
        let receiver = thread::spawn(move || {
            let (mut buffer, mut position) = ([0; 65_536], 0);
            loop {
                let length = server.read(&mut buffer).expect("the connection goes on");
                if length == 0 {
                    return position;
                }
                for byte in &buffer[..length] {
                    assert_eq!(*byte, byte_at(position), "at {position}");
                    position += 1;
                }
                count.store(position, Ordering::Relaxed);
            }
        });
        Flow { ends, received, sender: Some(sender), receiver: Some(receiver) }
    }

    /// Bytes that have arrived in order.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits until more arrives than has until now.
    pub fn goes_on(&self) {
        let before = self.received();
        eventually("more bytes", || (self.received() > before + 20_000).then_some(()));
    }

    /// Ends the connection, and asserts that all that was sent has arrived.
    pub fn end(mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let sent = self.sender.take().unwrap().join().unwrap();
        assert_eq!(self.receiver.take().unwrap().join().unwrap(), sent, "all that was sent arrives, in order");
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

impl Control {
    /// Makes it read another file.
    pub fn reload(&self, config: &str) {
        self.configure(RouteControlConfig::parse(config).unwrap());
    }
}

/// What [`file`] says of the first target.
pub const TARGET: &str = "[[target]]\naddress = \"10.3.0.1\"\nrate = 10\n";

/// A file with short periods; `more` are further lines of `[route_control]`.
pub fn file(more: &str) -> String {
    let target = |last: u32| format!("[[target]]\naddress = \"10.3.0.{last}\"\nrate = 10\n");
    format!(
        "[route_control]\ndestinations = [\"0.0.0.0/0\", \"::/0\"]\n{more}\n\
         [control]\nrouting_period = \"500 ms\"\nmeasurement_period = \"400 ms\"\nprobe_interval = \"33 ms\"\n\
         loss_timeout = \"200 ms\"\n\
         [damping]\nenabled = false\n\
         [[egress]]\nname = \"first\"\ndev = \"p0\"\nvia = [\"10.9.0.2\", \"fd09::2\"]\n\
         [[egress]]\nname = \"second\"\ndev = \"p1\"\nvia = [\"10.9.1.2\", \"fd09:0:0:1::2\"]\n{}{}{}",
        target(1),
        target(2),
        target(3)
    )
}

fn run_in(node: &NetNs, program: &str, arguments: &[&str]) {
    let run = || Ok(Command::new(program).args(arguments).output().expect("the program is installed"));
    let output = node.run(run).unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// Changes the rules of a node's firewall.
pub fn nft(node: &NetNs, rules: &str) {
    run_in(node, "nft", &[rules]);
}

/// Waits until `check` gives something.
pub fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    testing::eventually(what, PATIENCE, check)
}
