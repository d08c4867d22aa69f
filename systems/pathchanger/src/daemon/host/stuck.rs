//! Ends connections that are stuck on a dead path (`on_dead = "reset"`), so that their applications connect again.
//!
//! Where addresses belong to providers, a connection from the address of a dead one cannot move: no live path takes its
//! packets. It would wait for minutes. Such a connection is ended after a stated time without any answer, if the
//! destination has a live path that a new connection can take. What to end is decided here from readings ([`Stuck`]); the
//! last reading is made right before, so that a connection that has moved or was answered meanwhile is left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use sidestep_hostd::{AgentError, paths::MarkBits};
use sidestep_linux::{
    LinuxError,
    sock_diag::{Ended, SockDiag, Unanswered},
};
use sidestep_net::{Span, Time};
use sidestep_policy::{OnDead, PolicyName, PolicySettings};

use super::{events::Recorder, paths_in_place::PathsInPlace};
use crate::daemon::program::{HostConnection, HostProgram, Learnt, Ways};

/// How often to look for stuck connections.
const LOOK: Span = Span::from_millis(500);
/// Most connections that are ended at one look, and most that are logged, so that the daemon's other work goes on.
const MAX: usize = 1_000;
const MAX_LOGGED: usize = 10;

/// What became of stuck connections since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resets {
    /// Ended.
    pub(super) done: u64,
    /// Would have been ended if this were no dry run.
    pub(super) would_be: u64,
    /// The kernel refused to end them.
    pub(super) refused: u64,
}

/// The connections that wait, and since when.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    waiting: BTreeMap<u64, Waiting>,
    looked: Option<Time>,
    resets: Resets,
    /// Whether it was reported to the operator that the kernel refuses.
    warned: bool,
}

/// Where stuck connections are looked for.
pub(super) struct Scene<'a> {
    pub(super) now: Time,
    pub(super) program: &'a HostProgram,
    pub(super) paths: &'a PathsInPlace,
    pub(super) recorder: &'a Recorder,
    pub(super) mark: MarkBits,
    pub(super) settings: &'a PolicySettings,
    pub(super) dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    since: Time,
    mark: u32,
    progress: (u64, u32, u64),
    /// It was found to be due, and could not be ended, or should not be.
    counted: bool,
}

/// Which paths to each destination are alive, of all that are known.
#[derive(Debug, Default)]
struct Health {
    /// Nothing was delivered on them since they failed.
    failed: BTreeSet<(IpNet, u32)>,
    /// New connections do not begin there.
    avoided: BTreeSet<(IpNet, u32)>,
}

impl Health {
    fn of(learnt: &[Learnt]) -> Self {
        let mut health = Health::default();
        for one in learnt {
            for (id, path) in &one.paths {
                // One that may be tried again is not alive before something is delivered on it.
                let failed = path.failed.is_some() || path.stranded;
                if failed {
                    health.failed.insert((one.destination, *id));
                }
                if failed || path.dead {
                    health.avoided.insert((one.destination, *id));
                }
            }
        }
        health
    }

    /// Whether a connection on this path cannot move, while a new one could begin elsewhere.
    fn is_stuck(&self, path: u32, ways: &Ways) -> bool {
        let has = |set: &BTreeSet<(IpNet, u32)>, id| set.contains(&(ways.destination, id));
        let mut takers = ways.paths.iter().filter(|way| way.takes);
        let mut others = ways.paths.iter().filter(|way| !way.takes);
        // No path takes the address of a provider that has gone; its connections are where they were put.
        (takers.clone().any(|way| way.id == path) || takers.clone().next().is_none())
            && takers.all(|way| has(&self.failed, way.id))
            && others.any(|way| !has(&self.avoided, way.id))
    }
}

impl Stuck {
    /// How many connections were ended; no more than fit.
    pub(super) fn resets(&self) -> u32 {
        u32::try_from(self.resets.done).unwrap_or(u32::MAX)
    }

    /// What became of stuck connections.
    pub(super) fn outcomes(&self) -> Resets {
        self.resets
    }

    fn is_due(&mut self, now: Time) -> bool {
        let due = self.looked.is_none_or(|looked| now.since(looked) >= LOOK);
        if due {
            self.looked = Some(now);
        }
        due
    }

