//! Protective Load Balancing: Linux gives a connection a new flow label after congested rounds as well.

use sidestep_policy::PlbSettings;
use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, Setup, Steerer, System},
};

/// Protective Load Balancing.
#[derive(Clone, Copy, Debug)]
pub struct Plb;

impl System for Plb {
    fn info(&self) -> SystemInfo {
        crate::PLB
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    let knobs: PlbSettings = context.settings()?;
    Ok(Setup { ecmp: true, mover: Steerer::Label(Some(knobs)), ..Setup::tcp(context)? })
}
