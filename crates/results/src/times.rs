//! Completion times of many seeds in bounded memory, and their distribution as a picture.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    PlotError, Trace,
    lines::{Across, Line, Panel, Styles, draw},
    summary::printable,
};

/// How often each completion time occurred, to half a percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// By the time's logarithm to the base [`STEP`], rounded.
    counts: BTreeMap<i32, u64>,
    /// Transfers that did not complete.
    unfinished: u64,
}

/// The ratio of neighbouring times.
const STEP: f64 = 1.005;
/// From what ratio of the longest to the shortest time on the axis is logarithmic.
const WIDE: f64 = 20.0;
/// The most points of a line.
const MAX: usize = 400;

impl Times {
    /// These times in seconds, and `unfinished` transfers that did not complete.
    pub(crate) fn of(seconds: impl Iterator<Item = f64>, unfinished: u64) -> Times {
        let mut counts = BTreeMap::new();
        for time in seconds.filter(|time| time.is_finite()) {
            // A nanosecond is the clock's.
            *counts.entry((time.max(1e-9).ln() / STEP.ln()).round() as i32).or_default() += 1;
        }
        Times { counts, unfinished }
    }

    /// Adds what another seed has.
    pub(crate) fn add(&mut self, other: &Times) {
        for (time, count) in &other.counts {
            *self.counts.entry(*time).or_default() += count;
        }
        self.unfinished += other.unfinished;
    }

    /// How many transfers completed.
    pub(crate) fn completed(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Times in seconds, ascending, and what percentage of all transfers completed within each.
    fn distribution(&self) -> Vec<(f64, f64)> {
        let all = (self.completed() + self.unfinished) as f64;
        let mut so_far = 0;
        let each = self.counts.iter().map(|(time, count)| {
            so_far += count;
            (STEP.powi(*time), 100.0 * so_far as f64 / all)
        });
        each.collect()
    }
}

/// The distribution of completion times under each system as SVG text; `None` if hardly a transfer completed.
pub(crate) fn picture(traces: &[Trace], seeds: u32) -> Result<Option<String>, PlotError> {
    if traces.iter().map(|trace| trace.times.completed()).max().unwrap_or(0) < 2 {
        return Ok(None);
    }
    let each: Vec<(&str, Vec<(f64, f64)>)> =
        traces.iter().map(|trace| (trace.system.as_str(), trace.times.distribution())).collect();
    let all = || each.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let wide = most > WIDE * least;
    let place = |seconds: f64| if wide { seconds.log10() } else { seconds };
    let lines = each.iter().map(|(system, points)| {
        let start = points.first().map(|(time, _)| (place(*time), 0.0));
        let steps = points.iter().map(|(time, percent)| (place(*time), *percent));
        // What never completed is missing at the right edge, too.
        let end = points.last().map(|(_, percent)| (place(most), *percent));
        let points = thinned(start.into_iter().chain(steps).chain(end).collect());
        Line { label: printable((*system).to_owned()), points }
    });
    let ticks = if wide { decades(least, most) } else { Vec::new() };
    let of = if seeds < 2 { "one seed".to_owned() } else { format!("all {seeds} seeds") };
    let title = format!("completion times of transfers, {of}");
    let x = if wide { "time (s, logarithmic)" } else { "time (s)" };
    let y = "% completed within".to_owned();
    let panel = Panel { y, range: [0.0, 102.0], lines: lines.collect(), mark: None };
    let across = Across { title: x, ticks: &ticks, joined: true, dots: false, styles: Styles::default() };
    draw(&title, &across, &[panel], &[]).map(Some)
}

/// No more points than [`MAX`]: the first, the last, and an even share of those between.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(MAX).max(1);
    let last = points.len().saturating_sub(1);
    points.into_iter().enumerate().filter(|(index, _)| index % step == 0 || *index == last).map(|(_, p)| p).collect()
}

/// Ticks at 1, 2 and 5 of each power of ten within the range; at 1 alone where that is many powers.
fn decades(least: f64, most: f64) -> Vec<(f64, String)> {
    let factors: &[f64] = if most / least > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (least.log10().floor() as i32)..=(most.log10().ceil() as i32);
    let all = powers.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    let within = all.filter(|time| (least..=most).contains(time));
    within.map(|time| (time.log10(), ((time * 1e9).round() / 1e9).to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_distribution_has_half_a_percent_and_counts_what_did_not_complete() {
        let mut times = Times::of([0.1, 0.2, 0.4].into_iter(), 0);
        times.add(&Times::of([0.2].into_iter(), 1));
        let shape = times.distribution();
        assert_eq!(shape.iter().map(|(_, percent)| *percent).collect::<Vec<_>>(), [20.0, 60.0, 80.0]);
        for ((time, _), expected) in shape.iter().zip([0.1, 0.2, 0.4]) {
            assert!((time / expected - 1.0).abs() < 0.0026, "{time} {expected}");
        }
        let many = Times::of((1..100_000).map(|n| f64::from(n) * 1e-3), 0);
        assert!(many.counts.len() < 2_500, "{}", many.counts.len());
    }

    #[test]
    fn the_picture_has_a_line_for_each_system_and_an_axis_that_fits_the_times() {
        let (_, mut traces) = testing::traced_run(&["tcp", "path<changer>"], 1);
        assert_eq!(picture(&traces, 1).unwrap(), None, "no transfers");
        traces[0].times = Times::of([0.1, 0.2, 0.3].into_iter(), 0);
        traces[1].times = Times::of([0.1, 0.15].into_iter(), 1);
        let near = picture(&traces, 10).unwrap().unwrap();
        assert!(near.contains("path&lt;changer&gt;") && near.contains("all 10 seeds") && near.contains("time (s)"));
        traces[0].times = Times::of([0.01, 0.2, 30.0].into_iter(), 0);
        let wide = picture(&traces, 1).unwrap().unwrap();
        assert!(wide.contains("logarithmic") && wide.contains(">\n0.05\n<") && wide.contains(">\n20\n<"), "{wide}");
    }
}
