//! A connection that a host has not accepted yet: paths of its SYN-ACKs.

use std::sync::Arc;

use sidestep_net::{Span, Time};

use crate::{PolicyName, PolicySettings};
use crate::{
    config::{Path, PolicyError},
    connection::Connection,
    raw,
    shared::{PathLearnt, Shared},
};

/// A connection that a host has been asked for and has not accepted yet.
///
/// Each of its SYN-ACKs is drawn a path of its own ([`draw_reply`]), by [weights](Self::weights) that follow what was learnt
/// a moment ago ([`REWEIGHING`]). On Linux a table of nf_tables does that, as the program in TCP does not see SYN-ACKs.
#[derive(Clone, Debug)]
pub struct Request {
    settings: PolicySettings,
    config: raw::Config,
    paths: Vec<Path>,
    shared: Option<Arc<Shared>>,
}

/// The weights of a draw add up to about this.
const SCALE: f64 = 1024.0;
/// A weight is written again when it is off by more than this part of it.
const TOLERANCE: f64 = 0.2;
/// How often the agent looks whether weights are off.
pub const REWEIGHING: Span = Span::from_millis(250);

impl Request {
    /// A request that comes over `paths`; the host's connections share what they learn in `shared`.
    pub fn new(settings: &PolicySettings, paths: &[Path], shared: Option<Arc<Shared>>) -> Result<Self, PolicyError> {
        let config = raw::Config::try_from(settings)?;
        if paths.is_empty() || paths.len() > raw::MAX_PATHS {
            return Err(PolicyError::PathCount(paths.len()));
        }
        Ok(Request { settings: settings.clone(), config, paths: paths.to_vec(), shared })
    }

    /// The same request over other paths.
    pub fn among(&self, paths: &[Path], shared: Option<Arc<Shared>>) -> Result<Self, PolicyError> {
        Request::new(&self.settings, paths, shared)
    }

    /// The weights by which paths of SYN-ACKs are drawn, by what is known now.
    pub fn weights(&self, now: Time) -> Vec<u32> {
        let table = self.shared.as_ref().filter(|_| self.config.shared == 1);
        let raw: Vec<_> = self.paths.iter().map(Path::to_raw).collect();
        let learnt = table.map(|shared| shared.learnt(&self.config, &raw, now)).unwrap_or_default();
        let known = learnt.into_iter().map(Some).chain(std::iter::repeat(None));
        let paths: Vec<_> = self.paths.iter().map(|path| path.weight).zip(known).collect();
        reply_weights(self.settings.policy, &paths)
    }

    /// The host accepts the connection, which takes a path of its own; `random` is 32 uniform bits.
    pub fn accept(&self, now: Time, random: u32) -> Result<Connection, PolicyError> {
        Connection::begin(&self.settings, &self.paths, self.shared.clone(), now, random)
    }
}

/// The index of the path of the next SYN-ACK by these weights; `random` is 32 uniform bits.
pub fn draw_reply(weights: &[u32], random: u32) -> usize {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    let point = (u64::from(random) * total) >> 32;
    let ends = weights.iter().scan(0, |sum, weight| {
        *sum += u64::from(*weight);
        Some(*sum)
    });
    ends.take_while(|end| *end <= point).count()
}

/// Whether weights are off by so much that the agent writes them again.
pub fn are_off(present: &[u32], wanted: &[u32]) -> bool {
    let off = |(present, wanted): (&u32, &u32)| {
        let (present, wanted) = (f64::from(*present), f64::from(*wanted));
        (present - wanted).abs() > TOLERANCE * present.max(wanted)
    };
    present.len() != wanted.len() || present.iter().zip(wanted).any(off)
}

