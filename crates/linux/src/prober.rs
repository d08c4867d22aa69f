//! Active probes of one target by one egress: ICMP echo, UDP echo, or STAMP, over IPv4 or IPv6.
//!
//! A [`Prober`] owns a socket that is bound to the egress's device and carries its mark, so that a probe leaves by the egress that
//! it measures, even while the routing tables change. The methods:
//!
//! - [`Prober::open`] makes the socket as a [`Spec`] describes it.
//! - [`Prober::send`] sends a probe and returns its number; numbers count from 0.
//! - [`Prober::receive`] returns the next [`Reply`], and never waits. Call it when the descriptor becomes readable, and once more when
//!   a probe's time is over. The caller knows when that is: a prober has no timeouts.
//!
//! Round trips go by the kernel's timestamps where it gives any: from the moment when a probe enters the queue of its device, so
//! that the wait there counts as it does for other traffic, to the moment when the answer came in. The time that a process
//! waits for the processor does not count. Without timestamps the process's own clock is read, and [`Counts::unstamped`] counts
//! how often. Nothing is allocated for a probe, and no more than [`WINDOW`] probes are remembered.

mod pending;
mod socket;

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use sidestep_net::{Span, Time};
use sidestep_proto::{
    echo::{self, Family, Payload, Unreachable},
    stamp::{
        self, Clock, DirectionLosses, Directions, ErrorEstimate, ReflectorPacket, SenderPacket, Timestamp, WallTime,
    },
};

use self::{
    pending::{Lookup, Pending, Sent},
    socket::{Incoming, ProbeSocket, Received},
};
use crate::{
    error::{LinuxError, Result},
    monotonic_now,
};

pub use self::pending::WINDOW;
pub(crate) use self::socket::at;

/// The longest probe, in bytes behind its IP and UDP headers.
pub const MAX_LENGTH: usize = 1_400;
/// Most packets that one call looks at before it returns.
const BUDGET: usize = 1_024;

/// What to probe, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The target's address.
    pub target: IpAddr,
    /// How it is asked.
    pub method: Method,
    /// The device by which probes leave; `None`: by the routing tables.
    pub device: Option<String>,
    /// Whether answers may come in by any device, as they do with addresses of the site's own that several providers announce.
    /// Else only those by `device` count. An answer repeats a number of 64 random bits that only who has seen the probe knows.
    pub any_return: bool,
    /// The routing mark of probes; `None`: no mark.
    pub mark: Option<u32>,
    /// The source address; `None`: as the kernel chooses.
    pub source: Option<IpAddr>,
    /// The number of the STAMP session (RFC 8972, section 3); `None`: one of its own.
    pub session: Option<u16>,
    /// The length in bytes behind the IP and UDP headers; raised to what the method needs, at most [`MAX_LENGTH`].
    pub length: usize,
}

/// How a target is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// ICMP echo, which every host answers unless it is configured not to.
    Icmp,
    /// UDP towards an echo service (RFC 862).
    UdpEcho {
        /// Its port, by default 7.
        port: u16,
    },
    /// STAMP towards a session reflector (RFC 8762), which distinguishes the directions of loss.
    Stamp {
        /// Its port, by default [`stamp::PORT`].
        port: u16,
        /// How our timestamps are written.
        clock: Clock,
    },
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The target has answered.
    Answer(Answer),
    /// An ICMP error reports that the probe did not arrive, or was refused.
    Unreachable {
        /// The probe's number.
        sequence: u32,
        /// What the error reports.
        why: Unreachable,
        /// Who reports it.
        by: Option<IpAddr>,
    },
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The probe's number.
    pub sequence: u32,
    /// The round trip, without the time that a STAMP reflector took.
    pub rtt: Span,
    /// Whether both ends of the round trip are the kernel's timestamps.
    pub stamped: bool,
    /// What a STAMP reflector reports.
    pub remote: Option<Remote>,
}

/// What a STAMP reflector's answer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The answer's number: how many probes the reflector has answered before.
    pub sequence: u32,
    /// Probes lost so far, by direction.
    pub lost: Directions,
    /// From our sending to its receiving in nanoseconds, by both clocks, which may differ: only changes mean something.
    pub forward: i64,
    /// From its sending to our receiving in nanoseconds, by both clocks.
    pub backward: i64,
    /// The TTL or hop limit that the probe had left at the reflector.
    pub ttl: u8,
}

/// What a prober has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Probes that were sent.
    pub sent: u64,
    /// Probes that the kernel refused to send.
    pub refused: u64,
    /// Answers.
    pub answered: u64,
    /// Answers without the kernel's timestamps at both ends, or while the machine's clock was set.
    pub unstamped: u64,
    /// ICMP errors about probes.
    pub unreachable: u64,
    /// Answers that had come before.
    pub duplicates: u64,
    /// Packets that answer no probe, or one that is no longer remembered.
    pub foreign: u64,
}

/// Probes one target by one egress.
#[derive(Debug)]
pub struct Prober {
    socket: ProbeSocket,
    method: Method,
    family: Family,
    nonce: u64,
    session: u16,
    length: usize,
    next: u32,
    pending: Pending,
    losses: DirectionLosses,
    counts: Counts,
    buffer: Box<[u8; MAX_LENGTH]>,
}

