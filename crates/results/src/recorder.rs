//! From raw records to measures: the one place where a system's results are computed.

use std::collections::BTreeMap;

use sidestep_model::{Bytes, Rate, Span, Time};

use crate::{
    CacheResult, FlowRecord, LinkResult, Named, Outage, PathResult, PathUpdates, SampleKind, SamplePoint, SizeBucket,
    SystemResult, Unfinished, Window, links::rate_of, measures, outage::recovery, record::mbps,
};

/// Steps of a [`Trace`], however long the run.
const BINS: usize = 150;

/// Collects one system's records and computes its [`SystemResult`] and [`Trace`].
///
/// Memory grows with the number of flows and connections, not with the number of samples.
#[derive(Debug)]
pub struct Recorder {
    system: String,
    window: Window,
    paths: Named<PathTally>,
    connections: BTreeMap<String, ConnectionTally>,
    sampled: BTreeMap<String, Sampled>,
    /// Size and completion time of each flow that completed.
    completed: Vec<(u64, f64)>,
    /// How long those flows with a size took that did not complete.
    unfinished: Vec<f64>,
    links: BTreeMap<String, LinkTally>,
    bytes_in_window: Bytes,
    retransmits: u64,
    moves: BTreeMap<String, u64>,
    /// Outages, and when their connections ended.
    outages: Vec<(Outage, Time)>,
    updates: Vec<PathUpdates>,
    caches: Option<CacheResult>,
    moves_over_time: Vec<u32>,
    megabits_over_time: Vec<f64>,
    late: Option<Late>,
    flows: u64,
    flows_with_timeout: u64,
    tcp: BTreeMap<String, u64>,
    notes: Vec<String>,
    incomplete: Vec<String>,
}

/// One system over time, in a bounded number of steps; what the plot shows.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) system: String,
    pub(crate) window: Window,
    /// Goodput of all connections in each step, in Mbit/s.
    pub(crate) goodput: Vec<f64>,
    /// Utilisation of each path in each step; `None` where it was not sampled.
    pub(crate) paths: Named<Vec<Option<f64>>>,
    /// Moves in each step.
    pub(crate) moves: Vec<u32>,
}

/// How well the lab's wires kept up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Late {
    /// By how much the latest packet was late.
    pub max: Span,
    /// The share of the packets that were late.
    pub share: f64,
    /// Packets lost before they reached a wire.
    pub lost: u64,
}

#[derive(Debug)]
struct PathTally {
    capacity: Option<Rate>,
    after_warmup: WeightedMean,
    /// The squares of what `after_warmup` is the mean of.
    squares: WeightedMean,
    second_half: WeightedMean,
    over_time: Vec<WeightedMean>,
    drops: u64,
    marks: u64,
}

#[derive(Debug)]
struct ConnectionTally {
    start: Time,
    end: Time,
    bytes_in_window: Bytes,
    sized: bool,
}

/// What the samples of a connection showed that no flow has been charged with yet.
#[derive(Debug, Default)]
struct Sampled {
    bytes: f64,
    /// What rounding its rates may have taken from these bytes.
    rounding: f64,
    last: Time,
}

/// A mean of values that held for so many seconds each.
#[derive(Clone, Copy, Debug, Default)]
struct WeightedMean {
    sum: f64,
    seconds: f64,
}

impl Recorder {
    /// A recorder for `system`; `paths` are those reported, in order, with their capacities (zero: not limited).
    pub fn new(system: impl Into<String>, window: Window, paths: impl IntoIterator<Item = (String, Rate)>) -> Self {
        Recorder {
            system: system.into(),
            window,
            paths: paths.into_iter().map(|(name, capacity)| (name, PathTally::new(capacity))).collect(),
            connections: BTreeMap::new(),
            sampled: BTreeMap::new(),
            completed: Vec::new(),
            unfinished: Vec::new(),
            links: BTreeMap::new(),
            bytes_in_window: Bytes::default(),
            retransmits: 0,
            moves: BTreeMap::new(),
            outages: Vec::new(),
            updates: Vec::new(),
            caches: None,
            moves_over_time: vec![0; BINS],
            megabits_over_time: vec![0.0; BINS],
            late: None,
            flows: 0,
            flows_with_timeout: 0,
            tcp: BTreeMap::new(),
            notes: Vec::new(),
            incomplete: Vec::new(),
        }
    }