/// How likely a SYN-ACK draws each path, compared with the others: as for a new connection, by its initial
/// weight and by what was learnt of it.
///
/// Each weight is at least 1, and they add up to about 1024. The static policy has one path, its first.
pub fn reply_weights(policy: PolicyName, paths: &[(u32, Option<PathLearnt>)]) -> Vec<u32> {
    // A lost one costs its client a second; other packets find out for less whether the path is back.
    let is_dead = |learnt: &Option<PathLearnt>| learnt.is_some_and(|learnt| learnt.unanswered);
    // Where all are dead, none is worse than the others.
    let some_alive = paths.iter().any(|(_, learnt)| !is_dead(learnt));
    let weight = |(initial, learnt): &(u32, Option<PathLearnt>)| match policy {
        PolicyName::Random => 1.0,
        _ => f64::from((*initial).max(1)) * learnt.map_or(1.0, |learnt| learnt.factor).max(1e-6),
    };
    let draws_dead = |path: &(u32, Option<PathLearnt>)| some_alive && is_dead(&path.1);
    let alive: f64 = paths.iter().filter(|path| !draws_dead(path)).map(weight).sum();
    let part = |path| if draws_dead(path) { 0.0 } else { weight(path) / alive };
    let taken = if policy == PolicyName::Static { 1 } else { usize::MAX };
    paths.iter().take(taken).map(|path| (part(path) * SCALE).round().max(1.0) as u32).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_net::Rate;

    use super::*;

    fn weights(policy: PolicyName, paths: &[(u32, f64, bool)]) -> Vec<u32> {
        let known = |(initial, factor, dead): &(u32, f64, bool)| {
            (*initial, Some(PathLearnt { factor: *factor, dead: *dead, unanswered: *dead, ..PathLearnt::default() }))
        };
        reply_weights(policy, &paths.iter().map(known).collect::<Vec<_>>())
    }

    #[test]
    fn a_reply_is_drawn_as_a_new_connection_is() {
        assert_eq!(reply_weights(PolicyName::DelayWeighted, &[(10, None), (30, None)]), [256, 768]);
        assert_eq!(weights(PolicyName::DelayWeighted, &[(10, 1.0, false), (30, 1.0 / 3.0, false)]), [512, 512]);
        assert_eq!(weights(PolicyName::Random, &[(10, 1.0, false), (30, 0.1, false)]), [512, 512]);
        assert_eq!(reply_weights(PolicyName::Static, &[(10, None), (30, None)]).len(), 1);
    }

    #[test]
    fn a_dead_path_gets_next_to_nothing_and_all_dead_ones_are_alike() {
        let one_dead = [(90, 1.0, true), (10, 1.0, false), (10, 1.0, false)];
        assert_eq!(weights(PolicyName::DelayWeighted, &one_dead), [1, 512, 512]);
        assert_eq!(weights(PolicyName::DelayWeighted, &[(10, 1.0, true), (10, 1.0, true)]), [512, 512]);
        assert_eq!(weights(PolicyName::DelayWeighted, &[(1_000_000, 1.0, false), (1, 1.0, false)]), [1024, 1]);
    }

    #[test]
    fn weights_are_off_by_a_fifth_or_where_paths_are_others() {
        assert!(!are_off(&[512, 512], &[430, 594]));
        assert!(are_off(&[512, 512], &[400, 624]) && are_off(&[1024], &[512, 512]));
    }

    #[test]
    fn each_syn_ack_of_a_request_is_drawn_again_and_the_connection_too() {
        let paths = [(1, 10), (2, 30)].map(|(id, mbits)| Path::new(id, Rate::from_mbits(mbits), Span::from_millis(10)));
        let request = Request::new(&PolicySettings::default(), &paths, Some(Arc::default())).unwrap();
        let weights = request.weights(Time::ZERO);
        let quarters = [0_u32, 1, 2, 3].map(|quarter| draw_reply(&weights, quarter << 30));
        assert_eq!(quarters, [0, 1, 1, 1]);
        assert_eq!(draw_reply(&weights, u32::MAX), 1);
        assert!(request.accept(Time::ZERO, 7).unwrap().path() < 2);
        let one = request.among(&paths[1..], None).unwrap();
        assert_eq!(draw_reply(&one.weights(Time::ZERO), u32::MAX), 0);
        assert!(Request::new(&PolicySettings::default(), &[], None).is_err());
    }
}
