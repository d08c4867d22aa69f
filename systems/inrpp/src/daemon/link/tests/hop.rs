//! A tiny forwarding loop: super-packets of a TUN device become datagrams of one segment each, and these become super-packets at
//! the other end.

use std::{
    io::IoSlice,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sidestep_linux::{
    monotonic_now,
    tun::{HEADER, MAX_READ, Tun},
};
use sidestep_net::Span;

use crate::daemon::{
    divert::Filters,
    link::{Link, Outbox, ReceiveBuffers, SHIM},
};

/// Super-packets read at once.
const READS: usize = 8;
/// Segments written at once at most.
const JOINED: usize = 64;
/// The longest headers that are taken apart.
const HEADERS: usize = 160;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`.
const UDP: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`.
const ECN: u8 = 0x80;

/// What two threads want to know of a loop.
#[derive(Debug, Default)]
pub struct Watch {
    pub stop: AtomicBool,
    /// Whether it gives no sign of life, as a process that hangs.
    pub hang: AtomicBool,
    /// Segments that were sent to the neighbour.
    pub sent: AtomicU64,
    /// Super-packets that were read for the neighbour.
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub lost: AtomicU64,
    pub refused: AtomicBool,
    /// Processor time of the thread in µs.
    pub cpu_us: AtomicU64,
}

/// One router: a neighbour port, and an edge port.
pub struct Hop {
    pub divert: Filters,
    pub core: Tun,
    pub edge: Tun,
    pub link: Link,
    pub burst: usize,
}

/// What the shim of the tests says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shim {
    id: u32,
    index: u16,
    count: u16,
    /// Payload of every segment but the last; 0: the packet was single.
    segment: u16,
    headers: u16,
    start: u16,
    offset: u16,
    flags: u8,
    kind: u8,
}

impl Hop {
    /// Forwards until it is to stop. Returns what it has, so that the devices live on.
    pub fn run(mut self, watch: &Watch) -> Self {
        let mut outbox = Outbox::new(2 << 20, 4_096);
        outbox.set_burst(self.burst);
        let (mut buffers, mut buffer, mut id) = (ReceiveBuffers::new(), vec![0; MAX_READ], 0);
        let mut looked = monotonic_now();
        while !watch.stop.load(Ordering::Relaxed) {
            let now = monotonic_now();
            if !watch.hang.load(Ordering::Relaxed) {
                self.divert.beat(now);
            }
            if now.since(looked) > Span::from_millis(50) {
                self.link.reconnect(now).unwrap();
                looked = now;
            }
            self.wait();
            if watch.hang.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            for _ in 0..READS {
                let Ok(len) = self.edge.read(&mut buffer) else { break };
                self.edge.write(&[IoSlice::new(&buffer[..len])]).unwrap();
            }
            for _ in 0..READS {
                if self.link.is_blocked() || outbox.bytes() > 1 << 20 {
                    break;
                }
                let Ok(len) = self.core.read(&mut buffer) else { break };
                id += 1;
                let cut = cut(&buffer[..len], id, &mut outbox);
                watch.sent.fetch_add(cut, Ordering::Relaxed);
                watch.reads.fetch_add(1, Ordering::Relaxed);
            }
            let sent = self.link.send(&mut outbox);
            watch.lost.fetch_add((sent.lost + sent.too_long).into(), Ordering::Relaxed);
            let mut join = Join::new(&self.core);
            let received = self.link.receive(&mut buffers, &mut |datagram| join.take(datagram));
            join.write();
            watch.writes.fetch_add(join.writes, Ordering::Relaxed);
            watch.refused.fetch_or(sent.refused || received.refused, Ordering::Relaxed);
        }
        watch.cpu_us.store(thread_us(), Ordering::Relaxed);
        self
    }

