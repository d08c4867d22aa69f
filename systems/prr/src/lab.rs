//! Protective ReRoute, as Linux has it: a connection takes a new flow label after timeouts, and routers hash the label.

use sidestep_lab::{Hash, LabError, Run, Setup, System, plan::Multipath};
use sidestep_scenario::SystemInfo;

/// Protective ReRoute.
#[derive(Clone, Copy, Debug)]
pub struct Prr;

impl System for Prr {
    fn info(&self) -> SystemInfo {
        crate::PRR
    }

    /// The generator's sockets set `SO_TXREHASH`; the namespace's setting turns it on for other programs.
    fn setup(&self, _: &Run<'_>) -> Result<Setup, LabError> {
        let sysctls = vec![("core/txrehash", "1".into()), ("ipv6/auto_flowlabels", "1".into())];
        Ok(Setup { hash: Hash::FlowLabel, rehash: true, sysctls, ..Setup::new(Multipath::Ecmp) })
    }
}
