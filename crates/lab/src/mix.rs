//! What a run is made of: its system's parts, and those of the systems that single flows name.

use std::collections::BTreeSet;

use sidestep_net::{ArcId, NodeId};
use sidestep_proto::mptcp::{Coupling, PathManager};
use sidestep_results::{Doubt, ReturnPath};
use sidestep_scenario::{Scenario, SystemSpec, TcpSettings};

use crate::{
    choice::Choice,
    daemons::Daemon,
    error::LabError,
    plan::Multipath,
    system::{Hash, Registry, Setup, congestion_controls},
    traffic::SocketOptions,
};

/// The parts of a run, shared by all systems in it.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// How routers use equal-cost paths: all of them if any flow's system wants it.
    pub multipath: Multipath,
    /// What routers hash: the flow label if any flow's system wants it.
    pub hash: Hash,
    /// The daemons of all systems, in the order of their start.
    pub daemons: Vec<Daemon>,
    /// Settings of every namespace that systems ask for.
    sysctls: Vec<(&'static str, String)>,
    /// How the windows of MPTCP's subflows are coupled; `None`: there is no MPTCP.
    pub coupling: Option<Coupling>,
    /// The largest buffer of a socket, in bytes.
    buffer: u64,
    /// Notes for the results: where the lab departs from the scenario.
    pub notes: Vec<String>,
    /// Reasons to doubt the results.
    pub doubts: Vec<Doubt>,
    /// Links of which packets to their own addresses must arrive over the link itself.
    pub pinned: Vec<ArcId>,
    /// The paths back to who chooses an egress.
    pub returns: Vec<ReturnPath>,
    /// How each flow is carried, by the flow's number.
    flows: Vec<FlowTransport>,
    /// What each flow's connections choose among.
    choices: Vec<Option<Choice>>,
}

/// How a flow's connections are carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTransport {
    /// What their sockets are.
    pub socket: SocketOptions,
    /// Whether agents, where there are any, may move them.
    pub steered: bool,
    /// Whether the kernel's path manager opens subflows of MPTCP between all interfaces.
    pub fullmesh: bool,
}

/// The largest buffers of Linux's sockets by default.
const DEFAULT_RECEIVE: u64 = 6 << 20;
const DEFAULT_SEND: u64 = 4 << 20;
/// The most that a window can be (RFC 7323, section 2.3).
const MAX_WINDOW: u64 = 1 << 30;

impl RunPlan {
    /// The parts of a run of `spec`.
    pub fn of(registry: &Registry, scenario: &Scenario, spec: &SystemSpec) -> Result<RunPlan, LabError> {
        let own = registry.setup(scenario, spec)?;
        let mut mix = RunPlan {
            multipath: own.multipath,
            hash: own.hash,
            daemons: own.daemons.clone(),
            sysctls: own.sysctls.clone(),
            coupling: own.mptcp.map(|settings| settings.congestion_control),
            buffer: 0,
            notes: own.notes.clone(),
            doubts: own.doubts.clone(),
            pinned: own.pinned.clone(),
            returns: own.returns.clone(),
            flows: Vec::new(),
            choices: Vec::new(),
        };
        let mut windows = scenario.tcp.receive_window.get();
        for (number, flow) in scenario.flows.iter().enumerate() {
            let transport = flow.transport();
            let at = |problem: String| LabError::Flow { number, flow: flow.name().into(), problem };
            let system = match transport.and_then(|transport| transport.system.as_ref()) {
                None => own.clone(),
                Some(spec) => {
                    let system = registry.setup(scenario, spec)?;
                    mix.add(&system, spec, &own).map_err(at)?;
                    system
                }
            };
            let tcp = transport.and_then(|transport| transport.tcp.as_ref()).unwrap_or(&scenario.tcp);
            check_tcp(tcp, &scenario.tcp).map_err(at)?;
            let buffer = system.mptcp.map_or(tcp.receive_window, |settings| settings.receive_buffer);
            windows = windows.max(buffer.get());
            mix.flows.push(FlowTransport {
                socket: socket(&system, tcp, scenario),
                steered: system.is_steered(),
                fullmesh: system.mptcp.is_some_and(|settings| settings.path_manager == PathManager::Fullmesh),
            });
            mix.choices.push(system.choice);
        }
        if own.multipath == Multipath::Single && mix.multipath == Multipath::Ecmp {
            mix.notes.push(format!("routers use all equal-cost paths for some flows, and so for those of `{spec}`"));
        }
        // The kernel keeps half of a buffer for itself.
        mix.buffer = 2 * windows.min(MAX_WINDOW / 2);
        Ok(mix)
    }

    /// How a flow's connections are carried.
    pub fn carried(&self, flow: usize) -> FlowTransport {
        let unknown = || FlowTransport { socket: SocketOptions::default(), steered: true, fullmesh: false };
        self.flows.get(flow).cloned().unwrap_or_else(unknown)
    }

    /// What a flow's connections choose among; `None`: nothing.
    pub fn choice(&self, flow: usize) -> Option<&Choice> {
        self.choices.get(flow)?.as_ref()
    }

