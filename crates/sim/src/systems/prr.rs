//! Protective ReRoute: Linux gives a connection a new flow label after timeouts.

use crate::{
    SimError,
    system::{Context, Mover, System},
};

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    Ok(System { ecmp: true, mover: Mover::Label(None), ..System::tcp(context)? })
}