    /// Takes note of all that are stuck now; returns those that have been for `patience` without any sign of life.
    fn note(&mut self, now: Time, patience: Span, stuck: &[(Unanswered, u32)]) -> Vec<(Unanswered, u32)> {
        let mut waiting = BTreeMap::new();
        let mut due = Vec::new();
        for (one, path) in stuck {
            let fresh = Waiting { since: now, mark: one.mark, progress: one.progress, counted: false };
            let same = |known: &&Waiting| (known.mark, known.progress) == (fresh.mark, fresh.progress);
            let known = self.waiting.get(&one.cookie).filter(same).copied().unwrap_or(fresh);
            if now.since(known.since) >= patience && !known.counted && due.len() < MAX {
                due.push((one.clone(), *path));
            }
            waiting.insert(one.cookie, known);
        }
        self.waiting = waiting;
        due
    }

    /// A connection that could not be ended, or should not be, is not due again before something has happened to it.
    fn put_off(&mut self, cookie: u64) {
        if let Some(waiting) = self.waiting.get_mut(&cookie) {
            waiting.counted = true;
        }
    }

    fn waited(&self, cookie: u64, now: Time) -> Span {
        self.waiting.get(&cookie).map(|waiting| now.since(waiting.since)).unwrap_or_default()
    }

    /// Ends the connections that are stuck, if that is wanted; returns whether any were due. What fails is logged, and harms
    /// nothing else.
    pub(super) fn end_due(&mut self, scene: &Scene<'_>) -> Result<bool, AgentError> {
        let now = scene.now;
        let (wanted, patience) = (scene.settings.on_dead == OnDead::Reset, scene.settings.reset_after);
        if !wanted || !self.is_due(now) {
            return Ok(false);
        }
        let mut diag = SockDiag::open()?;
        let stuck = scene.stuck_now(&mut diag)?;
        let due = self.note(now, patience, &stuck);
        if due.is_empty() {
            return Ok(false);
        }
        // Paths may have come back since the list was read.
        let health = Health::of(&scene.program.learnt()?);
        let before = self.resets;
        let mut told = 0;
        for (one, path) in due {
            let ways = scene.program.ways(one.remote.ip(), Some(one.local.ip()))?;
            if ways.is_some_and(|ways| health.is_stuck(path, &ways)) && self.end(&mut diag, scene, &one, path)? {
                told += 1;
                if told <= MAX_LOGGED {
                    self.log_reset(scene, &one, path);
                }
            }
        }
        self.log_resets(before);
        Ok(true)
    }

    /// Ends a connection, or notes that it would have been ended; returns whether either was done.
    fn end(&mut self, diag: &mut SockDiag, scene: &Scene<'_>, one: &Unanswered, path: u32) -> Result<bool, AgentError> {
        if scene.dry_run {
            self.resets.would_be += 1;
            self.put_off(one.cookie);
            scene.recorder.reset(scene.now, (one.local, one.remote), path);
            return Ok(true);
        }
        // Whatever has arrived since, it is not stuck any more, or not for so long.
        if diag.look_again(one)?.as_ref() != Some(one) {
            return Ok(false);
        }
        match diag.destroy(one) {
            Ok(Ended::Before) => Ok(false),
            Ok(Ended::Now) => {
                self.resets.done += 1;
                scene.recorder.reset(scene.now, (one.local, one.remote), path);
                Ok(true)
            }
            Err(error) => {
                self.resets.refused += 1;
                self.put_off(one.cookie);
                self.warn_of_refusal(&error);
                Ok(false)
            }
        }
    }

    fn log_reset(&self, scene: &Scene<'_>, one: &Unanswered, path: u32) {
        let path = scene.paths.sets.iter().flat_map(|set| &set.paths).find(|one| one.id == path);
        let (path, waited_s) = (path.map_or("", |path| &path.name), self.waited(one.cookie, scene.now).as_secs_f64());
        let (local, remote) = (one.local, one.remote);
        let what = if scene.dry_run { "would have been" } else { "was" };
        tracing::warn!(%local, %remote, path, waited_s, "a connection that is stuck on a dead path {what} ended");
    }

    fn warn_of_refusal(&mut self, error: &LinuxError) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::error!(%error, "connections that are stuck on a dead path stay there");
        }
    }

    fn log_resets(&mut self, before: Resets) {
        let now = self.resets;
        if now.would_be > before.would_be {
            let connections = now.would_be - before.would_be;
            tracing::info!(connections, "dry run: connections stuck on a dead path would have been ended");
        }
        if now.done > before.done {
            self.warned = false;
            let connections = now.done - before.done;
            tracing::info!(connections, "ended connections that were stuck on a dead path");
        }
    }
}

