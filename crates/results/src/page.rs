//! `index.html`: a run on one page that needs nothing beside it.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sidestep_net::Bytes;

use crate::{
    PathUpdates, RunResult, SystemResult, World,
    summary::{Column, columns, differences, exact, or_dash, percent, printable_lines, seconds},
};

const STYLE: &str = include_str!("page.css");

/// The pictures of a run as SVG text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pictures<'a> {
    /// Goodput and paths over time.
    pub(crate) plot: &'a str,
    /// How completion times are spread, if transfers completed.
    pub(crate) times: Option<&'a str>,
}

/// The page of a run: headline, tables, why to doubt it, pictures, links to `files`, and `command`, which reproduces the run.
///
/// The page has no scripts and loads nothing; it links to the files that a [`Writer`](crate::Writer) puts beside it.
pub(crate) fn page(run: &RunResult, pictures: &Pictures<'_>, files: &[&str], command: &str) -> String {
    let world = match run.world {
        World::Lab => "in the lab: Linux network namespaces, the kernel's own TCP",
        World::Sim => "in the simulator",
    };
    let body = html! {
        h1 { (run.scenario) ", " (world) ", " (seeds(run)) }
        p.headline { (headline(run)) }
        div.scroll { (summary_table(run)) }
        p { small { (columns(run).into_iter().filter_map(Column::meaning).collect::<Vec<_>>().join(" ")) } }
        (differences_table(run))
        @for doubt in &run.validity {
            p { strong { "Doubt: " } (doubt.system) ": " (doubt.text) "." }
        }
        @for line in run.incomplete() {
            p { strong { "Incomplete: " } (line) }
        }
        @if run.seeds > 1 {
            p {
                "Tables, curves and completion times are of all " (run.seeds) " seeds: tables have means ± half of the 95 % \
                 confidence interval. Paths, moves and what follows are of seed " (run.seed) "."
            }
        }
        (notes(run))
        figure { (PreEscaped(pictures.plot)) }
        @if let Some(times) = pictures.times {
            figure { (PreEscaped(times)) }
        }
        h2 { "Utilisation of each path, second half of the run" }
        div.scroll { (path_table(run)) }
        (size_table(run))
        (recovery_table(run))
        h2 { "Run it again" }
        pre { (command) }
        h2 { "Files" }
        p {
            @for (number, file) in files.iter().enumerate() {
                @if number > 0 { " · " }
                a href=(file) { (file) }
            }
        }
    };
    document(&format!("{} – sidestep", run.scenario), &body)
}

fn headline(run: &RunResult) -> &str {
    run.headline.as_ref().map_or("", |headline| headline.text.as_str())
}

fn seeds(run: &RunResult) -> String {
    match run.seeds {
        ..=1 => format!("seed {}", run.seed),
        number => format!("{number} seeds from {} on", run.seed),
    }
}

/// How far systems are from the baseline seed by seed, if there are several seeds.
fn differences_table(run: &RunResult) -> Markup {
    let found = differences(run);
    html! {
        @if let Some((titles, rows)) = found {
            p {
                "How far each system is from the baseline, seed by seed: both have the same traffic and the same failures \
                 under a seed. Mean ± half of the 95 % confidence interval; an interval with zero in it shows no difference."
            }
            @let rows = rows.into_iter().filter_map(|mut row| Some((row.first()?.clone(), row.split_off(1))));
            div.scroll { (table(&titles.iter().map(String::as_str).collect::<Vec<_>>(), rows)) }
        }
    }
}

/// A whole page with this title and body, in the style of all pages; control characters are replaced.
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    printable_lines(page.into_string()) + "\n"
}

fn summary_table(run: &RunResult) -> Markup {
    let columns = columns(run);
    let rows = run.systems.iter().map(|(name, system)| {
        let mut cells = columns.iter().map(|column| column.cell(run, name, system));
        (cells.next().unwrap_or_default(), cells.collect())
    });
    table(&columns.iter().map(|column| column.title()).collect::<Vec<_>>(), rows)
}

