//! A connection that a host has not accepted yet: paths of its SYN-ACKs.

use std::sync::Arc;

use sidestep_model::{
    Span, Time,
    scenario::{AgentKnobs, PolicyName},
};

use crate::{
    config::{Path, PolicyError},
    connection::Connection,
    raw,
    shared::{PathLearnt, Shared},
};

/// A connection that a host has been asked for and has not accepted yet.
///
/// Each of its SYN-ACKs is drawn a path of its own, by [`reply_weights`]. On Linux a table of nf_tables does that, as the
/// program in TCP does not see SYN-ACKs.
#[derive(Clone, Debug)]
pub struct Request {
    knobs: AgentKnobs,
    config: raw::Config,
    paths: Vec<Path>,
    shared: Option<Arc<Shared>>,
}

/// The weights of a draw add up to about this.
const SCALE: f64 = 1024.0;
/// What a dead path gets of a draw: little, as it costs whoever it hits a second, but something, as it may be back.
const DEAD_SHARE: f64 = 1.0 / 64.0;

/// The least that a path gets that is not dead, as a part of an equal share.
const LEAST_SHARE: f64 = 1.0 / 8.0;

impl Request {
    /// A request that comes over `paths`; the host's connections share what they learn in `shared`.
    pub fn new(knobs: &AgentKnobs, paths: &[Path], shared: Option<Arc<Shared>>) -> Result<Self, PolicyError> {
        let config = raw::Config::try_from(knobs)?;
        if paths.is_empty() || paths.len() > raw::MAX_PATHS {
            return Err(PolicyError::PathCount(paths.len()));
        }
        Ok(Request { knobs: knobs.clone(), config, paths: paths.to_vec(), shared })
    }

    /// The same request over other paths.
    pub fn among(&self, paths: &[Path], shared: Option<Arc<Shared>>) -> Result<Self, PolicyError> {
        Request::new(&self.knobs, paths, shared)
    }

    /// The index of the path of the next SYN-ACK; `random` is 32 uniform bits.
    pub fn draw_reply(&self, now: Time, random: u32) -> usize {
        let table = self.shared.as_ref().filter(|_| self.config.shared == 1);
        let raw: Vec<_> = self.paths.iter().map(Path::to_raw).collect();
        let learnt = table.map(|shared| shared.learnt(&self.config, &raw, now)).unwrap_or_default();
        let known = learnt.into_iter().map(Some).chain(std::iter::repeat(None));
        let path = |(path, learnt): (&Path, _)| ReplyPath { weight: path.weight, rtt: path.rtt, learnt };
        let paths: Vec<_> = self.paths.iter().zip(known).map(path).collect();
        let weights = reply_weights(self.knobs.policy, &paths);
        let total: u64 = weights.iter().copied().map(u64::from).sum();
        let point = (u64::from(random) * total) >> 32;
        let ends = weights.iter().scan(0, |sum, weight| {
            *sum += u64::from(*weight);
            Some(*sum)
        });
        ends.take_while(|end| *end <= point).count()
    }

    /// The host accepts the connection, which takes a path of its own; `random` is 32 uniform bits.
    pub fn accept(&self, now: Time, random: u32) -> Result<Connection, PolicyError> {
        Connection::open_among(&self.knobs, &self.paths, self.shared.clone(), now, random)
    }
}

/// A path that may be drawn for a SYN-ACK.
#[derive(Clone, Copy, Debug)]
pub struct ReplyPath {
    /// Its initial weight.
    pub weight: u32,
    /// Its round-trip propagation time; zero if it is not known.
    pub rtt: Span,
    /// What connections have learnt of it, if anything.
    pub learnt: Option<PathLearnt>,
}

impl ReplyPath {
    fn is_dead(&self) -> bool {
        self.learnt.is_some_and(|learnt| learnt.dead)
    }

    /// The round trip: as measured, or else as it is known. A host that only receives measures none.
    fn delay(&self) -> Option<Span> {
        self.learnt.and_then(|learnt| learnt.delay).or(Some(self.rtt)).filter(|delay| *delay > Span::ZERO)
    }
}

