//! `sidestep compare --equivalence`.

use std::path::Path;

use sidestep_results::{
    RunResult, SystemResult, World,
    equivalence::{Equivalence, Runs, TITLE_OF_COUNTED, WHERE_TO_LOOK},
};
use sidestep_scenario::{Scenario, SystemSpec};

use super::{print_json, save, worlds::LateWorlds};
use crate::planning::failure::{Failure, Outcome};

/// How often a run that does not count is made again.
const AGAIN: u32 = 2;

/// What is run, and what counts.
pub struct Plan {
    pub worlds: [World; 2],
    pub seeds: u32,
    /// Runs under each seed, in each world.
    pub repetitions: [u32; 2],
    /// By what share the worlds may differ.
    pub margin: f64,
    /// The largest share of late packets with which a lab run counts.
    pub late: f64,
    /// Whether the simulator delivers packets as late as the lab's run of the same seed did.
    pub lateness: bool,
    /// Whether runs that are there are taken.
    pub resume: bool,
}

/// One world's runs, while they are made.
struct Side {
    world: World,
    /// By system and seed, the repetitions that count.
    results: Vec<Vec<Vec<SystemResult>>>,
    void: Vec<u32>,
}

/// The numbers of repetitions that a user gave: one for both worlds, or one for each.
pub fn repetitions(given: &[u32]) -> Result<[u32; 2], Failure> {
    match *given {
        [both] => Ok([both; 2]),
        [one, other] => Ok([one, other]),
        _ => Err(Failure::usage("--repetitions: give one number, or one for each of the two worlds")),
    }
}

/// Runs the scenario in both worlds under all seeds, and reports what the ratios of their measures show.
pub fn run(
    plan: &Plan,
    scenario: &Scenario,
    systems: &[SystemSpec],
    real: &mut dyn LateWorlds,
    out: &Path,
    json: bool,
) -> Outcome {
    let mut sides = plan.worlds.map(|world| Side {
        world,
        results: vec![vec![Vec::new(); plan.seeds as usize]; systems.len()],
        void: vec![0; systems.len()],
    });
    for (number, repetition) in order(plan) {
        let [one, two] = &mut sides;
        let (side, other) = if number == 0 { (one, &*two) } else { (two, &*one) };
        let dir = out.join(format!("{}-{}-{}", number + 1, side.world.as_str(), repetition + 1));
        // The two sides never share one, as a world may be held against itself.
        let scenario = Scenario { repetition: 2 * repetition + number as u32, ..scenario.clone() };
        match side.world {
            World::Sim if plan.lateness => {
                simulate_as_late(plan, &scenario, systems, real, side, other, (repetition, &dir))?;
            }
            World::Sim => simulate(plan, &scenario, systems, real, side, &dir)?,
            World::Lab => measure(plan, &scenario, systems, real, side, &dir)?,
        }
    }
    let of = |side: &Side, index: usize| Runs {
        world: side.world,
        seeds: side.results.get(index).cloned().unwrap_or_default(),
        void: side.void.get(index).copied().unwrap_or(0),
        // The lab's TCP is the kernel's, and counts all that the simulator's does.
        counters: (side.world == World::Sim).then(sidestep_sim::tcp_counters),
    };
    let repetitions = plan.repetitions.map(|number| number as usize);
    let found = systems.iter().enumerate().map(|(index, system)| {
        let [one, other] = [0, 1].map(|number| of(&sides[number], index));
        Equivalence::new(&scenario.name, &system.to_string(), &one, &other, repetitions, plan.margin)
    });
    let found: Vec<Equivalence> = found.collect();
    save(&out.join("equivalence.html"), &Equivalence::page(&found))?;
    save(&out.join("equivalence.md"), &Equivalence::markdown(&found))?;
    save(&out.join("equivalence.json"), &(serde_json::to_string_pretty(&found).map_err(Failure::run)? + "\n"))?;
    if json {
        return print_json(&found);
    }
    found.iter().for_each(print);
    println!("\nThe table as a page: {}", out.join("equivalence.html").display());
    Ok(())
}

/// Which side runs which repetition, in this order: the worlds take turns, so that what changes on the machine meets both; but
/// the lab goes first where the simulator must be as late.
fn order(plan: &Plan) -> Vec<(usize, u32)> {
    let most = plan.repetitions.into_iter().max().unwrap_or(0);
    let turns = (0..most).flat_map(|repetition| [(0, repetition), (1, repetition)]);
    let mut order: Vec<_> = turns.filter(|(number, repetition)| *repetition < plan.repetitions[*number]).collect();
    if plan.lateness {
        order.sort_by_key(|(number, _)| plan.worlds[*number] != World::Lab);
    }
    order
}

