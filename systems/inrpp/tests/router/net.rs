//! Two hosts, and three routers between them of which one is a detour; all gone when dropped.
//!
//! ```text
//! h1 ── a ════ b ── h2
//!        ╲    ╱
//!          c            ══ and ╲ ╱: the rate of the test, by a token bucket of the kernel
//! ```

use std::{
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sidestep_inrpp::daemon::{InrppStatus, PortState, inrpp_status};
pub use sidestep_linux::testing::ip;
use sidestep_linux::{
    netns::{NetNs, set_sysctl},
    testing::cable,
};

/// Longer than anything should take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// What a child process finds its configuration by, and that it is one.
pub const CHILD: &str = "SIDESTEP_TEST_INRPP_CONFIG";

/// Routers' names, in the order of [`Net::nodes`].
pub const NAMES: [&str; 3] = ["a", "b", "c"];
/// Two routers, and what their addresses begin with.
pub type InnerLink = (usize, usize, &'static str, &'static str);
/// The links between routers.
pub const LINKS: [InnerLink; 3] =
    [(0, 1, "10.9.1", "fd09:0:0:1"), (0, 2, "10.9.2", "fd09:0:0:2"), (2, 1, "10.9.3", "fd09:0:0:3")];

pub struct Net {
    pub h1: NetNs,
    pub a: NetNs,
    pub b: NetNs,
    pub c: NetNs,
    pub h2: NetNs,
    pub files: tempfile::TempDir,
    pub rate: u32,
}

/// A router's process.
pub struct Router {
    pub child: Child,
    pub config: PathBuf,
}

impl Router {
    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that carries data.
pub struct Stream {
    stop: Arc<AtomicBool>,
    sending: thread::JoinHandle<usize>,
    receiving: thread::JoinHandle<(usize, Duration)>,
}

impl Stream {
    /// Ends it; returns the longest time without data. All that was sent has arrived.
    pub fn end(self) -> Duration {
        self.end_with_bytes().1
    }

    /// The same, with the bytes that it has carried.
    pub fn end_with_bytes(self) -> (usize, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sending.join().unwrap();
        let (received, longest) = self.receiving.join().unwrap();
        assert_eq!(received, sent);
        (received, longest)
    }
}

/// How a link between routers is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Udp,
    Ethernet,
    Tcp,
}

impl Net {
    /// The network, whose inner links carry `rate` Mbit/s.
    pub fn new(rate: u32) -> Net {
        let [h1, a, b, c, h2] = [(); 5].map(|()| NetNs::create().unwrap());
        let net = Net { h1, a, b, c, h2, files: tempfile::tempdir().unwrap(), rate };
        for node in [&net.h1, &net.a, &net.b, &net.c, &net.h2] {
            let settings = [
                ("ipv6/conf/default/accept_dad", "0"),
                ("ipv4/conf/all/rp_filter", "0"),
                ("ipv4/conf/default/rp_filter", "0"),
            ];
            node.run(|| settings.iter().try_for_each(|(name, value)| set_sysctl(name, value))).unwrap();
        }
        for router in [&net.a, &net.b, &net.c] {
            let settings = [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];
            router.run(|| settings.iter().try_for_each(|(name, value)| set_sysctl(name, value))).unwrap();
        }
        cable((&net.h1, "out"), (&net.a, "h1"), "10.1.0", "fd01:0:0:1");
        cable((&net.b, "h2"), (&net.h2, "out"), "10.2.0", "fd02:0:0:2");
        for link in LINKS {
            net.lay(link);
        }
        ip(&net.h1, "route add default via 10.1.0.2");
        ip(&net.h1, "-6 route add default via fd01:0:0:1::2");
        ip(&net.h2, "route add default via 10.2.0.1");
        ip(&net.h2, "-6 route add default via fd02:0:0:2::1");
        net.add_routes();
        net
    }

    /// Gives the routers' links room for a shim around packets of 1,500 bytes.
    pub fn widen(&self) {
        for (node, link) in [
            (&self.a, "to-b"),
            (&self.b, "to-a"),
            (&self.a, "to-c"),
            (&self.c, "to-a"),
            (&self.c, "to-b"),
            (&self.b, "to-c"),
        ] {
            ip(node, &format!("link set {link} mtu 1600"));
        }
    }

    /// The routers, in the order of their daemons.
    pub fn nodes(&self) -> [&NetNs; 3] {
        [&self.a, &self.b, &self.c]
    }

    /// Makes the cable of an inner link, and has it carry the rate of the test.
    pub fn lay(&self, (near, far, v4, v6): InnerLink) {
        let (near, far) = ((self.nodes()[near], NAMES[far]), (self.nodes()[far], NAMES[near]));
        cable((near.0, &format!("to-{}", near.1)), (far.0, &format!("to-{}", far.1)), v4, v6);
        for (node, peer) in [near, far] {
            let rate = self.rate;
            ip(node, &format!("tc qdisc add dev to-{peer} root tbf rate {rate}mbit burst 20kb latency 30ms"));
        }
    }

    /// Adds the routes that are not there: between `a` and `b`, and as a last resort over `c`.
    pub fn add_routes(&self) {
        let add = |node: &NetNs, route: &str| {
            let (family, route) = route.split_at(if route.starts_with("-6 ") { 3 } else { 0 });
            ip(node, &format!("{family}route replace {route}"));
        };
        for (node, routes) in [
            (&self.a, ["10.2.0.0/16 via 10.9.1.2", "-6 fd02::/16 via fd09:0:0:1::2"]),
            (&self.b, ["10.1.0.0/16 via 10.9.1.1", "-6 fd01::/16 via fd09:0:0:1::1"]),
        ] {
            routes.iter().for_each(|route| add(node, route));
        }
    }

    /// Leads IPv4 over `c`, both ways.
    pub fn lead_over_c(&self) {
        for (node, route) in [
            (&self.c, "10.2.0.0/16 via 10.9.3.2"),
            (&self.c, "10.1.0.0/16 via 10.9.2.1"),
            (&self.a, "10.2.0.0/16 via 10.9.2.2"),
            (&self.b, "10.1.0.0/16 via 10.9.3.1"),
        ] {
            ip(node, &format!("route replace {route}"));
        }
    }

    /// The three routers' daemons, when all neighbours answer.
    pub fn routers(&self, over: Over, more: &str) -> [Router; 3] {
        let routers =
            [("a", &self.a), ("b", &self.b), ("c", &self.c)].map(|(name, node)| self.start(node, name, over, more));
        for node in [&self.a, &self.b, &self.c] {
            self.answers(node);
        }
        routers
    }

    /// The routers `a` and `b`, each with its key for the link between them.
    pub fn with_keys(&self, keys: [&str; 2]) -> [Router; 2] {
        let mut each = [("a", &self.a), ("b", &self.b)].into_iter().zip(keys);
        std::array::from_fn(|_| {
            let ((name, node), key) = each.next().unwrap();
            let file = self.files.path().join(format!("{name}.key"));
            fs::write(&file, key).unwrap();
            fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let config =
                self.config(name, Over::Udp, "").replace("key_file = \"none\"", &format!("key_file = {file:?}"));
            // Without `c`, which would not answer.
            let (head, rest) = config.split_once("[[neighbour]]\nname = \"c\"").unwrap();
            let edge = rest.find("[[edge]]").map_or("", |at| &rest[at..]);
            let path = self.files.path().join(format!("{name}.toml"));
            fs::write(&path, format!("{head}{edge}")).unwrap();
            self.start_file(node, &path)
        })
    }

    /// The three routers' daemons, with their files changed.
    pub fn routers_with(&self, change: impl Fn(String) -> String) -> [Router; 3] {
        let routers = [("a", &self.a), ("b", &self.b), ("c", &self.c)].map(|(name, node)| {
            let path = self.files.path().join(format!("{name}.toml"));
            fs::write(&path, change(self.config(name, Over::Udp, ""))).unwrap();
            self.start_file(node, &path)
        });
        for node in [&self.a, &self.b, &self.c] {
            self.answers(node);
        }
        routers
    }

    /// Waits until all neighbours of a router answer.
    pub fn answers(&self, node: &NetNs) {
        eventually("neighbours answer", || {
            self.status(node).is_some_and(|status| {
                status.ports.iter().all(|port| matches!(port.state, PortState::Alive | PortState::Edge))
            })
        });
    }

    pub fn start(&self, node: &NetNs, name: &str, over: Over, more: &str) -> Router {
        let config = self.files.path().join(format!("{name}.toml"));
        fs::write(&config, self.config(name, over, more)).unwrap();
        self.start_file(node, &config)
    }

    pub fn start_file(&self, node: &NetNs, config: &Path) -> Router {
        self.start_with(node, config, &[], "")
    }

    pub fn start_with(&self, node: &NetNs, config: &Path, variables: &[(&str, &str)], wrapper: &str) -> Router {
        start_daemon(node, config, variables, wrapper)
    }

    /// Starts a router that takes the place of another, whose process ends then.
    pub fn take_over(&self, node: &NetNs, before: &mut Router) -> Router {
        let successor = self.start_with(node, &before.config, &[("TAKEOVER", "1")], "");
        eventually("a successor takes over", || before.child.try_wait().unwrap().is_some());
        assert!(before.child.wait().unwrap().success());
        self.answers(node);
        successor
    }

    /// Segments that `h1` has sent again.
    pub fn sent_again(&self) -> u64 {
        sent_again(&self.h1)
    }

    /// Segments that `h1` has sent again, and those of them that its peers had already, as their DSACKs say (RFC 2883).
    pub fn sent_again_and_had(&self) -> (u64, u64) {
        (self.sent_again(), counter(&self.h1, "netstat", "TcpExt:", "TCPDSACKRecvSegs"))
    }

    /// The file of a router; its ports stay a little below what the token buckets carry.
    pub fn config(&self, name: &str, over: Over, more: &str) -> String {
        let links: [(&str, &str, usize); 2] = match name {
            "a" => [("b", "10.9.1", 1), ("c", "10.9.2", 1)],
            "b" => [("a", "10.9.1", 2), ("c", "10.9.3", 2)],
            _ => [("a", "10.9.2", 2), ("b", "10.9.3", 1)],
        };
        let rate = u64::from(self.rate) * 985;
        let mut text = format!("[inrpp]\nname = \"{name}\"\ncache = \"4 MB\"\n{more}\n");
        for (neighbour, net, end) in links {
            let (own, other) = (format!("{net}.{end}"), format!("{net}.{}", 3 - end));
            // Two links of the others have the same port, and addresses that the kernel chooses.
            let local = if name == "b" { format!("local = \"{own}\"\n") } else { String::new() };
            let link = match over {
                Over::Udp => format!("link = \"udp\"\n{local}remote = \"{other}\"\n"),
                Over::Ethernet => "link = \"ethernet\"\n".into(),
                Over::Tcp => {
                    format!("link = \"tcp\"\n{local}remote = \"{other}\"\nlisten = {}\n", end == 1)
                }
            };
            text += &format!(
                "[[neighbour]]\nname = \"{neighbour}\"\ninterface = \"to-{neighbour}\"\nrate = \"{rate} kbit/s\"\n{link}key_file = \"none\"\n"
            );
        }
        let edge = match name {
            "a" => "[[edge]]\ninterface = \"h1\"\n",
            "b" => "[[edge]]\ninterface = \"h2\"\n",
            _ => "",
        };
        text + edge
    }

    pub fn status(&self, node: &NetNs) -> Option<InrppStatus> {
        node.run(|| Ok(inrpp_status().ok().flatten())).unwrap()
    }

    /// Sends so many bytes over a connection from `h1` to `h2`, or back; returns how long that took. Every byte is checked.
    pub fn transfer(&self, bytes: usize, v6: bool, back: bool) -> Duration {
        let (client, server) = self.connection(v6);
        let began = Instant::now();
        let (mut from, mut to) = if back { (server, client) } else { (client, server) };
        let sending = thread::spawn(move || {
            let mut sent = 0;
            while sent < bytes {
                let block = block(sent, (bytes - sent).min(65_536));
                from.write_all(&block).unwrap();
                sent += block.len();
            }
            from.shutdown(std::net::Shutdown::Write).unwrap();
            from
        });
        let mut received = 0;
        let mut buffer = vec![0; 65_536];
        loop {
            let len = uninterrupted(|| to.read(&mut buffer)).unwrap();
            if len == 0 {
                break;
            }
            assert!(buffer[..len] == block(received, len)[..], "a byte differs after {received}");
            received += len;
        }
        assert_eq!(received, bytes);
        drop(sending.join().unwrap());
        began.elapsed()
    }

    /// A connection that carries data at this rate until it is [ended](Stream::end).
    pub fn stream(&self, v6: bool, mbits: u32) -> Stream {
        let (mut client, mut server) = self.connection(v6);
        // A millisecond's worth: a slow stream has no bursts.
        let chunk = (mbits as usize * 125).min(16_384);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sending = thread::spawn(move || {
            let (began, mut sent) = (Instant::now(), 0_usize);
            while !stopped.load(Ordering::Relaxed) {
                let due = began.elapsed().as_secs_f64() * f64::from(mbits) * 1e6 / 8.0;
                if sent as f64 > due {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                client.write_all(&block(sent, chunk)).unwrap();
                sent += chunk;
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
            sent
        });
        let receiving = thread::spawn(move || {
            let (mut received, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
            let mut buffer = vec![0; 65_536];
            loop {
                let len = uninterrupted(|| server.read(&mut buffer)).unwrap();
                if len == 0 {
                    return (received, longest);
                }
                assert!(buffer[..len] == block(received, len)[..], "a byte differs after {received}");
                received += len;
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
        });
        Stream { stop, sending, receiving }
    }

    /// Sends a datagram each millisecond from `h1` to `h2`; the handle returns how many are lost.
    pub fn datagrams(&self, count: u32) -> thread::JoinHandle<u32> {
        let bind = |address: &str| UdpSocket::bind(address).unwrap();
        let to = self.h2.run(|| Ok(bind("10.2.0.2:0"))).unwrap();
        let from = self.h1.run(|| Ok(bind("10.1.0.1:0"))).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        thread::spawn(move || {
            for number in 0..count {
                from.send(&number.to_be_bytes()).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        thread::spawn(move || {
            let mut seen = std::collections::BTreeSet::new();
            let mut buffer = [0; 4];
            while uninterrupted(|| to.recv(&mut buffer)).is_ok() {
                seen.insert(u32::from_be_bytes(buffer));
            }
            count - seen.len() as u32
        })
    }

    /// A new connection from `h1` to `h2`.
    pub fn connection(&self, v6: bool) -> (TcpStream, TcpStream) {
        let address: SocketAddr = if v6 { "[fd02:0:0:2::2]:0" } else { "10.2.0.2:0" }.parse().unwrap();
        let listener = self.h2.run(|| Ok(TcpListener::bind(address).unwrap())).unwrap();
        let address = listener.local_addr().unwrap();
        let client = self.h1.run(|| Ok(TcpStream::connect_timeout(&address, PATIENCE).unwrap())).unwrap();
        let server = listener.accept().unwrap().0;
        for stream in [&client, &server] {
            cubic(stream);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        (client, server)
    }
}

/// A read with a timeout is not restarted by the kernel when the process was stopped meanwhile, as a machine that sleeps does.
pub fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Segments that a node has sent again.
pub fn sent_again(node: &NetNs) -> u64 {
    counter(node, "snmp", "Tcp:", "RetransSegs")
}

/// A counter of the kernel in a file of `/proc/net`, on the lines that begin with `group`.
fn counter(node: &NetNs, file: &str, group: &str, name: &str) -> u64 {
    let text = node.run(|| Ok(fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap())).unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with(group)).map(|line| line.split(' ').collect()).collect();
    let at = lines[0].iter().position(|known| *known == name).unwrap();
    lines[1][at].parse().unwrap()
}

/// Starts a router's process with a file, and these variables in its environment.
pub fn start_daemon(node: &NetNs, config: &Path, variables: &[(&str, &str)], wrapper: &str) -> Router {
    let log = fs::File::options().create(true).append(true).open(config.with_extension("log")).unwrap();
    let start = || {
        // This very program again: one test in it is the daemon.
        let mut words =
            wrapper.split_ascii_whitespace().map(OsString::from).chain([std::env::current_exe().unwrap().into()]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(["--exact", "daemon_process", "--nocapture"])
            .env(CHILD, config)
            .envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone().unwrap());
        Ok(command.spawn().unwrap())
    };
    Router { child: node.run(start).unwrap(), config: config.to_path_buf() }
}

/// The machine's default may be another.
pub fn cubic(stream: &TcpStream) {
    nix::sys::socket::setsockopt(&stream.as_fd(), nix::sys::socket::sockopt::TcpCongestion, &"cubic".into()).unwrap();
}

/// Bytes that show where they belong.
pub fn block(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs nft in a node.
pub fn nft(node: &NetNs, rule: &str) {
    let run = || Ok(Command::new("nft").arg(rule).output().unwrap());
    let output = node.run(run).unwrap();
    assert!(output.status.success(), "nft {rule}: {}", String::from_utf8_lossy(&output.stderr));
}
