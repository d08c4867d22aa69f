//! Two runs of one scenario side by side: the measures of both, how far they are apart, and a page of them.

use maud::html;
use serde::Serialize;

use crate::{
    RunResult, SystemResult, World, document,
    summary::{Column, printable},
};

/// The version of `compare.json` that this crate writes.
const SCHEMA: u32 = 1;

/// The measures of the systems that two runs have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Where the two runs were made.
    pub worlds: [World; 2],
    /// The measures, by system in the order of the first run.
    pub rows: Vec<ComparedMeasure>,
    /// What the runs remarked, each with its world and system.
    pub notes: Vec<String>,
}

/// A measure of one system in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedMeasure {
    /// Name of the system.
    pub system: String,
    /// What is measured.
    pub measure: &'static str,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// The value in each run.
    pub values: [f64; 2],
    /// The first value's difference from the second, as a share of the second; `None` where the second is zero.
    pub difference: Option<f64>,
}

/// Name, unit, and the value of a system's result.
type Measure = (&'static str, &'static str, fn(&SystemResult) -> Option<f64>);

/// What a reader must know before believing a difference.
const ONE_RUN: &str = "A single run of each world proves little, as each is one draw of chance; \
                                  `sidestep compare --equivalence` runs many and tests the difference.";

const MEASURES: [Measure; 9] = [
    ("goodput", "Mbit/s", |result| Some(result.goodput_mbps)),
    ("mean FCT", "ms", |result| result.afct_s.map(|seconds| seconds * 1e3)),
    ("median FCT", "ms", |result| result.fct_p50_s.map(|seconds| seconds * 1e3)),
    ("99 % FCT", "ms", |result| result.fct_p99_s.map(|seconds| seconds * 1e3)),
    ("fairness", "", |result| result.fairness_endless),
    ("slowest", "Mbit/s", |result| result.goodput_mbps_min),
    ("flows with a timeout", "%", |result| result.timeout_share().map(|share| 100.0 * share)),
    ("moves", "", |result| Some(result.total_moves() as f64)),
    ("drops", "packets", |result| Some(result.total_drops() as f64)),
];

impl ComparedMeasure {
    /// How far the first value is from the second, as text.
    pub fn apart(&self) -> String {
        self.difference.map_or("the second has none".into(), |difference| format!("{:.1} %", 100.0 * difference))
    }
}

impl Comparison {
    /// Compares two runs of one scenario.
    ///
    /// A system that only one run has is left out, and so is a measure that is missing or zero in both.
    pub fn new(one: &RunResult, other: &RunResult) -> Comparison {
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for (system, first) in one.systems.iter() {
            let Some(second) = other.systems.get(system) else { continue };
            let compared = |(measure, unit, of): Measure| {
                let (a, b) = (of(first)?, of(second)?);
                let difference = (b != 0.0).then(|| (a - b) / b);
                let row = ComparedMeasure { system: system.to_owned(), measure, unit, values: [a, b], difference };
                (a != 0.0 || b != 0.0).then_some(row)
            };
            rows.extend(MEASURES.into_iter().filter_map(compared));
            for (world, result) in [(one.world, first), (other.world, second)] {
                notes.extend(result.remarks().map(|note| format!("{}, {system}: {note}", world.as_str())));
            }
        }
        Comparison { schema: SCHEMA, scenario: one.scenario.clone(), worlds: [one.world, other.world], rows, notes }
    }

    /// The remarks on the numbers, one line each: what the runs remarked, and that there is one run of each world.
    pub fn remarks(&self) -> Vec<String> {
        self.notes.iter().cloned().chain([ONE_RUN.into()]).map(printable).collect()
    }

    /// The comparison as a page, with the plots of both runs.
    ///
    /// Their files lie in the [directories](Self::directory) of the two runs, beside the page.
    pub fn page(&self) -> String {
        let [one, other] = self.worlds.map(World::as_str);
        let body = html! {
            h1 { (self.scenario) ", in two worlds" }
            div.scroll {
                table {
                    tr {
                        @for column in ["system", "measure", one, other, "apart"] { th { (column) } }
                    }
                    @for row in &self.rows {
                        @let [a, b] = row.values;
                        tr {
                            th { (row.system) }
                            td { (row.measure) " " (row.unit) }
                            td { (format!("{a:.3}")) }
                            td { (format!("{b:.3}")) }
                            td { (row.apart()) }
                        }
                    }
                }
            }
            @for remark in self.remarks() { p { (remark) } }
            p { small {
                @for column in [Column::Goodput, Column::Fairness, Column::Slowest, Column::Moves, Column::Drops] {
                    (column.meaning().unwrap_or_default()) " "
                }
                "FCT: time from a transfer's start to its last acknowledgement, of those that completed. \
                 Timeout: of a retransmission, or of the SYN. \
                 Apart: how much more the first world has than the second, as a share of the second."
            } }
            @for (number, world) in self.worlds.into_iter().enumerate() {
                @let directory = Self::directory(number, world);
                h2 { (world.as_str()) }
                // An object shows its values under the pointer; an image does not.
                figure { object type="image/svg+xml" data=(format!("{directory}/plot.svg")) { (world.as_str()) } }
                p { a href=(format!("{directory}/index.html")) { "all of this run" } }
            }
        };
        document(&format!("{} – sidestep", self.scenario), &body)
    }

