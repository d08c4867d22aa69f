//! MPTCP, each subflow hashed onto an equal-cost path.

use sidestep_net::Bytes;
use sidestep_proto::mptcp::{self, MptcpSettings, Scheduler};

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
    let settings: MptcpSettings = context.settings()?;
    Ok(Setup { ecmp: true, ..hosts(context, settings) })
}

/// Hosts that use MPTCP, on one of the shortest paths.
pub fn hosts(context: &Context<'_>, settings: MptcpSettings) -> Setup {
    let segments = |bytes: Bytes| u32::try_from(bytes.get() / SEGMENT).unwrap_or(u32::MAX).max(2);
    let buffer = segments(settings.receive_buffer);
    let config = mptcp::Config {
        joins: Some(mptcp::Joins { delay: settings.join_delay, interval: settings.join_interval }),
        stale_after: u8::try_from(settings.stale_after).unwrap_or(u8::MAX),
        opportunistic_retransmission: settings.opportunistic_retransmission,
        penalisation: settings.penalisation,
        ..mptcp::Config::new(settings.congestion_control, settings.scheduler, buffer)
    };
    let base = Setup::with_algorithm(context, settings.congestion_control.tcp());
    let headers = base.headers + Sizes::default().mptcp_data;
    let mut tcp = base.tcp;
    if settings.scheduler == Scheduler::Linux {
        // The kernels that have this MPTCP find losses by RACK, as the profile of Linux does.
        tcp.dup_threshold = 1;
    }
    Setup { transport: Transport::Mptcp(settings, config), headers, tcp, ..base }
}
