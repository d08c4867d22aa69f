//! Compares what the kernel has with what the daemon put there, so that what others removed is put back.
//!
//! A rule that is gone is seen by nothing else: the mark stays on the connection, whose packets take the default route,
//! and the policy would learn from moves that move nothing. The kernel reports the loss at once, and the rule is back
//! within some hundredths of a second; connections that looked their route up meanwhile do so again. A timeout of TCP
//! takes longer, unless the machine is very busy, and of a path's delay one round trip is measured wrongly at most. That is
//! why the program goes on deciding meanwhile. Where it happens again and again, it learns nothing (`drift`).

use sidestep_hostd::{AgentError, effect::note};

use super::{Host, effect::look};

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
        let drift = self.routing.compare(&self.netlink).await?;
        if drift.lost() > 0 {
            self.others.count(&drift);
            self.configure()?;
            self.note_drift(true)?;
        }
        let differs = drift.is_any() || self.routing.is_elsewhere(&self.netlink).await?;
        if !differs {
            note(self.check_effect().await);
        }
        Ok(differs)
    }

    /// Warns of what others do with marks since. Connections depend on the agent by now, so it goes on.
    pub(super) async fn watch_marks(&mut self) -> Result<(), AgentError> {
        let neighbours = &mut self.others.neighbours;
        neighbours.watch(&self.netlink, self.routing.ground.mark).await?;
        self.replies.keep_sources(neighbours.masqueraded());
        Ok(())
    }

    /// Makes the program learn nothing while rules or routes are lost again and again.
    pub(super) fn note_drift(&mut self, lost: bool) -> Result<(), AgentError> {
        if self.others.note_drift(lost) { self.configure() } else { Ok(()) }
    }

    /// Asks the kernel whether marked packets leave by their paths. While they do not, nothing is learnt.
    pub(super) async fn check_effect(&mut self) -> Result<(), AgentError> {
        if self.options.dry_run {
            return Ok(());
        }
        let was_whole = self.others.effects.is_any_whole();
        let (ground, slots) = (&self.routing.ground, self.map.slots());
        let (netlink, program) = (&self.netlink, &self.program);
        look(&mut self.others.effects, netlink, program, ground, (slots, &self.paths.names())).await?;
        if self.others.effects.is_any_whole() != was_whole { self.configure() } else { Ok(()) }
    }
}
