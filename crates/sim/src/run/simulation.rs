//! One system's run under one seed.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_engine::{FlowId, Move, Network, Sizes, Stopped, World};
use sidestep_net::{ArcId, Bytes, LinkId, NodeId, NodeKind, Span, Time};
use sidestep_policy::REWEIGHING;
use sidestep_results::{DoubtKind, Recorder, Records};
use sidestep_scenario::{Scenario, SystemSpec};

use super::{
    Observer, Shared, SimError,
    addressing::Addressing,
    agenda::{Agenda, Task},
    capture::Capture,
    connections::Connections,
    flows::{Planned, plan},
    links::Links,
    loops::Traffic,
    paths::KnownPaths,
    sampling::Sampling,
    systems::Systems,
};
use crate::{
    routing::{EcmpPaths, Routing},
    sr_paths::SrPaths,
    steering::Steer,
};

/// A run in virtual time.
pub(super) struct Simulation<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) seed: u64,
    pub(super) systems: Systems,
    /// By what routers tell flows from one another.
    pub(super) addressing: Addressing,
    pub(super) world: World<Steer>,
    pub(super) routing: Routing,
    /// What hosts know of their SRv6 paths.
    pub(super) known: KnownPaths,
    /// What happens to links.
    pub(super) links: Links<'a>,
    pub(super) agenda: Agenda,
    /// What the flows of the scenario send, planned before the run.
    pub(super) traffic: Traffic<'a>,
    pub(super) connections: Connections,
    sampling: Sampling,
    /// Where packets of links are written that are watched.
    pub(super) capture: Option<Capture>,
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
        if let Some(times) = &shared.lateness.wires {
            network.set_wires(times, chance);
        }
        let systems = Systems::of(scenario, system, shared)?;
        systems.install(topology, &mut network, system)?;
        let routing = Routing::new(shared.igp.clone());
        network.set_forwarding(|| routing.forwarding(topology));
        let capture = watch.map(|(directory, links)| Capture::new(directory, topology, links)).transpose()?;
        if let Some(capture) = &capture {
            network.watch(&capture.arcs());
        }
        let steer = Steer::new(chance, topology.nodes().len());
        let mut world = World::new(network, systems.whole_run().tcp, Sizes::default(), steer);
        world.set_late_wakeups(&shared.lateness.late_wakeups);
        let mut simulation = Simulation {
            scenario,
            seed,
            systems,
            addressing: Addressing::new(topology, chance),
            world,
            routing,
            known: KnownPaths::new(SrPaths::new(shared.topology.clone(), scenario.paths)?, topology),
            links: Links::new(scenario, topology, seed),
            agenda: Agenda::default(),
            traffic: Traffic::new(scenario, plan(scenario, seed, &shared.lateness.late_starts)),
            connections: Connections::default(),
            sampling: Sampling::new(scenario),
            capture,
        };
        simulation.check_requests(system)?;
        simulation.check_routes()?;
        for (index, planned) in simulation.traffic.planned.iter().enumerate() {
            simulation.agenda.at(planned.start, Task::Open(index));
        }
        simulation.begin_loops(seed)?;
        simulation.agenda.at(Time::ZERO + scenario.warmup, Task::Warmup);
        simulation.agenda.at(Time::ZERO + scenario.sample, Task::Sample);
        simulation.agenda.at(Time::ZERO + USAGE_INTERVAL, Task::Usage);
        if simulation.systems.have_agents() {
            let nodes = topology.nodes().iter().zip(0..).filter(|(node, _)| node.kind == NodeKind::Host);
            for node in nodes.map(|(_, index)| NodeId(index)) {
                // Agents look as often as each other, but not at the same time.
                let first = Pcg32::new(chance, u64::MAX / 4 + u64::from(node.0)).next_u32();
                let nanos = (u64::from(first) * REWEIGHING.as_nanos()) >> 32;
                simulation.agenda.at(Time::from_nanos(nanos), Task::Reweigh(node));
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
            let due = self.agenda.next_at().unwrap_or(end);
            let changes = self.links.next_at().map_or(end, |at| Time::ZERO + at);
            let next = due.min(changes).min(end);
            match self.world.run_until(next) {
                // `next` is not reached yet, even if it is the end.
                Stopped::Finished(flow) => {
                    self.finished(flow, true, &mut writer, recorder)?;
                    continue;
                }
                Stopped::Reached => {
                    self.change(next);
                    while let Some(task) = self.agenda.pop_due(next) {
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
        for flow in self.connections.first_flows() {
            self.finished(flow, false, &mut writer, recorder)?;
        }
        while let Some((flow, open)) = self.connections.closing.pop_first() {
            self.ended(flow, open);
        }
        self.write_copies()?;
        if let Some(capture) = self.capture.take() {
            capture.finish()?;
        }
        self.take_moves(recorder);
        self.take_counters(recorder);
        self.systems.take_doubts(self.scenario, self.seed, recorder);
        self.systems.take_notes(recorder);
        recorder.tcp(self.connections.counted());
        Ok(ended)
    }

    /// Writes what was copied since this was called last.
    pub(super) fn write_copies(&mut self) -> Result<(), SimError> {
        if let Some(capture) = &mut self.capture {
            capture.write(&self.world.network.take_copies())?;
        }
        Ok(())
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
                if self.connections.open.contains_key(&flow) {
                    self.finished(flow, false, writer, recorder)?;
                }
            }
            Task::Warmup => self.connections.note_warmup(&self.world),
            Task::Reweigh(host) => {
                self.world.steering.reweigh(now, host);
                self.agenda.at(now + REWEIGHING, Task::Reweigh(host));
            }
            Task::Usage => {
                self.known.report_usage(now, &mut self.world.network, USAGE_INTERVAL);
                self.adopt_usage();
                self.agenda.at(now + USAGE_INTERVAL, Task::Usage);
            }
            Task::Sample => {
                self.take_moves(recorder);
                let (topology, planned) = (&self.scenario.topology, &self.traffic.planned);
                let connections = &mut self.connections;
                self.sampling.sample((topology, planned), &mut self.world, connections, writer, recorder)?;
                self.write_copies()?;
                self.agenda.at(now + self.scenario.sample, Task::Sample);
                let traversals = self.sampling.take_traversals(&self.world.network);
                observer.on_progress(self.scenario.sample, traversals);
            }
        }
        Ok(())
    }

    /// What events and impairments do to links until now.
    fn change(&mut self, now: Time) {
        for _ in 0..self.links.change(now, &mut self.world.network) {
            self.agenda.at(now + self.scenario.routing.convergence, Task::Converge);
        }
    }

    /// The IGP has found its routes around links that are down. Only flows whose route is gone move. The controller has
    /// computed the path sets anew: connections on SRv6 paths that are left stay where they are.
    fn converge(&mut self) {
        let topology = &self.scenario.topology;
        self.routing.reconverge(topology, self.links.failed());
        self.world.network.set_forwarding(|| self.routing.forwarding(topology));
        for flow in self.connections.first_flows() {
            if self.world.steering.path_of(flow).is_none() {
                self.route_again(flow);
            }
        }
        self.route_streams_again();
        self.adopt_paths();
    }

    /// Routes a connection's flows as routers have it now.
    pub(super) fn route_again(&mut self, first: FlowId) -> Option<()> {
        let open = self.connections.open.get(&first)?;
        let (system, keys) = (open.system.clone(), open.keys.clone());
        let Planned { from, to, .. } = *self.traffic.planned.get(open.planned)?;
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
            let (there, back) = self.addressing.hashes(key);
            let there = forward.keep_or_pick(present.0, there);
            let back = match system.backwards {
                true => self.routing.backwards(&mut self.world.network, there),
                false => reverse.keep_or_pick(present.1, back),
            };
            let to = Move { forward: Some(there), reverse: Some(back) };
            self.world.reroute(flow, to);
        }
        Some(())
    }

    /// Takes what links have dropped, and what behaviours alone have counted.
    fn take_counters(&mut self, recorder: &mut Recorder) {
        let now = self.world.now();
        let network = &mut self.world.network;
        for arc in (0..network.arc_count() as u32).map(ArcId) {
            let (counters, _) = network.arc(now, arc);
            counters.drops.by_cause().into_iter().for_each(|(cause, packets)| recorder.dropped(cause, packets));
        }
        network.discarded().into_iter().for_each(|(cause, packets)| recorder.dropped(cause, packets));
        let counters = network.counters();
        for (name, counter) in &counters {
            recorder.own(name, counter.get());
        }
        let count = |name: &str| counters.get(name).map_or(0, |counter| counter.get());
        let overfull = count("caches.dropped").saturating_sub(count("caches.custody.dropped"));
        if overfull > 0 {
            recorder.note(format!("caches dropped {overfull} packets: more came than they had room for"));
        }
        let [pressed, covered, needed] =
            ["pressed", "covered", "needed_bytes"].map(|name| count(&format!("caches.custody.{name}")));
        if covered < pressed {
            recorder.note(format!(
                "{} of {pressed} caches that press back have less room above `high` than may come until senders slow down ({} in one): they may drop packets",
                pressed - covered,
                Bytes::new(needed)
            ));
        }
        let dropped = count("caches.custody.dropped");
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
