//! What segment routing adds to the maximum flow: pairs are drawn until the median is known well enough, or a bound is met.

use std::collections::BTreeSet;

use serde::Serialize;
use sidestep_maxflow::{FlowError, Watch};
use sidestep_net::Ratio;
use sidestep_results::{
    Estimate,
    measures::{median_interval, percentile},
};

use crate::{Capacities, Options, Question, flows::Pair};

/// Where there are at most this many choices of the pairs, all of them are computed instead of some that are drawn.
const FEW_CHOICES: usize = 256;
/// The median's interval is narrow if neither end is farther from it than this share of it, or than [`POINTS`].
const NEAR: f64 = 0.1;
/// See [`NEAR`]; in percentage points.
const POINTS: f64 = 5.0;

/// What segment routing adds to the maximum flow.
#[derive(Clone, Debug, Serialize)]
pub struct Flow {
    /// Share of the pairs that are heavy.
    pub share: f64,
    /// The number of heavy pairs of a draw.
    pub heavy_pairs: usize,
    /// Of how many pairs they are drawn.
    pub of_pairs: usize,
    /// How often they were drawn.
    pub draws: usize,
    /// How many different pairs the draws have.
    pub different_pairs: usize,
    /// Why no more were drawn.
    pub ended: Ended,
    /// Whether the interval of the median gain at the limit is narrow: each end within a tenth of the median, or 5 points.
    pub narrow: bool,
    /// The source of the rates, in words.
    pub capacities: String,
    /// Gain over ECMP in percent, with the advised number of segments.
    pub gain_at_limit: Option<Gained>,
    /// Gain over ECMP in percent, with any number of segments.
    pub gain: Option<Gained>,
    /// The largest gap between a flow and its bound, as a share of the flow.
    pub largest_gap: f64,
}

/// Why no more pairs were drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The interval is narrow.
    Narrow,
    /// Every choice of the pairs was computed, so that nothing is left to chance.
    All,
    /// As many draws were made as may be.
    MaxDraws,
    /// The time was over.
    Time,
    /// The user stopped it.
    Interrupted,
}

/// A gain over the draws, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gained {
    /// Mean over the draws, with its confidence by Student's t.
    #[serde(flatten)]
    pub mean: Estimate,
    /// Median.
    pub median: f64,
    /// The 95 % confidence interval of the median by order statistics; null of fewer than six draws, and of all choices.
    pub median_ci95: Option<[f64; 2]>,
    /// The smallest and the largest.
    pub range: [f64; 2],
    /// The fewest draws that together have half of what all draws gain; null if they gain nothing.
    pub half_from: Option<usize>,
}

impl Gained {
    /// The gain over these draws; `all`: they are every choice there is. `None` without draws.
    pub fn of(gains: &[f64], all: bool) -> Option<Gained> {
        let mut ascending = gains.to_vec();
        ascending.sort_by(f64::total_cmp);
        let half = ascending.iter().sum::<f64>() / 2.0;
        let mut summed = 0.0;
        let from = ascending.iter().rev().position(|gain| {
            summed += gain;
            summed >= half
        });
        Some(Gained {
            mean: Estimate::of(&ascending)?,
            median: percentile(&ascending, 50)?,
            median_ci95: if all { None } else { median_interval(&ascending) },
            range: [*ascending.first()?, *ascending.last()?],
            half_from: from.filter(|_| half > 0.0).map(|index| index + 1),
        })
    }

    /// Whether the median's interval is narrow.
    fn is_narrow(&self) -> bool {
        let near = (NEAR * self.median.abs()).max(POINTS);
        self.median_ci95.is_some_and(|[low, high]| self.median - low <= near && high - self.median <= near)
    }
}

/// The flows of the pairs that were drawn, and why no more were.
#[derive(Default)]
struct Rounds {
    /// By draw, the pairs.
    pairs: Vec<Vec<Pair>>,
    /// By draw and by model, flows in bit/s.
    flows: Vec<Vec<f64>>,
    gap: f64,
}

