//! Two hosts with a link between them, path managers on them, and connections of MPTCP from one to the other.

use std::{
    io::{Read, Write},
    net::{IpAddr, Shutdown as Half, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket::{Backlog, SockaddrStorage, bind, connect, listen};
use sidestep_hostd::{AgentError, Shutdown};
use sidestep_linux::{
    mptcp::{Ends, ManagerSetting, TcpEnds, Token, tcp_ends},
    netlink,
    netns::NetNs,
    sock_diag::{SockDiag, TcpState},
};
use sidestep_mptcp::daemon::{MptcpMode, MptcpPmConfig, MptcpPmOptions, MptcpPmStatus, mptcp_pm_status, run_mptcp_pm};
use tempfile::TempDir;
use tokio::sync::{mpsc::unbounded_channel, oneshot};

const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(20);

/// A host.
pub struct Host(pub NetNs);

/// Two hosts: fd42::1 and 10.42.0.1, fd42::2 and 10.42.0.2.
pub struct Pair {
    pub client: Host,
    pub server: Host,
    listener: TcpListener,
}

/// A connection of MPTCP.
pub struct Connection {
    pub client: TcpStream,
    server: TcpStream,
}

pub fn pair() -> Pair {
    let (client, server) = (Host::new(), Host::new());
    let other = format!("/proc/{}/fd/{}", std::process::id(), server.0.raw_fd());
    client.ip(&format!("link add veth type veth peer name veth netns {other}"));
    for (host, n) in [(&client, 1), (&server, 2)] {
        host.ip(&format!("address add fd42::{n}/64 dev veth nodad"));
        host.ip(&format!("address add 10.42.0.{n}/24 dev veth"));
        host.ip("link set veth up");
    }
    Pair::new(client, server)
}

impl Pair {
    pub fn new(client: Host, server: Host) -> Self {
        let listener = server.run(|| {
            let socket = mptcp_socket(libc::AF_INET6);
            bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new("::".parse().unwrap(), PORT))).unwrap();
            listen(&socket, Backlog::new(1_024).unwrap()).unwrap();
            TcpListener::from(socket)
        });
        Pair { client, server, listener }
    }

    /// Opens a connection from one of the client's addresses.
    pub fn connect(&self, to: &str) -> Connection {
        let version = if to.contains(':') { libc::AF_INET6 } else { libc::AF_INET };
        self.connect_with(self.client.run(|| mptcp_socket(version)), to)
    }

    /// Connects this socket of the client's.
    pub fn connect_with(&self, socket: OwnedFd, to: &str) -> Connection {
        let to: IpAddr = to.parse().unwrap();
        let client = self.client.run(|| {
            let start = Instant::now();
            while let Err(error) = connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, PORT))) {
                assert!(start.elapsed() < PATIENCE, "connecting: {error}");
                thread::sleep(Duration::from_millis(10));
            }
            TcpStream::from(socket)
        });
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let server = self.listener.accept().unwrap().0;
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection { client, server }
    }
}

impl Host {
    pub fn new() -> Self {
        let namespace = NetNs::create().unwrap();
        namespace.run(|| netlink::block_on(async |kernel| kernel.loopback_up().await)).unwrap();
        Host(namespace)
    }

