//! Rows: what the paper says, what came out, and whether it holds.

use serde::{Deserialize, Deserializer, Serialize};
use sidestep_results::Estimate;

use crate::seeds;

/// One quantity of a table or figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What is measured.
    pub quantity: String,
    /// In which unit.
    pub unit: String,
    /// What the paper says.
    pub paper: Paper,
    /// What came out; not a number where nothing was measured, which JSON has as `null`.
    #[serde(deserialize_with = "number_or_null")]
    pub ours: f64,
    /// The 95 % confidence interval of `ours`; `None` of a single run.
    pub ci95: Option<[f64; 2]>,
    /// Whether ours agrees with the paper's.
    pub verdict: Verdict,
    /// The rule in words, with the numbers.
    pub why: String,
}

/// What a paper says about a quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Paper {
    /// A number.
    Number(f64),
    /// In words.
    Text(String),
    /// The paper gives no value.
    None,
}

/// Whether ours agrees with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Ours agrees.
    #[serde(rename = "holds")]
    Holds,
    /// Ours disagrees.
    #[serde(rename = "differs")]
    Differs,
    /// There are too few seeds, or too much noise, to decide.
    #[serde(rename = "undecided")]
    Undecided,
    /// The paper gives no value to compare with.
    #[serde(rename = "no paper value")]
    NoPaperValue,
    /// The paper gives a value, and ours is not of a kind that can be judged by it.
    #[serde(rename = "no verdict")]
    NoVerdict,
}

/// What decides whether a quantity holds: [`Row::new`] and [`Row::median`] apply it to the whole interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The value is at most this.
    AtMost(f64),
    /// The value is at least this.
    AtLeast(f64),
    /// The value differs from the paper's number by at most this share of the paper's number.
    Within(f64),
    /// The value differs from the paper's number by at most this, in the quantity's unit.
    Near(f64),
    /// The value lies between these.
    Between(f64, f64),
    /// There is nothing to compare with.
    NoPaperValue,
    /// There is something to compare with, and this is why no verdict is given.
    Unjudged(&'static str),
}

impl Row {
    /// The row of a quantity that lies in an interval, judged by a rule: an interval across a bound decides nothing.
    pub fn new(quantity: impl Into<String>, unit: &str, paper: Paper, ours: Estimate, rule: Rule) -> Row {
        let (verdict, why) = rule.judge(&paper, &ours);
        let ci95 = (ours.ci95[0] < ours.ci95[1]).then_some(ours.ci95);
        Row { quantity: quantity.into(), unit: unit.into(), paper, ours: ours.mean, ci95, verdict, why }
    }

    /// The row of a quantity without an interval, where `lack` is what it takes to have one: a rule for it is undecided.
    pub fn undecided(
        quantity: impl Into<String>,
        unit: &str,
        paper: Paper,
        ours: f64,
        rule: Rule,
        lack: String,
    ) -> Row {
        let judged = rule.allowed(&paper).is_some();
        let (verdict, why) = if judged { (Verdict::Undecided, lack) } else { rule.without() };
        Row { quantity: quantity.into(), unit: unit.into(), paper, ours, ci95: None, verdict, why }
    }

    /// A check of our own computation, which the paper says nothing about: no verdict where `ours` is at most `most`, else one
    /// that no reader overlooks.
    pub fn self_check(quantity: impl Into<String>, unit: &str, ours: f64, most: f64) -> Row {
        let passed = ours <= most;
        let verdict = if passed { Verdict::NoPaperValue } else { Verdict::Differs };
        let outcome = if passed { "passed" } else { "FAILED" };
        let why = format!("a check of our own, {outcome}: {ours:.3} must be at most {most}");
        Row { quantity: quantity.into(), unit: unit.into(), paper: Paper::None, ours, ci95: None, verdict, why }
    }

    /// The row that says how often a mechanism acted: where it never did, what is measured of it says nothing.
    pub fn acted(quantity: impl Into<String>, times: f64) -> Row {
        let (verdict, why) = match times > 0.0 {
            true => (Verdict::NoPaperValue, "it acted"),
            false => (Verdict::Undecided, "it NEVER acted: what is measured of it says nothing"),
        };
        let (quantity, unit, why) = (quantity.into(), String::new(), why.into());
        Row { quantity, unit, paper: Paper::None, ours: times, ci95: None, verdict, why }
    }

