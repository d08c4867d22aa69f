//! The sentences of the demonstration, from what it measured: when one needs which.

use serde::Serialize;
use sidestep_results::{Estimate, RunResult};

use super::{
    compared::{Transfers, When},
    names::spoken,
};

/// In one run, values nearer than this share are no difference.
const ALIKE: f64 = 0.05;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Goodput over equal paths, in Mbit/s.
    EqualPaths,
    /// Goodput of the slowest connection there, in Mbit/s.
    SlowestConnection,
    /// Mean time of transfers over unlike paths, in seconds.
    UnlikePaths,
    /// The same until the best path died.
    BeforeTheFailure,
}

/// What was measured of the path changer beside another system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What is compared.
    pub case: Case,
    /// The other system.
    pub other: &'static str,
    /// The path changer's value.
    pub pathchanger: f64,
    /// The other's.
    pub value: f64,
    /// How far the path changer is above it, paired by the seconds of the run; null where only the means are compared.
    pub difference: Option<Estimate>,
    /// What that means for the path changer.
    pub says: Finding,
}

/// How the path changer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Better than the other.
    Better,
    /// Worse.
    Worse,
    /// As well, as far as this run shows.
    NoDifference,
}

/// The path changer beside dice and plain TCP in both parts, and beside ECMP in the first; what was not measured is left out.
pub fn verdicts(equal: &RunResult, unlike: &RunResult, transfers: &Transfers) -> Vec<Verdict> {
    let goodput = |name: &str| {
        let system = equal.systems.get(name)?;
        let mean = system.repeated.as_ref().map_or(system.goodput_mbps, |seeds| seeds.goodput_mbps.mean);
        Some(mean).filter(|mbps| mbps.is_finite())
    };
    let carried = |other| {
        let (own, value) = (goodput("pathchanger")?, goodput(other)?);
        Some(Verdict::new(Case::EqualPaths, other, own, value, None))
    };
    let slowest = |other| {
        let of = |name: &str| {
            let system = equal.systems.get(name)?;
            let mean = system.repeated.as_ref().and_then(|seeds| seeds.goodput_mbps_min).map(|mbps| mbps.mean);
            mean.or(system.goodput_mbps_min)
        };
        Some(Verdict::new(Case::SlowestConnection, other, of("pathchanger")?, of(other)?, None))
    };
    let took = |case, other, when| {
        unlike.systems.get(other)?;
        let (own, value) = (transfers.mean("pathchanger", when)?, transfers.mean(other, when)?);
        Some(Verdict::new(case, other, own, value, transfers.difference("pathchanger", other, when)))
    };
    let all = [
        carried("random"),
        carried("tcp"),
        carried("ecmp"),
        slowest("ecmp"),
        took(Case::UnlikePaths, "random", When::Whole),
        took(Case::UnlikePaths, "tcp", When::Whole),
        took(Case::BeforeTheFailure, "random", When::Before),
        took(Case::BeforeTheFailure, "tcp", When::Before),
    ];
    all.into_iter().flatten().collect()
}

impl Case {
    fn is_goodput(self) -> bool {
        matches!(self, Case::EqualPaths | Case::SlowestConnection)
    }
}

impl Verdict {
    fn new(case: Case, other: &'static str, pathchanger: f64, value: f64, difference: Option<Estimate>) -> Self {
        let above = pathchanger - value;
        let is_near = above.abs() <= ALIKE * value.abs().max(pathchanger.abs());
        let is_sure = difference.is_none_or(|of| of.ci95[0] > 0.0 || of.ci95[1] < 0.0);
        let more_is_better = case.is_goodput();
        let says = match (is_near || !is_sure, (above > 0.0) == more_is_better) {
            (true, _) => Finding::NoDifference,
            (false, true) => Finding::Better,
            (false, false) => Finding::Worse,
        };
        Verdict { case, other, pathchanger, value, difference, says }
    }

    /// The path changer's value in words.
    fn own(&self) -> String {
        self.amount(self.pathchanger)
    }

    /// The other's value in words.
    fn others(&self) -> String {
        self.amount(self.value)
    }

    fn amount(&self, value: f64) -> String {
        match (self.case.is_goodput(), value) {
            (true, _) => format!("{value:.1} Mbit/s"),
            (false, ..0.9995) => format!("{:.0} ms", value * 1e3),
            (false, _) => format!("{value:.1} s"),
        }
    }
}

fn find<'a>(verdicts: &'a [Verdict], case: Case, other: &str) -> Option<&'a Verdict> {
    verdicts.iter().find(|one| one.case == case && one.other == other)
}

