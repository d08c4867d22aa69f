//! How much, how long and when: the random quantities of a workload, drawn from random bits that the caller passes in.

mod csv;

use std::{fmt, str::FromStr};

use rand_core::Rng;
use serde::{Deserialize, Deserializer, de::Error as _};

pub use self::csv::CsvError;
use sidestep_net::{Bytes, Rate, Span, Time};

/// How large transfers are.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeDistribution {
    /// All of one size.
    Constant(Bytes),
    /// Exponential with this mean.
    Exponential(Bytes),
    /// Pareto with this shape (above 1) and mean.
    Pareto {
        /// The exponent of its tail.
        shape: f64,
        /// Its mean.
        mean: Bytes,
    },
    /// Lognormal with this mean and this standard deviation of the logarithm.
    Lognormal {
        /// Its mean.
        mean: Bytes,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// A cumulative distribution: sizes in ascending order, each with the probability of at most that size; the last
    /// probability is 1. It is linear in between.
    Empirical(Vec<(Bytes, f64)>),
}

/// One transfer of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it begins, since the start of the run.
    pub at: Time,
    /// Which of the flow's pairs it is between.
    pub pair: usize,
    /// How much it transfers.
    pub size: Bytes,
}

/// Sizes of web-search answers (Alizadeh et al., "Data Center TCP", 2010, as the authors of pFabric tabulate them).
const WEB_SEARCH: [(u64, f64); 12] = [
    (1, 0.0),
    (10_000, 0.15),
    (20_000, 0.2),
    (30_000, 0.3),
    (50_000, 0.4),
    (80_000, 0.53),
    (200_000, 0.6),
    (1_000_000, 0.7),
    (2_000_000, 0.8),
    (5_000_000, 0.9),
    (10_000_000, 0.97),
    (30_000_000, 1.0),
];

/// Sizes of flows in a data-mining cluster (Greenberg et al., "VL2", 2009, as the authors of pFabric tabulate them).
const DATA_MINING: [(u64, f64); 13] = [
    (100, 0.0),
    (180, 0.1),
    (250, 0.2),
    (560, 0.3),
    (900, 0.4),
    (1_100, 0.5),
    (1_870, 0.6),
    (3_160, 0.7),
    (10_000, 0.8),
    (400_000, 0.9),
    (3_160_000, 0.95),
    (100_000_000, 0.98),
    (1_000_000_000, 1.0),
];

/// The largest transfer; longer tails are cut.
const MAX_SIZE: f64 = 1e12;

impl SizeDistribution {
    /// The mean in bytes, if tails are not cut.
    pub fn mean(&self) -> f64 {
        let bytes = |bytes: Bytes| bytes.get() as f64;
        match self {
            SizeDistribution::Constant(mean) | SizeDistribution::Exponential(mean) => bytes(*mean),
            SizeDistribution::Pareto { mean, .. } | SizeDistribution::Lognormal { mean, .. } => bytes(*mean),
            SizeDistribution::Empirical(points) => {
                let (mut before, mut sum) = ((0.0, 0.0), 0.0);
                for (size, share) in points {
                    sum += (share - before.1) * (bytes(*size) + before.0) / 2.0;
                    before = (bytes(*size), *share);
                }
                sum
            }
        }
    }

    /// Draws a size, of at least one byte.
    pub fn draw(&self, random: &mut impl Rng) -> Bytes {
        let bytes = |bytes: Bytes| bytes.get() as f64;
        let size = match self {
            SizeDistribution::Constant(size) => bytes(*size),
            SizeDistribution::Exponential(mean) => -bytes(*mean) * uniform(random).ln(),
            SizeDistribution::Pareto { shape, mean } => {
                let least = bytes(*mean) * (shape - 1.0) / shape;
                least * uniform(random).powf(-1.0 / shape)
            }
            SizeDistribution::Lognormal { mean, sigma } => {
                // Box and Muller's transform.
                let normal = (-2.0 * uniform(random).ln()).sqrt() * (std::f64::consts::TAU * uniform(random)).cos();
                bytes(*mean) * (sigma * normal - sigma * sigma / 2.0).exp()
            }
            SizeDistribution::Empirical(points) => {
                let share = uniform(random);
                let mut before = (0.0, 0.0);
                let mut size = 0.0;
                for (next, upto) in points {
                    size = bytes(*next);
                    if share <= *upto {
                        let width = upto - before.1;
                        let part = if width > 0.0 { (share - before.1) / width } else { 1.0 };
                        size = before.0 + part * (size - before.0);
                        break;
                    }
                    before = (size, *upto);
                }
                size
            }
        };
        Bytes::new(size.clamp(1.0, MAX_SIZE) as u64)
    }

