//! The rate on each arc, computed from byte counters.

use std::time::Duration;

use sidestep_net::{ArcId, Rate};

/// After more ticks than this without a report, the rate of an arc counts as unknown, that is, zero.
const STALE_TICKS: u32 = 5;

/// The rate on each arc, from successive readings of byte counters.
pub(crate) struct Meter {
    /// The readings, by arc id.
    arcs: Vec<Option<Reading>>,
}

struct Reading {
    at: Duration,
    tx_bytes: u64,
    rate: Rate,
    ticks: u32,
}

impl Meter {
    /// A meter for `arcs` arcs without readings.
    pub(crate) fn new(arcs: usize) -> Self {
        Meter { arcs: std::iter::repeat_with(|| None).take(arcs).collect() }
    }

    /// Takes a reading. If the counter or the clock went back, it starts again.
    pub(crate) fn record(&mut self, arc: ArcId, at: Duration, tx_bytes: u64) {
        let Some(entry) = self.arcs.get_mut(arc.index()) else { return };
        let rate = match entry {
            Some(last) => rate_between(last, at, tx_bytes).unwrap_or(last.rate),
            None => Rate::default(),
        };
        *entry = Some(Reading { at, tx_bytes, rate, ticks: 0 });
    }

    /// Counts a tick of one second; forgets the arcs whose router has stopped to report.
    pub(crate) fn tick(&mut self) {
        for entry in &mut self.arcs {
            if let Some(reading) = entry {
                reading.ticks += 1;
                if reading.ticks > STALE_TICKS {
                    *entry = None;
                }
            }
        }
    }

    /// The rate on each arc.
    pub(crate) fn rates(&self) -> Vec<Rate> {
        self.arcs.iter().map(|entry| entry.as_ref().map(|reading| reading.rate).unwrap_or_default()).collect()
    }
}

fn rate_between(last: &Reading, at: Duration, tx_bytes: u64) -> Option<Rate> {
    let nanos = at.checked_sub(last.at)?.as_nanos();
    let bits = u128::from(tx_bytes.checked_sub(last.tx_bytes)?) * 8;
    let rate = (bits * 1_000_000_000).checked_div(nanos)?;
    Some(Rate::from_bits_per_sec(u64::try_from(rate).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARC: ArcId = ArcId(0);

    /// The rate in bit/s after each reading of (time in ms, bytes).
    fn rates(readings: &[(u64, u64)]) -> Vec<u64> {
        let mut meter = Meter::new(1);
        let rate = |(millis, bytes): &(u64, u64)| {
            meter.record(ARC, Duration::from_millis(*millis), *bytes);
            meter.rates()[0].bits_per_sec()
        };
        readings.iter().map(rate).collect()
    }

    #[test]
    fn a_rate_is_known_from_the_second_reading_on() {
        assert_eq!(rates(&[(1_000, 5_000), (2_000, 6_000), (2_500, 6_000)]), [0, 8_000, 0]);
    }

    #[test]
    fn a_counter_that_starts_over_keeps_the_rate_and_counts_from_there() {
        assert_eq!(rates(&[(0, 0), (1_000, 1_000), (2_000, 10), (3_000, 510)]), [0, 8_000, 8_000, 4_000]);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_does_no_harm() {
        assert_eq!(
            rates(&[(5_000, 0), (6_000, 1_000), (6_000, 9_000), (1_000, 9_100), (2_000, 9_200)]),
            [0, 8_000, 8_000, 8_000, 800]
        );
        assert_eq!(rates(&[(0, 0), (1, u64::MAX)])[1], u64::MAX);
    }

    #[test]
    fn an_arc_without_a_report_for_six_ticks_counts_as_idle() {
        let mut meter = Meter::new(1);
        meter.record(ARC, Duration::from_secs(1), 0);
        meter.record(ARC, Duration::from_secs(2), 1_000);
        (0..5).for_each(|_| meter.tick());
        assert_eq!(meter.rates(), [Rate::from_bits_per_sec(8_000)]);
        meter.tick();
        assert_eq!(meter.rates(), [Rate::default()]);
    }

    #[test]
    fn an_arc_that_does_not_exist_is_ignored() {
        Meter::new(1).record(ArcId(7), Duration::ZERO, 1);
    }
}
