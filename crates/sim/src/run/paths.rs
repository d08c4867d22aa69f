//! What hosts know of their SRv6 paths, and what they do when these change.

use std::sync::Arc;

use sidestep_control::{initial_weight, path_usage};
use sidestep_net::NodeId;
use sidestep_policy as policy;
use sidestep_policy::AgentSettings;

use super::{flows::Planned, simulation::Simulation};
use crate::{sr_paths::SrPath, system::Steerer};
use sidestep_engine::FlowId;

impl Simulation<'_> {
    /// What connections of `host` to `peer` learn together.
    pub(super) fn shared(&mut self, host: NodeId, peer: NodeId) -> Option<Arc<policy::Shared>> {
        let set = self.sr_paths.set_of(host, peer)?;
        Some(self.world.steering.shared((host, peer), set))
    }

    /// The paths as the agent gives them to the program.
    pub(super) fn policy_paths(&self, knobs: &AgentSettings, paths: &[SrPath]) -> Vec<policy::Path> {
        let usage = |path: &SrPath| {
            let used = |arc: sidestep_net::ArcId| self.usage[arc.index()].1;
            path_usage(&self.scenario.topology, &path.arcs, used)
        };
        let path = |path: &SrPath| policy::Path {
            id: path.id,
            weight: initial_weight(knobs.initial_weights(), path.capacity, usage(path)),
            bdp: path.capacity.bytes_in(path.rtt),
            rtt: path.rtt,
        };
        paths.iter().map(path).collect()
    }

    /// The controller has computed the path sets anew, and agents have them: connections whose set changed choose from the
    /// new one.
    pub(super) fn adopt_paths(&mut self) {
        let changed = self.sr_paths.set_down(self.conditions.failed());
        if changed.is_empty() {
            return;
        }
        self.world.steering.forget_shared(&changed);
        let flows: Vec<FlowId> = self.open.keys().copied().collect();
        for flow in flows {
            self.adopt_paths_of(flow);
        }
    }

    fn adopt_paths_of(&mut self, flow: FlowId) -> Option<()> {
        let open = self.open.get(&flow)?;
        let Steerer::Policy(knobs) = open.system.mover.clone() else { return None };
        self.world.steering.path_of(flow)?;
        let Planned { from, to, .. } = *self.planned.get(open.planned)?;
        let now = self.world.now();
        let paths = self.sr_paths.between(&mut self.world.network, from, to);
        let back = self.sr_paths.between(&mut self.world.network, to, from);
        for (ends, paths, of_acks) in [((from, to), paths.clone(), false), ((to, from), back.clone(), true)] {
            let candidates = self.policy_paths(&knobs, &paths);
            let routes = paths.iter().map(|path| path.route).collect();
            let shared = self.shared(ends.0, ends.1);
            let to = self.world.steering.handle_paths(now, flow, of_acks, (&candidates, routes), shared);
            self.world.reroute(flow, to);
        }
        if paths.is_empty() {
            // Without any path the agent lets go of the connection, which takes the default route.
            self.world.steering.detach(flow);
            self.route_again(flow);
        }
        let open = self.open.get_mut(&flow)?;
        (open.paths, open.back) = (paths, back);
        Some(())
    }
}
