//! The path changer: the policy of the eBPF program moves connections among SRv6 paths.

use sidestep_scenario::Settings;
use sidestep_policy as policy;

use crate::{
    SimError,
    system::{Context, Mover, System},
};

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    let Settings::Agent(knobs) = &context.settings else { return Err(context.not_here()) };
    let wrong = |problem| SimError::Policy { system: context.spec.clone(), problem };
    policy::raw::Config::try_from(knobs).map_err(wrong)?;
    Ok(System { ecmp: true, mover: Mover::Policy(knobs.clone()), ..System::tcp(context)? })
}
