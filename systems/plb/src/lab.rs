//! Protective Load Balancing, as Linux has it: a connection takes a new flow label after congested rounds.

use sidestep_net::{Ratio, Span};
use sidestep_policy::PlbSettings;

use sidestep_lab::{Hash, LabError, Run, Setup, System, congestion_controls, plan::Multipath};
use sidestep_scenario::SystemInfo;

/// The congestion control that calls PLB (net/ipv4/tcp_dctcp.c). BBR calls it only outside of the mainline kernel.
const DCTCP: &str = "dctcp";
/// The most congested rounds that Linux counts (`plb_max_rounds` in net/ipv4/sysctl_net_ipv4.c).
const MAX_ROUNDS: u32 = 31;

/// Protective Load Balancing.
#[derive(Clone, Copy, Debug)]
pub struct Plb;

impl System for Plb {
    fn info(&self) -> SystemInfo {
        crate::PLB
    }

    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        setup(run)
    }
}

/// Sets `net.ipv4.tcp_plb_…` of every namespace as the scenario says; the congestion control must be DCTCP.
fn setup(run: &Run<'_>) -> Result<Setup, LabError> {
    let available = congestion_controls()?;
    if !available.iter().any(|name| name == DCTCP) {
        return Err(run.lacks(format!(
            "of Linux's congestion controls only dctcp calls PLB, and this kernel does not have it; it has: {}",
            available.join(" ")
        )));
    }
    if run.scenario.tcp.congestion_control != DCTCP {
        return Err(run.refuse("Linux balances connections of DCTCP alone; set [tcp] congestion_control = \"dctcp\""));
    }
    let settings: PlbSettings = run.settings()?;
    if settings.idle_rehash_rounds > MAX_ROUNDS || settings.rehash_rounds > MAX_ROUNDS {
        return Err(run.refuse(format!("Linux counts at most {MAX_ROUNDS} congested rounds")));
    }
    let sysctls = vec![
        ("ipv4/tcp_plb_enabled", "1".into()),
        ("ipv4/tcp_plb_cong_thresh", threshold(settings.cong_thresh).to_string()),
        ("ipv4/tcp_plb_idle_rehash_rounds", settings.idle_rehash_rounds.to_string()),
        ("ipv4/tcp_plb_rehash_rounds", settings.rehash_rounds.to_string()),
        ("ipv4/tcp_plb_suspend_rto_sec", pause(settings.suspend_rto).to_string()),
        ("core/txrehash", "1".into()),
        ("ipv6/auto_flowlabels", "1".into()),
    ];
    Ok(Setup { hash: Hash::FlowLabel, rehash: true, sysctls, ..Setup::new(Multipath::Ecmp) })
}

/// A share as Linux has it, in 256ths (`TCP_PLB_SCALE`).
fn threshold(share: Ratio) -> u32 {
    (share.as_f64() * 256.0).round() as u32
}

/// A pause as Linux has it, in whole seconds up to 255.
fn pause(span: Span) -> u64 {
    (span.as_nanos().div_ceil(1_000_000_000)).min(255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_the_units_of_the_kernel() {
        assert_eq!([50, 100].map(|percent| threshold(Ratio::from_ppb(percent * 10_000_000))), [128, 256]);
        assert_eq!([0, 1_500, 60_000, 900_000].map(|millis| pause(Span::from_millis(millis))), [0, 2, 60, 255]);
    }
}
