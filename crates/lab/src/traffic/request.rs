//! Requests and answers: a client asks for a number of bytes, and the server gives them and closes.
//!
//! A request begins with its own length and that of the answer, 8 bytes each, in network byte order. The bytes that
//! follow have no meaning.

use std::{
    io::{self, ErrorKind, Write},
    net::{Shutdown, TcpStream},
};

use nix::sys::{epoll::EpollFlags, socket::MsgFlags};

use super::{
    Monotonic, SinkOut,
    bytes::ZEROS,
    socket::{Arrival, receive},
};

/// Bytes of a request's beginning.
pub const HEAD: usize = 16;

/// What a request begins with: how long it is, and how long its answer.
pub fn head(request: u64, answer: u64) -> [u8; HEAD] {
    ((u128::from(request) << 64) | u128::from(answer)).to_be_bytes()
}

/// A request that a server has begun to receive, and its answer.
#[derive(Debug, Default)]
pub struct Exchange {
    head: [u8; HEAD],
    received: u64,
    /// When the last segment arrived that was read, if that is known.
    arrived: Option<Arrival>,
    sent: u64,
    closed: bool,
}

impl Exchange {
    /// What it waits for.
    pub fn interest(&self) -> EpollFlags {
        if self.asked().is_some() && !self.closed { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
    }

    /// Reads or writes one piece, and notes what that was in `seen`. False when the connection is over.
    pub fn handle(&mut self, mut stream: &TcpStream, buffer: &mut [u8], seen: &mut SinkOut) -> io::Result<bool> {
        if let Some(answer) = self.asked()
            && !self.closed
        {
            let late = self.arrived.take().and_then(Arrival::age).zip(Monotonic::now().ok());
            seen.late_wakeups_ns.extend(late.map(|(late, now)| (now.before(late).as_nanos(), late.as_nanos())));
            let piece = (answer - self.sent).min(ZEROS.len() as u64) as usize;
            self.sent += stream.write(ZEROS.get(..piece).unwrap_or(&ZEROS))? as u64;
            if self.sent == answer {
                stream.shutdown(Shutdown::Write)?;
                self.closed = true;
            }
            return Ok(true);
        }
        let flags = MsgFlags::MSG_DONTWAIT;
        let have = self.received.min(HEAD as u64) as usize;
        let (bytes, arrived) = match self.head.get_mut(have..) {
            Some(rest) if !rest.is_empty() => receive(stream, rest, flags)?,
            // TCP discards under MSG_TRUNC instead of copying (tcp(7), "Sockets API").
            _ => receive(stream, buffer, flags | MsgFlags::MSG_TRUNC)?,
        };
        self.arrived = arrived;
        self.received += bytes as u64;
        seen.bytes += bytes as u64;
        // A client that closes before its request is complete gets no answer.
        Ok(bytes > 0)
    }

    /// The length of the answer, once the request has arrived as a whole.
    fn asked(&self) -> Option<u64> {
        let head = u128::from_be_bytes(self.head);
        let (request, answer) = ((head >> 64) as u64, head as u64);
        (self.received >= request.max(HEAD as u64)).then_some(answer)
    }
}

/// Whether an error only means that nothing can be done now.
pub fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_due_when_the_request_is_whole() {
        let mut exchange = Exchange { head: head(100, 7), ..Exchange::default() };
        for (received, due) in [(0, None), (15, None), (16, None), (99, None), (100, Some(7))] {
            exchange.received = received;
            assert_eq!(exchange.asked(), due, "{received}");
        }
    }
}