    /// Where the run with this number, from 0, leaves its files: the name of a directory.
    pub fn directory(number: usize, world: World) -> String {
        format!("{}-{}", number + 1, world.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(world: World, systems: &[(&str, SystemResult)]) -> RunResult {
        let mut run = RunResult::new("test", world, 1);
        for (name, result) in systems {
            run.systems.insert(*name, result.clone());
        }
        run
    }

    fn goodput(goodput_mbps: f64) -> SystemResult {
        SystemResult { goodput_mbps, ..SystemResult::default() }
    }

    #[test]
    fn measures_that_both_runs_have_are_compared_system_by_system() {
        let with_moves = |goodput_mbps, moves| SystemResult {
            afct_s: Some(0.25),
            moves: [("ecn".to_owned(), moves)].into(),
            ..goodput(goodput_mbps)
        };
        let one =
            run(World::Sim, &[("tcp", goodput(30.0)), ("pathchanger", with_moves(90.0, 4)), ("rcp", goodput(1.0))]);
        let other = run(World::Lab, &[("pathchanger", with_moves(60.0, 0)), ("tcp", goodput(40.0))]);
        let comparison = Comparison::new(&one, &other);
        assert_eq!(comparison.worlds, [World::Sim, World::Lab]);
        let rows: Vec<_> =
            comparison.rows.iter().map(|row| (row.system.as_str(), row.measure, row.values, row.difference)).collect();
        let expected = [
            ("tcp", "goodput", [30.0, 40.0], Some(-0.25)),
            ("pathchanger", "goodput", [90.0, 60.0], Some(0.5)),
            ("pathchanger", "mean FCT", [250.0, 250.0], Some(0.0)),
            ("pathchanger", "moves", [4.0, 0.0], None),
        ];
        assert_eq!(rows, expected, "`rcp` ran in one world only, and nothing moved under `tcp`");
        assert_eq!(comparison.rows.iter().map(ComparedMeasure::apart).next_back().unwrap(), "the second has none");
        assert!(comparison.page().contains("<td>the second has none</td>") && !comparison.page().contains("inf"));
    }

    #[test]
    fn drops_timeouts_and_remarks_of_both_runs_are_shown_and_that_there_is_one_of_each() {
        let with = |drops, timeouts, note: &str| {
            let links = [("l".to_owned(), crate::LinkResult { drops, ..Default::default() })].into();
            let notes = vec![note.to_owned()];
            SystemResult { links, flows: 4, flows_with_timeout: timeouts, notes, ..goodput(1.0) }
        };
        let (sim, lab) = (with(30, 1, "a"), with(20, 2, "Linux hashes ports\u{1b}"));
        let comparison = Comparison::new(&run(World::Sim, &[("mptcp", sim)]), &run(World::Lab, &[("mptcp", lab)]));
        let rows: Vec<_> = comparison.rows.iter().map(|row| (row.measure, row.values, row.apart())).skip(1).collect();
        let expected = [
            ("flows with a timeout", [25.0, 50.0], "-50.0 %".to_owned()),
            ("drops", [30.0, 20.0], "50.0 %".to_owned()),
        ];
        assert_eq!(rows, expected);
        let remarks = comparison.remarks();
        assert_eq!(remarks[..2], ["sim, mptcp: a", "lab, mptcp: Linux hashes ports\u{fffd}"]);
        assert!(remarks[2].contains("--equivalence") && comparison.page().contains(&remarks[2]), "{remarks:?}");
    }

    #[test]
    fn hostile_names_do_not_become_markup_on_the_page() {
        let name = "\"><script>alert('&')</script>\u{1b}[31m";
        let mut runs = [(World::Sim, 3.0), (World::Lab, 2.0)].map(|(world, mbps)| run(world, &[(name, goodput(mbps))]));
        runs.iter_mut().for_each(|run| run.scenario = name.into());
        let page = Comparison::new(&runs[0], &runs[1]).page();
        let shown = "&quot;&gt;&lt;script&gt;alert('&amp;')&lt;/script&gt;\u{fffd}[31m";
        assert_eq!(page.matches(shown).count(), 3, "{page}");
        assert!(!page.contains("<script") && !page.contains('\u{1b}'));
        for wanted in [
            "<td>3.000</td><td>2.000</td><td>50.0 %</td>",
            "Jain's index",
            "data=\"1-sim/plot.svg\"",
            "href=\"2-lab/index.html\"",
        ] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
    }
}
