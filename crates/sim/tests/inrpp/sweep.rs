//! INRPP with default settings beside TCP, over plain networks: a bottleneck of 100 Mbit/s, with and without a detour.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_net::NodeId;
use sidestep_results::{SystemResult, measures::jain};
use sidestep_scenario::{
    Scenario,
    builder::{Part, ScenarioBuilder, bulk, load, part, poisson},
};

use crate::{caches, number, results, series};

/// One network, and its traffic.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Pairs of hosts.
    flows: u32,
    /// The rate of their links, in that of the bottleneck.
    access: u32,
    /// The delay of their links.
    delay: &'static str,
    cache: &'static str,
    detour: bool,
    traffic: Traffic,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Traffic {
    /// Endless flows, which begin together.
    Together,
    /// Endless flows, which begin one after the other.
    Staggered,
    /// Transfers with web search's sizes, which offer six tenths of the bottleneck.
    WebSearch,
}

/// What a cell comes to, beside TCP.
#[derive(Clone, Debug)]
struct Outcome {
    /// INRPP's goodput in TCP's, of endless flows.
    goodput: Option<f64>,
    /// The least of Jain's index in windows of 10 s, of endless flows.
    jain: Option<f64>,
    /// INRPP's mean completion time in TCP's, of transfers.
    afct: Option<f64>,
    drops: u64,
    /// Segments that were sent again, of all.
    again: f64,
}

/// Endless flows have all begun by 5 s, and are measured from 10 s on.
const STARTS: f64 = 5.0;
const WINDOW: f64 = 10.0;
/// Web search's sizes are few and unlike; one seed's mean follows from a handful of them.
const SEEDS: i64 = 5;

fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for flows in [1, 2, 4, 8, 30, 100] {
        for (access, delay) in
            [1, 2, 10].into_iter().flat_map(|access| ["1 us", "5 ms", "50 ms"].map(|of| (access, of)))
        {
            for (cache, detour) in [("2 MB", false), ("2 MB", true), ("12.5 MB", false), ("12.5 MB", true)] {
                let with = |traffic| Cell { flows, access, delay, cache, detour, traffic };
                cells.extend([Traffic::Together, Traffic::Staggered, Traffic::WebSearch].map(with));
            }
        }
    }
    cells
}

impl Cell {
    fn scenario(&self, seed: i64) -> Scenario {
        let web = self.traffic == Traffic::WebSearch;
        let mut network =
            ScenarioBuilder::new(if web { "60 s" } else { "30 s" }).set("sample", "10 s").set("seed", seed);
        network = network.set("inrpp.cache", self.cache).router("L").router("R");
        let inner = || part([("rate", "100 Mbit/s"), ("delay", "5 ms"), ("queue", "200 packets")]);
        network = network.link_with("L", "R", inner());
        if self.detour {
            network = network.router("C").link_with("L", "C", inner()).link_with("C", "R", inner());
        }
        let rate = format!("{} Mbit/s", self.access * 100);
        let outer = || part([("rate", &*rate), ("delay", self.delay), ("queue", "2000 packets")]);
        for at in 1..=self.flows {
            let (from, to) = (format!("l{at}"), format!("r{at}"));
            network = network.host(&from).host(&to).link_with(&from, "L", outer()).link_with("R", &to, outer());
            if !web {
                let start = match self.traffic {
                    Traffic::Staggered => f64::from(at - 1) * STARTS / f64::from(self.flows),
                    _ => 0.0,
                };
                network = network.flow(bulk(&from, &to).with("start", format!("{start:.3} s")));
            }
        }
        if web {
            let flow = load("l*", "r*", "60 %", "100 Mbit/s")
                .with_table("size", part([("distribution", "web-search")]))
                .with("stop", "30 s");
            return network.flow(flow).build();
        }
        network.set("warmup", "10 s").build()
    }

