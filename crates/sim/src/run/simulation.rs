//! One system's run under one seed.

use sidestep_flow_hash::FlowKey;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    net::Ipv6Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_net::{ArcId, Bytes, Channel, LinkId, Node, NodeId, NodeKind, Rate, Span, Time, Topology, srv6};
use sidestep_policy::REWEIGHING;
use sidestep_proto::{mptcp::HostPorts, tcp::Counters};
use sidestep_results::{
    ArcState, DoubtKind, LinkSampler, Recorder, Records, SampleKind, SamplePoint, WriteError, rate_of,
};
use sidestep_scenario::{
    Flow, Scenario, SystemSpec, TcpSettings,
    conditions::{ArcCondition, Cause, Conditions},
};

use super::{
    Observer, Shared, SimError,
    capture::Capture,
    flows::{Namer, Planned, plan},
    loops::{Stream, User},
};
use crate::{
    routing::{EcmpPaths, Routing},
    sr_paths::{SrPath, SrPaths},
    steering::Steer,
    system::{MakeBehaviour, Setup, Steerer},
};
use sidestep_engine::{FlowId, Move, Network, Sizes, Stopped, World};

/// A run in virtual time.
pub(super) struct Simulation<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) seed: u64,
    /// The system of flows that have none of their own.
    pub(super) whole_run: Arc<Setup>,
    /// By flow of the scenario: the system that it has.
    pub(super) systems: Vec<Arc<Setup>>,
    /// By what systems choose among, and between whom: the most ways that a connection had when it was opened.
    pub(super) ways: BTreeMap<(&'static str, NodeId, NodeId), usize>,
    /// By node: the address that flows from there have.
    pub(super) addresses: Vec<Ipv6Addr>,
    /// From which routers' hashes begin.
    pub(super) hash_seed: u32,
    pub(super) world: World<Steer>,
    pub(super) routing: Routing,
    pub(super) sr_paths: SrPaths,
    pub(super) conditions: Conditions<'a>,
    agenda: BinaryHeap<Reverse<(Time, u32, Task)>>,
    entries: u32,
    pub(super) planned: Vec<Planned>,
    pub(super) namer: Namer<'a>,
    pub(super) users: Vec<User>,
    pub(super) streams: Vec<Stream>,
    /// The connections that are open, by their first flow; and those that are recorded and close yet.
    pub(super) open: BTreeMap<FlowId, Open>,
    pub(super) closing: BTreeMap<FlowId, Open>,
    channels: Vec<Channel>,
    links: LinkSampler,
    arcs: Vec<ArcState>,
    /// Bytes that each arc had carried when usage was last looked at, and the rate since the time before.
    pub(super) usage: Vec<(Bytes, Rate)>,
    /// The source ports that hosts have given to subflows of MPTCP.
    pub(super) ports: BTreeMap<NodeId, HostPorts>,
    pub(super) random: Pcg32,
    /// Where packets of links are written that are watched.
    pub(super) capture: Option<Capture>,
    last_sample: Time,
    /// Links crossed that the observer knows of.
    reported: u64,
    /// Remarks of the system.
    notes: Vec<String>,
    /// What happened to TCP, where it counts that.
    pub(super) counters: Option<Counters>,
}

/// What is to be done at a certain time, in this order where times are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// The IGP has converged on what happened to links.
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
    /// The agent of this host looks at the weights of its SYN-ACKs.
    Reweigh(NodeId),
    /// Agents report usage.
    Usage,
    Sample,
}

/// A connection in progress.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) planned: usize,
    pub(super) system: Arc<Setup>,
    /// What routers hash of each of its flows: several of MPTCP.
    pub(super) keys: Vec<FlowKey>,
    /// The ports that it took from its host; none where that had no more.
    pub(super) taken: Vec<u16>,
    pub(super) mss: u16,
    /// The paths that it is moved among, and those back.
    pub(super) paths: Arc<[SrPath]>,
    pub(super) back: Arc<[SrPath]>,
    pub(super) acked_at_warmup: u64,
    /// Segments of each of its flows that were acknowledged by then.
    pub(super) subflows_at_warmup: Vec<u32>,
    pub(super) acked_at_sample: u64,
}

/// How often routers report usage, as the lab's do.
const USAGE_INTERVAL: Span = Span::from_secs(1);

