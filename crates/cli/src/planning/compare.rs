//! `sidestep compare`.

use std::path::PathBuf;

use sidestep_repro::Worlds;
use sidestep_results::{Comparison, World};

use super::{NEEDS_ROOT, equivalence, print_json, read_scenario, save, worlds::Real};
use crate::{
    failure::{Failure, Outcome},
    planning::args::CompareArgs,
};

/// Runs `sidestep compare …`.
pub fn run(args: CompareArgs) -> Outcome {
    let [one, other] = args.worlds[..] else { return Err(Failure::usage("name two worlds, such as sim,lab")) };
    let scenario = read_scenario(&args.scenario, &args.set)?;
    // Before the other world has run for nothing.
    if [one, other].contains(&World::Lab) && !sidestep_linux::is_root() {
        return Err(Failure::environment(NEEDS_ROOT));
    }
    let systems = if args.systems.is_empty() { scenario.systems.clone() } else { args.systems };
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(format!("{}-compare", scenario.name)));
    let mut real = Real::new()?;
    if args.equivalence {
        let plan = equivalence::Plan {
            worlds: [one, other],
            seeds: args.seeds,
            repetitions: equivalence::repetitions(&args.repetitions)?,
            margin: args.margin.as_f64(),
            late: args.late.as_f64(),
            lateness: args.lateness,
            resume: args.resume,
        };
        if plan.lateness && ![World::Sim, World::Lab].iter().all(|world| plan.worlds.contains(world)) {
            return Err(Failure::usage("--lateness: one of the two worlds must be the simulator, the other the lab"));
        }
        return equivalence::run(&plan, &scenario, &systems, &mut real, &out, args.json);
    }
    let mut run = |number, world| {
        real.run(world, &scenario, &systems, 1, &out.join(Comparison::directory(number, world))).map_err(Failure::run)
    };
    let comparison = Comparison::new(&run(0, one)?, &run(1, other)?);
    save(&out.join("index.html"), &comparison.page())?;
    save(&out.join("compare.json"), &(serde_json::to_string_pretty(&comparison).map_err(Failure::run)? + "\n"))?;
    if args.json {
        return print_json(&comparison);
    }
    print(&comparison);
    println!("Both curves: {}", out.join("index.html").display());
    Ok(())
}

fn print(comparison: &Comparison) {
    let [one, other] = comparison.worlds.map(World::as_str);
    println!("{:<30} {:<22} {one:>12} {other:>12} {:>19}", "system", "measure", "apart");
    for row in &comparison.rows {
        let measure = format!("{} {}", row.measure, row.unit);
        let [first, second] = row.values;
        println!("{:<30} {measure:<22} {first:>12.3} {second:>12.3} {:>19}", row.system, row.apart());
    }
    comparison.remarks().iter().for_each(|remark| println!("{remark}"));
}
