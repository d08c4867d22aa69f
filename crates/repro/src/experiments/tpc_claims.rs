//! TCPPathChanger: what the paper argues and has no figure for.

use std::collections::BTreeSet;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_maxflow::{FlowModel, FlowNetwork, FlowProgram};
use sidestep_net::Graph;
use sidestep_results::{PathResult, RunResult, SystemResult, World, measures};
use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, part},
    overrides,
};

use super::{build, result_of};
use crate::{Bar, Context, Experiment, Findings, Mode, Paper, ReproError, Row, Rule, Seeds, bars, topology};

const PAPER: &str = "TCPPathChanger";
/// The paper's policy, and the default.
const BANDIT: &str = "pathchanger:policy=paper";
const DEFAULT: &str = "pathchanger";

pub(crate) const STABILITY: Experiment = Experiment {
    id: "tpc-stability",
    paper: PAPER,
    figure: "no figure: back-off keeps the system stable",
    title: "Sixty-four connections over six paths, with and without a pause after each move.",
    worlds: &[World::Sim],
    run: stability,
};

pub(crate) const FULL_USE: Experiment = Experiment {
    id: "tpc-full-use",
    paper: PAPER,
    figure: "no figure: a few hosts use the network fully",
    title: "Two pairs of hosts on two networks of the Topology Zoo: goodput as a share of the most that any routing carries.",
    worlds: &[World::Sim],
    run: full_use,
};

pub(crate) const USE_CASES: Experiment = Experiment {
    id: "tpc-use-cases",
    paper: PAPER,
    figure: "no figure: enterprise and content provider",
    title: "An enterprise's WAN with a failing line, and a content provider with four transit lines.",
    worlds: &[World::Sim],
    run: use_cases,
};

/// The pauses of a round trip stand for none: a move takes effect only after one. Name, and the system.
const PAUSES: [(&str, &str); 4] = [
    ("pauses that double, with jitter", BANDIT),
    ("no jitter", "pathchanger:policy=paper,jitter=0%"),
    ("no back-off", "pathchanger:policy=paper,congestion_min=8ms,congestion_max=8ms"),
    ("neither", "pathchanger:policy=paper,jitter=0%,congestion_min=8ms,congestion_max=8ms"),
];
/// By how much the load of paths must vary more without back-off, as a share of the mean load.
const STEADIER: f64 = 0.02;

/// The networks, and how many pairs of hosts send.
const NETWORKS: [&str; 2] = ["zoo/Abilene", "zoo/Geant2012"];
const PAIRS: usize = 2;
const CONNECTIONS: u32 = 8;
/// Mbit/s of each link between routers.
const RATE: u32 = 20;
/// What of a full packet is TCP's payload.
const PAYLOAD: f64 = 1_428.0 / 1_500.0;
/// The least share of the most that counts as full use, in percent. Segment lists take up to 7.6 %.
const FULL: f64 = 85.0;
const SPREADERS: [&str; 6] = ["tcp", "ecmp", "plb", "mptcp:subflows=8", BANDIT, DEFAULT];

fn seeds(mode: Mode) -> u32 {
    if mode == Mode::Full { 20 } else { 6 }
}

fn stability(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let seeds = seeds(context.mode);
    let text = include_str!("../../../../scenarios/six-paths-100.toml");
    let changed = ["topology.ecmp=false", "topology.clients=16", "topology.servers=16", "duration=16 s"];
    let scenario = scenario(text, "stability", &changed)?;
    let systems = PAUSES.map(|(_, system)| system);
    let run = context.simulate("pauses", &scenario, &systems, seeds)?;
    let of = |measure: fn(&SystemResult) -> Option<f64>| -> Result<Vec<Seeds>, ReproError> {
        systems.iter().map(|system| Ok(Seeds::of(result_of(&run, system)?, seeds, measure))).collect()
    };
    let varies = of(|result| {
        let of_path = |path: &PathResult| path.variation;
        measures::mean(&result.paths.values().map(of_path).collect::<Option<Vec<f64>>>()?)
    })?;
    let goodput = of(|result| Some(result.goodput_mbps))?;
    let moves = of(|result| {
        let minutes = result.connections as f64 * result.duration_s / 60.0;
        (minutes > 0.0).then(|| result.total_moves() as f64 / minutes)
    })?;
    let mut rows = Vec::new();
    for (number, (name, _)) in PAUSES.iter().enumerate() {
        let row = |what: &str, unit, of: &[Seeds]| {
            Row::median(format!("{what}, {name}"), unit, Paper::None, &of[number], Rule::NoPaperValue)
        };
        rows.push(row("goodput", "Mbit/s", &goodput));
        rows.push(row("how much the load of a path varies", "of the mean", &varies));
        rows.push(row("moves of a connection", "a minute", &moves));
    }
    let paper = || Paper::Text("back-off keeps it stable".into());
    let names = PAUSES.map(|(name, _)| name);
    let steadier = [(names[0], &varies[0]), (names[2], &varies[2])];
    rows.push(Row::ordered("the load varies less with back-off", "of the mean", paper(), &steadier, STEADIER));
    let more = [(names[2], &goodput[2]), (names[0], &goodput[0])];
    rows.push(Row::ordered("goodput is greater with back-off", "Mbit/s", paper(), &more, 0.0));
    let paper = Paper::Text("jitter keeps it stable".into());
    let steadier = [(names[0], &varies[0]), (names[1], &varies[1])];
    rows.push(Row::ordered("the load varies less with jitter", "of the mean", paper, &steadier, STEADIER));
    Ok(Findings { rows, ..Findings::default() })
}

