//! Whether two worlds give the same: a test of equivalence over seeds, by ratios.

use maud::html;
use serde::Serialize;

use crate::{Estimate, SystemResult, World, document, measures};

/// The version of `equivalence.json` that this crate writes.
const SCHEMA: u32 = 1;

/// How far apart two worlds may be to count as the same, where the user says nothing else.
pub const MARGIN: f64 = 0.05;

/// With fewer seeds than this nothing is decided.
pub const FEWEST_SEEDS: usize = 6;

/// What the runs of one world gave, seed by seed.
#[derive(Clone, Debug)]
pub struct Runs {
    /// The world.
    pub world: World,
    /// Of each seed, the repetitions that count.
    pub seeds: Vec<Vec<SystemResult>>,
    /// Runs that do not count, as the machine did not keep up.
    pub void: u32,
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
}

/// One measure in both worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What is measured.
    pub measure: &'static str,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// The geometric mean over the seeds in each world, of the means over repetitions; `None` where a seed gave none or zero.
    pub values: [Option<f64>; 2],
    /// The geometric mean over the seeds of the first world's value by the second's; `None` likewise.
    pub ratio: Option<f64>,
    /// Its 90 % confidence interval, by Student's t of its logarithm.
    pub ci90: Option<[f64; 2]>,
    /// By what factor repetitions of one seed differ in each world, as a standard deviation; `None` of fewer than two.
    pub noise: [Option<f64>; 2],
    /// What the interval says.
    pub verdict: Verdict,
    /// Why nothing is decided, where the interval alone does not say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What an interval of a ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of it lies within the margin: two one-sided tests at 5 % (TOST).
    Equivalent,
    /// All of it lies beyond the margin.
    Different,
    /// There is too much noise, there are too few seeds, or some gave no value.
    Undecided,
}

/// Name, unit, and the value of a system's result.
type Measure = (&'static str, &'static str, fn(&SystemResult) -> Option<f64>);

const MEASURES: [Measure; 9] = [
    ("goodput", "Mbit/s", |result| Some(result.goodput_mbps)),
    ("mean FCT", "ms", |result| milliseconds(result.afct_s)),
    ("50 % FCT", "ms", |result| milliseconds(result.fct_p50_s)),
    ("95 % FCT", "ms", |result| milliseconds(result.fct_p95_s)),
    ("99 % FCT", "ms", |result| milliseconds(result.fct_p99_s)),
    ("flows with a timeout", "%", |result| result.timeout_share().map(|share| 100.0 * share)),
    ("moves", "", |result| Some(result.total_moves() as f64)),
    ("drops", "packets", |result| Some(result.total_drops() as f64)),
    ("Jain's index", "", |result| result.fairness),
];

impl Verdict {
    /// The name in files and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Equivalent => "equivalent",
            Verdict::Different => "different",
            Verdict::Undecided => "undecided",
        }
    }

    fn of([low, high]: [f64; 2], margin: f64) -> Verdict {
        let (least, most) = (1.0 / (1.0 + margin), 1.0 + margin);
        if low >= least && high <= most {
            Verdict::Equivalent
        } else if high < least || low > most {
            Verdict::Different
        } else {
            Verdict::Undecided
        }
    }
}

impl Equivalence {
    /// Holds two worlds against each other.
    ///
    /// A seed's value is the mean over its repetitions; the unit is the seed. A measure that is zero or missing in all runs of
    /// both worlds is left out.
    pub fn new(scenario: &str, system: &str, one: &Runs, other: &Runs, repetitions: [usize; 2], margin: f64) -> Self {
        let rows = MEASURES.into_iter().filter_map(|measure| Row::new(measure, [one, other], repetitions, margin));
        Equivalence {
            schema: SCHEMA,
            scenario: scenario.to_owned(),
            system: system.to_owned(),
            worlds: [one.world, other.world],
            seeds: one.seeds.len().max(other.seeds.len()),
            repetitions,
            void: [one.void, other.void],
            margin,
            rows: rows.collect(),
        }
    }

