//! Paths that have just gone, with their interface or address: they are shown for a minute, and not only missed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sidestep_hostd::paths::DestinationPaths;

/// How long a path is shown after it has gone.
const SHOWN: Duration = Duration::from_secs(60);
/// Most paths that are shown: the names of paths share a map.
const MAX: usize = 256;

/// What paths that have gone were called, and when they went.
#[derive(Debug, Default)]
pub(super) struct Withdrawn(BTreeMap<(IpNet, u32), (String, Instant)>);

impl Withdrawn {
    /// Notes which paths are no longer there, and which are there again.
    pub(super) fn note(&mut self, before: &[DestinationPaths], after: &[DestinationPaths]) {
        let there: BTreeSet<_> =
            after.iter().flat_map(|set| set.paths.iter().map(|path| (set.destination, path.id))).collect();
        self.0.retain(|path, _| !there.contains(path));
        for (set, path) in before.iter().flat_map(|set| set.paths.iter().map(move |path| (set, path))) {
            let key = (set.destination, path.id);
            if !there.contains(&key) && self.0.len() < MAX {
                tracing::warn!(path = path.name, destination = %set.destination, "the path is withdrawn: its connections take others");
                self.0.insert(key, (path.name.clone(), Instant::now()));
            }
        }
    }

    /// What they were called.
    pub(super) fn names(&self) -> impl Iterator<Item = ((IpNet, u32), String)> {
        self.0.iter().map(|(path, (name, _))| (*path, name.clone()))
    }

    /// Forgets those that went long ago; returns whether there were any.
    pub(super) fn forget(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|_, (_, went)| now.duration_since(*went) < SHOWN);
        self.0.len() != before
    }
}

#[cfg(test)]
mod tests {
    use sidestep_net::{Rate, Span};

    use super::*;
    use sidestep_hostd::paths::{HostPath, PathRoute};

    fn set(ids: &[u32]) -> Vec<DestinationPaths> {
        let path = |id: &u32| HostPath {
            id: *id,
            slot: 1,
            name: format!("path-{id}"),
            route: PathRoute::Default,
            capacity: Rate::default(),
            usage: Rate::default(),
            rtt: Span::ZERO,
            mtu: None,
            sources: Vec::new(),
        };
        vec![DestinationPaths { destination: "0.0.0.0/0".parse().unwrap(), paths: ids.iter().map(path).collect() }]
    }

    #[test]
    fn a_path_that_went_is_shown_for_a_minute_or_until_it_is_back() {
        let mut withdrawn = Withdrawn::default();
        let names = |of: &Withdrawn| of.names().map(|(_, name)| name).collect::<Vec<_>>();
        withdrawn.note(&set(&[1, 2, 3]), &set(&[2]));
        assert_eq!(names(&withdrawn), ["path-1", "path-3"]);
        withdrawn.note(&set(&[2]), &set(&[2, 3]));
        assert_eq!(names(&withdrawn), ["path-1"]);
        let now = Instant::now();
        assert!(!withdrawn.forget(now + Duration::from_secs(50)) && withdrawn.forget(now + Duration::from_secs(70)));
        assert_eq!(names(&withdrawn), [""; 0]);
        // A destination that went as a whole.
        withdrawn.note(&set(&[7]), &[]);
        assert_eq!(names(&withdrawn), ["path-7"]);
    }
}
