//! INRPP, Table 1: how many links of nine ISPs have a detour of one hop.

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

/// By autonomous system: the ISP, and the paper's percentage of links with 1-hop detours.
const ISPS: [(&str, &str, f64); 9] = [
    ("1221", "Telstra", 68.75),
    ("1239", "Sprintlink", 57.3),
    ("1755", "Ebone", 51.8),
    ("2914", "Verio", 71.75),
    ("3257", "Tiscali", 24.44),
    ("3356", "Level 3", 92.30),
    ("3967", "Exodus", 50.33),
    ("4755", "VSNL", 25.0),
    ("7018", "AT&T", 34.84),
];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let maps = topologies(context.data.as_deref(), Set::Rocketfuel)?;
    let mut findings = Findings::default();
    let (mut pictured, mut lines, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for (number, name, paper) in ISPS {
        let map = maps.iter().find(|map| map.name.split('.').next() == Some(number));
        let map = map.ok_or_else(|| ReproError::Missing(format!("map of AS {number}, rocketfuel/{number}.r0.cch")))?;
        let (kept, clean) = (counted(map, true)?, counted(map, false)?);
        let percent = |detours: &Detours, links: usize| 100.0 * links as f64 / detours.links as f64;
        let ours = percent(&kept, kept.with_one_hop());
        let quantity = format!("{name}: links with 1-hop detours");
        findings.rows.push(Row::single(quantity, "%", Paper::Number(paper), ours, Rule::Within(0.002)));
        for (index, links) in kept.one_hop.iter().enumerate() {
            let count = ["1 detour", "2 detours", "3 detours", "4 detours", "5 detours or more"][index];
            let quantity = format!("{name}: links with {count}");
            // The table splits them too, but its numbers were not at hand.
            let paper = Paper::Text("not at hand".into());
            more.push(Row::single(quantity, "%", paper, percent(&kept, *links), Rule::NoPaperValue));
        }
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

/// The detours of a map as a simple graph.
fn counted(map: &Graph, keep_loops: bool) -> Result<Detours, ReproError> {
    Ok(detours(&Net::new(map, NetOptions { merge_parallel: true, keep_loops, hops: true })?))
}