    /// This row as an expectation of our own, which no paper states: no verdict where it is met, else the one that it has.
    #[must_use]
    pub fn of_our_own(self) -> Row {
        let (verdict, outcome) = match self.verdict {
            Verdict::Holds => (Verdict::NoPaperValue, "met"),
            Verdict::Differs => (Verdict::Differs, "NOT met"),
            other => (other, "not decided"),
        };
        Row { verdict, why: format!("an expectation of our own, {outcome}: {}", self.why), ..self }
    }

    /// The row of a quantity that was measured once, or computed, judged by a rule.
    pub fn single(quantity: impl Into<String>, unit: &str, paper: Paper, ours: f64, rule: Rule) -> Row {
        Row::new(quantity, unit, paper, Estimate { mean: ours, ci95: [ours; 2] }, rule)
    }
}

impl Verdict {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Verdict; 5] =
        [Verdict::Holds, Verdict::Differs, Verdict::Undecided, Verdict::NoVerdict, Verdict::NoPaperValue];

    /// The name in files and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::Undecided => "undecided",
            Verdict::NoPaperValue => "no paper value",
            Verdict::NoVerdict => "no verdict",
        }
    }
}

impl Rule {
    /// The least and the greatest value that hold; `None` where there is nothing to compare with.
    pub(crate) fn allowed(&self, paper: &Paper) -> Option<[f64; 2]> {
        match (self, paper) {
            (Rule::AtMost(limit), _) => Some([f64::NEG_INFINITY, *limit]),
            (Rule::Between(least, most), _) => Some([*least, *most]),
            (Rule::AtLeast(limit), _) => Some([*limit, f64::INFINITY]),
            (Rule::Within(share), Paper::Number(number)) => {
                Some([number - share * number.abs(), number + share * number.abs()])
            }
            (Rule::Near(within), Paper::Number(number)) => Some([number - within, number + within]),
            _ => None,
        }
    }

    /// The verdict of a rule that allows nothing, and why.
    pub(crate) fn without(&self) -> (Verdict, String) {
        match self {
            Rule::Unjudged(why) => (Verdict::NoVerdict, (*why).into()),
            _ => (Verdict::NoPaperValue, "there is no number of the paper to compare with".into()),
        }
    }

    fn judge(&self, paper: &Paper, ours: &Estimate) -> (Verdict, String) {
        let Some(allowed) = self.allowed(paper) else { return self.without() };
        let [low, high] = ours.ci95;
        let verdict = seeds::judge(ours.ci95, allowed);
        let measured = if low < high { format!("{low:.3} to {high:.3}") } else { format!("{:.3}", ours.mean) };
        (verdict, format!("{measured} is to lie {}", seeds::words(allowed)))
    }
}

fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(mean: f64, half: f64) -> Estimate {
        Estimate { mean, ci95: [mean - half, mean + half] }
    }

    fn judge(paper: Paper, ours: Estimate, rule: Rule) -> Verdict {
        Row::new("q", "u", paper, ours, rule).verdict
    }

    #[test]
    fn each_rule_can_hold_and_differ() {
        let ours = estimate(100.0, 0.0);
        let text = || Paper::Text("about".into());
        assert_eq!(judge(text(), ours, Rule::AtMost(100.0)), Verdict::Holds);
        assert_eq!(judge(text(), ours, Rule::AtMost(99.0)), Verdict::Differs);
        assert_eq!(judge(text(), ours, Rule::AtLeast(100.0)), Verdict::Holds);
        assert_eq!(judge(text(), ours, Rule::AtLeast(101.0)), Verdict::Differs);
        assert_eq!(judge(Paper::Number(110.0), ours, Rule::Within(0.1)), Verdict::Holds);
        assert_eq!(judge(Paper::Number(112.0), ours, Rule::Within(0.1)), Verdict::Differs);
        assert_eq!(judge(Paper::Number(104.0), ours, Rule::Near(5.0)), Verdict::Holds);
        assert_eq!(judge(Paper::Number(106.0), ours, Rule::Near(5.0)), Verdict::Differs);
        assert_eq!(judge(text(), ours, Rule::Unjudged("it is scaled")), Verdict::NoVerdict);
        assert_eq!(judge(text(), ours, Rule::Within(0.1)), Verdict::NoPaperValue);
        assert_eq!(judge(Paper::None, ours, Rule::NoPaperValue), Verdict::NoPaperValue);
    }

    #[test]
    fn an_interval_across_a_bound_decides_nothing() {
        let text = || Paper::Text("about".into());
        assert_eq!(judge(text(), estimate(99.0, 0.5), Rule::AtMost(100.0)), Verdict::Holds);
        assert_eq!(judge(text(), estimate(99.0, 2.0), Rule::AtMost(100.0)), Verdict::Undecided);
        assert_eq!(judge(text(), estimate(101.0, 2.0), Rule::AtMost(100.0)), Verdict::Undecided);
        assert_eq!(judge(text(), estimate(103.0, 2.0), Rule::AtMost(100.0)), Verdict::Differs);
        assert_eq!(judge(Paper::Number(100.0), estimate(100.0, 11.0), Rule::Within(0.1)), Verdict::Undecided);
    }

    #[test]
    fn a_check_of_our_own_never_holds_and_shows_when_it_fails() {
        assert_eq!(Row::self_check("gap", "", 0.5, 1.0).verdict, Verdict::NoPaperValue);
        let failed = Row::self_check("gap", "", 1.5, 1.0);
        assert!(failed.verdict == Verdict::Differs && failed.why.contains("FAILED"), "{}", failed.why);
        assert_eq!(Row::self_check("gap", "", f64::NAN, 1.0).verdict, Verdict::Differs);
        assert_eq!(
            [0.0, 1.0].map(|times| Row::acted("moves", times).verdict),
            [Verdict::Undecided, Verdict::NoPaperValue]
        );
        let own = |ours: Estimate| Row::new("q", "u", Paper::Text("ours".into()), ours, Rule::AtMost(1.0)).of_our_own();
        let [met, missed, open] = [estimate(0.5, 0.1), estimate(2.0, 0.1), estimate(1.0, 0.5)].map(own);
        assert_eq!((met.verdict, met.why.contains(", met: ")), (Verdict::NoPaperValue, true));
        assert_eq!((missed.verdict, missed.why.contains("NOT met")), (Verdict::Differs, true));
        assert_eq!(open.verdict, Verdict::Undecided);
    }

    #[test]
    fn a_row_is_printed_as_scripts_expect_it() {
        let row =
            Row::new("goodput", "Mbit/s", Paper::Text("> 500".into()), estimate(513.0, 1.5), Rule::AtLeast(500.0));
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            "{\"quantity\":\"goodput\",\"unit\":\"Mbit/s\",\"paper\":\"> 500\",\"ours\":513.0,\"ci95\":[511.5,514.5],\
             \"verdict\":\"holds\",\"why\":\"511.500 to 514.500 is to lie above 500.000\"}"
        );
        let single = Row::new("q", "u", Paper::None, estimate(1.0, 0.0), Rule::NoPaperValue);
        let json = serde_json::to_value(&single).unwrap();
        assert!(json["paper"].is_null() && json["ci95"].is_null() && json["verdict"] == "no paper value");
    }

    #[test]
    fn every_verdict_is_written_by_its_name_and_a_row_without_a_value_reads_back() {
        for verdict in Verdict::ALL {
            let row = Row { verdict, ..Row::new("q", "u", Paper::None, estimate(f64::NAN, 0.0), Rule::AtMost(1.0)) };
            let json = serde_json::to_string(&row).unwrap();
            assert!(json.contains(&format!("\"verdict\":\"{}\"", verdict.as_str())), "{json}");
            let read: Row = serde_json::from_str(&json).unwrap();
            assert!(read.ours.is_nan() && read.verdict == verdict);
        }
    }
}
