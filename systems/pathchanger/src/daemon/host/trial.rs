//! Trials of dead paths that no connection tries, as it could not leave them: the agent connects in their place.
//!
//! A path is proved by whatever is delivered on it. Where nothing is, because those that were stuck on it are gone, something
//! must try it. So the agent opens a connection of TCP on the path, to an end to which this host has one on another path, and
//! closes it at once. Waits double from a second to a minute.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use nix::sys::socket::{setsockopt, sockopt};
use sidestep_hostd::{AgentError, paths::MarkBits};
use tokio::{
    net::TcpSocket,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use super::{paths_in_place::PathsInPlace, quality::Prefixes};
use crate::daemon::program::{HostConnection, HostProgram, Learnt};

/// How long to wait before the first trial, and between trials at most.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

type PathKey = (IpNet, u32);

/// The trials.
#[derive(Debug)]
pub(super) struct Trials {
    paths: BTreeMap<PathKey, Trial>,
    /// Remote ends to which this host recently had connections.
    targets: BTreeMap<IpNet, SocketAddr>,
    send: UnboundedSender<(PathKey, bool)>,
    receive: UnboundedReceiver<(PathKey, bool)>,
}

/// The trials of one path.
#[derive(Clone, Copy, Debug)]
struct Trial {
    next: Instant,
    wait: Duration,
}

impl Default for Trials {
    fn default() -> Self {
        let (send, receive) = unbounded_channel();
        Trials { paths: BTreeMap::new(), targets: BTreeMap::new(), send, receive }
    }
}

impl Trials {
    /// The paths that must be tried `now`, of those that strand connections.
    fn due(&mut self, stranding: &[PathKey], now: Instant) -> Vec<PathKey> {
        self.paths.retain(|path, _| stranding.contains(path));
        let mut due = Vec::new();
        for path in stranding {
            let trial = self.paths.entry(*path).or_insert(Trial { next: now + FIRST, wait: FIRST });
            if trial.next <= now {
                trial.wait = (trial.wait * 2).min(LONGEST);
                trial.next = now + trial.wait;
                due.push(*path);
            }
        }
        due
    }

    /// Remembers to whom connections are: best one that this end opened, and that is on a path that works.
    fn remember(&mut self, connections: &[HostConnection], destinations: &Prefixes, dead: &[PathKey]) {
        let mut best: BTreeMap<IpNet, (bool, SocketAddr)> = BTreeMap::new();
        for one in connections.iter().filter(|one| !one.passive) {
            let Some(destination) = destinations.covering(one.remote.ip()) else { continue };
            let works = !dead.contains(&(destination, one.path));
            let found = best.entry(destination).or_insert((works, one.remote));
            if works && !found.0 {
                *found = (works, one.remote);
            }
        }
        for (destination, (works, remote)) in best {
            // A host that cannot be reached by a dead path may itself be dead.
            if works || !self.targets.contains_key(&destination) {
                self.targets.insert(destination, remote);
            }
        }
    }

    /// Tries the dead paths that connections leave alone because they could not leave them, and takes note of what came of it.
    pub(super) fn try_stranded(
        &mut self,
        learnt: &[Learnt],
        in_place: &PathsInPlace,
        program: &HostProgram,
        mark: MarkBits,
    ) -> Result<(), AgentError> {
        while let Ok(((destination, id), delivered)) = self.receive.try_recv() {
            tracing::debug!(%destination, path = format!("{id:08x}"), delivered, "the path was tried");
            program.note_trial(destination, id, delivered)?;
        }
        let paths = learnt.iter().flat_map(|one| one.paths.iter().map(move |path| (one.destination, path)));
        let stranding: Vec<PathKey> =
            paths.filter(|(_, (_, path))| path.stranded).map(|(net, (id, _))| (net, *id)).collect();
        let due = self.due(&stranding, Instant::now());
        if due.is_empty() {
            return Ok(());
        }
        self.remember(&program.connections()?, &in_place.destinations(), &stranding);
        for path in due {
            self.begin(path, in_place, mark);
        }
        Ok(())
    }

    /// Connects on a path, if it is known to whom and from which address.
    fn begin(&self, key: PathKey, in_place: &PathsInPlace, mark: MarkBits) {
        let (destination, id) = key;
        let Some(target) = self.targets.get(&destination).copied() else { return };
        let Some(path) = in_place.path(destination, id) else { return };
        let Some(source) = in_place.only_source_of(key) else { return };
        let (mark, send) = (path.slot << mark.shift, self.send.clone());
        tokio::spawn(async move {
            let answered = matches!(timeout(PATIENCE, connect(source, target, mark)).await, Ok(Ok(())));
            // The daemon may have ended.
            let _ = send.send((key, answered));
        });
    }
}

/// Opens a connection of TCP and closes it; a refusal is an answer as well.
async fn connect(source: IpAddr, target: SocketAddr, mark: u32) -> io::Result<()> {
    let socket = if target.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    setsockopt(&socket, sockopt::Mark, &mark)?;
    socket.bind((source, 0).into())?;
    match socket.connect(target).await {
        Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u32) -> PathKey {
        ("0.0.0.0/0".parse().unwrap(), id)
    }

    #[test]
    fn a_path_is_tried_after_a_second_and_then_less_and_less_often() {
        let (mut trials, start) = (Trials::default(), Instant::now());
        let mut tried = Vec::new();
        for second in 0..200_u64 {
            if !trials.due(&[key(1)], start + Duration::from_secs(second)).is_empty() {
                tried.push(second);
            }
        }
        assert_eq!(tried, [1, 3, 7, 15, 31, 63, 123, 183]);
        // It worked for a while.
        assert!(trials.due(&[], start).is_empty() && trials.paths.is_empty());
        assert!(trials.due(&[key(1)], start).is_empty());
    }

    #[test]
    fn the_target_is_one_that_a_path_which_works_reaches() {
        let connection = |remote: &str, path, passive| HostConnection {
            local: "10.0.0.1:9".parse().unwrap(),
            remote: remote.parse().unwrap(),
            passive,
            path,
            opened: None,
            decided: None,
            signal: None,
            decisions: 0,
            moves: 0,
            suppressed: 0,
        };
        let destinations = [key(1).0].into_iter().collect();
        let mut trials = Trials::default();
        let stuck = connection("192.0.2.1:80", 1, false);
        trials.remember(&[connection("192.0.2.9:50000", 2, true), stuck], &destinations, &[key(1)]);
        assert_eq!(trials.targets[&key(1).0], stuck.remote, "no other is known");
        let works = connection("192.0.2.2:443", 2, false);
        trials.remember(&[stuck, works], &destinations, &[key(1)]);
        assert_eq!(trials.targets[&key(1).0], works.remote);
        trials.remember(&[stuck], &destinations, &[key(1)]);
        assert_eq!(trials.targets[&key(1).0], works.remote, "it was reached recently");
    }
}
