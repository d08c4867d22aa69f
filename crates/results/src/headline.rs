//! A run in a sentence or two: the recommended system beside the baseline, and whether they differ at all.

use serde::{Deserialize, Serialize};

use crate::{
    RunResult, SystemResult,
    paired::between,
    roles::{Compared, Roles},
    summary::{MANY, exact, mean_goodput, mean_time, megabits, seconds, signed, taken},
};

/// The run in a sentence or two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    /// What the reader reads first.
    pub text: String,
    /// The system that is compared: the recommended one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The system that it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// What the comparison shows.
    pub says: Finding,
}

/// What a comparison shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// The system is better, seed by seed.
    Better,
    /// The system is worse, seed by seed.
    Worse,
    /// The interval of the difference has zero in it.
    NoDifference,
    /// There is one run, which promises nothing.
    OneRun,
    /// There is nothing to compare.
    NotCompared,
}

/// In one run, values nearer than this are called about the same.
const ALIKE: f64 = 0.05;

/// A measure that distinguishes systems.
#[derive(Clone, Copy)]
enum Measure {
    Goodput,
    Time,
}

impl Headline {
    /// The headline of a run.
    pub(crate) fn of(run: &RunResult, roles: &Roles<'_>) -> Headline {
        let alone = |text: String| Headline { text, system: None, baseline: None, says: Finding::NotCompared };
        let Some((first, only)) = run.systems.iter().next() else { return alone("No system has been run.".into()) };
        if run.is_cut() {
            let text = "The run was interrupted: its numbers are of the time that it ran, and compare no systems.";
            return alone(text.into());
        }
        let times = run.systems.values().filter(|system| mean_time(system).is_some()).count();
        let measure =
            if run.is_of_transfers() && times == run.systems.len() { Measure::Time } else { Measure::Goodput };
        let Some(((name, system), plain)) = roles.recommended.zip(roles.baseline) else {
            return match (roles.recommended, run.systems.len()) {
                (Some((name, system)), _) => alone(describe(run, name, system, measure)),
                (None, 1) => alone(describe(run, first, only, measure)),
                (None, _) => alone(
                    "The run has no single system to recommend beside a baseline: the table has what each did.".into(),
                ),
            };
        };
        let (mut text, says) = compare(run, (name, system), plain, measure);
        if matches!(measure, Measure::Goodput) {
            // A system that carries most may do so at the cost of those that want to end soon.
            text += &times_besides(run, (name, system), plain);
        }
        Headline { text, system: Some(name.to_owned()), baseline: Some(plain.name.to_owned()), says }
    }
}

/// What one system did.
fn describe(run: &RunResult, name: &str, system: &SystemResult, measure: Measure) -> String {
    let amount = measure.amount(run, system);
    match measure {
        Measure::Time => format!("Transfers took {amount} on average under {name}."),
        Measure::Goodput => {
            let took = mean_time(system).map(|own| format!(" Transfers took {} on average.", seconds(own)));
            format!("{name} carried {amount}.{}", took.unwrap_or_default())
        }
    }
}

fn compare(
    run: &RunResult,
    (name, system): (&str, &SystemResult),
    plain: Compared<'_>,
    measure: Measure,
) -> (String, Finding) {
    let base = plain.spoken();
    let values = (measure.value(system), measure.value(plain.result));
    let told = match measure {
        Measure::Goodput => carried(name, &base, values, &measure.amount(run, system)),
        Measure::Time => took(name, &base, values),
    };
    let Some((less, seeds)) = between(run, name, plain.name, &|one| measure.of_seed(one)) else {
        let text = format!("In one run, which promises nothing: {told}.");
        return (text, Finding::OneRun);
    };
    let [low, high] = less.ci95;
    let by = match measure {
        Measure::Goodput => format!("{} ± {} Mbit/s", signed(less.mean, 1), short(less.half_width(), 1)),
        Measure::Time => format!("{} ± {} ms", signed(less.mean * 1e3, 1), short(less.half_width() * 1e3, 1)),
    };
    if low <= 0.0 && high >= 0.0 {
        let of_each = match measure {
            Measure::Goodput => {
                format!("{name} carried {}, and {base} {}", measure.short(values.0), measure.short(values.1))
            }
            Measure::Time => {
                format!(
                    "transfers took {} under {name}, and {} under {base}",
                    measure.short(values.0),
                    measure.short(values.1)
                )
            }
        };
        let text = format!("No difference: {of_each}; seed by seed {by} over {seeds} seeds, which may be none.");
        return (text, Finding::NoDifference);
    }
    let better = match measure {
        Measure::Goodput => less.mean > 0.0,
        Measure::Time => less.mean < 0.0,
    };
    let mut text = told;
    if let Some(head) = text.get(..1).map(str::to_uppercase)
        && matches!(measure, Measure::Time)
    {
        text.replace_range(..1, &head);
    }
    (format!("{text} ({by} seed by seed, over {seeds} seeds)."), if better { Finding::Better } else { Finding::Worse })
}

