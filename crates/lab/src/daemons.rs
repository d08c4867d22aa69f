//! The controller and the agents of a lab: the very programs that an operator runs, started in the right places.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sidestep_linux::cgroup::Cgroup;
use sidestep_model::{NodeId, scenario::AgentKnobs};

use crate::{
    error::LabError,
    network::Network,
    processes::{Place, Process, stop_all},
    run::RunOptions,
    session::{name_of, write_topology},
    site::Site,
};

/// The daemons of one system.
#[derive(Debug, Default)]
pub struct Daemons {
    /// The controller is the first.
    processes: Vec<Process>,
    /// Where the host agents record what the path changer does.
    pub events: Vec<PathBuf>,
}

/// Starts the controller, then an agent on every router, then one on every host, and waits until all do their work.
pub fn start(
    options: &RunOptions,
    knobs: &AgentKnobs,
    site: &Site,
    network: &Network,
    groups: &[Cgroup],
    logs: &Path,
) -> Result<Daemons, LabError> {
    let topology = &options.scenario.topology;
    let cgroup = site.cgroup().child("daemons")?;
    let endpoint = format!("unix:{}", site.directory().join("controller.sock").display());
    let stop = || options.is_stopped();
    let mut daemons = Daemons::default();

    let place = Place { node: None, cgroup: &cgroup, logs };
    let mut controller = Process::start("controller", controller(options, site, &endpoint)?, &place)?;
    controller.wait_ready(&stop)?;
    daemons.processes.push(controller);

    let (routers, hosts): (Vec<_>, Vec<_>) = topology.node_ids().partition(|node| topology.is_router(*node));
    for nodes in [routers, hosts] {
        let first = daemons.processes.len();
        for node in nodes {
            let name = name_of(topology, node);
            let command = if topology.is_router(node) {
                router(options, network, node, &endpoint)
            } else {
                let events = logs.join(format!("events-{name}.jsonl"));
                daemons.events.push(events.clone());
                host(options, knobs, &name, &groups[node.index()], &endpoint, &events, logs)?
            };
            let place = Place { node: Some(network.node(node)), cgroup: &cgroup, logs };
            daemons.processes.push(Process::start(&format!("agent-{name}"), command, &place)?);
        }
        for process in &mut daemons.processes[first..] {
            process.wait_ready(&stop)?;
        }
    }
    Ok(daemons)
}

impl Daemons {
    /// Fails if one has ended.
    pub fn check(&mut self) -> Result<(), LabError> {
        match self.processes.iter_mut().find_map(|process| process.has_ended().then_some(process)) {
            Some(process) => Err(process.failure("ended during the run")),
            None => Ok(()),
        }
    }

    /// Ends all: the agents first, for which the controller's end would be news.
    pub fn stop(&mut self) {
        let first = 1.min(self.processes.len());
        let (controller, agents) = self.processes.split_at_mut(first);
        stop_all(agents);
        stop_all(controller);
    }
}

fn controller(options: &RunOptions, site: &Site, endpoint: &str) -> Result<Command, LabError> {
    let file = site.directory().join("topology.toml");
    write_topology(&options.scenario.topology, &file)?;
    let knobs = options.scenario.paths;
    let mut command = Command::new(&options.program);
    command.arg("controller").arg("--topology").arg(&file).args(["--listen", endpoint]);
    command.args(["--max-segments", &knobs.max_segments.to_string()]);
    command.args(["--max-paths", &knobs.max_paths.to_string()]);
    if !knobs.adjacency {
        command.arg("--no-adjacency");
    }
    Ok(command)
}

fn router(options: &RunOptions, network: &Network, node: NodeId, endpoint: &str) -> Command {
    let topology = &options.scenario.topology;
    let mut command = Command::new(&options.program);
    command.args(["router", "--controller", endpoint, "--node", &name_of(topology, node)]);
    for interface in &network.plan(node).interfaces {
        let link = &topology.link(interface.arc.link()).name;
        command.arg("--link").arg(format!("{link}={}", interface.name));
    }
    command
}

fn host(
    options: &RunOptions,
    knobs: &AgentKnobs,
    name: &str,
    group: &Cgroup,
    endpoint: &str,
    events: &Path,
    logs: &Path,
) -> Result<Command, LabError> {
    let config = logs.join(format!("agent-{name}.toml"));
    let tables = toml::to_string(&std::collections::BTreeMap::from([("agent", knobs)]));
    let tables = tables.map_err(|error| LabError::file(&config)(std::io::Error::other(error)))?;
    let text = format!("# The path changer on {name}.\n\n{tables}");
    std::fs::write(&config, text).map_err(LabError::file(&config))?;
    let mut command = Command::new(&options.program);
    // Labs leave nothing behind that has a name.
    command.args(["agent", "--controller", endpoint, "--node", name, "--no-state"]);
    command.arg("--cgroup").arg(group.path()).arg("--config").arg(&config).arg("--events").arg(events);
    Ok(command)
}