impl Spec {
    /// Probes of 64 bytes by whatever egress the routing tables select.
    pub fn new(target: IpAddr, method: Method) -> Self {
        Spec { target, method, device: None, any_return: false, mark: None, source: None, session: None, length: 64 }
    }
}

impl Method {
    /// The name for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Icmp => "icmp",
            Method::UdpEcho { .. } => "udp",
            Method::Stamp { .. } => "stamp",
        }
    }

    fn least_length(self) -> usize {
        match self {
            Method::Icmp => echo::HEADER + echo::PAYLOAD,
            Method::UdpEcho { .. } => echo::PAYLOAD,
            Method::Stamp { .. } => stamp::LENGTH,
        }
    }
}

impl Prober {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// A mark needs `CAP_NET_ADMIN`. ICMP needs `CAP_NET_RAW`, unless `net.ipv4.ping_group_range` has the process's group.
    pub fn open(spec: &Spec) -> Result<Self> {
        let random = crate::random().map_err(|error| LinuxError::io("drawing random bits", error))?;
        let random = u64::from_ne_bytes(random);
        Ok(Prober {
            socket: ProbeSocket::open(spec, random as u16)?,
            method: spec.method,
            family: if spec.target.is_ipv4() { Family::V4 } else { Family::V6 },
            nonce: random,
            session: spec.session.unwrap_or(session(random)),
            length: spec.length.clamp(spec.method.least_length(), MAX_LENGTH),
            next: 0,
            pending: Pending::default(),
            losses: DirectionLosses::default(),
            counts: Counts::default(),
            buffer: Box::new([0; MAX_LENGTH]),
        })
    }

    /// Sends a probe, and returns its number. One that the kernel refuses to send takes a number, too: it is lost.
    pub fn send(&mut self) -> Result<u32> {
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        let sent = Sent::now(sequence);
        self.write(&sent);
        self.pending.insert(sent);
        let packet = self.buffer.get(..self.length).unwrap_or_default();
        let result = self.socket.send(packet).or_else(|_| {
            // It may be an ICMP error for an earlier probe, which waits in the queue of errors. Then this one leaves now.
            self.socket.renumber(sequence);
            self.socket.send(packet)
        });
        if let Err(error) = result {
            self.counts.refused += 1;
            self.socket.renumber(self.next);
            // A process that could open the socket does not lack a privilege: `EPERM` is a firewall's.
            return Err(LinuxError::Refused {
                what: format!("sending a probe to {}", self.socket.target()),
                source: error,
            });
        }
        self.counts.sent += 1;
        Ok(sequence)
    }

