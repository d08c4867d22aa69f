//! Weights of published files as the whole numbers that routers add up.

use thiserror::Error;

use super::Graph;
use crate::MAX_WEIGHT;

/// Denominators up to this are looked for behind long decimals, such as 0.3333333333333333.
const MAX_DENOMINATOR: u64 = 1 << 20;
/// Decimals with more digits than this may stand for a fraction: a 64-bit float holds 15 for certain.
const CERTAIN_DIGITS: u32 = 15;
/// A rounded weight keeps at least this many units, so that it is right to six digits.
const MIN_UNITS: u64 = 1_000_000;

/// The weights of a graph's edges, multiplied by one factor that makes them whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeWeights {
    /// By edge; an edge without a weight has that of 1.
    pub by_edge: Vec<u64>,
    /// Whether long decimals were rounded, to 14 digits of the largest weight and at least six of each.
    pub rounded: bool,
}

/// Why weights cannot be made whole.
#[derive(Clone, Debug, Error, PartialEq)]
#[error(
    "weights from {least} to {most} are too far apart to add up exactly; write them with fewer digits, or count hops instead"
)]
pub struct WeightError {
    /// The least weight above zero.
    pub least: f64,
    /// The largest weight.
    pub most: f64,
}

/// A number as `numerator / denominator`, reduced.
type Fraction = (u128, u128);

impl Graph {
    /// The weights as whole numbers of the same proportions, none above [`MAX_WEIGHT`], or if some are 0, above that over
    /// the number of nodes.
    ///
    /// Whole weights stay as they are. Others are multiplied by the least common denominator: decimals count as they are
    /// written, and those with more than 15 digits as the fraction that they are the nearest float of, such as 1/3. Only
    /// where that is too large are weights rounded, and refused where nine digits of the least would not remain.
    pub fn whole_weights(&self) -> Result<WholeWeights, WeightError> {
        let weights: Vec<f64> = self.edges.iter().map(|edge| edge.weight.unwrap_or(1.0)).collect();
        let limit = if weights.contains(&0.0) { MAX_WEIGHT / self.nodes.len().max(1) as u64 } else { MAX_WEIGHT };
        if let Some(by_edge) = exact(&weights, limit) {
            return Ok(WholeWeights { by_edge, rounded: false });
        }
        let by_edge = rounded(&weights, limit)?;
        Ok(WholeWeights { by_edge, rounded: true })
    }
}

/// The weights by their least common denominator, if none is too large then.
fn exact(weights: &[f64], limit: u64) -> Option<Vec<u64>> {
    let mut fractions = Vec::with_capacity(weights.len());
    let mut common: u128 = 1;
    for weight in weights {
        let (above, below) = fraction(*weight)?;
        common = (common / gcd(common, below)).checked_mul(below).filter(|common| *common <= u128::from(u64::MAX))?;
        fractions.push((above, below));
    }
    let whole = |(above, below): Fraction| {
        let whole = above.checked_mul(common / below)?;
        u64::try_from(whole).ok().filter(|whole| *whole <= limit)
    };
    fractions.into_iter().map(whole).collect()
}

/// The fraction that a weight stands for; `None` if it is too long.
fn fraction(weight: f64) -> Option<Fraction> {
    let (digits, exponent) = decimal(weight);
    if digits.checked_ilog10().unwrap_or(0) >= CERTAIN_DIGITS
        && let Some(found) = behind(weight)
    {
        return Some(found);
    }
    let power = 10u128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 {
        return Some((u128::from(digits).checked_mul(power)?, 1));
    }
    let shared = gcd(u128::from(digits), power);
    Some((u128::from(digits) / shared, power / shared))
}

/// A finite weight as digits and a power of ten: the shortest decimal that reads as this float.
fn decimal(weight: f64) -> (u64, i32) {
    let text = format!("{weight:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{part}").parse().unwrap_or(0);
    (digits, exponent.parse().unwrap_or(0) - part.len() as i32)
}

/// The simplest fraction that this float is the nearest of, by its continued fraction.
fn behind(weight: f64) -> Option<Fraction> {
    let (mut above, mut below) = ([0u64, 1], [1u64, 0]);
    let mut rest = weight;
    while rest.is_finite() && rest < MAX_DENOMINATOR as f64 * MAX_DENOMINATOR as f64 {
        let whole = rest.floor();
        above = [above[1], above[1].checked_mul(whole as u64)?.checked_add(above[0])?];
        below = [below[1], below[1].checked_mul(whole as u64)?.checked_add(below[0])?];
        if below[1] > MAX_DENOMINATOR {
            return None;
        }
        if above[1] as f64 / below[1] as f64 == weight {
            return Some((above[1].into(), below[1].into()));
        }
        rest = 1.0 / (rest - whole);
    }
    None
}

