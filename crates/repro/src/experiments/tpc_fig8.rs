//! TCPPathChanger, Figure 8: how many disjoint paths pairs of access routers have.

use sidestep_paths::analysis::{Remove, SegmentOptions, Survey};

use super::topologies::{Pruned, csv, mean, pruned, survivors, unsaid};
use crate::{Context, Curve, Experiment, Findings, Paper, ReproError, Row, Rule, curves};

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

fn algorithms(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let all = pruned(context.data.as_deref())?;
    let mut lines = Vec::new();
    for Pruned { name, net, .. } in &all {
        let survey = Survey::new(net)?;
        let access = net.access();
        let most = survey.most(&access).mean();
        if let Some((most, greedy)) = most.zip(survey.greedy(&access, Remove::Both).mean()) {
            lines.push((name.clone(), vec![access.len() as f64, most, greedy]));
        }
    }
    let column = |index: usize| lines.iter().map(|(_, numbers)| numbers[index]).collect::<Vec<f64>>();
    let (most, greedy) = (column(1), column(2));
    let equal = most.iter().zip(&greedy).filter(|(most, greedy)| most == greedy).count();
    let share = 100.0 * equal as f64 / lines.len() as f64;
    let worst = most.iter().zip(&greedy).map(|(most, greedy)| 100.0 * (1.0 - greedy / most)).fold(0.0, f64::max);
    let rows = vec![
        survivors(&all),
        unsaid("topologies with two or more access routers", "", lines.len() as f64),
        Row::single(
            "topologies where iterated Dijkstra finds as many",
            "%",
            Paper::Number(70.0),
            share,
            Rule::Within(0.1),
        ),
        unsaid("disjoint paths by Edmonds-Karp, mean over topologies", "paths", mean(&most)),
        unsaid("disjoint paths by iterated Dijkstra, mean over topologies", "paths", mean(&greedy)),
        unsaid("what iterated Dijkstra misses, at worst", "%", worst),
    ];
    let drawn = [
        Curve { label: "Edmonds-Karp".into(), values: most },
        Curve { label: "iterated Dijkstra".into(), values: greedy },
    ];
    let picture =
        curves("Link-disjoint paths between access routers", "mean number of paths of a pair", "topologies", &drawn)?;
    let table = csv(&["topology", "access routers", "Edmonds-Karp", "iterated Dijkstra"], lines);
    Ok(Findings { rows, pictures: vec![("paths.svg".into(), picture)], tables: vec![("topologies.csv".into(), table)] })
}

fn segments(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let all = pruned(context.data.as_deref())?;
    let mut lines = Vec::new();
    for Pruned { name, net, .. } in &all {
        let survey = Survey::new(net)?;
        let counts = survey.segmented(&net.access(), LIMITS, SegmentOptions::default());
        let means: Option<Vec<f64>> = counts.iter().map(|counts| counts.mean()).collect();
        lines.extend(means.map(|means| (name.clone(), means)));
    }
    let by_limit: Vec<Vec<f64>> =
        (0..LIMITS).map(|index| lines.iter().map(|(_, means)| means[index]).collect()).collect();
    let means: Vec<f64> = by_limit.iter().map(|values| mean(values)).collect();
    let mut rows = vec![survivors(&all)];
    for (limit, mean) in (1..).zip(&means) {
        let segments = if limit == 1 { "segment" } else { "segments" };
        let quantity = format!("disjoint paths, at most {limit} {segments}, mean over topologies");
        rows.push(unsaid(quantity, "paths", *mean));
    }
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
