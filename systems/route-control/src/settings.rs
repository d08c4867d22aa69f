//! Intelligent route control's settings.

use serde::{Deserialize, Serialize};

use sidestep_net::{Bytes, Ratio, SettingError, SettingsTable, Span, settings::ensure};

/// The route controller's settings at the edge of a multihomed site; a system's own parameters override them.
///
/// The defaults are for use. Without `guards` it is the paper's own controller, which the paper finds wanting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouteControlSettings {
    /// The routers that control the routes of their hosts' packets; empty: each router whose hosts send flows and which
    /// has at least two egress links.
    pub edges: Vec<String>,
    /// How the controller decides.
    pub mode: RouteControlMode,
    /// The time from one decision to the next.
    pub routing_period: Span,
    /// The last part of a routing period, in which paths are probed.
    pub measurement_period: Span,
    /// The time from one probe of a path to the next.
    pub probe_interval: Span,
    /// A probe that is not answered within this time is lost.
    pub loss_timeout: Span,
    /// A path that loses a larger share of a measurement's probes is impaired.
    pub loss_threshold: Ratio,
    /// This number of probes lost in a row, up to the last one, means that the path is dead.
    pub dead_probes: u32,
    /// How throughput is predicted.
    pub prediction: RouteControlPrediction,
    /// TCP's least timeout, for predictions and guards.
    pub min_rto: Span,
    /// The length of a full packet.
    pub packet: Bytes,
    /// Whether the settings below hold. Without them one measurement's loss decides, at fixed times: any more loss than
    /// `loss_threshold` leaves the primary path, and a measurement without it returns.
    pub guards: bool,
    /// Each routing period is shorter by a random share of it, at most this one.
    pub decision_jitter: Ratio,
    /// Whether acknowledgements that came after the deadline of those probes mean that the path is not dead.
    pub ack_veto: bool,
    /// By how many standard errors the loss of two paths must differ before it moves the aggregate; 0: any difference does.
    pub confidence: f64,
    /// Over how many measurements losses are averaged.
    pub memory: u32,
    /// An impaired path has recovered when its good probes in a row would be less likely than this under its loss.
    pub recovery_miss: Ratio,
    /// The least time between two moves; a dead path is left regardless.
    pub hold_down: Span,
    /// By which share the predicted throughput of another path must be larger.
    pub margin: Ratio,
    /// A routing period lasts at least this number of the longest path's round trips; 0: no bound.
    pub timescale: f64,
    /// No move to a path with less delay if this number of packets of a connection would be overtaken, for ten periods at
    /// most; 0: no bound.
    pub reordering: f64,
    /// No move to a path whose round trip is longer by at least this; 0: no bound.
    pub rtt_rise: Span,
    /// Which timeout of TCP a rise of the round trip must stay below.
    pub rto: RouteControlRto,
    /// After a move throughput is not judged for this multiple of the time that TCP takes to fill the path; 0: no wait.
    pub fill: f64,
    /// Whether impairments that are too short to gain from a move are sat out: the paper's condition (5).
    pub sit_out: bool,
    /// From this utilisation of an egress on some of its flows take another one with room, in proportion to capacity; 0: never.
    pub load: Ratio,
    /// Below this utilisation an egress takes flows of a full one; flows return when all would use less of the egress in use.
    pub load_end: Ratio,
    /// An egress must be full for at least this time, and as long must pass after a move for load; random up to twice, and doubled when
    /// a move takes back the last one.
    pub load_wait: Span,
    /// The most flows that move for load at once, as a share of all.
    pub load_step: Ratio,
}

/// How the route controller decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteControlMode {
    /// Never: the primary path always.
    None,
    /// It is notified at once when one of its egress links is impaired, and when not any more; in the simulator only.
    Ideal,
    /// By the loss that probes measure.
    #[default]
    Practical,
    /// By the throughput that TCP is predicted to get.
    Predictive,
}

/// How the throughput of a path is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteControlPrediction {
    /// By PFTK's formula of loss and round trip, capped by capacity, history and demand.
    #[default]
    Formula,
    /// By what the aggregate had there before in the same condition, or by the formula where that is not known.
    History,
}

/// How TCP computes its retransmission timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteControlRto {
    /// A rise of the round trip is not compared with a timeout.
    Off,
    /// The larger of the least timeout and the smoothed round trip with its variation (RFC 6298).
    Rfc,
    /// The smoothed round trip, and at least the least timeout more, as Linux has it.
    #[default]
    Linux,
}

