//! Who owns which routing tables, bits of the mark and state: two agents must never work on the same.

use std::{ops::RangeInclusive, time::Duration};

use sidestep_hostd::{
    AgentError,
    paths::{MarkBits, tables},
};
use sidestep_linux::{
    claim::{Claim, Claimant},
    netlink::{Family, LOCAL, MarkRule, RouteRule},
    netns::NetNsId,
};

use super::HostOptions;
use crate::daemon::program::Pins;

/// How the names begin by which agents find each other.
const PREFIX: &str = "sidestep/agent/";
/// How often, and how long apart, an agent looks whether one before it has ended.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Where in the kernel an agent works: its rules, its tables and its bits of the mark.
pub(super) struct RoutingSpace {
    /// Where its rules and routes are.
    pub(super) netns: NetNsId,
    pub(super) mark: MarkBits,
    /// The path of slot k is in table `table_base + k`.
    pub(super) table_base: u32,
    /// Priority of the rules.
    pub(super) priority: u32,
    /// As long as this lives, no other agent of the namespace uses our tables and bits of the mark.
    claim: Option<Claim>,
}

impl RoutingSpace {
    /// The ground of these options in the calling thread's network namespace, which `claim` keeps.
    pub(super) fn new(options: &HostOptions, claim: Option<Claim>) -> Result<Self, AgentError> {
        Ok(RoutingSpace {
            netns: NetNsId::current()?,
            mark: MarkBits::new(options.config.agent.mark_mask),
            table_base: options.table_base,
            priority: options.priority,
            claim,
        })
    }

    /// Forgets those who have asked whether the ground is taken.
    pub(super) fn forget_askers(&self) {
        self.claim.iter().for_each(Claim::forget_askers);
    }

    /// The rule for the mark slot of this number.
    pub(super) fn rule(&self, family: Family, slot: u32) -> RouteRule {
        let MarkBits { mask, shift } = self.mark;
        let table = self.table_base + slot;
        MarkRule { family, mark: slot << shift, mask, table, priority: self.priority }.for_input(LOCAL)
    }

    /// The rules for all mark slots.
    pub(super) fn rules_of(&self, family: Family) -> impl Iterator<Item = RouteRule> {
        (1..=self.mark.slots()).map(move |slot| self.rule(family, slot))
    }
}

/// What marked packets of an agent are recognised by, and where they are routed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stake {
    tables: RangeInclusive<u32>,
    mask: u32,
}

impl Stake {
    fn of(options: &HostOptions) -> Self {
        Stake { tables: tables(options.table_base), mask: options.config.agent.mark_mask }
    }

    fn name(&self) -> String {
        format!("{PREFIX}tables/{}/{}/mark/{:#x}", self.tables.start(), self.tables.end(), self.mask)
    }

    fn read(name: &str) -> Option<Self> {
        let words: Vec<_> = name.strip_prefix(PREFIX)?.split('/').collect();
        let ["tables", first, last, "mark", mask] = words[..] else { return None };
        let mask = u32::from_str_radix(mask.strip_prefix("0x")?, 16).ok()?;
        Some(Stake { tables: first.parse().ok()?..=last.parse().ok()?, mask })
    }

    /// Whether a packet, a rule or a route of one agent could be taken for one of the other.
    fn touches(&self, other: &Stake) -> bool {
        let tables = self.tables.start() <= other.tables.end() && other.tables.start() <= self.tables.end();
        tables || self.mask & other.mask != 0
    }
}

