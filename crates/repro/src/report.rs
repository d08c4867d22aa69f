//! All results below a directory on one page.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use maud::{Markup, PreEscaped, html};
use sidestep_results::document;

use crate::{Outcome, Paper, ReproError, Row, Verdict, write::file};

/// A result or picture larger than this is left out, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// One page, without scripts, of every `ID/result.json` in `dir`; what cannot be read is named on it.
pub fn report(dir: &Path) -> Result<String, ReproError> {
    let mut places: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir).map_err(file(dir))? {
        let place = entry.map_err(file(dir))?.path();
        if place.join("result.json").is_file() {
            places.push(place);
        }
    }
    places.sort();
    let outcomes: Vec<Result<(&Path, Outcome), ReproError>> =
        places.iter().map(|place| Ok((place.as_path(), outcome(place)?))).collect();
    let readable = || outcomes.iter().flatten().map(|(_, outcome)| outcome);
    let body = html! {
        h1 { "The papers’ tables and figures, ours beside theirs" }
        @if readable().next().is_some() { (summary(&readable().collect::<Vec<_>>())) }
        @for outcome in &outcomes {
            @match outcome {
                Ok((place, outcome)) => { (section(place, outcome)) }
                Err(error) => { p.note { (error.to_string()) } }
            }
        }
        @if places.is_empty() {
            p { "Nothing has been run yet: " code { "sidestep repro run ID" } "." }
        }
    };
    Ok(document("Reproduction – sidestep", &body))
}

fn outcome(place: &Path) -> Result<Outcome, ReproError> {
    let path = place.join("result.json");
    serde_json::from_str(&read(&path)?).map_err(io::Error::other).map_err(file(&path))
}

/// How many rows have which verdict, in all and by experiment, with links to the sections.
fn summary(outcomes: &[&Outcome]) -> Markup {
    let count = |outcome: &Outcome, verdict| outcome.rows.iter().filter(|row| row.verdict == verdict).count();
    let total = |verdict| outcomes.iter().map(|outcome| count(outcome, verdict)).sum::<usize>();
    let words: Vec<String> =
        Verdict::ALL.iter().map(|verdict| format!("{} {}", total(*verdict), verdict.as_str())).collect();
    html! {
        p.headline { (words.join(", ")) "." }
        p {
            "A verdict is of one row. " em { "Undecided" } ": too few seeds, or an interval across a bound. " em { "No verdict" }
            ": ours cannot be judged by the paper’s value, and the row says why. " em { "No paper value" }
            ": the paper gives none, or the row is a check of our own."
        }
        div.scroll {
            table {
                tr {
                    th { "contents" }
                    th { "mode" }
                    @for verdict in Verdict::ALL { th { (verdict.as_str()) } }
                }
                @for outcome in outcomes {
                    tr {
                        th { a href=(format!("#{}", anchor(outcome))) { (outcome.id) } " " (outcome.figure) }
                        td { (outcome.mode.as_str()) }
                        @for verdict in Verdict::ALL { td style=[color(verdict)] { (count(outcome, verdict)) } }
                    }
                }
            }
        }
    }
}

/// The name of a section for links: letters, digits and hyphens of the experiment's.
fn anchor(outcome: &Outcome) -> String {
    outcome.id.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}

fn color(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Holds => Some("color:#007a4d"),
        Verdict::Differs => Some("color:#b3261e"),
        Verdict::Undecided | Verdict::NoPaperValue | Verdict::NoVerdict => None,
    }
}

fn section(place: &Path, outcome: &Outcome) -> Markup {
    let world = outcome.world.map_or("Computed".into(), |world| format!("Run in the {}", world.as_str()));
    // Only files of this directory: the names come from a file.
    let plain = outcome.pictures.iter().filter(|name| !name.contains(['/', '\\']) && name.ends_with(".svg"));
    let pictures = plain.filter_map(|name| Some((name, read(&place.join(name)).ok()?)));
    html! {
        h2 id=(anchor(outcome)) { (outcome.id) " – " (outcome.paper) ", " (outcome.figure) }
        p { (outcome.title) " " (world) ", " (outcome.mode.as_str()) " mode." }
        @for note in &outcome.notes { p.note { "Note: " (note) "." } }
        div.scroll {
            table {
                tr {
                    @for column in ["quantity", "unit", "paper", "ours", "95 %", "verdict", "why"] { th { (column) } }
                }
                @for row in &outcome.rows { (line(row)) }
            }
        }
        @for (name, svg) in pictures {
            figure { (picture(name, &svg)) }
        }
    }
}

