//! One system's run: builds the network, starts daemons and traffic, drives events, and collects what they leave.

use std::{
    fs,
    net::{Ipv6Addr, SocketAddrV6, UdpSocket},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use sidestep_engine::WireTimes;
use sidestep_linux::{cgroup::Cgroup, counters, wire::Wait};
use sidestep_net::{Node, NodeId, NodeKind, Rate, Span, Time, Topology};
use sidestep_paths::Igp;
use sidestep_results::{DoubtKind, Late, Recorder, Records};
use sidestep_scenario::{Flow, Scenario, SystemSpec, conditions::Cause};

use crate::{
    clock::now,
    daemons::{Daemons, Surroundings},
    doubts,
    error::LabError,
    generators::{Data, Generators, Source},
    interfaces, jiffies,
    mix::RunPlan,
    moves::Moves,
    names::Names,
    network::Network,
    nodes::{host_address, name_of},
    options::RunOptions,
    plan,
    processes::{Place, Process, stop_all},
    sampler::Sampler,
    site::LabDir,
    timeline::{Action, Made, Timeline},
    traffic::{FlowOut, Monotonic, OutageOut, SinkOut},
};

/// Time between the start of the generators and the start of the run.
const LEAD: Span = Span::from_millis(300);
/// How long the lab waits for processes beyond the end of the run.
const GRACE: Duration = Duration::from_secs(5);

/// A system under test, running.
pub struct Session<'a> {
    options: &'a RunOptions,
    mix: RunPlan,
    logs: PathBuf,
    sampler: Sampler,
    timeline: Timeline<'a>,
    /// Events of links that have happened.
    made: Vec<Made>,
    epoch: Monotonic,
    daemons: Daemons,
    senders: Vec<Sender>,
    sinks: Vec<Process>,
    /// Sockets that receive packets at a constant rate. No process reads them: the kernel drops what has no room.
    _packet_sinks: Vec<UdpSocket>,
    programs: Vec<Program>,
    groups: Groups,
    // The last field, so that processes end before their network does.
    network: Network,
}

/// The control groups of a lab's flows, by node.
struct Groups {
    /// The groups to which agents, if there are any, attach.
    steered: Vec<Cgroup>,
    /// The groups whose connections agents leave alone; if empty, these connections are in `steered`.
    plain: Vec<Cgroup>,
}

/// A generator process: the connections of one pair of hosts.
struct Sender {
    /// Name of the flow; `name` also has the number of the pair.
    flow: String,
    name: String,
    from: NodeId,
    to: NodeId,
    port: u16,
    /// Whether its connections have a size.
    sized: bool,
    data: Data,
    process: Process,
}

/// A process of the user's.
struct Program {
    flow: usize,
    waited: bool,
    process: Process,
}

impl<'a> Session<'a> {
    /// Builds the network and starts everything; time zero of the run is shortly after.
    pub fn start(options: &'a RunOptions, site: &LabDir, system: &SystemSpec, mix: RunPlan) -> Result<Self, LabError> {
        let scenario = &options.scenario;
        let topology = &scenario.topology;
        let logs = options.out.join("logs").join(system.to_string().replace(['/', ':'], "_"));
        fs::create_dir_all(&logs).map_err(LabError::file(&logs))?;

        let igp = Igp::new(topology);
        let mut plans = plan::plan(topology, &igp, mix.multipath)?;
        let mptcp = interfaces::mptcp_hosts(scenario, &mix)?;
        interfaces::add_routes(topology, &igp, mix.multipath, &mptcp, &mut plans);
        plan::pin_links(topology, &igp, mix.multipath, &mix.pinned, &mut plans);
        let chance = scenario.chance(scenario.seed);
        let network = Network::build_with(topology, plans, &scenario.tcp, &mix.sysctls(), chance)?;
        interfaces::set_up(&network, &mptcp)?;
        let groups = Groups::make(site, topology, mix.leaves_some_alone())?;
        let sampler = Sampler::new(scenario, &network)?;
        let around = Surroundings {
            scenario,
            program: &options.program,
            stop: &options.stop,
            site,
            network: &network,
            groups: &groups.steered,
            logs: &logs,
        };
        let daemons = Daemons::start(&mix.daemons, &around)?;
        let mut session = Session {
            options,
            mix,
            logs,
            sampler,
            timeline: Timeline::new(scenario),
            made: Vec::new(),
            epoch: Monotonic::from_nanos(0),
            daemons,
            senders: Vec::new(),
            sinks: Vec::new(),
            _packet_sinks: Vec::new(),
            programs: Vec::new(),
            groups,
            network,
        };
        session.start_generators()?;
        Ok(session)
    }

