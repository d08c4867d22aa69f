//! How a connection begins: on which ways, in segments of what length, and steered by whom.

use std::{collections::BTreeMap, sync::Arc};

use rand_core::Rng;
use sidestep_model::{
    Bytes, NodeId, Time,
    scenario::{AgentKnobs, Flow, PathManager},
};
use sidestep_policy as policy;
use sidestep_proto::mptcp;

use super::{
    SimError,
    capture::Endpoints,
    flows::Planned,
    setup::Moves,
    simulation::{Action, Open, Simulation},
};
use crate::{
    engine::{FlowId, FlowSpec, Move},
    routing::{Equal, HOST_SRH, SrPath},
    steering::Chosen,
};

/// Where the ports of MPTCP's further subflows begin, and how many there are.
const SUBFLOW_PORT: u16 = 8_000;
const SUBFLOW_PORTS: u32 = 24_000;

/// The smallest segments, in bytes.
const MIN_MSS: u16 = 64;

impl Simulation<'_> {
    /// Finds pairs without a route, and segments that do not fit, before anything runs.
    pub(super) fn check_routes(&mut self) -> Result<(), SimError> {
        let mut pairs: BTreeMap<(NodeId, NodeId), (usize, String)> = BTreeMap::new();
        for (number, flow) in self.scenario.flows.iter().enumerate() {
            let of: &[(NodeId, NodeId)] = match flow {
                Flow::Bulk(flow) => &flow.pairs,
                Flow::Poisson(flow) => &flow.pairs,
                Flow::ClosedLoop(flow) => &flow.pairs,
                Flow::Cbr(flow) => &flow.pairs,
                Flow::Exec(_) => &[],
            };
            for pair in of {
                pairs.entry(*pair).or_insert_with(|| (number, flow.name().to_owned()));
            }
        }
        for ((from, to), (number, flow)) in pairs {
            for (from, to) in [(from, to), (to, from)] {
                let topology = &self.scenario.topology;
                let equal = self.routing.equal(topology, &mut self.world.network, from, to, self.setup.ecmp);
                let mtu = equal.map_err(|problem| SimError::NoRoute { number, flow: flow.clone(), problem })?.mtu;
                if self.mss(mtu, &[]).is_none() {
                    return Err(self.does_not_fit(number, flow, mtu));
                }
            }
        }
        Ok(())
    }

    fn does_not_fit(&self, number: usize, flow: String, mtu: u32) -> SimError {
        let wished = self.scenario.tcp.mss;
        SimError::Mss { number, flow, mss: wished.unwrap_or(MIN_MSS).into(), mtu, wished: wished.is_some() }
    }

    /// Payload of a segment on a route of this mtu, and on each of these paths; `None` if the one wished does not fit.
    fn mss(&self, mtu: u32, paths: &[SrPath]) -> Option<u16> {
        let sizes = self.setup.sizes;
        let mptcp = if self.setup.subflows.is_some() { sizes.mptcp_data } else { 0 };
        let headers = u32::from(sizes.header + mptcp);
        let room = paths.iter().map(|path| path.mtu.saturating_sub(u32::from(HOST_SRH))).chain([mtu]).min()?;
        let most = room.saturating_sub(headers).min(60_000);
        let wished = self.scenario.tcp.mss.map_or(most, u32::from);
        // A segment list takes what it takes from the segments; only a route that is too narrow by itself is refused.
        let fits = wished <= mtu.saturating_sub(headers);
        let mss = wished.min(most);
        (fits && mss >= u32::from(MIN_MSS)).then_some(mss as u16)
    }

    pub(super) fn open(&mut self, index: usize) -> Result<(), SimError> {
        let Planned { from, to, size, stop, number, flow: name, .. } = self.planned[index].clone();
        let no_route = |problem| SimError::NoRoute { number, flow: name.clone(), problem };
        let topology = &self.scenario.topology;
        let ecmp = self.setup.ecmp;
        let network = &mut self.world.network;
        let forward = self.routing.equal(topology, network, from, to, ecmp).map_err(no_route)?.clone();
        let reverse = self.routing.equal(topology, network, to, from, ecmp).map_err(no_route)?.clone();
        let mut paths = Vec::new();
        let mut back = Vec::new();
        if matches!(self.setup.moves, Moves::Policy(_)) {
            paths = self.routing.paths(topology, network, from, to).to_vec();
            back = self.routing.paths(topology, network, to, from).to_vec();
        }
        let subflows = self.subflow_ways((from, to), &forward, &reverse);
        let ways = subflows.iter().flatten().flat_map(|(forward, reverse)| [forward.mtu, reverse.mtu]);
        let mtu = ways.chain([forward.mtu, reverse.mtu]).min().unwrap_or(0);
        let both: Vec<SrPath> = paths.iter().chain(&back).cloned().collect();
        let mss = self.mss(mtu, &both).ok_or_else(|| self.does_not_fit(number, name.clone(), mtu))?;
        let bytes = size.map(Bytes::get);
        let (one, other) = (self.random.next_u32(), self.random.next_u32());
        let spec = FlowSpec { forward: forward.pick(one), reverse: reverse.pick(other), bytes, mss };
        let (flow, count) = match subflows {
            None => (self.world.add_flow(spec), 1),
            Some(subflows) => {
                let mut pick = |(forward, reverse): &(Equal, Equal)| {
                    (forward.pick(self.random.next_u32()), reverse.pick(self.random.next_u32()))
                };
                let routes: Vec<_> = subflows.iter().map(&mut pick).collect();
                (self.world.add_connection(spec, &routes), routes.len() as u32)
            }
        };
        match self.setup.moves.clone() {
            Moves::Nothing => {}
            Moves::Policy(knobs) => self.steer_by_policy(&knobs, flow, (from, to), mss, (&paths, &back)),
            Moves::Label(_) => self.world.steering.by_label(flow, from, forward, reverse),
        }
        self.note_ends(index, flow, count, mss)?;
        let paths = paths.into_iter().map(|path| path.name).collect();
        let open = Open { planned: index, count, mss, paths, acked_at_warmup: 0, acked_at_sample: 0 };
        self.open.insert(flow, open);
        self.world.open(flow);
        if stop < Time::ZERO + self.scenario.duration {
            self.at(stop, Action::Close(flow));
        }
        Ok(())
    }

    /// The ways of each subflow, and back; `None` for plain TCP.
    ///
    /// Those of `ndiffports` share the ways between the hosts; of `fullmesh` each has those between a pair of interfaces.
    pub(super) fn subflow_ways(
        &mut self,
        (from, to): (NodeId, NodeId),
        forward: &Equal,
        reverse: &Equal,
    ) -> Option<Vec<(Equal, Equal)>> {
        let knobs = self.setup.subflows?;
        let (topology, ecmp) = (&self.scenario.topology, self.setup.ecmp);
        let manager = match knobs.path_manager {
            PathManager::Ndiffports => mptcp::PathManager::Ndiffports(knobs.subflows),
            PathManager::Fullmesh => mptcp::PathManager::Fullmesh,
        };
        let (local, remote) = (topology.outgoing(from), topology.outgoing(to));
        let pairs = manager.subflows(local.len(), remote.len());
        if knobs.path_manager == PathManager::Ndiffports {
            return Some(vec![(forward.clone(), reverse.clone()); pairs.len()]);
        }
        let network = &mut self.world.network;
        let mut ways = |(near, far): (usize, usize)| {
            let (up, down) = (local[near], remote[far].reversed());
            let there = self.routing.between(topology, network, (up, down), ecmp)?;
            let back = self.routing.between(topology, network, (down.reversed(), up.reversed()), ecmp)?;
            Some((there, back))
        };
        let ways: Vec<_> = pairs.into_iter().filter_map(&mut ways).collect();
        // An outage may leave no pair: packets then leave as they did before, and are lost.
        Some(if ways.is_empty() { vec![(forward.clone(), reverse.clone())] } else { ways })
    }

    /// Tells the capture whose packets those of a connection's flows are.
    fn note_ends(&mut self, index: usize, first: FlowId, count: u32, mss: u16) -> Result<(), SimError> {
        // What is copied of flows that had these numbers before is theirs.
        self.write_copies()?;
        let Some(capture) = &mut self.capture else { return Ok(()) };
        let Planned { from, to, ports, size, .. } = self.planned[index];
        let single = self.setup.subflows.is_none();
        let options = if single { 0 } else { self.setup.sizes.mptcp_data };
        let last = size.map(Bytes::get).filter(|bytes| single && *bytes > 0).map(|bytes| {
            let before = (bytes - 1) / u64::from(mss);
            (before as u32, (bytes - before * u64::from(mss)) as u16)
        });
        for number in 0..count {
            let flow = first.0 + number;
            // Subflows after the first have ports below those of connections.
            let client = if number == 0 { ports.0 } else { SUBFLOW_PORT + (flow % SUBFLOW_PORTS) as u16 };
            let ports = (client, ports.1);
            capture.opened(FlowId(flow), Endpoints { from, to, ports, mss, options, multipath: !single, last });
        }
        Ok(())
    }

    /// The client's program moves data, the server's moves ACKs.
    fn steer_by_policy(
        &mut self,
        knobs: &AgentKnobs,
        flow: FlowId,
        (from, to): (NodeId, NodeId),
        mss: u16,
        (paths, back): (&[SrPath], &[SrPath]),
    ) {
        let Some(data) = self.choose(knobs, (from, to), paths) else { return };
        let acks = self.choose(knobs, (to, from), back);
        let first = Move { forward: data.route(), reverse: acks.as_ref().and_then(Chosen::route) };
        self.world.steering.by_policy(flow, mss, data, acks);
        self.world.reroute(flow, first);
    }

    /// What the program of `node` begins with; `None` where there is nothing to choose from.
    fn choose(&mut self, knobs: &AgentKnobs, (node, peer): (NodeId, NodeId), paths: &[SrPath]) -> Option<Chosen> {
        let random = self.world.steering.draw(node);
        let (now, candidates) = (self.world.now(), self.policy_paths(paths));
        let shared = self.shared(node, peer);
        let connection = policy::Connection::open_among(knobs, &candidates, shared, now, random).ok()?;
        let routes = paths.iter().map(|path| path.route).collect();
        Some(Chosen { node, connection: Box::new(connection), routes })
    }

    /// What connections of `host` learn together with this one: those to the prefix of the peer's access router.
    fn shared(&mut self, host: NodeId, peer: NodeId) -> Option<Arc<policy::Shared>> {
        let topology = &self.scenario.topology;
        let mut routers = topology.outgoing(peer).iter().map(|arc| topology.head(*arc));
        let exit = routers.find(|node| topology.is_router(*node))?;
        Some(self.world.steering.shared(host, exit))
    }

    /// The paths as the agent gives them to the program: weighed by the bandwidth left, at least a twentieth of it.
    fn policy_paths(&self, paths: &[SrPath]) -> Vec<policy::Path> {
        let path = |(index, path): (usize, &SrPath)| {
            let capacity = path.capacity.bits_per_sec();
            let used = path.arcs.iter().map(|arc| self.usage[arc.index()].1.bits_per_sec()).max().unwrap_or(0);
            let left = capacity.saturating_sub(used).max(capacity / 20);
            policy::Path {
                id: index as u32 + 1,
                weight: u32::try_from(left / 1_000).unwrap_or(u32::MAX),
                bdp: path.capacity.bytes_in(path.rtt),
                rtt: path.rtt,
            }
        };
        paths.iter().enumerate().map(path).collect()
    }
}
