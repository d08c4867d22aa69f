//! What connections to a destination have learnt together (map `sidestep_learnt`).

use ipnet::IpNet;
use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use sidestep_linux::{
    Result,
    bpf::{failed, map},
    monotonic_now,
};
use sidestep_policy::{
    PathLearnt, Shared,
    raw::{MAX_PATHS, SHARED_WORDS},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{HostPrefix, HostProgram, SlotPath};

/// What the connections to one destination have learnt together.
#[derive(Clone, Debug, PartialEq)]
pub struct Learnt {
    /// The destination.
    pub destination: IpNet,
    /// The IDs of its paths in their order, and what was learnt of each.
    pub paths: Vec<(u32, PathLearnt)>,
}

/// `struct host_weights`; unused path IDs are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct HostWeights {
    shared: [u64; SHARED_WORDS],
    generation: u32,
    pad: u32,
    path_id: [u32; MAX_PATHS],
}

const _: () = assert!(size_of::<HostWeights>() == 2008);

impl HostProgram {
    /// What connections to each destination have learnt together; empty where each connection learns for itself.
    pub fn learnt(&self) -> Result<Vec<Learnt>> {
        let Some(config) = self.config()?.filter(|config| config.policy.shared == 1) else { return Ok(Vec::new()) };
        let now = monotonic_now();
        let mut learnt = Vec::new();
        for destination in self.destinations()? {
            let Some(weights) = self.weights(destination)? else { continue };
            let ids: Vec<_> = weights.path_id.into_iter().take_while(|id| *id > 0).collect();
            let shared = Shared::from_words(weights.shared);
            let paths = self.paths_of(destination)?;
            // A path that the program has just got, or has no more, is one of which nothing is known.
            let path = |id: &u32| paths.iter().find(|path| path.id == *id).copied().unwrap_or_default();
            let paths: Vec<_> = ids.iter().map(path).collect();
            let of_paths = shared.learnt(&config.policy, &paths, now);
            learnt.push(Learnt { destination, paths: ids.into_iter().zip(of_paths).collect() });
        }
        learnt.sort_by_key(|one| one.destination);
        Ok(learnt)
    }

    /// Makes sure that there is a table for these paths. Paths that were there before keep what was learnt of them.
    pub(super) fn keep_weights(&self, destination: IpNet, generation: u32, paths: &[SlotPath]) -> Result<()> {
        let before = self.weights(destination)?;
        if before.is_some_and(|before| before.generation == generation) {
            return Ok(());
        }
        let host = self.spreads.then_some(self.host_number);
        let weights = HostWeights::following(before.as_ref(), generation, paths, host);
        let key = HostPrefix::from(destination);
        let written = map(&self.object, "sidestep_learnt")?.update(key.as_bytes(), weights.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed(format!("sharing what is learnt of {destination}"), &error))
    }

    /// Notes what a trial of a path found `now`: that something was delivered on it, or again nothing.
    ///
    /// What connections measure meanwhile may be lost, as when paths change.
    pub fn note_trial(&self, destination: IpNet, path_id: u32, delivered: bool) -> Result<()> {
        let Some(mut weights) = self.weights(destination)? else { return Ok(()) };
        let Some(place) = weights.path_id.iter().position(|id| *id == path_id && *id > 0) else { return Ok(()) };
        let shared = Shared::from_words(weights.shared);
        shared.note_trial(place, delivered, monotonic_now());
        weights.shared = shared.words();
        let key = HostPrefix::from(destination);
        let written = map(&self.object, "sidestep_learnt")?.update(key.as_bytes(), weights.as_bytes(), MapFlags::EXIST);
        written.map_err(|error| failed(format!("noting a trial of a path to {destination}"), &error))
    }

    /// Spreads the first draws to destinations that are set from now on as those of the host with this number.
    pub fn set_host_number(&mut self, number: u32) {
        self.host_number = number;
    }

    pub(super) fn forget_weights(&self, destination: IpNet) -> Result<()> {
        let key = HostPrefix::from(destination);
        match map(&self.object, "sidestep_learnt")?.delete(key.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed(format!("forgetting what was learnt of {destination}"), &error))
            }
            _ => Ok(()),
        }
    }

    fn weights(&self, destination: IpNet) -> Result<Option<HostWeights>> {
        let key = HostPrefix::from(destination);
        let read = map(&self.object, "sidestep_learnt")?.lookup(key.as_bytes(), MapFlags::ANY);
        let bytes = read.map_err(|error| failed(format!("reading what was learnt of {destination}"), &error))?;
        Ok(bytes.and_then(|bytes| HostWeights::read_from_bytes(&bytes).ok()))
    }
}