/// How long transfers took beside connections without an end.
fn times_besides(run: &RunResult, (name, system): (&str, &SystemResult), plain: Compared<'_>) -> String {
    let Some((own, theirs)) = mean_time(system).zip(mean_time(plain.result)) else { return String::new() };
    let base = plain.spoken();
    let paired = between(run, name, plain.name, &|one| Measure::Time.of_seed(one));
    let none = paired.is_some_and(|(less, _)| less.ci95[0] <= 0.0 && less.ci95[1] >= 0.0);
    let so = if none { ": no difference, seed by seed" } else { "" };
    format!(" Transfers took {} on average, and {} under {base}{so}.", seconds(own), seconds(theirs))
}

/// A comparison of what was carried, without its full stop.
fn carried(name: &str, base: &str, (own, theirs): (f64, f64), amount: &str) -> String {
    let times = own / theirs;
    if theirs <= 0.0 || times >= MANY {
        return format!("{name} carried {amount}, and {base} next to nothing");
    }
    if (times - 1.0).abs() < ALIKE {
        return format!("{name} carried about what {base} did: {amount}, and {base} {}", megabits(theirs));
    }
    let digits = if times < 0.995 { 2 } else { 1 };
    format!("{name} carried {times:.digits$} × what {base} did: {amount}")
}

/// A comparison of how long transfers took, without its full stop.
fn took(name: &str, base: &str, (own, theirs): (f64, f64)) -> String {
    let under =
        format!("transfers took {} on average under {name}, and {} under {base}", seconds(own), seconds(theirs));
    let (times, more) = if theirs >= own { (theirs / own, base) } else { (own / theirs, name) };
    match times {
        times if (times - 1.0).abs() < ALIKE => format!("{under}, which is about the same"),
        times if times < MANY => format!("{under}: {times:.1} × as long under {more}"),
        _ => under,
    }
}

impl Measure {
    /// Over all seeds.
    fn value(self, system: &SystemResult) -> f64 {
        match self {
            Measure::Goodput => mean_goodput(system),
            Measure::Time => mean_time(system).unwrap_or(f64::NAN),
        }
    }

    fn of_seed(self, one: &SystemResult) -> Option<f64> {
        match self {
            Measure::Goodput => Some(one.goodput_mbps),
            Measure::Time => taken(one).map(|(mean, _)| mean),
        }
    }

    /// A system's value, and the ceiling where that belongs to it.
    fn amount(self, run: &RunResult, system: &SystemResult) -> String {
        match self {
            Measure::Time => seconds(self.value(system)),
            Measure::Goodput => {
                let ceiling =
                    run.ceiling_mbps.map(|most| format!(" of the {} that the network can carry", exact(most)));
                format!("{} Mbit/s{}", megabits(self.value(system)), ceiling.unwrap_or_default())
            }
        }
    }

    fn short(self, value: f64) -> String {
        match self {
            Measure::Goodput => format!("{} Mbit/s", megabits(value)),
            Measure::Time => seconds(value),
        }
    }
}

