//! What TCP counted in two worlds, and why it moved: it shows where to look, and judges nothing.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use serde::Serialize;

use super::{
    Runs, marked_down,
    row::{FEWEST_SEEDS, ends_or_dash, logs_of_sums, or_dash},
};
use crate::{Estimate, SystemResult, measures, summary::printable};

/// What the table is for, as a sentence.
pub const WHERE_TO_LOOK: &str =
    "No verdicts: these numbers say where to look when the worlds differ, and judge nothing.";

/// The table's title.
pub const TITLE: &str = "What TCP counted, and why it moved";

/// How often something happened in both worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counted {
    /// The kernel's name of a counter of TCP, or a reason of moves.
    pub name: String,
    /// Which of the two the name is.
    pub kind: Kind,
    /// The mean per run in each world: over the seeds, of the mean over a seed's repetitions.
    pub means: [f64; 2],
    /// The sum over the seeds in the first world by that in the second; `None` where either has none.
    pub ratio: Option<f64>,
    /// Its 90 % confidence interval, by the jackknife over the seeds; `None` where a world has none without one of them, and of
    /// fewer than [`FEWEST_SEEDS`].
    pub ci90: Option<[f64; 2]>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Events of the hosts' TCP.
    Tcp,
    /// Moves for one reason.
    Moves,
}

/// The numbers of a result, by name.
type Counts = fn(&SystemResult) -> &BTreeMap<String, u64>;

impl Counted {
    /// What TCP counted that both worlds count, and then why it moved, if anything did; over the seeds that both worlds have.
    pub(super) fn of(worlds: [&Runs; 2]) -> Vec<Counted> {
        let tcp: Counts = |result| &result.tcp;
        let moves: Counts = |result| &result.moves;
        let in_both = |name: &String| worlds.iter().all(|runs| runs.has_counter(name));
        let (mut counters, reasons) = (names(worlds, tcp), names(worlds, moves));
        counters.retain(in_both);
        let counters = counters.iter().filter_map(|name| Counted::new(worlds, Kind::Tcp, name, tcp));
        let reasons = reasons.iter().filter_map(|name| Counted::new(worlds, Kind::Moves, name, moves));
        counters.chain(reasons).collect()
    }

    fn new(worlds: [&Runs; 2], kind: Kind, name: &str, of: Counts) -> Option<Counted> {
        let count = |result: &SystemResult| of(result).get(name).copied().unwrap_or(0) as f64;
        let of_seed = |seed: &Vec<SystemResult>| measures::mean(&seed.iter().map(count).collect::<Vec<_>>());
        let pairs = worlds[0].seeds.iter().zip(&worlds[1].seeds);
        let (one, other): (Vec<f64>, Vec<f64>) =
            pairs.filter_map(|(one, other)| of_seed(one).zip(of_seed(other))).unzip();
        let [sum, of_other] = [&one, &other].map(|values| values.iter().sum::<f64>());
        let ratio = (sum > 0.0 && of_other > 0.0).then(|| sum / of_other);
        let logs = logs_of_sums(&one, &other).filter(|logs| logs.len() >= FEWEST_SEEDS);
        // Around the ratio itself: rare events throw the mean of the jackknife's values far off.
        let half = logs.as_deref().and_then(Estimate::ninety).map(|[low, high]| (high - low) / 2.0);
        Some(Counted {
            name: printable(name.to_owned()),
            kind,
            means: [measures::mean(&one)?, measures::mean(&other)?],
            ratio,
            ci90: ratio.zip(half).map(|(ratio, half)| [ratio * (-half).exp(), ratio * half.exp()]),
        })
    }

    /// As text: what was counted, both means, ratio, interval.
    pub fn cells(&self) -> [String; 5] {
        let name = match self.kind {
            Kind::Tcp => self.name.clone(),
            Kind::Moves => format!("moves: {}", self.name),
        };
        let [one, other] = self.means.map(|mean| format!("{mean:.2}"));
        [name, one, other, or_dash(self.ratio), ends_or_dash(self.ci90)]
    }
}

