//! Protective ReRoute, as Linux has it: a connection takes a new flow label after timeouts, and routers hash the label.

use super::{Hash, Run, System};
use crate::{error::LabError, plan::Multipath};

/// `SO_TXREHASH` is on for the sockets, and for those of other programs by the namespace's setting.
pub fn build(_: &Run<'_>) -> Result<System, LabError> {
    let sysctls = vec![("core/txrehash", "1".into()), ("ipv6/auto_flowlabels", "1".into())];
    Ok(System { hash: Hash::FlowLabel, rehash: true, sysctls, ..System::new(Multipath::Ecmp) })
}