impl Default for RouteControlSettings {
    fn default() -> Self {
        RouteControlSettings {
            edges: Vec::new(),
            mode: RouteControlMode::Practical,
            // The paper's section 2: longer than TCP takes to react to a loss, and short enough to leave an outage
            // soon.
            routing_period: Span::from_secs(1),
            measurement_period: Span::from_millis(400),
            // Section 5.
            probe_interval: Span::from_millis(10),
            // Our choice: beyond nearly all round trips on land, and within a routing period.
            loss_timeout: Span::from_millis(500),
            loss_threshold: Ratio::ZERO,
            // Our choice: 50 ms of silence, which losses at random of a tenth show once in 100,000 times.
            dead_probes: 5,
            prediction: RouteControlPrediction::Formula,
            // Linux's `TCP_RTO_MIN`, and the lesser of the two that section 3 names.
            min_rto: Span::from_millis(200),
            // The packets of section 3's example.
            packet: Bytes::new(1_500),
            guards: true,
            // Our choice of how much: sites that decide in step move in step, to and fro (section 7, on randomised
            // switching).
            decision_jitter: Ratio::from_ppb(100_000_000),
            ack_veto: true,
            // Our choice: chance differs by four standard errors once in 30,000 decisions, which is a move in a night
            // or so.
            confidence: 4.0,
            // Our choice: 640 probes, by which a loss of 3 % is distinguished from none for certain.
            memory: 16,
            // Our choice: one return in a hundred is too early.
            recovery_miss: Ratio::from_ppb(10_000_000),
            hold_down: Span::ZERO,
            // Our choice: what a prediction is off by for good reasons is no gain.
            margin: Ratio::from_ppb(100_000_000),
            // Our choice for section 2's separation of timescales: a loss, its report, and a round trip at the new
            // window.
            timescale: 3.0,
            // Waiting on a slower backup costs more than the retransmissions that it saves.
            reordering: 0.0,
            // Section 3: from there on the timers of all connections fire.
            rtt_rise: Span::from_millis(200),
            rto: RouteControlRto::Linux,
            // Section 4.
            fill: 1.0,
            // Section 6.
            sit_out: true,
            load: Ratio::ZERO,
            // Our choice: far enough below any threshold of fullness.
            load_end: Ratio::from_ppb(500_000_000),
            // Our choice: TCP needs seconds to fill a path.
            load_wait: Span::from_secs(3),
            // Our choice: few decisions to any share, and no decision that moves all.
            load_step: Ratio::from_ppb(500_000_000),
        }
    }
}

impl RouteControlSettings {
    /// The settings that hold: these, or without `guards` the paper's controller.
    pub fn effective(&self) -> RouteControlSettings {
        if self.guards {
            return self.clone();
        }
        RouteControlSettings {
            decision_jitter: Ratio::ZERO,
            ack_veto: false,
            confidence: 0.0,
            memory: 1,
            recovery_miss: Ratio::from_ppb(1_000_000_000),
            hold_down: Span::ZERO,
            margin: Ratio::ZERO,
            timescale: 0.0,
            reordering: 0.0,
            rtt_rise: Span::ZERO,
            rto: RouteControlRto::Off,
            fill: 0.0,
            sit_out: false,
            load_wait: Span::ZERO,
            load_step: Ratio::from_ppb(1_000_000_000),
            ..self.clone()
        }
    }

    /// The shortest routing period that the jitter leaves.
    fn shortest_period(&self) -> Span {
        let share = 1_000_000_000 - u64::from(self.decision_jitter.ppb());
        Span::from_nanos((u128::from(self.routing_period.as_nanos()) * u128::from(share) / 1_000_000_000) as u64)
    }
}

impl SettingsTable for RouteControlSettings {
    const FILE_ONLY: &'static [&'static str] = &["edges"];

    fn check(&self) -> Result<(), SettingError> {
        let second = Span::from_secs(1);
        let period = self.routing_period;
        ensure(period >= Span::from_millis(10), "routing_period", "must be at least 10 ms")?;
        ensure(period <= second * 3_600, "routing_period", "must be at most an hour")?;
        ensure(self.decision_jitter.ppb() <= 500_000_000, "decision_jitter", "must be at most 50 %")?;
        ensure(self.probe_interval >= Span::from_millis(1), "probe_interval", "must be at least 1 ms")?;
        let fits = self.measurement_period >= self.probe_interval;
        ensure(fits, "measurement_period", "must have room for a probe: be at least probe_interval")?;
        let shortest = self.effective().shortest_period();
        let within = self.measurement_period <= shortest;
        ensure(within, "measurement_period", "must fit the routing period, shortened by decision_jitter")?;
        let probes = self.measurement_period.as_nanos() / self.probe_interval.as_nanos().max(1);
        ensure(probes <= 4_096, "probe_interval", "must leave at most 4096 probes in a measurement_period")?;
        ensure(self.loss_timeout > Span::ZERO, "loss_timeout", "must be above zero")?;
        let known = self.loss_timeout <= shortest;
        ensure(known, "loss_timeout", "must fit the routing period, shortened by decision_jitter")?;
        ensure(self.dead_probes >= 1, "dead_probes", "must be at least 1")?;
        ensure((0.0..=100.0).contains(&self.confidence), "confidence", "must be between 0 and 100")?;
        ensure((1..=1_000).contains(&self.memory), "memory", "must be between 1 and 1000")?;
        ensure(self.recovery_miss > Ratio::ZERO, "recovery_miss", "must be above 0 %")?;
        ensure((0.0..=1_000.0).contains(&self.timescale), "timescale", "must be between 0 and 1000")?;
        ensure((0.0..=1e6).contains(&self.reordering), "reordering", "must be between 0 and 1000000")?;
        ensure(self.min_rto > Span::ZERO, "min_rto", "must be above zero")?;
        ensure((0.0..=100.0).contains(&self.fill), "fill", "must be between 0 and 100")?;
        ensure((64..=65_535).contains(&self.packet.get()), "packet", "must be between 64 B and 65535 B")?;
        let measures = matches!(self.mode, RouteControlMode::Practical | RouteControlMode::Predictive);
        ensure(
            self.load == Ratio::ZERO || measures,
            "load",
            "needs mode practical or predictive: others measure nothing",
        )?;
        let apart = self.load == Ratio::ZERO || self.load_end > Ratio::ZERO && self.load_end < self.load;
        ensure(apart, "load_end", "must be above 0 % and below load")?;
        ensure(self.load_wait <= second * 3_600, "load_wait", "must be at most an hour")?;
        ensure(self.load_step > Ratio::ZERO, "load_step", "must be above 0 %")
    }
}
