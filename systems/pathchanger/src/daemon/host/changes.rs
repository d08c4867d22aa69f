//! What changes while the agent works: the controller's paths, the configuration, and interfaces. Each is noted here, and put in
//! place by the reconciliation that follows.

use sidestep_api::{Connection, Latest, PathUpdate};
use sidestep_hostd::AgentError;

use super::{Host, HostConfig, interfaces, stuck::warn_what_resets_lack};

impl Host {
    pub(super) fn handle_controller(&mut self, latest: Latest<PathUpdate>) -> Result<(), AgentError> {
        match latest.connection {
            Connection::Lost { reason } => {
                tracing::warn!(reason, "the controller is away; the last paths stay");
                self.given.lose_controller();
                self.configure()
            }
            Connection::Connecting => Ok(()),
            Connection::Connected => {
                self.given.follow(latest.update);
                self.configure()
            }
        }
    }

    pub(super) async fn handle_config(&mut self, config: HostConfig) -> Result<(), AgentError> {
        if config.metrics != self.options.config.metrics {
            tracing::warn!("[metrics] stays what it is until the agent is started again");
        }
        if config.agent.mark_mask != self.routing.ground.mark.mask {
            tracing::warn!("mark_mask stays what it is until the agent is started again");
        }
        let (next, now) = (&config.agent, &self.options.config.agent);
        let on_dead = (next.on_dead, next.policy) != (now.on_dead, now.policy);
        self.options.config = config;
        if on_dead {
            warn_what_resets_lack(&self.options.config.agent);
        }
        self.given.note_config();
        tracing::info!("the configuration was read again");
        self.configure()?;
        self.handle_links().await
    }

    /// The kernel removes routes together with their interface, and gives a new interface another number.
    pub(super) async fn handle_links(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        let config = &self.options.config;
        self.given.set_own(config.resolve_present(&interfaces(&self.netlink, config).await?));
        self.routing.forget_routes();
        Ok(())
    }
}
