//! What connections to a destination have learnt together (map `sidestep_learnt`).

use ipnet::IpNet;
use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use sidestep_policy::{
    Shared,
    raw::{self, MAX_PATHS},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    super::{failed, map},
    HostPrefix, HostProgram,
};
use crate::error::Result;

/// What the connections to one destination have learnt together.
#[derive(Clone, Debug, PartialEq)]
pub struct Learnt {
    /// The destination.
    pub destination: IpNet,
    /// Each path's ID, and the factor by which learning has lowered its weight compared with the best one's, which has 1.
    pub paths: Vec<(u32, f64)>,
}

/// `struct host_weights`; unused path IDs are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct HostWeights {
    log_gain: [u64; MAX_PATHS],
    generation: u32,
    pad: u32,
    path_id: [u32; MAX_PATHS],
}

const _: () = assert!(size_of::<HostWeights>() == 200);

impl HostProgram {
    /// What connections to each destination have learnt together; empty where each connection learns for itself.
    pub fn learnt(&self) -> Result<Vec<Learnt>> {
        if self.config()?.is_none_or(|config| config.policy.shared == 0) {
            return Ok(Vec::new());
        }
        let mut learnt = Vec::new();
        for destination in self.destinations()? {
            let Some(weights) = self.weights(destination)? else { continue };
            let ids: Vec<_> = weights.path_id.into_iter().take_while(|id| *id > 0).collect();
            let factors = Shared::from_gains(weights.log_gain).factors(ids.len());
            learnt.push(Learnt { destination, paths: ids.into_iter().zip(factors).collect() });
        }
        learnt.sort_by_key(|one| one.destination);
        Ok(learnt)
    }

    /// Makes sure that there is a table for these paths. Paths that were there before keep what was learnt of them.
    pub(super) fn keep_weights(&self, destination: IpNet, generation: u32, paths: &[raw::Path]) -> Result<()> {
        let before = self.weights(destination)?;
        if before.is_some_and(|before| before.generation == generation) {
            return Ok(());
        }
        let weights = HostWeights::following(before.as_ref(), generation, paths);
        let key = HostPrefix::from(destination);
        let written = map(&self.object, "sidestep_learnt")?.update(key.as_bytes(), weights.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed(format!("sharing what is learnt of {destination}"), &error))
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
    /// The table for `paths`. Paths that `before` knows keep its values; a new path begins with the best of these.
    fn following(before: Option<&Self>, generation: u32, paths: &[raw::Path]) -> Self {
        let mut weights = HostWeights { log_gain: [0; MAX_PATHS], generation, pad: 0, path_id: [0; MAX_PATHS] };
        for (id, path) in weights.path_id.iter_mut().zip(paths) {
            *id = path.id;
        }
        let Some(before) = before else { return weights };
        let known = before.path_id.into_iter().zip(before.log_gain).take_while(|(id, _)| *id > 0);
        let known: Vec<_> = known.filter(|(id, _)| paths.iter().any(|path| path.id == *id)).collect();
        // Only differences mean anything, and the numbers wrap.
        let first = known.first().map_or(0, |(_, gain)| *gain);
        let best = known.iter().map(|(_, gain)| gain.wrapping_sub(first) as i64).max().unwrap_or(0);
        for (gain, path) in weights.log_gain.iter_mut().zip(paths) {
            let learnt = known.iter().find(|(id, _)| *id == path.id);
            *gain = learnt.map_or(first.wrapping_add(best as u64), |(_, gain)| *gain);
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(ids: &[u32]) -> Vec<raw::Path> {
        ids.iter().map(|id| raw::Path { id: *id, ..raw::Path::default() }).collect()
    }

    #[test]
    fn paths_that_stay_keep_what_was_learnt_and_new_ones_begin_as_the_best() {
        let mut before = HostWeights::following(None, 1, &paths(&[7, 8, 9]));
        assert_eq!(before.log_gain, [0; MAX_PATHS], "nothing is learnt at first");
        // The second is the best, although its number has wrapped.
        before.log_gain[..3].copy_from_slice(&[u64::MAX - 4, 10, u64::MAX - 90]);
        let after = HostWeights::following(Some(&before), 2, &paths(&[9, 5, 8]));
        assert_eq!(after.log_gain[..3], [u64::MAX - 90, 10, 10]);
        assert_eq!((after.generation, after.path_id[..4].to_vec()), (2, vec![9, 5, 8, 0]));
        let gone = HostWeights::following(Some(&before), 3, &paths(&[1, 2]));
        assert_eq!(gone.log_gain, [0; MAX_PATHS], "no path stays");
    }

    #[test]
    fn weights_are_read_as_they_lie_in_the_map() {
        let written = HostWeights::following(None, 77, &paths(&[1, 2]));
        assert_eq!(HostWeights::read_from_bytes(written.as_bytes()), Ok(written));
        assert!(HostWeights::read_from_bytes(&[0; size_of::<HostWeights>() - 1]).is_err());
    }
}
