//! How edge routers choose a path for a flow.

use serde::{Deserialize, Serialize};

/// How an edge router chooses one of n paths by a flow's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceMode {
    /// The remainder of the hash, as in the paper on SEMPER; nearly all flows move when n changes.
    #[default]
    Modulo,
    /// The path with the highest random weight; only flows of the path that goes or comes move.
    Rendezvous,
    /// Rendezvous by shares proportional to the paths' capacities.
    Weighted,
}

impl BalanceMode {
    /// All modes.
    pub const ALL: [BalanceMode; 3] = [BalanceMode::Modulo, BalanceMode::Rendezvous, BalanceMode::Weighted];

    /// The name in files and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            BalanceMode::Modulo => "modulo",
            BalanceMode::Rendezvous => "rendezvous",
            BalanceMode::Weighted => "weighted",
        }
    }
}