impl Scene<'_> {
    /// The connections that wait for an answer on a dead path, and that path's ID: those that were opened here, and
    /// that no live path would take.
    fn stuck_now(&self, diag: &mut SockDiag) -> Result<Vec<(Unanswered, u32)>, AgentError> {
        let health = Health::of(&self.program.learnt()?);
        // Path 0 takes what no path does.
        let lost: Vec<IpNet> = self
            .paths
            .sources
            .iter()
            .filter(|((_, id), _)| *id == 0)
            .flat_map(|(_, of)| of.takes.iter().copied())
            .collect();
        if health.failed.is_empty() && lost.is_empty() {
            return Ok(Vec::new());
        }
        let dead: BTreeSet<u32> = health.failed.iter().map(|(_, id)| *id).collect();
        let mut candidates = BTreeMap::new();
        let mut known: BTreeMap<(IpAddr, IpAddr), Option<Ways>> = BTreeMap::new();
        let is_lost = |address: IpAddr| lost.iter().any(|net| net.contains(&address));
        let ours = |one: &HostConnection| !one.passive && (dead.contains(&one.path) || is_lost(one.local.ip()));
        for one in self.program.connections()?.into_iter().filter(ours) {
            let key = (one.remote.ip(), one.local.ip());
            let ways = match known.get(&key) {
                Some(ways) => ways,
                None => known.entry(key).or_insert(self.program.ways(key.0, Some(key.1))?),
            };
            let Some(ways) = ways else { continue };
            let slot = ways.paths.iter().find(|way| way.id == one.path).map(|way| way.slot);
            if let Some(slot) = slot.filter(|_| health.is_stuck(one.path, ways)) {
                candidates.insert((one.local, one.remote), (one.path, slot));
            }
        }
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let path = |one: &Unanswered| {
            let (path, slot) = candidates.get(&(one.local, one.remote))?;
            let marked = (one.mark & self.mark.mask) >> self.mark.shift;
            (self.dry_run || marked == *slot).then_some(*path)
        };
        let waiting = diag.unanswered()?.into_iter();
        Ok(waiting.filter_map(|one| path(&one).map(|path| (one, path))).collect())
    }
}

/// What `on_dead = "reset"` lacks in these settings or on this machine, in a sentence; `None` if nothing, or if it is not set.
pub fn cannot_reset(settings: &PolicySettings) -> Option<String> {
    if settings.on_dead == OnDead::Keep {
        return None;
    }
    if settings.policy != PolicyName::DelayWeighted {
        let policy = settings.policy;
        return Some(format!(
            "on_dead = \"reset\" ends no connection under the policy {policy}: only delay-weighted knows which paths are dead"
        ));
    }
    let asked = SockDiag::open().and_then(|mut diag| diag.can_destroy());
    asked.err().map(|error| format!("on_dead = \"reset\" ends no connection here: {error}"))
}