/// One repetition in the simulator, whose packets are as late as those of the lab's run of the same seed; a seed that has no such run
/// has none here either.
fn simulate_as_late(
    plan: &Plan,
    scenario: &Scenario,
    systems: &[SystemSpec],
    real: &mut dyn LateWorlds,
    side: &mut Side,
    lab: &Side,
    (repetition, dir): (u32, &Path),
) -> Result<(), Failure> {
    for (index, system) in systems.iter().enumerate() {
        for seed in 0..plan.seeds {
            let measured = &lab.results[index][seed as usize];
            let Some(of_lab) = measured.get(repetition as usize % measured.len().max(1)) else { continue };
            let number = scenario.seed.wrapping_add(u64::from(seed));
            let scenario = Scenario { seed: number, ..scenario.clone() };
            let dir = dir.join(format!("seed-{number}-{}", index + 1));
            let result = real.run_late(&scenario, system, &of_lab.late, &dir).map_err(Failure::run)?;
            side.results[index][seed as usize].extend(result.systems.get(&system.to_string()).cloned());
        }
    }
    Ok(())
}

/// One repetition in the simulator, under all seeds.
fn simulate(
    plan: &Plan,
    scenario: &Scenario,
    systems: &[SystemSpec],
    real: &mut dyn LateWorlds,
    side: &mut Side,
    dir: &Path,
) -> Result<(), Failure> {
    let result = real.run(World::Sim, scenario, systems, plan.seeds, dir).map_err(Failure::run)?;
    for (index, system) in systems.iter().enumerate() {
        let Some(of_system) = result.systems.get(&system.to_string()) else { continue };
        let each = of_system.repeated.as_ref().map_or(std::slice::from_ref(of_system), |repeated| &repeated.each);
        for (seed, one) in each.iter().enumerate() {
            side.results[index][seed].push(one.clone());
        }
    }
    Ok(())
}

