//! What `doctor` asks of systems.

use std::path::Path;

use sidestep_linux::{
    Result as Tried,
    probe::{Egress, Feature, Finding, Mask, Part, TryFilter},
};

use crate::Failure;

/// What a system has that a machine must be fit for; a [`Part`] by itself is one of which no more is asked.
pub trait Examination {
    /// What of it runs on a machine, in the order in which that is shown.
    fn parts(&self) -> &[Part];

    /// What is tried of its own programs.
    fn features(&self) -> &[Feature] {
        &[]
    }

    /// Tries its programs, with a finding for each of its features; where they belong to control groups, also on this one, `None`
    /// being the root.
    fn try_programs(&self, _cgroup: Option<&Path>) -> Vec<Finding> {
        Vec::new()
    }

    /// What loads the program that is tried on ingress, if it has one; the first system's is tried.
    fn filter(&self) -> Option<fn() -> Tried<TryFilter>> {
        None
    }

    /// Its configuration file, if `doctor` takes one of it.
    fn config_file(&self) -> Option<ConfigFile> {
        None
    }

    /// Asks its daemons that are at work here, and reads its configuration file, if one is given.
    fn look(&self, _config: Option<&Path>) -> Result<Seen, Failure> {
        Ok(Seen::default())
    }
}

impl Examination for Part {
    fn parts(&self) -> &[Part] {
        std::slice::from_ref(self)
    }
}

/// The configuration file of a system, for `doctor`.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFile {
    /// The part that must be able to work where such a file is given.
    pub part: Part,
    /// This part in a sentence: `the agent`.
    pub who: &'static str,
    /// What is done with the file, in the imperative, for the help.
    pub tried: &'static str,
    /// Whether a text is such a file; `None`: if it is no other system's. Its part is also the one that must be able to work where
    /// no file is given.
    pub recognise: Option<fn(&str) -> bool>,
}

/// What a system's daemons report, and what its configuration file holds.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What of others keeps its daemons from having an effect, or would.
    pub obstacles: Vec<String>,
    /// What else is doubtful.
    pub doubts: Vec<String>,
    /// The bits of the mark that its daemons use, or will use.
    pub masks: Vec<Mask>,
    /// The egresses that it chooses among.
    pub egresses: Vec<Egress>,
    /// Why it knows no egresses, and where they can be named.
    pub no_egresses: Option<&'static str>,
}

impl Seen {
    /// These, and what another system has seen.
    pub fn and(mut self, other: Seen) -> Self {
        self.obstacles.extend(other.obstacles);
        self.doubts.extend(other.doubts);
        self.masks.extend(other.masks);
        self.egresses.extend(other.egresses);
        self.no_egresses = self.no_egresses.or(other.no_egresses);
        self
    }
}
