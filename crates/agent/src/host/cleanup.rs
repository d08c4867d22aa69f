//! Removes what an agent made in the kernel, whether or not it is still at work.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use ipnet::IpNet;
use sidestep_linux::{
    bpf::host::{HostConfig as ProgramConfig, HostProgram, MAX_SLOTS, Pins},
    netlink::Netlink,
};

use super::replies;
use crate::AgentError;

/// How long an agent may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to look whether it has stopped.
const STOP_POLL: Duration = Duration::from_millis(100);

/// Ends the agent that works with `pins`, and removes what a killed or a keeping agent left: program, maps, rules and
/// routes. Connections get the marks back that they had. Returns whether there was anything.
///
/// An agent at work notices within a second that its pins are gone, and ends.
pub async fn stop_host(pins: &Pins) -> Result<bool, AgentError> {
    let program = match HostProgram::look(pins) {
        Ok(None) => return Ok(false),
        Ok(Some(program)) => Some(program),
        Err(error) => {
            tracing::warn!(%error, "the connections' marks cannot be restored");
            None
        }
    };
    let holder = pins.holder()?;
    let config = program.as_ref().map(HostProgram::config).transpose()?.flatten();
    match program {
        Some(program) => program.remove()?,
        None => pins.remove()?,
    }
    // An agent at work sees that its state is gone, and removes the rest.
    let waited = tokio::time::timeout(STOP_TIMEOUT, async {
        while !holder.is_gone() {
            tokio::time::sleep(STOP_POLL).await;
        }
    });
    if waited.await.is_err() {
        tracing::warn!("the agent does not end; what it installs again stays");
    }
    if let Some(config) = config {
        remove_routing(&Netlink::open()?, &config).await?;
    }
    Ok(true)
}

/// The routing tables of paths.
pub(super) fn tables(base: u32) -> RangeInclusive<u32> {
    base + 1..=base.saturating_add(MAX_SLOTS)
}

/// Our routes in these tables, whoever installed them.
pub(super) async fn routes_in(
    netlink: &Netlink,
    tables: &RangeInclusive<u32>,
) -> Result<BTreeSet<(u32, IpNet)>, AgentError> {
    Ok(netlink.own_routes().await?.into_iter().filter(|(table, _)| tables.contains(table)).collect())
}

/// Removes all rules, routes and draws of an agent of this configuration; in a dry run it has made none.
pub(super) async fn remove_routing(netlink: &Netlink, config: &ProgramConfig) -> Result<(), AgentError> {
    if config.dry_run != 0 {
        return Ok(());
    }
    replies::remove(config);
    let tables = tables(config.table_base);
    netlink.delete_rules(tables.clone(), config.priority).await?;
    for (table, destination) in routes_in(netlink, &tables).await? {
        netlink.delete_route(table, destination).await?;
    }
    Ok(())
}
