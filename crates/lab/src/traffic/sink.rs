//! Where flows end: discards what arrives, or answers it.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        socket::{Backlog, MsgFlags, SockaddrIn6, bind, listen, recv, setsockopt, sockopt::ReuseAddr},
    },
};

use super::{
    SinkOptions, SinkOut, TrafficError, allow_descriptors,
    request::{Exchange, is_later},
    socket::{ReceiveLowat, SocketOptions},
    system,
};

/// Accepts connections and discards what they bring until SIGTERM; writes the line `ready` to `out` when it listens, and at the
/// end one of JSON ([`SinkOut`]).
///
/// When a sender closes its connection, the sink closes it too, which confirms that everything arrived.
pub fn sink(options: &SinkOptions, out: &mut impl Write) -> Result<SinkOut, TrafficError> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTERM);
    mask.thread_block().map_err(system("sigmask"))?;
    let stop = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC).map_err(system("signalfd"))?;
    let seen = sink_until(options, out, stop.as_fd())?;
    let line = serde_json::to_string(&seen).map_err(|error| TrafficError::Output(error.into()))?;
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(TrafficError::Output)?;
    Ok(seen)
}

/// Accepts connections and discards what they bring until `stop` is readable; writes the line `ready` to `out` when it
/// listens.
pub fn sink_until(options: &SinkOptions, out: &mut impl Write, stop: BorrowedFd<'_>) -> Result<SinkOut, TrafficError> {
    allow_descriptors(DESCRIPTORS)?;
    let mut sink = Sink::listen(options, stop)?;
    out.write_all(b"ready\n").and_then(|()| out.flush()).map_err(TrafficError::Output)?;
    sink.run()?;
    Ok(sink.seen)
}

/// Connections that a sink has room for, if the limit on open files can be raised so far.
const DESCRIPTORS: u64 = 65_536;
/// Bytes that are worth a wake-up: less than TCP's first window, so that the sender never feels it, and several packets
/// of a wire that brings them one by one (12 s of 600 Mbit/s: 64,000 wake-ups and 1.4 s of CPU time, against 290,000
/// and 2.6 s).
///
/// Not of MPTCP: its subflows share one window, and a connection's first segments alone would fill it.
const WAKE_UP: u32 = 8 << 10;
/// The most that one call discards.
const DISCARD: usize = 1 << 20;

const STOP: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

struct Sink {
    epoll: Epoll,
    listener: TcpListener,
    /// By descriptor, which is also the connection's name at epoll.
    connections: BTreeMap<u64, Accepted>,
    socket: SocketOptions,
    answer: bool,
    /// Never written to, so that it costs no memory: the kernel discards by itself.
    buffer: Vec<u8>,
    /// Whether connections wait that could not be accepted because there were no free descriptors.
    starved: bool,
    seen: SinkOut,
}

/// A connection, and what it asks for where requests are answered.
struct Accepted {
    stream: TcpStream,
    exchange: Option<Exchange>,
}

impl Sink {
    fn listen(options: &SinkOptions, stop: BorrowedFd<'_>) -> Result<Self, TrafficError> {
        let (socket, answer) = (options.socket.clone(), options.answer);
        let listener = listener(options).map_err(|source| TrafficError::Listen { address: options.listen, source })?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create"))?;
        epoll.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP)).map_err(system("epoll_ctl"))?;
        // Edge-triggered: connections that cannot be accepted now must not keep the loop awake.
        let incoming = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, LISTENER);
        epoll.add(&listener, incoming).map_err(system("epoll_ctl"))?;
        let listener = TcpListener::from(listener);
        let (connections, seen) = (BTreeMap::new(), SinkOut::default());
        Ok(Sink { epoll, listener, connections, socket, answer, buffer: vec![0; DISCARD], starved: false, seen })
    }

    fn run(&mut self) -> Result<(), TrafficError> {
        let mut events = [EpollEvent::empty(); 256];
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(system("epoll_wait")(errno)),
            };
            for event in events.iter().take(count) {
                match event.data() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    connection if self.answer => self.exchange(connection)?,
                    connection => self.discard(connection)?,
                }
            }
        }
    }

    fn accept(&mut self) -> Result<(), TrafficError> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    // The connection died before it was accepted (accept(2), "Error handling").
                    Some(Errno::ECONNABORTED | Errno::EINTR | Errno::EPERM | Errno::EPROTO) => continue,
                    Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                        self.starved = true;
                        return Ok(());
                    }
                    _ => return Err(system("accept")(error)),
                },
            };
            let name = stream.as_raw_fd() as u64;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, name);
            self.epoll.add(&stream, event).map_err(system("epoll_ctl"))?;
            if self.answer {
                stream.set_nonblocking(true).map_err(system("ioctl"))?;
            }
            let exchange = self.answer.then(Exchange::default);
            self.connections.insert(name, Accepted { stream, exchange });
            self.seen.connections += 1;
        }
        self.starved = false;
        Ok(())
    }

    /// Discards what a connection brought, and closes it at its end.
    fn discard(&mut self, name: u64) -> Result<(), TrafficError> {
        let Some(Accepted { stream, .. }) = self.connections.get(&name) else { return Ok(()) };
        // TCP discards under MSG_TRUNC instead of copying (tcp(7), "Sockets API").
        match recv(stream.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT) {
            Ok(0) => {}
            Ok(bytes) => {
                self.seen.bytes += bytes as u64;
                return self.socket.clamp(&stream).map_err(system("setsockopt"));
            }
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            // Stopped flows are reset by their sender.
            Err(_) => {}
        }
        self.close(name)
    }

    /// Goes on with a request, or its answer.
    fn exchange(&mut self, name: u64) -> Result<(), TrafficError> {
        let Some(Accepted { stream, exchange: Some(exchange) }) = self.connections.get_mut(&name) else {
            return Ok(());
        };
        let before = exchange.interest();
        let goes_on = match exchange.handle(stream, &mut self.buffer, &mut self.seen) {
            Ok(goes_on) => goes_on,
            Err(error) => is_later(&error),
        };
        let after = exchange.interest();
        if goes_on && before != after {
            let mut event = EpollEvent::new(after, name);
            self.epoll.modify(&*stream, &mut event).map_err(system("epoll_ctl"))?;
        }
        if goes_on { Ok(()) } else { self.close(name) }
    }

    fn close(&mut self, name: u64) -> Result<(), TrafficError> {
        self.connections.remove(&name);
        if self.starved { self.accept() } else { Ok(()) }
    }
}

fn listener(options: &SinkOptions) -> io::Result<OwnedFd> {
    // Accepted connections inherit the listening socket's options.
    let socket = options.socket.open()?;
    setsockopt(&socket, ReuseAddr, &true)?;
    if options.answer {
        options.socket.time(&socket)?;
    } else if !options.socket.mptcp {
        options.socket.tune(&socket, ReceiveLowat, &WAKE_UP)?;
    }
    bind(socket.as_raw_fd(), &SockaddrIn6::from(options.listen))?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(socket)
}
