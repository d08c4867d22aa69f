//! MPTCP with Linux's scheduler, its subflows hashed onto equal-cost paths: many between the same two addresses, by
//! `sidestep mptcp-pm` on each host, or one between each pair of the hosts' interfaces, by the kernel's path manager.

use std::sync::OnceLock;

use sidestep_lab::{Choice, Daemon, LabError, Run, Setup, System, equal_cost, plan::Multipath};
use sidestep_net::Topology;
use sidestep_paths::Igp;
use sidestep_proto::mptcp::{MptcpSettings, PathManager, Scheduler, SourcePorts};
use sidestep_scenario::SystemInfo;

/// MPTCP, each subflow hashed onto an equal-cost path.
#[derive(Clone, Copy, Debug)]
pub struct Mptcp;

impl System for Mptcp {
    fn info(&self) -> SystemInfo {
        crate::MPTCP
    }

    /// Linux's own scheduler.
    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        let settings: MptcpSettings = run.settings()?;
        let notes = differences(run, &settings)?;
        let daemons = match settings.path_manager {
            PathManager::Ndiffports => vec![path_manager(&run.scenario.topology, settings.subflows)],
            PathManager::Fullmesh => Vec::new(),
        };
        let choice = Some(subflows(settings.path_manager));
        Ok(Setup { mptcp: Some(settings), daemons, notes, choice, ..Setup::new(Multipath::Ecmp) })
    }
}

/// The path manager on every host, which opens `subflows` of each connection, the first included. Each node has a network
/// namespace of its own, and so a path manager; it leaves no state.
pub fn path_manager(topology: &Topology, subflows: u32) -> Daemon {
    let hosts = topology.node_ids().filter(|node| !topology.is_router(*node));
    Daemon::on("mptcp-pm", subflows, hosts, move |_, around| {
        Ok(around.command(["mptcp-pm", "--no-state", "--subflows", &subflows.to_string()]))
    })
}

/// What the subflows that a path manager opens choose among: equal-cost paths, or interfaces.
fn subflows(manager: PathManager) -> Choice {
    let igp = OnceLock::new();
    Choice::new("path for all subflows", move |topology, from, to| {
        let interfaces = match manager {
            PathManager::Ndiffports => 1,
            PathManager::Fullmesh => topology.outgoing(from).len().max(topology.outgoing(to).len()),
        };
        let igp = igp.get_or_init(|| Igp::new(topology));
        Some(interfaces.max(equal_cost(topology, igp, from, to)))
    })
}

/// In what Linux's MPTCP differs from what the settings ask for; an error where it has nothing like it.
pub fn differences(run: &Run<'_>, settings: &MptcpSettings) -> Result<Vec<String>, LabError> {
    if !matches!(settings.scheduler, Scheduler::Linux | Scheduler::MinRtt) {
        return Err(run.refuse("Linux has its own scheduler, `linux`, which also stands for `min-rtt` alone"));
    }
    let mut notes = Vec::new();
    if settings.source_ports != SourcePorts::Linux {
        notes.push("source ports of subflows are those that Linux gives".into());
    }
    Ok(notes)
}
