//! INRPP, Table 1: how many links of nine ISPs have a detour of one hop.

use std::collections::BTreeSet;

use sidestep_net::Graph;
use sidestep_paths::analysis::{Detours, Net, NetOptions, detours};
use sidestep_results::Estimate;

use super::topologies::{csv, unsaid};
use crate::{Bar, Context, Experiment, Findings, Paper, ReproError, Row, Rule, Set, bars, topologies};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-table1",
    paper: "INRPP",
    figure: "Table 1",
    title: "Links of nine ISPs that have detours over one other router.",
    worlds: &[],
    run,
};

/// A row of the table, which section I-B explains.
struct Isp {
    /// Its autonomous system, and its name.
    number: &'static str,
    name: &'static str,
    /// The percentage of links with 1-hop detours.
    detours: f64,
    /// Of these, the percentage with 1, 2, 3, 4, and 5 or more.
    split: [f64; 5],
    /// The most detours of a link.
    most: f64,
}

const fn isp(number: &'static str, name: &'static str, detours: f64, split: [f64; 5], most: f64) -> Isp {
    Isp { number, name, detours, split, most }
}

const ISPS: [Isp; 9] = [
    isp("1221", "Telstra", 68.75, [27.45, 30.09, 11.5, 7.9, 23.06], 38.0),
    // This row's parts add up to 144.9.
    isp("1239", "Sprintlink", 57.3, [44.9, 20.7, 14.9, 6.8, 57.6], 27.0),
    isp("1755", "Ebone", 51.8, [55.5, 28.78, 10.6, 3.53, 1.5], 10.0),
    isp("2914", "Verio", 71.75, [23.56, 18.01, 13.45, 12.56, 32.52], 25.0),
    isp("3257", "Tiscali", 24.44, [60.60, 19.19, 12.12, 5.05, 3.03], 8.0),
    isp("3356", "Level 3", 92.30, [13.40, 14.10, 12.42, 13.02, 47.06], 95.0),
    isp("3967", "Exodus", 50.33, [50.67, 17.93, 16.59, 8.96, 5.82], 6.0),
    isp("4755", "VSNL", 25.0, [100.0, 0.0, 0.0, 0.0, 0.0], 1.0),
    isp("7018", "AT&T", 34.84, [56.07, 17.68, 11.88, 4.7, 9.67], 24.0),
];

/// How far apart a part and the paper's may be: most of its numbers have two decimals, and some one.
const ALIKE: f64 = 0.1;

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let maps = topologies(context.data.as_deref(), Set::Rocketfuel)?;
    let mut findings = Findings::default();
    let (mut pictured, mut lines, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for Isp { number, name, detours: paper, split, most } in ISPS {
        let map = maps.iter().find(|map| map.name.split('.').next() == Some(number));
        let map = map.ok_or_else(|| ReproError::Missing(format!("map of AS {number}, rocketfuel/{number}.r0.cch")))?;
        let (kept, clean) = (counted(map, true)?, counted(map, false)?);
        let percent = |detours: &Detours, links: usize| 100.0 * links as f64 / detours.links as f64;
        let ours = percent(&kept, kept.with_one_hop());
        let quantity = format!("{name}: links with 1-hop detours");
        findings.rows.push(Row::single(quantity, "%", Paper::Number(paper), ours, Rule::Within(0.002)));
        let parts = ["1 detour", "2 detours", "3 detours", "4 detours", "5 detours or more"];
        let shares = kept.one_hop.map(|links| 100.0 * links as f64 / kept.with_one_hop().max(1) as f64);
        for ((part, share), paper) in parts.into_iter().zip(shares).zip(split) {
            let quantity = format!("{name}: of these with {part}");
            findings.rows.push(Row::single(quantity, "%", Paper::Number(paper), share, Rule::Near(ALIKE)));
        }
        let quantity = format!("{name}: most detours of a link");
        let found = most_of_a_link(map) as f64;
        findings.rows.push(Row::single(quantity, "", Paper::Number(most), found, Rule::Near(0.0)));
        let without = percent(&clean, clean.with_one_hop());
        let two_hops = percent(&clean, clean.two_hops);
        more.push(unsaid(format!("{name}: links with 1-hop detours, loops left out"), "%", without));
        more.push(unsaid(format!("{name}: links with 2-hop detours only, loops left out"), "%", two_hops));
        for (label, mean, group) in [(name.into(), ours, 0), ("paper".into(), paper, 1)] {
            pictured.push(Bar { label, estimate: Estimate { mean, ci95: [mean; 2] }, group });
        }
        let mut numbers = vec![kept.links as f64, paper, ours];
        numbers.extend(kept.one_hop.map(|links| percent(&kept, links)));
        numbers.extend([without, two_hops]);
        lines.push((format!("{name} ({number})"), numbers));
    }
    findings.rows.append(&mut more);
    let picture = bars("Links with 1-hop detours", "% of an ISP’s links", &pictured, &[])?;
    findings.pictures.push(("detours.svg".into(), picture));
    let head =
        ["isp", "links", "paper %", "ours %", "1", "2", "3", "4", "5+", "without loops %", "only 2-hop detours %"];
    findings.tables.push(("isps.csv".into(), csv(&head, lines)));
    Ok(findings)
}

/// The most nodes that both ends of a link have for neighbours; a node with a loop is its own neighbour, as in [`detours`].
fn most_of_a_link(map: &Graph) -> usize {
    let mut near = vec![BTreeSet::new(); map.nodes.len()];
    for edge in &map.edges {
        for (one, other) in [(edge.from, edge.to), (edge.to, edge.from)] {
            near[one].insert(other);
        }
    }
    map.edges.iter().map(|edge| near[edge.from].intersection(&near[edge.to]).count()).max().unwrap_or(0)
}

/// The detours of a map as a simple graph.
fn counted(map: &Graph, keep_loops: bool) -> Result<Detours, ReproError> {
    Ok(detours(&Net::new(map, NetOptions { merge_parallel: true, keep_loops, hops: true })?))
}
