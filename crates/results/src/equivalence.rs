//! Whether two worlds give the same: a test of equivalence over seeds, by ratios.

mod counted;
mod row;

use maud::html;
use serde::Serialize;

pub use self::{
    counted::{Counted, Kind, TITLE as TITLE_OF_COUNTED, WHERE_TO_LOOK},
    row::{FEWEST_SEEDS, Row, Verdict},
};
use crate::{
    SystemResult, World, document,
    summary::{Column, printable},
};

/// The version of `equivalence.json` that this crate writes.
const SCHEMA: u32 = 1;

/// How far apart two worlds may be to count as the same, where the user sets nothing else.
pub const MARGIN: f64 = 0.05;

/// What the runs of one world gave, seed by seed.
#[derive(Clone, Debug)]
pub struct Runs {
    /// The world.
    pub world: World,
    /// Of each seed, the repetitions that count.
    pub seeds: Vec<Vec<SystemResult>>,
    /// Runs that do not count, as the machine did not keep up.
    pub void: u32,
    /// The counters of TCP that the world has, by the kernel's names; `None`: all that the kernel has.
    pub counters: Option<Vec<&'static str>>,
}

/// Two worlds, or one world twice, held against each other under one system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Equivalence {
    schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the system.
    pub system: String,
    /// Where the runs were made.
    pub worlds: [World; 2],
    /// Number of seeds.
    pub seeds: usize,
    /// Repetitions under each seed, in each world.
    pub repetitions: [usize; 2],
    /// Runs of each world that did not count, as the machine did not keep up.
    pub void: [u32; 2],
    /// A ratio between 1 / (1 + margin) and 1 + margin counts as the same.
    pub margin: f64,
    /// The measures.
    pub rows: Vec<Row>,
    /// What TCP counted in both worlds, and for what reasons it moved: no verdicts, they show where to look.
    pub counted: Vec<Counted>,
}

impl Equivalence {
    /// Holds two worlds against each other.
    ///
    /// A seed's value is the geometric mean over its repetitions; the unit is the seed. A measure that is zero or missing in all runs of
    /// both worlds is left out.
    pub fn new(scenario: &str, system: &str, one: &Runs, other: &Runs, repetitions: [usize; 2], margin: f64) -> Self {
        Equivalence {
            schema: SCHEMA,
            scenario: scenario.to_owned(),
            system: system.to_owned(),
            worlds: [one.world, other.world],
            seeds: one.seeds.len().max(other.seeds.len()),
            repetitions,
            void: [one.void, other.void],
            margin,
            rows: Row::all([one, other], repetitions, margin),
            counted: Counted::of([one, other]),
        }
    }

    /// The comparison as a table in a page.
    pub fn page(all: &[Equivalence]) -> String {
        let title = all.first().map_or("equivalence", |one| &one.scenario);
        let body = html! {
            h1 { (title) ": do two worlds give the same?" }
            p {
                "Each measure was taken under several seeds in both worlds. The ratio is the first world's value by the second's, \
                 its geometric mean over the seeds."
            }
            @for (number, one) in all.iter().enumerate() {
                @let [first, second] = one.worlds.map(World::as_str);
                h2 { (one.system) }
                p { (one.runs()) }
                div class="scroll" { table {
                    tr { @for column in ["measure", first, second, "ratio", "90 % interval", "noise", "verdict"] { th { (column) } } }
                    @for row in &one.rows {
                        tr {
                            th { (row.measure) " " (row.unit) }
                            @for cell in row.cells() { td { (cell) } }
                            td { (row.verdict.as_str()) @if !row.why.is_empty() { ": " (row.why) } }
                        }
                    }
                } }
                @if number == 0 {
                    p { small { (verdicts(one.margin)) } }
                    p { small { (measured(all)) } }
                }
                @if !one.counted.is_empty() { (counted::table(&one.counted, [first, second])) }
            }
        };
        document(&format!("{title} – sidestep"), &body)
    }