    /// Returns what is wrong with the parameters, if anything is.
    pub fn problem(&self) -> Option<&'static str> {
        let zero = |bytes: &Bytes| bytes.get() == 0;
        match self {
            SizeDistribution::Constant(size) | SizeDistribution::Exponential(size) if zero(size) => {
                Some("must be more than nothing")
            }
            SizeDistribution::Pareto { shape, .. } if !(*shape > 1.0 && *shape < 100.0) => {
                Some("a Pareto distribution with a mean has a shape above 1")
            }
            SizeDistribution::Lognormal { sigma, .. } if !(*sigma > 0.0 && *sigma < 10.0) => {
                Some("`sigma` must be above 0 and below 10")
            }
            SizeDistribution::Pareto { mean, .. } | SizeDistribution::Lognormal { mean, .. } if zero(mean) => {
                Some("must be more than nothing")
            }
            SizeDistribution::Empirical(points) => {
                let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
                let shares = points.iter().all(|point| (0.0..=1.0).contains(&point.1));
                let whole = points.last().is_some_and(|last| last.1 == 1.0);
                (!ascending || !shares || !whole).then_some(
                    "a `cdf` lists sizes in ascending order with the probability of at most so much, up to 1",
                )
            }
            _ => None,
        }
    }
}

impl fmt::Display for SizeDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeDistribution::Constant(size) => write!(f, "\"{size}\""),
            SizeDistribution::Exponential(mean) => write!(f, "{{ distribution = \"exponential\", mean = \"{mean}\" }}"),
            SizeDistribution::Pareto { shape, mean } => {
                write!(f, "{{ distribution = \"pareto\", shape = {shape:?}, mean = \"{mean}\" }}")
            }
            SizeDistribution::Lognormal { mean, sigma } => {
                write!(f, "{{ distribution = \"lognormal\", mean = \"{mean}\", sigma = {sigma:?} }}")
            }
            SizeDistribution::Empirical(points) => {
                let points: Vec<String> =
                    points.iter().map(|(size, share)| format!("[\"{size}\", {share:?}]")).collect();
                write!(f, "{{ distribution = \"empirical\", cdf = [{}] }}", points.join(", "))
            }
        }
    }
}

/// The sizes of a scenario: a distribution, or the file that has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SizeSource {
    /// A distribution in the scenario itself.
    Here(SizeDistribution),
    /// The name of a file for [`SizeDistribution::from_csv`].
    File(String),
}

/// A distribution as a file has it, without the names of other files.
impl FromStr for SizeDistribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Document {
            size: SizeSource,
        }
        match toml::from_str(&format!("size = {text}")) {
            Ok(Document { size: SizeSource::Here(sizes) }) => Ok(sizes),
            Ok(Document { size: SizeSource::File(name) }) => Err(format!("`{name}` is the name of a file")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A size, or a table that names a distribution; `web-search` and `data-mining` are the well-known ones.
impl<'de> Deserialize<'de> for SizeSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum File {
            Size(String),
            Table(Table),
        }
        #[derive(Deserialize)]
        #[serde(tag = "distribution", rename_all = "kebab-case", deny_unknown_fields)]
        enum Table {
            Exponential { mean: Bytes },
            Pareto { shape: f64, mean: Bytes },
            Lognormal { mean: Bytes, sigma: f64 },
            Empirical { cdf: Cdf },
            WebSearch,
            DataMining,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Cdf {
            Points(Vec<(Bytes, f64)>),
            File(String),
        }
        let known = |points: &[(u64, f64)]| points.iter().map(|(size, share)| (Bytes::new(*size), *share)).collect();
        let distribution = match File::deserialize(deserializer)? {
            File::Size(text) => SizeDistribution::Constant(text.parse().map_err(D::Error::custom)?),
            File::Table(Table::Exponential { mean }) => SizeDistribution::Exponential(mean),
            File::Table(Table::Pareto { shape, mean }) => SizeDistribution::Pareto { shape, mean },
            File::Table(Table::Lognormal { mean, sigma }) => SizeDistribution::Lognormal { mean, sigma },
            File::Table(Table::Empirical { cdf: Cdf::Points(cdf) }) => SizeDistribution::Empirical(cdf),
            File::Table(Table::Empirical { cdf: Cdf::File(name) }) => return Ok(SizeSource::File(name)),
            File::Table(Table::WebSearch) => SizeDistribution::Empirical(known(&WEB_SEARCH)),
            File::Table(Table::DataMining) => SizeDistribution::Empirical(known(&DATA_MINING)),
        };
        match distribution.problem() {
            Some(problem) => Err(D::Error::custom(problem)),
            None => Ok(SizeSource::Here(distribution)),
        }
    }
}

/// Draws a span from the exponential distribution with this mean.
pub fn exponential(mean: Span, random: &mut impl Rng) -> Span {
    let nanos = -(mean.as_nanos() as f64) * uniform(random).ln();
    Span::from_nanos(nanos.min(1e18) as u64)
}

/// The arrivals of a Poisson process of `rate` a second between `start` and `stop`, each between one of `pairs` pairs: all alike,
/// or in proportion to `shares`, which has one number for each.
pub fn poisson<'a, R: Rng>(
    rate: f64,
    (pairs, shares): (usize, &[f64]),
    size: &'a SizeDistribution,
    start: Time,
    stop: Time,
    mut random: R,
) -> impl Iterator<Item = Arrival> + use<'a, R> {
    let mut seconds = start.as_secs_f64();
    // Up to which part of the whole a pair is drawn.
    let upto: Vec<f64> = shares
        .iter()
        .scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        })
        .collect();
    std::iter::from_fn(move || {
        seconds += -uniform(&mut random).ln() / rate;
        // No arrival lies beyond the largest time.
        let at = Time::from_nanos((seconds * 1e9).min(1e18) as u64);
        if at >= stop || pairs == 0 {
            return None;
        }
        let pair = match upto.last() {
            None => ((u64::from(random.next_u32()) * pairs as u64) >> 32) as usize,
            Some(whole) => {
                let drawn = uniform(&mut random) * whole;
                upto.partition_point(|end| *end < drawn).min(pairs - 1)
            }
        };
        Some(Arrival { at, pair, size: size.draw(&mut random) })
    })
}