impl Rounds {
    /// By draw, the gain of a model over the first in percent; draws in which that has no flow are left out.
    fn gains(&self, model: usize) -> Vec<f64> {
        let gain = |flows: &Vec<f64>| match (flows.first(), flows.get(model)) {
            (Some(over), Some(flow)) if *over > 0.0 => Some(100.0 * (flow / over - 1.0)),
            _ => None,
        };
        self.flows.iter().filter_map(gain).collect()
    }

    /// Computes the flows of more pairs. Of a computation that was stopped, the first draws count, up to one that is missing.
    fn add(&mut self, question: &Question<'_>, pairs: Vec<Vec<Pair>>, watch: &dyn Watch) -> Result<bool, FlowError> {
        let solved = question.flows_of(&pairs, watch)?;
        let expected = pairs.len();
        let whole: Vec<_> = pairs.into_iter().zip(solved.into_iter().map_while(|flows| flows)).collect();
        let complete = whole.len() == expected;
        for (pairs, flows) in whole.into_iter().filter(|(pairs, _)| !pairs.is_empty()) {
            self.gap = flows.iter().map(|(_, gap)| *gap).fold(self.gap, f64::max);
            self.flows.push(flows.into_iter().map(|(flow, _)| flow).collect());
            self.pairs.push(pairs);
        }
        Ok(complete)
    }
}

/// Draws pairs of the question's first share, twice as many in each round, until the median gain of the second model over the
/// first has a narrow interval. The third model's gain is that of the same draws.
pub fn flow(
    question: &Question<'_>,
    options: &Options,
    capacities: &Capacities,
    watch: &dyn Watch,
) -> Result<Flow, FlowError> {
    let share = options.share;
    let mut rounds = Rounds::default();
    let choices = question.sampling.choices(question.nodes, question.pairs(share), FEW_CHOICES);
    let all = choices.is_some();
    let ended = match choices {
        Some(choices) => match rounds.add(question, choices, watch)? {
            true => Ended::All,
            false => stopped(watch),
        },
        None => draw(question, share, options, &mut rounds, watch)?,
    };
    let gained = |model| Gained::of(&rounds.gains(model), all && ended == Ended::All);
    let gain_at_limit = gained(1);
    let different: BTreeSet<Pair> =
        rounds.pairs.iter().flatten().map(|(from, to)| question.sampling.pairs.unordered(*from, *to)).collect();
    Ok(Flow {
        share: share.as_f64(),
        heavy_pairs: question.pairs(share),
        of_pairs: question.sampling.pairs.candidates(question.nodes.len()),
        draws: rounds.flows.len(),
        different_pairs: different.len(),
        ended,
        narrow: ended == Ended::All || gain_at_limit.is_some_and(|gain| gain.is_narrow()),
        capacities: (options.say_capacities)(capacities),
        gain_at_limit,
        gain: gained(2),
        largest_gap: rounds.gap,
    })
}

/// Draws in rounds, each as large as all before it together. Time bounds all but the first.
fn draw(
    question: &Question<'_>,
    share: Ratio,
    options: &Options,
    rounds: &mut Rounds,
    watch: &dyn Watch,
) -> Result<Ended, FlowError> {
    let most = options.max_draws.max(options.draws) as usize;
    let timed = Timed(watch);
    let (mut from, mut next) = (0, options.draws as usize);
    loop {
        let pairs = (from..next).map(|draw| question.drawn(share, draw)).collect();
        let watch = if from == 0 { watch } else { &timed };
        if !rounds.add(question, pairs, watch)? {
            return Ok(stopped(watch));
        }
        if Gained::of(&rounds.gains(1), false).is_none_or(|gain| gain.is_narrow()) {
            return Ok(Ended::Narrow);
        }
        if next >= most {
            return Ok(Ended::MaxDraws);
        }
        (from, next) = (next, (2 * next).min(most));
    }
}

