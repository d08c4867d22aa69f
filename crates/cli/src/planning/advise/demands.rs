//! `sidestep advise --demands`: what the user's demands do to the links, now and after failures.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use maud::{PreEscaped, html};
use serde::Serialize;
use sidestep_advise::{DemandAdvice, DemandOptions, Failure as LinkFailure, LinkUse, Routing, advise_demands};
use sidestep_formats::Reading;
use sidestep_net::Graph;
use sidestep_paths::{PathSettings, analysis::Net};
use sidestep_results::{Look, document, draw};

use super::{LISTED, left_out};
use crate::planning::{
    args::AdviseArgs,
    demands::load,
    failure::{Failure, Outcome},
    flows::source,
    print_json,
    progress::StepProgress,
    save, until_signalled,
};

/// Utilisations beyond these are probably of rates in another unit.
const USUAL: std::ops::RangeInclusive<f64> = 1e-3..=100.0;

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    advice: &'a DemandAdvice,
    page: &'a Path,
    reading: &'a Reading,
}

/// Advises on demands.
pub fn run(args: &AdviseArgs, graph: &Graph, net: &Net, reading: &Reading) -> Outcome {
    let matrices = load(&args.demands.demands, args.demands.demand_unit, graph, args.sampling.seed)?;
    let options = DemandOptions {
        max_segments: args.demands.max_segments.into(),
        paths: PathSettings { adjacency: !args.no_adjacency, ..PathSettings::default() },
        default_rate: args.rates.default_rate,
        say_capacities: source,
    };
    let watch = StepProgress::new(until_signalled()?).until(args.max_time.to_std());
    let advice = advise_demands(graph, net, &matrices, &options, &watch)?;
    let page = args.out.clone();
    let page = page.unwrap_or_else(|| PathBuf::from("out/advise").join(format!("{}-demands.html", graph.name)));
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::run(format!("{}: {error}", folder.display())))?;
    }
    save(&page, &html(&advice, graph, net))?;
    let most = advice.worst.utilisation.first().map_or(0.0, |link| link.ecmp);
    if most > 0.0 && !USUAL.contains(&most) {
        eprintln!(
            "{}: warning: the most utilised link carries {most:.2e} of its rate; are demands and rates in the units meant? \
             --demand-unit, --map KEY=rate:UNIT",
            plain(&graph.name)
        );
    }
    if args.topology.json {
        print_json(&Report { advice: &advice, page: &page, reading })?;
    } else {
        print(&advice, args.demands.max_segments, &page);
    }
    match advice.interrupted {
        true => Err(Failure::run("interrupted; the advice is of what was computed until then")),
        false => Ok(()),
    }
}

/// A way of routing in words.
fn words(name: &str, segments: u8) -> String {
    match name {
        "igp" => "single shortest paths".into(),
        "ecmp" => "ECMP".into(),
        "segments" => format!("at most {segments} node segments, split best"),
        "mptcp" => "MPTCP over disjoint paths, split best".into(),
        "any-path" => "any paths, split best (bound)".into(),
        "igp-failure" => "single shortest paths, after a failure".into(),
        "ecmp-failure" => "ECMP, after a failure".into(),
        other => other.into(),
    }
}

fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// A direction of a link in words.
fn arrow(link: &Option<[String; 2]>) -> String {
    link.as_ref().map_or("–".into(), |[from, to]| format!("{} → {}", plain(from), plain(to)))
}

fn headline(advice: &DemandAdvice) -> String {
    let growth = |name: &str| {
        let routing = advice.worst.routings.iter().find(|routing| routing.name == name)?;
        routing.growth.map(|growth| (growth, arrow(&routing.link)))
    };
    let Some((now, first)) = growth("ecmp") else { return "The demands use no link that has a limit.".into() };
    let after =
        growth("ecmp-failure").map_or(String::new(), |(after, _)| format!("; {after:.2} times with any one link down"));
    let best =
        growth("any-path").map_or(String::new(), |(best, _)| format!("; no routing carries more than {best:.2} times"));
    format!("Under ECMP the network carries {now:.2} times these demands, then {first} is full{after}{best}.")
}

fn sizes(advice: &DemandAdvice) -> String {
    let worst = &advice.worst;
    let cut = match worst.disconnected_mbps > 0.0 {
        true => format!(", of which {:.1} have no path", worst.disconnected_mbps),
        false => String::new(),
    };
    let of = match advice.matrices {
        1 => String::new(),
        many => format!(", of {many} matrices the one that loads a link most"),
    };
    format!(
        "{} nodes, {} links. {}{of}: {} demands, {:.1} Mbit/s{cut}. Rates: {}.",
        advice.nodes,
        advice.links,
        plain(&worst.matrix),
        worst.demands,
        worst.total_mbps,
        advice.capacities
    )
}

fn row(routing: &Routing) -> [String; 4] {
    let Routing { utilisation, bound, growth, link, failed, .. } = routing;
    let shown = match routing.is_proved() {
        true => format!("{:.1} %", 100.0 * utilisation),
        false => format!("{:.1} to {:.1} %", 100.0 * bound, 100.0 * utilisation),
    };
    let growth = growth.map_or("–".into(), |growth| format!("{growth:.3}"));
    [shown, growth, arrow(link), failed.as_ref().map_or(String::new(), |[a, b]| format!("{} – {}", plain(a), plain(b)))]
}

