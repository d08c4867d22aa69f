//! Rules over a quantity that is measured once for each seed.
//!
//! Fewer seeds or more noise never make such a rule pass. A rule returns `holds` or `differs` only for an interval that lies
//! wholly inside or wholly outside of what is allowed, and only if every planned seed has a value and there are at least
//! [`FEWEST`] of them. In all other cases it returns `undecided`.

use sidestep_results::{Estimate, SystemResult, measures};

use crate::{Paper, Row, Rule, Verdict};

/// With fewer seeds than this the median has no 95 % confidence interval, and no rule over seeds decides.
pub const FEWEST: usize = 6;

/// The values of one quantity in the order of the seeds: one for each planned seed, `None` where a seed gave none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seeds(Vec<Option<f64>>);

impl Seeds {
    /// The values by seed; one that is not finite counts as missing.
    pub fn new(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        Seeds(values.into_iter().map(|value| value.filter(|value| value.is_finite())).collect())
    }

    /// A measure of a system's results under each of `planned` seeds.
    pub fn of(result: &SystemResult, planned: u32, measure: impl Fn(&SystemResult) -> Option<f64>) -> Self {
        let each = result.repeated.as_ref().map_or(std::slice::from_ref(result), |repeated| &repeated.each);
        Seeds::new((0..planned as usize).map(|seed| each.get(seed).and_then(&measure)))
    }

    /// All values, if there are enough to decide by.
    fn complete(&self) -> Option<Vec<f64>> {
        let values: Vec<f64> = self.0.iter().copied().collect::<Option<_>>()?;
        (values.len() >= FEWEST).then_some(values)
    }

    /// The median of the values that there are; not a number if there are none.
    pub fn middle(&self) -> f64 {
        measures::percentile(&self.ascending(), 50).unwrap_or(f64::NAN)
    }

    /// The 95 % confidence interval of the median, from order statistics; `None` if there are too few values.
    pub fn interval(&self) -> Option<[f64; 2]> {
        self.complete().and_then(|_| measures::median_interval(&self.ascending()))
    }

    /// The values that there are, in ascending order.
    fn ascending(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.0.iter().flatten().copied().collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// Each value times `factor`.
    pub fn scaled(&self, factor: f64) -> Seeds {
        Seeds::new(self.0.iter().map(|value| value.map(|value| value * factor)))
    }

    /// By seed, this divided by `other`; missing where either is, or `other` is zero.
    pub fn over(&self, other: &Seeds) -> Seeds {
        self.with(other, |a, b| a / b)
    }

    /// By seed, how much larger this is than `other`; missing where either is.
    fn minus(&self, other: &Seeds) -> Seeds {
        self.with(other, |a, b| a - b)
    }

    fn with(&self, other: &Seeds, combine: impl Fn(f64, f64) -> f64) -> Seeds {
        let seeds = self.0.len().max(other.0.len());
        let at = |values: &Seeds, seed: usize| values.0.get(seed).copied().flatten();
        Seeds::new((0..seeds).map(|seed| Some(combine(at(self, seed)?, at(other, seed)?))))
    }

    /// Why there are not enough values.
    fn lack(&self) -> String {
        let there = self.0.iter().flatten().count();
        format!("{there} of {} seeds gave a value, and all of at least {FEWEST} are needed", self.0.len())
    }
}

impl Row {
    /// The median over the seeds, judged by its 95 % confidence interval from order statistics.
    pub fn median(quantity: impl Into<String>, unit: &str, paper: Paper, ours: &Seeds, rule: Rule) -> Row {
        let middle = ours.middle();
        let Some([low, high]) = ours.interval() else {
            return Row::undecided(quantity, unit, paper, middle, rule, ours.lack());
        };
        let (verdict, why) = rule.allowed(&paper).map_or_else(
            || rule.without(),
            |allowed| {
                let words = words(allowed);
                let why = format!("the median's 95 % confidence interval, {low:.3} to {high:.3}, is to lie {words}");
                (judge([low, high], allowed), why)
            },
        );
        let ci95 = Some([low, high]);
        Row { quantity: quantity.into(), unit: unit.into(), paper, ours: middle, ci95, verdict, why }
    }

