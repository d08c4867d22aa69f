//! Paths that differ in rate, delay or loss, all the time: what a policy learns pays here.

use sidestep_scenario::builder::{Part, ScenarioBuilder, bulk, closed_loop, load, part};

use super::{
    CLOSED, Case,
    Class::Differ,
    LONG, MIX, SHORT,
    network::{ALL, Path, differ, differ_for, equal, long, path, short, sized, web_search},
};

const TWO_TO_ONE: &[Path] = &[path("40 Mbit/s"), path("20 Mbit/s")];
const TEN_TO_ONE: &[Path] = &[path("50 Mbit/s"), path("5 Mbit/s")];
const ONE_TO_TEN: &[Path] = &[path("5 Mbit/s"), path("50 Mbit/s")];
const FIFTY_TEN_FIVE: &[Path] = &[path("50 Mbit/s"), path("10 Mbit/s"), path("5 Mbit/s")];
/// Round trips of 8 and 80 ms.
const NEAR_AND_FAR: &[Path] = &[path("30 Mbit/s"), Path { delay: "19 ms", ..path("30 Mbit/s") }];
/// The far path has twice the rate.
const FAR_IS_FAT: &[Path] = &[path("20 Mbit/s"), Path { delay: "19 ms", ..path("40 Mbit/s") }];
const SECOND_LOSES: &[Path] = &[path("20 Mbit/s"), Path { loss: "1 %", ..path("20 Mbit/s") }, path("20 Mbit/s")];
const THREE_TO_ONE: &[Path] = &[path("30 Mbit/s"), path("10 Mbit/s")];
const FOUR_TO_ONE: &[Path] = &[path("40 Mbit/s"), path("10 Mbit/s")];
const TWO_ARE_SLOW: &[Path] = &[path("20 Mbit/s"), path("20 Mbit/s"), path("2 Mbit/s"), path("2 Mbit/s")];
/// A fast path with a round trip of 50 ms, and a leased line with one of 8 ms.
const SLOW_IS_NEAR: &[Path] = &[Path { delay: "11500 us", ..path("40 Mbit/s") }, path("6 Mbit/s")];
/// Round trips of 8 and 200 ms.
const NEAR_AND_SATELLITE: &[Path] = &[path("30 Mbit/s"), Path { delay: "49 ms", ..path("30 Mbit/s") }];
/// The uplinks of a branch: a fibre, and a slower line with a longer round trip.
const UPLINKS: &[Path] = &[path("50 Mbit/s"), Path { delay: "8 ms", ..path("10 Mbit/s") }];
/// The uplinks of a smaller branch: cable, and a mobile network.
const SMALL_UPLINKS: &[Path] = &[path("25 Mbit/s"), Path { delay: "12 ms", ..path("4 Mbit/s") }];

/// The uplinks of a third branch: fibre, cable, and a mobile network.
const THREE_UPLINKS: &[Path] = &[
    Path { delay: "2 ms", ..path("30 Mbit/s") },
    Path { delay: "5 ms", ..path("12 Mbit/s") },
    Path { delay: "15 ms", ..path("3 Mbit/s") },
];
const SIX: &[Path] = &[
    path("24 Mbit/s"),
    Path { delay: "3 ms", ..path("20 Mbit/s") },
    Path { delay: "9 ms", ..path("12 Mbit/s") },
    Path { delay: "20 ms", ..path("8 Mbit/s") },
    Path { delay: "5 ms", ..path("6 Mbit/s") },
    path("2 Mbit/s"),
];

/// The uplinks of a fourth branch: fibre and DSL.
const DSL_UPLINKS: &[Path] =
    &[Path { delay: "2 ms", ..path("40 Mbit/s") }, Path { delay: "10 ms", ..path("8 Mbit/s") }];
const FIVE: &[Path] = &[path("30 Mbit/s"), path("20 Mbit/s"), path("10 Mbit/s"), path("5 Mbit/s"), path("2 Mbit/s")];
/// The uplinks of a fifth branch: a fast fibre, and a radio link with a longer round trip.
const FAST_UPLINKS: &[Path] =
    &[Path { delay: "1500 us", ..path("60 Mbit/s") }, Path { delay: "9 ms", ..path("12 Mbit/s") }];