    /// Runs to the end of the scenario; `sample` is called at each sampling time.
    pub fn drive(&mut self, mut sample: impl FnMut(Span, &mut Self) -> Result<(), LabError>) -> Result<(), LabError> {
        let scenario = &self.options.scenario;
        let mut next_sample = scenario.sample;
        loop {
            let elapsed = self.elapsed()?;
            while let Some(action) = self.timeline.next_due(elapsed) {
                self.act(action)?;
            }
            if elapsed >= next_sample {
                sample(elapsed, self)?;
                next_sample = next_sample + scenario.sample;
                if next_sample <= elapsed {
                    // The machine did not keep up; do not try to make up for it.
                    next_sample = elapsed + scenario.sample;
                }
                self.check_processes()?;
            }
            if elapsed >= scenario.duration {
                return Ok(());
            }
            if self.options.is_stopped() {
                return Err(LabError::Interrupted);
            }
            let next = [next_sample, self.timeline.next_at(), scenario.duration].into_iter().min().unwrap_or_default();
            let pause = (next - self.elapsed()?).to_std().min(Duration::from_millis(50));
            std::thread::sleep(pause);
        }
    }

    /// Samples links and sockets.
    pub fn sample(
        &mut self,
        now: Time,
        names: &Names,
        writer: &mut Records,
        recorder: &mut Recorder,
    ) -> Result<Rate, LabError> {
        self.daemons.catch_up(&self.network, self.epoch, recorder)?;
        self.daemons.samples((now, self.scenario().sample)).try_for_each(|point| writer.sample(recorder, &point))?;
        self.sampler.sample(now, &self.daemons, names, writer, recorder)
    }

    /// Waits for the processes that end by themselves, ends the others in order, and records what they did.
    ///
    /// What was measured stays when a program of the user's does not end: the results then show what they lack.
    pub fn finish(mut self, names: &Names, writer: &mut Records, recorder: &mut Recorder) -> Result<(), LabError> {
        self.await_all()?.into_iter().for_each(|reason| recorder.incomplete(reason));
        stop_all(&mut self.sinks);
        self.take_late_answers(recorder)?;
        recorder.jiffies(jiffies::at(self.epoch));
        self.daemons.catch_up(&self.network, self.epoch, recorder)?;
        let moves = self.daemons.stop(self.epoch, &self.made, recorder)?;
        self.mix.notes.iter().for_each(|note| recorder.note(note.clone()));
        let doubts = doubts::of(self.scenario(), &self.mix, recorder.moves());
        for doubt in self.mix.doubts.iter().cloned().chain(doubts) {
            recorder.doubt(doubt.kind, doubt.text);
        }
        let ports: Vec<_> = self.senders.iter().map(|sender| sender.port).collect();
        for sender in &self.senders {
            self.record(sender, &moves, names, writer, recorder)?;
        }
        for mut flow in self.sampler.other_flows(names, &ports) {
            flow.moves = moves.of_name(&flow.connection, names);
            writer.flow(recorder, &flow)?;
        }
        self.sampler.drops(recorder)?;
        let wires = self.sampler.wires()?;
        // The wires began to count before the run did.
        let epoch = Time::ZERO + wires.at.since(Time::ZERO + self.elapsed()?);
        let lateness = &wires.lateness;
        let share = lateness.late() as f64 / lateness.frames().max(1) as f64;
        let lost = self.count(recorder)?;
        let since = |waits: &[Wait]| {
            let of_run = waits.iter().filter(|wait| wait.at >= epoch);
            of_run.map(|wait| (wait.thread, wait.at.since(epoch), wait.length)).collect()
        };
        let times = WireTimes {
            threads: wires.threads,
            wakes: since(&wires.wakes),
            reads: wires.times.reads.each(),
            writes: wires.times.writes.each(),
            stalls: since(&wires.stalls),
        };
        recorder.late(Late {
            max: lateness.times().max(),
            share,
            quantiles: lateness.times().spread(100),
            wires: times,
            lost,
        });
        if lost > 0 {
            let text = format!("{lost} packets found no room between a node and its wire, and were lost there");
            recorder.doubt(DoubtKind::LostFrames, text);
        }
        if share > 0.01 {
            let percent = share * 100.0;
            let text = format!("the machine did not keep up: {percent:.1} % of frames were more than 1 ms late");
            recorder.doubt(DoubtKind::LateMachine, text);
        }
        for group in self.groups.steered.iter().chain(&self.groups.plain) {
            group.destroy()?;
        }
        Ok(())
    }

    /// Takes what the hosts' TCP counted; returns how many packets nodes lost before their wires.
    fn count(&self, recorder: &mut Recorder) -> Result<u64, LabError> {
        let topology = &self.scenario().topology;
        let mut lost = 0u64;
        for id in topology.node_ids() {
            let counted = self.network.node(id).run(|| Ok((counters::tcp()?, counters::dropped_in_sending()?)))?;
            lost = lost.saturating_add(counted.1);
            if topology.node(id).kind == NodeKind::Host {
                recorder.tcp(counted.0);
            }
        }
        Ok(lost)
    }

