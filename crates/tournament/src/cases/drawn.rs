//! Scenarios that a seed draws: no policy was tuned on those of a new seed.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_scenario::builder::{Part, ScenarioBuilder, blackhole, bulk, closed_loop, down, part, up};

use super::{
    Build, CLOSED, Case, Class, LONG, MIX, Measure, SHORT, Set,
    failure::{back, one_way},
    network::{between, short, sized, web_search},
    shift::rate,
};

/// `count` scenarios that follow from a seed, of each class in turn. All are for judging.
///
/// Two to six paths of 4 to 40 Mbit/s, links of 0.5 to 20 ms, queues of 0.3 to 3 bandwidth-delay products with marks or
/// without, one to eight hosts, CUBIC or Reno, and traffic of one of five kinds. Rates, delays and queues are drawn by their
/// logarithms.
pub fn drawn(seed: u64, count: u32) -> Vec<Case> {
    (0..count).map(|number| Draw::new(seed, number).case(seed, number)).collect()
}

struct Draw {
    random: Pcg32,
}

/// A path of two links.
#[derive(Clone)]
struct Path {
    mbits: u64,
    /// One-way delay of each link.
    delay_us: u64,
    queue: u64,
    /// How much its first link loses at random.
    loss: Option<String>,
}

/// What hosts send, what is judged of it, and in what words it is told.
struct Traffic {
    flows: Vec<Part>,
    judged: &'static [Measure],
    words: String,
    seconds: u64,
}

impl Draw {
    fn new(seed: u64, number: u32) -> Self {
        // Scenarios do not depend on how many there are.
        Draw { random: Pcg32::seed_from_u64(seed.wrapping_mul(10_007).wrapping_add(number.into())) }
    }

    fn case(mut self, seed: u64, number: u32) -> Case {
        let class = Class::ALL[number as usize % Class::ALL.len()];
        let mut paths = self.paths(class);
        let mut happens = String::new();
        if class == Class::Differ && self.one_of(4) == 0 {
            let (index, tenths) = (self.one_of(paths.len() as u64) as usize, self.log_between(1, 20));
            let loss = format!("{}.{} %", tenths / 10, tenths % 10);
            happens = format!("; path-{} loses {loss} at random", index + 1);
            paths[index].loss = Some(loss);
        }
        let clients = self.between(1, 8) as u32;
        let marks = self.one_of(2) == 0;
        let control = if self.one_of(4) == 0 { "reno" } else { "cubic" };
        let all: u64 = paths.iter().map(|path| path.mbits).sum();
        // A path that fails, or is slow for a time, leaves others room for what it carried.
        let traffic = self.traffic(all, if matches!(class, Class::Failure | Class::Shift) { 50 } else { 100 });
        let mut network = between(clients, paths.iter().map(|path| links(path, marks)));
        match class {
            Class::Alike | Class::Differ => {}
            Class::Failure => (network, happens) = self.failure(network, &paths),
            Class::Shift => (network, happens) = self.shift(network, &paths),
        }
        let network = network.set("duration", format!("{} s", traffic.seconds));
        let network = traffic.flows.into_iter().fold(network, ScenarioBuilder::flow);
        let network = network.set("tcp.congestion_control", control);
        let list = |of: fn(&Path) -> u64| {
            let mut all: Vec<String> = paths.iter().map(|path| of(path).to_string()).collect();
            if all.iter().all(|one| *one == all[0]) {
                all.truncate(1);
            }
            all.join(", ")
        };
        let hosts = counted(clients.into(), "host");
        let purpose = format!(
            "{} paths of {} Mbit/s, links of {} us, queues of {} packets {} marks; {hosts} with {} ({control}){happens}.",
            paths.len(),
            list(|path| path.mbits),
            list(|path| path.delay_us),
            list(|path| path.queue),
            if marks { "with" } else { "without" },
            traffic.words,
        );
        Case {
            name: format!("drawn-{seed}-{number}").into(),
            purpose: purpose.into(),
            set: Set::Judging,
            class,
            judged: traffic.judged,
            build: Build::Drawn(network),
        }
    }

    fn paths(&mut self, class: Class) -> Vec<Path> {
        let count = self.between(2, 6);
        let same = (class != Class::Differ).then(|| self.path());
        let unlike = class == Class::Shift && self.one_of(2) == 0;
        let mut one = || match &same {
            Some(path) if !unlike => path.clone(),
            _ => self.path(),
        };
        (0..count).map(|_| one()).collect()
    }

    fn path(&mut self) -> Path {
        let (mbits, delay_us, tenths) =
            (self.log_between(4, 40), self.log_between(500, 20_000), self.log_between(3, 30));
        // Round trip: two links and the hosts' own two of 1 ms, there and back.
        let product = mbits * (4 * delay_us + 4_000) / 12_000;
        Path { mbits, delay_us, queue: (product * tenths / 10).max(10), loss: None }
    }

