//! Paths that are alike: dice are as good as anything here, and nothing may be worse than dice.

use sidestep_scenario::builder::{ScenarioBuilder, bulk, closed_loop, load};

use super::{
    BURST, CLOSED, Case,
    Class::Alike,
    LONG, MIX, SHORT,
    network::{ALL, alike, equal, long, short, sized, web_search},
};

pub(super) const CASES: &[Case] = &[
    Case::tuning(
        "equal-30-short",
        Alike,
        SHORT,
        "Short transfers at 30 % load: plain TCP’s path is nearly full, the others are free.",
        || equal().flow(short("30 %", ALL)),
    ),
    Case::tuning(
        "equal-10-short",
        Alike,
        SHORT,
        "Short transfers at 10 % load: plain TCP’s path has room for all, and spreading gains little.",
        || equal().flow(short("10 %", ALL)),
    ),
    Case::tuning("equal-60-short", Alike, SHORT, "Short transfers at 60 % load, which one path cannot carry.", || {
        equal().flow(short("60 %", ALL))
    }),
    Case::tuning(
        "equal-90-short",
        Alike,
        SHORT,
        "Short transfers at 90 % load: each path that is chosen too often overflows.",
        || equal().flow(short("90 %", ALL)),
    ),
    Case::tuning(
        "equal-110-short",
        Alike,
        SHORT,
        "Short transfers at 110 % load: no choice is good, some are worse.",
        || equal().flow(short("100 %", "66 Mbit/s")),
    ),
    Case::tuning(
        "equal-60-web",
        Alike,
        SHORT,
        "The web-search workload at 60 % load: few long flows among many short ones.",
        || equal().set("duration", "180 s").flow(web_search("60 %", ALL)),
    ),
    Case::tuning("equal-90-web", Alike, SHORT, "The web-search workload at 90 % load.", || {
        equal().set("duration", "180 s").flow(web_search("90 %", ALL))
    }),
    Case::tuning("equal-long", Alike, LONG, "Twelve connections that send all the time.", || equal().flow(long())),
    Case::tuning(
        "equal-mix",
        Alike,
        MIX,
        "Short transfers at 20 % load beside eight connections that send all the time.",
        || equal().flow(short("20 %", ALL)).flow(bulk("c*", "s*").with("connections", 2)),
    ),
    Case::tuning(
        "equal-closed",
        Alike,
        CLOSED,
        "Forty users who fetch 20 kB again and again over new connections, as `ab -c 40` does.",
        || equal().flow(closed_loop("c*", "s*", 10, "1 ms", "20 kB")),
    ),
    Case::tuning(
        "equal-both-ways",
        Alike,
        MIX,
        "Uploads and downloads at once: each end chooses for what it sends.",
        || {
            let both = |from: &str, to: &str| sized(load(from, to, "30 %", ALL), "30 kB");
            let bulk = |from: &str, to: &str| bulk(from, to).with("connections", 1);
            let short = equal().flow(both("c*", "s*")).flow(both("s*", "c*"));
            short.flow(bulk("c*", "s*")).flow(bulk("s*", "c*"))
        },
    ),
    Case::tuning("paths-2-short", Alike, SHORT, "Two paths of 30 Mbit/s and short transfers at 60 % load.", || {
        alike(2, "30 Mbit/s", 4).flow(short("60 %", ALL))
    }),
    Case::tuning(
        "paths-6-long",
        Alike,
        LONG,
        "Six paths of 10 Mbit/s and twelve connections that send all the time.",
        || alike(6, "10 Mbit/s", 4).flow(long()),
    ),
    Case::tuning("paths-16-short", Alike, SHORT, "Sixteen paths of 4 Mbit/s and short transfers at 60 % load.", || {
        sixteen().flow(short("60 %", "64 Mbit/s"))
    }),
    Case::tuning(
        "paths-16-long",
        Alike,
        LONG,
        "Sixteen paths of 4 Mbit/s and 32 connections that send all the time.",
        || sixteen().flow(bulk("c*", "s*").with("connections", 8)),
    ),
    Case::tuning(
        "hosts-2-long",
        Alike,
        LONG,
        "Two hosts decide apart, each for six connections that send all the time.",
        || alike(3, "20 Mbit/s", 2).flow(bulk("c*", "s*").with("connections", 6)),
    ),
    Case::tuning(
        "hosts-50-users",
        Alike,
        CLOSED,
        "Fifty hosts decide apart, each for two users who fetch pages and think.",
        || alike(3, "20 Mbit/s", 50).flow(sized(closed_loop("c*", "s*", 2, "300 ms", "0"), "30 kB")),
    ),
    Case::tuning(
        "hosts-200-short",
        Alike,
        SHORT,
        "Two hundred hosts decide apart, on six paths, for short transfers at 75 % load.",
        || alike(6, "10 Mbit/s", 200).flow(short("75 %", ALL)),
    ),
    Case::tuning(
        "hosts-200-long",
        Alike,
        LONG,
        "Two hundred hosts decide apart, on six paths, each for a connection that sends all the time.",
        // With a round trip of 40 ms each has a window of a few segments.
        || alike(6, "10 Mbit/s", 200).network("delay", "5 ms").flow(bulk("c*", "s*")),
    ),
    Case::tuning("incast-32", Alike, BURST, "Each second 32 hosts send 32 kB to one host at the same instant.", || {
        bursts(32, "32 kB")
    }),
    Case::tuning(
        "incast-100",
        Alike,
        BURST,
        "Each second 100 hosts send 20 kB to one host at the same instant.",
        || bursts(100, "20 kB"),
    ),
    Case::tuning(
        "cubic-noecn-short",
        Alike,
        SHORT,
        "CUBIC without ECN, short transfers at 75 % load: congestion shows only as loss.",
        || without_ecn("cubic").flow(short("75 %", ALL)),
    ),
    Case::tuning(
        "cubic-noecn-long",
        Alike,
        LONG,
        "CUBIC without ECN, twelve connections that send all the time.",
        || without_ecn("cubic").flow(long()),
    ),
    Case::tuning("reno-ecn-long", Alike, LONG, "Reno with ECN, twelve connections that send all the time.", || {
        equal().set("tcp.congestion_control", "reno").flow(long())
    }),
    Case::tuning("reno-noecn-short", Alike, SHORT, "Reno without ECN, short transfers at 75 % load.", || {
        without_ecn("reno").flow(short("75 %", ALL))
    }),
    Case::tuning(
        "paths-4-mix",
        Alike,
        MIX,
        "Four paths of 15 Mbit/s, short transfers at 45 % load beside four connections that send all the time.",
        || alike(4, "15 Mbit/s", 4).flow(short("45 %", ALL)).flow(bulk("c*", "s*")),
    ),
    Case::tuning(
        "hosts-100-users",
        Alike,
        CLOSED,
        "A hundred hosts decide apart on eight paths of 8 Mbit/s, each for a user who fetches 40 kB and thinks.",
        || {
            let network = alike(8, "8 Mbit/s", 100).set("paths.max_paths", 8);
            network.flow(sized(closed_loop("c*", "s*", 1, "400 ms", "0"), "40 kB"))
        },
    ),
    Case::tuning(
        "cubic-noecn-far",
        Alike,
        SHORT,
        "CUBIC without ECN on five paths with a round trip of 50 ms, short transfers at 65 % load.",
        || {
            let network = alike(5, "12 Mbit/s", 4).network("delay", "6 ms").network("ecn", "never");
            let network = network.set("tcp.ecn", false).set("tcp.congestion_control", "cubic");
            network.set("paths.max_paths", 5).flow(short("65 %", ALL))
        },
    ),
    Case::tuning(
        "paths-5-web",
        Alike,
        SHORT,
        "Five paths of 12 Mbit/s with a round trip of 24 ms, the web-search workload at 50 % load.",
        || {
            let network = alike(5, "12 Mbit/s", 4).network("delay", "3 ms").set("paths.max_paths", 5);
            network.set("duration", "120 s").flow(web_search("50 %", ALL))
        },
    ),
    Case::tuning(
        "reno-mix",
        Alike,
        MIX,
        "Reno with ECN, short transfers at 35 % load beside six connections that send all the time.",
        || {
            let network = alike(3, "25 Mbit/s", 6).set("tcp.congestion_control", "reno");
            network.flow(short("35 %", "75 Mbit/s")).flow(bulk("c*", "s*"))
        },
    ),
    Case::tuning(
        "hosts-30-users",
        Alike,
        CLOSED,
        "Thirty hosts decide apart on two paths of 30 Mbit/s, each for two users who fetch 80 kB and think for long.",
        || alike(2, "30 Mbit/s", 30).flow(sized(closed_loop("c*", "s*", 2, "1 s", "0"), "80 kB")),
    ),
    Case::tuning(
        "paths-7-users",
        Alike,
        CLOSED,
        "Seven paths of 9 Mbit/s with a round trip of 16 ms; twenty hosts decide apart, each for two users who fetch 35 kB and think.",
        || {
            let network = alike(7, "9 Mbit/s", 20).network("delay", "2 ms").set("paths.max_paths", 7);
            network.flow(sized(closed_loop("c*", "s*", 2, "150 ms", "0"), "35 kB"))
        },
    ),
    Case::tuning(
        "cubic-noecn-mix",
        Alike,
        MIX,
        "CUBIC without ECN on four paths, short transfers at 40 % load beside four connections that send all the time.",
        || {
            let network = alike(4, "18 Mbit/s", 4).network("ecn", "never");
            let network = network.set("tcp.ecn", false).set("tcp.congestion_control", "cubic");
            network.flow(short("40 %", "72 Mbit/s")).flow(bulk("c*", "s*"))
        },
    ),
    Case::judging("equal-30-web", Alike, SHORT, "The web-search workload at 30 % load.", || {
        equal().set("duration", "180 s").flow(web_search("30 %", ALL))
    }),
    Case::judging("equal-110-web", Alike, SHORT, "The web-search workload at 110 % load.", || {
        equal().set("duration", "180 s").flow(web_search("100 %", "66 Mbit/s"))
    }),
    Case::judging(
        "equal-60-mix",
        Alike,
        MIX,
        "Short transfers at 60 % load beside eight connections that send all the time.",
        || equal().flow(short("60 %", ALL)).flow(bulk("c*", "s*").with("connections", 2)),
    ),
    Case::judging(
        "equal-110-mix",
        Alike,
        MIX,
        "Short transfers at 110 % load beside eight connections that send all the time.",
        || equal().flow(short("100 %", "66 Mbit/s")).flow(bulk("c*", "s*").with("connections", 2)),
    ),
];

/// Sixteen paths, whose short queues hold as long as those of faster paths.
fn sixteen() -> ScenarioBuilder {
    let network = alike(16, "4 Mbit/s", 4).set("paths.max_paths", 16);
    network.network("queue", "50 packets").network("ecn", "20 packets")
}

fn without_ecn(congestion_control: &str) -> ScenarioBuilder {
    equal().network("ecn", "never").set("tcp.ecn", false).set("tcp.congestion_control", congestion_control)
}

/// `hosts` hosts send at each full second from 2 s on, all to one host.
fn bursts(hosts: u32, size: &str) -> ScenarioBuilder {
    (2..20).fold(alike(3, "20 Mbit/s", hosts), |network, second| {
        let burst = bulk("c*", "s1").with("size", size).with("start", format!("{second} s"));
        network.flow(burst.with("name", format!("burst-{second}")))
    })
}
