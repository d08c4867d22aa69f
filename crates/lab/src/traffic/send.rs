//! Where flows start: opens connections and writes as fast as TCP takes it.

use std::io::{self, Write};

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};
use sidestep_net::Span;

use sidestep_scenario::MIN_REQUEST;

use super::{
    FlowOut, MAX_CONNECTIONS, MAX_TRANSFERS, Monotonic, SendOptions, SocketOptions, TrafficError, Transfer,
    allow_descriptors,
    bytes::MAX_PIECE,
    connection::{Connection, Edge, Phase, Plan},
    system,
    users::Crowd,
};

/// Runs the connections to their end, then writes one line of JSON for each ([`FlowOut`]) to `out`.
pub fn send(options: &SendOptions, out: &mut impl Write) -> Result<(), TrafficError> {
    let flows = transfer(options)?;
    let mut write = || -> io::Result<()> {
        for flow in &flows {
            serde_json::to_writer(&mut *out, flow)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().map_err(TrafficError::Output)
}

/// Runs the connections to their end: until all completed or failed, at the latest until the stop.
pub fn transfer(options: &SendOptions) -> Result<Vec<FlowOut>, TrafficError> {
    check(options)?;
    allow_descriptors(options.count() as u64 + 64)?;
    let mut sender = Sender::new(options)?;
    sender.run(options)?;
    let numbers = options.first_index..;
    Ok(sender.connections.iter().zip(numbers).map(|(connection, number)| connection.outcome(number)).collect())
}

/// Memory for unsent data of all connections together, as far as [`MIN_UNSENT`] allows.
const UNSENT_TOTAL: u32 = 64 << 20;
/// Least unsent data that keeps a connection busy between two wake-ups.
const MIN_UNSENT: u32 = 16 << 10;
/// Connections opened between two looks at the events.
const OPEN_AT_ONCE: usize = 64;

/// The most of an answer that one call discards.
const DISCARD: usize = 1 << 20;
/// How often connections are watched for timeouts, and the most that are.
const WATCH_MS: u8 = 5;
const MAX_WATCHED: usize = 1_024;

const TIMER: u64 = u64::MAX;

/// What is due at an instant that was set beforehand.
#[derive(Clone, Copy)]
enum Due {
    /// This many connections must be open.
    Open(usize),
    Window(Edge),
    Stop,
}

struct Sender {
    plan: Plan,
    epoll: Epoll,
    timer: TimerFd,
    connections: Vec<Connection>,
    /// Never written to, so that it costs no memory: the kernel discards answers by itself.
    buffer: Vec<u8>,
    /// How many of the connections, from the first, should be open by now, and how many are.
    to_open: usize,
    opened: usize,
    done: usize,
    crowd: Option<Crowd>,
    /// The connection that each user has, and how many edges of the window have passed.
    current: Vec<usize>,
    edges: usize,
    /// When connections were last watched; `None`: there are too many.
    watched: Option<Monotonic>,
}

impl Sender {
    fn new(options: &SendOptions) -> Result<Self, TrafficError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create"))?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(system("timerfd_create"))?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map_err(system("epoll_ctl"))?;
        let plan = Plan {
            to: options.to,
            size: options.size,
            request: options.request,
            socket: options.socket.clone(),
            unsent: (UNSENT_TOTAL / (options.count() as u32).max(1)).clamp(MIN_UNSENT, MAX_PIECE),
        };
        let connections: Vec<Connection> = match options.schedule.as_slice() {
            _ if options.users.is_some() => Vec::new(),
            [] => (0..options.connections).map(|_| Connection::default()).collect(),
            schedule => {
                schedule.iter().map(|one| one.size.map_or_else(Connection::default, Connection::sized)).collect()
            }
        };
        let watched = (options.count() <= MAX_WATCHED).then(|| Monotonic::from_nanos(0));
        let start = options.epoch + options.start_at;
        let crowd = options.users.as_ref().map(|users| Crowd::new(users, options.epoch, start));
        Ok(Sender {
            plan,
            epoll,
            timer,
            connections,
            buffer: vec![0; DISCARD],
            to_open: 0,
            opened: 0,
            done: 0,
            crowd,
            current: vec![usize::MAX; options.users.as_ref().map_or(0, |users| users.count as usize)],
            edges: 0,
            watched,
        })
    }

    fn run(&mut self, options: &SendOptions) -> Result<(), TrafficError> {
        // This is the order at equal instants: a window that opens with the flow counts the flow's first byte.
        let mut agenda = vec![(options.window.start, Due::Window(Edge::Start))];
        match options.schedule.as_slice() {
            [] => agenda.push((options.epoch + options.start_at, Due::Open(self.connections.len()))),
            schedule => {
                let due = |(index, transfer): (usize, &Transfer)| (options.epoch + transfer.at, Due::Open(index + 1));
                agenda.extend(schedule.iter().enumerate().map(due));
            }
        }
        agenda.push((options.window.end, Due::Window(Edge::End)));
        agenda.push((options.epoch + options.stop_at, Due::Stop));
        agenda.sort_by_key(|(instant, _)| *instant);
        for (instant, due) in agenda {
            self.serve_until(instant)?;
            match due {
                Due::Open(count) => {
                    self.connections.iter_mut().take(count).skip(self.to_open).for_each(|one| one.set_due(instant));
                    self.to_open = count;
                }
                Due::Window(edge) => {
                    self.edges += 1;
                    self.connections.iter_mut().for_each(|one| one.mark_window(&self.plan, edge));
                }
                Due::Stop => break,
            }
        }
        for connection in &mut self.connections {
            connection.stop(&self.plan, Monotonic::now()?);
        }
        Ok(())
    }

    /// Serves the connections until an instant, or until all of them are done.
    fn serve_until(&mut self, instant: Monotonic) -> Result<(), TrafficError> {
        let mut events = [EpollEvent::empty(); 256];
        while (self.done < self.connections.len() || self.next_begin().is_some()) && Monotonic::now()? < instant {
            self.wake_at(self.next_begin().map_or(instant, |next| next.min(instant)))?;
            // What was opened may have failed already: only a round that opened nothing may wait.
            let patience = if self.watched.is_some() { EpollTimeout::from(WATCH_MS) } else { EpollTimeout::NONE };
            let timeout = if self.open_some()? { EpollTimeout::ZERO } else { patience };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(system("epoll_wait")(errno)),
            };
            let now = Monotonic::now()?;
            self.watch(now);
            for event in events.iter().take(count).filter(|event| event.data() != TIMER) {
                self.handle(event, now)?;
            }
        }
        Ok(())
    }

    /// When the next user begins a transfer.
    fn next_begin(&self) -> Option<Monotonic> {
        self.crowd.as_ref().and_then(Crowd::next_at)
    }

    fn wake_at(&self, instant: Monotonic) -> Result<(), TrafficError> {
        // Zero would disarm the timer.
        let nanos = instant.as_nanos().max(1);
        let at = TimeSpec::new((nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64);
        let set = self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
        set.map_err(system("timerfd_settime"))
    }

    /// Opens the next connections that are due; false if none are.
    fn open_some(&mut self) -> Result<bool, TrafficError> {
        if let Some(crowd) = &mut self.crowd {
            let now = Monotonic::now()?;
            while self.connections.len() < MAX_TRANSFERS
                && let Some(begun) = crowd.begin(now)
            {
                if let Some(current) = self.current.get_mut(begun.user) {
                    *current = self.connections.len();
                }
                self.connections.push(Connection::begun(begun, self.edges));
            }
            self.to_open = self.connections.len();
        }
        let start = self.opened;
        self.opened = self.to_open.min(start + OPEN_AT_ONCE);
        for (index, connection) in self.connections.iter_mut().enumerate().take(self.opened).skip(start) {
            connection.open(&self.plan, Monotonic::now()?);
            match connection.stream() {
                Some(stream) => {
                    let event = EpollEvent::new(connection.interest(), index as u64);
                    self.epoll.add(stream, event).map_err(system("epoll_ctl"))?;
                }
                None => {
                    self.done += 1;
                    if let (Some(crowd), Some(user)) = (&mut self.crowd, connection.user()) {
                        crowd.think(user, Monotonic::now()?);
                    }
                }
            }
        }
        Ok(self.opened > start)
    }

    /// Watches the connections, if it is time to.
    fn watch(&mut self, now: Monotonic) {
        if let Some(last) = &mut self.watched
            && now.since(*last) >= Span::from_millis(WATCH_MS.into())
        {
            *last = now;
            match &self.crowd {
                None => self.connections.iter_mut().for_each(|connection| connection.watch(&self.plan, now)),
                Some(_) => {
                    for current in &self.current {
                        if let Some(connection) = self.connections.get_mut(*current) {
                            connection.watch(&self.plan, now);
                        }
                    }
                }
            }
        }
    }

    fn handle(&mut self, event: &EpollEvent, now: Monotonic) -> Result<(), TrafficError> {
        let Some(connection) = self.connections.get_mut(event.data() as usize) else { return Ok(()) };
        let before = connection.interest();
        connection.handle(&self.plan, now, event.events(), &mut self.buffer);
        let after = connection.interest();
        match connection.stream() {
            Some(stream) if before != after => {
                let mut event = EpollEvent::new(after, event.data());
                self.epoll.modify(stream, &mut event).map_err(system("epoll_ctl"))
            }
            _ if connection.phase() == Phase::Done => {
                self.done += 1;
                if let (Some(crowd), Some(user)) = (&mut self.crowd, connection.user()) {
                    crowd.think(user, now);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl SendOptions {
    /// How many connections there will be; if users begin them, how many at once.
    fn count(&self) -> usize {
        if let Some(users) = &self.users {
            return users.count as usize;
        }
        if self.schedule.is_empty() { self.connections as usize } else { self.schedule.len() }
    }
}

/// Refuses options that make no sense, before any connection is opened.
fn check(options: &SendOptions) -> Result<(), TrafficError> {
    let refuse = |problem: String| Err(TrafficError::Options(problem));
    let most = if options.schedule.is_empty() { MAX_CONNECTIONS as usize } else { MAX_TRANSFERS };
    if options.count() > most {
        return refuse(format!("{} connections are more than the {most} allowed", options.count()));
    }
    if options.request.is_some_and(|request| request < MIN_REQUEST) {
        return refuse(format!("a request has at least {MIN_REQUEST}"));
    }
    if options.request.is_some() && options.size.is_none() && options.schedule.is_empty() {
        return refuse("an answer needs a size".into());
    }
    if options.first_index.checked_add(options.count() as u32).is_none() {
        return refuse(format!("connections cannot be numbered from {}", options.first_index));
    }
    if options.stop_at < options.start_at {
        return refuse(format!("the stop ({}) is before the start ({})", options.stop_at, options.start_at));
    }
    if options.window.end < options.window.start {
        return refuse("the window's end is before its start".into());
    }
    let plain = SocketOptions { congestion_control: None, ..options.socket.clone() };
    plain.open().map_err(system("socket"))?;
    let Some(name) = options.socket.congestion_control.clone() else { return Ok(()) };
    options.socket.open().map(drop).map_err(|source| TrafficError::CongestionControl { name, source })
}
