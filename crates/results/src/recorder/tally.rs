//! What samples of links and paths are summed up to, and over which parts of a run.

use sidestep_model::{Rate, Span};

use crate::{LinkResult, PathResult, SamplePoint, Window};

/// Steps of a [`Trace`](super::Trace), however long the run.
pub(super) const BINS: usize = 150;

/// What is summed up of a path.
#[derive(Debug)]
pub(super) struct PathTally {
    capacity: Option<Rate>,
    after_warmup: WeightedMean,
    /// The squares of what `after_warmup` is the mean of.
    squares: WeightedMean,
    second_half: WeightedMean,
    over_time: Vec<WeightedMean>,
    drops: u64,
    marks: u64,
}

/// What is summed up of a direction of a link.
#[derive(Debug, Default)]
pub(super) struct LinkTally {
    utilisation: WeightedMean,
    queue: WeightedMean,
    drops: u64,
    marks: u64,
}

impl LinkTally {
    /// Adds a sample.
    pub(super) fn sample(&mut self, point: &SamplePoint, window: &Window) {
        self.drops = self.drops.max(point.drops.unwrap_or(0));
        self.marks = self.marks.max(point.marks.unwrap_or(0));
        let (from, to) = ends(point);
        let seconds = shared(from, to, window.warmup.as_secs_f64(), window.duration.as_secs_f64());
        if let Some(share) = point.utilisation.filter(|share| share.is_finite()) {
            self.utilisation.add(share, seconds);
        }
        self.queue.add(point.queue.map_or(0.0, |bytes| bytes.get() as f64), seconds);
    }

    pub(super) fn result(&self) -> LinkResult {
        LinkResult {
            utilisation: self.utilisation.get(),
            queue_bytes: self.queue.get().unwrap_or(0.0),
            drops: self.drops,
            marks: self.marks,
        }
    }
}

/// A mean of values that held for so many seconds each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WeightedMean {
    sum: f64,
    seconds: f64,
}

impl PathTally {
    pub(super) fn new(capacity: Rate) -> Self {
        PathTally {
            capacity: (capacity != Rate::default()).then_some(capacity),
            after_warmup: WeightedMean::default(),
            squares: WeightedMean::default(),
            second_half: WeightedMean::default(),
            over_time: vec![WeightedMean::default(); BINS],
            drops: 0,
            marks: 0,
        }
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, point: &SamplePoint, window: &Window) {
        self.drops = self.drops.max(point.drops.unwrap_or(0));
        self.marks = self.marks.max(point.marks.unwrap_or(0));
        let Some(utilisation) = point.utilisation.filter(|share| share.is_finite()) else { return };
        let (from, to) = ends(point);
        let end = window.duration.as_secs_f64();
        let measured = shared(from, to, window.warmup.as_secs_f64(), end);
        self.after_warmup.add(utilisation, measured);
        self.squares.add(utilisation * utilisation, measured);
        self.second_half.add(utilisation, shared(from, to, end / 2.0, end));
        for (bin, seconds) in overlaps(window.duration, point) {
            self.over_time[bin].add(utilisation, seconds);
        }
    }

    pub(super) fn result(&self) -> PathResult {
        PathResult {
            capacity_mbps: self.capacity.map(Rate::as_mbits),
            utilisation: self.after_warmup.get(),
            utilisation_second_half: self.second_half.get(),
            variation: self.variation(),
            drops: self.drops,
            marks: self.marks,
        }
    }

    /// The coefficient of variation of the utilisation after the warm-up.
    pub(super) fn variation(&self) -> Option<f64> {
        let mean = self.after_warmup.get().filter(|mean| *mean > 0.0)?;
        Some((self.squares.get()? - mean * mean).max(0.0).sqrt() / mean)
    }

    pub(super) fn trace(&self) -> Vec<Option<f64>> {
        self.over_time.iter().map(WeightedMean::get).collect()
    }
}

impl WeightedMean {
    pub(super) fn add(&mut self, value: f64, seconds: f64) {
        self.sum += value * seconds;
        self.seconds += seconds;
    }

    pub(super) fn get(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

/// Start and end of a sample's interval in seconds.
pub(super) fn ends(point: &SamplePoint) -> (f64, f64) {
    let to = point.time.as_secs_f64();
    ((to - point.interval.as_secs_f64()).max(0.0), to)
}

/// Seconds that two intervals share.
pub(super) fn shared(from: f64, to: f64, other_from: f64, other_to: f64) -> f64 {
    (to.min(other_to) - from.max(other_from)).max(0.0)
}

/// The bin that `time`, in seconds, falls into; later times fall into the last.
pub(super) fn bin_of(duration: Span, time: f64) -> usize {
    let share = if duration == Span::ZERO { 0.0 } else { time / duration.as_secs_f64() };
    ((share * BINS as f64) as usize).min(BINS - 1)
}

/// The bins that a sample's interval touches, and the seconds that it has in each.
pub(super) fn overlaps(duration: Span, point: &SamplePoint) -> impl Iterator<Item = (usize, f64)> + use<> {
    let (from, to) = ends(point);
    let step = duration.as_secs_f64() / BINS as f64;
    (bin_of(duration, from)..=bin_of(duration, to))
        .map(move |bin| (bin, shared(from, to, bin as f64 * step, (bin + 1) as f64 * step)))
        .filter(|(_, seconds)| *seconds > 0.0)
}
