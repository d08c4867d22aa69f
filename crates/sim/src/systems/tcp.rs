//! Plain TCP on the shortest path.

use crate::{
    SimError,
    system::{Context, System},
};

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    System::tcp(context)
}
