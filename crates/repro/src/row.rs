//! Rows: what the paper says, what came out, and whether it holds.

use serde::{Deserialize, Serialize};
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
    /// What came out.
    pub ours: f64,
    /// Its 95 % confidence interval; `None` of a single run.
    pub ci95: Option<[f64; 2]>,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The rule in words, with the numbers.
    pub why: String,
}

/// What a paper says of a quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Paper {
    /// A number.
    Number(f64),
    /// In words.
    Text(String),
    /// Nothing.
    None,
}

/// Whether ours agrees with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It does.
    #[serde(rename = "holds")]
    Holds,
    /// It does not.
    #[serde(rename = "differs")]
    Differs,
    /// The paper says nothing of it.
    #[serde(rename = "no paper value")]
    NoPaperValue,
}

/// What decides whether a quantity holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule<'a> {
    /// It is at most this.
    AtMost(f64),
    /// It is at least this.
    AtLeast(f64),
    /// It differs from the paper's number by at most this share of that.
    Within(f64),
    /// Its confidence interval and each of these have a value in common.
    NoDifferenceFrom(&'a [Estimate]),
    /// There is nothing to compare with.
    NoPaperValue,
}

impl Row {
    /// The row of a measured quantity, judged by a rule.
    pub fn new(quantity: impl Into<String>, unit: &str, paper: Paper, ours: Estimate, rule: Rule<'_>) -> Row {
        let (verdict, why) = rule.judge(&paper, &ours);
        let ci95 = (ours.ci95[0] < ours.ci95[1]).then_some(ours.ci95);
        Row { quantity: quantity.into(), unit: unit.into(), paper, ours: ours.mean, ci95, verdict, why }
    }
}

impl Verdict {
    /// The name in files and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::NoPaperValue => "no paper value",
        }
    }
}

impl Rule<'_> {
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
            Rule::NoDifferenceFrom(others) => {
                let apart = others.iter().filter(|other| !ours.overlaps(other)).count();
                let why = match apart {
                    0 => format!("its confidence interval overlaps all {} others", others.len()),
                    _ => format!("its confidence interval is apart from {apart} of {} others", others.len()),
                };
                (verdict(apart == 0), why)
            }
            Rule::NoPaperValue => (Verdict::NoPaperValue, "there is no number of the paper to compare with".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(mean: f64, half: f64) -> Estimate {
        Estimate { mean, ci95: [mean - half, mean + half] }
    }

    fn judge(paper: Paper, ours: Estimate, rule: Rule<'_>) -> Verdict {
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
        let near = [estimate(103.0, 2.0), estimate(97.0, 1.5)];
        assert_eq!(judge(text(), ours, Rule::NoDifferenceFrom(&near)), Verdict::Holds);
        assert_eq!(judge(text(), ours, Rule::NoDifferenceFrom(&[estimate(110.0, 2.0)])), Verdict::Differs);
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
}
