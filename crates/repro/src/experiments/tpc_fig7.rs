//! TCPPathChanger, Figure 7: how much more segment routing carries where few pairs have heavy hitters.
//!
//! The paper says which share of the access pairs have heavy hitters, and neither of which pairs that is a share nor how
//! it is rounded. At 1 % that decides: most networks have one pair then, or none. So all rules are tried, and a verdict
//! holds only if it does under all. A box is of networks: the paper speaks of half of the topologies.

mod study;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_maxflow::{FlowNetwork, Pairs, Rounding, Sampling};
use sidestep_net::{NodeId, Rate};
use sidestep_results::{
    Estimate,
    measures::{median_interval, percentile},
};

use self::study::{Draws, ECMP, Flows, MULTIPATH, Network, SEGMENTS, SHARES, SINGLE_PATH, Study};
use super::topologies::{Pruned, survive};
use crate::{
    Context, Experiment, FEWEST, Findings, Mode, Paper, ReproError, Row, Rule, Seeds, Spread, Verdict, boxes, weighted,
};

pub(crate) const A: Experiment = Experiment {
    id: "tpc-fig7a",
    paper: "TCPPathChanger",
    figure: "Figure 7a",
    title: "Maximum flow with segment routing over that without, by the share of access pairs with heavy hitters.",
    worlds: &[],
    run: |context| run(context, ECMP, "routing without SR", &PAPER),
};

pub(crate) const B: Experiment = Experiment {
    id: "tpc-fig7b",
    figure: "Figure 7b",
    title: "Maximum flow with segment routing over that of multipath without it, whose paths are the shortest ones.",
    run: |context| run(context, MULTIPATH, "multipath without SR", &[]),
    ..A
};

/// The medians that the paper names, in percent by the share of pairs.
const PAPER: [(usize, f64); 2] = [(1, 71.0), (10, 30.0)];

/// The reading that the figure shows. Verdicts are of all readings together.
const DRAWN: Reading = Reading { sampling: Sampling { pairs: Pairs::OneWay, rounding: Rounding::Ceil } };
/// By what share a median may differ from the paper's number.
const TOLERANCE: f64 = 0.15;
/// How much lower the paper has the gain over multipath than that over routing without it, in points, and by how many points
/// ours may differ from that.
const LOWER: (f64, f64) = (5.0, 2.5);

/// How often the bootstrap draws.
const DRAWS: usize = 1_000;

/// A median of networks, or the difference of two.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Median {
    value: f64,
    /// Its 95 % confidence interval; `None` of fewer than [`FEWEST`] networks, which decide nothing.
    ci95: Option<[f64; 2]>,
    networks: usize,
}

/// An interpretation of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    sampling: Sampling,
}

impl Reading {
    fn all() -> impl Iterator<Item = Reading> {
        Sampling::all().map(|sampling| Reading { sampling })
    }

    /// Mean gain over its draws of each network with a flow, in percent; `None` of a network without.
    fn by_network(&self, study: &Study, share: usize, over: usize) -> Option<Vec<Option<f64>>> {
        let draws: &Draws = study.flows.get(&(self.sampling, share))?;
        let gain = |draws: &Vec<Option<Flows>>| {
            // Where a network fell apart, there may be no flow at all.
            let fine = draws.iter().flatten().filter(|flows| flows[over] > 0.0);
            let gains: Vec<f64> = fine.map(|flows| 100.0 * (flows[SEGMENTS] / flows[over] - 1.0)).collect();
            sidestep_results::measures::mean(&gains)
        };
        Some(draws.iter().map(gain).collect())
    }

    /// The gains of the networks with a flow, in percent and ascending order; `None` if there are none.
    fn gains(&self, study: &Study, share: usize, over: usize) -> Option<Vec<f64>> {
        let mut gains: Vec<f64> = self.by_network(study, share, over)?.into_iter().flatten().collect();
        gains.sort_by(f64::total_cmp);
        (!gains.is_empty()).then_some(gains)
    }

    fn median(&self, study: &Study, share: usize, over: usize) -> Option<Median> {
        Some(Median::of(&self.gains(study, share, over)?))
    }

    /// By how many points the median gain over multipath is lower than that over routing without it, of the networks that
    /// have both; the interval is that of networks drawn again.
    fn lower(&self, study: &Study, share: usize) -> Option<Median> {
        let both = self.by_network(study, share, ECMP)?.into_iter().zip(self.by_network(study, share, MULTIPATH)?);
        let both: Vec<[f64; 2]> = both.filter_map(|(one, other)| Some([one?, other?])).collect();
        (!both.is_empty()).then(|| difference_of_medians(&both))
    }
}