impl Runs {
    /// Whether the world counts what the kernel calls so. One whose runs count nothing at all has hosts that do not count.
    fn has_counter(&self, name: &str) -> bool {
        let any = self.seeds.iter().flatten().any(|result| !result.tcp.is_empty());
        any && self.counters.as_ref().is_none_or(|counters| counters.contains(&name))
    }
}

/// Names that occur in a run of either world.
fn names(worlds: [&Runs; 2], of: Counts) -> BTreeSet<String> {
    worlds.iter().flat_map(|runs| runs.seeds.iter().flatten()).flat_map(|result| of(result).keys().cloned()).collect()
}

/// The table in a page, with its title.
pub(super) fn table(counted: &[Counted], [one, other]: [&str; 2]) -> Markup {
    html! {
        h3 { (TITLE) }
        p { (WHERE_TO_LOOK) " The means are per run; the ratio is of the sums over the seeds." }
        div class="scroll" { table {
            tr { @for column in ["per run", one, other, "ratio", "90 % interval"] { th { (column) } } }
            @for row in counted {
                @let [name, cells @ ..] = row.cells();
                tr { th { (name) } @for cell in cells { td { (cell) } } }
            }
        } }
    }
}

/// The table in Markdown, with its title.
pub(super) fn markdown(counted: &[Counted], [one, other]: [&str; 2]) -> String {
    let mut text = format!("\n{TITLE}. {WHERE_TO_LOOK}\n\n");
    text += &format!("| per run | {one} | {other} | ratio of the sums (90 % interval) |\n|---|---:|---:|---:|\n");
    for row in counted {
        let [name, a, b, ratio, interval] = row.cells();
        let interval = row.ci90.map_or(String::new(), |_| format!(" ({interval})"));
        text += &format!("| {} | {a} | {b} | {ratio}{interval} |\n", marked_down(&name));
    }
    text
}

#[cfg(test)]
mod tests {
    use sidestep_scenario::World;

    use super::{super::Equivalence, *};

    /// A run with what TCP counted and why it moved.
    fn run(tcp: &[(&str, u64)], moves: &[(&str, u64)]) -> SystemResult {
        let [tcp, moves] = [tcp, moves].map(|counts| counts.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect());
        SystemResult { tcp, moves, ..SystemResult::default() }
    }

    /// Six seeds in two worlds: the first has twice as many timeouts, and its two repetitions of a seed differ.
    fn worlds() -> [Runs; 2] {
        let sim = |n: u64| {
            vec![run(&[("TCPTimeouts", 2 * n - 1), ("Odd", 3)], &[("ecn", 4)]), run(&[("TCPTimeouts", 2 * n + 1)], &[])]
        };
        let lab = |n: u64| vec![run(&[("TCPTimeouts", n), ("TCPSpuriousRTOs", 1), ("TW", 600)], &[("rto", n % 2)])];
        let runs = |world, of: &dyn Fn(u64) -> Vec<SystemResult>, counters| Runs {
            world,
            seeds: (1..=6).map(of).collect(),
            void: 0,
            counters,
        };
        let of_sim = Some(vec!["TCPTimeouts", "TCPSpuriousRTOs", "TCPLossUndo"]);
        [runs(World::Sim, &sim, of_sim), runs(World::Lab, &lab, None)]
    }

    fn counted(worlds: &[Runs; 2]) -> Vec<Counted> {
        let [one, other] = worlds;
        Equivalence::new("s", "tcp", one, other, [2, 1], 0.05).counted
    }

