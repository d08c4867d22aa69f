//! What a flow under a system needs in virtual time.

use std::{fmt, sync::Arc};

use sidestep_net::{ArcId, NodeId, Span, Topology};
use sidestep_policy::{AgentKnobs, PlbKnobs};
use sidestep_proto::mptcp::MptcpKnobs;
use sidestep_proto::{mptcp, tcp};
use sidestep_results::{Doubt, ReturnPath};
use sidestep_scenario::{Scenario, Settings, SystemError, SystemSpec, TcpKnobs, World};

use crate::{SimError, edges::Edges, systems};
use sidestep_engine::{Behaviour, Endpoint, FlowSpec, Lateness, Sizes};

/// From what a system is built.
pub(crate) struct Context<'a> {
    /// The scenario that it runs in.
    pub(crate) scenario: &'a Scenario,
    /// The system, as it was written.
    pub(crate) spec: &'a SystemSpec,
    /// Its settings.
    pub(crate) settings: Settings,
    /// TCP's settings for the flows that are to have the system.
    pub(crate) tcp: &'a TcpKnobs,
    /// What the hosts' clock of ticks shows when the run begins.
    pub(crate) jiffies: Span,
}

/// What a flow under a system needs.
#[derive(Clone, Debug)]
pub(crate) struct System {
    /// Whether routers spread flows over equally short routes.
    pub(crate) ecmp: bool,
    /// What moves its flows.
    pub(crate) mover: Mover,
    /// What both ends of a flow speak.
    pub(crate) transport: Transport,
    /// TCP's settings.
    pub(crate) tcp: tcp::Config,
    /// Bytes of headers of a segment.
    pub(crate) headers: u16,
    /// What nodes do beyond carrying packets on; `None`: nothing.
    pub(crate) behaviour: Option<MakeBehaviour>,
    /// What nodes' behaviours follow from: those of systems with equal texts are the same. Empty: of no other system.
    pub(crate) routers: String,
    /// Remarks for the reader of the results.
    pub(crate) notes: Vec<String>,
    /// The paths between its edge routers, if these choose.
    pub(crate) edges: Option<Edges>,
    /// Reasons to doubt what the results say of it.
    pub(crate) doubts: Vec<Doubt>,
    /// The ways back to who chooses a way out.
    pub(crate) returns: Vec<ReturnPath>,
}

/// What moves flows.
#[derive(Clone, Debug)]
pub(crate) enum Mover {
    /// Nothing.
    None,
    /// The path changer, among SRv6 paths.
    Policy(AgentKnobs),
    /// Linux, by flow labels: after timeouts, and after congested rounds where PLB is on.
    Label(Option<PlbKnobs>),
}

/// What both ends of a flow speak.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp,
    Mptcp(MptcpKnobs, mptcp::Config),
    /// Ends of the system's own.
    Own(MakeEndpoint),
}

/// Makes the ends of a flow; the arc is that by which its data leaves its host.
#[derive(Clone)]
pub(crate) struct MakeEndpoint(pub(crate) Arc<EndpointOf>);

type EndpointOf = dyn Fn(&FlowSpec, ArcId) -> Box<dyn Endpoint> + Send + Sync;

/// Makes the behaviour of a node; `None`: the node has none.
#[derive(Clone)]
pub(crate) struct MakeBehaviour(pub(crate) Arc<BehaviourOf>);

type BehaviourOf = dyn Fn(&Topology, NodeId) -> Option<Box<dyn Behaviour>> + Send + Sync;

impl fmt::Debug for MakeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeEndpoint")
    }
}

impl fmt::Debug for MakeBehaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeBehaviour")
    }
}

impl Context<'_> {
    /// A system that another world has, or none yet.
    pub(crate) fn not_here(&self) -> SimError {
        SimError::UnknownSystem(SystemError::NotInWorld { world: World::Sim, system: self.spec.name })
    }
}

impl System {
    /// The system of this name, for flows with these settings of TCP.
    pub(crate) fn new(
        scenario: &Scenario,
        spec: &SystemSpec,
        tcp: &TcpKnobs,
        lateness: &Lateness,
    ) -> Result<System, SimError> {
        let parameter = |problem| SimError::Parameter { system: spec.clone(), problem };
        let settings = scenario.settings(spec).map_err(parameter)?;
        let jiffies = lateness.jiffies.unwrap_or_default();
        systems::build(&Context { scenario, spec, settings, tcp, jiffies })
    }

    /// Plain TCP on the shortest path, from which other systems differ.
    pub(crate) fn tcp(context: &Context<'_>) -> Result<System, SimError> {
        let algorithm = match context.tcp.congestion_control.as_str() {
            "reno" => tcp::Algorithm::Reno,
            "cubic" => tcp::Algorithm::Cubic,
            "dctcp" => tcp::Algorithm::Dctcp,
            other => return Err(SimError::CongestionControl(other.into())),
        };
        Ok(System::over(tcp_config(context, algorithm)))
    }

    /// As [`System::tcp`], where the congestion control is the system's own.
    pub(crate) fn with_algorithm(context: &Context<'_>, algorithm: tcp::Algorithm) -> System {
        System::over(tcp_config(context, algorithm))
    }

    fn over(tcp: tcp::Config) -> System {
        System {
            ecmp: false,
            mover: Mover::None,
            transport: Transport::Tcp,
            tcp,
            headers: Sizes::default().header,
            behaviour: None,
            routers: String::new(),
            notes: Vec::new(),
            edges: None,
            doubts: Vec::new(),
            returns: Vec::new(),
        }
    }

    /// MPTCP's settings, if that is what the flows speak.
    pub(crate) fn subflows(&self) -> Option<MptcpKnobs> {
        match self.transport {
            Transport::Mptcp(knobs, _) => Some(knobs),
            Transport::Tcp | Transport::Own(_) => None,
        }
    }
}

fn tcp_config(context: &Context<'_>, algorithm: tcp::Algorithm) -> tcp::Config {
    let knobs = context.tcp;
    let mss = u64::from(knobs.mss.unwrap_or(1400));
    tcp::Config {
        profile: knobs.profile,
        hz: knobs.hz,
        jiffies: context.jiffies,
        algorithm,
        initial_window: knobs.initial_window,
        min_rto: knobs.min_rto,
        initial_rto: knobs.initial_rto,
        delayed_ack: knobs.delayed_ack,
        ack_every: knobs.ack_every,
        quick_acks: knobs.quick_acks,
        ecn: knobs.ecn,
        sack: knobs.sack,
        limited_transmit: knobs.limited_transmit,
        idle_restart: knobs.idle_restart,
        count_acks: knobs.count_acks,
        receive_window: u32::try_from(knobs.receive_window.get() / mss).unwrap_or(u32::MAX).max(2),
        ..tcp::Config::default()
    }
}
