//! The traffic generator's processes: which run where, and by which commands.

use std::{fs, net::SocketAddrV6, path::Path, process::Command};

use sidestep_net::{NodeId, Rate, Span, Topology};
use sidestep_scenario::{
    BulkFlow, CbrFlow, ClosedLoopFlow, FIRST_SERVER_PORT, FLOW_STREAMS, Flow, OpenLoopFlow, Scenario,
};

use crate::{
    error::LabError,
    mix::RunPlan,
    nodes::{host_address, name_of},
    traffic::{Monotonic, SocketOptions},
};

/// How long endless flows last beyond the end of the run, so that the last sample finds their sockets.
const LINGER: Span = Span::from_millis(150);

/// What the generator's command lines are made from.
#[derive(Clone, Copy, Debug)]
pub struct Generators<'a> {
    /// The `sidestep` program.
    pub program: &'a Path,
    /// The experiment.
    pub scenario: &'a Scenario,
    /// How its flows are carried.
    pub mix: &'a RunPlan,
    /// Directory of logs.
    pub logs: &'a Path,
}

/// A process in which connections of a flow end.
#[derive(Debug)]
pub struct Sink {
    /// Name of the process.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// Whether daemons may move its connections.
    pub steered: bool,
    /// What to run.
    pub command: Command,
}

/// A process in which a flow's connections, or packets, between one pair of hosts begin.
#[derive(Debug)]
pub struct Source {
    /// Name of the flow.
    pub flow: String,
    /// Name of the flow and number of the pair.
    pub name: String,
    /// Where it runs.
    pub from: NodeId,
    /// Where the other end is.
    pub to: NodeId,
    /// Port there.
    pub port: u16,
    /// Whether daemons may move its connections.
    pub steered: bool,
    /// How the data travel.
    pub data: Data,
    /// What to run.
    pub command: Command,
}

/// On which sockets a flow's data are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// On the socket of the end that opens the connection.
    Sent,
    /// On the other end's: they answer a request.
    Answered,
    /// On those of MPTCP's subflows.
    OnSubflows,
}

