//! The daemon of a reflector: it answers, counts, reports what prevents its work, and forgets sessions when it is started again.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use sidestep_hostd::{AgentError, Shutdown};
use sidestep_linux::{
    netlink,
    netns::NetNs,
    prober::{Answer, Method, Prober, Reply, Spec},
    testing::root_or_skip,
};
use sidestep_route_control::reflector::{ReflectorConfig, ReflectorOptions, StampClock, run_reflector};
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(10);
const METRICS: &str = "127.0.0.1:9440";

/// A reflector on a thread of its own in a namespace; ended when dropped.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<Result<(), AgentError>>>,
}

fn options(listen: &[&str]) -> ReflectorOptions {
    ReflectorOptions {
        listen: listen.iter().map(|address| address.parse().unwrap()).collect(),
        config: ReflectorConfig { rate: 1_000, ..ReflectorConfig::default() },
        metrics: Some(METRICS.parse().unwrap()),
    }
}

/// Starts a reflector, and waits until it listens or has failed.
fn start(namespace: &NetNs, options: ReflectorOptions) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let namespace = namespace.run(NetNs::current).unwrap();
    let work = move || {
        namespace.enter()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let shutdown = async {
            let _ = stopped.await;
            Shutdown::CleanUp
        };
        runtime.block_on(run_reflector(options, || ready.send(()).unwrap(), shutdown))
    };
    let thread = thread::spawn(work);
    // The sender goes with a daemon that fails.
    let _ = is_ready.recv_timeout(PATIENCE);
    Running { stop: Some(stop), thread: Some(thread) }
}

impl Running {
    fn end(mut self) -> Result<(), AgentError> {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(thread::JoinHandle::join);
    }
}

fn loopback() -> NetNs {
    let namespace = NetNs::create().unwrap();
    namespace.run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    namespace
}

fn prober(namespace: &NetNs, target: &str, port: u16) -> Prober {
    let method = Method::Stamp { port, clock: StampClock::Ntp };
    namespace.run(|| Prober::open(&Spec::new(target.parse().unwrap(), method))).unwrap()
}

fn ask(prober: &mut Prober) -> Answer {
    prober.send().unwrap();
    let start = Instant::now();
    loop {
        match prober.receive().unwrap() {
            Some(Reply::Answer(answer)) => return answer,
            _ => assert!(start.elapsed() < PATIENCE, "{:?}", prober.counts()),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The value of a sample on the page of metrics.
fn metric(namespace: &NetNs, sample: &str) -> f64 {
    let scrape = || {
        let address: SocketAddr = METRICS.parse().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        Ok(page)
    };
    let page = namespace.run(scrape).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(sample)).unwrap_or_else(|| panic!("{page}"));
    line.trim().parse().unwrap()
}

#[test]
fn it_answers_at_port_862_of_all_addresses_and_counts() {
    if !root_or_skip("a reflector in a namespace") {
        return;
    }
    let namespace = loopback();
    let running = start(&namespace, options(&[]));
    for target in ["127.0.0.1", "127.7.7.7", "::1"] {
        let mut prober = prober(&namespace, target, 862);
        for sequence in 0..3 {
            let answer = ask(&mut prober);
            let remote = answer.remote.unwrap();
            assert_eq!((answer.sequence, remote.sequence, remote.ttl), (sequence, sequence, 64));
        }
    }
    let short = namespace.run(|| Ok(std::net::UdpSocket::bind("127.0.0.1:0").unwrap())).unwrap();
    short.send_to(b"short", "127.0.0.1:862").unwrap();
    let start_of_wait = Instant::now();
    while metric(&namespace, "sidestep_reflector_refused_total{reason=\"length\"}") < 1.0 {
        assert!(start_of_wait.elapsed() < PATIENCE);
    }
    assert_eq!(metric(&namespace, "sidestep_reflector_answered_total"), 9.0);
    assert_eq!(metric(&namespace, "sidestep_reflector_sessions"), 3.0);
    assert_eq!(metric(&namespace, "sidestep_reflector_unsent_total"), 0.0);
    running.end().unwrap();
}

#[test]
fn a_session_is_counted_again_by_the_next_reflector_and_losses_stay_what_they_were() {
    if !root_or_skip("a reflector in a namespace") {
        return;
    }
    let namespace = loopback();
    let listen = options(&["127.0.0.1:8620"]);
    let running = start(&namespace, listen.clone());
    let mut prober = prober(&namespace, "127.0.0.1", 8620);
    for _ in 0..3 {
        ask(&mut prober);
    }
    running.end().unwrap();
    // No process listens: the target reports that, and the probe is lost.
    prober.send().unwrap();
    let start_of_wait = Instant::now();
    while !matches!(prober.receive().unwrap(), Some(Reply::Unreachable { sequence: 3, .. })) {
        assert!(start_of_wait.elapsed() < PATIENCE);
    }
    let _running = start(&namespace, listen);
    let remotes = [(); 2].map(|()| ask(&mut prober).remote.unwrap());
    assert_eq!(remotes.map(|remote| remote.sequence), [0, 1]);
    assert_eq!(remotes.map(|remote| (remote.lost.forward, remote.lost.backward)), [(0, 0); 2]);
}

#[test]
fn what_is_in_its_way_is_said_in_one_line() {
    if !root_or_skip("a reflector in a namespace") {
        return;
    }
    let namespace = loopback();
    let _first = start(&namespace, options(&["127.0.0.1:8620"]));
    let second = ReflectorOptions { metrics: None, ..options(&["127.0.0.1:8620"]) };
    let error = start(&namespace, second).end().unwrap_err();
    assert!(error.can_pass());
    let message = error.to_string();
    assert!(message.contains("at 127.0.0.1:8620: somebody else listens there"), "{message}");
    let elsewhere = ReflectorOptions { metrics: None, ..options(&["192.0.2.9:862"]) };
    let message = start(&namespace, elsewhere).end().unwrap_err().to_string();
    assert!(message.starts_with("listening for test packets at 192.0.2.9:862: "), "{message}");
}
