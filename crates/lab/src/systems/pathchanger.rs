//! The path changer: a controller, a daemon on every router, an agent on every host.

use super::{Run, System};
use crate::{daemons::Role, error::LabError, plan::Multipath};

/// The agents have the paths before the first connection opens.
pub fn build(run: &Run<'_>) -> Result<System, LabError> {
    let daemons = vec![Role::Controller, Role::Router, Role::Agent(run.agent().clone())];
    Ok(System { daemons, ..System::new(Multipath::Ecmp) })
}
