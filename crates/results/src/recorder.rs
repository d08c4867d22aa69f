//! From raw records to measures: the one place where a system's results are computed.

mod tally;

use std::collections::BTreeMap;

use sidestep_engine::{Lateness, WireTimes};
use sidestep_net::{Bytes, Rate, Span, Time};
use tally::{BINS, LinkTally, PathTally, bin_of, overlaps, shared};

use crate::{
    Doubt, DoubtKind, FlowRecord, Named, Outage, PathUpdates, SampleKind, SamplePoint, SizeBucket, SystemResult, Trace,
    Unfinished, Window, links::rate_of, measures, outage::recovery, record::mbps, times::Times,
};

/// Collects one system's records and computes its [`SystemResult`] and [`Trace`].
///
/// Memory grows with the number of flows and connections, not with the number of samples.
#[derive(Debug)]
pub struct Recorder {
    system: String,
    window: Window,
    /// When the run was cut short, since its start.
    cut: Option<Span>,
    paths: Named<PathTally>,
    /// Those that carried flows without a size.
    connections: BTreeMap<String, ConnectionTally>,
    /// Flows with a size, each on a connection of its own: the kernel gives its name to a later one too, when the port is free again.
    transfers: u64,
    transfer_goodputs: Vec<f64>,
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
    own: serde_json::Map<String, serde_json::Value>,
    moves_over_time: Vec<u32>,
    megabits_over_time: Vec<f64>,
    /// The occupancy of the fullest cache, over time.
    fullest_over_time: Vec<Option<f64>>,
    late: Option<Late>,
    /// When flows should have begun, and how much later they did.
    late_starts: Vec<(Span, Span)>,
    late_wakeups: Vec<(Span, Span)>,
    jiffies: Option<Span>,
    flows: u64,
    flows_with_timeout: u64,
    tcp: BTreeMap<String, u64>,
    drops: BTreeMap<String, u64>,
    notes: Vec<String>,
    doubts: Vec<Doubt>,
    incomplete: Vec<String>,
}

/// How well the lab's wires kept up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Late {
    /// By how much the latest packet was late.
    pub max: Span,
    /// The share of the packets that were late.
    pub share: f64,
    /// How late equal shares of them were: one time for each share.
    pub quantiles: Vec<Span>,
    /// What the wires' threads took.
    pub wires: WireTimes,
    /// Packets lost before they reached a wire.
    pub lost: u64,
}

#[derive(Debug)]
struct ConnectionTally {
    start: Time,
    end: Time,
    bytes_in_window: Bytes,
}

/// What the samples of a connection showed that no flow has been charged with yet.
#[derive(Debug, Default)]
struct Sampled {
    bytes: f64,
    /// What rounding its rates may have taken from these bytes.
    rounding: f64,
    last: Time,
}

