//! Demands drawn at random: by gravity, or uniformly.

use std::str::FromStr;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_net::{Graph, Rate, TrafficMatrix};
use thiserror::Error;

use super::{MAX_DEMANDS, matrix};

/// How demands are drawn; written `gravity:TOTAL` or `uniform:TOTAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    model: Model,
    /// All demands together.
    total: Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    /// A pair's demand is in proportion to what its source sends times what its destination receives, both drawn from an
    /// exponential distribution (Roughan, CCR 35(5), 2005).
    Gravity,
    /// A pair's demand is drawn evenly from 0 to a maximum.
    Uniform,
}

/// Demands that cannot be drawn.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GenerateError {
    /// More pairs than may be.
    #[error("{0} nodes have more than {MAX_DEMANDS} pairs")]
    TooMany(usize),
    /// Fewer than two nodes.
    #[error("there are no two nodes")]
    NoPair,
}

impl FromStr for Generator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (model, total) = text.split_once(':').ok_or("write gravity:TOTAL or uniform:TOTAL")?;
        let model = match model {
            "gravity" => Model::Gravity,
            "uniform" => Model::Uniform,
            _ => return Err("write gravity:TOTAL or uniform:TOTAL".into()),
        };
        let total: Rate = total.trim().parse().map_err(|error: sidestep_net::UnitError| error.to_string())?;
        if total == Rate::default() {
            return Err("the total must be above zero".into());
        }
        Ok(Generator { model, total })
    }
}

impl Generator {
    /// Demands between all pairs of nodes, which a seed decides; rounding apart, they add up to the total.
    pub fn draw(&self, graph: &Graph, seed: u32) -> Result<TrafficMatrix, GenerateError> {
        let nodes = graph.nodes.len();
        match nodes.checked_mul(nodes.saturating_sub(1)) {
            Some(0) => return Err(GenerateError::NoPair),
            Some(pairs) if pairs <= MAX_DEMANDS => {}
            _ => return Err(GenerateError::TooMany(nodes)),
        }
        let mut random = Pcg32::seed_from_u64(u64::from(seed));
        // Above 0, at most 1.
        let mut draw = || (f64::from(random.next_u32()) + 1.0) / 2f64.powi(32);
        let pairs = (0..nodes).flat_map(|from| (0..nodes).filter(move |to| *to != from).map(move |to| (from, to)));
        let weights: Vec<((usize, usize), f64)> = match self.model {
            Model::Gravity => {
                let mut masses = || (0..nodes).map(|_| -draw().ln()).collect::<Vec<f64>>();
                let (sent, received) = (masses(), masses());
                let of = |masses: &[f64], node: usize| masses.get(node).copied().unwrap_or_default();
                pairs.map(|(from, to)| ((from, to), of(&sent, from) * of(&received, to))).collect()
            }
            Model::Uniform => pairs.map(|pair| (pair, draw())).collect(),
        };
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let unit = self.total.bits_per_sec() as f64 / sum.max(f64::MIN_POSITIVE);
        let name = match self.model {
            Model::Gravity => "gravity",
            Model::Uniform => "uniform",
        };
        Ok(matrix(name.into(), weights.into_iter().map(|(pair, weight)| (pair, weight * unit))))
    }
}
