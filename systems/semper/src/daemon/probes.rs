//! Probes of each path, and answers to those of the other edge.
//!
//! A probe is a packet of STAMP (RFC 8762) with the mark of its path, so that rules and routes of the path lead it, segment lists
//! included. The number of its session names the path: the other edge answers by its own path of that name. So what is measured is
//! one path, there and back, and both edges come to know of it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use futures::future::select_all;
use ipnet::IpNet;
use sidestep_linux::{
    LinuxError, Pauses, monotonic_now,
    prober::{Method, Prober, Reply, Spec},
    reflector::{Reflected, ReflectorSocket},
};
use sidestep_net::{Span, Time};
use sidestep_proto::{
    rounds::{PathRounds, Rounds},
    stamp::{Clock, Reflector, ReflectorConfig},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{EdgeConfig, EdgeProbeSettings};
use crate::daemon::balancer::Site;

/// Most probes of one socket that are waited for: as many rounds as can be open.
const MAX_WAITING: usize = 1_024;
/// Most probes of others that are answered at once.
const BATCH: usize = 256;
/// Most probes that are answered in a second: only targets are answered.
const MAX_ANSWERS: u32 = 100_000;

/// Longer than a round by this: the daemon did not run.
const QUIET: Span = Span::from_secs(1);

/// Destinations as the edge knows them; `None` for those that are left to the router's own route.
pub(super) type Sites = BTreeMap<IpNet, Option<Site>>;

/// The probes of all paths.
pub(super) struct Probes {
    settings: EdgeProbeSettings,
    watched: BTreeMap<IpNet, Watched>,
    sockets: Vec<Probing>,
    /// Where the other edge's probes come.
    reflectors: BTreeMap<IpAddr, ReflectorSocket>,
    reflector: Reflector,
    reflected: Reflected,
    pauses: Pauses,
    /// What was logged already.
    complaints: BTreeSet<String>,
}

/// The rounds of a destination.
struct Watched {
    rounds: Rounds,
    /// The identities of its paths, by position.
    paths: Vec<u32>,
    /// The last round trip of each path.
    rtts: Vec<Option<Span>>,
}

/// A socket that probes a target by a path.
struct Probing {
    key: Key,
    socket: AsyncFd<Prober>,
    /// Whether something may have come.
    ready: AtomicBool,
    /// Probes without an answer: their numbers, and their rounds.
    waiting: VecDeque<(u32, u32)>,
}

/// What a socket probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    destination: IpNet,
    position: usize,
    target: IpAddr,
    source: IpAddr,
    mark: u32,
}

/// A path that has died or is live again: its destination, its position, and whether it is dead.
pub(super) type Verdict = (IpNet, usize, bool);

impl Probes {
    pub(super) fn new(settings: EdgeProbeSettings) -> Self {
        let config = ReflectorConfig { rate: MAX_ANSWERS, ..ReflectorConfig::default() };
        Probes {
            pauses: Pauses::new(settings.rounds().interval * 2 + QUIET),
            settings,
            watched: BTreeMap::new(),
            sockets: Vec::new(),
            reflectors: BTreeMap::new(),
            reflector: Reflector::new(config),
            reflected: Reflected::default(),
            complaints: BTreeSet::new(),
        }
    }

    /// Takes other settings; what is known of paths goes on where they are the same.
    pub(super) fn set_settings(&mut self, settings: &EdgeProbeSettings) {
        if self.settings != *settings {
            *self = Probes::new(settings.clone());
        }
    }