/// How likely each path is to be drawn for a SYN-ACK, compared with the others: as for a new connection, by its initial
/// weight and by what is known of it.
///
/// No path gets less than an eighth of an equal share, except dead ones: a path may die before anybody has learnt that it
/// has. Each weight is at least 1, and they add up to about 1024. The static policy has one path, its first.
pub fn reply_weights(policy: PolicyName, paths: &[ReplyPath]) -> Vec<u32> {
    // Where all are dead, none is worse than the others.
    let some_alive = paths.iter().any(|path| !path.is_dead());
    let draws_dead = |path: &ReplyPath| some_alive && path.is_dead();
    let least = paths.iter().filter(|path| !draws_dead(path)).filter_map(ReplyPath::delay).min();
    let factor = |path: &ReplyPath| match (policy, least, path.delay()) {
        (PolicyName::DelayWeighted, Some(least), Some(delay)) => (least.as_secs_f64() / delay.as_secs_f64()).powi(2),
        (PolicyName::DelayWeighted, ..) => 1.0,
        _ => path.learnt.map_or(1.0, |learnt| learnt.factor),
    };
    let weight = |path: &ReplyPath| match policy {
        PolicyName::Random => 1.0,
        _ => f64::from(path.weight.max(1)) * factor(path).max(1e-6),
    };
    let alive: f64 = paths.iter().filter(|path| !draws_dead(path)).map(weight).sum();
    let floor = LEAST_SHARE / paths.len().max(1) as f64;
    let part = |path| if draws_dead(path) { DEAD_SHARE } else { (weight(path) / alive).max(floor) };
    let taken = if policy == PolicyName::Static { 1 } else { usize::MAX };
    paths.iter().take(taken).map(|path| (part(path) * SCALE).round().max(1.0) as u32).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_model::Rate;

    use super::*;

    fn path(weight: u32) -> ReplyPath {
        ReplyPath { weight, rtt: Span::ZERO, learnt: None }
    }

    fn learnt(weight: u32, factor: f64, dead: bool) -> ReplyPath {
        ReplyPath { learnt: Some(PathLearnt { factor, delay: None, dead }), ..path(weight) }
    }

    fn far(weight: u32, rtt_ms: u64, measured_ms: Option<u64>) -> ReplyPath {
        let learnt = PathLearnt { factor: 1.0, delay: measured_ms.map(Span::from_millis), dead: false };
        ReplyPath { weight, rtt: Span::from_millis(rtt_ms), learnt: Some(learnt) }
    }

    #[test]
    fn a_reply_is_drawn_as_a_new_connection_is() {
        assert_eq!(reply_weights(PolicyName::DelayWeighted, &[path(10), path(30)]), [256, 768]);
        let lowered = [learnt(10, 1.0, false), learnt(30, 1.0 / 3.0, false)];
        assert_eq!(reply_weights(PolicyName::Exp3, &lowered), [512, 512]);
        assert_eq!(reply_weights(PolicyName::Random, &lowered), [512, 512]);
        assert_eq!(reply_weights(PolicyName::Static, &lowered).len(), 1);
        // The known round trip counts where none was measured.
        assert_eq!(reply_weights(PolicyName::DelayWeighted, &[far(10, 10, None), far(40, 20, None)]), [512, 512]);
        assert_eq!(reply_weights(PolicyName::DelayWeighted, &[far(10, 10, Some(20)), far(10, 20, None)]), [512, 512]);
    }

    #[test]
    fn a_dead_path_gets_little_but_not_nothing_and_all_dead_ones_are_alike() {
        let one_dead = [learnt(90, 1.0, true), path(10), path(10)];
        assert_eq!(reply_weights(PolicyName::DelayWeighted, &one_dead), [16, 512, 512]);
        let all_dead = [learnt(10, 1.0, true), learnt(10, 1.0, true)];
        assert_eq!(reply_weights(PolicyName::DelayWeighted, &all_dead), [512, 512]);
        assert_eq!(reply_weights(PolicyName::DelayWeighted, &[path(1_000_000), path(1)]), [1024, 64]);
    }

    #[test]
    fn each_syn_ack_of_a_request_is_drawn_anew_and_the_connection_too() {
        let paths = [(1, 10), (2, 30)].map(|(id, mbits)| Path::new(id, Rate::from_mbits(mbits), Span::from_millis(10)));
        let request = Request::new(&AgentKnobs::default(), &paths, Some(Arc::default())).unwrap();
        let quarters = [0_u32, 1, 2, 3].map(|quarter| request.draw_reply(Time::ZERO, quarter << 30));
        assert_eq!(quarters, [0, 1, 1, 1]);
        assert_eq!(request.draw_reply(Time::ZERO, u32::MAX), 1);
        assert!(request.accept(Time::ZERO, 7).unwrap().path() < 2);
        assert_eq!(request.among(&paths[1..], None).unwrap().draw_reply(Time::ZERO, u32::MAX), 0);
        assert!(Request::new(&AgentKnobs::default(), &[], None).is_err());
    }
}
