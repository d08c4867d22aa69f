//! Raw records: one per flow, one per subflow, and one per sampled thing and instant.

use std::net::SocketAddrV6;

use serde::Serialize;
use sidestep_net::{Bytes, Rate, Span, Time};

use crate::Outage;

/// The part of a run that is measured, from the end of the warm-up to the end of the run, and how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// End of the warm-up, since the start of the run.
    pub warmup: Span,
    /// Length of the run, warm-up included.
    pub duration: Span,
    /// Time from one sample of the run to the next.
    pub sample: Span,
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
    /// Name of the connection that carried the flow, unique within its system.
    pub connection: String,
    /// Name under which samples show what the flow carries; `None` where each of its subflows has a name of its own.
    pub series: Option<String>,
    /// When the flow was started.
    pub start: Time,
    /// When its last byte was acknowledged, or when observation ended.
    pub end: Time,
    /// Whether the flow has a size; else it sends until it is stopped.
    pub sized: bool,
    /// Whether the flow had a size and all of it was acknowledged.
    pub completed: bool,
    /// Application bytes acknowledged in the whole run.
    pub bytes: Bytes,
    /// Application bytes acknowledged after the warm-up.
    pub bytes_in_window: Bytes,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Moves to another path.
    pub moves: u64,
    /// Retransmission timeouts, the SYN's included; zero also where only [`outages`](Self::outages) show them.
    pub timeouts: u64,
    /// The connection's outages, each from a retransmission timeout on.
    pub outages: Vec<Outage>,
}

/// What one subflow of a connection did; a row of `subflows.csv`.
///
/// The connection's own row in `flows.csv` has what all of its subflows did together.
#[derive(Clone, Debug, PartialEq)]
pub struct SubflowRecord {
    /// Name of the connection, as in the connection's [`FlowRecord`].
    pub connection: String,
    /// Number of the subflow within the connection, from 0, in the order in which subflows were opened.
    pub subflow: u32,
    /// Address and port of the end that sends.
    pub local: SocketAddrV6,
    /// Address and port of the end that receives.
    pub remote: SocketAddrV6,
    /// Name of the path that the subflow was on last; `None` where the network chooses and does not report it.
    pub path: Option<String>,
    /// Bytes of the subflow that were acknowledged in the whole run.
    pub bytes: Bytes,
    /// Segments that the subflow retransmitted.
    pub retransmits: u64,
    /// Smoothed round-trip time at the end; `None` if it was never measured.
    pub srtt: Option<Span>,
    /// From when on the subflow could carry data; `None` if it was never established, or if that is not known.
    pub opened: Option<Time>,
    /// Bytes of the subflow that were acknowledged in the measured part of the run.
    pub bytes_in_window: Bytes,
}

/// What a sample is of. [`SamplePoint`] shows which fields a kind has.
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
    /// One port of a router that decides: the rate that it allows or forwards, and the bytes that wait there.
    Router,
    /// A cache in a router: the bytes that it holds, and the state of its port.
    Cache,
    /// What such a cache holds of one connection.
    Stored,
    /// A measurement of a path from outside: round-trip time, throughput, lost probes.
    Probe,
}

/// The state of one thing at an instant; a row of `series.csv`.
///
/// All kinds share the columns of `series.csv`. A field that does not apply is `None` and leaves its cell empty:
///
/// | kind | `rate` | `utilisation` | `queue` | `drops` | `marks` | `cwnd` | `srtt` | `path` |
/// |---|---|---|---|---|---|---|---|---|
/// | link | IP packets | share of the link's rate | bytes in the queue | packets | packets | | | |
/// | path | of the busiest link | of the busiest link | longest queue | on all links | on all links | | | |
/// | connection | goodput | | | | | congestion window | smoothed RTT | path in use; or its control loop: `open` or `closed` |
/// | router | allowed or forwarded | share of the port's rate | bytes that wait | packets | packets | | RTT that the router assumes | port |
/// | cache | | share of the cache's room | bytes held | packets | | | | state of its port |
/// | stored | | | bytes held | | | | | |
/// | probe | measured throughput | | | probes lost | | | measured RTT | path that is probed |
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplePoint {
    /// The instant.
    pub time: Time,
    /// The span up to `time` over which `rate` and `utilisation` are means.
    pub interval: Span,
    /// What is sampled.
    pub kind: SampleKind,
    /// Name of what is sampled, unique among its kind.
    pub name: String,
    /// A rate: of IP packets on links, paths, routers and caches, of application bytes on connections and probes.
    pub rate: Option<Rate>,
    /// Share of the capacity in use, from 0 to 1; of a cache its occupancy.
    pub utilisation: Option<f64>,
    /// Bytes in the queue, or held by the cache; on a path the longest queue.
    pub queue: Option<Bytes>,
    /// Packets dropped, or probes lost, since the start of the run.
    pub drops: Option<u64>,
    /// Packets marked CE since the start of the run.
    pub marks: Option<u64>,
    /// Congestion window.
    pub cwnd: Option<Bytes>,
    /// Round-trip time, smoothed on connections.
    pub srtt: Option<Span>,
    /// Path that a connection uses or a probe measures, port of a router, or state of a cache's port.
    pub path: Option<String>,
}

