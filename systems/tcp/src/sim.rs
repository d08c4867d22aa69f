//! In the simulator.

use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, Setup, System},
};

/// Plain TCP on the shortest path.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

/// TCP whose connections routers hash onto equal-cost paths.
#[derive(Clone, Copy, Debug)]
pub struct Ecmp;

impl System for Tcp {
    fn info(&self) -> SystemInfo {
        crate::TCP
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        Setup::tcp(context)
    }
}

impl System for Ecmp {
    fn info(&self) -> SystemInfo {
        crate::ECMP
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        Ok(Setup { ecmp: true, ..Setup::tcp(context)? })
    }
}
