//! Chains of rules: from which hooks packets come to each, and which of them are left alone on that path.

use std::collections::{BTreeMap, BTreeSet};

use super::{FilterUse, MarkAction};

/// Where the kernel calls a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Before packets that come in are routed.
    Prerouting,
    /// For packets to this host.
    Input,
    /// For packets that pass.
    Forward,
    /// For packets of this host, which are routed already and stay so.
    Output,
    /// For packets of this host, which are routed again if their mark has changed: chains of the type `route`, and the table
    /// `mangle`.
    Rerouted,
    /// After packets were routed.
    Postrouting,
    /// Elsewhere.
    Other,
}

/// A chain.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Where it is, for people; this names it among the chains of its program.
    pub(super) place: String,
    /// What the chains have in common that it may jump to.
    pub(super) table: String,
    /// Where it is called; `None`: by other chains only.
    pub(super) hook: Option<Hook>,
    /// The rules that matter, in their order.
    pub(super) steps: Vec<Step>,
}

/// A rule, as far as it matters.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// What it does.
    pub(super) actions: Vec<MarkAction>,
    /// It is not for packets whose mark has any of these bits.
    pub(super) spares: u32,
    /// The places of the chains that it may jump to.
    pub(super) jumps: Vec<String>,
    /// Whether it may jump to any chain of its table: a map contains which.
    pub(super) jumps_anywhere: bool,
    /// Packets whose mark has any of these bits go no further in the chain.
    pub(super) ends_for: u32,
    /// Whether it is of an extension of iptables.
    pub(super) of_iptables: bool,
}

/// What is known of the packets that come to a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reached {
    hooks: BTreeSet<Hook>,
    /// Those whose mark has any of these bits do not.
    spares: u32,
}

/// What the rules of these chains do with marks, with the hooks from which packets come to them.
pub(super) fn uses(program: &'static str, chains: &[Chain]) -> Vec<FilterUse> {
    let reached = reached(chains);
    let mut found = Vec::new();
    for chain in chains {
        let Reached { hooks, spares } =
            reached.get(&chain.place).cloned().unwrap_or(Reached { hooks: BTreeSet::new(), spares: 0 });
        let mut passed = spares;
        for step in &chain.steps {
            let spares = passed | step.spares;
            let of = |action: &MarkAction| FilterUse {
                program,
                place: chain.place.clone(),
                action: *action,
                hooks: hooks.clone(),
                spares,
                of_iptables: step.of_iptables,
            };
            found.extend(step.actions.iter().map(of));
            passed |= step.ends_for;
        }
    }
    found
}

/// Follows the jumps from the chains that the kernel calls.
fn reached(chains: &[Chain]) -> BTreeMap<String, Reached> {
    let by_place: BTreeMap<&str, &Chain> = chains.iter().map(|chain| (chain.place.as_str(), chain)).collect();
    let mut reached: BTreeMap<String, Reached> = BTreeMap::new();
    let mut waiting: Vec<&Chain> = Vec::new();
    for chain in chains.iter().filter(|chain| chain.hook.is_some()) {
        reached.insert(chain.place.clone(), Reached { hooks: chain.hook.into_iter().collect(), spares: 0 });
        waiting.push(chain);
    }
    // Each turn adds a hook or takes a bit away, of which there are few.
    while let Some(chain) = waiting.pop() {
        let Some(Reached { hooks, spares }) = reached.get(&chain.place).cloned() else { continue };
        let mut passed = spares;
        for step in &chain.steps {
            let spares = passed | step.spares;
            passed |= step.ends_for;
            let named = step.jumps.iter().filter_map(|place| by_place.get(place.as_str()).copied());
            let is_any = |other: &&Chain| step.jumps_anywhere && other.table == chain.table && other.hook.is_none();
            for target in named.chain(chains.iter().filter(is_any)) {
                let before = reached.get(&target.place).cloned();
                let now = match &before {
                    None => Reached { hooks: hooks.clone(), spares },
                    Some(known) => {
                        Reached { hooks: known.hooks.union(&hooks).copied().collect(), spares: known.spares & spares }
                    }
                };
                if before.as_ref() != Some(&now) {
                    reached.insert(target.place.clone(), now);
                    waiting.push(target);
                }
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(place: &str, hook: Option<Hook>, steps: Vec<Step>) -> Chain {
        Chain { place: place.into(), table: "t".into(), hook, steps }
    }

    fn jump(to: &str, spares: u32) -> Step {
        Step { jumps: vec![to.into()], spares, ..Step::default() }
    }

    #[test]
    fn a_rule_is_reached_from_the_hooks_of_all_chains_that_lead_there_and_spares_what_all_of_them_spare() {
        let does = || Step { actions: vec![MarkAction::Changed(1)], ..Step::default() };
        let ends = |bits| Step { ends_for: bits, ..Step::default() };
        let of = |chains: &[Chain]| {
            uses("p", chains).into_iter().map(|one| (one.place, one.hooks, one.spares)).collect::<Vec<_>>()
        };
        let hooks = |all: &[Hook]| all.iter().copied().collect::<BTreeSet<_>>();
        let chains = [
            chain("out", Some(Hook::Output), vec![ends(0x10), jump("a", 0x2)]),
            chain("in", Some(Hook::Input), vec![jump("b", 0x12)]),
            chain("a", None, vec![jump("b", 0)]),
            chain("b", None, vec![does(), jump("a", 0)]),
            chain("lost", None, vec![does()]),
        ];
        let b = ("b".to_string(), hooks(&[Hook::Input, Hook::Output]), 0x12);
        assert_eq!(of(&chains), [b, ("lost".to_string(), hooks(&[]), 0)]);
        let anywhere = Step { jumps_anywhere: true, ..Step::default() };
        let chains = [chain("out", Some(Hook::Rerouted), vec![anywhere]), chain("lost", None, vec![does()])];
        assert_eq!(of(&chains), [("lost".to_string(), hooks(&[Hook::Rerouted]), 0)]);
    }
}
