//! Removes what an agent made in the kernel, whether or not it is still at work.

use std::time::Duration;

use sidestep_hostd::{AgentError, paths::tables, routing::Domain};
use sidestep_linux::{netlink::Netlink, netns::NetNsId};

use super::{Host, replies};
use crate::daemon::program::{HostConfig as ProgramConfig, HostProgram, Pins};

impl Host {
    /// Removes all that the daemon made; connections get the marks back that they had.
    pub(super) async fn remove(mut self) -> Result<(), AgentError> {
        let counters = self.program.counters().ok();
        let config = self.program_config()?;
        self.program.remove()?;
        self.netlink.renew()?;
        remove_routing(&self.netlink, &config).await?;
        tracing::info!(?counters, "stopped");
        Ok(())
    }
}

/// How long an agent may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to look whether it has stopped.
const STOP_POLL: Duration = Duration::from_millis(100);

/// Ends the agent that works with `pins`, and removes what a killed or a keeping agent left: program, maps, rules and
/// routes. Connections get the marks back that they had. Returns whether there was anything.
///
/// An agent at work notices within a second that its pins are gone, and ends. What a killed agent left can only be removed in
/// its own network namespace: elsewhere this is an error, and nothing is touched.
pub async fn stop_host(pins: &Pins) -> Result<bool, AgentError> {
    if !pins.exist() {
        // One that was killed before it began may have left maps that hold nothing.
        if pins.is_possible().is_ok() && pins.holder().is_ok_and(|holder| holder.is_gone()) {
            pins.remove()?;
        }
        return Ok(false);
    }
    let state = || pins.directory.clone();
    let (holder, config) = (pins.holder()?, pins.config());
    let here = NetNsId::current()?;
    let elsewhere = config.and_then(|config| config.netns()).filter(|owner| owner.cookie != here.cookie);
    if let Some(place) = elsewhere.filter(|_| holder.is_gone()).and_then(NetNsId::find) {
        return Err(AgentError::Elsewhere { state: state(), place });
    }
    let mut readable = true;
    if elsewhere.is_some() {
        // Its connections, if there are any, are not of this namespace.
        pins.remove()?;
    } else if HostProgram::supersede(pins)?.is_some() {
        readable = false;
    } else {
        match HostProgram::look(pins) {
            Ok(Some(program)) => program.remove()?,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "the connections' marks cannot be restored");
                readable = false;
                pins.remove()?;
            }
        }
    }
    // An agent at work sees that its state is gone, and removes the rest.
    let waited = tokio::time::timeout(STOP_TIMEOUT, async {
        while !holder.is_gone() {
            tokio::time::sleep(STOP_POLL).await;
        }
    });
    let ended = waited.await.is_ok();
    match config {
        Some(config) if elsewhere.is_none() => remove_routing(&Netlink::open()?, &config).await?,
        None if !readable => return Err(AgentError::Unreadable { state: state() }),
        // They went with their namespace or with the agent, or it was killed before it made any.
        Some(_) | None => {}
    }
    if ended { Ok(true) } else { Err(AgentError::DoesNotEnd { state: state() }) }
}

/// Where an agent with these numbers has its rules and routes.
pub(super) fn domain(table_base: u32, priority: u32) -> Domain {
    Domain::tables(tables(table_base), priority..=priority)
}

/// Removes all rules, routes and draws of an agent of this configuration; in a dry run it has made none.
pub(super) async fn remove_routing(netlink: &Netlink, config: &ProgramConfig) -> Result<(), AgentError> {
    if config.dry_run != 0 {
        return Ok(());
    }
    replies::remove(config);
    domain(config.table_base, config.priority).clear(netlink).await?;
    Ok(())
}
