//! What the figures of the SEMPER paper share: the branch, its measures, and what the paper leaves open.

use sidestep_results::{RunResult, SystemResult};
use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk},
};

use super::result_of;
use crate::{Context, Mode, ReproError, Seeds};

pub(super) const PAPER: &str = "SEMPER";

/// Rate of each link between the edges, in Mbit/s.
pub(super) const LINK: u32 = 50;

/// What the paper does not give: delays, buffers, access rates, what the hosts are limited by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices {
    /// Delay of a link between the edges, in one direction.
    pub(super) delay: &'static str,
    /// Its queue.
    pub(super) queue: &'static str,
}

/// A round trip of 24 ms, and a queue of five bandwidth-delay products. With 128 subflows on a link a shorter one would
/// not hold their minimum windows.
pub(super) const CHOSEN: Choices = Choices { delay: "10 ms", queue: "500 packets" };

/// How long a run lasts, in seconds, and from when it is measured; how many repetitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) duration: u32,
    pub(super) warmup: u32,
    pub(super) seeds: u32,
}

impl Size {
    /// As in the paper, or a fraction of it.
    pub(super) fn of(mode: Mode) -> Size {
        match mode {
            Mode::Full => Size { duration: 400, warmup: 200, seeds: 10 },
            Mode::Quick => Size { duration: 8, warmup: 4, seeds: 6 },
        }
    }
}

/// `hosts` hosts with endless transfers to a server, and `links` links between the edges.
pub(super) fn branch(name: &str, hosts: u32, links: u32, size: Size, choices: Choices) -> ScenarioBuilder {
    network(name, hosts, links, size, choices).flow(bulk("c*", "s1"))
}

/// The same without transfers.
pub(super) fn network(name: &str, hosts: u32, links: u32, size: Size, choices: Choices) -> ScenarioBuilder {
    let branch = base(name, size).parallel_paths(links).network("hops", 1);
    let branch = branch.network("clients", hosts).network("servers", 1).network("rate", format!("{LINK} Mbit/s"));
    let branch = branch.network("delay", choices.delay).network("queue", choices.queue);
    // All links together carry 400 Mbit/s at most, less than the server's access.
    branch.network("access_rate", "1 Gbit/s").network("access_delay", "1 ms")
}

/// A scenario without network and flows.
pub(super) fn base(name: &str, size: Size) -> ScenarioBuilder {
    let base = ScenarioBuilder::new(&format!("{} s", size.duration)).set("name", name).set("sample", "1 s");
    // MPTCP under the other profile was held against kernels in its goodput only.
    base.set("tcp.profile", "rfc").set("warmup", format!("{} s", size.warmup))
}

/// A system's measures by seed.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Of all hosts together, in Mbit/s of application data.
    pub(super) total: Seeds,
    /// Jain's index over the hosts.
    pub(super) jain: Seeds,
    /// How many links carry something.
    pub(super) used: Seeds,
}

impl Measured {
    pub(super) fn of(run: &RunResult, system: &str, seeds: u32) -> Result<Measured, ReproError> {
        let result = result_of(run, system)?;
        Ok(Measured {
            total: Seeds::of(result, seeds, |one| Some(one.goodput_mbps)),
            jain: Seeds::of(result, seeds, |one| one.fairness),
            used: Seeds::of(result, seeds, |one| Some(used(one))),
        })
    }
}

/// Links that carry more than 1 %.
fn used(result: &SystemResult) -> f64 {
    let carries = |share: &f64| *share > 0.01;
    result.paths.iter().filter(|(_, path)| path.utilisation.as_ref().is_some_and(carries)).count() as f64
}

/// Runs systems in a branch, and returns each one's measures in their order.
pub(super) fn measure(
    context: &mut Context<'_>,
    name: &str,
    scenario: &Scenario,
    systems: &[String],
    seeds: u32,
) -> Result<Vec<Measured>, ReproError> {
    let names: Vec<&str> = systems.iter().map(String::as_str).collect();
    let run = context.simulate(name, scenario, &names, seeds)?;
    names.iter().map(|system| Measured::of(&run, system, seeds)).collect()
}

