//! What changes while the agent works: the controller's paths, the configuration, and interfaces. Each is noted here, and put in
//! place by the reconciliation that follows.

use sidestep_api::{Connection, Latest, PathUpdate};
use sidestep_hostd::AgentError;
use sidestep_linux::monotonic_now;

use super::{ControllerState, Host, HostConfig, interfaces};

impl Host {
    pub(super) fn handle_controller(&mut self, latest: Latest<PathUpdate>) -> Result<(), AgentError> {
        match latest.connection {
            Connection::Lost { reason } => {
                tracing::warn!(reason, "the controller is away; the last paths stay");
                self.note_controller(ControllerState::Away)
            }
            Connection::Connecting => Ok(()),
            Connection::Connected => {
                self.update = latest.update;
                self.note_controller(ControllerState::Connected)
            }
        }
    }

    pub(super) async fn handle_config(&mut self, config: HostConfig) -> Result<(), AgentError> {
        if config.metrics != self.options.config.metrics {
            tracing::warn!("[metrics] stays what it is until the agent is started again");
        }
        if config.agent.mark_mask != self.mark.mask {
            tracing::warn!("mark_mask stays what it is until the agent is started again");
        }
        let (next, now) = (&config.agent, &self.options.config.agent);
        let on_dead = (next.on_dead, next.policy) != (now.on_dead, now.policy);
        self.options.config = config;
        if on_dead {
            self.tell_what_resets_lack();
        }
        if self.update.is_none() {
            self.paths_at = monotonic_now();
        }
        tracing::info!("the configuration was read again");
        self.program.configure(&self.program_config()?)?;
        self.handle_links().await
    }

    /// The kernel removes routes together with their interface, and gives a new interface another number.
    pub(super) async fn handle_links(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.own = self.options.config.resolve_present(&interfaces(&self.netlink, &self.options.config).await?);
        self.routing.forget_routes();
        self.reroutes = true;
        Ok(())
    }
}
