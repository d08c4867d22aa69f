//! All results below a directory on one page.

use std::{
    fmt::Write,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use maud::{Markup, html};
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
    let sections = places.iter().map(|place| section(place));
    let body = html! {
        h1 { "The papers’ tables and figures, ours beside theirs" }
        @for section in sections {
            @match section {
                Ok(section) => { (section) }
                Err(error) => { p.note { (error.to_string()) } }
            }
        }
        @if places.is_empty() {
            p { "Nothing has been run yet: " code { "sidestep repro run ID" } "." }
        }
    };
    Ok(document("Reproduction – sidestep", &body))
}

fn section(place: &Path) -> Result<Markup, ReproError> {
    let path = place.join("result.json");
    let outcome: Outcome = serde_json::from_str(&read(&path)?).map_err(io::Error::other).map_err(file(&path))?;
    let world = outcome.world.map_or("Computed".into(), |world| format!("Run in the {}", world.as_str()));
    // Only files of this directory: the names come from a file.
    let plain = outcome.pictures.iter().filter(|name| !name.contains(['/', '\\']) && name.ends_with(".svg"));
    let pictures = plain.filter_map(|name| Some((name, data_address(&read(&place.join(name)).ok()?))));
    Ok(html! {
        h2 { (outcome.id) " – " (outcome.paper) ", " (outcome.figure) }
        p { (outcome.title) " " (world) ", " (outcome.mode.as_str()) " mode." }
        div.scroll {
            table {
                tr {
                    @for column in ["quantity", "unit", "paper", "ours", "95 %", "verdict", "why"] { th { (column) } }
                }
                @for row in &outcome.rows { (line(row)) }
            }
        }
        @for (name, address) in pictures {
            figure { img alt=(name) src=(address); }
        }
    })
}

fn line(row: &Row) -> Markup {
    let interval = row.ci95.map_or("–".into(), |[low, high]| format!("{low:.3} … {high:.3}"));
    let color = match row.verdict {
        Verdict::Holds => Some("color:#007a4d"),
        Verdict::Differs => Some("color:#b3261e"),
        Verdict::Undecided | Verdict::NoPaperValue => None,
    };
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
            td style=[color] { (row.verdict.as_str()) }
            td { (row.why) }
        }
    }
}

/// A picture as a `data:` address. A browser runs no scripts in an SVG that it loads as an image.
fn data_address(svg: &str) -> String {
    let mut address = String::from("data:image/svg+xml,");
    for byte in svg.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~ /:=,;".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
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
        assert!(page.contains("first") && page.contains("second") && page.contains("holds"));
        assert!(page.contains("b/result.json") && !page.contains("SECRET"));
    }

    #[test]
    fn without_results_the_page_says_what_to_do() {
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
