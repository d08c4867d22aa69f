//! What the path changer costs: the same traffic between two namespaces with the agent and without, and a host with
//! very many connections.
//!
//! The agent is the real program, started as an operator would; the links are virtual Ethernet and not shaped.

mod crowd;
mod load;
mod stage;

use std::path::PathBuf;

use sidestep_linux::bpf::host::{HostProgram, ProgramRuns, RunStats};

pub use self::crowd::{Crowd, MOST, crowd};
use self::{load::Sample, stage::Stage};
use crate::error::LabError;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The `sidestep` program.
    pub program: PathBuf,
    /// Pairs of measurements, one with the agent and one without; the median of them counts.
    pub rounds: usize,
    /// How long each measurement takes.
    pub seconds: f64,
}

/// Hears how far a benchmark is: what it does, the step, and of how many.
pub type Progress<'a> = &'a mut dyn FnMut(&str, usize, usize);

/// What the agent costs the traffic of a host.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Bytes per second of one connection.
    pub goodput: Compared,
    /// The same per second of CPU time of both ends.
    pub goodput_per_cpu: Compared,
    /// Connections opened, accepted and closed per second, one after the other.
    pub connections: Compared,
    /// The same per second of CPU time of both ends.
    pub connections_per_cpu: Compared,
    /// How often each program ran in a round of its own, and for how long; by the kernel's statistics.
    pub programs: Vec<ProgramRuns>,
}

/// Medians of paired measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Without the agent.
    pub without: f64,
    /// With it.
    pub with: f64,
    /// Median over the pairs of `with` divided by `without`.
    pub ratio: f64,
}

/// Measures what the agent costs the traffic of a host that has paths, with `rounds` pairs of measurements in
/// alternating order.
///
/// # Errors
/// Without root, or where the kernel lacks what the agent needs.
pub fn overhead(options: &BenchOptions, progress: Progress<'_>) -> Result<Overhead, LabError> {
    let stage = Stage::build(options.program.clone())?;
    let steps = options.rounds * 2 + 2;
    progress("warming up", 0, steps);
    measure(&stage, options.seconds.min(0.5))?;
    let mut pairs = Vec::new();
    for round in 0..options.rounds {
        let mut pair = [Round::default(); 2];
        let order = if round % 2 == 0 { [false, true] } else { [true, false] };
        for (step, attached) in order.into_iter().enumerate() {
            let what = if attached { "with the agent" } else { "without the agent" };
            progress(what, round * 2 + step + 1, steps);
            let agent = attached.then(|| stage.agent(stage::ALIKE, None)).transpose()?;
            pair[usize::from(attached)] = measure(&stage, options.seconds)?;
            agent.map(stage::Daemon::stop).transpose()?;
        }
        pairs.push(pair);
    }
    progress("counting the programs' runs", steps - 1, steps);
    let programs = count_runs(&stage, options.seconds)?;
    let of = |value: fn(&Round) -> f64| compare(pairs.iter().map(|[without, with]| (value(without), value(with))));
    Ok(Overhead {
        goodput: of(|round| round.goodput.per_second()),
        goodput_per_cpu: of(|round| round.goodput.per_cpu_second()),
        connections: of(|round| round.connections.per_second()),
        connections_per_cpu: of(|round| round.connections.per_cpu_second()),
        programs,
    })
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    goodput: Sample,
    connections: Sample,
}

fn measure(stage: &Stage, seconds: f64) -> Result<Round, LabError> {
    Ok(Round { goodput: load::transfer(stage, seconds)?, connections: load::connect(stage, seconds)? })
}

/// A round under the kernel's statistics, which cost something themselves.
fn count_runs(stage: &Stage, seconds: f64) -> Result<Vec<ProgramRuns>, LabError> {
    let _counting = RunStats::enable()?;
    let agent = stage.agent(stage::ALIKE, Some(stage.state()))?;
    measure(stage, seconds)?;
    let runs = HostProgram::look(&stage.pins())?.map(|program| program.runs_of_all()).transpose()?;
    agent.stop()?;
    Ok(runs.unwrap_or_default())
}

fn compare(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Compared {
    Compared {
        without: median(pairs.clone().map(|(without, _)| without)),
        with: median(pairs.clone().map(|(_, with)| with)),
        ratio: median(pairs.map(|(without, with)| with / without)),
    }
}

/// The value in the middle, or the mean of the two; not a number if there is none.
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
    fn the_median_ratio_is_that_of_the_pairs() {
        let compared = compare([(10.0, 9.0), (20.0, 20.0), (40.0, 20.0)].into_iter());
        assert_eq!(compared, Compared { without: 20.0, with: 20.0, ratio: 0.9 });
        assert_eq!(median([4.0, 1.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }
}
