//! One system's run: builds the network, starts daemons and traffic, drives events, and collects what they leave.

use std::{
    fs,
    net::SocketAddrV6,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use sidestep_linux::{cgroup::Cgroup, wire::WireError};
use sidestep_model::{
    NodeId, Rate, Scenario, Span, Time, Topology,
    scenario::{BulkFlow, FIRST_SERVER_PORT, Flow, PoissonFlow, SystemSpec},
    srv6, topology_file,
};
use sidestep_paths::Igp;
use sidestep_results::{Recorder, Records};

use crate::{
    daemons::{self, Daemons},
    error::LabError,
    moves::{self, Moves},
    names::Names,
    network::Network,
    plan,
    processes::{Place, Process, stop_all},
    run::RunOptions,
    sampler::Sampler,
    site::Site,
    system::{self, Setup},
    timeline::{Action, Made, Timeline},
    traffic::{FlowOut, Monotonic, OutageOut},
};

/// Between the start of the generators and of the run.
const LEAD: Span = Span::from_millis(300);
/// What endless flows go on beyond the end of the run: the last sample shall find their sockets.
const LINGER: Span = Span::from_millis(150);
/// What waited-for processes may take beyond the end of the run.
const GRACE: Duration = Duration::from_secs(5);

/// A system under test, running.
pub struct Session<'a> {
    options: &'a RunOptions,
    setup: Setup,
    logs: PathBuf,
    sampler: Sampler,
    timeline: Timeline,
    /// Events of links that have happened.
    made: Vec<Made>,
    epoch: Monotonic,
    daemons: Daemons,
    senders: Vec<Sender>,
    sinks: Vec<Process>,
    programs: Vec<Program>,
    groups: Vec<Cgroup>,
    // The last, so that processes end before their network does.
    network: Network,
}

/// A generator process: the connections of one pair of hosts.
struct Sender {
    flow: String,
    from: NodeId,
    to: NodeId,
    port: u16,
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
    pub fn start(options: &'a RunOptions, site: &Site, system: &SystemSpec) -> Result<Self, LabError> {
        let scenario = &options.scenario;
        let topology = &scenario.topology;
        let setup = system::setup(scenario, system)?;
        let logs = options.out.join("logs").join(system.to_string().replace(['/', ':'], "_"));
        fs::create_dir_all(&logs).map_err(LabError::file(&logs))?;

        let plans = plan::plan(topology, &Igp::new(topology), setup.multipath)?;
        let network = Network::build(topology, plans, &scenario.tcp, scenario.seed)?;
        let groups = topology
            .nodes()
            .iter()
            .map(|node| Ok(site.cgroup().child(&format!("node-{}", node.name))?))
            .collect::<Result<Vec<_>, LabError>>()?;
        let sampler = Sampler::new(scenario, &network, scenario.knobs.agent.mark_mask)?;
        let daemons = match &setup.agent {
            Some(knobs) => daemons::start(options, knobs, site, &network, &groups, &logs)?,
            None => Daemons::default(),
        };
        let mut session = Session {
            options,
            setup,
            logs,
            sampler,
            timeline: Timeline::new(scenario),
            made: Vec::new(),
            epoch: Monotonic::from_nanos(0),
            daemons,
            senders: Vec::new(),
            sinks: Vec::new(),
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
        self.sampler.sample(now, names, writer, recorder)
    }

    /// Waits for what is to be waited for, ends the rest in order and records what they did.
    pub fn finish(mut self, names: &Names, writer: &mut Records, recorder: &mut Recorder) -> Result<(), LabError> {
        self.await_all()?;
        stop_all(&mut self.sinks);
        self.daemons.stop();
        let moves = match &self.setup.agent {
            Some(_) => moves::read(&self.daemons.events, self.epoch, recorder)?,
            None => Moves::default(),
        };
        moves.tell_updates(&self.made, recorder);
        let ports: Vec<_> = self.senders.iter().map(|sender| sender.port).collect();
        for sender in &self.senders {
            self.record(sender, &moves, names, writer, recorder)?;
        }
        for mut flow in self.sampler.other_flows(names, &ports) {
            flow.moves = moves.of_name(&flow.connection, names);
            writer.flow(recorder, &flow)?;
        }
        let wires = self.sampler.wires()?;
        let lateness = &wires.lateness;
        recorder.late(lateness.max());
        let share = lateness.late() as f64 / lateness.frames().max(1) as f64;
        if share > 0.01 {
            let percent = share * 100.0;
            recorder.note(format!("the machine did not keep up: {percent:.1} % of frames were more than 1 ms late"));
        }
        for group in &self.groups {
            group.destroy()?;
        }
        Ok(())
    }

    fn elapsed(&self) -> Result<Span, LabError> {
        Ok(now()?.since(self.epoch))
    }

    fn scenario(&self) -> &'a Scenario {
        &self.options.scenario
    }

