//! `sidestep compare`.

use std::path::PathBuf;

use sidestep_proto::mptcp::Scheduler;
use sidestep_repro::Worlds;
use sidestep_results::{Comparison, World};
use sidestep_scenario::{Scenario, SystemSpec};

use super::{NEEDS_ROOT, WithReading, equivalence, print_json, read_scenario, save, worlds::Real};
use crate::planning::{
    args::CompareArgs,
    failure::{Failure, Outcome},
};

/// Runs `sidestep compare …`.
pub fn run(args: CompareArgs) -> Outcome {
    let [one, other] = args.worlds[..] else { return Err(Failure::usage("name two worlds, such as sim,lab")) };
    let (scenario, reading) =
        read_scenario(&args.scenario, &args.laid.all(), if args.equivalence { args.seeds } else { 1 })?;
    // Before the other world has run for nothing.
    if [one, other].contains(&World::Lab) && !sidestep_linux::is_root() {
        return Err(Failure::environment(NEEDS_ROOT));
    }
    let systems = if args.systems.is_empty() { scenario.systems.clone() } else { args.systems };
    if [World::Sim, World::Lab].iter().all(|world| [one, other].contains(world))
        && let Some(note) = unlike_the_kernels(&scenario, &systems)
    {
        eprintln!("{note}");
    }
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
        return print_json(&WithReading { results: &comparison, reading });
    }
    print(&comparison);
    println!("Both curves: {}", out.join("index.html").display());
    Ok(())
}

/// The note on systems whose scheduler of MPTCP is not the kernel's in the simulator, and what to write for one that is.
fn unlike_the_kernels(scenario: &Scenario, systems: &[SystemSpec]) -> Option<String> {
    let of_flows = scenario.flows.iter().filter_map(|flow| flow.transport()?.system.as_ref());
    let registry = sidestep_systems::simulator();
    let mut unlike: Vec<&SystemSpec> = Vec::new();
    for system in systems.iter().chain(of_flows) {
        // A system that the scenario cannot have is refused when it is run.
        let Ok(Some(mptcp)) = registry.setup_of(scenario, system).map(|setup| setup.subflows()) else { continue };
        if mptcp.scheduler != Scheduler::Linux && !unlike.contains(&system) {
            unlike.push(system);
        }
    }
    let names =
        |of: &dyn Fn(&SystemSpec) -> String| unlike.iter().map(|system| of(system)).collect::<Vec<_>>().join(" ");
    (!unlike.is_empty()).then(|| {
        format!(
            "note: the MPTCP of {} is not the same in both worlds: the lab has the scheduler and the source ports of Linux. To \
             compare like with like write {}.",
            names(&ToString::to_string),
            names(&like_the_kernels)
        )
    })
}

/// The system with the kernel's scheduler and source ports, as it is written on the command line.
fn like_the_kernels(system: &SystemSpec) -> String {
    let kernels = [("scheduler", "linux"), ("source_ports", "linux")];
    let mut like = system.clone();
    like.params.retain(|(parameter, _)| kernels.iter().all(|(kernels, _)| parameter != kernels));
    like.params.extend(kernels.map(|(parameter, value)| (parameter.to_owned(), value.to_owned())));
    format!("--system {like}")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn note(systems: &[&str]) -> Option<String> {
        let scenario = Scenario::parse(include_str!("../../../../scenarios/dumbbell.toml"), "dumbbell").unwrap();
        let systems: Vec<SystemSpec> = systems.iter().map(|system| system.parse().unwrap()).collect();
        unlike_the_kernels(&scenario, &systems)
    }

    #[test]
    fn mptcp_with_another_scheduler_is_named_with_what_to_write() {
        for like in ["tcp", "mptcp:congestion_control=olia,scheduler=linux", "mptcp:scheduler=linux", "pathchanger"] {
            assert_eq!(note(&[like]), None, "{like}");
        }
        for unlike in ["mptcp", "mptcp:congestion_control=cubic", "semper"] {
            assert!(note(&["tcp", unlike]).is_some(), "{unlike}");
        }
        let text = note(&["tcp", "mptcp:scheduler=min-rtt,subflows=4", "semper", "mptcp:scheduler=min-rtt,subflows=4"]);
        assert_eq!(
            text.unwrap(),
            "note: the MPTCP of mptcp:scheduler=min-rtt,subflows=4 semper is not the same in both worlds: the lab has the \
             scheduler and the source ports of Linux. To compare like with like write \
             --system mptcp:subflows=4,scheduler=linux,source_ports=linux --system semper:scheduler=linux,source_ports=linux."
        );
        let system = like_the_kernels(&"mptcp:scheduler=round-robin,subflows=3".parse().unwrap());
        assert_eq!(note(&[system.strip_prefix("--system ").unwrap()]), None, "{system}");
    }
}
