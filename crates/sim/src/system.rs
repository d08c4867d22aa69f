//! What a system is in virtual time.

use std::{fmt, sync::Arc};

use sidestep_engine::{Behaviour, Endpoint, FlowSpec, Lateness, Sizes};
use sidestep_net::{ArcId, NodeId, SettingsTable, Span, Time, Topology};
use sidestep_policy::PolicySettings;
use sidestep_proto::{
    mptcp::{self, MptcpSettings},
    tcp,
};
use sidestep_results::{Doubt, ReturnPath};
use sidestep_scenario::{Catalogue, Scenario, SystemError, SystemInfo, SystemSpec, TcpSettings, World};

use crate::SimError;

/// A system that the simulator runs: what its flows need, and what nodes do for them.
pub trait System: Send + Sync {
    /// Its name and its settings, as scenario files have them.
    fn info(&self) -> SystemInfo;

    /// What its flows need in a scenario.
    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError>;
}

/// The systems that can be run.
#[derive(Clone, Default)]
pub struct Registry {
    systems: Vec<Arc<dyn System>>,
}

/// For what a system is set up.
pub struct Context<'a> {
    /// The scenario that it runs in.
    pub scenario: &'a Scenario,
    /// The system, as it was written.
    pub spec: &'a SystemSpec,
    /// TCP's settings for the flows that have the system.
    pub tcp: &'a TcpSettings,
    catalogue: &'a Catalogue,
    /// What the hosts' clock of ticks shows when the run begins.
    jiffies: Span,
}

/// What the flows of a system need.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Whether routers spread flows over equally short routes.
    pub ecmp: bool,
    /// Whether a flow's ACKs go back over the links of its data.
    pub backwards: bool,
    /// What moves its flows.
    pub mover: Steerer,
    /// What both ends of a flow speak.
    pub transport: Transport,
    /// TCP's settings.
    pub tcp: tcp::Config,
    /// Bytes of headers of a segment.
    pub headers: u16,
    /// What nodes do beyond carrying packets on; `None`: nothing.
    pub behaviour: Option<MakeBehaviour>,
    /// What nodes' behaviours follow from: those of systems with equal texts are the same. Empty: of no other system.
    pub routers: String,
    /// Remarks for the reader of the results.
    pub notes: Vec<String>,
    /// The paths between its edge routers, if these choose.
    pub edges: Option<Arc<dyn EdgePaths>>,
    /// Reasons to doubt what the results say of it.
    pub doubts: Vec<Doubt>,
    /// The ways back to who chooses a way out.
    pub returns: Vec<ReturnPath>,
}

/// The paths that edge routers choose among for their hosts' flows.
pub trait EdgePaths: fmt::Debug + Send + Sync {
    /// The largest packet that all paths between two hosts' edges carry, in bytes; `None`: no edge is between them.
    fn room(&self, from: NodeId, to: NodeId) -> Option<u32>;

    /// How many paths there are between two hosts' edges.
    fn count(&self, from: NodeId, to: NodeId) -> usize;
}

/// What moves flows.
#[derive(Clone, Debug)]
pub enum Steerer {
    /// Nothing.
    None,
    /// A policy, among SRv6 paths.
    Policy(PolicySettings),
    /// Linux, by flow labels: after timeouts, and when a rule of each end says so.
    Label(Option<MakeRule>),
}

/// When an end of a connection takes a new flow label, besides after its timeouts.
pub trait LabelRule: fmt::Debug {
    /// A round trip has ended; the counts of segments are cumulative, and `idle` means that none is in flight. Returns whether the
    /// connection gets a new label.
    fn handle_round(&mut self, now: Time, delivered: u32, delivered_ce: u32, idle: bool) -> bool;

    /// The retransmission timer fired; `random` is 32 uniform bits.
    fn handle_timeout(&mut self, now: Time, random: u32);

    /// What moves for this rule are recorded as.
    fn reason(&self) -> &'static str;
}

/// Makes the rule of an end of a connection.
#[derive(Clone)]
pub struct MakeRule(Arc<dyn Fn() -> Box<dyn LabelRule> + Send + Sync>);

/// What both ends of a flow speak.
#[derive(Clone, Debug)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// MPTCP.
    Mptcp(MptcpSettings, mptcp::Config),
    /// Ends of the system's own.
    Own(MakeEndpoint),
}

/// Makes the ends of a flow; the arc is that by which its data leaves its host.
#[derive(Clone)]
pub struct MakeEndpoint(pub Arc<EndpointOf>);

/// Makes the ends of a flow.
pub type EndpointOf = dyn Fn(&FlowSpec, ArcId) -> Box<dyn Endpoint> + Send + Sync;

/// Makes the behaviour of a node; `None`: the node has none.
#[derive(Clone)]
pub struct MakeBehaviour(pub Arc<BehaviourOf>);

/// Makes the behaviour of a node.
pub type BehaviourOf = dyn Fn(&Topology, NodeId) -> Option<Box<dyn Behaviour>> + Send + Sync;

impl MakeEndpoint {
    /// Ends that this function makes.
    pub fn new(make: impl Fn(&FlowSpec, ArcId) -> Box<dyn Endpoint> + Send + Sync + 'static) -> Self {
        MakeEndpoint(Arc::new(make))
    }
}

impl MakeBehaviour {
    /// Behaviours that this function makes; `None`: the node has none.
    pub fn new(make: impl Fn(&Topology, NodeId) -> Option<Box<dyn Behaviour>> + Send + Sync + 'static) -> Self {
        MakeBehaviour(Arc::new(make))
    }
}

impl MakeRule {
    /// Rules that this function makes.
    pub fn new(make: impl Fn() -> Box<dyn LabelRule> + Send + Sync + 'static) -> Self {
        MakeRule(Arc::new(make))
    }