/// Rows of a table as CSV: what each is about, and numbers.
pub(super) fn table(head: &str, lines: &[(String, Vec<f64>)]) -> String {
    let mut out = format!("{head}\n");
    for (label, numbers) in lines {
        let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:.4}")).collect();
        out += &format!("{label},{}\n", numbers.join(","));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sidestep_maxflow::Unwatched;
    use sidestep_results::{Named, PathResult, Repeated, World};
    use sidestep_scenario::SystemSpec;

    use crate::{Mode, Verdict, Worlds, find, run};

    use super::*;

    /// Answers at once: as many links are full as a host has subflows, and in a run's series the second host gets what
    /// the first does not.
    #[derive(Default)]
    struct Pretended {
        runs: Vec<(Vec<String>, u32)>,
        /// Of 47 Mbit/s: what a link carries.
        worse: f64,
    }

    impl Worlds for Pretended {
        fn run(
            &mut self,
            world: World,
            scenario: &Scenario,
            systems: &[SystemSpec],
            seeds: u32,
            out: &Path,
        ) -> Result<RunResult, String> {
            self.runs.push((systems.iter().map(ToString::to_string).collect(), seeds));
            let mut result = RunResult::new(&scenario.name, world, 1);
            let links = scenario.topology.paths().len() as f64;
            let hosts = scenario.topology.nodes().iter().filter(|node| node.name.starts_with('c')).count() as f64;
            let mut series = String::from("system,time_s,kind,name,mbps\n");
            for system in systems {
                let text = system.to_string();
                let subflows = text.split_once("subflows=").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
                let stateful = text.contains("stateful");
                // All links are in use where hosts have subflows enough.
                let links = if links == 0.0 { 8.0 } else { links };
                let full: f64 = if stateful { links } else { subflows.map_or(8.0, |of: f64| of * hosts).min(links) };
                let each = |seed: u32| SystemResult {
                    goodput_mbps: (47.0 - self.worse) * full
                        + if stateful { 1.0 } else { 0.0 }
                        + f64::from(seed) * 0.01,
                    fairness: Some(0.95 + 0.005 * links - if subflows == Some(hosts) { 0.02 } else { 0.0 }),
                    paths: Named::<PathResult>::default(),
                    ..SystemResult::default()
                };
                let repeated = Repeated::of(&(0..seeds).map(each).collect::<Vec<_>>());
                result.systems.insert(text.clone(), SystemResult { repeated, ..each(0) });
                for second in 1..=scenario.duration.as_nanos() / 1_000_000_000 {
                    let all = if (11..21).contains(&second) { 140.0 } else { 188.0 };
                    let swing = if stateful { 30.0 } else { 3.0 } * [1.0, -1.0][second as usize % 2];
                    let jitter = scenario.seed as f64 * 0.01;
                    series += &format!("\"{text}\",{second},connection,c1,{}\n", all / 2.0 + swing + jitter);
                    series += &format!("\"{text}\",{second},connection,c2,{}\n", all / 2.0 - swing - jitter);
                }
            }
            std::fs::create_dir_all(out).map_err(|error| error.to_string())?;
            std::fs::write(out.join("series.csv"), series).map_err(|error| error.to_string())?;
            Ok(result)
        }
    }

    fn verdicts(id: &str, worlds: &mut Pretended, of: &str) -> Vec<Verdict> {
        let dir = tempfile::tempdir().unwrap();
        let outcome = run(find(id).unwrap(), Mode::Quick, None, dir.path(), None, worlds, &Unwatched).unwrap();
        for picture in &outcome.pictures {
            assert!(dir.path().join(id).join(picture).is_file());
        }
        let rows = outcome.rows.iter().filter(|row| row.quantity.contains(of) && row.verdict != Verdict::NoPaperValue);
        rows.map(|row| row.verdict).collect()
    }

    #[test]
    fn figure_3_compares_hosts_and_subflows_with_tcp_on_a_path_of_its_own() {
        let mut worlds = Pretended::default();
        // Two hosts with two subflows each fill four of eight links, and with four all.
        let of_two = verdicts("semper-fig3", &mut worlds, "total, 2 hosts");
        assert_eq!(of_two[..3], [Verdict::Holds, Verdict::Differs, Verdict::Holds]);
        assert_eq!(worlds.runs[0], (vec!["tcp".to_owned()], 6));
        assert!(worlds.runs[1].0.contains(&"semper:subflows=30".into()));
        assert_eq!(verdicts("semper-fig3", &mut worlds, "total, 32 hosts"), [Verdict::Holds; 6]);
        assert_eq!(verdicts("semper-fig3", &mut worlds, "32 hosts less 2, "), [Verdict::Holds; 6]);
    }

    #[test]
    fn figure_4_wants_both_edges_near_capacity_and_the_stateless_one_below() {
        let mut worlds = Pretended::default();
        assert!(verdicts("semper-fig4", &mut worlds, "").iter().all(|verdict| *verdict == Verdict::Holds));
        let asked: Vec<&str> = worlds.runs.iter().flat_map(|(systems, _)| systems).map(String::as_str).collect();
        assert_eq!(asked[..2], ["semper:subflows=32", "semper-stateful:subflows=2"]);
        assert_eq!(asked.len(), 14);
        let mut worse = Pretended { worse: 10.0, ..Pretended::default() };
        assert!(verdicts("semper-fig4", &mut worse, "total, 4 links").iter().all(|of| *of == Verdict::Differs));
    }

    #[test]
    fn figure_5_reads_windows_of_a_second_and_sees_who_is_steadier() {
        let mut worlds = Pretended::default();
        assert_eq!(verdicts("semper-fig5", &mut worlds, "σ of a host's"), [Verdict::Holds; 2]);
        assert_eq!(worlds.runs.len(), 12);
        assert_eq!(worlds.runs[0].0.len(), 4);
        for of in ["total without", "worst second", "correlation", "link back after 10 s"] {
            let verdicts = verdicts("semper-fig5", &mut worlds, of);
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Holds), "{of}: {verdicts:?}");
        }
        // The pretended link stays away.
        assert_eq!(verdicts("semper-fig5", &mut worlds, "link back after 2 s"), [Verdict::Differs; 4]);
    }
}
