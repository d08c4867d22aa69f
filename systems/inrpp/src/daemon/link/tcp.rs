//! A link by TCP, for lossy networks: one connection, datagrams with their lengths before them.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::errno::Errno;
use sidestep_linux::{LinuxError, Result};
use sidestep_net::{Span, Time};
use socket2::{Protocol, SockRef, Socket, Type};

use super::{Ends, MAX_DATAGRAM, Outbox, ReceiveBuffers, Received, Sent, sockets::set_int, udp::open_socket};

/// Before each datagram: its length.
const LENGTH: usize = 4;
/// A longer datagram is none of a neighbour's.
const MAX_LENGTH: usize = 66_000;
/// What waits for the socket at most.
const BUFFER: usize = 256 << 10;
/// Between two attempts to connect, and for how long one is given.
const INTERVAL: Span = Span::from_secs(1);
const PATIENCE: Span = Span::from_secs(5);
/// Two retransmission timeouts, the second twice as long, and some. Linux's are 200 ms and the round trip.
pub(super) const REPEATS: Span = Span::from_secs(1);
/// For how long the neighbour may acknowledge nothing before the connection is given up, in milliseconds.
const USER_TIMEOUT: i32 = 10_000;
/// Bytes of Ethernet, IPv6 or IPv4, and TCP with timestamps before a segment of one datagram.
const HEADERS: u32 = 14 + 32 + LENGTH as u32;

/// A connection to the neighbour, or the wait for one.
#[derive(Debug)]
pub struct TcpLink {
    ends: Ends,
    listener: Option<Socket>,
    connection: Option<Connection>,
    /// When the last attempt to connect began.
    tried: Option<Time>,
    generation: u32,
    /// The rest of the last read: the beginning of a datagram.
    rest: Vec<u8>,
    /// What the socket has not taken, from `start` on.
    waits: Vec<u8>,
    start: usize,
    blocked: bool,
    /// Connections from others, which were closed.
    strangers: u32,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    established: bool,
}

/// A length that no datagram has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooLong;

impl TcpLink {
    /// Opens the link in the calling thread's network namespace. One end listens, the other connects, at once and then in
    /// [`reconnect`](super::Link::reconnect).
    ///
    /// A `descriptor` is that of a socket that listens, which another process has passed.
    pub fn open(ends: &Ends, listen: bool, descriptor: Option<OwnedFd>, now: Time) -> Result<Self> {
        let mut link = TcpLink {
            ends: ends.clone(),
            listener: None,
            connection: None,
            tried: None,
            generation: 0,
            rest: Vec::with_capacity(LENGTH + MAX_LENGTH),
            waits: Vec::with_capacity(BUFFER),
            start: 0,
            blocked: false,
            strangers: 0,
        };
        if listen {
            let what = || format!("listening for TCP at {}", ends.local);
            let passed = descriptor.map(Socket::from);
            let is_at = |socket: &Socket| socket.local_addr().is_ok_and(|at| at.as_socket() == Some(ends.local));
            let listener = passed.filter(is_at).map_or_else(|| listener(ends), Ok);
            link.listener = Some(listener.map_err(|error| LinuxError::io(what(), error))?);
        }
        link.reconnect(now);
        Ok(link)
    }

    /// Connections from others than the neighbour's address, which were closed.
    #[cfg(test)]
    pub fn strangers(&self) -> u32 {
        self.strangers
    }

