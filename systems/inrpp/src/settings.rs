//! The settings of In-Network Resource Pooling.

use serde::{Deserialize, Serialize};

use sidestep_net::{Bytes, SettingError, SettingsTable, Span, settings::ensure};

/// In-Network Resource Pooling's settings on every router and host; a system's own parameters override them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InrppSettings {
    /// What the cache of each interface of a router holds.
    pub cache: Bytes,
    /// How an interface presses back.
    pub backpressure: Backpressure,
    /// The occupancy above which an interface presses back (S_high), with limits the most that it lets come. Derived: with
    /// limits the cache but for what detours may bring, with notices the cache but for what its link carries in twice the
    /// longest round trip over a link of the router, and always half of the cache at least.
    pub high: Threshold,
    /// The occupancy below which it stops to (S_low); derived, half of `high`.
    pub low: Threshold,
    /// How long the full buffer of an interface takes to drain: at least what ten packets take, and at most nine tenths of the
    /// link's queue.
    pub buffer: Span,
    /// How long the packets of other protocols that wait in a cache take to drain at most; they have this part of it alone.
    pub tcp_buffer: Span,
    /// Whether routers send packets around links.
    pub detours: bool,
    /// Links, by name or pattern, that are borders: no detour leads around them or over them.
    pub borders: Vec<String>,
    /// The gain of a detour's rate (α), above 0 and below π/(4√2).
    pub alpha: f64,
    /// Between two probes of a detour (T_p).
    pub probe_interval: Span,
    /// Between two decisions on whether a detour is used (T_d), at least five times `probe_interval`.
    pub decision_interval: Span,
    /// How long a notification holds that is not repeated.
    pub expiry: Span,
    /// When the state of an interface changes.
    pub ack_processing: AckProcessing,
    /// Which packets an ACK releases.
    pub credit: Credit,
    /// Which packets carry notifications.
    pub notifications: Notifications,
    /// What a sender does when it has got no ACK for an RTO.
    pub rto: AfterTimeout,
    /// Whether routers spread flows over equal-cost paths.
    pub ecmp: bool,
    /// What routers add to each packet, between them and, in the simulator, on all links: real ones over UDP and IPv6 add 72
    /// bytes.
    pub shim: Bytes,
    /// What hosts send by.
    pub hosts: Hosts,
    /// Whether hosts do what routers ask; others send on, and name no nonces.
    pub obedient: bool,
    /// Whose rules hold where the paper's text and its authors' code differ.
    pub preset: Preset,
}

/// A threshold of a cache: `"auto"` or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Threshold {
    /// It follows from other settings.
    Derived,
    /// This number of bytes.
    At(Bytes),
}

impl Threshold {
    /// The bytes, if they are given.
    pub fn given(self) -> Option<Bytes> {
        match self {
            Threshold::Derived => None,
            Threshold::At(bytes) => Some(bytes),
        }
    }
}

impl TryFrom<String> for Threshold {
    type Error = String;
    fn try_from(text: String) -> Result<Threshold, String> {
        match text.as_str() {
            "auto" => Ok(Threshold::Derived),
            size => size.parse().map(Threshold::At).map_err(|error| format!("{error}, or `auto`")),
        }
    }
}

impl From<Threshold> for String {
    fn from(threshold: Threshold) -> String {
        threshold.given().map_or("auto".into(), |bytes| bytes.to_string())
    }
}

/// How an interface makes those before it send less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backpressure {
    /// It lowers the window of each ACK that passes to what it has room for: hop-by-hop credits (Kung, Blackwell and
    /// Chapman, 1994), which TCP's receive window carries.
    Limits,
    /// It writes *slow down* on ACKs while its cache is full: the paper's text.
    Notices,
}

/// What hosts send by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    /// INRPP: at the rate of their links, until routers slow them down.
    Push,
    /// TCP as it is, which needs limits: all of it that passes a router is INRPP's.
    Unmodified,
}

/// When the state of an interface changes, and what its ACKs carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckProcessing {
    /// As the paper's Fig. 3 has it.
    Figure,
    /// As its Algorithm 1 is printed.
    Printed,
}

/// Which packets an ACK releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credit {
    /// For the flow that it acknowledges, else for the next that waits.
    Pooled,
    /// For the flow that it acknowledges.
    Own,
    /// For the next flow that waits, whichever it acknowledges.
    RoundRobin,
}

