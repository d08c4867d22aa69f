//! The Rate Control Protocol's settings.

use serde::{Deserialize, Serialize};

use sidestep_net::{Ratio, SettingError, SettingsTable, Span, settings::ensure};

/// The Rate Control Protocol's settings on every router, with the names of its equation; a system's own parameters
/// override them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RcpSettings {
    /// The share of the spare capacity that a control interval hands out, 0 to 1.
    pub alpha: f64,
    /// The share of the queue that a control interval drains, 0 to 10.
    pub beta: f64,
    /// The target utilisation of the capacity, above 0 and at most 1: below 1 the queue empties.
    pub gamma: f64,
    /// The control interval, between two changes of a rate; the mean round-trip time is used if that is shorter.
    pub slot: Span,
    /// A link's rate at the beginning, as a share of its capacity.
    pub initial_rate: Ratio,
    /// Whether routers spread flows over equal-cost paths.
    pub ecmp: bool,
}

/// The defaults of the authors' ns-2 code (`rcp.cc`: `ALPHA`, `BETA`, `PHI`, `TIMESLOT`, `INIT_RATE_FACT`).
impl Default for RcpSettings {
    fn default() -> Self {
        RcpSettings {
            alpha: 0.4,
            beta: 0.4,
            gamma: 0.95,
            slot: Span::from_millis(10),
            initial_rate: Ratio::from_ppb(50_000_000),
            ecmp: false,
        }
    }
}

impl SettingsTable for RcpSettings {
    fn check(&self) -> Result<(), SettingError> {
        ensure((0.0..=1.0).contains(&self.alpha), "alpha", "must be between 0 and 1")?;
        ensure((0.0..=10.0).contains(&self.beta), "beta", "must be between 0 and 10")?;
        ensure(self.gamma > 0.0 && self.gamma <= 1.0, "gamma", "must be above 0 and at most 1")?;
        ensure(self.slot >= Span::from_micros(1), "slot", "must be at least 1 us")?;
        let rate = self.initial_rate.ppb();
        ensure((1..=1_000_000_000).contains(&rate), "initial_rate", "must be above 0 % and at most 100 %")
    }
}
