//! The knobs of the policy and the paths it chooses from.

pub use sidestep_model::scenario::{PolicyName as Policy, RewardName as Reward, WeightsName as Weights};
use sidestep_model::{Bytes, Rate, Span, scenario::AgentKnobs};
use thiserror::Error;

use crate::raw::{self, MAX_PATHS};

/// The wait after a decision: it doubles from `min` to `max`, and returns to `min` after four quiet intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub min: Span,
    /// The longest wait; at most about 20 hours are used.
    pub max: Span,
}

/// The knobs of the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How the next path is chosen.
    pub policy: Policy,
    /// In 0..=1 without 0. EXP3: the share of draws that ignore what was learnt; EXP3-IX: how fast it learns.
    pub gamma: f64,
    /// Share of CE marks among the packets delivered in a round that makes it congested: 0 for any mark, above 1 for
    /// never.
    pub ce_share: f64,
    /// Congested rounds that make a signal, among the last `ce_window`; 0 counts as 1.
    pub ce_rounds: u32,
    /// Rounds looked back at, at most 64; `ce_rounds` or fewer: they must follow each other.
    pub ce_window: u32,
    /// Segments retransmitted in one round that make a signal; 0 for never.
    pub retransmit_burst: u32,
    /// Share in 0..=1 by which waits vary: ± half of it.
    pub jitter: f64,
    /// Waits after decisions on congestion: CE marks and fast retransmits.
    pub congestion: Backoff,
    /// Waits after decisions on silence: timeouts.
    pub silence: Backoff,
    /// What EXP3 and EXP3-IX learn from.
    pub reward: Reward,
    /// Who learns together: each connection for itself, or all to a destination.
    pub weights: Weights,
    /// Timeouts in a row after which the policy `next` moves; 0 counts as 1.
    pub next_rtos: u32,
    /// Share of the RTO without new data after which data that comes again is a signal; 0 for never.
    pub ack_quiet: f64,
    /// Rounds after a move that are not judged.
    pub settle_rounds: u32,
    /// No moves to paths whose round trip is so much longer than the present one's, nor beyond the RTO; zero: to any.
    pub rtt_guard: Span,
    /// Whether a move that reorders packets halves the reward of what it led to.
    pub reorder_guard: bool,
    /// Congested rounds in a row after which the policy `plb` moves when idle; 0 for never.
    pub plb_idle_rounds: u32,
    /// The same with packets in flight.
    pub plb_rounds: u32,
    /// No moves of `plb` on congestion for once to twice this after a timeout.
    pub plb_pause: Span,
}

/// A path to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The caller's name for it; decisions go by index.
    pub id: u32,
    /// Its initial weight; 0 counts as 1.
    pub weight: u32,
    /// Its bandwidth-delay product: the congestion window that earns the full reward.
    pub bdp: Bytes,
    /// Its round-trip propagation time; zero: not known.
    pub rtt: Span,
}

/// Knobs or paths that make no policy.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PolicyError {
    /// A share is out of its range.
    #[error("{knob} is {value}; give a number {range}")]
    Share {
        /// The knob.
        knob: &'static str,
        /// What it was set to.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
    /// A back-off's first wait is longer than its longest.
    #[error("the back-off of {knob} begins at {min}, beyond its maximum of {max}")]
    Backoff {
        /// The knob.
        knob: &'static str,
        /// The first wait.
        min: Span,
        /// The longest wait.
        max: Span,
    },
    /// There are no paths, or more than fit.
    #[error("a connection chooses from 1 to {MAX_PATHS} paths, not from {0}")]
    PathCount(usize),
}

impl Default for Config {
    fn default() -> Self {
        let max = Span::from_secs(10);
        Config {
            policy: Policy::Exp3,
            gamma: 0.1,
            ce_share: 0.5,
            ce_rounds: 2,
            ce_window: 32,
            retransmit_burst: 3,
            jitter: 0.5,
            congestion: Backoff { min: Span::from_millis(100), max },
            silence: Backoff { min: Span::from_millis(10), max },
            reward: Reward::Cwnd,
            weights: Weights::Connection,
            next_rtos: 1,
            ack_quiet: 0.5,
            settle_rounds: 1,
            rtt_guard: Span::from_millis(200),
            reorder_guard: false,
            plb_idle_rounds: 3,
            plb_rounds: 12,
            plb_pause: Span::from_secs(60),
        }
    }
}