impl Generators<'_> {
    /// The sinks of all flows of connections.
    pub fn sinks(&self) -> Vec<Sink> {
        let mut sinks = Vec::new();
        for (number, flow) in self.scenario.flows.iter().enumerate() {
            if matches!(flow, Flow::Exec(_) | Flow::Cbr(_)) {
                continue;
            }
            let answer = is_answered(flow);
            let (port, carried) = (port(number, flow), self.mix.carried(number));
            for node in receivers(flow) {
                let mut command = Command::new(self.program);
                command.args(["traffic", "sink", "--listen"]).arg(format!("[::]:{port}"));
                if answer {
                    command.arg("--answer");
                }
                add_socket(&mut command, &carried.socket);
                let name = format!("sink-{}-{port}", name_of(self.topology(), node));
                sinks.push(Sink { name, node, steered: carried.steered, command });
            }
        }
        sinks
    }

    /// The hosts and ports that receive packets at a constant rate.
    pub fn packet_sinks(&self) -> Vec<(NodeId, u16)> {
        let cbr = |(number, flow): (usize, &Flow)| {
            let is_cbr = matches!(flow, Flow::Cbr(_));
            let at = move |node| (node, port(number, flow));
            is_cbr.then(|| receivers(flow).into_iter().map(at).collect::<Vec<_>>())
        };
        self.scenario.flows.iter().enumerate().filter_map(cbr).flatten().collect()
    }

    /// The sources of all flows, which begin with the run at `epoch`.
    pub fn sources(&self, epoch: Monotonic) -> Result<Vec<Source>, LabError> {
        let mut sources = Vec::new();
        for (number, flow) in self.scenario.flows.iter().enumerate() {
            let mut commands = match flow {
                Flow::Bulk(of) => self.bulk(of, number, epoch)?,
                Flow::OpenLoop(of) => self.open_loop(of, number, epoch)?,
                Flow::ClosedLoop(of) => self.closed_loop(of, number, epoch)?,
                Flow::Cbr(of) => self.cbr(of, number, epoch),
                Flow::Exec(_) => Vec::new(),
            };
            let carried = self.mix.carried(number);
            let data = match carried.socket.mptcp {
                true => Data::OnSubflows,
                false if is_answered(flow) => Data::Answered,
                false => Data::Sent,
            };
            for (pair, ((from, to), command)) in flow.pairs().iter().zip(&mut commands).enumerate() {
                let Some(mut command) = command.take() else { continue };
                if !matches!(flow, Flow::Cbr(_)) {
                    add_socket(&mut command, &carried.socket);
                }
                sources.push(Source {
                    flow: flow.name().into(),
                    name: format!("{}-{pair}", flow.name()),
                    from: *from,
                    to: *to,
                    port: port(number, flow),
                    steered: carried.steered,
                    data,
                    command,
                });
            }
        }
        Ok(sources)
    }

    /// A command for each pair of hosts, with the pair's connections.
    fn bulk(&self, flow: &BulkFlow, number: usize, epoch: Monotonic) -> Result<Vec<Option<Command>>, LabError> {
        let starts = flow.starts(number, self.scenario.seed);
        let command = |(pair, ((_, to), starts)): (usize, (&(NodeId, NodeId), &[Span]))| {
            let mut command = self.bulk_to(flow, number, *to, epoch);
            if flow.start_jitter > Span::ZERO {
                let schedule: String = starts.iter().map(|start| format!("{} -\n", start.as_nanos())).collect();
                command.arg("--schedule").arg(self.write(&format!("{}-{pair}.schedule", flow.name), &schedule)?);
            }
            Ok(Some(command))
        };
        flow.pairs.iter().zip(starts.chunks(flow.connections.max(1) as usize)).enumerate().map(command).collect()
    }

    fn bulk_to(&self, flow: &BulkFlow, number: usize, to: NodeId, epoch: Monotonic) -> Command {
        let duration = self.scenario.duration;
        let stop = match (flow.stop, flow.size) {
            (None, None) => duration + LINGER,
            (stop, _) => stop.unwrap_or(duration).min(duration),
        };
        let mut command = self.send(number, to, epoch);
        command.args(["--connections", &flow.connections.to_string()]);
        command.args(["--start-ns", &nanos(flow.start), "--stop-ns", &nanos(stop)]);
        if let Some(size) = flow.size {
            command.args(["--size", &size.get().to_string()]);
        }
        command
    }

    /// A command for each pair of hosts, with the pair's transfers; `None` for a pair without transfers.
    fn open_loop(
        &self,
        flow: &OpenLoopFlow,
        number: usize,
        epoch: Monotonic,
    ) -> Result<Vec<Option<Command>>, LabError> {
        let mut schedules = vec![String::new(); flow.pairs.len()];
        for arrival in flow.arrivals(number, self.scenario.seed, self.scenario.duration) {
            let line = format!("{} {}\n", arrival.at.as_nanos(), arrival.size.get());
            schedules[arrival.pair].push_str(&line);
        }
        let command = |(pair, ((_, to), schedule)): (usize, (&(NodeId, NodeId), String))| {
            if schedule.is_empty() {
                return Ok(None);
            }
            let path = self.write(&format!("{}-{pair}.schedule", flow.name), &schedule)?;
            let mut command = self.send(number, *to, epoch);
            command.args(["--start-ns", "0", "--stop-ns", &nanos(self.scenario.duration), "--schedule"]).arg(path);
            if let Some(request) = flow.request {
                command.args(["--request", &request.get().to_string()]);
            }
            Ok(Some(command))
        };
        flow.pairs.iter().zip(schedules).enumerate().map(command).collect()
    }

    /// A command for each pair, with its users.
    fn closed_loop(
        &self,
        flow: &ClosedLoopFlow,
        number: usize,
        epoch: Monotonic,
    ) -> Result<Vec<Option<Command>>, LabError> {
        let duration = self.scenario.duration;
        let sizes = self.write(&format!("{}.sizes", flow.name), &flow.size.to_string())?;
        let command = |(pair, (_, to)): (usize, &(NodeId, NodeId))| {
            let mut command = self.send(number, *to, epoch);
            command.args(["--start-ns", &nanos(flow.start), "--stop-ns", &nanos(duration)]);
            command.args(["--users", &flow.users.to_string(), "--think-ns", &nanos(flow.think)]);
            command.args(["--first-user", &(pair as u64 * u64::from(flow.users)).to_string()]);
            command.args(["--until-ns", &nanos(flow.stop.unwrap_or(duration)), "--sizes"]).arg(&sizes);
            command.args(["--seed", &self.scenario.seed.to_string(), "--stream", &stream(number)]);
            Some(command)
        };
        Ok(flow.pairs.iter().enumerate().map(command).collect())
    }

    fn cbr(&self, flow: &CbrFlow, number: usize, epoch: Monotonic) -> Vec<Option<Command>> {
        let stop = flow.stop.unwrap_or(self.scenario.duration);
        let command = |(pair, ((_, to), rate)): (usize, (&(NodeId, NodeId), &Rate))| {
            let mut command = self.to("cbr", number, *to, epoch);
            command.args(["--rate-bps", &rate.bits_per_sec().to_string()]);
            command.args(["--packet", &flow.packet.to_string()]);
            command.args(["--start-ns", &nanos(flow.start), "--stop-ns", &nanos(stop)]);
            let seed = self.scenario.seed.wrapping_add(pair as u64);
            command.args(["--seed", &seed.to_string(), "--stream", &stream(number)]);
            if let Some((on, off)) = flow.bursts {
                command.args(["--on-ns", &nanos(on), "--off-ns", &nanos(off)]);
            }
            if flow.random {
                command.arg("--random");
            }
            Some(command)
        };
        flow.pairs.iter().zip(&flow.rates).enumerate().map(command).collect()
    }

    fn send(&self, number: usize, to: NodeId, epoch: Monotonic) -> Command {
        let mut command = self.to("send", number, to, epoch);
        let (from, to) = (nanos(self.scenario.warmup), nanos(self.scenario.duration));
        command.args(["--window-from-ns", &from, "--window-to-ns", &to]);
        command
    }

    fn to(&self, what: &str, number: usize, to: NodeId, epoch: Monotonic) -> Command {
        let port = self.scenario.flows.get(number).map_or(FIRST_SERVER_PORT, |flow| port(number, flow));
        let to = SocketAddrV6::new(host_address(self.topology(), to), port, 0, 0);
        let mut command = Command::new(self.program);
        command.args(["traffic", what, "--to"]).arg(to.to_string());
        command.args(["--epoch-ns", &epoch.as_nanos().to_string()]);
        command
    }

    /// Writes a file for the generator and returns its path.
    fn write(&self, name: &str, text: &str) -> Result<std::path::PathBuf, LabError> {
        let path = self.logs.join(name);
        fs::write(&path, text).map_err(LabError::file(&path))?;
        Ok(path)
    }

    fn topology(&self) -> &Topology {
        &self.scenario.topology
    }
}