/// Completion times by size, if any flow completed.
fn size_table(run: &RunResult) -> Markup {
    let mut rows = Vec::new();
    for (name, system) in run.systems.iter() {
        for bucket in &system.fct_by_size {
            let size = bucket.up_to_bytes.map_or("more".into(), |bytes| format!("up to {}", Bytes::new(bytes)));
            let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
            let numbers = vec![bucket.flows.to_string(), ms(bucket.afct_s), ms(bucket.p50_s), ms(bucket.p99_s)];
            rows.push((format!("{name}, {size}"), numbers));
        }
    }
    html! {
        @if !rows.is_empty() {
            h2 { "Completion times by size" }
            div.scroll { (table(&["system, size", "flows", "mean ms", "median ms", "99 % ms"], rows)) }
        }
    }
}

/// What timeouts cost, if there were any.
fn recovery_table(run: &RunResult) -> Markup {
    let rows = run.systems.iter().filter_map(|(name, system)| {
        let recovery = system.recovery?;
        let rtos = |rtos: Option<f64>| or_dash(rtos.map(|rtos| format!("{rtos:.2}")));
        let numbers = vec![
            recovery.delivered.to_string(),
            rtos(recovery.median_rtos),
            rtos(recovery.p95_rtos),
            rtos(recovery.max_rtos),
            recovery.before_third_timeout.to_string(),
            recovery.stalled.to_string(),
        ];
        Some((name.to_owned(), numbers))
    });
    let rows: Vec<_> = rows.collect();
    let columns = ["system", "delivered again", "median", "95 %", "longest", "before the third timeout", "stalled"];
    html! {
        @if !rows.is_empty() {
            h2 { "After timeouts" }
            p {
                "From a connection's first retransmission timeout (RTO) until data is acknowledged again, in RTOs that it \
                 had then."
            }
            div.scroll { (table(&columns, rows)) }
        }
    }
}

fn path_table(run: &RunResult) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in run.systems.values().flat_map(|system| system.paths.iter()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut columns = vec!["path", "capacity Mbit/s"];
    columns.extend(run.systems.iter().map(|(system, _)| system));
    let rows = names.into_iter().map(|name| {
        let of_systems: Vec<_> = run.systems.values().map(|system| system.paths.get(name)).collect();
        let capacity = of_systems.iter().flatten().find_map(|path| path.capacity_mbps);
        let mut cells = vec![or_dash(capacity.map(exact))];
        cells.extend(
            of_systems.iter().map(|path| or_dash(path.and_then(|path| path.utilisation_second_half).map(percent))),
        );
        (name.to_owned(), cells)
    });
    table(&columns, rows)
}

/// The other notes on each system, one line each.
fn notes(run: &RunResult) -> Markup {
    html! {
        @if !run.systems.is_empty() {
            p {
                @for (name, system) in run.systems.iter() {
                    small { (name) ": " (facts(system).join("; ")) }
                    br;
                }
            }
        }
    }
}

/// What the system alone measures, `caches.stored 12`: groups are joined by dots.
fn own_measures(own: &serde_json::Map<String, serde_json::Value>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in own {
        match value.as_object() {
            Some(group) => found.extend(own_measures(group).into_iter().map(|inner| format!("{name}.{inner}"))),
            None => found.push(format!("{name} {value}")),
        }
    }
    found
}

