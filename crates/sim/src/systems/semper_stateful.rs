//! SEMPER's reference: as `semper`, where edge routers assign subflows to paths in turn and remember it.

use super::semper::with_edges;
use crate::{
    SimError,
    system::{Context, System},
};

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    with_edges(context, true)
}