fn port(number: usize, flow: &Flow) -> u16 {
    let own = match flow {
        Flow::Bulk(flow) => flow.port,
        Flow::OpenLoop(flow) => flow.port,
        Flow::ClosedLoop(flow) => flow.port,
        Flow::Cbr(_) | Flow::Exec(_) => None,
    };
    own.unwrap_or(FIRST_SERVER_PORT.wrapping_add(number as u16))
}

fn is_answered(flow: &Flow) -> bool {
    matches!(flow, Flow::OpenLoop(flow) if flow.request.is_some())
}

/// The hosts where a flow ends, each once.
fn receivers(flow: &Flow) -> Vec<NodeId> {
    let mut receivers: Vec<_> = flow.pairs().iter().map(|(_, to)| *to).collect();
    receivers.sort();
    receivers.dedup();
    receivers
}

fn add_socket(command: &mut Command, socket: &SocketOptions) {
    if socket.mptcp {
        command.arg("--mptcp");
    }
    if let Some(name) = &socket.congestion_control {
        command.args(["--congestion-control", name]);
    }
    if let Some(window) = socket.window {
        command.args(["--window", &window.to_string()]);
    }
    if let Some(rehash) = socket.rehash {
        command.args(["--rehash", &rehash.to_string()]);
    }
}

fn nanos(span: Span) -> String {
    span.as_nanos().to_string()
}

/// The flow's stream of random numbers, which is also the simulator's.
fn stream(number: usize) -> String {
    (FLOW_STREAMS + number as u64).to_string()
}
