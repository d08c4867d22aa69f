//! What a system's name and the scenario's settings mean to the engine.

use sidestep_model::{
    Bytes, Scenario, World,
    scenario::{AgentKnobs, Coupling, MptcpKnobs, PlbKnobs, Scheduler, Settings, SystemName, SystemSpec},
};
use sidestep_policy as policy;
use sidestep_proto::{mptcp, rcp, tcp};

use super::SimError;
use crate::{engine::Sizes, steering::PlbConfig};

/// What RCP adds to every packet: the link's rate, the echoed rate and the round-trip time, 4 bytes each.
const RCP_HEADER: u16 = 12;

/// How a system is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Whether routers spread flows over equally short ways.
    pub(super) ecmp: bool,
    pub(super) moves: Moves,
    pub(super) tcp: tcp::Config,
    pub(super) mptcp: mptcp::Config,
    pub(super) subflows: Option<MptcpKnobs>,
    pub(super) rcp: Option<rcp::Config>,
    pub(super) sizes: Sizes,
}

/// What moves connections.
#[derive(Clone, Debug)]
pub(super) enum Moves {
    Nothing,
    /// The path changer, by SRv6 paths.
    Policy(AgentKnobs),
    /// Linux, by flow labels.
    Label(Option<PlbConfig>),
}

/// The set-up of `system`.
pub(super) fn setup(scenario: &Scenario, system: &SystemSpec) -> Result<Setup, SimError> {
    let parameter = |problem| SimError::Parameter { system: system.clone(), problem };
    system.name.require(World::Sim).map_err(SimError::UnknownSystem)?;
    let settings = scenario.settings(system).map_err(parameter)?;
    let (ecmp, moves) = match (system.name, &settings) {
        (_, Settings::Agent(knobs)) => {
            policy::raw::Config::try_from(knobs)
                .map_err(|problem| SimError::Policy { system: system.clone(), problem })?;
            (true, Moves::Policy(knobs.clone()))
        }
        (_, Settings::Plb(knobs)) => (true, Moves::Label(Some(plb(knobs)))),
        (SystemName::Prr, _) => (true, Moves::Label(None)),
        (SystemName::Tcp | SystemName::Rcp, _) => (false, Moves::Nothing),
        _ => (true, Moves::Nothing),
    };
    let (mut subflows, mut rcp) = (None, None);
    match settings {
        Settings::Mptcp(knobs) => subflows = Some(knobs),
        Settings::Rcp(rates) => {
            rcp = Some(rcp::Config {
                alpha: rates.alpha,
                beta: rates.beta,
                gamma: rates.gamma,
                slot: rates.slot,
                initial_rate: rates.initial_rate.as_f64(),
            });
        }
        _ => {}
    }
    let multipath = subflows.unwrap_or(scenario.knobs.mptcp);
    let mut sizes = Sizes::default();
    let mut tcp = tcp_config(scenario, subflows.is_some())?;
    if rcp.is_some() {
        tcp.algorithm = tcp::Algorithm::Rcp;
        tcp.ecn = false;
        sizes.header += RCP_HEADER;
    }
    let segments = |bytes: Bytes| u32::try_from(bytes.get() / 1400).unwrap_or(u32::MAX).max(2);
    let mptcp = mptcp::Config {
        coupling: match multipath.congestion_control {
            Coupling::Lia => mptcp::Coupling::Lia,
            Coupling::Olia => mptcp::Coupling::Olia,
            Coupling::Balia => mptcp::Coupling::Balia,
            Coupling::Reno => mptcp::Coupling::Uncoupled,
        },
        scheduler: match multipath.scheduler {
            Scheduler::MinRtt => mptcp::Scheduler::MinRtt,
            Scheduler::RoundRobin => mptcp::Scheduler::RoundRobin,
            Scheduler::Redundant => mptcp::Scheduler::Redundant,
        },
        receive_buffer: segments(multipath.receive_buffer),
    };
    Ok(Setup { ecmp, moves, tcp, mptcp, subflows, rcp, sizes })
}

fn plb(knobs: &PlbKnobs) -> PlbConfig {
    PlbConfig {
        cong_thresh: knobs.cong_thresh.as_f64(),
        idle_rehash_rounds: knobs.idle_rehash_rounds,
        rehash_rounds: knobs.rehash_rounds,
        suspend_rto: knobs.suspend_rto,
    }
}

fn tcp_config(scenario: &Scenario, coupled: bool) -> Result<tcp::Config, SimError> {
    let knobs = &scenario.tcp;
    let algorithm = match knobs.congestion_control.as_str() {
        _ if coupled => tcp::Algorithm::Coupled,
        "reno" => tcp::Algorithm::Reno,
        "cubic" => tcp::Algorithm::Cubic,
        "dctcp" => tcp::Algorithm::Dctcp,
        other => return Err(SimError::CongestionControl(other.into())),
    };
    let mss = u64::from(knobs.mss.unwrap_or(1400));
    Ok(tcp::Config {
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
        receive_window: u32::try_from(knobs.receive_window.get() / mss).unwrap_or(u32::MAX).max(2),
        ..tcp::Config::default()
    })
}
