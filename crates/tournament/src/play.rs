//! Runs the tournament: every case under every policy and seed.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::Serialize;
use sidestep_net::{ParseError, Span};
use sidestep_proto::tcp::Profile;
use sidestep_results::{Estimate, SystemResult, World, measures};
use sidestep_scenario::{Scenario, SystemError, SystemSpec};
use sidestep_sim::{RunOptions, SimError};
use thiserror::Error;

use crate::{
    Case, Class, Comparison, Measure, Set, Summary,
    fixed::{Assignment, assignments},
    variant::{equal_cost, is_hashed},
    verdict::log_ratio,
};

/// The version of the tournament's JSON.
pub const SCHEMA: u32 = 1;

/// What every policy is compared with: dice, plain TCP on the path that routing prefers, and plain TCP that routers hash over
/// all paths, for which these get equal weights.
pub const BASELINES: [&str; 3] = ["random", "tcp", "ecmp"];

/// The policies that play if none are named; the first is the default of the path changer.
pub const POLICIES: &[&str] = &[
    "pathchanger",
    "pathchanger:policy=paper",
    "pathchanger:policy=plb",
    "pathchanger:policy=next",
    "pathchanger:policy=lowest-rtt,weights=prefix",
    "pathchanger:policy=exp3-ix,weights=prefix",
    "random",
    "tcp",
    "ecmp",
];

/// What to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policies, in the order in which they are shown. Baselines that are missing are added.
    pub policies: Vec<SystemSpec>,
    /// The scenarios.
    pub cases: Vec<Case>,
    /// How many seeds, from 1 on.
    pub seeds: u32,
    /// With how many of these seeds the regret is computed; `None`: it is not.
    pub regret: Option<u32>,
    /// Whose TCP the simulator has; the lab has its kernels'.
    pub profile: Profile,
    /// The command line that does the same again.
    pub command: String,
    /// Set to end early; nothing is left then.
    pub stop: Arc<AtomicBool>,
}

/// Observes how the tournament goes, from several threads at once.
pub trait Observer: Sync {
    /// `total` virtual time will be simulated in all.
    fn on_start(&self, total: Span);
    /// This case is played now.
    fn plays(&self, case: &Case);
    /// This much more has been simulated.
    fn on_progress(&self, elapsed: Span);
}

/// Results by system, one for each seed.
pub type Played = BTreeMap<String, Vec<SystemResult>>;

/// Where scenarios are played, if not in the simulator.
pub trait Stage {
    /// Plays a scenario under each system with the seeds from 1 on; an error is a sentence.
    fn play(&self, scenario: &Scenario, systems: &[SystemSpec], seeds: u32) -> Result<Played, String>;
}

/// Observes nothing.
impl Observer for () {
    fn on_start(&self, _: Span) {}
    fn plays(&self, _: &Case) {}
    fn on_progress(&self, _: Span) {}
}

/// Why there is no tournament.
#[derive(Debug, Error)]
pub enum PlayError {
    /// A policy that there is not, or that does not fit a scenario.
    #[error("{case}: {problem}")]
    Sim {
        /// The scenario.
        case: Cow<'static, str>,
        /// What is wrong.
        problem: Box<SimError>,
    },
    /// A scenario without some of its paths, or with other weights, is none: a defect of the tournament.
    #[error("{case}, with its network changed: {problem}")]
    Network {
        /// The scenario.
        case: Cow<'static, str>,
        /// What is wrong.
        problem: ParseError,
    },
    /// A scenario could not be played outside the simulator.
    #[error("{case}: {problem}")]
    Stage {
        /// The scenario.
        case: Cow<'static, str>,
        /// What is wrong.
        problem: String,
    },
    /// A system's name cannot be read: a defect of the tournament.
    #[error(transparent)]
    System(#[from] SystemError),
    /// No scenario is named.
    #[error("no scenario of that name or set; `--list` lists them")]
    NoCases,
    /// It was ended early.
    #[error("interrupted; nothing is written")]
    Interrupted,
}

/// The outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Tournament {
    /// Version of the format, [`SCHEMA`].
    pub schema: u32,
    /// The command line that does the same again.
    pub command: String,
    /// Whether the policies played in the simulator or in the lab.
    pub world: World,
    /// How many seeds each policy played with in each case.
    pub seeds: u32,
    /// Of these, how many the regret is of; `None`: none was computed.
    pub regret_seeds: Option<u32>,
    /// How the policies did altogether, in the order in which they are shown.
    pub summaries: Vec<Summary>,
    /// The cases, by class.
    pub cases: Vec<CaseResult>,
}