    fn play(&self) -> Outcome {
        // Endless flows draw nothing.
        let seeds = if self.traffic == Traffic::WebSearch { 1..=SEEDS } else { 1..=1 };
        let runs: Vec<_> = seeds
            .map(|seed| {
                let scenario = self.scenario(seed);
                (results(&scenario, "tcp"), series(&scenario, "inrpp"))
            })
            .collect();
        let sum = |of: fn(&SystemResult) -> f64| {
            let sums = runs.iter().map(|(tcp, (inrpp, _))| (of(tcp), of(inrpp)));
            sums.fold((0.0, 0.0), |(tcp, inrpp), (more, other)| (tcp + more, inrpp + other))
        };
        let ratio = |of| {
            let (tcp, inrpp) = sum(of);
            inrpp / tcp
        };
        let mut windows: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for row in runs.iter().flat_map(|(_, (_, rows))| rows) {
            if row["kind"] == "connection" && number(row, "time_s") > WINDOW {
                windows.entry(number(row, "time_s") as u64).or_default().push(number(row, "mbps"));
            }
        }
        let endless = self.traffic != Traffic::WebSearch;
        let segments = sum(|of| of.goodput_mbps).1 * 30.0 * 1e6 / 8.0 / 1_448.0;
        Outcome {
            goodput: endless.then(|| ratio(|of| of.goodput_mbps)),
            jain: if endless { windows.values().filter_map(|of| jain(of)).min_by(f64::total_cmp) } else { None },
            afct: (!endless).then(|| ratio(|of| of.afct_s.unwrap())),
            drops: sum(|of| of.total_drops() as f64).1 as u64,
            again: sum(|of| of.retransmits as f64).1 / segments,
        }
    }
}

impl Outcome {
    /// Whether it is at least what a user may ask: no worse than TCP, fair, and without loss.
    fn holds(&self) -> bool {
        self.goodput.is_none_or(|ratio| ratio >= 0.97)
            && self.jain.is_none_or(|index| index >= 0.95)
            && self.afct.is_none_or(|ratio| ratio <= 1.0)
            && self.drops == 0
            && self.again < 1e-3
    }
}

#[test]
fn with_default_settings_it_is_no_worse_than_tcp_fair_and_without_loss() {
    // A prime, so that these cells have all values of each. Some of them fail if caches keep room for detours that no neighbour
    // asks for.
    for cell in all().into_iter().skip(11).step_by(37) {
        let outcome = cell.play();
        assert!(outcome.holds(), "{cell:?}: {outcome:?}");
    }
}

/// All cells, as CSV: `make inrpp-sweep`.
#[test]
#[ignore = "a measurement: half an hour"]
fn all_cells() {
    let cells = all();
    let next = std::sync::atomic::AtomicUsize::new(0);
    println!("flows,access,delay,cache,detour,traffic,goodput,jain,afct,drops,again,holds");
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let Cell { flows, access, delay, cache, detour, traffic } = cell;
                    let outcome = cell.play();
                    let Outcome { goodput, jain, afct, drops, again } = outcome;
                    let text = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{of:.3}"));
                    println!(
                        "{flows},{access},{delay},{cache},{detour},{traffic:?},{},{},{},{drops},{again:.5},{}",
                        text(goodput),
                        text(jain),
                        text(afct),
                        outcome.holds()
                    );
                }
            });
        }
    });
}

/// The links of Abilene, with their delay in milliseconds: of light in fibre.
const ABILENE: [(&str, &str, u32); 14] = [
    ("New-York", "Chicago", 6),
    ("New-York", "Washington", 2),
    ("Chicago", "Indianapolis", 1),
    ("Washington", "Atlanta", 4),
    ("Seattle", "Sunnyvale", 6),
    ("Seattle", "Denver", 8),
    ("Sunnyvale", "Los-Angeles", 3),
    ("Sunnyvale", "Denver", 8),
    ("Los-Angeles", "Houston", 11),
    ("Denver", "Kansas-City", 4),
    ("Kansas-City", "Houston", 5),
    ("Kansas-City", "Indianapolis", 4),
    ("Houston", "Atlanta", 6),
    ("Indianapolis", "Atlanta", 3),
];

/// Networks of many routers, with demands by gravity: what a host sends to another is as the product of the capacities of
/// their routers.
#[derive(Clone, Copy, Debug)]
enum Wide {
    Abilene,
    FatTree,
}

