//! What a system is where systems are compared; the system says it itself.

use crate::{Catalogue, SystemInfo, SystemSpec};

/// What a system is where systems are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// As what others are compared with it; `None`: they are not.
    pub baseline: Option<Baseline>,
    /// Whether a reader is advised to use it.
    pub advice: Advice,
}

/// A system that the others of a run are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Of several in a run it is that of the lowest rank.
    pub rank: u8,
    /// What a sentence calls it.
    pub spoken: &'static str,
}

/// Whether a reader is advised to use a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Yes, with its settings at their defaults; of several in a run it is that of the lowest rank.
    Recommended(u8),
    /// Only where the run has no other to advise.
    Candidate,
    /// Never: it draws by dice, does nothing, or knows what no real system can know.
    Reference,
}

impl Standing {
    /// One that is compared, and advised where the run has no other.
    pub const CANDIDATE: Standing = Standing { baseline: None, advice: Advice::Candidate };
    /// One that is there to be measured against, and is never advised.
    pub const REFERENCE: Standing = Standing { baseline: None, advice: Advice::Reference };

    /// One with which others are compared.
    pub const fn baseline(rank: u8, spoken: &'static str) -> Standing {
        Standing { baseline: Some(Baseline { rank, spoken }), advice: Advice::Candidate }
    }

    /// One that a reader is advised to use.
    pub const fn recommended(rank: u8) -> Standing {
        Standing { baseline: None, advice: Advice::Recommended(rank) }
    }

    /// Makes a baseline one that no reader is advised to use.
    #[must_use]
    pub const fn never_advised(mut self) -> Standing {
        self.advice = Advice::Reference;
        self
    }
}

impl SystemInfo {
    /// Gives the system this standing; without one it is a candidate.
    #[must_use]
    pub const fn with_standing(mut self, standing: Standing) -> SystemInfo {
        self.standing = standing;
        self
    }

    /// Gives the system another standing where a parameter, by name and value, is written so; the first that fits counts.
    #[must_use]
    pub const fn with_standing_when(mut self, cases: &'static [(&'static str, &'static str, Standing)]) -> SystemInfo {
        self.standing_when = cases;
        self
    }

    /// The standing of the system as it is written.
    pub fn standing_of(&self, spec: &SystemSpec) -> Standing {
        let is_written = |wanted: (&str, &str)| spec.params.iter().any(|(name, value)| wanted == (name, value));
        let case = self.standing_when.iter().find(|(name, value, _)| is_written((name, value)));
        match (case, self.standing.advice) {
            (Some((.., standing)), _) => *standing,
            // What is recommended are the defaults.
            (None, Advice::Recommended(_)) if !spec.params.is_empty() => {
                Standing { advice: Advice::Candidate, ..self.standing }
            }
            (None, _) => self.standing,
        }
    }
}

impl Catalogue {
    /// The standing of a system as results name it; that of a candidate if it is none of the catalogue.
    pub fn standing(&self, system: &str) -> Standing {
        let spec = system.parse::<SystemSpec>().ok();
        let of = |spec: SystemSpec| Some(self.find(&spec.name).ok()?.standing_of(&spec));
        spec.and_then(of).unwrap_or(Standing::CANDIDATE)
    }

    /// What a sentence calls a system: its name, if others are not compared with it.
    pub fn spoken<'a>(&self, system: &'a str) -> &'a str {
        self.standing(system).baseline.map_or(system, |baseline| baseline.spoken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    #[test]
    fn the_parameters_as_they_are_written_decide_what_a_system_stands_for() {
        const NONE: Standing = Standing::baseline(1, "no control").never_advised();
        let cases = &[("mode", "ideal", Standing::REFERENCE), ("mode", "none", NONE)];
        let own = SystemInfo::plain("own", "ours").with_standing(Standing::recommended(3)).with_standing_when(cases);
        let mut catalogue = Catalogue::default();
        catalogue.add(World::Sim, [own, SystemInfo::plain("other", "another")]);
        assert_eq!(catalogue.standing("own"), Standing::recommended(3));
        for (system, expected) in [
            ("own:mode=none", NONE),
            ("own:gain=2,mode=ideal", Standing::REFERENCE),
            ("own:mode=practical", Standing::CANDIDATE),
            ("own:gain=none", Standing::CANDIDATE),
            ("other:mode=none", Standing::CANDIDATE),
            ("unknown", Standing::CANDIDATE),
        ] {
            assert_eq!(catalogue.standing(system), expected, "{system}");
        }
    }
}