/// How the policies did in a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub name: Cow<'static, str>,
    /// One sentence that describes what it is for.
    pub purpose: Cow<'static, str>,
    /// Whether a policy may be tuned on it.
    pub set: Set,
    /// How its paths relate to each other.
    pub class: Class,
    /// What is judged, the primary measure first.
    pub judged: &'static [Measure],
    /// The policies, in the order in which they are shown.
    pub policies: Vec<PolicyResult>,
    /// The best assignment of connections to paths by the primary measure, if it was sought.
    pub best_fixed: Option<BestFixed>,
}

/// How a policy did in a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyResult {
    /// The policy.
    pub policy: String,
    /// What was measured; only what some seed had a value of.
    pub measures: BTreeMap<Measure, Values>,
    /// Each judged measure beside each baseline; a baseline is not compared with itself.
    pub against: Vec<Comparison>,
    /// By which share of its value the best fixed assignment beats the policy in the primary measure, as a geometric mean:
    /// 0.1 is "10 % better", below zero is worse.
    pub regret: Option<f64>,
}

/// A measure over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Values {
    /// The mean of the seeds that have a value.
    pub mean: f64,
    /// Its 95 % confidence interval; `None` of a single seed.
    pub ci95: Option<[f64; 2]>,
    /// The values by seed.
    pub each: Vec<Option<f64>>,
}

/// The best fixed assignment that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BestFixed {
    /// The paths that it uses, and in what shares.
    pub assignment: String,
    /// Its mean of the primary measure.
    pub mean: f64,
    /// How many assignments were tried.
    pub tried: usize,
}

/// A measure's values by seed.
type BySeed = Vec<Option<f64>>;

/// Plays all cases in the simulator, in parallel on the processors.
pub fn play(options: &Options, observer: &dyn Observer) -> Result<Tournament, PlayError> {
    play_on(options, None, observer)
}

/// Plays all cases in the lab; it computes no regret, whatever the options are.
pub fn play_in_lab(options: &Options, lab: &dyn Stage, observer: &dyn Observer) -> Result<Tournament, PlayError> {
    play_on(options, Some(lab), observer)
}

fn play_on(options: &Options, lab: Option<&dyn Stage>, observer: &dyn Observer) -> Result<Tournament, PlayError> {
    if options.cases.is_empty() {
        return Err(PlayError::NoCases);
    }
    let mut policies = options.policies.clone();
    for baseline in BASELINES {
        let baseline: SystemSpec = baseline.parse()?;
        if !policies.contains(&baseline) {
            policies.push(baseline);
        }
    }
    let seeds = options.seeds.max(1);
    let regret_seeds = options.regret.filter(|_| lab.is_none()).map(|wanted| wanted.clamp(1, seeds));
    let world = if lab.is_some() { World::Lab } else { World::Sim };
    let game = Game { options, policies, seeds, regret_seeds, lab, observer };
    let total =
        options.cases.iter().map(|case| game.length(&game.scenario(case))).fold(Span::ZERO, |sum, one| sum + one);
    observer.on_start(total);
    let cases: Vec<CaseResult> = options.cases.iter().map(|case| game.play(case)).collect::<Result<_, _>>()?;
    let summaries = game.policies.iter().map(|policy| Summary::of(&policy.to_string(), &cases)).collect();
    let command = options.command.clone();
    Ok(Tournament { schema: SCHEMA, command, world, seeds, regret_seeds, summaries, cases })
}