    /// The next answer or error; `None` if there is none yet. It never waits.
    pub fn receive(&mut self) -> Result<Option<Reply>> {
        for _ in 0..BUDGET {
            let buffer = self.buffer.as_mut_slice();
            let reply = match self.socket.receive(buffer).map_err(|error| LinuxError::io("receiving probes", error))? {
                None => return Ok(None),
                Some(Incoming::Stamp { sequence, at }) => {
                    self.pending.stamp(sequence, at);
                    continue;
                }
                Some(Incoming::Error { kind, code, by, length }) => self.concerned(kind, code, by, length),
                Some(Incoming::Packet(received)) => self.answer(received),
            };
            match reply {
                Some(reply) => return Ok(Some(reply)),
                None => self.counts.foreign += 1,
            }
        }
        Ok(None)
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How the target is asked.
    pub fn method(&self) -> Method {
        self.method
    }

    fn write(&mut self, sent: &Sent) {
        let (payload, out) = (
            Payload { nonce: self.nonce, sequence: sent.sequence },
            self.buffer.get_mut(..self.length).unwrap_or_default(),
        );
        // The length is at least what the method needs.
        let _ = match self.method {
            Method::Icmp => echo::write_request(self.family, self.nonce as u16, &payload, out),
            Method::UdpEcho { .. } => payload.write(out),
            Method::Stamp { clock, .. } => {
                let error = ErrorEstimate::unsynchronised(clock);
                let timestamp = Timestamp::of(clock, sent.wall);
                SenderPacket { sequence: sent.sequence, timestamp, error, session: self.session }.write(out)
            }
        };
    }

    /// Reads a packet that has come, which lies in the buffer.
    fn answer(&mut self, received: Received) -> Option<Reply> {
        let bytes = self.buffer.get(..received.length)?;
        let bytes = if self.socket.has_ip_header() { echo::behind_ipv4(bytes)? } else { bytes };
        let (sequence, reflected) = match self.method {
            Method::Icmp => {
                let (identifier, payload) = echo::parse_reply(self.family, bytes)?;
                let is_ours = payload.nonce == self.nonce && self.socket.is_identifier(identifier, self.nonce as u16);
                (is_ours.then_some(payload.sequence)?, None)
            }
            Method::UdpEcho { .. } => {
                let payload = Payload::parse(bytes)?;
                ((payload.nonce == self.nonce).then_some(payload.sequence)?, None)
            }
            Method::Stamp { clock, .. } => {
                let (packet, _) = ReflectorPacket::parse(bytes)?;
                let sent = self.pending.get(packet.sender_sequence)?;
                // A host that has not seen the probe does not know to the nanosecond when it was sent.
                let is_ours = packet.sender_timestamp == Timestamp::of(clock, sent.wall);
                (is_ours.then_some(packet.sender_sequence)?, Some(packet))
            }
        };
        let sent = match self.pending.answer(sequence) {
            Lookup::Waiting(sent) => sent,
            Lookup::Answered => {
                self.counts.duplicates += 1;
                // It is known, and answers nothing.
                self.counts.foreign = self.counts.foreign.saturating_sub(1);
                return None;
            }
            Lookup::Unknown => return None,
        };
        let (departed, arrived) = (sent.stamp.unwrap_or(sent.wall), received.stamp.unwrap_or(received.wall));
        let by_process = received.now.since(sent.now);
        let by_kernel = u64::try_from(arrived.since(departed)).ok().map(Span::from_nanos);
        // Between the readings of two clocks there may be time, and one may be slewed by 500 ppm.
        let clock_moved = received.wall.since(sent.wall).abs_diff(by_process.as_nanos() as i64)
            > MAX_SLEW + by_process.as_nanos() / 1_000;
        let by_kernel = by_kernel.filter(|span| !clock_moved && span.as_nanos() <= by_process.as_nanos() + MAX_SLEW);
        let stamped = by_kernel.is_some() && sent.stamp.is_some() && received.stamp.is_some();
        let whole = by_kernel.unwrap_or(by_process);
        let turnaround = reflected.and_then(|packet| u64::try_from(packet.turnaround()).ok()).unwrap_or(0);
        // A reflector whose clock jumps may report that it took longer than all of it.
        let rtt = whole.as_nanos().checked_sub(turnaround).map_or(whole, Span::from_nanos);
        self.counts.answered += 1;
        self.counts.unstamped += u64::from(!stamped);
        let losses = &mut self.losses;
        let remote = reflected.map(|packet| Remote {
            sequence: packet.sequence,
            lost: losses.handle_answer(sequence, packet.sequence),
            forward: packet.received.since(packet.error.clock, Timestamp::of(packet.error.clock, departed)),
            backward: Timestamp::of(packet.error.clock, arrived).since(packet.error.clock, packet.timestamp),
            ttl: packet.sender_ttl,
        });
        Some(Reply::Answer(Answer { sequence, rtt, stamped, remote }))
    }

    /// Which probe an ICMP error is about; the quoted packet lies in the buffer.
    fn concerned(&mut self, kind: u8, code: u8, by: Option<IpAddr>, length: usize) -> Option<Reply> {
        let why = Unreachable::of(self.family, kind, code)?;
        let quoted = self.buffer.get(..length)?;
        let sequence = match self.method {
            Method::Icmp => {
                let (identifier, low) = echo::quoted_request(self.family, quoted)?;
                let is_ours = self.socket.is_identifier(identifier, self.nonce as u16);
                // The newest probe with this number modulo 2¹⁶.
                let last = self.next.wrapping_sub(1);
                is_ours.then(|| last.wrapping_sub(u32::from((last as u16).wrapping_sub(low))))?
            }
            Method::UdpEcho { .. } => Payload::parse(quoted).filter(|payload| payload.nonce == self.nonce)?.sequence,
            Method::Stamp { .. } => stamp::quoted_sequence(quoted)?,
        };
        self.pending.get(sequence)?;
        self.counts.unreachable += 1;
        Some(Reply::Unreachable { sequence, why, by })
    }
}

impl AsFd for Prober {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Prober {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// What two readings of different clocks may differ by, in nanoseconds.
const MAX_SLEW: u64 = 1_000_000;

/// The number of a STAMP session; 0 would mean none.
fn session(nonce: u64) -> u16 {
    ((nonce >> 16) as u16).max(1)
}

/// The time by the clock that shows the date.
pub fn wall_now() -> WallTime {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME);
    WallTime::from_nanos(now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64))
}

/// Where probes of a method go.
fn address_of(spec: &Spec) -> SocketAddr {
    let port = match spec.method {
        Method::Icmp => 0,
        Method::UdpEcho { port } | Method::Stamp { port, .. } => port,
    };
    SocketAddr::new(spec.target, port)
}

impl Sent {
    fn now(sequence: u32) -> Self {
        let (now, wall) = readings();
        Sent { sequence, now, wall, stamp: None }
    }
}

/// The present by the monotonic clock and by the wall clock. They are read again if the process had to wait for the processor between them.
fn readings() -> (Time, WallTime) {
    const AT_ONCE: Span = Span::from_micros(100);
    let mut readings = (monotonic_now(), wall_now());
    for _ in 0..8 {
        let after = monotonic_now();
        if after.since(readings.0) <= AT_ONCE {
            break;
        }
        readings = (after, wall_now());
    }
    readings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_break_what_reads_probes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzzing::read_probes(&bytes);
        }
    }
}
