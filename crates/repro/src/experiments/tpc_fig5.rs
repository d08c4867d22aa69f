//! TCPPathChanger, Figure 5: what connections use of six disjoint paths, plain TCP against the path changer.
//!
//! The paper's quantity is the network's bandwidth that all connections use (section 3.1), headers and all, and not goodput, which
//! stands beside it as ours. Its links of 100 Mbit/s carry more than 500 Mbit/s together, so its hosts' own links must have more.
//! Ours are not limited. The lab has paths of 20 Mbit/s, which two processors can carry; its rows are not judged.

use std::path::Path;

use sidestep_net::Span;
use sidestep_results::{Estimate, RunResult, SystemResult, World};
use sidestep_scenario::{Scenario, overrides};

use super::result_of;
use crate::{
    Bar, Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, bars, lines, series,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "tpc-fig5",
    paper: "TCPPathChanger",
    figure: "Figure 5",
    title: "Sixteen connections over six disjoint paths of 100 Mbit/s: plain TCP uses one, the path changer all.",
    worlds: &[World::Sim, World::Lab],
    run,
};

/// EXP3's share of exploration; the paper reports no significant difference between these.
const GAMMAS: [&str; 5] = ["0.05", "0.1", "0.2", "0.5", "0.9"];
/// How far apart two γ may be to count as the same, in Mbit/s: 5 % of what the paper reports.
const ALIKE: f64 = 25.0;
/// The system of the figure, with one γ.
const BANDIT: &str = "pathchanger:policy=paper,gamma=0.1";
/// The same with a shorter longest pause after a move, which the paper does not give: the verdict depends on it.
const SHORTER_PAUSES: [&str; 2] =
    ["pathchanger:policy=paper,gamma=0.1,congestion_max=3s", "pathchanger:policy=paper,gamma=0.1,congestion_max=1s"];
/// Steps of the picture over time, and the samples of a run, in seconds.
const STEP_S: f64 = 0.5;
const SAMPLE_S: f64 = 0.1;
/// Other systems, for routers that spread flows over equal paths.
const WITH_ECMP: [&str; 7] =
    ["ecmp", "prr", "plb", "random", "mptcp:subflows=2", "mptcp:subflows=4", "mptcp:subflows=8"];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let seeds = match (context.world, context.mode) {
        (World::Lab, Mode::Quick) => 3,
        (World::Lab, Mode::Full) | (World::Sim, Mode::Quick) => 6,
        (World::Sim, Mode::Full) => 30,
    };
    let gammas: Vec<String> = match (context.world, context.mode) {
        // In the lab each takes half a minute.
        (World::Lab, Mode::Quick) => vec![BANDIT.into()],
        _ => GAMMAS.iter().map(|gamma| format!("pathchanger:policy=paper,gamma={gamma}")).collect(),
    };
    let mut systems = vec!["tcp", "random"];
    systems.extend(gammas.iter().map(String::as_str));
    if context.world == World::Sim {
        systems.extend(SHORTER_PAUSES);
    }
    let scenario = scenario(context.world, false)?;
    let off = context.simulate("ecmp-off", &scenario, &systems, seeds)?;
    let mut findings = Findings::default();
    judge(context.world, seeds, &off, &gammas, &mut findings)?;
    let mut pictured = drawn(context.world, &off, "ECMP off", 0);
    if context.world == World::Sim {
        let scenario = self::scenario(context.world, true)?;
        let mut systems = WITH_ECMP.to_vec();
        systems.push(BANDIT);
        let on = context.simulate("ecmp-on", &scenario, &systems, seeds)?;
        for (name, _) in on.systems.iter() {
            let quantity = format!("{name}, ECMP on");
            let ours = by_seed(context.world, &on, name, seeds)?;
            findings.rows.push(Row::median(quantity, "Mbit/s", Paper::None, &ours, Rule::NoPaperValue));
        }
        findings.rows.push(beside_ecmp(&on, seeds)?);
        pictured.extend(drawn(context.world, &on, "ECMP on", 1));
    }
    let marks = [(100.0, "one path"), (500.0, "paper’s"), (600.0, "six paths")];
    let picture = bars(
        "Goodput over six paths of 100 Mbit/s",
        "Mbit/s, with 95 % confidence intervals; the paper’s, more than 500, are with headers",
        &pictured,
        &marks,
    )?;
    findings.pictures.push(("goodput.svg".into(), picture));
    let shown = ["tcp", "random", BANDIT];
    findings.pictures.push(("over-time.svg".into(), over_time(context.world, &context.out.join("ecmp-off"), &shown)?));
    Ok(findings)
}