fn line(row: &Row) -> Markup {
    let interval = row.ci95.map_or("–".into(), |[low, high]| format!("{low:.3} … {high:.3}"));
    html! {
        tr {
            th { (row.quantity) }
            td { (row.unit) }
            td {
                @match &row.paper {
                    Paper::Number(number) => { (number) }
                    Paper::Text(text) => { (text) }
                    Paper::None => { "–" }
                }
            }
            td { (format!("{:.3}", row.ours)) }
            td { (interval) }
            td style=[color(row.verdict)] { (row.verdict.as_str()) }
            // Sentences wrap; numbers do not.
            td style="white-space:normal;min-width:18rem;text-align:left" { (row.why) }
        }
    }
}

/// A picture of a file in a frame of its own, where it shows its values under the pointer; an image would not. It runs no
/// scripts and loads nothing there, whatever the file has in it.
fn picture(name: &str, svg: &str) -> Markup {
    let [width, height] = size(svg).unwrap_or([900, 600]);
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let frame = html! {
        meta http-equiv="Content-Security-Policy" content=(policy);
        style { "body{margin:0}svg{display:block;width:100%;height:auto}" }
        (PreEscaped(svg))
    };
    html! {
        iframe sandbox="" title=(name) srcdoc=(frame.into_string())
            style=(format!("border:0;width:100%;min-width:46rem;max-width:{width}px;aspect-ratio:{width}/{height}")) {}
    }
}

/// The width and height that an SVG declares, in pixels.
fn size(svg: &str) -> Option<[u32; 2]> {
    let head = svg.split_once("<svg")?.1.split_once('>')?.0;
    let value = |name: &str| {
        let text = head.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0;
        text.parse().ok().filter(|pixels| (1..=10_000).contains(pixels))
    };
    Some([value("width")?, value("height")?])
}

fn read(path: &Path) -> Result<String, ReproError> {
    let mut text = String::new();
    let open = fs::File::open(path).map_err(file(path))?;
    open.take(MAX_FILE + 1).read_to_string(&mut text).map_err(file(path))?;
    if text.len() as u64 > MAX_FILE {
        return Err(file(path)(io::Error::other("is larger than 16 MiB")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(dir: &Path, id: &str, text: &str) {
        fs::create_dir_all(dir.join(id)).unwrap();
        fs::write(dir.join(id).join("result.json"), text).unwrap();
    }

    fn outcome(quantity: &str) -> String {
        let row = crate::Row::new(
            quantity,
            "Mbit/s",
            Paper::Text("at most 100".into()),
            sidestep_results::Estimate { mean: 93.5, ci95: [93.0, 94.0] },
            crate::Rule::AtMost(100.0),
        );
        let outcome = Outcome {
            schema: 1,
            id: quantity.into(),
            paper: "P".into(),
            figure: "F".into(),
            title: "T".into(),
            mode: crate::Mode::Quick,
            world: Some(sidestep_results::World::Sim),
            notes: vec!["from <other> data".into()],
            rows: vec![row],
            pictures: vec!["../secret.svg".into(), "p.svg".into()],
        };
        serde_json::to_string(&outcome).unwrap()
    }

    #[test]
    fn a_broken_result_is_named_and_the_others_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret.svg"), "<svg>SECRET</svg>").unwrap();
        write(dir.path(), "a", &outcome("first"));
        write(dir.path(), "b", "{ not json");
        write(dir.path(), "c", &outcome("second"));
        let page = report(dir.path()).unwrap();
        assert!(page.contains("2 holds, 0 differs, 0 undecided, 0 no verdict, 0 no paper value."), "{page}");
        assert!(page.contains("href=\"#first\"") && page.contains("id=\"first\""));
        assert!(page.contains("first") && page.contains("second") && page.contains("holds"));
        assert!(page.contains("b/result.json") && !page.contains("SECRET"));
        assert!(page.contains("Note: from &lt;other&gt; data."));
    }

    #[test]
    fn pictures_are_shown_where_they_tell_values_and_run_no_scripts() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a", &outcome("first"));
        let svg = "<svg width=\"760\" height=\"460\"><title>5 &lt; 6</title><script>alert(1)</script></svg>";
        fs::write(dir.path().join("a/p.svg"), svg).unwrap();
        let page = report(dir.path()).unwrap();
        assert!(page.contains("<iframe sandbox=\"\" title=\"p.svg\" srcdoc=\""), "{page}");
        assert!(page.contains("max-width:760px;aspect-ratio:760/460"), "{page}");
        assert!(page.contains("&lt;title&gt;5 &amp;lt; 6") && !page.contains("<script"), "{page}");
        assert!(page.contains("default-src 'none'"), "{page}");
        assert_eq!([size("<svg width=\"0\" height=\"1\">"), size("<svg>"), size("")], [None; 3]);
    }

    #[test]
    fn without_results_the_page_shows_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        assert!(report(dir.path()).unwrap().contains("sidestep repro run"));
        assert!(report(&dir.path().join("nowhere")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_becomes_markup(text in "[<>\"'&a-z/ ]{0,40}") {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), "x", &outcome(&format!("{text}<script>alert(1)</script>")));
            prop_assert!(!report(dir.path()).unwrap().contains("<script"));
        }
    }
}
