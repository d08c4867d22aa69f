//! The session reflector: answers test packets, and counts them by session.

use std::net::{IpAddr, SocketAddr};

use sidestep_net::{Span, Time};

use super::{
    Clock, ErrorEstimate, LENGTH, ReflectorPacket, SenderPacket, Timestamp, WallTime, mark_extensions,
    sessions::Sessions,
};

/// Packets from lower source ports are not answered: senders have ports of their own choice (RFC 8762, section 4.1), and what
/// listens at a well-known port would answer the answer.
pub const MIN_SOURCE_PORT: u16 = 1024;

/// How a reflector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorConfig {
    /// How it writes timestamps.
    pub clock: Clock,
    /// Whether its clock is synchronised to UTC.
    pub synchronised: bool,
    /// Most sessions that it counts at once; also the most sources whose rates it knows.
    pub sessions: usize,
    /// How long it remembers a session, or a source, of which nothing comes.
    pub expiry: Span,
    /// Most packets in a second that it answers to one source: an IPv4 address, or a prefix of 64 bits of IPv6.
    pub rate: u32,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        ReflectorConfig {
            clock: Clock::Ntp,
            synchronised: false,
            sessions: 16_384,
            expiry: Span::from_secs(60),
            rate: 1_000,
        }
    }
}

/// A packet that has come.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Whose it is.
    pub from: SocketAddr,
    /// To which of the reflector's addresses it came, and to which port.
    pub to: SocketAddr,
    /// The TTL or hop limit that was left; 255 if that is not known.
    pub ttl: u8,
    /// When it came.
    pub received: WallTime,
    /// What is in it.
    pub packet: &'a [u8],
}

/// Why a packet is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is shorter than a test packet, or longer than the buffer for the answer.
    Length,
    /// It is from a port where no session sender is: a well-known one, or the reflector's own.
    Port,
    /// Its source sends too many.
    Rate,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorCounts {
    /// Packets that were answered.
    pub answered: u64,
    /// Packets of a wrong length.
    pub length: u64,
    /// Packets from ports of no session sender.
    pub port: u64,
    /// Packets beyond their source's rate.
    pub rate: u64,
}

/// A stateful session reflector; its memory is bounded by its settings.
#[derive(Clone, Debug)]
pub struct Reflector {
    config: ReflectorConfig,
    /// The number of the next answer.
    sessions: Sessions<Session, u32>,
    allowances: Sessions<u64, Allowance>,
    counts: ReflectorCounts,
}

/// What distinguishes sessions (RFC 8972, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    from: SocketAddr,
    to: SocketAddr,
    number: u16,
}

/// How many packets a source may still send: a bucket that holds those of one second.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// Billionths of a packet.
    left: u64,
    at: Time,
}

const PACKET: u64 = 1_000_000_000;

impl Reflector {
    /// A reflector without sessions.
    pub fn new(config: ReflectorConfig) -> Self {
        let ReflectorConfig { sessions, expiry, .. } = config;
        Reflector {
            config,
            sessions: Sessions::new(sessions, expiry),
            allowances: Sessions::new(sessions, expiry),
            counts: ReflectorCounts::default(),
        }
    }

    /// Writes the answer to a packet into `out`, and returns its length: that of the packet. `departs` is when it will leave.
    pub fn handle_request(
        &mut self,
        now: Time,
        request: &Request<'_>,
        departs: WallTime,
        out: &mut [u8],
    ) -> Result<usize, Refusal> {
        let answered = self.answer(now, request, departs, out);
        let counter = match answered {
            Ok(_) => &mut self.counts.answered,
            Err(Refusal::Length) => &mut self.counts.length,
            Err(Refusal::Port) => &mut self.counts.port,
            Err(Refusal::Rate) => &mut self.counts.rate,
        };
        *counter += 1;
        answered
    }

    /// What became of packets so far.
    pub fn counts(&self) -> ReflectorCounts {
        self.counts
    }

    /// How many sessions it remembers.
    pub fn sessions(&mut self, now: Time) -> usize {
        self.sessions.age(now);
        self.sessions.len()
    }

    fn answer(
        &mut self,
        now: Time,
        request: &Request<'_>,
        departs: WallTime,
        out: &mut [u8],
    ) -> Result<usize, Refusal> {
        let Request { from, to, ttl, received, packet } = *request;
        let length = packet.len();
        let out = out.get_mut(..length).ok_or(Refusal::Length)?;
        let (sender, extensions) = SenderPacket::parse(packet).ok_or(Refusal::Length)?;
        if from.port() < MIN_SOURCE_PORT || from.port() == to.port() {
            return Err(Refusal::Port);
        }
        if !self.allows(now, from.ip()) {
            return Err(Refusal::Rate);
        }
        let next = self.sessions.entry(now, &Session { from, to, number: sender.session }, || 0);
        let sequence = *next;
        *next = next.wrapping_add(1);
        let clock = self.config.clock;
        let mut error = ErrorEstimate::unsynchronised(clock);
        error.synchronised = self.config.synchronised;
        let answer = ReflectorPacket {
            sequence,
            timestamp: Timestamp::of(clock, departs),
            error,
            session: sender.session,
            received: Timestamp::of(clock, received),
            sender_sequence: sender.sequence,
            sender_timestamp: sender.timestamp,
            sender_error: sender.error,
            sender_ttl: ttl,
        };
        answer.write(out).ok_or(Refusal::Length)?;
        let copied = out.get_mut(LENGTH..).unwrap_or_default();
        copied.copy_from_slice(extensions);
        mark_extensions(copied);
        Ok(length)
    }

    fn allows(&mut self, now: Time, source: IpAddr) -> bool {
        let full = u64::from(self.config.rate) * PACKET;
        let allowance = self.allowances.entry(now, &neighbourhood(source), || Allowance { left: full, at: now });
        let earned = now.since(allowance.at).as_nanos().saturating_mul(u64::from(self.config.rate));
        (allowance.left, allowance.at) = (allowance.left.saturating_add(earned).min(full), allowance.at.max(now));
        let rest = allowance.left.checked_sub(PACKET);
        allowance.left = rest.unwrap_or(allowance.left);
        rest.is_some()
    }
}

/// Whose allowance an address shares: of IPv6, each host has a whole /64.
fn neighbourhood(source: IpAddr) -> u64 {
    let address = match source {
        IpAddr::V4(v4) => return u64::from(v4.to_bits()),
        IpAddr::V6(v6) => v6,
    };
    match address.to_ipv4_mapped() {
        Some(v4) => u64::from(v4.to_bits()),
        None => (address.to_bits() >> 64) as u64,
    }
}
