//! What the path changer costs: the same traffic between two namespaces with the agent and without, and a host with
//! very many connections.
//!
//! The agent is the real program, started as an operator would; the links are virtual Ethernet and not shaped.

mod crowd;
mod load;
mod stage;

use std::path::PathBuf;

use sidestep_lab::LabError;

pub use self::crowd::{Crowd, MAX_CONNECTIONS, crowd};
use self::{load::Sample, stage::Stage};
use crate::daemon::program::{HostProgram, ProgramRuns, RunStats};

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The `sidestep` program.
    pub program: PathBuf,
    /// How often each variant is measured: nothing, programs that do nothing, the agent without its programs, both of these
    /// together, and the agent. Medians are reported.
    pub rounds: usize,
    /// How long each measurement takes.
    pub seconds: f64,
}

/// Observes a benchmark's progress: what it does, the number of the step, and the number of steps.
pub type Progress<'a> = &'a mut dyn FnMut(&str, usize, usize);

/// What the agent costs the traffic of a host.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Bytes per second of one connection.
    pub goodput: Compared,
    /// Bytes of one connection per second of CPU time of both ends.
    pub goodput_per_cpu: Compared,
    /// Connections opened, accepted and closed per second, one after the other.
    pub connections: Compared,
    /// Connections opened, accepted and closed per second of CPU time of both ends.
    pub connections_per_cpu: Compared,
    /// How often each program ran in a round of its own, and for how long; by the kernel's statistics.
    pub programs: Vec<ProgramRuns>,
}

/// Medians of measurements that were made in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Without any program.
    pub without: f64,
    /// With programs that do nothing: the kernel calls them wherever it would call the agent's.
    pub idle: f64,
    /// With the agent's rules, routes and table, but not its programs.
    pub routes: f64,
    /// With the agent's rules, routes and table, and programs that do nothing: what the kernel alone takes.
    pub kernel: f64,
    /// With the agent.
    pub with: f64,
    /// Median over the rounds of `idle` divided by `without`.
    pub idle_ratio: f64,
    /// Median over the rounds of `routes` divided by `without`.
    pub routes_ratio: f64,
    /// Median over the rounds of `kernel` divided by `without`.
    pub kernel_ratio: f64,
    /// Median over the rounds of `with` divided by `without`.
    pub ratio: f64,
}

/// Measures what the agent costs the traffic of a host that has paths. Each round has a measurement of each variant; their
/// order changes from round to round.
///
/// # Errors
/// Without root, or where the kernel lacks what the agent needs.
pub fn overhead(options: &BenchOptions, progress: Progress<'_>) -> Result<Overhead, LabError> {
    let stage = Stage::build(options.program.clone())?;
    let steps = options.rounds * WITH.len() + 2;
    progress("warming up", 0, steps);
    measure(&stage, options.seconds.min(0.5))?;
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let mut samples = [Round::default(); WITH.len()];
        for step in 0..samples.len() {
            let which = (round + step) % samples.len();
            progress(WITH[which], round * samples.len() + step + 1, steps);
            let idle = matches!(which, 1 | 3).then(|| stage.idle()).transpose()?;
            let agent = match which {
                2 | 3 => Some(stage.agent_beside(stage::ALIKE)?),
                4 => Some(stage.agent(stage::ALIKE, None)?),
                _ => None,
            };
            samples[which] = measure(&stage, options.seconds)?;
            agent.map(stage::Daemon::stop).transpose()?;
            drop(idle);
        }
        rounds.push(samples);
    }
    progress("counting the programs' runs", steps - 1, steps);
    let programs = count_runs(&stage, options.seconds)?;
    let of = |value: fn(&Round) -> f64| compare(rounds.iter().map(|samples| samples.each_ref().map(value)));
    Ok(Overhead {
        goodput: of(|round| round.goodput.per_second()),
        goodput_per_cpu: of(|round| round.goodput.per_cpu_second()),
        connections: of(|round| round.connections.per_second()),
        connections_per_cpu: of(|round| round.connections.per_cpu_second()),
        programs,
    })
}

/// What each measurement of a round is made with.
const WITH: [&str; 5] = [
    "without the agent",
    "with programs that do nothing",
    "with the agent's rules and tables only",
    "with its rules and tables, and programs that do nothing",
    "with the agent",
];

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    goodput: Sample,
    connections: Sample,
}

fn measure(stage: &Stage, seconds: f64) -> Result<Round, LabError> {
    Ok(Round { goodput: load::transfer(stage, seconds)?, connections: load::connect(stage, seconds)? })
}

/// Makes one more measurement with the kernel's statistics of BPF programs, which have a cost of their own.
fn count_runs(stage: &Stage, seconds: f64) -> Result<Vec<ProgramRuns>, LabError> {
    let _counting = RunStats::enable()?;
    let agent = stage.agent(stage::ALIKE, Some(stage.state()))?;
    measure(stage, seconds)?;
    let runs = HostProgram::look(&stage.pins())?.map(|program| program.runs_of_all()).transpose()?;
    agent.stop()?;
    Ok(runs.unwrap_or_default())
}

/// Compares rounds of one value for each variant, in the order of [`WITH`].
fn compare(rounds: impl Iterator<Item = [f64; 5]> + Clone) -> Compared {
    Compared {
        without: median(rounds.clone().map(|[without, ..]| without)),
        idle: median(rounds.clone().map(|[_, idle, ..]| idle)),
        routes: median(rounds.clone().map(|[_, _, routes, ..]| routes)),
        kernel: median(rounds.clone().map(|[.., kernel, _]| kernel)),
        with: median(rounds.clone().map(|[.., with]| with)),
        idle_ratio: median(rounds.clone().map(|[without, idle, ..]| idle / without)),
        routes_ratio: median(rounds.clone().map(|[without, _, routes, ..]| routes / without)),
        kernel_ratio: median(rounds.clone().map(|[without, .., kernel, _]| kernel / without)),
        ratio: median(rounds.map(|[without, .., with]| with / without)),
    }
}

/// The value in the middle, or the mean of the two in the middle; NaN if there are no values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match (values.get(half), values.len() % 2, half.checked_sub(1).and_then(|below| values.get(below))) {
        (Some(upper), 0, Some(lower)) => (lower + upper) / 2.0,
        (Some(middle), ..) => *middle,
        (None, ..) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ratio_is_that_of_the_rounds() {
        let rounds = [[10.0, 9.5, 9.8, 9.2, 9.0], [20.0, 21.0, 20.0, 20.0, 20.0], [40.0, 20.0, 39.0, 32.0, 20.0]];
        let compared = compare(rounds.into_iter());
        let ratios = [compared.idle_ratio, compared.routes_ratio, compared.kernel_ratio, compared.ratio];
        assert_eq!([compared.without, compared.idle, compared.routes, compared.kernel, compared.with], [20.0; 5]);
        let alike = |(ours, theirs): (f64, f64)| (ours - theirs).abs() < 1e-12;
        assert!(ratios.into_iter().zip([0.95, 0.98, 0.92, 0.9]).all(alike), "{ratios:?}");
        assert_eq!(median([4.0, 1.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }
}
