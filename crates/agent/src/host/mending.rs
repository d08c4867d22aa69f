//! Compares what the kernel has with what the daemon put there, so that what others removed is put back.
//!
//! A rule that is gone is seen by nothing else: the mark stays on the connection, whose packets take the default route,
//! and the policy would learn from moves that move nothing. The kernel reports the loss at once, and the rule is back
//! within some hundredths of a second; connections that looked their route up meanwhile do so again. A timeout of TCP
//! takes longer, unless the machine is very busy, and of a path's delay one round trip is measured wrongly at most. That is
//! why the program goes on deciding meanwhile. Where it happens again and again, it learns nothing (`drift`).

use std::{net::IpAddr, time::Instant};

use ipnet::IpNet;
use sidestep_linux::netlink::{Family, MarkRule, RoutingChange};

use super::Host;
use crate::{
    AgentError,
    effect::note,
    paths::{self, MarkBits, tables},
};

/// How many rules and routes were put back since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mended {
    pub(super) rules: u32,
    pub(super) routes: u32,
}

impl Host {
    /// Whether a change of rules or routes may be one that matters to us. Those that we made do not.
    pub(super) fn is_concerned(&self, change: &RoutingChange) -> bool {
        match change {
            RoutingChange::Unknown => true,
            RoutingChange::Rule(change) => !(change.ours && change.added),
            change if self.effects.concerns(change) => true,
            RoutingChange::Route { table, destination, change } => {
                if tables(self.options.table_base).contains(table) {
                    return self.routes.contains_key(&(*table, *destination)) && !(change.ours && change.added);
                }
                self.leads_to_a_first_hop(destination) || self.exceptions.differ_by(*table, *destination, change.added)
            }
        }
    }

    fn leads_to_a_first_hop(&self, destination: &IpNet) -> bool {
        self.firsts.iter().any(|first| destination.contains(&IpAddr::from(*first)))
    }

    /// Forgets the rules and routes that the kernel no longer has; returns whether anything has to be put back, or a path
    /// begins with another hop than before.
    pub(super) async fn compare(&mut self) -> Result<bool, AgentError> {
        self.watch_marks().await?;
        let lost = if self.options.dry_run { Mended::default() } else { self.forget_lost().await? };
        if lost != Mended::default() {
            self.reroutes = true;
            self.mended.rules += lost.rules;
            self.mended.routes += lost.routes;
            self.program.configure(&self.program_config()?)?;
            tracing::warn!(
                rules = lost.rules,
                routes = lost.routes,
                "somebody removed rules or routes of ours, which are put back; if it was systemd-networkd, set \
                 ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in networkd.conf"
            );
            self.note_drift(true)?;
        }
        let differs = lost != Mended::default()
            || paths::first_hops(&self.netlink, &self.firsts).await? != self.hops
            || self.exceptions.changed(&self.netlink).await?;
        if !differs {
            note(self.check_effect().await);
        }
        Ok(differs)
    }

    /// Notes whether rules or routes were lost: if that happens again and again, connections learn nothing together.
    pub(super) fn note_drift(&mut self, lost: bool) -> Result<(), AgentError> {
        if !self.drift.note(Instant::now(), lost) {
            return Ok(());
        }
        match self.drift.persists() {
            true => tracing::warn!(
                "somebody removes rules or routes of ours again and again: they are put back, and connections are moved, but \
                 nothing is learnt of paths until that has stopped"
            ),
            false => tracing::info!("rules and routes stay in place again: what is seen of paths is learnt"),
        }
        Ok(self.program.configure(&self.program_config()?)?)
    }

    async fn forget_lost(&mut self) -> Result<Mended, AgentError> {
        let there = self.netlink.rules().await?;
        let before = self.rules.len();
        let expected = self.rules.iter().map(|(family, slot)| self.rule(*family, *slot));
        let present: Vec<_> = expected.map(|rule| there.iter().any(|other| other.is(&rule))).collect();
        let mut present = present.into_iter();
        self.rules.retain(|_| present.next().unwrap_or(false));
        let missing = self.netlink.missing_routes(&self.routes).await?;
        for key in &missing {
            self.routes.remove(key);
        }
        let lost = Mended { rules: (before - self.rules.len()) as u32, routes: missing.len() as u32 };
        // One that leads elsewhere now goes if it is no longer wanted.
        self.leftover_routes.extend(missing);
        Ok(lost)
    }

    /// The rule for the mark slot of this number.
    pub(super) fn rule(&self, family: Family, slot: u32) -> MarkRule {
        let MarkBits { mask, shift } = self.mark;
        let table = self.options.table_base + slot;
        MarkRule { family, mark: slot << shift, mask, table, priority: self.options.priority }
    }
}
