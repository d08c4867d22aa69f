//! What the hosts send, and what they see of it.

use std::{
    io::{ErrorKind, Write},
    mem::MaybeUninit,
    net::{SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    socket::{getsockopt, sockopt},
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::line::Line;
use crate::net::{PATIENCE, cubic};

/// The far host.
const H2: &str = "fd02:0:0:2::2";
/// A TCP connection writes so much at once.
const BLOCK: usize = 256 << 10;

/// What has arrived, and how long that took.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    pub bytes: u64,
    pub time: Duration,
    /// Bytes of a full segment.
    pub mss: u64,
}

impl Arrived {
    /// How many packets of the MTU would carry it.
    pub fn packets(&self) -> f64 {
        self.bytes as f64 / self.mss as f64
    }
}

/// Sends over one connection for so long, at most at a rate, in bits per second.
pub fn stream(line: &Line, time: Duration, rate: Option<f64>) -> Arrived {
    let (mut client, server) = connections(line, 1).pop().unwrap();
    let sending = thread::spawn(move || {
        let (began, mut sent) = (Instant::now(), 0.0);
        let block = vec![7; if rate.is_some() { BLOCK / 4 } else { BLOCK }];
        while began.elapsed() < time {
            if rate.is_some_and(|rate| sent > began.elapsed().as_secs_f64() * rate / 8.0) {
                thread::sleep(Duration::from_micros(100));
                continue;
            }
            client.write_all(&block).unwrap();
            sent += block.len() as f64;
        }
        client.shutdown(std::net::Shutdown::Write).unwrap();
        client
    });
    let (began, mut bytes) = (Instant::now(), 0);
    loop {
        match discard(&server).unwrap() {
            0 => break,
            len => bytes += len,
        }
    }
    let time = began.elapsed();
    let client = sending.join().unwrap();
    Arrived { bytes, time, mss: mss_of(&client) }
}

/// Connections that all have data to send: what of each has arrived within `during`, which begins after `before`, and the bytes of a full
/// segment.
pub fn many(line: &Line, count: usize, before: Duration, during: impl FnOnce()) -> (Vec<u64>, u64) {
    let sink = Sink::start(line, count);
    let connect = || Ok((0..count).map(|_| sink.connect()).collect::<Vec<_>>());
    let clients = line.h1.run(connect).unwrap();
    let written: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let (stop, block) = (AtomicBool::new(false), vec![7; 16 << 10]);
    let acknowledged = |(client, written): (&TcpStream, &AtomicU64)| {
        // What is written later does not count: the queue is read first.
        let written = written.load(Ordering::Relaxed);
        written.saturating_sub(queued(client))
    };
    let read = || -> Vec<u64> { clients.iter().zip(&written).map(acknowledged).collect() };
    let shares = thread::scope(|scope| {
        scope.spawn(|| {
            serve(&clients, EpollFlags::EPOLLOUT, &stop, |at, mut client| {
                client.write(&block).map(|bytes| written[at].fetch_add(bytes as u64, Ordering::Relaxed)).is_ok()
            });
        });
        thread::sleep(before);
        let first = read();
        during();
        let last = read();
        stop.store(true, Ordering::Relaxed);
        last.iter().zip(first).map(|(last, first)| last - first).collect()
    });
    (shares, mss_of(&clients[0]))
}

/// A process that takes so many connections, and all that comes over them. One process may not have both ends of 10,000.
struct Sink(Child);

const SINK: &str = "SIDESTEP_TEST_SINK";
const PORT: u16 = 5_001;

impl Sink {
    fn start(line: &Line, count: usize) -> Sink {
        let start = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "cost::load::sink_process", "--nocapture"]).env(SINK, count.to_string());
            Ok(Sink(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()))
        };
        line.h2.run(start).unwrap()
    }

    /// A connection that never waits, and keeps little.
    fn connect(&self) -> TcpStream {
        let address = SocketAddr::new(H2.parse().unwrap(), PORT);
        let until = Instant::now() + PATIENCE;
        let client = loop {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        };
        cubic(&client);
        client.set_nonblocking(true).unwrap();
        SockRef::from(&client).set_send_buffer_size(64 << 10).unwrap();
        client
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No test, but the [`Sink`]'s process.
#[test]
fn sink_process() {
    let Ok(count) = std::env::var(SINK) else { return };
    let listener = TcpListener::bind((H2, PORT)).unwrap();
    let servers: Vec<TcpStream> = (0..count.parse().unwrap()).map(|_| listener.accept().unwrap().0).collect();
    servers.iter().for_each(|server| server.set_nonblocking(true).unwrap());
    serve(&servers, EpollFlags::EPOLLIN, &AtomicBool::new(false), |_, server| {
        discard(server).is_ok_and(|bytes| bytes > 0)
    });
}

/// What a socket has to send, or to send again.
fn queued(client: &TcpStream) -> u64 {
    let mut bytes: nix::libc::c_int = 0;
    // SAFETY: the request writes an int, which outlives the call.
    let done = unsafe { nix::libc::ioctl(client.as_raw_fd(), nix::libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(done, 0);
    bytes as u64
}

/// Calls `with` for each socket that is ready, until it returns false.
fn serve(sockets: &[TcpStream], what: EpollFlags, stop: &AtomicBool, with: impl Fn(usize, &TcpStream) -> bool) {
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    for (at, socket) in sockets.iter().enumerate() {
        epoll.add(socket, EpollEvent::new(what, at as u64)).unwrap();
    }
    let mut events = vec![EpollEvent::empty(); 1_024];
    while !stop.load(Ordering::Relaxed) {
        let ready = epoll.wait(&mut events, 50_u16).unwrap();
        for event in &events[..ready] {
            let at = event.data() as usize;
            while with(at, &sockets[at]) && !stop.load(Ordering::Relaxed) {}
        }
    }
}

/// Sends so many small datagrams a second for so long; returns how many were sent, and how many of them arrived.
pub fn datagrams(line: &Line, per_second: u32, time: Duration) -> (u64, u64) {
    let to = line.h2.run(|| Ok(UdpSocket::bind((H2, 0)).unwrap())).unwrap();
    let from = line.h1.run(|| Ok(UdpSocket::bind("[::]:0").unwrap())).unwrap();
    SockRef::from(&to).set_recv_buffer_size(8 << 20).unwrap();
    from.connect(to.local_addr().unwrap()).unwrap();
    to.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let receiving = thread::spawn(move || {
        let (mut arrived, mut buffer) = (0, [0; 64]);
        while to.recv(&mut buffer).is_ok() {
            arrived += 1;
        }
        arrived
    });
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < time {
        if sent as f64 > began.elapsed().as_secs_f64() * f64::from(per_second) {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        sent += u64::from(from.send(&[7; 64]).is_ok());
    }
    (sent, receiving.join().unwrap())
}

/// Round trips of so many echo requests, 2 ms apart, in microseconds, in order.
pub fn ping(line: &Line, count: u16) -> Vec<f64> {
    let open = || Ok(Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap());
    let socket = line.h1.run(open).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket.connect(&SocketAddr::V6(SocketAddrV6::new(H2.parse().unwrap(), 0, 0, 0)).into()).unwrap();
    let mut times = Vec::new();
    for number in 0..count {
        let [high, low] = number.to_be_bytes();
        let mut request = [0; 56];
        request[..8].copy_from_slice(&[128, 0, 0, 0, 7, 7, high, low]);
        let began = Instant::now();
        socket.send(&request).unwrap();
        let mut reply = [MaybeUninit::new(0); 128];
        while let Ok(len) = socket.recv(&mut reply) {
            // SAFETY: all bytes of it were initialised above.
            let reply = reply.map(|byte| unsafe { byte.assume_init() });
            if len >= 8 && reply[0] == 129 && reply[4..8] == request[4..8] {
                times.push(began.elapsed().as_secs_f64() * 1e6);
                break;
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    times.sort_by(f64::total_cmp);
    times
}

/// New connections from `h1` to `h2`.
fn connections(line: &Line, count: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = line.h2.run(|| Ok(TcpListener::bind((H2, 0)).unwrap())).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || {
        Ok((0..count)
            .map(|_| {
                let client = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
                let server = listener.accept().unwrap().0;
                [&client, &server].into_iter().for_each(cubic);
                server.set_read_timeout(Some(PATIENCE)).unwrap();
                (client, server)
            })
            .collect())
    };
    line.h1.run(connect).unwrap()
}

/// Throws away what has arrived, without a copy; returns how much that was.
fn discard(stream: &TcpStream) -> std::io::Result<u64> {
    loop {
        // SAFETY: with `MSG_TRUNC` the kernel writes nothing of TCP's.
        let got = unsafe { nix::libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), 1 << 20, nix::libc::MSG_TRUNC) };
        match got {
            0.. => return Ok(got as u64),
            _ => {
                let error = std::io::Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn mss_of(stream: &TcpStream) -> u64 {
    u64::from(getsockopt(&stream.as_fd(), sockopt::TcpMaxSeg).unwrap())
}
