//! The networks and the traffic that cases are made of.

use sidestep_scenario::builder::{Part, ScenarioBuilder, bulk, load, part};

/// Capacity of the paths together wherever they are alike.
pub(super) const ALL: &str = "60 Mbit/s";

/// A path of two links between the routers `A` and `B`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) rate: &'static str,
    /// One-way delay of each of its two links.
    pub(super) delay: &'static str,
    /// Random loss on its first link, in each direction.
    pub(super) loss: &'static str,
}

/// A path without loss whose round trip, hosts' links included, is 8 ms.
pub(super) const fn path(rate: &'static str) -> Path {
    Path { rate, delay: "1 ms", loss: "0 %" }
}

/// A run of 20 s that is measured from 2 s on.
fn run() -> ScenarioBuilder {
    // The load of paths is compared between samples, so these are of a second.
    ScenarioBuilder::new("20 s").set("warmup", "2 s").set("sample", "1 s")
}

/// `clients` clients, four servers, and `paths` paths of one rate; routing takes `path-1` for all.
pub(super) fn alike(paths: u32, rate: &str, clients: u32) -> ScenarioBuilder {
    let network = run().parallel_paths(paths).network("rate", rate).network("delay", "1 ms");
    let network = network.network("ecn", "40 packets").network("access_rate", "200 Mbit/s");
    network.network("clients", clients).network("servers", 4)
}

/// Four clients, four servers, and three paths of 20 Mbit/s.
pub(super) fn equal() -> ScenarioBuilder {
    alike(3, "20 Mbit/s", 4)
}

/// Four clients, four servers, and these paths; routing takes the first for all.
pub(super) fn differ(paths: &[Path]) -> ScenarioBuilder {
    differ_for(4, paths)
}

/// `clients` clients, four servers, and these paths; routing takes the first for all.
pub(super) fn differ_for(clients: u32, paths: &[Path]) -> ScenarioBuilder {
    between(
        clients,
        paths.iter().map(|path| {
            let link = part([("rate", path.rate), ("delay", path.delay), ("ecn", "40 packets")]);
            [link.clone().with("loss", path.loss), link]
        }),
    )
}

/// `clients` clients, four servers, and paths of these two links each; routing takes the first for all.
pub(super) fn between(clients: u32, paths: impl ExactSizeIterator<Item = [Part; 2]>) -> ScenarioBuilder {
    let count = paths.len();
    let mut network = run();
    for router in ["A", "B"] {
        network = network.router(router);
    }
    for host in 1..=clients.max(4) {
        let (client, server) = (format!("c{host}"), format!("s{host}"));
        if host <= clients {
            network = network.host(&client).link_with(&client, "A", access());
        }
        if host <= 4 {
            network = network.host(&server).link_with(&server, "B", access());
        }
    }
    for (number, links) in (1..).zip(paths) {
        let inside = format!("m{number}");
        let [first, second] = links.map(|link| link.with("mtu", 1700).with("weight", 9 + number));
        network = network.router(&inside).link_with("A", &inside, first).link_with(&inside, "B", second);
    }
    (1..=count).fold(network, |network, number| {
        let links = [format!("A-m{number}"), format!("m{number}-B")];
        network.path(&format!("path-{number}"), links.iter().map(String::as_str))
    })
}

/// A link of a host that nothing has to wait for.
pub(super) fn access() -> Part {
    part([("rate", "200 Mbit/s"), ("delay", "1 ms"), ("queue", "1000 packets")])
}

/// Short transfers of 30 kB in the mean that load a rate with a share.
pub(super) fn short(share: &str, of: &str) -> Part {
    sized(load("c*", "s*", share, of), "30 kB")
}

/// A flow whose sizes are spread as those of web pages are.
pub(super) fn sized(flow: Part, mean: &str) -> Part {
    flow.with_table("size", part([("distribution", "lognormal"), ("mean", mean)]).with("sigma", 1.2))
}

/// Flows of DCTCP's web-search workload, of which a few carry most bytes.
pub(super) fn web_search(share: &str, of: &str) -> Part {
    load("c*", "s*", share, of).with_table("size", part([("distribution", "web-search")]))
}

/// Twelve connections that send all the time.
pub(super) fn long() -> Part {
    bulk("c*", "s*").with("connections", 3)
}
