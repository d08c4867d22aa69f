//! One connection of the sender: where it is in its life, and what was seen of it.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    net::{Shutdown, SocketAddrV6, TcpStream},
    os::fd::AsRawFd,
};

use nix::{
    errno::Errno,
    sys::{
        epoll::EpollFlags,
        socket::{MsgFlags, SockaddrIn6, connect, setsockopt, sockopt::Linger},
    },
};
use sidestep_linux::sock_diag::TcpInfo;
use sidestep_net::{Bytes, Span};

use super::{
    FlowOut, MAX_OUTAGES, Monotonic, OutageOut,
    bytes::ZEROS,
    request::{self, is_later},
    socket::{Arrival, NotsentLowat, SocketOptions, receive},
    users::Begun,
};

/// How connections are opened and what they carry; all connections of one sender share it.
#[derive(Debug)]
pub struct Plan {
    /// The sink.
    pub to: SocketAddrV6,
    /// Payload of connections without a size of their own; `None`: without end.
    pub size: Option<Bytes>,
    /// Bytes of the request to which the payload is the answer; `None`: the payload is sent.
    pub request: Option<Bytes>,
    /// What sockets are.
    pub socket: SocketOptions,
    /// Bytes that may wait unsent in the kernel, and that one call writes at most.
    pub unsent: u32,
}

/// One connection of the sender.
#[derive(Debug, Default)]
pub struct Connection {
    /// Payload, if it differs from the plan's.
    size: Option<Bytes>,
    /// The user's transfer that it carries, if a user began it.
    begun: Option<Begun>,
    phase: Phase,
    stream: Option<TcpStream>,
    local_port: u16,
    /// When it is to begin, if that is known beforehand.
    due: Option<Monotonic>,
    start: Monotonic,
    connected: Option<Monotonic>,
    end: Monotonic,
    written: u64,
    /// Payload acknowledged; for an answer, payload received.
    acked: u64,
    retransmits: u32,
    timeouts: u16,
    outages: Vec<OutageOut>,
    /// When its program could have gone on, and how much later it did.
    late_wakeups: Vec<(Monotonic, Span)>,
    /// When the data had arrived that was read last, and how much later that was.
    late: Option<(Monotonic, Span)>,
    at_window_start: Option<u64>,
    at_window_end: Option<u64>,
    /// Whether it sends a request.
    asks: bool,
    completed: bool,
    error: Option<String>,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not opened yet.
    #[default]
    Waiting,
    /// The handshake runs.
    Connecting,
    /// There is something left to write.
    Sending,
    /// All data is written; the sink's FIN will confirm that all data arrived.
    Draining,
    /// The request is written; the answer comes.
    Receiving,
    /// Completed, failed or stopped; the socket is closed.
    Done,
}

/// One end of the window in which bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Where it opens.
    Start,
    /// Where it closes.
    End,
}

impl Connection {
    /// A connection with a payload of its own.
    pub fn sized(size: Bytes) -> Self {
        Connection { size: Some(size), ..Connection::default() }
    }

    /// A user's transfer, which begins when `edges` edges of the window have passed.
    pub fn begun(begun: Begun, edges: usize) -> Self {
        let [at_window_start, at_window_end] = [edges > 0, edges > 1].map(|passed| passed.then_some(0));
        let size = Some(begun.size);
        Connection { size, begun: Some(begun), at_window_start, at_window_end, ..Connection::default() }
    }

    /// The position of the user who began it.
    pub fn user(&self) -> Option<usize> {
        self.begun.map(|begun| begun.user)
    }

    /// Notes when it is to begin.
    pub fn set_due(&mut self, due: Monotonic) {
        self.due = Some(due);
    }

    /// Begins to connect; a failure ends the connection.
    pub fn open(&mut self, plan: &Plan, now: Monotonic) {
        self.start = now;
        self.asks = plan.request.is_some();
        self.phase = Phase::Connecting;
        match connecting(plan) {
            Ok(stream) => {
                self.local_port = stream.local_addr().map_or(0, |address| address.port());
                self.stream = Some(stream);
            }
            Err(error) => self.fail(plan, now, describe("connect", error)),
        }
    }