    /// Name of the system.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// Takes a sample. The intervals of a path's or connection's samples must not overlap.
    pub fn sample(&mut self, point: &SamplePoint) {
        match point.kind {
            SampleKind::Link => self.sample_link(point),
            SampleKind::Path => self.sample_path(point),
            SampleKind::Connection => {
                self.add_to_trace(point);
                if !self.sampled.contains_key(&point.name) {
                    self.sampled.insert(point.name.clone(), Sampled::default());
                }
                let Some(sampled) = self.sampled.get_mut(&point.name) else { return };
                let seconds = point.interval.as_secs_f64();
                sampled.bytes += point.rate.map_or(0.0, Rate::as_mbits) * seconds * 1e6 / 8.0;
                sampled.rounding += seconds / 8.0;
                sampled.last = point.time;
            }
            // No measure is computed from these; `series.csv` has them.
            SampleKind::Router | SampleKind::Cache | SampleKind::Stored | SampleKind::Probe => {}
        }
    }

    /// Takes the record of a flow; called once for each flow, after the samples of its connection.
    ///
    /// Returns samples of what the flow carried and no sample has shown: short flows end before they are sampled, and all
    /// flows carry something after their last sample. With these, the series carries as much as the flows.
    pub fn flow(&mut self, flow: &FlowRecord) -> Vec<SamplePoint> {
        self.completed.extend(flow.completion_time().map(|time| (flow.bytes.get(), time.as_secs_f64())));
        self.unfinished.extend(flow.unfinished_time().map(Span::as_secs_f64));
        self.bytes_in_window = self.bytes_in_window + flow.bytes_in_window;
        self.retransmits = self.retransmits.saturating_add(flow.retransmits);
        self.flows += 1;
        self.flows_with_timeout += u64::from(flow.timeouts > 0 || !flow.outages.is_empty());
        self.outages.extend(flow.outages.iter().map(|outage| (*outage, flow.end)));
        let tally = self.connections.entry(flow.connection.clone()).or_insert(ConnectionTally {
            start: flow.start,
            end: flow.end,
            bytes_in_window: Bytes::default(),
            sized: flow.sized,
        });
        tally.start = tally.start.min(flow.start);
        tally.end = tally.end.max(flow.end);
        tally.bytes_in_window = tally.bytes_in_window + flow.bytes_in_window;
        let rest = self.unsampled(flow);
        rest.iter().for_each(|point| self.add_to_trace(point));
        rest
    }

    fn add_to_trace(&mut self, point: &SamplePoint) {
        let rate = point.rate.map_or(0.0, Rate::as_mbits);
        for (bin, seconds) in overlaps(self.window.duration, point) {
            self.megabits_over_time[bin] += rate * seconds;
        }
    }

    /// What a flow carried beyond its samples, evenly from the last of these to its end, at the instants of samples.
    fn unsampled(&mut self, flow: &FlowRecord) -> Vec<SamplePoint> {
        let Some(series) = &flow.series else { return Vec::new() };
        let Window { duration, sample, .. } = self.window;
        let mut last = flow.start;
        let mut rest = flow.bytes.get() as f64;
        let mut rounding = 0.0;
        if let Some(sampled) = self.sampled.get_mut(series) {
            // A connection may carry several flows, one after another.
            let shown = sampled.bytes.min(rest);
            sampled.bytes -= shown;
            rest -= shown;
            rounding = std::mem::take(&mut sampled.rounding);
            last = last.max(sampled.last);
        }
        if rest < 1.0 || rest <= rounding || sample == Span::ZERO || duration == Span::ZERO {
            return Vec::new();
        }
        let (end, step) = (duration.as_secs_f64(), sample.as_secs_f64());
        let to = flow.end.as_secs_f64().min(end);
        let from = last.as_secs_f64().min(to);
        let last = ((to / step).ceil() as u64).max(1) - 1;
        let points = (((from / step) as u64).min(last)..=last).filter_map(|cell| {
            let begin = Time::ZERO + sample * cell;
            let until = (begin + sample).min(Time::ZERO + duration);
            let (begin_s, until_s) = (begin.as_secs_f64(), until.as_secs_f64());
            let share = if to > from { shared(from, to, begin_s, until_s) / (to - from) } else { 1.0 };
            let bytes = (rest * share).round() as u64;
            (bytes > 0 && until > begin).then(|| SamplePoint {
                time: until,
                interval: until.since(begin),
                kind: SampleKind::Connection,
                name: series.clone(),
                rate: Some(rate_of(Bytes::new(bytes), until.since(begin))),
                ..SamplePoint::default()
            })
        });
        points.collect()
    }

