//! The path changer's settings.

use std::fmt;

use serde::{Deserialize, Serialize};

use sidestep_net::{InitialName, Ratio, SettingError, SettingsTable, Span, settings::ensure};

use crate::PlbSettings;

/// The settings of a path policy on every host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySettings {
    /// How the next path is chosen.
    pub policy: PolicyName,
    /// EXP3's share of exploration (Auer et al. 2002), or how fast EXP3-IX learns (Neu 2015, η); in 0..=1 without zero.
    pub gamma: f64,
    /// Share of CE-marked packets from which a round counts as congested.
    pub ce_share: Ratio,
    /// Congested rounds that make a signal, among the last `ce_window`; 1 to 64.
    pub ce_rounds: u32,
    /// Rounds looked back at, 1 to 64; `ce_rounds` or fewer: congested rounds must follow each other.
    pub ce_window: u32,
    /// Segments retransmitted within a round that make a signal; 0: never.
    pub retransmit_burst: u32,
    /// Share of a back-off interval that is random.
    pub jitter: Ratio,
    /// Time between decisions after congestion signals.
    pub congestion_backoff: Backoff,
    /// Time between decisions after timeouts.
    pub silence_backoff: Backoff,
    /// What the policies `exp3` and `exp3-ix` learn from.
    pub reward: RewardName,
    /// Who learns together, by the policies that learn.
    pub weights: WeightsName,
    /// What a path weighs before anything is learnt; see [`Self::initial_weights`].
    pub initial: InitialName,
    /// Timeouts in a row after which the policy `next` moves; 1 to 100.
    pub next_rtos: u32,
    /// Share of the RTO without new data after which data that comes again means that ACKs are lost; zero: never.
    pub ack_quiet: Ratio,
    /// Rounds in a row with a standing queue that make a signal, by the policy `delay-weighted`; 0: never.
    pub queue_rounds: u32,
    /// Rounds after a move that are not judged; at most 64.
    pub settle_rounds: u32,
    /// No moves to paths whose round trip is so much longer than the present one's, nor beyond the RTO; zero: to any.
    pub rtt_guard: Span,
    /// Whether a move that reorders packets halves the reward of what it led to.
    pub reorder_guard: bool,
    /// Whether hosts begin on different paths, and a connection that has sent much leaves a path only for one that gives more; by
    /// the policy `delay-weighted`.
    pub gain_guard: bool,
    /// Congested rounds in a row after which the policy `plb` moves when idle; 0: never.
    pub plb_idle_rounds: u32,
    /// Congested rounds in a row after which the policy `plb` moves with packets in flight; 0: never.
    pub plb_rounds: u32,
    /// No moves of `plb` on congestion for once to twice this after a timeout.
    pub plb_pause: Span,
    /// Bits of the socket mark that carry the path: contiguous, with more values than there are paths.
    pub mark_mask: u32,
    /// What becomes of a connection that is stuck on a dead path because no live path takes its source address.
    pub on_dead: OnDead,
    /// How long such a connection waits for an answer until `on_dead` acts: 1 s to 10 min.
    pub reset_after: Span,
}

/// What becomes of a connection that is stuck on a dead path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDead {
    /// It waits as TCP does, until the path is back or its application gives up.
    #[default]
    Keep,
    /// It is ended, so that its application connects again over a live path.
    Reset,
}

/// A back-off interval that doubles from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// First interval, not zero.
    pub min: Span,
    /// Longest interval.
    pub max: Span,
}

/// How the path changer chooses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Always takes the first path.
    Static,
    /// Draws any path with equal probability.
    Random,
    /// Draws a path by the bandit EXP3.
    Exp3,
    /// Takes the next path in turn, after timeouts only.
    Next,
    /// Draws a path by EXP3, for the lowest round-trip time.
    LowestRtt,
    /// Draws any other path when Linux's Protective Load Balancing would rehash.
    Plb,
    /// Draws a path by the bandit EXP3-IX.
    Exp3Ix,
    /// Draws the first path by the initial weights, and stays there.
    Fixed,
    /// Draws a path by the delay that the host's connections recently measured on it.
    DelayWeighted,
    /// EXP3 with the signals and the initial weights of the TCP Path Changer's paper.
    Paper,
}

/// The reward of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RewardName {
    /// The mean congestion window, as a share of the path's bandwidth-delay product.
    Cwnd,
    /// The delivered rate, as a share of the path's.
    Rate,
    /// The lowest propagation round trip of the paths, as a share of the mean round trip.
    Rtt,
}

/// Who learns together which paths are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightsName {
    /// Each connection for itself.
    Connection,
    /// All connections of a host to one destination prefix.
    Prefix,
}