    /// The number of seeds in which something is true, which must be at least `at_least`; `why` names the other seeds.
    ///
    /// A seed that gave no answer (`None`) counts on neither side.
    pub fn in_seeds(
        quantity: impl Into<String>,
        paper: Paper,
        seeds: &[(String, Option<bool>)],
        at_least: usize,
    ) -> Row {
        let named = |wanted: Option<bool>| -> Vec<&str> {
            seeds.iter().filter(|(_, answer)| *answer == wanted).map(|(name, _)| name.as_str()).collect()
        };
        let (yes, no, unknown) = (named(Some(true)), named(Some(false)), named(None));
        let verdict = if yes.len() >= at_least {
            Verdict::Holds
        } else if yes.len() + unknown.len() < at_least {
            Verdict::Differs
        } else {
            Verdict::Undecided
        };
        let mut why = format!("true in {} of {} seeds, and is to be in at least {at_least}", yes.len(), seeds.len());
        for (what, names) in [("not in", no), ("no answer from", unknown)] {
            if !names.is_empty() {
                why += &format!("; {what} {}", names.join(", "));
            }
        }
        let (quantity, unit, ours) = (quantity.into(), "seeds".into(), yes.len() as f64);
        Row { quantity, unit, paper, ours, ci95: None, verdict, why }
    }

    /// Whether each of these is larger than the one before it by more than `margin`, judged by the 95 % confidence
    /// interval of the difference seed by seed. The row shows the difference that is nearest to failing.
    pub fn ordered(
        quantity: impl Into<String>,
        unit: &str,
        paper: Paper,
        ascending: &[(&str, &Seeds)],
        margin: f64,
    ) -> Row {
        let pairs = ascending.windows(2).map(|pair| (pair[1], pair[0]));
        let gap = [margin.next_up(), f64::INFINITY];
        compared(quantity.into(), unit, paper, pairs, gap, |[low, _]| low - margin)
    }

    /// Whether `one` is within `within` of each of the others, by two one-sided tests: the 95 % confidence interval of the
    /// difference seed by seed lies between `-within` and `within`. The row shows the difference that is nearest to failing.
    pub fn equivalent(
        quantity: impl Into<String>,
        unit: &str,
        paper: Paper,
        one: (&str, &Seeds),
        others: &[(&str, &Seeds)],
        within: f64,
    ) -> Row {
        let pairs = others.iter().map(|other| (one, *other));
        compared(quantity.into(), unit, paper, pairs, [-within, within], |[low, high]| within - high.max(-low))
    }
}

impl Row {
    /// Whether each two of these are within `within` of each other, as [`Row::equivalent`] judges them: one row, as it is one claim.
    pub fn alike(quantity: impl Into<String>, unit: &str, paper: Paper, all: &[(&str, &Seeds)], within: f64) -> Row {
        let pairs = all.iter().enumerate().flat_map(|(at, one)| all[at + 1..].iter().map(|other| (*one, *other)));
        compared(quantity.into(), unit, paper, pairs, [-within, within], |[low, high]| within - high.max(-low))
    }
}

/// The row of differences that must all lie in `allowed`; `slack` is how far an interval is from failing.
fn compared<'a>(
    quantity: String,
    unit: &str,
    paper: Paper,
    pairs: impl Iterator<Item = ((&'a str, &'a Seeds), (&'a str, &'a Seeds))>,
    allowed: [f64; 2],
    slack: impl Fn([f64; 2]) -> f64,
) -> Row {
    let judged = pairs.map(|((one, a), (other, b))| {
        let difference = a.minus(b);
        match difference.complete().and_then(|values| Estimate::of(&values)) {
            Some(Estimate { mean, ci95: [low, high] }) => {
                let why = format!("{one} less {other}, {low:.3} to {high:.3}, is to lie {}", words(allowed));
                (judge([low, high], allowed), slack([low, high]), mean, Some([low, high]), why)
            }
            None => {
                let mean = measures::mean(&difference.ascending()).unwrap_or(f64::NAN);
                let why = format!("{one} less {other}: {}", difference.lack());
                (Verdict::Undecided, f64::NEG_INFINITY, mean, None, why)
            }
        }
    });
    let rank = |verdict: Verdict| [Verdict::Differs, Verdict::Undecided].iter().position(|other| *other == verdict);
    let worst = judged.min_by(|a, b| {
        let order = |verdict| rank(verdict).unwrap_or(usize::MAX);
        order(a.0).cmp(&order(b.0)).then(a.1.total_cmp(&b.1))
    });
    // Nothing to compare proves nothing.
    let nothing = (Verdict::Undecided, 0.0, f64::NAN, None, "there is nothing to compare".to_owned());
    let (verdict, _, ours, ci95, why) = worst.unwrap_or(nothing);
    Row { quantity, unit: unit.into(), paper, ours, ci95, verdict, why }
}

