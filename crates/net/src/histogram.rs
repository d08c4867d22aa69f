//! How often times of which length occurred.

use crate::Span;

/// Bits below the highest one that distinguish buckets: eight for each power of two.
const BITS: u32 = 3;
const PARTS: usize = 1 << BITS;
const BUCKETS: usize = (u64::BITS - BITS + 1) as usize * PARTS;

/// The distribution of times, each to a sixteenth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    max: Span,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: Box::new([0; BUCKETS]), count: 0, max: Span::ZERO }
    }
}

impl Histogram {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    pub fn max(&self) -> Span {
        self.max
    }

    /// The time that a share `q` (0..=1) of them did not exceed, to a sixteenth.
    pub fn quantile(&self, q: f64) -> Span {
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Span::from_nanos(middle_of(bucket)).min(self.max);
            }
        }
        self.max
    }

    /// `parts` times, each of the same share of them; none of none.
    pub fn spread(&self, parts: u32) -> Vec<Span> {
        let parts = if self.count == 0 { 0 } else { parts };
        (0..parts).map(|part| self.quantile((f64::from(part) + 0.5) / f64::from(parts))).collect()
    }

    /// Which times occurred, to a sixteenth, and how often each, in ascending order.
    pub fn each(&self) -> Vec<(Span, u64)> {
        let each = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        each.map(|(bucket, count)| (Span::from_nanos(middle_of(bucket)), *count)).collect()
    }

    /// Counts one.
    pub fn record(&mut self, time: Span) {
        if let Some(count) = self.buckets.get_mut(bucket_of(time.as_nanos())) {
            *count += 1;
        }
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }
}

/// The bucket of `nanos`: its highest bit and the [`BITS`] below.
fn bucket_of(nanos: u64) -> usize {
    let Some(high) = nanos.checked_ilog2().filter(|high| *high >= BITS) else { return nanos as usize };
    (high - BITS + 1) as usize * PARTS + (nanos >> (high - BITS)) as usize % PARTS
}

/// The smallest number of nanoseconds in `bucket`, and how many there are.
fn bounds_of(bucket: usize) -> (u64, u64) {
    if bucket < PARTS {
        return (bucket as u64, 1);
    }
    let width = 1 << (bucket / PARTS - 1);
    ((PARTS + bucket % PARTS) as u64 * width, width)
}

/// The middle of `bucket`, in nanoseconds.
fn middle_of(bucket: usize) -> u64 {
    let (first, width) = bounds_of(bucket);
    first + width / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_and_maximum_describe_what_was_recorded() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.spread(3)), (Span::ZERO, Vec::new()));
        (1..=2_000).map(Span::from_micros).for_each(|time| histogram.record(time));
        let mut both = Histogram::default();
        both.merge(&histogram);
        assert_eq!((both.count(), both.max()), (2_000, Span::from_millis(2)));
        let near = |found: Span, micros: f64| (found.as_nanos() as f64 / 1e3 / micros - 1.0).abs() <= 1.0 / 16.0;
        for (q, micros) in [(0.0, 1.0), (0.5, 1_000.0), (0.99, 1_980.0), (1.0, 2_000.0)] {
            assert!(near(both.quantile(q), micros), "{q}: {}", both.quantile(q));
        }
        let each = histogram.each();
        assert!(each.is_sorted() && each.iter().map(|(_, count)| count).sum::<u64>() == 2_000);
        let spread = both.spread(4);
        assert!(spread.iter().zip([250.0, 750.0, 1_250.0, 1_750.0]).all(|(time, micros)| near(*time, micros)));
    }

    proptest! {
        #[test]
        fn every_number_is_in_its_bucket(nanos in any::<u64>()) {
            let bucket = bucket_of(nanos);
            let (first, width) = bounds_of(bucket);
            prop_assert!(bucket < BUCKETS && first <= nanos && nanos - first < width && width <= first / 8 + 1);
        }
    }
}