/// Which packets carry notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notifications {
    /// ACKs, which must pass the routers that the data pass.
    Acks,
    /// Data, and the receiver echoes them: ACKs may take any route.
    Data,
}

/// What a sender does when it has got no ACK for an RTO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterTimeout {
    /// It sends the first segment again, and stays in closed loop until notifications expire.
    Resend,
    /// It sends the first segment again, and all others at full rate: the paper's text.
    Text,
}

/// Whose rules hold where the paper's text and its authors' code differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The text's, which the other settings refine.
    Text,
    /// Those of the first author's ns-3 code.
    Ns3,
}

impl Default for InrppSettings {
    fn default() -> Self {
        InrppSettings {
            cache: Bytes::new(12_500_000),
            backpressure: Backpressure::Limits,
            high: Threshold::Derived,
            low: Threshold::Derived,
            buffer: Span::from_millis(5),
            tcp_buffer: Span::from_millis(50),
            detours: true,
            borders: Vec::new(),
            alpha: 0.4,
            probe_interval: Span::from_millis(10),
            decision_interval: Span::from_millis(50),
            expiry: Span::from_secs(1),
            ack_processing: AckProcessing::Figure,
            credit: Credit::Pooled,
            notifications: Notifications::Acks,
            rto: AfterTimeout::Resend,
            ecmp: false,
            shim: Bytes::default(),
            hosts: Hosts::Push,
            obedient: true,
            preset: Preset::Text,
        }
    }
}

impl InrppSettings {
    /// What the core has of them.
    pub fn config(&self) -> crate::Config {
        crate::Config {
            probe_interval: self.probe_interval,
            decision_interval: self.decision_interval,
            alpha: self.alpha,
            backpressure: self.backpressure,
            expiry: self.expiry,
            ack_processing: self.ack_processing,
            credit: self.credit,
            notifications: self.notifications,
            preset: self.preset,
        }
    }

    /// With limits nothing is set that only notices have.
    fn check_notices(&self) -> Result<(), SettingError> {
        let usual = InrppSettings::default();
        let needs = "needs `backpressure = \"notices\"`";
        if self.backpressure == Backpressure::Notices {
            return ensure(self.hosts == usual.hosts, "hosts", "needs `backpressure = \"limits\"`");
        }
        ensure(self.ack_processing == usual.ack_processing, "ack_processing", needs)?;
        ensure(self.credit == usual.credit, "credit", needs)?;
        ensure(self.notifications == usual.notifications, "notifications", needs)?;
        ensure(self.rto == usual.rto, "rto", needs)?;
        ensure(self.obedient, "obedient", needs)?;
        ensure(self.preset == usual.preset, "preset", needs)
    }
}

impl SettingsTable for InrppSettings {
    const FILE_ONLY: &'static [&'static str] = &["borders"];

    fn check(&self) -> Result<(), SettingError> {
        let cache = Bytes::new(1_500)..=Bytes::new(1_000_000_000_000);
        ensure(cache.contains(&self.cache), "cache", "must be between 1500 B and 1 TB")?;
        ensure(self.high.given().is_none_or(|high| high <= self.cache), "high", "must be at most `cache`")?;
        let high = self.high.given().unwrap_or(self.cache);
        ensure(self.low.given().is_none_or(|low| low < high), "low", "must be below `high`")?;
        ensure(self.buffer >= Span::from_micros(1), "buffer", "must be at least 1 us")?;
        ensure(self.tcp_buffer >= Span::from_micros(1), "tcp_buffer", "must be at least 1 us")?;
        let most = std::f64::consts::PI / (4.0 * std::f64::consts::SQRT_2);
        ensure(self.alpha > 0.0 && self.alpha < most, "alpha", "must be above 0 and below 0.555 (π/(4√2))")?;
        ensure(self.probe_interval >= Span::from_micros(100), "probe_interval", "must be at least 100 us")?;
        let least = self.probe_interval.as_nanos().saturating_mul(5);
        ensure(
            self.decision_interval.as_nanos() >= least,
            "decision_interval",
            "must be at least five times `probe_interval`",
        )?;
        ensure(self.expiry >= Span::from_millis(1), "expiry", "must be at least 1 ms")?;
        ensure(self.shim <= Bytes::new(200), "shim", "must be at most 200 B")?;
        self.check_notices()
    }
}
