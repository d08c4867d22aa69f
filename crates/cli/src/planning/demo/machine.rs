//! Whether the machine had time for the lab: what else it did, and what the lab's wires noticed of it.

use std::fmt;

use serde::Serialize;
use sidestep_results::{RunResult, World};

/// More of the frames than this may not be over a millisecond late.
const LATE_SHARE: f64 = 0.01;
/// No frame may be later than this, in milliseconds: many round trips of the scenarios.
const LATE_MS: f64 = 200.0;
/// Other programs may not use more than this share of the processors.
const OTHERS: f64 = 0.1;
/// The hypervisor may not take more than this share of them.
const STEAL: f64 = 0.02;

/// What the processors did while the lab ran; shares are of all of them together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Machine {
    /// How many processors there are.
    pub processors: usize,
    /// The share of their time in which they worked, for whomever.
    pub busy: f64,
    /// The share that other programs used.
    pub others: f64,
    /// The share that the hypervisor gave to other machines.
    pub steal: f64,
}

/// Processor times in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    total: u64,
    idle: u64,
    /// Interrupts and what they leave behind, which is the lab's as much as others'.
    interrupts: u64,
    steal: u64,
    /// Of this process and of those that it waited for.
    own: u64,
}

/// Measures from its start on.
pub struct Meter(Ticks);

impl Meter {
    /// Begins.
    pub fn start() -> Self {
        Meter(Ticks::now())
    }

    /// What the machine did since.
    pub fn stop(&self) -> Machine {
        Ticks::now().since(&self.0)
    }
}

impl Ticks {
    fn now() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Ticks::parse(&read("/proc/stat"), &read("/proc/self/stat"))
    }

    /// The first line of `/proc/stat`, and the 14th to 17th field of `/proc/self/stat` (proc(5)).
    fn parse(all: &str, own: &str) -> Self {
        let line = all.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).map(|one| one.parse().unwrap_or(0)).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        // The name of the program may have spaces; what follows its parenthesis has none.
        let fields = own.rsplit_once(')').map_or("", |(_, fields)| fields);
        let own = fields.split_whitespace().skip(11).take(4).filter_map(|one| one.parse::<u64>().ok()).sum();
        Ticks {
            // Guests' time is in the first two already.
            total: ticks.iter().take(8).sum(),
            idle: at(3) + at(4),
            interrupts: at(5) + at(6),
            steal: at(7),
            own,
        }
    }

    fn since(&self, then: &Ticks) -> Machine {
        let total = self.total.saturating_sub(then.total).max(1) as f64;
        let share = |of: fn(&Ticks) -> u64| of(self).saturating_sub(of(then)) as f64 / total;
        let (idle, steal) = (share(|one| one.idle), share(|one| one.steal));
        let busy = (1.0 - idle - steal).max(0.0);
        Machine {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            busy,
            others: (busy - share(|one| one.own) - share(|one| one.interrupts)).max(0.0),
            steal,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processors, busy, others, .. } = self;
        let percent = |share: &f64| share * 100.0;
        write!(
            f,
            "{processors} processors were {:.0} % busy, other programs used {:.0} %",
            percent(busy),
            percent(others)
        )
    }
}

impl Machine {
    /// Why the numbers of these parts of a world must not be trusted.
    pub fn doubts<'a>(&self, world: World, parts: impl Iterator<Item = (&'a str, &'a RunResult)>) -> Vec<String> {
        if world == World::Sim {
            return Vec::new();
        }
        let mut doubts = Vec::new();
        if self.others > OTHERS {
            let (others, processors) = (self.others * 100.0, self.processors);
            doubts.push(format!("other programs used {others:.0} % of the {processors} processors"));
        }
        if self.steal > STEAL {
            doubts.push(format!("the hypervisor took {:.0} % of the processors' time", self.steal * 100.0));
        }
        doubts.extend(lateness(parts));
        doubts
    }
}

/// What the wires of all parts noticed: how many runs had late frames, which most, and how many frames were lost.
fn lateness<'a>(parts: impl Iterator<Item = (&'a str, &'a RunResult)>) -> Vec<String> {
    let (mut runs, mut late, mut lost) = (0, 0, 0);
    let (mut most, mut worst) = ((0.0, String::new()), 0.0_f64);
    for (title, run) in parts {
        for (name, system) in run.systems.iter() {
            let (share, longest) = (system.late_share.unwrap_or(0.0), system.late_ms_max.unwrap_or(0.0));
            runs += 1;
            late += usize::from(share > LATE_SHARE || longest > LATE_MS);
            lost += system.lost_outside;
            worst = worst.max(longest);
            if share >= most.0 {
                most = (share, format!("{name}, {}", short(title)));
            }
        }
    }
    let mut doubts = Vec::new();
    if late > 0 {
        let (share, place) = (most.0 * 100.0, most.1);
        doubts.push(format!(
            "in {late} of {runs} runs frames were late: at worst {share:.1} % by more than 1 ms ({place}), and one by {worst:.0} ms"
        ));
    }
    if lost > 0 {
        doubts.push(format!("{lost} frames were lost that no link lost"));
    }
    doubts
}

/// The title up to its first comma or colon, in the middle of a sentence.
fn short(title: &str) -> String {
    let short = title.split([',', ':']).next().unwrap_or(title);
    let mut letters = short.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use sidestep_results::SystemResult;

    use super::*;

    #[test]
    fn time_is_of_the_lab_of_others_of_the_hypervisor_or_unassigned() {
        let before = Ticks::parse(
            "cpu  100 0 100 700 100 0 0 0 5 5\ncpu0 1\n",
            "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 10 10 0 0 99",
        );
        // 1000 ticks later: 300 of users, 100 of the system, 400 idle, 50 of interrupts, 150 stolen; 200 of them are ours.
        let after = Ticks::parse(
            "cpu  400 0 200 1100 100 20 30 150 9 9\n",
            "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 110 60 50 0 99",
        );
        let machine = after.since(&before);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(machine.busy, 0.45) && near(machine.steal, 0.15) && near(machine.others, 0.2), "{machine:?}");
        assert!(Ticks::parse("", "").since(&Ticks::default()).busy <= 1.0);
        assert!(Ticks::now().total > 0);
    }

    #[test]
    fn a_busy_machine_is_a_reason_for_doubt_and_a_quiet_one_or_the_simulator_is_none() {
        let mut run = RunResult::new("six-paths", World::Lab, 1);
        let fine = SystemResult { late_share: Some(0.001), late_ms_max: Some(12.0), ..SystemResult::default() };
        run.systems.insert("tcp", fine.clone());
        let quiet = Machine { processors: 2, busy: 0.6, others: 0.02, steal: 0.0 };
        fn doubts(machine: &Machine, world: World, run: &RunResult) -> Vec<String> {
            machine.doubts(world, [("Six equal paths, and", run)].into_iter())
        }
        assert_eq!(doubts(&quiet, World::Lab, &run), [""; 0]);
        let busy = Machine { others: 0.55, steal: 0.034, ..quiet };
        run.systems.insert("random", SystemResult { late_share: Some(0.042), lost_outside: 3, ..fine });
        assert_eq!(
            doubts(&busy, World::Lab, &run),
            [
                "other programs used 55 % of the 2 processors",
                "the hypervisor took 3 % of the processors' time",
                "in 1 of 2 runs frames were late: at worst 4.2 % by more than 1 ms (random, six equal paths), and one by 12 ms",
                "3 frames were lost that no link lost",
            ]
        );
        assert_eq!(doubts(&busy, World::Sim, &run), [""; 0]);
    }
}
