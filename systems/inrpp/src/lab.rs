//! In the lab: `sidestep inrpp` on each router. Hosts are unmodified.

use std::{collections::BTreeMap, fmt::Write, process::Command};

use sidestep_lab::{
    Daemon, LabError, Network, Run, Setup, Surroundings, System, Watch,
    plan::{Multipath, NodePlan},
    traffic::Monotonic,
};
use sidestep_net::{Bytes, NodeId, Span, Time, Topology, pattern};
use sidestep_results::{Recorder, SampleKind, SamplePoint};
use sidestep_scenario::SystemInfo;

use crate::{
    Backpressure, Hosts, InrppSettings, Preset,
    daemon::{InrppStatus, PortStatus, inrpp_status},
};

/// In-Network Resource Pooling.
#[derive(Clone, Copy, Debug)]
pub struct Inrpp;

impl System for Inrpp {
    fn info(&self) -> SystemInfo {
        crate::INRPP
    }

    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        let settings: InrppSettings = run.settings()?;
        if settings.backpressure == Backpressure::Notices || settings.preset == Preset::Ns3 {
            return Err(run.refuse(
                "notices need hosts that answer them, and the lab's hosts are unmodified: use `backpressure = \"limits\"`",
            ));
        }
        if settings.ecmp {
            return Err(run.refuse("ACKs have to come back over the links of the data: leave `ecmp` out"));
        }
        let mut setup = Setup::new(Multipath::Single);
        if settings.hosts == Hosts::Push {
            setup.notes.push("hosts are unmodified: they send by TCP, under the limits of the routers".into());
        }
        let routers: Vec<NodeId> = routers(&run.scenario.topology);
        let of_daemon = settings.clone();
        let daemon =
            Daemon::on("inrpp", settings, routers.clone(), move |node, around| command(around, &of_daemon, node));
        setup.daemons = vec![daemon.watched(move |_| Box::new(Caches::new(routers.iter().copied())))];
        Ok(setup)
    }
}

fn routers(topology: &Topology) -> Vec<NodeId> {
    topology.node_ids().filter(|node| topology.is_router(*node)).collect()
}

fn command(around: &Surroundings<'_>, settings: &InrppSettings, node: NodeId) -> Result<Command, LabError> {
    let text = config(around.topology(), around.network.plan(node), settings);
    let file = around.logs.join(format!("inrpp-{}.toml", around.name(node)));
    std::fs::write(&file, text).map_err(LabError::file(&file))?;
    let mut command = around.command(["inrpp", "--config"]);
    command.arg(&file);
    Ok(command)
}

/// The part of a wire's rate that a port uses: its neighbours' hellos, and what kernels send by themselves, have the rest.
const SHARE: (u64, u64) = (995, 1_000);

/// The file of the daemon on a router.
fn config(topology: &Topology, plan: &NodePlan, settings: &InrppSettings) -> String {
    let name = |node| &topology.node(node).name;
    let InrppSettings { cache, buffer, tcp_buffer, detours, alpha, probe_interval, decision_interval, .. } = settings;
    let mut text = format!(
        "[inrpp]\nname = \"{}\"\ncache = \"{cache}\"\nbuffer = \"{buffer}\"\ntcp_buffer = \"{tcp_buffer}\"\ndetours = {detours}\n\
         alpha = {alpha}\nprobe_interval = \"{probe_interval}\"\ndecision_interval = \"{decision_interval}\"\n",
        name(plan.node),
    );
    for interface in &plan.interfaces {
        let far = topology.head(interface.arc);
        let rate =
            topology.channel(interface.arc).rate.bits_per_sec() as u128 * u128::from(SHARE.0) / u128::from(SHARE.1);
        let dev = &interface.name;
        let Some((own, peer)) = interface.addresses.first().filter(|_| topology.is_router(far)) else {
            let _ = write!(text, "\n[[edge]]\ninterface = \"{dev}\"\nrate = \"{rate} bit/s\"\n");
            continue;
        };
        let link = &topology.link(interface.arc.link()).name;
        let is_border = settings.borders.iter().any(|border| pattern::matches(border, link));
        let _ = write!(
            text,
            "\n[[neighbour]]\nname = \"{}\"\ninterface = \"{dev}\"\nrate = \"{rate} bit/s\"\nlink = \"udp\"\nlocal = \"{own}\"\n\
             remote = \"{peer}\"\nkey_file = \"none\"\nborder = {is_border}\n",
            name(far),
        );
    }
    text
}

/// What routers report of their caches.
#[derive(Debug, Default)]
struct Caches {
    routers: Vec<NodeId>,
    /// By router: what it has reported last.
    last: BTreeMap<NodeId, InrppStatus>,
}

impl Caches {
    fn new(routers: impl IntoIterator<Item = NodeId>) -> Self {
        Caches { routers: routers.into_iter().collect(), last: BTreeMap::new() }
    }

    /// A count of all ports of all routers.
    fn sum(&self, of: impl Fn(&PortStatus) -> u64) -> u64 {
        self.last.values().flat_map(|status| &status.ports).map(of).sum()
    }

    fn most(&self, of: impl Fn(&PortStatus) -> u64) -> u64 {
        self.last.values().flat_map(|status| &status.ports).map(of).max().unwrap_or(0)
    }
}

impl Watch for Caches {
    fn catch_up(&mut self, network: &Network, _: Monotonic, recorder: &mut Recorder) -> Result<(), LabError> {
        for router in &self.routers {
            // One that has ended is missed elsewhere.
            if let Ok(Some(status)) = network.node(*router).run(|| Ok(inrpp_status().ok().flatten())) {
                self.last.insert(*router, status);
            }
        }
        for (name, count) in [
            ("caches.stored", self.sum(|port| port.stored)),
            ("caches.detoured", self.sum(|port| port.detoured)),
            ("caches.dropped", self.sum(|port| port.dropped + port.dropped_others + port.lost)),
            ("caches.peak_bytes", self.most(|port| port.peak_bytes)),
            ("caches.clamped_acks", self.last.values().map(|status| status.connections.clamped_acks).sum()),
            ("caches.window_updates", self.last.values().map(|status| status.connections.window_updates).sum()),
            ("caches.restored", self.last.values().map(|status| status.resequence.restored).sum()),
        ] {
            recorder.own(name, count);
        }
        Ok(())
    }

    fn samples(&self, (time, interval): (Time, Span)) -> Vec<SamplePoint> {
        let of = |status: &InrppStatus| {
            let name = status.name.clone();
            let point = move |port: &PortStatus| SamplePoint {
                time,
                interval,
                kind: SampleKind::Cache,
                name: format!("{name}>{}", port.neighbour.as_ref().unwrap_or(&port.interface)),
                utilisation: Some(port.cache_bytes as f64 / port.cache_room.max(1) as f64),
                queue: Some(Bytes::new(port.cache_bytes)),
                drops: Some(port.dropped),
                path: Some(port.pressing.clone()),
                ..SamplePoint::default()
            };
            status.ports.iter().map(point).collect::<Vec<_>>()
        };
        self.last.values().flat_map(of).collect()
    }
}