fn use_cases(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let seeds = seeds(context.mode);
    let cases = [
        ("enterprise-wan", include_str!("../../../../scenarios/enterprise-wan.toml")),
        ("content-provider", include_str!("../../../../scenarios/content-provider.toml")),
    ];
    let mut rows = Vec::new();
    for (name, text) in cases {
        let run = context.simulate(name, &scenario(text, name, &[])?, &["tcp", "random", BANDIT, DEFAULT], seeds)?;
        let of = |system: &str, measure: fn(&SystemResult) -> Option<f64>| {
            Ok::<_, ReproError>(Seeds::of(result_of(&run, system)?, seeds, measure))
        };
        let goodput = |result: &SystemResult| Some(result.goodput_mbps);
        // What has not completed counts with the time until the end of the run.
        let time = |result: &SystemResult| result.unfinished.map_or(result.afct_s, |all| Some(all.mean_s));
        for system in ["tcp", "random", BANDIT, DEFAULT] {
            let quantity = |what: &str| format!("{name}: {what}, {system}");
            let (mbps, seconds) = (of(system, goodput)?, of(system, time)?);
            rows.push(Row::median(quantity("goodput"), "Mbit/s", Paper::None, &mbps, Rule::NoPaperValue));
            rows.push(Row::median(quantity("mean completion time"), "s", Paper::None, &seconds, Rule::NoPaperValue));
        }
        for system in [BANDIT, DEFAULT] {
            let paper = || Paper::Text("better than TCP".into());
            let (tcp, own) = (of("tcp", goodput)?, of(system, goodput)?);
            let quantity = format!("{name}: goodput above TCP's, {system}");
            let row = Row::ordered(quantity, "Mbit/s", paper(), &[("tcp", &tcp), (system, &own)], 0.0);
            rows.push(claimed(system, row));
            let (tcp, own) = (of("tcp", time)?, of(system, time)?);
            let quantity = format!("{name}: completion times below TCP's, {system}");
            let row = Row::ordered(quantity, "s", paper(), &[(system, &own), ("tcp", &tcp)], 0.0);
            rows.push(claimed(system, row));
        }
    }
    Ok(Findings { rows, ..Findings::default() })
}

/// The paper's claims are of the paper's policy. That our default fulfils them is an expectation of our own.
fn claimed(system: &str, row: Row) -> Row {
    if system == DEFAULT { Row { paper: Paper::None, ..row }.of_our_own() } else { row }
}

fn full_use(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let seeds = seeds(context.mode);
    let (mut rows, mut drawn) = (Vec::new(), Vec::new());
    for (group, name) in NETWORKS.into_iter().enumerate() {
        let graph = topology(context.data.as_deref(), name)?;
        let mut shares: Vec<Vec<Option<f64>>> = vec![Vec::new(); SPREADERS.len()];
        for seed in 1..=seeds {
            let scenario = few_hosts(&graph, u64::from(seed))?;
            let most = most(&scenario)?;
            let directory = format!("{}/seed-{seed}", graph.name);
            let run = context.simulate(&directory, &scenario, &SPREADERS, 1)?;
            for (system, shares) in SPREADERS.iter().zip(&mut shares) {
                shares.push(Some(share(&run, system, most)?));
            }
        }
        let shares: Vec<Seeds> = shares.into_iter().map(Seeds::new).collect();
        for (system, share) in SPREADERS.iter().zip(&shares) {
            let of_paper = system.starts_with("pathchanger");
            let (paper, rule) = match of_paper {
                true => (Paper::Text("fully used".into()), Rule::AtLeast(FULL)),
                false => (Paper::None, Rule::NoPaperValue),
            };
            let row = Row::median(format!("{}: share of the most, {system}", graph.name), "%", paper, share, rule);
            let row = claimed(system, row);
            let ci95 = row.ci95.unwrap_or([row.ours; 2]);
            let estimate = sidestep_results::Estimate { mean: row.ours, ci95 };
            drawn.push(Bar { label: format!("{system}, {}", graph.name), estimate, group });
            rows.push(row);
        }
        for (at, other) in SPREADERS.iter().enumerate().take(4) {
            let quantity = format!("{}: {BANDIT} above {other}", graph.name);
            let paper = Paper::Text("more than others".into());
            rows.push(Row::ordered(quantity, "%", paper, &[(*other, &shares[at]), (BANDIT, &shares[4])], 0.0));
        }
    }
    let marks = [(100.0, "any routing")];
    let title = "Two pairs of hosts: goodput over the most that any routing carries";
    let picture = bars(title, "%, medians with 95 % confidence intervals", &drawn, &marks)?;
    Ok(Findings { rows, pictures: vec![("share.svg".into(), picture)], ..Findings::default() })
}

