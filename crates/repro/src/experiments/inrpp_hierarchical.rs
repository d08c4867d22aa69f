//! INRPP, Figure 16: flows over a hierarchy of edges and a transit core.

use sidestep_scenario::Scenario;

use super::{
    build,
    inrpp::{PAPER, Size, arrivals, base, by_size, flows, link, measure, rows},
};
use crate::{Context, Experiment, Findings, Panel, Paper, ReproError, Rule, lines};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-hierarchical",
    paper: PAPER,
    figure: "Figure 16",
    title: "Flows of two sender groups to six receiver groups over a transit core: completion times.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

const LOAD: f64 = 0.8;
const FLOWS: f64 = 6_000.0;
const PACKETS: f64 = 125.0;
/// Hosts of a sender group, and of a receiver group.
const SENDERS: u32 = 3_000;
const RECEIVERS: u32 = 1_000;
/// The core routers of each receiver group. The paper's graph is only in its picture; this one is ours: each group has a
/// shortest path from either sender group, over another link, and the core is a full mesh.
const GROUPS: [[&str; 2]; 6] = [["t1", "t3"], ["t2", "t4"], ["t1", "t4"], ["t2", "t3"], ["t1", "t3"], ["t2", "t4"]];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let size = Size::of(context.mode);
    let scenario = network(size.flows)?;
    let measured = measure(context, "hierarchy", &scenario, size.seeds, false)?;
    let mut findings = Findings::default();
    let text = |text: &str| Paper::Text(text.into());
    let faster = [
        (text("about 2: 100 % faster"), Rule::Between(1.5, 2.5)),
        (text("about 2: 100 % faster"), Rule::Between(1.5, 2.5)),
        (text("up to 1.5: 50 % faster"), Rule::Between(1.0, 1.5)),
    ];
    rows("hierarchy", &measured, faster, &mut findings.rows);
    let (shown, table) = by_size(&measured);
    findings.tables.push(("sizes.csv".into(), table));
    let panel = Panel { y: "log₁₀ of AFCT, s".into(), range: [-2.0, 3.0], lines: shown, mark: None };
    let title = "Mean completion time by size, hierarchy";
    findings.pictures.push(("sizes.svg".into(), lines(title, "log₁₀ of the size in packets", &[panel], true)?));
    Ok(findings)
}

/// The paper gives no size. While flows go on to arrive, each of their packets comes unasked, and its ACK releases one that was
/// stored before: with S_high of 6.25 MB a cache must hold up to 76 MB.
const CACHE: &str = "100 MB";

/// With this share of the paper's hosts and flows; the load stays.
fn network(share: f64) -> Result<Scenario, ReproError> {
    // Each pair of a sender and a receiver group loads a link of 10 Mbit/s.
    let rate = arrivals(LOAD, 10.0, PACKETS);
    let count = FLOWS * share / 12.0;
    let mut network = base("inrpp-hierarchical", count / rate * 3.0 + 60.0).set("sample", "10 s");
    network = network.set("inrpp.cache", CACHE);
    for router in ["t1", "t2", "t3", "t4", "S1", "S2"] {
        network = network.router(router);
    }
    for (at, a) in ["t1", "t2", "t3", "t4"].into_iter().enumerate() {
        for b in ["t1", "t2", "t3", "t4"].into_iter().skip(at + 1) {
            network = network.link_with(a, b, link(10, 5));
        }
    }
    for (sender, core) in [("S1", ["t1", "t2"]), ("S2", ["t3", "t4"])] {
        for of in core {
            network = network.link_with(sender, of, link(100, 5));
        }
    }
    let (senders, receivers) = ((f64::from(SENDERS) * share) as u32, (f64::from(RECEIVERS) * share) as u32);
    for (at, [own, other]) in [["S1", "S2"], ["S2", "S1"]].iter().enumerate() {
        for number in 0..senders {
            let host = format!("s{at}-{number}");
            network = network.host(&host).link_with(&host, own, link(100, 5));
            network = network.link_with(&host, other, link(100, 5).with("weight", 1_000));
        }
    }
    for (group, core) in GROUPS.iter().enumerate() {
        let edge = format!("R{group}");
        network = network.router(&edge);
        for of in core {
            network = network.link_with(of, &edge, link(10, 5));
        }
        for number in 0..receivers {
            let host = format!("r{group}-{number}");
            network = network.host(&host).link_with(&edge, &host, link(100, 5));
        }
    }
    // Each sender and each receiver has a partner: a sixth of a sender group, half a receiver group.
    let half = senders / 6;
    for from in 0..2 {
        for to in 0..6 {
            let pair = |number: u32| {
                vec![format!("s{from}-{}", to * half + number), format!("r{to}-{}", from * half + number)]
            };
            let pairs = (0..half).map(pair).collect();
            network = network.flow(flows(&format!("from-{from}-to-{to}"), pairs, rate, count, PACKETS));
        }
    }
    build(&network)
}
