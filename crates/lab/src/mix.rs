//! What a run is made of: its system's parts, and those of the systems that single flows name.

use std::collections::BTreeSet;

use sidestep_net::NodeId;
use sidestep_policy::AgentSettings;
use sidestep_proto::mptcp::PathManager;
use sidestep_results::Doubt;
use sidestep_scenario::{Scenario, SystemSpec, TcpSettings};

use crate::{
    daemons::Role,
    error::LabError,
    plan::Multipath,
    systems::{Hash, System, congestion_controls},
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
    pub daemons: Vec<Role>,
    /// Settings of every namespace that systems ask for.
    sysctls: Vec<(&'static str, String)>,
    /// The largest buffer of a socket, in bytes.
    buffer: u64,
    /// Notes for the results: where the lab departs from the scenario.
    pub notes: Vec<String>,
    /// Reasons to doubt what the results say.
    pub doubts: Vec<Doubt>,
    /// How each flow is carried, by the flow's number.
    flows: Vec<FlowTransport>,
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
    pub fn of(scenario: &Scenario, spec: &SystemSpec) -> Result<RunPlan, LabError> {
        let own = System::of(scenario, spec)?;
        let mut mix = RunPlan {
            multipath: own.multipath,
            hash: own.hash,
            daemons: own.daemons.clone(),
            sysctls: own.sysctls.clone(),
            buffer: 0,
            notes: own.notes.clone(),
            doubts: own.doubts.clone(),
            flows: Vec::new(),
        };
        let mut windows = scenario.tcp.receive_window.get();
        for (number, flow) in scenario.flows.iter().enumerate() {
            let transport = flow.transport();
            let at = |problem: String| LabError::Flow { number, flow: flow.name().into(), problem };
            let system = match transport.and_then(|transport| transport.system.as_ref()) {
                None => own.clone(),
                Some(spec) => {
                    let system = System::of(scenario, spec)?;
                    mix.add(&system, spec, &own).map_err(at)?;
                    system
                }
            };
            let tcp = transport.and_then(|transport| transport.tcp.as_ref()).unwrap_or(&scenario.tcp);
            check_tcp(tcp, &scenario.tcp).map_err(at)?;
            let buffer = system.mptcp.map_or(tcp.receive_window, |knobs| knobs.receive_buffer);
            windows = windows.max(buffer.get());
            mix.flows.push(FlowTransport {
                socket: socket(&system, tcp, scenario),
                steered: system.agent().is_some(),
                fullmesh: system.mptcp.is_some_and(|knobs| knobs.path_manager == PathManager::Fullmesh),
            });
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

    /// The bits of socket marks that agents use, if any run.
    pub fn mark_mask(&self) -> u32 {
        let own = self.daemons.iter().find_map(|role| if let Role::Agent(knobs) = role { Some(knobs) } else { None });
        own.map_or_else(|| AgentSettings::default().mark_mask, |knobs| knobs.mark_mask)
    }

    /// Whether agents run that leave the connections of some flow alone.
    pub fn leaves_some_alone(&self) -> bool {
        let agents = self.daemons.iter().any(|role| matches!(role, Role::Agent(_)));
        agents && self.flows.iter().any(|flow| !flow.steered)
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

    /// Adds the system of one flow beside the run's `own`, or says why the two cannot be in one run.
    fn add(&mut self, system: &System, spec: &SystemSpec, own: &System) -> Result<(), String> {
        for role in &system.daemons {
            match self.daemons.iter().find(|other| other.is_like(role)) {
                None => self.daemons.push(role.clone()),
                Some(other) if other == role => {}
                Some(_) => return Err(format!("`{spec}` needs agents with settings of its own; a host has one agent")),
            }
        }
        // Settings that each socket chooses for itself do not concern the whole host.
        let theirs = |system: &System| -> Vec<(&'static str, String)> {
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

fn socket(system: &System, tcp: &TcpSettings, scenario: &Scenario) -> SocketOptions {
    let own = tcp.congestion_control != scenario.tcp.congestion_control;
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
mod tests {
    use super::*;

    /// A run of `system` over two equal paths, with flows that have these keys besides.
    fn mix(system: &str, flows: &[&str]) -> Result<RunPlan, LabError> {
        let flows: String = flows
            .iter()
            .map(|more| format!("[[flow]]\nkind = \"bulk\"\nfrom = \"c1\"\nto = \"s1\"\n{more}\n"))
            .collect();
        let network = "[topology]\ngenerator = \"parallel-paths\"\necmp = true\n[tcp]\ncongestion_control = \"reno\"\n";
        let scenario = Scenario::parse(&format!("duration = \"1 s\"\n{network}{flows}"), "test").unwrap();
        RunPlan::of(&scenario, &system.parse().unwrap())
    }

    #[test]
    fn routers_serve_the_flows_that_ask_for_most() {
        let plain = mix("tcp", &[""]).unwrap();
        assert_eq!((plain.multipath, plain.hash, plain.notes.len()), (Multipath::Single, Hash::Ports, 0));
        let mixed = mix("tcp", &["", "system = \"prr\""]).unwrap();
        assert_eq!((mixed.multipath, mixed.hash, mixed.notes.len()), (Multipath::Ecmp, Hash::FlowLabel, 1));
        assert_eq!([0, 1].map(|flow| mixed.carried(flow).socket.rehash), [Some(false), Some(true)]);
        assert!(mixed.sysctls().contains(&("ipv6/fib_multipath_hash_policy", "0".into())));
    }

    #[test]
    fn agents_leave_the_flows_of_other_systems_alone() {
        let mix = mix("tcp", &["", "system = \"pathchanger\"", "system = \"pathchanger\""]).unwrap();
        assert_eq!([0, 1, 2].map(|flow| mix.carried(flow).steered), [false, true, true]);
        assert!(mix.leaves_some_alone() && mix.daemons.len() == 3);
    }

    #[test]
    fn what_belongs_to_whole_hosts_cannot_differ_between_flows() {
        let refused = |system: &str, flows: &[&str]| match mix(system, flows) {
            Err(LabError::Flow { number, problem, .. }) => (number, problem),
            other => panic!("{other:?}"),
        };
        let (number, problem) = refused("pathchanger", &["", "system = \"pathchanger:gamma=0.5\""]);
        assert!(number == 1 && problem.contains("a host has one agent"), "{problem}");
        let (number, problem) = refused("tcp", &["tcp = { min_rto = \"10 ms\" }"]);
        assert!(number == 0 && problem.contains("`congestion_control` and `receive_window`"), "{problem}");
        let (_, problem) = refused("tcp", &["tcp = { congestion_control = \"nosuch\" }"]);
        assert!(problem.contains("`nosuch`"), "{problem}");
    }

    #[test]
    fn buffers_have_room_for_the_largest_window() {
        let wide = mix("tcp", &["", "tcp = { receive_window = \"20 MB\" }"]).unwrap();
        assert_eq!([0, 1].map(|flow| wide.carried(flow).socket.window), [Some(6_000_000), Some(20_000_000)]);
        assert!(wide.sysctls().contains(&("ipv4/tcp_rmem", "4096 131072 40000000".into())));
    }
}
