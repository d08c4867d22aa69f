//! What to put in place of rules that restore whole marks.

use super::{FilterUse, MarkAction};

impl FilterUse {
    /// The rules to put in place of one that restores bits `mask` of marks, and of the one that saves them: our bits then stay
    /// those of the packet, and all others are restored as before.
    ///
    /// `nft` cannot put bits of two marks together in one rule. So the connection's mark first gets the packet's bits of ours,
    /// one by one, and what is restored then has them.
    pub fn replacement(&self, mask: u32) -> Vec<String> {
        if !matches!(self.action, MarkAction::Restored(_)) {
            return Vec::new();
        }
        let others = !mask;
        if self.of_iptables {
            let how = |what: &str| format!("-j CONNMARK --{what}-mark --nfmask {others:#x} --ctmask {others:#x}");
            return vec![how("restore"), how("save")];
        }
        let bits = (0..u32::BITS).map(|bit| 1_u32 << bit).filter(|bit| mask & bit != 0);
        let copy = |bit: u32| format!("meta mark and {bit:#x} == {bit:#x} ct mark set ct mark or {bit:#x}");
        let first = format!("ct mark set ct mark and {others:#x}");
        let last = [
            format!("ct mark and {others:#x} != 0 meta mark set ct mark"),
            format!("ct mark set meta mark and {others:#x}"),
        ];
        std::iter::once(first).chain(bits.map(copy)).chain(last).collect()
    }

    /// What to do about a rule that restores bits `mask` of marks, in a line.
    pub fn advice(&self, mask: u32) -> String {
        let rules = self.replacement(mask);
        if self.of_iptables {
            return format!("give it and the rule that saves marks masks: {}", rules.join(", and "));
        }
        format!("put in place of it and of the rule that saves marks: {}", rules.join("; "))
    }
}
