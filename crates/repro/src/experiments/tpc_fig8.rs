//! TCPPathChanger, Figure 8: how many disjoint paths pairs of access routers have.

use std::time::Instant;

use sidestep_paths::analysis::{Remove, SegmentOptions, Survey};

use super::topologies::{Pruned, counted, csv, mean, pruned, unsaid};
use crate::{Context, Curve, Experiment, Findings, Mode, Paper, ReproError, Row, Rule, Seeds, curves};

const PAPER: &str = "TCPPathChanger";

pub(crate) const ALGORITHMS: Experiment = Experiment {
    id: "tpc-fig8a",
    paper: PAPER,
    figure: "Figure 8a",
    title: "Disjoint paths of access pairs: iterated Dijkstra finds as many as there are on most topologies.",
    worlds: &[],
    run: algorithms,
};

pub(crate) const SEGMENTS: Experiment = Experiment {
    id: "tpc-fig8b",
    paper: PAPER,
    figure: "Figure 8b",
    title: "Disjoint paths of access pairs by limit of segments: four are about enough.",
    worlds: &[],
    run: segments,
};

/// Segment limits from 1 to this.
const LIMITS: usize = 10;
/// What a path takes from those after it, in both figures: its links, as a link that fails, fails in both directions.
const REMOVE: Remove = Remove::Both;
/// How many points the share of topologies may be off the paper's.
const POINTS: f64 = 3.0;

fn algorithms(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let all = pruned(context)?;
    let mut lines = Vec::new();
    for Pruned { name, net, .. } in &all {
        let survey = Survey::new(net)?;
        let access = net.access();
        let most = survey.most(&access).mean();
        if let Some((most, greedy)) = most.zip(survey.greedy(&access, REMOVE).mean()) {
            let forward = survey.greedy(&access, Remove::Forward).mean().unwrap_or(f64::NAN);
            lines.push((name.clone(), vec![access.len() as f64, most, greedy, forward]));
        }
    }
    let column = |index: usize| lines.iter().map(|(_, numbers)| numbers[index]).collect::<Vec<f64>>();
    let (most, greedy) = (column(1), column(2));
    let equal = |found: &[f64]| {
        let equal = most.iter().zip(found).filter(|(most, found)| most == found).count();
        100.0 * equal as f64 / lines.len() as f64
    };
    let share = equal(&greedy);
    let worst = most.iter().zip(&greedy).map(|(most, greedy)| 100.0 * (1.0 - greedy / most)).fold(0.0, f64::max);
    let mut rows = vec![
        counted(&all),
        unsaid("topologies with two or more access routers", "", lines.len() as f64),
        Row::single(
            "topologies where iterated Dijkstra finds as many",
            "%",
            Paper::Number(70.0),
            share,
            Rule::Near(POINTS),
        ),
        unsaid("the same if a path takes only the direction that it uses", "%", equal(&column(3))),
        unsaid("disjoint paths by Edmonds-Karp, mean over topologies", "paths", mean(&most)),
        unsaid("disjoint paths by iterated Dijkstra, mean over topologies", "paths", mean(&greedy)),
        unsaid("what iterated Dijkstra misses, at worst", "%", worst),
    ];
    rows.extend(times(&all, if context.mode == Mode::Full { 30 } else { 6 })?);
    let drawn = [
        Curve { label: "Edmonds-Karp".into(), values: most },
        Curve { label: "iterated Dijkstra".into(), values: greedy },
    ];
    let picture =
        curves("Link-disjoint paths between access routers", "mean number of paths of a pair", "topologies", &drawn)?;
    let table = csv(&["topology", "access routers", "Edmonds-Karp", "iterated Dijkstra", "one direction"], lines);
    Ok(Findings { rows, pictures: vec![("paths.svg".into(), picture)], tables: vec![("topologies.csv".into(), table)] })
}

