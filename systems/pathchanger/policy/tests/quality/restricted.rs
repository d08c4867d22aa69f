//! Draws among some of the paths.

use proptest::prelude::*;
use sidestep_net::Time;
use sidestep_policy::{Connection, Path, PolicyName, PolicySettings, Round};

use crate::host::{MSS, paths};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// EXP3's importance weight is right only for the probability with which a path was drawn, which a guard or a failure
    /// makes greater (Auer et al. 2002: the reward is divided by the probability of the draw).
    #[test]
    fn a_draw_that_is_restricted_records_the_probability_among_the_rest(
        weights in prop::collection::vec(1..1_000_000_u32, 2..=16),
        policy in prop::sample::select(vec![PolicyName::Exp3, PolicyName::Exp3Ix, PolicyName::LowestRtt]),
        first in any::<u32>(),
        random in any::<u32>(),
    ) {
        let config = PolicySettings { policy, ..PolicySettings::default() };
        let path = |(id, weight): (u32, &u32)| Path { id, weight: *weight, ..paths(&[10])[0] };
        let paths: Vec<Path> = (0..).zip(&weights).map(path).collect();
        let mut conn = Connection::open(&config, &paths, Time::ZERO, first).unwrap();
        let (k, left) = (weights.len(), conn.path());
        let gamma = if policy == PolicyName::Exp3Ix { 0.0 } else { 0.1 };
        let round = Round { now: Time::from_nanos(1_000_000_000), mss: MSS, ..Round::default() };
        prop_assert!(conn.handle_timeout(round, false, random).moved);
        // What was learnt is part of it: a failure earns nothing, and costs something by EXP3-IX.
        let log: Vec<f64> = conn.raw().exp3.log_weight[..k].iter().map(|log| *log as f64 / 2_f64.powi(32)).collect();
        let sum: f64 = log.iter().map(|log| log.exp2()).sum();
        let probability = |path: usize| (1.0 - gamma) * log[path].exp2() / sum + gamma / k as f64;
        let expected = probability(conn.path()) / (1.0 - probability(left));
        let recorded = f64::from(conn.raw().chance_q32) / 2_f64.powi(32);
        // γ is a whole number of 65536ths.
        prop_assert!((recorded - expected).abs() < 1e-4, "{recorded} instead of {expected}");
    }
}
