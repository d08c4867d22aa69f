//! Load or capacity that shifts from path to path each ten seconds: what was learnt goes out of date.

use sidestep_scenario::builder::{Part, ScenarioBuilder, bulk, cbr, closed_loop, load, part};

use super::{
    CLOSED, Case,
    Class::Shift,
    LONG, MIX, SHORT,
    network::{ALL, Path, access, differ, long, path, short, sized},
};

pub(super) const CASES: &[Case] = &[
    Case::tuning(
        "shift-load-short",
        Shift,
        SHORT,
        "Cross-traffic takes 80 % of one path, of another each 10 s; short transfers.",
        || shifting_load().flow(short("40 %", ALL)),
    ),
    Case::tuning(
        "shift-load-long",
        Shift,
        LONG,
        "Cross-traffic takes 80 % of one path, of another each 10 s; twelve connections send all the time.",
        || shifting_load().flow(long()),
    ),
    Case::tuning(
        "shift-rate-short",
        Shift,
        SHORT,
        "One path has a fifth of its rate, another each 10 s; short transfers.",
        || shifting_rate().flow(short("40 %", ALL)),
    ),
    Case::tuning(
        "shift-rate-long",
        Shift,
        LONG,
        "One path has a fifth of its rate, another each 10 s; twelve connections send all the time.",
        || shifting_rate().flow(long()),
    ),
    Case::tuning(
        "shift-minute-short",
        Shift,
        SHORT,
        "One path has a tenth of its rate for a minute; plain TCP is on another that would do.",
        || {
            let network = differ(&[path("20 Mbit/s"); 3]).set("duration", "92 s");
            let slow = network.event(rate("12 s", "path-2", "2 Mbit/s")).event(rate("72 s", "path-2", "20 Mbit/s"));
            slow.flow(short("25 %", ALL))
        },
    ),
    Case::tuning(
        "provider-day",
        Shift,
        MIX,
        "A content provider with four transits: pages and long downloads; the first transit loses most of its rate.",
        || provider("20 %", "40 %", 2),
    ),
    Case::tuning(
        "provider-evening",
        Shift,
        MIX,
        "The same provider in the evening: more pages, fewer downloads.",
        || provider("50 %", "90 %", 1),
    ),
    Case::tuning(
        "shift-burst-users",
        Shift,
        CLOSED,
        "On two unequal paths cross-traffic takes nine tenths of the faster one for seven seconds; users fetch and think.",
        || {
            let network = differ(&[path("40 Mbit/s"), Path { delay: "3 ms", ..path("16 Mbit/s") }]);
            let network = network.set("duration", "24 s").host("x").link_with("x", "m1", access());
            let network = network.host("y").link_with("y", "B", access());
            let burst = cbr("x", "y", "36 Mbit/s").with("start", "8 s").with("stop", "15 s");
            network.flow(burst).flow(sized(closed_loop("c*", "s*", 6, "300 ms", "0"), "40 kB"))
        },
    ),
    Case::tuning(
        "shift-fade-short",
        Shift,
        SHORT,
        "A mobile path beside a fixed one has a fifth of its rate for four of each eight seconds; short transfers.",
        || {
            let fixed = path("20 Mbit/s");
            let network = differ(&[fixed, Path { delay: "6 ms", ..path("20 Mbit/s") }]).set("duration", "28 s");
            let network = (0..3).fold(network, |network, time| {
                let [from, to] = [8 * time + 4, 8 * time + 8].map(|second| format!("{second} s"));
                network.event(rate(&from, "path-2", "4 Mbit/s")).event(rate(&to, "path-2", "20 Mbit/s"))
            });
            network.flow(short("40 %", "40 Mbit/s"))
        },
    ),
    Case::tuning(
        "shift-swap-users",
        Shift,
        CLOSED,
        "Two paths of 30 Mbit/s take turns of six seconds in which they have a fifth of it; users fetch 45 kB and think.",
        || {
            let network =
                differ(&[path("30 Mbit/s"), Path { delay: "2 ms", ..path("30 Mbit/s") }]).set("duration", "26 s");
            let network = (0..4).fold(network, |network, turn| {
                let [slow, fast] = if turn % 2 == 0 { ["path-1", "path-2"] } else { ["path-2", "path-1"] };
                let at = format!("{} s", 6 * turn + 2);
                network.event(rate(&at, slow, "6 Mbit/s")).event(rate(&at, fast, "30 Mbit/s"))
            });
            network.flow(sized(closed_loop("c*", "s*", 6, "300 ms", "0"), "45 kB"))
        },
    ),
    Case::judging(
        "shift-third-users",
        Shift,
        CLOSED,
        "One of three paths of 20 Mbit/s has a third of that, another each 10 s; users fetch 35 kB and think.",
        || {
            let network = (1..=3).zip(THREE).fold(three_times_ten(), |network, (number, path)| {
                let [from, to] = turn(number);
                network.event(rate(&from, path, "7 Mbit/s")).event(rate(&to, path, "20 Mbit/s"))
            });
            network.flow(sized(closed_loop("c*", "s*", 7, "300 ms", "0"), "35 kB"))
        },
    ),
    Case::judging(
        "provider-morning",
        Shift,
        MIX,
        "The same provider in the morning: fewer pages, more downloads.",
        || provider("15 %", "30 %", 3),
    ),
];

