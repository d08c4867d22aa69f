//! Protective ReRoute, as Linux has it: a connection takes a new flow label after timeouts, and routers hash the label.

use super::{Hash, Run, System};
use crate::{error::LabError, plan::Multipath};

/// The generator's sockets set `SO_TXREHASH`; the namespace's setting turns it on for other programs.
pub fn build(_: &Run<'_>) -> Result<System, LabError> {
    let sysctls = vec![("core/txrehash", "1".into()), ("ipv6/auto_flowlabels", "1".into())];
    Ok(System { hash: Hash::FlowLabel, rehash: true, sysctls, ..System::new(Multipath::Ecmp) })
}
