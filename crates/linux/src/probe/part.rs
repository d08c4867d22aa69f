//! What runs on a machine, and what it needs of the kernel.

use super::{Feature, Probed};

/// A part of a deployment: a daemon, or the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// The ids of the features without which it does not start.
    pub required: &'static [&'static str],
    /// The ids of the features without which it does less.
    pub useful: &'static [&'static str],
    /// What cannot be done without a feature, by its id, where it can be put in this part's words.
    pub without: &'static [(&'static str, &'static str)],
}

impl Part {
    /// Whether the part does not start without the feature `id`.
    pub fn requires(&self, id: &str) -> bool {
        self.required.contains(&id)
    }

    /// Whether the part does less without the feature `id`.
    pub fn uses(&self, id: &str) -> bool {
        self.useful.contains(&id)
    }
}

impl Feature {
    /// What cannot be done without it, in the words of the first of these parts that has any, or else in its own.
    pub fn without(&self, parts: &[Part]) -> &'static str {
        let words = parts.iter().flat_map(|part| part.without).find(|(id, _)| *id == self.id);
        words.map_or(self.without, |(_, words)| words)
    }
}

impl Probed {
    /// Whether `part` cannot do without the feature, and it was not found to work.
    pub fn is_lacking(&self, part: &Part) -> bool {
        part.requires(self.feature.id) && !self.finding.is_present()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Finding, *};

    const FEATURE: Feature = Feature { id: "tap", name: "TAP devices", since: "2.6", without: "no wires" };
    const LAB: Part = Part { name: "lab", required: &["tap"], useful: &["ecn"], without: &[("tap", "no lab")] };
    const DAEMON: Part =
        Part { name: "daemon", required: &["ecn"], useful: &["tap"], without: &[("ecn", "no daemon")] };

    #[test]
    fn a_part_lacks_what_it_requires_and_what_was_not_tried() {
        let lacks = |finding: Finding| {
            let probed = Probed { feature: FEATURE, finding };
            [LAB, DAEMON].map(|part| probed.is_lacking(&part))
        };
        assert_eq!(lacks(Finding::Untried("why".into())), [true, false]);
        assert_eq!(lacks(Finding::Missing("why".into())), [true, false]);
        assert_eq!(lacks(Finding::Present("how".into())), [false, false]);
        assert!(DAEMON.uses("tap") && !DAEMON.requires("tap") && !LAB.uses("tap"));
    }

    #[test]
    fn a_part_says_in_its_own_words_what_cannot_be_done() {
        assert_eq!(FEATURE.without(&[DAEMON, LAB]), "no lab");
        assert_eq!(FEATURE.without(&[DAEMON]), "no wires");
    }
}