impl<'a> Simulation<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        shared: &Shared,
        system: &SystemSpec,
        seed: u64,
    ) -> Result<Self, SimError> {
        Self::watched(scenario, shared, system, seed, None)
    }

    /// As [`new`](Self::new), with the packets of some links written down: `directory` gets a file for each.
    pub(super) fn watched(
        scenario: &'a Scenario,
        shared: &Shared,
        system: &SystemSpec,
        seed: u64,
        watch: Option<(&Path, &[LinkId])>,
    ) -> Result<Self, SimError> {
        let topology = &scenario.topology;
        let chance = scenario.chance(seed);
        let mut network = Network::new(topology, chance, scenario.tcp.send_jitter);
        network.vary(scenario.repetition);
        if let Some(times) = &shared.lateness.wires {
            network.set_wires(times, chance ^ u64::from(scenario.repetition));
        }
        let (whole_run, systems) = systems(scenario, system, shared)?;
        install(topology, &mut network, system, &whole_run, &systems)?;
        let routing = Routing::new(shared.igp.clone());
        network.set_forwarding(|| routing.forwarding(topology));
        let capture = watch.map(|(directory, links)| Capture::new(directory, topology, links)).transpose()?;
        if let Some(capture) = &capture {
            network.watch(&capture.arcs());
        }
        let steer = Steer::new(chance, topology.nodes().len());
        let mut world = World::new(network, whole_run.tcp, Sizes::default(), steer);
        world.set_late_wakeups(&shared.lateness.late_wakeups);
        let address = |node: &Node| node.prefix.map_or(Ipv6Addr::UNSPECIFIED, srv6::host_address);
        let mut simulation = Simulation {
            scenario,
            seed,
            notes: whole_run.notes.clone(),
            whole_run,
            systems,
            ways: BTreeMap::new(),
            addresses: topology.nodes().iter().map(address).collect(),
            hash_seed: (chance ^ (chance >> 32)) as u32,
            world,
            routing,
            sr_paths: SrPaths::new(shared.topology.clone(), scenario.paths)?,
            conditions: Conditions::new(scenario, seed),
            agenda: BinaryHeap::new(),
            entries: 0,
            planned: plan(scenario, seed, &shared.lateness.late_starts),
            namer: Namer::new(scenario),
            users: Vec::new(),
            streams: Vec::new(),
            open: BTreeMap::new(),
            closing: BTreeMap::new(),
            channels: (0..topology.arc_count() as u32).map(|arc| *topology.channel(ArcId(arc))).collect(),
            links: LinkSampler::new(topology),
            arcs: Vec::new(),
            usage: vec![(Bytes::default(), Rate::default()); topology.arc_count()],
            random: Pcg32::new(chance, u64::MAX / 2),
            ports: BTreeMap::new(),
            capture,
            last_sample: Time::ZERO,
            reported: 0,
            counters: None,
        };
        simulation.check_requests(system)?;
        simulation.check_routes()?;
        for index in 0..simulation.planned.len() {
            let start = simulation.planned[index].start;
            simulation.at(start, Task::Open(index));
        }
        simulation.begin_loops(seed)?;
        simulation.at(Time::ZERO + scenario.warmup, Task::Warmup);
        simulation.at(Time::ZERO + scenario.sample, Task::Sample);
        simulation.at(Time::ZERO + USAGE_INTERVAL, Task::Usage);
        if simulation.systems.iter().any(|system| matches!(system.mover, Steerer::Policy(_))) {
            let nodes = topology.nodes().iter().zip(0..).filter(|(node, _)| node.kind == NodeKind::Host);
            for node in nodes.map(|(_, index)| NodeId(index)) {
                // Agents look as often as each other, but not at the same time.
                let first = Pcg32::new(chance, u64::MAX / 4 + u64::from(node.0)).next_u32();
                let nanos = (u64::from(first) * REWEIGHING.as_nanos()) >> 32;
                simulation.at(Time::from_nanos(nanos), Task::Reweigh(node));
            }
        }
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
            let due = self.agenda.peek().map_or(end, |Reverse((at, ..))| *at);
            let changes = self.conditions.next_at().map_or(end, |at| Time::ZERO + at);
            let next = due.min(changes).min(end);
            match self.world.run_until(next) {
                // `next` is not reached yet, even if it is the end.
                Stopped::Finished(flow) => {
                    self.finished(flow, true, &mut writer, recorder)?;
                    continue;
                }
                Stopped::Reached => {
                    self.change(next);
                    let due = |agenda: &BinaryHeap<Reverse<(Time, u32, Task)>>| {
                        agenda.peek().is_some_and(|Reverse((at, ..))| *at <= next)
                    };
                    while due(&self.agenda) {
                        let Some(Reverse((_, _, task))) = self.agenda.pop() else { break };
                        self.act(task, &mut writer, recorder, observer)?;
                        // Nothing is lost of a run that is stopped as it ends.
                        ended |= task == Task::Sample && next < end && stop.load(Ordering::Relaxed);
                    }
                }
            }
            if next >= end || ended {
                break;
            }
        }
        if ended {
            recorder.cut(self.world.now());
        }
        let left: Vec<FlowId> = self.open.keys().copied().collect();
        for flow in left {
            self.finished(flow, false, &mut writer, recorder)?;
        }
        while let Some((flow, open)) = self.closing.pop_first() {
            self.ended(flow, open);
        }
        self.write_copies()?;
        if let Some(capture) = self.capture.take() {
            capture.finish()?;
        }
        self.take_moves(recorder);
        self.take_counters(recorder);
        self.take_doubts(recorder);
        self.notes.iter().for_each(|note| recorder.note(note.clone()));
        let counted = self.counters.iter().flat_map(Counters::named);
        recorder.tcp(counted.map(|(name, count)| (name.to_owned(), u64::from(count))));
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
                    for (flow, before) in (flow.0..).map(FlowId).zip(&mut open.subflows_at_warmup) {
                        *before = self.world.sender(flow).map_or(0, |sender| sender.una());
                    }
                }
            }
            Task::Reweigh(host) => {
                self.world.steering.reweigh(now, host);
                self.at(now + REWEIGHING, Task::Reweigh(host));
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
                observer.on_progress(self.scenario.sample, traversals - self.reported);
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

    /// What events and impairments do to links until now.
    fn change(&mut self, now: Time) {
        while let Some(step) = self.conditions.advance(now.since(Time::ZERO)) {
            for ArcCondition { arc, channel, state } in step.arcs {
                if self.world.network.state(arc) != Some(state) {
                    self.world.network.set_state(now, arc, state);
                }
                // An event begins RED's average anew, even where it changes nothing else.
                let event = matches!(step.cause, Cause::Event(_));
                if event || self.channels[arc.index()] != channel {
                    self.channels[arc.index()] = channel;
                    self.world.network.set_channel(now, arc, &channel);
                }
            }
            if step.routing {
                self.at(now + self.scenario.routing.convergence, Task::Converge);
            }
        }
    }

    /// The IGP has found its routes around links that are down. Only flows whose route is gone move. The controller has
    /// computed the path sets anew: connections on SRv6 paths that are left stay where they are.
    fn converge(&mut self) {
        let topology = &self.scenario.topology;
        self.routing.reconverge(topology, self.conditions.failed());
        self.world.network.set_forwarding(|| self.routing.forwarding(topology));
        let flows: Vec<FlowId> = self.open.keys().copied().collect();
        for flow in flows {
            if self.world.steering.path_of(flow).is_none() {
                self.route_again(flow);
            }
        }
        self.route_streams_again();
        self.adopt_paths();
    }

    /// Routes a connection's flows as routers have it now.
    pub(super) fn route_again(&mut self, first: FlowId) -> Option<()> {
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
        self.sample_caches(now, writer, recorder)?;
        for (flow, open) in &mut self.open {
            let acked = self.world.acked_bytes(*flow);
            let progress = acked.saturating_sub(open.acked_at_sample);
            open.acked_at_sample = acked;
            let steering = &self.world.steering;
            let (sends, path) = match self.world.answers_of(*flow) {
                Some(answers) => (answers, steering.path_of_answers(*flow).and_then(|path| open.back.get(path))),
                None => (*flow, steering.path_of(*flow).and_then(|path| open.paths.get(path))),
            };
            let (report, path) = (self.world.report(sends), path.map(|path| &path.name));
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Connection,
                name: self.planned[open.planned].series().clone(),
                rate: Some(rate_of(Bytes::new(progress), interval)),
                cwnd: report.cwnd,
                srtt: report.srtt,
                path: path.cloned().or(report.mode.map(str::to_owned)),
                ..SamplePoint::default()
            };
            record_sample(writer, recorder, &point)?;
        }
        self.last_sample = now;
        Ok(())
    }

    fn sample_caches(
        &self,
        now: Time,
        writer: &mut Option<&mut Records>,
        recorder: &mut Recorder,
    ) -> Result<(), WriteError> {
        let topology = &self.scenario.topology;
        for cache in self.world.network.caches() {
            let name = |node: NodeId| &topology.node(node).name;
            let point = SamplePoint {
                time: now,
                interval: now.since(self.last_sample),
                kind: SampleKind::Cache,
                name: format!("{}>{}", name(topology.tail(cache.arc)), name(topology.head(cache.arc))),
                utilisation: Some(cache.held.get() as f64 / cache.room.get().max(1) as f64),
                queue: Some(cache.held),
                drops: Some(cache.dropped),
                path: Some(cache.state.into()),
                ..SamplePoint::default()
            };
            record_sample(writer, recorder, &point)?;
        }
        for stored in self.world.network.stored() {
            let Some(open) = self.open.get(&FlowId(stored.flow)) else { continue };
            let name = |node: NodeId| &topology.node(node).name;
            let connection = &self.planned[open.planned].connection;
            let (tail, head) = (topology.tail(stored.arc), topology.head(stored.arc));
            let point = SamplePoint {
                time: now,
                interval: now.since(self.last_sample),
                kind: SampleKind::Stored,
                name: format!("{}>{} {connection}", name(tail), name(head)),
                queue: Some(stored.held),
                ..SamplePoint::default()
            };
            record_sample(writer, recorder, &point)?;
        }
        Ok(())
    }

    /// Takes what behaviours alone have counted.
    fn take_counters(&self, recorder: &mut Recorder) {
        let counters = self.world.network.counters();
        for (name, counter) in &counters {
            recorder.own(name, counter.get());
        }
        let dropped = counters.get("caches.custody.dropped").map_or(0, |counter| counter.get());
        if dropped > 0 {
            let text = format!(
                "caches whose margin covers all that can arrive dropped {dropped} packets: the condition for no loss is violated"
            );
            recorder.doubt(DoubtKind::BrokenPromise, text);
        }
    }

    fn take_moves(&mut self, recorder: &mut Recorder) {
        for moved in self.world.steering.take_moves() {
            recorder.moved(moved.time, moved.reason);
        }
        for (time, reason) in self.world.network.take_moves() {
            recorder.moved(time, reason);
        }
    }
}

