//! SEMPER, Figure 3: throughput and fairness over eight links, by the number of subflows.

use sidestep_scenario::builder::{bulk, part};

use super::{
    build,
    semper::{CHOSEN, Choices, LINK, Measured, PAPER, Size, base, branch, measure, table},
};
use crate::{Context, Experiment, Findings, Line, Mode, Panel, Paper, ReproError, Row, Rule, Seeds, lines};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "semper-fig3",
    paper: PAPER,
    figure: "Figure 3",
    title: "Few or many hosts over eight links, by the subflows of a host: from eight subflows on, all links are used.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

const LINKS: u32 = 8;
const HOSTS: [u32; 2] = [2, 32];
/// The paper's numbers of subflows, and the one where its kernel is said to have stopped.
const SUBFLOWS: [u32; 6] = [2, 4, 8, 16, 30, 32];
/// Shares of the baseline: "notably below" is less than the first, "close to" at least the second. Two hosts with eight
/// subflows each use seven of the eight links in the median, which the paper calls close.
const BELOW: f64 = 0.9;
const CLOSE: f64 = 0.85;
/// Jain's index that the paper's medians exceed.
const FAIR: f64 = 0.9;
/// How much more than many hosts few hosts may have, as a share of the baseline: measurement error.
const NEVER_ABOVE: f64 = 0.02;

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let size = Size::of(context.mode);
    let baseline = baseline(context, size)?;
    let systems: Vec<String> = SUBFLOWS.iter().map(|subflows| format!("semper:subflows={subflows}")).collect();
    let mut measured = Vec::new();
    for hosts in HOSTS {
        let scenario = build(&branch("semper-fig3", hosts, LINKS, size, CHOSEN))?;
        measured.push(measure(context, &format!("hosts-{hosts}"), &scenario, &systems, size.seeds)?);
    }
    let [few, many] = &measured[..] else { return Err(ReproError::Missing("numbers of hosts".into())) };
    let mut findings = Findings { rows: rows(&baseline, few, many), ..Findings::default() };
    draw(&baseline, &measured, &mut findings)?;
    sweep(context, &mut findings)?;
    Ok(findings)
}

/// Eight hosts, each with one TCP connection on a path of its own.
fn baseline(context: &mut Context<'_>, size: Size) -> Result<Measured, ReproError> {
    let mut alone = base("semper-fig3-baseline", size).flow(bulk("c*", "s*"));
    for number in 1..=LINKS {
        let [client, near, far, server] = ["c", "A", "B", "s"].map(|node| format!("{node}{number}"));
        let rate = format!("{LINK} Mbit/s");
        let link = part([("rate", rate.as_str()), ("delay", CHOSEN.delay), ("queue", CHOSEN.queue)]);
        alone = alone.host(&client).router(&near).router(&far).host(&server);
        alone = alone.link(&client, &near, "1 Gbit/s", "1 ms").link(&far, &server, "1 Gbit/s", "1 ms");
        alone = alone.link_with(&near, &far, link);
    }
    let found = measure(context, "baseline", &build(&alone)?, &["tcp".into()], size.seeds)?;
    found.into_iter().next().ok_or_else(|| ReproError::Missing("baseline".into()))
}

fn rows(baseline: &Measured, few: &[Measured], many: &[Measured]) -> Vec<Row> {
    let text = |text: &str| Paper::Text(text.into());
    let alone = baseline.total.middle();
    let mut rows = vec![Row::median(
        "baseline: eight hosts with one TCP connection each",
        "Mbit/s",
        Paper::None,
        &baseline.total,
        Rule::NoPaperValue,
    )];
    let mut totals = |hosts: u32, measured: &[Measured]| {
        for (subflows, of) in SUBFLOWS.iter().zip(measured) {
            let (paper, rule) = match (hosts, subflows) {
                (2, 2 | 4) => (text("notably below the baseline"), Rule::AtMost(BELOW * alone)),
                _ => (text("close to the baseline"), Rule::AtLeast(CLOSE * alone)),
            };
            let quantity = format!("total, {hosts} hosts, {subflows} subflows");
            rows.push(Row::median(quantity, "Mbit/s", paper, &of.total, rule));
        }
    };
    totals(2, few);
    totals(32, many);
    for ((subflows, few), many) in SUBFLOWS.iter().zip(few).zip(many) {
        let quantity = format!("32 hosts less 2, {subflows} subflows");
        let order = [("2 hosts", &few.total), ("32 hosts", &many.total)];
        let paper = text("2 hosts are never above 32");
        rows.push(Row::ordered(quantity, "Mbit/s", paper, &order, -NEVER_ABOVE * alone));
    }
    for (hosts, measured) in HOSTS.iter().zip([few, many]) {
        for (subflows, of) in SUBFLOWS.iter().zip(measured) {
            let quantity = format!("Jain's index, {hosts} hosts, {subflows} subflows");
            rows.push(Row::median(quantity, "", text("above 0.9"), &of.jain, Rule::AtLeast(FAIR)));
        }
    }
    let jain = |measured: &'_ [Measured], subflows: u32| -> Seeds {
        let at = SUBFLOWS.iter().position(|of| *of == subflows);
        at.and_then(|at| measured.get(at)).map(|of| of.jain.clone()).unwrap_or_default()
    };
    for (name, lower, higher) in [
        ("32 hosts: 8 subflows less 2", jain(many, 2), jain(many, 8)),
        ("2 hosts: 16 subflows less 32", jain(few, 32), jain(few, 16)),
    ] {
        let quantity = format!("drop of Jain's index, {name}");
        let order = [("the lower", &lower), ("the higher", &higher)];
        rows.push(Row::ordered(quantity, "", text("a small drop"), &order, 0.0));
    }
    // Random occupancy alone gives these medians.
    for ((subflows, of), expected) in SUBFLOWS.iter().zip(few).zip([3, 5, 7, 8, 8, 8]) {
        let quantity = format!("links used, 2 hosts, {subflows} subflows; {expected} are expected of chance");
        rows.push(Row::median(quantity, "links", Paper::None, &of.used, Rule::NoPaperValue));
    }
    rows
}

