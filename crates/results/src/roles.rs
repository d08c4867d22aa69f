//! Which system of a run is the baseline, and which one a reader is advised to use.

use sidestep_scenario::{Advice, Baseline, Catalogue};

use crate::{RunResult, SystemResult};

/// What some systems of a run are to the reader.
#[derive(Clone, Copy)]
pub(crate) struct Roles<'a> {
    /// The system that the others are compared with: what the network does where no system decides.
    pub(crate) baseline: Option<Compared<'a>>,
    /// The system that a reader is advised to use: one that is recommended, or else the only candidate beside the baseline.
    pub(crate) recommended: Option<(&'a str, &'a SystemResult)>,
}

/// The system that others are compared with.
#[derive(Clone, Copy)]
pub(crate) struct Compared<'a> {
    pub(crate) name: &'a str,
    pub(crate) result: &'a SystemResult,
    /// What a sentence calls it.
    spoken: &'static str,
}

impl<'a> Roles<'a> {
    /// The roles in a run, from what the systems say of themselves.
    pub(crate) fn of(run: &'a RunResult, catalogue: &Catalogue) -> Roles<'a> {
        let systems: Vec<_> =
            run.systems.iter().map(|(name, result)| (name, result, catalogue.standing(name))).collect();
        let plain = systems.iter().filter_map(|(name, result, standing)| Some((*name, *result, standing.baseline?)));
        let plain = plain.min_by_key(|(.., baseline)| baseline.rank);
        let baseline = plain.map(|(name, result, Baseline { spoken, .. })| Compared { name, result, spoken });
        let is_other = |name: &str| baseline.is_none_or(|baseline| baseline.name != name);
        let left = || systems.iter().filter(|(name, ..)| is_other(name));
        let ranked = left().filter_map(|(name, result, standing)| match standing.advice {
            Advice::Recommended(rank) => Some((rank, (*name, *result))),
            Advice::Candidate | Advice::Reference => None,
        });
        let first = ranked.min_by_key(|(rank, _)| *rank).map(|(_, system)| system);
        let recommended = first.or_else(|| {
            let mut candidates = left().filter(|(.., standing)| standing.advice != Advice::Reference);
            let (name, result, _) = candidates.next()?;
            candidates.next().is_none().then_some((*name, *result))
        });
        Roles { baseline, recommended }
    }
}

impl Compared<'_> {
    /// How a sentence speaks of it: with what was written, where its parameters make it the baseline.
    pub(crate) fn spoken(&self) -> String {
        let Compared { name, spoken, .. } = self;
        if name.contains(':') { format!("{spoken} ({name})") } else { (*spoken).into() }
    }
}