struct Game<'a> {
    options: &'a Options,
    policies: Vec<SystemSpec>,
    seeds: u32,
    regret_seeds: Option<u32>,
    lab: Option<&'a dyn Stage>,
    observer: &'a dyn Observer,
}

/// Passes on how a run goes.
struct Listener<'a>(&'a dyn Observer);

impl sidestep_sim::Observer for Listener<'_> {
    fn on_start(&self, _: usize, _: Span) {}

    fn on_progress(&self, elapsed: Span, _: u64) {
        self.0.on_progress(elapsed);
    }

    fn on_finish(&self, _: &SystemSpec, _: &SystemResult) {}
}

impl Game<'_> {
    fn scenario(&self, case: &Case) -> Scenario {
        let mut scenario = case.scenario();
        scenario.tcp.profile = self.options.profile;
        scenario
    }

    /// The virtual time of all runs of a scenario.
    fn length(&self, scenario: &Scenario) -> Span {
        let fixed = self.regret_seeds.map_or(0, |seeds| seeds as usize * assignments(&scenario.topology).len());
        let runs = self.policies.len() as u64 * u64::from(self.seeds) + fixed as u64;
        Span::from_nanos(scenario.duration.as_nanos().saturating_mul(runs))
    }

    fn play(&self, case: &Case) -> Result<CaseResult, PlayError> {
        self.observer.plays(case);
        let scenario = self.scenario(case);
        let (hashed, steered): (Vec<_>, Vec<_>) = self.policies.iter().cloned().partition(is_hashed);
        let mut run = self.run(case, scenario.clone(), steered, self.seeds)?;
        let equal = equal_cost(&scenario).map_err(|problem| PlayError::Network { case: case.name.clone(), problem })?;
        run.append(&mut self.run(case, equal, hashed, self.seeds)?);
        let names: Vec<String> = self.policies.iter().map(ToString::to_string).collect();
        let played: Vec<BTreeMap<Measure, Values>> =
            names.iter().map(|name| all_values(run.get(name).into_iter().flatten())).collect();
        let best = match self.regret_seeds {
            Some(seeds) => self.best_fixed(case, &scenario, seeds)?,
            None => None,
        };
        let primary = case.judged.first().copied();
        let each = |of: usize, measure: Measure| -> &[Option<f64>] {
            played.get(of).and_then(|values| values.get(&measure)).map_or(&[], |values| &values.each)
        };
        let result = |(index, name): (usize, &String)| {
            let others = BASELINES.iter().filter(|baseline| *baseline != name);
            let beside = others.filter_map(|baseline| Some((*baseline, names.iter().position(|one| one == baseline)?)));
            let against = beside.flat_map(|(baseline, other)| {
                let compare = move |measure: &Measure| {
                    Comparison::new(baseline, *measure, each(index, *measure), each(other, *measure))
                };
                case.judged.iter().map(compare)
            });
            let regret = best.as_ref().zip(primary).and_then(|((_, best), primary)| {
                mean_log_ratio(primary, best, each(index, primary)).map(|log| log.exp() - 1.0)
            });
            PolicyResult { policy: name.clone(), measures: BTreeMap::new(), against: against.collect(), regret }
        };
        let mut policies: Vec<PolicyResult> = names.iter().enumerate().map(result).collect();
        for (policy, measures) in policies.iter_mut().zip(played) {
            policy.measures = measures;
        }
        Ok(CaseResult {
            name: case.name.clone(),
            purpose: case.purpose.clone(),
            set: case.set,
            class: case.class,
            judged: case.judged,
            policies,
            best_fixed: best.map(|(best, _)| best),
        })
    }

    /// The assignment with the best mean of the primary measure, and its values by seed.
    fn best_fixed(
        &self,
        case: &Case,
        scenario: &Scenario,
        seeds: u32,
    ) -> Result<Option<(BestFixed, BySeed)>, PlayError> {
        let Some(primary) = case.judged.first().copied() else { return Ok(None) };
        let all = assignments(&scenario.topology);
        let mut best: Option<(f64, &Assignment, BySeed)> = None;
        for assignment in &all {
            let left = assignment
                .scenario(scenario)
                .map_err(|problem| PlayError::Network { case: case.name.clone(), problem })?;
            let run = self.run(case, left, vec![assignment.system()?], seeds)?;
            let each: Vec<_> = run.values().flatten().map(|result| primary.of(result)).collect();
            let Some(mean) = mean_of(&each) else { continue };
            let better = |than: f64| if primary.more_is_better() { mean > than } else { mean < than };
            if best.as_ref().is_none_or(|(than, ..)| better(*than)) {
                best = Some((mean, assignment, each));
            }
        }
        Ok(best.map(|(mean, assignment, each)| {
            (BestFixed { assignment: assignment.words(&scenario.topology), mean, tried: all.len() }, each)
        }))
    }

    fn run(&self, case: &Case, scenario: Scenario, systems: Vec<SystemSpec>, seeds: u32) -> Result<Played, PlayError> {
        let stop = self.options.stop.clone();
        if let Some(lab) = self.lab {
            let played = lab.play(&scenario, &systems, seeds);
            return match played {
                _ if stop.load(Ordering::Relaxed) => Err(PlayError::Interrupted),
                Err(problem) => Err(PlayError::Stage { case: case.name.clone(), problem }),
                Ok(played) => Ok(played),
            };
        }
        let options = RunOptions { seeds, stop, ..RunOptions::once(sidestep_systems::simulator(), scenario, systems) };
        let wrong = |problem| PlayError::Sim { case: case.name.clone(), problem: Box::new(problem) };
        let (result, interrupted) = sidestep_sim::run(&options, &Listener(self.observer)).map_err(wrong)?;
        if interrupted || self.options.stop.load(Ordering::Relaxed) {
            return Err(PlayError::Interrupted);
        }
        Ok(result.systems.iter().map(|(name, of)| (name.to_string(), seeds_of(of).to_vec())).collect())
    }
}

