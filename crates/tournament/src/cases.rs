//! The scenarios. They were chosen before any policy was tuned on them, and stay as they are.
//!
//! A scenario that has judged a policy, so that its results were seen, is for tuning from then on; new ones judge the next.

mod alike;
mod differ;
mod drawn;
mod failure;
mod lab;
mod network;
mod shift;

use std::borrow::Cow;

pub use drawn::drawn;
use serde::Serialize;
use sidestep_scenario::{Scenario, builder::ScenarioBuilder};

use crate::Measure;

/// A scenario of the tournament.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Its name, `family-variant`.
    pub name: Cow<'static, str>,
    /// Whether a policy may be tuned on it.
    pub set: Set,
    /// How its paths relate to each other.
    pub class: Class,
    /// What is judged; the first is the primary measure, which the table of the page shows.
    pub judged: &'static [Measure],
    /// One sentence that describes what it is for.
    pub purpose: Cow<'static, str>,
    #[serde(skip)]
    build: Build,
}

/// Where a scenario comes from.
#[derive(Clone, Debug)]
enum Build {
    Fixed(fn() -> ScenarioBuilder),
    Drawn(ScenarioBuilder),
}

/// Whether a policy may be tuned on a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// It may be looked at while a policy is tuned.
    Tuning,
    /// It is kept for the next judgement; then it is for tuning.
    Judging,
}

/// How the paths of a scenario relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// All are alike: there is nothing to learn but where others are.
    Alike,
    /// They differ in rate, delay or loss, all the time.
    Differ,
    /// One fails.
    Failure,
    /// Load or capacity shifts from path to path.
    Shift,
}

/// All scenarios, by class.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    [alike::CASES, differ::CASES, failure::CASES, shift::CASES].into_iter().flatten()
}

/// The scenarios that are played in the lab as well: few, as they take as long as they last. Each is there with CUBIC and
/// with BBR.
pub fn lab_cases() -> impl Iterator<Item = &'static Case> {
    lab::CASES.iter()
}

impl Case {
    /// The scenario itself.
    ///
    /// # Panics
    ///
    /// If the case is not a valid scenario, which a test of this crate excludes.
    pub fn scenario(&self) -> Scenario {
        self.builder().build()
    }

    /// The scenario as a file for `sidestep sim run`.
    pub fn text(&self) -> String {
        let (set, class) = (self.set.as_str(), self.class.as_str());
        let head =
            format!("# {}\n#\n# Of the tournament (`sidestep bench policies`): for {set}; {class}.\n", self.purpose);
        format!("{head}\n{}", self.builder().text())
    }

    fn builder(&self) -> ScenarioBuilder {
        let built = match &self.build {
            Build::Fixed(build) => build(),
            Build::Drawn(built) => built.clone(),
        };
        built.set("name", &*self.name).systems(["tcp", "random", "pathchanger"])
    }

    const fn tuning(
        name: &'static str,
        class: Class,
        judged: &'static [Measure],
        purpose: &'static str,
        build: fn() -> ScenarioBuilder,
    ) -> Case {
        Case::fixed(Set::Tuning, name, class, judged, purpose, build)
    }

    const fn judging(
        name: &'static str,
        class: Class,
        judged: &'static [Measure],
        purpose: &'static str,
        build: fn() -> ScenarioBuilder,
    ) -> Case {
        Case::fixed(Set::Judging, name, class, judged, purpose, build)
    }

    const fn fixed(
        set: Set,
        name: &'static str,
        class: Class,
        judged: &'static [Measure],
        purpose: &'static str,
        build: fn() -> ScenarioBuilder,
    ) -> Case {
        let (name, purpose) = (Cow::Borrowed(name), Cow::Borrowed(purpose));
        Case { name, set, class, judged, purpose, build: Build::Fixed(build) }
    }
}

impl Set {
    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Set::Tuning => "tuning",
            Set::Judging => "judging",
        }
    }
}

impl Class {
    /// All classes, in the order in which they are shown.
    pub const ALL: [Class; 4] = [Class::Alike, Class::Differ, Class::Failure, Class::Shift];

    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Alike => "alike",
            Class::Differ => "differ",
            Class::Failure => "failure",
            Class::Shift => "shift",
        }
    }
}

