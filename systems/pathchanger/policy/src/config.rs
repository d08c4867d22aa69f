//! The settings of the policy and the paths it chooses from, as the kernel reads them.

use sidestep_net::{Bytes, Rate, Ratio, Span};
use thiserror::Error;

use crate::raw::{self, MAX_PATHS};
use crate::{Backoff, PolicyName, PolicySettings, RewardName, WeightsName};

/// The short transfer that paths are compared by: about the first ten segments of a connection (RFC 6928).
const TRANSFER: Bytes = Bytes::new(16_000);

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
    /// What is not in use of its rate, as the controller reports; `None`: that is not known.
    pub room: Option<Rate>,
}

/// Settings or paths that make no policy.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PolicyError {
    /// EXP3's γ is out of its range.
    #[error("gamma is {0}; give a number above 0, at most 1")]
    Gamma(f64),
    /// A back-off's first wait is longer than its longest.
    #[error("{key} begins at {min}, beyond its maximum of {max}")]
    Backoff {
        /// The setting.
        key: &'static str,
        /// The first wait.
        min: Span,
        /// The longest wait.
        max: Span,
    },
    /// There are no paths, or more than fit.
    #[error("a connection chooses from 1 to {MAX_PATHS} paths, not from {0}")]
    PathCount(usize),
}

impl TryFrom<&PolicySettings> for raw::Config {
    type Error = PolicyError;
    fn try_from(settings: &PolicySettings) -> Result<Self, PolicyError> {
        let (congestion, failure) = (settings.congestion_backoff, settings.silence_backoff);
        for (key, Backoff { min, max }) in [("congestion_backoff", congestion), ("silence_backoff", failure)] {
            if min > max {
                return Err(PolicyError::Backoff { key, min, max });
            }
        }
        Ok(raw::Config {
            policy: number(settings.policy),
            gamma_q16: gamma_q16(settings.gamma)?,
            ce_share_q16: share_q16(settings.ce_share),
            ce_rounds: settings.ce_rounds,
            ce_window: settings.ce_window,
            retransmit_burst: settings.retransmit_burst,
            jitter_q16: share_q16(settings.jitter),
            congestion_min_ns: congestion.min.as_nanos(),
            congestion_max_ns: congestion.max.as_nanos(),
            failure_min_ns: failure.min.as_nanos(),
            failure_max_ns: failure.max.as_nanos(),
            reward: reward_number(settings.reward),
            next_rtos: settings.next_rtos,
            settle_rounds: settings.settle_rounds,
            reorder_guard: settings.reorder_guard.into(),
            plb_idle_rounds: settings.plb_idle_rounds,
            plb_rounds: settings.plb_rounds,
            ack_quiet_q16: share_q16(settings.ack_quiet),
            shared: (settings.weights == WeightsName::Prefix || settings.policy == PolicyName::DelayWeighted).into(),
            queue_rounds: settings.queue_rounds,
            gain_guard: settings.guards_gain().into(),
            rtt_guard_ns: settings.rtt_guard.as_nanos(),
            plb_pause_ns: settings.plb_pause.as_nanos(),
        })
    }
}

impl Path {
    /// A path of bandwidth `rate` and round-trip time `rtt`, weighted by its bandwidth.
    pub fn new(id: u32, rate: Rate, rtt: Span) -> Self {
        let kbits = rate.bits_per_sec() / 1_000;
        Path { id, weight: u32::try_from(kbits).unwrap_or(u32::MAX), bdp: rate.bytes_in(rtt), rtt, room: None }
    }

    /// The path as the kernel reads it.
    pub fn to_raw(&self) -> raw::Path {
        let (bdp_bytes, rtt_ns) = (self.bdp.get(), self.rtt.as_nanos());
        // A bandwidth-delay product of bytes takes a delay to send.
        let transfer_ns = u128::from(TRANSFER.get()) * u128::from(rtt_ns) / u128::from(bdp_bytes.max(1));
        let transfer_ns = if bdp_bytes == 0 { 0 } else { u64::try_from(transfer_ns).unwrap_or(u64::MAX) };
        // A path of which nothing is reported passes for an idle one.
        let room = self.room.map_or(u64::MAX >> 1, |room| room.bits_per_sec() / 8);
        raw::Path { id: self.id, weight: self.weight, bdp_bytes, rtt_ns, transfer_ns, room }
    }
}

/// The number that C knows a policy by (`enum pc_policy`).
fn number(policy: PolicyName) -> u32 {
    match policy {
        PolicyName::Static => 0,
        PolicyName::Random => 1,
        PolicyName::Exp3 => 2,
        PolicyName::Next => 3,
        PolicyName::LowestRtt => 4,
        PolicyName::Plb => 5,
        PolicyName::Exp3Ix => 6,
        PolicyName::Fixed => 7,
        PolicyName::DelayWeighted => raw::DELAY_WEIGHTED,
        PolicyName::Paper => 9,
    }
}

/// The number that C knows a reward by (`enum pc_reward`).
fn reward_number(reward: RewardName) -> u32 {
    match reward {
        RewardName::Cwnd => 0,
        RewardName::Rate => 1,
        RewardName::Rtt => 2,
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
    if gamma > 0.0 && gamma <= 1.0 { Ok(q16(gamma).max(1)) } else { Err(PolicyError::Gamma(gamma)) }
}

fn share_q16(share: Ratio) -> u32 {
    q16(share.as_f64())
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
            policy: 8,
            gamma_q16: 6_554,
            ce_share_q16: 32_768,
            ce_rounds: 2,
            ce_window: 32,
            ack_quiet_q16: 32_768,
            shared: 1,
            queue_rounds: 8,
            gain_guard: 1,
            retransmit_burst: 3,
            jitter_q16: 32_768,
            congestion_min_ns: 100_000_000,
            congestion_max_ns: 10_000_000_000,
            failure_min_ns: 10_000_000,
            failure_max_ns: 10_000_000_000,
            reward: 0,
            next_rtos: 1,
            settle_rounds: 1,
            reorder_guard: 0,
            plb_idle_rounds: 3,
            plb_rounds: 12,
            rtt_guard_ns: 200_000_000,
            plb_pause_ns: 60_000_000_000,
        };
        assert_eq!(raw::Config::try_from(&PolicySettings::default()), Ok(expected));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refusal = |change: fn(&mut PolicySettings)| {
            let mut settings = PolicySettings::default();
            change(&mut settings);
            raw::Config::try_from(&settings).unwrap_err().to_string()
        };
        assert_eq!(refusal(|settings| settings.gamma = 0.0), "gamma is 0; give a number above 0, at most 1");
        assert_eq!(refusal(|settings| settings.gamma = f64::NAN), "gamma is NaN; give a number above 0, at most 1");
        assert_eq!(
            refusal(|settings| settings.silence_backoff.min = Span::from_secs(11)),
            "silence_backoff begins at 11 s, beyond its maximum of 10 s"
        );
    }

    #[test]
    fn a_path_is_weighted_by_its_bandwidth() {
        let path = Path::new(7, Rate::from_mbits(100), Span::from_millis(8));
        assert_eq!(
            path,
            Path { id: 7, weight: 100_000, bdp: Bytes::new(100_000), rtt: Span::from_millis(8), room: None }
        );
    }
}