impl FlowRecord {
    /// Time from start to end of a flow that has a size but did not complete: what it has taken so far.
    pub(crate) fn unfinished_time(&self) -> Option<Span> {
        (self.sized && !self.completed).then(|| self.end.since(self.start))
    }

    /// Time from start to end; `None` unless the flow completed.
    pub fn completion_time(&self) -> Option<Span> {
        self.completed.then(|| self.end.since(self.start))
    }
}

/// Megabits per second of `bytes` in `span`; zero if the span is empty.
pub(crate) fn mbps(bytes: Bytes, span: Span) -> f64 {
    if span == Span::ZERO { 0.0 } else { bytes.get() as f64 * 8.0 / 1e6 / span.as_secs_f64() }
}

/// Columns of `flows.csv`, in the order of [`FlowRow`]'s fields.
pub(crate) const FLOW_COLUMNS: [&str; 15] = [
    "system",
    "seed",
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
    "bytes_in_window",
];

/// Columns of `series.csv`, in the order of [`SampleRow`]'s fields.
pub(crate) const SAMPLE_COLUMNS: [&str; 13] = [
    "system",
    "seed",
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

/// Columns of `subflows.csv`, in the order of [`SubflowRow`]'s fields.
pub(crate) const SUBFLOW_COLUMNS: [&str; 12] = [
    "system",
    "seed",
    "connection",
    "subflow",
    "local",
    "remote",
    "path",
    "bytes",
    "retransmits",
    "srtt_ms",
    "opened_s",
    "bytes_in_window",
];

#[derive(Serialize)]
pub(crate) struct FlowRow<'a> {
    system: &'a str,
    seed: u64,
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
    bytes_in_window: u64,
}

#[derive(Serialize)]
pub(crate) struct SampleRow<'a> {
    system: &'a str,
    seed: u64,
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

#[derive(Serialize)]
pub(crate) struct SubflowRow<'a> {
    system: &'a str,
    seed: u64,
    connection: &'a str,
    subflow: u32,
    local: SocketAddrV6,
    remote: SocketAddrV6,
    path: Option<&'a str>,
    bytes: u64,
    retransmits: u64,
    srtt_ms: Option<f64>,
    opened_s: Option<f64>,
    bytes_in_window: u64,
}

impl<'a> FlowRow<'a> {
    pub(crate) fn new((system, seed): (&'a str, u64), flow: &'a FlowRecord) -> Self {
        FlowRow {
            system,
            seed,
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
            bytes_in_window: flow.bytes_in_window.get(),
        }
    }
}

impl<'a> SampleRow<'a> {
    pub(crate) fn new((system, seed): (&'a str, u64), point: &'a SamplePoint) -> Self {
        SampleRow {
            system,
            seed,
            time_s: point.time.as_secs_f64(),
            kind: point.kind,
            name: &point.name,
            mbps: point.rate.map(Rate::as_mbits),
            utilisation: point.utilisation,
            queue_bytes: point.queue.map(Bytes::get),
            drops: point.drops,
            marks: point.marks,
            cwnd_bytes: point.cwnd.map(Bytes::get),
            srtt_ms: point.srtt.map(milliseconds),
            path: point.path.as_deref(),
        }
    }
}

impl<'a> SubflowRow<'a> {
    pub(crate) fn new((system, seed): (&'a str, u64), subflow: &'a SubflowRecord) -> Self {
        SubflowRow {
            system,
            seed,
            connection: &subflow.connection,
            subflow: subflow.subflow,
            local: subflow.local,
            remote: subflow.remote,
            path: subflow.path.as_deref(),
            bytes: subflow.bytes.get(),
            retransmits: subflow.retransmits,
            srtt_ms: subflow.srtt.map(milliseconds),
            opened_s: subflow.opened.map(Time::as_secs_f64),
            bytes_in_window: subflow.bytes_in_window.get(),
        }
    }
}

fn milliseconds(span: Span) -> f64 {
    span.as_secs_f64() * 1e3
}
