//! What samples of links and paths are summed up to, and over which parts of a run.

use sidestep_net::{Rate, Span};

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
    /// For the second half of a run that is cut short, whose beginning is not known yet.
    history: History,
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

/// A mean of values, each weighted by the seconds for which it held.
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
            history: History::default(),
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
        self.history.add(to, utilisation, shared(from, to, 0.0, end));
        for (bin, seconds) in overlaps(window.duration, point) {
            self.over_time[bin].add(utilisation, seconds);
        }
    }

    /// The measures of a run that was `cut` short there, if it was; its second half begins with the end of the warm-up or later.
    pub(super) fn result(&self, warmup: Span, cut: Option<Span>) -> PathResult {
        let second_half = match cut.map(Span::as_secs_f64) {
            Some(end) => self.history.mean((end / 2.0).max(warmup.as_secs_f64()), end),
            None => self.second_half.get(),
        };
        PathResult {
            capacity_mbps: self.capacity.map(Rate::as_mbits),
            utilisation: self.after_warmup.get(),
            utilisation_second_half: second_half,
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

    /// The means of the first `steps` steps.
    pub(super) fn trace(&self, steps: usize) -> Vec<Option<f64>> {
        self.over_time.iter().take(steps).map(WeightedMean::get).collect()
    }
}

/// The most instants that a [`History`] keeps.
const MAX_INSTANTS: usize = 512;

/// The sum of a value over time at some instants: its mean between any two, however long the run.
#[derive(Debug, Default)]
struct History {
    /// Instants in seconds, ascending, and the sum until then.
    sums: Vec<(f64, WeightedMean)>,
    /// The last instant.
    last: (f64, WeightedMean),
    added: u64,
    /// One instant in two to the power of this is kept.
    thinned: u32,
}

impl History {
    /// The value was `value` for `seconds` seconds, the last of which is `to`.
    fn add(&mut self, to: f64, value: f64, seconds: f64) {
        self.last.0 = to;
        self.last.1.add(value, seconds);
        self.added += 1;
        if !self.added.is_multiple_of(1 << self.thinned) {
            return;
        }
        self.sums.push(self.last);
        if self.sums.len() == MAX_INSTANTS {
            let mut number = 0;
            self.sums.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.thinned += 1;
        }
    }

    /// The mean from one instant to another, linear between those that are kept; `None` where there was no value.
    fn mean(&self, from: f64, to: f64) -> Option<f64> {
        let (before, until) = (self.until(from), self.until(to));
        let between = WeightedMean { sum: until.sum - before.sum, seconds: until.seconds - before.seconds };
        if between.seconds > 1e-9 { between.get() } else { None }
    }

    fn until(&self, at: f64) -> WeightedMean {
        let next = self.sums.partition_point(|(instant, _)| *instant < at);
        let before = next.checked_sub(1).and_then(|last| self.sums.get(last)).copied().unwrap_or_default();
        let (after, sum) = self.sums.get(next).copied().unwrap_or(self.last);
        let share = if after > before.0 { ((at - before.0) / (after - before.0)).min(1.0) } else { 1.0 };
        let part = |from: f64, to: f64| from + (to - from) * share;
        WeightedMean { sum: part(before.1.sum, sum.sum), seconds: part(before.1.seconds, sum.seconds) }
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
