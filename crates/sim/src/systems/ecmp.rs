//! TCP whose connections routers hash onto equal-cost paths.

use crate::{
    SimError,
    system::{Context, System},
};

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    Ok(System { ecmp: true, ..System::tcp(context)? })
}
