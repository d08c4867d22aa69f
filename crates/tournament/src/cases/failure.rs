//! A path that fails for six of twenty seconds, with routing's knowledge or without.

use sidestep_scenario::builder::{Part, ScenarioBuilder, blackhole, closed_loop, down, up};

use super::{
    CLOSED, Case,
    Class::Failure,
    LONG, SHORT,
    network::{ALL, alike, equal, long, short, sized},
};

pub(super) const CASES: &[Case] = &[
    Case::tuning(
        "down-short",
        Failure,
        SHORT,
        "A path goes down and comes up again, which routing notices; plain TCP is on another that would do.",
        || fails(down, "path-2").flow(short("25 %", ALL)),
    ),
    Case::tuning(
        "down-long",
        Failure,
        LONG,
        "A path goes down and comes up again, which routing notices; twelve connections send all the time.",
        || fails(down, "path-2").flow(long()),
    ),
    Case::tuning(
        "down-default-short",
        Failure,
        SHORT,
        "The path that routing prefers goes down and comes up again; short transfers.",
        || fails(down, "path-1").flow(short("25 %", ALL)),
    ),
    Case::tuning(
        "down-default-long",
        Failure,
        LONG,
        "The path that routing prefers goes down and comes up again; twelve connections send all the time.",
        || fails(down, "path-1").flow(long()),
    ),
    Case::tuning(
        "silent-one-way-short",
        Failure,
        SHORT,
        "A path silently loses all that clients send; plain TCP is on another that would do.",
        || fails(one_way, "path-2").flow(short("25 %", ALL)),
    ),
    Case::tuning(
        "silent-one-way-long",
        Failure,
        LONG,
        "A path silently loses all that clients send; twelve connections send all the time.",
        || fails(one_way, "path-2").flow(long()),
    ),
    Case::tuning(
        "silent-both-short",
        Failure,
        SHORT,
        "A path silently loses everything; plain TCP is on another that would do.",
        || fails(blackhole, "path-2").flow(short("25 %", ALL)),
    ),
    Case::tuning(
        "silent-both-long",
        Failure,
        LONG,
        "A path silently loses everything; twelve connections send all the time.",
        || fails(blackhole, "path-2").flow(long()),
    ),
    Case::tuning(
        "silent-default-short",
        Failure,
        SHORT,
        "The path that routing prefers silently loses everything; short transfers.",
        || fails(blackhole, "path-1").flow(short("25 %", ALL)),
    ),
    Case::tuning(
        "silent-default-long",
        Failure,
        LONG,
        "The path that routing prefers silently loses everything; twelve connections send all the time.",
        || fails(blackhole, "path-1").flow(long()),
    ),
    Case::tuning(
        "silent-two-users",
        Failure,
        CLOSED,
        "Of two paths of 30 Mbit/s one silently loses everything for eight seconds; plain TCP is on the other.",
        || {
            let network = alike(2, "30 Mbit/s", 6).event(blackhole("5 s").path("path-2"));
            let users = closed_loop("c*", "s*", 3, "400 ms", "0");
            network.event(up("13 s").path("path-2")).flow(sized(users, "60 kB"))
        },
    ),
    Case::tuning(
        "silent-back-short",
        Failure,
        SHORT,
        "One of four paths silently loses all that servers answer; plain TCP is on another that would do.",
        || {
            let network = alike(4, "20 Mbit/s", 4).event(back("7 s").path("path-3"));
            network.event(up("14 s").path("path-3")).flow(short("15 %", "80 Mbit/s"))
        },
    ),
    Case::tuning(
        "silent-three-users",
        Failure,
        CLOSED,
        "Of three paths of 20 Mbit/s one silently loses everything for six seconds; five hosts decide apart, each for three users.",
        || {
            let network = alike(3, "20 Mbit/s", 5).event(blackhole("8 s").path("path-3"));
            let users = closed_loop("c*", "s*", 3, "500 ms", "0");
            network.event(up("14 s").path("path-3")).flow(sized(users, "50 kB"))
        },
    ),
    Case::tuning(
        "silent-twice-short",
        Failure,
        SHORT,
        "Of four paths one silently loses everything for three seconds, and ten seconds later again.",
        || {
            let network = alike(4, "20 Mbit/s", 4);
            let network = network.event(blackhole("4 s").path("path-2")).event(up("7 s").path("path-2"));
            let network = network.event(blackhole("14 s").path("path-2")).event(up("17 s").path("path-2"));
            network.flow(short("20 %", "80 Mbit/s"))
        },
    ),
    Case::tuning(
        "silent-forward-users",
        Failure,
        CLOSED,
        "Of two paths of 40 Mbit/s one silently loses what clients send for seven seconds; users fetch and think.",
        || {
            let network = alike(2, "40 Mbit/s", 4).event(one_way("6 s").path("path-2"));
            let users = closed_loop("c*", "s*", 5, "600 ms", "0");
            network.event(up("13 s").path("path-2")).flow(sized(users, "60 kB"))
        },
    ),
    Case::tuning(
        "down-default-users",
        Failure,
        CLOSED,
        "The path that routing prefers goes down and comes up again; four hosts decide apart, each for five users.",
        || {
            let network = alike(3, "20 Mbit/s", 4).event(down("7 s").path("path-1"));
            let users = closed_loop("c*", "s*", 5, "400 ms", "0");
            network.event(up("12 s").path("path-1")).flow(sized(users, "50 kB"))
        },
    ),
    Case::tuning(
        "silent-five-users",
        Failure,
        CLOSED,
        "One of five paths of 14 Mbit/s silently loses everything for five seconds; two hosts decide apart, each for six users.",
        || {
            let network = alike(5, "14 Mbit/s", 2).set("paths.max_paths", 5).event(blackhole("9 s").path("path-4"));
            let users = closed_loop("c*", "s*", 6, "350 ms", "0");
            network.event(up("14 s").path("path-4")).flow(sized(users, "40 kB"))
        },
    ),
    Case::tuning(
        "silent-two-short",
        Failure,
        SHORT,
        "Of two paths of 26 Mbit/s one silently loses everything for six seconds; short transfers for which the other would do.",
        || {
            let network = alike(2, "26 Mbit/s", 4).event(blackhole("7 s").path("path-2"));
            network.event(up("13 s").path("path-2")).flow(short("45 %", "26 Mbit/s"))
        },
    ),
    Case::tuning(
        "silent-back-users",
        Failure,
        CLOSED,
        "One of three paths of 24 Mbit/s silently loses all that servers answer for seven seconds; users fetch and think.",
        || {
            let network = alike(3, "24 Mbit/s", 4).event(back("6 s").path("path-2"));
            let users = closed_loop("c*", "s*", 4, "450 ms", "0");
            network.event(up("13 s").path("path-2")).flow(sized(users, "50 kB"))
        },
    ),
    Case::tuning(
        "silent-default-users",
        Failure,
        CLOSED,
        "The path that routing prefers, one of two, silently loses everything for four seconds; six hosts decide apart.",
        || {
            let network = alike(2, "34 Mbit/s", 6).network("delay", "2500 us").event(blackhole("10 s").path("path-1"));
            let users = closed_loop("c*", "s*", 3, "550 ms", "0");
            network.event(up("14 s").path("path-1")).flow(sized(users, "70 kB"))
        },
    ),
    Case::judging(
        "silent-six-users",
        Failure,
        CLOSED,
        "One of six paths of 10 Mbit/s silently loses everything for seven seconds; three hosts decide apart, each for five users.",
        || {
            let network = alike(6, "10 Mbit/s", 3).event(blackhole("6 s").path("path-5"));
            let users = closed_loop("c*", "s*", 5, "400 ms", "0");
            network.event(up("13 s").path("path-5")).flow(sized(users, "40 kB"))
        },
    ),
    Case::judging(
        "silent-back-two-short",
        Failure,
        SHORT,
        "Of two paths of 30 Mbit/s one silently loses all that servers answer; short transfers for which the other would do.",
        || {
            let network = alike(2, "30 Mbit/s", 4).event(back("8 s").path("path-2"));
            network.event(up("14 s").path("path-2")).flow(short("35 %", "30 Mbit/s"))
        },
    ),
    Case::judging(
        "down-two-short",
        Failure,
        SHORT,
        "Of two paths of 30 Mbit/s one goes down and comes up again, which routing notices; the other would do.",
        || {
            let network = alike(2, "30 Mbit/s", 4).event(down("8 s").path("path-2"));
            network.event(up("13 s").path("path-2")).flow(short("40 %", "30 Mbit/s"))
        },
    ),
];

/// Three equal paths, of which one fails in this way from 6 to 12 s.
fn fails(way: fn(&str) -> Part, path: &str) -> ScenarioBuilder {
    equal().event(way("6 s").path(path)).event(up("12 s").path(path))
}

/// Swallows what arrives in the direction of the data.
pub(super) fn one_way(at: &str) -> Part {
    blackhole(at).with("direction", "forward")
}

/// Swallows what arrives against the direction of the data.
pub(super) fn back(at: &str) -> Part {
    blackhole(at).with("direction", "reverse")
}
