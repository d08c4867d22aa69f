//! MPTCP, each subflow hashed onto an equal-cost path.

use sidestep_net::Bytes;
use sidestep_proto::{
    mptcp::{self, Coupling, MptcpSettings, Scheduler},
    tcp::Algorithm,
};

use sidestep_engine::Sizes;
use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, Setup, System, Transport},
};

/// The payload of a segment that buffers are counted in, in bytes.
const SEGMENT: u64 = 1_400;

/// MPTCP.
#[derive(Clone, Copy, Debug)]
pub struct Mptcp;

impl System for Mptcp {
    fn info(&self) -> SystemInfo {
        crate::MPTCP
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    let knobs: MptcpSettings = context.settings()?;
    Ok(Setup { ecmp: true, ..hosts(context, knobs) })
}

/// Hosts that use MPTCP, on one of the shortest paths.
pub fn hosts(context: &Context<'_>, knobs: MptcpSettings) -> Setup {
    let segments = |bytes: Bytes| u32::try_from(bytes.get() / SEGMENT).unwrap_or(u32::MAX).max(2);
    let buffer = segments(knobs.receive_buffer);
    let config = mptcp::Config {
        joins: Some(mptcp::Joins { delay: knobs.join_delay, interval: knobs.join_interval }),
        stale_after: u8::try_from(knobs.stale_after).unwrap_or(u8::MAX),
        opportunistic_retransmission: knobs.opportunistic_retransmission,
        penalisation: knobs.penalisation,
        ..mptcp::Config::new(knobs.congestion_control, knobs.scheduler, buffer)
    };
    let algorithm = if knobs.congestion_control == Coupling::Cubic { Algorithm::Cubic } else { Algorithm::Coupled };
    let base = Setup::with_algorithm(context, algorithm);
    let headers = base.headers + Sizes::default().mptcp_data;
    let mut tcp = base.tcp;
    if knobs.scheduler == Scheduler::Linux {
        // The kernels that have this MPTCP find losses by RACK, as the profile of Linux does.
        tcp.dup_threshold = 1;
    }
    Setup { transport: Transport::Mptcp(knobs, config), headers, tcp, ..base }
}