    pub(super) fn overhead(&self) -> u32 {
        HEADERS + if self.ends.remote.is_ipv6() { 40 } else { 20 }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.established)
    }

    #[cfg(test)]
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let connection = self.connection.as_ref().map(|connection| connection.socket.as_fd());
        [connection, self.listener.as_ref().map(AsFd::as_fd)]
    }

    pub(super) fn reconnect(&mut self, now: Time) {
        self.accept();
        self.look();
        let since = self.tried.map(|tried| now.since(tried));
        match &self.connection {
            Some(connection) if !connection.established && since.is_some_and(|since| since > PATIENCE) => self.close(),
            Some(_) => return,
            None => {}
        }
        if self.listener.is_some() || since.is_some_and(|since| since < INTERVAL) {
            return;
        }
        self.tried = Some(now);
        match connect(&self.ends) {
            Ok(socket) => self.take(socket, false),
            Err(error) => tracing::debug!("cannot connect to {}: {error}", self.ends.remote),
        }
    }

    /// Closes the connection, and drops what waits for it.
    pub(super) fn close(&mut self) {
        if self.connection.take().is_some() {
            self.generation = self.generation.wrapping_add(1);
        }
        self.rest.clear();
        self.waits.clear();
        (self.start, self.blocked) = (0, false);
    }

    pub(super) fn send(&mut self, outbox: &mut Outbox) -> Sent {
        let mut sent = Sent::default();
        self.look();
        if self.connection.is_none() {
            sent.lost(outbox.clear(), Errno::ENOTCONN);
            return sent;
        }
        if !self.is_connected() {
            self.blocked = true;
            return sent;
        }
        self.blocked = false;
        loop {
            while let Some(message) = outbox.message(&[], 0)
                && self.make_room(LENGTH + message.len)
            {
                self.waits.extend_from_slice(&(message.len as u32).to_be_bytes());
                self.waits.extend_from_slice(outbox.bytes_of(&message));
                sent.took(1, message.len);
                outbox.remove(&message);
            }
            if self.start == self.waits.len() {
                return sent;
            }
            let (Some(connection), Some(waits)) = (&self.connection, self.waits.get(self.start..)) else { return sent };
            match (&connection.socket).write(waits) {
                Ok(written) => self.start += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return sent;
                }
                Err(error) => {
                    self.close();
                    sent.lost(outbox.clear(), Errno::from_raw(error.raw_os_error().unwrap_or(libc::EPIPE)));
                    return sent;
                }
            }
        }
    }

    pub(super) fn receive<'b>(
        &mut self,
        buffers: &'b mut ReceiveBuffers,
        handle: &mut impl FnMut(&'b [u8]),
    ) -> Received {
        let mut received = Received::default();
        if !self.is_connected() {
            received.bad += self.accept();
            self.look();
        }
        let Some(connection) = self.connection.as_ref().filter(|connection| connection.established) else {
            return received;
        };
        let carried = self.rest.len();
        let Some((front, room)) = buffers.bytes.split_at_mut_checked(carried) else { return received };
        front.copy_from_slice(&self.rest);
        let read = match (&connection.socket).read(room) {
            Ok(0) => {
                self.close();
                received.refused = true;
                return received;
            }
            Ok(read) => read,
            Err(error) => {
                received.failed(Errno::from_raw(error.raw_os_error().unwrap_or(0)));
                // It is the listening socket that is ready.
                received.bad += self.accept();
                if received.error.is_some() || received.refused {
                    self.close();
                }
                return received;
            }
        };
        received.more = read == room.len();
        let bytes: &'b [u8] = buffers.bytes.get(..carried + read).unwrap_or_default();
        let done = datagrams(bytes, |datagram| {
            received.took(datagram.len());
            handle(datagram);
        });
        self.rest.clear();
        match done {
            Ok(rest) => self.rest.extend_from_slice(rest),
            Err(TooLong) => {
                received.bad += 1;
                self.close();
            }
        }
        received
    }

    /// Whether so many more bytes may wait, after what has gone is forgotten.
    fn make_room(&mut self, len: usize) -> bool {
        if self.start == self.waits.len() {
            self.waits.clear();
            self.start = 0;
        } else if self.waits.len() + len > BUFFER && self.start > 0 {
            self.waits.drain(..self.start);
            self.start = 0;
        }
        self.waits.len() + len <= BUFFER
    }

    /// Takes the neighbour's newest connection; returns how many others there were.
    fn accept(&mut self) -> u32 {
        let mut strangers = 0;
        while let Some(listener) = &self.listener {
            let Ok((socket, from)) = listener.accept() else { break };
            if from.as_socket().is_none_or(|from| from.ip() != self.ends.remote.ip()) {
                strangers += 1;
                continue;
            }
            if socket.set_nonblocking(true).and_then(|()| set_up(&socket)).is_ok() {
                self.take(socket, true);
            }
        }
        self.strangers = self.strangers.saturating_add(strangers);
        strangers
    }

    fn take(&mut self, socket: Socket, established: bool) {
        self.close();
        self.connection = Some(Connection { socket, established });
        // Until it is established, the descriptor can be written to only then.
        self.blocked = !established;
        self.generation = self.generation.wrapping_add(1);
    }

    /// Looks whether the attempt to connect has succeeded.
    fn look(&mut self) {
        let Some(connection) = self.connection.as_mut().filter(|connection| !connection.established) else { return };
        if let Ok(Some(error)) = SockRef::from(&connection.socket).take_error() {
            tracing::debug!("cannot connect to {}: {error}", self.ends.remote);
            return self.close();
        }
        if connection.socket.peer_addr().is_ok() {
            (connection.established, self.blocked) = (true, false);
        }
    }
}

