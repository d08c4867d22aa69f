//! EXP3 and EXP3-IX in fixed point against the same as the papers write them, in floating point.

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_policy::Exp3;

/// Updates in a history.
const UPDATES: usize = 20_000;

/// The paper's algorithm; only the weights are kept as logarithms, which floating point needs too.
struct Reference {
    ln_weight: Vec<f64>,
    gamma: f64,
}

impl Reference {
    fn new(weights: &[u32], gamma: f64) -> Self {
        Reference { ln_weight: weights.iter().map(|w| f64::from((*w).max(1)).ln()).collect(), gamma }
    }

    fn probabilities(&self) -> Vec<f64> {
        let max = self.ln_weight.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = self.ln_weight.iter().map(|w| (w - max).exp()).collect();
        let (sum, k) = (weights.iter().sum::<f64>(), weights.len() as f64);
        weights.iter().map(|w| (1.0 - self.gamma) * w / sum + self.gamma / k).collect()
    }

    fn reward(&mut self, path: usize, reward: f64) {
        let probability = self.probabilities()[path];
        self.ln_weight[path] += self.gamma * reward / (probability * self.ln_weight.len() as f64);
    }
}

/// Who picks the path of each update.
#[derive(Clone, Copy, Debug)]
enum Picks {
    /// EXP3 itself.
    Drawn,
    /// Chance, so that the least probable paths are rewarded too.
    Uniform,
    /// Each path a thousand times in a row, then the next.
    Blocks,
    /// Always the least probable.
    Worst,
}

/// How the rewards of a path are made up.
#[derive(Clone, Copy, Debug)]
enum Rewards {
    Zero,
    One,
    Either,
    Any,
    /// A smallest step of the fixed point, so that rounding matters.
    Tiny,
}

/// A reward in 1/65536, which is exact in both.
fn reward(rewards: Rewards, rng: &mut Pcg32) -> f64 {
    let q16 = match rewards {
        Rewards::Zero => 0,
        Rewards::One => 65_536,
        Rewards::Either => (rng.next_u32() & 1) * 65_536,
        Rewards::Any => rng.next_u32() % 65_537,
        Rewards::Tiny => 1,
    };
    f64::from(q16) / 65_536.0
}

fn pick(picks: Picks, step: usize, exp3: &Exp3, k: usize, rng: &mut Pcg32) -> usize {
    match picks {
        Picks::Drawn => exp3.draw(rng.next_u32()),
        Picks::Uniform => rng.next_u32() as usize % k,
        Picks::Blocks => step / 1_000 % k,
        Picks::Worst => (0..k).min_by_key(|path| exp3.probability_q32(*path)).unwrap_or(0),
    }
}

fn compare(exp3: &Exp3, reference: &Reference) -> Result<(), TestCaseError> {
    let mut sum = 0;
    for (path, expected) in reference.probabilities().into_iter().enumerate() {
        let q32 = exp3.probability_q32(path);
        let probability = q32 as f64 / 2_f64.powi(32);
        let error = (probability / expected - 1.0).abs();
        prop_assert!(error < 1e-3, "path {path}: {probability} instead of {expected}");
        sum += q32;
    }
    prop_assert_eq!(sum, 1 << 32);
    Ok(())
}

fn probabilities(exp3: &Exp3, k: usize) -> Vec<f64> {
    (0..k).map(|path| exp3.probability_q32(path) as f64 / 2_f64.powi(32)).collect()
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![Just(0), Just(1), Just(u32::MAX), 1..1_000_u32, any::<u32>()];
    prop::collection::vec(weight, 1..=16)
}

fn picks() -> impl Strategy<Value = Picks> {
    prop_oneof![Just(Picks::Drawn), Just(Picks::Uniform), Just(Picks::Blocks), Just(Picks::Worst)]
}