impl HostWeights {
    /// The table for `paths`. Paths that `before` knows keep their values; a new path begins with the best gain of these. The first
    /// table begins as that of the host with this number.
    fn following(before: Option<&Self>, generation: u32, paths: &[SlotPath], host: Option<u32>) -> Self {
        let mut path_id = [0; MAX_PATHS];
        for (id, path) in path_id.iter_mut().zip(paths) {
            *id = path.path.id;
        }
        let ids = paths.iter().map(|path| path.path.id);
        let shared = match before {
            Some(before) => {
                let known = before.path_id.into_iter().take_while(|id| *id > 0).collect::<Vec<_>>();
                let places: Vec<_> = ids.map(|id| known.iter().position(|known| *known == id)).collect();
                Shared::from_words(before.shared).rearranged(&places).words()
            }
            None => host.map_or([0; SHARED_WORDS], |host| Shared::of_host(host, paths.len()).words()),
        };
        HostWeights { shared, generation, pad: 0, path_id }
    }
}

/// What fuzzing reads.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing {
    use sidestep_net::Time;
    use sidestep_policy::raw;

    use super::*;

    /// Reads `bytes` as what was learnt, then the settings, and then the paths; and makes other paths follow them.
    pub(in super::super) fn read(bytes: &[u8]) {
        let Ok((weights, rest)) = HostWeights::read_from_prefix(bytes) else { return };
        let Ok((config, mut rest)) = raw::Config::read_from_prefix(rest) else { return };
        let mut paths = Vec::new();
        while let Ok((path, next)) = raw::Path::read_from_prefix(rest)
            && paths.len() < MAX_PATHS
        {
            (rest, _) = (next, paths.push(SlotPath { slot: 1, path }));
        }
        let known: Vec<_> = paths.iter().map(|path| path.path).collect();
        let learnt = Shared::from_words(weights.shared).learnt(&config, &known, Time::from_nanos(weights.pad.into()));
        assert_eq!(learnt.len(), known.len());
        let after = HostWeights::following(Some(&weights), 7, &paths, None);
        assert!(after.path_id.iter().zip(&paths).all(|(id, path)| *id == path.path.id));
    }
}

#[cfg(test)]
mod tests {
    use sidestep_policy::raw;

    use super::*;

    fn paths(ids: &[u32]) -> Vec<SlotPath> {
        let path = |id: &u32| raw::Path { id: *id, ..raw::Path::default() };
        ids.iter().map(|id| SlotPath { slot: 1, path: path(id) }).collect()
    }

    #[test]
    fn paths_that_stay_keep_what_was_learnt_and_new_ones_begin_as_the_best() {
        let mut before = HostWeights::following(None, 1, &paths(&[7, 8, 9]), None);
        assert_eq!(before.shared, [0; SHARED_WORDS], "nothing is learnt at first");
        // The second is the best, although its number has wrapped.
        before.shared[..3].copy_from_slice(&[u64::MAX - 4, 10, u64::MAX - 90]);
        let after = HostWeights::following(Some(&before), 2, &paths(&[9, 5, 8]), Some(5));
        assert_eq!(after.shared[..3], [u64::MAX - 90, 10, 10]);
        assert_eq!((after.generation, after.path_id[..4].to_vec()), (2, vec![9, 5, 8, 0]));
        let gone = HostWeights::following(Some(&before), 3, &paths(&[1, 2]), None);
        assert_eq!(gone.shared, [0; SHARED_WORDS], "no path stays");
    }

    #[test]
    fn weights_are_read_as_they_lie_in_the_map() {
        let written = HostWeights::following(None, 77, &paths(&[1, 2]), None);
        assert_eq!(HostWeights::read_from_bytes(written.as_bytes()), Ok(written));
        assert!(HostWeights::read_from_bytes(&[0; size_of::<HostWeights>() - 1]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn what_was_learnt_is_shown_whatever_lies_in_the_maps(
            words in proptest::collection::vec(proptest::prelude::any::<u64>(), SHARED_WORDS),
            config in proptest::collection::vec(proptest::prelude::any::<u8>(), size_of::<raw::Config>()),
            paths in proptest::collection::vec(
                proptest::collection::vec(proptest::prelude::any::<u8>(), size_of::<raw::Path>()), 0..=MAX_PATHS),
            now in proptest::prelude::any::<u64>(),
        ) {
            let paths: Vec<_> = paths.iter().map(|path| raw::Path::read_from_bytes(path).unwrap()).collect();
            let config = raw::Config::read_from_bytes(&config).unwrap();
            let shared = Shared::from_words(words.try_into().unwrap());
            let learnt = shared.learnt(&config, &paths, sidestep_net::Time::from_nanos(now));
            assert_eq!(learnt.len(), paths.len());
        }
    }
}
