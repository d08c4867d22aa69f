//! The daemons of a lab: the very programs that an operator runs, started in the right places.
//!
//! A system says which [roles](Role) there are. A role knows on which nodes it runs and by which command. Readiness,
//! logs and failures are handled alike for all roles.

use sidestep_route_control::IrcSettings;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sidestep_linux::cgroup::Cgroup;
use sidestep_net::{NodeId, Topology};
use sidestep_policy::AgentSettings;
use sidestep_semper::SemperSettings;

use crate::{
    control::{self, Controlled},
    edges,
    error::LabError,
    network::Network,
    processes::{Place, Process, stop_all},
    run::RunOptions,
    session::{name_of, write_topology},
    site::LabDir,
    slots::events_file,
};

/// The part that a daemon plays.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// The controller, outside the network.
    Controller,
    /// The router daemon, on every router.
    Router,
    /// The agent with these settings, on every host.
    Agent(AgentSettings),
    /// The path manager for MPTCP, on every host: so many subflows of each connection, the first included.
    PathManager(u32),
    /// The edge daemon with these settings, on every router with hosts; with a table of flows if it is stateful.
    Edge(SemperSettings, bool),
    /// What answers probes, on these routers.
    Reflector(Vec<NodeId>),
    /// The route controller with these settings, on these edges.
    RouteControl(IrcSettings, Vec<Controlled>),
}

/// What daemons are started with: options, places and the network.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The options of the run.
    pub options: &'a RunOptions,
    /// The lab's control group and directory.
    pub site: &'a LabDir,
    /// The network.
    pub network: &'a Network,
    /// The control group of each node's flows that agents move.
    pub groups: &'a [Cgroup],
    /// Directory of logs.
    pub logs: &'a Path,
}

/// The daemons of one system.
#[derive(Debug, Default)]
pub struct Daemons {
    /// The processes of each role, in the order of their start.
    roles: Vec<Vec<Process>>,
    /// Where the host agents record what the path changer does.
    pub events: Vec<PathBuf>,
}

impl Role {
    /// The nodes that a daemon of the role runs on; `None` stands for the lab's own namespace.
    fn nodes(&self, topology: &Topology) -> Vec<Option<NodeId>> {
        match self {
            Role::Controller => vec![None],
            Role::Edge(..) => edges::edges(topology).into_iter().map(Some).collect(),
            Role::Reflector(routers) => routers.iter().copied().map(Some).collect(),
            Role::RouteControl(_, sites) => sites.iter().map(|site| Some(site.edge)).collect(),
            Role::Router => topology.node_ids().filter(|node| topology.is_router(*node)).map(Some).collect(),
            Role::Agent(_) | Role::PathManager(_) => {
                topology.node_ids().filter(|node| !topology.is_router(*node)).map(Some).collect()
            }
        }
    }

    /// What the role is called in the names of processes and logs.
    fn name(&self) -> &'static str {
        match self {
            Role::Controller => "controller",
            Role::Router => "router",
            Role::Agent(_) => "agent",
            Role::PathManager(_) => "mptcp-pm",
            Role::Edge(..) => "edge",
            Role::Reflector(_) => "reflector",
            Role::RouteControl(..) => "route-control",
        }
    }

    /// Whether two roles are of one kind, whatever their settings.
    pub fn is_like(&self, other: &Role) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Daemons {
    /// Starts the daemons role by role; a role starts when all daemons of the role before are ready.
    pub fn start(roles: &[Role], around: &Surroundings<'_>) -> Result<Daemons, LabError> {
        let mut daemons = Daemons::default();
        if roles.is_empty() {
            return Ok(daemons);
        }
        let topology = &around.options.scenario.topology;
        let cgroup = around.site.cgroup().child("daemons")?;
        for role in roles {
            let mut running = Vec::new();
            for node in role.nodes(topology) {
                let command = daemons.command(role, node, around)?;
                let name = match node {
                    Some(node) => format!("{}-{}", role.name(), name_of(topology, node)),
                    None => role.name().to_string(),
                };
                let node = node.map(|node| around.network.node(node));
                running.push(Process::start(&name, command, &Place { node, cgroup: &cgroup, logs: around.logs })?);
            }
            running.iter_mut().try_for_each(|process| process.wait_ready(&|| around.options.is_stopped()))?;
            daemons.roles.push(running);
        }
        Ok(daemons)
    }

    /// Fails if a daemon has ended.
    pub fn check(&mut self) -> Result<(), LabError> {
        match self.roles.iter_mut().flatten().find_map(|process| process.has_ended().then_some(process)) {
            Some(process) => Err(process.failure("ended during the run")),
            None => Ok(()),
        }
    }

    /// Ends all daemons, the last role first, so that later roles do not react to the end of earlier ones.
    pub fn stop(&mut self) {
        self.roles.iter_mut().rev().for_each(|role| stop_all(role));
    }

    fn command(&mut self, role: &Role, node: Option<NodeId>, around: &Surroundings<'_>) -> Result<Command, LabError> {
        let endpoint = format!("unix:{}", around.site.directory().join("controller.sock").display());
        match (role, node) {
            (Role::Agent(knobs), Some(node)) => {
                let events = events_file(around.logs, &name_of(topology(around), node));
                self.events.push(events.clone());
                agent(around, knobs, node, &endpoint, &events)
            }
            (Role::Router, Some(node)) => Ok(router(around, node, &endpoint)),
            (Role::PathManager(subflows), Some(_)) => Ok(path_manager(around, *subflows)),
            (Role::Edge(knobs, stateful), Some(node)) => edge(around, knobs, *stateful, node),
            (Role::Reflector(_), Some(_)) => Ok(reflector(around)),
            (Role::RouteControl(knobs, sites), Some(node)) => route_control(around, knobs, sites, node),
            (_, _) => controller(around, &endpoint),
        }
    }
}

