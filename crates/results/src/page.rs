//! `index.html`: a run on one page that needs nothing beside it.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sidestep_model::Bytes;

use crate::{
    PathUpdates, RunResult, SystemResult, World,
    summary::{
        Column, MANY, columns, exact, mean_goodput, mean_time, megabits, or_dash, percent, printable_lines, seconds,
        times_tcp,
    },
};

const STYLE: &str = include_str!("page.css");

/// The page of a run: headline, tables, the plot (SVG text, as [`plot`](crate::plot) returns it), links to `files`, and
/// `command`, which reproduces the run.
///
/// The page has no scripts and loads nothing; it links to the files that a [`Writer`](crate::Writer) puts beside it.
pub fn page(run: &RunResult, plot: &str, files: &[&str], command: &str) -> String {
    let world = match run.world {
        World::Lab => "in the lab: Linux network namespaces, the kernel's own TCP",
        World::Sim => "in the simulator",
    };
    let body = html! {
        h1 { (run.scenario) ", " (world) ", " (seeds(run)) }
        p.headline { (headline(run)) }
        div.scroll { (summary_table(run)) }
        p { small { (columns(run).into_iter().filter_map(Column::meaning).collect::<Vec<_>>().join(" ")) } }
        @for line in run.incomplete() {
            p { strong { "Incomplete: " } (line) }
        }
        @if repeated(run).is_some() {
            p { "Above are means over the seeds, ± half of the 95 % confidence interval; below is seed " (run.seed) "." }
        }
        (notes(run))
        figure { (PreEscaped(plot)) }
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

/// Over how many seeds the run's numbers are means.
fn repeated(run: &RunResult) -> Option<u32> {
    run.systems.values().find_map(|system| system.repeated.as_ref()).map(|repeated| repeated.seeds)
}

fn seeds(run: &RunResult) -> String {
    match repeated(run) {
        Some(number) => format!("{number} seeds from {} on", run.seed),
        None => format!("seed {}", run.seed),
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

/// The run in a sentence or two, by means over the seeds. Where connections send without an end it is about goodput: the
/// system that carried most, beside plain TCP and the ceiling, and how long transfers took under both if there were any.
/// Where all transfers have a size it is about the time that these took.
fn headline(run: &RunResult) -> String {
    if run.is_cut() {
        return "The run was interrupted: its numbers are of the time that it ran, and compare no systems.".into();
    }
    let times: Vec<(&str, f64)> = run.systems.iter().filter_map(|(name, one)| Some((name, mean_time(one)?))).collect();
    let tcp_time = run.systems.get("tcp").and_then(mean_time);
    if run.is_of_transfers() && times.len() == run.systems.len() {
        let Some((name, least)) = times.into_iter().min_by(|one, other| one.1.total_cmp(&other.1)) else {
            return "No system has been run.".into();
        };
        let amount = format!("{} on average", seconds(least));
        return match tcp_time {
            Some(tcp) if name != "tcp" => {
                format!(
                    "Transfers took {amount} under {name}, and {} under plain TCP{}.",
                    seconds(tcp),
                    as_long(tcp / least)
                )
            }
            Some(_) if run.systems.len() > 1 => format!("Transfers took the least time under plain TCP: {amount}."),
            _ => format!("Transfers took {amount} under {name}."),
        };
    }
    let best = run.systems.iter().max_by(|one, other| mean_goodput(one.1).total_cmp(&mean_goodput(other.1)));
    let Some((name, system)) = best else { return "No system has been run.".into() };
    let ceiling =
        run.ceiling().map_or(String::new(), |ceiling| format!(" of the {} that the paths hold", exact(ceiling)));
    let amount = format!("{} Mbit/s{ceiling}", megabits(mean_goodput(system)));
    let carried = match times_tcp(run, system) {
        Some(times) if name != "tcp" && times < MANY => {
            format!("{name} carried {times:.1} × what plain TCP did: {amount}.")
        }
        Some(_) if name != "tcp" => format!("{name} carried {amount}, and plain TCP next to nothing."),
        Some(_) if run.systems.len() > 1 => format!("Plain TCP carried most: {amount}."),
        _ => format!("{name} carried {amount}."),
    };
    // Who carries most may do so at the cost of those that want to end soon.
    let took = match (mean_time(system), tcp_time) {
        (Some(own), Some(tcp)) if name != "tcp" => {
            format!(" Transfers took {} on average, and {} under plain TCP.", seconds(own), seconds(tcp))
        }
        (Some(own), _) => format!(" Transfers took {} on average.", seconds(own)),
        (None, _) => String::new(),
    };
    carried + &took
}

/// How many times as long, where that says something: not of times that are nearly the same, nor of next to nothing.
fn as_long(times: f64) -> String {
    if (1.05..MANY).contains(&times) { format!(": {times:.1} × as long") } else { String::new() }
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

/// What else there is to say of each system, one line each.
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
    if let Some(late) = system.late_ms_max {
        facts.push(format!("wires were at worst {late:.1} ms late"));
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
        let html = page(
            &run,
            &plot(&run, &traces, &Default::default()).unwrap(),
            &crate::writer::FILES,
            "sidestep lab run \"a<b\" && ls",
        );
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
    fn the_page_is_well_formed_and_says_what_it_must() {
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
        let html = page(&run, "", &[], name);
        assert!(!html.contains("<script"));
        let shown = "<script>alert('&')</script>\u{fffd}\"";
        let texts = texts(&html);
        assert!(texts.iter().filter(|text| text.contains(shown)).count() >= 5, "{texts:?}");
    }

    #[test]
    fn the_headline_gives_the_multiple_of_plain_tcp_and_the_ceiling() {
        let mut run = testing::run(&["tcp", "ecmp", "pathchanger"], 6);
        for (name, mbps) in [("tcp", 94.0), ("ecmp", 420.0), ("pathchanger", 507.6)] {
            run.systems.get_mut(name).unwrap().goodput_mbps = mbps;
        }
        assert_eq!(
            headline(&run),
            "pathchanger carried 5.4 × what plain TCP did: 508 Mbit/s of the 600 that the paths hold."
        );
        run.systems.get_mut("tcp").unwrap().goodput_mbps = 0.001;
        assert_eq!(
            headline(&run),
            "pathchanger carried 508 Mbit/s of the 600 that the paths hold, and plain TCP next to nothing."
        );
        run.ceiling_mbps = Some(568.75);
        run.systems.get_mut("tcp").unwrap().goodput_mbps = 550.0;
        assert_eq!(headline(&run), "Plain TCP carried most: 550 Mbit/s of the 568.75 that the paths hold.");
        let mut alone = testing::run(&["irc"], 1);
        alone.systems.get_mut("irc").unwrap().paths = Default::default();
        alone.systems.get_mut("irc").unwrap().goodput_mbps = 9.0;
        assert_eq!(headline(&alone), "irc carried 9.0 Mbit/s.");
        assert_eq!(headline(&RunResult::new("none", World::Sim, 1)), "No system has been run.");
    }

    #[test]
    fn the_page_and_the_picture_of_a_run_that_was_cut_short_say_so_and_compare_nothing() {
        let (mut run, traces) = testing::traced_run(&["tcp", "pathchanger"], 6);
        let system = run.systems.get_mut("pathchanger").unwrap();
        (system.duration_s, system.planned_s, system.goodput_mbps) = (2.5, Some(60.0), f64::NAN);
        system.incomplete.push("interrupted after 2.5s of 60s".into());
        let picture = plot(&run, &traces, &Default::default()).unwrap();
        let html = page(&run, &picture, &[], "");
        let texts = texts(&html);
        for wanted in
            ["The run was interrupted", "pathchanger: 2.50 s of 60 s; ", "pathchanger: interrupted after 2.5s of 60s"]
        {
            assert!(texts.iter().any(|text| text.starts_with(wanted)), "{wanted} is not in {texts:?}");
        }
        assert!(picture.contains("· interrupted") && !html.contains("NaN") && !html.contains(" × "), "{html}");
    }

    #[test]
    fn the_headline_of_transfers_is_about_the_time_that_they_took() {
        let mut run = testing::run(&["tcp", "pathchanger"], 2);
        for (name, mean) in [("tcp", 0.5), ("pathchanger", 0.125)] {
            let system = run.systems.get_mut(name).unwrap();
            (system.afct_s, system.fct_p99_s, system.fairness_endless) = (Some(mean), Some(2.0), None);
        }
        assert_eq!(
            headline(&run),
            "Transfers took 0.125 s on average under pathchanger, and 0.500 s under plain TCP: 4.0 × as long."
        );
        run.systems.get_mut("tcp").unwrap().afct_s = Some(0.1251);
        assert_eq!(headline(&run), "Transfers took 0.125 s on average under pathchanger, and 0.125 s under plain TCP.");
        run.systems.get_mut("tcp").unwrap().afct_s = Some(0.12);
        assert_eq!(headline(&run), "Transfers took the least time under plain TCP: 0.120 s on average.");
        let mut alone = RunResult::new("alone", World::Sim, 1);
        alone.systems.insert("irc", run.systems.get("tcp").unwrap().clone());
        assert_eq!(headline(&alone), "Transfers took 0.120 s on average under irc.");
    }

    #[test]
    fn the_headline_says_how_long_transfers_took_beside_connections_without_an_end() {
        let mut run = testing::run(&["tcp", "random"], 2);
        for (name, mbps, mean) in [("tcp", 13.5, 0.905), ("random", 21.9, 1.29)] {
            let system = run.systems.get_mut(name).unwrap();
            (system.goodput_mbps, system.afct_s, system.fct_p99_s) = (mbps, Some(mean), Some(9.0));
        }
        run.ceiling_mbps = Some(300.0 / 7.0);
        let most = "random carried 1.6 × what plain TCP did: 22 Mbit/s of the 42.86 that the paths hold.";
        assert_eq!(headline(&run), format!("{most} Transfers took 1.29 s on average, and 0.905 s under plain TCP."));
        run.systems.get_mut("tcp").unwrap().goodput_mbps = 40.0;
        assert!(
            headline(&run).ends_with("that the paths hold. Transfers took 0.905 s on average."),
            "{}",
            headline(&run)
        );
    }

    #[test]
    fn the_headline_of_several_seeds_is_of_their_means_and_the_page_says_what_is_of_one() {
        let mut run = testing::run(&["tcp", "pathchanger"], 2);
        for (name, mbps) in [("tcp", 20.0), ("pathchanger", 70.0)] {
            let system = run.systems.get_mut(name).unwrap();
            system.goodput_mbps = mbps;
            let other = SystemResult { goodput_mbps: mbps + 20.0, ..system.clone() };
            system.repeated = crate::Repeated::of(&[system.clone(), other]);
        }
        assert!(
            headline(&run).starts_with("pathchanger carried 2.7 × what plain TCP did: 80 Mbit/s"),
            "{}",
            headline(&run)
        );
        let html = page(&run, "", &[], "");
        assert!(html.contains("2 seeds from 7 on") && html.contains("below is seed 7."), "{html}");
    }

    #[test]
    fn a_path_that_one_system_lacks_has_a_dash() {
        let mut run = testing::run(&["tcp", "ecmp"], 2);
        run.systems.get_mut("ecmp").unwrap().paths = Default::default();
        let table = path_table(&run).into_string();
        assert!(table.contains("<tr><th>p2</th><td>100</td><td>1 %</td><td>–</td></tr>"), "{table}");
    }
}