/// The weights in units of the power of ten that leaves the largest within the limit.
fn rounded(weights: &[f64], limit: u64) -> Result<Vec<u64>, WeightError> {
    let most = weights.iter().copied().fold(0.0, f64::max);
    let least = weights.iter().copied().filter(|weight| *weight > 0.0).fold(most, f64::min);
    let error = WeightError { least, most };
    let (digits, exponent) = decimal(most);
    let unit = (-400..400).find(|unit| in_units((digits, exponent), *unit).is_some_and(|units| units <= limit));
    let whole = |weight: &f64| {
        let decimal = decimal(*weight);
        let units = in_units(decimal, unit?)?;
        let is_exact = decimal.1 >= unit? || *weight == 0.0;
        (is_exact || units >= MIN_UNITS).then_some(units)
    };
    weights.iter().map(|weight| whole(weight).ok_or_else(|| error.clone())).collect()
}

/// A decimal in units of a power of ten, rounded; `None` beyond 64 bits.
fn in_units((digits, exponent): (u64, i32), unit: i32) -> Option<u64> {
    let power = |exponent: i32| 10u64.checked_pow(exponent.unsigned_abs());
    if digits == 0 {
        Some(0)
    } else if exponent >= unit {
        digits.checked_mul(power(exponent - unit)?)
    } else {
        Some(power(unit - exponent).map_or(0, |power| digits / power + u64::from(digits % power >= power.div_ceil(2))))
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{GraphEdge, GraphNode};

    fn whole(weights: &[Option<f64>]) -> Result<WholeWeights, WeightError> {
        let edge = |weight: &Option<f64>| GraphEdge {
            from: 0,
            to: 1,
            directed: false,
            weight: *weight,
            rate: None,
            delay: None,
        };
        let node = || GraphNode { name: "n".into(), position: None };
        Graph { nodes: vec![node(), node()], edges: weights.iter().map(edge).collect(), ..Graph::default() }
            .whole_weights()
    }

    fn exactly(weights: &[f64]) -> Vec<u64> {
        let made = whole(&weights.iter().copied().map(Some).collect::<Vec<_>>()).unwrap();
        assert!(!made.rounded, "{weights:?}");
        made.by_edge
    }

    #[test]
    fn weights_keep_their_proportions_however_small_they_are() {
        assert_eq!(exactly(&[0.0001, 0.0003, 0.0004]), [1, 3, 4]);
        assert_eq!(exactly(&[1.0, 10.0, 0.0]), [1, 10, 0]);
        assert_eq!(exactly(&[1.0 / 3.0, 1.0 / 6.0, 0.5]), [2, 1, 3]);
        assert_eq!(exactly(&[1e-9, 1e3]), [1, 1_000_000_000_000]);
        assert_eq!(exactly(&[123_456_789_012.0]), [123_456_789_012]);
        assert_eq!(whole(&[None, Some(0.25)]).unwrap().by_edge, [4, 1]);
        // One over the capacities of SONET and Ethernet links in Mbit/s.
        let capacities = [155u64, 622, 2488, 9953, 10_000];
        let made = exactly(&capacities.map(|rate| 1.0 / rate as f64));
        let product = made[0] * 155;
        assert_eq!(made, capacities.map(|rate| product / rate));
    }

    #[test]
    fn what_is_too_long_is_rounded_to_fourteen_digits_and_what_is_too_far_apart_is_refused() {
        let primes: Vec<Option<f64>> =
            [53u32, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103].map(|one| Some(1.0 / f64::from(one))).into();
        let made = whole(&primes).unwrap();
        assert!(made.rounded);
        assert_eq!(made.by_edge[0], 18_867_924_528_302, "1/53 is 0.018 867 924 528 301 88…");
        let error = whole(&[Some(1e-12), Some(1e12)]).unwrap_err();
        assert_eq!(error, WeightError { least: 1e-12, most: 1e12 });
        assert!(error.to_string().starts_with("weights from 0.000000000001 to 1000000000000 are too far apart"));
        assert!(whole(&[Some(f64::MIN_POSITIVE), Some(f64::MAX)]).is_err());
    }

    proptest! {
        #[test]
        fn decimals_are_compared_and_added_as_whole_numbers(
            weights in prop::collection::vec((0u32..100_000, 0u32..6), 1..20),
        ) {
            let floats: Vec<f64> =
                weights.iter().map(|(digits, places)| format!("{digits}e-{places}").parse().unwrap()).collect();
            let made = exactly(&floats);
            let exact: Vec<u64> =
                weights.iter().map(|(digits, places)| u64::from(*digits) * 10u64.pow(5 - places)).collect();
            // The same up to one factor.
            for (one, other) in made.iter().zip(&exact) {
                for (first, second) in made.iter().zip(&exact) {
                    prop_assert_eq!(u128::from(*one) * u128::from(*second), u128::from(*other) * u128::from(*first));
                }
            }
        }

        #[test]
        fn any_weights_are_made_whole_or_refused(weights in prop::collection::vec(any::<f64>(), 0..8)) {
            let weights: Vec<_> = weights.iter().map(|one| Some(one.abs()).filter(|one| one.is_finite())).collect();
            if let Ok(made) = whole(&weights) {
                prop_assert!(made.by_edge.iter().all(|weight| *weight <= MAX_WEIGHT));
                prop_assert!(weights.iter().zip(&made.by_edge).all(|(one, whole)| (*one == Some(0.0)) == (*whole == 0)));
            }
        }
    }
}