fn stopped(watch: &dyn Watch) -> Ended {
    if watch.is_over() { Ended::Time } else { Ended::Interrupted }
}

/// Stops when the time is over, too.
struct Timed<'a>(&'a dyn Watch);

impl Watch for Timed<'_> {
    fn on_start(&self, what: &str, steps: usize) {
        self.0.on_start(what, steps);
    }

    fn step(&self) {
        self.0.step();
    }

    fn on_finish(&self) {
        self.0.on_finish();
    }

    fn stopped(&self) -> bool {
        self.0.stopped() || self.0.is_over()
    }

    fn is_over(&self) -> bool {
        self.0.is_over() && !self.0.stopped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use sidestep_maxflow::{Pairs, Rounding, Sampling, Unwatched};
    use sidestep_net::{Graph, GraphEdge, GraphNode, Rate};
    use sidestep_paths::analysis::{Net, NetOptions};

    use super::*;
    use crate::{Advice, Subject, advise};

    /// A ring of routers whose links have these rates in Mbit/s, each link between a router and the next.
    fn ring(rates: &[u64]) -> Subject {
        let node = |index| GraphNode { name: format!("n{index}"), position: None };
        let edge = |(from, rate): (usize, &u64)| GraphEdge {
            from,
            to: (from + 1) % rates.len(),
            directed: false,
            weight: Some(1.0),
            rate: Some(Rate::from_mbits(*rate)),
            delay: None,
        };
        let graph = Graph {
            name: "ring".into(),
            nodes: (0..rates.len()).map(node).collect(),
            edges: rates.iter().enumerate().map(edge).collect(),
            ..Graph::default()
        };
        let net = Net::new(&graph, NetOptions::default()).unwrap();
        Subject::new(graph, net).unwrap()
    }

    fn advice(subject: &Subject, draws: u32, max_draws: u32, watch: &dyn Watch) -> Advice {
        let options = Options {
            no_adjacency: false,
            share: Ratio::from_ppb(100_000_000),
            sampling: Sampling { pairs: Pairs::OneWay, rounding: Rounding::Ceil },
            draws,
            max_draws,
            seed: 1,
            default_rate: None,
            say_capacities: |_| "known".into(),
        };
        advise(subject, &options, watch).unwrap()
    }

    #[test]
    fn three_pairs_are_all_computed_and_the_one_that_gains_much_is_not_the_headline() {
        // Alone, a pair carries its own link and the least of the two others: 1 + 20 over 1, and 20 + 1 over 20, twice.
        let advice = advice(&ring(&[1, 20, 20]), 20, 1_000, &Unwatched);
        let flow = advice.flow.as_ref().unwrap();
        assert_eq!((flow.draws, flow.ended, flow.narrow), (6, Ended::All, true));
        assert_eq!((flow.heavy_pairs, flow.of_pairs, flow.different_pairs), (1, 3, 3));
        let gain = flow.gain_at_limit.unwrap();
        let near = |one: f64, other: f64| (one - other).abs() < 1e-3;
        assert!(near(gain.median, 5.0) && near(gain.range[0], 5.0) && near(gain.range[1], 2000.0), "{gain:?}");
        assert!(near(gain.mean.mean, 670.0), "{gain:?}");
        assert_eq!((gain.half_from, gain.median_ci95), (Some(2), None));
        let told = advice.headline();
        assert!(
            told.ends_with(
                ", and carry 5 % more than ECMP when 10 % of the pairs are heavy: the median of all 6 choices of 1 of 3 pairs, \
                 from 5 to 2000 %; half of the mean, 670 %, comes from 2 of them."
            ),
            "{told}"
        );
        assert!(advice.flow_notes().contains("all 6 choices of 1 of 3 pairs there are"), "{}", advice.flow_notes());
    }

    #[test]
    fn pairs_are_drawn_until_the_interval_is_narrow_and_the_seed_decides_which() {
        let rates: Vec<u64> = (0..7).map(|link| 10 + 3 * (link * 7 % 11)).collect();
        let ring = ring(&rates);
        let advice = |draws| advice(&ring, draws, 4_000, &Unwatched);
        let (one, other) = (advice(8), advice(8));
        let flow = one.flow.as_ref().unwrap();
        assert_eq!(format!("{flow:?}"), format!("{:?}", other.flow.as_ref().unwrap()));
        assert_eq!((flow.ended, flow.narrow), (Ended::Narrow, true), "{flow:?}");
        assert!(flow.draws > 8 && flow.draws % 8 == 0, "a few draws do not do here: {flow:?}");
        let gain = flow.gain_at_limit.unwrap();
        let [low, high] = gain.median_ci95.unwrap();
        let near = (0.1 * gain.median).max(5.0);
        assert!(gain.median - low <= near && high - gain.median <= near, "{gain:?}");
        let told = one.headline();
        let rests =
            format!("the median of {} draws of 3 of 21 pairs, 95 % interval {low:.0} to {high:.0} %", flow.draws);
        assert!(told.contains(&rests) && !told.contains("not narrow"), "{told}");
        // As many at once as were drawn in rounds are the same draws.
        let flow = |advice: Advice| format!("{:?}", advice.flow.unwrap().gain_at_limit);
        let at_once = advice(one.flow.as_ref().unwrap().draws as u32);
        assert_eq!(flow(at_once), flow(one));
    }

    #[test]
    fn an_interval_that_stays_wide_is_said_to_be_with_the_bound_that_was_met() {
        /// The time is over once some steps are done.
        struct Slow(AtomicUsize);
        impl Watch for Slow {
            fn on_start(&self, what: &str, _: usize) {
                self.0.store(if what == "maximum flows" { 0 } else { 1_000 }, Ordering::SeqCst);
            }
            fn step(&self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
            fn on_finish(&self) {}
            fn stopped(&self) -> bool {
                false
            }
            fn is_over(&self) -> bool {
                self.0.load(Ordering::SeqCst) >= 8
            }
        }
        let rates: Vec<u64> = (0..7).map(|link| if link % 3 == 0 { 1 } else { 100 }).collect();
        let ring = ring(&rates);
        let wide = advice(&ring, 8, 16, &Unwatched);
        let flow = wide.flow.as_ref().unwrap();
        assert_eq!((flow.ended, flow.narrow, flow.draws), (Ended::MaxDraws, false, 16), "{flow:?}");
        assert!(
            wide.headline().contains("not narrow, as the draws differ and no more than 16 were made (--max-draws)")
        );
        assert!(wide.flow_notes().contains("The interval is not narrow"), "{}", wide.flow_notes());
        let late = advice(&ring, 8, 1_000_000, &Slow(AtomicUsize::new(0)));
        let flow = late.flow.as_ref().unwrap();
        assert_eq!((flow.ended, flow.narrow), (Ended::Time, false), "{flow:?}");
        assert!((8..40).contains(&flow.draws) && !late.interrupted, "{}", flow.draws);
        assert!(late.headline().contains("as the time was over after"), "{}", late.headline());
    }

    #[test]
    fn half_of_what_is_gained_is_that_of_the_fewest_draws_and_nothing_has_no_half() {
        let of = |gains: &[f64]| Gained::of(gains, false).unwrap();
        assert_eq!(of(&[0.0, 1284.0, 0.0]).half_from, Some(1));
        assert_eq!(of(&[10.0; 8]).half_from, Some(4));
        assert_eq!(of(&[0.0; 8]).half_from, None);
        assert_eq!(Gained::of(&[], false), None);
        assert_eq!((of(&[1.0; 5]).median_ci95, of(&[1.0; 6]).median_ci95), (None, Some([1.0, 1.0])));
        assert!(!of(&[1.0; 5]).is_narrow() && of(&[1.0; 6]).is_narrow());
    }
}