/// What is judged of short transfers: how long they take, on average and at worst.
const SHORT: &[Measure] = &[Measure::Mean, Measure::P99];
/// What is judged of connections that send all the time.
const LONG: &[Measure] = &[Measure::Goodput];
/// What is judged of users who wait for one transfer before they begin the next.
const CLOSED: &[Measure] = &[Measure::Goodput, Measure::P99];
/// What is judged where short transfers share the paths with long ones.
const MIX: &[Measure] = &[Measure::Mean, Measure::P99, Measure::Goodput];
/// What is judged where many send at once: when the last is done.
const BURST: &[Measure] = &[Measure::P99, Measure::Mean];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use sidestep_policy::PolicySettings;

    use super::*;

    #[test]
    fn every_case_is_a_valid_scenario_that_sets_nothing_of_the_path_changer() {
        for case in cases() {
            let scenario = case.scenario();
            assert_eq!((scenario.name.as_str(), scenario.seed), (&*case.name, 1));
            // The defaults are what is judged; a case that changed a setting would hide a bad one.
            let settings: PolicySettings =
                sidestep_systems::simulator().catalogue().settings(&scenario, &"pathchanger".parse().unwrap()).unwrap();
            assert_eq!(settings, PolicySettings::default(), "{}", case.name);
            assert_eq!(Scenario::parse(&case.text(), "file").unwrap(), scenario, "{}", case.name);
            assert!(!case.judged.is_empty() && case.purpose.ends_with('.'), "{}", case.name);
            assert!(scenario.topology.paths().len() >= 2, "{}", case.name);
        }
    }

    #[test]
    fn the_measurements_have_the_table_of_cases_and_the_document_their_number() {
        let table = include_str!("../../../measurements/tournament-scenarios.json");
        for case in cases() {
            let judged: Vec<_> = case.judged.iter().map(|measure| measure.as_str()).collect();
            let (set, class) = (case.set.as_str(), case.class.as_str());
            let row = format!("[{:?}, {set:?}, {class:?}, {:?}, {:?}]", case.name, judged.join(", "), case.purpose);
            let found = table.lines().any(|line| line.trim().trim_end_matches(',') == row);
            assert!(found, "make measure WHAT=tournament-scenarios writes the row\n{row}");
        }
        let document = include_str!("../../../docs/pathchanger-measured.md");
        let count = format!("over {} fixed scenarios", cases().count());
        assert!(document.contains(&count), "{count}");
    }

    #[test]
    fn names_and_networks_are_distinct() {
        let names: BTreeSet<_> = cases().map(|case| case.name.clone()).collect();
        let texts: BTreeSet<_> = cases().map(|case| case.builder().set("name", "x").text()).collect();
        let purposes: BTreeSet<_> = cases().map(|case| case.purpose.clone()).collect();
        let count = cases().count();
        assert_eq!([names.len(), texts.len(), purposes.len()], [count; 3]);
    }

    #[test]
    fn the_lab_has_few_cases_each_with_cubic_and_bbr_and_the_measurements_name_them() {
        let table = include_str!("../../../measurements/tournament-lab.json");
        let mut networks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for case in lab_cases() {
            let scenario = case.scenario();
            assert_eq!(Scenario::parse(&case.text(), "file").unwrap(), scenario, "{}", case.name);
            let (network, control) = case.name.rsplit_once('-').unwrap();
            assert_eq!(scenario.tcp.congestion_control, control);
            networks.entry(network).or_default().push(control.into());
            assert!(table.contains(&format!("[{:?}, ", case.name)), "{}", case.name);
        }
        assert!(networks.values().all(|controls| *controls == ["cubic", "bbr"]), "{networks:?}");
        assert!((4..=6).contains(&networks.len()));
    }

    #[test]
    fn every_class_has_cases_to_tune_on_and_there_are_enough_of_all_kinds_to_judge_by() {
        let mut sets: BTreeMap<&str, BTreeSet<Set>> = BTreeMap::new();
        for case in cases() {
            sets.entry(case.class.as_str()).or_default().insert(case.set);
        }
        assert!(sets.len() == Class::ALL.len() && sets.values().all(|sets| sets.len() == 2), "{sets:?}");
        let judging = cases().filter(|case| case.set == Set::Judging).count();
        assert!(judging >= 8, "{judging}");
    }
}