/// The sentence that explains when one needs which, by what was measured here.
pub fn lesson(verdicts: &[Verdict]) -> String {
    let mut parts = Vec::new();
    if let Some(dice) = find(verdicts, Case::UnlikePaths, "random") {
        let tcp = find(verdicts, Case::UnlikePaths, "tcp");
        let tcp = tcp.map_or(String::new(), |tcp| format!(", {} with plain TCP", tcp.others()));
        let measured = format!("{} on average for a transfer, {} with dice{tcp}", dice.own(), dice.others());
        parts.push(match dice.says {
            Finding::Better => format!("Use the path changer where paths differ or die silently ({measured})"),
            Finding::NoDifference => {
                format!("Where paths differ and one dies silently, learning made no difference to dice ({measured})")
            }
            Finding::Worse => format!("Where paths differ and one dies silently, dice were better here ({measured})"),
        });
    }
    if let Some(dice) = find(verdicts, Case::EqualPaths, "random") {
        let tcp = find(verdicts, Case::EqualPaths, "tcp")
            .map_or(String::new(), |tcp| format!(", plain TCP {}", tcp.others()));
        let measured = format!("{} and {}{tcp}", dice.own(), dice.others());
        parts.push(match dice.says {
            Finding::Better => format!("also where paths are alike it carried more than dice ({measured})"),
            Finding::NoDifference => {
                format!("where paths are alike there is no difference between it and dice ({measured})")
            }
            Finding::Worse => format!("where paths are alike dice carried more ({measured})"),
        });
    }
    if let Some(ecmp) = find(verdicts, Case::EqualPaths, "ecmp") {
        let carried = match ecmp.says {
            Finding::Better => "ECMP carries less there",
            Finding::NoDifference => "ECMP does as well there",
            Finding::Worse => "ECMP carries more there",
        };
        let slowest = find(verdicts, Case::SlowestConnection, "ecmp").map_or(String::new(), |slowest| {
            format!("; its slowest connection has {}, the path changer's {}", slowest.others(), slowest.own())
        });
        parts.push(format!("{carried} ({}{slowest})", ecmp.others()));
    }
    if let Some(tcp) = find(verdicts, Case::BeforeTheFailure, "tcp") {
        let measured = format!("{} until that path died, {} with the path changer", tcp.others(), tcp.own());
        parts.push(match tcp.says {
            Finding::Better => {
                format!("and even while one good path had room for all, plain TCP was slower ({measured})")
            }
            Finding::NoDifference | Finding::Worse => {
                format!("and plain TCP is enough while one good path has room for all ({measured})")
            }
        });
    }
    match parts.is_empty() {
        true => "Nothing was measured that could be compared.".into(),
        false => parts.join("; ") + ".",
    }
}

/// The sentences on the first two parts.
pub fn parts(verdicts: &[Verdict]) -> [String; 2] {
    let told = |case, other: &'static str| find(verdicts, case, other).map(|one| one.told()).into_iter();
    let all = |case| told(case, "random").chain(told(case, "tcp")).chain(told(case, "ecmp"));
    let before: Vec<String> = all(Case::BeforeTheFailure).collect();
    let before = match before.is_empty() {
        true => String::new(),
        false => format!(" Until the best path died: {}.", before.join("; ")),
    };
    let sentence = |told: Vec<String>| if told.is_empty() { String::new() } else { told.join("; ") + "." };
    let slowest = find(verdicts, Case::SlowestConnection, "ecmp")
        .map_or(String::new(), |slowest| format!(" The slowest connection: {}.", slowest.told()));
    let equal = capital(sentence(all(Case::EqualPaths).collect())) + &slowest;
    [equal, capital(sentence(all(Case::UnlikePaths).collect())) + &before]
}

impl Verdict {
    fn told(&self) -> String {
        let (own, others, other) = (self.own(), self.others(), spoken(self.other));
        let measured = format!("{own} with the path changer, {others} with {other}");
        let (less, more) =
            if self.pathchanger < self.value { (self.pathchanger, self.value) } else { (self.value, self.pathchanger) };
        let times = if less > 0.0 { format!("{:.1} ×", more / less) } else { "far".to_owned() };
        match self.says {
            Finding::NoDifference => format!("no difference: {measured}"),
            Finding::Better if self.case.is_goodput() => format!("{times} as much: {measured}"),
            Finding::Worse if self.case.is_goodput() => format!("less: {measured}"),
            Finding::Better => format!("{times} as fast: {measured}"),
            Finding::Worse => format!("{times} as long: {measured}"),
        }
    }
}