fn run(context: &mut Context<'_>, over: usize, name: &str, paper: &[(usize, f64)]) -> Result<Findings, ReproError> {
    let studies = studies(context)?;
    let Studies { networks, figure, band, .. } = studies.as_ref();
    let mut findings = Findings::default();
    let mut drawn = Vec::new();
    for share in SHARES {
        let values = DRAWN.gains(figure, share, over).ok_or_else(missing)?;
        let expected = paper.iter().find(|(at, _)| *at == share).map(|(_, gain)| *gain);
        let quantity = format!("median gain over {name}, {share} % of pairs, as drawn");
        let number = expected.map_or(Paper::None, Paper::Number);
        let rule = if expected.is_some() { Rule::Unjudged("one of the readings") } else { Rule::NoPaperValue };
        findings.rows.push(Median::of(&values).row(quantity, number, rule));
        drawn.push(Spread { label: format!("{share} %"), values, paper: expected });
    }
    findings.rows.push(falls(band, over, name)?);
    if over == ECMP {
        for (share, _) in paper {
            let values = DRAWN.gains(figure, *share, SINGLE_PATH).ok_or_else(missing)?;
            let quantity = format!("the same without ECMP, {share} % of pairs");
            findings.rows.push(Median::of(&values).row(quantity, Paper::None, Rule::NoPaperValue));
        }
    }
    for share in SHARES {
        let medians = |reading: Reading| Some((reading.median(band, share, over)?, reading));
        let quantity = format!("median gain over {name}, {share} % of pairs");
        let expected = paper.iter().find(|(at, _)| *at == share).map(|(_, gain)| *gain);
        let rule = if expected.is_some() { Rule::Within(TOLERANCE) } else { Rule::NoPaperValue };
        findings.rows.push(of_all_readings(quantity, expected, rule, Reading::all().filter_map(medians))?);
    }
    if over == MULTIPATH {
        for (share, _) in PAPER {
            let lower = |reading: Reading| Some((reading.lower(band, share)?, reading));
            let quantity = format!("how much lower than over routing without SR, {share} % of pairs");
            let rule = Rule::Near(LOWER.1);
            findings.rows.push(of_all_readings(quantity, Some(LOWER.0), rule, Reading::all().filter_map(lower))?);
        }
    }
    proof(&[figure, band], &mut findings);
    let title = format!("Gain in maximum flow over {name}");
    let unit = format!("%; quartiles, 5th and 95th percentile of {networks} networks");
    let picture = boxes(&title, &unit, "share of access pairs with heavy hitters", &drawn)?;
    findings.pictures.push(("gain.svg".into(), picture));
    Ok(findings)
}

fn missing() -> ReproError {
    ReproError::Missing("draws".into())
}

/// The row of a value that each reading gives: it holds, or differs, only if it does all over the intervals of all, and each has one.
fn of_all_readings(
    quantity: String,
    paper: Option<f64>,
    rule: Rule,
    values: impl Iterator<Item = (Median, Reading)>,
) -> Result<Row, ReproError> {
    let mut values: Vec<(Median, Reading)> = values.collect();
    values.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let (Some(lowest), Some(highest)) = (values.first(), values.last()) else { return Err(missing()) };
    let intervals: Option<Vec<[f64; 2]>> = values.iter().map(|(median, _)| median.ci95).collect();
    let ci95 = intervals.map(|all| {
        let low = all.iter().map(|[low, _]| *low).fold(f64::INFINITY, f64::min);
        [low, all.iter().map(|[_, high]| *high).fold(f64::NEG_INFINITY, f64::max)]
    });
    let networks = values.iter().map(|(median, _)| median.networks).min().unwrap_or(0);
    let ours = Median { value: values[values.len() / 2].0.value, ci95, networks };
    let mut row = ours.row(quantity, paper.map_or(Paper::None, Paper::Number), rule);
    let with = ci95.map_or(String::new(), |[low, high]| format!(", with their intervals {low:.1} to {high:.1}"));
    row.why = format!(
        "{} readings of the paper give {:.1} ({}) to {:.1} ({}){with}; {}",
        values.len(),
        lowest.0.value,
        lowest.1.sampling,
        highest.0.value,
        highest.1.sampling,
        row.why
    );
    Ok(row)
}