    fn place(&self, node: NodeId) -> Place<'_> {
        let cgroup = &self.groups[node.index()];
        Place { node: Some(self.network.node(node)), cgroup, logs: &self.logs }
    }

    /// Sinks first, then senders, which all wait for the same instant.
    fn start_generators(&mut self) -> Result<(), LabError> {
        let mut generated = Vec::new();
        for (number, flow) in self.scenario().flows.iter().enumerate() {
            // As the simulator numbers them.
            let port = FIRST_SERVER_PORT.wrapping_add(number as u16);
            match flow {
                Flow::Bulk(of) => generated.push((of.port.unwrap_or(port), number, &of.pairs, false)),
                Flow::Poisson(of) => {
                    generated.push((of.port.unwrap_or(port), number, &of.pairs, of.request.is_some()));
                }
                Flow::Exec(_) | Flow::ClosedLoop(_) | Flow::Cbr(_) => {}
            }
        }
        for (port, _, pairs, answer) in &generated {
            let mut receivers: Vec<_> = pairs.iter().map(|(_, to)| *to).collect();
            receivers.sort();
            receivers.dedup();
            for to in receivers {
                self.start_sink(to, *port, *answer)?;
            }
        }
        for sink in &mut self.sinks {
            sink.wait_ready(&|| self.options.is_stopped())?;
        }
        self.epoch = now()? + LEAD;
        for (port, number, ..) in generated {
            match &self.scenario().flows[number] {
                Flow::Bulk(flow) => {
                    for (index, (from, to)) in flow.pairs.iter().enumerate() {
                        let name = format!("{}-{index}", flow.name);
                        let command = self.bulk_command(flow, *to, port);
                        self.start_sender(name, command, *from, *to, port)?;
                    }
                }
                Flow::Poisson(flow) => self.start_poisson(flow, number, port)?,
                Flow::Exec(_) | Flow::ClosedLoop(_) | Flow::Cbr(_) => {}
            }
        }
        Ok(())
    }

    /// A sender for each pair, with the transfers that arrive there.
    fn start_poisson(&mut self, flow: &PoissonFlow, number: usize, port: u16) -> Result<(), LabError> {
        let scenario = self.scenario();
        let mut schedules = vec![String::new(); flow.pairs.len()];
        for arrival in flow.arrivals(number, scenario.seed, scenario.duration) {
            let line = format!("{} {}\n", arrival.at.as_nanos(), arrival.size.get());
            schedules[arrival.pair].push_str(&line);
        }
        for (index, ((from, to), schedule)) in flow.pairs.iter().zip(schedules).enumerate() {
            if schedule.is_empty() {
                continue;
            }
            let name = format!("{}-{index}", flow.name);
            let path = self.logs.join(format!("{name}.schedule"));
            fs::write(&path, schedule).map_err(LabError::file(&path))?;
            let mut command = self.send_command(*to, port);
            command.args(["--connections", "0", "--start-ns", "0"]);
            command.args(["--stop-ns", &scenario.duration.as_nanos().to_string(), "--schedule"]).arg(path);
            if let Some(request) = flow.request {
                command.args(["--request", &request.get().to_string()]);
            }
            self.start_sender(name, command, *from, *to, port)?;
        }
        Ok(())
    }

    fn start_sink(&mut self, node: NodeId, port: u16, answer: bool) -> Result<(), LabError> {
        let mut command = Command::new(&self.options.program);
        command.args(["traffic", "sink", "--listen"]).arg(format!("[::]:{port}"));
        if answer {
            command.arg("--answer");
        }
        let name = format!("sink-{}-{port}", name_of(&self.scenario().topology, node));
        let sink = Process::start(&name, command, &self.place(node))?;
        self.sinks.push(sink);
        Ok(())
    }

    fn bulk_command(&self, flow: &BulkFlow, to: NodeId, port: u16) -> Command {
        let scenario = self.scenario();
        let stop = match (flow.stop, flow.size) {
            (None, None) => scenario.duration + LINGER,
            (stop, _) => stop.unwrap_or(scenario.duration).min(scenario.duration),
        };
        let nanos = |span: Span| span.as_nanos().to_string();
        let mut command = self.send_command(to, port);
        command.args(["--connections", &flow.connections.to_string()]);
        command.args(["--start-ns", &nanos(flow.start), "--stop-ns", &nanos(stop)]);
        if let Some(size) = flow.size {
            command.args(["--size", &size.get().to_string()]);
        }
        command
    }

    fn send_command(&self, to: NodeId, port: u16) -> Command {
        let scenario = self.scenario();
        let to = SocketAddrV6::new(host_address(&scenario.topology, to), port, 0, 0);
        let mut command = Command::new(&self.options.program);
        command.args(["traffic", "send", "--to"]).arg(to.to_string());
        command.args(["--epoch-ns", &self.epoch.as_nanos().to_string()]);
        let nanos = |span: Span| span.as_nanos().to_string();
        command.args(["--window-from-ns", &nanos(scenario.warmup), "--window-to-ns", &nanos(scenario.duration)]);
        command
    }

    fn start_sender(
        &mut self,
        flow: String,
        command: Command,
        from: NodeId,
        to: NodeId,
        port: u16,
    ) -> Result<(), LabError> {
        let process = Process::start(&format!("send-{flow}"), command, &self.place(from))?;
        self.senders.push(Sender { flow, from, to, port, process });
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), LabError> {
        match action {
            Action::Link(index) => {
                let Some(event) = self.scenario().events.get(index) else { return Ok(()) };
                let at = now()?;
                self.made.push(Made { at, since_start: at.since(self.epoch), change: event.change });
                self.timeline.change(event, &self.network.wires()).map_err(|error: WireError| error.into())
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
        let unknown = |error: sidestep_model::TopologyError| LabError::Process {
            name: flow.name.clone(),
            problem: "cannot start".into(),
            words: error.to_string(),
            environment: false,
        };
        let resolved = flow.resolved(topology).map_err(unknown)?;
        let Some((program, arguments)) = resolved.command.split_first() else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(arguments).envs(&resolved.env).current_dir(&self.logs);
        let process = Process::start(&flow.name, command, &self.place(flow.node))?;
        self.programs.push(Program { flow: index, waited: flow.wait, process });
        Ok(())
    }

    /// No process may end early, but for programs that have done what they were for.
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

    fn await_all(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + GRACE;
        loop {
            self.check_processes()?;
            let programs = self.programs.iter_mut().filter(|program| program.waited).map(|p| &mut p.process);
            let mut waited = self.senders.iter_mut().map(|sender| &mut sender.process).chain(programs);
            let Some(running) = waited.find_map(|process| (!process.has_ended()).then_some(process)) else {
                break;
            };
            if Instant::now() > deadline {
                return Err(running.failure("still ran some seconds after the end of the scenario"));
            }
            if self.options.is_stopped() {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut programs: Vec<_> = self.programs.drain(..).map(|program| program.process).collect();
        stop_all(&mut programs);
        Ok(())
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
                recorder.note(format!("{} connection {}: {error}", sender.flow, out.connection));
            }
            let since = |nanos| Time::ZERO + Monotonic::from_nanos(nanos).since(self.epoch);
            let outage = |outage: &OutageOut| sidestep_results::Outage {
                at: since(outage.at_ns),
                rto: Span::from_nanos(outage.rto_ns),
                until: outage.until_ns.map(since),
                timeouts: outage.timeouts,
            };
            let flow = sidestep_results::FlowRecord {
                flow: format!("{}-{}", sender.flow, out.connection),
                from: name_of(topology, sender.from),
                to: name_of(topology, sender.to),
                connection: names.connection(local, remote),
                start: since(out.start_ns),
                end: since(out.end_ns),
                completed: out.completed,
                bytes: sidestep_model::Bytes::new(out.bytes_acked),
                bytes_in_window: sidestep_model::Bytes::new(out.bytes_in_window),
                retransmits: u64::from(out.retransmits),
                // One of them is zero, but where both ends send.
                moves: moves.of(local, remote) + moves.of(remote, local),
                outages: out.outages.iter().map(outage).collect(),
            };
            writer.flow(recorder, &flow)?;
        }
        Ok(())
    }
}

fn check_exit(process: &mut Process) -> Result<(), LabError> {
    if process.has_ended() && !process.status().is_some_and(|status| status.success()) {
        return Err(process.failure("failed"));
    }
    Ok(())
}

fn now() -> Result<Monotonic, LabError> {
    Monotonic::now().map_err(|error| LabError::file(Path::new("CLOCK_MONOTONIC"))(std::io::Error::other(error)))
}

pub(crate) fn name_of(topology: &Topology, node: NodeId) -> String {
    topology.node(node).name.clone()
}

pub(crate) fn host_address(topology: &Topology, node: NodeId) -> std::net::Ipv6Addr {
    // Scenarios assign every host a prefix.
    topology.node(node).prefix.map_or(std::net::Ipv6Addr::UNSPECIFIED, srv6::host_address)
}

/// The topology as the controller reads it.
pub(crate) fn write_topology(topology: &Topology, path: &Path) -> Result<(), LabError> {
    fs::write(path, topology_file::print(topology)).map_err(LabError::file(path))
}
