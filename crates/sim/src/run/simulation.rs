//! One system's run under one seed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_model::{
    ArcId, Bytes, Channel, Direction, LinkId, NodeId, Rate, Scenario, Span, Time,
    scenario::{Change, Event, EventDirection, SystemSpec},
};
use sidestep_proto::link::LinkState;
use sidestep_results::{
    ArcState, FlowRecord, LinkSampler, Recorder, Records, SampleKind, SamplePoint, WriteError, rate_of,
};

use super::{
    Observer, SimError,
    capture::Capture,
    flows::{Namer, Planned, plan},
    loops::{Stream, User},
    setup::{Moves, Setup, setup},
};
use crate::{
    engine::{FlowId, Move, Network, Stopped, World},
    routing::Routing,
    steering::{Steer, read},
};

/// A run in virtual time.
pub(super) struct Simulation<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) setup: Setup,
    pub(super) world: World<Steer>,
    pub(super) routing: Routing,
    agenda: BinaryHeap<Reverse<(Time, u32, Action)>>,
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
pub(super) enum Action {
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
    /// Its flows: several of MPTCP.
    pub(super) count: u32,
    pub(super) mss: u16,
    /// Names of the paths that it is moved among.
    pub(super) paths: Vec<String>,
    pub(super) acked_at_warmup: u64,
    pub(super) acked_at_sample: u64,
}

/// How often routers report usage, as the lab's do.
const USAGE_INTERVAL: Span = Span::from_secs(1);

impl<'a> Simulation<'a> {
    pub(super) fn new(scenario: &'a Scenario, system: &SystemSpec, seed: u64) -> Result<Self, SimError> {
        Self::watched(scenario, system, seed, None)
    }