/// One repetition in the lab under each seed; systems whose run does not count are run again.
fn measure(
    plan: &Plan,
    scenario: &Scenario,
    systems: &[SystemSpec],
    real: &mut dyn LateWorlds,
    side: &mut Side,
    dir: &Path,
) -> Result<(), Failure> {
    for seed in 0..plan.seeds {
        let scenario = Scenario { seed: scenario.seed.wrapping_add(u64::from(seed)), ..scenario.clone() };
        let mut left: Vec<(usize, SystemSpec)> = systems.iter().cloned().enumerate().collect();
        for attempt in 0..=AGAIN {
            let dir = dir.join(format!("seed-{}-{}", scenario.seed, attempt + 1));
            let names: Vec<SystemSpec> = left.iter().map(|(_, system)| system.clone()).collect();
            let result = match kept(plan, &scenario, &names, &dir) {
                Some(result) => result,
                None => real.run(World::Lab, &scenario, &names, 1, &dir).map_err(Failure::run)?,
            };
            left.retain(|(index, system)| match result.systems.get(&system.to_string()) {
                Some(one) if counts(plan, one) => {
                    side.results[*index][seed as usize].push(one.clone());
                    false
                }
                _ => {
                    side.void[*index] += 1;
                    true
                }
            });
            if left.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Whether the machine kept up with a run in the lab.
fn counts(plan: &Plan, result: &SystemResult) -> bool {
    result.late_share.is_none_or(|share| share <= plan.late) && result.lost_outside == 0 && result.incomplete.is_empty()
}

/// The result of the same run, made by an earlier call, if it should be taken and has all these systems.
fn kept(plan: &Plan, scenario: &Scenario, systems: &[SystemSpec], dir: &Path) -> Option<RunResult> {
    let resolved = std::fs::read_to_string(dir.join("scenario.resolved.toml")).ok().filter(|_| plan.resume)?;
    let result = std::fs::read_to_string(dir.join("result.json")).ok()?;
    let result: RunResult = serde_json::from_str(&result).ok().filter(|_| resolved == scenario.to_toml())?;
    systems.iter().all(|system| result.systems.get(&system.to_string()).is_some()).then_some(result)
}

fn print(found: &Equivalence) {
    let [one, other] = found.worlds.map(World::as_str);
    println!("\n{}: {}", found.system, found.runs());
    println!("{:<28} {one:>10} {other:>10} {:>7} {:>16} {:>14}  verdict", "measure", "ratio", "90 % interval", "noise");
    for row in &found.rows {
        let [first, second, ratio, interval, noise] = row.cells();
        let measure = format!("{} {}", row.measure, row.unit);
        let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
        let verdict = row.verdict.as_str();
        println!("{measure:<28} {first:>10} {second:>10} {ratio:>7} {interval:>16} {noise:>14}  {verdict}{why}");
    }
    if found.counted.is_empty() {
        return;
    }
    println!("\n{TITLE_OF_COUNTED}. {WHERE_TO_LOOK}");
    println!("{:<28} {one:>10} {other:>10} {:>7} {:>16}", "per run", "ratio", "90 % interval");
    for row in &found.counted {
        let [name, first, second, ratio, interval] = row.cells();
        println!("{name:<28} {first:>10} {second:>10} {ratio:>7} {interval:>16}");
    }
}

#[cfg(test)]
mod tests {
    use sidestep_engine::{Lateness, WireTimes};
    use sidestep_net::Span;
    use sidestep_repro::Worlds;

    use super::*;

    /// Gives what the lab would under each attempt, and notes what was run.
    #[derive(Default)]
    struct Fake {
        late: Vec<f64>,
        ran: Vec<(World, u64, u32)>,
        /// How late the next simulation is.
        next: Lateness,
        /// The stalls that the simulator should have had.
        stalls: Vec<Vec<(u32, Span, Span)>>,
    }

    impl LateWorlds for Fake {
        fn run_late(
            &mut self,
            scenario: &Scenario,
            system: &SystemSpec,
            lateness: &Lateness,
            out: &Path,
        ) -> Result<RunResult, String> {
            self.next = lateness.clone();
            self.run(World::Sim, scenario, std::slice::from_ref(system), 1, out)
        }
    }

    impl Worlds for Fake {
        fn run(
            &mut self,
            world: World,
            scenario: &Scenario,
            systems: &[SystemSpec],
            seeds: u32,
            _out: &Path,
        ) -> Result<RunResult, String> {
            self.ran.push((world, scenario.seed, scenario.repetition));
            let mut run = RunResult::new("s", world, scenario.seed);
            let late = Span::from_micros(100 * scenario.seed + u64::from(scenario.repetition));
            let stalls = vec![(0, Span::ZERO, late)];
            let of_lab = SystemResult {
                late: Lateness {
                    wires: Some(WireTimes { threads: 1, stalls, ..WireTimes::default() }),
                    late_starts: vec![late],
                    late_wakeups: vec![(Span::ZERO, late)],
                    jiffies: Some(late),
                },
                ..SystemResult::default()
            };
            if world == World::Sim {
                let Lateness { wires, late_starts, late_wakeups, jiffies } = std::mem::take(&mut self.next);
                let stalls = wires.map_or_else(Vec::new, |wires| wires.stalls);
                let late: Vec<Span> = stalls.iter().map(|(_, _, late)| *late).collect();
                assert_eq!(late_starts, late);
                assert_eq!(jiffies, late.first().copied());
                assert_eq!(late_wakeups, late.iter().map(|late| (Span::ZERO, *late)).collect::<Vec<_>>());
                self.stalls.push(stalls);
            }
            let of_world = if world == World::Lab { of_lab } else { SystemResult::default() };
            let tcp = [("TCPTimeouts".to_owned(), 4), ("TCPPureAcks".to_owned(), 9)].into();
            let one = SystemResult { goodput_mbps: 10.0, tcp, ..of_world };
            for system in systems {
                let repeated = sidestep_results::Repeated::of(&vec![one.clone(); seeds as usize]);
                let late_share =
                    (world == World::Lab).then(|| if self.late.is_empty() { 0.0 } else { self.late.remove(0) });
                let repeated = repeated.filter(|_| seeds > 1);
                run.systems.insert(system.to_string(), SystemResult { late_share, repeated, ..one.clone() });
            }
            Ok(run)
        }
    }

    fn plan(worlds: [World; 2], seeds: u32) -> Plan {
        Plan { worlds, seeds, repetitions: [1, 2], margin: 0.05, late: 0.01, lateness: false, resume: false }
    }

    fn scenario() -> Scenario {
        Scenario::parse(include_str!("../../../../scenarios/dumbbell.toml"), "dumbbell").unwrap()
    }

    fn found(plan: &Plan, fake: &mut Fake) -> serde_json::Value {
        let out = tempfile::tempdir().unwrap();
        run(plan, &scenario(), &["tcp".parse().unwrap()], fake, out.path(), false).unwrap();
        serde_json::from_str(&std::fs::read_to_string(out.path().join("equivalence.json")).unwrap()).unwrap()
    }

    #[test]
    fn a_run_that_was_late_is_made_again_and_counted() {
        let mut fake = Fake { late: vec![0.5, 0.0], ..Fake::default() };
        let found = found(&plan([World::Sim, World::Lab], 6), &mut fake);
        assert_eq!(found[0]["void"], serde_json::json!([0, 1]));
        assert_eq!(found[0]["rows"][0]["verdict"], "equivalent");
        assert_eq!(fake.ran.iter().filter(|(world, ..)| *world == World::Lab).count(), 6 * 2 + 1);
    }

    #[test]
    fn what_tcp_counted_is_shown_for_all_that_the_simulator_counts_as_the_lab_does() {
        let counted = |worlds| found(&plan(worlds, 6), &mut Fake::default())[0]["counted"].clone();
        let of_sim = counted([World::Sim, World::Lab]);
        assert_eq!(of_sim.as_array().map(Vec::len), Some(1), "{of_sim}");
        assert_eq!((&of_sim[0]["name"], &of_sim[0]["ratio"]), (&"TCPTimeouts".into(), &1.0.into()));
        assert_eq!(counted([World::Lab; 2]).as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_seed_that_is_always_late_leaves_it_undecided() {
        let mut fake = Fake { late: vec![0.5; 3], ..Fake::default() };
        let found = found(&plan([World::Sim, World::Lab], 6), &mut fake);
        assert_eq!((&found[0]["void"][1], &found[0]["rows"][0]["verdict"]), (&3.into(), &"undecided".into()));
    }

    #[test]
    fn the_simulator_is_as_late_as_the_labs_run_of_the_same_seed_and_repetition() {
        let mut fake = Fake::default();
        let plan = Plan { repetitions: [3, 2], lateness: true, ..plan([World::Sim, World::Lab], 2) };
        found(&plan, &mut fake);
        assert!(fake.ran.iter().take(4).all(|(world, ..)| *world == World::Lab), "{:?}", fake.ran);
        let micros: Vec<u64> = fake.stalls.iter().map(|one| one[0].2.as_nanos() / 1_000).collect();
        // Repetitions of the second side are 1 and 3; the third takes the first again.
        assert_eq!(micros, [101, 201, 103, 203, 101, 201]);
    }

    #[test]
    fn a_world_held_against_itself_never_repeats_a_repetition() {
        let mut fake = Fake::default();
        found(&plan([World::Sim, World::Sim], 6), &mut fake);
        let mut repetitions: Vec<u32> = fake.ran.iter().map(|(_, _, repetition)| *repetition).collect();
        repetitions.sort_unstable();
        repetitions.dedup();
        assert_eq!(repetitions.len(), fake.ran.len());
    }

    #[test]
    fn a_run_that_lacks_a_system_is_not_taken_for_one_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let (scenario, tcp): (_, SystemSpec) = (scenario(), "tcp".parse().unwrap());
        let mut run = RunResult::new("s", World::Lab, 1);
        run.systems.insert("tcp", SystemResult::default());
        std::fs::write(dir.path().join("scenario.resolved.toml"), scenario.to_toml()).unwrap();
        std::fs::write(dir.path().join("result.json"), serde_json::to_string(&run).unwrap()).unwrap();
        let plan = Plan { resume: true, ..plan([World::Lab; 2], 6) };
        let both = [tcp.clone(), "random".parse().unwrap()];
        assert!(kept(&plan, &scenario, std::slice::from_ref(&tcp), dir.path()).is_some());
        assert!(kept(&plan, &scenario, &both, dir.path()).is_none());
        assert!(kept(&Plan { resume: false, ..plan }, &scenario, &[tcp], dir.path()).is_none());
    }

    #[test]
    fn repetitions_are_one_number_or_two() {
        assert_eq!(repetitions(&[3]).ok(), Some([3, 3]));
        assert_eq!(repetitions(&[3, 1]).ok(), Some([3, 1]));
        assert!(repetitions(&[1, 2, 3]).is_err());
    }
}