fn facts(system: &SystemResult) -> Vec<String> {
    let mut facts = vec![
        match system.planned_s {
            Some(planned) => format!("{} of {planned:.0} s", seconds(system.duration_s)),
            None => format!("{:.0} s", system.duration_s),
        },
        format!("connections: {}", system.connections),
        format!("retransmitted segments: {}", system.retransmits),
    ];
    if let Some(unfinished) = system.unfinished {
        facts.push(format!("transfers that had not ended with the run: {}", unfinished.flows));
    }
    if !system.moves.is_empty() {
        let reasons: Vec<String> = system.moves.iter().map(|(reason, count)| format!("{count} for {reason}")).collect();
        facts.push(format!("moves: {}", reasons.join(", ")));
    }
    for PathUpdates { at_s, change, agents, last_s } in &system.path_updates {
        facts.push(format!(
            "link {change} at {at_s:.1} s: {agents} agents had other paths after {:.0} ms",
            last_s * 1e3
        ));
    }
    let own = own_measures(&system.own);
    if !own.is_empty() {
        facts.push(format!("its own measures: {}", own.join(", ")));
    }
    if let Some(late) = system.late_ms_max {
        facts.push(format!("wires were at worst {late:.1} ms late"));
    }
    if !system.drops.is_empty() {
        let causes: Vec<_> = system.drops.iter().map(|(cause, packets)| format!("{packets} ({cause})")).collect();
        facts.push(format!("dropped packets: {}", causes.join(", ")));
    }
    facts.extend(system.notes.iter().cloned());
    facts
}