    /// The same, with the packets of some links written down: `directory` gets a file for each.
    pub(super) fn watched(
        scenario: &'a Scenario,
        system: &SystemSpec,
        seed: u64,
        watch: Option<(&Path, &[LinkId])>,
    ) -> Result<Self, SimError> {
        let setup = setup(scenario, system)?;
        let topology = &scenario.topology;
        let mut network = Network::new(topology, seed, scenario.tcp.send_jitter);
        if let Some(rcp) = setup.rcp {
            network.control_rates(topology, rcp);
        }
        let capture = watch.map(|(directory, links)| Capture::new(directory, topology, links)).transpose()?;
        if let Some(capture) = &capture {
            network.watch(&capture.arcs());
        }
        let plb = match &setup.moves {
            Moves::Label(plb) => *plb,
            _ => None,
        };
        let steer = Steer::new(seed, topology.nodes().len(), plb);
        let world = World::new(network, setup.tcp, setup.mptcp, setup.sizes, steer);
        let mut simulation = Simulation {
            scenario,
            world,
            routing: Routing::new(topology, scenario.paths),
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
            setup,
        };
        simulation.check_routes()?;
        for (index, event) in scenario.events.iter().enumerate() {
            simulation.at(Time::ZERO + event.at, Action::Event(index));
        }
        for index in 0..simulation.planned.len() {
            let start = simulation.planned[index].start;
            simulation.at(start, Action::Open(index));
        }
        simulation.begin_loops(seed)?;
        simulation.at(Time::ZERO + scenario.warmup, Action::Warmup);
        simulation.at(Time::ZERO + scenario.sample, Action::Sample);
        simulation.at(Time::ZERO + USAGE_INTERVAL, Action::Usage);
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
                    let due = |agenda: &BinaryHeap<Reverse<(Time, u32, Action)>>| {
                        agenda.peek().is_some_and(|Reverse((at, ..))| *at <= next)
                    };
                    while due(&self.agenda) {
                        let Some(Reverse((_, _, action))) = self.agenda.pop() else { break };
                        self.act(action, &mut writer, recorder, observer)?;
                        if action == Action::Sample && stop.load(Ordering::Relaxed) {
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

    pub(super) fn at(&mut self, time: Time, action: Action) {
        self.entries += 1;
        self.agenda.push(Reverse((time, self.entries, action)));
    }

    fn act(
        &mut self,
        action: Action,
        writer: &mut Option<&mut Records>,
        recorder: &mut Recorder,
        observer: &dyn Observer,
    ) -> Result<(), SimError> {
        let now = self.world.now();
        match action {
            Action::Event(index) => self.change(index),
            Action::Converge => self.converge(),
            Action::Open(index) => self.open(index)?,
            Action::Think(user) => self.transfer(user)?,
            Action::Send(stream) => self.send(stream),
            Action::Close(flow) => {
                if self.open.contains_key(&flow) {
                    self.finished(flow, false, writer, recorder)?;
                }
            }
            Action::Warmup => {
                for (flow, open) in &mut self.open {
                    open.acked_at_warmup = self.world.acked_bytes(*flow);
                }
            }
            Action::Usage => {
                self.report_usage();
                self.at(now + USAGE_INTERVAL, Action::Usage);
            }
            Action::Sample => {
                self.sample(writer, recorder)?;
                self.write_copies()?;
                self.at(now + self.scenario.sample, Action::Sample);
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
                self.world.network.set_channel(arc, &self.channels[arc.index()]);
            }
            match change {
                Change::Down => self.failed.insert(*link),
                Change::Up => self.failed.remove(link),
                _ => continue,
            };
        }
        if matches!(change, Change::Down | Change::Up) {
            self.at(now + self.scenario.routing.convergence, Action::Converge);
        }
    }

    /// The IGP has found its ways around links that are down. Connections on SRv6 paths stay where they are: a path
    /// that is forced is forced; the path changer has to leave it.
    fn converge(&mut self) {
        let topology = &self.scenario.topology;
        self.routing.reconverge(topology, &self.failed);
        let flows: Vec<(FlowId, u32, usize)> =
            self.open.iter().map(|(flow, open)| (*flow, open.count, open.planned)).collect();
        for (first, count, planned) in flows {
            if self.world.steering.path_of(first).is_some() {
                continue;
            }
            let Planned { from, to, .. } = self.planned[planned];
            let (network, ecmp) = (&mut self.world.network, self.setup.ecmp);
            let Ok(forward) = self.routing.equal(topology, network, from, to, ecmp).cloned() else { continue };
            let Ok(reverse) = self.routing.equal(topology, network, to, from, ecmp).cloned() else { continue };
            let subflows = self.subflow_ways((from, to), &forward, &reverse).unwrap_or_default();
            for (index, flow) in (first.0..first.0 + count).enumerate() {
                let (forward, reverse) = match subflows.get(index) {
                    Some((forward, reverse)) => (forward, reverse),
                    None => (&forward, &reverse),
                };
                let to = Move {
                    forward: Some(forward.pick(self.random.next_u32())),
                    reverse: Some(reverse.pick(self.random.next_u32())),
                };
                self.world.reroute(FlowId(flow), to);
            }
            if matches!(self.setup.moves, Moves::Label(_)) {
                self.world.steering.by_label(first, from, forward, reverse);
            }
        }
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
        let flows = flow.0..flow.0 + open.count;
        let before = if now < Time::ZERO + self.scenario.warmup { bytes } else { open.acked_at_warmup };
        let moves = self.world.steering.end(flow, read(now, self.world.sender(flow), open.mss));
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
            retransmits: flows.map(|flow| u64::from(self.world.sender(FlowId(flow)).retransmits())).sum(),
            moves,
            outages: (flow.0..flow.0 + open.count).flat_map(|flow| self.world.take_outages(FlowId(flow))).collect(),
        };
        record_flow(writer, recorder, &record)?;
        if open.count == 1 && self.setup.subflows.is_none() {
            self.world.release(flow);
        } else {
            self.world.close(flow);
        }
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
        let windowed = self.setup.rcp.is_none();
        for (flow, open) in &mut self.open {
            let acked = self.world.acked_bytes(*flow);
            let progress = acked.saturating_sub(open.acked_at_sample);
            open.acked_at_sample = acked;
            let sender = self.world.sender(*flow);
            let path = self.world.steering.path_of(*flow).and_then(|path| open.paths.get(path));
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Connection,
                name: self.planned[open.planned].connection.clone(),
                rate: Some(rate_of(Bytes::new(progress), interval)),
                cwnd: windowed.then(|| Bytes::new((sender.cwnd() * f64::from(open.mss)) as u64)),
                srtt: sender.srtt(),
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
