//! TCPPathChanger, Figure 7: how much more segment routing carries where few pairs have heavy hitters.
//!
//! The paper says which share of the access pairs have heavy hitters, and neither of which pairs that is a share nor how
//! it is rounded nor whether a box is of networks or of draws. At 1 % that decides: most networks have one pair then, or
//! none. So all rules are tried, and the one that comes nearest is named.

mod study;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sidestep_maxflow::{FlowNetwork, Pairs, Rounding, Sampling};
use sidestep_model::{NodeId, Rate};
use sidestep_results::{
    Estimate,
    measures::{median_interval, percentile},
};

use self::study::{Draws, ECMP, MULTIPATH, Network, SEGMENTS, SHARES, SINGLE_PATH, Study};
use super::topologies::{Pruned, pruned};
use crate::{Context, Experiment, Findings, Mode, Paper, ReproError, Row, Rule, Spread, boxes};

pub(crate) const A: Experiment = Experiment {
    id: "tpc-fig7a",
    paper: "TCPPathChanger",
    figure: "Figure 7a",
    title: "Maximum flow with segment routing over that without, by the share of access pairs with heavy hitters.",
    worlds: &[],
    run: |context| run(context, ECMP, "routing without SR", &[(1, 71.0), (10, 30.0)]),
};

pub(crate) const B: Experiment = Experiment {
    id: "tpc-fig7b",
    figure: "Figure 7b",
    title: "Maximum flow with segment routing over that of multipath without it, whose paths are the shortest ones.",
    // “About five points lower.”
    run: |context| run(context, MULTIPATH, "multipath without SR", &[(1, 66.0), (10, 25.0)]),
    ..A
};

/// The reading that the figure shows, which is near the paper's numbers. Rows name the reading that comes nearest.
const DRAWN: Reading =
    Reading { sampling: Sampling { pairs: Pairs::OneWay, rounding: Rounding::Ceil }, of: Of::Networks };

/// An interpretation of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    sampling: Sampling,
    of: Of,
}

/// What the values of a box are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    /// The mean gain of each network over its draws.
    Networks,
    /// The gains of all draws of all networks.
    Draws,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.of == Of::Networks { "mean of each network" } else { "all draws" };
        write!(f, "{}, {of}", self.sampling)
    }
}

impl Reading {
    fn all() -> impl Iterator<Item = Reading> {
        Sampling::all().flat_map(|sampling| [Of::Networks, Of::Draws].map(|of| Reading { sampling, of }))
    }

    /// Gains of segment routing over a model, in percent and ascending order; `None` if there are none.
    fn gains(&self, study: &Study, share: usize, over: usize) -> Option<Vec<f64>> {
        let draws: &Draws = study.flows.get(&(self.sampling, share))?;
        let mut gains = Vec::new();
        for draws in draws {
            // Where a network fell apart, there may be no flow at all.
            let fine = draws.iter().flatten().filter(|flows| flows[over] > 0.0);
            let of_one: Vec<f64> = fine.map(|flows| 100.0 * (flows[SEGMENTS] / flows[over] - 1.0)).collect();
            match self.of {
                Of::Draws => gains.extend(of_one),
                Of::Networks => gains.extend(sidestep_results::measures::mean(&of_one)),
            }
        }
        gains.sort_by(f64::total_cmp);
        (!gains.is_empty()).then_some(gains)
    }

    fn median(&self, study: &Study, share: usize, over: usize) -> Option<f64> {
        percentile(&self.gains(study, share, over)?, 50)
    }
}