impl Default for PolicySettings {
    fn default() -> Self {
        let plb = PlbSettings::default();
        PolicySettings {
            policy: PolicyName::DelayWeighted,
            gamma: 0.1,
            ce_share: Ratio::from_ppb(500_000_000),
            ce_rounds: 2,
            ce_window: 32,
            retransmit_burst: 3,
            jitter: Ratio::from_ppb(500_000_000),
            congestion_backoff: Backoff { min: Span::from_millis(100), max: Span::from_secs(10) },
            silence_backoff: Backoff { min: Span::from_millis(10), max: Span::from_secs(10) },
            reward: RewardName::Cwnd,
            weights: WeightsName::Connection,
            initial: InitialName::Capacity,
            next_rtos: 1,
            ack_quiet: Ratio::from_ppb(500_000_000),
            queue_rounds: 8,
            settle_rounds: 1,
            rtt_guard: Span::from_millis(200),
            reorder_guard: false,
            gain_guard: true,
            plb_idle_rounds: plb.idle_rehash_rounds,
            plb_rounds: plb.rehash_rounds,
            plb_pause: plb.suspend_rto,
            mark_mask: 0x3f00_0000,
            on_dead: OnDead::Keep,
            reset_after: Span::from_secs(5),
        }
    }
}

impl PolicySettings {
    /// Checks that there are as many marks as a host may have paths; mark 0 means "no path".
    pub fn check_max_paths(&self, max_paths: usize) -> Result<(), SettingError> {
        let marks = self.mark_mask.checked_shr(self.mark_mask.trailing_zeros()).unwrap_or(0);
        ensure(u64::from(marks) >= max_paths as u64, "mark_mask", "has fewer values than there may be paths")
    }

    /// Whether [`Self::gain_guard`] acts: of the policies one compares what paths give.
    pub fn guards_gain(&self) -> bool {
        self.gain_guard && self.policy == PolicyName::DelayWeighted
    }

    /// What a path weighs before anything is learnt: the setting, but for the paper's policy, which has its own.
    pub fn initial_weights(&self) -> InitialName {
        if self.policy == PolicyName::Paper { InitialName::Available } else { self.initial }
    }
}

impl SettingsTable for PolicySettings {
    const FILE_ONLY: &'static [&'static str] = &["mark_mask", "on_dead", "reset_after"];

    fn check(&self) -> Result<(), SettingError> {
        ensure(self.gamma > 0.0 && self.gamma <= 1.0, "gamma", "must be above 0 and at most 1")?;
        ensure(self.ce_share > Ratio::ZERO, "ce_share", "must be above 0 %")?;
        ensure((1..=64).contains(&self.ce_rounds), "ce_rounds", "must be between 1 and 64")?;
        ensure((1..=64).contains(&self.ce_window), "ce_window", "must be between 1 and 64")?;
        for (key, backoff) in
            [("congestion_backoff", self.congestion_backoff), ("silence_backoff", self.silence_backoff)]
        {
            ensure(backoff.min > Span::ZERO, key, "must have a `min` above zero")?;
            ensure(backoff.min <= backoff.max, key, "must have a `min` that is not above its `max`")?;
        }
        ensure((1..=100).contains(&self.next_rtos), "next_rtos", "must be between 1 and 100")?;
        ensure(self.settle_rounds <= 64, "settle_rounds", "must be at most 64")?;
        let waits = Span::from_secs(1)..=Span::from_secs(600);
        ensure(waits.contains(&self.reset_after), "reset_after", "must be between 1 s and 10 min")?;
        let bits = self.mark_mask.checked_shr(self.mark_mask.trailing_zeros()).unwrap_or(0);
        // Contiguous ones shifted down are one less than a power of two.
        ensure(bits & bits.wrapping_add(1) == 0, "mark_mask", "must be one contiguous run of bits")
    }
}

impl PolicyName {
    /// All policies.
    pub const ALL: [PolicyName; 10] = [
        PolicyName::Static,
        PolicyName::Random,
        PolicyName::Exp3,
        PolicyName::Next,
        PolicyName::LowestRtt,
        PolicyName::Plb,
        PolicyName::Exp3Ix,
        PolicyName::Fixed,
        PolicyName::DelayWeighted,
        PolicyName::Paper,
    ];
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyName::Static => "static",
            PolicyName::Random => "random",
            PolicyName::Exp3 => "exp3",
            PolicyName::Next => "next",
            PolicyName::LowestRtt => "lowest-rtt",
            PolicyName::Plb => "plb",
            PolicyName::Exp3Ix => "exp3-ix",
            PolicyName::Fixed => "fixed",
            PolicyName::DelayWeighted => "delay-weighted",
            PolicyName::Paper => "paper",
        })
    }
}

impl RewardName {
    /// All rewards.
    pub const ALL: [RewardName; 3] = [RewardName::Cwnd, RewardName::Rate, RewardName::Rtt];
}

impl fmt::Display for OnDead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnDead::Keep => "keep",
            OnDead::Reset => "reset",
        })
    }
}

impl fmt::Display for RewardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RewardName::Cwnd => "cwnd",
            RewardName::Rate => "rate",
            RewardName::Rtt => "rtt",
        })
    }
}

impl WeightsName {
    /// All of them.
    pub const ALL: [WeightsName; 2] = [WeightsName::Connection, WeightsName::Prefix];
}

impl fmt::Display for WeightsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WeightsName::Connection => "connection",
            WeightsName::Prefix => "prefix",
        })
    }
}
