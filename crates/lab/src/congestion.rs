//! Which congestion control connections have while a system runs: MPTCP's subflows one, all others that of the scenario.

use std::path::Path;

use sidestep_linux::bpf::{
    congestion_control::{CongestionControl, Wanted},
    coupled::Registration,
};
use sidestep_proto::mptcp::Coupling;

use crate::{error::LabError, system::congestion_controls};

/// Gives the lab's connections their congestion control while it lives.
#[derive(Debug)]
pub struct Congestion {
    names: String,
    // In this order: nothing is given any more when the registration ends.
    control: CongestionControl,
    _registration: Option<Registration>,
}

impl Congestion {
    /// For the connections of `cgroup`: that with the name `tcp`, and for subflows of MPTCP what couples them.
    pub fn attach(cgroup: &Path, tcp: &str, coupling: Option<Coupling>) -> Result<Self, LabError> {
        let registration = coupling.and_then(Coupling::algorithm).map(Registration::new).transpose()?;
        let mptcp = coupling.map(Coupling::as_str);
        for name in [Some(tcp), mptcp.filter(|_| registration.is_none())].into_iter().flatten() {
            check(name)?;
        }
        let wanted = Wanted { tcp: Some(tcp), mptcp, namespace: None };
        let names = [Some(tcp), mptcp].into_iter().flatten().collect::<Vec<_>>().join("` or `");
        Ok(Congestion { names, control: CongestionControl::attach(cgroup, wanted)?, _registration: registration })
    }

    /// An error if the kernel did not let connections have it.
    pub fn check(&self) -> Result<(), LabError> {
        match self.control.counts()?.refused {
            0 => Ok(()),
            connections => Err(LabError::CongestionControlRefused { name: self.names.clone(), connections }),
        }
    }
}

/// Checks that the kernel has a congestion control of this name.
pub fn check(name: &str) -> Result<(), LabError> {
    let available = congestion_controls()?;
    if available.iter().any(|other| other == name) {
        return Ok(());
    }
    Err(LabError::CongestionControl { name: name.into(), available: available.join(" ") })
}