fn run(context: &mut Context<'_>, over: usize, name: &str, paper: &[(usize, f64)]) -> Result<Findings, ReproError> {
    let studies = studies(context)?;
    let Studies { networks, figure, band } = studies.as_ref();
    let mut findings = Findings::default();
    let mut drawn = Vec::new();
    for share in SHARES {
        let values = DRAWN.gains(figure, share, over).ok_or_else(|| ReproError::Missing("draws".into()))?;
        let expected = paper.iter().find(|(at, _)| *at == share).map(|(_, gain)| *gain);
        let (number, rule) = match expected {
            Some(number) => (Paper::Number(number), Rule::Within(0.15)),
            None => (Paper::None, Rule::NoPaperValue),
        };
        let quantity = format!("median gain over {name}, {share} % of pairs");
        findings.rows.push(Row::new(quantity, "%", number, median(&values), rule));
        drawn.push(Spread { label: format!("{share} %"), values, paper: expected });
    }
    if over == ECMP {
        for (share, _) in paper {
            let values = DRAWN.gains(figure, *share, SINGLE_PATH).ok_or_else(|| ReproError::Missing("draws".into()))?;
            let quantity = format!("the same without ECMP, {share} % of pairs");
            findings.rows.push(Row::new(quantity, "%", Paper::None, median(&values), Rule::NoPaperValue));
        }
    }
    compare(band, over, paper, &mut findings)?;
    proof(&[figure, band], &mut findings);
    let title = format!("Gain in maximum flow over {name}");
    let unit = format!("%; quartiles, 5th and 95th percentile of {networks} networks");
    let picture = boxes(&title, &unit, "share of access pairs with heavy hitters", &drawn)?;
    findings.pictures.push(("gain.svg".into(), picture));
    Ok(findings)
}

/// The data of both figures.
struct Studies {
    /// How many networks have at least two access routers.
    networks: usize,
    /// The flows of the reading that is drawn, with many draws.
    figure: Study,
    /// The flows of all readings, with few draws.
    band: Study,
}

/// The studies of a mode and of a data directory, which a process makes once: they are the same for both figures.
fn studies(context: &Context<'_>) -> Result<Arc<Studies>, ReproError> {
    type Key = (Mode, Option<PathBuf>);
    static MADE: Mutex<Vec<(Key, Arc<Studies>)>> = Mutex::new(Vec::new());
    let key = (context.mode, context.data.clone());
    let mut made = MADE.lock().map_err(|_| ReproError::Run("the other figure has failed".into()))?;
    if let Some((_, studies)) = made.iter().find(|(of, _)| *of == key) {
        return Ok(studies.clone());
    }
    let (many, few) = if context.mode == Mode::Full { (20, 4) } else { (3, 2) };
    let networks = networks(context.data.as_deref())?;
    let figure = study::run(&networks, &[(DRAWN.sampling, many)], context.watch)?;
    let rules: Vec<(Sampling, u64)> = Sampling::all().map(|rule| (rule, few)).collect();
    let band = study::run(&networks, &rules, context.watch)?;
    let studies = Arc::new(Studies { networks: networks.len(), figure, band });
    made.push((key, studies.clone()));
    Ok(studies)
}

/// The networks with pairs of access routers.
fn networks(data: Option<&Path>) -> Result<Vec<Network>, ReproError> {
    let mut networks = Vec::new();
    for Pruned { name, net, graph } in pruned(data)? {
        let access: Vec<NodeId> = net.access().into_iter().map(NodeId).collect();
        if access.len() >= 2 {
            // REPETITA's files have all rates; zero would be refused.
            let network = FlowNetwork::of_net(&graph, &net, Rate::default());
            let network = network.map_err(|error| ReproError::Run(format!("{name}: {error}")))?;
            networks.push(Network { name, network, access });
        }
    }
    Ok(networks)
}

/// What it takes to compute the flows that Figure 7 is drawn from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowWork {
    /// How many networks have pairs.
    pub networks: usize,
    /// How many linear programs are solved.
    pub programs: usize,
    /// Seconds by the clock, without reading the files.
    pub seconds: f64,
    /// Seconds for the draw that took longest: one program for each model.
    pub longest_draw: f64,
    /// The network and the number of pairs of that draw.
    pub longest_of: (String, usize),
    /// The largest gap between a flow and its dual bound, as a share of the flow.
    pub gap: f64,
}

impl FlowWork {
    /// Solves on one thread what `tpc-fig7a` and `tpc-fig7b` draw with so many draws; `clock` returns seconds.
    pub fn measure(data: Option<&Path>, draws: u64, clock: impl Fn() -> f64) -> Result<Self, ReproError> {
        let networks = networks(data)?;
        let mut work = FlowWork { networks: networks.len(), ..FlowWork::default() };
        for (index, network) in networks.iter().enumerate() {
            let before = clock();
            let one = study::one(network, index as u64, &[(DRAWN.sampling, draws)], &clock)?;
            work.seconds += clock() - before;
            work.programs += one.programs;
            work.gap = work.gap.max(one.gap);
            if one.longest.0 > work.longest_draw {
                (work.longest_draw, work.longest_of) = (one.longest.0, (network.name.clone(), one.longest.1));
            }
        }
        Ok(work)
    }
}

