//! What other programs of the host do with marks, and whether they masquerade: looked at when the agent starts, and again while it works.

use sidestep_hostd::{
    AgentError,
    firewall::{Firewall, RestoredMarks},
    paths::MarkBits,
};
use sidestep_linux::{
    marks::{Collision, Hook, MarkUses},
    netlink::{Family, Netlink},
};

/// What others do with marks, as it was last read.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    uses: MarkUses,
    /// What of it meets our bits.
    met: Vec<Collision>,
    firewall: Firewall,
}

impl Neighbours {
    /// How many rules of others meet our bits of the mark.
    pub(super) fn met(&self) -> usize {
        self.met.len()
    }

    /// The rules of others that restore our bits of marks.
    pub(super) fn restored(&self) -> &[RestoredMarks] {
        self.firewall.found()
    }

    /// Whether the rules of nf_tables and iptables may be others than when they were read.
    pub(super) fn may_differ(&mut self) -> bool {
        self.firewall.is_due()
    }

    /// The families whose connections are masqueraded.
    pub(super) fn masqueraded(&self) -> Vec<Family> {
        self.uses.masqueraded()
    }

    /// Reports whose marks ours meet; an error if another program's routing rule does, unless that is `tolerated`.
    pub(super) async fn check(&mut self, netlink: &Netlink, mark: MarkBits, tolerated: bool) -> Result<(), AgentError> {
        let (mask, new) = (mark.mask, self.look(netlink, mark).await?);
        if let Some(first) = new.iter().find(|collision| collision.misroutes)
            && !tolerated
        {
            let advice = self.advice(mask);
            return Err(AgentError::MarkCollision { mask, with: first.with.clone(), advice });
        }
        self.warn(mask, &new);
        Ok(())
    }

    /// Warns of rules that have appeared since, and meet our marks.
    pub(super) async fn watch(&mut self, netlink: &Netlink, mark: MarkBits) -> Result<(), AgentError> {
        let new = self.look(netlink, mark).await?;
        self.warn(mark.mask, &new);
        Ok(())
    }

    fn warn(&self, mask: u32, collisions: &[Collision]) {
        if collisions.is_empty() {
            return;
        }
        let advice = self.advice(mask);
        for collision in collisions {
            let wrongly = if collision.misroutes { ", so connections may be routed wrongly" } else { "" };
            tracing::warn!("mark_mask {mask:#x} meets {}{wrongly}: {advice}", collision.with);
        }
    }

    /// Reads what others do with marks; returns which of it meets ours and did not before.
    async fn look(&mut self, netlink: &Netlink, mark: MarkBits) -> Result<Vec<Collision>, AgentError> {
        let mask = mark.mask;
        let Neighbours { uses, met, firewall } = self;
        uses.read_rules(netlink).await?;
        if firewall.is_due() {
            firewall.read(uses, mask, &[Hook::Rerouted], "a connection that is moved goes on along its former path");
        }
        let now = uses.collisions(mask, mark.slots());
        let new = now.iter().filter(|collision| !met.contains(collision)).cloned().collect();
        *met = now;
        Ok(new)
    }

    /// Which mask would be better than `mask`.
    fn advice(&self, mask: u32) -> String {
        match self.uses.free_mask().filter(|free| *free != mask) {
            Some(free) => format!("set `mark_mask = {free:#x}` in [pathchanger], which nothing seen here uses"),
            None => "set `mark_mask` in [pathchanger] to bits that nothing uses".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sidestep_linux::{
        bpf::MAX_SLOTS,
        netlink::{Family, Rule},
    };
    use sidestep_policy::PolicySettings;

    use super::*;

    #[test]
    fn the_default_meets_none_of_the_common_rules() {
        let default = PolicySettings::default().mark_mask;
        let rule = |mark, mask, inverted| Rule {
            family: Family::V4,
            priority: 9,
            table: 2004,
            mark,
            mask,
            inverted,
            input: None,
            source: None,
            is_special: false,
            protocol: 0,
        };
        for common in [
            rule(0x200, 0xf00, false),        // Cilium, to its proxy
            rule(0xd00, 0xf00, false),        // Cilium, IPsec
            rule(0x80, 0x80, false),          // AWS VPC CNI
            rule(0x8_0000, 0xff_0000, false), // Tailscale
            rule(0x4000, 0x4000, false),      // kube-proxy's bit
            rule(0xca6c, u32::MAX, true),     // WireGuard
            rule(5, u32::MAX, false),         // of an administrator
        ] {
            let uses = MarkUses { rules: vec![common.clone()], ..MarkUses::default() };
            assert!(uses.collisions(default, MAX_SLOTS).is_empty(), "{common}");
        }
    }
}
