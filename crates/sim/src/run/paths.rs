//! What hosts know of their SRv6 paths, and what they do when these change.

use std::sync::Arc;

use sidestep_control::{initial_weight, path_usage, room};
use sidestep_engine::{FlowId, Network};
use sidestep_net::{ArcId, Bytes, NodeId, Rate, Span, Time, Topology};
use sidestep_policy as policy;
use sidestep_policy::PolicySettings;
use sidestep_results::rate_of;

use super::{flows::Planned, simulation::Simulation};
use crate::{
    sr_paths::{SrPath, SrPaths},
    system::Steerer,
};

/// The path sets as the controller has computed them last, and the usage of links that agents know of.
pub(super) struct KnownPaths {
    pub(super) sr_paths: SrPaths,
    /// Bytes that each arc had carried when usage was last looked at, and the rate since the time before.
    usage: Vec<(Bytes, Rate)>,
}

impl KnownPaths {
    /// Of links nothing is known yet.
    pub(super) fn new(sr_paths: SrPaths, topology: &Topology) -> Self {
        KnownPaths { sr_paths, usage: vec![(Bytes::default(), Rate::default()); topology.arc_count()] }
    }

    /// Takes note of what arcs have carried, as routers report every `interval`.
    pub(super) fn report_usage(&mut self, now: Time, network: &mut Network, interval: Span) {
        for (index, (bytes, rate)) in self.usage.iter_mut().enumerate() {
            let (counters, queued) = network.arc(now, ArcId(index as u32));
            let sent = counters.bytes - queued;
            *rate = rate_of(sent - *bytes, interval);
            *bytes = sent;
        }
    }

    /// How much of a path is in use, as reported last.
    fn usage_of(&self, topology: &Topology, path: &SrPath) -> Rate {
        path_usage(topology, &path.arcs, |arc: ArcId| self.usage[arc.index()].1)
    }

    /// What is not in use of a path's rate.
    fn room(&self, topology: &Topology, path: &SrPath) -> Rate {
        room(path.capacity, self.usage_of(topology, path))
    }

    /// The paths as the agent gives them to the program.
    pub(super) fn policy_paths(
        &self,
        topology: &Topology,
        settings: &PolicySettings,
        paths: &[SrPath],
    ) -> Vec<policy::Path> {
        let path = |path: &SrPath| policy::Path {
            id: path.id,
            weight: initial_weight(settings.initial_weights(), path.capacity, self.usage_of(topology, path)),
            bdp: path.capacity.bytes_in(path.rtt),
            rtt: path.rtt,
            room: Some(self.room(topology, path)),
        };
        paths.iter().map(path).collect()
    }
}

impl Simulation<'_> {
    /// The table of so many `paths` that connections from `host` to `peer` share.
    pub(super) fn shared(
        &mut self,
        settings: &PolicySettings,
        (host, peer): (NodeId, NodeId),
        paths: usize,
    ) -> Option<Arc<policy::Shared>> {
        let set = self.known.sr_paths.set_of(host, peer)?;
        let new = || match settings.guards_gain() {
            true => policy::Shared::of_host(host.0, paths),
            false => policy::Shared::default(),
        };
        Some(self.world.steering.shared((host, peer), set, new))
    }

    /// Agents get what routers report of links, and connections that go by what paths give use it from now on.
    pub(super) fn adopt_usage(&mut self) {
        let topology = &self.scenario.topology;
        let guards = |mover: &Steerer| matches!(mover, Steerer::Policy(settings) if settings.guards_gain());
        for (flow, open) in self.connections.open.iter().filter(|(_, open)| guards(&open.system.mover)) {
            let rooms = open.paths.iter().map(|path| self.known.room(topology, path));
            self.world.steering.set_rooms(*flow, rooms);
        }
    }

    /// The controller has computed the path sets anew, and agents have them: connections whose set changed choose from the
    /// new one.
    pub(super) fn adopt_paths(&mut self) {
        let changed = self.known.sr_paths.set_down(self.links.failed());
        if changed.is_empty() {
            return;
        }
        self.world.steering.forget_shared(&changed);
        for flow in self.connections.first_flows() {
            self.adopt_paths_of(flow);
        }
    }

    fn adopt_paths_of(&mut self, flow: FlowId) -> Option<()> {
        let open = self.connections.open.get(&flow)?;
        let Steerer::Policy(settings) = open.system.mover.clone() else { return None };
        self.world.steering.path_of(flow)?;
        let Planned { from, to, .. } = *self.traffic.planned.get(open.planned)?;
        let now = self.world.now();
        let paths = self.known.sr_paths.between(&mut self.world.network, from, to);
        let back = self.known.sr_paths.between(&mut self.world.network, to, from);
        for (ends, paths, of_acks) in [((from, to), paths.clone(), false), ((to, from), back.clone(), true)] {
            let candidates = self.known.policy_paths(&self.scenario.topology, &settings, &paths);
            let routes = paths.iter().map(|path| path.route).collect();
            let shared = self.shared(&settings, ends, paths.len());
            let to = self.world.steering.handle_paths(now, flow, of_acks, (&candidates, routes), shared);
            self.world.reroute(flow, to);
        }
        if paths.is_empty() {
            // Without any path the agent lets go of the connection, which takes the default route.
            self.world.steering.detach(flow);
            self.route_again(flow);
        }
        let open = self.connections.open.get_mut(&flow)?;
        (open.paths, open.back) = (paths, back);
        Some(())
    }
}