/// The medians that other readings of the paper lead to.
fn compare(band: &Study, over: usize, paper: &[(usize, f64)], findings: &mut Findings) -> Result<(), ReproError> {
    let missing = || ReproError::Missing("draws".into());
    for share in SHARES {
        let mut medians: Vec<(f64, Reading)> =
            Reading::all().filter_map(|reading| Some((reading.median(band, share, over)?, reading))).collect();
        medians.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some(lowest), Some(highest)) = (medians.first(), medians.last()) else { return Err(missing()) };
        let expected = paper.iter().find(|(at, _)| *at == share).map(|(_, gain)| *gain);
        let number = || expected.map_or(Paper::None, Paper::Number);
        for (which, (gain, reading), rule) in
            [("lowest", lowest, expected.map(Rule::AtMost)), ("highest", highest, expected.map(Rule::AtLeast))]
        {
            let quantity = format!("{which} of {} readings, {share} % ({reading})", medians.len());
            findings.rows.push(Row::new(quantity, "%", number(), exact(*gain), rule.unwrap_or(Rule::NoPaperValue)));
        }
    }
    let apart = |reading: &Reading| -> Option<f64> {
        let apart = |(share, gain): &(usize, f64)| Some((reading.median(band, *share, over)? / gain - 1.0).powi(2));
        paper.iter().map(apart).sum()
    };
    let nearest = Reading::all().filter_map(|reading| Some((apart(&reading)?, reading)));
    let (_, nearest) = nearest.min_by(|a, b| a.0.total_cmp(&b.0)).ok_or_else(missing)?;
    for (share, number) in paper {
        let ours = nearest.median(band, *share, over).ok_or_else(missing)?;
        let quantity = format!("nearest reading, {share} % ({nearest})");
        findings.rows.push(Row::new(quantity, "%", Paper::Number(*number), exact(ours), Rule::Within(0.15)));
    }
    Ok(())
}

fn proof(studies: &[&Study], findings: &mut Findings) {
    let gap = studies.iter().map(|study| study.gap).fold(0.0, f64::max);
    let programs: usize = studies.iter().map(|study| study.programs).sum();
    let quantity = format!("largest gap to the dual bound, of {programs} programs");
    let paper = Paper::Text("none, within 1e-6".into());
    findings.rows.push(Row::new(quantity, "1e-6 of the flow", paper, exact(gap * 1e6), Rule::AtMost(1.0)));
}

/// The median of values in ascending order, with its 95 % confidence interval, or with the range of fewer than six.
fn median(ascending: &[f64]) -> Estimate {
    let range = || [0, 100].map(|percent| percentile(ascending, percent).unwrap_or(f64::NAN));
    Estimate {
        mean: percentile(ascending, 50).unwrap_or(f64::NAN),
        ci95: median_interval(ascending).unwrap_or_else(range),
    }
}

fn exact(value: f64) -> Estimate {
    Estimate { mean: value, ci95: [value; 2] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_a_hundred_is_known_to_ten_ranks_on_each_side() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let Estimate { mean, ci95 } = median(&values);
        assert_eq!((mean, ci95), (50.0, [40.0, 61.0]));
        assert_eq!(median(&[7.0]).ci95, [7.0, 7.0]);
    }

    #[test]
    fn a_box_of_networks_takes_each_once_and_one_of_draws_each_draw() {
        let flows = |without: f64, with: f64| Some([without, without, without, with]);
        // One network gains 100 and 0 %, another 200 %; a third has neither pairs nor flow.
        let draws =
            vec![vec![flows(1.0, 2.0), flows(2.0, 2.0)], vec![flows(1.0, 3.0), None], vec![None, flows(0.0, 0.0)]];
        let study = Study { flows: [((DRAWN.sampling, 1), draws)].into(), programs: 5, gap: 0.0 };
        assert_eq!(DRAWN.gains(&study, 1, ECMP), Some(vec![50.0, 200.0]));
        let of_draws = Reading { of: Of::Draws, ..DRAWN };
        assert_eq!(of_draws.gains(&study, 1, MULTIPATH), Some(vec![0.0, 100.0, 200.0]));
        assert_eq!(of_draws.gains(&study, 2, MULTIPATH), None);
    }
}
