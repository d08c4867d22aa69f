//! The balancer's program: what it was loaded with, and the interfaces that have it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use sidestep_hostd::AgentError;
use sidestep_linux::{monotonic_now, netlink::Netlink};

use super::EdgeConfig;
use crate::daemon::balancer::{self, Balancer, BalancerConfig, Side};

/// How long a flow of the table may be silent, in seconds of 2^30 ns; and how long it is kept after its end.
const IDLE: u32 = 900;
const CLOSING: u32 = 60;
/// How often flows that have ended are looked for: the kernel copies the whole table for that.
const FORGETTING: Duration = Duration::from_secs(15);

/// The program, where it is attached.
pub(super) struct Program {
    pub(super) balancer: Balancer,
    /// Whether it has a table of flows.
    has_flows: bool,
    /// The interface that has the program, by its name and side.
    attached: BTreeMap<(String, Side), u32>,
    /// What was logged of interfaces that cannot have the program, so that it is logged once.
    complaints: BTreeSet<String>,
    /// When flows that have ended were forgotten last.
    forgot_at: Option<Instant>,
}

impl Program {
    /// Loads the program, which no interface has yet.
    pub(super) fn load(config: &BalancerConfig) -> Result<Self, AgentError> {
        Ok(Program {
            balancer: Balancer::load(config)?,
            has_flows: config.flows.is_some(),
            attached: BTreeMap::new(),
            complaints: BTreeSet::new(),
            forgot_at: None,
        })
    }

    /// How many flows the table has, if there is one.
    pub(super) fn flows(&self) -> Result<Option<usize>, AgentError> {
        Ok(self.has_flows.then(|| self.balancer.flows()).transpose()?)
    }

    /// Forgets the flows that have ended, when it is time.
    pub(super) fn forget_flows(&mut self) -> Result<(), AgentError> {
        if self.has_flows && self.forgot_at.is_none_or(|at| at.elapsed() >= FORGETTING) {
            self.forgot_at = Some(Instant::now());
            self.balancer.forget_flows((monotonic_now().as_nanos() >> 30) as u32, IDLE, CLOSING)?;
        }
        Ok(())
    }

    /// Interfaces of the site that do not have the program.
    pub(super) fn missing<'a>(&self, inside: &'a [String]) -> Vec<&'a str> {
        let has = |name: &&String| !self.attached.contains_key(&((*name).clone(), Side::Site));
        inside.iter().filter(has).map(String::as_str).collect()
    }

    /// Puts the program back where another program removed it; returns how often.
    pub(super) async fn stay_attached(
        &mut self,
        netlink: &Netlink,
        config: &EdgeConfig,
        at_work: bool,
    ) -> Result<usize, AgentError> {
        let attached: Vec<_> =
            self.attached.iter().map(|((name, side), index)| (name.clone(), *side, *index)).collect();
        let mut lost = 0;
        for (name, side, index) in attached {
            if !self.balancer.is_attached(netlink, index, side).await? {
                self.attached.remove(&(name, side));
                lost += 1;
            }
        }
        if lost > 0 {
            let before = self.attached.len();
            self.attach_all(netlink, config, at_work).await?;
            let back = self.attached.len() - before;
            if back > 0 {
                tracing::warn!(filters = back, "another program removed filters of ours, which are put back");
            }
            return Ok(back);
        }
        if !self.missing(&config.edge.inside).is_empty() {
            self.attach_all(netlink, config, at_work).await?;
        }
        Ok(0)
    }

    /// Attaches the program to the interfaces that are there and do not have it, and removes it from those of which the
    /// configuration no longer names any.
    pub(super) async fn attach_all(
        &mut self,
        netlink: &Netlink,
        config: &EdgeConfig,
        at_work: bool,
    ) -> Result<(), AgentError> {
        let interfaces = netlink.interfaces().await?;
        let interfaces: BTreeMap<_, _> = interfaces.into_iter().map(|one| (one.name.clone(), one)).collect();
        let inside = config.edge.inside.iter().map(|name| (name.clone(), Side::Site));
        let outside = config.outside().into_iter().filter(|_| self.has_flows);
        let outside = outside.map(|name| (name.to_string(), Side::Paths));
        let wanted: BTreeSet<(String, Side)> = inside.chain(outside).collect();
        self.attached.retain(|(name, _), index| interfaces.get(name).is_some_and(|now| now.index == *index));
        for (name, side) in &wanted {
            let key = (name.clone(), *side);
            let Some(interface) = interfaces.get(name).filter(|_| !self.attached.contains_key(&key)) else {
                continue;
            };
            match self.balancer.attach(netlink, interface, *side).await {
                Ok(()) => {
                    self.complaints.remove(name);
                    self.attached.insert(key, interface.index);
                }
                Err(error) if error.is_environment() => return Err(error.into()),
                Err(error) if self.complaints.insert(name.clone()) => {
                    tracing::warn!(%error, "packets that come in by {name} take the router's own route until it succeeds");
                }
                Err(_) => {}
            }
        }
        let unwanted: Vec<_> = self.attached.keys().filter(|key| !wanted.contains(key)).cloned().collect();
        for key in unwanted {
            if let Some(index) = self.attached.remove(&key) {
                balancer::remove_side(netlink, index, key.1).await?;
            }
        }
        if !at_work {
            // An earlier daemon may have had other interfaces, or a table, or left the choice to the kernel.
            for (name, interface) in &interfaces {
                balancer::remove_but(netlink, interface.index, |side| wanted.contains(&(name.clone(), side))).await?;
            }
        }
        Ok(())
    }
}