/// How long both algorithms take over all topologies, by the clock; each takes its turn.
fn times(all: &[Pruned], repetitions: usize) -> Result<Vec<Row>, ReproError> {
    let mut seconds = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..repetitions {
        let mut of_one = [0.0; 3];
        for Pruned { net, .. } in all {
            let access = net.access();
            let begin = Instant::now();
            // The survey computes the trees of shortest paths, which Edmonds-Karp has no use for.
            let survey = Survey::new(net)?;
            let trees = begin.elapsed().as_secs_f64();
            std::hint::black_box(survey.greedy(&access, REMOVE));
            let greedy = begin.elapsed().as_secs_f64();
            std::hint::black_box(survey.most(&access));
            let most = begin.elapsed().as_secs_f64() - greedy;
            of_one.iter_mut().zip([greedy, greedy - trees, most]).for_each(|(sum, one)| *sum += one);
        }
        of_one.iter().zip(&mut seconds).for_each(|(one, all)| all.push(Some(*one)));
    }
    let [greedy, alone, most] = seconds.map(Seeds::new);
    let row = |quantity: &str, unit, ours: &Seeds| {
        let paper = Paper::Text("compares their time".into());
        Row::median(quantity, unit, paper, ours, Rule::Unjudged("the paper's numbers were not at hand"))
    };
    Ok(vec![
        row("time of iterated Dijkstra, all topologies", "s", &greedy),
        row("time of Edmonds-Karp over that of iterated Dijkstra", "", &most.over(&greedy)),
        row("the same without the trees of all shortest paths", "", &most.over(&alone)),
    ])
}

fn segments(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let all = pruned(context)?;
    let mut lines = Vec::new();
    for Pruned { name, net, .. } in &all {
        let survey = Survey::new(net)?;
        let options = SegmentOptions { remove: REMOVE, ..SegmentOptions::default() };
        let counts = survey.segmented(&net.access(), LIMITS, options);
        let means: Option<Vec<f64>> = counts.iter().map(|counts| counts.mean()).collect();
        lines.extend(means.map(|means| (name.clone(), means)));
    }
    let by_limit: Vec<Vec<f64>> =
        (0..LIMITS).map(|index| lines.iter().map(|(_, means)| means[index]).collect()).collect();
    let means: Vec<f64> = by_limit.iter().map(|values| mean(values)).collect();
    let mut rows = vec![counted(&all)];
    for (limit, mean) in (1..).zip(&means) {
        let segments = if limit == 1 { "segment" } else { "segments" };
        let quantity = format!("disjoint paths, at most {limit} {segments}, mean over topologies");
        rows.push(unsaid(quantity, "paths", *mean));
    }
    let text = |text: &str| Paper::Text(text.into());
    let one = text("one segment gives one path");
    rows.push(Row::single("disjoint paths with one segment", "paths", one, means[0], Rule::Between(1.0, 1.005)));
    let more = by_limit[3].iter().zip(&by_limit[0]).map(|(four, one)| Some(four - one));
    let better = "what four segments add to one, median over topologies";
    let paper = text("significantly better");
    rows.push(Row::median(better, "paths", paper, &Seeds::new(more), Rule::AtLeast(f64::MIN_POSITIVE)));
    let paper = text("between 1 and 2 paths a pair");
    let all = "disjoint paths with ten segments, mean over topologies";
    rows.push(Row::single(all, "paths", paper, means[LIMITS - 1], Rule::Between(1.0, 2.0)));
    let gained = |limit: usize| 100.0 * (means[limit - 1] - means[0]) / (means[LIMITS - 1] - means[0]);
    for limit in [2, 3, 4] {
        let quantity = format!("of what ten segments add to one, {limit} add");
        let (paper, rule) = match limit {
            4 => (Paper::Text("little gain beyond four".into()), Rule::AtLeast(95.0)),
            _ => (Paper::None, Rule::NoPaperValue),
        };
        rows.push(Row::single(quantity, "%", paper, gained(limit), rule));
    }
    let drawn: Vec<Curve> = (1..)
        .zip(by_limit)
        .map(|(limit, values)| Curve { label: format!("{limit} segment{}", if limit == 1 { "" } else { "s" }), values })
        .collect();
    let picture = curves(
        "Disjoint paths between access routers by segments",
        "mean number of paths of a pair",
        "topologies",
        &drawn,
    )?;
    let names: Vec<String> = (1..=LIMITS).map(|limit| limit.to_string()).collect();
    let head: Vec<&str> = std::iter::once("topology").chain(names.iter().map(String::as_str)).collect();
    Ok(Findings {
        rows,
        pictures: vec![("segments.svg".into(), picture)],
        tables: vec![("topologies.csv".into(), csv(&head, lines))],
    })
}