    /// Opens the sockets that are missing, and closes those of paths that are gone or have another mark.
    pub(super) fn refresh(&mut self, config: &EdgeConfig, sites: &Sites, mask: u32) -> Result<(), LinuxError> {
        self.watched.retain(|destination, _| sites.contains_key(destination));
        if self.watched.is_empty() {
            // Nothing was due until now.
            self.pauses = Pauses::new(self.settings.rounds().interval * 2 + QUIET);
        }
        let mut wanted = BTreeSet::new();
        for destination in config.prefixes() {
            let Some(site) = sites.get(&destination).and_then(Option::as_ref) else { continue };
            let paths: Vec<u32> =
                site.set.raw().path.iter().take(site.set.count() as usize).map(|one| one.id).collect();
            if self.watched.get(&destination).is_none_or(|watched| watched.paths != paths) {
                let rounds = Rounds::new(self.settings.rounds(), paths.len(), monotonic_now());
                let rtts = vec![None; paths.len()];
                self.watched.insert(destination, Watched { rounds, paths, rtts });
            }
            for target in self.settings.targets_in(destination, config.prefixes()) {
                let Some(source) = self.settings.source_for(target) else { continue };
                let narrower = |inner: &IpNet| inner.contains(&target) && inner.prefix_len() > destination.prefix_len();
                if sites.iter().any(|(inner, site)| site.is_none() && narrower(inner)) {
                    let message = "a subnet of the main table has it, and no path leads there: give another target";
                    complain(&mut self.complaints, target, &message);
                    continue;
                }
                let slots = site.slots.iter().enumerate().filter(|(_, slot)| **slot > 0);
                wanted.extend(slots.map(|(position, slot)| {
                    let mark = u32::from(*slot) << mask.trailing_zeros();
                    Key { destination, position, target, source, mark }
                }));
            }
        }
        self.sockets.retain(|socket| wanted.contains(&socket.key));
        let open: BTreeSet<Key> = self.sockets.iter().map(|socket| socket.key).collect();
        for key in wanted.difference(&open) {
            match Probing::open(*key, self.settings.port) {
                Ok(socket) => self.sockets.push(socket),
                Err(error) if error.is_environment() => return Err(error),
                Err(error) => complain(&mut self.complaints, key.target, &error),
            }
        }
        self.listen()
    }

    /// Listens at the addresses that are there.
    fn listen(&mut self) -> Result<(), LinuxError> {
        for source in &self.settings.source {
            if self.reflectors.contains_key(source) {
                continue;
            }
            match ReflectorSocket::listen(SocketAddr::new(*source, self.settings.port)) {
                Ok(socket) => {
                    self.reflectors.insert(*source, socket);
                }
                Err(error) if error.is_environment() => return Err(error),
                Err(error) => complain(&mut self.complaints, *source, &error),
            }
        }
        Ok(())
    }

    /// Waits until something is due or may have come.
    pub(super) async fn due(&self) -> Result<(), LinuxError> {
        let next = self.watched.values().filter_map(|watched| watched.rounds.poll_timeout()).min();
        let asked = async {
            if self.reflectors.is_empty() {
                return std::future::pending().await;
            }
            select_all(self.reflectors.values().map(|socket| Box::pin(socket.readable()))).await.0
        };
        tokio::select! {
            () = reached(next) => Ok(()),
            () = answered(&self.sockets) => Ok(()),
            asked = asked => asked,
        }
    }

    /// Answers the other edge's probes, each by the path that it names. Probes of others are not answered.
    pub(super) fn reflect(&mut self, sites: &Sites, mask: u32) -> Result<(), LinuxError> {
        let targets = &self.settings.target;
        let mark = |from: IpAddr, session: u16| {
            let around = sites.iter().filter(|(prefix, site)| site.is_some() && prefix.contains(&from));
            let site = around.max_by_key(|(prefix, _)| prefix.prefix_len())?.1.as_ref()?;
            let slot = *site.slots.get(usize::from(session.checked_sub(1)?))?;
            (slot > 0 && targets.contains(&from)).then_some(u32::from(slot) << mask.trailing_zeros())
        };
        for socket in self.reflectors.values_mut() {
            socket.reflect_by(&mut self.reflector, BATCH, &mut self.reflected, mark)?;
        }
        Ok(())
    }

    /// Takes answers, ends rounds and begins those that are due; returns the paths of which another thing is known now.
    pub(super) fn handle(&mut self) -> Vec<Verdict> {
        // Answers come first: one that is here already has come in time.
        for socket in &mut self.sockets {
            let Some(watched) = self.watched.get_mut(&socket.key.destination) else { continue };
            if let Err(error) = socket.take(watched) {
                complain(&mut self.complaints, socket.key.target, &error);
            }
        }
        let now = monotonic_now();
        if let Some(pause) = self.pauses.look() {
            // What was in flight when the machine was suspended, or the daemon stopped, shows nothing of any path.
            self.watched.values_mut().for_each(|watched| watched.rounds.handle_pause(now));
            tracing::warn!(seconds = pause.as_secs_f64(), "nothing ran for a while: probes of that time do not count");
        }
        let mut verdicts = Vec::new();
        for (destination, watched) in &mut self.watched {
            let before = watched.rounds.dead();
            if watched.rounds.handle_timeout(now) {
                let dead = watched.rounds.dead();
                let changed = (0..watched.paths.len()).filter(|position| (dead ^ before) >> position & 1 != 0);
                verdicts.extend(changed.map(|position| (*destination, position, dead >> position & 1 != 0)));
            }
            let Some(round) = watched.rounds.poll_transmit(now) else { continue };
            for socket in self.sockets.iter_mut().filter(|socket| socket.key.destination == *destination) {
                // One that cannot be sent is lost, as one that does not arrive.
                drop(socket.send(round));
            }
        }
        verdicts
    }