/// Goodput over time, of the first seed, in means over half a second.
fn over_time(world: World, run: &Path, systems: &[&str]) -> Result<String, ReproError> {
    // The lab has a directory for each seed.
    let first = run.join(Context::seed_directory(0));
    let samples = series::read(if first.is_dir() { &first } else { run })?;
    let line = |system: &&str| {
        let own = || samples.iter().filter(|one| one.kind == "connection" && one.system == **system);
        let end = own().map(|one| one.time_s).fold(0.0, f64::max);
        let mut megabits = vec![0.0; (end / STEP_S).ceil() as usize];
        for one in own() {
            // A sample describes the time before it.
            let step = ((one.time_s / STEP_S).ceil() as usize).saturating_sub(1);
            if let Some(sum) = megabits.get_mut(step) {
                *sum += one.mbps.unwrap_or(0.0) * SAMPLE_S * factor(world);
            }
        }
        let points = (0..).zip(megabits).map(|(step, sum)| (f64::from(step) * STEP_S + STEP_S / 2.0, sum / STEP_S));
        Line { label: short(system), points: points.collect() }
    };
    let panel = Panel {
        y: "goodput, Mbit/s".into(),
        range: [0.0, 620.0],
        lines: systems.iter().map(line).filter(|line| !line.points.is_empty()).collect(),
        mark: Some((500.0, "paper: more than 500, with headers".into())),
    };
    Ok(lines("Goodput over six paths of 100 Mbit/s, over time", "seconds", &[panel], false)?)
}

/// The rows that the paper has numbers for.
fn judge(
    world: World,
    seeds: u32,
    off: &RunResult,
    gammas: &[String],
    findings: &mut Findings,
) -> Result<(), ReproError> {
    let scaled = if world == World::Lab { ", at 20 Mbit/s a path, times 5" } else { "" };
    let text = |text: &str| Paper::Text(text.into());
    let used = |name: &str| -> Result<Seeds, ReproError> {
        Ok(Seeds::of(result_of(off, name)?, seeds, |result| on_links(result).map(|used| used * factor(world))))
    };
    let mut row = |name: &str, paper: Paper, rule: Rule| -> Result<(), ReproError> {
        let rule = match world {
            World::Lab => Rule::Unjudged("measured at 20 Mbit/s a path, and scaled"),
            World::Sim => rule,
        };
        let quantity = format!("{name}, ECMP off{scaled}: used of the links");
        findings.rows.push(Row::median(quantity, "Mbit/s", paper, &used(name)?, rule));
        let quantity = format!("{name}, ECMP off{scaled}: goodput");
        let goodput = by_seed(world, off, name, seeds)?;
        findings.rows.push(Row::median(quantity, "Mbit/s", Paper::None, &goodput, Rule::NoPaperValue));
        Ok(())
    };
    let six = || text("section 3.1: above 500, slightly below 600");
    row("tcp", text("section 3.1: at most 100"), Rule::AtMost(100.0))?;
    for name in gammas {
        row(name, six(), Rule::Between(500.0, 600.0))?;
    }
    row("random", Paper::None, Rule::NoPaperValue)?;
    for name in SHORTER_PAUSES.iter().filter(|name| off.systems.get(name).is_some()) {
        row(name, six(), Rule::Unjudged("a sweep of the longest pause after a move: 10 s above"))?;
    }
    if gammas.len() > 1 && world == World::Sim {
        let all: Vec<Seeds> = gammas.iter().map(|name| used(name)).collect::<Result<_, _>>()?;
        let all: Vec<(&str, &Seeds)> = gammas.iter().map(String::as_str).zip(&all).collect();
        let quantity = "one γ less another, the pair nearest to failing: used of the links";
        let paper = text("section 3.1: no significant changes");
        findings.rows.push(Row::alike(quantity, "Mbit/s", paper, &all, ALIKE));
    }
    Ok(())
}