    /// Counts a move of a connection, or of an aggregate, under its reason.
    pub fn moved(&mut self, time: Time, reason: &str) {
        *self.moves.entry(reason.to_owned()).or_default() += 1;
        let bin = bin_of(self.window.duration, time.as_secs_f64());
        self.moves_over_time[bin] = self.moves_over_time[bin].saturating_add(1);
    }

    /// Takes how long agents took to get new paths after a change of links.
    pub fn updated(&mut self, updates: PathUpdates) {
        self.updates.push(updates);
    }

    /// Takes what the routers' caches did in the whole run.
    pub fn caches(&mut self, caches: CacheResult) {
        self.caches = Some(caches);
    }

    /// Takes how well the lab's wires kept up.
    pub fn late(&mut self, late: Late) {
        self.late = Some(late);
    }

    /// Adds what hosts' TCP counted, by the kernel's names.
    pub fn tcp(&mut self, counters: impl IntoIterator<Item = (String, u64)>) {
        for (name, count) in counters.into_iter().filter(|(_, count)| *count > 0) {
            let total = self.tcp.entry(name).or_default();
            *total = total.saturating_add(count);
        }
    }

    /// Adds a remark for the reader.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Says why the measures lack something.
    pub fn incomplete(&mut self, reason: impl Into<String>) {
        self.incomplete.push(reason.into());
    }

    /// The measures of all records, and what the plot shows.
    pub fn finish(self) -> (SystemResult, Trace) {
        let times = &ascending(self.completed.iter().map(|(_, time)| *time));
        let Window { warmup, duration, .. } = self.window;
        let result = SystemResult {
            goodput_mbps: mbps(self.bytes_in_window, duration - warmup),
            afct_s: measures::mean(times),
            fct_p50_s: measures::percentile(times, 50),
            fct_p99_s: measures::percentile(times, 99),
            fct_p90_s: measures::percentile(times, 90),
            fct_p95_s: measures::percentile(times, 95),
            fct_p999_s: measures::per_mille(times, 999),
            fct_by_size: by_size(&self.completed),
            unfinished: self.unfinished(),
            links: self.links.iter().map(|(name, link)| (name.clone(), link.result())).collect(),
            fairness: measures::jain(&self.connection_goodputs(|_| true)),
            fairness_endless: measures::jain(&self.connection_goodputs(|tally| !tally.sized)),
            connections: self.connections.len() as u64,
            retransmits: self.retransmits,
            flows: self.flows,
            flows_with_timeout: self.flows_with_timeout,
            tcp: self.tcp,
            moves: self.moves,
            recovery: recovery(&self.outages),
            path_updates: self.updates,
            caches: self.caches,
            paths: self.paths.iter().map(|(name, path)| (name.to_owned(), path.result())).collect(),
            duration_s: duration.as_secs_f64(),
            late_ms_max: self.late.map(|late| late.max.as_secs_f64() * 1e3),
            late_share: self.late.map(|late| late.share),
            lost_outside: self.late.map_or(0, |late| late.lost),
            notes: self.notes,
            incomplete: self.incomplete,
            repeated: None,
        };
        let step = duration.as_secs_f64() / BINS as f64;
        let trace = Trace {
            system: self.system,
            window: self.window,
            goodput: self
                .megabits_over_time
                .iter()
                .map(|megabits| if step > 0.0 { megabits / step } else { 0.0 })
                .collect(),
            paths: self.paths.into_iter().map(|(name, path)| (name, path.trace())).collect(),
            moves: self.moves_over_time,
        };
        (result, trace)
    }

    fn sample_link(&mut self, point: &SamplePoint) {
        if !self.links.contains_key(&point.name) {
            self.links.insert(point.name.clone(), LinkTally::default());
        }
        let Some(link) = self.links.get_mut(&point.name) else { return };
        link.drops = link.drops.max(point.drops.unwrap_or(0));
        link.marks = link.marks.max(point.marks.unwrap_or(0));
        let (from, to) = ends(point);
        let end = self.window.duration.as_secs_f64();
        let seconds = shared(from, to, self.window.warmup.as_secs_f64(), end);
        if let Some(share) = point.utilisation.filter(|share| share.is_finite()) {
            link.utilisation.add(share, seconds);
        }
        link.queue.add(point.queue.map_or(0.0, |bytes| bytes.get() as f64), seconds);
    }