    /// Its socket, while it has one.
    pub fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_ref()
    }

    /// Where it is in its life.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The events that it waits for.
    pub fn interest(&self) -> EpollFlags {
        match self.phase {
            Phase::Draining => EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLIN,
            Phase::Receiving => EpollFlags::EPOLLIN,
            _ => EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLOUT,
        }
    }

    /// Does what the events allow: finishes the handshake, writes or reads one piece, or reads the end.
    ///
    /// Answers are discarded as if into `buffer`, which stays as it is.
    pub fn handle(&mut self, plan: &Plan, now: Monotonic, events: EpollFlags, buffer: &mut [u8]) {
        let broken = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP | EpollFlags::EPOLLRDHUP;
        if !matches!(self.phase, Phase::Draining | Phase::Receiving) && events.intersects(broken) {
            let what = if self.phase == Phase::Connecting { "connect" } else { "send" };
            let cause = self.stream.as_ref().and_then(|stream| stream.take_error().ok().flatten());
            let cause = cause.unwrap_or_else(|| io::Error::new(ErrorKind::UnexpectedEof, CLOSED_EARLY));
            return self.fail(plan, now, describe(what, cause));
        }
        if self.phase == Phase::Connecting && events.contains(EpollFlags::EPOLLOUT) {
            self.connected = Some(now);
            self.phase = Phase::Sending;
            self.note_handshake(plan, now);
        }
        let result = match self.phase {
            Phase::Sending => self.write(plan),
            Phase::Draining => self.read_end(plan, now),
            Phase::Receiving => self.read_answer(plan, now, buffer),
            Phase::Waiting | Phase::Connecting | Phase::Done => Ok(()),
        };
        match result {
            Err(error) if !is_later(&error) => {
                let what = if self.phase == Phase::Receiving { "receive" } else { "send" };
                self.fail(plan, now, describe(what, error));
            }
            _ => {}
        }
    }

    /// Notes how much is acknowledged at an edge of the window.
    pub fn mark_window(&mut self, plan: &Plan, edge: Edge) {
        self.sample(plan);
        match edge {
            Edge::Start => self.at_window_start = Some(self.acked),
            Edge::End => self.at_window_end = Some(self.acked),
        }
    }

    /// Looks for retransmission timeouts, and for acknowledgements after them. MPTCP is not watched: a subflow's
    /// timeout is no outage of the connection.
    pub fn watch(&mut self, plan: &Plan, now: Monotonic) {
        if plan.socket.mptcp || !matches!(self.phase, Phase::Sending | Phase::Draining) {
            return;
        }
        let Some(info) = self.stream.as_ref().and_then(|stream| TcpInfo::of(stream).ok()) else { return };
        let room = self.outages.len() < MAX_OUTAGES;
        let current = self.outages.last_mut().filter(|outage| outage.until_ns.is_none());
        match (current, u32::from(info.timeouts)) {
            (Some(outage), 0) => outage.until_ns = Some(now.as_nanos()),
            (Some(outage), timeouts) => outage.timeouts = outage.timeouts.max(timeouts),
            (None, timeouts) if timeouts > 0 && room => {
                let rto_ns = u64::from(info.rto_us) * 1_000;
                self.outages.push(OutageOut { at_ns: now.as_nanos(), rto_ns, until_ns: None, timeouts });
            }
            (None, _) => {}
        }
    }

    /// Ends the connection. A running one is reset, so that nothing of it lingers in the network or the kernel.
    pub fn stop(&mut self, plan: &Plan, now: Monotonic) {
        match self.phase {
            Phase::Done => return,
            Phase::Waiting => {
                (self.start, self.error) = (now, Some("connect: there was no time to begin".into()));
            }
            Phase::Connecting => self.error = Some("connect: not answered before the stop".into()),
            Phase::Sending | Phase::Draining | Phase::Receiving => {}
        }
        self.finish(plan, now);
    }

    /// The outcome of the connection, under the number `connection` unless a user gave it one.
    pub fn outcome(&self, connection: u32) -> FlowOut {
        let from = self.at_window_start.unwrap_or(self.acked);
        let to = self.at_window_end.unwrap_or(self.acked);
        let since_start = |instant: Monotonic| instant.since(self.start).as_secs_f64();
        FlowOut {
            connection: self.begun.map_or(connection, |begun| begun.name.1),
            user: self.begun.map(|begun| begun.name.0),
            local_port: self.local_port,
            due_ns: self.due.map(Monotonic::as_nanos),
            start_ns: self.start.as_nanos(),
            end_ns: self.end.as_nanos(),
            completed: self.completed,
            bytes_acked: self.acked,
            bytes_in_window: to.saturating_sub(from),
            retransmits: self.retransmits,
            timeouts: self.timeouts,
            outages: self.outages.clone(),
            late_wakeups_ns: self.late_wakeups.iter().map(|(at, late)| (at.as_nanos(), late.as_nanos())).collect(),
            fct_s: self.completed.then(|| since_start(self.end)),
            connect_s: self.connected.map(since_start),
            error: self.error.clone(),
        }
    }

    /// Notes how late the program is notified that the connection is established: the kernel knows the handshake's round trip.
    fn note_handshake(&mut self, plan: &Plan, now: Monotonic) {
        let Some(stream) = self.stream.as_ref().filter(|_| !plan.socket.mptcp) else { return };
        // Of several SYNs the kernel does not report when that was sent which was answered.
        let once = TcpInfo::of(stream).ok().filter(|info| info.retrans_total == 0);
        let due = once.map(|info| self.start + Span::from_micros(info.srtt_us.into()));
        self.late_wakeups.extend(due.map(|due| (due, now.since(due))));
    }

    fn size(&self, plan: &Plan) -> Option<Bytes> {
        self.size.or(plan.size)
    }

    /// Writes one piece. One call is enough: the socket stays writable as long as the kernel wants more.
    fn write(&mut self, plan: &Plan) -> io::Result<()> {
        if let Some(request) = plan.request {
            return self.write_request(plan, request.get());
        }
        let size = self.size(plan);
        let Some(mut stream) = self.stream.as_ref() else { return Ok(()) };
        let left = size.map_or(u64::MAX, |size| size.get().saturating_sub(self.written));
        if left > 0 {
            let piece = left.min(u64::from(plan.unsent)) as usize;
            self.written += stream.write(ZEROS.get(..piece).unwrap_or(&ZEROS))? as u64;
        }
        if size.is_some_and(|size| self.written >= size.get()) {
            self.phase = Phase::Draining;
            stream.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Writes one piece of the request. Its head goes with what follows: Nagle's algorithm would hold that back for a round
    /// trip.
    fn write_request(&mut self, plan: &Plan, length: u64) -> io::Result<()> {
        let answer = self.size(plan).map_or(0, Bytes::get);
        let Some(mut stream) = self.stream.as_ref() else { return Ok(()) };
        let head = request::head(length, answer);
        let head = head.get(self.written as usize..).unwrap_or_default();
        let rest = (length - self.written).saturating_sub(head.len() as u64).min(plan.unsent.into()) as usize;
        let rest = ZEROS.get(..rest).unwrap_or(&ZEROS);
        self.written += stream.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)])? as u64;
        if self.written >= length {
            self.phase = Phase::Receiving;
        }
        Ok(())
    }

    /// Reads one piece of the answer, or its end.
    fn read_answer(&mut self, plan: &Plan, now: Monotonic, buffer: &mut [u8]) -> io::Result<()> {
        let Some(stream) = self.stream.as_ref() else { return Ok(()) };
        let (bytes, arrived) = receive(stream, buffer, MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT)?;
        self.acked += bytes as u64;
        if bytes > 0 {
            self.late = arrived.and_then(Arrival::age).map(|late| (now.before(late), late));
            return plan.socket.clamp(&stream);
        }
        self.completed = self.size(plan).is_some_and(|size| self.acked == size.get());
        if !self.completed {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, CLOSED_EARLY));
        }
        // The FIN itself has no timestamp; as a rule it comes right behind the data.
        self.late_wakeups.extend(self.late);
        self.finish(plan, now);
        Ok(())
    }

    /// Reads the sink's FIN, which it sends when all has arrived.
    fn read_end(&mut self, plan: &Plan, now: Monotonic) -> io::Result<()> {
        let Some(mut stream) = self.stream.as_ref() else { return Ok(()) };
        if stream.read(&mut [0; 64])? > 0 {
            return Ok(());
        }
        self.sample(plan);
        self.completed = self.size(plan).is_some_and(|size| self.acked == size.get());
        if !self.completed {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, CLOSED_EARLY));
        }
        self.finish(plan, now);
        Ok(())
    }

    /// Asks the kernel how far the connection is.
    fn sample(&mut self, plan: &Plan) {
        let Some(counters) = self.stream.as_ref().and_then(|stream| plan.socket.counters(stream).ok()) else { return };
        // A subflow that is gone takes its count with it.
        self.retransmits = self.retransmits.max(counters.retransmits);
        self.timeouts = self.timeouts.max(counters.timeouts);
        if !self.asks {
            // The kernel counts our FIN, which is beyond what we wrote.
            self.acked = counters.acked.min(self.written);
        }
    }

    fn fail(&mut self, plan: &Plan, now: Monotonic, error: String) {
        self.error = Some(error);
        self.finish(plan, now);
    }

    fn finish(&mut self, plan: &Plan, now: Monotonic) {
        self.sample(plan);
        if let Some(stream) = self.stream.take()
            && !self.completed
        {
            // If the kernel refuses the option, it closes the connection later. Nothing depends on that.
            let _ = setsockopt(&stream, Linger, &libc::linger { l_onoff: 1, l_linger: 0 });
        }
        self.end = now;
        self.phase = Phase::Done;
    }
}