/// The paper's policy beside routers that hash: the comparison that section 3.1 announces ("with ECMP enabled") and leaves open.
///
/// As no value is reported, that the policy carries more is an expectation of our own, drawn from the introduction's promise to
/// compare with existing solutions.
fn beside_ecmp(on: &RunResult, seeds: u32) -> Result<Row, ReproError> {
    let (hashed, own) = (by_seed(World::Sim, on, "ecmp", seeds)?, by_seed(World::Sim, on, BANDIT, seeds)?);
    let quantity = format!("{BANDIT} above ecmp, ECMP on (section 3.1)");
    Ok(Row::ordered(quantity, "Mbit/s", Paper::None, &[("ecmp", &hashed), (BANDIT, &own)], 0.0).of_our_own())
}

/// A system's name as pictures have room for it.
fn short(name: &str) -> String {
    name.strip_prefix("pathchanger:policy=paper,gamma=")
        .map_or(name.into(), |gamma| format!("path changer, γ = {gamma}"))
}

fn drawn(world: World, run: &RunResult, which: &str, group: usize) -> Vec<Bar> {
    let bar = |name: &str| {
        let estimate = goodput(world, run, name).ok()?;
        Some(Bar { label: format!("{} ({which})", short(name)), estimate, group })
    };
    let swept = |(name, _): &(&str, _)| !SHORTER_PAUSES.contains(name);
    run.systems.iter().filter(swept).filter_map(|(name, _)| bar(name)).collect()
}

/// Goodput in Mbit/s, as if each path had 100 Mbit/s: the lab's have a fifth of that, which two processors can carry.
fn goodput(world: World, run: &RunResult, system: &str) -> Result<Estimate, ReproError> {
    let result = result_of(run, system)?;
    let once = Estimate { mean: result.goodput_mbps, ci95: [result.goodput_mbps; 2] };
    let found = result.repeated.as_ref().map_or(once, |repeated| repeated.goodput_mbps);
    let factor = factor(world);
    Ok(Estimate { mean: found.mean * factor, ci95: found.ci95.map(|bound| bound * factor) })
}

/// What packets use of all paths, headers and retransmissions included, in Mbit/s; `None` where a path was never sampled.
fn on_links(result: &SystemResult) -> Option<f64> {
    result.paths.iter().map(|(_, path)| Some(path.capacity_mbps? * path.utilisation?)).sum()
}

/// Goodput, seed by seed.
fn by_seed(world: World, run: &RunResult, system: &str, seeds: u32) -> Result<Seeds, ReproError> {
    Ok(Seeds::of(result_of(run, system)?, seeds, |result| Some(result.goodput_mbps * factor(world))))
}

fn factor(world: World) -> f64 {
    if world == World::Lab { 5.0 } else { 1.0 }
}

/// The scenario files that sidestep comes with; with ECMP all paths have one weight.
fn scenario(world: World, ecmp: bool) -> Result<Scenario, ReproError> {
    let text = match world {
        World::Lab => include_str!("../../../../scenarios/six-paths.toml"),
        World::Sim => include_str!("../../../../scenarios/six-paths-100.toml"),
    };
    let failed = |error: &dyn std::fmt::Display| ReproError::Scenario(error.to_string());
    let weights = format!("topology.ecmp={ecmp}").parse().map_err(|error: overrides::OverrideError| failed(&error))?;
    let text = overrides::apply(text, &[weights]).map_err(|error| failed(&error))?;
    let mut scenario = Scenario::parse(&text, "six-paths").map_err(|error| failed(&error))?;
    if world == World::Sim {
        // 30 seeds of 15 systems in a minute on two processors.
        scenario.duration = Span::from_secs(16);
    }
    // Both worlds have the default, whatever their files set.
    scenario.tables.values_mut().for_each(|table| drop(table.remove("congestion_backoff")));
    Ok(scenario)
}
