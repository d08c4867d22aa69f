//! One system's run under one seed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    net::Ipv6Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rand_pcg::Pcg32;
use sidestep_model::{
    ArcId, Bytes, Channel, Direction, LinkId, Node, NodeId, Rate, Scenario, Span, Time, Topology,
    scenario::{Change, Event, EventDirection, Flow, SystemSpec},
    srv6,
};
use sidestep_paths::Igp;
use sidestep_policy::flow_hash::FlowKey;
use sidestep_proto::link::LinkState;
use sidestep_results::{
    ArcState, FlowRecord, LinkSampler, Recorder, Records, SampleKind, SamplePoint, WriteError, rate_of,
};

use super::{
    Observer, SimError,
    capture::Capture,
    flows::{Namer, Planned, plan},
    loops::{Stream, User},
};
use crate::{
    engine::{FlowId, Move, Network, Sizes, Stopped, World},
    routing::{EcmpPaths, Routing},
    steering::{Steer, read},
    system::{MakeBehaviour, System},
};

/// A run in virtual time.
pub(super) struct Simulation<'a> {
    pub(super) scenario: &'a Scenario,
    /// By flow of the scenario: the system that it has.
    pub(super) systems: Vec<Arc<System>>,
    /// By node: the address that flows from there have.
    pub(super) addresses: Vec<Ipv6Addr>,
    /// From which routers' hashes begin.
    pub(super) hash_seed: u32,
    pub(super) world: World<Steer>,
    pub(super) routing: Routing,
    agenda: BinaryHeap<Reverse<(Time, u32, Task)>>,
    entries: u32,
    pub(super) planned: Vec<Planned>,
    pub(super) namer: Namer<'a>,
    pub(super) users: Vec<User>,
    pub(super) streams: Vec<Stream>,
    /// The connections that are open, by their first flow.
    pub(super) open: BTreeMap<FlowId, Open>,
    channels: Vec<Channel>,
    failed: BTreeSet<LinkId>,
    links: LinkSampler,
    arcs: Vec<ArcState>,
    /// Bytes that each arc had carried when usage was last looked at, and the rate since the time before.
    pub(super) usage: Vec<(Bytes, Rate)>,
    pub(super) random: Pcg32,
    /// Where packets of links are written that are watched.
    pub(super) capture: Option<Capture>,
    last_sample: Time,
    /// Links crossed that the observer knows of.
    reported: u64,
}

/// What is to be done at a certain time, in this order where times are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// The event of this index happens.
    Event(usize),
    /// Routers have heard of what happened to links.
    Converge,
    /// The planned connection of this index opens.
    Open(usize),
    /// The connection of this first flow ends.
    Close(FlowId),
    /// The user of this index has thought.
    Think(usize),
    /// The constant-rate stream of this index sends.
    Send(usize),
    Warmup,
    /// Agents report usage.
    Usage,
    Sample,
}

/// A connection in progress.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) planned: usize,
    pub(super) system: Arc<System>,
    /// What routers hash of each of its flows: several of MPTCP.
    pub(super) keys: Vec<FlowKey>,
    pub(super) mss: u16,
    /// Names of the paths that it is moved among.
    pub(super) paths: Vec<String>,
    pub(super) acked_at_warmup: u64,
    pub(super) acked_at_sample: u64,
}

/// How often routers report usage, as the lab's do.
const USAGE_INTERVAL: Span = Span::from_secs(1);