impl Recorder {
    /// A recorder for `system`; `paths` are those reported, in order, with their capacities (zero: not limited).
    pub fn new(system: impl Into<String>, window: Window, paths: impl IntoIterator<Item = (String, Rate)>) -> Self {
        Recorder {
            system: system.into(),
            window,
            cut: None,
            paths: paths.into_iter().map(|(name, capacity)| (name, PathTally::new(capacity))).collect(),
            connections: BTreeMap::new(),
            transfers: 0,
            transfer_goodputs: Vec::new(),
            sampled: BTreeMap::new(),
            completed: Vec::new(),
            unfinished: Vec::new(),
            links: BTreeMap::new(),
            bytes_in_window: Bytes::default(),
            retransmits: 0,
            moves: BTreeMap::new(),
            outages: Vec::new(),
            updates: Vec::new(),
            own: serde_json::Map::new(),
            moves_over_time: vec![0; BINS],
            megabits_over_time: vec![0.0; BINS],
            fullest_over_time: vec![None; BINS],
            late: None,
            late_starts: Vec::new(),
            late_wakeups: Vec::new(),
            jiffies: None,
            flows: 0,
            flows_with_timeout: 0,
            tcp: BTreeMap::new(),
            drops: BTreeMap::new(),
            notes: Vec::new(),
            doubts: Vec::new(),
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
            SampleKind::Cache => {
                for (bin, _) in overlaps(self.window.duration, point) {
                    let fullest = &mut self.fullest_over_time[bin];
                    *fullest = (*fullest).into_iter().chain(point.utilisation).reduce(f64::max);
                }
            }
            // No measure is computed from these; `series.csv` has them.
            SampleKind::Router | SampleKind::Stored | SampleKind::Probe => {}
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
        if flow.sized {
            self.transfers += 1;
            self.transfer_goodputs.extend(self.transfer_goodput(flow));
        } else {
            let tally = self.connections.entry(flow.connection.clone()).or_insert(ConnectionTally {
                start: flow.start,
                end: flow.end,
                bytes_in_window: Bytes::default(),
            });
            tally.start = tally.start.min(flow.start);
            tally.end = tally.end.max(flow.end);
            tally.bytes_in_window = tally.bytes_in_window + flow.bytes_in_window;
        }
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

    /// What a flow carried beyond its samples, evenly from the last of these to its end, at the instants of samples. These go on
    /// after the end of the run, so that what is carried then does not count as carried before.
    fn unsampled(&mut self, flow: &FlowRecord) -> Vec<SamplePoint> {
        let Some(series) = &flow.series else { return Vec::new() };
        let Window { duration, sample, .. } = self.measured();
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
        let end = Time::ZERO + duration;
        let (to, end_s, step) = (flow.end.as_secs_f64(), end.as_secs_f64(), sample.as_secs_f64());
        let from = last.as_secs_f64().min(to);
        let row = |begin: Time, until: Time| {
            let (begin_s, until_s) = (begin.as_secs_f64(), until.as_secs_f64());
            let share = match to > from {
                true => shared(from, to, begin_s, until_s) / (to - from),
                false => f64::from(u8::from((begin_s..=until_s).contains(&to))),
            };
            let bytes = (rest * share).round() as u64;
            (bytes > 0 && until > begin).then(|| SamplePoint {
                time: until,
                interval: until.since(begin),
                kind: SampleKind::Connection,
                name: series.clone(),
                rate: Some(rate_of(Bytes::new(bytes), until.since(begin))),
                ..SamplePoint::default()
            })
        };
        // The cells of a grid that begins at an instant, up to the one in which it ends.
        let cells = |origin: f64, to: f64| {
            let last = (((to - origin) / step).ceil() as u64).max(1) - 1;
            (((from - origin) / step) as u64).min(last)..=last
        };
        let within = cells(0.0, to.min(end_s)).filter_map(|cell| {
            let begin = Time::ZERO + sample * cell;
            row(begin, (begin + sample).min(end))
        });
        let after = cells(end_s, to).filter(|_| to > end_s);
        let after = after.filter_map(|cell| row(end + sample * cell, end + sample * (cell + 1)));
        within.chain(after).collect()
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

    /// Takes a count that the system alone has, by its name: a dot stands for a group, as in `caches.stored`.
    pub fn own(&mut self, name: &str, count: u64) {
        let mut group = &mut self.own;
        let (groups, last) = name.rsplit_once('.').unwrap_or(("", name));
        for part in groups.split('.').filter(|part| !part.is_empty()) {
            let value = group.entry(part).or_insert_with(|| serde_json::Map::new().into());
            // A count that is named like a group would hide the group, so it gives way.
            if !value.is_object() {
                *value = serde_json::Map::new().into();
            }
            let serde_json::Value::Object(inner) = value else { return };
            group = inner;
        }
        group.insert(last.into(), count.into());
    }

    /// Takes how much later a flow began that should have begun at `due`, counted from the start of the run.
    pub fn late_start(&mut self, due: Span, by: Span) {
        self.late_starts.push((due, by));
    }

    /// Takes when, counted from the start of the run, programs could have gone on, and how much later they did.
    pub fn late_wakeups(&mut self, wakeups: impl IntoIterator<Item = (Span, Span)>) {
        self.late_wakeups.extend(wakeups);
    }

    /// Takes what the clock of ticks showed at the start, if the kernel reports it.
    pub fn jiffies(&mut self, at_start: Option<Span>) {
        self.jiffies = at_start;
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

    /// Adds packets that were dropped for a cause.
    pub fn dropped(&mut self, cause: &str, packets: u64) {
        if packets > 0 {
            let total = self.drops.entry(cause.to_owned()).or_default();
            *total = total.saturating_add(packets);
        }
    }

    /// Adds a remark for the reader.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds a reason to doubt the measures.
    pub fn doubt(&mut self, kind: DoubtKind, text: impl Into<String>) {
        self.doubts.push(Doubt::new(kind, text));
    }

    /// Moves so far, of all reasons.
    pub fn moves(&self) -> u64 {
        self.moves.values().sum()
    }

    /// Notes why the measures lack something.
    pub fn incomplete(&mut self, reason: impl Into<String>) {
        self.incomplete.push(reason.into());
    }

    /// Ends the run at an instant before its planned end: the measurement ends there, and the result shows that it is incomplete.
    ///
    /// Called before the records of the flows that the end cuts off. All measures are then over the time until `at`.
    pub fn cut(&mut self, at: Time) {
        let (at, Window { warmup, duration, .. }) = (at.since(Time::ZERO).min(self.window.duration), self.window);
        let measures = if at > warmup {
            "all measures are of that time"
        } else {
            "within the warm-up, so that nothing was measured"
        };
        let [ran, planned] = [at, duration].map(Span::as_secs_f64);
        self.incomplete(format!("interrupted after {ran} s of {planned} s; {measures}"));
        self.cut = Some(at);
    }

    /// The measures of all records, and what the plot shows.
    pub fn finish(self) -> (SystemResult, Trace) {
        let times = &ascending(self.completed.iter().map(|(_, time)| *time));
        let Window { warmup, duration, .. } = self.measured();
        let endless = self.connection_goodputs();
        // A rate over no time is none.
        let measured_nothing = self.cut.is_some_and(|at| at <= warmup);
        let goodput = if measured_nothing { f64::NAN } else { mbps(self.bytes_in_window, duration - warmup) };
        let trace = self.trace();
        let result = SystemResult {
            goodput_mbps: goodput,
            afct_s: measures::mean(times),
            fct_p50_s: measures::percentile(times, 50),
            fct_p99_s: measures::percentile(times, 99),
            fct_p90_s: measures::percentile(times, 90),
            fct_p95_s: measures::percentile(times, 95),
            fct_p999_s: measures::per_mille(times, 999),
            fct_by_size: by_size(&self.completed),
            unfinished: self.unfinished(),
            links: self.links.iter().map(|(name, link)| (name.clone(), link.result())).collect(),
            fairness: measures::jain(&[endless.as_slice(), &self.transfer_goodputs].concat()),
            fairness_endless: measures::jain(&endless),
            goodput_mbps_min: endless.iter().copied().reduce(f64::min),
            connections: self.connections.len() as u64 + self.transfers,
            retransmits: self.retransmits,
            flows: self.flows,
            flows_with_timeout: self.flows_with_timeout,
            tcp: self.tcp,
            moves: self.moves,
            recovery: recovery(&self.outages),
            path_updates: self.updates,
            own: self.own,
            paths: self.paths.iter().map(|(name, path)| (name.to_owned(), path.result(warmup, self.cut))).collect(),
            duration_s: duration.as_secs_f64(),
            planned_s: self.cut.map(|_| self.window.duration.as_secs_f64()),
            late_ms_max: self.late.as_ref().map(|late| late.max.as_secs_f64() * 1e3),
            late_share: self.late.as_ref().map(|late| late.share),
            lost_outside: self.late.as_ref().map_or(0, |late| late.lost),
            late: Lateness {
                wires: self.late.as_ref().map(|late| late.wires.clone()),
                late_starts: in_order(self.late_starts),
                late_wakeups: thinned(self.late_wakeups),
                jiffies: self.jiffies,
            },
            lateness: self.late.map_or_else(Vec::new, |late| late.quantiles),
            drops: self.drops,
            notes: self.notes,
            validity: self.doubts,
            incomplete: self.incomplete,
            repeated: None,
        };
        (result, trace)
    }

    /// What the plot shows: the steps that have begun.
    fn trace(&self) -> Trace {
        let planned = self.window.duration;
        let step = planned.as_secs_f64() / BINS as f64;
        let end = self.measured().duration.as_secs_f64();
        let begun =
            if step > 0.0 && self.cut.is_some() { ((end / step - 1e-9).ceil() as usize).clamp(1, BINS) } else { BINS };
        let goodput = (0..begun).zip(&self.megabits_over_time).map(|(bin, megabits)| {
            // The last may have been cut short.
            let seconds = step.min(end - bin as f64 * step);
            if seconds > 0.0 { megabits / seconds } else { 0.0 }
        });
        let duration = Span::from_nanos(planned.as_nanos() / BINS as u64 * begun as u64);
        let duration = if begun == BINS { planned } else { duration };
        Trace {
            system: self.system.clone(),
            window: Window { duration, ..self.window },
            goodput: goodput.collect(),
            paths: self.paths.iter().map(|(name, path)| (name.to_owned(), path.trace(begun))).collect(),
            caches: self.fullest_over_time.iter().copied().take(begun).collect(),
            moves: self.moves_over_time.iter().copied().take(begun).collect(),
            times: Times::of(self.completed.iter().map(|(_, time)| *time), self.unfinished.len() as u64),
            band: None,
        }
    }

    /// The part of the run that is measured: up to where it was cut short.
    fn measured(&self) -> Window {
        Window { duration: self.cut.unwrap_or(self.window.duration), ..self.window }
    }

    fn sample_link(&mut self, point: &SamplePoint) {
        if !self.links.contains_key(&point.name) {
            self.links.insert(point.name.clone(), LinkTally::default());
        }
        let Some(link) = self.links.get_mut(&point.name) else { return };
        link.sample(point, &self.window);
    }

    fn sample_path(&mut self, point: &SamplePoint) {
        // A path that was not announced is reported too, so that a wrong name shows.
        if self.paths.get(&point.name).is_none() {
            self.paths.insert(point.name.clone(), PathTally::new(Rate::default()));
        }
        let Some(path) = self.paths.get_mut(&point.name) else { return };
        path.sample(point, &self.window);
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

    /// The goodput of a flow with a size in Mbit/s, if it lived after the warm-up: over its whole life, as the millisecond after the
    /// warm-up in which it ends may acknowledge all that it sent.
    fn transfer_goodput(&self, flow: &FlowRecord) -> Option<f64> {
        let end = flow.end.min(Time::ZERO + self.measured().duration);
        let lived = end.since(flow.start);
        (lived > Span::ZERO && end > Time::ZERO + self.window.warmup).then(|| mbps(flow.bytes, lived))
    }

    /// The goodput after the warm-up of each connection that carried flows without a size in Mbit/s, over the part of that time in
    /// which it lived.
    fn connection_goodputs(&self) -> Vec<f64> {
        let from = Time::ZERO + self.window.warmup;
        let to = Time::ZERO + self.measured().duration;
        let lived = |tally: &ConnectionTally| tally.end.min(to).since(tally.start.max(from));
        let present = self.connections.values().filter(|tally| lived(tally) > Span::ZERO);
        present.map(|tally| mbps(tally.bytes_in_window, lived(tally))).collect()
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

/// Most flows of which it is kept how late they began.
const MAX_LATE_STARTS: usize = 1_000;
/// Most wake-ups of programs that a result names.
const MAX_LATE_WAKEUPS: usize = 10_000;

/// How late flows began, in the order in which they were to; the first thousand.
fn in_order(mut starts: Vec<(Span, Span)>) -> Vec<Span> {
    starts.sort_by_key(|(due, _)| *due);
    starts.into_iter().map(|(_, by)| by).take(MAX_LATE_STARTS).collect()
}

/// The wake-ups in their order; of more than [`MAX_LATE_WAKEUPS`] each second, each third, or as few as it takes.
fn thinned(mut wakeups: Vec<(Span, Span)>) -> Vec<(Span, Span)> {
    wakeups.sort();
    let step = wakeups.len().div_ceil(MAX_LATE_WAKEUPS).max(1);
    wakeups.into_iter().step_by(step).collect()
}

fn ascending(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

#[cfg(test)]
mod tests;
