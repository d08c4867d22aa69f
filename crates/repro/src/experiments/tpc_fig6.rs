//! TCPPathChanger, Figure 6: the topologies of the path-diversity study.

use super::topologies::{Pruned, counted, csv, pruned, quantile, survivors, unsaid};
use crate::{Context, Curve, Experiment, Findings, ReproError, Row, curves};

const PAPER: &str = "TCPPathChanger";

pub(crate) const ROUTERS: Experiment = Experiment {
    id: "tpc-fig6a",
    paper: PAPER,
    figure: "Figure 6a",
    title: "Routers of the Topology Zoo’s networks after pruning.",
    worlds: &[],
    run: routers,
};

pub(crate) const LINKS: Experiment = Experiment {
    id: "tpc-fig6b",
    paper: PAPER,
    figure: "Figure 6b",
    title: "Links of the Topology Zoo’s networks after pruning.",
    worlds: &[],
    run: links,
};

pub(crate) const DEGREES: Experiment = Experiment {
    id: "tpc-fig6c",
    paper: PAPER,
    figure: "Figure 6c",
    title: "Share of routers of each degree in the Topology Zoo’s networks after pruning.",
    worlds: &[],
    run: degrees,
};

/// Degrees that are shown apart; the last with all that are higher.
const DEGREE_NAMES: [&str; 5] = ["degree 2", "degree 3", "degree 4", "degree 5", "degree 6 or more"];

fn routers(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    sizes(context, "routers", |one| one.net.node_count(), survivors)
}

fn links(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    sizes(context, "links", |one| one.net.link_count(), counted)
}

fn sizes(
    context: &mut Context<'_>,
    what: &str,
    size: fn(&Pruned) -> usize,
    first: fn(&[Pruned]) -> Row,
) -> Result<Findings, ReproError> {
    let all = pruned(context)?;
    let values: Vec<f64> = all.iter().map(|one| size(one) as f64).collect();
    let mut rows = vec![first(&all)];
    for (name, share) in [("least", 0.0), ("lower quartile", 0.25), ("median", 0.5), ("upper quartile", 0.75)] {
        rows.push(unsaid(format!("{what}, {name}"), what, quantile(&values, share)));
    }
    rows.push(unsaid(format!("{what}, most"), what, quantile(&values, 1.0)));
    let lines = all.iter().zip(&values).map(|(one, value)| (one.name.clone(), vec![*value]));
    let table = csv(&["topology", what], lines);
    let title = format!("{} of {} pruned topologies", capital(what), all.len());
    let picture = curves(&title, what, "topologies", &[Curve { label: what.into(), values }])?;
    Ok(Findings {
        rows,
        pictures: vec![(format!("{what}.svg"), picture)],
        tables: vec![("topologies.csv".into(), table)],
    })
}

fn degrees(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let all = pruned(context)?;
    let shares: Vec<[f64; DEGREE_NAMES.len()]> = all.iter().map(degree_shares).collect();
    let mut rows = vec![counted(&all)];
    let mut drawn = Vec::new();
    for (index, name) in DEGREE_NAMES.iter().enumerate() {
        let values: Vec<f64> = shares.iter().map(|shares| 100.0 * shares[index]).collect();
        rows.push(unsaid(format!("routers of {name}, median"), "%", quantile(&values, 0.5)));
        drawn.push(Curve { label: (*name).into(), values });
    }
    let with_two = all.iter().filter(|one| one.net.access().len() >= 2).count();
    rows.push(unsaid("topologies with two or more access routers (degree 2)", "", with_two as f64));
    let mut head = vec!["topology"];
    head.extend(DEGREE_NAMES);
    let lines = all.iter().zip(&shares).map(|(one, shares)| (one.name.clone(), shares.to_vec()));
    let table = csv(&head, lines);
    let picture = curves("Routers by degree", "share of a topology’s routers (%)", "topologies", &drawn)?;
    Ok(Findings {
        rows,
        pictures: vec![("degrees.svg".into(), picture)],
        tables: vec![("topologies.csv".into(), table)],
    })
}

fn degree_shares(one: &Pruned) -> [f64; DEGREE_NAMES.len()] {
    let mut shares = [0.0; DEGREE_NAMES.len()];
    for node in 0..one.net.node_count() as u32 {
        let class = one.net.degree(node).saturating_sub(2).min(DEGREE_NAMES.len() - 1);
        shares[class] += 1.0 / one.net.node_count() as f64;
    }
    shares
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
