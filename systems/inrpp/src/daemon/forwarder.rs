//! The thread that moves packets: TUN devices, neighbours' links, and the core between them.
//!
//! All is decided when a packet leaves. What the kernel routes out of a port is read from its TUN device, and goes to the
//! neighbour, waits, or takes a detour. What a neighbour sends goes to the kernel, unless it is on a detour.

mod arriving;
mod handover;
mod leaving;
mod neighbours;
mod out;
mod port;
mod reconfigure;
mod report;
mod spacing;
mod start;

use std::{
    io::{self, IoSlice},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{eventfd::EventFd, time::TimeSpec},
};
use sidestep_linux::{monotonic_now, netlink, tun::Tun};
use sidestep_net::{Span, Time};

pub(super) use self::reconfigure::PortPlace;
use self::{
    port::{Peer, PortIo},
    spacing::Spacing,
};
use super::{
    config::{Idle, RouterSettings},
    connections::Connections,
    divert::{Divert, Mode},
    link::ReceiveBuffers,
    resequence::Resequencer,
    segments::{Joiner, VnetHeader},
    slots::Slots,
    status::InrppStatus,
};
use crate::{Handle, Port, Router, RouterId};

/// Packets of the cache leave in batches of this time.
const QUANTUM: Span = Span::from_micros(500);
/// How often the program at egress is shown that the process lives: five times in the time after which it passes.
const BEAT: Span = Span::from_millis(20);
/// How long a flow counts as disturbed after a packet of it took a detour.
const DISTURBED: Span = Span::from_secs(1);
/// What is read from one device before others have their turn: packets or super-packets, and bytes.
const READ: (usize, usize) = (4_096, 4 << 20);
/// What is taken from one link. Far less: each ACK among it may have a host send at once, and its device's queue is short.
const TAKEN: usize = 256;
/// The thread wakes up so many times at once, and later after such pauses.
const WAKES: u64 = 8;
const WAKE: Span = Span::from_micros(100);
/// How often links that have lost their connection try again.
const RECONNECT: Span = Span::from_secs(1);
/// Without queues for so long, packets stay in the kernel where `idle` asks for that.
const IDLE: Span = Span::from_millis(200);

/// What other threads ask of this one.
pub(super) enum Command {
    /// What it reports about itself.
    Status(mpsc::Sender<InrppStatus>),
    /// To end.
    Stop,
    /// To put the programs back, as another program has removed one.
    Attach,
    /// To leave all as it is, for a successor or for a change of the ports.
    Pause,
}

/// How to reach the thread.
#[derive(Clone, Debug)]
pub(super) struct Mailbox {
    commands: mpsc::Sender<Command>,
    bell: Arc<EventFd>,
    alarm: Arc<AtomicBool>,
}

impl Mailbox {
    /// Whether something has to be looked at since this was asked last.
    pub(super) fn alarmed(&self) -> bool {
        self.alarm.swap(false, Ordering::Relaxed)
    }

    /// Sends a command; `false` when the thread has ended.
    pub(super) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok() && self.bell.write(1).is_ok()
    }
}

/// What has happened beside what the core and the ports count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets and datagrams that are none.
    malformed: u64,
    /// Packets for which there was no memory.
    no_memory: u64,
    clamped_acks: u64,
    window_updates: u64,
    mss_clamped: u64,
}

/// The thread's state.
pub(super) struct Forwarder {
    settings: RouterSettings,
    id: RouterId,
    dry_run: bool,
    router: Router,
    ports: Vec<PortIo>,
    divert: Divert,
    connections: Connections,
    slots: Slots,
    order: Option<Resequencer>,
    /// ACKs that wait as their windows cannot be read.
    acks: Spacing,
    /// Packets that wait to be written to the kernel.
    ready: Vec<Handle>,
    joiner: Joiner,
    buffers: ReceiveBuffers,
    /// An empty list, for the datagrams that are received at once.
    datagrams: Vec<&'static [u8]>,
    read: Vec<u8>,
    keys: [u64; 2],
    counts: Counts,
    commands: mpsc::Receiver<Command>,
    bell: Arc<EventFd>,
    /// Set when a device was deleted.
    alarm: Arc<AtomicBool>,
    started: Time,
    next_hello: Time,
    next_beat: Time,
    next_drain: Time,
    next_wake: Time,
    next_reconnect: Time,
    /// When a port had a queue last.
    busy: Time,
}

