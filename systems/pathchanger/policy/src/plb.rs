//! Protective Load Balancing's settings.

use serde::{Deserialize, Serialize};

use sidestep_net::{Ratio, SettingError, SettingsTable, Span};

/// Protective Load Balancing as Linux has it; names and defaults of its `net.ipv4.tcp_plb_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlbSettings {
    /// Share of CE marks from which a round counts as congested.
    pub cong_thresh: Ratio,
    /// Congested rounds in a row after which an idle connection gets a new flow label; 0: never.
    pub idle_rehash_rounds: u32,
    /// Congested rounds in a row after which a connection with packets in flight gets a new flow label; 0: never.
    pub rehash_rounds: u32,
    /// After a timeout there is no new label for this time and a random time of at most the same length.
    pub suspend_rto: Span,
}

impl Default for PlbSettings {
    fn default() -> Self {
        PlbSettings {
            cong_thresh: Ratio::from_ppb(500_000_000),
            idle_rehash_rounds: 3,
            rehash_rounds: 12,
            suspend_rto: Span::from_secs(60),
        }
    }
}

impl SettingsTable for PlbSettings {
    fn check(&self) -> Result<(), SettingError> {
        // Zero switches either number of rounds off, as in Linux, and every share and span is one that Linux takes.
        Ok(())
    }
}
