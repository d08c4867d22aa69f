//! What the figures on intelligent route control share: the site with two egresses, and what the paper leaves open.

use std::collections::BTreeMap;

use sidestep_results::RunResult;
use sidestep_scenario::builder::{Part, ScenarioBuilder, bulk, part};

use super::result_of;
use crate::{Paper, ReproError, Seeds, series::Sample};

pub(super) const PAPER: &str = "Intelligent Route Control";

/// The systems: without control, the paper's two controllers, and ours.
pub(super) const NONE: &str = "route-control:mode=none";
pub(super) const IDEAL: &str = "route-control:mode=ideal";
pub(super) const PRACTICAL: &str = "route-control:guards=false";
pub(super) const PREDICTIVE: &str = "route-control:mode=predictive";

/// The two egresses of the site: the primary first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// Rates in Mbit/s.
    pub(super) rates: [f64; 2],
    /// Queues, in packets.
    pub(super) queue: u32,
    /// The round trips over the egress and back over the primary, in milliseconds.
    pub(super) rtt: [f64; 2],
}

/// Hosts `h` behind the edge `E` and `s` behind `D`; the primary over `P`, where the host `x` sends too, the backup over `B`.
///
/// What leaves `E` towards `P` can be impaired; answers come back over `P` whatever `E` does.
pub(super) fn site(name: &str, duration: u32, ways: Ways) -> ScenarioBuilder {
    let way = |rate: f64, delay: f64, weight: i64| {
        let (rate, delay) = (format!("{} kbit/s", (rate * 1e3) as u32), format!("{} us", (delay * 1e3) as u32));
        let link = part([("rate", rate.as_str()), ("delay", delay.as_str())]);
        link.with("weight", weight).with("queue", format!("{} packets", ways.queue))
    };
    let network = ["E", "P", "B", "D"]
        .into_iter()
        .fold(ScenarioBuilder::new(&format!("{duration} s")), |all, router| all.router(router));
    let network = ["h", "s", "x"].into_iter().fold(network.set("name", name), ScenarioBuilder::host);
    let wide = [("h", "E"), ("s", "D"), ("x", "P"), ("E", "P"), ("E", "B")];
    let network = wide.into_iter().fold(network, |all, (one, other)| all.link(one, other, "1 Gbit/s", "10 us"));
    let back = ways.rtt[0] / 2.0;
    network
        .link_with("P", "D", way(ways.rates[0], back, 10))
        .link_with("B", "D", way(ways.rates[1], ways.rtt[1] - back, 20))
        .path("primary", ["P-D"])
        .path("backup", ["B-D"])
        .set("sample", "1 s")
        .set("route-control.edges", vec!["E"])
        // As ns-2, which the paper used, has it.
        .set("tcp.profile", "rfc")
        .set("tcp.congestion_control", "reno")
        .set("tcp.ecn", false)
        // As ns-2 counts.
        .set("tcp.count_acks", true)
}

/// The goodput of a system in Mbit/s by seed.
pub(super) fn goodput(run: &RunResult, system: &str, seeds: u32) -> Result<Seeds, ReproError> {
    Ok(Seeds::of(result_of(run, system)?, seeds, |result| Some(result.goodput_mbps)))
}

/// `count` endless flows, which begin within `span_ms` milliseconds, at other times in each repetition.
pub(super) fn with_flows(site: ScenarioBuilder, count: u32, repetition: u32, span_ms: f64) -> ScenarioBuilder {
    (0..count).fold(site, |site, flow| {
        let start = format!("{} ms", (spread(repetition * count + flow) * span_ms) as u32);
        site.flow(bulk("h", "s").with("name", format!("flow-{flow}")).with("start", start))
    })
}

/// What happens to the primary, on the path out only.
pub(super) fn on_primary(event: Part) -> Part {
    event.link("E-P").with("direction", "forward")
}

/// A time as scenarios have it, to the millisecond.
pub(super) fn ms(seconds: f64) -> String {
    format!("{} ms", (seconds * 1e3).round() as u64)
}

/// What the paper says in words.
pub(super) fn text(text: &str) -> Paper {
    Paper::Text(text.into())
}

/// Equally spread over `[0, 1)` however many there are: multiples of the golden ratio.
pub(super) fn spread(number: u32) -> f64 {
    f64::from(number) * 0.618_034 % 1.0
}

/// What all connections of a run carried together, by sample. A sample's rate is that of the time since the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    /// In Mbit/s, by the number of the sample.
    by_sample: BTreeMap<u64, f64>,
    samples_per_s: f64,
}

impl Total {
    pub(super) fn of<'s>(series: impl IntoIterator<Item = &'s Sample>, samples_per_s: f64) -> Total {
        let mut by_sample = BTreeMap::new();
        for sample in series.into_iter().filter(|sample| sample.kind == "connection") {
            let number = (sample.time_s * samples_per_s).round() as u64;
            *by_sample.entry(number).or_default() += sample.mbps.unwrap_or(0.0);
        }
        Total { by_sample, samples_per_s }
    }

    /// The mean over `length` seconds from `from` on; both are multiples of the samples' distance.
    pub(super) fn mean(&self, from: f64, length: f64) -> f64 {
        let [from, until] = [from, from + length].map(|at| (at * self.samples_per_s).round() as u64);
        let sum: f64 = self.by_sample.range(from + 1..=until).map(|(_, rate)| rate).sum();
        sum / until.saturating_sub(from).max(1) as f64
    }

    /// By time in seconds.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        self.by_sample.iter().map(|(number, rate)| (*number as f64 / self.samples_per_s, *rate)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_of_all_connections_and_of_the_time_that_is_asked_for() {
        let sample = |time_s: f64, kind: &str, mbps: f64| Sample {
            time_s,
            kind: kind.into(),
            mbps: Some(mbps),
            ..Sample::default()
        };
        let series = [
            sample(0.1, "connection", 1.0),
            sample(0.1, "connection", 2.0),
            sample(0.1, "path", 9.0),
            sample(0.2, "connection", 5.0),
            sample(0.3, "connection", 8.0),
        ];
        let total = Total::of(&series, 10.0);
        assert_eq!((total.mean(0.0, 0.1), total.mean(0.0, 0.2), total.mean(0.1, 0.2)), (3.0, 4.0, 6.5));
        assert_eq!(total.mean(0.2, 0.2), 4.0, "nothing was carried after the last sample");
        assert_eq!(total.points().first(), Some(&(0.1, 3.0)));
    }
}
