//! SEMPER, Figure 4: stateless against stateful edges, by the number of links.

use super::{
    build,
    semper::{CHOSEN, LINK, Measured, PAPER, Size, branch, measure, table},
};
use crate::{Context, Experiment, Findings, Line, Panel, Paper, ReproError, Row, Rule, Seeds, lines};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "semper-fig4",
    paper: PAPER,
    figure: "Figure 4",
    title: "Four hosts over two to eight links: stateless edges reach nearly what stateful ones do.",
    worlds: &[sidestep_results::World::Sim],
    run,
};

const HOSTS: u32 = 4;
const LINKS: std::ops::RangeInclusive<u32> = 2..=8;
/// Subflows of a host behind stateless edges; behind stateful ones it has one for each link.
const SUBFLOWS: u32 = 32;
const NAMES: [&str; 2] = ["stateless", "stateful"];
/// The share of the links' rate that is near capacity.
const NEAR: f64 = 0.85;
/// The share of the links' rate that headers leave: of a packet of 1500 bytes 1408 are data.
const GOODPUT: f64 = 1408.0 / 1500.0;
const FAIR: f64 = 0.9;

fn run(context: &mut Context<'_>) -> Result<Findings, ReproError> {
    let size = Size::of(context.mode);
    let mut measured: Vec<[Measured; 2]> = Vec::new();
    for links in LINKS {
        let scenario = build(&branch("semper-fig4", HOSTS, links, size, CHOSEN))?;
        let systems = [format!("semper:subflows={SUBFLOWS}"), format!("semper-stateful:subflows={links}")];
        let found = measure(context, &format!("links-{links}"), &scenario, &systems, size.seeds)?;
        measured.push(found.try_into().map_err(|_| ReproError::Missing("systems".into()))?);
    }
    let mut findings = Findings { rows: rows(&measured), ..Findings::default() };
    draw(&measured, &mut findings)?;
    Ok(findings)
}

fn rows(measured: &[[Measured; 2]]) -> Vec<Row> {
    let text = |text: &str| Paper::Text(text.into());
    let mut rows = Vec::new();
    for (links, of) in LINKS.zip(measured) {
        for (name, of) in NAMES.iter().zip(of) {
            let near = Rule::AtLeast(NEAR * f64::from(links * LINK));
            let quantity = format!("total, {links} links, {name}");
            rows.push(Row::median(quantity, "Mbit/s", text("near capacity"), &of.total, near));
            let quantity = format!("Jain's index, {links} links, {name}");
            rows.push(Row::median(quantity, "", text("near one"), &of.jain, Rule::AtLeast(FAIR)));
        }
    }
    let (Some(two), Some(eight)) = (measured.first(), measured.last()) else { return rows };
    for (index, name) in NAMES.iter().enumerate() {
        // The paper's "below 400" is no question here: headers alone leave 375.
        let quantity = format!("share of what headers leave, 8 links, {name}");
        let share = eight[index].total.scaled(100.0 / (GOODPUT * f64::from(8 * LINK)));
        rows.push(Row::median(quantity, "%", Paper::None, &share, Rule::NoPaperValue));
        let quantity = format!("drop of Jain's index at 2 links, {name}: 8 links less 2");
        let order = [("2 links", &two[index].jain), ("8 links", &eight[index].jain)];
        rows.push(Row::ordered(quantity, "", text("a drop at 2 links"), &order, 0.0));
        // The paper explains what is missing at eight links by links without subflows.
        let quantity = format!("links used of 8, {name}");
        rows.push(Row::median(quantity, "links", Paper::None, &eight[index].used, Rule::NoPaperValue));
    }
    let order = [("stateless", &eight[0].total), ("stateful", &eight[1].total)];
    let paper = text("stateless slightly lower");
    rows.push(Row::ordered("stateful less stateless, 8 links", "Mbit/s", paper, &order, 0.0));
    rows
}

fn draw(measured: &[[Measured; 2]], findings: &mut Findings) -> Result<(), ReproError> {
    let line = |index: usize, value: &dyn Fn(u32, &Measured) -> f64| Line {
        label: NAMES[index].into(),
        points: LINKS.zip(measured).map(|(links, of)| (f64::from(links), value(links, &of[index]))).collect(),
    };
    let both = |value: &dyn Fn(u32, &Measured) -> f64| vec![line(0, value), line(1, value)];
    let share = |links: u32, of: &Measured| 100.0 * of.total.middle() / f64::from(links * LINK);
    let panels = [
        Panel { y: "total, Mbit/s".into(), range: [0.0, 400.0], lines: both(&|_, of| of.total.middle()), mark: None },
        Panel {
            y: "total, % of the links' rate".into(),
            range: [80.0, 100.0],
            lines: both(&share),
            mark: Some((100.0 * GOODPUT, "without headers".into())),
        },
        Panel { y: "Jain's index".into(), range: [0.5, 1.0], lines: both(&|_, of| of.jain.middle()), mark: None },
    ];
    let title = "Four hosts over links of 50 Mbit/s, medians of the repetitions";
    findings.pictures.push(("links.svg".into(), lines(title, "links", &panels, true)?));
    let mut cells = Vec::new();
    for (links, of) in LINKS.zip(measured) {
        for (name, of) in NAMES.iter().zip(of) {
            cells.push((format!("{links},{name}"), [&of.total, &of.jain, &of.used].map(Seeds::middle).to_vec()));
        }
    }
    findings.tables.push(("links.csv".into(), table("links,edge,total_mbps,jain,links_used", &cells)));
    Ok(())
}