const THREE: [&str; 3] = ["path-1", "path-2", "path-3"];

/// Three paths of 20 Mbit/s for three times ten seconds.
fn three_times_ten() -> ScenarioBuilder {
    differ(&[path("20 Mbit/s"); 3]).set("duration", "32 s")
}

/// Hosts inside the paths, which reach a host behind all of them over one path only, send in turn.
fn shifting_load() -> ScenarioBuilder {
    let network = three_times_ten().host("y").link_with("y", "B", access());
    (1..=3).fold(network, |network, number| {
        let (host, inside) = (format!("x{number}"), format!("m{number}"));
        let [from, to] = turn(number);
        let stream = cbr(&host, "y", "16 Mbit/s").with("start", from).with("stop", to);
        network.host(&host).link_with(&host, &inside, access()).flow(stream)
    })
}

fn shifting_rate() -> ScenarioBuilder {
    (1..=3).zip(THREE).fold(three_times_ten(), |network, (number, path)| {
        let [from, to] = turn(number);
        network.event(rate(&from, path, "4 Mbit/s")).event(rate(&to, path, "20 Mbit/s"))
    })
}

/// When a path's turn begins and ends; the last ends just before the run does.
fn turn(number: u32) -> [String; 2] {
    [10 * number - 8, (10 * number + 2).min(31)].map(|second| format!("{second} s"))
}

/// A path has this rate from then on.
pub(super) fn rate(at: &str, path: &str, rate: &str) -> Part {
    part([("at", at), ("action", "rate"), ("rate", rate)]).path(path)
}

/// Servers behind `P` send over four transits of different rates and delays to users whom each transit reaches.
///
/// Pages load the first transit with a share, with another one from 10 to 20 s. From 15 to 25 s it has a sixth of its rate.
fn provider(quiet: &str, busy: &str, downloads: u32) -> ScenarioBuilder {
    const TRANSITS: [(&str, &str, &str); 4] = [
        ("30 Mbit/s", "4 ms", "6 ms"),
        ("20 Mbit/s", "5 ms", "7 ms"),
        ("20 Mbit/s", "8 ms", "10 ms"),
        ("10 Mbit/s", "15 ms", "17 ms"),
    ];
    let mut network = ScenarioBuilder::new("30 s").set("warmup", "2 s").set("sample", "1 s").router("P");
    for host in 1..=4 {
        let (server, user) = (format!("s{host}"), format!("u{host}"));
        network = network.host(&server).host(&user).link_with(&server, "P", access());
    }
    for (number, (rate, delay, behind)) in (1..).zip(TRANSITS) {
        let (router, weight) = (format!("T{number}"), 9 + number);
        let transit = part([("rate", rate), ("delay", delay), ("ecn", "40 packets")]);
        let transit = transit.with("mtu", 1700).with("weight", weight);
        network = network.router(&router).link_with("P", &router, transit);
        for user in 1..=4 {
            let link = access().with("delay", behind).with("weight", weight);
            network = network.link_with(&format!("u{user}"), &router, link);
        }
        network = network.path(&format!("transit-{number}"), [format!("P-T{number}").as_str()]);
    }
    let pages = |share: &str| sized(load("s*", "u*", share, "30 Mbit/s").with("pairing", "all"), "40 kB");
    let network = network.event(rate("15 s", "transit-1", "5 Mbit/s")).event(rate("25 s", "transit-1", "30 Mbit/s"));
    let network = network.flow(bulk("s*", "u*").with("connections", downloads));
    let network = network.flow(pages(quiet).with("stop", "10 s")).flow(pages(quiet).with("start", "20 s"));
    network.flow(pages(busy).with("start", "10 s").with("stop", "20 s"))
}