/// What an interval shows about a value that must be between two bounds.
pub(crate) fn judge([low, high]: [f64; 2], [least, most]: [f64; 2]) -> Verdict {
    if low >= least && high <= most {
        Verdict::Holds
    } else if high < least || low > most {
        Verdict::Differs
    } else {
        Verdict::Undecided
    }
}

pub(crate) fn words([least, most]: [f64; 2]) -> String {
    match (least.is_finite(), most.is_finite()) {
        (true, true) => format!("between {least:.3} and {most:.3}"),
        (true, false) => format!("above {least:.3}"),
        _ => format!("below {most:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seeds(values: &[f64]) -> Seeds {
        Seeds::new(values.iter().copied().map(Some))
    }

    fn shifted(values: &[f64], by: f64) -> Seeds {
        Seeds::new(values.iter().map(|value| Some(value + by)))
    }

    fn equivalence(a: &Seeds, b: &Seeds, within: f64) -> Verdict {
        Row::equivalent("q", "u", Paper::None, ("a", a), &[("b", b)], within).verdict
    }

    fn ordering(ascending: &[(&str, &Seeds)], margin: f64) -> Row {
        Row::ordered("q", "u", Paper::None, ascending, margin)
    }

    const NOISY: [f64; 6] = [100.0, 110.0, 95.0, 130.0, 70.0, 104.0];

    #[test]
    fn an_equivalence_is_judged_by_differences_within_each_seed() {
        // The seeds differ by far more than the systems do.
        let a = seeds(&NOISY);
        let b = seeds(&[101.0, 110.5, 96.5, 131.0, 70.5, 105.5]);
        assert_eq!(equivalence(&a, &b, 2.0), Verdict::Holds);
        assert_eq!(equivalence(&a, &b, 1.0), Verdict::Undecided);
        assert_eq!(equivalence(&a, &shifted(&NOISY, 5.0), 2.0), Verdict::Differs);
        let row = Row::equivalent("q", "u", Paper::None, ("a", &a), &[("b", &b), ("c", &shifted(&NOISY, 5.0))], 2.0);
        assert_eq!((row.verdict, row.ours), (Verdict::Differs, -5.0));
        assert_eq!(row.why, "a less c, -5.000 to -5.000, is to lie between -2.000 and 2.000");
    }

    #[test]
    fn all_are_alike_only_if_each_pair_is() {
        let (a, b, c) = (seeds(&NOISY), shifted(&NOISY, 3.0), shifted(&NOISY, -3.0));
        let alike = |all: &[(&str, &Seeds)]| Row::alike("q", "u", Paper::None, all, 5.0);
        assert_eq!(alike(&[("a", &a), ("b", &b)]).verdict, Verdict::Holds);
        let row = alike(&[("a", &a), ("b", &b), ("c", &c)]);
        assert_eq!((row.verdict, row.ours, &row.why[..8]), (Verdict::Differs, 6.0, "b less c"));
        assert_eq!(alike(&[("a", &a)]).verdict, Verdict::Undecided);
    }

    #[test]
    fn too_few_seeds_and_missing_ones_leave_every_interval_rule_undecided() {
        let few = seeds(&NOISY[..5]);
        let mut values: Vec<Option<f64>> = NOISY.into_iter().map(Some).collect();
        values.push(None);
        let one_missing = Seeds::new(values.clone());
        values[6] = Some(f64::NAN);
        for lacking in [few, one_missing, Seeds::new(values), Seeds::default()] {
            assert_eq!(equivalence(&lacking, &lacking, 1e9), Verdict::Undecided);
            assert_eq!(ordering(&[("a", &lacking), ("b", &lacking)], -1e9).verdict, Verdict::Undecided);
            let median = Row::median("q", "u", Paper::None, &lacking, Rule::AtMost(1e9));
            assert_eq!((median.verdict, median.ci95), (Verdict::Undecided, None));
            assert!(median.why.contains("are needed"), "{}", median.why);
        }
        assert_eq!(equivalence(&seeds(&NOISY), &seeds(&[1.0; 7]), 1e9), Verdict::Undecided);
        assert_eq!(ordering(&[("a", &seeds(&NOISY))], 0.0).verdict, Verdict::Undecided);
    }

    #[test]
    fn an_ordering_needs_every_gap_to_exceed_the_margin() {
        let (a, b, c) = (seeds(&NOISY), shifted(&NOISY, 3.0), shifted(&NOISY, 10.0));
        let in_order = [("a", &a), ("b", &b), ("c", &c)];
        assert_eq!(ordering(&in_order, 2.0).verdict, Verdict::Holds);
        assert_eq!(ordering(&in_order, 2.0).ours, 3.0);
        assert_eq!(ordering(&in_order, 3.0).verdict, Verdict::Differs);
        assert_eq!(ordering(&[("b", &b), ("a", &a), ("c", &c)], 0.0).verdict, Verdict::Differs);
        let noisy = seeds(&[90.0, 125.0, 100.0, 129.0, 85.0, 120.0]);
        assert_eq!(ordering(&[("a", &a), ("noisy", &noisy)], 0.0).verdict, Verdict::Undecided);
    }

    #[test]
    fn a_median_holds_by_its_interval_not_by_its_point() {
        let median = |paper, rule| Row::median("q", "u", paper, &seeds(&NOISY), rule).verdict;
        assert_eq!(median(Paper::None, Rule::AtLeast(70.0)), Verdict::Holds);
        assert_eq!(median(Paper::None, Rule::AtLeast(100.0)), Verdict::Undecided);
        assert_eq!(median(Paper::None, Rule::AtLeast(131.0)), Verdict::Differs);
        assert_eq!(median(Paper::None, Rule::AtMost(130.0)), Verdict::Holds);
        assert_eq!(median(Paper::Number(100.0), Rule::Within(0.3)), Verdict::Holds);
        assert_eq!(median(Paper::Number(100.0), Rule::Within(0.2)), Verdict::Undecided);
        assert_eq!(median(Paper::Number(1.0), Rule::Within(0.2)), Verdict::Differs);
        assert_eq!(median(Paper::None, Rule::Within(0.2)), Verdict::NoPaperValue);
    }

    #[test]
    fn seeds_in_which_something_is_not_so_are_named() {
        let answers = |answers: &[Option<bool>]| -> Vec<(String, Option<bool>)> {
            (11..).zip(answers).map(|(seed, answer)| (format!("seed {seed}"), *answer)).collect()
        };
        let row = |seeds: &[Option<bool>], least| Row::in_seeds("q", Paper::None, &answers(seeds), least);
        let mixed = [Some(true), Some(false), Some(true), None];
        let held = row(&mixed, 2);
        assert_eq!((held.verdict, held.ours), (Verdict::Holds, 2.0));
        assert_eq!(
            held.why,
            "true in 2 of 4 seeds, and is to be in at least 2; not in seed 12; no answer from seed 14"
        );
        assert_eq!(row(&mixed, 3).verdict, Verdict::Undecided);
        assert_eq!(row(&mixed, 4).verdict, Verdict::Differs);
        assert_eq!(row(&[], 1).verdict, Verdict::Differs);
    }

    /// Noise around a difference, with a mean of zero and a spread of its own.
    fn centred(noise: &[f64]) -> Vec<f64> {
        let mean = noise.iter().sum::<f64>() / noise.len() as f64;
        noise.iter().map(|value| value - mean).collect()
    }

    fn difference() -> impl Strategy<Value = (Vec<f64>, Vec<f64>, f64)> {
        (6usize..40).prop_flat_map(|seeds| {
            let values = || prop::collection::vec(-100.0..100.0f64, seeds);
            (values(), values(), -60.0..60.0f64)
        })
    }

    proptest! {
        #[test]
        fn noise_never_turns_an_equivalence_that_differs_into_one_that_holds(
            (base, noise, shift) in difference(), spread in 0.0..0.3f64, louder in 0.0..30.0f64, within in 0.1..50.0f64,
        ) {
            let noise = centred(&noise);
            let other = |factor: f64| Seeds::new(base.iter().zip(&noise).map(|(a, e)| Some(a + shift + factor * e)));
            let before = equivalence(&seeds(&base), &other(spread), within);
            let after = equivalence(&seeds(&base), &other(spread + louder), within);
            prop_assert!(!(before == Verdict::Differs && after == Verdict::Holds));
            // More of the same noise never helps either.
            prop_assert!(before == Verdict::Holds || after != Verdict::Holds, "{before:?} {after:?}");
            // A mean outside of the bounds never holds, however quiet or loud.
            prop_assert!(shift.abs() <= within + 1e-9 || after != Verdict::Holds);
        }

        #[test]
        fn removing_seeds_never_turns_what_differs_or_is_undecided_into_what_holds(
            (base, noise, shift) in difference(), within in 0.1..50.0f64, missing in prop::collection::vec(any::<bool>(), 40),
        ) {
            let other: Vec<f64> = base.iter().zip(&noise).map(|(a, e)| a + shift + e).collect();
            let removed = |values: &[f64]| {
                Seeds::new(values.iter().zip(&missing).map(|(value, gone)| (!gone).then_some(*value)))
            };
            let before = [
                equivalence(&seeds(&base), &seeds(&other), within),
                ordering(&[("a", &seeds(&base)), ("b", &seeds(&other))], within).verdict,
                Row::median("q", "u", Paper::None, &seeds(&other), Rule::AtMost(within)).verdict,
            ];
            let after = [
                equivalence(&removed(&base), &seeds(&other), within),
                ordering(&[("a", &removed(&base)), ("b", &removed(&other))], within).verdict,
                Row::median("q", "u", Paper::None, &removed(&other), Rule::AtMost(within)).verdict,
            ];
            for (before, after) in before.into_iter().zip(after) {
                prop_assert!(before == Verdict::Holds || after != Verdict::Holds, "{before:?} {after:?}");
            }
        }

        #[test]
        fn fewer_answers_never_make_more_seeds_true(
            answers in prop::collection::vec(any::<bool>(), 0..30), gone in 0usize..30, at_least in 0usize..30,
        ) {
            let row = |gone: usize| {
                let answer = |(seed, answer): (usize, &bool)| (seed.to_string(), (seed >= gone).then_some(*answer));
                let answers: Vec<_> = answers.iter().enumerate().map(answer).collect();
                Row::in_seeds("q", Paper::None, &answers, at_least).verdict
            };
            prop_assert!(row(0) == Verdict::Holds || row(gone) != Verdict::Holds);
        }
    }
}
