//! Raw records: one per flow, and one per sampled thing and instant.

use serde::Serialize;
use sidestep_model::{Bytes, Rate, Span, Time};

use crate::Outage;

/// The part of a run that is measured: from the end of the warm-up to the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// End of the warm-up, since the start of the run.
    pub warmup: Span,
    /// Length of the run, warm-up included.
    pub duration: Span,
}

/// What one flow did; a row of `flows.csv`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRecord {
    /// Name of the flow, unique within its system.
    pub flow: String,
    /// Host that sends.
    pub from: String,
    /// Host that receives.
    pub to: String,
    /// Name of the connection that carried it, unique within its system.
    pub connection: String,
    /// When it was started.
    pub start: Time,
    /// When its last byte was acknowledged, or when observation ended.
    pub end: Time,
    /// Whether it had a size and all of it was acknowledged.
    pub completed: bool,
    /// Application bytes acknowledged in the whole run.
    pub bytes: Bytes,
    /// Those acknowledged after the warm-up.
    pub bytes_in_window: Bytes,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Moves to another path.
    pub moves: u64,
    /// When retransmission timeouts told that nothing arrives.
    pub outages: Vec<Outage>,
}

/// What a sample is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleKind {
    /// One direction of a link.
    #[default]
    Link,
    /// A reported path.
    Path,
    /// A transport connection.
    Connection,
}

/// The state of a link, path or connection at an instant; a row of `series.csv`, empty where not applicable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplePoint {
    /// The instant.
    pub time: Time,
    /// The span up to `time` of which `rate` and `utilisation` are means.
    pub interval: Span,
    /// What is sampled.
    pub kind: SampleKind,
    /// Name of the link, path or connection.
    pub name: String,
    /// IP packets' rate on links and paths, goodput of connections.
    pub rate: Option<Rate>,
    /// Share of the capacity in use.
    pub utilisation: Option<f64>,
    /// Bytes in the queue; the longest along a path.
    pub queue: Option<Bytes>,
    /// Packets dropped since the start of the run.
    pub drops: Option<u64>,
    /// Packets marked CE since the start of the run.
    pub marks: Option<u64>,
    /// Congestion window.
    pub cwnd: Option<Bytes>,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    /// Path that a connection is on.
    pub path: Option<String>,
}

impl FlowRecord {
    /// Time from start to end; `None` unless the flow completed.
    pub fn completion_time(&self) -> Option<Span> {
        self.completed.then(|| self.end.since(self.start))
    }
}

/// Megabits per second of `bytes` in `span`; zero if there was no time.
pub(crate) fn mbps(bytes: Bytes, span: Span) -> f64 {
    if span == Span::ZERO { 0.0 } else { bytes.get() as f64 * 8.0 / 1e6 / span.as_secs_f64() }
}

/// Columns of `flows.csv`, in the order of [`FlowRow`]'s fields.
pub(crate) const FLOW_COLUMNS: [&str; 13] = [
    "system",
    "flow",
    "from",
    "to",
    "connection",
    "start_s",
    "end_s",
    "completed",
    "bytes",
    "fct_s",
    "goodput_mbps",
    "retransmits",
    "moves",
];

/// Columns of `series.csv`, in the order of [`SampleRow`]'s fields.
pub(crate) const SAMPLE_COLUMNS: [&str; 12] = [
    "system",
    "time_s",
    "kind",
    "name",
    "mbps",
    "utilisation",
    "queue_bytes",
    "drops",
    "marks",
    "cwnd_bytes",
    "srtt_ms",
    "path",
];

#[derive(Serialize)]
pub(crate) struct FlowRow<'a> {
    system: &'a str,
    flow: &'a str,
    from: &'a str,
    to: &'a str,
    connection: &'a str,
    start_s: f64,
    end_s: f64,
    completed: bool,
    bytes: u64,
    fct_s: Option<f64>,
    goodput_mbps: f64,
    retransmits: u64,
    moves: u64,
}

#[derive(Serialize)]
pub(crate) struct SampleRow<'a> {
    system: &'a str,
    time_s: f64,
    kind: SampleKind,
    name: &'a str,
    mbps: Option<f64>,
    utilisation: Option<f64>,
    queue_bytes: Option<u64>,
    drops: Option<u64>,
    marks: Option<u64>,
    cwnd_bytes: Option<u64>,
    srtt_ms: Option<f64>,
    path: Option<&'a str>,
}

impl<'a> FlowRow<'a> {
    pub(crate) fn new(system: &'a str, flow: &'a FlowRecord) -> Self {
        FlowRow {
            system,
            flow: &flow.flow,
            from: &flow.from,
            to: &flow.to,
            connection: &flow.connection,
            start_s: flow.start.as_secs_f64(),
            end_s: flow.end.as_secs_f64(),
            completed: flow.completed,
            bytes: flow.bytes.get(),
            fct_s: flow.completion_time().map(Span::as_secs_f64),
            goodput_mbps: mbps(flow.bytes, flow.end.since(flow.start)),
            retransmits: flow.retransmits,
            moves: flow.moves,
        }
    }
}

impl<'a> SampleRow<'a> {
    pub(crate) fn new(system: &'a str, point: &'a SamplePoint) -> Self {
        SampleRow {
            system,
            time_s: point.time.as_secs_f64(),
            kind: point.kind,
            name: &point.name,
            mbps: point.rate.map(Rate::as_mbits),
            utilisation: point.utilisation,
            queue_bytes: point.queue.map(Bytes::get),
            drops: point.drops,
            marks: point.marks,
            cwnd_bytes: point.cwnd.map(Bytes::get),
            srtt_ms: point.srtt.map(|srtt| srtt.as_secs_f64() * 1e3),
            path: point.path.as_deref(),
        }
    }
}