fn print(advice: &DemandAdvice, segments: u8, page: &Path) {
    let DemandAdvice { topology, worst, series, .. } = advice;
    println!("{}: {}\n\n{}\n", plain(topology), headline(advice), sizes(advice));
    println!("{:<40} {:>16} {:>8}   full first", "routing", "utilisation", "growth");
    for routing in &worst.routings {
        let [shown, growth, link, failed] = row(routing);
        let failed = if failed.is_empty() { failed } else { format!(", without {failed}") };
        println!("{:<40} {shown:>16} {growth:>8}   {link}{failed}", words(routing.name, segments));
    }
    if !series.is_empty() {
        println!("\n{:<40} {:>8} {:>8}   worst in", "over all matrices", "worst", "median");
        for row in series {
            let [worst, median] = [row.extent.worst, row.extent.median].map(|share| format!("{:.1} %", 100.0 * share));
            let open = if row.unproved > 0 { format!("; time ended {} searches", row.unproved) } else { String::new() };
            println!("{:<40} {worst:>8} {median:>8}   {}{open}", words(row.name, segments), plain(&row.matrix));
        }
    }
    println!("\n{:<40} {:>10} {:>8} {:>8}", "most utilised links", "Mbit/s", "single", "ECMP");
    for LinkUse { ends, rate_mbps, igp, ecmp, .. } in worst.utilisation.iter().take(LISTED) {
        let rate = rate_mbps.map_or("no limit".into(), |rate| format!("{rate:.0}"));
        let [igp, ecmp] = [igp, ecmp].map(|share| format!("{:.1} %", 100.0 * share));
        println!("  {:<38} {rate:>10} {igp:>8} {ecmp:>8}", arrow(&Some(ends.clone())));
    }
    if let Some(left) = left_out(worst.utilisation.len()) {
        println!("  {left}; --json has all");
    }
    println!(
        "\n{:<40} {:>8} {:>8} {:>14}   full first (ECMP)",
        "worst failures of a link", "single", "ECMP", "cut off Mbit/s"
    );
    for LinkFailure { failed: [a, b], igp, ecmp, link, disconnected_mbps } in worst.failures.iter().take(LISTED) {
        let [igp, ecmp] = [igp, ecmp].map(|share| format!("{:.1} %", 100.0 * share));
        let name = format!("{} – {}", plain(a), plain(b));
        println!("  {name:<38} {igp:>8} {ecmp:>8} {disconnected_mbps:>14.1}   {}", arrow(link));
    }
    if let Some(left) = left_out(worst.failures.len()) {
        println!("  {left}; --json has all");
    }
    println!("\nPage with map: {}", page.display());
}

/// The page: headline, map and the most utilised links. It has no scripts and loads nothing.
fn html(advice: &DemandAdvice, graph: &Graph, net: &Net) -> String {
    let listed = || advice.worst.utilisation.iter().take(LISTED);
    let body = html! {
        h1 { (advice.topology) ": what the demands put on links" }
        p.headline { (headline(advice)) }
        p { (sizes(advice)) }
        figure { (PreEscaped(map(advice, graph, net))) }
        h2 { "Most utilised links" }
        div.scroll {
            table {
                thead { tr { th { "link" } th { "single shortest paths" } th { "ECMP" } } }
                tbody {
                    @for LinkUse { ends: [from, to], igp, ecmp, .. } in listed() {
                        tr {
                            th { (from) " → " (to) }
                            td { (format!("{:.1} %", 100.0 * igp)) }
                            td { (format!("{:.1} %", 100.0 * ecmp)) }
                        }
                    }
                }
            }
        }
        h2 { "Run it again" }
        pre { (crate::planning::command_line()) }
    };
    document(&format!("{} – sidestep advise", advice.topology), &body)
}

/// The whole topology; the most utilised links stand out.
fn map(advice: &DemandAdvice, graph: &Graph, net: &Net) -> String {
    let mut by_link: BTreeMap<usize, f64> = BTreeMap::new();
    for used in advice.worst.utilisation.iter().take(LISTED) {
        let most = by_link.entry(used.link).or_default();
        *most = most.max(used.ecmp);
    }
    let most = by_link.values().copied().fold(0.0, f64::max);
    let heat = |link: usize| by_link.get(&link).map_or(0.0, |share| if most > 0.0 { share / most } else { 0.0 });
    let tip = |link: usize| {
        by_link.get(&link).map_or_else(String::new, |share| format!(": {:.1} % under ECMP", 100.0 * share))
    };
    let links: Vec<[usize; 2]> = net.links().iter().map(|ends| ends.map(|end| net.origin(end))).collect();
    let all: Vec<usize> = (0..net.node_count() as u32).map(|node| net.origin(node)).collect();
    let key = (most > 0.0).then_some("the most utilised links");
    draw(graph, &all, &links, &Look { is_access: &|_| false, heat: &heat, tip: &tip, key })
}