/// The difference of the medians of pairs, the first less the second, with its 95 % interval by the bootstrap: that of as many pairs
/// drawn from these, a thousand times (Efron, 1979). Of fewer than [`FEWEST`] it has none.
fn difference_of_medians(pairs: &[[f64; 2]]) -> Median {
    let mut columns = [Vec::new(), Vec::new()];
    let mut difference = |drawn: &mut dyn Iterator<Item = [f64; 2]>| {
        columns.iter_mut().for_each(Vec::clear);
        drawn.for_each(|pair| columns.iter_mut().zip(pair).for_each(|(column, value)| column.push(value)));
        let [one, other] = columns.each_mut().map(|column| {
            column.sort_by(f64::total_cmp);
            percentile(column, 50).unwrap_or(f64::NAN)
        });
        one - other
    };
    let (value, networks) = (difference(&mut pairs.iter().copied()), pairs.len());
    if networks < FEWEST {
        return Median { value, ci95: None, networks };
    }
    let mut random = Pcg32::seed_from_u64(pairs.len() as u64);
    let mut drawn: Vec<f64> = (0..DRAWS)
        .map(|_| difference(&mut (0..pairs.len()).map(|_| pairs[random.next_u32() as usize % pairs.len()])))
        .collect();
    drawn.sort_by(f64::total_cmp);
    Median { value, ci95: Some([drawn[DRAWS * 25 / 1_000], drawn[DRAWS * 975 / 1_000 - 1]]), networks }
}

/// The row of what the paper's text says: the gain falls as the share grows. It is that of the reading which is nearest to
/// failing, and undecided unless all have the same verdict.
fn falls(study: &Study, over: usize, name: &str) -> Result<Row, ReproError> {
    let rows: Vec<(Row, Reading)> =
        Reading::all().filter_map(|reading| Some((falls_in(reading, study, over, name)?, reading))).collect();
    let low = |row: &Row| row.ci95.map_or(f64::NEG_INFINITY, |[low, _]| low);
    let worst = rows.iter().min_by(|(one, _), (other, _)| low(one).total_cmp(&low(other)));
    let (mut row, reading) = worst.cloned().ok_or_else(missing)?;
    row.why = format!("of {} readings that nearest to failing, {}: {}", rows.len(), reading.sampling, row.why);
    if rows.iter().any(|(other, _)| other.verdict != row.verdict) {
        row.verdict = Verdict::Undecided;
        row.why.push_str("; others have another verdict");
    }
    Ok(row)
}

/// That row in one reading; `None` if it was not solved.
fn falls_in(reading: Reading, study: &Study, over: usize, name: &str) -> Option<Row> {
    let by_share: Option<Vec<Vec<Option<f64>>>> =
        SHARES.iter().map(|share| reading.by_network(study, *share, over)).collect();
    let by_share = by_share?;
    let networks = by_share.first().map_or(0, Vec::len);
    // A network that has no flow under one share cannot be compared.
    let whole: Vec<usize> = (0..networks).filter(|one| by_share.iter().all(|gains| gains[*one].is_some())).collect();
    let of = |gains: &Vec<Option<f64>>| Seeds::new(whole.iter().map(|one| gains[*one]));
    let (names, all): (Vec<String>, Vec<Seeds>) =
        SHARES.iter().zip(&by_share).rev().map(|(share, gains)| (format!("{share} %"), of(gains))).unzip();
    let ascending: Vec<(&str, &Seeds)> = names.iter().map(String::as_str).zip(&all).collect();
    let quantity = format!("the gain over {name} falls as the share grows, mean of networks");
    Some(Row::ordered(quantity, "%", Paper::Text("falls".into()), &ascending, 0.0))
}

/// The data of both figures.
struct Studies {
    /// How many networks have at least two access routers.
    networks: usize,
    /// The flows of the reading that is drawn, with many draws.
    figure: Study,
    /// The flows of all readings, with few draws.
    band: Study,
    /// A note on the networks.
    note: Option<&'static str>,
}

/// The studies of a mode and of a data directory, which a process makes once: they are the same for both figures.
fn studies(context: &mut Context<'_>) -> Result<Arc<Studies>, ReproError> {
    type Key = (Mode, Option<PathBuf>);
    static MADE: Mutex<Vec<(Key, Arc<Studies>)>> = Mutex::new(Vec::new());
    let key = (context.mode, context.data.clone());
    let mut made = MADE.lock().map_err(|_| ReproError::Run("the other figure has failed".into()))?;
    if let Some((_, studies)) = made.iter().find(|(of, _)| *of == key) {
        context.note(studies.note);
        return Ok(studies.clone());
    }
    let (many, few) = if context.mode == Mode::Full { (20, 4) } else { (3, 2) };
    let (networks, note) = networks(context.data.as_deref())?;
    context.note(note);
    let figure = study::run(&networks, &[(DRAWN.sampling, many)], context.watch)?;
    let rules: Vec<(Sampling, u64)> = Sampling::all().map(|rule| (rule, few)).collect();
    let band = study::run(&networks, &rules, context.watch)?;
    let studies = Arc::new(Studies { networks: networks.len(), figure, band, note });
    made.push((key, studies.clone()));
    Ok(studies)
}