/// The goodput as a percentage of the payload of what is at most possible.
fn share(run: &RunResult, system: &str, most_mbps: f64) -> Result<f64, ReproError> {
    Ok(100.0 * result_of(run, system)?.goodput_mbps / (most_mbps * PAYLOAD))
}

/// The maximum multi-commodity flow between the pairs of a scenario, in Mbit/s.
fn most(scenario: &Scenario) -> Result<f64, ReproError> {
    let failed = |error: &dyn std::fmt::Display| ReproError::Run(error.to_string());
    let network = FlowNetwork::of(&scenario.topology).map_err(|error| failed(&error))?;
    let node = |name: String| scenario.topology.find(&name).map_err(|error| failed(&error));
    let pairs = (0..PAIRS).map(|pair| Ok((node(format!("a{pair}"))?, node(format!("b{pair}"))?)));
    let pairs: Vec<_> = pairs.collect::<Result<_, ReproError>>()?;
    let flow = FlowProgram::new(&network, FlowModel::AnyPath).solve(&pairs).map_err(|error| failed(&error))?;
    Ok(flow.flow / 1e6)
}

/// A network whose links all have one rate, with pairs of hosts at routers drawn by the seed.
fn few_hosts(graph: &Graph, seed: u64) -> Result<Scenario, ReproError> {
    let mut links = BTreeSet::new();
    for edge in graph.edges.iter().filter(|edge| edge.from != edge.to) {
        links.insert((edge.from.min(edge.to), edge.from.max(edge.to)));
    }
    let mut degrees = vec![0; graph.nodes.len()];
    for (a, b) in &links {
        degrees[*a] += 1;
        degrees[*b] += 1;
    }
    let mut network = ScenarioBuilder::new("16 s").set("name", "full-use").set("warmup", "4 s");
    network = network.set("seed", seed as i64).set("mptcp.receive_buffer", "16 MB");
    for node in (0..graph.nodes.len()).filter(|node| degrees[*node] > 0) {
        network = network.router(&format!("n{node}"));
    }
    let link = |rate: u32, queue: &str, mtu: i64| {
        part([("delay", "2 ms"), ("queue", queue)]).with("rate", format!("{rate} Mbit/s")).with("mtu", mtu)
    };
    for (a, b) in &links {
        let marked = link(RATE, "100 packets", 1_700).with("ecn", "40 packets");
        network = network.link_with(&format!("n{a}"), &format!("n{b}"), marked);
    }
    // Stubs have one path only.
    let mut places: Vec<usize> = (0..graph.nodes.len()).filter(|node| degrees[*node] >= 2).collect();
    if places.len() < 2 * PAIRS {
        return Err(ReproError::Missing(format!("{} routers with two links", 2 * PAIRS)));
    }
    let mut random = Pcg32::seed_from_u64(seed);
    for pair in 0..PAIRS {
        for side in ["a", "b"] {
            let place = places.swap_remove((random.next_u64() % places.len() as u64) as usize);
            let host = format!("{side}{pair}");
            network = network.host(&host).link_with(&host, &format!("n{place}"), link(1_000, "1000 packets", 1_500));
        }
        let flow = part([("kind", "bulk")]).with("from", format!("a{pair}")).with("to", format!("b{pair}"));
        network = network.flow(flow.with("connections", i64::from(CONNECTIONS)));
    }
    build(&network)
}

fn scenario(text: &str, name: &str, set: &[&str]) -> Result<Scenario, ReproError> {
    let failed = |error: &dyn std::fmt::Display| ReproError::Scenario(error.to_string());
    let set: Result<Vec<_>, _> = set.iter().map(|one| one.parse()).collect();
    let set = set.map_err(|error: overrides::OverrideError| failed(&error))?;
    let text = overrides::apply(text, &set).map_err(|error| failed(&error))?;
    Scenario::parse(&text, name).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_hosts_are_at_routers_with_two_ways_and_the_most_is_that_of_a_ring() {
        let graph = topology(None, NETWORKS[0]).unwrap();
        for seed in 1..=20 {
            let scenario = few_hosts(&graph, seed).unwrap();
            let most = most(&scenario).unwrap();
            // Each pair has at least one link to itself in the best case, and at most three.
            assert!((f64::from(RATE)..=f64::from(6 * RATE)).contains(&most), "{seed}: {most}");
        }
        assert_ne!(few_hosts(&graph, 1).unwrap(), few_hosts(&graph, 2).unwrap());
    }

    #[test]
    fn what_is_changed_in_a_scenario_is_changed() {
        let text = include_str!("../../../../scenarios/six-paths-100.toml");
        let changed = scenario(text, "x", &["topology.clients=16", "duration=16 s"]).unwrap();
        assert_eq!(changed.duration, sidestep_net::Span::from_secs(16));
        assert!(scenario(text, "x", &["nothing"]).is_err());
    }
}