    fn wait(&self) {
        let [connection, listener] = self.link.fds();
        let out = if self.link.is_blocked() { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut fds: Vec<_> = vec![PollFd::new(self.edge.as_fd(), PollFlags::POLLIN)];
        if !self.link.is_blocked() {
            fds.push(PollFd::new(self.core.as_fd(), PollFlags::POLLIN));
        }
        fds.extend(connection.map(|fd| PollFd::new(fd, PollFlags::POLLIN | out)));
        fds.extend(listener.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        poll(&mut fds, PollTimeout::from(10_u8)).unwrap();
    }
}

/// Puts the segments of a packet into the outbox; returns how many.
fn cut(bytes: &[u8], id: u32, outbox: &mut Outbox) -> u64 {
    let (header, packet) = bytes.split_at(HEADER);
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let (flags, kind, segment, start, offset) = (header[0], header[1], word(4), word(6), word(8));
    let mut shim = Shim { id, count: 1, start, offset, flags, kind, ..Shim::default() };
    if kind & !ECN == 0 || segment == 0 {
        return u64::from(outbox.push(&shim.bytes(), &[packet]));
    }
    let t = usize::from(start);
    let headers = if kind & !ECN == UDP { t + 8 } else { t + usize::from(packet[t + 12] >> 4) * 4 };
    let parts = packet[headers..].chunks(segment.into());
    (shim.segment, shim.headers, shim.count) = (segment, headers as u16, parts.len() as u16);
    let mut pushed = 0;
    for part in parts {
        pushed += u64::from(outbox.push(&shim.bytes(), &[&packet[..headers], part]));
        shim.index += 1;
    }
    pushed
}

/// Segments that follow each other, until they are written.
struct Join<'b, 't> {
    tun: &'t Tun,
    first: Shim,
    header: [u8; HEADER + HEADERS],
    parts: Vec<&'b [u8]>,
    len: usize,
    writes: u64,
}

impl<'b, 't> Join<'b, 't> {
    fn new(tun: &'t Tun) -> Self {
        let parts = Vec::with_capacity(JOINED);
        Join { tun, first: Shim::default(), header: [0; HEADER + HEADERS], parts, len: 0, writes: 0 }
    }

    fn take(&mut self, datagram: &'b [u8]) {
        let (shim, packet) = datagram.split_at(SHIM);
        let shim = Shim::read(shim);
        let next = Shim { index: self.first.index + self.parts.len() as u16, ..self.first };
        if !self.parts.is_empty() && (shim != next || shim.segment == 0 || self.parts.len() == JOINED) {
            self.write();
        }
        let headers = usize::from(shim.headers);
        if self.parts.is_empty() {
            (self.first, self.len) = (shim, 0);
            self.header[HEADER..HEADER + headers].copy_from_slice(&packet[..headers]);
        }
        self.parts.push(&packet[headers..]);
        self.len += packet.len() - headers;
    }

    fn write(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        let (shim, headers) = (self.first, usize::from(self.first.headers));
        let mut virtio = [0; HEADER];
        virtio[0] = shim.flags & 1;
        if shim.segment > 0 {
            fix(&mut self.header[HEADER..HEADER + headers], &shim, self.parts.len() as u16, self.len);
        }
        if self.parts.len() > 1 {
            virtio[1] = shim.kind;
            virtio[2..4].copy_from_slice(&shim.headers.to_ne_bytes());
            virtio[4..6].copy_from_slice(&shim.segment.to_ne_bytes());
        }
        virtio[6..8].copy_from_slice(&shim.start.to_ne_bytes());
        virtio[8..10].copy_from_slice(&shim.offset.to_ne_bytes());
        self.header[..HEADER].copy_from_slice(&virtio);
        let mut slices = [IoSlice::new(&[]); JOINED + 1];
        slices[0] = IoSlice::new(&self.header[..HEADER + headers]);
        slices[1..].iter_mut().zip(&self.parts).for_each(|(to, part)| *to = IoSlice::new(part));
        self.tun.write(&slices[..=self.parts.len()]).unwrap();
        self.writes += 1;
        self.parts.clear();
    }
}

/// Makes the headers of a super-packet those of `count` of its segments, with `payload` bytes.
fn fix(packet: &mut [u8], shim: &Shim, count: u16, payload: usize) {
    let get = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let put = |packet: &mut [u8], at: usize, value: u16| packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
    let t = usize::from(shim.start);
    let now = (packet.len() - t + payload) as u16;
    let was = if packet[0] >> 4 == 6 {
        let was = get(packet, 4) + 40 - t as u16;
        put(packet, 4, t as u16 - 40 + now);
        was
    } else {
        let was = get(packet, 2) - t as u16;
        put(packet, 2, t as u16 + now);
        let id = get(packet, 4).wrapping_add(shim.index);
        put(packet, 4, id);
        put(packet, 10, 0);
        let sum = (0..t).step_by(2).map(|at| u32::from(get(packet, at))).sum();
        put(packet, 10, !fold(sum));
        was
    };
    // The sum of the pseudo-header holds the length.
    let sum = t + usize::from(shim.offset);
    let mended = fold(u32::from(get(packet, sum)) + u32::from(!was) + u32::from(now));
    put(packet, sum, mended);
    if shim.kind & !ECN == UDP {
        return put(packet, t + 4, now);
    }
    let sequence = u32::from_be_bytes(packet[t + 4..t + 8].try_into().unwrap());
    let sequence = sequence.wrapping_add(u32::from(shim.index) * u32::from(shim.segment));
    packet[t + 4..t + 8].copy_from_slice(&sequence.to_be_bytes());
    if shim.index + count < shim.count {
        packet[t + 13] &= !0x09; // FIN and PSH
    }
    if shim.index > 0 {
        packet[t + 13] &= !0x80; // CWR
    }
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Shim {
    fn bytes(&self) -> [u8; SHIM] {
        let mut bytes = [0; SHIM];
        bytes[..4].copy_from_slice(&self.id.to_be_bytes());
        let words = [self.index, self.count, self.segment, self.headers, self.start, self.offset];
        bytes[4..16].chunks_mut(2).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
        (bytes[16], bytes[17]) = (self.flags, self.kind);
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Shim {
            id: u32::from_be_bytes(bytes[..4].try_into().unwrap()),
            index: word(4),
            count: word(6),
            segment: word(8),
            headers: word(10),
            start: word(12),
            offset: word(14),
            flags: bytes[16],
            kind: bytes[17],
        }
    }
}

/// Processor time of the calling thread in µs.
fn thread_us() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}
