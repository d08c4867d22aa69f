//! Which paths are dead, by what connections met on them: logged when that changes.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use sidestep_linux::monotonic_now;
use sidestep_net::{Span, Time};

use super::paths_in_place::PathsInPlace;
use crate::daemon::program::Learnt;

/// The paths that failed, as they were at the last looks.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    dead: BTreeMap<(IpNet, u32), Death>,
}

/// A path that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Death {
    /// Since when nothing has been delivered on it.
    since: Time,
    /// Whether the log has it.
    told: bool,
}

/// What has become of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It is dead: nothing has been delivered for so long.
    Died(Span),
    /// It works again, after so long.
    Works(Span),
    /// It may be tried again; nothing is known of it.
    MayBeTried,
}

/// The paths that failed, and on which nothing was delivered since.
pub(super) fn dead(learnt: &[Learnt]) -> BTreeSet<(IpNet, u32)> {
    failed(learnt).map(|(path, _)| path).collect()
}

fn failed(learnt: &[Learnt]) -> impl Iterator<Item = ((IpNet, u32), Time)> {
    let paths = learnt.iter().flat_map(|one| one.paths.iter().map(move |path| (one.destination, path)));
    paths.filter_map(|(destination, (id, learnt))| Some(((destination, *id), learnt.failed?)))
}

impl Liveness {
    /// Takes note of what was learnt by `now`, and returns what has changed.
    ///
    /// A path has to be dead at two looks: the loss of a single segment makes it dead for a quarter of a second.
    fn look(&mut self, learnt: &[Learnt], now: Time) -> Vec<((IpNet, u32), Change)> {
        let failed: BTreeMap<_, _> = failed(learnt).collect();
        let delivers = |path: &(IpNet, u32)| {
            let of = learnt.iter().find(|one| one.destination == path.0);
            of.and_then(|of| of.paths.iter().find(|(id, _)| *id == path.1)).map(|(_, learnt)| learnt.delivers)
        };
        let mut changes = Vec::new();
        self.dead.retain(|path, death| {
            if failed.contains_key(path) {
                return true;
            }
            match delivers(path) {
                Some(true) if death.told => changes.push((*path, Change::Works(now.since(death.since)))),
                Some(false) if death.told => changes.push((*path, Change::MayBeTried)),
                _ => {}
            }
            false
        });
        for (path, since) in failed {
            match self.dead.get_mut(&path) {
                None => {
                    self.dead.insert(path, Death { since, told: false });
                }
                Some(Death { told: true, .. }) => {}
                Some(death) => {
                    death.told = true;
                    changes.push((path, Change::Died(now.since(death.since))));
                }
            }
        }
        changes
    }

    /// Logs which paths have died, and which work again.
    pub(super) fn note(&mut self, learnt: &[Learnt], paths: &PathsInPlace) {
        for ((destination, id), change) in self.look(learnt, monotonic_now()) {
            let name = paths.path(destination, id).map_or_else(|| format!("{id:08x}"), |path| path.name.clone());
            let seconds = |span: Span| format!("{:.1} s", span.as_secs_f64());
            match change {
                Change::Died(span) => tracing::warn!(
                    path = name,
                    %destination,
                    "the path is dead: nothing was delivered on it for {}; new connections take others, if there are any",
                    seconds(span)
                ),
                Change::Works(span) => {
                    tracing::warn!(path = name, %destination, "the path works again, after {}", seconds(span));
                }
                Change::MayBeTried => {
                    tracing::info!(path = name, %destination, "the path may be tried again; nothing is known of it");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sidestep_policy::PathLearnt;

    use super::*;

    fn learnt(failed: Option<u64>, delivers: bool) -> Vec<Learnt> {
        let path = PathLearnt { failed: failed.map(Time::from_nanos), delivers, ..PathLearnt::default() };
        vec![Learnt { destination: "10.0.0.0/8".parse().unwrap(), paths: vec![(7, path)] }]
    }

    #[test]
    fn a_path_that_stays_dead_is_reported_once_and_so_is_its_recovery() {
        let mut liveness = Liveness::default();
        let mut look = |failed, delivers, now| {
            let changes = liveness.look(&learnt(failed, delivers), Time::from_nanos(now));
            changes.into_iter().map(|(_, change)| change).collect::<Vec<_>>()
        };
        assert_eq!(look(None, true, 50), []);
        assert_eq!(look(Some(100), false, 200), [], "it may be the loss of one segment");
        assert_eq!(look(Some(100), false, 300), [Change::Died(Span::from_nanos(200))]);
        assert_eq!(look(Some(100), false, 400), []);
        assert_eq!(look(None, true, 500), [Change::Works(Span::from_nanos(400))]);
        assert_eq!(look(None, true, 600), []);
        assert_eq!(look(Some(700), false, 800), []);
        assert_eq!(look(None, true, 900), [], "that it was dead was not reported");
        assert_eq!(look(Some(1_000), false, 1_100), []);
        assert_eq!(look(Some(1_000), false, 1_200), [Change::Died(Span::from_nanos(200))]);
        assert_eq!(look(None, false, 1_300), [Change::MayBeTried]);
    }

    #[test]
    fn a_path_that_is_gone_is_forgotten() {
        let mut liveness = Liveness::default();
        for now in [2, 3] {
            liveness.look(&learnt(Some(1), false), Time::from_nanos(now));
        }
        assert_eq!(liveness.look(&[], Time::from_nanos(4)), []);
        assert!(liveness.dead.is_empty());
    }
}