/// Warns of what `on_dead = "reset"` lacks, if anything.
pub(super) fn warn_what_resets_lack(settings: &PolicySettings) {
    if let Some(lacking) = cannot_reset(settings) {
        tracing::error!("{lacking}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidestep_policy::PathLearnt;

    use super::*;
    use crate::daemon::program::Way;

    const TO: &str = "10.2.0.0/16";

    /// What was learnt of paths 1, 2, …: whether each has failed, and whether new connections avoid it.
    fn health(paths: &[(bool, bool)]) -> Health {
        let path = |(id, (failed, dead)): (u32, &(bool, bool))| {
            (id, PathLearnt { failed: failed.then_some(Time::ZERO), dead: *dead, ..PathLearnt::default() })
        };
        Health::of(&[Learnt { destination: TO.parse().unwrap(), paths: (1..).zip(paths).map(path).collect() }])
    }

    /// Paths 1, 2, …, and whether each takes the connection's address.
    fn ways(takes: &[bool]) -> Ways {
        let way = |(id, takes): (u32, &bool)| Way { id, slot: id, takes: *takes, address: None };
        Ways { destination: TO.parse().unwrap(), paths: (1..).zip(takes).map(way).collect() }
    }

    const ALIVE: (bool, bool) = (false, false);
    const DEAD: (bool, bool) = (true, true);

    #[test]
    fn stuck_is_what_only_dead_paths_take_while_another_lives() {
        let stuck = |paths: &[(bool, bool)], takes: &[bool]| health(paths).is_stuck(1, &ways(takes));
        assert!(stuck(&[DEAD, ALIVE], &[true, false]));
        assert!(stuck(&[(true, false), ALIVE], &[true, false]), "a connection may try it, and nothing was delivered");
        assert!(!stuck(&[ALIVE, ALIVE], &[true, false]), "its path lives");
        assert!(!stuck(&[(false, true), ALIVE], &[true, false]), "an answer is late there, and no more");
        assert!(!stuck(&[DEAD, ALIVE], &[true, true]), "it can move");
        assert!(stuck(&[ALIVE, ALIVE], &[false, false]), "its provider has gone");
        assert!(!stuck(&[DEAD, DEAD], &[false, false]), "its provider has gone, and all others are dead");
        assert!(!stuck(&[DEAD, DEAD], &[true, false]), "all paths are dead");
        assert!(!stuck(&[DEAD, (false, true)], &[true, false]), "new connections would not begin on the other");
        assert!(!stuck(&[DEAD], &[true]), "there is no other path");
        assert!(stuck(&[DEAD, DEAD, ALIVE], &[true, true, false]), "all that take it are dead");
        assert!(!stuck(&[DEAD, ALIVE, ALIVE], &[true, true, false]));
        assert!(!health(&[DEAD, ALIVE]).is_stuck(1, &ways(&[false, true])), "its path does not take its address");
    }

    proptest! {
        #[test]
        fn nothing_is_due_before_its_time_and_what_is_due_has_had_no_sign_of_life(
            looks in prop::collection::vec((1u64..2_000, 0u64..3), 1..60), patience in 1_000u64..6_000,
        ) {
            let one = Unanswered::example;
            let (mut stuck, mut now, mut since) = (Stuck::default(), 0, None::<(u64, u64)>);
            for (later, progress) in looks {
                now += later;
                let at = Time::from_nanos(now * 1_000_000);
                let due = stuck.note(at, Span::from_millis(patience), &[(one(7, progress), 1)]);
                // The slow and obvious reference.
                since = since.filter(|(_, before)| *before == progress).or(Some((now, progress)));
                let waits = now - since.map_or(now, |(since, _)| since);
                prop_assert_eq!(!due.is_empty(), waits >= patience);
                prop_assert_eq!(stuck.waited(7, at), Span::from_millis(waits));
            }
            prop_assert!(stuck.note(Time::from_nanos(now), Span::from_millis(patience), &[]).is_empty());
            prop_assert!(stuck.waiting.is_empty(), "what is not stuck any more is forgotten");
        }
    }

    #[test]
    fn a_policy_that_knows_no_dead_paths_is_told_to_end_nothing() {
        let settings = |on_dead, policy| PolicySettings { on_dead, policy, ..PolicySettings::default() };
        assert_eq!(cannot_reset(&settings(OnDead::Keep, PolicyName::Random)), None);
        assert_eq!(
            cannot_reset(&settings(OnDead::Reset, PolicyName::DelayWeighted)),
            None,
            "this kernel ends connections"
        );
        let said = cannot_reset(&settings(OnDead::Reset, PolicyName::Random)).unwrap();
        assert!(said.contains("under the policy random: only delay-weighted knows"), "{said}");
    }

    #[test]
    fn what_could_not_be_ended_is_not_tried_again_before_something_has_happened() {
        let one = Unanswered::example;
        let (mut stuck, patience) = (Stuck::default(), Span::from_secs(1));
        let note = |stuck: &mut Stuck, seconds: u64, progress| {
            stuck.note(Time::from_nanos(seconds * 1_000_000_000), patience, &[(one(7, progress), 1)]).len()
        };
        assert_eq!([note(&mut stuck, 1, 0), note(&mut stuck, 2, 0)], [0, 1]);
        stuck.put_off(7);
        assert_eq!(note(&mut stuck, 9, 0), 0);
        assert_eq!([note(&mut stuck, 10, 1), note(&mut stuck, 12, 1)], [0, 1], "something was acknowledged");
    }

    #[test]
    fn no_more_are_ended_at_one_look_than_the_daemon_has_time_for() {
        let mut stuck = Stuck::default();
        let all: Vec<_> = (0..1_500).map(|cookie| (Unanswered::example(cookie, 0), 1)).collect();
        assert!(stuck.note(Time::ZERO, Span::from_secs(1), &all).is_empty());
        assert_eq!(stuck.note(Time::from_nanos(2_000_000_000), Span::from_secs(1), &all).len(), MAX);
    }
}