    fn traffic(&mut self, all_mbits: u64, most: u64) -> Traffic {
        let (share, all) = (format!("{} %", self.between(10, most)), format!("{all_mbits} Mbit/s"));
        let (mean, each) = (format!("{} kB", self.log_between(10, 100)), self.between(1, 4));
        let one = |flow, judged, words, seconds| Traffic { flows: vec![flow], judged, words, seconds };
        let endless = bulk("c*", "s*").with("connections", each as i64);
        match self.one_of(5) {
            0 => one(short(&share, &all), SHORT, format!("transfers of 30 kB at {share}"), 22),
            1 => one(endless, LONG, format!("{} each", counted(each, "endless connection")), 32),
            2 => {
                let (users, think) = (self.between(1, 6), format!("{} ms", self.between(100, 600)));
                let flow = sized(closed_loop("c*", "s*", users as u32, &think, "0"), &mean);
                one(
                    flow,
                    CLOSED,
                    format!("{} each, who fetch {mean} and think for {think}", counted(users, "user")),
                    22,
                )
            }
            3 => one(web_search(&share, &all), SHORT, format!("the web-search workload at {share}"), 62),
            _ => {
                let few = format!("{} %", self.between(10, 40));
                let flows = vec![short(&few, &all), bulk("c*", "s*")];
                let words = format!("an endless connection each, and transfers of 30 kB at {few}");
                Traffic { flows, judged: MIX, words, seconds: 32 }
            }
        }
    }

    /// A path fails, and in three of four cases works again.
    fn failure(&mut self, network: ScenarioBuilder, paths: &[Path]) -> (ScenarioBuilder, String) {
        let (which, from) = (format!("path-{}", self.between(1, paths.len() as u64)), self.between(4, 9));
        let at = format!("{from} s");
        let (event, what) = match self.one_of(4) {
            0 => (down(&at), "goes down"),
            1 => (blackhole(&at), "silently loses everything"),
            2 => (one_way(&at), "silently loses what clients send"),
            _ => (back(&at), "silently loses what servers send"),
        };
        let mut words = format!("; {which} {what} at {at}");
        let mut network = network.event(event.path(&which));
        if self.one_of(4) > 0 {
            let to = format!("{} s", from + self.between(3, 9));
            network = network.event(up(&to).path(&which));
            words += &format!(" until {to}");
        }
        (network, words)
    }

    /// A path has less of its rate for a time, and then another.
    fn shift(&mut self, mut network: ScenarioBuilder, paths: &[Path]) -> (ScenarioBuilder, String) {
        let (part_of, lasts, first) = (self.between(2, 10), self.between(3, 7), self.between(0, 5));
        for turn in 0..2 {
            let index = (first + turn) as usize % paths.len();
            let (name, mbits) = (format!("path-{}", index + 1), paths[index].mbits);
            let at = |second: u64, kbits: u64| rate(&format!("{second} s"), &name, &format!("{kbits} kbit/s"));
            let from = 4 + turn * (lasts + 1);
            network = network.event(at(from, mbits * 1_000 / part_of)).event(at(from + lasts, mbits * 1_000));
        }
        let name = first % paths.len() as u64 + 1;
        (network, format!("; path-{name} has a part in {part_of} of its rate for {lasts} s, then the next"))
    }

    /// A whole number below `count`.
    fn one_of(&mut self, count: u64) -> u64 {
        (u64::from(self.random.next_u32()) * count) >> 32
    }

    /// A whole number from `least` to `most`.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.one_of(most + 1 - least)
    }

    /// A whole number from `least` to `most`, of which logarithms are spread evenly.
    fn log_between(&mut self, least: u64, most: u64) -> u64 {
        let unit = f64::from(self.random.next_u32()) / f64::from(u32::MAX);
        (least as f64 * (most as f64 / least as f64).powf(unit)).round() as u64
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The first link of a path, on which it loses packets if it does, and the second.
fn links(path: &Path, marks: bool) -> [Part; 2] {
    let (rate, delay) = (format!("{} Mbit/s", path.mbits), format!("{} us", path.delay_us));
    let link =
        part([("rate", rate.as_str()), ("delay", delay.as_str())]).with("queue", format!("{} packets", path.queue));
    let link = if marks { link.with("ecn", format!("{} packets", (path.queue / 2).max(5))) } else { link };
    let first = path.loss.iter().fold(link.clone(), |link, loss| link.with("loss", loss.as_str()));
    [first, link]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_drawn_is_valid_all_different_and_follows_from_the_seed() {
        let cases: Vec<Case> = (1..=5).flat_map(|seed| drawn(seed, 40)).collect();
        let texts: BTreeSet<String> = cases.iter().map(Case::text).collect();
        assert_eq!((cases.len(), texts.len()), (200, 200));
        for case in &cases {
            let scenario = case.scenario();
            assert!((2..=6).contains(&scenario.topology.paths().len()) && case.purpose.ends_with('.'), "{}", case.name);
        }
        let again: Vec<String> = drawn(3, 10).iter().map(Case::text).collect();
        assert_eq!(again, drawn(3, 40).iter().take(10).map(Case::text).collect::<Vec<_>>());
    }

    #[test]
    fn each_class_is_drawn_as_often_and_each_kind_of_traffic_and_of_failure_comes() {
        let cases = drawn(1, 400);
        for class in Class::ALL {
            assert_eq!(cases.iter().filter(|case| case.class == class).count(), 100);
        }
        let told = |words: &str| cases.iter().filter(|case| case.purpose.contains(words)).count();
        for words in [
            "at random",
            "goes down",
            "loses everything",
            "what clients send",
            "what servers send",
            "of its rate",
            "users",
            "web-search",
            "endless connections",
            "an endless connection each",
            "reno",
            "cubic",
            "with marks",
            "without marks",
        ] {
            assert!(told(words) > 5, "{words}");
        }
    }
}
