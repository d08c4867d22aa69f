//! Short flows at a thousand a second, of every distribution, on real sockets.

use crate::common::{Room, number, root_or_skip};

/// Sizes by flow, and the mean of what they draw.
const SIZES: [(&str, &str, f64); 5] = [
    ("constant", "\"2 kB\"", 2_000.0),
    ("exponential", "{ distribution = \"exponential\", mean = \"2 kB\" }", 2_000.0),
    ("pareto", "{ distribution = \"pareto\", shape = 2.5, mean = \"2 kB\" }", 2_000.0),
    ("lognormal", "{ distribution = \"lognormal\", mean = \"2 kB\", sigma = 0.8 }", 2_000.0),
    // Up to 1 kB evenly, then up to 3 kB.
    ("table", "{ distribution = \"empirical\", cdf = \"sizes.csv\" }", 1_250.0),
];
/// Of each of these flows, in both kinds: a thousand a second together.
const RATE: f64 = 100.0;
const SECONDS: f64 = 4.0;

#[test]
fn a_thousand_short_flows_a_second_of_every_distribution_complete() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    room.write("sizes.csv", "bytes,probability\n1000,0.5\n3 kB,1\n");
    let mut scenario = format!(
        "duration = \"{SECONDS} s\"\nsystems = [\"tcp\"]\n[topology]\ngenerator = \"parallel-paths\"\nclients = 2\n\
         servers = 2\nrate = \"200 Mbit/s\"\n"
    );
    for (name, size, _) in SIZES {
        for (kind, request) in [("sent", ""), ("answered", "request = \"200 B\"\n")] {
            scenario += &format!(
                "[[flow]]\nkind = \"poisson\"\nname = \"{name}-{kind}\"\nfrom = \"c*\"\nto = \"s*\"\nrate = {RATE:?}\n\
                 size = {size}\n{request}"
            );
        }
    }
    let ended = room.run_lab("out", &scenario);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let rows = room.rows("out", "flows.csv");
    for (name, _, mean) in SIZES {
        for kind in ["sent", "answered"] {
            let flow = format!("{name}-{kind}-");
            let completed: Vec<_> =
                rows.iter().filter(|row| row["flow"].starts_with(&flow) && row["completed"] == "true").collect();
            // Half of what was offered: a busy machine is slow, but a broken generator has none.
            assert!(completed.len() as f64 > RATE * SECONDS / 2.0, "{flow}: {}", completed.len());
            let drawn = completed.iter().map(|row| number(row, "bytes")).sum::<f64>() / completed.len() as f64;
            assert!((drawn / mean - 1.0).abs() < 0.35, "{flow}: {drawn} B in the mean, where {mean} were asked for");
            assert!(completed.iter().all(|row| number(row, "fct_s") > 0.002), "faster than a round trip");
        }
    }
}
