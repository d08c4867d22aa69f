//! In the lab: `sidestep mptcp-pm` opens the subflows of hosts, and `sidestep edge balance` on each edge router hashes them onto
//! paths.

mod edges;

use std::process::Command;

use sidestep_lab::{Choice, Daemon, LabError, Run, Setup, Surroundings, System, plan::Multipath};
use sidestep_mptcp::lab::{differences, path_manager};
use sidestep_net::NodeId;
use sidestep_scenario::SystemInfo;

use crate::{SemperSettings, daemon::MAX_FLOWS};

/// SEMPER, whose edges have no table.
#[derive(Clone, Copy, Debug)]
pub struct Semper;

/// SEMPER's reference: edges that assign the subflows of a host to paths in turn, and remember.
#[derive(Clone, Copy, Debug)]
pub struct SemperStateful;

impl System for Semper {
    fn info(&self) -> SystemInfo {
        crate::SEMPER
    }

    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        setup(run, false)
    }
}

impl System for SemperStateful {
    fn info(&self) -> SystemInfo {
        crate::SEMPER_STATEFUL
    }

    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        setup(run, true)
    }
}

/// MPTCP hosts behind edges, with a table in the edges if they are `stateful`.
fn setup(run: &Run<'_>, stateful: bool) -> Result<Setup, LabError> {
    let topology = &run.scenario.topology;
    let settings: SemperSettings = run.settings()?;
    let mptcp = settings.mptcp(&run.settings_of("mptcp")?);
    let mut notes = differences(run, &mptcp)?;
    edges::check(topology).map_err(|problem| run.refuse(problem))?;
    if stateful && settings.table > MAX_FLOWS {
        notes.push(format!("the edges' tables hold {MAX_FLOWS} subflows"));
    }
    if stateful && settings.idle != SemperSettings::default().idle {
        notes.push("the edges' tables have an idle time of their own, 16 minutes".into());
    }
    let edge = Daemon::on("edge", (settings, stateful), edges::edges(topology), move |node, around| {
        balance(around, &settings, stateful, node)
    });
    // Subflows are opened when the edges know where they go.
    let daemons = vec![edge, path_manager(topology, settings.subflows)];
    let choice = Choice::new("path between the edges", |topology, from, to| {
        let (one, other) = topology.access_router(from).zip(topology.access_router(to))?;
        (one != other).then(|| edges::links(topology, one, other).len())
    });
    Ok(Setup { mptcp: Some(mptcp), daemons, notes, choice: Some(choice), ..Setup::new(Multipath::Single) })
}

fn balance(
    around: &Surroundings<'_>,
    settings: &SemperSettings,
    stateful: bool,
    node: NodeId,
) -> Result<Command, LabError> {
    let scenario = around.scenario;
    let chance = scenario.chance(scenario.seed);
    let text = edges::config(around.topology(), around.network.plan(node), settings, stateful, chance);
    let config = around.logs.join(format!("edge-{}.toml", around.name(node)));
    std::fs::write(&config, text).map_err(LabError::file(&config))?;
    let mut command = around.command(["edge", "balance", "--config"]);
    command.arg(&config);
    Ok(command)
}
