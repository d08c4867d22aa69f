//! Two runs of one scenario side by side: the measures of both, how far they are apart, and a page of them.

use maud::html;
use serde::Serialize;

use crate::{RunResult, SystemResult, World, document, summary::Column};

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
    /// The first value's difference from the second, as a share of the second; infinite where the second is zero.
    pub difference: f64,
}

/// Name, unit, and the value of a system's result.
type Measure = (&'static str, &'static str, fn(&SystemResult) -> Option<f64>);

const MEASURES: [Measure; 6] = [
    ("goodput", "Mbit/s", |result| Some(result.goodput_mbps)),
    ("mean FCT", "ms", |result| result.afct_s.map(|seconds| seconds * 1e3)),
    ("median FCT", "ms", |result| result.fct_p50_s.map(|seconds| seconds * 1e3)),
    ("99 % FCT", "ms", |result| result.fct_p99_s.map(|seconds| seconds * 1e3)),
    ("fairness", "", |result| result.fairness),
    ("moves", "", |result| Some(result.total_moves() as f64)),
];

impl Comparison {
    /// Compares two runs of one scenario.
    ///
    /// A system that only one run has is left out, and so is a measure that is missing or zero in both.
    pub fn new(one: &RunResult, other: &RunResult) -> Comparison {
        let mut rows = Vec::new();
        for (system, first) in one.systems.iter() {
            let Some(second) = other.systems.get(system) else { continue };
            let compared = |(measure, unit, of): Measure| {
                let (a, b) = (of(first)?, of(second)?);
                let difference = if b == 0.0 { f64::INFINITY } else { (a - b) / b };
                let row = ComparedMeasure { system: system.to_owned(), measure, unit, values: [a, b], difference };
                (a != 0.0 || b != 0.0).then_some(row)
            };
            rows.extend(MEASURES.into_iter().filter_map(compared));
        }
        Comparison { schema: SCHEMA, scenario: one.scenario.clone(), worlds: [one.world, other.world], rows }
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
                    @for ComparedMeasure { system, measure, unit, values: [a, b], difference } in &self.rows {
                        tr {
                            th { (system) }
                            td { (measure) " " (unit) }
                            td { (format!("{a:.3}")) }
                            td { (format!("{b:.3}")) }
                            td { (format!("{:.1} %", 100.0 * difference)) }
                        }
                    }
                }
            }
            p { small {
                @for column in [Column::Goodput, Column::Fairness, Column::Moves] { (column.meaning().unwrap_or_default()) " " }
                "FCT: time from a transfer's start to its last acknowledgement, of those that completed. \
                 Apart: how much more the first world has than the second."
            } }
            @for (number, world) in self.worlds.into_iter().enumerate() {
                @let directory = Self::directory(number, world);
                h2 { (world.as_str()) }
                // An object tells its values under the pointer, as an image does not.
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
            ("tcp", "goodput", [30.0, 40.0], -0.25),
            ("pathchanger", "goodput", [90.0, 60.0], 0.5),
            ("pathchanger", "mean FCT", [250.0, 250.0], 0.0),
            ("pathchanger", "moves", [4.0, 0.0], f64::INFINITY),
        ];
        assert_eq!(rows, expected, "`rcp` ran in one world only, and nothing moved under `tcp`");
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
