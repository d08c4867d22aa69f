//! EXP3 on its own, without a connection around it.

use crate::{
    config::{PolicyError, gamma_q16, q16},
    raw::{self, MAX_PATHS},
};

/// The bandit EXP3 over 1 to 16 paths (Auer et al., "The nonstochastic multiarmed bandit problem", 2002).
///
/// [`implicit`](Self::implicit) makes EXP3-IX instead (Neu, "Explore no more", 2015). Paths are named by index; an index
/// out of range has no probability and earns nothing.
#[derive(Clone, Debug)]
pub struct Exp3 {
    implicit: bool,
    state: raw::Exp3,
    n: u32,
    gamma_q16: u32,
}

impl Exp3 {
    /// A bandit over as many paths as there are initial `weights` (0 counts as 1), with `gamma` in 0..=1 without 0.
    pub fn new(weights: &[u32], gamma: f64) -> Result<Self, PolicyError> {
        if weights.is_empty() || weights.len() > MAX_PATHS {
            return Err(PolicyError::PathCount(weights.len()));
        }
        let mut paths = [raw::Path::default(); MAX_PATHS];
        for (path, weight) in paths.iter_mut().zip(weights) {
            path.weight = *weight;
        }
        let n = weights.len() as u32;
        Ok(Exp3 { implicit: false, state: raw::exp3_open(&paths, n), n, gamma_q16: gamma_q16(gamma)? })
    }

    /// An EXP3-IX bandit over as many paths as there are initial `weights` (0 counts as 1). `gamma` is the paper's η; the
    /// paper's γ is half of that.
    pub fn implicit(weights: &[u32], gamma: f64) -> Result<Self, PolicyError> {
        Ok(Exp3 { implicit: true, ..Self::new(weights, gamma)? })
    }

    /// The probability of `path` in 1/2³²; those of all paths add up to exactly one.
    pub fn probability_q32(&self, path: usize) -> u64 {
        self.index(path).map_or(0, |path| raw::exp3_probability(&self.state, self.n, self.exploration(), path))
    }

    /// Credits `path` with a `reward`, cut to 0..=1.
    pub fn reward(&mut self, path: usize, reward: f64) {
        let Some(path) = self.index(path) else { return };
        let reward = q16(reward.clamp(0.0, 1.0));
        if self.implicit {
            raw::exp3_lose(&mut self.state, self.n, self.gamma_q16, path, 65_536 - reward);
        } else {
            raw::exp3_reward(&mut self.state, self.n, self.gamma_q16, path, reward);
        }
    }

    /// The path drawn by 32 uniform bits.
    pub fn draw(&self, random: u32) -> usize {
        raw::exp3_draw(&self.state, self.n, self.exploration(), self.n, random) as usize
    }

    /// The path drawn from all but `than`; `None` if there is no other.
    pub fn draw_other(&self, than: usize, random: u32) -> Option<usize> {
        let Some(than) = self.index(than) else { return Some(self.draw(random)) };
        (self.n > 1).then(|| raw::exp3_draw(&self.state, self.n, self.exploration(), than, random) as usize)
    }

    /// The share of draws that ignore what was learnt.
    fn exploration(&self) -> u32 {
        if self.implicit { 0 } else { self.gamma_q16 }
    }

    fn index(&self, path: usize) -> Option<u32> {
        u32::try_from(path).ok().filter(|path| *path < self.n)
    }
}
