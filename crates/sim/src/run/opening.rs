//! How a connection begins: on which routes, in segments of what length, and steered by whom.

use std::{collections::BTreeMap, sync::Arc};

use sidestep_engine::{FlowId, FlowSpec, Move, RouteId, Sizes, segments};
use sidestep_flow_hash::FlowKey;
use sidestep_net::{ArcId, Bytes, NodeId, Time};
use sidestep_policy::{self as policy, PolicyName, PolicySettings};
use sidestep_proto::mptcp::PathManager;
use sidestep_scenario::{Flow, SystemSpec};

use super::{SimError, agenda::Task, capture::Endpoints, connections::Open, flows::Planned, simulation::Simulation};
use crate::{
    routing::EcmpPaths,
    sr_paths::SrPath,
    steering::{Labelled, PathSelector, PendingConnection},
    system::{Setup, Steerer, Transport},
};

/// The smallest segments, in bytes.
const MIN_MSS: u16 = 64;

impl Simulation<'_> {
    /// Finds requests over what is not TCP, before anything runs.
    pub(super) fn check_requests(&self, whole_run: &SystemSpec) -> Result<(), SimError> {
        for (number, flow) in self.scenario.flows.iter().enumerate() {
            let asks = matches!(flow, Flow::OpenLoop(flow) if flow.request.is_some());
            if asks && !matches!(self.systems.of_flow(number).transport, Transport::Tcp) {
                let own = flow.transport().and_then(|transport| transport.system.as_ref());
                let system = own.unwrap_or(whole_run).clone();
                return Err(SimError::Request { number, flow: flow.name().to_owned(), system });
            }
        }
        Ok(())
    }

    /// Finds pairs without a route, and segments that do not fit, before anything runs.
    pub(super) fn check_routes(&mut self) -> Result<(), SimError> {
        // By whether the flow uses equal-cost paths, and by its headers: one of each kind is enough.
        type Kind = (NodeId, NodeId, bool, u16, Option<u16>);
        let mut pairs: BTreeMap<Kind, (usize, String)> = BTreeMap::new();
        for (number, flow) in self.scenario.flows.iter().enumerate() {
            let (system, wished) = (self.systems.of_flow(number).clone(), self.wished_mss(number));
            for (from, to) in flow.pairs() {
                let kind = (*from, *to, system.ecmp, system.headers, wished);
                pairs.entry(kind).or_insert_with(|| (number, flow.name().to_owned()));
            }
        }
        for ((from, to, ecmp, ..), (number, flow)) in pairs {
            for (from, to) in [(from, to), (to, from)] {
                let topology = &self.scenario.topology;
                let equal = self.routing.equal(topology, &mut self.world.network, from, to, ecmp);
                let mtu = equal.map_err(|problem| SimError::NoRoute { number, flow: flow.clone(), problem })?.mtu;
                if self.mss(number, mtu, []).is_none() {
                    return Err(self.does_not_fit(number, flow, mtu));
                }
            }
        }
        Ok(())
    }

    /// The payload of a segment that the scenario wishes for the connections of a flow.
    fn wished_mss(&self, number: usize) -> Option<u16> {
        let own =
            self.scenario.flows.get(number).and_then(Flow::transport).and_then(|transport| transport.tcp.as_ref());
        own.unwrap_or(&self.scenario.tcp).mss
    }

    fn does_not_fit(&self, number: usize, flow: String, mtu: u32) -> SimError {
        let wished = self.wished_mss(number);
        SimError::Mss { number, flow, mss: wished.unwrap_or(MIN_MSS).into(), mtu, wished: wished.is_some() }
    }

    /// Payload of a segment on a route of this mtu, and on each of these paths; `None` if the one wished does not fit.
    fn mss<'p>(&self, number: usize, mtu: u32, paths: impl IntoIterator<Item = &'p SrPath>) -> Option<u16> {
        let headers = u32::from(self.systems.of_flow(number).headers);
        let room = paths.into_iter().map(|path| path.mtu).chain([mtu]).min()?;
        let most = room.saturating_sub(headers).min(60_000);
        let wished = self.wished_mss(number).map_or(most, u32::from);
        // A segment list takes what it takes from the segments; only a route that is too narrow by itself is refused.
        let fits = wished <= mtu.saturating_sub(headers);
        let mss = wished.min(most);
        (fits && mss >= u32::from(MIN_MSS)).then_some(mss as u16)
    }

    pub(super) fn open(&mut self, index: usize) -> Result<(), SimError> {
        let Planned { from, to, ports, size, request, stop, number, flow: name, .. } =
            self.traffic.planned[index].clone();
        let system = self.systems.of_flow(number).clone();
        let no_route = |problem| SimError::NoRoute { number, flow: name.clone(), problem };
        let topology = &self.scenario.topology;
        let network = &mut self.world.network;
        let forward = self.routing.equal(topology, network, from, to, system.ecmp).map_err(no_route)?;
        let reverse = self.routing.equal(topology, network, to, from, system.ecmp).map_err(no_route)?;
        let (mut paths, mut back): (Arc<[SrPath]>, Arc<[SrPath]>) = Default::default();
        if matches!(system.mover, Steerer::Policy(_)) {
            paths = self.known.sr_paths.between(network, from, to);
            back = self.known.sr_paths.between(network, to, from);
        }
        let subflows = self.subflow_paths(&system, (from, to), &forward, &reverse);
        let mtus = subflows.iter().flatten().flat_map(|(forward, reverse)| [forward.mtu, reverse.mtu]);
        let mtu = mtus.chain([forward.mtu, reverse.mtu]).min().unwrap_or(0);
        let edges = system.edges.as_ref().and_then(|edges| edges.room(from, to));
        let mtu = edges.map_or(mtu, |room| mtu.min(room));
        // A connection that never moves needs room on its one path only.
        let is_static = matches!(&system.mover, Steerer::Policy(settings) if settings.policy == PolicyName::Static);
        let used = if is_static { 1 } else { usize::MAX };
        let both = paths.iter().take(used).chain(back.iter().take(used));
        let mss = self.mss(number, mtu, both).ok_or_else(|| self.does_not_fit(number, name.clone(), mtu))?;
        let (keys, taken) =
            self.addressing.take_keys(&system, (from, to), ports, subflows.as_ref().map_or(1, Vec::len));
        let mut choice = |(key, (forward, reverse)): (&FlowKey, &(Arc<EcmpPaths>, Arc<EcmpPaths>))| {
            let (there, back) = self.addressing.hashes(key);
            let there = forward.pick(there);
            let network = &mut self.world.network;
            (there, if system.backwards { self.routing.backwards(network, there) } else { reverse.pick(back) })
        };
        let routes: Vec<_> = match &subflows {
            Some(subflows) => keys.iter().zip(subflows).map(choice).collect(),
            None => vec![choice((&keys[0], &(forward.clone(), reverse.clone())))],
        };
        let ways: Vec<RouteId> = routes.iter().map(|(there, _)| *there).collect();
        self.systems.note_ways(&system, (from, to), paths.len(), &forward, &ways);
        let spec = FlowSpec {
            forward: routes[0].0,
            reverse: routes[0].1,
            bytes: size.map(Bytes::get),
            mss,
            tcp: self.world.tcp(system.tcp),
        };
        let flow = match &system.transport {
            Transport::Tcp => match request {
                Some(request) => self.world.add_request(spec, request.get()),
                None => self.world.add_flow(spec),
            },
            Transport::Mptcp(_, config) => self.world.add_connection(spec, *config, &routes),
            Transport::Own(make) => {
                let arc = self.world.network.first_arc(spec.forward);
                self.world.add_endpoint(spec, (make.0)(&spec, arc))
            }
        };
        match &system.mover {
            Steerer::None => {}
            Steerer::Policy(settings) => self.steer_by_policy(settings, flow, (from, to), mss, (&paths, &back)),
            Steerer::Label(rule) => {
                let seed = self.addressing.hash_seed();
                let data = Labelled { key: keys[0], seed, paths: forward };
                let acks = Labelled { key: keys[0].reversed(), seed, paths: reverse };
                self.world.steering.by_label(flow, from, data, acks, rule.as_ref());
            }
        }
        for (flow, key) in (flow.0..).map(FlowId).zip(&keys) {
            // Routers that use one path of several take the first for all flows.
            let hashes = match &system.edges {
                Some(_) => [self.addressing.edge_hash(key); 2].into(),
                None if system.ecmp => self.addressing.hashes(key),
                None => (0, 0),
            };
            self.world.set_hashes(flow, hashes);
            if let Some(answers) = self.world.answers_of(flow) {
                self.world.set_hashes(answers, (hashes.1, hashes.0));
            }
        }
        self.note_ends(index, flow, &keys, mss)?;
        let open = Open {
            planned: index,
            subflows_at_warmup: vec![0; keys.len()],
            system,
            keys,
            taken,
            mss,
            paths,
            back,
            acked_at_warmup: 0,
            acked_at_sample: 0,
        };
        self.connections.open.insert(flow, open);
        self.world.open(flow);
        if stop < Time::ZERO + self.scenario.duration {
            self.agenda.at(stop, Task::Close(flow));
        }
        Ok(())
    }

    /// The equal-cost paths of each subflow, and back; `None` for what is not MPTCP.
    ///
    /// Subflows of `ndiffports` share the paths between the hosts; of `fullmesh` each has those between a pair of interfaces.
    pub(super) fn subflow_paths(
        &mut self,
        system: &Setup,
        (from, to): (NodeId, NodeId),
        forward: &Arc<EcmpPaths>,
        reverse: &Arc<EcmpPaths>,
    ) -> Option<Vec<(Arc<EcmpPaths>, Arc<EcmpPaths>)>> {
        let settings = system.subflows()?;
        let (topology, ecmp) = (&self.scenario.topology, system.ecmp);
        if settings.path_manager == PathManager::Ndiffports {
            return Some(vec![(forward.clone(), reverse.clone()); settings.subflows as usize]);
        }
        let (local, remote) = (topology.outgoing(from), topology.outgoing(to));
        let network = &mut self.world.network;
        let mut between = |(up, down): (ArcId, ArcId)| {
            let there = self.routing.between(topology, network, (up, down), ecmp)?;
            let back = self.routing.between(topology, network, (down.reversed(), up.reversed()), ecmp)?;
            Some((there, back))
        };
        let pairs = local.iter().flat_map(|up| remote.iter().map(|down| (*up, down.reversed())));
        let paths: Vec<_> = pairs.filter_map(&mut between).collect();
        // An outage may leave no pair: packets then leave as they did before, and are lost.
        Some(if paths.is_empty() { vec![(forward.clone(), reverse.clone())] } else { paths })
    }

    /// Lets the capture know whose packets those of a connection's flows are.
    fn note_ends(&mut self, index: usize, first: FlowId, keys: &[FlowKey], mss: u16) -> Result<(), SimError> {
        // What is copied of flows that had these numbers before is theirs.
        self.write_copies()?;
        let Planned { from, to, size, request, number, .. } = self.traffic.planned[index];
        let system = &self.systems.of_flow(number);
        let multipath = matches!(system.transport, Transport::Mptcp(..));
        let Some(capture) = &mut self.capture else { return Ok(()) };
        let options = if multipath { Sizes::default().mptcp_data } else { 0 };
        let last = |bytes: Option<Bytes>| {
            let sized = bytes.map(Bytes::get).filter(|bytes| !multipath && *bytes > 0);
            sized.map(|bytes| segments(Some(bytes), mss)).map(|(count, payload)| (count - 1, payload))
        };
        for (number, key) in keys.iter().enumerate() {
            let ports = (key.source_port, key.destination_port);
            let flow = FlowId(first.0 + number as u32);
            let sends =
                Endpoints { from, to, ports, mss, options, multipath, last: last(size), fin: None, other: None };
            let Some(answers) = self.world.answers_of(flow) else {
                capture.opened(flow, sends);
                continue;
            };
            let (from, to, ports) = (to, from, (ports.1, ports.0));
            capture.opened(flow, Endpoints { last: last(request), other: Some(answers), ..sends });
            capture.opened(answers, Endpoints { from, to, ports, other: Some(flow), ..sends });
        }
        Ok(())
    }

    /// The client's program moves data, the server's moves ACKs. SYN-ACKs are drawn a path each.
    fn steer_by_policy(
        &mut self,
        settings: &PolicySettings,
        flow: FlowId,
        (from, to): (NodeId, NodeId),
        mss: u16,
        (paths, back): (&[SrPath], &[SrPath]),
    ) {
        let Some(data) = self.choose(settings, (from, to), paths) else { return };
        data.connection.connect();
        if let Some(timeout) = data.connection.syn_timeout(self.world.now()) {
            self.world.set_syn_timeout(flow, timeout.rto, timeout.more_retries);
        }
        let acks = self.ask(settings, (to, from), back);
        let first = Move { forward: data.route(), reverse: None };
        self.world.steering.by_policy(flow, mss, data, acks);
        self.world.reroute(flow, first);
    }

    /// What `node` draws SYN-ACKs from; `None` where there is nothing to choose from.
    fn ask(
        &mut self,
        settings: &PolicySettings,
        (node, peer): (NodeId, NodeId),
        paths: &[SrPath],
    ) -> Option<PendingConnection> {
        let candidates = self.known.policy_paths(&self.scenario.topology, settings, paths);
        let request =
            policy::Request::new(settings, &candidates, self.shared(settings, (node, peer), paths.len())).ok()?;
        Some(PendingConnection { node, peer, request, routes: paths.iter().map(|path| path.route).collect() })
    }

    /// What the program of `node` begins with; `None` where there is nothing to choose from.
    fn choose(
        &mut self,
        settings: &PolicySettings,
        (node, peer): (NodeId, NodeId),
        paths: &[SrPath],
    ) -> Option<PathSelector> {
        let random = self.world.steering.draw(node);
        let (now, candidates) = (self.world.now(), self.known.policy_paths(&self.scenario.topology, settings, paths));
        let shared = self.shared(settings, (node, peer), paths.len());
        let connection = policy::Connection::begin(settings, &candidates, shared, now, random).ok()?;
        let routes = paths.iter().map(|path| path.route).collect();
        Some(PathSelector::new(node, connection, routes))
    }
}
