//! Intelligent route control: `sidestep edge route-control` on each controlled edge, and `sidestep reflector` on the edge that its hosts
//! send to.

use sidestep_route_control::{IrcMode, IrcSettings};
use std::collections::BTreeSet;

use sidestep_net::NodeId;
use sidestep_results::{Doubt, DoubtKind};

use super::{Run, System};
use crate::{control, daemons::Role, error::LabError, plan::Multipath};

/// The reflectors answer before the controllers ask.
pub fn build(run: &Run<'_>) -> Result<System, LabError> {
    let knobs: IrcSettings = run.settings()?;
    let mut system = System::new(Multipath::Single);
    match knobs.mode {
        IrcMode::None => return Ok(system),
        IrcMode::Ideal => {
            return Err(run.refuse("nobody tells a real edge of impairments: `mode=ideal` is for the simulator"));
        }
        IrcMode::Practical | IrcMode::Predictive => {}
    }
    let sites = control::controlled(run.scenario, &knobs).map_err(|problem| run.refuse(problem))?;
    if sites.is_empty() {
        let text = "no edge with two egresses has hosts that send: nothing is controlled";
        system.doubts.push(Doubt::new(DoubtKind::CouldNotAct, text));
        return Ok(system);
    }
    let far: BTreeSet<NodeId> = sites.iter().map(|site| site.far).collect();
    system.daemons = vec![Role::Reflector(far.into_iter().collect()), Role::RouteControl(knobs, sites)];
    Ok(system)
}