fn topology<'a>(around: &Surroundings<'a>) -> &'a Topology {
    &around.options.scenario.topology
}

fn controller(around: &Surroundings<'_>, endpoint: &str) -> Result<Command, LabError> {
    let file = around.site.directory().join("topology.toml");
    write_topology(topology(around), &file)?;
    let knobs = around.options.scenario.paths;
    let mut command = Command::new(&around.options.program);
    command.arg("controller").arg("--topology").arg(&file).args(["--listen", endpoint]);
    command.args(["--max-segments", &knobs.max_segments.to_string()]);
    command.args(["--max-paths", &knobs.max_paths.to_string()]);
    if !knobs.adjacency {
        command.arg("--no-adjacency");
    }
    Ok(command)
}

fn router(around: &Surroundings<'_>, node: NodeId, endpoint: &str) -> Command {
    let topology = topology(around);
    let mut command = Command::new(&around.options.program);
    command.args(["router", "--controller", endpoint, "--node", &name_of(topology, node)]);
    for interface in &around.network.plan(node).interfaces {
        let link = &topology.link(interface.arc.link()).name;
        command.arg("--link").arg(format!("{link}={}", interface.name));
    }
    command
}

/// Each node has a network namespace of its own, and so a path manager; nothing is to be left of it.
fn path_manager(around: &Surroundings<'_>, subflows: u32) -> Command {
    let mut command = Command::new(&around.options.program);
    command.args(["mptcp-pm", "--no-state", "--subflows", &subflows.to_string()]);
    command
}

fn edge(around: &Surroundings<'_>, knobs: &SemperSettings, stateful: bool, node: NodeId) -> Result<Command, LabError> {
    let (topology, plan) = (topology(around), around.network.plan(node));
    let scenario = &around.options.scenario;
    let text = edges::config(topology, plan, knobs, stateful, scenario.chance(scenario.seed));
    let config = around.logs.join(format!("edge-{}.toml", name_of(topology, node)));
    std::fs::write(&config, text).map_err(LabError::file(&config))?;
    let mut command = Command::new(&around.options.program);
    command.args(["edge", "balance", "--config"]).arg(&config);
    Ok(command)
}

/// At all addresses: the kernel may still be looking whether somebody else has the router's own.
fn reflector(around: &Surroundings<'_>) -> Command {
    let mut command = Command::new(&around.options.program);
    command.arg("reflector").args(["--listen", &format!("[::]:{}", control::PORT)]);
    command
}

fn route_control(
    around: &Surroundings<'_>,
    knobs: &IrcSettings,
    sites: &[Controlled],
    node: NodeId,
) -> Result<Command, LabError> {
    let (topology, plan) = (topology(around), around.network.plan(node));
    let name = name_of(topology, node);
    let file = around.logs.join(format!("route-control-{name}.toml"));
    let failed = |problem: String| LabError::file(&file)(std::io::Error::other(problem));
    let site = sites.iter().find(|site| site.edge == node).ok_or_else(|| failed("no such edge".into()))?;
    let text = control::config(topology, plan, site, knobs).map_err(failed)?;
    std::fs::write(&file, text).map_err(LabError::file(&file))?;
    let mut command = Command::new(&around.options.program);
    command.args(["edge", "route-control", "--config"]).arg(&file);
    Ok(command)
}

fn agent(
    around: &Surroundings<'_>,
    knobs: &AgentSettings,
    node: NodeId,
    endpoint: &str,
    events: &Path,
) -> Result<Command, LabError> {
    let name = name_of(topology(around), node);
    // The agent appends; the record of an earlier run is none of this one.
    match std::fs::remove_file(events) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(LabError::file(events)(error)),
        _ => {}
    }
    let config = around.logs.join(format!("agent-{name}.toml"));
    let tables = toml::to_string(&std::collections::BTreeMap::from([("agent", knobs)]));
    let tables = tables.map_err(|error| LabError::file(&config)(std::io::Error::other(error)))?;
    let text = format!("# The path changer on {name}.\n\n{tables}");
    std::fs::write(&config, text).map_err(LabError::file(&config))?;
    let mut command = Command::new(&around.options.program);
    // A lab leaves no pinned objects behind.
    command.args(["agent", "--controller", endpoint, "--node", &name, "--no-state"]);
    let group = around.groups.get(node.index()).map(Cgroup::path).unwrap_or(Path::new(""));
    command.arg("--cgroup").arg(group).arg("--config").arg(&config).arg("--events").arg(events);
    command.args(["--events-size", "0"]);
    Ok(command)
}