/// Makes sure that no other agent of this network namespace uses our tables or bits of the mark as long as the claim lives.
///
/// A dry run uses none.
pub(super) async fn claim(options: &HostOptions) -> Result<Option<Claim>, AgentError> {
    if options.dry_run {
        return Ok(None);
    }
    let stake = Stake::of(options);
    let name = stake.name();
    let mut tries = 0;
    loop {
        let claim = Claim::take(&name)?;
        let is_other = |other: &String| (claim.is_none() || *other != name) && touches(&stake, other);
        let others = Claim::names(PREFIX)?.into_iter().filter(is_other);
        let others: Vec<_> = others.filter_map(|name| Claimant::of(&name)).collect();
        tries += 1;
        match others.iter().find(|other| other.is_privileged) {
            Some(other) if tries == TRIES => {
                let (first, last, mask) = (*stake.tables.start(), *stake.tables.end(), stake.mask);
                return Err(AgentError::Taken { process: other.process, first, last, mask });
            }
            None if claim.is_some() => return Ok(claim),
            // A process that may not change routes is no agent, and must not keep one from working.
            None if !others.is_empty() => {
                tracing::warn!(name, "a program without privileges has taken the name of this agent; it is not heeded");
                return Ok(None);
            }
            // It ends, or has just ended.
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The bits of the mark of each agent that works in the calling thread's network namespace, by its process.
///
/// The process is zero where it cannot be known. Needs no privilege.
pub fn masks_at_work() -> Result<Vec<(i32, u32)>, AgentError> {
    let at_work = |name: String| {
        let mask = Stake::read(&name)?.mask;
        Some((Claimant::of(&name).filter(|claimant| claimant.is_privileged)?.process, mask))
    };
    Ok(Claim::names(PREFIX)?.into_iter().filter_map(at_work).collect())
}

/// The routing tables and the bits of the mark of each agent that works in the calling thread's network namespace.
pub(super) fn stakes_at_work() -> Result<Vec<(RangeInclusive<u32>, u32)>, AgentError> {
    let at_work = |name: String| {
        let stake = Stake::read(&name)?;
        Claimant::of(&name).filter(|claimant| claimant.is_privileged)?;
        Some((stake.tables, stake.mask))
    };
    Ok(Claim::names(PREFIX)?.into_iter().filter_map(at_work).collect())
}

fn touches(stake: &Stake, name: &str) -> bool {
    Stake::read(name).is_some_and(|other| stake.touches(&other))
}

/// Refuses the state of an agent whose rules and routes are in another network namespace; forgets one whose namespace is gone.
pub(super) fn check_state(pins: &Pins) -> Result<(), AgentError> {
    let Some(owner) = pins.config().and_then(|config| config.netns()) else { return Ok(()) };
    // A process that works with it is refused, or refuses us, by the lock.
    if owner.cookie == NetNsId::current()?.cookie || !pins.holder()?.is_gone() {
        return Ok(());
    }
    if let Some(place) = owner.find() {
        return Err(AgentError::Elsewhere { state: pins.directory.clone(), place });
    }
    tracing::warn!("the state is that of an agent whose network namespace is gone: it begins again");
    Ok(pins.remove()?)
}

#[cfg(test)]
mod tests {
    use sidestep_linux::bpf::MAX_SLOTS;

    use super::*;

    #[test]
    fn agents_that_share_a_table_or_a_bit_touch_each_other() {
        let stake = |base, mask| Stake { tables: tables(base), mask };
        let ours = stake(8300, 0xff00);
        assert_eq!(Stake::read(&ours.name()), Some(ours.clone()));
        for (other, touches) in [
            (stake(8300, 0xff00), true),
            (stake(8300 + MAX_SLOTS, 0xff_0000), false),
            (stake(8300 + MAX_SLOTS - 1, 0xff_0000), true),
            (stake(8300 - MAX_SLOTS + 1, 0xff_0000), true),
            (stake(8300 - MAX_SLOTS, 0xff_0000), false),
            (stake(9000, 0x0f00), true),
        ] {
            assert_eq!((ours.touches(&other), other.touches(&ours)), (touches, touches), "{other:?}");
        }
        for name in ["", "sidestep/agent/", "sidestep/agent/tables/1/2/mark/ff", "sidestep/agent/tables/x/2/mark/0xff"]
        {
            assert_eq!(Stake::read(name), None, "{name}");
        }
    }
}
