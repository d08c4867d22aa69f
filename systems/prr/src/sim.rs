//! Protective ReRoute: Linux gives a connection a new flow label after timeouts.

use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, Setup, Steerer, System},
};

/// Protective ReRoute.
#[derive(Clone, Copy, Debug)]
pub struct Prr;

impl System for Prr {
    fn info(&self) -> SystemInfo {
        crate::PRR
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    Ok(Setup { ecmp: true, mover: Steerer::Label(None), ..Setup::tcp(context)? })
}
