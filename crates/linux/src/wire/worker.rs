//! The thread that serves a share of the wires: sleeps until a frame is due or arrives.

use std::{
    os::fd::AsRawFd,
    sync::{Arc, mpsc},
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
        eventfd::{EfdFlags, EventFd},
    },
    time::{ClockId, clock_gettime},
};
use sidestep_net::{Channel, Span, Time};
use sidestep_proto::link::LinkState;

use super::{ArcStats, WireStats, direction::WireDirection, thread_stats::ThreadStats};
use crate::{
    bpf::arrivals::Arrivals,
    error::{LinuxError, Result},
};

/// Events taken from the kernel at once.
const EVENTS: usize = 64;
/// The event that reports that the inbox has something.
const INBOX: u64 = u64::MAX;

/// Commands to a worker; a direction is named by its index among the worker's own.
#[derive(Debug)]
pub(super) enum Command {
    SetState(usize, LinkState),
    SetChannel(usize, Channel),
    SetCarrier(usize, bool),
    Arcs(mpsc::Sender<Vec<ArcStats>>),
    Stats(mpsc::Sender<WireStats>),
    Stop,
}

/// How to reach a worker.
#[derive(Clone, Debug)]
pub(super) struct Mailbox {
    commands: mpsc::Sender<Command>,
    bell: Arc<EventFd>,
}

/// A share of the wires and what it takes to serve them.
#[derive(Debug)]
pub(super) struct Worker {
    epoll: Epoll,
    commands: mpsc::Receiver<Command>,
    bell: Arc<EventFd>,
    directions: Vec<WireDirection>,
    /// When each direction has a frame to deliver. Going through these few cache lines once a round is cheaper than
    /// keeping a heap in order for each frame.
    due: Vec<Time>,
    stats: ThreadStats,
    /// What shows when frames arrived, and this thread's number there.
    arrivals: Option<(Arc<Arrivals>, usize)>,
}

impl Mailbox {
    /// Sends a command; `false` when the worker has ended.
    pub(super) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok() && self.bell.write(1).is_ok()
    }
}