/// Calls `handle` with each whole datagram of a stream; returns the rest, the beginning of another.
fn datagrams<'b>(mut bytes: &'b [u8], mut handle: impl FnMut(&'b [u8])) -> std::result::Result<&'b [u8], TooLong> {
    while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > MAX_LENGTH {
            return Err(TooLong);
        }
        let Some((datagram, rest)) = rest.split_at_checked(length) else { break };
        handle(datagram);
        bytes = rest;
    }
    Ok(bytes)
}

/// Reads any bytes as a stream: not one gets lost.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz(bytes: &[u8]) {
    let mut total = 0;
    if let Ok(rest) = datagrams(bytes, |datagram| total += LENGTH + datagram.len()) {
        assert_eq!(total + rest.len(), bytes.len());
    }
}

fn listener(ends: &Ends) -> io::Result<Socket> {
    let socket = open_socket(ends, Type::STREAM, Protocol::TCP)?;
    socket.set_reuse_address(true)?;
    socket.bind(&ends.local.into())?;
    socket.listen(4)?;
    Ok(socket)
}

fn connect(ends: &Ends) -> io::Result<Socket> {
    let socket = open_socket(ends, Type::STREAM, Protocol::TCP)?;
    set_up(&socket)?;
    let mut local = ends.local;
    local.set_port(0);
    socket.bind(&local.into())?;
    match socket.connect(&ends.remote.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        done => done.map(|()| socket),
    }
}

fn set_up(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    set_int(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, USER_TIMEOUT)?;
    // What the network cannot take yet is better kept by the router, which can send it around.
    set_int(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, BUFFER as i32)
}

const _: () = assert!(MAX_DATAGRAM <= MAX_LENGTH && LENGTH + MAX_LENGTH < BUFFER, "a datagram fits");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_stream_is_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzz(&bytes);
        }

        /// However the stream is cut, the same datagrams come out.
        #[test]
        fn a_stream_keeps_its_datagrams(lens in prop::collection::vec(1_usize..2_000, 1..20), cuts in prop::collection::vec(1_usize..3_000, 1..40)) {
            let sent: Vec<Vec<u8>> = lens.iter().enumerate().map(|(index, len)| vec![index as u8; *len]).collect();
            let stream: Vec<u8> = sent.iter().flat_map(|one| [&(one.len() as u32).to_be_bytes()[..], one].concat()).collect();
            let (mut left, mut rest, mut got) = (&stream[..], Vec::new(), Vec::new());
            for cut in cuts.iter().cycle() {
                let (now, later) = left.split_at((*cut).min(left.len()));
                let bytes = [&rest[..], now].concat();
                rest = datagrams(&bytes, |datagram| got.push(datagram.to_vec())).unwrap().to_vec();
                left = later;
                if left.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_length_that_no_datagram_has_ends_the_stream() {
        for length in [0, MAX_LENGTH as u32 + 1, u32::MAX] {
            assert_eq!(datagrams(&length.to_be_bytes(), |_| {}), Err(TooLong));
        }
        assert!(datagrams(&(MAX_LENGTH as u32).to_be_bytes(), |_| {}).is_ok());
    }
}
