//! INRPP, Figure 11: how far the first flow of the dumbbell has come at four places.

use super::{
    inrpp::{PACKET, PAPER},
    inrpp_dumbbell::{SIZE, STARTS, dumbbell},
};
use crate::{
    Context, Experiment, Findings, Line, Panel, Paper, ReproError, Row, Rule, lines,
    series::{self, Sample},
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-fig11",
    paper: PAPER,
    figure: "Figure 11",
    title: "Sequence numbers of the first flow of the dumbbell at its host, at nodes 4 and 0, and at the receiver.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

/// The places: what passes the host's link, what leaves nodes 4 and 0, and what passes the receiver's link.
const PLACES: [&str; 4] = ["its host sends", "node 4 sends", "node 0 sends", "the receiver gets"];
/// Seconds until everything has arrived.
const LENGTH: f64 = 16.0;

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    context.simulate("dumbbell", &dumbbell(&["5 ms"; 3], "120 s")?, &["inrpp"], 1)?;
    let series = series::read(&context.out.join("dumbbell"))?;
    let mut findings = Findings::default();
    let mut table = String::from("flow,place,time_s,packets\n");
    let mut panels = Vec::new();
    for flow in 1..=3 {
        let places = progress(&series, flow);
        for (place, points) in PLACES.iter().zip(&places) {
            points.iter().for_each(|(at, packets)| table += &format!("{flow},{place},{at:.1},{packets:.0}\n"));
        }
        judge(flow, &places, &mut findings.rows);
        let lines = PLACES.iter().zip(places).map(|(place, points)| Line { label: (*place).into(), points });
        let y = format!("flow {flow}, packets");
        panels.push(Panel { y, range: [0.0, 7_500.0], lines: lines.collect(), mark: None });
    }
    findings.tables.push(("places.csv".into(), table));
    let title = "Where the packets of three flows are: between two lines they are stored";
    findings.pictures.push(("places.svg".into(), lines(title, "time, s", &panels, false)?));
    Ok(findings)
}

/// By place: over time in seconds how many packets of a flow have passed it.
fn progress(series: &[Sample], flow: u32) -> [Vec<(f64, f64)>; 4] {
    let of = |kind: &'static str, name: String| {
        let matches = move |sample: &&Sample| sample.kind == kind && sample.name.starts_with(&name);
        series.iter().filter(|sample| sample.time_s <= LENGTH).filter(matches)
    };
    let passed = |name: String| {
        let (mut before, mut bits) = (0.0, 0.0);
        let add = move |sample: &Sample| {
            bits += sample.mbps.unwrap_or(0.0) * 1e6 * (sample.time_s - before);
            before = sample.time_s;
            (sample.time_s, bits / 8.0 / PACKET)
        };
        of("link", name).map(add).collect::<Vec<_>>()
    };
    let sent = passed(format!("s{flow}-4:s{flow}>4"));
    let held = |cache: &str, at: f64| {
        let stored = of("stored", format!("{cache} s{flow}:")).find(|sample| sample.time_s == at);
        stored.and_then(|sample| sample.queue_bytes).unwrap_or(0.0) / PACKET
    };
    let less = |points: &[(f64, f64)], cache: &str| {
        points.iter().map(|(at, packets)| (*at, packets - held(cache, *at))).collect::<Vec<_>>()
    };
    let after_4 = less(&sent, "4>0");
    let after_0 = less(&after_4, "0>2");
    [sent, after_4, after_0, passed(format!("3-r{flow}:3>r{flow}"))]
}

fn judge(flow: u32, places: &[Vec<(f64, f64)>; 4], rows: &mut Vec<Row>) {
    let all = SIZE * PACKET / super::inrpp::PAYLOAD / PACKET;
    // In a sample a host sends 333 packets; that many may be on the links between two places.
    let backwards = places.windows(2).flat_map(|pair| pair[0].iter().zip(&pair[1]));
    let most = backwards.map(|(first, second)| second.1 - first.1).fold(f64::NEG_INFINITY, f64::max);
    let quantity = format!("flow {flow}: packets by which a later place is ahead of one before it, at most");
    rows.push(Row::self_check(quantity, "packets", most, 5.0));
    let reaches = |place: usize| {
        let start = STARTS.get(flow as usize - 1).copied().unwrap_or(f64::NAN);
        let end = places[place].iter().find(|(_, packets)| *packets >= 0.99 * all);
        end.map_or(f64::NAN, |(at, _)| at - start)
    };
    for (place, name) in PLACES.iter().enumerate() {
        let quantity = format!("flow {flow}: seconds from its start until 99 %: {name}");
        let (paper, rule) = match (flow, place) {
            // In the figures the first flow's 10 MB are sent in the two seconds until back-pressure begins.
            (1, 0) => (Paper::Text("10 MB in 2 s".into()), Rule::AtMost(2.5)),
            _ => (Paper::None, Rule::NoPaperValue),
        };
        rows.push(Row::single(quantity, "s", paper, reaches(place), rule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cache_holds_has_not_passed_it() {
        let sample = |time_s: f64, kind: &str, name: &str, mbps: Option<f64>, queue_bytes: Option<f64>| Sample {
            time_s,
            kind: kind.into(),
            name: name.into(),
            mbps,
            queue_bytes,
            ..Sample::default()
        };
        let series = [
            sample(1.0, "link", "s1-4:s1>4", Some(1.2), None),
            sample(1.0, "link", "3-r1:3>r1", Some(0.12), None),
            sample(1.0, "stored", "0>2 s1:1-r1:2", None, Some(120_000.0)),
            sample(1.0, "stored", "0>2 s2:1-r2:2", None, Some(30_000.0)),
            sample(2.0, "link", "s1-4:s1>4", Some(0.0), None),
            sample(2.0, "link", "3-r1:3>r1", Some(1.08), None),
        ];
        let of = progress(&series, 1).map(|points| points.iter().map(|point| point.1.round()).collect::<Vec<_>>());
        assert_eq!(of, [vec![100.0, 100.0], vec![100.0, 100.0], vec![20.0, 100.0], vec![10.0, 100.0]]);
    }
}