fn short(value: f64, digits: usize) -> String {
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Repeated, World, testing};

    fn headline_of(run: &RunResult) -> Headline {
        Headline::of(run, &Roles::of(run, &testing::catalogue()))
    }

    fn headline(run: &RunResult) -> String {
        headline_of(run).text
    }

    /// Systems that carried this much, over six paths of 100 Mbit/s.
    fn carried(systems: &[(&str, f64)]) -> RunResult {
        let names: Vec<&str> = systems.iter().map(|(name, _)| *name).collect();
        let mut run = testing::run(&names, 6);
        for (name, mbps) in systems {
            run.systems.get_mut(name).unwrap().goodput_mbps = *mbps;
        }
        run
    }

    /// Systems that carried this much under each seed.
    fn seeds(systems: &[(&str, &[f64])]) -> RunResult {
        let mut run = RunResult::new("test", World::Sim, 1);
        for (name, seeds) in systems {
            let one = |mbps: &f64| SystemResult { goodput_mbps: *mbps, ..SystemResult::default() };
            let each: Vec<SystemResult> = seeds.iter().map(one).collect();
            run.systems.insert(*name, SystemResult { repeated: Repeated::of(&each), ..each[0].clone() });
        }
        run
    }

    #[test]
    fn the_recommended_system_is_compared_and_not_the_dice_that_carried_more() {
        let run = carried(&[("tcp", 94.0), ("random", 520.0), ("pathchanger", 507.6)]);
        assert_eq!(
            headline(&run),
            "In one run, which promises nothing: pathchanger carried 5.4 × what plain TCP did: 508 Mbit/s of the 600 that the \
             network can carry."
        );
        let found = headline_of(&run);
        assert_eq!(
            (found.system.as_deref(), found.baseline.as_deref(), found.says),
            (Some("pathchanger"), Some("tcp"), Finding::OneRun)
        );
    }

    #[test]
    fn what_systems_stand_for_decides_which_is_recommended_and_which_the_baseline() {
        let name = |systems: &[&str]| {
            let systems: Vec<(&str, f64)> = systems.iter().map(|name| (*name, 10.0)).collect();
            let run = carried(&systems);
            let Roles { baseline, recommended } = Roles::of(&run, &testing::catalogue());
            (recommended.map(|(name, _)| name.to_owned()), baseline.map(|baseline| baseline.name.to_owned()))
        };
        let pair = |one: &str, other: &str| (Some(one.to_owned()), Some(other.to_owned()));
        let irc = [
            "route-control:mode=none",
            "route-control:mode=ideal",
            "route-control:guards=false",
            "route-control",
            "route-control:mode=predictive",
        ];
        assert_eq!(name(&irc), pair("route-control", "route-control:mode=none"));
        let none = |baseline: &str| (None, Some(baseline.to_owned()));
        assert_eq!(name(&["route-control", "other", "pathchanger", "tcp"]), pair("pathchanger", "tcp"), "by rank");
        assert_eq!(name(&["ecmp", "route-control:mode=none"]), pair("ecmp", "route-control:mode=none"), "by rank");
        assert_eq!(name(&["tcp", "random"]), none("tcp"));
        assert_eq!(name(&["tcp", "route-control:mode=none"]), none("tcp"));
        assert_eq!(name(&["tcp", "random", "pathchanger:gamma=0.2"]), pair("pathchanger:gamma=0.2", "tcp"));
        assert_eq!(name(&["tcp", "pathchanger:gamma=0.2", "pathchanger:gamma=0.4"]), none("tcp"));
        assert_eq!(name(&["tcp", "ecmp"]), pair("ecmp", "tcp"), "a baseline beside another is a candidate");
        assert_eq!(name(&["ecmp", "other"]), pair("other", "ecmp"));
        assert_eq!(name(&["other", "another"]), (None, None));
        let control = headline(&carried(&[("route-control:mode=none", 1.0), ("route-control", 9.0)]));
        assert!(control.contains("no control (route-control:mode=none) did"), "{control}");
        assert!(headline(&carried(&[("tcp", 1.0), ("random", 9.0)])).contains("no single system to recommend"));
    }

    #[test]
    fn seeds_whose_difference_may_be_none_show_no_difference_and_others_by_how_much() {
        let noisy = headline_of(&seeds(&[("tcp", &[10.0, 20.0, 40.0]), ("pathchanger", &[12.0, 17.0, 41.5])]));
        assert_eq!(noisy.says, Finding::NoDifference);
        assert!(
            noisy.text.starts_with("No difference: pathchanger carried 24 Mbit/s, and plain TCP 23 Mbit/s;"),
            "{noisy:?}"
        );
        let clear = headline_of(&seeds(&[("tcp", &[10.0, 20.0]), ("pathchanger", &[60.0, 70.0])]));
        assert_eq!(
            clear.text,
            "pathchanger carried 4.3 × what plain TCP did: 65 Mbit/s (+50.0 ± 0.0 Mbit/s seed by seed, over 2 seeds)."
        );
        assert_eq!(clear.says, Finding::Better);
        let worse = headline_of(&seeds(&[("tcp", &[60.0, 70.0]), ("pathchanger", &[10.0, 20.0])]));
        assert!(
            worse.says == Finding::Worse && worse.text.contains("0.23 × what") && worse.text.contains("−50.0"),
            "{worse:?}"
        );
    }

    #[test]
    fn of_one_run_that_is_alike_nothing_is_made() {
        let text = headline(&carried(&[("tcp", 100.0), ("pathchanger", 103.0)]));
        assert!(text.contains("pathchanger carried about what plain TCP did: 103 Mbit/s"), "{text}");
        let next_to_nothing = headline(&carried(&[("tcp", 0.001), ("pathchanger", 508.0)]));
        assert!(next_to_nothing.ends_with("and plain TCP next to nothing."), "{next_to_nothing}");
        let mut alone = RunResult::new("alone", World::Sim, 1);
        alone.systems.insert("route-control", SystemResult { goodput_mbps: 9.0, ..SystemResult::default() });
        assert_eq!(headline(&alone), "route-control carried 9.0 Mbit/s.");
        assert_eq!(headline(&RunResult::new("none", World::Sim, 1)), "No system has been run.");
    }

    /// Transfers that took this long on the mean.
    fn transfers(systems: &[(&str, f64)]) -> RunResult {
        let mut run = carried(&systems.iter().map(|(name, _)| (*name, 10.0)).collect::<Vec<_>>());
        for (name, mean) in systems {
            let system = run.systems.get_mut(name).unwrap();
            (system.afct_s, system.fct_p50_s, system.fct_p99_s) = (Some(*mean), Some(*mean), Some(2.0));
            system.fairness_endless = None;
        }
        run
    }

    #[test]
    fn the_headline_of_transfers_is_about_the_time_that_they_took() {
        let of = |tcp, own| headline(&transfers(&[("tcp", tcp), ("pathchanger", own)]));
        assert_eq!(
            of(0.5, 0.125),
            "In one run, which promises nothing: transfers took 0.125 s on average under pathchanger, and 0.500 s under plain \
             TCP: 4.0 × as long under plain TCP."
        );
        assert!(of(0.125, 0.5).ends_with("4.0 × as long under pathchanger."));
        assert!(of(0.1251, 0.125).ends_with("which is about the same."));
        assert_eq!(
            headline(&transfers(&[("route-control", 0.12)])),
            "Transfers took 0.120 s on average under route-control."
        );
        let mut run = transfers(&[("tcp", 0.5), ("pathchanger", 0.1)]);
        for (_, mean) in [("tcp", 0.5), ("pathchanger", 0.1)] {
            let name = if mean > 0.2 { "tcp" } else { "pathchanger" };
            let system = run.systems.get_mut(name).unwrap();
            let slower = SystemResult { afct_s: Some(mean + 0.1), ..system.clone() };
            system.repeated = Repeated::of(&[system.clone(), slower]);
        }
        assert_eq!(
            headline(&run),
            "Transfers took 0.150 s on average under pathchanger, and 0.550 s under plain TCP: 3.7 × as long under plain TCP \
             (−400.0 ± 0.0 ms seed by seed, over 2 seeds)."
        );
    }

    #[test]
    fn the_headline_shows_how_long_transfers_took_beside_connections_without_an_end() {
        let mut run = carried(&[("tcp", 13.5), ("pathchanger", 21.9)]);
        for (name, mean) in [("tcp", 0.905), ("pathchanger", 1.29)] {
            let system = run.systems.get_mut(name).unwrap();
            (system.afct_s, system.fct_p50_s, system.fct_p99_s) = (Some(mean), Some(mean), Some(9.0));
        }
        run.ceiling_mbps = Some(300.0 / 7.0);
        let text = headline(&run);
        assert!(
            text.contains("1.6 × what plain TCP did: 22 Mbit/s of the 42.86 that the network can carry."),
            "{text}"
        );
        assert!(text.ends_with(" Transfers took 1.29 s on average, and 0.905 s under plain TCP."), "{text}");
    }

    #[test]
    fn a_run_that_was_cut_short_compares_nothing() {
        let mut run = carried(&[("tcp", 1.0), ("pathchanger", 9.0)]);
        run.systems.get_mut("tcp").unwrap().planned_s = Some(60.0);
        let found = headline_of(&run);
        assert!(found.says == Finding::NotCompared && found.text.starts_with("The run was interrupted"), "{found:?}");
    }
}