    /// A rule.
    pub(crate) fn make(&self) -> Box<dyn LabelRule> {
        (self.0)()
    }
}

impl fmt::Debug for MakeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeRule")
    }
}

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

impl Registry {
    /// No system yet.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// The same systems, and one more.
    #[must_use]
    pub fn with(mut self, system: impl System + 'static) -> Registry {
        self.systems.push(Arc::new(system));
        self
    }

    /// The names and settings of the systems, in the order in which they were added.
    pub fn infos(&self) -> impl Iterator<Item = SystemInfo> {
        self.systems.iter().map(|system| system.info())
    }

    /// What scenario files may name.
    pub fn catalogue(&self) -> Catalogue {
        let mut catalogue = Catalogue::default();
        catalogue.add(World::Sim, self.infos());
        catalogue
    }

    /// What the flows of a system need in a scenario.
    pub fn setup_of(&self, scenario: &Scenario, spec: &SystemSpec) -> Result<Setup, SimError> {
        self.setup(&self.catalogue(), scenario, spec, &scenario.tcp, &Lateness::default())
    }

    /// What the flows of a system need in a scenario, with these settings of TCP.
    pub(crate) fn setup(
        &self,
        catalogue: &Catalogue,
        scenario: &Scenario,
        spec: &SystemSpec,
        tcp: &TcpSettings,
        lateness: &Lateness,
    ) -> Result<Setup, SimError> {
        catalogue.require(World::Sim, &spec.name).map_err(SimError::UnknownSystem)?;
        let parameter = |problem| SimError::Parameter { system: spec.clone(), problem };
        catalogue.check(scenario, spec).map_err(parameter)?;
        let context = Context { scenario, spec, tcp, catalogue, jiffies: lateness.jiffies.unwrap_or_default() };
        match self.systems.iter().find(|system| system.info().name == spec.name) {
            Some(system) => system.setup(&context),
            None => Err(SimError::UnknownSystem(SystemError::BadName(spec.name.clone()))),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.infos().map(|info| info.name)).finish()
    }
}

impl Context<'_> {
    /// The system's settings, its own parameters included.
    pub fn settings<T: SettingsTable>(&self) -> Result<T, SimError> {
        self.catalogue.settings(self.scenario, self.spec).map_err(|problem| self.wrong(problem))
    }

    /// The settings of another system of the scenario, as the file has them.
    pub fn settings_of<T: SettingsTable>(&self, name: &str) -> Result<T, SimError> {
        let settings = self.catalogue.settings(self.scenario, &SystemSpec::plain(name));
        settings.map_err(|problem| self.wrong(problem))
    }

    /// An error about a parameter of the system.
    pub fn bad_value(&self, parameter: &str, problem: impl Into<String>) -> SimError {
        self.wrong(SystemError::BadValue { parameter: parameter.into(), problem: problem.into() })
    }

    /// Refuses networks with a link of one direction, for systems in which something goes back the way that packets came.
    pub fn needs_two_way_links(&self) -> Result<(), SimError> {
        let topology = &self.scenario.topology;
        match topology.one_way_links().next() {
            Some(link) => Err(self.refuse(format_args!(
                "link `{}` has one direction only, and the system sends back over the links by which packets came",
                topology.link(link).name
            ))),
            None => Ok(()),
        }
    }

    /// An error about the system in this scenario.
    pub fn refuse(&self, problem: impl fmt::Display) -> SimError {
        SimError::Refused { system: self.spec.clone(), problem: problem.to_string() }
    }

    fn wrong(&self, problem: SystemError) -> SimError {
        SimError::Parameter { system: self.spec.clone(), problem }
    }
}

impl Setup {
    /// Plain TCP on the shortest path, from which other systems differ.
    pub fn tcp(context: &Context<'_>) -> Result<Setup, SimError> {
        let algorithm = match context.tcp.congestion_control.as_str() {
            "reno" => tcp::Algorithm::Reno,
            "cubic" => tcp::Algorithm::Cubic,
            "dctcp" => tcp::Algorithm::Dctcp,
            other => return Err(SimError::CongestionControl(other.into())),
        };
        Ok(Setup::over(tcp_config(context, algorithm)))
    }

    /// As [`Setup::tcp`], where the congestion control is the system's own.
    pub fn with_algorithm(context: &Context<'_>, algorithm: tcp::Algorithm) -> Setup {
        Setup::over(tcp_config(context, algorithm))
    }

    fn over(tcp: tcp::Config) -> Setup {
        Setup {
            ecmp: false,
            backwards: false,
            mover: Steerer::None,
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
    pub fn subflows(&self) -> Option<MptcpSettings> {
        match self.transport {
            Transport::Mptcp(settings, _) => Some(settings),
            Transport::Tcp | Transport::Own(_) => None,
        }
    }
}

fn tcp_config(context: &Context<'_>, algorithm: tcp::Algorithm) -> tcp::Config {
    let settings = context.tcp;
    let mss = u64::from(settings.mss.unwrap_or(1400));
    tcp::Config {
        profile: settings.profile,
        hz: settings.hz,
        jiffies: context.jiffies,
        algorithm,
        initial_window: settings.initial_window,
        min_rto: settings.min_rto,
        initial_rto: settings.initial_rto,
        delayed_ack: settings.delayed_ack,
        ack_every: settings.ack_every,
        quick_acks: settings.quick_acks,
        ecn: settings.ecn,
        sack: settings.sack,
        limited_transmit: settings.limited_transmit,
        idle_restart: settings.idle_restart,
        count_acks: settings.count_acks,
        receive_window: u32::try_from(settings.receive_window.get() / mss).unwrap_or(u32::MAX).max(2),
        ..tcp::Config::rfc()
    }
}