impl Config {
    /// The knobs as the kernel reads them; fails if one is out of its range.
    pub fn to_raw(&self) -> Result<raw::Config, PolicyError> {
        for (knob, Backoff { min, max }) in [("congestion", self.congestion), ("silence", self.silence)] {
            if min > max {
                return Err(PolicyError::Backoff { knob, min, max });
            }
        }
        if self.ce_share.is_nan() || self.ce_share < 0.0 {
            return Err(PolicyError::Share { knob: "ce_share", value: self.ce_share, range: "of at least 0" });
        }
        if self.ack_quiet.is_nan() || self.ack_quiet < 0.0 {
            return Err(PolicyError::Share { knob: "ack_quiet", value: self.ack_quiet, range: "of at least 0" });
        }
        Ok(raw::Config {
            policy: number(self.policy),
            gamma_q16: gamma_q16(self.gamma)?,
            ce_share_q16: q16(self.ce_share),
            ce_rounds: self.ce_rounds,
            ce_window: self.ce_window,
            retransmit_burst: self.retransmit_burst,
            jitter_q16: if (0.0..=1.0).contains(&self.jitter) {
                q16(self.jitter)
            } else {
                return Err(PolicyError::Share { knob: "jitter", value: self.jitter, range: "from 0 to 1" });
            },
            congestion_min_ns: self.congestion.min.as_nanos(),
            congestion_max_ns: self.congestion.max.as_nanos(),
            silence_min_ns: self.silence.min.as_nanos(),
            silence_max_ns: self.silence.max.as_nanos(),
            reward: reward_number(self.reward),
            next_rtos: self.next_rtos,
            settle_rounds: self.settle_rounds,
            reorder_guard: self.reorder_guard.into(),
            plb_idle_rounds: self.plb_idle_rounds,
            plb_rounds: self.plb_rounds,
            ack_quiet_q16: q16(self.ack_quiet),
            shared: (self.weights == Weights::Prefix).into(),
            unused: 0,
            rtt_guard_ns: self.rtt_guard.as_nanos(),
            plb_pause_ns: self.plb_pause.as_nanos(),
        })
    }
}

impl Path {
    /// A path of bandwidth `rate` and round-trip time `rtt`, weighted by its bandwidth.
    pub fn new(id: u32, rate: Rate, rtt: Span) -> Self {
        let kbits = rate.bits_per_sec() / 1_000;
        Path { id, weight: u32::try_from(kbits).unwrap_or(u32::MAX), bdp: rate.bytes_in(rtt), rtt }
    }

    /// The path as the kernel reads it.
    pub fn to_raw(&self) -> raw::Path {
        raw::Path { id: self.id, weight: self.weight, bdp_bytes: self.bdp.get(), rtt_ns: self.rtt.as_nanos() }
    }
}

/// The settings as a scenario or a configuration file gives them.
impl From<&AgentKnobs> for Config {
    fn from(knobs: &AgentKnobs) -> Self {
        let backoff = |backoff: sidestep_model::scenario::Backoff| Backoff { min: backoff.min, max: backoff.max };
        Config {
            policy: knobs.policy,
            gamma: knobs.gamma,
            ce_share: knobs.ce_share.as_f64(),
            ce_rounds: knobs.ce_rounds,
            ce_window: knobs.ce_window,
            retransmit_burst: knobs.retransmit_burst,
            jitter: knobs.jitter.as_f64(),
            congestion: backoff(knobs.congestion_backoff),
            silence: backoff(knobs.silence_backoff),
            reward: knobs.reward,
            weights: knobs.weights,
            next_rtos: knobs.next_rtos,
            ack_quiet: knobs.ack_quiet.as_f64(),
            settle_rounds: knobs.settle_rounds,
            rtt_guard: knobs.rtt_guard,
            reorder_guard: knobs.reorder_guard,
            plb_idle_rounds: knobs.plb_idle_rounds,
            plb_rounds: knobs.plb_rounds,
            plb_pause: knobs.plb_pause,
        }
    }
}