    /// Runs `work` in the host's namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.run(|| Ok(work())).unwrap()
    }

    /// Runs `ip` with these arguments.
    pub fn ip(&self, arguments: &str) {
        let output = self.run(|| Command::new("ip").args(arguments.split_whitespace()).output().unwrap());
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Who manages paths.
    pub fn setting(&self) -> ManagerSetting {
        self.run(|| ManagerSetting::current().unwrap())
    }

    /// The connection's subflows that are open.
    pub fn subflows(&self, connection: &Connection) -> Vec<TcpEnds> {
        let first = connection.client.local_addr().unwrap();
        let mut all = self.tcp();
        let of = all.iter().find(|ends| ends.ends.local == first).and_then(|ends| ends.subflow);
        let token = of.map(|subflow| subflow.token);
        all.retain(|ends| token.is_some() && ends.subflow.map(|subflow| subflow.token) == token);
        all
    }

    /// How many open subflows there are of all connections.
    pub fn all_subflows(&self) -> usize {
        self.tcp().iter().filter(|ends| ends.subflow.is_some()).count()
    }

    /// Those that are not the first.
    pub fn joined(&self, subflows: &[TcpEnds]) -> Vec<TcpEnds> {
        subflows.iter().filter(|ends| !ends.subflow.unwrap().is_first).copied().collect()
    }

    /// The same subflow, as this end sees it.
    pub fn joined_of(&self, other: &TcpEnds) -> (Token, Ends) {
        let ends = Ends { local: other.ends.remote, remote: other.ends.local };
        let found = self.tcp().into_iter().find(|listed| listed.ends == ends).unwrap();
        (found.subflow.unwrap().token, ends)
    }

    /// All connections of TCP that are open.
    pub fn tcp(&self) -> Vec<TcpEnds> {
        let mut all = self.run(|| tcp_ends(&mut SockDiag::open().unwrap()).unwrap());
        all.retain(|ends| ends.state == TcpState::Established);
        all
    }

    pub fn eventually(&self, what: &str, check: impl FnMut() -> bool) {
        self.within(PATIENCE, what, check);
    }

    pub fn within(&self, patience: Duration, what: &str, mut check: impl FnMut() -> bool) {
        let start = Instant::now();
        while !check() {
            assert!(start.elapsed() < patience, "{what}: not within {patience:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Connection {
    /// Sends a little in both directions, so that the connection is fully established.
    pub fn exchange(&self) {
        for (mut from, mut to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            from.write_all(b"data").unwrap();
            to.read_exact(&mut [0; 4]).unwrap();
        }
    }

    /// Sends this many bytes to the server.
    pub fn send(&self, bytes: usize) {
        thread::scope(|scope| {
            scope.spawn(|| (&self.client).write_all(&vec![1; bytes]).unwrap());
            (&self.server).read_exact(&mut vec![0; bytes]).unwrap();
        });
    }
}

/// Bytes that keep flowing, with a SHA-256 sum at either end.
pub struct Transfer {
    connection: Arc<Connection>,
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sent: JoinHandle<(u64, String)>,
    arrived: JoinHandle<(u64, String)>,
}

/// The program `sha256sum`.
struct Sum(Child);

impl Sum {
    fn start() -> Self {
        let program = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Sum(program.expect("coreutils are installed"))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn finish(self) -> String {
        String::from_utf8(self.0.wait_with_output().unwrap().stdout).unwrap()
    }
}

impl Transfer {
    pub fn start(connection: Connection) -> Self {
        let connection = Arc::new(connection);
        let (received, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (from, ended) = (connection.clone(), stop.clone());
        let sent = thread::spawn(move || {
            let (mut sum, mut bytes, mut chunk) = (Sum::start(), 0_u64, [0; 8_192]);
            while !ended.load(Ordering::Relaxed) {
                for (i, word) in chunk.chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&(bytes + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes());
                }
                (&from.client).write_all(&chunk).unwrap();
                sum.add(&chunk);
                bytes += chunk.len() as u64;
            }
            from.client.shutdown(Half::Write).unwrap();
            (bytes, sum.finish())
        });
        let (to, count) = (connection.clone(), received.clone());
        let arrived = thread::spawn(move || {
            let (mut sum, mut bytes, mut chunk) = (Sum::start(), 0, [0; 65_536]);
            loop {
                let length = (&to.server).read(&mut chunk).unwrap();
                if length == 0 {
                    return (bytes, sum.finish());
                }
                sum.add(&chunk[..length]);
                bytes += length as u64;
                count.store(bytes, Ordering::Relaxed);
            }
        });
        Transfer { connection, received, stop, sent, arrived }
    }

    /// Waits until this many more bytes have arrived.
    pub fn pass(&self, bytes: u64) {
        let (start, before) = (Instant::now(), self.received.load(Ordering::Relaxed));
        while self.received.load(Ordering::Relaxed) < before + bytes {
            assert!(start.elapsed() < PATIENCE, "the transfer stands still");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ends it, and checks that what arrived is what was sent.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        assert_eq!(self.sent.join().unwrap(), self.arrived.join().unwrap());
    }
}

/// A path manager that does its work; stopped when dropped.
pub struct PathManager {
    stop: Option<oneshot::Sender<bool>>,
    thread: Option<JoinHandle<Result<(), AgentError>>>,
    namespace: OwnedFd,
    metrics: SocketAddr,
    state: Option<TempDir>,
}

pub fn state() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A configuration with these keys in `[subflows]`, and what follows them.
pub fn config(keys: &str) -> MptcpPmConfig {
    MptcpPmConfig::parse(&format!("[subflows]\nmode = \"ndiffports\"\n{keys}\n")).unwrap()
}

pub fn with_mode(mut config: MptcpPmConfig, mode: MptcpMode) -> MptcpPmConfig {
    config.subflows.mode = Some(mode);
    config
}

pub fn accept_only() -> MptcpPmConfig {
    with_mode(config(""), MptcpMode::AcceptOnly)
}

/// The path manager of a server.
pub fn accepting(host: &Host) -> PathManager {
    PathManager::start(host, accept_only())
}

impl PathManager {
    pub fn start(host: &Host, config: MptcpPmConfig) -> Self {
        Self::start_with(host, config, state(), |_| {})
    }

    /// Starts one that finds this state, with options as `adjust` makes them.
    pub fn start_with(
        host: &Host,
        config: MptcpPmConfig,
        state: TempDir,
        adjust: impl FnOnce(&mut MptcpPmOptions),
    ) -> Self {
        let (path_manager, is_ready) = Self::spawn(host, config, state, adjust);
        if !is_ready {
            panic!("it is not ready: {:?}", path_manager.end(false).0);
        }
        path_manager
    }

    /// Starts one that must fail; why it did.
    pub fn start_in_vain(
        host: &Host,
        config: MptcpPmConfig,
        state: TempDir,
        adjust: impl FnOnce(&mut MptcpPmOptions),
    ) -> String {
        let (path_manager, is_ready) = Self::spawn(host, config, state, adjust);
        assert!(!is_ready, "it works");
        path_manager.end(false).0.unwrap_err().to_string()
    }

    /// Starts one; whether it has become ready, before it ended.
    fn spawn(
        host: &Host,
        mut config: MptcpPmConfig,
        state: TempDir,
        adjust: impl FnOnce(&mut MptcpPmOptions),
    ) -> (Self, bool) {
        let free = host.run(|| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        config.metrics.listen = Some(free);
        let directory = Some(state.path().to_path_buf());
        let mut options = MptcpPmOptions { config, state: directory, set_sysctl: true, keep: false, dry_run: false };
        adjust(&mut options);
        let (stop, stopped) = oneshot::channel::<bool>();
        let (ready, is_ready) = mpsc::channel();
        let namespace = std::os::fd::AsFd::as_fd(&host.0).try_clone_to_owned().unwrap();
        let entered = namespace.try_clone().unwrap();
        let thread = thread::spawn(move || {
            nix::sched::setns(entered, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (_reconfigure, configs) = unbounded_channel();
            let (shut, shutdown) = oneshot::channel::<()>();
            let shutdown = async {
                drop(shutdown.await);
                Shutdown::CleanUp
            };
            let path_manager = run_mptcp_pm(options, configs, move || ready.send(()).unwrap(), shutdown);
            runtime.block_on(async {
                tokio::pin!(path_manager);
                tokio::select! {
                    ended = &mut path_manager => return ended,
                    // What the kernel sees of a kill: everything is closed, and nothing cleared up.
                    killed = stopped => if killed == Ok(true) { return Ok(()) },
                }
                drop(shut);
                path_manager.await
            })
        });
        let path_manager =
            PathManager { stop: Some(stop), thread: Some(thread), namespace, metrics: free, state: Some(state) };
        let is_ready = is_ready.recv_timeout(PATIENCE).is_ok();
        (path_manager, is_ready)
    }

    pub fn stop(self) {
        self.end(false).0.unwrap();
    }

    /// Ends it as `kill -9` would; what it has written down.
    pub fn kill(self) -> TempDir {
        // It writes each second.
        thread::sleep(Duration::from_millis(1_200));
        self.end(true).1
    }

    pub fn status(&self) -> MptcpPmStatus {
        self.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(mptcp_pm_status()).unwrap().unwrap()
        })
    }

    /// The value of a metric without labels.
    pub fn counter(&self, name: &str) -> f64 {
        let page = self.inside(|| {
            let mut stream = TcpStream::connect(self.metrics).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).unwrap();
            page
        });
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).trim().parse().unwrap()
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                nix::sched::setns(&self.namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    fn end(mut self, killed: bool) -> (Result<(), AgentError>, TempDir) {
        // One that has failed does not receive it.
        let _ = self.stop.take().unwrap().send(killed);
        (self.thread.take().unwrap().join().unwrap(), self.state.take().unwrap())
    }
}

impl Drop for PathManager {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn mptcp_socket(family: libc::c_int) -> OwnedFd {
    // SAFETY: the descriptor is new, and no other code has it.
    unsafe {
        let socket = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(socket)
    }
}

/// Lets the process have this many open files.
pub fn allow_files(files: u64) {
    use nix::sys::resource::{Resource, setrlimit};
    setrlimit(Resource::RLIMIT_NOFILE, files, files).unwrap();
}

/// Memory of this process.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

/// Processor time of this process, both path managers included.
pub fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}