/// The networks with pairs of access routers.
fn networks(data: Option<&Path>) -> Result<(Vec<Network>, Option<&'static str>), ReproError> {
    let mut networks = Vec::new();
    let (graphs, note) = weighted(data)?;
    for Pruned { name, net, graph } in survive(graphs)? {
        let access: Vec<NodeId> = net.access().into_iter().map(NodeId).collect();
        if access.len() >= 2 {
            // All links have rates; zero would be refused.
            let network = FlowNetwork::of_net(&graph, &net, Rate::default());
            let network = network.map_err(|error| ReproError::Run(format!("{name}: {error}")))?;
            networks.push(Network { name, network, access });
        }
    }
    Ok((networks, note))
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
    /// Solves on one thread what `tpc-fig7a` and `tpc-fig7b` draw with `draws` draws; `clock` returns seconds.
    pub fn measure(data: Option<&Path>, draws: u64, clock: impl Fn() -> f64) -> Result<Self, ReproError> {
        let (networks, _) = networks(data)?;
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

fn proof(studies: &[&Study], findings: &mut Findings) {
    let gap = studies.iter().map(|study| study.gap).fold(0.0, f64::max);
    let programs: usize = studies.iter().map(|study| study.programs).sum();
    let quantity = format!("largest gap to the dual bound, of {programs} programs");
    findings.rows.push(Row::self_check(quantity, "1e-6 of the flow", gap * 1e6, 1.0));
}

impl Median {
    /// The median of values in ascending order, one of each network.
    fn of(ascending: &[f64]) -> Median {
        Median {
            value: percentile(ascending, 50).unwrap_or(f64::NAN),
            ci95: median_interval(ascending),
            networks: ascending.len(),
        }
    }

    /// The row of this in percent. Without an interval a rule decides nothing.
    fn row(&self, quantity: String, paper: Paper, rule: Rule) -> Row {
        let Some(ci95) = self.ci95 else {
            let lack = format!("networks with a value: {}, and at least {FEWEST} are needed", self.networks);
            return Row::undecided(quantity, "%", paper, self.value, rule, lack);
        };
        Row::new(quantity, "%", paper, Estimate { mean: self.value, ci95 }, rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_a_hundred_is_known_to_ten_ranks_on_each_side() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(Median::of(&values), Median { value: 50.0, ci95: Some([40.0, 61.0]), networks: 100 });
        assert_eq!(Median::of(&[7.0]), Median { value: 7.0, ci95: None, networks: 1 });
    }

    #[test]
    fn few_networks_decide_nothing_however_well_they_fit_and_the_row_shows_that() {
        let rows = |count: usize| {
            let gains = Median::of(&vec![70.0; count]);
            let lower = difference_of_medians(&vec![[75.0, 70.0]; count]);
            let (gains, lower) = (Reading::all().map(|one| (gains, one)), Reading::all().map(|one| (lower, one)));
            [
                of_all_readings("gain".into(), Some(70.0), Rule::Within(TOLERANCE), gains).unwrap(),
                of_all_readings("lower".into(), Some(LOWER.0), Rule::Near(LOWER.1), lower).unwrap(),
            ]
        };
        for count in 1..FEWEST {
            for row in rows(count) {
                assert_eq!((row.verdict, row.ci95), (crate::Verdict::Undecided, None), "{row:?}");
                assert!(row.why.ends_with(&format!("; networks with a value: {count}, and at least 6 are needed")));
                let json = serde_json::to_string(&row).unwrap();
                assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row, "{json}");
            }
        }
        assert!(rows(FEWEST).iter().all(|row| row.verdict == crate::Verdict::Holds));
        // Where nothing would be judged, nothing lacks.
        let row = Median::of(&[7.0]).row("q".into(), Paper::None, Rule::NoPaperValue);
        assert_eq!((row.verdict, row.ours), (crate::Verdict::NoPaperValue, 7.0));
    }

    /// A study of networks with one draw each, whose flows without segment routing are 1.
    fn study(gains: &[[f64; 2]]) -> Study {
        let flows = |gain: f64| Some([1.0, 1.0, 1.0, 1.0 + gain / 100.0]);
        let of = |share: usize| gains.iter().map(|gains| vec![flows(gains[share])]).collect::<Draws>();
        let by_share = SHARES.iter().enumerate().map(|(index, share)| {
            // From the first share to the last, evenly.
            let weight = index as f64 / (SHARES.len() - 1) as f64;
            let between = gains.iter().map(|[first, last]| vec![flows(first + weight * (last - first))]).collect();
            ((DRAWN.sampling, *share), if index == 0 { of(0) } else { between })
        });
        Study { flows: by_share.collect(), programs: 1, gap: 0.0 }
    }

    #[test]
    fn a_box_takes_each_network_once() {
        let flows = |without: f64, with: f64| Some([without, without, without, with]);
        // One network gains 100 and 0 %, another 200 %; a third has neither pairs nor flow.
        let draws =
            vec![vec![flows(1.0, 2.0), flows(2.0, 2.0)], vec![flows(1.0, 3.0), None], vec![None, flows(0.0, 0.0)]];
        let study = Study { flows: [((DRAWN.sampling, 1), draws)].into(), programs: 5, gap: 0.0 };
        assert_eq!(DRAWN.gains(&study, 1, ECMP), Some(vec![50.0, 200.0]));
        assert_eq!(DRAWN.by_network(&study, 1, MULTIPATH), Some(vec![Some(50.0), Some(200.0), None]));
        assert_eq!(DRAWN.gains(&study, 2, MULTIPATH), None);
    }

    #[test]
    fn a_value_holds_only_if_it_does_under_every_reading() {
        let verdict = |values: &[f64]| {
            let median = |value: &f64| Median { value: *value, ci95: Some([value - 1.0, value + 1.0]), networks: 20 };
            let readings = values.iter().map(median);
            let readings = readings.zip(Reading::all());
            of_all_readings("q".into(), Some(70.0), Rule::Within(0.1), readings).unwrap().verdict
        };
        assert_eq!(verdict(&[66.0, 70.0, 75.0]), crate::Verdict::Holds);
        // Within the tolerance, but not with its interval.
        assert_eq!(verdict(&[66.0, 70.0, 76.5]), crate::Verdict::Undecided);
        assert_eq!(verdict(&[66.0, 70.0, 100.0]), crate::Verdict::Undecided);
        assert_eq!(verdict(&[100.0, 90.0]), crate::Verdict::Differs);
        assert!(of_all_readings("q".into(), None, Rule::NoPaperValue, std::iter::empty()).is_err());
    }

    #[test]
    fn the_interval_of_a_difference_of_medians_grows_with_fewer_networks() {
        let pairs = |count: u32| (0..count).map(|one| [f64::from(one * 7 % count) + 5.0, f64::from(one)]).collect();
        let width = |count: u32| {
            let pairs: Vec<[f64; 2]> = pairs(count);
            let pairs: Vec<[f64; 2]> =
                pairs.iter().map(|pair| pair.map(|value| value * 100.0 / f64::from(count))).collect();
            let Median { value, ci95, .. } = difference_of_medians(&pairs);
            let [low, high] = ci95.unwrap();
            assert!(low <= value && value <= high, "{low} {value} {high}");
            high - low
        };
        assert!(width(20) > 1.5 * width(200), "{} {}", width(20), width(200));
        // Where one is always as much lower, nothing is uncertain.
        let shifted: Vec<[f64; 2]> = (0..40).map(|one| [f64::from(one) + 3.0, f64::from(one)]).collect();
        assert_eq!(difference_of_medians(&shifted), Median { value: 3.0, ci95: Some([3.0, 3.0]), networks: 40 });
    }

    #[test]
    fn a_gain_falls_only_if_it_does_with_each_share() {
        let networks = |last: f64| (0..20).map(|index| [60.0 + f64::from(index), last]).collect::<Vec<_>>();
        assert_eq!(falls(&study(&networks(10.0)), ECMP, "x").unwrap().verdict, crate::Verdict::Holds);
        assert_eq!(falls(&study(&networks(90.0)), ECMP, "x").unwrap().verdict, crate::Verdict::Differs);
        assert!(falls(&Study { flows: Default::default(), programs: 0, gap: 0.0 }, ECMP, "x").is_err());
        // And only if it does in each reading.
        let mut both = study(&networks(10.0));
        let other = Sampling::all().find(|sampling| *sampling != DRAWN.sampling).unwrap();
        let rises = study(&networks(90.0)).flows.into_iter().map(|((_, share), draws)| ((other, share), draws));
        both.flows.extend(rises);
        let row = falls(&both, ECMP, "x").unwrap();
        assert_eq!((row.verdict, row.ours < 0.0), (Verdict::Undecided, true), "{}", row.why);
    }
}
