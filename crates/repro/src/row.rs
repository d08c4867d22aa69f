//! Rows: what the paper says, what came out, and whether it holds.

use serde::{Deserialize, Deserializer, Serialize};
use sidestep_results::Estimate;

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
    /// There are too few seeds, or too much noise, to say.
    #[serde(rename = "undecided")]
    Undecided,
    /// The paper gives no value to compare with.
    #[serde(rename = "no paper value")]
    NoPaperValue,
}

/// What decides whether a quantity holds: [`Row::new`] applies it to the mean, [`Row::median`] to the median's interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The value is at most this.
    AtMost(f64),
    /// The value is at least this.
    AtLeast(f64),
    /// The value differs from the paper's number by at most this share of the paper's number.
    Within(f64),
    /// There is nothing to compare with.
    NoPaperValue,
}

impl Row {
    /// The row of a measured quantity, judged by a rule.
    pub fn new(quantity: impl Into<String>, unit: &str, paper: Paper, ours: Estimate, rule: Rule) -> Row {
        let (verdict, why) = rule.judge(&paper, &ours);
        let ci95 = (ours.ci95[0] < ours.ci95[1]).then_some(ours.ci95);
        Row { quantity: quantity.into(), unit: unit.into(), paper, ours: ours.mean, ci95, verdict, why }
    }

    /// The row of a quantity that was measured once, or computed, judged by a rule.
    pub fn single(quantity: impl Into<String>, unit: &str, paper: Paper, ours: f64, rule: Rule) -> Row {
        Row::new(quantity, unit, paper, Estimate { mean: ours, ci95: [ours; 2] }, rule)
    }
}

impl Verdict {
    /// The name in files and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::Undecided => "undecided",
            Verdict::NoPaperValue => "no paper value",
        }
    }
}

impl Rule {
    /// The least and the greatest value that hold; `None` where there is nothing to compare with.
    pub(crate) fn allowed(&self, paper: &Paper) -> Option<[f64; 2]> {
        match (self, paper) {
            (Rule::AtMost(limit), _) => Some([f64::NEG_INFINITY, *limit]),
            (Rule::AtLeast(limit), _) => Some([*limit, f64::INFINITY]),
            (Rule::Within(share), Paper::Number(number)) => {
                Some([number - share * number.abs(), number + share * number.abs()])
            }
            _ => None,
        }
    }

    fn judge(&self, paper: &Paper, ours: &Estimate) -> (Verdict, String) {
        let mean = ours.mean;
        let verdict = |holds| if holds { Verdict::Holds } else { Verdict::Differs };
        match self {
            Rule::AtMost(limit) => (verdict(mean <= *limit), format!("{mean:.1} is to be at most {limit}")),
            Rule::AtLeast(limit) => (verdict(mean >= *limit), format!("{mean:.1} is to be at least {limit}")),
            Rule::Within(share) => match paper {
                Paper::Number(number) => {
                    let apart = (mean - number).abs() / number.abs();
                    let percent = 100.0 * share;
                    let why = format!(
                        "{mean:.2} is to be within {percent:.0} % of {number}, and is {:.1} % off",
                        100.0 * apart
                    );
                    (verdict(apart <= *share), why)
                }
                _ => (Verdict::NoPaperValue, "the paper gives no number".into()),
            },
            Rule::NoPaperValue => (Verdict::NoPaperValue, "there is no number of the paper to compare with".into()),
        }
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
        let ours = estimate(100.0, 2.0);
        let text = || Paper::Text("about".into());
        assert_eq!(judge(text(), ours, Rule::AtMost(100.0)), Verdict::Holds);
        assert_eq!(judge(text(), ours, Rule::AtMost(99.0)), Verdict::Differs);
        assert_eq!(judge(text(), ours, Rule::AtLeast(100.0)), Verdict::Holds);
        assert_eq!(judge(text(), ours, Rule::AtLeast(101.0)), Verdict::Differs);
        assert_eq!(judge(Paper::Number(110.0), ours, Rule::Within(0.1)), Verdict::Holds);
        assert_eq!(judge(Paper::Number(112.0), ours, Rule::Within(0.1)), Verdict::Differs);
        assert_eq!(judge(text(), ours, Rule::Within(0.1)), Verdict::NoPaperValue);
        assert_eq!(judge(Paper::None, ours, Rule::NoPaperValue), Verdict::NoPaperValue);
    }

    #[test]
    fn a_row_is_printed_as_scripts_expect_it() {
        let row =
            Row::new("goodput", "Mbit/s", Paper::Text("> 500".into()), estimate(513.0, 1.5), Rule::AtLeast(500.0));
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            "{\"quantity\":\"goodput\",\"unit\":\"Mbit/s\",\"paper\":\"> 500\",\"ours\":513.0,\"ci95\":[511.5,514.5],\
             \"verdict\":\"holds\",\"why\":\"513.0 is to be at least 500\"}"
        );
        let single = Row::new("q", "u", Paper::None, estimate(1.0, 0.0), Rule::NoPaperValue);
        let json = serde_json::to_value(&single).unwrap();
        assert!(json["paper"].is_null() && json["ci95"].is_null() && json["verdict"] == "no paper value");
    }

    #[test]
    fn every_verdict_is_written_by_its_name_and_a_row_without_a_value_reads_back() {
        for verdict in [Verdict::Holds, Verdict::Differs, Verdict::Undecided, Verdict::NoPaperValue] {
            let row = Row { verdict, ..Row::new("q", "u", Paper::None, estimate(f64::NAN, 0.0), Rule::AtMost(1.0)) };
            let json = serde_json::to_string(&row).unwrap();
            assert!(json.contains(&format!("\"verdict\":\"{}\"", verdict.as_str())), "{json}");
            let read: Row = serde_json::from_str(&json).unwrap();
            assert!(read.ours.is_nan() && read.verdict == verdict);
        }
    }
}