    fn sample_path(&mut self, point: &SamplePoint) {
        // A path that was not announced is reported too, so that a wrong name shows.
        if self.paths.get(&point.name).is_none() {
            self.paths.insert(point.name.clone(), PathTally::new(Rate::default()));
        }
        let Some(path) = self.paths.get_mut(&point.name) else { return };
        path.drops = path.drops.max(point.drops.unwrap_or(0));
        path.marks = path.marks.max(point.marks.unwrap_or(0));
        let Some(utilisation) = point.utilisation.filter(|share| share.is_finite()) else { return };
        let (from, to) = ends(point);
        let end = self.window.duration.as_secs_f64();
        let measured = shared(from, to, self.window.warmup.as_secs_f64(), end);
        path.after_warmup.add(utilisation, measured);
        path.squares.add(utilisation * utilisation, measured);
        path.second_half.add(utilisation, shared(from, to, end / 2.0, end));
        for (bin, seconds) in overlaps(self.window.duration, point) {
            path.over_time[bin].add(utilisation, seconds);
        }
    }

    /// Completion times with those of flows that did not complete, if there are any.
    fn unfinished(&self) -> Option<Unfinished> {
        let times = ascending(self.completed.iter().map(|(_, time)| *time).chain(self.unfinished.iter().copied()));
        Some(Unfinished {
            flows: (!self.unfinished.is_empty()).then_some(self.unfinished.len() as u64)?,
            mean_s: measures::mean(&times)?,
            p50_s: measures::percentile(&times, 50)?,
            p99_s: measures::percentile(&times, 99)?,
        })
    }

    /// The goodput after the warm-up of each of `which` connections in Mbit/s, over the part of that time in which it lived.
    fn connection_goodputs(&self, which: impl Fn(&ConnectionTally) -> bool) -> Vec<f64> {
        let from = Time::ZERO + self.window.warmup;
        let to = Time::ZERO + self.window.duration;
        let lived = |tally: &ConnectionTally| tally.end.min(to).since(tally.start.max(from));
        let present = self.connections.values().filter(|tally| which(tally) && lived(tally) > Span::ZERO);
        present.map(|tally| mbps(tally.bytes_in_window, lived(tally))).collect()
    }
}

/// What is summed up of a direction of a link.
#[derive(Debug, Default)]
struct LinkTally {
    utilisation: WeightedMean,
    queue: WeightedMean,
    drops: u64,
    marks: u64,
}

impl LinkTally {
    fn result(&self) -> LinkResult {
        LinkResult {
            utilisation: self.utilisation.get(),
            queue_bytes: self.queue.get().unwrap_or(0.0),
            drops: self.drops,
            marks: self.marks,
        }
    }
}

/// Upper bounds in bytes of the sizes by which completion times are grouped; the last group is above them.
const SIZES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

fn by_size(completed: &[(u64, f64)]) -> Vec<SizeBucket> {
    let mut buckets = Vec::new();
    let mut above = 0;
    for up_to_bytes in SIZES.into_iter().map(Some).chain([None]) {
        let most = up_to_bytes.unwrap_or(u64::MAX);
        let within = completed.iter().filter(|(size, _)| *size > above && *size <= most || above == 0 && *size == 0);
        let times = ascending(within.map(|(_, time)| *time));
        above = most;
        let measured = (measures::mean(&times), measures::percentile(&times, 50), measures::percentile(&times, 99));
        if let (Some(afct_s), Some(p50_s), Some(p99_s)) = measured {
            buckets.push(SizeBucket { up_to_bytes, flows: times.len() as u64, afct_s, p50_s, p99_s });
        }
    }
    buckets
}

