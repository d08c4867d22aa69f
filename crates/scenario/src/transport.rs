//! Settings of TCP and of routing, which are not a system's own.

use serde::{Deserialize, Serialize};

use sidestep_net::{Bytes, SettingError, Span, settings::ensure};
use sidestep_proto::tcp::Profile;

use crate::SystemSpec;

/// TCP's settings on every host. The lab's kernels take only congestion control and ECN; the kernel decides the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSettings {
    /// Whose TCP the simulator has; the lab has its kernels'.
    pub profile: Profile,
    /// Ticks of the kernel's clock in a second, which timers of the profile `linux` wait for; 0: they are exact.
    pub hz: u16,
    /// Congestion control by the kernel's name for it; the simulator has `reno`, `cubic` and `dctcp`.
    pub congestion_control: String,
    /// Whether connections negotiate ECN (RFC 3168).
    pub ecn: bool,
    /// Payload of a segment in bytes; `None`: what fits the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// Initial congestion window in segments.
    pub initial_window: u32,
    /// The least difference between the RTO and the smoothed round-trip time.
    pub min_rto: Span,
    /// RTO before the first sample, and of the SYN.
    pub initial_rto: Span,
    /// How long an ACK may be delayed.
    pub delayed_ack: Span,
    /// Segments that make an ACK, 1 to 255.
    pub ack_every: u8,
    /// ACKs at the beginning of a connection that are not delayed.
    pub quick_acks: u8,
    /// Whether SACK is used; else NewReno.
    pub sack: bool,
    /// Whether the first two duplicate ACKs let out a segment each (RFC 3042).
    pub limited_transmit: bool,
    /// Whether an idle time of an RTO resets the window to the initial one (RFC 5681, section 4.1).
    pub idle_restart: bool,
    /// Whether the window grows with each ACK, as ns-2 counts it: half as fast where an ACK acknowledges two segments.
    pub count_acks: bool,
    /// The receive buffer.
    pub receive_window: Bytes,
    /// The largest random delay of a packet that a host sends.
    pub send_jitter: Span,
}

/// How the connections of a flow are carried, where the flow differs from the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// The flow's system; `None`: the run's.
    pub system: Option<SystemSpec>,
    /// TCP's settings for the flow: the scenario's with the flow's over them. `None`: the scenario's.
    pub tcp: Option<TcpSettings>,
}

/// What routers do by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingSettings {
    /// The time after which the IGP has converged on a link that went down or came up.
    pub convergence: Span,
}

impl Default for TcpSettings {
    fn default() -> Self {
        TcpSettings {
            profile: Profile::default(),
            hz: 250,
            congestion_control: "cubic".into(),
            ecn: true,
            mss: None,
            initial_window: 10,
            min_rto: Span::from_millis(200),
            initial_rto: Span::from_secs(1),
            delayed_ack: Span::from_millis(40),
            ack_every: 2,
            quick_acks: 16,
            sack: true,
            limited_transmit: true,
            idle_restart: true,
            count_acks: false,
            receive_window: Bytes::new(6_000_000),
            send_jitter: Span::from_micros(1),
        }
    }
}

impl Default for RoutingSettings {
    fn default() -> Self {
        RoutingSettings { convergence: Span::from_millis(200) }
    }
}

impl TcpSettings {
    /// Checks every setting's range; that a segment fits the packets of a route is checked where the route is known.
    pub fn check(&self) -> Result<(), SettingError> {
        let name = &self.congestion_control;
        // TCP_CA_NAME_MAX is 16 with the final zero.
        let fine = (1..16).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        ensure(fine, "congestion_control", "must be 1 to 15 letters, digits, `-` or `_`")?;
        ensure(self.mss.is_none_or(|mss| (64..=60_000).contains(&mss)), "mss", "must be between 64 and 60000")?;
        ensure((1..=10_000).contains(&self.initial_window), "initial_window", "must be between 1 and 10000")?;
        ensure(self.initial_rto > Span::ZERO, "initial_rto", "must be above zero")?;
        ensure(self.hz <= 1_000, "hz", "must be at most 1000")?;
        ensure(self.ack_every >= 1, "ack_every", "must be at least 1")?;
        let window = Bytes::new(1_000)..=Bytes::new(100_000_000_000);
        ensure(window.contains(&self.receive_window), "receive_window", "must be between 1 kB and 100 GB")
    }
}
