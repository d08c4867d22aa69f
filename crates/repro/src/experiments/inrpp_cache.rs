//! INRPP, Figure 18: completion time and losses by the size of caches.

use sidestep_results::RunResult;
use sidestep_scenario::Scenario;

use super::{
    build,
    inrpp::{PAPER, arrivals, base, custody_by_seed, flows, link, losses, no_loss},
    inrpp_dumbbell::dumbbell,
    result_of,
};
use crate::{Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, lines};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "inrpp-cache",
    paper: PAPER,
    figure: "Figure 18",
    title: "A hundred flows over the dumbbell with caches of several sizes: from 1 MB on nothing is lost.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

/// Sizes of caches in kB.
const CACHES: [u32; 7] = [125, 250, 500, 1_000, 2_500, 5_000, 12_500];
/// What is not as the text has it is not judged by its claims.
const TRIED: Rule = Rule::Unjudged("a variant of ours: the text has the dumbbell's flows of 10 MB, and notices");
const HOSTS: u32 = 20;
const FLOWS: f64 = 100.0;
const PACKETS: f64 = 125.0;
const LOAD: f64 = 0.8;

/// What the flows are: those of the text, and many short ones at random; and whether rows are judged.
const TRAFFIC: [(&str, &str); 2] = [("", "written"), (", flows of 125 packets at random", "random")];
/// By back-pressure: what follows the size of the cache in a system's name.
const SYSTEMS: [(&str, &str); 2] = [("", ""), (", limits", ",backpressure=limits,buffer=5 ms,high=auto,low=auto")];

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let mut findings = Findings::default();
    for (traffic, folder) in TRAFFIC {
        let written = folder == "written";
        // What the text has draws nothing at random.
        let seeds = match context.mode {
            _ if written => 1,
            Mode::Full => 10,
            Mode::Quick => 6,
        };
        let scenario = if written { dumbbell(&["5 ms"; FLOWS as usize], "1000 s")? } else { network()? };
        let mut panels: [Vec<Line>; 2] = Default::default();
        for (pressure, settings) in SYSTEMS {
            let spec = |cache: &u32| match settings {
                "" => format!("inrpp:cache={cache} kB,high={} kB,low={} kB", cache / 2, cache / 4),
                _ => format!("inrpp:cache={cache} kB{settings}"),
            };
            let specs = CACHES.map(|cache| spec(&cache));
            let names: Vec<&str> = specs.iter().map(String::as_str).collect();
            let folder = format!("{folder}{}", if settings.is_empty() { "" } else { "-limits" });
            let run = context.simulate(&folder, &scenario, &names, seeds)?;
            let judged = written && settings.is_empty();
            let points = of_caches(&run, &specs, seeds, &format!("{pressure}{traffic}"), judged, &mut findings.rows)?;
            for (panel, points) in panels.iter_mut().zip(points) {
                panel.push(Line { label: format!("INRPP{pressure}"), points });
            }
        }
        let most =
            |lines: &[Line]| lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(1.0, f64::max) * 1.05;
        let [times, lost] = panels;
        let panel = |y: &str, lines: Vec<Line>| Panel { y: y.into(), range: [0.0, most(&lines)], lines, mark: None };
        let title = format!("100 flows, caches of several sizes{traffic}");
        let panels = [panel("AFCT, s", times), panel("packets lost", lost)];
        findings.pictures.push((format!("{folder}.svg"), lines(&title, "log₁₀ of the cache, kB", &panels, true)?));
    }
    Ok(findings)
}

/// The rows of each size of caches, and their completion times and losses as points.
fn of_caches(
    run: &RunResult,
    specs: &[String],
    seeds: u32,
    suffix: &str,
    judged: bool,
    rows: &mut Vec<Row>,
) -> Result<[Vec<(f64, f64)>; 2], ReproError> {
    let (mut lost, mut times) = (Vec::new(), Vec::new());
    for (cache, spec) in CACHES.iter().zip(specs) {
        let result = result_of(run, spec)?;
        let dropped = Seeds::of(result, seeds, |one| Some(losses(one)));
        let time = Seeds::of(result, seeds, |one| one.unfinished.map(|of| of.mean_s).or(one.afct_s));
        times.push((f64::from(*cache).log10(), time.middle()));
        let (paper, rule) = match cache {
            ..1_000 => (Paper::Text("some".into()), Rule::AtLeast(1.0)),
            _ => (Paper::Text("none".into()), Rule::AtMost(0.0)),
        };
        let quantity = format!("packets lost, caches of {cache} kB{suffix}");
        // A single run without chance is what it is.
        rows.push(match judged {
            true => Row::single(quantity, "packets", paper, dropped.middle(), rule),
            false => Row::median(quantity, "packets", paper, &dropped, TRIED),
        });
        rows.extend(no_loss(&format!("caches of {cache} kB{suffix}"), &custody_by_seed(result)));
        let quantity = format!("AFCT, caches of {cache} kB{suffix}");
        rows.push(Row::median(quantity, "s", Paper::None, &time, Rule::NoPaperValue));
        lost.push((f64::from(*cache).log10(), dropped.middle()));
    }
    Ok([times, lost])
}

/// The dumbbell of Figure 8, with twenty hosts on either side that load both ways together.
fn network() -> Result<Scenario, ReproError> {
    let rate = arrivals(LOAD, 20.0, PACKETS);
    let mut network = base("inrpp-cache", FLOWS / rate * 3.0 + 60.0).set("sample", "1 s");
    for router in ["0", "1", "2", "3", "4"] {
        network = network.router(router);
    }
    for (a, b) in [("0", "2"), ("0", "1"), ("1", "2")] {
        network = network.link_with(a, b, link(10, 5));
    }
    for (a, b) in [("4", "0"), ("2", "3")] {
        network = network.link_with(a, b, link(1_000, 5));
    }
    let mut pairs = Vec::new();
    for number in 1..=HOSTS {
        let (from, to) = (format!("s{number}"), format!("r{number}"));
        network = network.host(&from).host(&to);
        network = network.link_with(&from, "4", link(40, 5)).link_with("3", &to, link(40, 5));
        pairs.push(vec![from, to]);
    }
    build(&network.flow(flows("flows", pairs, rate, FLOWS, PACKETS)))
}
