//! The transfers of the second part, system beside system: all have the same arrivals and the same sizes.

use std::path::Path;

use sidestep_results::{
    Estimate, PlotError,
    lines::{Line, Panel, lines},
    measures::mean,
};
use sidestep_scenario::Scenario;

use super::names::spoken;
use crate::planning::failure::Failure;

/// Systems are compared second by second of the starts, which are paired.
const BLOCK: f64 = 1.0;
/// A transfer that takes longer than this keeps a reader waiting, in seconds.
const SOON: f64 = 0.5;

/// How long each transfer took.
pub struct Transfers {
    /// By system, in the order of the run.
    systems: Vec<(String, Vec<Transfer>)>,
    /// How long the run is, in seconds.
    end: f64,
    /// When the path dies.
    dies: f64,
}

/// A transfer; one that did not end counts with the time until the end of the run.
#[derive(Clone, Copy)]
struct Transfer {
    start: f64,
    took: f64,
    ended: bool,
}

/// A part of the run, by when transfers began.
#[derive(Clone, Copy)]
pub enum When {
    /// All of it.
    Whole,
    /// Until the path dies.
    Before,
}

impl Transfers {
    /// Reads the `flows.csv` of a run of this scenario.
    pub fn read(file: &Path, scenario: &Scenario) -> Result<Self, Failure> {
        let failed = |error: csv::Error| Failure::run(format!("{}: {error}", file.display()));
        let mut flows = csv::Reader::from_path(file).map_err(failed)?;
        let end = scenario.duration.as_secs_f64();
        let dies = scenario.events.first().map_or(end, |event| event.at.as_secs_f64());
        let mut transfers = Transfers { systems: Vec::new(), end, dies };
        let heads = flows.headers().map_err(failed)?.clone();
        let column = |name: &str| heads.iter().position(|head| head == name);
        let columns = ["system", "start_s", "completed", "fct_s"].map(column);
        for row in flows.records() {
            let row = row.map_err(failed)?;
            let [system, start, completed, took] = columns.map(|at| at.and_then(|at| row.get(at)).unwrap_or_default());
            let Ok(start) = start.parse::<f64>() else { continue };
            let took = took.parse::<f64>().ok().filter(|_| completed == "true");
            transfers.of(system).push(Transfer { start, took: took.unwrap_or(end - start), ended: took.is_some() });
        }
        Ok(transfers)
    }

    fn of(&mut self, system: &str) -> &mut Vec<Transfer> {
        let index = self.systems.iter().position(|(name, _)| name == system).unwrap_or_else(|| {
            self.systems.push((system.to_owned(), Vec::new()));
            self.systems.len() - 1
        });
        &mut self.systems[index].1
    }

    fn range(&self, when: When) -> [f64; 2] {
        match when {
            When::Whole => [0.0, self.end],
            When::Before => [0.0, self.dies],
        }
    }

    fn within(&self, system: &str, [from, until]: [f64; 2]) -> Vec<f64> {
        let of = self.systems.iter().filter(|(name, _)| name == system).flat_map(|(_, transfers)| transfers);
        of.filter(|one| (from..until).contains(&one.start)).map(|one| one.took).collect()
    }

    /// How long a transfer took on average, in seconds; `None` if none began then.
    pub fn mean(&self, system: &str, when: When) -> Option<f64> {
        mean(&self.within(system, self.range(when)))
    }

    /// By how many seconds transfers of one system took longer than those of another.
    ///
    /// The estimate is over the seconds in which transfers began: both systems have the same in each.
    pub fn difference(&self, one: &str, other: &str, when: When) -> Option<Estimate> {
        let [from, until] = self.range(when);
        let blocks = ((until - from) / BLOCK).round() as usize;
        let both = |block: usize| {
            let from = from + block as f64 * BLOCK;
            let of = |system| mean(&self.within(system, [from, from + BLOCK]));
            Some(of(one)? - of(other)?)
        };
        Estimate::of(&(0..blocks).filter_map(both).collect::<Vec<_>>())
    }

    /// What share of the transfers was done soon, by when they began, as SVG text.
    pub fn picture(&self) -> Result<String, PlotError> {
        // Of those that begin later it is not known.
        let until = self.end - SOON;
        let line = |(name, transfers): &(String, Vec<Transfer>)| {
            let share = |block: usize| {
                let from = block as f64 * BLOCK;
                let range = from..(from + BLOCK).min(until);
                let within: Vec<&Transfer> = transfers.iter().filter(|one| range.contains(&one.start)).collect();
                let soon = within.iter().filter(|one| one.ended && one.took <= SOON).count();
                let share = 100.0 * soon as f64 / within.len() as f64;
                (!within.is_empty()).then_some((from + BLOCK / 2.0, share))
            };
            let points = (0..(until / BLOCK).ceil() as usize).filter_map(share).collect();
            Line { label: spoken(name).to_owned(), points }
        };
        let lines_of = self.systems.iter().map(line).collect();
        let panel = Panel { y: format!("done within {SOON} s (%)"), range: [0.0, 105.0], lines: lines_of, mark: None };
        let title =
            format!("Short transfers over four unlike paths, of which the best dies silently at {:.0} s", self.dies);
        lines(&title, "start of the transfer (s)", &[panel], true)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Transfers that begin each second in pairs; `took` returns how long those of a system take that begin at a time.
    pub fn transfers(took: &dyn Fn(&str, f64) -> f64) -> Transfers {
        let mut transfers = Transfers { systems: Vec::new(), end: 20.0, dies: 10.0 };
        for system in ["tcp", "random", "pathchanger"] {
            for half in 0..40 {
                let start = f64::from(half) / 2.0;
                transfers.of(system).push(Transfer { start, took: took(system, start), ended: true });
            }
        }
        transfers
    }

    #[test]
    fn transfers_are_paired_by_when_they_began() {
        let took = |system: &str, start: f64| {
            let own = if system == "tcp" && start >= 10.0 { 20.0 - start } else { 0.1 };
            // What both share cancels out.
            own + start / 10.0
        };
        let transfers = transfers(&took);
        let difference = |when| transfers.difference("tcp", "random", when).unwrap();
        assert!(difference(When::Before).mean.abs() < 1e-9 && difference(When::Before).half_width() < 1e-9);
        let whole = difference(When::Whole);
        assert!(whole.mean > 2.0 && whole.ci95[0] > 0.5, "{whole:?}");
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(
            near(transfers.mean("random", When::Before).unwrap(), 0.1 + 0.475),
            "{:?}",
            transfers.mean("random", When::Before)
        );
        assert_eq!(transfers.mean("plb", When::Whole), None);
        let picture = transfers.picture().unwrap();
        assert!(picture.contains("plain TCP") && picture.contains("dies silently at 10 s"), "{picture}");
    }

    #[test]
    fn a_transfer_that_did_not_end_counts_until_the_end_of_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("flows.csv");
        let rows = "system,flow,start_s,completed,fct_s\ntcp,a,4.0,true,0.5\ntcp,b,4.5,false,\n";
        std::fs::write(&file, rows).unwrap();
        let scenario = Scenario::parse(super::super::UNLIKE.text, "unlike").unwrap();
        let transfers = Transfers::read(&file, &scenario).unwrap();
        assert_eq!(transfers.mean("tcp", When::Whole), Some(8.0));
        assert!(Transfers::read(&dir.path().join("none.csv"), &scenario).is_err());
    }
}