fn draw(baseline: &Measured, measured: &[Vec<Measured>], findings: &mut Findings) -> Result<(), ReproError> {
    let line = |hosts: &u32, of: &[Measured], value: fn(&Measured) -> &Seeds| Line {
        label: format!("{hosts} hosts"),
        points: SUBFLOWS.iter().zip(of).map(|(subflows, of)| (f64::from(*subflows), value(of).middle())).collect(),
    };
    let all = |value: fn(&Measured) -> &Seeds| -> Vec<Line> {
        HOSTS.iter().zip(measured).map(|(hosts, of)| line(hosts, of, value)).collect()
    };
    let mark = Some((baseline.total.middle(), "one TCP connection on each link".to_owned()));
    let capacity = f64::from(LINKS * LINK);
    let panels = [
        Panel { y: "total, Mbit/s".into(), range: [0.0, capacity], lines: all(|of| &of.total), mark },
        Panel { y: "Jain's index".into(), range: [0.5, 1.0], lines: all(|of| &of.jain), mark: None },
    ];
    let title = "Eight links of 50 Mbit/s, medians of the repetitions";
    findings.pictures.push(("subflows.svg".into(), lines(title, "subflows of a host", &panels, true)?));
    let mut cells = Vec::new();
    for (hosts, measured) in HOSTS.iter().zip(measured) {
        for (subflows, of) in SUBFLOWS.iter().zip(measured) {
            let medians = [&of.total, &of.jain, &of.used].map(Seeds::middle).to_vec();
            cells.push((format!("{hosts},{subflows}"), medians));
        }
    }
    findings.tables.push(("subflows.csv".into(), table("hosts,subflows,total_mbps,jain,links_used", &cells)));
    Ok(())
}

/// What the choices of delay and buffer decide, in short runs.
fn sweep(context: &mut Context<'_>, findings: &mut Findings) -> Result<(), ReproError> {
    let (size, delays, queues): (Size, &[_], &[_]) = match context.mode {
        Mode::Full => (
            Size { duration: 60, warmup: 30, seeds: 2 },
            &["2 ms", "10 ms", "40 ms"],
            &["100 packets", "250 packets", "500 packets", "1000 packets"],
        ),
        Mode::Quick => (Size { duration: 4, warmup: 2, seeds: 1 }, &["10 ms"], &["100 packets", "500 packets"]),
    };
    let mut cells = Vec::new();
    for &delay in delays {
        for &queue in queues {
            let mut numbers = Vec::new();
            for (hosts, subflows) in [(2, 8), (2, 32), (32, 2), (32, 32)] {
                let choices = Choices { delay, queue };
                let scenario = build(&branch("semper-fig3-sweep", hosts, LINKS, size, choices))?;
                let name = format!("sweep/{delay}-{queue}-{hosts}-{subflows}").replace(' ', "");
                let system = format!("semper:subflows={subflows}");
                let found = measure(context, &name, &scenario, &[system], size.seeds)?;
                let of = found.first().ok_or_else(|| ReproError::Missing("sweep".into()))?;
                let quantity = format!("{hosts} hosts, {subflows} subflows; delay {delay}, queue {queue}");
                let measures = [("total", "Mbit/s", &of.total), ("Jain's index", "", &of.jain)];
                for (what, unit, seeds) in measures {
                    let quantity = format!("{what}, {quantity}");
                    findings.rows.push(Row::median(quantity, unit, Paper::None, seeds, Rule::NoPaperValue));
                    numbers.push(seeds.middle());
                }
            }
            cells.push((format!("{delay},{queue}"), numbers));
        }
    }
    let of = |measure: &str| ["2x8", "2x32", "32x2", "32x32"].map(|which| format!("{measure}_{which}"));
    let columns: Vec<String> = of("total_mbps").into_iter().zip(of("jain")).flat_map(|(a, b)| [a, b]).collect();
    findings.tables.push(("sweep.csv".into(), table(&format!("delay,queue,{}", columns.join(",")), &cells)));
    Ok(())
}