    /// The comparison as a table in a page.
    pub fn page(all: &[Equivalence]) -> String {
        let title = all.first().map_or("equivalence", |one| &one.scenario);
        let body = html! {
            h1 { (title) ": do two worlds give the same?" }
            p {
                "A measure is equivalent if the 90 % confidence interval of its ratio lies within the margin. The unit is the seed."
                " Noise is the standard deviation between repetitions of one seed, as a factor."
            }
            @for one in all {
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
            }
        };
        document(&format!("{title} – sidestep"), &body)
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

impl Row {
    fn new((measure, unit, of): Measure, worlds: [&Runs; 2], repetitions: [usize; 2], margin: f64) -> Option<Row> {
        let by_seed = worlds.map(|runs| {
            let values = |seed: &Vec<SystemResult>| seed.iter().map(of).collect::<Vec<Option<f64>>>();
            runs.seeds.iter().map(values).collect::<Vec<_>>()
        });
        let occurs = |value: &Option<f64>| value.is_some_and(|value| value != 0.0);
        if !by_seed.iter().flatten().flatten().any(occurs) {
            return None;
        }
        let seeds = by_seed[0].len().max(by_seed[1].len());
        let logs: [Vec<Option<f64>>; 2] = [0, 1].map(|world| {
            let at = |seed: usize| by_seed[world].get(seed).and_then(|values| log_mean(values, repetitions[world]));
            (0..seeds).map(at).collect()
        });
        let whole = |logs: &[Option<f64>]| logs.iter().copied().collect::<Option<Vec<f64>>>();
        let ratios = whole(&logs[0])
            .zip(whole(&logs[1]))
            .map(|(one, other)| -> Vec<f64> { one.iter().zip(other).map(|(one, other)| one - other).collect() });
        let estimate = ratios.as_deref().and_then(Estimate::of);
        let ci90 = ratios.as_deref().filter(|ratios| ratios.len() >= FEWEST_SEEDS).and_then(Estimate::ninety);
        let ci90 = ci90.map(|interval| interval.map(f64::exp));
        let why = match (&ratios, ci90) {
            (None, _) => {
                let lacking = (0..seeds).filter(|seed| logs[0][*seed].is_none() || logs[1][*seed].is_none()).count();
                format!("{lacking} of {seeds} seeds have no value or none above zero in a world")
            }
            (Some(_), None) => format!("{seeds} seeds are fewer than {FEWEST_SEEDS}"),
            _ => String::new(),
        };
        Some(Row {
            measure,
            unit,
            values: [0, 1].map(|world| whole(&logs[world]).and_then(|logs| measures::mean(&logs)).map(f64::exp)),
            ratio: estimate.map(|estimate| estimate.mean.exp()),
            ci90,
            noise: [0, 1].map(|world| noise(&by_seed[world])),
            verdict: ci90.map_or(Verdict::Undecided, |interval| Verdict::of(interval, margin)),
            why,
        })
    }

    /// The numbers as text: both values, ratio, interval, noise.
    pub fn cells(&self) -> [String; 5] {
        let or_dash = |number: Option<f64>| number.map_or("–".into(), |number| format!("{number:.3}"));
        let [one, other] = self.values.map(or_dash);
        let interval = self.ci90.map_or("–".into(), |[low, high]| format!("{low:.3} to {high:.3}"));
        let [noise_one, noise_other] = self.noise.map(or_dash);
        [one, other, or_dash(self.ratio), interval, format!("{noise_one}, {noise_other}")]
    }
}

fn milliseconds(seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| 1e3 * seconds)
}

/// The logarithm of the mean over repetitions; `None` unless all `wanted` gave a value, and it is above zero.
fn log_mean(values: &[Option<f64>], wanted: usize) -> Option<f64> {
    let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
    let mean = measures::mean(&values).filter(|_| values.len() >= wanted)?;
    (mean > 0.0 && mean.is_finite()).then(|| mean.ln())
}

/// How much repetitions of one seed differ, pooled over the seeds: e to the standard deviation of logarithms.
fn noise(by_seed: &[Vec<Option<f64>>]) -> Option<f64> {
    let (mut squares, mut freedom) = (0.0, 0);
    for values in by_seed {
        let logs: Vec<f64> = values.iter().flatten().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
        let Some(mean) = measures::mean(&logs) else { continue };
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        freedom += logs.len() - 1;
    }
    (freedom > 0).then(|| (squares / freedom as f64).sqrt().exp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(world: World, goodputs: &[&[f64]]) -> Runs {
        let result = |goodput: &f64| SystemResult { goodput_mbps: *goodput, ..SystemResult::default() };
        Runs { world, seeds: goodputs.iter().map(|seed| seed.iter().map(result).collect()).collect(), void: 0 }
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
    fn few_seeds_missing_repetitions_and_zeros_decide_nothing() {
        let few = goodput(&SEEDS[..5], &SEEDS[..5]);
        assert_eq!((few.verdict, few.ci90), (Verdict::Undecided, None));
        assert_eq!(few.why, "5 seeds are fewer than 6");
        let mut missing = SEEDS;
        missing[3] = &[33.0];
        assert_eq!(goodput(&SEEDS, &missing).why, "1 of 6 seeds have no value or none above zero in a world");
        let mut zero = SEEDS;
        zero[0] = &[0.0, 0.0];
        assert_eq!(goodput(&zero, &SEEDS).verdict, Verdict::Undecided);
        assert_eq!(goodput(&zero, &zero).ratio, None);
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
        fn fewer_seeds_never_make_what_is_not_equivalent_so_without_being_told(
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