impl<'a> Simulation<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        igp: &Arc<Igp>,
        system: &SystemSpec,
        seed: u64,
    ) -> Result<Self, SimError> {
        Self::watched(scenario, igp, system, seed, None)
    }

    /// As [`new`](Self::new), with the packets of some links written down: `directory` gets a file for each.
    pub(super) fn watched(
        scenario: &'a Scenario,
        igp: &Arc<Igp>,
        system: &SystemSpec,
        seed: u64,
        watch: Option<(&Path, &[LinkId])>,
    ) -> Result<Self, SimError> {
        let topology = &scenario.topology;
        let mut network = Network::new(topology, seed, scenario.tcp.send_jitter);
        let (whole_run, systems) = systems(scenario, system)?;
        install(topology, &mut network, system, &whole_run, &systems)?;
        let routing = Routing::new(igp.clone(), scenario.paths);
        network.set_forwarding(routing.forwarding(topology));
        let capture = watch.map(|(directory, links)| Capture::new(directory, topology, links)).transpose()?;
        if let Some(capture) = &capture {
            network.watch(&capture.arcs());
        }
        let steer = Steer::new(seed, topology.nodes().len());
        let world = World::new(network, whole_run.tcp, Sizes::default(), steer);
        let address = |node: &Node| node.prefix.map_or(Ipv6Addr::UNSPECIFIED, srv6::host_address);
        let mut simulation = Simulation {
            scenario,
            systems,
            addresses: topology.nodes().iter().map(address).collect(),
            hash_seed: (seed ^ (seed >> 32)) as u32,
            world,
            routing,
            agenda: BinaryHeap::new(),
            entries: 0,
            planned: plan(scenario, seed),
            namer: Namer::new(scenario),
            users: Vec::new(),
            streams: Vec::new(),
            open: BTreeMap::new(),
            channels: (0..topology.arc_count() as u32).map(|arc| *topology.channel(ArcId(arc))).collect(),
            failed: BTreeSet::new(),
            links: LinkSampler::new(topology),
            arcs: Vec::new(),
            usage: vec![(Bytes::default(), Rate::default()); topology.arc_count()],
            random: Pcg32::new(seed, u64::MAX / 2),
            capture,
            last_sample: Time::ZERO,
            reported: 0,
        };
        simulation.check_routes()?;
        for (index, event) in scenario.events.iter().enumerate() {
            simulation.at(Time::ZERO + event.at, Task::Event(index));
        }
        for index in 0..simulation.planned.len() {
            let start = simulation.planned[index].start;
            simulation.at(start, Task::Open(index));
        }
        simulation.begin_loops(seed)?;
        simulation.at(Time::ZERO + scenario.warmup, Task::Warmup);
        simulation.at(Time::ZERO + scenario.sample, Task::Sample);
        simulation.at(Time::ZERO + USAGE_INTERVAL, Task::Usage);
        Ok(simulation)
    }

    /// Runs to the end, or until `stop`; returns whether that was before the end.
    pub(super) fn run(
        &mut self,
        stop: &AtomicBool,
        mut writer: Option<&mut Records>,
        recorder: &mut Recorder,
        observer: &dyn Observer,
    ) -> Result<bool, SimError> {
        let end = Time::ZERO + self.scenario.duration;
        let mut ended = false;
        loop {
            let next = self.agenda.peek().map_or(end, |Reverse((at, ..))| *at).min(end);
            match self.world.run_until(next) {
                Stopped::Finished(flow) => self.finished(flow, true, &mut writer, recorder)?,
                Stopped::Reached => {
                    let due = |agenda: &BinaryHeap<Reverse<(Time, u32, Task)>>| {
                        agenda.peek().is_some_and(|Reverse((at, ..))| *at <= next)
                    };
                    while due(&self.agenda) {
                        let Some(Reverse((_, _, action))) = self.agenda.pop() else { break };
                        self.act(action, &mut writer, recorder, observer)?;
                        if action == Task::Sample && stop.load(Ordering::Relaxed) {
                            ended = true;
                        }
                    }
                }
            }
            if next >= end || ended {
                break;
            }
        }
        let left: Vec<FlowId> = self.open.keys().copied().collect();
        for flow in left {
            self.finished(flow, false, &mut writer, recorder)?;
        }
        self.write_copies()?;
        if let Some(capture) = self.capture.take() {
            capture.finish()?;
        }
        self.take_moves(recorder);
        if ended {
            recorder.note(format!(
                "interrupted after {} of {}",
                self.world.now().since(Time::ZERO),
                self.scenario.duration
            ));
        }
        Ok(ended)
    }

    /// Writes what was copied since this was called last.
    pub(super) fn write_copies(&mut self) -> Result<(), SimError> {
        if let Some(capture) = &mut self.capture {
            capture.write(&self.world.network.take_copies())?;
        }
        Ok(())
    }

    pub(super) fn at(&mut self, time: Time, action: Task) {
        self.entries += 1;
        self.agenda.push(Reverse((time, self.entries, action)));
    }

    fn act(
        &mut self,
        action: Task,
        writer: &mut Option<&mut Records>,
        recorder: &mut Recorder,
        observer: &dyn Observer,
    ) -> Result<(), SimError> {
        let now = self.world.now();
        match action {
            Task::Event(index) => self.change(index),
            Task::Converge => self.converge(),
            Task::Open(index) => self.open(index)?,
            Task::Think(user) => self.transfer(user)?,
            Task::Send(stream) => self.send(stream),
            Task::Close(flow) => {
                if self.open.contains_key(&flow) {
                    self.finished(flow, false, writer, recorder)?;
                }
            }
            Task::Warmup => {
                for (flow, open) in &mut self.open {
                    open.acked_at_warmup = self.world.acked_bytes(*flow);
                }
            }
            Task::Usage => {
                self.report_usage();
                self.at(now + USAGE_INTERVAL, Task::Usage);
            }
            Task::Sample => {
                self.sample(writer, recorder)?;
                self.write_copies()?;
                self.at(now + self.scenario.sample, Task::Sample);
                let traversals = self.world.network.traversals();
                observer.runs(self.scenario.sample, traversals - self.reported);
                self.reported = traversals;
            }
        }
        Ok(())
    }

    fn report_usage(&mut self) {
        let now = self.world.now();
        for (index, (bytes, rate)) in self.usage.iter_mut().enumerate() {
            let (counters, queued) = self.world.network.arc(now, ArcId(index as u32));
            let sent = counters.bytes - queued;
            *rate = rate_of(sent - *bytes, USAGE_INTERVAL);
            *bytes = sent;
        }
    }

    /// Something happens to links.
    fn change(&mut self, index: usize) {
        let now = self.world.now();
        let Event { links, direction, change, .. } = self.scenario.events[index].clone();
        for link in &links {
            let directions: &[Direction] = match direction {
                EventDirection::Both => &[Direction::AToB, Direction::BToA],
                EventDirection::Forward => &[Direction::AToB],
                EventDirection::Reverse => &[Direction::BToA],
            };
            for arc in directions.iter().map(|direction| link.arc(*direction)) {
                let channel = &mut self.channels[arc.index()];
                match change {
                    Change::Down => self.world.network.set_state(now, arc, LinkState::Down),
                    Change::Up => self.world.network.set_state(now, arc, LinkState::Up),
                    Change::Blackhole => self.world.network.set_state(now, arc, LinkState::Blackhole),
                    Change::Rate(rate) => channel.rate = rate,
                    Change::Delay(delay) => channel.delay = delay,
                    Change::Loss(loss) => channel.loss = loss,
                }
                self.world.network.set_channel(now, arc, &self.channels[arc.index()]);
            }
            match change {
                Change::Down => self.failed.insert(*link),
                Change::Up => self.failed.remove(link),
                _ => continue,
            };
        }
        if matches!(change, Change::Down | Change::Up) {
            self.at(now + self.scenario.routing.convergence, Task::Converge);
        }
    }

    /// The IGP has found its routes around links that are down. Only flows whose route is gone move. Connections on SRv6
    /// paths stay where they are: a path that is forced is forced; the path changer has to leave it.
    fn converge(&mut self) {
        let topology = &self.scenario.topology;
        self.routing.reconverge(topology, &self.failed);
        self.world.network.set_forwarding(self.routing.forwarding(topology));
        let flows: Vec<FlowId> = self.open.keys().copied().collect();
        for flow in flows {
            if self.world.steering.path_of(flow).is_none() {
                self.route_again(flow);
            }
        }
        self.route_streams_again();
    }

    /// Routes a connection's flows as routers have it now.
    fn route_again(&mut self, first: FlowId) -> Option<()> {
        let open = self.open.get(&first)?;
        let (system, keys) = (open.system.clone(), open.keys.clone());
        let Planned { from, to, .. } = *self.planned.get(open.planned)?;
        let (topology, network) = (&self.scenario.topology, &mut self.world.network);
        let forward = self.routing.equal(topology, network, from, to, system.ecmp).ok()?;
        let reverse = self.routing.equal(topology, network, to, from, system.ecmp).ok()?;
        let present = self.world.routes(first);
        let labelled = self.world.steering.repath(first, present, (forward.clone(), reverse.clone()));
        if let Some(to) = labelled {
            self.world.reroute(first, to);
            return Some(());
        }
        let subflows = self.subflow_paths(&system, (from, to), &forward, &reverse).unwrap_or_default();
        let both = (forward, reverse);
        for (index, key) in keys.iter().enumerate() {
            // Where interfaces are gone there are fewer pairs of them than subflows.
            let (forward, reverse): &(Arc<EcmpPaths>, Arc<EcmpPaths>) = subflows.get(index).unwrap_or(&both);
            let flow = FlowId(first.0 + index as u32);
            let present = self.world.routes(flow);
            let (there, back) = self.hashes(key);
            let to = Move {
                forward: Some(forward.keep_or_pick(present.0, there)),
                reverse: Some(reverse.keep_or_pick(present.1, back)),
            };
            self.world.reroute(flow, to);
        }
        Some(())
    }

    /// A connection is over: records it.
    fn finished(
        &mut self,
        flow: FlowId,
        completed: bool,
        writer: &mut Option<&mut Records>,
        recorder: &mut Recorder,
    ) -> Result<(), SimError> {
        let Some(open) = self.open.remove(&flow) else { return Ok(()) };
        let now = self.world.now();
        let bytes = self.world.acked_bytes(flow);
        let planned = &self.planned[open.planned];
        let name = |node: NodeId| self.scenario.topology.node(node).name.clone();
        let flows = flow.0..flow.0 + open.keys.len() as u32;
        let before = if now < Time::ZERO + self.scenario.warmup { bytes } else { open.acked_at_warmup };
        let round = self.world.sender(flow).map(|sender| read(now, sender, open.mss)).unwrap_or_default();
        let moves = self.world.steering.end(flow, round);
        let record = FlowRecord {
            flow: planned.flow.clone(),
            from: name(planned.from),
            to: name(planned.to),
            connection: planned.connection.clone(),
            start: planned.start,
            end: now,
            completed: completed && planned.size.is_some_and(|size| bytes >= size.get()),
            bytes: Bytes::new(bytes),
            bytes_in_window: Bytes::new(bytes - before.min(bytes)),
            retransmits: flows.clone().map(|flow| self.world.report(FlowId(flow)).retransmits).sum(),
            moves,
            outages: flows.flat_map(|flow| self.world.take_outages(FlowId(flow))).collect(),
        };
        record_flow(writer, recorder, &record)?;
        self.world.release(flow);
        if let Some(user) = self.planned[open.planned].user {
            self.think(user, now);
        }
        Ok(())
    }

    fn sample(&mut self, writer: &mut Option<&mut Records>, recorder: &mut Recorder) -> Result<(), SimError> {
        let now = self.world.now();
        let interval = now.since(self.last_sample);
        self.take_moves(recorder);
        self.arcs.clear();
        for arc in 0..self.world.network.arc_count() as u32 {
            let (counters, queue) = self.world.network.arc(now, ArcId(arc));
            let drops = counters.drops.total();
            self.arcs.push(ArcState { sent: counters.bytes - queue, queue, drops, marks: counters.ce_marked });
        }
        self.links.sample(now, &self.arcs, |point| record_sample(writer, recorder, point))?;
        for (flow, open) in &mut self.open {
            let acked = self.world.acked_bytes(*flow);
            let progress = acked.saturating_sub(open.acked_at_sample);
            open.acked_at_sample = acked;
            let report = self.world.report(*flow);
            let path = self.world.steering.path_of(*flow).and_then(|path| open.paths.get(path));
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Connection,
                name: self.planned[open.planned].connection.clone(),
                rate: Some(rate_of(Bytes::new(progress), interval)),
                cwnd: report.cwnd,
                srtt: report.srtt,
                path: path.cloned(),
                ..SamplePoint::default()
            };
            record_sample(writer, recorder, &point)?;
        }
        self.last_sample = now;
        Ok(())
    }

    fn take_moves(&mut self, recorder: &mut Recorder) {
        for moved in self.world.steering.take_moves() {
            recorder.moved(moved.time, moved.reason);
        }
    }
}

