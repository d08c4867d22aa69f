//! How a policy did altogether.

use serde::Serialize;

use crate::{BASELINES, CaseResult, Class, Comparison, Verdict};

/// How a policy did altogether, by baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The policy.
    pub policy: String,
    /// Beside each baseline; a baseline is not compared with itself.
    pub against: Vec<Count>,
}

/// How often a policy wins and loses against a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// The baseline.
    pub baseline: &'static str,
    /// Cases and judged measures in which the policy loses, such as `equal-long goodput_mbps`.
    pub losses: Vec<String>,
    /// Those that are undecided and leave open that the policy loses by more than the margin.
    pub open: Vec<String>,
    /// How many are undecided in all.
    pub undecided: usize,
    /// How many cases and judged measures there are.
    pub judgements: usize,
    /// Cases in which paths differ, fail or shift.
    pub uneven: usize,
    /// Of these, how many the policy wins by the primary measure.
    pub uneven_wins: usize,
    /// Of the other cases, how many the policy wins by the primary measure.
    pub alike_wins: usize,
}

impl Summary {
    /// Counts the verdicts of a policy.
    pub fn of(policy: &str, cases: &[CaseResult]) -> Summary {
        let others = BASELINES.into_iter().filter(|baseline| *baseline != policy);
        Summary { policy: policy.into(), against: others.map(|baseline| Count::of(policy, baseline, cases)).collect() }
    }

    /// Whether the policy is shown to lose nowhere.
    pub fn never_loses(&self) -> bool {
        !self.against.is_empty() && self.against.iter().all(|count| count.losses.is_empty() && count.open.is_empty())
    }

    /// The summary in words, after the policy's name.
    pub fn words(&self) -> String {
        let each = |words: &dyn Fn(&Count) -> String| -> String {
            let parts: Vec<String> = self.against.iter().map(words).collect();
            parts.join(", ")
        };
        let uneven = self.against.first().map_or(0, |count| count.uneven);
        let mut text = format!("loses {}", each(&|count| format!("to {} {}", count.name(), times(count.losses.len()))));
        if uneven > 0 {
            let wins = each(&|count| format!("{} against {}", count.uneven_wins, count.name()));
            text += &format!("; of {uneven} cases where paths differ, fail or shift it wins {wins}");
        }
        let open: usize = self.against.iter().map(|count| count.open.len()).sum();
        let undecided: usize = self.against.iter().map(|count| count.undecided).sum();
        match open {
            0 => text + &format!("; {undecided} undecided, none of which can be a loss"),
            _ => text + &format!("; {undecided} undecided, of which {open} may be losses"),
        }
    }
}

impl Count {
    fn of(policy: &str, baseline: &'static str, cases: &[CaseResult]) -> Count {
        let mut count = Count {
            baseline,
            losses: Vec::new(),
            open: Vec::new(),
            undecided: 0,
            judgements: 0,
            uneven: 0,
            uneven_wins: 0,
            alike_wins: 0,
        };
        for case in cases {
            let Some(result) = case.policies.iter().find(|one| one.policy == policy) else { continue };
            let judged = || case.judged.iter().filter_map(|measure| result.against(baseline, *measure));
            let wins = judged().next().is_some_and(|primary| primary.verdict == Verdict::Win);
            if case.class == Class::Alike {
                count.alike_wins += usize::from(wins);
            } else {
                count.uneven += 1;
                count.uneven_wins += usize::from(wins);
            }
            for one in judged() {
                count.add(&case.name, one);
            }
        }
        count
    }

    fn add(&mut self, case: &str, one: &Comparison) {
        self.judgements += 1;
        self.undecided += usize::from(one.verdict == Verdict::Undecided);
        let name = || format!("{case} {}", one.measure.as_str());
        if one.verdict == Verdict::Loss {
            self.losses.push(name());
        } else if one.may_lose() {
            self.open.push(name());
        }
    }

    /// The baseline in words.
    pub fn name(&self) -> &'static str {
        sidestep_systems::simulator().catalogue().spoken(self.baseline)
    }
}

fn times(count: usize) -> String {
    match count {
        0 => "nowhere".into(),
        1 => "once".into(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Measure, PolicyResult, Set};

    fn case(name: &'static str, class: Class, verdicts: [(Verdict, [f64; 2]); 2]) -> CaseResult {
        let judged: &[Measure] = &[Measure::Mean, Measure::P99];
        let against = BASELINES.into_iter().flat_map(|baseline| {
            judged.iter().zip(verdicts).map(move |(measure, (verdict, ci95))| Comparison {
                baseline: baseline.into(),
                measure: *measure,
                ratio: Some(1.0),
                ci95: Some(ci95),
                verdict,
            })
        });
        let policy =
            PolicyResult { policy: "p".into(), measures: Default::default(), against: against.collect(), regret: None };
        CaseResult {
            name: name.into(),
            purpose: "".into(),
            set: Set::Tuning,
            class,
            judged,
            policies: vec![policy],
            best_fixed: None,
        }
    }

    const WIN: (Verdict, [f64; 2]) = (Verdict::Win, [1.1, 1.2]);
    const LOSS: (Verdict, [f64; 2]) = (Verdict::Loss, [0.8, 0.9]);
    const HARMLESS: (Verdict, [f64; 2]) = (Verdict::Undecided, [0.97, 1.2]);
    const OPEN: (Verdict, [f64; 2]) = (Verdict::Undecided, [0.9, 1.2]);

    #[test]
    fn losses_are_counted_by_measure_and_wins_by_case() {
        let cases = [
            case("a", Class::Alike, [WIN, LOSS]),
            case("b", Class::Differ, [WIN, HARMLESS]),
            case("c", Class::Shift, [HARMLESS, WIN]),
        ];
        let summary = Summary::of("p", &cases);
        let count = &summary.against[0];
        assert_eq!(count.losses, ["a p99_s"]);
        assert_eq!((count.judgements, count.undecided, count.open.len()), (6, 2, 0));
        assert_eq!((count.uneven, count.uneven_wins, count.alike_wins), (2, 1, 1));
        assert!(!summary.never_loses());
        let expected = "loses to random once, to plain TCP once, to ECMP once; of 2 cases where paths differ, fail or shift \
                        it wins 1 against random, 1 against plain TCP, 1 against ECMP; 6 undecided, none of which can be a loss";
        assert_eq!(summary.words(), expected);
    }

    #[test]
    fn never_loses_holds_only_if_nothing_open_may_be_a_loss() {
        let of = |verdicts| Summary::of("p", &[case("a", Class::Failure, verdicts)]).never_loses();
        assert!(of([WIN, HARMLESS]));
        assert!(!of([WIN, OPEN]));
        assert!(!of([LOSS, WIN]));
        assert!(!Summary::of("nobody", &[]).against[0].losses.iter().any(|_| true));
    }
}
