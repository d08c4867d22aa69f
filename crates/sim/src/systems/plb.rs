//! Protective Load Balancing: Linux gives a connection a new flow label after congested rounds as well.

use sidestep_scenario::Settings;

use crate::{
    SimError,
    system::{Context, Mover, System},
};

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    let Settings::Plb(knobs) = &context.settings else { return Err(context.not_here()) };
    Ok(System { ecmp: true, mover: Mover::Label(Some(*knobs)), ..System::tcp(context)? })
}
