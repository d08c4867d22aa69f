//! How late frames were delivered: whether the machine kept up with the wires.

use sidestep_net::{Histogram, Span};

/// Frames delivered later than this count as late.
const LATE: Span = Span::from_millis(1);

/// The distribution of the time between a frame being due and its delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    times: Histogram,
    late: u64,
}

impl Lateness {
    /// Frames delivered.
    pub fn frames(&self) -> u64 {
        self.times.count()
    }

    /// Frames delivered more than 1 ms after they were due.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// How late each was.
    pub fn times(&self) -> &Histogram {
        &self.times
    }

    /// Counts a frame that was `lateness` late; whether that was too late.
    pub(super) fn record(&mut self, lateness: Span) -> bool {
        self.times.record(lateness);
        let late = lateness > LATE;
        self.late += u64::from(late);
        late
    }

    /// Adds the frames that `other` counted.
    pub(super) fn merge(&mut self, other: &Lateness) {
        self.times.merge(&other.times);
        self.late += other.late;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_more_than_a_millisecond_late_count_as_late() {
        let mut lateness = Lateness::default();
        for micros in 1..=2_000 {
            assert_eq!(lateness.record(Span::from_micros(micros)), micros > 1_000);
        }
        let mut both = Lateness::default();
        both.merge(&lateness);
        assert_eq!((both.frames(), both.late(), both.times().max()), (2_000, 1_000, Span::from_millis(2)));
    }
}