fn ascending(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

impl PathTally {
    fn new(capacity: Rate) -> Self {
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

    fn result(&self) -> PathResult {
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
    fn variation(&self) -> Option<f64> {
        let mean = self.after_warmup.get().filter(|mean| *mean > 0.0)?;
        Some((self.squares.get()? - mean * mean).max(0.0).sqrt() / mean)
    }

    fn trace(&self) -> Vec<Option<f64>> {
        self.over_time.iter().map(WeightedMean::get).collect()
    }
}

impl WeightedMean {
    fn add(&mut self, value: f64, seconds: f64) {
        self.sum += value * seconds;
        self.seconds += seconds;
    }

    fn get(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

/// Start and end of a sample's interval in seconds.
fn ends(point: &SamplePoint) -> (f64, f64) {
    let to = point.time.as_secs_f64();
    ((to - point.interval.as_secs_f64()).max(0.0), to)
}

/// Seconds that two intervals share.
fn shared(from: f64, to: f64, other_from: f64, other_to: f64) -> f64 {
    (to.min(other_to) - from.max(other_from)).max(0.0)
}

/// The bin that `time`, in seconds, falls into; later times fall into the last.
fn bin_of(duration: Span, time: f64) -> usize {
    let share = if duration == Span::ZERO { 0.0 } else { time / duration.as_secs_f64() };
    ((share * BINS as f64) as usize).min(BINS - 1)
}

/// The bins that a sample's interval touches, and the seconds that it has in each.
fn overlaps(duration: Span, point: &SamplePoint) -> impl Iterator<Item = (usize, f64)> + use<> {
    let (from, to) = ends(point);
    let step = duration.as_secs_f64() / BINS as f64;
    (bin_of(duration, from)..=bin_of(duration, to))
        .map(move |bin| (bin, shared(from, to, bin as f64 * step, (bin + 1) as f64 * step)))
        .filter(|(_, seconds)| *seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SECOND, flow, path_sample};

    const WINDOW: Window =
        Window { warmup: Span::from_secs(2), duration: Span::from_secs(10), sample: Span::from_millis(500) };

    fn recorder() -> Recorder {
        Recorder::new("tcp", WINDOW, [("p1".into(), Rate::from_mbits(100))])
    }

    #[test]
    fn goodput_counts_only_what_was_acknowledged_after_the_warmup() {
        let mut recorder = recorder();
        recorder.flow(&FlowRecord { bytes: Bytes::new(9_000_000), ..flow("a", 0.0, 10.0, 5_000_000) });
        recorder.flow(&flow("b", 0.0, 10.0, 3_000_000));
        let (result, _) = recorder.finish();
        assert_eq!(result.goodput_mbps, 8.0);
        assert_eq!(result.connections, 2);
    }

    #[test]
    fn completion_times_are_of_the_flows_that_completed() {
        let mut recorder = recorder();
        for seconds in 1..=4 {
            let end = f64::from(seconds);
            recorder.flow(&FlowRecord { completed: true, ..flow(&format!("c{seconds}"), 0.0, end, 0) });
        }
        recorder.flow(&flow("endless", 0.0, 10.0, 1));
        let (result, _) = recorder.finish();
        assert_eq!((result.afct_s, result.fct_p50_s, result.fct_p99_s), (Some(2.5), Some(2.0), Some(4.0)));
    }

    #[test]
    fn a_flow_that_has_not_finished_counts_with_what_it_has_taken_so_far() {
        let mut recorder = recorder();
        recorder.flow(&FlowRecord { completed: true, sized: true, ..flow("done", 0.0, 1.0, 0) });
        recorder.flow(&FlowRecord { sized: true, ..flow("stalled", 2.0, 10.0, 0) });
        recorder.flow(&flow("endless", 0.0, 10.0, 1));
        let (result, _) = recorder.finish();
        assert_eq!((result.afct_s, result.fct_p99_s), (Some(1.0), Some(1.0)));
        assert_eq!(result.unfinished, Some(Unfinished { flows: 1, mean_s: 4.5, p50_s: 1.0, p99_s: 8.0 }));
    }

    #[test]
    fn fairness_among_connections_without_a_size_leaves_the_others_out() {
        let mut recorder = recorder();
        recorder.flow(&flow("one", 0.0, 10.0, 1_000));
        recorder.flow(&flow("two", 0.0, 10.0, 1_000));
        recorder.flow(&FlowRecord { sized: true, ..flow("transfer", 0.0, 10.0, 0) });
        let (result, _) = recorder.finish();
        assert_eq!(result.fairness_endless, Some(1.0));
        assert!(result.fairness < Some(0.7));
    }

    #[test]
    fn the_variation_of_a_load_is_its_deviation_over_its_mean() {
        let mut recorder = recorder();
        for (from, load) in [(0.0, 9.0), (2.0, 0.2), (4.0, 0.6), (6.0, 0.2), (8.0, 0.6)] {
            recorder.sample(&path_sample("p1", from, from + 2.0, load, 0));
        }
        let variation = recorder.finish().0.paths.get("p1").unwrap().variation.unwrap();
        assert!((variation - 0.5).abs() < 1e-9, "{variation}");
    }

    #[test]
    fn completion_times_are_counted_by_size() {
        let mut recorder = recorder();
        for (name, bytes, end) in [("a", 10_000, 1.0), ("b", 5_000, 3.0), ("c", 10_001, 2.0), ("d", 50_000_000, 9.0)] {
            let flow = flow(name, 0.0, end, 0);
            recorder.flow(&FlowRecord { completed: true, bytes: Bytes::new(bytes), ..flow });
        }
        let (result, _) = recorder.finish();
        let found: Vec<_> = result.fct_by_size.iter().map(|one| (one.up_to_bytes, one.flows, one.afct_s)).collect();
        assert_eq!(found, [(Some(10_000), 2, 2.0), (Some(100_000), 1, 2.0), (None, 1, 9.0)]);
        assert_eq!((result.fct_p90_s, result.fct_p999_s), (Some(9.0), Some(9.0)));
    }

    #[test]
    fn where_nothing_finished_there_is_no_completion_time() {
        let mut recorder = recorder();
        recorder.flow(&flow("a", 0.0, 10.0, 1_000));
        let (result, _) = recorder.finish();
        assert_eq!((result.afct_s, result.fct_p50_s, result.fct_p99_s), (None, None, None));
    }

    #[test]
    fn a_starved_connection_counts_as_unfair_and_one_that_was_gone_does_not() {
        let mut recorder = recorder();
        recorder.flow(&flow("fed", 0.0, 10.0, 8_000_000));
        recorder.flow(&flow("starved", 0.0, 10.0, 0));
        recorder.flow(&flow("gone", 0.0, 1.5, 0));
        assert_eq!(recorder.finish().0.fairness, Some(0.5));
    }

    #[test]
    fn a_connection_that_came_late_is_judged_by_its_rate_not_by_its_bytes() {
        let mut recorder = recorder();
        recorder.flow(&flow("early", 0.0, 10.0, 8_000_000));
        recorder.flow(&flow("late", 6.0, 10.0, 4_000_000));
        assert_eq!(recorder.finish().0.fairness, Some(1.0));
    }

    #[test]
    fn flows_of_one_connection_count_as_one() {
        let mut recorder = recorder();
        for (start, end) in [(0.0, 4.0), (4.0, 10.0)] {
            recorder.flow(&FlowRecord { connection: "same".into(), ..flow("f", start, end, 1_000) });
        }
        let (result, _) = recorder.finish();
        assert_eq!((result.connections, result.fairness), (1, Some(1.0)));
    }

    #[test]
    fn utilisation_is_weighted_by_time_and_cut_at_the_warmup() {
        let mut recorder = recorder();
        recorder.sample(&path_sample("p1", 1.0, 3.0, 1.0, 5));
        recorder.sample(&path_sample("p1", 3.0, 10.0, 0.0, 9));
        let path = *recorder.finish().0.paths.get("p1").unwrap();
        assert_eq!(path.utilisation, Some(1.0 / 8.0));
        assert_eq!(path.utilisation_second_half, Some(0.0));
        assert_eq!((path.drops, path.capacity_mbps), (9, Some(100.0)));
    }

    #[test]
    fn a_path_that_was_not_announced_is_reported_all_the_same() {
        let mut recorder = recorder();
        recorder.sample(&path_sample("surprise", 0.0, 10.0, 0.5, 0));
        let (result, _) = recorder.finish();
        assert_eq!(result.paths.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["p1", "surprise"]);
        assert_eq!(result.paths.get("p1").unwrap().utilisation, None);
        assert_eq!(result.paths.get("surprise").unwrap().capacity_mbps, None);
    }

    #[test]
    fn the_trace_carries_as_much_as_the_samples_did() {
        let mut recorder = recorder();
        for tick in 1..=20u64 {
            recorder.sample(&SamplePoint {
                time: Time::from_nanos(tick * SECOND / 2),
                interval: Span::from_millis(500),
                kind: SampleKind::Connection,
                name: "c".into(),
                rate: Some(Rate::from_mbits(tick)),
                ..SamplePoint::default()
            });
        }
        recorder.moved(Time::from_nanos(5 * SECOND), "ecn");
        recorder.moved(Time::MAX, "rto");
        let (result, trace) = recorder.finish();
        let megabits: f64 = trace.goodput.iter().sum::<f64>() * 10.0 / BINS as f64;
        assert!((megabits - 105.0).abs() < 1e-6, "{megabits}");
        assert_eq!((trace.moves[BINS / 2], trace.moves[BINS - 1]), (1, 1));
        assert_eq!(result.total_moves(), 2);
    }

    fn connection_sample(name: &str, to: f64, mbits: u64) -> SamplePoint {
        SamplePoint {
            time: crate::testing::at(to),
            interval: WINDOW.sample,
            kind: SampleKind::Connection,
            name: name.into(),
            rate: Some(Rate::from_mbits(mbits)),
            ..SamplePoint::default()
        }
    }

    #[test]
    fn what_flows_carried_between_samples_is_in_the_series_too() {
        let mut recorder = recorder();
        // 1 MB is seen in two samples, 0.5 MB only at the end, half of it in each of two intervals.
        recorder.sample(&connection_sample("seen", 0.5, 8));
        recorder.sample(&connection_sample("seen", 1.0, 8));
        let rest = recorder.flow(&flow("seen", 0.0, 2.0, 1_500_000));
        let shown: Vec<_> = rest.iter().map(|point| (point.time, point.rate)).collect();
        let each = Some(Rate::from_mbits(4));
        assert_eq!(shown, [(crate::testing::at(1.5), each), (crate::testing::at(2.0), each)]);
        // One that no sample saw, at the very end, and one of a connection that was charged already.
        let rest = recorder.flow(&flow("short", 9.99, 10.0, 20_000));
        assert_eq!((rest.len(), rest[0].time, rest[0].path.as_ref()), (1, crate::testing::at(10.0), None));
        let again = FlowRecord { series: Some("seen".into()), ..flow("second", 4.1, 4.2, 3_000) };
        assert_eq!(recorder.flow(&again)[0].rate, Some(Rate::from_bits_per_sec(48_000)));
        let subflows = FlowRecord { series: None, ..flow("of-subflows", 4.1, 4.2, 3_000) };
        assert_eq!(recorder.flow(&subflows), [], "they have series of their own");
        let (_, trace) = recorder.finish();
        let megabits: f64 = trace.goodput.iter().sum::<f64>() * 10.0 / BINS as f64;
        assert!((megabits - (1_500_000 + 20_000 + 3_000) as f64 * 8e-6).abs() < 1e-9, "{megabits}");
    }

    #[test]
    fn what_rounding_took_from_samples_is_no_data() {
        let mut recorder = recorder();
        let third = Some(Rate::from_bits_per_sec(16_666));
        recorder.sample(&SamplePoint { rate: third, ..connection_sample("c", 3.0, 0) });
        assert_eq!(recorder.flow(&flow("c", 2.5, 3.0, 1_041)), [], "1041.6 bytes less what rounding took");
    }

    #[test]
    fn a_flow_whose_end_is_no_later_than_its_last_sample_or_than_the_run_loses_nothing() {
        for (start, end) in [(10.0, 10.0), (0.0, 0.0), (9.0, 11.0), (11.0, 12.0), (3.0, 3.0), (2.5, 2.75)] {
            let mut recorder = recorder();
            recorder.flow(&flow("c", start, end, 1_000_000));
            let megabits: f64 = recorder.finish().1.goodput.iter().sum::<f64>() * 10.0 / BINS as f64;
            assert!((megabits - 8.0).abs() < 1e-6, "{start} to {end}: {megabits}");
        }
    }

    #[test]
    fn a_run_without_time_or_records_has_measures_without_values() {
        let window = Window { duration: Span::ZERO, ..WINDOW };
        let mut recorder = Recorder::new("tcp", window, [("p1".into(), Rate::default())]);
        recorder.sample(&path_sample("p1", 0.0, 1.0, 0.5, 0));
        recorder.flow(&flow("a", 0.0, 1.0, 7));
        let (result, trace) = recorder.finish();
        assert_eq!((result.goodput_mbps, result.fairness), (0.0, None));
        assert!(trace.goodput.iter().all(|x| x.is_finite()));
    }
}
