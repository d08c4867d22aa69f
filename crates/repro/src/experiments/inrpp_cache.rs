//! INRPP, Figure 18: completion time and losses by the size of caches.

use sidestep_results::measures;
use sidestep_scenario::Scenario;

use super::{
    build,
    inrpp::{PAPER, arrivals, base, custody_by_seed, flows, link, losses, no_loss},
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
const HOSTS: u32 = 20;
const FLOWS: f64 = 100.0;
const PACKETS: f64 = 125.0;
const LOAD: f64 = 0.8;

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let seeds = if context.mode == Mode::Full { 10 } else { 6 };
    let scenario = network()?;
    let specs = CACHES.map(|cache| format!("inrpp:cache={cache} kB,high={} kB", cache / 2));
    let names: Vec<&str> = specs.iter().map(String::as_str).collect();
    let run = context.simulate("caches", &scenario, &names, seeds)?;
    let mut findings = Findings::default();
    let (mut lost, mut times) = (Vec::new(), Vec::new());
    for (cache, spec) in CACHES.iter().zip(&specs) {
        let result = result_of(&run, spec)?;
        let dropped = Seeds::of(result, seeds, |one| Some(losses(one)));
        let time = Seeds::of(result, seeds, |one| one.unfinished.map(|of| of.mean_s).or(one.afct_s));
        times.push((f64::from(*cache).log10(), time.middle()));
        let (paper, rule) = match cache {
            ..1_000 => (Paper::Text("some".into()), Rule::AtLeast(1.0)),
            _ => (Paper::Text("none".into()), Rule::AtMost(0.0)),
        };
        let quantity = format!("packets lost, caches of {cache} kB");
        findings.rows.push(Row::median(quantity, "packets", paper, &dropped, rule));
        findings.rows.extend(no_loss(&format!("caches of {cache} kB"), &custody_by_seed(result)));
        let quantity = format!("AFCT, caches of {cache} kB");
        findings.rows.push(Row::median(quantity, "s", Paper::None, &time, Rule::NoPaperValue));
        lost.push((f64::from(*cache).log10(), dropped.middle()));
    }
    let most = |points: &[(f64, f64)]| points.iter().map(|point| point.1).fold(1.0, f64::max) * 1.05;
    let panel = |y: &str, points: Vec<(f64, f64)>| Panel {
        y: y.into(),
        range: [0.0, most(&points)],
        lines: vec![Line { label: "INRPP".into(), points }],
        mark: None,
    };
    let spread = measures::mean(&times.iter().map(|point| point.1).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let title = format!("100 flows, caches of several sizes; AFCT {spread:.2} s in the mean");
    let panels = [panel("AFCT, s", times), panel("packets lost", lost)];
    findings.pictures.push(("caches.svg".into(), lines(&title, "log₁₀ of the cache, kB", &panels, true)?));
    Ok(findings)
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