/// A near path with a round trip of 10 ms, and one of five times the rate with 66 ms.
const FAR_IS_FATTER: &[Path] =
    &[Path { delay: "1500 us", ..path("10 Mbit/s") }, Path { delay: "15500 us", ..path("50 Mbit/s") }];

pub(super) const CASES: &[Case] = &[
    Case::tuning(
        "unequal-2to1-short",
        Differ,
        SHORT,
        "Rates of 40 and 20 Mbit/s, short transfers at half of both: the faster path alone would do.",
        || differ(TWO_TO_ONE).flow(short("50 %", ALL)),
    ),
    Case::tuning(
        "unequal-2to1-long",
        Differ,
        LONG,
        "Rates of 40 and 20 Mbit/s, twelve connections that send all the time.",
        || differ(TWO_TO_ONE).flow(long()),
    ),
    Case::tuning(
        "unequal-10to1-short",
        Differ,
        SHORT,
        "Rates of 50 and 5 Mbit/s, short transfers at 60 % of both: the slower path is a trap.",
        || differ(TEN_TO_ONE).flow(short("60 %", "55 Mbit/s")),
    ),
    Case::tuning(
        "unequal-10to1-long",
        Differ,
        LONG,
        "Rates of 50 and 5 Mbit/s, twelve connections that send all the time.",
        || differ(TEN_TO_ONE).flow(long()),
    ),
    Case::tuning(
        "unequal-50-10-5-closed",
        Differ,
        CLOSED,
        "Rates of 50, 10 and 5 Mbit/s, and forty users who fetch 20 kB again and again.",
        || differ(FIFTY_TEN_FIVE).flow(closed_loop("c*", "s*", 10, "1 ms", "20 kB")),
    ),
    Case::tuning(
        "unequal-5-50-closed",
        Differ,
        CLOSED,
        "Routing prefers 5 Mbit/s to 50, and forty users fetch pages again and again.",
        || differ(ONE_TO_TEN).flow(sized(closed_loop("c*", "s*", 10, "20 ms", "0"), "30 kB")),
    ),
    Case::tuning(
        "delay-8-80-short",
        Differ,
        SHORT,
        "Round trips of 8 and 80 ms; the near path alone would carry the short transfers.",
        || differ(NEAR_AND_FAR).flow(short("40 %", ALL)),
    ),
    Case::tuning(
        "delay-8-80-long",
        Differ,
        LONG,
        "Round trips of 8 and 80 ms, twelve connections that send all the time.",
        || differ(NEAR_AND_FAR).flow(long()),
    ),
    Case::tuning(
        "far-fat-short",
        Differ,
        SHORT,
        "The far path has twice the rate of the near one, which the short transfers overfill.",
        || differ(FAR_IS_FAT).flow(short("40 %", ALL)),
    ),
    Case::tuning(
        "far-fat-long",
        Differ,
        LONG,
        "The far path has twice the rate of the near one; twelve connections send all the time.",
        || differ(FAR_IS_FAT).flow(long()),
    ),
    Case::tuning(
        "lossy-short",
        Differ,
        SHORT,
        "One path loses 1 %, and plain TCP is on another that alone would do for the short transfers.",
        || differ(SECOND_LOSES).flow(short("25 %", ALL)),
    ),
    Case::tuning("lossy-long", Differ, LONG, "One path loses 1 %; twelve connections send all the time.", || {
        differ(SECOND_LOSES).flow(long())
    }),
    Case::tuning(
        "hidden-short",
        Differ,
        SHORT,
        "One path has a tenth of the rate that the controller believes; plain TCP is on another that would do.",
        || hidden().flow(short("25 %", ALL)),
    ),
    Case::tuning(
        "hidden-long",
        Differ,
        LONG,
        "One path has a tenth of the rate that the controller believes; twelve connections send all the time.",
        || hidden().flow(long()),
    ),
    Case::tuning(
        "branch-day",
        Differ,
        MIX,
        "A branch with uplinks of 50 and 10 Mbit/s: users fetch and send, and a backup runs.",
        || branch(UPLINKS, 5, "400 ms", 2),
    ),
    Case::tuning(
        "branch-backup",
        Differ,
        MIX,
        "The same branch at night: few users, and a backup over eight connections.",
        || branch(UPLINKS, 2, "1 s", 8),
    ),
    Case::tuning(
        "branch-small",
        Differ,
        MIX,
        "A branch with uplinks of 25 and 4 Mbit/s: users fetch and send, and a backup runs.",
        || branch(SMALL_UPLINKS, 3, "500 ms", 1),
    ),
    Case::tuning(
        "branch-uploads",
        Differ,
        SHORT,
        "Users behind uplinks of 50 and 10 Mbit/s send documents of 300 kB at 40 % of both.",
        || differ(UPLINKS).flow(sized(load("c*", "s*", "40 %", ALL), "300 kB")),
    ),
    Case::tuning(
        "hidden-web",
        Differ,
        SHORT,
        "One path has a tenth of the rate that the controller believes; the web-search workload.",
        || hidden().set("duration", "120 s").flow(web_search("25 %", ALL)),
    ),
    Case::tuning(
        "hidden-two-short",
        Differ,
        SHORT,
        "Of two paths one has a tenth of the rate that the controller believes; plain TCP is on the other.",
        || differ(&[path("20 Mbit/s"); 2]).event(tenth("2 Mbit/s")).flow(short("30 %", "20 Mbit/s")),
    ),
    Case::tuning(
        "unequal-3to1-short",
        Differ,
        SHORT,
        "Rates of 30 and 10 Mbit/s, short transfers at half of both.",
        || differ(THREE_TO_ONE).flow(short("50 %", "40 Mbit/s")),
    ),
    Case::tuning(
        "unequal-two-slow-short",
        Differ,
        SHORT,
        "Two paths of 20 Mbit/s and two of 2, short transfers at 40 % of all.",
        || differ(TWO_ARE_SLOW).flow(short("40 %", "44 Mbit/s")),
    ),
    Case::tuning(
        "delay-slow-near-short",
        Differ,
        SHORT,
        "A path of 40 Mbit/s with a round trip of 50 ms, one of 6 Mbit/s with 8 ms; short transfers at 30 % of both.",
        || differ(SLOW_IS_NEAR).flow(short("30 %", "46 Mbit/s")),
    ),
    Case::tuning(
        "delay-8-200-short",
        Differ,
        SHORT,
        "Round trips of 8 and 200 ms, short transfers at 80 % of the near path.",
        || differ(NEAR_AND_SATELLITE).flow(short("80 %", "30 Mbit/s")),
    ),
    Case::tuning(
        "hosts-50-unequal",
        Differ,
        CLOSED,
        "Fifty hosts decide apart on paths of 40 and 10 Mbit/s, each for two users who fetch pages and think.",
        || differ_for(50, FOUR_TO_ONE).flow(sized(closed_loop("c*", "s*", 2, "500 ms", "0"), "30 kB")),
    ),
    Case::tuning(
        "unequal-4to1-documents",
        Differ,
        SHORT,
        "Rates of 24 and 6 Mbit/s with equal delays, transfers of 150 kB at 45 % of both.",
        || differ(&[path("24 Mbit/s"), path("6 Mbit/s")]).flow(sized(load("c*", "s*", "45 %", "30 Mbit/s"), "150 kB")),
    ),
    Case::tuning(
        "delay-20-60-short",
        Differ,
        SHORT,
        "Two paths of 25 Mbit/s with round trips of 20 and 60 ms, short transfers at 70 % of the near one.",
        || {
            let [near, far] = ["4 ms", "14 ms"].map(|delay| Path { delay, ..path("25 Mbit/s") });
            differ(&[near, far]).flow(short("70 %", "25 Mbit/s"))
        },
    ),
    Case::tuning(
        "hidden-two-users",
        Differ,
        CLOSED,
        "Of two paths of 32 Mbit/s one has an eighth of that; two hosts decide apart, each for six users who fetch and think.",
        || {
            let network = differ_for(2, &[path("32 Mbit/s"); 2]).event(tenth("4 Mbit/s"));
            network.flow(sized(closed_loop("c*", "s1", 6, "250 ms", "0"), "50 kB"))
        },
    ),
    Case::tuning(
        "lossy-two-users",
        Differ,
        CLOSED,
        "Of two paths of 20 Mbit/s with a round trip of 20 ms one loses 2 %; users fetch 40 kB and think.",
        || {
            let good = Path { delay: "4 ms", ..path("20 Mbit/s") };
            let network = differ(&[good, Path { loss: "2 %", ..good }]);
            network.flow(sized(closed_loop("c*", "s*", 5, "300 ms", "0"), "40 kB"))
        },
    ),
    Case::tuning(
        "branch-three",
        Differ,
        MIX,
        "A branch with uplinks of 30, 12 and 3 Mbit/s: users fetch and send, and a backup runs over three connections.",
        || branch(THREE_UPLINKS, 4, "600 ms", 3),
    ),
    Case::tuning(
        "unequal-six-short",
        Differ,
        SHORT,
        "Six paths from 24 Mbit/s down to 2, those between with longer round trips; short transfers at half of all.",
        || differ(SIX).flow(short("50 %", "72 Mbit/s")),
    ),
    Case::tuning(
        "hidden-third-users",
        Differ,
        CLOSED,
        "Of three paths of 15 Mbit/s with a round trip of 20 ms the last has a sixth; three hosts decide apart, each for four users.",
        || {
            let network = differ_for(3, &[Path { delay: "4 ms", ..path("15 Mbit/s") }; 3]);
            let slow = part([("at", "0 s"), ("action", "rate"), ("rate", "2500 kbit/s")]).path("path-3");
            network.event(slow).flow(sized(closed_loop("c*", "s*", 4, "350 ms", "0"), "40 kB"))
        },
    ),
    Case::tuning(
        "hidden-four-short",
        Differ,
        SHORT,
        "Of four paths of 20 Mbit/s one has a thirteenth; short transfers at 18 % of all, for which plain TCP’s path would do.",
        || {
            let slow = part([("at", "0 s"), ("action", "rate"), ("rate", "1500 kbit/s")]).path("path-2");
            differ(&[path("20 Mbit/s"); 4]).event(slow).flow(short("18 %", "80 Mbit/s"))
        },
    ),
    Case::tuning(
        "branch-documents",
        Differ,
        SHORT,
        "Users behind uplinks of 40 and 8 Mbit/s send documents of 200 kB at 30 % of both.",
        || differ(DSL_UPLINKS).flow(sized(load("c*", "s*", "30 %", "48 Mbit/s"), "200 kB")),
    ),
    Case::tuning(
        "branch-morning",
        Differ,
        MIX,
        "The same uplinks: many users fetch and send, and a backup over one connection has not ended.",
        || branch(DSL_UPLINKS, 6, "700 ms", 1),
    ),
    Case::tuning(
        "far-fatter-short",
        Differ,
        SHORT,
        "A path of 10 Mbit/s with a round trip of 10 ms, one of 50 Mbit/s with 66 ms; transfers of 40 kB at 25 % of both.",
        || differ(FAR_IS_FATTER).flow(sized(load("c*", "s*", "25 %", ALL), "40 kB")),
    ),
    Case::tuning(
        "lossy-three-short",
        Differ,
        SHORT,
        "Two of three paths of 20 Mbit/s lose 0.5 %, and plain TCP is on the third; short transfers at 20 % of all.",
        || {
            let lossy = Path { loss: "0.5 %", ..path("20 Mbit/s") };
            differ(&[path("20 Mbit/s"), lossy, lossy]).flow(short("20 %", ALL))
        },
    ),
    Case::tuning(
        "unequal-five-users",
        Differ,
        CLOSED,
        "Five paths from 30 Mbit/s down to 2, and users who fetch 60 kB and think.",
        || differ(FIVE).flow(sized(closed_loop("c*", "s*", 9, "250 ms", "0"), "60 kB")),
    ),
    Case::tuning(
        "hidden-five-users",
        Differ,
        CLOSED,
        "Of five paths of 12 Mbit/s the fourth has a ninth; four hosts decide apart, each for three users.",
        || {
            let slow = part([("at", "0 s"), ("action", "rate"), ("rate", "1300 kbit/s")]).path("path-4");
            let network = differ(&[path("12 Mbit/s"); 5]).set("paths.max_paths", 5).event(slow);
            network.flow(sized(closed_loop("c*", "s*", 3, "280 ms", "0"), "45 kB"))
        },
    ),
    Case::tuning(
        "hidden-two-pages",
        Differ,
        SHORT,
        "Of two paths of 28 Mbit/s with a round trip of 16 ms one has a seventh; transfers of 50 kB at 25 % of the other.",
        || {
            let network = differ(&[Path { delay: "3 ms", ..path("28 Mbit/s") }; 2]).event(tenth("4 Mbit/s"));
            network.flow(sized(load("c*", "s*", "25 %", "28 Mbit/s"), "50 kB"))
        },
    ),
    Case::tuning(
        "branch-reports",
        Differ,
        SHORT,
        "Users behind uplinks of 60 and 12 Mbit/s send reports of 450 kB at 35 % of both.",
        || differ(FAST_UPLINKS).flow(sized(load("c*", "s*", "35 %", "72 Mbit/s"), "450 kB")),
    ),
    Case::tuning(
        "branch-letters",
        Differ,
        SHORT,
        "Users behind the same uplinks send letters of 80 kB at 50 % of both.",
        || differ(FAST_UPLINKS).flow(sized(load("c*", "s*", "50 %", "72 Mbit/s"), "80 kB")),
    ),
    Case::tuning(
        "branch-evening",
        Differ,
        MIX,
        "The same uplinks: few users fetch and send, and a backup runs over four connections.",
        || branch(FAST_UPLINKS, 3, "900 ms", 4),
    ),
    Case::tuning(
        "lossy-four-users",
        Differ,
        CLOSED,
        "One of four paths of 15 Mbit/s with a round trip of 12 ms loses 1.5 %; users fetch 60 kB and think.",
        || {
            let good = Path { delay: "2 ms", ..path("15 Mbit/s") };
            let network = differ(&[good, good, Path { loss: "1.5 %", ..good }, good]);
            network.flow(sized(closed_loop("c*", "s*", 4, "450 ms", "0"), "60 kB"))
        },
    ),
    Case::tuning(
        "unequal-three-users",
        Differ,
        CLOSED,
        "Paths of 30, 14 and 4 Mbit/s with round trips of 20, 50 and 8 ms, and users who fetch 40 kB and think.",
        || {
            let paths = [("30 Mbit/s", "4 ms"), ("14 Mbit/s", "11500 us"), ("4 Mbit/s", "1 ms")]
                .map(|(rate, delay)| Path { delay, ..path(rate) });
            differ(&paths).flow(sized(closed_loop("c*", "s*", 5, "220 ms", "0"), "40 kB"))
        },
    ),
    Case::judging(
        "unequal-5to3-web",
        Differ,
        SHORT,
        "Rates of 35 and 21 Mbit/s, the web-search workload at half of both.",
        || {
            let network = differ(&[path("35 Mbit/s"), path("21 Mbit/s")]);
            network.set("duration", "180 s").flow(web_search("50 %", "56 Mbit/s"))
        },
    ),
    Case::judging(
        "delay-three-users",
        Differ,
        CLOSED,
        "Three paths of 20 Mbit/s with round trips of 12, 32 and 92 ms, and users who fetch 40 kB and think.",
        || {
            let paths = ["2 ms", "7 ms", "22 ms"].map(|delay| Path { delay, ..path("20 Mbit/s") });
            differ(&paths).flow(sized(closed_loop("c*", "s*", 8, "400 ms", "0"), "40 kB"))
        },
    ),
    Case::judging(
        "hidden-six-short",
        Differ,
        SHORT,
        "Of six paths of 10 Mbit/s the second has a fifth of that; short transfers at a quarter of all.",
        || {
            let network = differ(&[path("10 Mbit/s"); 6]).set("paths.max_paths", 6).event(tenth("2 Mbit/s"));
            network.flow(short("25 %", ALL))
        },
    ),
];

/// Three paths of 20 Mbit/s by the topology, of which the second has a tenth.
fn hidden() -> ScenarioBuilder {
    equal().event(tenth("2 Mbit/s"))
}

/// The second path has this rate from the beginning, whatever the topology sets.
fn tenth(rate: &str) -> Part {
    part([("at", "0 s"), ("action", "rate"), ("rate", rate)]).path("path-2")
}

/// Users in the branch download pages and upload documents; a backup fills what it can get.
fn branch(uplinks: &[Path], users: u32, think: &str, backup: u32) -> ScenarioBuilder {
    let network = differ(uplinks);
    let pages = sized(closed_loop("s*", "c*", users, think, "0"), "60 kB");
    let uploads = sized(load("c*", "s*", "10 %", "50 Mbit/s"), "100 kB");
    network.flow(pages).flow(uploads).flow(bulk("c1", "s1").with("connections", backup))
}