impl Worker {
    /// A worker for these directions, whose clock started at `started`.
    pub(super) fn new(
        directions: Vec<WireDirection>,
        started: Instant,
        arrivals: Option<(Arc<Arrivals>, usize)>,
    ) -> Result<(Self, Mailbox)> {
        let failed = |errno: Errno| LinuxError::io("preparing a wire", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?;
        epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, INBOX)).map_err(failed)?;
        for (index, direction) in directions.iter().enumerate() {
            epoll.add(direction.source(), EpollEvent::new(EpollFlags::EPOLLIN, index as u64)).map_err(failed)?;
        }
        wait(&epoll, &mut [NO_EVENT], Some(Span::ZERO))
            .map_err(|errno| LinuxError::new("waiting for frames", errno.into(), "epoll_pwait2, in Linux 5.11"))?;
        let (sender, commands) = mpsc::channel();
        let bell = Arc::new(bell);
        let mailbox = Mailbox { commands: sender, bell: Arc::clone(&bell) };
        let due = vec![Time::MAX; directions.len()];
        Ok((Worker { epoll, commands, bell, directions, due, stats: ThreadStats::new(started), arrivals }, mailbox))
    }

    /// Serves the wires until the command to stop; returns what they have done.
    pub(super) fn run(mut self) -> WireStats {
        crate::hurry();
        match self.arrivals.take().map(|(arrivals, number)| arrivals.enter(number)) {
            Some(Ok(entered)) => self.stats.enter(entered),
            Some(Err(error)) => tracing::warn!("frames arrive when they are read: {error}"),
            None => {}
        }
        let mut events = [NO_EVENT; EVENTS];
        loop {
            let next = self.transmit();
            let count = match self.wait(next, &mut events) {
                Ok(count) => count,
                Err(errno) => {
                    tracing::error!("wires stop: waiting for frames: {errno}");
                    return self.stats();
                }
            };
            for event in events.iter().take(count) {
                if event.u64 != INBOX {
                    self.receive(event.u64 as usize);
                } else if self.obey() == After::Stop {
                    return self.stats();
                }
            }
        }
    }

    /// Takes the next events, and sleeps until there are any if nothing is due before.
    fn wait(&mut self, next: Time, events: &mut [libc::epoll_event]) -> std::result::Result<usize, Errno> {
        // Asked before, to know when the thread sleeps: what it takes to wake is not what frames take.
        let count = wait(&self.epoll, events, Some(Span::ZERO))?;
        let now = self.stats.now();
        if count > 0 || next <= now {
            return Ok(count);
        }
        let count = wait(&self.epoll, events, (next < Time::MAX).then(|| next.since(now)))?;
        self.stats.slept(next);
        Ok(count)
    }

    /// Delivers what is due; returns when something will be.
    fn transmit(&mut self) -> Time {
        let mut next = Time::MAX;
        let mut now = self.stats.now();
        for (due, direction) in self.due.iter_mut().zip(&mut self.directions) {
            if *due <= now {
                now = direction.transmit(now, &mut self.stats);
                *due = direction.next_due();
            }
            next = next.min(*due);
        }
        next
    }

    /// Takes what the direction's TAP has.
    fn receive(&mut self, index: usize) {
        let (Some(direction), Some(due)) = (self.directions.get_mut(index), self.due.get_mut(index)) else { return };
        if let Err(errno) = direction.receive(&mut self.stats) {
            // Its namespace may have gone before the wires; one warning is enough.
            tracing::warn!("{} has gone: {errno}", direction.source().name());
            let _ = self.epoll.delete(direction.source());
        }
        *due = direction.next_due();
    }

    /// Does what the inbox asks for.
    fn obey(&mut self) -> After {
        // Emptied first: a command that comes later rings again.
        let _ = self.bell.read();
        while let Ok(command) = self.commands.try_recv() {
            let now = self.stats.now();
            match command {
                Command::SetState(index, state) => {
                    if let Some(direction) = self.directions.get_mut(index) {
                        direction.set_state(now, state);
                        self.due[index] = direction.next_due();
                    }
                }
                Command::SetChannel(index, channel) => {
                    if let Some(direction) = self.directions.get_mut(index) {
                        direction.set_channel(now, &channel);
                        self.due[index] = direction.next_due();
                    }
                }
                Command::SetCarrier(index, carrier) => {
                    let source = self.directions.get(index).map(|direction| direction.source());
                    if let Some(Err(error)) = source.map(|tap| tap.set_carrier(carrier)) {
                        tracing::warn!("the state of a link cannot be set: {error}");
                    }
                }
                // The one who asked may have gone.
                Command::Arcs(reply) => drop(reply.send(self.arcs(now))),
                Command::Stats(reply) => drop(reply.send(self.stats())),
                Command::Stop => return After::Stop,
            }
        }
        After::GoOn
    }

    fn arcs(&self, now: Time) -> Vec<ArcStats> {
        self.directions.iter().map(|direction| direction.stats(now)).collect()
    }

    fn stats(&self) -> WireStats {
        let now = self.stats.now();
        let cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(std::time::Duration::from).unwrap_or_default();
        WireStats {
            at: now,
            arcs: self.arcs(now),
            lateness: self.stats.lateness.clone(),
            times: self.stats.times.clone(),
            threads: 1,
            wakes: self.stats.wakes.kept.clone(),
            stalls: self.stats.stalls.clone(),
            cpu: Span::from_nanos(cpu.as_nanos() as u64),
        }
    }
}

/// What to do after the inbox is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    GoOn,
    Stop,
}

const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

/// Waits for events, at most `timeout`; an interrupted wait has none.
fn wait(epoll: &Epoll, events: &mut [libc::epoll_event], timeout: Option<Span>) -> std::result::Result<usize, Errno> {
    let timeout = timeout.map(|span| libc::timespec {
        tv_sec: (span.as_nanos() / 1_000_000_000) as libc::time_t,
        tv_nsec: (span.as_nanos() % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (first, room) = (events.as_mut_ptr(), events.len() as libc::c_int);
    // SAFETY: the kernel writes at most `room` events from `first` on, and reads `timeout` (null: none) only.
    // nix has no `epoll_pwait2`, and plain `epoll_wait` counts in milliseconds.
    let count = unsafe { libc::epoll_pwait2(epoll.0.as_raw_fd(), first, room, timeout, std::ptr::null()) };
    match Errno::result(count) {
        Ok(count) => Ok(count as usize),
        Err(Errno::EINTR) => Ok(0),
        Err(errno) => Err(errno),
    }
}