/// The system of the whole run, and that of each flow of the scenario.
fn systems(scenario: &Scenario, spec: &SystemSpec, shared: &Shared) -> Result<(Arc<Setup>, Vec<Arc<Setup>>), SimError> {
    let setup = |spec: &SystemSpec, tcp: &TcpSettings| {
        shared.registry.setup(&shared.catalogue, scenario, spec, tcp, &shared.lateness)
    };
    let whole_run = Arc::new(setup(spec, &scenario.tcp)?);
    let of = |(number, flow): (usize, &Flow)| -> Result<Arc<Setup>, SimError> {
        let Some(transport) = flow.transport() else { return Ok(whole_run.clone()) };
        if transport.system.is_none() && transport.tcp.is_none() {
            return Ok(whole_run.clone());
        }
        let (own, tcp) = (transport.system.as_ref().unwrap_or(spec), transport.tcp.as_ref().unwrap_or(&scenario.tcp));
        let wrong = |problem| SimError::Flow { number, flow: flow.name().to_owned(), problem: Box::new(problem) };
        Ok(Arc::new(setup(own, tcp).map_err(wrong)?))
    };
    let each = scenario.flows.iter().enumerate().map(of).collect::<Result<_, _>>()?;
    Ok((whole_run, each))
}

/// Gives nodes the behaviour that a system of the run has for them.
fn install(
    topology: &Topology,
    network: &mut Network,
    spec: &SystemSpec,
    whole_run: &Arc<Setup>,
    each: &[Arc<Setup>],
) -> Result<(), SimError> {
    let mut behaviours: Vec<(&MakeBehaviour, &str)> = Vec::new();
    for system in std::iter::once(whole_run).chain(each) {
        let is_same = |other: &(&MakeBehaviour, &str), own: &MakeBehaviour| {
            Arc::ptr_eq(&other.0.0, &own.0) || !other.1.is_empty() && other.1 == system.routers
        };
        if let Some(behaviour) = &system.behaviour
            && !behaviours.iter().any(|other| is_same(other, behaviour))
        {
            behaviours.push((behaviour, &system.routers));
        }
    }
    match behaviours[..] {
        [] => {}
        [(behaviour, _)] => {
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
