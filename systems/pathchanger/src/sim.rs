//! In the simulator: the policy of the eBPF program moves connections among SRv6 paths.

use sidestep_policy::{PolicySettings, raw};
use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, Setup, Steerer, System},
};

/// The path changer.
#[derive(Clone, Copy, Debug)]
pub struct Pathchanger;

/// The path changer with the policy `random`.
#[derive(Clone, Copy, Debug)]
pub struct Random;

impl System for Pathchanger {
    fn info(&self) -> SystemInfo {
        crate::PATHCHANGER
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

impl System for Random {
    fn info(&self) -> SystemInfo {
        crate::RANDOM
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    let settings: PolicySettings = context.settings()?;
    settings.check_max_paths(context.scenario.paths.max_paths).map_err(|problem| context.refuse(problem))?;
    raw::Config::try_from(&settings).map_err(|problem| context.refuse(problem))?;
    Ok(Setup { ecmp: true, mover: Steerer::Policy(settings), ..Setup::tcp(context)? })
}