    /// The comparisons as tables in Markdown, one for each system.
    pub fn markdown(all: &[Equivalence]) -> String {
        let mut text = String::new();
        for one in all {
            let [first, second] = one.worlds.map(World::as_str);
            text += &format!("{}: {}\n\n", marked_down(&one.system), one.runs());
            text += &format!(
                "| measure | {first} | {second} | ratio (90 % interval) | verdict |\n|---|---:|---:|---:|---|\n"
            );
            for row in &one.rows {
                let [a, b, ratio, interval, _] = row.cells();
                let interval = row.ci90.map_or(String::new(), |_| format!(" ({interval})"));
                let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
                let measure = format!("{} {}", row.measure, row.unit);
                let (measure, verdict) = (measure.trim_end(), row.verdict.as_str());
                text += &format!("| {measure} | {a} | {b} | {ratio}{interval} | {verdict}{why} |\n");
            }
            if !one.counted.is_empty() {
                text += &counted::markdown(&one.counted, [first, second]);
            }
            text.push('\n');
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    /// What was run, as a sentence.
    pub fn runs(&self) -> String {
        let [one, other] = self.worlds.map(World::as_str);
        let ([m, l], [void_one, void_other]) = (self.repetitions, self.void);
        let margin = 100.0 * self.margin;
        format!(
            "{} seeds, {m} repetitions in the {one} and {l} in the {other}; {} runs did not count, as the machine did not keep \
             up. Margin {margin} %.",
            self.seeds,
            void_one + void_other
        )
    }
}

/// A name as it is where Markdown would see marks in it.
fn marked_down(name: &str) -> String {
    let mut text = String::new();
    for letter in printable(name.to_owned()).chars() {
        if "\\`*_[]<>|#&".contains(letter) {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

/// What the words in the tables mean.
fn verdicts(margin: f64) -> String {
    let (least, most) = (1.0 / (1.0 + margin), 1.0 + margin);
    format!(
        "Margin: a ratio from {least:.3} to {most:.3} counts as the same. 90 % interval: where the true ratio lies, from how much the \
         ratios of the seeds differ. Equivalent: the whole interval is within the margin. Different: all of it is beyond the margin. \
         Undecided: the interval crosses the margin's limit, there are fewer than {FEWEST_SEEDS} seeds, or some have no value. \
         How many seeds show it: with a probability of 80 %, if the worlds are the same and seeds differ as much as these. \
         Noise: by what factor repetitions of one seed differ in each world, as a standard deviation; 1 if they do not."
    )
}

/// What is measured, of the measures that occur.
fn measured(all: &[Equivalence]) -> String {
    let occurs = |name: &str| all.iter().flat_map(|one| &one.rows).any(|row| row.measure.contains(name));
    let of = |column: Column| column.meaning().unwrap_or_default();
    let jain =
        "Jain's index: how alike the goodput of connections is, 1 if all have the same, 1/n if one of n has all.";
    let meanings = [
        ("goodput", of(Column::Goodput)),
        (
            "FCT",
            "FCT: flow completion time, from a transfer's start to its last acknowledgement, of those that completed; \
                50 %, 95 %, 99 %: this share of them took at most this long.",
        ),
        ("timeout", "Flows with a timeout: those that had a retransmission timeout, of their SYN or later."),
        ("moves", of(Column::Moves)),
        ("drops", of(Column::Drops)),
        ("Jain", jain),
    ];
    let told = meanings.into_iter().filter(|(name, _)| occurs(name)).map(|(_, meaning)| meaning);
    told.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{row::seeds_needed, *};

    fn runs(world: World, goodputs: &[&[f64]]) -> Runs {
        let result = |goodput: &f64| SystemResult { goodput_mbps: *goodput, ..SystemResult::default() };
        Runs {
            world,
            seeds: goodputs.iter().map(|seed| seed.iter().map(result).collect()).collect(),
            void: 0,
            counters: None,
        }
    }

    fn goodput(one: &[&[f64]], other: &[&[f64]]) -> Row {
        let repetitions = [one, other].map(|world| world.first().map_or(0, |seed| seed.len()));
        let (one, other) = (runs(World::Sim, one), runs(World::Lab, other));
        let all = Equivalence::new("s", "tcp", &one, &other, repetitions, MARGIN);
        all.rows.into_iter().find(|row| row.measure == "goodput").unwrap()
    }

    const SEEDS: [&[f64]; 6] = [&[10.0, 12.0], &[100.0, 90.0], &[5.0, 5.2], &[33.0, 30.0], &[7.0, 7.5], &[50.0, 52.0]];

    fn scaled(factor: f64) -> Vec<Vec<f64>> {
        SEEDS.iter().map(|seed| seed.iter().map(|value| value * factor).collect()).collect()
    }

    fn against_scaled(factor: f64) -> Row {
        let other = scaled(factor);
        let other: Vec<&[f64]> = other.iter().map(Vec::as_slice).collect();
        goodput(&SEEDS, &other)
    }

    #[test]
    fn seeds_that_differ_by_far_are_equivalent_where_the_worlds_agree_in_each() {
        assert_eq!(against_scaled(1.02).verdict, Verdict::Equivalent);
        assert_eq!(against_scaled(0.96).verdict, Verdict::Equivalent);
        assert_eq!(against_scaled(1.2).verdict, Verdict::Different);
        let ratio = against_scaled(1.25).ratio.unwrap();
        assert!((ratio - 0.8).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn noise_between_seeds_leaves_it_undecided() {
        let other: [&[f64]; 6] = [&[12.0, 9.0], &[80.0, 90.0], &[6.0, 5.2], &[28.0, 30.0], &[9.0, 7.5], &[44.0, 52.0]];
        assert_eq!(goodput(&SEEDS, &other).verdict, Verdict::Undecided);
    }

    #[test]
    fn what_is_undecided_reports_how_many_seeds_would_show_that_both_are_the_same() {
        // A standard deviation of 0.2 for a margin of ln 1.05: (2.927 · 0.2 / 0.0488)² = 144.
        let spread = 0.2 * (7.0_f64 / 8.0).sqrt();
        let logs = [spread, -spread].repeat(4);
        assert_eq!(seeds_needed(&logs, MARGIN), Some(150));
        let twice: Vec<f64> = logs.iter().map(|log| 2.0 * log).collect();
        assert_eq!(seeds_needed(&twice, MARGIN), Some(580));
        assert_eq!(seeds_needed(&[0.0; 6], MARGIN), Some(6));
        assert_eq!(seeds_needed(&[0.1], MARGIN), None);
        let ratios: Vec<Vec<f64>> = logs.iter().map(|log| vec![10.0 * log.exp()]).collect();
        let ratios: Vec<&[f64]> = ratios.iter().map(Vec::as_slice).collect();
        let row = goodput(&ratios, &[&[10.0][..]; 8]);
        assert_eq!((row.verdict, &*row.why), (Verdict::Undecided, "if both are the same, some 150 seeds show it"));
    }

    #[test]
    fn few_seeds_missing_repetitions_and_zeros_decide_nothing() {
        let few = goodput(&SEEDS[..5], &SEEDS[..5]);
        assert_eq!((few.verdict, few.ci90), (Verdict::Undecided, None));
        assert_eq!(few.why, "5 seeds are fewer than 6");
        let mut missing = SEEDS;
        missing[3] = &[33.0];
        assert_eq!(goodput(&SEEDS, &missing).why, "1 of 6 seeds have no value in a world");
        let mut once: [&[f64]; 6] = [&[0.0, 0.0]; 6];
        once[2] = &[3.0, 0.0];
        let row = goodput(&once, &SEEDS);
        assert_eq!(
            (row.ratio, row.verdict, row.why.as_str()),
            (None, Verdict::Undecided, "hardly a seed has any in a world")
        );
    }

    #[test]
    fn where_seeds_have_none_the_sums_are_compared_and_few_events_decide_nothing() {
        let alike: [&[f64]; 8] = [&[0.0], &[100.0], &[50.0], &[70.0], &[80.0], &[60.0], &[0.0], &[90.0]];
        let about: [&[f64]; 8] = [&[1.0], &[101.0], &[49.0], &[71.0], &[79.0], &[60.0], &[0.0], &[91.0]];
        let row = goodput(&alike, &about);
        assert_eq!((row.verdict, row.why.as_str()), (Verdict::Equivalent, "of sums, as some runs have none"));
        assert!((row.ratio.unwrap() - 450.0 / 452.0).abs() < 1e-3 && row.values[0] == Some(56.25), "{row:?}");
        // The same sums, of events that fall as they like.
        let other: [&[f64]; 8] = [&[120.0], &[10.0], &[90.0], &[0.0], &[100.0], &[130.0], &[2.0], &[0.0]];
        assert_eq!(goodput(&alike, &other).verdict, Verdict::Undecided);
        // More repetitions of what varies tenfold are no more of it.
        let (once, often) =
            ([[1.0, 100.0], [100.0, 1.0]].repeat(4), [[1.0, 100.0, 100.0, 1.0], [100.0, 1.0, 1.0, 100.0]].repeat(4));
        let (once, often): (Vec<&[f64]>, Vec<&[f64]>) =
            (once.iter().map(|runs| &runs[..1]).collect(), often.iter().map(|runs| &runs[..]).collect());
        assert!((goodput(&often, &once).ratio.unwrap() - 1.0).abs() < 1e-9);
        let twice: [&[f64]; 8] = [&[0.0], &[200.0], &[100.0], &[140.0], &[160.0], &[120.0], &[0.0], &[180.0]];
        assert_eq!(goodput(&alike, &twice).verdict, Verdict::Different);
    }

    #[test]
    fn what_never_occurs_has_no_row_and_what_occurs_in_one_world_has() {
        let quiet = runs(World::Sim, &SEEDS);
        let mut moved = quiet.clone();
        moved.seeds[2][1].moves.insert("ecn".into(), 3);
        let measures = |one: &Runs, other: &Runs| -> Vec<&str> {
            let all = Equivalence::new("s", "tcp", one, other, [2, 2], MARGIN);
            all.rows.iter().map(|row| row.measure).collect()
        };
        assert_eq!(measures(&quiet, &quiet), ["goodput"]);
        assert_eq!(measures(&quiet, &moved), ["goodput", "moves"]);
    }

    #[test]
    fn the_noise_is_that_of_repetitions_alone() {
        let apart = std::f64::consts::E;
        let row = goodput(&[&[1.0, apart], &[100.0, 100.0 * apart]], &[&[1.0], &[1.0]]);
        let noise = row.noise[0].unwrap().ln();
        assert!((noise - 0.5f64.sqrt()).abs() < 1e-9, "{noise}");
        assert_eq!(row.noise[1], None);
    }

    #[test]
    fn hostile_names_do_not_become_markup_on_the_page() {
        let one = runs(World::Sim, &SEEDS);
        let page = Equivalence::page(&[Equivalence::new("<script>", "\u{1b}<b>", &one, &one, [2, 2], MARGIN)]);
        assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains('\u{1b}'), "{page}");
        assert!(page.contains("equivalent"));
    }

    #[test]
    fn the_page_explains_the_words_of_its_tables() {
        let mut all = runs(World::Sim, &SEEDS);
        for (seed, one) in all.seeds.iter_mut().flatten().enumerate() {
            one.moves.insert("ecn".into(), seed as u64 + 1);
            (one.afct_s, one.fairness) = (Some(0.1), Some(0.9));
        }
        let found = Equivalence::new("s", "tcp", &all, &all, [2, 2], MARGIN);
        let page = Equivalence::page(&[found.clone(), found]);
        for word in [
            "Margin: a ratio from 0.952 to 1.050",
            "Equivalent: ",
            "Different: ",
            "Undecided: ",
            "Noise: ",
            "FCT: flow",
        ] {
            assert_eq!(page.matches(word).count(), 1, "{word}");
        }
        assert!(page.contains("Moves: how often") && page.contains("Jain's index: how alike"), "{page}");
        assert!(!page.contains("Drops: "), "nothing was dropped");
    }

    #[test]
    fn the_table_in_markdown_has_both_means_the_ratio_and_the_verdict() {
        let (one, two) = (runs(World::Sim, &SEEDS), runs(World::Lab, &SEEDS));
        let few = Runs { seeds: one.seeds[..5].to_vec(), ..one.clone() };
        let few_lab = Runs { seeds: two.seeds[..5].to_vec(), ..two.clone() };
        let all = [
            Equivalence::new("s", "tcp", &one, &two, [2, 2], MARGIN),
            Equivalence::new("s", "a|<b>\u{1b}", &few, &few_lab, [2, 2], MARGIN),
        ];
        insta::assert_snapshot!(Equivalence::markdown(&all), @r#"
        tcp: 6 seeds, 2 repetitions in the sim and 2 in the lab; 0 runs did not count, as the machine did not keep up. Margin 5 %.

        | measure | sim | lab | ratio (90 % interval) | verdict |
        |---|---:|---:|---:|---|
        | goodput Mbit/s | 19.873 | 19.873 | 1.000 (1.000 to 1.000) | equivalent |

        a\|\<b\>�: 5 seeds, 2 repetitions in the sim and 2 in the lab; 0 runs did not count, as the machine did not keep up. Margin 5 %.

        | measure | sim | lab | ratio (90 % interval) | verdict |
        |---|---:|---:|---:|---|
        | goodput Mbit/s | 16.460 | 16.460 | 1.000 | undecided: 5 seeds are fewer than 6 |
        "#);
        assert_eq!(Equivalence::markdown(&[]), "\n");
    }

    proptest! {
        #[test]
        fn a_ratio_beyond_the_margin_is_never_called_equivalent(
            noise in prop::collection::vec(-1.0..1.0f64, 6..30), shift in -0.5..0.5f64, spread in 0.0..0.3f64,
        ) {
            let mean = noise.iter().sum::<f64>() / noise.len() as f64;
            let one: Vec<Vec<f64>> = noise.iter().map(|e| vec![(shift + spread * (e - mean)).exp()]).collect();
            let one: Vec<&[f64]> = one.iter().map(Vec::as_slice).collect();
            let other = vec![&[1.0][..]; one.len()];
            let verdict = goodput(&one, &other).verdict;
            prop_assert!(shift.abs() <= 1.05f64.ln() + 1e-9 || verdict != Verdict::Equivalent);
            prop_assert!(shift.abs() >= 1.05f64.ln() - 1e-9 || verdict != Verdict::Different);
        }

        #[test]
        fn fewer_seeds_than_the_fewest_decide_nothing(
            noise in prop::collection::vec(-0.2..0.2f64, 6..20), kept in 0usize..6,
        ) {
            // Fewer than the fewest decide nothing, however quiet they are.
            let one: Vec<Vec<f64>> = noise.iter().map(|e| vec![e.exp()]).collect();
            let one: Vec<&[f64]> = one.iter().take(kept).map(Vec::as_slice).collect();
            if !one.is_empty() {
                prop_assert_eq!(goodput(&one, &one).verdict, Verdict::Undecided);
            }
        }
    }
}