impl Forwarder {
    /// Moves packets until the command to stop.
    pub(super) fn run(mut self) -> Forwarder {
        // What comes late leaves in bursts, and detours have no use for them.
        sidestep_linux::hurry();
        let mut ready = Vec::new();
        loop {
            let now = monotonic_now();
            self.handle_due(now);
            self.flush(now);
            self.pause(now);
            if let Err(error) = self.wait(&mut ready) {
                tracing::error!("waiting for packets: {error}");
                return self;
            }
            for source in ready.drain(..) {
                let now = monotonic_now();
                match source {
                    Source::Bell => {
                        if self.obey(now) == After::Stop {
                            return self;
                        }
                    }
                    Source::Tun(at) => self.read_tun(now, at),
                    Source::Link(at) => self.arrive(now, at),
                }
                if monotonic_now() >= self.next_due() {
                    self.handle_due(monotonic_now());
                    self.flush(monotonic_now());
                }
            }
        }
    }

    /// Does what is due.
    fn handle_due(&mut self, now: Time) {
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            self.beat(now);
        }
        if now >= self.next_hello {
            if now.since(self.next_hello) > self.settings.hello {
                // The process has slept: what neighbours have said meanwhile is still to be read.
                self.ports.iter_mut().filter_map(PortIo::neighbour).for_each(|neighbour| neighbour.excuse(now));
            }
            self.next_hello = now + self.settings.hello;
            self.send_hellos(now);
            self.connections.sweep(now);
        }
        if now >= self.next_drain && self.router.poll_timeout().is_some_and(|due| due <= now) {
            self.next_drain = now + QUANTUM;
            let (router, mut out) = self.split(now);
            router.handle_timeout(now, &mut out);
        }
        if self.order.as_ref().and_then(Resequencer::poll_timeout).is_some_and(|due| due <= now) {
            self.with_order(now, |order, ready| order.handle_timeout(now, ready));
        }
        self.release_acks(now);
        if now >= self.next_reconnect {
            self.next_reconnect = now + RECONNECT;
            self.router.forget_idle(now);
            for neighbour in self.ports.iter_mut().filter_map(PortIo::neighbour) {
                if let Err(error) = neighbour.link.reconnect(now) {
                    tracing::debug!(neighbour = neighbour.name, "{error}");
                }
            }
        }
    }

    /// Shows that the process lives, and leaves packets to the kernel while nothing waits, where that is wished.
    fn beat(&mut self, now: Time) {
        let is_busy = (0..self.ports.len()).any(|at| self.is_busy(now, Port(at as u16)));
        if is_busy {
            self.busy = now;
        }
        let rests = self.settings.idle == Idle::Pass && now.since(self.busy) > IDLE;
        if rests && self.divert.mode() == Mode::Divert {
            self.divert.set_mode(Mode::PassIdle);
        } else if is_busy && self.divert.mode() != Mode::Divert {
            self.divert.set_mode(Mode::Divert);
        }
        if self.divert.mode() == Mode::PassIdle {
            // The kernel forwards, and the core does not see what.
            self.router.forget_limits();
        }
        self.divert.beat(now);
    }

    /// Whether a port has a queue, or has sent nearly all that its link takes.
    fn is_busy(&self, now: Time, at: Port) -> bool {
        let backlog = self.ports.get(usize::from(at.0)).map_or(Time::ZERO, |port| port.free_at);
        self.router.occupancy(at).get() > 0 || backlog > now + QUANTUM
    }

    /// Hands to links and TUN devices what has gathered.
    fn flush(&mut self, now: Time) {
        for at in 0..self.ports.len() {
            let Some(port) = self.ports.get_mut(at) else { continue };
            let was_blocked = port.is_blocked();
            let Some(neighbour) = port.neighbour() else {
                self.write_edge(Port(at as u16));
                continue;
            };
            // Of TCP more may wait in the link than in the outbox.
            if !neighbour.outbox.is_empty() || was_blocked {
                let sent = neighbour.link.send(&mut neighbour.outbox);
                neighbour.note_sent(&sent);
            }
            let is_refused = std::mem::take(&mut neighbour.refused);
            let (rate, is_free) = (port.rate, was_blocked && !port.is_blocked());
            if is_refused {
                self.refused(now, Port(at as u16));
            }
            if is_free {
                // The core learns that the link takes packets again.
                let (router, mut out) = self.split(now);
                router.handle_rate(now, Port(at as u16), rate, &mut out);
            }
        }
    }

    /// Lets packets gather, if the thread has been woken often: each time costs more than a packet does.
    fn pause(&mut self, now: Time) {
        let first = Time::from_nanos(now.as_nanos().saturating_sub(WAKE.as_nanos() * WAKES));
        self.next_wake = self.next_wake.max(first) + WAKE;
        let pause = self.next_wake.min(self.next_due()).since(now);
        if pause > Span::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(pause.as_nanos()));
        }
    }

    /// Waits until something is ready or due, and lists what is ready.
    fn wait(&self, ready: &mut Vec<Source>) -> io::Result<()> {
        let most = 1 + 3 * self.ports.len();
        let (mut polled, mut sources) = (Vec::with_capacity(most), Vec::with_capacity(most));
        polled.push(PollFd::new(self.bell.as_fd(), PollFlags::POLLIN));
        sources.push(Source::Bell);
        for (at, port) in self.ports.iter().enumerate() {
            let at = Port(at as u16);
            // The descriptor of a deleted device is always ready.
            if !port.is_cut {
                polled.push(PollFd::new(port.tun.as_fd(), PollFlags::POLLIN));
                sources.push(Source::Tun(at));
            }
            if let Peer::Neighbour(neighbour) = &port.peer {
                let waits = if neighbour.link.is_blocked() { PollFlags::POLLOUT } else { PollFlags::empty() };
                for (fd, waits) in neighbour.link.fds().into_iter().zip([waits, PollFlags::empty()]) {
                    if let Some(fd) = fd {
                        polled.push(PollFd::new(fd, PollFlags::POLLIN | waits));
                        sources.push(Source::Link(at));
                    }
                }
            }
        }
        let timeout = self.next_due().since(monotonic_now());
        let timeout =
            TimeSpec::new((timeout.as_nanos() / 1_000_000_000) as i64, (timeout.as_nanos() % 1_000_000_000) as i64);
        match ppoll(&mut polled, Some(timeout), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        ready.extend(polled.iter().zip(&sources).filter(|(fd, _)| is_ready(fd)).map(|(_, source)| *source));
        Ok(())
    }

    /// When something is due next.
    fn next_due(&self) -> Time {
        let drains = self.router.poll_timeout().map_or(Time::MAX, |due| due.max(self.next_drain));
        let order = self.order.as_ref().and_then(Resequencer::poll_timeout).unwrap_or(Time::MAX);
        let acks = self.acks.poll_timeout().unwrap_or(Time::MAX);
        drains.min(order).min(acks).min(self.next_hello).min(self.next_beat)
    }

    /// Neighbours send by their kernels from now on, and what waits goes by ours.
    pub(super) fn say_goodbye(&mut self, now: Time) {
        self.divert.stop();
        for at in 0..self.ports.len() {
            let at = Port(at as u16);
            self.send_hello(now, at, true);
            self.give_to_kernel(now, at);
        }
        self.with_order(now, |order, ready| order.clear(ready));
        self.flush(now);
    }

    /// Reads what the kernel sends out of a port, up to a batch.
    fn read_tun(&mut self, now: Time, at: Port) {
        let mut buffer = std::mem::take(&mut self.read);
        let mut bytes = 0;
        for _ in 0..READ.0 {
            if bytes >= READ.1 {
                break;
            }
            let Some(port) = self.ports.get(usize::from(at.0)) else { break };
            let len = match port.tun.read(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.raw_os_error() == Some(libc::EBADFD) => {
                    self.cut(at);
                    break;
                }
                Err(_) => break,
            };
            let Some((head, packet)) =
                buffer.get_mut(..len).and_then(|read| read.split_at_mut_checked(VnetHeader::LEN))
            else {
                continue;
            };
            let Some((header, _)) = VnetHeader::split(head) else { continue };
            bytes += len;
            self.leave(now, at, &header, packet);
        }
        self.read = buffer;
    }

    /// Somebody has deleted a port's device: the kernel sends until there is another.
    fn cut(&mut self, at: Port) {
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        tracing::warn!("somebody deleted {}, which is made again", port.tun.name());
        port.is_cut = true;
        self.set_entry(at);
        self.alarm.store(true, Ordering::Relaxed);
    }

    /// Empties the inbox.
    fn obey(&mut self, now: Time) -> After {
        // Emptied first: a command that comes later rings again.
        let _ = self.bell.read();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                // The one who asked may have gone.
                Command::Status(reply) => drop(reply.send(self.report(now))),
                Command::Attach => {
                    if let Err(error) = netlink::block_on(async |netlink| self.attach_all(netlink).await) {
                        tracing::error!("putting a program back: {error}");
                    }
                }
                Command::Pause => return After::Stop,
                Command::Stop => {
                    self.say_goodbye(now);
                    return After::Stop;
                }
            }
        }
        After::GoOn
    }
}

/// What is ready.
#[derive(Clone, Copy, Debug)]
enum Source {
    Bell,
    Tun(Port),
    Link(Port),
}

/// What to do after the inbox is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    GoOn,
    Stop,
}

/// Writes a packet, or a super-packet, to the kernel.
fn write(tun: &Tun, header: &VnetHeader, packet: &[u8]) -> io::Result<usize> {
    tun.write(&[IoSlice::new(zerocopy::IntoBytes::as_bytes(header)), IoSlice::new(packet)])
}
