//! In the lab: a controller, a daemon on every router, an agent on every host.

#[expect(clippy::disallowed_methods, reason = "a benchmark has a clock")]
pub mod bench;
mod records;
mod slots;

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    net::Ipv6Addr,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use sidestep_control::Planner;
use sidestep_controller::Controller;
use sidestep_lab::{
    Choice, Daemon, LabError, Made, Moves, Network, Run, Setup, Surroundings, System, Watch, plan::Multipath,
    traffic::Monotonic,
};
use sidestep_net::{NodeId, Topology};
use sidestep_paths::PathSettings;
use sidestep_policy::{PolicyName, PolicySettings};
use sidestep_results::Recorder;
use sidestep_scenario::SystemInfo;

use slots::{Slots, events_file};

/// The path changer.
#[derive(Clone, Copy, Debug)]
pub struct Pathchanger;

/// The path changer with the policy `random`.
#[derive(Clone, Copy, Debug)]
pub struct Random;

impl System for Pathchanger {
    fn info(&self) -> SystemInfo {
        crate::PATHCHANGER
    }

    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        setup(run)
    }
}

impl System for Random {
    fn info(&self) -> SystemInfo {
        crate::RANDOM
    }

    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        setup(run)
    }
}

/// The agents have the paths before the first connection opens.
fn setup(run: &Run<'_>) -> Result<Setup, LabError> {
    let (scenario, topology) = (run.scenario, &run.scenario.topology);
    let settings: PolicySettings = run.settings()?;
    let fits = settings.check_max_paths(scenario.paths.max_paths);
    fits.map_err(|problem| run.refuse(problem.to_string()))?;
    Controller::check(topology, scenario.paths).map_err(|problem| run.refuse(problem.to_string()))?;
    let choice = (settings.policy != PolicyName::Static).then(|| paths(scenario.paths));
    let (hosts, routers): (Vec<NodeId>, Vec<NodeId>) = topology.node_ids().partition(|node| !topology.is_router(*node));
    let daemons = vec![controller(scenario.paths), router(routers), agent(settings, hosts)];
    Ok(Setup { daemons, choice, ..Setup::new(Multipath::Ecmp) })
}

/// The controller's paths.
fn paths(settings: PathSettings) -> Choice {
    let planner = OnceLock::new();
    Choice::new("path", move |topology, from, to| {
        let fresh = || Planner::new(Arc::new(topology.clone()), settings).ok().map(Mutex::new);
        let mut planner = planner.get_or_init(fresh).as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(planner.paths(from, to).len())
    })
}

/// The controller, outside the network.
fn controller(settings: PathSettings) -> Daemon {
    Daemon::outside("controller", settings, move |around| {
        let file = around.site.directory().join("topology.toml");
        around.write_topology(&file)?;
        let mut command = around.command(["controller", "--topology"]);
        command.arg(&file).args(["--listen", &endpoint(around)]);
        command.args(["--max-segments", &settings.max_segments.to_string()]);
        command.args(["--max-paths", &settings.max_paths.to_string()]);
        if !settings.adjacency {
            command.arg("--no-adjacency");
        }
        Ok(command)
    })
}

/// Where the controller listens.
fn endpoint(around: &Surroundings<'_>) -> String {
    format!("unix:{}", around.site.directory().join("controller.sock").display())
}

/// The router daemon, on every router.
fn router(routers: Vec<NodeId>) -> Daemon {
    Daemon::on("router", (), routers, |node, around| {
        let mut command = around.command(["router", "--controller", &endpoint(around)]);
        command.args(["--node", &around.name(node)]);
        for interface in &around.network.plan(node).interfaces {
            let link = &around.topology().link(interface.arc.link()).name;
            command.arg("--link").arg(format!("{link}={}", interface.name));
        }
        Ok(command)
    })
}

/// The agent with these settings, on every host.
fn agent(settings: PolicySettings, hosts: Vec<NodeId>) -> Daemon {
    let mask = settings.mark_mask;
    let daemon =
        Daemon::on("agent", settings.clone(), hosts.clone(), move |node, around| start(around, &settings, node));
    let watch = move |around: &Surroundings<'_>| -> Box<dyn Watch> {
        Box::new(Records::new(around.topology(), &hosts, mask, |host| events_file(around.logs, host)))
    };
    daemon.steering().watched(watch)
}

fn start(around: &Surroundings<'_>, settings: &PolicySettings, node: NodeId) -> Result<Command, LabError> {
    let name = around.name(node);
    let events = events_file(around.logs, &name);
    // The agent appends; the record of an earlier run is none of this one.
    match std::fs::remove_file(&events) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(LabError::file(&events)(error)),
        _ => {}
    }
    let config = around.logs.join(format!("agent-{name}.toml"));
    let tables = toml::to_string(&std::collections::BTreeMap::from([("pathchanger", settings)]));
    let tables = tables.map_err(|error| LabError::file(&config)(std::io::Error::other(error)))?;
    let text = format!("# The path changer on {name}.\n\n{tables}");
    std::fs::write(&config, text).map_err(LabError::file(&config))?;
    // A lab leaves no pinned objects behind.
    let mut command = around.command(["agent", "--controller", &endpoint(around), "--node", &name, "--no-state"]);
    command.arg("--cgroup").arg(around.group(node)).arg("--config").arg(&config).arg("--events").arg(&events);
    command.args(["--events-size", "0"]);
    Ok(command)
}

/// What the agents of all hosts record.
#[derive(Debug)]
struct Records {
    /// The bits of socket marks that agents use.
    mask: u32,
    /// By host: its record, and the path of each slot.
    hosts: BTreeMap<NodeId, Slots>,
}

impl Records {
    fn new(topology: &Topology, hosts: &[NodeId], mask: u32, file_of: impl Fn(&str) -> PathBuf) -> Records {
        let of = |host: &NodeId| (*host, Slots::new(file_of(&topology.node(*host).name)));
        Records { mask, hosts: hosts.iter().map(of).collect() }
    }
}

impl Watch for Records {
    fn catch_up(&mut self, _: &Network, _: Monotonic, _: &mut Recorder) -> Result<(), LabError> {
        self.hosts.values_mut().try_for_each(Slots::catch_up)
    }

    fn path(&self, host: NodeId, remote: Ipv6Addr, mark: u32) -> Option<&str> {
        let slot = (mark & self.mask).checked_shr(self.mask.trailing_zeros()).unwrap_or(0);
        self.hosts.get(&host)?.path(remote, slot)
    }

    fn finish(&mut self, epoch: Monotonic, made: &[Made], recorder: &mut Recorder) -> Result<Moves, LabError> {
        records::read(self.hosts.values().map(Slots::file), epoch, made, recorder)
    }
}
