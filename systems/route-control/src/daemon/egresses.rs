//! Where each egress leads now, and why packets cannot leave by one.

use std::collections::BTreeMap;

use sidestep_linux::netlink::{Family, Interface};
use tokio::time::Instant;

use super::{EgressConfig, RouteControlConfig, following::Followed, ways::Ways};

/// The egresses, by their numbers.
pub(super) struct Egresses {
    /// The interface of each, if it is there.
    pub(super) links: Vec<Option<Interface>>,
    /// Where each leads, by family.
    pub(super) ways: Vec<Ways>,
    /// By egress and family: what is missing.
    pub(super) followed: Vec<[Followed; 2]>,
    /// When to look again at paths that are missing since a moment.
    recheck: Option<Instant>,
    /// By egress and family: why the kernel takes no route by it.
    refused: BTreeMap<(usize, Family), String>,
}

impl Egresses {
    /// `count` egresses, of which nothing is known yet.
    pub(super) fn new(count: usize) -> Self {
        Egresses {
            links: vec![None; count],
            ways: Vec::new(),
            followed: Vec::new(),
            recheck: None,
            refused: BTreeMap::new(),
        }
    }

    /// Forgets what is known of them, as there are others now.
    pub(super) fn reset(&mut self, count: usize) {
        let recheck = self.recheck;
        *self = Egresses { recheck, ..Egresses::new(count) };
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// When to look again at paths that are missing since a moment.
    pub(super) fn recheck(&self) -> Option<Instant> {
        self.recheck
    }

    /// Takes note that the kernel takes no route of a family by an egress.
    pub(super) fn refuse(&mut self, egress: usize, family: Family, why: String) {
        self.refused.insert((egress, family), why);
    }

    /// Whether the kernel takes no route by some egress.
    pub(super) fn is_any_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Takes note of where each leads now, and returns where it led. Paths that are missing since a moment only stay: else each
    /// renewal of a lease would be an outage. Routes that were refused are tried again.
    pub(super) fn replace(&mut self, mut ways: Vec<Ways>) -> Vec<Ways> {
        self.followed.resize_with(ways.len(), Default::default);
        self.keep_for_a_moment(&mut ways);
        self.links = ways.iter().map(|way| way.link.clone()).collect();
        self.refused.clear();
        std::mem::replace(&mut self.ways, ways)
    }

    fn keep_for_a_moment(&mut self, ways: &mut [Ways]) {
        let now = Instant::now();
        let mut recheck: Option<Instant> = None;
        for ((way, before), followed) in ways.iter_mut().zip(&self.ways).zip(&mut self.followed) {
            let index = |of: &Ways| of.link.as_ref().filter(|link| link.running).map(|link| link.index);
            let is_same_link = index(way).is_some() && index(way) == index(before);
            for (family, of) in Family::ALL.into_iter().zip(followed) {
                let is_missed = is_same_link && way.of(family).is_err() && before.of(family).is_ok();
                let Some(until) = of.miss(is_missed, now).filter(|until| *until > now) else { continue };
                way.keep(family, before);
                recheck = Some(recheck.map_or(until, |recheck| recheck.min(until)));
            }
        }
        self.recheck = recheck;
    }

    /// The interface of an egress, if it is there and carries packets; else why not.
    pub(super) fn carrier(&self, egress: usize, of: &EgressConfig) -> Result<&Interface, String> {
        match self.links.get(egress) {
            Some(Some(link)) if link.running => Ok(link),
            Some(Some(_)) => Err(format!("{} is down or has no carrier", of.dev)),
            _ => Err(format!("there is no interface {}", of.dev)),
        }
    }

    /// Why no packet of a family can leave by an egress, as far as this router knows.
    pub(super) fn why_unusable(&self, config: &RouteControlConfig, egress: usize, family: Family) -> Option<String> {
        let of = config.egresses.get(egress)?;
        match self.carrier(egress, of) {
            Ok(_) => {
                let missing = self.ways.get(egress).and_then(|ways| ways.of(family).err()).map(str::to_string);
                missing.or_else(|| self.refused.get(&(egress, family)).cloned())
            }
            Err(why) => Some(why),
        }
    }

    /// Why nothing can leave by an egress; `None` while packets of one family can.
    pub(super) fn unusable(&self, config: &RouteControlConfig, egress: usize) -> Option<String> {
        let of = config.egresses.get(egress)?;
        let carried = config.families().into_iter().filter(|family| of.carries(*family));
        let all: Option<Vec<String>> = carried.map(|family| self.why_unusable(config, egress, family)).collect();
        let mut whys = all?;
        whys.dedup();
        Some(whys.join("; ")).filter(|why| !why.is_empty())
    }

    /// The index of an egress's interface, if packets of a family can leave by it.
    pub(super) fn interface(&self, config: &RouteControlConfig, egress: usize, family: Family) -> Option<u32> {
        let usable = self.why_unusable(config, egress, family).is_none();
        self.links.get(egress)?.as_ref().filter(|_| usable).map(|link| link.index)
    }
}
