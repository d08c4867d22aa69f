//! How late frames were delivered: whether the machine kept up with the wires.

use sidestep_model::Span;

/// Frames delivered later than this count as late.
const LATE: Span = Span::from_millis(1);

/// Four buckets for each power of two of nanoseconds.
const BUCKETS: usize = 252;

/// The distribution of the time between a frame being due and its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    buckets: [u64; BUCKETS],
    frames: u64,
    late: u64,
    max: Span,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { buckets: [0; BUCKETS], frames: 0, late: 0, max: Span::ZERO }
    }
}

impl Lateness {
    /// Frames delivered.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames delivered more than 1 ms after they were due.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The latest that a frame was.
    pub fn max(&self) -> Span {
        self.max
    }

    /// The lateness that a share `q` (0..=1) of the frames did not exceed, at most a quarter too high.
    pub fn quantile(&self, q: f64) -> Span {
        let rank = (q.clamp(0.0, 1.0) * self.frames as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Span::from_nanos(last_of(bucket)).min(self.max);
            }
        }
        self.max
    }

    /// Counts a frame that was `lateness` late; whether that was too late.
    pub(super) fn record(&mut self, lateness: Span) -> bool {
        if let Some(count) = self.buckets.get_mut(bucket_of(lateness.as_nanos())) {
            *count += 1;
        }
        self.frames += 1;
        let late = lateness > LATE;
        self.late += u64::from(late);
        self.max = self.max.max(lateness);
        late
    }

    /// Adds the frames that `other` counted.
    pub(super) fn merge(&mut self, other: &Lateness) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.frames += other.frames;
        self.late += other.late;
        self.max = self.max.max(other.max);
    }
}

/// The bucket of `nanos`: its highest bit and the two bits below.
fn bucket_of(nanos: u64) -> usize {
    let Some(high) = nanos.checked_ilog2().filter(|high| *high >= 2) else { return nanos as usize };
    (high as usize - 1) * 4 + (nanos >> (high - 2) & 3) as usize
}

/// The largest number of nanoseconds in `bucket`.
fn last_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (high, quarter) = (bucket / 4 + 1, bucket as u128 % 4);
    (((5 + quarter) << (high - 2)) - 1) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_and_maximum_describe_what_was_recorded() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.5), Span::ZERO);
        for micros in 1..=2_000 {
            assert_eq!(lateness.record(Span::from_micros(micros)), micros > 1_000);
        }
        let mut both = Lateness::default();
        both.merge(&lateness);
        assert_eq!((both.frames(), both.late(), both.max()), (2_000, 1_000, Span::from_millis(2)));
        for (q, micros) in [(0.0, 1), (0.5, 1_000), (0.99, 1_980), (1.0, 2_000)] {
            let quantile = both.quantile(q);
            let exact = Span::from_micros(micros);
            assert!(quantile >= exact && quantile.as_nanos() <= exact.as_nanos() * 5 / 4, "{q}: {quantile}");
        }
    }

    proptest! {
        #[test]
        fn every_number_is_in_its_bucket(nanos in any::<u64>()) {
            let bucket = bucket_of(nanos);
            prop_assert!(bucket < BUCKETS && nanos <= last_of(bucket));
            prop_assert!(bucket == 0 || nanos > last_of(bucket - 1));
        }
    }
}
