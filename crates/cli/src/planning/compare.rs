//! `sidestep compare`.

use std::path::PathBuf;

use maud::html;
use serde::Serialize;
use sidestep_repro::Worlds;
use sidestep_results::{RunResult, SystemResult, World, document};

use super::{print_json, read_scenario, save, worlds::Real};
use crate::{
    failure::{Failure, Outcome},
    planning::args::CompareArgs,
};

/// How far two worlds are apart.
#[derive(Debug, Serialize)]
struct Comparison {
    schema: u32,
    scenario: String,
    worlds: [World; 2],
    rows: Vec<Row>,
}

/// A measure of a system in both worlds.
#[derive(Debug, Serialize)]
struct Row {
    system: String,
    measure: &'static str,
    unit: &'static str,
    values: [f64; 2],
    /// The first's difference from the second, as a share of the second.
    difference: f64,
}

/// Runs `sidestep compare …`.
pub fn run(args: CompareArgs) -> Outcome {
    let [one, other] = args.worlds[..] else { return Err(Failure::usage("name two worlds, such as sim,lab")) };
    let scenario = read_scenario(&args.scenario)?;
    let systems = if args.systems.is_empty() { scenario.systems.clone() } else { args.systems };
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(format!("{}-compare", scenario.name)));
    let mut real = Real::new()?;
    let mut results = Vec::new();
    for (number, world) in [one, other].into_iter().enumerate() {
        let place = out.join(format!("{}-{}", number + 1, world.as_str()));
        results.push(real.run(world, &scenario, &systems, 1, &place).map_err(Failure::run)?);
    }
    let rows = rows(&results[0], &results[1]);
    let comparison = Comparison { schema: 1, scenario: scenario.name.clone(), worlds: [one, other], rows };
    save(&out.join("index.html"), &page(&comparison))?;
    save(&out.join("compare.json"), &(serde_json::to_string_pretty(&comparison).map_err(Failure::run)? + "\n"))?;
    if args.json {
        return print_json(&comparison);
    }
    println!("{:<30} {:<22} {:>12} {:>12} {:>10}", "system", "measure", one.as_str(), other.as_str(), "apart");
    for row in &comparison.rows {
        let measure = format!("{} {}", row.measure, row.unit);
        let [first, second] = row.values;
        println!("{:<30} {measure:<22} {first:>12.3} {second:>12.3} {:>8.1} %", row.system, 100.0 * row.difference);
    }
    println!("Both curves: {}", out.join("index.html").display());
    Ok(())
}

fn rows(one: &RunResult, other: &RunResult) -> Vec<Row> {
    type Measure = fn(&SystemResult) -> Option<f64>;
    let measures: [(&str, &str, Measure); 6] = [
        ("goodput", "Mbit/s", |result| Some(result.goodput_mbps)),
        ("mean FCT", "ms", |result| result.afct_s.map(|seconds| seconds * 1e3)),
        ("median FCT", "ms", |result| result.fct_p50_s.map(|seconds| seconds * 1e3)),
        ("99 % FCT", "ms", |result| result.fct_p99_s.map(|seconds| seconds * 1e3)),
        ("fairness", "", |result| result.fairness),
        ("moves", "", |result| Some(result.total_moves() as f64)),
    ];
    let mut rows = Vec::new();
    for (name, first) in one.systems.iter() {
        let Some(second) = other.systems.get(name) else { continue };
        for (measure, unit, of) in measures {
            let (Some(a), Some(b)) = (of(first), of(second)) else { continue };
            if a == 0.0 && b == 0.0 {
                continue;
            }
            let difference = if b == 0.0 { f64::INFINITY } else { (a - b) / b };
            rows.push(Row { system: name.to_owned(), measure, unit, values: [a, b], difference });
        }
    }
    rows
}

fn page(comparison: &Comparison) -> String {
    let [one, other] = comparison.worlds.map(World::as_str);
    let body = html! {
        h1 { (comparison.scenario) ", in two worlds" }
        table {
            tr {
                @for column in ["system", "measure", one, other, "apart"] { th { (column) } }
            }
            @for Row { system, measure, unit, values: [a, b], difference } in &comparison.rows {
                tr {
                    th { (system) }
                    td { (measure) " " (unit) }
                    td { (format!("{a:.3}")) }
                    td { (format!("{b:.3}")) }
                    td { (format!("{:.1} %", 100.0 * difference)) }
                }
            }
        }
        @for (number, world) in (1..).zip([one, other]) {
            h2 { (world) }
            figure { img alt=(world) src=(format!("{number}-{world}/plot.svg")); }
            p { a href=(format!("{number}-{world}/index.html")) { "all of this run" } }
        }
    };
    document(&format!("{} – sidestep", comparison.scenario), &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_do_not_become_markup_on_the_page() {
        let name = "\"><script>alert('&')</script>\u{1b}[31m";
        let row = Row { system: name.into(), measure: "goodput", unit: "Mbit/s", values: [3.0, 2.0], difference: 0.5 };
        let comparison =
            Comparison { schema: 1, scenario: name.into(), worlds: [World::Sim, World::Lab], rows: vec![row] };
        let page = page(&comparison);
        let shown = "&quot;&gt;&lt;script&gt;alert('&amp;')&lt;/script&gt;\u{fffd}[31m";
        assert_eq!(page.matches(shown).count(), 3, "{page}");
        assert!(!page.contains("<script") && !page.contains('\u{1b}'));
        for wanted in
            ["<td>3.000</td><td>2.000</td><td>50.0 %</td>", "src=\"1-sim/plot.svg\"", "href=\"2-lab/index.html\""]
        {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
    }
}
