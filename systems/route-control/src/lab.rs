//! In the lab: `sidestep edge route-control` on each controlled edge, and `sidestep reflector` on the edge that its hosts send to.

mod sites;

use std::{
    collections::BTreeSet,
    io::{Error, ErrorKind},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use sidestep_lab::{
    Daemon, LabError, Network, Run, Setup, Surroundings, System, Watch, plan::Multipath, traffic::Monotonic,
};
use sidestep_net::{NodeId, Span, Time, Topology};
use sidestep_paths::Igp;
use sidestep_results::{Doubt, DoubtKind, Recorder, ReturnPath};
use sidestep_scenario::SystemInfo;
use sites::Controlled;

use crate::{RouteControlMode, RouteControlSettings, daemon::route_control_status};

/// Route control.
#[derive(Clone, Copy, Debug)]
pub struct RouteControl;

impl System for RouteControl {
    fn info(&self) -> SystemInfo {
        crate::ROUTE_CONTROL
    }

    /// The reflectors answer before the controllers ask.
    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        let settings: RouteControlSettings = run.settings()?;
        let mut setup = Setup::new(Multipath::Single);
        match settings.mode {
            RouteControlMode::None => return Ok(setup),
            RouteControlMode::Ideal => {
                return Err(run.refuse("a real edge gets no notice of impairments: `mode=ideal` is for the simulator"));
            }
            RouteControlMode::Practical | RouteControlMode::Predictive => {}
        }
        let sites = sites::controlled(run.scenario, &settings).map_err(|problem| run.refuse(problem))?;
        if sites.is_empty() {
            let text = "no edge with two egresses has hosts that send: nothing is controlled";
            setup.doubts.push(Doubt::new(DoubtKind::CouldNotAct, text));
            return Ok(setup);
        }
        setup.pinned = sites::first_arcs(&sites);
        setup.returns = returns(&run.scenario.topology, &sites);
        let far: BTreeSet<NodeId> = sites.iter().map(|site| site.far).collect();
        setup.daemons = vec![reflector(far), controller(settings, sites)];
        Ok(setup)
    }
}

/// How what the far edges answer comes back.
fn returns(topology: &Topology, sites: &[Controlled]) -> Vec<ReturnPath> {
    let igp = Igp::new(topology);
    let name = |node: NodeId| topology.node(node).name.clone();
    let back = |site: &Controlled| {
        let arcs = igp.first_path(site.far, site.edge).unwrap_or_default();
        ReturnPath { site: name(site.edge), far: name(site.far), arcs, egresses: site.egresses.clone() }
    };
    sites.iter().map(back).collect()
}

/// At all addresses: the kernel may still be looking whether another node has the router's own.
fn reflector(routers: BTreeSet<NodeId>) -> Daemon {
    Daemon::on("reflector", (), routers, |_, around| {
        Ok(around.command(["reflector", "--listen", &format!("[::]:{}", sites::PORT)]))
    })
}

fn controller(settings: RouteControlSettings, sites: Vec<Controlled>) -> Daemon {
    let edges: Vec<NodeId> = sites.iter().map(|site| site.edge).collect();
    let text = format!("{settings:?} {sites:?}");
    let daemon = Daemon::on("route-control", text, edges.clone(), move |node, around| {
        let site = sites.iter().find(|site| site.edge == node);
        command(around, &settings, site.ok_or_else(|| LabError::file("route-control")(ErrorKind::NotFound.into()))?)
    });
    daemon.watched(move |_| Box::new(Decisions::new(edges.iter().copied())))
}

fn command(around: &Surroundings<'_>, settings: &RouteControlSettings, site: &Controlled) -> Result<Command, LabError> {
    let file = around.logs.join(format!("route-control-{}.toml", around.name(site.edge)));
    let failed = |problem: String| LabError::file(&file)(Error::other(problem));
    let text = sites::config(around.topology(), around.network.plan(site.edge), site, settings).map_err(failed)?;
    std::fs::write(&file, text).map_err(LabError::file(&file))?;
    let mut command = around.command(["edge", "route-control", "--config"]);
    command.arg(&file);
    Ok(command)
}

/// What route controllers have reported of their moves.
#[derive(Debug, Default)]
struct Decisions {
    /// By edge: when the last move was that is known, in seconds since 1970.
    edges: Vec<(NodeId, f64)>,
}

impl Decisions {
    /// Of the controllers of these edges.
    fn new(edges: impl IntoIterator<Item = NodeId>) -> Self {
        Decisions { edges: edges.into_iter().map(|edge| (edge, 0.0)).collect() }
    }
}

impl Watch for Decisions {
    fn catch_up(&mut self, network: &Network, epoch: Monotonic, recorder: &mut Recorder) -> Result<(), LabError> {
        for (edge, last) in &mut self.edges {
            let status = network.node(*edge).run(|| Ok(route_control_status()))?;
            // One that has ended is missed elsewhere.
            let Ok(Some(status)) = status else { continue };
            let now = sidestep_lab::now()?;
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
            let since = *last;
            for decision in status.decisions.iter().filter(|one| one.from != one.to && one.at > since) {
                let ago = Span::from_nanos(((unix - decision.at).max(0.0) * 1e9) as u64);
                recorder.moved(Time::ZERO + (now.since(epoch) - ago), &decision.reason);
                *last = decision.at;
            }
        }
        Ok(())
    }
}
