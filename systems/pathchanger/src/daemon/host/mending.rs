//! Compares what the kernel has with what the daemon put there, so that what others removed is put back.
//!
//! A rule that is gone is seen by nothing else: the mark stays on the connection, whose packets take the default route,
//! and the policy would learn from moves that move nothing. The kernel reports the loss at once, and the rule is back
//! within some hundredths of a second; connections that looked their route up meanwhile do so again. A timeout of TCP
//! takes longer, unless the machine is very busy, and of a path's delay one round trip is measured wrongly at most. That is
//! why the program goes on deciding meanwhile. Where it happens again and again, it learns nothing (`drift`).

use sidestep_hostd::{AgentError, effect::note, paths::MarkBits, routing::Drift};
use std::time::Instant;

use sidestep_linux::netlink::{Family, LOCAL, MarkRule, RouteRule};

use super::Host;

/// How many rules and routes were put back since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mended {
    pub(super) rules: u32,
    pub(super) routes: u32,
}

impl Host {
    /// Forgets the rules and routes that the kernel no longer has; returns whether anything has to be put back, or a path
    /// begins with another hop than before.
    pub(super) async fn compare(&mut self) -> Result<bool, AgentError> {
        self.watch_marks().await?;
        let drift = if self.options.dry_run { Drift::default() } else { self.routing.compare(&self.netlink).await? };
        drift.log();
        self.reroutes |= drift.is_any();
        if drift.lost() > 0 {
            self.mended.rules += drift.rules as u32;
            self.mended.routes += drift.routes as u32;
            self.program.configure(&self.program_config()?)?;
            self.note_drift(true)?;
        }
        let differs = drift.is_any() || self.underlay.has_changed(&self.netlink).await?;
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

    /// The rule for the mark slot of this number.
    pub(super) fn rule(&self, family: Family, slot: u32) -> RouteRule {
        let MarkBits { mask, shift } = self.mark;
        let table = self.options.table_base + slot;
        MarkRule { family, mark: slot << shift, mask, table, priority: self.options.priority }.for_input(LOCAL)
    }

    /// The rules for all mark slots.
    pub(super) fn rules_of(&self, family: Family) -> impl Iterator<Item = RouteRule> {
        (1..=self.mark.slots()).map(move |slot| self.rule(family, slot))
    }
}