    /// The paths of a destination that are dead by their probes: bits by position.
    pub(super) fn dead(&self, destination: &IpNet) -> u32 {
        // A set has no more than 32 paths.
        self.watched.get(destination).map_or(0, |watched| watched.rounds.dead() as u32)
    }

    /// What is known of a path: its rounds, and the last round trip.
    pub(super) fn of(&self, destination: &IpNet, position: usize) -> Option<(PathRounds, Option<Span>)> {
        let watched = self.watched.get(destination)?;
        Some((*watched.rounds.paths().get(position)?, watched.rtts.get(position).copied().flatten()))
    }

    /// Whether a target of the destination answers by any path.
    pub(super) fn is_answered(&self, destination: &IpNet) -> Option<bool> {
        self.watched.get(destination).map(|watched| watched.rounds.is_answered())
    }

    /// How many probes of the other edge were answered.
    pub(super) fn reflected(&self) -> u64 {
        self.reflector.counts().answered.saturating_sub(self.reflected.unsent)
    }
}

impl Probing {
    /// Opens a socket whose probes take the path, by its mark.
    fn open(key: Key, port: u16) -> Result<Self, LinuxError> {
        let mut spec = Spec::new(key.target, Method::Stamp { port, clock: Clock::Ntp });
        spec.mark = Some(key.mark);
        spec.source = Some(key.source);
        spec.session = u16::try_from(key.position + 1).ok();
        let prober = Prober::open(&spec)?;
        // SAFETY: the prober owns its socket, and closes it when it is dropped with the `AsyncFd`.
        let registered = unsafe { AsyncFd::register_with_interest(prober, Interest::READABLE) };
        let socket = registered.map_err(|error| LinuxError::io("waiting for answers of probes", error))?;
        Ok(Probing { key, socket, ready: AtomicBool::new(true), waiting: VecDeque::new() })
    }

    fn send(&mut self, round: u32) -> Result<(), LinuxError> {
        let sequence = self.socket.get_mut().send()?;
        self.waiting.push_back((sequence, round));
        if self.waiting.len() > MAX_WAITING {
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Notes the answers that have come.
    fn take(&mut self, watched: &mut Watched) -> Result<(), LinuxError> {
        if !self.ready.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        while let Some(reply) = self.socket.get_mut().receive()? {
            // A host that reports the target as unreachable does not answer for it.
            let Reply::Answer(answer) = reply else { continue };
            let found = self.waiting.iter().position(|(sequence, _)| *sequence == answer.sequence);
            let Some((_, round)) = found.and_then(|place| self.waiting.remove(place)) else { continue };
            watched.rounds.handle_answer(self.key.position, round);
            if let Some(rtt) = watched.rtts.get_mut(self.key.position) {
                *rtt = Some(answer.rtt);
            }
        }
        Ok(())
    }
}

/// Waits until one of the sockets may have an answer; never completes without sockets.
async fn answered(sockets: &[Probing]) {
    poll_fn(|context| {
        let mut any = Poll::Pending;
        for socket in sockets {
            if let Poll::Ready(Ok(mut guard)) = socket.socket.poll_read_ready(context) {
                // Before it is read: what comes from now on is reported again.
                guard.clear_ready();
                socket.ready.store(true, Ordering::Relaxed);
                any = Poll::Ready(());
            }
        }
        any
    })
    .await;
}

/// Completes at a time; never without one.
async fn reached(time: Option<Time>) {
    match time {
        Some(time) => tokio::time::sleep(Duration::from_nanos(time.since(monotonic_now()).as_nanos())).await,
        None => std::future::pending().await,
    }
}

/// Logs what failed, once.
fn complain(complaints: &mut BTreeSet<String>, address: IpAddr, error: &impl ToString) {
    let text = error.to_string();
    if complaints.insert(format!("{address}: {text}")) {
        tracing::warn!(%address, text, "probes fail; they are tried again and again");
    }
}