impl PolicyResult {
    /// The comparison with a baseline by a measure.
    pub fn against(&self, baseline: &str, measure: Measure) -> Option<&Comparison> {
        self.against.iter().find(|one| one.baseline == baseline && one.measure == measure)
    }
}

/// The results of each seed.
fn seeds_of(result: &SystemResult) -> &[SystemResult] {
    result.repeated.as_ref().map_or(std::slice::from_ref(result), |repeated| &repeated.each)
}

fn all_values<'r>(results: impl Iterator<Item = &'r SystemResult> + Clone) -> BTreeMap<Measure, Values> {
    let of = |measure: Measure| {
        let each: Vec<Option<f64>> = results.clone().map(|result| measure.of(result)).collect();
        let there: Vec<f64> = each.iter().copied().flatten().collect();
        let estimate = Estimate::of(&there)?;
        Some((measure, Values { mean: estimate.mean, ci95: (there.len() > 1).then_some(estimate.ci95), each }))
    };
    Measure::ALL.into_iter().filter_map(of).collect()
}

fn mean_of(each: &[Option<f64>]) -> Option<f64> {
    measures::mean(&each.iter().copied().collect::<Option<Vec<f64>>>()?)
}

/// The mean over the seeds that both have of the logarithm of how many times better `one` is.
fn mean_log_ratio(measure: Measure, one: &[Option<f64>], other: &[Option<f64>]) -> Option<f64> {
    let logs: Vec<f64> =
        one.iter().zip(other).filter_map(|(one, other)| log_ratio(measure, (*one)?, (*other)?)).collect();
    measures::mean(&logs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn options(names: &[&str], seeds: u32) -> Options {
        Options {
            policies: vec!["pathchanger".parse().unwrap()],
            cases: cases().filter(|case| names.contains(&&*case.name)).cloned().collect(),
            seeds,
            regret: None,
            profile: Profile::default(),
            command: String::new(),
            stop: Arc::default(),
        }
    }

    #[test]
    fn every_policy_that_plays_by_default_is_one_and_the_baselines_are_among_them() {
        for policy in POLICIES {
            assert!(policy.parse::<SystemSpec>().is_ok(), "{policy}");
        }
        assert!(BASELINES.iter().all(|baseline| POLICIES.contains(baseline)));
    }

    #[test]
    fn baselines_are_added_and_every_judged_measure_is_compared_with_each() {
        let tournament = play(&options(&["silent-default-short", "equal-long"], 2), &()).unwrap();
        assert_eq!(tournament.cases.len(), 2);
        for case in &tournament.cases {
            let names: Vec<_> = case.policies.iter().map(|policy| policy.policy.as_str()).collect();
            assert_eq!(names, ["pathchanger", "random", "tcp", "ecmp"]);
            let compared: Vec<_> = case.policies.iter().map(|policy| policy.against.len()).collect();
            assert_eq!(compared, [3, 2, 2, 2].map(|baselines| baselines * case.judged.len()));
        }
        let silent = &tournament.cases[1];
        let of = |policy: usize, measure| silent.policies[policy].measures.get(&measure);
        // Transfers of plain TCP hang on the silent path, and some are never done.
        assert!(of(2, Measure::Mean).unwrap().mean > of(1, Measure::Mean).unwrap().mean);
        // Routers hash a third onto it.
        assert!(of(3, Measure::Mean).unwrap().mean < of(2, Measure::Mean).unwrap().mean);
        assert_eq!(of(2, Measure::Moves).unwrap().mean, 0.0);
        assert!(of(0, Measure::LoadVariation).unwrap().mean > 0.0);
        assert!(of(0, Measure::Fairness).is_none());
    }

    #[test]
    fn regret_is_what_the_best_fixed_assignment_would_have_brought() {
        let options = Options { regret: Some(2), ..options(&["unequal-5-50-closed"], 3) };
        let tournament = play(&options, &()).unwrap();
        let case = &tournament.cases[0];
        let best = case.best_fixed.as_ref().unwrap();
        // Two paths alone, and both of them in two shares.
        assert_eq!((tournament.regret_seeds, best.tried), (Some(2), 4));
        let goodput = |policy: usize| case.policies[policy].measures[&Measure::Goodput].mean;
        let tcp = case.policies.iter().position(|policy| policy.policy == "tcp").unwrap();
        // Plain TCP has the path of 5 Mbit/s alone, which no good assignment takes alone.
        assert!(best.assignment != "path-1" && best.mean > 5.0 * goodput(tcp), "{best:?}");
        let regret = case.policies[tcp].regret.unwrap();
        assert!((regret + 1.0 - best.mean / goodput(tcp)).abs() < 0.3 * regret, "{regret}");
    }

    #[test]
    fn no_cases_and_an_interruption_leave_no_tournament() {
        assert!(matches!(play(&options(&[], 1), &()), Err(PlayError::NoCases)));
        let stopped = options(&["equal-long"], 1);
        stopped.stop.store(true, Ordering::Relaxed);
        assert!(matches!(play(&stopped, &()), Err(PlayError::Interrupted)));
    }

    #[test]
    fn a_policy_that_cannot_be_run_is_named_with_the_case() {
        let mut wrong = options(&["equal-long"], 1);
        wrong.policies = vec!["mptcp:subflows=65".parse().unwrap()];
        let error = play(&wrong, &()).unwrap_err().to_string();
        assert!(error.starts_with("equal-long: ") && error.contains("subflows"), "{error}");
    }
}