    #[test]
    fn what_both_worlds_count_and_every_reason_of_moves_is_shown_with_its_mean_per_run() {
        let found = counted(&worlds());
        let told: Vec<_> = found.iter().map(|one| (one.kind, one.name.as_str(), one.means, one.ratio)).collect();
        let expected = [
            // It never occurs in the simulator, which counts it: that shows more than any ratio.
            (Kind::Tcp, "TCPSpuriousRTOs", [0.0, 1.0], None),
            (Kind::Tcp, "TCPTimeouts", [7.0, 3.5], Some(2.0)),
            (Kind::Moves, "ecn", [2.0, 0.0], None),
            (Kind::Moves, "rto", [0.0, 0.5], None),
        ];
        assert_eq!(told, expected, "`TW` and `Odd` are no counters of the simulator's");
        // In each seed it is twice as many.
        assert!(found[1].ci90.unwrap().iter().all(|end| (end - 2.0).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn hosts_that_count_nothing_are_not_said_to_have_had_no_events() {
        let mut worlds = worlds();
        worlds[0].seeds.iter_mut().flatten().for_each(|run| run.tcp.clear());
        assert!(counted(&worlds).iter().all(|one| one.kind == Kind::Moves));
    }

    #[test]
    fn an_interval_is_as_wide_as_the_seeds_differ_and_few_seeds_have_none() {
        let width = |shift: u64| {
            let mut worlds = worlds();
            for (number, seed) in worlds[1].seeds.iter_mut().enumerate() {
                seed[0].tcp.insert("TCPTimeouts".into(), if number % 2 == 0 { 20 + shift } else { 20 - shift });
            }
            let found = counted(&worlds).remove(1);
            let ([low, high], ratio) = (found.ci90.unwrap(), found.ratio.unwrap());
            assert!(low < ratio && ratio < high && (ratio - 7.0 / 20.0).abs() < 1e-9, "{found:?}");
            (high / low).ln()
        };
        assert!(width(15) > 1.1 * width(0), "{} {}", width(15), width(0));
        let mut few = worlds();
        // For a seed that one world lacks, nothing is reported from the other.
        few[1].seeds[5].clear();
        let timeouts = &counted(&few)[1];
        assert_eq!((timeouts.means, timeouts.ratio, timeouts.ci90), ([6.0, 3.0], Some(2.0), None));
    }

    #[test]
    fn what_happened_in_one_seed_alone_has_the_ratio_of_the_means() {
        let mut worlds = worlds();
        for (number, seed) in worlds[0].seeds.iter_mut().enumerate() {
            let count = if number == 0 { 100 } else { u64::from(number == 1) };
            for run in seed {
                run.tcp.insert("TCPSpuriousRTOs".into(), count);
            }
        }
        let found = &counted(&worlds)[0];
        assert!((found.ratio.unwrap() - 101.0 / 6.0).abs() < 1e-9, "{found:?}");
        let [low, high] = found.ci90.unwrap();
        assert!(low < 1.0 && high > 100.0, "one seed proves nothing: {found:?}");
    }

    #[test]
    fn the_table_states_that_it_judges_nothing_and_hostile_names_are_no_markup() {
        let mut worlds = worlds();
        worlds[0].seeds[0][0].moves.insert("a|<b>\u{1b}".into(), 1);
        let [one, other] = &worlds;
        let all = [Equivalence::new("s", "tcp", one, other, [2, 1], 0.05)];
        insta::assert_snapshot!(Equivalence::markdown(&all), @r"
        tcp: 6 seeds, 2 repetitions in the sim and 1 in the lab; 0 runs did not count, as the machine did not keep up. Margin 5 %.

        | measure | sim | lab | ratio (90 % interval) | verdict |
        |---|---:|---:|---:|---|
        | moves | 2.083 | 0.500 | 3.765 (1.562 to 9.077) | different: of sums, as some runs have none |

        What TCP counted, and why it moved. No verdicts: these numbers say where to look when the worlds differ, and judge nothing.

        | per run | sim | lab | ratio of the sums (90 % interval) |
        |---|---:|---:|---:|
        | TCPSpuriousRTOs | 0.00 | 1.00 | – |
        | TCPTimeouts | 7.00 | 3.50 | 2.000 (2.000 to 2.000) |
        | moves: a\|\<b\>� | 0.08 | 0.00 | – |
        | moves: ecn | 2.00 | 0.00 | – |
        | moves: rto | 0.00 | 0.50 | – |
        ");
        let page = Equivalence::page(&all);
        assert!(
            page.contains(WHERE_TO_LOOK) && page.contains("<th>TCPTimeouts</th><td>7.00</td><td>3.50</td>"),
            "{page}"
        );
        assert!(!page.contains("<b>") && !page.contains('\u{1b}'), "{page}");
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!(json[0]["counted"][1]["kind"], "tcp");
        assert_eq!(json[0]["counted"][1]["ratio"], 2.0);
    }
}