    /// Whether daemons run that leave the connections of some flow alone.
    pub fn leaves_some_alone(&self) -> bool {
        self.daemons.iter().any(|daemon| daemon.steers) && self.flows.iter().any(|flow| !flow.steered)
    }

    /// Settings of every namespace: files below `/proc/sys/net`, and what is written to them.
    pub fn sysctls(&self) -> Vec<(&'static str, String)> {
        let hash = match self.hash {
            Hash::Ports => "1",
            Hash::FlowLabel => "0",
        };
        let mut sysctls = vec![
            ("ipv6/fib_multipath_hash_policy", hash.into()),
            ("ipv4/tcp_rmem", format!("4096 131072 {}", self.buffer.max(DEFAULT_RECEIVE))),
            ("ipv4/tcp_wmem", format!("4096 16384 {}", self.buffer.max(DEFAULT_SEND))),
        ];
        sysctls.extend(self.sysctls.iter().cloned());
        sysctls
    }

    /// Adds the system of one flow beside the run's `own`, or returns why the two cannot be in one run.
    fn add(&mut self, system: &Setup, spec: &SystemSpec, own: &Setup) -> Result<(), String> {
        for daemon in &system.daemons {
            match self.daemons.iter().find(|other| other.name == daemon.name) {
                None => self.daemons.push(daemon.clone()),
                Some(other) if other == daemon => {}
                Some(_) => {
                    let name = daemon.name;
                    return Err(format!("`{spec}` needs a daemon `{name}` with settings of its own; a node has one"));
                }
            }
        }
        if let Some(settings) = &system.mptcp {
            let coupling = *self.coupling.get_or_insert(settings.congestion_control);
            if coupling != settings.congestion_control {
                let (one, other) = (coupling.as_str(), settings.congestion_control.as_str());
                return Err(format!(
                    "the lab has one congestion control for all MPTCP of a run, not {one} and {other}"
                ));
            }
        }
        self.pinned.extend(&system.pinned);
        self.returns.extend(system.returns.iter().cloned());
        // Settings that each socket chooses for itself do not concern the whole host.
        let theirs = |system: &Setup| -> Vec<(&'static str, String)> {
            system.sysctls.iter().filter(|(name, _)| !SOCKETS_CHOOSE.contains(name)).cloned().collect()
        };
        if theirs(system) != theirs(own) {
            return Err(format!("`{spec}` is a setting of whole hosts; the lab cannot have it for one flow alone"));
        }
        for sysctl in &system.sysctls {
            if !self.sysctls.contains(sysctl) {
                self.sysctls.push(sysctl.clone());
            }
        }
        if system.multipath == Multipath::Ecmp {
            self.multipath = Multipath::Ecmp;
        }
        if system.hash == Hash::FlowLabel {
            self.hash = Hash::FlowLabel;
        }
        self.notes.extend(system.notes.iter().filter(|note| !own.notes.contains(note)).cloned());
        self.doubts.extend(system.doubts.iter().filter(|doubt| !own.doubts.contains(doubt)).cloned());
        Ok(())
    }
}

/// Settings of a namespace that each of the generator's sockets overrides.
const SOCKETS_CHOOSE: [&str; 2] = ["core/txrehash", "ipv6/auto_flowlabels"];

fn socket(system: &Setup, tcp: &TcpSettings, scenario: &Scenario) -> SocketOptions {
    // Of MPTCP the coupling decides.
    let own = system.mptcp.is_none() && tcp.congestion_control != scenario.tcp.congestion_control;
    SocketOptions {
        mptcp: system.mptcp.is_some(),
        // The scenario's congestion control is set for all connections of the lab already.
        congestion_control: own.then(|| tcp.congestion_control.clone()),
        window: u32::try_from(tcp.receive_window.get().min(MAX_WINDOW)).ok(),
        rehash: Some(system.rehash),
    }
}

/// Refuses settings that the kernel cannot apply to one flow alone.
fn check_tcp(flow: &TcpSettings, all: &TcpSettings) -> Result<(), String> {
    let taken = TcpSettings {
        congestion_control: flow.congestion_control.clone(),
        receive_window: flow.receive_window,
        ..all.clone()
    };
    if taken != *flow {
        return Err("the lab's kernels take `congestion_control` and `receive_window` for one flow alone".into());
    }
    let available = congestion_controls().map_err(|error| error.to_string())?;
    if !available.contains(&flow.congestion_control) {
        let (name, available) = (&flow.congestion_control, available.join(" "));
        return Err(format!("this kernel does not have the congestion control `{name}`; it has: {available}"));
    }
    Ok(())
}

/// The hosts of the flows whose subflows the kernel's path manager opens: those that open connections, and those that accept them.
pub fn mptcp_ends(scenario: &Scenario, mix: &RunPlan) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
    let (mut from, mut to) = (BTreeSet::new(), BTreeSet::new());
    for (number, flow) in scenario.flows.iter().enumerate() {
        if mix.carried(number).fullmesh {
            from.extend(flow.pairs().iter().map(|(from, _)| *from));
            to.extend(flow.pairs().iter().map(|(_, to)| *to));
        }
    }
    (from, to)
}

#[cfg(test)]
mod tests;
