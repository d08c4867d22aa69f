//! Coupled congestion control: how the windows of a connection's subflows grow together. Windows are in segments.

use super::Coupling;

/// The state of a subflow that coupling needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Congestion window in segments.
    pub cwnd: f64,
    /// Smoothed round-trip time in seconds; not zero.
    pub rtt: f64,
    /// OLIA: segments acknowledged since the last loss, or between the last two, whichever is more.
    pub between_losses: f64,
}

/// Smallest window after a loss (RFC 6356 §3 has windows shrink as RFC 5681 §3.1 does; `mptcp_balia_ssthresh` lets one
/// segment be): one segment would wait for a delayed ACK in each round trip.
const MIN_WINDOW: f64 = 2.0;

/// The growth of the window of `paths[subflow]` for `acked` segments in congestion avoidance.
pub fn increase(coupling: Coupling, paths: &[Path], subflow: usize, acked: f64) -> f64 {
    let Some(own) = paths.get(subflow) else { return 0.0 };
    match coupling {
        Coupling::Reno => acked / own.cwnd,
        // The subflow's own algorithm grows it.
        Coupling::Cubic => 0.0,
        // RFC 6356 §3, equation 1: no subflow grows faster than Reno would, so that LIA harms no other flow on any path.
        Coupling::Lia => {
            let (alpha, total) = lia(paths);
            (alpha * acked / total).min(acked / own.cwnd)
        }
        Coupling::Olia => {
            let share = own.cwnd / (own.rtt * own.rtt) / sum_of_rates(paths).powi(2);
            acked * (share + olia_epsilon(paths, subflow) / own.cwnd)
        }
        // `mptcp_balia_recalc_ai`: a compromise of LIA, which is slow to leave a congested path, and OLIA, which is
        // slow where the network changes.
        Coupling::Balia => {
            let (x, a) = balia(paths, own);
            acked * x / (own.rtt * sum_of_rates(paths).powi(2)) * (1.0 + a) / 2.0 * (4.0 + a) / 5.0
        }
    }
}

/// The window of `paths[subflow]` after a loss there.
pub fn shrink(coupling: Coupling, paths: &[Path], subflow: usize) -> f64 {
    let Some(own) = paths.get(subflow) else { return MIN_WINDOW };
    let less = match coupling {
        // `mptcp_balia_recalc_ai`, too: a path that has less than the best leaves more of its window, three quarters at
        // most.
        Coupling::Balia => own.cwnd / 2.0 * balia(paths, own).1.min(1.5),
        _ => own.cwnd / 2.0,
    };
    (own.cwnd - less).max(MIN_WINDOW)
}

/// LIA's α, and the sum of the windows (RFC 6356, section 3, equation 2):
/// α = w_tot · max_k(w_k / rtt_k²) / (Σ_k w_k / rtt_k)².
/// With it all subflows together get what one TCP gets on the best path: several paths are worth having, and no more.
pub(super) fn lia(paths: &[Path]) -> (f64, f64) {
    let (mut total, mut best) = (0.0, 0.0f64);
    for path in paths {
        total += path.cwnd;
        best = best.max(path.cwnd / (path.rtt * path.rtt));
    }
    (total * best / sum_of_rates(paths).powi(2), total)
}

fn sum_of_rates(paths: &[Path]) -> f64 {
    paths.iter().map(|path| path.cwnd / path.rtt).sum()
}

/// OLIA's ε of one subflow. Paths are ranked by ℓ / rtt², as in the paper, equation 6, and in Linux's former
/// mptcp_olia.c; texts that rank by ℓ² / rtt favour long paths more.
fn olia_epsilon(paths: &[Path], subflow: usize) -> f64 {
    let rank = |path: &Path| path.between_losses / (path.rtt * path.rtt);
    let open = || paths.iter().filter(|path| path.cwnd > 0.0);
    let best = open().map(rank).fold(0.0, f64::max);
    let widest = open().map(|path| path.cwnd).fold(0.0, f64::max);
    let is_best = |path: &Path| rank(path) >= best;
    let is_widest = |path: &Path| path.cwnd >= widest;
    let collected = open().filter(|path| is_best(path) && !is_widest(path)).count();
    if collected == 0 {
        return 0.0;
    }
    let n = open().count() as f64;
    let own = &paths[subflow];
    if is_widest(own) {
        -1.0 / (n * open().filter(|path| is_widest(path)).count() as f64)
    } else if is_best(own) {
        1.0 / (n * collected as f64)
    } else {
        0.0
    }
}

/// BALIA's x_r = w_r / rtt_r and a_r = max_k x_k / x_r.
fn balia(paths: &[Path], own: &Path) -> (f64, f64) {
    let x = own.cwnd / own.rtt;
    let most = paths.iter().map(|path| path.cwnd / path.rtt).fold(x, f64::max);
    (x, most / x)
}
