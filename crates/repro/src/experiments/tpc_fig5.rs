//! TCPPathChanger, Figure 5: goodput over six disjoint paths, plain TCP against the path changer.

use sidestep_model::{ParallelPaths, Rate, Scenario, Span};
use sidestep_results::{Estimate, RunResult, World};

use super::result_of;
use crate::{Bar, Context, Experiment, Findings, Mode, Paper, ReproError, Row, Rule, Seeds, bars};

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
/// How far apart the goodputs of two γ may be to count as the same, in Mbit/s: 5 % of what the paper reports.
const ALIKE: f64 = 25.0;
/// Other systems, for routers that spread flows over equal paths.
const WITH_ECMP: [&str; 7] =
    ["ecmp", "prr", "plb", "random", "mptcp:subflows=2", "mptcp:subflows=4", "mptcp:subflows=8"];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let seeds = match (context.world, context.mode) {
        (World::Lab, _) => 1,
        (World::Sim, Mode::Quick) => 6,
        (World::Sim, Mode::Full) => 30,
    };
    let gammas: Vec<String> = match (context.world, context.mode) {
        // In the lab each takes half a minute.
        (World::Lab, Mode::Quick) => vec!["pathchanger:policy=paper,gamma=0.1".into()],
        _ => GAMMAS.iter().map(|gamma| format!("pathchanger:policy=paper,gamma={gamma}")).collect(),
    };
    let mut systems = vec!["tcp", "random"];
    systems.extend(gammas.iter().map(String::as_str));
    let scenario = scenario(context.world, false)?;
    let off = context.simulate("ecmp-off", &scenario, &systems, seeds)?;
    let mut findings = Findings::default();
    judge(context.world, seeds, &off, &gammas, &mut findings)?;
    let mut pictured = drawn(context.world, &off, "ECMP off", 0);
    if context.world == World::Sim {
        let scenario = self::scenario(context.world, true)?;
        let mut systems = WITH_ECMP.to_vec();
        systems.push("pathchanger:policy=paper,gamma=0.1");
        let on = context.simulate("ecmp-on", &scenario, &systems, seeds)?;
        for (name, _) in on.systems.iter() {
            let quantity = format!("{name}, ECMP on");
            let ours = goodput(context.world, &on, name)?;
            findings.rows.push(Row::new(quantity, "Mbit/s", Paper::None, ours, Rule::NoPaperValue));
        }
        pictured.extend(drawn(context.world, &on, "ECMP on", 1));
    }
    let marks = [(100.0, "one path"), (500.0, "paper: more than 500"), (600.0, "six paths")];
    let picture =
        bars("Goodput over six paths of 100 Mbit/s", "Mbit/s, with 95 % confidence intervals", &pictured, &marks)?;
    findings.pictures.push(("goodput.svg".into(), picture));
    Ok(findings)
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
    let mut row = |name: &str, paper: Paper, rule: Rule| -> Result<(), ReproError> {
        let ours = goodput(world, off, name)?;
        findings.rows.push(Row::new(format!("{name}, ECMP off{scaled}"), "Mbit/s", paper, ours, rule));
        Ok(())
    };
    row("tcp", text("at most 100"), Rule::AtMost(100.0))?;
    for name in gammas {
        row(name, text("more than 500"), Rule::AtLeast(500.0))?;
    }
    row("random", Paper::None, Rule::NoPaperValue)?;
    if gammas.len() > 1 && world == World::Sim {
        let by_seed = |name: &String| {
            Ok::<_, ReproError>(Seeds::of(result_of(off, name)?, seeds, |result| Some(result.goodput_mbps)))
        };
        let all: Vec<Seeds> = gammas.iter().map(by_seed).collect::<Result<_, _>>()?;
        let all: Vec<(&str, &Seeds)> = gammas.iter().map(String::as_str).zip(&all).collect();
        for (index, one) in all.iter().enumerate() {
            let others = [&all[..index], &all[index + 1..]].concat();
            let quantity = format!("{} less another γ, the pair furthest apart", one.0);
            let paper = text("no significant difference");
            findings.rows.push(Row::equivalent(quantity, "Mbit/s", paper, *one, &others, ALIKE));
        }
    }
    Ok(())
}

fn drawn(world: World, run: &RunResult, which: &str, group: usize) -> Vec<Bar> {
    let bar = |name: &str| {
        let estimate = goodput(world, run, name).ok()?;
        Some(Bar { label: format!("{name} ({which})"), estimate, group })
    };
    run.systems.iter().filter_map(|(name, _)| bar(name)).collect()
}

/// Goodput in Mbit/s, as if each path had 100 Mbit/s: the lab's have a fifth of that, which two processors can carry.
fn goodput(world: World, run: &RunResult, system: &str) -> Result<Estimate, ReproError> {
    let result = result_of(run, system)?;
    let once = Estimate { mean: result.goodput_mbps, ci95: [result.goodput_mbps; 2] };
    let found = result.repeated.as_ref().map_or(once, |repeated| repeated.goodput_mbps);
    let factor = if world == World::Lab { 5.0 } else { 1.0 };
    Ok(Estimate { mean: found.mean * factor, ci95: found.ci95.map(|bound| bound * factor) })
}

/// The scenario files that sidestep comes with; with ECMP all paths have one weight.
fn scenario(world: World, ecmp: bool) -> Result<Scenario, ReproError> {
    let text = match world {
        World::Lab => include_str!("../../../../scenarios/six-paths.toml"),
        World::Sim => include_str!("../../../../scenarios/six-paths-100.toml"),
    };
    let mut scenario = Scenario::parse(text, "six-paths").map_err(|error| ReproError::Scenario(error.to_string()))?;
    if world == World::Sim {
        // 30 seeds of 15 systems in a minute on two processors.
        scenario.duration = Span::from_secs(16);
    }
    if ecmp {
        let paths = ParallelPaths {
            paths: 6,
            hops: 2,
            clients: 4,
            servers: 4,
            rate: Rate::from_mbits(100),
            ecn: Some(sidestep_model::QueueLimit::Packets(40)),
            ecmp: true,
            ..ParallelPaths::default()
        };
        scenario.topology = paths.build().map_err(|error| ReproError::Scenario(error.to_string()))?;
    }
    Ok(scenario)
}