impl Wide {
    fn network(self, duration: &str) -> ScenarioBuilder {
        let network = ScenarioBuilder::new(duration).set("sample", "1 s");
        match self {
            Wide::Abilene => {
                let cities: BTreeSet<&str> = ABILENE.iter().flat_map(|(a, b, _)| [*a, *b]).collect();
                let mut network = network;
                for city in cities {
                    let host = format!("h-{city}");
                    network = network.router(city).host(&host).link(&host, city, "100 Mbit/s", "1 ms");
                }
                for (a, b, ms) in ABILENE {
                    let link = part([("rate", "50 Mbit/s"), ("queue", "100 packets")]);
                    network = network.link_with(a, b, link.with("delay", format!("{ms} ms")));
                }
                network
            }
            Wide::FatTree => {
                let network = network.fat_tree(4).network("delay", "100 us");
                network.network("rate", "50 Mbit/s").network("queue", "100 packets")
            }
        }
    }

    /// Transfers of `mbps` Mbit/s in all, until 20 s.
    fn scenario(self, mbps: f64, size: Part, mean: f64, seed: i64) -> Scenario {
        let plain = self.network("60 s").build();
        let topology = &plain.topology;
        let capacity = |host: NodeId| {
            let router = topology.head(topology.outgoing(host)[0]);
            let inner = topology.outgoing(router).iter().filter(|arc| topology.is_router(topology.head(**arc)));
            inner.map(|arc| topology.channel(*arc).rate.as_mbits()).sum::<f64>()
        };
        let hosts: Vec<(NodeId, f64)> =
            topology.node_ids().filter(|node| !topology.is_router(*node)).map(|host| (host, capacity(host))).collect();
        let products = hosts.iter().flat_map(|(a, of)| hosts.iter().map(move |(b, to)| (*a, *b, of * to)));
        let products: Vec<_> = products.filter(|(a, b, _)| a != b).collect();
        let sum: f64 = products.iter().map(|(_, _, product)| product).sum();
        let mut network = self.network("60 s").set("seed", seed);
        for (from, to, product) in products {
            let rate = mbps * 1e6 / 8.0 / mean * product / sum;
            let (from, to) = (&topology.node(from).name, &topology.node(to).name);
            let flow = poisson(from, to, rate).with_table("size", size.clone()).with("stop", "20 s");
            network = network.flow(flow);
        }
        network.build()
    }

    /// Mbit/s of all transfers that load the busiest link between routers with all that it can carry.
    fn full(self) -> f64 {
        const PROBED: f64 = 40.0;
        let scenario = self.scenario(PROBED, part([("distribution", "exponential"), ("mean", "50 kB")]), 50e3, 1);
        let system = if matches!(self, Wide::FatTree) { "ecmp" } else { "tcp" };
        let result = results(&scenario, system);
        // Transfers arrive in a third of the run.
        let links = result.links.values().filter_map(|link| link.utilisation);
        PROBED / (links.fold(0.0, f64::max) * 3.0)
    }
}

/// Abilene and a fat tree beside TCP, ECMP and RCP, as CSV.
#[test]
#[ignore = "a measurement: minutes"]
fn wide_networks() {
    /// The mean of web search's sizes, in bytes.
    const MEAN: f64 = 1.67e6;
    println!("network,load,system,afct_s,p99_s,unfinished,drops,again,detoured");
    for wide in [Wide::Abilene, Wide::FatTree] {
        let full = wide.full();
        for load in [0.3, 0.6, 0.9, 1.1] {
            for system in ["tcp", "ecmp", "rcp:ecmp=true", "inrpp:ecmp=true"] {
                let size = part([("distribution", "web-search")]);
                let runs: Vec<_> = (1..=SEEDS)
                    .map(|seed| results(&wide.scenario(full * load, size.clone(), MEAN, seed), system))
                    .collect();
                let mean = |of: &dyn Fn(&SystemResult) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
                println!(
                    "{wide:?},{load},{},{:.3},{:.3},{:.1},{:.1},{:.1},{:.1}",
                    system.split(':').next().unwrap(),
                    mean(&|of| of.unfinished.map(|of| of.mean_s).or(of.afct_s).unwrap()),
                    mean(&|of| of.fct_p99_s.unwrap()),
                    mean(&|of| of.unfinished.map_or(0.0, |of| of.flows as f64)),
                    mean(&|of| of.total_drops() as f64),
                    mean(&|of| of.retransmits as f64),
                    mean(&|of| caches(of).map_or(0.0, |of| of.detoured as f64))
                );
            }
        }
    }
}
