//! OLIA (draft-khalili-mptcp-congestion-control), kept up to date with each subflow's change instead of computed over all
//! subflows for each ACK.
//!
//! LIA keeps sending on congested paths, which takes from others without gain. OLIA sends least where most is lost, and
//! its ε moves window to a path that has become good while its window is still small.

use super::Path;

/// What OLIA needs of all subflows: the sum of their rates, the widest and the best of them.
///
/// A change of one subflow costs a few operations. Only when the single widest or best subflow falls back are all looked
/// at.
#[derive(Clone, Debug)]
pub struct Olia {
    windows: Vec<f64>,
    rates: Vec<f64>,
    /// ℓ / rtt² of each subflow: the rate that Reno would have on its path, squared, is proportional to that.
    ranks: Vec<f64>,
    sum_of_rates: f64,
    /// Changes until the sum is added up again, which bounds its rounding errors.
    changes_left: u32,
    open: u64,
    widest: Largest,
    best: Largest,
}

/// The subflows with the largest of a quantity, as a set of bits.
#[derive(Clone, Copy, Debug)]
struct Largest {
    value: f64,
    members: u64,
}

/// The rank and the window of a subflow that does not count.
const NOTHING: f64 = f64::NEG_INFINITY;
/// Our choice: a thousand roundings of a double are far below what a window shows, and one sum in this number of changes costs
/// nothing.
const CHANGES: u32 = 1_024;

impl Olia {
    /// Most subflows of a connection: our choice, as sets of them are then words.
    pub const MAX_SUBFLOWS: usize = u64::BITS as usize;

    /// For `subflows` subflows, of which none counts yet; those beyond [`MAX_SUBFLOWS`](Self::MAX_SUBFLOWS) never will.
    pub fn new(subflows: usize) -> Self {
        let count = subflows.min(Self::MAX_SUBFLOWS);
        let none = Largest { value: NOTHING, members: 0 };
        Olia {
            windows: vec![NOTHING; count],
            rates: vec![0.0; count],
            ranks: vec![NOTHING; count],
            sum_of_rates: 0.0,
            changes_left: CHANGES,
            open: 0,
            widest: none,
            best: none,
        }
    }

    /// Takes a subflow's new state; `None`: it does not count.
    #[inline]
    pub fn set(&mut self, subflow: usize, path: Option<&Path>) {
        let (window, rate, rank) = match path {
            Some(path) => {
                let rate = path.cwnd / path.rtt;
                (path.cwnd, rate, path.between_losses / (path.rtt * path.rtt))
            }
            None => (NOTHING, 0.0, NOTHING),
        };
        let Some(present) = self.rates.get_mut(subflow) else { return };
        let bit = 1 << subflow;
        self.open = if path.is_some() { self.open | bit } else { self.open & !bit };
        self.sum_of_rates += rate - std::mem::replace(present, rate);
        self.changes_left -= 1;
        if self.changes_left == 0 {
            self.changes_left = CHANGES;
            self.sum_of_rates = self.rates.iter().sum();
        }
        self.widest.change(subflow, window, &mut self.windows);
        self.best.change(subflow, rank, &mut self.ranks);
    }

    /// The window of a subflow as it was when it was last [set](Self::set); `None` if it does not count.
    #[inline]
    pub fn window(&self, subflow: usize) -> Option<f64> {
        self.windows.get(subflow).copied().filter(|window| *window != NOTHING)
    }

    /// The growth of a subflow's window for `acked` segments in congestion avoidance, for each of them (w_r / rtt_r²) /
    /// (Σ_p w_p / rtt_p)² + ε_r / w_r, as the draft and `mptcp_olia_cong_avoid` of the former MPTCP Linux have it. The
    /// first term alone sends nothing over paths that lose more.
    #[inline]
    pub fn increase(&self, subflow: usize, path: &Path, acked: f64) -> f64 {
        if subflow >= self.windows.len() {
            return 0.0;
        }
        let share = path.cwnd / (path.rtt * path.rtt) / (self.sum_of_rates * self.sum_of_rates);
        acked * (share + self.epsilon(subflow) / path.cwnd)
    }

    /// OLIA's ε: window moves from the widest subflows to the best that are not among them (`mptcp_get_epsilon`). What
    /// the ones gain the others lose, a segment over the number of subflows in a round trip.
    #[inline]
    fn epsilon(&self, subflow: usize) -> f64 {
        let collected = self.best.members & !self.widest.members;
        if collected == 0 {
            return 0.0;
        }
        let (bit, open) = (1 << subflow, f64::from(self.open.count_ones()));
        if self.widest.members & bit != 0 {
            -1.0 / (open * f64::from(self.widest.members.count_ones()))
        } else if collected & bit != 0 {
            1.0 / (open * f64::from(collected.count_ones()))
        } else {
            0.0
        }
    }
}

impl Largest {
    /// Takes the new value of one of `values`.
    #[inline]
    fn change(&mut self, index: usize, value: f64, values: &mut [f64]) {
        let Some(present) = values.get_mut(index) else { return };
        if *present == value {
            return;
        }
        *present = value;
        let bit = 1 << index;
        if value > self.value {
            *self = Largest { value, members: bit };
        } else if value == self.value {
            self.members |= bit;
        } else if self.members & bit != 0 {
            self.members &= !bit;
            if self.members == 0 {
                self.search(values);
            }
        }
    }

    #[inline(never)]
    fn search(&mut self, values: &[f64]) {
        *self = Largest { value: NOTHING, members: 0 };
        for (index, value) in values.iter().enumerate() {
            if *value > self.value {
                *self = Largest { value: *value, members: 1 << index };
            } else if *value == self.value && *value != NOTHING {
                self.members |= 1 << index;
            }
        }
    }
}