    fn elapsed(&self) -> Result<Span, LabError> {
        Ok(now()?.since(self.epoch))
    }

    fn scenario(&self) -> &'a Scenario {
        &self.options.scenario
    }

    fn place(&self, node: NodeId, steered: bool) -> Place<'_> {
        let groups = if steered || self.groups.plain.is_empty() { &self.groups.steered } else { &self.groups.plain };
        Place { node: Some(self.network.node(node)), cgroup: &groups[node.index()], logs: &self.logs }
    }

    /// Starts the sinks and then the senders, which all wait for the same instant.
    fn start_generators(&mut self) -> Result<(), LabError> {
        let (options, mix, logs) = (self.options, self.mix.clone(), self.logs.clone());
        let (program, scenario) = (&options.program, &options.scenario);
        let generators = Generators { program, scenario, mix: &mix, logs: &logs };
        for sink in generators.sinks() {
            let process = Process::start(&sink.name, sink.command, &self.place(sink.node, sink.steered))?;
            self.sinks.push(process);
        }
        for (node, port) in generators.packet_sinks() {
            let bound = self.network.node(node).run(|| Ok(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port))))?;
            self._packet_sinks.push(bound.map_err(LabError::file(format!("port {port} of UDP")))?);
        }
        for sink in &mut self.sinks {
            sink.wait_ready(&|| options.is_stopped())?;
        }
        self.epoch = now()? + LEAD;
        for source in generators.sources(self.epoch)? {
            let Source { flow, name, from, to, port, steered, data, command } = source;
            let process = Process::start(&format!("send-{name}"), command, &self.place(from, steered))?;
            let endless = |one: &Flow| matches!(one, Flow::Bulk(bulk) if bulk.size.is_none());
            let sized = !scenario.flows.iter().any(|one| one.name() == flow && endless(one));
            self.senders.push(Sender { flow, name, from, to, port, sized, data, process });
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), LabError> {
        match action {
            Action::Links(step) => {
                if let Cause::Event(number) = step.cause
                    && let Some(event) = self.scenario().events.get(number)
                {
                    let at = now()?;
                    self.made.push(Made { at, since_start: at.since(self.epoch), change: event.change });
                }
                Ok(self.timeline.apply(&step, &self.network.wires())?)
            }
            Action::Start(index) => self.start_program(index),
            Action::Stop(index) => {
                for program in self.programs.iter_mut().filter(|program| program.flow == index) {
                    program.process.ask_to_stop();
                    program.waited = false;
                }
                Ok(())
            }
        }
    }

    fn start_program(&mut self, index: usize) -> Result<(), LabError> {
        let topology = &self.scenario().topology;
        let Some(Flow::Exec(flow)) = self.scenario().flows.get(index) else { return Ok(()) };
        let unknown = |error: sidestep_net::TopologyError| LabError::Process {
            name: flow.name.clone(),
            problem: "cannot start".into(),
            words: error.to_string(),
            environment: false,
        };
        let resolved = flow.resolved(topology).map_err(unknown)?;
        let Some((program, arguments)) = resolved.command.split_first() else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(arguments).envs(&resolved.env).current_dir(&self.logs);
        let process = Process::start(&flow.name, command, &self.place(flow.node, true))?;
        self.programs.push(Program { flow: index, waited: flow.wait, process });
        Ok(())
    }

    /// Fails if a process has ended early. Programs may end when their work is done.
    fn check_processes(&mut self) -> Result<(), LabError> {
        self.daemons.check()?;
        for sink in &mut self.sinks {
            if sink.has_ended() {
                return Err(sink.failure("ended during the run"));
            }
        }
        for sender in &mut self.senders {
            check_exit(&mut sender.process)?;
        }
        for program in self.programs.iter_mut().filter(|program| program.waited) {
            check_exit(&mut program.process)?;
        }
        Ok(())
    }

    /// Waits for the processes that end by themselves; returns which programs did not, and were ended.
    fn await_all(&mut self) -> Result<Vec<String>, LabError> {
        let deadline = Instant::now() + GRACE;
        let late = loop {
            self.check_processes()?;
            let mut senders = self.senders.iter_mut().map(|sender| &mut sender.process);
            let sender = senders.find_map(|process| (!process.has_ended()).then_some(process));
            let programs = self.programs.iter_mut().filter(|program| program.waited);
            let running: Vec<_> =
                programs.filter_map(|program| (!program.process.has_ended()).then_some(program)).collect();
            if sender.is_none() && running.is_empty() {
                break Vec::new();
            }
            if Instant::now() > deadline {
                match sender {
                    Some(sender) => return Err(sender.failure("still ran some seconds after the end of the scenario")),
                    None => break running.iter().map(|program| program.is_late()).collect(),
                }
            }
            if self.options.is_stopped() {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut programs: Vec<_> = self.programs.drain(..).map(|program| program.process).collect();
        stop_all(&mut programs);
        Ok(late)
    }

    fn record(
        &self,
        sender: &Sender,
        moves: &Moves,
        names: &Names,
        writer: &mut Records,
        recorder: &mut Recorder,
    ) -> Result<(), LabError> {
        let topology = &self.scenario().topology;
        let remote = SocketAddrV6::new(host_address(topology, sender.to), sender.port, 0, 0);
        for line in sender.process.output()?.lines().filter(|line| line.starts_with('{')) {
            let out: FlowOut = serde_json::from_str(line)
                .map_err(|error| LabError::file(self.logs.join(sender.process.name()))(error.into()))?;
            let local = SocketAddrV6::new(host_address(topology, sender.from), out.local_port, 0, 0);
            if let Some(error) = &out.error {
                let text = format!("{} connection {}: {error}", sender.name, out.connection);
                recorder.doubt(DoubtKind::FailedConnections, text);
            }
            let since = |nanos| Time::ZERO + Monotonic::from_nanos(nanos).since(self.epoch);
            let outage = |outage: &OutageOut| sidestep_results::Outage {
                at: since(outage.at_ns),
                rto: Span::from_nanos(outage.rto_ns),
                until: outage.until_ns.map(since),
                timeouts: outage.timeouts,
            };
            let connection = names.connection(local, remote);
            let series = match sender.data {
                Data::Sent => Some(connection.clone()),
                Data::Answered => Some(names.connection(remote, local)),
                Data::OnSubflows => None,
            };
            let flow = sidestep_results::FlowRecord {
                flow: match out.user {
                    Some(user) => format!("{}-{user}-{}", sender.flow, out.connection),
                    None => format!("{}-{}", sender.name, out.connection),
                },
                from: name_of(topology, sender.from),
                to: name_of(topology, sender.to),
                connection,
                series,
                start: since(out.start_ns),
                end: since(out.end_ns),
                sized: sender.sized,
                completed: out.completed,
                bytes: sidestep_net::Bytes::new(out.bytes_acked),
                bytes_in_window: sidestep_net::Bytes::new(out.bytes_in_window),
                retransmits: u64::from(out.retransmits),
                // One of the two is zero, unless both ends send.
                moves: moves.of(local, remote) + moves.of(remote, local),
                timeouts: u64::from(out.timeouts),
                outages: out.outages.iter().map(outage).collect(),
            };
            if let (Some(due), true) = (out.due_ns, out.local_port > 0) {
                let due = since(due);
                recorder.late_start(due.since(Time::ZERO), flow.start.since(due));
            }
            recorder.late_wakeups(self.wakeups(&out.late_wakeups_ns));
            writer.flow(recorder, &flow)?;
        }
        Ok(())
    }

    /// Takes how late servers answered; one that was killed leaves nothing.
    fn take_late_answers(&self, recorder: &mut Recorder) -> Result<(), LabError> {
        for sink in &self.sinks {
            let output = sink.output()?;
            let seen = output.lines().find_map(|line| serde_json::from_str::<SinkOut>(line).ok()).unwrap_or_default();
            recorder.late_wakeups(self.wakeups(&seen.late_wakeups_ns));
        }
        Ok(())
    }

    /// Wake-ups as the results have them: counted from the start of the run, without those before.
    fn wakeups(&self, of: &[(u64, u64)]) -> impl Iterator<Item = (Span, Span)> {
        let at = of.iter().map(|(at, late)| (Monotonic::from_nanos(*at), Span::from_nanos(*late)));
        at.filter(|(at, _)| *at >= self.epoch).map(|(at, late)| (at.since(self.epoch), late))
    }
}

impl Program {
    /// What the results lack, as the program did not end.
    fn is_late(&self) -> String {
        let (name, seconds) = (self.process.name(), GRACE.as_secs());
        format!("flow `{name}` still ran {seconds} s after the end of the scenario, and was ended")
    }
}

impl Groups {
    /// Makes the groups; if `plain`, also those of connections that agents leave alone.
    fn make(site: &LabDir, topology: &Topology, plain: bool) -> Result<Self, LabError> {
        let make = |kind: &str| -> Result<Vec<Cgroup>, LabError> {
            let group = |node: &Node| Ok(site.cgroup().child(&format!("{kind}-{}", node.name))?);
            topology.nodes().iter().map(group).collect()
        };
        Ok(Groups { steered: make("node")?, plain: if plain { make("plain")? } else { Vec::new() } })
    }
}

fn check_exit(process: &mut Process) -> Result<(), LabError> {
    if process.has_ended() && !process.status().is_some_and(|status| status.success()) {
        return Err(process.failure("failed"));
    }
    Ok(())
}