/// The system of the whole run, and that of each flow of the scenario.
fn systems(scenario: &Scenario, spec: &SystemSpec) -> Result<(Arc<System>, Vec<Arc<System>>), SimError> {
    let whole_run = Arc::new(System::new(scenario, spec, &scenario.tcp)?);
    let of = |(number, flow): (usize, &Flow)| -> Result<Arc<System>, SimError> {
        let Some(transport) = flow.transport() else { return Ok(whole_run.clone()) };
        if transport.system.is_none() && transport.tcp.is_none() {
            return Ok(whole_run.clone());
        }
        let (own, tcp) = (transport.system.as_ref().unwrap_or(spec), transport.tcp.as_ref().unwrap_or(&scenario.tcp));
        let wrong = |problem| SimError::Flow { number, flow: flow.name().to_owned(), problem: Box::new(problem) };
        Ok(Arc::new(System::new(scenario, own, tcp).map_err(wrong)?))
    };
    let each = scenario.flows.iter().enumerate().map(of).collect::<Result<_, _>>()?;
    Ok((whole_run, each))
}

/// Gives nodes the behaviour that a system of the run has for them.
fn install(
    topology: &Topology,
    network: &mut Network,
    spec: &SystemSpec,
    whole_run: &Arc<System>,
    each: &[Arc<System>],
) -> Result<(), SimError> {
    let mut behaviours: Vec<&MakeBehaviour> = Vec::new();
    for system in std::iter::once(whole_run).chain(each) {
        if let Some(behaviour) = &system.behaviour
            && !behaviours.iter().any(|other| Arc::ptr_eq(&other.0, &behaviour.0))
        {
            behaviours.push(behaviour);
        }
    }
    match behaviours[..] {
        [] => {}
        [behaviour] => {
            for node in topology.node_ids() {
                if let Some(behaviour) = (behaviour.0)(topology, node) {
                    network.set_behaviour(topology, node, behaviour);
                }
            }
        }
        _ => return Err(SimError::TwoBehaviours(spec.clone())),
    }
    Ok(())
}

fn record_sample(
    writer: &mut Option<&mut Records>,
    recorder: &mut Recorder,
    point: &SamplePoint,
) -> Result<(), WriteError> {
    match writer {
        Some(writer) => writer.sample(recorder, point),
        None => {
            recorder.sample(point);
            Ok(())
        }
    }
}

fn record_flow(
    writer: &mut Option<&mut Records>,
    recorder: &mut Recorder,
    record: &FlowRecord,
) -> Result<(), WriteError> {
    match writer {
        Some(writer) => writer.flow(recorder, record),
        None => {
            recorder.flow(record);
            Ok(())
        }
    }
}