/// The number that C knows a policy by (`enum pc_policy`).
fn number(policy: Policy) -> u32 {
    match policy {
        Policy::Static => 0,
        Policy::Random => 1,
        Policy::Exp3 => 2,
        Policy::Next => 3,
        Policy::LowestRtt => 4,
        Policy::Plb => 5,
        Policy::Exp3Ix => 6,
    }
}

/// The number that C knows a reward by (`enum pc_reward`).
fn reward_number(reward: Reward) -> u32 {
    match reward {
        Reward::Cwnd => 0,
        Reward::Rate => 1,
        Reward::Rtt => 2,
    }
}

/// The paths as the array that C reads, and how many there are.
pub(crate) fn raw_paths(paths: &[Path]) -> Result<([raw::Path; MAX_PATHS], u32), PolicyError> {
    if paths.is_empty() || paths.len() > MAX_PATHS {
        return Err(PolicyError::PathCount(paths.len()));
    }
    let mut array = [raw::Path::default(); MAX_PATHS];
    for (slot, path) in array.iter_mut().zip(paths) {
        *slot = path.to_raw();
    }
    Ok((array, paths.len() as u32))
}

/// EXP3's γ in Q16.
pub(crate) fn gamma_q16(gamma: f64) -> Result<u32, PolicyError> {
    if gamma > 0.0 && gamma <= 1.0 {
        Ok(q16(gamma).max(1))
    } else {
        Err(PolicyError::Share { knob: "gamma", value: gamma, range: "above 0, at most 1" })
    }
}

/// A number of at least 0 in Q16, saturating.
pub(crate) fn q16(value: f64) -> u32 {
    (value * 65_536.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_numbers_that_the_kernel_gets() {
        let expected = raw::Config {
            policy: 2,
            gamma_q16: 6_554,
            ce_share_q16: 32_768,
            ce_rounds: 2,
            ce_window: 32,
            ack_quiet_q16: 32_768,
            shared: 0,
            unused: 0,
            retransmit_burst: 3,
            jitter_q16: 32_768,
            congestion_min_ns: 100_000_000,
            congestion_max_ns: 10_000_000_000,
            silence_min_ns: 10_000_000,
            silence_max_ns: 10_000_000_000,
            reward: 0,
            next_rtos: 1,
            settle_rounds: 1,
            reorder_guard: 0,
            plb_idle_rounds: 3,
            plb_rounds: 12,
            rtt_guard_ns: 200_000_000,
            plb_pause_ns: 60_000_000_000,
        };
        assert_eq!(Config::default().to_raw(), Ok(expected));
    }

    #[test]
    fn knobs_out_of_range_are_refused_by_name() {
        let refusal = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.to_raw().unwrap_err().to_string()
        };
        assert_eq!(refusal(|c| c.gamma = 0.0), "gamma is 0; give a number above 0, at most 1");
        assert_eq!(refusal(|c| c.gamma = f64::NAN), "gamma is NaN; give a number above 0, at most 1");
        assert_eq!(refusal(|c| c.jitter = 1.5), "jitter is 1.5; give a number from 0 to 1");
        assert_eq!(refusal(|c| c.ce_share = -0.1), "ce_share is -0.1; give a number of at least 0");
        assert_eq!(
            refusal(|c| c.silence.min = Span::from_secs(11)),
            "the back-off of silence begins at 11 s, beyond its maximum of 10 s"
        );
    }

    #[test]
    fn a_path_is_weighted_by_its_bandwidth() {
        let path = Path::new(7, Rate::from_mbits(100), Span::from_millis(8));
        assert_eq!(path, Path { id: 7, weight: 100_000, bdp: Bytes::new(100_000), rtt: Span::from_millis(8) });
    }
}