/// The instants within `between` at which packets of `packet` bytes leave at a constant rate.
///
/// With `bursts` they leave for the first time and pause for the second, in turn; where there is a source of random
/// numbers these are means of exponential times.
pub fn constant_rate<R: Rng>(
    rate: Rate,
    packet: u16,
    bursts: Option<(Span, Span)>,
    between: (Time, Time),
    mut random: Option<R>,
) -> impl Iterator<Item = Time> {
    // A rate that leaves no time between packets still lets time pass.
    let gap = rate.time_for(Bytes::new(u64::from(packet))).max(Span::from_nanos(1));
    let mut next = Some(between.0);
    let mut until = None;
    std::iter::from_fn(move || {
        let now = next.filter(|next| *next < between.1)?;
        let mut lasts = |mean| match &mut random {
            Some(random) => exponential(mean, random),
            None => mean,
        };
        let mut following = now + gap;
        if let Some((on, off)) = bursts {
            let end = until.unwrap_or_else(|| now + lasts(on));
            until = Some(end);
            if following >= end {
                following = (end + lasts(off)).max(now + Span::from_nanos(1));
                until = Some(following + lasts(on));
            }
        }
        next = Some(following);
        Some(now)
    })
}

/// A number above 0, at most 1.
fn uniform(random: &mut impl Rng) -> f64 {
    ((random.next_u64() >> 11) as f64 + 1.0) / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_pcg::Pcg32;

    use super::*;

    fn mean_of(distribution: &SizeDistribution, draws: u32) -> f64 {
        let mut random = Pcg32::seed_from_u64(7);
        (0..draws).map(|_| distribution.draw(&mut random).get() as f64).sum::<f64>() / f64::from(draws)
    }

    #[test]
    fn sizes_have_the_mean_that_was_asked_for() {
        let mean = Bytes::new(100_000);
        for distribution in [
            SizeDistribution::Constant(mean),
            SizeDistribution::Exponential(mean),
            SizeDistribution::Pareto { shape: 2.5, mean },
            SizeDistribution::Lognormal { mean, sigma: 1.0 },
        ] {
            let measured = mean_of(&distribution, 400_000);
            assert!((measured / 100_000.0 - 1.0).abs() < 0.02, "{distribution:?}: {measured}");
            assert_eq!(distribution.mean(), 100_000.0);
        }
    }

    #[test]
    fn an_empirical_distribution_is_met_at_its_points() {
        let points: Vec<(Bytes, f64)> = WEB_SEARCH.iter().map(|(size, share)| (Bytes::new(*size), *share)).collect();
        let distribution = SizeDistribution::Empirical(points.clone());
        let mut random = Pcg32::seed_from_u64(3);
        let sizes: Vec<Bytes> = (0..200_000).map(|_| distribution.draw(&mut random)).collect();
        for (size, share) in points {
            let below = sizes.iter().filter(|one| **one <= size).count() as f64 / 200_000.0;
            assert!((below - share).abs() < 0.005, "{size}: {below} where it says {share}");
        }
        assert!((mean_of(&distribution, 400_000) / distribution.mean() - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_pareto_tail_has_its_shape() {
        let distribution = SizeDistribution::Pareto { shape: 1.5, mean: Bytes::new(30_000) };
        let mut random = Pcg32::seed_from_u64(5);
        let sizes: Vec<u64> = (0..400_000).map(|_| distribution.draw(&mut random).get()).collect();
        // The least is 10,000; P(more than x) = (10,000 / x)^1.5.
        let above = |x: u64| sizes.iter().filter(|size| **size > x).count() as f64 / 400_000.0;
        assert!(sizes.iter().all(|size| *size >= 10_000));
        assert!((above(40_000) - 0.125).abs() < 0.003 && (above(1_000_000) - 0.001).abs() < 0.0003);
    }

    #[test]
    fn arrivals_come_at_their_rate_at_random_and_in_order() {
        let size = SizeDistribution::Constant(Bytes::new(1));
        let end = Time::ZERO + Span::from_secs(1_000);
        let arrivals: Vec<Arrival> = poisson(50.0, (4, &[]), &size, Time::ZERO, end, Pcg32::seed_from_u64(1)).collect();
        assert!((arrivals.len() as f64 / 50_000.0 - 1.0).abs() < 0.02, "{}", arrivals.len());
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
        let gaps: Vec<f64> = arrivals.windows(2).map(|two| two[1].at.since(two[0].at).as_secs_f64()).collect();
        // The standard deviation of exponential gaps is their mean.
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.03);
        let of = |pair| arrivals.iter().filter(|arrival| arrival.pair == pair).count() as f64;
        assert!((0..4).all(|pair| (of(pair) / 12_500.0 - 1.0).abs() < 0.05));
        let again: Vec<Arrival> = poisson(50.0, (4, &[]), &size, Time::ZERO, end, Pcg32::seed_from_u64(1)).collect();
        assert_eq!(arrivals, again);
    }

    #[test]
    fn pairs_are_drawn_by_their_shares() {
        let size = SizeDistribution::Constant(Bytes::new(1));
        let end = Time::ZERO + Span::from_secs(1_000);
        let shares = [3.0, 0.0, 1.0];
        let arrivals = poisson(100.0, (3, &shares), &size, Time::ZERO, end, Pcg32::seed_from_u64(1));
        let mut of = [0_u32; 3];
        arrivals.for_each(|arrival| of[arrival.pair] += 1);
        assert!(of[1] == 0 && (f64::from(of[0]) / f64::from(of[2]) - 3.0).abs() < 0.1, "{of:?}");
    }

    #[test]
    fn packets_leave_at_their_rate_and_pause_between_bursts() {
        let millis = |count| Time::ZERO + Span::from_millis(count);
        // 1,000 bytes at 1 Mbit/s: one each 8 ms.
        let times = |bursts, stop| -> Vec<u64> {
            constant_rate(Rate::from_mbits(1), 1_000, bursts, (millis(10), millis(stop)), None::<Pcg32>)
                .map(|at| at.as_nanos() / 1_000_000)
                .collect()
        };
        assert_eq!(times(None, 42), [10, 18, 26, 34]);
        let bursts = Some((Span::from_millis(20), Span::from_millis(30)));
        assert_eq!(times(bursts, 150), [10, 18, 26, 60, 68, 76, 110, 118, 126]);
        let long = (Time::ZERO, millis(1_000_000));
        let share = constant_rate(Rate::from_mbits(1), 1_000, bursts, long, Some(Pcg32::seed_from_u64(5)));
        let share = share.count() as f64 / 125_000.0;
        assert!((0.4..0.55).contains(&share), "two fifths of the time, and each burst's last packet: {share}");
    }

    #[test]
    fn distributions_read_as_they_print_and_bad_ones_are_refused() {
        let read = |text: &str| text.parse::<SizeDistribution>();
        for text in [
            "\"10 kB\"",
            "{ distribution = \"pareto\", shape = 1.2, mean = \"100 kB\" }",
            "{ distribution = \"lognormal\", mean = \"100 kB\", sigma = 1.5 }",
            "{ distribution = \"exponential\", mean = \"1 MB\" }",
            "{ distribution = \"data-mining\" }",
        ] {
            let distribution = read(text).unwrap();
            assert_eq!(read(&distribution.to_string()).unwrap(), distribution);
        }
        for text in [
            "{ distribution = \"pareto\", shape = 1.0, mean = \"1 kB\" }",
            "\"0 B\"",
            "{ distribution = \"empirical\", cdf = [[\"1 kB\", 0.5]] }",
            "{ distribution = \"empirical\", cdf = [[\"2 kB\", 0.5], [\"1 kB\", 1.0]] }",
            "{ distribution = \"weibull\" }",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