/// A table with these columns; a row is its first cell, which names it, and the cells after that.
fn table(columns: &[&str], rows: impl IntoIterator<Item = (String, Vec<String>)>) -> Markup {
    html! {
        table {
            thead {
                tr {
                    @for column in columns { th { (column) } }
                }
            }
            tbody {
                @for (first, rest) in rows {
                    tr {
                        th { (first) }
                        @for cell in rest { td { (cell) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plot, testing};

    fn make(systems: &[&str], paths: usize) -> (RunResult, String) {
        let (run, traces) = testing::traced_run(systems, paths);
        let plot = plot(&run, &traces, &Default::default()).unwrap();
        let pictures = Pictures { plot: &plot, times: None };
        let html = page(&run, &pictures, &crate::writer::FILES, "sidestep lab run \"a<b\" && ls");
        (run, html)
    }

    /// Every text of the page; fails unless every element ends and every text is escaped.
    fn texts(html: &str) -> Vec<String> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let xml = html.replace("initial-scale=1\">", "initial-scale=1\"/>").replace("utf-8\">", "utf-8\"/>");
        let xml = xml.replace("<br>", "<br/>");
        let document = roxmltree::Document::parse_with_options(&xml, options).unwrap();
        document
            .descendants()
            .filter(|node| node.is_text())
            .map(|node| node.text().unwrap().trim().to_owned())
            .collect()
    }

    #[test]
    fn the_page_is_well_formed_and_shows_what_it_must() {
        let (_, html) = make(&["tcp", "pathchanger"], 6);
        let texts = texts(&html);
        for wanted in
            ["pathchanger", "p6", "ceiling 600", "× tcp", "scenario.resolved.toml", "sidestep lab run \"a<b\" && ls"]
        {
            assert!(texts.iter().any(|text| text == wanted), "{wanted} is not among {texts:?}");
        }
    }

    #[test]
    fn what_the_columns_mean_stands_below_them() {
        let (_, html) = make(&["tcp"], 2);
        assert!(html.contains("Jain's index") && html.contains("Moves: ") && !html.contains("Mean time"), "{html}");
    }

    #[test]
    fn the_page_needs_nothing_beside_it_and_runs_nothing() {
        let (_, html) = make(&["tcp", "ecmp"], 2);
        for banned in ["<script", "src=", "@import", "url(", "<link", "https://"] {
            assert!(!html.contains(banned), "{banned}");
        }
    }

    #[test]
    fn names_that_need_escaping_come_out_as_they_are() {
        let name = "<script>alert('&')</script>\u{7}\"";
        let (mut run, _) = make(&[name], 1);
        run.scenario = name.into();
        run.systems.get_mut(name).unwrap().notes.push(name.into());
        run.systems.get_mut(name).unwrap().moves.insert(name.into(), 1);
        let html = page(&run, &Pictures { plot: "", times: None }, &[], name);
        assert!(!html.contains("<script"));
        let shown = "<script>alert('&')</script>\u{fffd}\"";
        let texts = texts(&html);
        assert!(texts.iter().filter(|text| text.contains(shown)).count() >= 5, "{texts:?}");
    }

    #[test]
    fn the_page_and_the_picture_of_a_run_that_was_cut_short_show_that_and_compare_nothing() {
        let (mut run, traces) = testing::traced_run(&["tcp", "pathchanger"], 6);
        let system = run.systems.get_mut("pathchanger").unwrap();
        (system.duration_s, system.planned_s, system.goodput_mbps) = (2.5, Some(60.0), f64::NAN);
        system.incomplete.push("interrupted after 2.5s of 60s".into());
        let picture = plot(&run, &traces, &Default::default()).unwrap();
        run.conclude(&testing::catalogue());
        let html = page(&run, &Pictures { plot: &picture, times: None }, &[], "");
        let texts = texts(&html);
        for wanted in
            ["The run was interrupted", "pathchanger: 2.50 s of 60 s; ", "pathchanger: interrupted after 2.5s of 60s"]
        {
            assert!(texts.iter().any(|text| text.starts_with(wanted)), "{wanted} is not in {texts:?}");
        }
        assert!(picture.contains("· interrupted") && !html.contains("NaN") && !html.contains(" × "), "{html}");
    }

    #[test]
    fn several_seeds_have_their_differences_on_the_page_and_it_shows_what_is_of_one() {
        let mut run = testing::run(&["tcp", "pathchanger"], 2);
        for (name, mbps) in [("tcp", 20.0), ("pathchanger", 70.0)] {
            let system = run.systems.get_mut(name).unwrap();
            system.goodput_mbps = mbps;
            let other = SystemResult { goodput_mbps: mbps + 20.0, ..system.clone() };
            system.repeated = crate::Repeated::of(&[system.clone(), other]);
        }
        run.conclude(&testing::catalogue());
        let html = page(&run, &Pictures { plot: "", times: Some("<svg id=\"times\"></svg>") }, &[], "");
        for wanted in [
            "2 seeds from 7 on",
            "what follows are of seed 7.",
            "less tcp, seed by seed",
            "<td>+50.0 ± 0.0</td>",
            "id=\"times\"",
        ] {
            assert!(html.contains(wanted), "{wanted}: {html}");
        }
    }

    #[test]
    fn reasons_to_doubt_are_on_the_page_and_in_the_terminal_as_they_are_in_the_file() {
        let mut run = testing::run(&["tcp", "route-control"], 1);
        let doubt = crate::Doubt::new(crate::DoubtKind::CouldNotAct, "nothing <to> choose\u{7}");
        run.systems.get_mut("route-control").unwrap().validity.push(doubt);
        run.conclude(&testing::catalogue());
        let html = page(&run, &Pictures { plot: "", times: None }, &[], "");
        assert!(html.contains("route-control: nothing &lt;to&gt; choose\u{fffd}."), "{html}");
        let terminal = crate::table(&run);
        assert!(terminal.contains("\ndoubt: route-control: nothing <to> choose\u{fffd}"), "{terminal}");
        let json = serde_json::to_value(&run).unwrap();
        assert_eq!(
            (&json["validity"][0]["kind"], &json["validity"][0]["system"]),
            (&"could-not-act".into(), &"route-control".into())
        );
    }

    #[test]
    fn what_a_system_alone_measures_is_on_the_page() {
        let mut run = testing::run(&["own"], 1);
        let own = serde_json::json!({ "turns": 7, "caches": { "custody": { "dropped": 0 } } });
        run.systems.get_mut("own").unwrap().own = own.as_object().unwrap().clone();
        let html = page(&run, &Pictures { plot: "", times: None }, &[], "");
        assert!(html.contains("its own measures: caches.custody.dropped 0, turns 7"), "{html}");
    }

    #[test]
    fn a_path_that_one_system_lacks_has_a_dash() {
        let mut run = testing::run(&["tcp", "ecmp"], 2);
        run.systems.get_mut("ecmp").unwrap().paths = Default::default();
        let table = path_table(&run).into_string();
        assert!(table.contains("<tr><th>p2</th><td>100</td><td>1 %</td><td>–</td></tr>"), "{table}");
    }
}