const CLOSED_EARLY: &str = "the sink closed the connection before its end";

/// A socket that has begun to connect.
fn connecting(plan: &Plan) -> io::Result<TcpStream> {
    let socket = plan.socket.open()?;
    // Unsent data stays in this process: a long queue in the socket costs memory and wake-ups for nothing.
    plan.socket.tune(&socket, NotsentLowat, &plan.unsent)?;
    if plan.request.is_some() {
        plan.socket.time(&socket)?;
    }
    match connect(socket.as_raw_fd(), &SockaddrIn6::from(plan.to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(errno.into()),
    }
}

fn describe(what: &str, error: io::Error) -> String {
    format!("{what}: {error}")
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, time::Duration};

    use super::*;

    #[test]
    fn a_request_is_written_at_once_so_that_nagles_algorithm_holds_nothing_back() {
        let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
        let std::net::SocketAddr::V6(to) = listener.local_addr().unwrap() else { unreachable!("IPv6 was asked for") };
        let (size, request) = (Some(Bytes::new(1)), Some(Bytes::new(300)));
        let plan = Plan { to, size, request, socket: SocketOptions::default(), unsent: 16 << 10 };
        let mut connection = Connection::default();
        connection.open(&plan, Monotonic::from_nanos(0));
        let (mut server, _) = listener.accept().unwrap();
        connection.handle(&plan, Monotonic::from_nanos(1), EpollFlags::EPOLLOUT, &mut []);
        assert_eq!((connection.phase(), connection.error), (Phase::Receiving, None));
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut read = [1; 300];
        server.read_exact(&mut read).unwrap();
        assert_eq!(read[..request::HEAD], request::head(300, 1), "the head comes first");
        assert!(read[request::HEAD..].iter().all(|byte| *byte == 0));
    }
}