fn rewards() -> impl Strategy<Value = Rewards> {
    prop_oneof![Just(Rewards::Zero), Just(Rewards::One), Just(Rewards::Either), Just(Rewards::Any), Just(Rewards::Tiny),]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_probability_is_the_papers_after_a_long_history(
        weights in weights(),
        gamma_q16 in prop_oneof![Just(656_u32), Just(65_536), 656..=65_536_u32],
        picks in picks(),
        rewards in rewards(),
        seed in any::<u64>(),
    ) {
        let gamma = f64::from(gamma_q16) / 65_536.0;
        let mut exp3 = Exp3::new(&weights, gamma)?;
        let mut reference = Reference::new(&weights, gamma);
        let mut rng = Pcg32::seed_from_u64(seed);
        compare(&exp3, &reference)?;
        for step in 0..UPDATES {
            let path = pick(picks, step, &exp3, weights.len(), &mut rng);
            let reward = reward(rewards, &mut rng);
            exp3.reward(path, reward);
            reference.reward(path, reward);
            if step % 97 == 0 || step + 1 == UPDATES {
                compare(&exp3, &reference)?;
            }
        }
    }

    /// Step by step: a path that EXP3-IX has charged less is more probable and is charged less again, so that the
    /// smallest error of a long history grows without bound.
    #[test]
    fn every_step_of_exp3_ix_is_the_papers(
        weights in weights(),
        gamma_q16 in prop_oneof![Just(1_u32), Just(65_536), 1..=65_536_u32],
        picks in picks(),
        rewards in rewards(),
        seed in any::<u64>(),
    ) {
        let gamma = f64::from(gamma_q16) / 65_536.0;
        let mut exp3 = Exp3::implicit(&weights, gamma)?;
        let mut rng = Pcg32::seed_from_u64(seed);
        for step in 0..UPDATES / 4 {
            let path = pick(picks, step, &exp3, weights.len(), &mut rng);
            let reward = reward(rewards, &mut rng);
            let mut expected = probabilities(&exp3, weights.len());
            expected[path] *= (-gamma * (1.0 - reward) / (expected[path] + gamma / 2.0)).exp();
            let sum: f64 = expected.iter().sum();
            exp3.reward(path, reward);
            for (found, expected) in probabilities(&exp3, weights.len()).iter().zip(&expected) {
                prop_assert!((found - expected / sum).abs() < 1e-7, "{found} instead of {}", expected / sum);
            }
            let whole: u64 = (0..weights.len()).map(|path| exp3.probability_q32(path)).sum();
            prop_assert_eq!(whole, 1 << 32);
        }
    }

    #[test]
    fn leaving_a_path_never_draws_it(
        weights in weights(),
        gamma_q16 in 1..=65_536_u32,
        implicit in any::<bool>(),
        random in any::<u32>(),
    ) {
        let gamma = f64::from(gamma_q16) / 65_536.0;
        let exp3 = if implicit { Exp3::implicit(&weights, gamma)? } else { Exp3::new(&weights, gamma)? };
        for path in 0..weights.len() {
            for random in [0, random, u32::MAX] {
                let drawn = exp3.draw_other(path, random);
                prop_assert!(drawn.is_none_or(|drawn| drawn != path && drawn < weights.len()));
                prop_assert_eq!(drawn.is_none(), weights.len() == 1);
                prop_assert!(exp3.draw(random) < weights.len());
            }
        }
    }
}

/// Pearson's χ² of `draws` against the probabilities, where `left` cannot be drawn.
fn chi_square(exp3: &Exp3, k: usize, left: Option<usize>, rng: &mut Pcg32) -> f64 {
    const DRAWS: u32 = 200_000;
    let mut counts = vec![0_u32; k];
    for _ in 0..DRAWS {
        let random = rng.next_u32();
        let path = left.map_or_else(|| Some(exp3.draw(random)), |left| exp3.draw_other(left, random));
        counts[path.unwrap()] += 1;
    }
    let probability = |path| exp3.probability_q32(path) as f64 / 2_f64.powi(32);
    let possible = 1.0 - left.map_or(0.0, probability);
    let term = |path| {
        let expected = f64::from(DRAWS) * probability(path) / possible;
        (f64::from(counts[path]) - expected).powi(2) / expected
    };
    (0..k).filter(|path| Some(*path) != left).map(term).sum()
}

#[test]
fn draws_follow_the_probabilities() {
    let mut rng = Pcg32::seed_from_u64(1);
    for k in [2_usize, 3, 7, 16] {
        let mut exp3 = Exp3::new(&vec![1; k], 0.2).unwrap();
        for step in 0..30 {
            exp3.reward(step % k, (step % k) as f64 / k as f64);
        }
        for left in [None, Some(0), Some(k / 2), Some(k - 1)] {
            let freedom = (k - 1 - usize::from(left.is_some())) as f64;
            let chi_square = chi_square(&exp3, k, left, &mut rng);
            // Four standard deviations, and room for the skew of the distribution at few degrees of freedom.
            assert!(chi_square < freedom + 4.0 * (2.0 * freedom).sqrt() + 6.0, "k {k}, left {left:?}: {chi_square}");
        }
    }
}

#[test]
fn the_path_that_earns_more_ends_up_with_all_but_gamma() {
    let mut exp3 = Exp3::new(&[1, 1, 1, 1], 0.1).unwrap();
    let mut rng = Pcg32::seed_from_u64(2);
    for _ in 0..5_000 {
        let path = exp3.draw(rng.next_u32());
        exp3.reward(path, if path == 2 { 0.9 } else { 0.3 });
    }
    let best = exp3.probability_q32(2) as f64 / 2_f64.powi(32);
    assert!((best - (0.9 + 0.1 / 4.0)).abs() < 1e-3, "{best}");
}

#[test]
fn without_a_reward_the_weights_are_the_bandwidths() {
    let exp3 = Exp3::new(&[10, 30], 0.5).unwrap();
    let probability = |path| exp3.probability_q32(path) as f64 / 2_f64.powi(32);
    assert!((probability(0) - (0.5 * 0.25 + 0.25)).abs() < 1e-7);
    assert!((probability(1) - (0.5 * 0.75 + 0.25)).abs() < 1e-7);
    assert_eq!(probability(2), 0.0, "a path that is not there");
}

#[test]
fn exp3_ix_leaves_paths_that_earn_nothing_for_good_where_exp3_comes_back() {
    let mut exp3 = Exp3::implicit(&[1, 1, 1, 1], 0.1).unwrap();
    let mut rng = Pcg32::seed_from_u64(3);
    for _ in 0..2_000 {
        let path = exp3.draw(rng.next_u32());
        exp3.reward(path, if path == 2 { 1.0 } else { 0.0 });
    }
    let best = exp3.probability_q32(2) as f64 / 2_f64.powi(32);
    assert!(best > 0.999, "{best}");
}