fn capital(text: String) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use sidestep_results::{SystemResult, World};

    use super::{super::compared::tests::transfers, *};

    fn runs(goodput: [f64; 4]) -> [RunResult; 2] {
        let mut run = RunResult::new("a", World::Lab, 1);
        for (name, goodput_mbps) in ["tcp", "random", "pathchanger", "ecmp"].into_iter().zip(goodput) {
            // Under ECMP shares differ more.
            let goodput_mbps_min = Some(goodput_mbps / if name == "ecmp" { 50.0 } else { 20.0 });
            run.systems.insert(name, SystemResult { goodput_mbps, goodput_mbps_min, ..SystemResult::default() });
        }
        [run.clone(), run]
    }

    fn told(goodput: [f64; 4], took: &dyn Fn(&str, f64) -> f64) -> (Vec<Finding>, String, [String; 2]) {
        let [equal, unlike] = runs(goodput);
        let verdicts = verdicts(&equal, &unlike, &transfers(took));
        (verdicts.iter().map(|one| one.says).collect(), lesson(&verdicts), parts(&verdicts))
    }

    /// Some noise that all systems share, and some that they do not.
    fn noisy(system: &str, start: f64, mean: f64) -> f64 {
        mean * (1.0 + 0.2 * (3.0 * start).sin() + 0.1 * (7.0 * start + system.len() as f64).cos())
    }

    #[test]
    fn where_all_is_as_it_usually_is_each_has_its_place() {
        let took = |system: &str, start: f64| match (system, start < 10.0) {
            ("tcp", false) => 20.0 - start,
            ("random", _) => noisy(system, start, 1.4),
            (_, true) => noisy("", start, 0.04),
            (_, false) => noisy("", start, 0.1),
        };
        let (says, lesson, [equal, unlike]) = told([20.0, 93.6, 93.4, 95.0], &took);
        use Finding::{Better, NoDifference};
        assert_eq!(says, [NoDifference, Better, NoDifference, Better, Better, Better, Better, NoDifference]);
        for wanted in [
            "Use the path changer where paths differ or die silently (",
            " ms on average for a transfer, 1.",
            " s with plain TCP); where paths are alike there is no difference between it and dice (93.4 Mbit/s and 93.6 Mbit/s, \
             plain TCP 20.0 Mbit/s); ECMP does as well there (95.0 Mbit/s; its slowest connection has 1.9 Mbit/s, the path \
             changer's 4.7 Mbit/s); and plain TCP is enough while one good path has room for all (",
            " ms until that path died, ",
        ] {
            assert!(lesson.contains(wanted), "no `{wanted}` in {lesson}");
        }
        assert!(lesson.ends_with(" ms with the path changer).") && !lesson.contains(". "), "one sentence: {lesson}");
        assert!(
            equal.starts_with("No difference: 93.4 Mbit/s with the path changer, 93.6 Mbit/s with dice; 4.7 × as much"),
            "{equal}"
        );
        let slowest = "95.0 Mbit/s with ECMP. The slowest connection: 2.5 × as much: 4.7 Mbit/s with the path changer, 1.9 Mbit/s \
                       with ECMP.";
        assert!(equal.ends_with(slowest), "{equal}");
        assert!(unlike.contains("× as fast") && unlike.contains("Until the best path died: "), "{unlike}");
    }

    #[test]
    fn what_noise_may_explain_is_no_difference_and_what_is_worse_is_reported_as_such() {
        let (says, lesson, _) = told([20.0, 93.6, 93.4, 80.0], &|system, start| noisy(system, start, 0.5));
        assert_eq!(says[4..], [Finding::NoDifference; 4]);
        assert_eq!(says[2], Finding::Better);
        assert!(lesson.contains("ECMP carries less there (80.0 Mbit/s; "), "{lesson}");
        assert!(
            lesson.starts_with("Where paths differ and one dies silently, learning made no difference to dice"),
            "{lesson}"
        );
        let took = |system: &str, start: f64| noisy("", start, if system == "pathchanger" { 2.0 } else { 0.5 });
        let (says, lesson, [equal, unlike]) = told([100.0, 90.0, 50.0, 120.0], &took);
        let but_the_slowest = says.iter().enumerate().filter(|(index, _)| *index != 3).map(|(_, says)| *says);
        assert_eq!(but_the_slowest.collect::<Vec<_>>(), [Finding::Worse; 7]);
        assert!(lesson.contains("ECMP carries more there (120.0 Mbit/s; "), "{lesson}");
        assert!(lesson.contains("dice were better here") && lesson.contains("dice carried more"), "{lesson}");
        assert!(equal.starts_with("Less: ") && unlike.starts_with("4.0 × as long: "), "{equal} {unlike}");
    }

    #[test]
    fn without_results_nothing_is_claimed() {
        let none = RunResult::new("a", World::Lab, 1);
        let verdicts = verdicts(&none, &none, &transfers(&|_, _| 1.0));
        assert_eq!((verdicts.len(), lesson(&verdicts).as_str()), (0, "Nothing was measured that could be compared."));
        assert_eq!(parts(&verdicts), ["", ""]);
    }
}
